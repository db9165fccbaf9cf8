#include "mps/trainable/trainable_batch_normalization.hpp"

#include <algorithm>
#include <utility>

#include "mps/core/types/error.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"

namespace mps {
namespace {

std::shared_ptr<mtl::Buffer> filled(mtl::Device& device, std::size_t count, float value) {
  const std::vector<float> values(count, value);
  return device.newBuffer(std::as_bytes(std::span(values)));
}

/// v = v + (1 - momentum) (statistic - v), as plain gradient descent: the gradient is the statistic, the
/// regularisation takes v off it.
std::shared_ptr<NNOptimizerStochasticGradientDescent> averageOf(const std::shared_ptr<mtl::Device>& device,
                                                                float momentum) {
  NNOptimizerDescriptor descriptor(-(1 - momentum), 1, NNRegularizationType::L2, -1);
  return NNOptimizerStochasticGradientDescent::create(device, 0, false, descriptor);
}

std::shared_ptr<Vector> vectorOver(const std::shared_ptr<mtl::Buffer>& buffer) {
  return Vector::create(
      buffer, VectorDescriptor::vectorDescriptor(buffer->length() / sizeof(float), DataType::Float32));
}

const std::shared_ptr<mtl::Device>& checkedArguments(const std::shared_ptr<mtl::Device>& device,
                                                     std::size_t channels, float momentum, float epsilon) {
  constexpr const char* className = "TrainableBatchNormalization";
  if (!device) throw Error(className, "device", "null", "a device");
  if (channels == 0) throw Error(className, "numberOfFeatureChannels", "0", "at least 1");
  if (!(momentum >= 0 && momentum <= 1))
    throw Error(className, "momentum", std::to_string(momentum), "0 to 1");
  if (!(epsilon > 0)) throw Error(className, "epsilon", std::to_string(epsilon), "above 0");
  return device;
}

}  // namespace

TrainableBatchNormalization::TrainableBatchNormalization(const std::shared_ptr<mtl::Device>& device,
                                                         std::size_t channels, std::string label,
                                                         const std::shared_ptr<NNOptimizer>& optimizer,
                                                         float momentum, float epsilon, AdamForm adamForm)
    : device_(checkedArguments(device, channels, momentum, epsilon)),
      channels_(channels),
      label_(std::move(label)),
      momentum_(momentum),
      epsilon_(epsilon),
      gammaAndBeta_(CNNNormalizationGammaAndBetaState::create(filled(*device, channels, 1),
                                                              filled(*device, channels, 0))),
      meanAndVariance_(CNNNormalizationMeanAndVarianceState::create(filled(*device, channels, 0),
                                                                    filled(*device, channels, 1))),
      slots_("TrainableBatchNormalization", device, optimizer, adamForm, weights()),
      average_(averageOf(device, momentum)) {
  gammaAndBeta_->setLabel(label_);
  meanAndVariance_->setLabel(label_);
}

std::shared_ptr<TrainableBatchNormalization> TrainableBatchNormalization::create(
    const std::shared_ptr<mtl::Device>& device, std::size_t numberOfFeatureChannels, std::string label,
    const std::shared_ptr<NNOptimizer>& optimizer, float momentum, float epsilon, AdamForm adamForm) {
  return std::shared_ptr<TrainableBatchNormalization>(new TrainableBatchNormalization(
      device, numberOfFeatureChannels, std::move(label), optimizer, momentum, epsilon, adamForm));
}

std::span<const float> TrainableBatchNormalization::gamma() const {
  return gammaAndBeta_->gamma()->contentsAs<const float>();
}
std::span<const float> TrainableBatchNormalization::beta() const {
  return gammaAndBeta_->beta()->contentsAs<const float>();
}
std::span<const float> TrainableBatchNormalization::mean() const {
  return meanAndVariance_->mean()->contentsAs<const float>();
}
std::span<const float> TrainableBatchNormalization::variance() const {
  return meanAndVariance_->variance()->contentsAs<const float>();
}

std::shared_ptr<CNNNormalizationMeanAndVarianceState> TrainableBatchNormalization::updateMeanAndVariance(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationState) {
  // Without statistics of a batch there is nothing to learn from.
  if (frozen_ || batchNormalizationState->isFrozen()) return nullptr;
  const auto move = [&](const std::shared_ptr<mtl::Buffer>& running,
                        const std::shared_ptr<mtl::Buffer>& ofBatch) {
    const auto values = vectorOver(running);
    average_->encode(commandBuffer, vectorOver(ofBatch), values, nullptr, values);
  };
  move(meanAndVariance_->mean(), batchNormalizationState->mean());
  move(meanAndVariance_->variance(), batchNormalizationState->variance());
  if (batchNormalizationState->isTemporary())
    batchNormalizationState->setReadCount(batchNormalizationState->readCount() - 1);
  return meanAndVariance_;
}

std::shared_ptr<CNNNormalizationGammaAndBetaState> TrainableBatchNormalization::updateGammaAndBeta(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationState) {
  if (frozen_ || !slots_.optimizer()) return nullptr;
  slots_.encode(commandBuffer, gammaAndBeta_, batchNormalizationState);
  return gammaAndBeta_;
}

bool TrainableBatchNormalization::updateMeanAndVariance(
    const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationState) {
  return runNow([&](const auto& commandBuffer) {
    return updateMeanAndVariance(commandBuffer, batchNormalizationState) != nullptr;
  });
}

bool TrainableBatchNormalization::updateGammaAndBeta(
    const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationState) {
  return runNow([&](const auto& commandBuffer) {
    return updateGammaAndBeta(commandBuffer, batchNormalizationState) != nullptr;
  });
}

bool TrainableBatchNormalization::runNow(
    const std::function<bool(const std::shared_ptr<mtl::CommandBuffer>&)>& record) {
  if (!queue_) queue_ = device_->newCommandQueue();
  const auto commandBuffer = queue_->commandBuffer();
  if (!record(commandBuffer)) return false;
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  return true;
}

std::shared_ptr<CNNBatchNormalizationDataSource> TrainableBatchNormalization::copy(
    const std::shared_ptr<mtl::Device>& device) {
  auto other = create(device, channels_, label_, slots_.optimizer(), momentum_, epsilon_, slots_.adamForm());
  runNow([&](const auto& commandBuffer) {
    synchronize(commandBuffer);
    return true;
  });
  detail::copyBuffer(*gammaAndBeta_->gamma(), *other->gammaAndBeta_->gamma());
  detail::copyBuffer(*gammaAndBeta_->beta(), *other->gammaAndBeta_->beta());
  detail::copyBuffer(*meanAndVariance_->mean(), *other->meanAndVariance_->mean());
  detail::copyBuffer(*meanAndVariance_->variance(), *other->meanAndVariance_->variance());
  other->slots_.copyFrom(slots_);
  other->frozen_ = frozen_;
  return other;
}

std::shared_ptr<CNNNormalizationGammaAndBetaState> TrainableBatchNormalization::deviceGammaAndBeta(
    const std::shared_ptr<mtl::Device>& device) {
  return device == device_ ? gammaAndBeta_ : nullptr;
}

std::shared_ptr<CNNNormalizationMeanAndVarianceState> TrainableBatchNormalization::deviceMeanAndVariance(
    const std::shared_ptr<mtl::Device>& device) {
  return device == device_ ? meanAndVariance_ : nullptr;
}

void TrainableBatchNormalization::synchronize(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
  gammaAndBeta_->synchronize(commandBuffer);
  meanAndVariance_->synchronize(commandBuffer);
  slots_.synchronize(commandBuffer);
}

std::vector<detail::TrainableArray> TrainableBatchNormalization::weights() const {
  return {{label_ + ".weight", {channels_}, gammaAndBeta_->gamma()},
          {label_ + ".bias", {channels_}, gammaAndBeta_->beta()}};
}

std::vector<detail::TrainableArray> TrainableBatchNormalization::statistics() const {
  return {{label_ + ".running_mean", {channels_}, meanAndVariance_->mean()},
          {label_ + ".running_var", {channels_}, meanAndVariance_->variance()}};
}

std::vector<SafetensorsTensor> TrainableBatchNormalization::tensors(bool withOptimizerState) const {
  std::vector<SafetensorsTensor> tensors;
  for (const auto& arrays : {weights(), statistics()})
    for (const detail::TrainableArray& array : arrays) tensors.push_back(array.tensor());
  if (withOptimizerState) slots_.appendTensors(tensors, label_);
  return tensors;
}

void TrainableBatchNormalization::read(const SafetensorsFile& file, bool withOptimizerState) {
  detail::Replacements replacements;
  for (const auto& arrays : {weights(), statistics()})
    for (const detail::TrainableArray& array : arrays)
      replacements.add(file, array.name, array.shape, array.buffer);
  if (withOptimizerState) {
    slots_.addReplacements(replacements, file);
    slots_.readTimeStep(file, label_);
  }
  replacements.apply();
}

}  // namespace mps
