#include <algorithm>
#include <utility>

#include "mps/batch_normalization/batch_normalization.hpp"
#include "mps/batch_normalization/statistics_merge.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/types/error.hpp"
#include "mps/distributed/communicator.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command.hpp"
#include "mtl/memory.hpp"

/// One batch on several ranks.
namespace mps {
namespace {

using detail::StatisticsMergeProblem;

void checkRanks(const Kernel& kernel, const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                const std::shared_ptr<Communicator>& communicator,
                const std::shared_ptr<CNNBatchNormalizationState>& state) {
  detail::checkCommandBuffer(kernel, commandBuffer);
  if (!communicator) throw Error(kernel.describe(), "communicator", "null", "a communicator");
  if (!state) throw Error(kernel.describe(), "batchNormalizationState", "null", "a state");
  detail::checkStates(kernel, "batchNormalizationState", *commandBuffer, StateBatch{state}, 1);
}

void recordMergePlan(mtl::CommandBuffer& commandBuffer, const Kernel& kernel,
                     const StatisticsMergeProblem& problem, const std::shared_ptr<mtl::Memory>& source,
                     const std::shared_ptr<mtl::Memory>& destination, double count) {
  const auto chosen = detail::planFor(*commandBuffer.device(), detail::statisticsMergeBackEnds, problem);
  detail::Operands operands;
  operands.source = source->address();
  operands.destination = destination->address();
  operands.scalars[0] = count;
  mtl::Command command;
  command.label = kernel.describe();
  command.reads = {source};
  command.writes = {destination};
  command.retained = {source, destination};
  detail::setRun(command, chosen.plan, operands);
  commandBuffer.append(std::move(command));
}

/// Leaves the means and M2 of all ranks in the state.
void recordGather(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const Kernel& kernel,
                  Communicator& communicator, CNNBatchNormalizationState& state) {
  StatisticsMergeProblem problem;
  problem.channels = static_cast<std::int64_t>(state.numberOfFeatureChannels());
  problem.ranks = communicator.size();
  const auto rows = [&](int count) {
    const auto bytes = static_cast<std::size_t>(count * problem.rowLength()) * sizeof(double);
    return std::make_shared<mtl::Buffer>(communicator.device(), commandBuffer->heap()->allocate(bytes),
                                         mtl::StorageMode::Private);
  };
  const auto own = rows(1);
  const auto all = rows(communicator.size());
  const auto& statistics = state.accumulatedStatistics()->memory();
  recordMergePlan(*commandBuffer, kernel, problem, statistics, own->memory(),
                  static_cast<double>(state.elementCount()));
  communicator.allGather(commandBuffer, own, all);
  problem.merges = true;
  recordMergePlan(*commandBuffer, kernel, problem, all->memory(), statistics, 0);
}

}  // namespace

void CNNBatchNormalizationStatistics::gather(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                             const std::shared_ptr<Communicator>& communicator,
                                             std::uint64_t elementCount,
                                             const std::shared_ptr<CNNBatchNormalizationState>& state) const {
  checkRanks(*this, commandBuffer, communicator, state);
  if (elementCount < std::max<std::uint64_t>(1, state->elementCount()))
    throw Error(describe(), "elementCount", std::to_string(elementCount),
                "that of all ranks, at least 1 and " + std::to_string(state->elementCount()) +
                    ", which this one has");
  if (communicator->size() == 1) return;
  mtl::RecordingGuard guard(*commandBuffer);
  recordGather(commandBuffer, *this, *communicator, *state);
  recordStatisticsOf(*commandBuffer, elementCount, *state);
  guard.keep();
}

void CNNBatchNormalizationStatistics::gatherStatistics(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    const std::shared_ptr<Communicator>& communicator, std::uint64_t elementCount,
    const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationState) {
  gather(commandBuffer, communicator, elementCount, batchNormalizationState);
  if (communicator->size() > 1) batchNormalizationState->didImportStatistics(elementCount);
}

void CNNBatchNormalizationStatistics::gatherForUpdate(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    const std::shared_ptr<Communicator>& communicator, std::uint64_t elementCount,
    const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationState) {
  gather(commandBuffer, communicator, elementCount, batchNormalizationState);
  batchNormalizationState->didMergeStatistics(elementCount);
}

void CNNBatchNormalizationStatisticsGradient::reduceGradients(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    const std::shared_ptr<Communicator>& communicator,
    const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationState) {
  checkRanks(*this, commandBuffer, communicator, batchNormalizationState);
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
