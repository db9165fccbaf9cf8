#include "mps/trainable/trainable_convolution.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "mps/core/error.hpp"
#include "mps/core/philox.hpp"
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

SafetensorsTensor tensorOf(std::string name, std::vector<std::uint64_t> shape, mtl::Buffer& buffer) {
  return {std::move(name), DataType::Float32, std::move(shape), {buffer.contents(), buffer.length()}};
}

/// Values on their way from a file into a buffer: all are read before the first is changed.
struct Replacement {
  std::vector<float> values;
  std::shared_ptr<mtl::Buffer> buffer;
};

}  // namespace

TrainableConvolution::TrainableConvolution(const std::shared_ptr<mtl::Device>& device,
                                           const CNNConvolutionDescriptor& descriptor, std::string label,
                                           const std::shared_ptr<NNOptimizer>& optimizer, AdamForm adamForm)
    : device_(device),
      descriptor_(descriptor),
      label_(std::move(label)),
      optimizer_(optimizer ? std::static_pointer_cast<NNOptimizer>(optimizer->copy(device)) : nullptr),
      adamForm_(adamForm),
      state_(CNNConvolutionWeightsAndBiasesState::create(device, descriptor)),
      timeStep_(device->newBuffer(sizeof(std::uint64_t))) {
  descriptor_.check("TrainableConvolution");
  checkOptimizer();
  state_->setLabel(label_);
  const std::size_t counts[] = {descriptor_.weightCount(), descriptor_.outputFeatureChannels()};
  for (std::size_t i = 0; i < slotNames().size(); ++i) {
    Slot slot;
    for (const std::size_t count : counts)
      slot.push_back(Vector::create(device_->newBuffer(count * sizeof(float)),
                                    VectorDescriptor::vectorDescriptor(count, DataType::Float32)));
    slots_.push_back(std::move(slot));
  }
}

