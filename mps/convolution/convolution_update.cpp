#include "mps/convolution/convolution_update.hpp"

#include <optional>
#include <utility>

#include "mps/convolution/convolution_weights.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/layer/deferred_updates.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/memory.hpp"

namespace mps::detail {
namespace {

/// The gradient kernels add to what is in the state.
class ConvolutionUpdate final : public LayerUpdate {
 public:
  ConvolutionUpdate(std::shared_ptr<mtl::Device> device, std::shared_ptr<ForwardKernelWithWeights> forward,
                    std::vector<std::shared_ptr<GradientKernelWithWeights>> gradients, NNTrainingStyle style)
      : LayerUpdate(style),
        device_(std::move(device)),
        forward_(std::move(forward)),
        gradients_(std::move(gradients)) {}

  [[nodiscard]] const SecureCoding& dataSource() const override { return *forward_->dataSource(); }
  [[nodiscard]] UpdateCounter* counter() const override { return forward_->dataSource()->updateCounter(); }
  void begin() override { before_ = forward_->weights(); }
  void rollBack() override {
    forward_->useWeights(before_);
    shareWeights();
  }

  std::vector<std::shared_ptr<mtl::Buffer>> gradientsToSum(
      const std::shared_ptr<mtl::CommandBuffer>& /*commandBuffer*/,
      const StateBatch& gradientStates) override {
    auto& state = static_cast<CNNConvolutionGradientState&>(*gradientStates[0]);
    std::vector<std::shared_ptr<mtl::Buffer>> buffers{state.gradientForWeights()};
    if (gradients_.front()->computesBiases()) buffers.push_back(state.gradientForBiases());
    return buffers;
  }
  void clearGradients(mtl::CommandBuffer& commandBuffer, const StateBatch& gradientStates) override {
    auto& state = static_cast<CNNConvolutionGradientState&>(*gradientStates[0]);
    for (const auto& buffer : {state.gradientForWeights(), state.gradientForBiases()})
      recordZerosAlways(commandBuffer, sumOfGradients, buffer->memory());
  }
  [[nodiscard]] std::vector<NamedBuffer> parameters() const override {
    const ConvolutionWeights& weights = *forward_->weights();
    const auto part = [&](const std::shared_ptr<mtl::Memory>& memory, std::size_t offset,
                          std::size_t floats) {
      return std::make_shared<mtl::Buffer>(
          device_, std::make_shared<mtl::MemoryPart>(memory, offset, floats * sizeof(float)),
          mtl::StorageMode::Managed);
    };
    const CNNConvolutionDescriptor& descriptor = forward_->descriptor();
    std::vector<NamedBuffer> parameters{
        {"weights", part(weights.weights(), weights.weightsOffset(), descriptor.weightCount())}};
    if (weights.biases())
      parameters.push_back(
          {"biases", part(weights.biases(), weights.biasesOffset(), descriptor.outputFeatureChannels())});
    return parameters;
  }

  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const StateBatch& gradientStates,
              DeferredUpdates* deferred) override {
    const auto gradients = std::static_pointer_cast<CNNConvolutionGradientState>(gradientStates[0]);
    CNNConvolutionDataSource& source = *forward_->dataSource();
    if (const auto live = source.deviceWeightsAndBiases(commandBuffer->device())) {
      // Memory of a temporary state serves others as soon as its update is encoded.
      std::optional<DeferredUpdates::Scope> scope;
      if (deferred != nullptr && !gradients->isTemporary()) scope.emplace(*deferred);
      source.update(commandBuffer, gradients, live);  // changes the buffers that all kernels use
      return;
    }
    const auto weights = forward_->exportWeightsAndBiases(commandBuffer, false);
    const auto updated = source.update(commandBuffer, gradients, weights);
    if (!updated) return;
    if (updated->isTemporary() && updated->readCount() > 0) updated->setReadCount(updated->readCount() + 1);
    forward_->reloadWeightsAndBiases(commandBuffer, updated);
    shareWeights();
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
    shareWeights();
  }

 private:
  /// One copy serves all kernels.
  void shareWeights() {
    for (const auto& gradient : gradients_) gradient->shareWeights(*forward_);
  }

  std::shared_ptr<mtl::Device> device_;
  std::shared_ptr<ForwardKernelWithWeights> forward_;
  std::vector<std::shared_ptr<GradientKernelWithWeights>> gradients_;
  std::shared_ptr<const ConvolutionWeights> before_;
};

}  // namespace

std::shared_ptr<LayerUpdate> makeConvolutionUpdate(
    std::shared_ptr<mtl::Device> device, std::shared_ptr<ForwardKernelWithWeights> forward,
    std::vector<std::shared_ptr<GradientKernelWithWeights>> gradients, NNTrainingStyle style) {
  return std::make_shared<ConvolutionUpdate>(std::move(device), std::move(forward), std::move(gradients),
                                             style);
}

}  // namespace mps::detail
