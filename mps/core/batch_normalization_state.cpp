#include "mps/core/batch_normalization_state.hpp"

#include "mps/core/vector.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"

namespace mps {
namespace {

StateResourceList resourcesOf(std::size_t channels) {
  const std::size_t floats = channels * sizeof(float);
  const std::size_t twoDoubles = 2 * channels * sizeof(double);
  return {floats, floats, floats, floats, 2 * floats, twoDoubles, twoDoubles};
}

}  // namespace

std::shared_ptr<CNNBatchNormalizationState> CNNBatchNormalizationState::create(
    const std::shared_ptr<mtl::Device>& device, const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    std::size_t numberOfFeatureChannels, std::shared_ptr<const CNNBatchNormalization> batchNormalization,
    std::shared_ptr<const detail::BatchNormalizationParameters> live) {
  const StateResourceList resources = resourcesOf(numberOfFeatureChannels);
  auto state = std::shared_ptr<CNNBatchNormalizationState>(
      commandBuffer ? new CNNBatchNormalizationState(commandBuffer, resources)
                    : new CNNBatchNormalizationState(device, resources));
  state->batchNormalization_ = std::move(batchNormalization);
  state->live_ = std::move(live);
  state->leaveUninitialised();
  return state;
}

void CNNBatchNormalizationState::reset() {
  phase_ = Phase::Fresh;
  used_ = {};
  elementCount_ = 0;
  gradientElementCount_ = 0;
}

std::shared_ptr<mtl::Buffer> CNNBatchNormalizationState::mean() {
  return isFrozen() ? live_->mean : meanOfBatch();
}

std::shared_ptr<mtl::Buffer> CNNBatchNormalizationState::variance() {
  return isFrozen() ? live_->variance : varianceOfBatch();
}

std::shared_ptr<mtl::Buffer> CNNBatchNormalizationState::gradientForGamma() {
  return hasGradientStatistics() ? gammaGradient() : nullptr;
}

std::shared_ptr<mtl::Buffer> CNNBatchNormalizationState::gradientForBeta() {
  return hasGradientStatistics() ? betaGradient() : nullptr;
}

std::shared_ptr<Vector> CNNBatchNormalizationState::statisticsGradient(std::size_t index) {
  if (!hasGradientStatistics()) return nullptr;
  const std::size_t channels = numberOfFeatureChannels();
  return Vector::create(statisticsGradients(),
                        VectorDescriptor::vectorDescriptor(channels, DataType::Float32),
                        index * channels * sizeof(float));
}

std::shared_ptr<Vector> CNNBatchNormalizationState::gradientForMean() {
  return statisticsGradient(0);
}

std::shared_ptr<Vector> CNNBatchNormalizationState::gradientForVariance() {
  return statisticsGradient(1);
}

void CNNBatchNormalizationState::synchronize(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
  State::synchronize(commandBuffer);
  for (const auto& buffer : {live_->gamma, live_->beta, live_->mean, live_->variance})
    buffer->synchronize(*commandBuffer);
}

bool CNNBatchNormalizationState::addsStatistics() const {
  return elementCount_ > 0 && (phase_ == Phase::Statistics || !restartsAutomatically_);
}

void CNNBatchNormalizationState::didEncodeStatistics(std::uint64_t elements) {
  elementCount_ = addsStatistics() ? elementCount_ + elements : elements;
  gradientElementCount_ = 0;
  used_ = {};
  phase_ = Phase::Statistics;
}

void CNNBatchNormalizationState::didImportStatistics(std::uint64_t elements) {
  elementCount_ = 0;
  didEncodeStatistics(elements);
}

void CNNBatchNormalizationState::didImportGradients() {
  gradientElementCount_ = elementCount_;
  phase_ = Phase::GradientStatistics;
}

detail::BatchNormalizationParameters CNNBatchNormalizationState::parametersForGradient() {
  if (used_.gamma) return used_;
  detail::BatchNormalizationParameters parameters = *live_;
  parameters.mean = mean();
  parameters.variance = variance();
  return parameters;
}

void CNNBatchNormalizationState::didEncodeNormalization(const detail::BatchNormalizationParameters& used) {
  used_ = used;
  if (phase_ < Phase::Normalized) phase_ = Phase::Normalized;
}

void CNNBatchNormalizationState::didEncodeGradientStatistics(std::uint64_t elements) {
  gradientElementCount_ = addsGradientStatistics() ? gradientElementCount_ + elements : elements;
  phase_ = Phase::GradientStatistics;
}

}  // namespace mps
