#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "mps/core/coding/secure_coding.hpp"
#include "mps/core/image/image_batch.hpp"

namespace mps {

class Kernel;

/// Makes the destination images of kernels (protocol MPSImageAllocator).
///
/// Derive from it to control where results live. The descriptor is the final output of the padding policy. Kernels with
/// an allocator of your own can be coded when it overrides what SecureCoding asks for.
class ImageAllocator : public SecureCoding {
 public:
  /// One image that lives at least until the command buffer completes, on the buffer's device. The kernel is
  /// informational. Returning null, or an image of another size, makes the encode throw.
  virtual std::shared_ptr<Image> image(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                       const ImageDescriptor& descriptor, const Kernel& kernel) = 0;

  /// `count` images at once. The default calls image() for each.
  virtual ImageBatch imageBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                const ImageDescriptor& descriptor, const Kernel& kernel, std::size_t count);
};

}  // namespace mps
