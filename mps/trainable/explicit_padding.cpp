#include "mps/trainable/explicit_padding.hpp"

#include "mps/convolution/convolution_transpose.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/coding/core_decoders.hpp"
#include "mps/core/kernel/cnn_kernel.hpp"
#include "mps/core/types/error.hpp"

namespace mps::detail {
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
NNPaddingMethod ExplicitPadding::paddingMethod() const {
  return NNPaddingMethod::Custom | NNPaddingMethod::CustomWhitelistForNodeFusion | NNPaddingMethod::SizeFull;
}

ImageDescriptor ExplicitPadding::destinationImageDescriptor(
    std::span<const std::shared_ptr<Image>> /*sourceImages*/,
    std::span<const std::shared_ptr<State>> /*sourceStates*/, Kernel& kernel,
    const ImageDescriptor& suggestedDescriptor) {
  auto* windows = dynamic_cast<CNNKernel*>(&kernel);
  if (windows == nullptr)
    throw Error("ExplicitPadding", "kernel", kernel.className(), "one with windows over one source");
  const std::int64_t width = dilatedSize(windows->kernelWidth(), windows->dilationRateX());
  const std::int64_t height = dilatedSize(windows->kernelHeight(), windows->dilationRateY());
  if (auto* transposed = dynamic_cast<CNNConvolutionTranspose*>(&kernel)) {
    transposed->setKernelOffsetX(shift(width, geometry_.left));
    transposed->setKernelOffsetY(shift(height, geometry_.top));
  } else {
    windows->setOffset({middle(width, geometry_.left), middle(height, geometry_.top), 0});
  }
  ImageDescriptor descriptor = suggestedDescriptor;
  descriptor.setWidth(geometry_.width);
  descriptor.setHeight(geometry_.height);
  return descriptor;
}

void ExplicitPadding::code(Coder& coder, Geometry& geometry) {
  coder.codeSize("left", geometry.left);
  coder.codeSize("top", geometry.top);
  coder.codeSize("width", geometry.width);
  coder.codeSize("height", geometry.height);
}

void ExplicitPadding::encode(Coder& coder) const {
  coder.codeClass(className());
  Geometry geometry = geometry_;
  code(coder, geometry);
}

std::shared_ptr<ExplicitPadding> ExplicitPadding::decode(Coder& coder) {
  checkDecodes(coder, "ExplicitPadding");
  coder.codeClass("ExplicitPadding");
  Geometry geometry;
  code(coder, geometry);
  if (geometry.width == 0) coder.refuse("width", "0", "a size from 1 on");
  if (geometry.height == 0) coder.refuse("height", "0", "a size from 1 on");
  return std::make_shared<ExplicitPadding>(geometry);
}

}  // namespace mps::detail
