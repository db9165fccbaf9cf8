#include "mps/trainable/trainable_convolution.hpp"

#include <algorithm>
#include <cmath>

#include "mps/core/types/error.hpp"
#include "mps/core/types/philox.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"

namespace mps {
namespace {

/// Uniform in [-bound, bound), element by element the same everywhere.
void fillUniform(std::span<float> values, std::uint64_t seed, float bound) {
  constexpr std::size_t wordsPerBlock = 4;
  const detail::PhiloxKey key = detail::philoxKey(seed);
  for (std::size_t first = 0; first < values.size(); first += wordsPerBlock) {
    const auto block = static_cast<std::uint64_t>(first / wordsPerBlock);
    const auto words = detail::philox(
        {0, 0, static_cast<std::uint32_t>(block >> 32U), static_cast<std::uint32_t>(block)}, key);
    for (std::size_t i = first; i < std::min(first + wordsPerBlock, values.size()); ++i) {
      // One rounding, whatever the compiler contracts.
      const float unit = static_cast<float>(words[i - first] >> 9U) * 0x1.0p-23F;
      values[i] = std::fma(2 * bound, unit, -bound);
    }
  }
}

const CNNConvolutionDescriptor& checked(const CNNConvolutionDescriptor& descriptor) {
  descriptor.check("TrainableConvolution");
  return descriptor;
}

std::shared_ptr<CNNConvolutionWeightsAndBiasesState> makeState(const std::shared_ptr<mtl::Device>& device,
                                                               const CNNConvolutionDescriptor& descriptor,
                                                               LayerBiases biases) {
  const auto floats = [&](std::size_t count) { return device->newBuffer(count * sizeof(float)); };
  return CNNConvolutionWeightsAndBiasesState::create(
      floats(descriptor.weightCount()),
      biases == LayerBiases::Trained ? floats(descriptor.outputFeatureChannels()) : nullptr);
}

}  // namespace

TrainableConvolution::TrainableConvolution(const std::shared_ptr<mtl::Device>& device,
                                           const CNNConvolutionDescriptor& descriptor, std::string label,
                                           const std::shared_ptr<NNOptimizer>& optimizer, AdamForm adamForm,
                                           LayerBiases biases)
    : device_(device),
      descriptor_(checked(descriptor)),
      label_(std::move(label)),
      state_(makeState(device, descriptor, biases)),
      slots_("TrainableConvolution", device, optimizer, adamForm, arrays()) {
  state_->setLabel(label_);
}

std::shared_ptr<TrainableConvolution> TrainableConvolution::create(
    const std::shared_ptr<mtl::Device>& device, const CNNConvolutionDescriptor& descriptor, std::string label,
    std::uint64_t seed, const std::shared_ptr<NNOptimizer>& optimizer, WeightInitialization initialization,
    AdamForm adamForm, LayerBiases biases) {
  if (!device) throw Error("TrainableConvolution", "device", "null", "a device");
  auto source = std::shared_ptr<TrainableConvolution>(
      new TrainableConvolution(device, descriptor, std::move(label), optimizer, adamForm, biases));
  source->initialize(seed, initialization);
  return source;
}

void TrainableConvolution::initialize(std::uint64_t seed, WeightInitialization initialization) {
  const auto weights = state_->weights()->contentsAs<float>();
  const auto fanIn = static_cast<double>(descriptor_.weightsPerOutputChannel());
  const auto fanOut = static_cast<double>(descriptor_.weightCount()) /
                      static_cast<double>(descriptor_.inputFeatureChannels());
  switch (initialization) {
    case WeightInitialization::He:
      fillUniform(weights, seed, static_cast<float>(std::sqrt(6 / fanIn)));
      break;
    case WeightInitialization::Glorot:
      fillUniform(weights, seed, static_cast<float>(std::sqrt(6 / (fanIn + fanOut))));
      break;
    case WeightInitialization::Constant:
      std::ranges::fill(weights, constantWeight);
      break;
  }
  state_->weights()->didModifyRange(0, state_->weights()->length());
}

std::span<const std::byte> TrainableConvolution::weights() const {
  const auto buffer = state_->weights();
  return {buffer->contents(), buffer->length()};
}

std::span<const float> TrainableConvolution::biasTerms() const {
  const auto buffer = state_->biases();
  return buffer ? buffer->contentsAs<const float>() : std::span<const float>();
}

std::shared_ptr<CNNConvolutionWeightsAndBiasesState> TrainableConvolution::update(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    const std::shared_ptr<CNNConvolutionGradientState>& gradientState,
    const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& /*sourceState*/) {
  if (frozen_ || !slots_.optimizer()) return nullptr;
  slots_.encode(commandBuffer, state_, gradientState, state_);
  return state_;
}

bool TrainableConvolution::update(const std::shared_ptr<CNNConvolutionGradientState>& gradientState,
                                  const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& sourceState) {
  return runNow([&](const auto& commandBuffer) {
    return update(commandBuffer, gradientState, sourceState) != nullptr;
  });
}

bool TrainableConvolution::runNow(
    const std::function<bool(const std::shared_ptr<mtl::CommandBuffer>&)>& record) {
  if (!queue_) queue_ = device_->newCommandQueue();
  const auto commandBuffer = queue_->commandBuffer();
  if (!record(commandBuffer)) return false;
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  return true;
}

std::shared_ptr<CNNConvolutionDataSource> TrainableConvolution::copy(
    const std::shared_ptr<mtl::Device>& device) {
  const auto biases = state_->biases();
  auto other = std::shared_ptr<TrainableConvolution>(
      new TrainableConvolution(device, descriptor_, label_, slots_.optimizer(), slots_.adamForm(),
                               biases ? LayerBiases::Trained : LayerBiases::None));
  runNow([&](const auto& commandBuffer) {
    synchronize(commandBuffer);
    return true;
  });
  detail::copyBuffer(*state_->weights(), *other->state_->weights());
  if (biases) detail::copyBuffer(*biases, *other->state_->biases());
  other->slots_.copyFrom(slots_);
  other->frozen_ = frozen_;
  return other;
}

std::shared_ptr<CNNConvolutionWeightsAndBiasesState> TrainableConvolution::deviceWeightsAndBiases(
    const std::shared_ptr<mtl::Device>& device) {
  return device == device_ ? state_ : nullptr;
}

void TrainableConvolution::synchronize(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
  state_->synchronize(commandBuffer);
  slots_.synchronize(commandBuffer);
}

std::vector<detail::TrainableArray> TrainableConvolution::arrays() const {
  const std::size_t perChannel = descriptor_.weightsPerOutputChannel();
  const std::vector<std::uint64_t> weightShape{
      descriptor_.outputFeatureChannels(), descriptor_.kernelHeight(), descriptor_.kernelWidth(),
      perChannel / (descriptor_.kernelWidth() * descriptor_.kernelHeight())};
  std::vector<detail::TrainableArray> arrays{{label_ + ".weight", weightShape, state_->weights()}};
  if (const auto biases = state_->biases())
    arrays.push_back({label_ + ".bias", {descriptor_.outputFeatureChannels()}, biases});
  return arrays;
}

std::vector<SafetensorsTensor> TrainableConvolution::tensors(bool withOptimizerState) const {
  std::vector<SafetensorsTensor> tensors;
  for (const detail::TrainableArray& array : arrays()) tensors.push_back(array.tensor());
  if (withOptimizerState) slots_.appendTensors(tensors, label_);
  return tensors;
}

void TrainableConvolution::read(const SafetensorsFile& file, bool withOptimizerState) {
  detail::Replacements replacements;
  for (const detail::TrainableArray& array : arrays())
    replacements.add(file, array.name, array.shape, array.buffer);
  if (withOptimizerState) {
    slots_.addReplacements(replacements, file);
    slots_.readTimeStep(file, label_);
  }
  replacements.apply();
}

void TrainableConvolution::readFromPyTorch(const SafetensorsFile& file) {
  const std::size_t outputs = descriptor_.outputFeatureChannels();
  const std::size_t places = descriptor_.kernelWidth() * descriptor_.kernelHeight();
  const std::size_t inputs = descriptor_.weightsPerOutputChannel() / places;
  const std::string name = label_ + ".weight";
  const bool isMatrix = file.tensor(name).shape.size() == 2;
  const auto shape = isMatrix ? std::vector<std::uint64_t>{outputs, inputs * places}
                              : std::vector<std::uint64_t>{outputs, inputs, descriptor_.kernelHeight(),
                                                           descriptor_.kernelWidth()};
  const std::vector<float> theirs = file.floats(name, shape);
  std::vector<float> ours(theirs.size());
  for (std::size_t out = 0; out < outputs; ++out)
    for (std::size_t in = 0; in < inputs; ++in)
      for (std::size_t place = 0; place < places; ++place)
        ours[(out * places + place) * inputs + in] = theirs[(out * inputs + in) * places + place];
  detail::Replacements replacements;
  replacements.add(std::move(ours), state_->weights());
  if (const auto biases = state_->biases()) replacements.add(file, label_ + ".bias", {outputs}, biases);
  replacements.apply();
}

}  // namespace mps
