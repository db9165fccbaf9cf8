#include <memory>
#include <optional>
#include <utility>

#include "mps/core/image/forward_record.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/layer/deferred_updates.hpp"
#include "mps/core/layer/gradient_sums.hpp"
#include "mps/core/layer/layer_update.hpp"
#include "mps/core/layer/row_sum.hpp"
#include "mps/instance_normalization/instance_normalization.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps::detail {
namespace {

/// Instance and group normalisation, whose states are those of the images.
class ImageNormalizationUpdate final : public LayerUpdate {
 public:
  ImageNormalizationUpdate(std::shared_ptr<ImageNormalizationKernel> forward, std::size_t gradientCount,
                           NNTrainingStyle style)
      : LayerUpdate(style), forward_(std::move(forward)), sumsUp_(gradientCount > 1) {}

  [[nodiscard]] const SecureCoding& dataSource() const override { return forward_->parameterSource(); }
  [[nodiscard]] UpdateCounter* counter() const override {
    return forward_->parameterSource().updateCounter();
  }
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
  /// The rows of all images add up to the first.
  std::vector<std::shared_ptr<mtl::Buffer>> gradientsToSum(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const StateBatch& gradientStates) override {
    const ImageNormalizationRows rows = gradientRowsOf(sumOfGradients, gradientStates);
    addUp(*commandBuffer, *rows.gradients, rows, rows.gradients->gammaOffset(rows.firstRow));
    addUp(*commandBuffer, *rows.gradients, rows, rows.gradients->betaOffset(rows.firstRow));
    auto& first = static_cast<ImageNormalizationGradientState&>(*gradientStates[0]);
    return {first.gradientForGamma(), first.gradientForBeta()};
  }
  void clearGradients(mtl::CommandBuffer& commandBuffer, const StateBatch& gradientStates) override {
    auto record = std::make_shared<ForwardRecord>();
    record->family = forward_->parameters();  // what the update starts from
    gradientStates.setRecord(record);
    const ImageNormalizationRows rows = gradientRowsOf(sumOfGradients, gradientStates);
    recordZerosAlways(commandBuffer, sumOfGradients, rows.gradients->memory());
    rows.gradients->willEncode(commandBuffer);
    rows.gradients->didEncodeGradient(rows.firstRow, rows.rows);
  }
  [[nodiscard]] std::vector<NamedBuffer> parameters() const override {
    return {{"gamma", forward_->parameters().gamma}, {"beta", forward_->parameters().beta}};
  }

  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const StateBatch& gradientStates,
              DeferredUpdates* deferred) override {
    ImageNormalizationDataSource& source = forward_->parameterSource();
    const bool areTemporary = gradientStates[0]->isTemporary();
    const std::size_t reads = gradientStates[0]->readCount();
    StateBatchIncrementReadCount(gradientStates, 1);  // whether or not the source takes them
    {
      std::optional<DeferredUpdates::Scope> scope;
      const bool isLive = source.deviceGammaAndBeta(forward_->device()) != nullptr;
      // Memory of temporary states serves others as soon as their update is encoded.
      if (deferred != nullptr && isLive && !areTemporary) scope.emplace(*deferred);
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
  static GradientSums::Buffers buffersOf(const StateBatch& gradientStates) {
    GradientSums::Buffers buffers;
    for (std::size_t i = 0; i < gradientStates.count(); ++i) {
      auto& state = static_cast<ImageNormalizationGradientState&>(*gradientStates[i]);
      buffers.push_back(state.gradientForGamma());
      buffers.push_back(state.gradientForBeta());
    }
    return buffers;
  }

  /// @param offset of the first row
  void addUp(mtl::CommandBuffer& commandBuffer, ImageNormalizationGradients& gradients,
             const ImageNormalizationRows& rows, std::size_t offset) const {
    if (rows.rows < 2) return;
    const std::size_t bytes = gradients.rowBytes();
    const auto memory = gradients.memory();
    const auto sum = commandBuffer.heap()->allocate(bytes);
    recordRowSum(commandBuffer, sumOfGradients,
                 {static_cast<std::int64_t>(rows.rows), static_cast<std::int64_t>(gradients.channels())},
                 memory, offset, sum, 0);
    recordZerosAlways(commandBuffer, sumOfGradients,
                      std::make_shared<mtl::MemoryPart>(memory, offset + bytes, (rows.rows - 1) * bytes));
    recordMemoryCopy(commandBuffer, sumOfGradients, sum, 0, memory, offset, bytes);
  }

  std::shared_ptr<ImageNormalizationKernel> forward_;
  bool sumsUp_;  ///< each gradient kernel sets the states' gradients anew
  GradientSums sums_;
  ImageNormalizationParameters before_;
};

}  // namespace

std::shared_ptr<LayerUpdate> ImageNormalizationKernel::makeUpdate(
    const std::vector<std::shared_ptr<ImageKernel>>& gradients, NNTrainingStyle style) {
  return std::make_shared<ImageNormalizationUpdate>(
      std::static_pointer_cast<ImageNormalizationKernel>(shared_from_this()), gradients.size(), style);
}

}  // namespace mps::detail
