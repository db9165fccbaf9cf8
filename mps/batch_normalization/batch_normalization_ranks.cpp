#include <algorithm>
#include <utility>

#include "mps/batch_normalization/batch_normalization.hpp"
#include "mps/batch_normalization/statistics_merge.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/types/error.hpp"
#include "mps/distributed/communicator.hpp"
#include "mps/distributed/joint_gather.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command.hpp"
#include "mtl/memory.hpp"

/// One batch on several ranks.
namespace mps {
namespace {

using detail::StatisticsMergeProblem;

void checkState(const Kernel& kernel, const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                const std::shared_ptr<CNNBatchNormalizationState>& state) {
  detail::checkCommandBuffer(kernel, commandBuffer);
  if (!state) throw Error(kernel.describe(), "batchNormalizationState", "null", "a state");
  detail::checkStates(kernel, "batchNormalizationState", *commandBuffer, StateBatch{state}, 1);
}

void checkCommunicator(const Kernel& kernel, const std::shared_ptr<Communicator>& communicator) {
  if (!communicator) throw Error(kernel.describe(), "communicator", "null", "a communicator");
}

/// A row, or rows, in memory.
struct Place {
  std::shared_ptr<mtl::Memory> memory;
  std::size_t byteOffset = 0;
  std::size_t bytes = 0;

