#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mps/core/layer/convolution_data_source.hpp"
#include "mps/trainable/optimizer_slots.hpp"
#include "mps/trainable/trainable_layer.hpp"

namespace mtl {
class CommandQueue;
}

namespace mps {

/// How the weights of a layer start. fanIn is the number of weights that a result sums over, fanOut those
/// that a source value goes into.
enum class WeightInitialization {
  He,        ///< uniform in +-sqrt(6 / fanIn): keeps the variance through ReLU
  Glorot,    ///< uniform in +-sqrt(6 / (fanIn + fanOut)): through tanh, and before a softmax
  Constant,  ///< all weights TrainableConvolution::constantWeight
};

enum class LayerBiases {
  Trained,  ///< one per output channel
  None,
};

/// The ready-made data source of convolution and fully connected layers (docs/decisions.md, D23): weights and optimiser
/// on the device, updated in place by recorded work; kernels use its buffers without copies.
///
///     auto shape = mps::CNNConvolutionDescriptor::create(5, 5, 1, 32);
///     auto adam = mps::NNOptimizerAdam::create(device, 1e-3F);
///     auto layer = mps::TrainableConvolution::create(device, shape, "conv1", seed, adam);
///     auto node = mps::CNNConvolutionNode::create(source, layer);
class TrainableConvolution : public CNNConvolutionDataSource, public TrainableLayer {
 public:
  static constexpr float constantWeight = 0.01F;

  /// Biases start at 0. @param label name of the layer, and of its tensors in files
  /// @param seed   of the initial weights; give each layer another one
  /// @param optimizer copied; null: the layer is never updated
  /// @param biases None for a layer before a normalisation, which takes any constant away
  /// @throws Error for a null device, a wrong descriptor, an optimizer that is not SGD, RMSProp or Adam,
  /// AMSGrad with another one than Adam
  static std::shared_ptr<TrainableConvolution> create(
      const std::shared_ptr<mtl::Device>& device, const CNNConvolutionDescriptor& descriptor,
      std::string label, std::uint64_t seed, const std::shared_ptr<NNOptimizer>& optimizer,
      WeightInitialization initialization = WeightInitialization::He, AdamForm adamForm = AdamForm::Adam,
      LayerBiases biases = LayerBiases::Trained);

  [[nodiscard]] DataType dataType() const override { return DataType::Float32; }
  [[nodiscard]] CNNConvolutionDescriptor descriptor() const override { return descriptor_; }
  /// The host's view of the device's weights: synchronize() and wait first.
  [[nodiscard]] std::span<const std::byte> weights() const override;
  [[nodiscard]] std::span<const float> biasTerms() const override;
  bool load() override { return true; }
  void purge() override {}
  [[nodiscard]] std::string label() const override { return label_; }
  std::shared_ptr<CNNConvolutionWeightsAndBiasesState> update(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      const std::shared_ptr<CNNConvolutionGradientState>& gradientState,
      const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& sourceState) override;
  bool update(const std::shared_ptr<CNNConvolutionGradientState>& gradientState,
              const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& sourceState) override;
  /// Another source with the same weights and optimiser state. No work on this one may be in flight.
  std::shared_ptr<CNNConvolutionDataSource> copy(const std::shared_ptr<mtl::Device>& device) override;
  std::shared_ptr<CNNConvolutionWeightsAndBiasesState> deviceWeightsAndBiases(
      const std::shared_ptr<mtl::Device>& device) override;

  [[nodiscard]] std::string className() const override { return "TrainableConvolution"; }
  /// Values, optimiser and its state; no work may be in flight.
  void encode(Coder& coder) const override;
  static std::shared_ptr<TrainableConvolution> decode(Coder& coder,
                                                      const std::shared_ptr<mtl::Device>& device = nullptr);

  /// A frozen layer is not updated. false.
  [[nodiscard]] bool isFrozen() const override { return frozen_; }
  void setFrozen(bool frozen) override { frozen_ = frozen; }
  [[nodiscard]] const std::shared_ptr<NNOptimizer>& optimizer() const override { return slots_.optimizer(); }
  [[nodiscard]] detail::UpdateCounter* updateCounter() override {
    return optimizer() ? optimizer()->updateCounter() : nullptr;
  }
  [[nodiscard]] AdamForm adamForm() const { return slots_.adamForm(); }

  void synchronize(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) override;
  /// "<label>.weight" [out][kernel row][kernel column][in / groups] and, where there are biases, "<label>.bias";
  /// with the optimiser state also "<label>.weight.momentum" and so on, and "<label>.step". The bytes stay this
  /// object's; no work may be in flight.
  [[nodiscard]] std::vector<SafetensorsTensor> tensors(bool withOptimizerState) const override;
  void read(const SafetensorsFile& file, bool withOptimizerState) override;
  void readFromPyTorch(const SafetensorsFile& file) override;

 private:
  TrainableConvolution(const std::shared_ptr<mtl::Device>& device, const CNNConvolutionDescriptor& descriptor,
                       std::string label, const std::shared_ptr<NNOptimizer>& optimizer, AdamForm adamForm,
                       LayerBiases biases);
  /// Records on a queue of its own, runs that and waits; false: nothing was recorded.
  bool runNow(const std::function<bool(const std::shared_ptr<mtl::CommandBuffer>&)>& record);
  void initialize(std::uint64_t seed, WeightInitialization initialization);
  /// Weights and, where there are any, biases, as in files.
  [[nodiscard]] std::vector<detail::TrainableArray> arrays() const;

  std::shared_ptr<mtl::Device> device_;
  CNNConvolutionDescriptor descriptor_;
  std::string label_;
  std::shared_ptr<CNNConvolutionWeightsAndBiasesState> state_;
  detail::OptimizerSlots slots_;
  std::shared_ptr<mtl::CommandQueue> queue_;  ///< of host-style updates and copies
  bool frozen_ = false;
};

}  // namespace mps
