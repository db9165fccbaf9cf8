#include "mps/core/kernel/several_sources.hpp"

#include <algorithm>

#include "mps/core/kernel/call_checks.hpp"
#include "mps/core/types/error.hpp"

namespace mps::detail {
namespace {

/// One axis of a source.
struct Axis {
  std::int64_t size, window, stride;

  Axis(std::size_t size, std::size_t kernel, std::size_t dilation, std::size_t stride)
      : size(static_cast<std::int64_t>(size)),
        window((static_cast<std::int64_t>(kernel) - 1) * static_cast<std::int64_t>(dilation) + 1),
        stride(static_cast<std::int64_t>(std::max<std::size_t>(1, stride))) {}  // 0 repeats one element
};

Axis alongX(const SourceOfSize& source) {
  const SourceProperties& properties = *source.properties;
  return {source.image.width(), properties.kernelWidth.get(), properties.dilationRateX.get(),
          properties.strideInPixelsX.get()};
}

Axis alongY(const SourceOfSize& source) {
  const SourceProperties& properties = *source.properties;
  return {source.image.height(), properties.kernelHeight.get(), properties.dilationRateY.get(),
          properties.strideInPixelsY.get()};
}

/// Products of sizes and strides stay within 64 bits.
void checkAxis(const Kernel& kernel, const std::string& size, std::size_t kernelSize, const char* rate,
               std::size_t dilationRate) {
  if (kernelSize == 0) throw Error(kernel.describe(), size, "0", "at least 1");
  checkStride(kernel, size.c_str(), kernelSize);
  checkStride(kernel, rate, dilationRate);
  checkStride(kernel, ("dilated " + size).c_str(), (kernelSize - 1) * dilationRate + 1);
}

void checkGeometry(const Kernel& kernel, const SourceProperties& properties) {
  checkAxis(kernel, "kernelWidth", properties.kernelWidth.get(), "dilationRateX",
            properties.dilationRateX.get());
  checkAxis(kernel, "kernelHeight", properties.kernelHeight.get(), "dilationRateY",
            properties.dilationRateY.get());
  checkStride(kernel, "strideInPixelsX", properties.strideInPixelsX.get());
  checkStride(kernel, "strideInPixelsY", properties.strideInPixelsY.get());
}

}  // namespace

std::size_t SourceOfSize::featureChannelsRead() const {
  const std::size_t first = std::min(properties->featureChannelOffset.get(), image.featureChannels());
  return std::min(properties->featureChannelMaxCount.get(), image.featureChannels() - first);
}

ImageDescriptor sizeBySources(const Kernel& kernel, const char* argument, NNPaddingMethod method,
                              std::span<const SourceOfSize> sources) {
  checkedPaddingMethod(kernel.describe(), "padding", method);
  for (const SourceOfSize& source : sources) checkGeometry(kernel, *source.properties);
  const ImageDescriptor& first = sources[0].image;
  const bool left = remainderToLeft(method);
  const bool top = remainderToTop(method);
  const auto sizeOf = [&](const Axis& axis, bool remainderFirst) {
    return forwardPadding(method, remainderFirst, axis.size, axis.window, axis.stride).destinationSize;
  };
  const std::int64_t width = sizeOf(alongX(sources[0]), left);
  const std::int64_t height = sizeOf(alongY(sources[0]), top);
  if (width < 1 || height < 1)
    throw Error(kernel.describe(), argument, first.describe(), "at least the dilated window");
  const auto offsetOf = [&](const Axis& axis, bool remainderFirst, std::int64_t destination) {
    return forwardOffset(method, remainderFirst, axis.size, destination, axis.window, axis.stride);
  };
  for (const SourceOfSize& source : sources) {
    Offset offset = source.properties->offset.get();
    offset.x = offsetOf(alongX(source), left, width);
    offset.y = offsetOf(alongY(source), top, height);
    source.properties->offset.transfer(offset);
  }
  ImageDescriptor destination(first.channelFormat(), static_cast<std::size_t>(width),
                              static_cast<std::size_t>(height), 1, first.numberOfImages());
  // unorm images are sources only (docs/decisions.md, D16)
  if (first.channelFormat() == ImageFeatureChannelFormat::Unorm8 ||
      first.channelFormat() == ImageFeatureChannelFormat::Unorm16)
    destination.setChannelFormat(ImageFeatureChannelFormat::Float32);
  return destination;
}

ImageDescriptor askHooks(Kernel& kernel, NNPadding& padding,
                         std::span<const std::shared_ptr<Image>> sourceImages,
                         std::span<const std::shared_ptr<State>> sourceStates, ImageDescriptor descriptor) {
  for (const auto& state : sourceStates)
    if (state) descriptor = state->destinationImageDescriptor(sourceImages, sourceStates, kernel, descriptor);
  if ((padding.paddingMethod() & NNPaddingMethod::Custom) == NNPaddingMethod::Custom)
    descriptor = padding.destinationImageDescriptor(sourceImages, sourceStates, kernel, descriptor);
  return descriptor;
}

}  // namespace mps::detail
