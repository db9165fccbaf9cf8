#pragma once

#include <string>

#include "train/batch_loader.hpp"
#include "train/dataset.hpp"

namespace mtl {
class Device;
}

namespace unmetal::train::detail {

/// The format in which these pictures go to a device: bytes to a GPU as they are, else float32.
mps::ImageFeatureChannelFormat formatOf(const Dataset& data, const mtl::Device& device);

/// Copies from `data`, which must outlive the function. @param format of formatOf
/// @throws mps::Error, when it is called, for a class that is none, and numbers that are not finite
BatchFill fillFrom(const Dataset& data, mps::ImageFeatureChannelFormat format);

/// @param what e.g. "training data" @throws mps::Error where the network's pictures or classes are others
void checkFits(const Dataset& data, const std::string& what, const Shape& pictures, std::size_t classes);

}  // namespace unmetal::train::detail
