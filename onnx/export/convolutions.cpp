#include <cstdint>
#include <limits>

#include "mps/convolution/convolution.hpp"
#include "mps/convolution/fully_connected.hpp"
#include "onnx/export/weights.hpp"
#include "onnx/export/windows.hpp"

/// Convolutions and fully connected layers.
namespace unmetal::onnx::detail {
namespace {

/// A fully connected layer is one window that covers its source.
Windows convolutionWindows(const mps::CNNConvolution& convolution, const Step& step) {
  Windows windows = windowsOf(convolution, step);
  if (dynamic_cast<const mps::CNNFullyConnected*>(&convolution) == nullptr) return windows;
  windows.x.offset = windows.x.dilatedSize() / 2;
  windows.y.offset = windows.y.dilatedSize() / 2;
  return windows;
}

/// Convolution and biases. With sub-pixels the result is not spread over its pixels yet.
std::string addConvolution(const Step& step, const mps::CNNConvolution& convolution, const Windows& windows) {
  constexpr std::int64_t any = std::numeric_limits<std::int32_t>::max();
  const bool addsZeros = convolution.edgeMode() == mps::ImageEdgeMode::Zero;
  const PaddedSource source =
      padSource(step, windows, convolution.edgeMode(), addsZeros ? MostPadding{any, any} : MostPadding{});
  const LayerWeights weights = weightsOf(step, convolution);
  std::vector<std::string> inputs{source.picture.value,
                                  step.model.constant("weight", weights.shape(), weights.outInHeightWidth())};
  if (!weights.biases.empty())
    inputs.push_back(step.model.constant("bias", {weights.outputs}, weights.biases));
  return step.add("Conv", std::move(inputs),
                  {windows.kernelShape(),
                   windows.strides(),
                   windows.dilations(),
                   source.attribute(),
                   {"group", weights.groups}});
}

}  // namespace

std::optional<std::string> translateConvolution(const Step& given) {
  const auto* convolution = given.as<mps::CNNConvolution>();
  if (convolution == nullptr) return std::nullopt;
  Step step = given;
  step.sources[0] = given.channels(given.source(), 0, convolution->inputFeatureChannels());
  const auto factor = static_cast<std::int64_t>(convolution->subPixelScaleFactor());
  step.result.width /= factor;
  step.result.height /= factor;
  const auto outputs = static_cast<std::int64_t>(convolution->outputFeatureChannels());
  std::string value = addConvolution(step, *convolution, convolutionWindows(*convolution, step));
  value = addNeuron(step, value, convolution->fusedNeuronDescriptor(), outputs);
  value = addNeuron(step, value, convolution->graphNeuron(), outputs);
  if (factor == 1) return value;
  return step.add("DepthToSpace", {value}, {{"blocksize", factor}, {"mode", "DCR"}});
}

}  // namespace unmetal::onnx::detail
