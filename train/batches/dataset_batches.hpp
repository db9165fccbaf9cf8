#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "train/batches/augmentation.hpp"
#include "train/batches/batch_loader.hpp"
#include "train/data/dataset.hpp"
#include "train/data/normalization.hpp"

namespace mtl {
class Device;
}

namespace unmetal::train::detail {

/// The format in which these pictures go to a device: bytes to a GPU as they are, else float32.
mps::ImageFeatureChannelFormat formatOf(const Dataset& data, const mtl::Device& device,
                                        const std::optional<Normalization>& normalization);

/// How pictures of a data set become those of a batch.
struct BatchContents {
  mps::ImageFeatureChannelFormat format = mps::ImageFeatureChannelFormat::Float32;
  /// Of the network: with a crop those of the data set may be larger.
  Shape pictures;
  Augmentation augmentation = {};
  std::uint64_t seed = 0;                                     ///< of the augmentation
  std::optional<Normalization> normalization = std::nullopt;  ///< of Float32
};

/// The pictures of `data`, which must outlive the source. @param contents with a format of formatOf
/// @throws mps::Error for another format, and, when pictures are written, for a class that is none, and numbers that are not
/// finite
BatchSource sourceFrom(const Dataset& data, const BatchContents& contents);

/// @param what e.g. "training data" @param augmentation one that crops may have larger pictures to do it
/// @throws mps::Error where the network's pictures or classes are others
void checkFits(const Dataset& data, const std::string& what, const Shape& pictures, std::size_t classes,
               const Augmentation& augmentation = {});

/// Labels of pictures in memory that leave one of their classes out are wrong, unless somebody has said what classes there are.
/// @throws mps::Error for such ones
void checkHasEachClass(const Dataset& data, const std::string& what);

}  // namespace unmetal::train::detail
