#include "fuzz/random_calls/families/convolution_weights.hpp"

#include <array>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace unmetal::random_calls {
namespace {

class RandomWeights : public mps::CNNConvolutionDataSource {
 public:
  RandomWeights(Call& call, mps::CNNConvolutionDescriptor descriptor) : descriptor_(std::move(descriptor)) {
    const std::int64_t kind = call.noted("weights", call.random.chance(0.7) ? 0 : call.random.integer(0, 3));
    if (kind < 2)
      makeFloats(call, kind == 0 ? mps::DataType::Float32 : mps::DataType::Float16);
    else
      makeBytes(call, kind == 2 ? mps::CNNWeightsQuantizationType::Linear
                                : mps::CNNWeightsQuantizationType::LookupTable);
    if (call.noted("biases", call.random.chance(0.7)))
      biases_ = call.vector(descriptor_.outputFeatureChannels(), Numbers::Uniform);
  }

  [[nodiscard]] mps::DataType dataType() const override { return type_; }
  [[nodiscard]] mps::CNNConvolutionDescriptor descriptor() const override { return descriptor_; }
  [[nodiscard]] std::span<const std::byte> weights() const override { return weights_; }
  [[nodiscard]] std::span<const float> biasTerms() const override { return biases_; }
  bool load() override { return true; }
  void purge() override {}
  [[nodiscard]] mps::CNNWeightsQuantizationType weightsQuantizationType() const override {
    return quantization_;
  }
  [[nodiscard]] std::span<const std::array<float, 2>> rangesForUInt8Kernel() const override {
    return ranges_;
  }
  [[nodiscard]] std::span<const float> lookupTableForUInt8Kernel() const override { return table_; }

 private:
  void makeFloats(Call& call, mps::DataType type) {
    type_ = type;
    const std::size_t step = mps::sizeInBytes(type);
    weights_.resize(descriptor_.weightCount() * step);
    for (std::size_t at = 0; at < weights_.size(); at += step)
      store(formatOf(type), weights_.data() + at, call.number(Numbers::Uniform));
  }
  void makeBytes(Call& call, mps::CNNWeightsQuantizationType quantization) {
    type_ = mps::DataType::UInt8;
    quantization_ = quantization;
    weights_.resize(descriptor_.weightCount());
    for (std::byte& weight : weights_) weight = static_cast<std::byte>(call.random.bits() & 0xFFU);
    ranges_.assign(descriptor_.outputFeatureChannels(), {-0.7F, 0.9F});
    table_ = call.vector(256, Numbers::Uniform);
  }

  mps::CNNConvolutionDescriptor descriptor_;
  mps::DataType type_ = mps::DataType::Float32;
  mps::CNNWeightsQuantizationType quantization_ = mps::CNNWeightsQuantizationType::None;
  Bytes weights_;
  std::vector<float> biases_;
  std::vector<std::array<float, 2>> ranges_;
  std::vector<float> table_;
};

/// What inputs may be rounded to.
std::optional<ElementFormat> intermediateOf(const mps::Kernel& kernel) {
  if (!mps::has(kernel.options(), mps::KernelOptions::AllowReducedPrecision)) return std::nullopt;
  return ElementFormat::Float16;
}

void observeWeightGradients(Call& call, const mps::StateBatch& states,
                            std::optional<ElementFormat> intermediate) {
  Tolerance tolerance;
  tolerance.factor = 3;  // sums over all pixels of all images
  tolerance.leastScale = 1;
  tolerance.intermediate = intermediate;
  std::set<mps::State*> seen;  // images may share one
  for (std::size_t i = 0; i < states.count(); ++i) {
    const auto state = std::dynamic_pointer_cast<mps::CNNConvolutionGradientState>(states[i]);
    if (!state || !seen.insert(state.get()).second) continue;
    call.observeBuffer("weightGradient", state->gradientForWeights(), tolerance);
    call.observeBuffer("biasGradient", state->gradientForBiases(), tolerance);
  }
}

}  // namespace

std::shared_ptr<mps::CNNConvolutionDataSource> anyWeights(Call& call,
                                                          const mps::CNNConvolutionDescriptor& descriptor) {
  return std::make_shared<RandomWeights>(call, descriptor);
}

void describeConvolution(Call& call, const mps::CNNConvolutionDescriptor& descriptor) {
  call.description << " convolution=(" << descriptor.describe() << ", strides "
                   << descriptor.strideInPixelsX() << ',' << descriptor.strideInPixelsY() << ", dilation "
                   << descriptor.dilationRateX() << ',' << descriptor.dilationRateY() << ", "
                   << descriptor.groups() << " groups)";
}

mps::CNNConvolutionGradientOption anyGradientOption(Call& call) {
  using Option = mps::CNNConvolutionGradientOption;
  return call.noted("gradientOption",
                    call.random.chance(0.2) ? static_cast<Option>(call.random.integer(1, 3)) : Option::All);
}

void setPrecision(Call& call, const mps::CNNConvolutionDescriptor& descriptor, mps::Kernel& kernel,
                  mps::Kernel* gradientKernel) {
  const bool hasNeuron = descriptor.fusedNeuronDescriptor().neuronType() != mps::CNNNeuronType::None;
  if (!call.noted("reducedPrecision", !hasNeuron && call.random.chance(0.3))) return;
  kernel.setOptions(mps::KernelOptions::AllowReducedPrecision);
  if (gradientKernel != nullptr) gradientKernel->setOptions(mps::KernelOptions::AllowReducedPrecision);
}

LayerCall convolutionCall(Call& call, const mps::Kernel& kernel, mps::CNNConvolutionGradientOption option) {
  const std::optional<ElementFormat> intermediate = intermediateOf(kernel);
  LayerCall layer;
  layer.numbers = call.anyNumbers();
  layer.result = layer.gradient = {.factor = 2, .leastScale = 1, .intermediate = intermediate};
  layer.result.jumps = 0.002;  // fused neurons
  layer.observeStates = [&call, option, intermediate](const mps::StateBatch& states) {
    // Else they hold what the memory held.
    if (mps::has(option, mps::CNNConvolutionGradientOption::GradientWithWeightsAndBias))
      observeWeightGradients(call, states, intermediate);
  };
  return layer;
}

}  // namespace unmetal::random_calls
