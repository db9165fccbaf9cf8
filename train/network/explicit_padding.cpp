#include "train/network/explicit_padding.hpp"

#include "mps/convolution/convolution_transpose.hpp"
#include "mps/core/kernel/cnn_kernel.hpp"

namespace unmetal::train::detail {
namespace {

std::int64_t dilatedSize(std::size_t kernelSize, std::size_t dilation) {
  return static_cast<std::int64_t>((kernelSize - 1) * dilation + 1);
}

/// Where a kernel looks for its first result: the middle of the first window, counted from the source's first pixel.
std::int64_t middle(std::int64_t extent, std::size_t margin) {
  return extent / 2 - static_cast<std::int64_t>(margin);
}

/// How far a transposed convolution moves its result; without, half of a window is cut off.
std::int64_t shift(std::int64_t extent, std::size_t margin) {
  return static_cast<std::int64_t>(margin) - (extent - 1 - extent / 2);
}

}  // namespace

// Full, so that a source which is smaller than the window is none that the kernel refuses.
mps::NNPaddingMethod ExplicitPadding::paddingMethod() const {
  return mps::NNPaddingMethod::Custom | mps::NNPaddingMethod::CustomWhitelistForNodeFusion |
         mps::NNPaddingMethod::SizeFull;
}

mps::ImageDescriptor ExplicitPadding::destinationImageDescriptor(
    std::span<const std::shared_ptr<mps::Image>> /*sourceImages*/,
    std::span<const std::shared_ptr<mps::State>> /*sourceStates*/, mps::Kernel& kernel,
    const mps::ImageDescriptor& suggestedDescriptor) {
  auto& windows = dynamic_cast<mps::CNNKernel&>(kernel);
  const std::int64_t width = dilatedSize(windows.kernelWidth(), windows.dilationRateX());
  const std::int64_t height = dilatedSize(windows.kernelHeight(), windows.dilationRateY());
  if (auto* transposed = dynamic_cast<mps::CNNConvolutionTranspose*>(&kernel)) {
    transposed->setKernelOffsetX(shift(width, margins_.left));
    transposed->setKernelOffsetY(shift(height, margins_.top));
  } else {
    windows.setOffset({middle(width, margins_.left), middle(height, margins_.top), 0});
  }
  mps::ImageDescriptor descriptor = suggestedDescriptor;
  descriptor.setWidth(result_.width);
  descriptor.setHeight(result_.height);
  return descriptor;
}

}  // namespace unmetal::train::detail
