#include <algorithm>

#include "mps/core/kernel/call.hpp"
#include "mps/core/kernel/image_kernel.hpp"
#include "mps/core/types/error.hpp"
#include "mps/distributed/batch_share.hpp"
#include "mps/graph/graph_run.hpp"
#include "mtl/command_buffer.hpp"

/// A graph that is one of several ranks.
namespace mps::detail {
namespace {

void setBatchShare(const GraphProgram& program, const BatchShare& share) {
  for (const ProgramStep& step : program.steps)
    if (auto* kernel = dynamic_cast<SharedBatchKernel*>(step.kernel.get())) kernel->setBatchShare(share);
}

}  // namespace

bool GraphExecutor::isOneOfSeveral(const NNGraph& graph) {
  return graph.communicator() && graph.communicator()->size() > 1;
}

void GraphExecutor::joinRanks(Run& run, std::size_t count) {
  if (!isOneOfSeveral(run.graph)) return;
  const BatchShare share = run.graph.batchShare(count);
  run.totalCount = share.totalCount;
  setBatchShare(*program_, share);
  run.reduction =
      std::make_unique<GradientReduction>(run.graph.communicator(), share.imageCount, share.totalCount);
}

void GraphExecutor::leaveRanks() {
  setBatchShare(*program_, {});
}

std::vector<ImageBatch> GraphExecutor::imagesOfNone(const GraphLayout& layout) const {
  std::vector<ImageBatch> images;
  for (const ImageDescriptor& size : layout.images) images.push_back(standIns(device_, size, 1));
  return images;
}

void GraphExecutor::encodeStepWithoutImages(Run& run, StepIndex index) {
  const ProgramStep& step = program_->steps[index];
  std::vector<ImageBatch> sources;
  for (const ImageIndex i : step.sources) sources.push_back(run.images[i]);
  std::vector<StateBatch> sourceStates;
  for (const StateIndex state : step.sourceStates) sourceStates.push_back(run.states[state]);
  ImageKernel& kernel = kernelOf(step);
  const StateBatch states = makeStates(run, step, [&](bool isTemporary) {
    return kernel.makeStepStates(isTemporary ? run.commandBuffer : nullptr, sources, sourceStates);
  });
  const bool isGradient = step.forward != nowhere;
  if (auto* shared = dynamic_cast<SharedBatchKernel*>(&kernel))
    shared->encodeWithoutImages(run.commandBuffer, run.layout.images[step.sources[isGradient ? 1 : 0]],
                                isGradient && !sourceStates.empty() ? sourceStates[0] : states);
  makeFusedNeuronState(run, step);
  if (isGradient)
    for (const StateBatch& read : sourceStates) StateBatchIncrementReadCount(read, -1);
  if (!step.update) return;
  step.update->clearGradients(*run.commandBuffer, sourceStates[0]);
  queueUpdate(run, index);
}

void GraphExecutor::sumGradients(Run& run, StepIndex last) {
  run.reduction->recordProgress(run.commandBuffer);
  for (Run::WaitingUpdate& waiting : run.waitingUpdates) {
    const ProgramStep& step = program_->steps[waiting.gradient];
    const StateIndex state = step.sourceStates[0];
    if (waiting.isSummed || program_->states[state].readers.back() > last) continue;
    waiting.isSummed = true;
    step.update->joinGradients(run.commandBuffer, run.states[state]);
    run.reduction->add(run.commandBuffer, step.update->gradientsToSum(run.commandBuffer, run.states[state]));
  }
}

void GraphExecutor::finishSums(Run& run) {
  run.reduction->finish(run.commandBuffer);
  if (run.graph.synchronizesBatchNormalization()) return;
  for (const Run::WaitingUpdate& waiting : run.waitingUpdates) {
    const ProgramStep& step = program_->steps[waiting.gradient];
    const ImageDescriptor& source = run.layout.images[program_->steps[step.forward].sources[0]];
    step.update->mergeStatistics(run.commandBuffer, run.states[step.sourceStates[0]],
                                 run.graph.communicator(), run.totalCount * source.width() * source.height());
  }
}

void GraphExecutor::encodeAgreement(const NNGraph& graph,
                                    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) const {
  if (!isOneOfSeveral(graph)) return;
  std::vector<Communicator::Named> parameters;
  std::vector<const LayerUpdate*> seen;
  for (const ProgramStep& step : program_->steps) {
    if (!step.update || std::ranges::find(seen, step.update.get()) != seen.end()) continue;
    seen.push_back(step.update.get());
    for (Communicator::Named& named : step.update->parameters()) {
      named.name = program_->steps[step.forward].name + ": " + named.name;
      parameters.push_back(std::move(named));
    }
  }
  graph.communicator()->agree(commandBuffer, parameters);
}

}  // namespace mps::detail
