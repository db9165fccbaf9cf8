#include "onnx/export/weights.hpp"

#include "mps/convolution/convolution_weights.hpp"

namespace unmetal::onnx::detail {

std::vector<float> LayerWeights::outInHeightWidth() const {
  std::vector<float> ordered;
  ordered.reserve(values.size());
  for (std::int64_t output = 0; output < outputs; ++output)
    for (std::int64_t input = 0; input < inputs; ++input)
      for (std::int64_t row = 0; row < height; ++row)
        for (std::int64_t column = 0; column < width; ++column)
          ordered.push_back(at(output, row, column, input));
  return ordered;
}

std::vector<float> LayerWeights::inOutTurned() const {
  const std::int64_t outputsOfGroup = outputs / groups;
  std::vector<float> ordered;
  ordered.reserve(values.size());
  for (std::int64_t group = 0; group < groups; ++group)
    for (std::int64_t input = 0; input < inputs; ++input)
      for (std::int64_t output = 0; output < outputsOfGroup; ++output)
        for (std::int64_t row = height; row-- > 0;)
          for (std::int64_t column = width; column-- > 0;)
            ordered.push_back(at(group * outputsOfGroup + output, row, column, input));
  return ordered;
}

LayerWeights weightsOf(const Step& step, const mps::detail::KernelWithWeights& kernel) {
  const mps::CNNConvolutionDescriptor& descriptor = kernel.descriptor();
  const mps::detail::ConvolutionWeights& held = *kernel.weights();
  const bool isDepthWise = descriptor.channelMultiplier() != 0;
  const std::size_t groups = isDepthWise ? descriptor.inputFeatureChannels() : descriptor.groups();
  LayerWeights weights;
  weights.outputs = static_cast<std::int64_t>(descriptor.outputFeatureChannels());
  weights.height = static_cast<std::int64_t>(descriptor.kernelHeight());
  weights.width = static_cast<std::int64_t>(descriptor.kernelWidth());
  weights.inputs = static_cast<std::int64_t>(descriptor.inputFeatureChannels() / groups);
  weights.groups = static_cast<std::int64_t>(groups);
  weights.values = step.numbers({held.weights(), held.weightsOffset(), descriptor.weightCount()});
  if (held.biases())
    weights.biases = step.numbers({held.biases(), held.biasesOffset(), descriptor.outputFeatureChannels()});
  return weights;
}

}  // namespace unmetal::onnx::detail
