#include "mps/graph/layer_update.hpp"

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "mps/batch_normalization/batch_normalization.hpp"
#include "mps/convolution/convolution_weights.hpp"
#include "mps/convolution/kernel_with_weights.hpp"
#include "mps/core/array/vector.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/layer/row_sum.hpp"
#include "mps/core/types/error.hpp"
#include "mps/graph/graph_program.hpp"
#include "mps/instance_normalization/instance_normalization.hpp"
#include "mps/optimizer/combined_updates.hpp"
#include "mps/optimizer/optimizer.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/memory.hpp"

namespace mps::detail {
namespace {

constexpr const char* sumOfGradients = "sum of gradients";

/// The sums of what several gradient kernels leave, one after the other, in the same buffers.
class GradientSums {
 public:
  using Buffers = std::vector<std::shared_ptr<mtl::Buffer>>;

  void clear() { sums_.clear(); }
  void add(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const Buffers& gradients) {
    if (!sums_.empty()) return addAll(commandBuffer, gradients);
    for (const auto& gradient : gradients) {
      sums_.push_back(commandBuffer->device()->newBuffer(gradient->length()));
      copy(*commandBuffer, *gradient, *sums_.back());
    }
  }
  /// Leaves the sums in the buffers, where there are any.
  void put(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const Buffers& gradients) const {
    for (std::size_t i = 0; i < sums_.size(); ++i) copy(*commandBuffer, *sums_[i], *gradients[i]);
  }

 private:
  static void copy(mtl::CommandBuffer& commandBuffer, const mtl::Buffer& from, const mtl::Buffer& to) {
    recordMemoryCopy(commandBuffer, sumOfGradients, from.memory(), 0, to.memory(), 0, to.length());
  }
  void addAll(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const Buffers& gradients) const {
    // A step of length -1 adds the gradient as it is.
    const auto addition = NNOptimizerStochasticGradientDescent::create(commandBuffer->device(), -1);
    const auto vectorOver = [](const std::shared_ptr<mtl::Buffer>& buffer) {
      return Vector::create(
          buffer, VectorDescriptor::vectorDescriptor(buffer->length() / sizeof(float), DataType::Float32));
    };
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      const auto sum = vectorOver(sums_[i]);
      addition->encode(commandBuffer, vectorOver(gradients[i]), sum, nullptr, sum);
    }
  }

  Buffers sums_;
};

/// Convolution, transposed convolution and fully connected layers. Their gradient kernels add to what is in the state.
class ConvolutionUpdate final : public LayerUpdate {
 public:
  ConvolutionUpdate(std::shared_ptr<mtl::Device> device, std::shared_ptr<ForwardKernelWithWeights> forward,
                    std::vector<std::shared_ptr<GradientKernelWithWeights>> gradients, NNTrainingStyle style)
      : LayerUpdate(style),
        device_(std::move(device)),
        forward_(std::move(forward)),
        gradients_(std::move(gradients)) {}

