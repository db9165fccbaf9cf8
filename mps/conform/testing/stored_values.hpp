#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "mps/core/image/image_batch.hpp"
#include "mps/core/plan/reference_tensor.hpp"

namespace mtl {
class Device;
class Memory;
}  // namespace mtl

/// What is stored on a device, exactly, for references that go on from it.
namespace mps::detail {

/// @throws Error for temporary images.
ReferenceTensor storedValues(const ImageBatch& images);

/// `count` float32 values.
std::vector<double> storedFloats(const std::shared_ptr<mtl::Device>& device,
                                 const std::shared_ptr<mtl::Memory>& memory, std::size_t byteOffset,
                                 std::size_t count);

}  // namespace mps::detail
