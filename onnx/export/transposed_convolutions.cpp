#include <algorithm>

#include "mps/convolution/convolution_transpose.hpp"
#include "onnx/export/weights.hpp"
#include "onnx/export/windows.hpp"

/// Convolutions that enlarge. ONNX spreads the source over the result with the turned window; result pixel v lies `before` pixels
/// behind the first one that source pixel 0 reaches:
///
///     before = dilation (kernel - 1) + T - floor(dilatedSize / 2)      T = offset * stride + kernelOffset
///
/// Pixels cut off before and behind are its padding. Where the result has more pixels than the source reaches, those are biases.
namespace unmetal::onnx::detail {
namespace {

struct Spread {
  std::int64_t before = 0;
  std::int64_t after = 0;
};

Spread spreadOf(const mps::detail::WindowAxis& axis, std::int64_t kernelOffset) {
  const std::int64_t position = axis.offset * axis.stride + kernelOffset;
  const std::int64_t before = axis.dilatedSize() - 1 + position - axis.dilatedSize() / 2;
  const std::int64_t reached = (axis.sourceSize - 1) * axis.stride + axis.dilatedSize();
  return {before, reached - before - axis.destinationSize};
}

/// The result without biases.
std::string addSpread(const Step& step, const LayerWeights& weights, const Windows& windows, const Spread& x,
                      const Spread& y) {
  const auto cut = [](std::int64_t count) { return std::max<std::int64_t>(count, 0); };
  const std::vector<std::int64_t> pads{cut(y.before), cut(x.before), cut(y.after), cut(x.after)};
  const std::string value = step.add(
      "ConvTranspose",
      {step.source().value, step.model.constant("weight", weights.transposedShape(), weights.inOutTurned())},
      {windows.kernelShape(),
       windows.strides(),
       windows.dilations(),
       {"pads", pads},
       {"group", weights.groups}});
  const auto missing = [](std::int64_t count) { return std::min<std::int64_t>(count, 0); };
  const Picture reached{value, step.result.width + missing(x.before) + missing(x.after),
                        step.result.height + missing(y.before) + missing(y.after), weights.outputs};
  return step
      .pixels(reached, {missing(x.before), missing(y.before), step.result.width, step.result.height},
              mps::ImageEdgeMode::Zero)
      .value;
}

}  // namespace

std::optional<std::string> translateTransposedConvolution(const Step& given) {
  const auto* convolution = given.as<mps::CNNConvolutionTranspose>();
  if (convolution == nullptr) return std::nullopt;
  Step step = given;
  step.sources[0] = given.channels(given.source(), 0, convolution->inputFeatureChannels());
  const Windows windows = windowsOf(*convolution, step);
  const LayerWeights weights = weightsOf(step, *convolution);
  std::string value = addSpread(step, weights, windows, spreadOf(windows.x, convolution->kernelOffsetX()),
                                spreadOf(windows.y, convolution->kernelOffsetY()));
  if (!weights.biases.empty())
    value = step.add("Add", {value, step.model.constant("bias", {weights.outputs, 1, 1}, weights.biases)});
  return addNeuron(step, value, convolution->descriptor().fusedNeuronDescriptor(), weights.outputs);
}

}  // namespace unmetal::onnx::detail