  [[nodiscard]] const SecureCoding& dataSource() const override { return *forward_->dataSource(); }
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
  [[nodiscard]] std::vector<Communicator::Named> parameters() const override {
    const ConvolutionWeights& weights = *forward_->weights();
    const auto part = [&](const std::shared_ptr<mtl::Memory>& memory, std::size_t offset,
                          std::size_t floats) {
      return std::make_shared<mtl::Buffer>(
          device_, std::make_shared<mtl::MemoryPart>(memory, offset, floats * sizeof(float)),
          mtl::StorageMode::Managed);
    };
    const CNNConvolutionDescriptor& descriptor = forward_->descriptor();
    std::vector<Communicator::Named> parameters{
        {"weights", part(weights.weights(), weights.weightsOffset(), descriptor.weightCount())}};
    if (weights.biases())
      parameters.push_back(
          {"biases", part(weights.biases(), weights.biasesOffset(), descriptor.outputFeatureChannels())});
    return parameters;
  }

  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const StateBatch& gradientStates,
              CombinedUpdates* combined) override {
    const auto gradients = std::static_pointer_cast<CNNConvolutionGradientState>(gradientStates[0]);
    CNNConvolutionDataSource& source = *forward_->dataSource();
    if (const auto live = source.deviceWeightsAndBiases(commandBuffer->device())) {
      // Memory of a temporary state serves others as soon as its update is encoded.
      std::optional<CombinedUpdates::Scope> scope;
      if (combined != nullptr && !gradients->isTemporary()) scope.emplace(*combined);
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

class BatchNormalizationUpdate final : public LayerUpdate {
 public:
  BatchNormalizationUpdate(std::shared_ptr<CNNBatchNormalization> forward, std::size_t gradientCount,
                           NNTrainingStyle style)
      : LayerUpdate(style), forward_(std::move(forward)), sumsUp_(gradientCount > 1) {}

  [[nodiscard]] const SecureCoding& dataSource() const override { return *forward_->dataSource(); }
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
                       const StateBatch& gradientStates, const std::shared_ptr<Communicator>& communicator,
                       std::uint64_t elementCount) override {
    if (!forward_->computesStatistics()) return;
    CNNBatchNormalizationStatistics::create(forward_->device())
        ->gatherForUpdate(commandBuffer, communicator, elementCount,
                          std::static_pointer_cast<CNNBatchNormalizationState>(gradientStates[0]));
  }
  [[nodiscard]] std::vector<Communicator::Named> parameters() const override {
    const BatchNormalizationParameters& own = forward_->parameters();
    return {{"gamma", own.gamma}, {"beta", own.beta}, {"mean", own.mean}, {"variance", own.variance}};
  }

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
      if (combined != nullptr && isLive) scope.emplace(*combined, CombinedUpdates::Gradients::None);
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
  static GradientSums::Buffers buffersOf(const StateBatch& gradientStates) {
    auto& state = static_cast<CNNBatchNormalizationState&>(*gradientStates[0]);
    return {state.gammaGradient(), state.betaGradient()};
  }

  std::shared_ptr<CNNBatchNormalization> forward_;
  bool sumsUp_;  ///< each gradient kernel sets the state's gradients anew
  GradientSums sums_;
  BatchNormalizationParameters before_;
};

/// Instance and group normalisation, whose states are those of the images.
class ImageNormalizationUpdate final : public LayerUpdate {
 public:
  ImageNormalizationUpdate(std::shared_ptr<ImageNormalizationKernel> forward, std::size_t gradientCount,
                           NNTrainingStyle style)
      : LayerUpdate(style), forward_(std::move(forward)), sumsUp_(gradientCount > 1) {}

  [[nodiscard]] const SecureCoding& dataSource() const override { return forward_->parameterSource(); }
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
  [[nodiscard]] std::vector<Communicator::Named> parameters() const override {
    return {{"gamma", forward_->parameters().gamma}, {"beta", forward_->parameters().beta}};
  }

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

std::shared_ptr<LayerUpdate> LayerUpdate::create(const std::shared_ptr<Kernel>& forward,
                                                 const std::vector<std::shared_ptr<Kernel>>& gradients,
                                                 NNTrainingStyle style) {
  if (style == NNTrainingStyle::UpdateDeviceNone) return nullptr;
  if (auto convolution = std::dynamic_pointer_cast<ForwardKernelWithWeights>(forward)) {
    std::vector<std::shared_ptr<GradientKernelWithWeights>> own;
    for (const auto& gradient : gradients)
      if (auto kernel = std::dynamic_pointer_cast<GradientKernelWithWeights>(gradient))
        own.push_back(std::move(kernel));
    if (own.empty()) return nullptr;
    return std::make_shared<ConvolutionUpdate>(forward->device(), std::move(convolution), std::move(own),
                                               style);
  }
  if (auto normalization = std::dynamic_pointer_cast<CNNBatchNormalization>(forward))
    return std::make_shared<BatchNormalizationUpdate>(std::move(normalization), gradients.size(), style);
  if (auto normalization = std::dynamic_pointer_cast<ImageNormalizationKernel>(forward))
    return std::make_shared<ImageNormalizationUpdate>(std::move(normalization), gradients.size(), style);
  return nullptr;
}

void createUpdates(GraphProgram& program, const std::vector<NNTrainingStyle>& styles) {
  std::map<std::pair<StepIndex, StateIndex>, std::vector<StepIndex>> gradients;
  for (StepIndex s = 0; s < program.steps.size(); ++s) {
    const ProgramStep& step = program.steps[s];
    if (step.forward == nowhere) continue;
    gradients[{step.forward, step.sourceStates.empty() ? nowhere : step.sourceStates[0]}].push_back(s);
  }
  for (const auto& [forwardAndState, steps] : gradients) {
    const ProgramStep& forward = program.steps[forwardAndState.first];
    std::vector<std::shared_ptr<Kernel>> kernels;
    for (const StepIndex s : steps) kernels.push_back(program.steps[s].kernel);
    StepIndex first = nowhere;  // that trains
    for (const StepIndex s : steps) {
      ProgramStep& step = program.steps[s];
      step.update = first == nowhere ? LayerUpdate::create(forward.kernel, kernels, styles[s])
                    : styles[s] == NNTrainingStyle::UpdateDeviceNone ? nullptr
                                                                     : program.steps[first].update;
      if (!step.update) continue;
      if (first == nowhere) first = s;
      if (step.update->style() != styles[s])
        throw Error(step.name, "trainingStyle", "another one than that of " + program.steps[first].name,
                    "the same, or UpdateDeviceNone: both are gradient nodes of " + forward.name +
                        ", which is updated once with their sum");
    }
  }
}

}  // namespace mps::detail
