#include "mps/core/kernel/image_kernel.hpp"

#include "mps/core/coding/coder.hpp"
#include "mps/core/kernel/graph_traits.hpp"
#include "mps/core/types/error.hpp"

namespace mps::detail {

void ImageKernel::setPadding(std::shared_ptr<NNPadding> padding) {
  if (!padding) throw Error(describe(), "padding", "null", "a padding policy");
  padding_ = std::move(padding);
}

void ImageKernel::setDestinationImageAllocator(std::shared_ptr<ImageAllocator> allocator) {
  if (!allocator) throw Error(describe(), "destinationImageAllocator", "null", "an image allocator");
  allocator_ = std::move(allocator);
}

DerivativeTraits ImageKernel::derivativeTraits() const {
  return {};
}

SumTraits ImageKernel::sumTraits() const {
  return {};
}

ChannelTraits ImageKernel::channelTraits() const {
  return {};
}

KernelRoles ImageKernel::roles() {
  return {};
}

ImageDescriptor ImageKernel::sizeUndoing(const ImageDescriptor& /*source*/, const ImageDescriptor& /*undone*/,
                                         const Offset& /*placement*/) {
  throw Error(describe() + ": undoes no other kernel");
}

void ImageKernel::codeProperties(Coder& coder) {
  Kernel::codeProperties(coder);
  coder.codeSize("destinationFeatureChannelOffset", destinationFeatureChannelOffset_);
  coder.code("padding", padding_);
  coder.code("destinationImageAllocator", allocator_);
}

}  // namespace mps::detail
