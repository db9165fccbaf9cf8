#include <algorithm>
#include <cstddef>

#include "mps/pooling/pooling.hpp"
#include "onnx/windows.hpp"

/// Pooling.
namespace unmetal::onnx::detail {
namespace {

/// Runtimes take no padding as large as the window.
MostPadding mostPadding(const Windows& windows) {
  return {windows.x.kernelSize - 1, windows.y.kernelSize - 1};
}

bool isWithin(const Windows& windows, const MostPadding& most) {
  return std::max(windows.x.paddingBefore(), windows.x.paddingAfter()) <= most.x &&
         std::max(windows.y.paddingBefore(), windows.y.paddingAfter()) <= most.y;
}

std::string addMaximum(const Step& step, const mps::CNNPooling& pooling) {
  const Windows windows = windowsOf(pooling, step);
  // ONNX pads with minus infinity: that is Clamp, unless taps lie apart, and the edge pixel is none.
  const bool isDilated = windows.x.dilation != 1 || windows.y.dilation != 1;
  const bool padsItself = pooling.edgeMode() == mps::ImageEdgeMode::Clamp && !isDilated;
  const PaddedSource source =
      padSource(step, windows, pooling.edgeMode(), padsItself ? mostPadding(windows) : MostPadding{});
  std::vector<Attribute> attributes{windows.kernelShape(), windows.strides(), source.attribute()};
  if (isDilated) attributes.push_back(windows.dilations());
  return step.add("MaxPool", {source.picture.value}, std::move(attributes));
}

/// Zeros around a source that are counted: as many as there are, at most `band` pixels on each side.
Picture withBand(const Step& step, const Windows& windows, std::int64_t bandX, std::int64_t bandY) {
  const auto width = [](std::int64_t padding, std::int64_t band) {
    return std::clamp<std::int64_t>(padding, 0, band);
  };
  const std::int64_t left = width(windows.x.paddingBefore(), bandX);
  const std::int64_t top = width(windows.y.paddingBefore(), bandY);
  return step.pixels(step.source(),
                     {-left, -top, step.source().width + left + width(windows.x.paddingAfter(), bandX),
                      step.source().height + top + width(windows.y.paddingAfter(), bandY)},
                     mps::ImageEdgeMode::Zero);
}

/// The step behind those zeros.
Step behindBand(const Step& given, const mps::CNNPoolingAverage& pooling, Windows& windows) {
  Step step = given;
  step.sources[0] = withBand(given, windows, static_cast<std::int64_t>(pooling.zeroPadSizeX()),
                             static_cast<std::int64_t>(pooling.zeroPadSizeY()));
  const auto move = [](mps::detail::WindowAxis& axis, std::int64_t size, std::size_t band) {
    axis.offset += std::clamp<std::int64_t>(axis.paddingBefore(), 0, static_cast<std::int64_t>(band));
    axis.sourceSize = size;
  };
  move(windows.x, step.source().width, pooling.zeroPadSizeX());
  move(windows.y, step.source().height, pooling.zeroPadSizeY());
  return step;
}

std::string addAverage(const Step& given, const mps::CNNPoolingAverage& pooling) {
  Windows windows = windowsOf(pooling, given);
  const bool countsZeros = pooling.edgeMode() == mps::ImageEdgeMode::Zero;
  const Step step = countsZeros ? given : behindBand(given, pooling, windows);
  const PaddedSource source = padSource(step, windows, mps::ImageEdgeMode::Zero, mostPadding(windows));
  if (!countsZeros && !isWithin(windows, mostPadding(windows)))
    throw step.refusal("windows lie outside of its source, where ONNX has no average");
  return step.add("AveragePool", {source.picture.value},
                  {windows.kernelShape(),
                   windows.strides(),
                   source.attribute(),
                   {"count_include_pad", std::int64_t{countsZeros}}});
}

std::string addNorm(const Step& step, const mps::CNNPooling& pooling) {
  const Windows windows = windowsOf(pooling, step);
  const PaddedSource source = padSource(step, windows, mps::ImageEdgeMode::Zero, mostPadding(windows));
  return step.add("LpPool", {source.picture.value},
                  {windows.kernelShape(), windows.strides(), source.attribute(), {"p", std::int64_t{2}}});
}

}  // namespace

std::optional<std::string> translatePooling(const Step& step) {
  const auto* pooling = step.as<mps::CNNPooling>();
  if (pooling == nullptr) return std::nullopt;
  if (const auto* average = step.as<mps::CNNPoolingAverage>()) return addAverage(step, *average);
  if (step.as<mps::CNNPoolingL2Norm>() != nullptr) return addNorm(step, *pooling);
  return addMaximum(step, *pooling);
}

}  // namespace unmetal::onnx::detail
