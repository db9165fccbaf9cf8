#include "mps/convolution/cpu/convolution_cpu.hpp"

#include <array>
#include <functional>

namespace mps::detail {

std::span<const Implementation<ConvolutionProblem>> convolutionImplementationsCpu() {
  static constexpr std::array<Implementation<ConvolutionProblem>, 5> implementations = {{
      {"matmul", prepareConvolutionMatmul},
      {"depthwise", prepareConvolutionDepthwise},
      {"onednn bfloat16", prepareConvolutionBfloat16},
      {"onednn", prepareConvolutionOneDnn},
      {"direct", prepareConvolutionDirect},
  }};
  return implementations;
}

const char* name(ConvolutionOperation operation) {
  switch (operation) {
    case ConvolutionOperation::Forward:
      return "forward";
    case ConvolutionOperation::DataGradient:
      return "data gradient";
    case ConvolutionOperation::WeightsGradient:
      return "weights gradient";
  }
  return "unknown";
}

std::size_t ConvolutionProblem::hash() const {
  return hashOf(operation, x.hash(), y.hash(), groups, inputFeatureChannels, outputFeatureChannels, edgeMode,
                transposed, hasBias, allowReducedPrecision, accumulate, threadCount,
                std::hash<std::string>()(deviceName), neuron.hash(), source.hash(), destination.hash(),
                gradient.hash());
}

namespace {

std::string pair(std::int64_t x, std::int64_t y) {
  return std::to_string(x) + "x" + std::to_string(y);
}

}  // namespace

std::string ConvolutionProblem::describe() const {
  std::string text = transposed ? "transposed convolution " : "convolution ";
  text += name(operation);
  text += " " + pair(x.kernelSize, y.kernelSize) + " stride " + pair(x.stride, y.stride);
  if (x.dilation != 1 || y.dilation != 1) text += " dilation " + pair(x.dilation, y.dilation);
  text += " offset (" + std::to_string(x.offset) + "," + std::to_string(y.offset) + ")";
  if (groups != 1) text += " groups " + std::to_string(groups);
  if (edgeMode == ImageEdgeMode::Clamp) text += " clamped";
  if (hasBias) text += " bias";
  if (neuron.neuronType() != CNNNeuronType::None) text += " " + neuron.describe();
  if (accumulate) text += " accumulate";
  if (allowReducedPrecision) text += " reduced precision";
  if (source.channels > 0) text += ", source " + source.describe();
  if (gradient.channels > 0) text += ", gradient " + gradient.describe();
  if (destination.channels > 0) text += ", destination " + destination.describe();
  return text;
}

}  // namespace mps::detail
