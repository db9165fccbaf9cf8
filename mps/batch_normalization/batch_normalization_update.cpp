#include <memory>
#include <optional>
#include <utility>

#include "mps/batch_normalization/batch_normalization.hpp"
#include "mps/core/layer/deferred_updates.hpp"
#include "mps/core/layer/gradient_sums.hpp"
#include "mps/core/layer/layer_update.hpp"
#include "mtl/command_buffer.hpp"

namespace mps {
namespace detail {
namespace {

class BatchNormalizationUpdate final : public LayerUpdate {
 public:
  BatchNormalizationUpdate(std::shared_ptr<CNNBatchNormalization> forward, std::size_t gradientCount,
                           NNTrainingStyle style)
      : LayerUpdate(style), forward_(std::move(forward)), sumsUp_(gradientCount > 1) {}

  [[nodiscard]] const SecureCoding& dataSource() const override { return *forward_->dataSource(); }
  [[nodiscard]] UpdateCounter* counter() const override { return forward_->dataSource()->updateCounter(); }
  void begin() override {
    before_ = forward_->parameters();
    sums_.clear();
  }
  void rollBack() override { forward_->useParameters(before_); }
  void didEncodeGradient(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                         const StateBatch& gradientStates) override {
    if (sumsUp_) sums_.add(commandBuffer, buffersOf(gradientStates));
  }

  void joinGradients(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                     const StateBatch& gradientStates) override {
    sums_.put(commandBuffer, buffersOf(gradientStates));
  }
  std::vector<std::shared_ptr<mtl::Buffer>> gradientsToSum(
      const std::shared_ptr<mtl::CommandBuffer>& /*commandBuffer*/,
      const StateBatch& gradientStates) override {
    return buffersOf(gradientStates);
  }
  void mergeStatistics(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                       const StateBatch& gradientStates, JointGather& gather,
                       std::uint64_t elementCount) override {
    if (!forward_->computesStatistics()) return;
    CNNBatchNormalizationStatistics::create(forward_->device())
        ->gatherForUpdate(commandBuffer, gather, elementCount,
                          std::static_pointer_cast<CNNBatchNormalizationState>(gradientStates[0]));
  }
  [[nodiscard]] std::vector<NamedBuffer> parameters() const override {
    const BatchNormalizationParameters& own = forward_->parameters();
    return {{"gamma", own.gamma}, {"beta", own.beta}, {"mean", own.mean}, {"variance", own.variance}};
  }

  /// The statistics first: the optimiser's encode takes a read off the state.
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const StateBatch& gradientStates,
              DeferredUpdates* deferred) override {
    const auto state = std::static_pointer_cast<CNNBatchNormalizationState>(gradientStates[0]);
    CNNBatchNormalizationDataSource& source = *forward_->dataSource();
    const std::size_t reads = state->readCount();
    if (state->isTemporary()) state->setReadCount(reads + 2);  // whether or not the source takes them
    // Memory of a temporary state serves others as soon as its update is encoded.
    if (state->isTemporary()) deferred = nullptr;
    {
      std::optional<DeferredUpdates::Scope> scope;
      const bool isLive = source.deviceMeanAndVariance(forward_->device()) != nullptr;
      if (deferred != nullptr && isLive) scope.emplace(*deferred, DeferredUpdates::Gradients::None);
      const auto updated = source.updateMeanAndVariance(commandBuffer, state);
      if (updated && !isLive) forward_->reloadMeanAndVariance(commandBuffer, updated);
    }
    {
      std::optional<DeferredUpdates::Scope> scope;
      const bool isLive = source.deviceGammaAndBeta(forward_->device()) != nullptr;
      if (deferred != nullptr && isLive) scope.emplace(*deferred);
      const auto updated = source.updateGammaAndBeta(commandBuffer, state);
      if (updated && !isLive) forward_->reloadGammaAndBeta(commandBuffer, updated);
    }
    if (state->isTemporary()) state->setReadCount(reads - 1);  // the graph counts one for the update
  }

  std::shared_ptr<State> prepareHostUpdate(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                           const StateBatch& gradientStates) override {
    gradientStates[0]->synchronize(commandBuffer);
    return nullptr;
  }

  void updateOnHost(const StateBatch& gradientStates,
                    const std::shared_ptr<State>& /*sourceState*/) override {
    const auto state = std::static_pointer_cast<CNNBatchNormalizationState>(gradientStates[0]);
    CNNBatchNormalizationDataSource& source = *forward_->dataSource();
    if (source.updateMeanAndVariance(state)) forward_->reloadMeanAndVarianceFromDataSource();
    if (source.updateGammaAndBeta(state)) forward_->reloadGammaAndBetaFromDataSource();
  }

 private:
  static GradientSums::Buffers buffersOf(const StateBatch& gradientStates) {
    auto& state = static_cast<CNNBatchNormalizationState&>(*gradientStates[0]);
    return {state.gammaGradient(), state.betaGradient()};
  }

  std::shared_ptr<CNNBatchNormalization> forward_;
  bool sumsUp_;  ///< each gradient kernel sets the state's gradients anew
  GradientSums sums_;
  BatchNormalizationParameters before_;
};

}  // namespace
}  // namespace detail

std::shared_ptr<detail::LayerUpdate> CNNBatchNormalization::makeUpdate(
    const std::vector<std::shared_ptr<detail::ImageKernel>>& gradients, NNTrainingStyle style) {
  return std::make_shared<detail::BatchNormalizationUpdate>(
      std::static_pointer_cast<CNNBatchNormalization>(shared_from_this()), gradients.size(), style);
}

}  // namespace mps
