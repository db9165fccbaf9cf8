#include "mps/graph/layer_update.hpp"

#include <optional>
#include <utility>

#include "mps/batch_normalization/batch_normalization.hpp"
#include "mps/convolution/convolution_weights.hpp"
#include "mps/convolution/kernel_with_weights.hpp"
#include "mps/instance_normalization/instance_normalization.hpp"
#include "mps/optimizer/combined_updates.hpp"

namespace mps::detail {
namespace {

/// Convolution, transposed convolution and fully connected layers.
class ConvolutionUpdate final : public LayerUpdate {
 public:
  ConvolutionUpdate(std::shared_ptr<ForwardKernelWithWeights> forward,
                    std::shared_ptr<GradientKernelWithWeights> gradient, NNTrainingStyle style)
      : LayerUpdate(style), forward_(std::move(forward)), gradient_(std::move(gradient)) {}

  [[nodiscard]] const SecureCoding& dataSource() const override { return *forward_->dataSource(); }
  void begin() override { before_ = forward_->weights(); }
  void rollBack() override {
    forward_->useWeights(before_);
    gradient_->shareWeights(*forward_);
  }

  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const StateBatch& gradientStates,
              CombinedUpdates* combined) override {
    const auto gradients = std::static_pointer_cast<CNNConvolutionGradientState>(gradientStates[0]);
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
                                           const StateBatch& gradientStates) override {
    gradientStates[0]->synchronize(commandBuffer);
    auto weights = forward_->exportWeightsAndBiases(commandBuffer, false);
    weights->synchronize(commandBuffer);
    return weights;
  }

  void updateOnHost(const StateBatch& gradientStates, const std::shared_ptr<State>& sourceState) override {
    const bool changed = forward_->dataSource()->update(
        std::static_pointer_cast<CNNConvolutionGradientState>(gradientStates[0]),
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

  [[nodiscard]] const SecureCoding& dataSource() const override { return *forward_->dataSource(); }
  void begin() override { before_ = forward_->parameters(); }
  void rollBack() override { forward_->useParameters(before_); }

  /// The statistics first: the optimiser's encode takes a read off the state.
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const StateBatch& gradientStates,
              CombinedUpdates* combined) override {
    const auto state = std::static_pointer_cast<CNNBatchNormalizationState>(gradientStates[0]);
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
  std::shared_ptr<CNNBatchNormalization> forward_;
  BatchNormalizationParameters before_;
};

/// Instance and group normalisation, whose states are those of the images.
class ImageNormalizationUpdate final : public LayerUpdate {
 public:
  ImageNormalizationUpdate(std::shared_ptr<ImageNormalizationKernel> forward, NNTrainingStyle style)
      : LayerUpdate(style), forward_(std::move(forward)) {}

  [[nodiscard]] const SecureCoding& dataSource() const override { return forward_->parameterSource(); }
  void begin() override { before_ = forward_->parameters(); }
  void rollBack() override { forward_->useParameters(before_); }

  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const StateBatch& gradientStates,
              CombinedUpdates* combined) override {
    ImageNormalizationDataSource& source = forward_->parameterSource();
    const bool areTemporary = gradientStates[0]->isTemporary();
    const std::size_t reads = gradientStates[0]->readCount();
    StateBatchIncrementReadCount(gradientStates, 1);  // whether or not the source takes them
    {
      std::optional<CombinedUpdates::Scope> scope;
      const bool isLive = source.deviceGammaAndBeta(forward_->device()) != nullptr;
      // Memory of temporary states serves others as soon as their update is encoded.
      if (combined != nullptr && isLive && !areTemporary) scope.emplace(*combined);
      const auto updated = source.updateGammaAndBeta(commandBuffer, gradientStates);
      if (updated && !isLive) forward_->reloadGammaAndBeta(commandBuffer, updated);
    }
    if (!areTemporary) return;
    // The graph counts one for the update.
    for (std::size_t i = 0; i < gradientStates.count(); ++i) gradientStates[i]->setReadCount(reads - 1);
  }

  std::shared_ptr<State> prepareHostUpdate(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                           const StateBatch& gradientStates) override {
    StateBatchSynchronize(gradientStates, commandBuffer);
    return nullptr;
  }

  void updateOnHost(const StateBatch& gradientStates,
                    const std::shared_ptr<State>& /*sourceState*/) override {
    if (forward_->parameterSource().updateGammaAndBeta(gradientStates))
      forward_->reloadGammaAndBetaFromDataSource();
  }

 private:
  std::shared_ptr<ImageNormalizationKernel> forward_;
  ImageNormalizationParameters before_;
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
  if (auto normalization = std::dynamic_pointer_cast<ImageNormalizationKernel>(forward))
    return std::make_shared<ImageNormalizationUpdate>(std::move(normalization), style);
  return nullptr;
}

}  // namespace mps::detail
