#include "mps/graph/layer_update.hpp"

#include <optional>
#include <utility>

#include "mps/batch_normalization/batch_normalization.hpp"
#include "mps/convolution/convolution_weights.hpp"
#include "mps/convolution/kernel_with_weights.hpp"
#include "mps/optimizer/combined_updates.hpp"

namespace mps::detail {
namespace {

/// Convolution, transposed convolution and fully connected layers.
class ConvolutionUpdate final : public LayerUpdate {
 public:
  ConvolutionUpdate(std::shared_ptr<ForwardKernelWithWeights> forward,
                    std::shared_ptr<GradientKernelWithWeights> gradient, NNTrainingStyle style)
      : LayerUpdate(style), forward_(std::move(forward)), gradient_(std::move(gradient)) {}

  void begin() override { before_ = forward_->weights(); }
  void rollBack() override {
    forward_->useWeights(before_);
    gradient_->shareWeights(*forward_);
  }

  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<State>& gradientState, CombinedUpdates* combined) override {
    const auto gradients = std::static_pointer_cast<CNNConvolutionGradientState>(gradientState);
    CNNConvolutionDataSource& source = *forward_->dataSource();
    if (const auto live = source.deviceWeightsAndBiases(commandBuffer->device())) {
      // Memory of a temporary state serves others as soon as its update is encoded.
      std::optional<CombinedUpdates::Scope> scope;
      if (combined != nullptr && !gradients->isTemporary()) scope.emplace(*combined);
      source.update(commandBuffer, gradients, live);  // changes the buffers that both kernels use
      return;
    }
    const auto weights = forward_->exportWeightsAndBiases(commandBuffer, false);
    const auto updated = source.update(commandBuffer, gradients, weights);
    if (!updated) return;
    if (updated->isTemporary() && updated->readCount() > 0) updated->setReadCount(updated->readCount() + 1);
    forward_->reloadWeightsAndBiases(commandBuffer, updated);
    gradient_->shareWeights(*forward_);  // one copy serves both
    if (updated->isTemporary() && updated->readCount() > 0) updated->setReadCount(updated->readCount() - 1);
  }

  std::shared_ptr<State> prepareHostUpdate(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                           const std::shared_ptr<State>& gradientState) override {
    gradientState->synchronize(commandBuffer);
    auto weights = forward_->exportWeightsAndBiases(commandBuffer, false);
    weights->synchronize(commandBuffer);
    return weights;
  }

  void updateOnHost(const std::shared_ptr<State>& gradientState,
                    const std::shared_ptr<State>& sourceState) override {
    const bool changed = forward_->dataSource()->update(
        std::static_pointer_cast<CNNConvolutionGradientState>(gradientState),
        std::static_pointer_cast<CNNConvolutionWeightsAndBiasesState>(sourceState));
    if (!changed) return;
    forward_->reloadWeightsAndBiasesFromDataSource();
    gradient_->shareWeights(*forward_);
  }

 private:
  std::shared_ptr<ForwardKernelWithWeights> forward_;
  std::shared_ptr<GradientKernelWithWeights> gradient_;
  std::shared_ptr<const ConvolutionWeights> before_;
};

class BatchNormalizationUpdate final : public LayerUpdate {
 public:
  BatchNormalizationUpdate(std::shared_ptr<CNNBatchNormalization> forward, NNTrainingStyle style)
      : LayerUpdate(style), forward_(std::move(forward)) {}

  void begin() override { before_ = forward_->parameters(); }
  void rollBack() override { forward_->useParameters(before_); }

  /// The statistics first: the optimiser's encode takes a read off the state.
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<State>& gradientState, CombinedUpdates* combined) override {
    const auto state = std::static_pointer_cast<CNNBatchNormalizationState>(gradientState);
    CNNBatchNormalizationDataSource& source = *forward_->dataSource();
    const std::size_t reads = state->readCount();
    if (state->isTemporary()) state->setReadCount(reads + 2);  // whether or not the source takes them
    // Memory of a temporary state serves others as soon as its update is encoded.
    if (state->isTemporary()) combined = nullptr;
    {
      std::optional<CombinedUpdates::Scope> scope;
      const bool isLive = source.deviceMeanAndVariance(forward_->device()) != nullptr;
      if (combined != nullptr && isLive) scope.emplace(*combined);
      const auto updated = source.updateMeanAndVariance(commandBuffer, state);
      if (updated && !isLive) forward_->reloadMeanAndVariance(commandBuffer, updated);
    }
    {
      std::optional<CombinedUpdates::Scope> scope;
      const bool isLive = source.deviceGammaAndBeta(forward_->device()) != nullptr;
      if (combined != nullptr && isLive) scope.emplace(*combined);
      const auto updated = source.updateGammaAndBeta(commandBuffer, state);
      if (updated && !isLive) forward_->reloadGammaAndBeta(commandBuffer, updated);
    }
    if (state->isTemporary()) state->setReadCount(reads - 1);  // the graph counts one for the update
  }

  std::shared_ptr<State> prepareHostUpdate(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                           const std::shared_ptr<State>& gradientState) override {
    gradientState->synchronize(commandBuffer);
    return nullptr;
  }

  void updateOnHost(const std::shared_ptr<State>& gradientState,
                    const std::shared_ptr<State>& /*sourceState*/) override {
    const auto state = std::static_pointer_cast<CNNBatchNormalizationState>(gradientState);
    CNNBatchNormalizationDataSource& source = *forward_->dataSource();
    if (source.updateMeanAndVariance(state)) forward_->reloadMeanAndVarianceFromDataSource();
    if (source.updateGammaAndBeta(state)) forward_->reloadGammaAndBetaFromDataSource();
  }

 private:
  std::shared_ptr<CNNBatchNormalization> forward_;
  BatchNormalizationParameters before_;
};

}  // namespace

std::shared_ptr<LayerUpdate> LayerUpdate::create(const std::shared_ptr<Kernel>& forward,
                                                 const std::shared_ptr<Kernel>& gradient,
                                                 NNTrainingStyle style) {
  if (style == NNTrainingStyle::UpdateDeviceNone) return nullptr;
  auto convolution = std::dynamic_pointer_cast<ForwardKernelWithWeights>(forward);
  auto convolutionGradient = std::dynamic_pointer_cast<GradientKernelWithWeights>(gradient);
  if (convolution && convolutionGradient)
    return std::make_shared<ConvolutionUpdate>(std::move(convolution), std::move(convolutionGradient), style);
  if (auto normalization = std::dynamic_pointer_cast<CNNBatchNormalization>(forward))
    return std::make_shared<BatchNormalizationUpdate>(std::move(normalization), style);
  return nullptr;
}

const void* deviceWeightsOf(const Kernel& forward) {
  if (const auto* normalization = dynamic_cast<const CNNBatchNormalization*>(&forward))
    return normalization->parameters().sharesGammaAndBeta ? normalization->parameters().gamma.get() : nullptr;
  const auto* convolution = dynamic_cast<const ForwardKernelWithWeights*>(&forward);
  if (convolution == nullptr || !convolution->weights()->isShared()) return nullptr;
  return convolution->weights()->weights().get();
}

void reloadFromDataSource(Kernel& kernel) {
  if (auto* layer = dynamic_cast<KernelWithWeights*>(&kernel)) layer->reloadWeightsAndBiasesFromDataSource();
  if (auto* normalization = dynamic_cast<CNNBatchNormalization*>(&kernel)) {
    normalization->reloadGammaAndBetaFromDataSource();
    normalization->reloadMeanAndVarianceFromDataSource();
  }
}

}  // namespace mps::detail
