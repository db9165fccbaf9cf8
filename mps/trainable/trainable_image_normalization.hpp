#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mps/core/layer/image_normalization_data_source.hpp"
#include "mps/trainable/optimizer_slots.hpp"
#include "mps/trainable/trainable_layer.hpp"
#include "mtl/buffer.hpp"

namespace mtl {
class CommandQueue;
}

namespace mps {
namespace detail {

/// Gamma and beta with their optimiser on a device.
class TrainableGammaAndBeta {
 public:
  /// @param className for messages; the other arguments as TrainableInstanceNormalization::create takes them
  TrainableGammaAndBeta(const std::string& className, const std::shared_ptr<mtl::Device>& device,
                        std::size_t channels, std::string label,
                        const std::shared_ptr<NNOptimizer>& optimizer, float epsilon, AdamForm adamForm);

  [[nodiscard]] std::size_t channels() const { return channels_; }
  [[nodiscard]] const std::string& label() const { return label_; }
  [[nodiscard]] float epsilon() const { return epsilon_; }
  [[nodiscard]] const OptimizerSlots& slots() const { return slots_; }
  [[nodiscard]] const std::shared_ptr<CNNNormalizationGammaAndBetaState>& state() const { return state_; }
  [[nodiscard]] const std::shared_ptr<mtl::Device>& device() const { return device_; }
  [[nodiscard]] bool isFrozen() const { return frozen_; }
  void setFrozen(bool frozen) { frozen_ = frozen; }

  std::shared_ptr<CNNNormalizationGammaAndBetaState> update(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const StateBatch& gradientStates);
  /// On a queue of its own; waits.
  bool updateNow(const StateBatch& gradientStates);
  void synchronize(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer);
  [[nodiscard]] std::vector<SafetensorsTensor> tensors(bool withOptimizerState) const;
  void read(const SafetensorsFile& file, bool withOptimizerState);
  /// Values and optimiser state of another one of the same kind, which no work uses.
  void copyFrom(TrainableGammaAndBeta& other);
  /// Writes all; the class is coded already.
  void encode(Coder& coder) const;
  /// @throws Error also for what the constructor refuses
  static TrainableGammaAndBeta decode(const std::string& className, Coder& coder,
                                      const std::shared_ptr<mtl::Device>& device);

 private:
  [[nodiscard]] std::vector<TrainableArray> weights() const;

  std::shared_ptr<mtl::Device> device_;
  std::size_t channels_;
  std::string label_;
  float epsilon_;
  std::shared_ptr<CNNNormalizationGammaAndBetaState> state_;
  OptimizerSlots slots_;
  std::shared_ptr<mtl::CommandQueue> queue_;  ///< of host-style updates and copies
  bool frozen_ = false;
};

/// What the ready-made data sources of instance and group normalisation have in common (docs/decisions.md, D23):
/// gamma, beta and optimiser on the device, updated in place by recorded work; kernels use its buffers without copies.
/// @tparam Source the data source that it is
template <class Source>
class TrainableImageNormalization : public Source, public TrainableLayer {
 public:
  static constexpr float defaultEpsilon = 1e-5F;

  [[nodiscard]] std::size_t numberOfFeatureChannels() const override { return values_.channels(); }
  /// The host's view of the device's values: synchronize() and wait first.
  [[nodiscard]] std::span<const float> gamma() const override {
    return values_.state()->gamma()->template contentsAs<const float>();
  }
  [[nodiscard]] std::span<const float> beta() const override {
    return values_.state()->beta()->template contentsAs<const float>();
  }
  [[nodiscard]] std::string label() const override { return values_.label(); }
  [[nodiscard]] float epsilon() const override { return values_.epsilon(); }

  std::shared_ptr<CNNNormalizationGammaAndBetaState> updateGammaAndBeta(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const StateBatch& gradientStates) override {
    return values_.update(commandBuffer, gradientStates);
  }
  bool updateGammaAndBeta(const StateBatch& gradientStates) override {
    return values_.updateNow(gradientStates);
  }
  std::shared_ptr<CNNNormalizationGammaAndBetaState> deviceGammaAndBeta(
      const std::shared_ptr<mtl::Device>& device) override {
    return device == values_.device() ? values_.state() : nullptr;
  }

