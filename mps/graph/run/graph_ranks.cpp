#include <algorithm>

#include "mps/core/kernel/call.hpp"
#include "mps/core/kernel/graph_traits.hpp"
#include "mps/core/types/error.hpp"
#include "mps/distributed/batch_share.hpp"
#include "mps/distributed/joint_gather.hpp"
#include "mps/graph/run/graph_run.hpp"
#include "mtl/command_buffer.hpp"

/// A graph that is one of several ranks.
namespace mps::detail {
namespace {

void setBatchShare(const GraphProgram& program, const BatchShare& share) {
  for (const ProgramStep& step : program.steps)
    if (SharedBatchKernel* const kernel = step.kernel->roles().sharedBatch) kernel->setBatchShare(share);
}

}  // namespace

SharedBatchScope::SharedBatchScope(const GraphProgram& program, const BatchShare& share) : program_(program) {
  setBatchShare(program, share);
}

SharedBatchScope::~SharedBatchScope() {
  setBatchShare(program_, {});
}

bool GraphExecutor::isOneOfSeveral(const NNGraph& graph) {
  return graph.communicator() && graph.communicator()->size() > 1;
}

void GraphExecutor::joinRanks(Run& run, std::size_t count) {
  if (!isOneOfSeveral(run.graph)) return;
  const BatchShare share = run.graph.batchShare(count);
  run.totalCount = share.totalCount;
  run.batchShare.emplace(*program_, share);
  run.reduction =
      std::make_unique<GradientReduction>(run.graph.communicator(), share.imageCount, share.totalCount);
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
  ImageKernel& kernel = *step.kernel;
  const StateBatch states = makeStates(run, step, [&](bool isTemporary) {
    return kernel.makeStepStates(isTemporary ? run.commandBuffer : nullptr, sources, sourceStates);
  });
  const bool isGradient = step.forward != nowhere;
  if (SharedBatchKernel* const shared = kernel.roles().sharedBatch)
    shared->encodeWithoutImages(run.commandBuffer, run.layout.images[step.sources[isGradient ? 1 : 0]],
                                isGradient && !sourceStates.empty() ? sourceStates[0] : states);
  makeFusedNeuronState(run, index);
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
  JointGather gather(run.graph.communicator());
  for (const Run::WaitingUpdate& waiting : run.waitingUpdates) {
    const ProgramStep& step = program_->steps[waiting.gradient];
    const ImageDescriptor& source = run.layout.images[program_->steps[step.forward].sources[0]];
    step.update->mergeStatistics(run.commandBuffer, run.states[step.sourceStates[0]], gather,
                                 run.totalCount * source.width() * source.height());
  }
  gather.record(run.commandBuffer);
}

void GraphExecutor::encodeAgreement(const NNGraph& graph,
                                    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) const {
  if (!isOneOfSeveral(graph)) return;
  std::vector<Communicator::Named> parameters;
  std::vector<const LayerUpdate*> seen;
  for (const ProgramStep& step : program_->steps) {
    if (!step.update || std::ranges::find(seen, step.update.get()) != seen.end()) continue;
    seen.push_back(step.update.get());
    for (const LayerUpdate::NamedBuffer& named : step.update->parameters())
      parameters.push_back({program_->steps[step.forward].name + ": " + named.name, named.buffer});
  }
  graph.communicator()->agree(commandBuffer, parameters);
}

}  // namespace mps::detail
