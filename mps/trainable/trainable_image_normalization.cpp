#include "mps/trainable/trainable_image_normalization.hpp"

#include <utility>

#include "mps/core/layer/normalization_parameters.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"

namespace mps {
namespace detail {
namespace {

const std::shared_ptr<mtl::Device>& checkedArguments(const std::string& className,
                                                     const std::shared_ptr<mtl::Device>& device,
                                                     std::size_t channels, float epsilon) {
  if (!device) throw Error(className, "device", "null", "a device");
  if (channels == 0) throw Error(className, "numberOfFeatureChannels", "0", "at least 1");
  if (!(epsilon > 0)) throw Error(className, "epsilon", std::to_string(epsilon), "above 0");
  return device;
}

}  // namespace

TrainableGammaAndBeta::TrainableGammaAndBeta(const std::string& className,
                                             const std::shared_ptr<mtl::Device>& device, std::size_t channels,
                                             std::string label, const std::shared_ptr<NNOptimizer>& optimizer,
                                             float epsilon, AdamForm adamForm)
    : device_(checkedArguments(className, device, channels, epsilon)),
      channels_(channels),
      label_(std::move(label)),
      epsilon_(epsilon),
      state_(CNNNormalizationGammaAndBetaState::create(
          parameterBuffer(className, device, "gamma", {}, channels, 1),
          parameterBuffer(className, device, "beta", {}, channels, 0))),
      slots_(className, device, optimizer, adamForm, weights()) {
  state_->setLabel(label_);
}

std::shared_ptr<CNNNormalizationGammaAndBetaState> TrainableGammaAndBeta::update(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const StateBatch& gradientStates) {
  if (frozen_ || !slots_.optimizer()) return nullptr;
  slots_.encode(commandBuffer, state_, gradientStates);
  return state_;
}

bool TrainableGammaAndBeta::updateNow(const StateBatch& gradientStates) {
  if (!queue_) queue_ = device_->newCommandQueue();
  const auto commandBuffer = queue_->commandBuffer();
  if (!update(commandBuffer, gradientStates)) return false;
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  return true;
}

void TrainableGammaAndBeta::synchronize(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
  state_->synchronize(commandBuffer);
  slots_.synchronize(commandBuffer);
}

void TrainableGammaAndBeta::copyFrom(TrainableGammaAndBeta& other) {
  const auto commandBuffer = other.device_->newCommandQueue()->commandBuffer();
  other.synchronize(commandBuffer);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  copyBuffer(*other.state_->gamma(), *state_->gamma());
  copyBuffer(*other.state_->beta(), *state_->beta());
  slots_.copyFrom(other.slots_);
  frozen_ = other.frozen_;
}

std::vector<TrainableArray> TrainableGammaAndBeta::weights() const {
  return {{label_ + ".weight", {channels_}, state_->gamma()},
          {label_ + ".bias", {channels_}, state_->beta()}};
}

std::vector<SafetensorsTensor> TrainableGammaAndBeta::tensors(bool withOptimizerState) const {
  std::vector<SafetensorsTensor> tensors;
  for (const TrainableArray& array : weights()) tensors.push_back(array.tensor());
  if (withOptimizerState) slots_.appendTensors(tensors, label_);
  return tensors;
}

void TrainableGammaAndBeta::read(const SafetensorsFile& file, bool withOptimizerState) {
  Replacements replacements;
  for (const TrainableArray& array : weights()) replacements.add(file, array.name, array.shape, array.buffer);
  if (withOptimizerState) {
    slots_.addReplacements(replacements, file);
    slots_.readTimeStep(file, label_);
  }
  replacements.apply();
}

}  // namespace detail

std::shared_ptr<TrainableInstanceNormalization> TrainableInstanceNormalization::create(
    const std::shared_ptr<mtl::Device>& device, std::size_t numberOfFeatureChannels, std::string label,
    const std::shared_ptr<NNOptimizer>& optimizer, float epsilon, AdamForm adamForm) {
  return std::shared_ptr<TrainableInstanceNormalization>(new TrainableInstanceNormalization(
      detail::TrainableGammaAndBeta("TrainableInstanceNormalization", device, numberOfFeatureChannels,
                                    std::move(label), optimizer, epsilon, adamForm)));
}

std::shared_ptr<CNNInstanceNormalizationDataSource> TrainableInstanceNormalization::copy(
    const std::shared_ptr<mtl::Device>& device) {
  auto other =
      create(device, values_.channels(), label(), optimizer(), epsilon(), values_.slots().adamForm());
  other->values_.copyFrom(values_);
  return other;
}

std::shared_ptr<TrainableGroupNormalization> TrainableGroupNormalization::create(
    const std::shared_ptr<mtl::Device>& device, std::size_t numberOfFeatureChannels,
    std::size_t numberOfGroups, std::string label, const std::shared_ptr<NNOptimizer>& optimizer,
    float epsilon, AdamForm adamForm) {
  if (numberOfGroups == 0 || numberOfFeatureChannels % numberOfGroups != 0)
    throw Error("TrainableGroupNormalization", "numberOfGroups", std::to_string(numberOfGroups),
                "a divisor of the " + std::to_string(numberOfFeatureChannels) + " feature channels");
  return std::shared_ptr<TrainableGroupNormalization>(new TrainableGroupNormalization(
      detail::TrainableGammaAndBeta("TrainableGroupNormalization", device, numberOfFeatureChannels,
                                    std::move(label), optimizer, epsilon, adamForm),
      numberOfGroups));
}

std::shared_ptr<CNNGroupNormalizationDataSource> TrainableGroupNormalization::copy(
    const std::shared_ptr<mtl::Device>& device) {
  auto other = create(device, values_.channels(), groups_, label(), optimizer(), epsilon(),
                      values_.slots().adamForm());
  other->values_.copyFrom(values_);
  return other;
}

}  // namespace mps
