#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mps/core/layer/batch_normalization_data_source.hpp"
#include "mps/trainable/optimizer_slots.hpp"
#include "mps/trainable/trainable_layer.hpp"

namespace mtl {
class CommandQueue;
}

namespace mps {

/// The ready-made data source of batch-normalisation layers (docs/decisions.md, D23): gamma, beta, running statistics
/// and optimiser on the device, updated in place by recorded work; kernels use its buffers without copies.
///
///     auto adam = mps::NNOptimizerAdam::create(device, 1e-3F);
///     auto layer = mps::TrainableBatchNormalization::create(device, 32, "norm1", adam);
///     auto node = mps::CNNBatchNormalizationNode::create(source, layer);
///
/// Each update moves the running statistics towards those of the batch, with momentum u (the variance is the
/// biased one):
///
///     running = running + (1 - u) (batch - running)
class TrainableBatchNormalization : public CNNBatchNormalizationDataSource, public TrainableLayer {
 public:
  static constexpr float defaultMomentum = 0.9F;
  static constexpr float defaultEpsilon = 1e-3F;

  /// gamma starts at 1, beta at 0, the running mean at 0 and the running variance at 1.
  /// @param label name of the layer, and of its tensors in files
  /// @param optimizer of gamma and beta, copied; null: they are never updated
  /// @param momentum 0 (the last batch's statistics) to 1 (never updated)
  /// @throws Error for a null device, no channels, a momentum out of range, an epsilon that is not positive, an
  /// optimizer that is not SGD, RMSProp or Adam, AMSGrad with another one than Adam
  static std::shared_ptr<TrainableBatchNormalization> create(
      const std::shared_ptr<mtl::Device>& device, std::size_t numberOfFeatureChannels, std::string label,
      const std::shared_ptr<NNOptimizer>& optimizer, float momentum = defaultMomentum,
      float epsilon = defaultEpsilon, AdamForm adamForm = AdamForm::Adam);

  [[nodiscard]] std::size_t numberOfFeatureChannels() const override { return channels_; }
  /// The host's view of the device's values: synchronize() and wait first.
  [[nodiscard]] std::span<const float> gamma() const override;
  [[nodiscard]] std::span<const float> beta() const override;
  [[nodiscard]] std::span<const float> mean() const override;
  [[nodiscard]] std::span<const float> variance() const override;
  bool load() override { return true; }
  void purge() override {}
  [[nodiscard]] std::string label() const override { return label_; }
  [[nodiscard]] float epsilon() const override { return epsilon_; }
  [[nodiscard]] float momentum() const { return momentum_; }

  std::shared_ptr<CNNNormalizationMeanAndVarianceState> updateMeanAndVariance(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationState) override;
  std::shared_ptr<CNNNormalizationGammaAndBetaState> updateGammaAndBeta(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationState) override;
  bool updateMeanAndVariance(
      const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationState) override;
  bool updateGammaAndBeta(
      const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationState) override;
  /// Another source with the same values and optimiser state. No work on this one may be in flight.
  std::shared_ptr<CNNBatchNormalizationDataSource> copy(const std::shared_ptr<mtl::Device>& device) override;
  std::shared_ptr<CNNNormalizationGammaAndBetaState> deviceGammaAndBeta(
      const std::shared_ptr<mtl::Device>& device) override;
  std::shared_ptr<CNNNormalizationMeanAndVarianceState> deviceMeanAndVariance(
      const std::shared_ptr<mtl::Device>& device) override;

  [[nodiscard]] std::string className() const override { return "TrainableBatchNormalization"; }
  /// Values, optimiser and its state; no work may be in flight.
  void encode(Coder& coder) const override;
  static std::shared_ptr<TrainableBatchNormalization> decode(
      Coder& coder, const std::shared_ptr<mtl::Device>& device = nullptr);

  /// A frozen layer is not updated, nor are its running statistics. false.
  [[nodiscard]] bool isFrozen() const override { return frozen_; }
  void setFrozen(bool frozen) override { frozen_ = frozen; }
  [[nodiscard]] const std::shared_ptr<NNOptimizer>& optimizer() const override { return slots_.optimizer(); }
  [[nodiscard]] detail::UpdateCounter* updateCounter() override {
    return optimizer() ? optimizer()->updateCounter() : nullptr;
  }

  void synchronize(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) override;
  /// "<label>.weight" (gamma), "<label>.bias" (beta), "<label>.running_mean" and "<label>.running_var"; with the
  /// optimiser state also "<label>.weight.momentum" and so on, and "<label>.step". The bytes stay this
  /// object's; no work may be in flight.
  [[nodiscard]] std::vector<SafetensorsTensor> tensors(bool withOptimizerState) const override;
  void read(const SafetensorsFile& file, bool withOptimizerState) override;

 private:
  TrainableBatchNormalization(const std::shared_ptr<mtl::Device>& device, std::size_t channels,
                              std::string label, const std::shared_ptr<NNOptimizer>& optimizer,
                              float momentum, float epsilon, AdamForm adamForm);
  /// Records on a queue of its own, runs that and waits; false: nothing was recorded.
  bool runNow(const std::function<bool(const std::shared_ptr<mtl::CommandBuffer>&)>& record);
  /// Gamma and beta, then the running statistics, as in files.
  [[nodiscard]] std::vector<detail::TrainableArray> weights() const;
  [[nodiscard]] std::vector<detail::TrainableArray> statistics() const;

  std::shared_ptr<mtl::Device> device_;
  std::size_t channels_;
  std::string label_;
  float momentum_;
  float epsilon_;
  std::shared_ptr<CNNNormalizationGammaAndBetaState> gammaAndBeta_;
  std::shared_ptr<CNNNormalizationMeanAndVarianceState> meanAndVariance_;
  detail::OptimizerSlots slots_;
  std::shared_ptr<NNOptimizerStochasticGradientDescent> average_;  ///< moves the running statistics
  std::shared_ptr<mtl::CommandQueue> queue_;                       ///< of host-style updates and copies
  bool frozen_ = false;
};

}  // namespace mps