  /// A frozen layer is not updated. false.
  [[nodiscard]] bool isFrozen() const override { return values_.isFrozen(); }
  void setFrozen(bool frozen) override { values_.setFrozen(frozen); }
  [[nodiscard]] const std::shared_ptr<NNOptimizer>& optimizer() const override {
    return values_.slots().optimizer();
  }
  [[nodiscard]] detail::UpdateCounter* updateCounter() override {
    return optimizer() ? optimizer()->updateCounter() : nullptr;
  }
  void synchronize(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) override {
    values_.synchronize(commandBuffer);
  }
  /// "<label>.weight" (gamma) and "<label>.bias" (beta); with the optimiser state also "<label>.weight.momentum" and
  /// so on, and "<label>.step".
  [[nodiscard]] std::vector<SafetensorsTensor> tensors(bool withOptimizerState) const override {
    return values_.tensors(withOptimizerState);
  }
  void read(const SafetensorsFile& file, bool withOptimizerState) override {
    values_.read(file, withOptimizerState);
  }

 protected:
  explicit TrainableImageNormalization(TrainableGammaAndBeta values) : values_(std::move(values)) {}
  TrainableGammaAndBeta values_;
};

}  // namespace detail

/// The ready-made data source of instance normalisation.
///
///     auto adam = mps::NNOptimizerAdam::create(device, 1e-3F);
///     auto layer = mps::TrainableInstanceNormalization::create(device, 32, "norm1", adam);
///     auto node = mps::CNNInstanceNormalizationNode::create(source, layer);
class TrainableInstanceNormalization
    : public detail::TrainableImageNormalization<CNNInstanceNormalizationDataSource> {
 public:
  /// gamma starts at 1, beta at 0.
  /// @param label name of the layer, and of its tensors in files
  /// @param optimizer of gamma and beta, copied; null: they are never updated
  /// @throws Error for a null device, no channels, an epsilon that is not positive, an optimizer that is not SGD,
  /// RMSProp or Adam, AMSGrad with another one than Adam
  static std::shared_ptr<TrainableInstanceNormalization> create(const std::shared_ptr<mtl::Device>& device,
                                                                std::size_t numberOfFeatureChannels,
                                                                std::string label,
                                                                const std::shared_ptr<NNOptimizer>& optimizer,
                                                                float epsilon = defaultEpsilon,
                                                                AdamForm adamForm = AdamForm::Adam);
  /// Another source with the same values and optimiser state. No work on this one may be in flight.
  std::shared_ptr<CNNInstanceNormalizationDataSource> copy(
      const std::shared_ptr<mtl::Device>& device) override;
  [[nodiscard]] std::string className() const override { return "TrainableInstanceNormalization"; }
  /// Values, optimiser and its state; no work may be in flight.
  void encode(Coder& coder) const override;
  static std::shared_ptr<TrainableInstanceNormalization> decode(
      Coder& coder, const std::shared_ptr<mtl::Device>& device = nullptr);

 private:
  using TrainableImageNormalization::TrainableImageNormalization;
};

/// The ready-made data source of group normalisation.
class TrainableGroupNormalization
    : public detail::TrainableImageNormalization<CNNGroupNormalizationDataSource> {
 public:
  /// As TrainableInstanceNormalization::create. @throws Error also when the groups do not divide the channels
  static std::shared_ptr<TrainableGroupNormalization> create(const std::shared_ptr<mtl::Device>& device,
                                                             std::size_t numberOfFeatureChannels,
                                                             std::size_t numberOfGroups, std::string label,
                                                             const std::shared_ptr<NNOptimizer>& optimizer,
                                                             float epsilon = defaultEpsilon,
                                                             AdamForm adamForm = AdamForm::Adam);
  [[nodiscard]] std::size_t numberOfGroups() const override { return groups_; }
  /// Another source with the same values and optimiser state. No work on this one may be in flight.
  std::shared_ptr<CNNGroupNormalizationDataSource> copy(const std::shared_ptr<mtl::Device>& device) override;
  [[nodiscard]] std::string className() const override { return "TrainableGroupNormalization"; }
  /// Values, optimiser and its state; no work may be in flight.
  void encode(Coder& coder) const override;
  static std::shared_ptr<TrainableGroupNormalization> decode(
      Coder& coder, const std::shared_ptr<mtl::Device>& device = nullptr);

 private:
  TrainableGroupNormalization(detail::TrainableGammaAndBeta values, std::size_t groups)
      : TrainableImageNormalization(std::move(values)), groups_(groups) {}
  std::size_t groups_;
};

}  // namespace mps