std::shared_ptr<TrainableConvolution> TrainableConvolution::create(
    const std::shared_ptr<mtl::Device>& device, const CNNConvolutionDescriptor& descriptor, std::string label,
    std::uint64_t seed, const std::shared_ptr<NNOptimizer>& optimizer, WeightInitialization initialization,
    AdamForm adamForm) {
  if (!device) throw Error("TrainableConvolution", "device", "null", "a device");
  auto source = std::shared_ptr<TrainableConvolution>(
      new TrainableConvolution(device, descriptor, std::move(label), optimizer, adamForm));
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

void TrainableConvolution::checkOptimizer() const {
  const bool isAdam = dynamic_cast<const NNOptimizerAdam*>(optimizer_.get()) != nullptr;
  const bool isKnown =
      isAdam || !optimizer_ ||
      dynamic_cast<const NNOptimizerStochasticGradientDescent*>(optimizer_.get()) != nullptr ||
      dynamic_cast<const NNOptimizerRMSProp*>(optimizer_.get()) != nullptr;
  const std::string found = optimizer_ ? optimizer_->className() : "null";
  if (!isKnown) throw Error("TrainableConvolution", "optimizer", found, "SGD, RMSProp or Adam");
  if (adamForm_ == AdamForm::AMSGrad && !isAdam)
    throw Error("TrainableConvolution", "optimizer", found, "Adam, which AMSGrad is a form of");
}

std::vector<std::string> TrainableConvolution::slotNames() const {
  if (const auto* sgd = dynamic_cast<const NNOptimizerStochasticGradientDescent*>(optimizer_.get()))
    return sgd->momentumScale() != 0 ? std::vector<std::string>{"momentum"} : std::vector<std::string>{};
  if (dynamic_cast<const NNOptimizerRMSProp*>(optimizer_.get()) != nullptr) return {"sumOfSquares"};
  if (adamForm_ == AdamForm::AMSGrad) return {"momentum", "velocity", "maximumVelocity"};
  if (optimizer_) return {"momentum", "velocity"};
  return {};
}

std::span<const std::byte> TrainableConvolution::weights() const {
  const auto buffer = state_->weights();
  return {buffer->contents(), buffer->length()};
}

std::span<const float> TrainableConvolution::biasTerms() const {
  return state_->biases()->contentsAs<const float>();
}

std::shared_ptr<CNNConvolutionWeightsAndBiasesState> TrainableConvolution::update(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    const std::shared_ptr<CNNConvolutionGradientState>& gradientState,
    const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& /*sourceState*/) {
  if (frozen_ || !optimizer_) return nullptr;
  if (auto* sgd = dynamic_cast<NNOptimizerStochasticGradientDescent*>(optimizer_.get()))
    sgd->encode(commandBuffer, gradientState, state_, slots_.empty() ? Slot{} : slots_[0], state_);
  else if (auto* rmsProp = dynamic_cast<NNOptimizerRMSProp*>(optimizer_.get()))
    rmsProp->encode(commandBuffer, gradientState, state_, slots_[0], state_);
  else
    dynamic_cast<NNOptimizerAdam&>(*optimizer_)
        .encode(commandBuffer, gradientState, state_, slots_[0], slots_[1],
                adamForm_ == AdamForm::AMSGrad ? slots_[2] : Slot{}, state_);
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
  auto other = std::shared_ptr<TrainableConvolution>(
      new TrainableConvolution(device, descriptor_, label_, optimizer_, adamForm_));
  runNow([&](const auto& commandBuffer) {
    synchronize(commandBuffer);
    return true;
  });
  const auto copyBuffer = [](mtl::Buffer& from, mtl::Buffer& to) {
    std::memcpy(to.contents(), from.contents(), from.length());
    to.didModifyRange(0, to.length());
  };
  copyBuffer(*state_->weights(), *other->state_->weights());
  copyBuffer(*state_->biases(), *other->state_->biases());
  for (std::size_t i = 0; i < slots_.size(); ++i)
    for (std::size_t part = 0; part < slots_[i].size(); ++part)
      copyBuffer(*slots_[i][part]->data(), *other->slots_[i][part]->data());
  other->frozen_ = frozen_;
  return other;
}

std::shared_ptr<CNNConvolutionWeightsAndBiasesState> TrainableConvolution::deviceWeightsAndBiases(
    const std::shared_ptr<mtl::Device>& device) {
  return device == device_ ? state_ : nullptr;
}

void TrainableConvolution::synchronize(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
  state_->synchronize(commandBuffer);
  for (const Slot& slot : slots_)
    for (const auto& vector : slot) vector->synchronize(commandBuffer);
}

std::vector<std::uint64_t> TrainableConvolution::weightShape() const {
  return {descriptor_.outputFeatureChannels(), descriptor_.kernelHeight(), descriptor_.kernelWidth(),
          descriptor_.weightsPerOutputChannel() / (descriptor_.kernelWidth() * descriptor_.kernelHeight())};
}

std::vector<SafetensorsTensor> TrainableConvolution::tensors(bool withOptimizerState) const {
  const std::vector<std::uint64_t> biasShape{descriptor_.outputFeatureChannels()};
  std::vector<SafetensorsTensor> tensors;
  tensors.push_back(tensorOf(label_ + ".weight", weightShape(), *state_->weights()));
  tensors.push_back(tensorOf(label_ + ".bias", biasShape, *state_->biases()));
  if (!withOptimizerState) return tensors;
  const auto names = slotNames();
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    tensors.push_back(tensorOf(label_ + ".weight." + names[i], weightShape(), *slots_[i][0]->data()));
    tensors.push_back(tensorOf(label_ + ".bias." + names[i], biasShape, *slots_[i][1]->data()));
  }
  if (const auto* adam = dynamic_cast<const NNOptimizerAdam*>(optimizer_.get())) {
    const std::uint64_t step = adam->timeStep();
    std::memcpy(timeStep_->contents(), &step, sizeof step);
    tensors.push_back({label_ + ".step", DataType::UInt64, {}, {timeStep_->contents(), timeStep_->length()}});
  }
  return tensors;
}

void TrainableConvolution::read(const SafetensorsFile& file, bool withOptimizerState) {
  const std::vector<std::uint64_t> biasShape{descriptor_.outputFeatureChannels()};
  std::vector<Replacement> replacements;
  replacements.push_back({file.floats(label_ + ".weight", weightShape()), state_->weights()});
  replacements.push_back({file.floats(label_ + ".bias", biasShape), state_->biases()});
  auto* adam = withOptimizerState ? dynamic_cast<NNOptimizerAdam*>(optimizer_.get()) : nullptr;
  if (withOptimizerState) {
    const auto names = slotNames();
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      replacements.push_back(
          {file.floats(label_ + ".weight." + names[i], weightShape()), slots_[i][0]->data()});
      replacements.push_back({file.floats(label_ + ".bias." + names[i], biasShape), slots_[i][1]->data()});
    }
  }
  if (adam != nullptr) adam->setTimeStep(file.unsignedNumber(label_ + ".step"));
  for (const Replacement& replacement : replacements) {
    std::memcpy(replacement.buffer->contents(), replacement.values.data(), replacement.buffer->length());
    replacement.buffer->didModifyRange(0, replacement.buffer->length());
  }
}

}  // namespace mps
