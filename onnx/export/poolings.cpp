#include <algorithm>
#include <cstddef>

#include "mps/pooling/pooling.hpp"
#include "onnx/export/windows.hpp"

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

/// How many taps of each window along an axis lie in the source or a band of pixels around it.
std::vector<std::int64_t> countsOf(const mps::detail::WindowAxis& axis, std::size_t band) {
  mps::detail::WindowAxis grown = axis;
  grown.sourceSize += 2 * static_cast<std::int64_t>(band);
  grown.offset += static_cast<std::int64_t>(band);
  std::vector<std::int64_t> counts;
  for (std::int64_t i = 0; i < axis.destinationSize; ++i)
    counts.push_back(std::max<std::int64_t>(grown.endInside(i) - grown.firstInside(i), 0));
  return counts;
}

/// What makes averages of whole windows those of the taps that count: 0 where none does.
std::string countedFactor(const Step& step, const mps::CNNPoolingAverage& pooling, const Windows& windows) {
  const std::int64_t all = windows.x.kernelSize * windows.y.kernelSize;
  std::vector<float> factors;
  for (const std::int64_t rows : countsOf(windows.y, pooling.zeroPadSizeY()))
    for (const std::int64_t columns : countsOf(windows.x, pooling.zeroPadSizeX()))
      factors.push_back(rows * columns == 0 ? 0
                                            : static_cast<float>(all) / static_cast<float>(rows * columns));
  return step.model.constant("factor", {1, 1, step.result.height, step.result.width}, std::move(factors));
}

std::string addAverage(const Step& step, const mps::CNNPoolingAverage& pooling) {
  const Windows windows = windowsOf(pooling, step);
  const bool countsAll = pooling.edgeMode() == mps::ImageEdgeMode::Zero;
  const bool hasBand = pooling.zeroPadSizeX() != 0 || pooling.zeroPadSizeY() != 0;
  // The operator counts either all taps or those in the source, of which there has to be one.
  const bool isFactorNeeded = !countsAll && (hasBand || !isWithin(windows, mostPadding(windows)));
  const PaddedSource source = padSource(step, windows, mps::ImageEdgeMode::Zero, mostPadding(windows));
  const std::string average = step.add("AveragePool", {source.picture.value},
                                       {windows.kernelShape(),
                                        windows.strides(),
                                        source.attribute(),
                                        {"count_include_pad", std::int64_t{countsAll || isFactorNeeded}}});
  return isFactorNeeded ? step.add("Mul", {average, countedFactor(step, pooling, windows)}) : average;
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
  if (step.as<mps::CNNPoolingMax>() != nullptr || step.as<mps::CNNDilatedPoolingMax>() != nullptr)
    return addMaximum(step, *pooling);
  return std::nullopt;
}

}  // namespace unmetal::onnx::detail
