#include "mps/core/layer/batch_normalization_state.hpp"

#include "mps/core/array/vector.hpp"
#include "mps/core/image/forward_record.hpp"
#include "mps/core/kernel/call.hpp"
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
  progress_ = {};
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

struct CNNBatchNormalizationState::Before {
  const mtl::Submission* buffer = nullptr;  ///< which holds this object
  Progress progress;
  std::shared_ptr<const detail::ForwardRecord> record;
};

void CNNBatchNormalizationState::willEncode(mtl::CommandBuffer& commandBuffer) {
  const mtl::Submission* const buffer = commandBuffer.submission().get();
  if (const auto before = before_.lock(); before && before->buffer == buffer) return;
  const auto before = std::make_shared<const Before>(Before{buffer, progress_, record()});
  before_ = before;
  commandBuffer.ifDropped([before, self = weak_from_this()](mtl::CommandBuffer& /*instead*/) {
    const auto state = std::static_pointer_cast<CNNBatchNormalizationState>(self.lock());
    // Another buffer may have gone on with the state.
    if (!state || state->before_.lock() != before) return;
    state->progress_ = before->progress;
    state->setRecord(before->record, 0);
  });
}

void CNNBatchNormalizationState::willEncodeGradient(mtl::CommandBuffer& commandBuffer) {
  if (!addsGradientStatistics() && commandBuffer.mayLeaveOut()) clearGradients(commandBuffer);
}

void CNNBatchNormalizationState::clearGradients(mtl::CommandBuffer& commandBuffer) {
  for (const auto& sums : {accumulatedGradients(), gammaGradient(), betaGradient(), statisticsGradients()})
    detail::recordZerosAlways(commandBuffer, "CNNBatchNormalizationState", sums->memory());
}

bool CNNBatchNormalizationState::addsStatistics() const {
  return progress_.elementCount > 0 && (progress_.phase == Phase::Statistics || !restartsAutomatically_);
}

void CNNBatchNormalizationState::didEncodeStatistics(std::uint64_t elements) {
  progress_.elementCount = addsStatistics() ? progress_.elementCount + elements : elements;
  progress_.gradientElementCount = 0;
  progress_.used = {};
  progress_.phase = Phase::Statistics;
}

void CNNBatchNormalizationState::didImportStatistics(std::uint64_t elements) {
  progress_.elementCount = 0;
  didEncodeStatistics(elements);
}

void CNNBatchNormalizationState::didImportGradients() {
  progress_.gradientElementCount = progress_.elementCount;
  progress_.phase = Phase::GradientStatistics;
}

detail::BatchNormalizationParameters CNNBatchNormalizationState::parametersForGradient() {
  if (progress_.used.gamma) return progress_.used;
  detail::BatchNormalizationParameters parameters = *live_;
  parameters.mean = mean();
  parameters.variance = variance();
  return parameters;
}

void CNNBatchNormalizationState::didEncodeNormalization(const detail::BatchNormalizationParameters& used) {
  progress_.used = used;
  if (progress_.phase < Phase::Normalized) progress_.phase = Phase::Normalized;
}

void CNNBatchNormalizationState::didEncodeGradientStatistics(std::uint64_t elements) {
  progress_.gradientElementCount =
      addsGradientStatistics() ? progress_.gradientElementCount + elements : elements;
  progress_.phase = Phase::GradientStatistics;
}

}  // namespace mps
