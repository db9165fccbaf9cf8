#include "onnx/export/windows.hpp"

#include <algorithm>

namespace unmetal::onnx::detail {
namespace {

mps::detail::WindowAxis axisOf(std::int64_t sourceSize, std::int64_t resultSize, std::size_t kernelSize,
                               std::size_t stride, std::size_t dilation, std::int64_t offset) {
  return {sourceSize,
          resultSize,
          static_cast<std::int64_t>(kernelSize),
          static_cast<std::int64_t>(stride),
          static_cast<std::int64_t>(dilation),
          offset};
}

}  // namespace

PixelRegion Windows::region() const {
  const auto length = [](const mps::detail::WindowAxis& axis) {
    // Last pixels that are too few for another window may stay.
    const std::int64_t unread = -axis.paddingAfter();
    const std::int64_t stays = unread > 0 && unread < axis.stride ? unread : 0;
    return axis.stride * (axis.destinationSize - 1) + axis.dilatedSize() + stays;
  };
  return {-x.paddingBefore(), -y.paddingBefore(), length(x), length(y)};
}

Windows windowsOf(const mps::CNNKernel& kernel, const Step& step) {
  return {axisOf(step.source().width, step.result.width, kernel.kernelWidth(), kernel.strideInPixelsX(),
                 kernel.dilationRateX(), kernel.offset().x),
          axisOf(step.source().height, step.result.height, kernel.kernelHeight(), kernel.strideInPixelsY(),
                 kernel.dilationRateY(), kernel.offset().y)};
}

PaddedSource padSource(const Step& step, const Windows& windows, mps::ImageEdgeMode edgeMode,
                       const MostPadding& most) {
  const auto count = [](std::int64_t pad) { return std::max<std::int64_t>(pad, 0); };
  std::vector<std::int64_t> pads{count(windows.y.paddingBefore()), count(windows.x.paddingBefore()),
                                 count(windows.y.paddingAfter()), count(windows.x.paddingAfter())};
  if (std::max(pads[0], pads[2]) > most.y || std::max(pads[1], pads[3]) > most.x) pads.assign(4, 0);
  PixelRegion region = windows.region();
  region.x += pads[1];
  region.y += pads[0];
  region.width -= pads[1] + pads[3];
  region.height -= pads[0] + pads[2];
  return {step.pixels(step.source(), region, edgeMode), pads};
}

}  // namespace unmetal::onnx::detail