  [[nodiscard]] mtl::ContentMark mark() const { return {*memory, {byteOffset, bytes}}; }
};

void recordMergePlan(mtl::CommandBuffer& commandBuffer, const Kernel& kernel,
                     const StatisticsMergeProblem& problem, const Place& source, const Place& destination,
                     double count) {
  const auto chosen = detail::planFor(*commandBuffer.device(), detail::statisticsMergeBackEnds, problem);
  detail::Operands operands;
  operands.source = source.memory->address() + source.byteOffset;
  operands.destination = destination.memory->address() + destination.byteOffset;
  operands.scalars[0] = count;
  mtl::Command command;
  command.label = kernel.describe();
  command.reads = {source.mark()};
  command.writes = {destination.mark()};
  command.retained = {source.memory, destination.memory};
  detail::setRun(command, chosen.plan, operands);
  commandBuffer.append(std::move(command));
}

}  // namespace

/// Leaves the means and M2 of all ranks in the state, and what follows from them.
void CNNBatchNormalizationStatistics::addTo(detail::JointGather& gather,
                                            const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                            std::uint64_t elementCount,
                                            const std::shared_ptr<CNNBatchNormalizationState>& state) const {
  if (elementCount < std::max<std::uint64_t>(1, state->elementCount()))
    throw Error(describe(), "elementCount", std::to_string(elementCount),
                "that of all ranks, at least 1 and " + std::to_string(state->elementCount()) +
                    ", which this one has");
  if (gather.communicator().size() == 1) return;
  StatisticsMergeProblem write;
  write.channels = static_cast<std::int64_t>(state->numberOfFeatureChannels());
  StatisticsMergeProblem merge = write;
  merge.merges = true;
  merge.ranks = gather.communicator().size();
  const auto rowLength = static_cast<std::size_t>(write.rowLength());
  const auto& memory = state->accumulatedStatistics()->memory();
  const Place statistics{memory, 0, state->accumulatedStatistics()->length()};
  // It may end before the rows are recorded.
  const auto self = std::static_pointer_cast<const CNNBatchNormalizationStatistics>(shared_from_this());
  detail::GatheredRow row;
  row.length = rowLength;
  row.write = [=, count = static_cast<double>(state->elementCount())](
                  const std::shared_ptr<mtl::Memory>& rows, std::size_t byteOffset) {
    recordMergePlan(*commandBuffer, *self, write, statistics, {rows, byteOffset, rowLength * sizeof(double)},
                    count);
  };
  row.read = [=](const std::shared_ptr<mtl::Memory>& rows, std::size_t byteOffset, std::size_t stride) {
    StatisticsMergeProblem problem = merge;
    problem.stride = static_cast<std::int64_t>(stride);
    const std::size_t numbers = static_cast<std::size_t>(merge.ranks - 1) * stride + rowLength;
    recordMergePlan(*commandBuffer, *self, problem, {rows, byteOffset, numbers * sizeof(double)}, statistics,
                    0);
    self->recordStatisticsOf(*commandBuffer, elementCount, *state);
  };
  gather.add(std::move(row));
}

void CNNBatchNormalizationStatistics::gatherStatistics(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    const std::shared_ptr<Communicator>& communicator, std::uint64_t elementCount,
    const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationState) {
  checkCommunicator(*this, communicator);
  checkState(*this, commandBuffer, batchNormalizationState);
  detail::JointGather gather(communicator);
  addTo(gather, commandBuffer, elementCount, batchNormalizationState);
  mtl::RecordingGuard guard(*commandBuffer);
  gather.record(commandBuffer);
  guard.keep();
  if (communicator->size() > 1) batchNormalizationState->didImportStatistics(elementCount);
}

void CNNBatchNormalizationStatistics::gatherForUpdate(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, detail::JointGather& gather,
    std::uint64_t elementCount, const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationState) {
  checkState(*this, commandBuffer, batchNormalizationState);
  addTo(gather, commandBuffer, elementCount, batchNormalizationState);
  batchNormalizationState->didMergeStatistics(elementCount);
}

void CNNBatchNormalizationStatisticsGradient::reduceGradients(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    const std::shared_ptr<Communicator>& communicator,
    const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationState) {
  checkCommunicator(*this, communicator);
  checkState(*this, commandBuffer, batchNormalizationState);
  if (!batchNormalizationState->hasGradientStatistics())
    throw Error(describe(), "batchNormalizationState", "without a statistics gradient",
                "one with this rank's part, if only of no images");
  if (communicator->size() == 1) return;
  mtl::RecordingGuard guard(*commandBuffer);
  batchNormalizationState->willEncode(*commandBuffer);
  communicator->allReduceDoubles(commandBuffer, batchNormalizationState->accumulatedGradients());
  guard.keep();
  batchNormalizationState->didImportGradients();
}

void CNNBatchNormalization::encodeStatistics(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                             const ImageBatch& sourceImages, const ImageDescriptor& size,
                                             const std::shared_ptr<CNNBatchNormalizationState>& state) const {
  const auto statistics = CNNBatchNormalizationStatistics::create(device());
  statistics->setLabel(label());
  statistics->setOptions(options());
  statistics->setSourceFeatureChannelOffset(sourceFeatureChannelOffset());
  statistics->setSourceFeatureChannelMaxCount(sourceFeatureChannelMaxCount());
  statistics->encodeBatch(commandBuffer, sourceImages, state);
  if (share_.statistics)
    statistics->gatherStatistics(commandBuffer, share_.statistics,
                                 share_.totalCount * size.width() * size.height(), state);
}

void CNNBatchNormalization::encodeWithoutImages(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                                const ImageDescriptor& source, const StateBatch& states) {
  if (!computesStatistics_) return;
  const auto state = states.empty() ? makeState(commandBuffer, {}) : states[0];
  encodeStatistics(commandBuffer, {}, source, std::static_pointer_cast<CNNBatchNormalizationState>(state));
  if (states.empty()) state->setReadCount(0);
}

void CNNBatchNormalizationStatisticsGradient::encodeStep(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, std::span<const ImageBatch> sources,
    const StateBatch& gradientStates, const ImageBatch& destinationGradients, bool accumulates) {
  const auto state = std::static_pointer_cast<CNNBatchNormalizationState>(gradientStates[0]);
  if (!share_.statistics || !computesData_ || state->isFrozen())
    return CNNGradientKernel::encodeStep(commandBuffer, sources, gradientStates, destinationGradients,
                                         accumulates);
  // Two encodes read what the graph counts one read of.
  for (const ImageBatch& images : sources) ImageBatchIncrementReadCount(images, 1);
  StateBatchIncrementReadCount(gradientStates, 1);
  encodeBatch(commandBuffer, sources[0], sources[1], state);
  reduceGradients(commandBuffer, share_.statistics, state);
  const auto gradient = CNNBatchNormalizationGradient::create(device(), fusedNeuronDescriptor());
  gradient->setLabel(label());
  gradient->setOptions(options());
  if (accumulates)
    gradient->encodeBatchAccumulating(commandBuffer, sources[0], sources[1], gradientStates,
                                      destinationGradients);
  else
    gradient->encodeBatch(commandBuffer, sources[0], sources[1], gradientStates, destinationGradients);
}

void CNNBatchNormalizationStatisticsGradient::encodeWithoutImages(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const ImageDescriptor& /*source*/,
    const StateBatch& states) {
  const auto state = std::static_pointer_cast<CNNBatchNormalizationState>(states[0]);
  encodeBatch(commandBuffer, ImageBatch(), ImageBatch(), state);
  if (share_.statistics && computesData_ && !state->isFrozen())
    reduceGradients(commandBuffer, share_.statistics, state);
}

}  // namespace mps
