#include "mps/graph/run/graph_executor.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <optional>
#include <utility>

#include "mps/core/kernel/call.hpp"
#include "mps/core/kernel/graph_traits.hpp"
#include "mps/core/layer/layer_kernel.hpp"
#include "mps/core/layer/update_counter.hpp"
#include "mps/core/plan/finite_check.hpp"
#include "mps/core/types/error.hpp"
#include "mps/graph/run/graph_run.hpp"
#include "mps/graph/run/step_scratch.hpp"
#include "mtl/command.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"
#include "mtl/submission.hpp"

namespace mps::detail {
namespace {

/// Weights and random counters of the kernels and time steps of the library's own layers, put back when an encode
/// fails.
class KernelStates {
 public:
  KernelStates(NNGraph& graph, const GraphProgram& program)
      : graph_(graph), program_(program), counters_(graph.randomCounters()) {
    for (const ProgramStep& step : program_.steps) {
      if (!step.update) continue;
      step.update->begin();
      if (UpdateCounter* const counter = step.update->counter())
        timeSteps_.emplace_back(counter, counter->timeStep());
    }
  }
  ~KernelStates() {
    if (kept_) return;
    for (const ProgramStep& step : program_.steps)
      if (step.update) step.update->rollBack();
    for (const auto& [counter, timeStep] : timeSteps_) counter->setTimeStep(timeStep);
    graph_.setRandomCounters(counters_);
  }
  KernelStates(const KernelStates&) = delete;
  KernelStates& operator=(const KernelStates&) = delete;
  void keep() { kept_ = true; }

 private:
  NNGraph& graph_;
  const GraphProgram& program_;
  std::vector<std::uint64_t> counters_;
  std::vector<std::pair<UpdateCounter*, std::size_t>> timeSteps_;
  bool kept_ = false;
};

/// States as a kernel without a window leaves them that read and wrote whole images; for a kernel that was
/// fused away.
StateBatch pointwiseStates(const std::shared_ptr<mtl::Device>& device, const std::string& kernelClass,
                           const ImageDescriptor& size, std::size_t count) {
  auto record = std::make_shared<ForwardRecord>();
  record->kernelClass = kernelClass;
  record->clipRect = {{0, 0, 0}, {size.width(), size.height(), 1}};
  record->source = size;
  record->destination = size;
  record->sourceFeatureChannels = size.featureChannels();
  record->destinationFeatureChannels = size.featureChannels();
  record->imageCount = count;
  auto state = NNGradientState::create(device);
  state->setRecord(std::move(record), 0);
  return StateBatch(state, count);
}

/// LayerKernel::deviceParameters; null for kernels without.
const void* deviceParametersOf(ImageKernel& kernel) {
  const LayerKernel* const layer = kernel.roles().layer;
  return layer != nullptr ? layer->deviceParameters() : nullptr;
}

/// All images of a layout are written before they are read, so an encode that failed does not matter. Most lie in one block.
void clearFailures(const std::vector<ImageBatch>& images) {
  const mtl::Memory* last = nullptr;
  for (const ImageBatch& batch : images) {
    const auto block = batch.blockStorage();
    const auto memory = block ? block->allocatedMemory() : nullptr;
    if (memory && std::exchange(last, memory.get()) != memory.get()) memory->clearFailure();
  }
}

void recordFiniteCheck(mtl::CommandBuffer& commandBuffer, const std::string& name, const ImageBatch& images) {
  const BatchOperand operand(images);
  if (operand.isLoose()) {
    for (const auto& image : images.looseImages())
      recordFiniteCheck(commandBuffer, name, ImageBatch::of(image));
    return;
  }
  FiniteCheckProblem problem;
  problem.source = operand.shape();
  PreparedCall prepared;
  prepared.plan = planFor(*commandBuffer.device(), finiteCheckBackEnds, problem);
  recordCall(commandBuffer, name, prepared, {&operand, nullptr, nullptr, nullptr, nullptr, 0});
}

}  // namespace

Error updatedApart(const NNGraph& graph, const ProgramStep& step) {
  return {graph.describe(), "gradientNormLimit", "set, but the layer of " + step.name + " is updated apart",
          "layers whose weights are on the device, with states that are not temporary"};
}

GraphExecutor::GraphExecutor(std::shared_ptr<mtl::Device> device, std::shared_ptr<GraphProgram> program)
    : device_(std::move(device)),
      program_(std::move(program)),
      copiesSources_(device_->kind() == mtl::DeviceKind::CUDA),
      recordings_(program_) {}

void GraphExecutor::check(const NNGraph& graph, const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                          std::span<const ImageBatch> sourceImages,
                          std::span<const StateBatch> sourceStates) const {
  checkCommandBuffer(graph, commandBuffer);
  const auto checkNumber = [&](const char* argument, std::size_t found, std::size_t expected) {
    if (found != expected)
      throw Error(graph.describe(), argument, std::to_string(found) + " entries",
                  std::to_string(expected) + ", in the order of the graph's handles");
  };
  checkNumber("sourceImages", sourceImages.size(), program_->sourceImages.size());
  checkNumber("sourceStates", sourceStates.size(), program_->sourceStates.size());
  const std::size_t count = sourceImages.empty() ? 0 : sourceImages[0].count();
  if (count == 0 && !isOneOfSeveral(graph))
    throw Error(graph.describe(), "sourceImages", "an empty batch", "at least one image");
  for (const ImageBatch& batch : sourceImages) {
    checkCount(graph, "sourceImages", batch.count(), count);
    if (count == 0) continue;
    checkNotStacked(graph, "sourceImages", batch);
    checkSources(graph, "sourceImages", *commandBuffer, batch);
  }
  for (const StateBatch& batch : sourceStates)
    if (count > 0)
      checkStates(graph, "sourceStates", *commandBuffer, batch, count);
    else
      checkCount(graph, "sourceStates", batch.count(), count);
}

GraphLayout& GraphExecutor::layoutFor(const NNGraph& graph, std::span<const ImageBatch> sourceImages) {
  GraphLayout key;
  key.count = std::max<std::size_t>(1, sourceImages[0].count());  // without images sizes are those of one
  key.format = graph.format();
  for (const ImageBatch& batch : sourceImages) {
    ImageDescriptor descriptor = batch.descriptor();
    descriptor.setStorageMode(mtl::StorageMode::Managed);
    key.sources.push_back(descriptor);
  }
  const auto found = std::ranges::find_if(layouts_, [&](const GraphLayout& layout) {
    return layout.count == key.count && layout.format == key.format && layout.sources == key.sources;
  });
  if (found != layouts_.end()) {
    layouts_.splice(layouts_.begin(), layouts_, found);
    return layouts_.front();
  }
  resolveLayout(key, *program_, device_, copiesSources_);
  layouts_.push_front(std::move(key));
  if (layouts_.size() > mostLayouts) layouts_.pop_back();
  recordings_.forget();  // the place of a layout that is gone may be this one's
  if (has(graph.options(), KernelOptions::Verbose)) printDispatch(graph.debugDescription());
  return layouts_.front();
}

GraphExecutor::QueueMemory& GraphExecutor::memoryOf(const std::shared_ptr<mtl::CommandQueue>& queue) {
  std::erase_if(queueMemory_, [](const QueueMemory& memory) { return memory.queue.expired(); });
  for (QueueMemory& memory : queueMemory_)
    if (memory.queue.lock() == queue) return memory;
  queueMemory_.push_back({queue, std::make_shared<mtl::Heap>(*device_), {}});
  queueMemory_.back().ofState.resize(program_->states.size());
  return queueMemory_.back();
}

void GraphExecutor::makeRoomForScratch(const NNGraph& graph, GraphLayout& layout,
                                       const GraphLayout::Bound& bound) {
  // The commands of another rank, which these may wait for, may be encoded by this thread, too.
  constexpr std::chrono::milliseconds mostWithOthers{1000};
  const auto most = isOneOfSeveral(graph) ? std::optional(mostWithOthers) : std::nullopt;
  const auto lastUse = bound.lastUse.lock();
  if (lastUse && !lastUse->waitIfHandedOver(most)) return;
  if (!recordings_.forget()) return;  // they hold addresses
  for (StepIndex s = 0; s < layout.scratchBytes.size(); ++s)
    layout.scratchBytes[s] = std::max(layout.scratchBytes[s], bound.scratch->bytesOf(s));
  placeImages(layout);
  memoryOf(bound.queue.lock()).scratch = std::make_shared<mtl::Heap>(*device_);
  layout.bound.clear();
  device_->releaseRecycledMemory();
}

GraphLayout::Bound& GraphExecutor::bind(const NNGraph& graph, GraphLayout& layout,
                                        const std::shared_ptr<mtl::CommandQueue>& queue) {
  std::erase_if(layout.bound, [](const GraphLayout::Bound& bound) { return bound.queue.expired(); });
  const auto onQueue = [&] {
    return std::ranges::find_if(layout.bound,
                                [&](const GraphLayout::Bound& bound) { return bound.queue.lock() == queue; });
  };
  if (const auto found = onQueue(); found != layout.bound.end() && found->scratch->lacksRoom())
    makeRoomForScratch(graph, layout, *found);
  const auto& scratch = memoryOf(queue).scratch;
  if (const auto found = onQueue(); found != layout.bound.end()) {
    if (found->scratch->shared() != scratch) found->scratch = found->scratch->withHeap(scratch, layout);
    return *found;
  }
  GraphLayout::Bound bound;
  bound.queue = queue;
  bound.images.resize(program_->images.size());
  const auto block = device_->allocate(layout.plan.peakBytes);
  for (ImageIndex i = 0; i < program_->images.size(); ++i) {
    const ImageDescriptor& size = layout.images[i];
    const auto shape =
        TensorShape::dense(static_cast<std::int64_t>(layout.count), static_cast<std::int64_t>(size.height()),
                           static_cast<std::int64_t>(size.width()),
                           static_cast<std::int64_t>(size.featureChannels()), size.channelFormat());
    const std::size_t request = layout.requestOf[i];
    if (request != nowhere)
      bound.images[i] = ImageBatch::over(
          std::make_shared<ImageStorage>(device_, block, layout.plan.offsets[request], shape), size);
    else if (program_->images[i].producer == nowhere ? copiesSources_ : program_->images[i].isPlanned())
      bound.images[i] = ImageBatch::create(device_, size, layout.count);  // allocated when it is written
  }
  bound.scratch = std::make_shared<StepScratch>(scratch, layout, block);
  layout.bound.push_back(std::move(bound));
  return layout.bound.back();
}

void GraphExecutor::waitForHostUpdates(const NNGraph& graph, const mtl::CommandBuffer& commandBuffer) {
  std::unique_lock lock(updateMutex_);
  const auto pending = pendingUpdate_.lock();
  if (!pending) return;  // none, or in a buffer that was dropped without a commit
  if (pending == commandBuffer.submission())
    throw Error(graph.describe(), "commandBuffer",
                "one that holds an encode whose weights are updated on the host",
                "another: the new weights exist only when that buffer has completed");
  if (pending->queue()->handlerThread().isCurrent())
    throw Error(
        graph.describe(), "commandBuffer",
        "encoded in a handler, before that handler of the same queue which updates the weights on the host",
        "encoded outside of handlers, or in one that was added after the earlier encode");
  if (pending->status() < mtl::CommandBufferStatus::Committed)
    throw Error(graph.describe(), "commandBuffer",
                "encoded before the buffer whose completion updates the weights on the host was committed",
                "a commit of that one first");
  updated_.wait(lock, [&] { return pendingUpdate_.expired(); });
}

void GraphExecutor::reuseBuffers(const std::shared_ptr<mtl::CommandQueue>& queue, StateIndex index,
                                 State& state) {
  if (!state.beginsUndefined() || state.isTemporary()) return;
  auto& kept = memoryOf(queue).ofState[index];
  kept.resize(state.resourceCount());
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (kept[i].use_count() == 1)
      state.useBuffer(i, kept[i]);
    else
      kept[i] = state.resource(i);
  }
}

void GraphExecutor::enterSources(Run& run, std::span<const ImageBatch> sourceImages) {
  for (std::size_t i = 0; i < sourceImages.size(); ++i) {
    const ImageIndex image = program_->sourceImages[i];
    if (copiesSources_) {
      gatherInto(*run.commandBuffer, run.graph.describe(), BatchOperand(sourceImages[i]),
                 BatchOperand(run.images[image]).view(*run.commandBuffer, true));
      consumeRead(sourceImages[i], run.graph.describe());
      continue;
    }
    run.images[image] = sourceImages[i];
  }
}

StateBatch GraphExecutor::makeStates(Run& run, const ProgramStep& step,
                                     const std::function<StateBatch(bool isTemporary)>& make) {
  if (!step.resultState) return {};
  const ProgramState& state = program_->states[*step.resultState];
  if (state.readers.empty() && !state.isExported) return {};
  auto readsInside = static_cast<std::int64_t>(state.readers.size());
  bool isTemporary = state.isExported && run.graph.outputStateIsTemporary();
  const auto trainer = std::ranges::find_if(
      state.readers, [&](StepIndex reader) { return program_->steps[reader].update != nullptr; });
  if (trainer != state.readers.end()) {
    ++readsInside;
    if (program_->steps[*trainer].update->style() == NNTrainingStyle::UpdateDeviceCPU)
      isTemporary = false;  // the host reads it later
  }
  StateBatch states = make(isTemporary);
  if (isTemporary) StateBatchIncrementReadCount(states, readsInside);  // the caller's read stays
  if (!state.isExported)
    for (const auto& made : states.existing())
      reuseBuffers(run.commandBuffer->commandQueue(), *step.resultState, *made);
  run.states[*step.resultState] = states;
  return states;
}

void GraphExecutor::queueUpdate(Run& run, StepIndex index) {
  const ProgramStep& step = program_->steps[index];
  const StateIndex state = step.sourceStates[0];
  step.update->didEncodeGradient(run.commandBuffer, run.states[state]);
  const bool waits = std::ranges::any_of(run.waitingUpdates, [&](const Run::WaitingUpdate& waiting) {
    return program_->steps[waiting.gradient].update == step.update;
  });
  if (waits) return;
  StepIndex lastUse = program_->states[state].readers.back();
  if (const void* weights = deviceParametersOf(*program_->steps[step.forward].kernel))
    lastUse = std::max(lastUse, run.lastUses[weights]);
  run.waitingUpdates.push_back({index, lastUse});
}

void GraphExecutor::encodeUpdates(Run& run, StepIndex last) {
  for (auto waiting = run.waitingUpdates.begin(); waiting != run.waitingUpdates.end();) {
    if (waiting->lastUse > last) {
      ++waiting;
      continue;
    }
    encodeUpdate(run, program_->steps[waiting->gradient]);
    waiting = run.waitingUpdates.erase(waiting);
  }
}

void GraphExecutor::encodeUpdate(Run& run, const ProgramStep& step) {
  const StateBatch& states = run.states[step.sourceStates[0]];
  if (!run.reduction) step.update->joinGradients(run.commandBuffer, states);
  if (step.update->style() == NNTrainingStyle::UpdateDeviceGPU) {
    const void* const weights = deviceParametersOf(*program_->steps[step.forward].kernel);
    if (run.graph.gradientNormLimit() > 0 && (weights == nullptr || states[0]->isTemporary()))
      throw updatedApart(run.graph, step);
    if (weights != nullptr && !run.updated.insert(weights).second) run.combinedUpdates.separate();
    step.update->encode(run.commandBuffer, states, weights != nullptr ? &run.combinedUpdates : nullptr);
    return;
  }
  if (run.graph.gradientNormLimit() > 0) throw updatedApart(run.graph, step);
  run.hostUpdates.push_back({step.update, states, step.update->prepareHostUpdate(run.commandBuffer, states)});
}

void GraphExecutor::encodeSlices(Run& run, const ProgramStep& step, const ProgramStep& partner) {
  const auto sliceOf = [](const ProgramStep& slice) -> SliceGradientKernel& {
    return *slice.kernel->roles().sliceGradient;
  };
  const bool isFirst = sliceOf(step).sourceIndex() < sliceOf(partner).sourceIndex();
  const ProgramStep& first = isFirst ? step : partner;
  const ProgramStep& second = isFirst ? partner : step;
  const std::array sources{run.images[first.sources[1]], run.images[second.sources[1]]};
  const std::array results{run.images[first.result], run.images[second.result]};
  sliceOf(first).encodeBatchWithNext(run.commandBuffer, run.images[step.sources[0]], sources,
                                     run.states[step.sourceStates[0]], results);
  if (run.graph.stopsAtNonFiniteValues())
    for (const ProgramStep* slice : {&first, &second})
      recordFiniteCheck(*run.commandBuffer, slice->name, run.images[slice->result]);
}

void GraphExecutor::makeFusedNeuronState(Run& run, StepIndex index) const {
  if (const StepIndex sum = run.layout.reuse.sums[index]; sum != nowhere) makeFusedNeuronState(run, sum);
  const ProgramStep& step = program_->steps[index];
  if (!step.fusedNeuronState) return;
  const ImageBatch& result = run.images[step.result];
  run.states[*step.fusedNeuronState] =
      pointwiseStates(device_, "CNNNeuron", result.descriptor(), result.count());
}

void GraphExecutor::encodeStep(Run& run, StepIndex index) {
  const ProgramStep& step = program_->steps[index];
  if (const StepIndex partner = run.layout.reuse.partners[index]; partner != nowhere)
    return encodeSlices(run, step, program_->steps[partner]);
  const ImageIndex addend = run.layout.reuse.addends[index];
  std::vector<ImageBatch> sources;
  for (const ImageIndex i : step.sources) sources.push_back(run.images[i]);
  if (addend != nowhere) sources.push_back(run.images[addend]);
  const ImageBatch& result = run.images[step.result];
  std::vector<StateBatch> sourceStates;
  for (const StateIndex state : step.sourceStates) sourceStates.push_back(run.states[state]);
  ImageKernel& kernel = *step.kernel;
  const GeometryScope scope(kernel);
  placeSources(run.layout, index, kernel);
  std::optional<StepScratch::Scope> scratch;
  if (run.scratch && isSteady(*program_, run.layout, index, copiesSources_))
    scratch.emplace(*run.scratch, index, run.commandBuffer->submission());
  const StateBatch states = makeStates(run, step, [&](bool isTemporary) {
    return kernel.makeStepStates(isTemporary ? run.commandBuffer : nullptr, sources, sourceStates);
  });
  kernel.encodeGraphStep(run.commandBuffer,
                         {sources, sourceStates, states, result, run.layout.reuse.accumulates[index]});
  makeFusedNeuronState(run, index);
  if (run.graph.stopsAtNonFiniteValues() && step.writesResult)
    recordFiniteCheck(*run.commandBuffer, step.name, result);
}

void GraphExecutor::beginRecordings(Run& run) {
  const bool isPlain = !run.commandBuffer->mayLeaveOut() && !CallObserver::isActive() && keepsPlans();
  if (!isPlain || isOneOfSeveral(run.graph)) {
    recordings_.forget();
    return;
  }
  run.recordings = recordings_.begin({&run.layout, run.commandBuffer->commandQueue(), device_->threadCount(),
                                      choiceKey(), run.graph.stopsAtNonFiniteValues()},
                                     copiesSources_, run.states);
}

void GraphExecutor::repeatOrEncode(Run& run, StepIndex index) {
  const auto& submission = run.commandBuffer->submission();
  if (!run.recordings)
    encodeStep(run, index);
  else if (run.recordings->has(index))
    run.recordings->repeat(index, *submission);
  else
    run.recordings->record(index, submission, [&] { encodeStep(run, index); });
  if (program_->steps[index].update) queueUpdate(run, index);
}

void GraphExecutor::allocateOwned(Run& run) {
  for (ImageIndex i = 0; i < program_->images.size(); ++i) {
    const ProgramImage& image = program_->images[i];
    if (image.producer == nowhere || image.isPlanned()) continue;
    ImageAllocator& allocator = image.isNeededResult ? *run.graph.destinationImageAllocator()
                                : image.allocator    ? *image.allocator
                                                     : *TemporaryImage::defaultAllocator();
    ImageDescriptor size = run.layout.images[i];
    if (run.isStack) size.setNumberOfImages(run.layout.count);
    run.owned[i] = allocateImages(*program_->steps[image.producer].kernel, allocator, run.commandBuffer, size,
                                  run.isStack ? 1 : run.layout.count);
    run.images[i] = run.isStack ? run.owned[i][0]->batchRepresentation() : run.owned[i];
    // Readers inside the graph do not count for the caller: an exported image keeps one read, a result two.
    if (image.isNeededResult && image.isExported) ImageBatchIncrementReadCount(run.owned[i], 1);
    run.reads.hold(run.images[i], 0);
  }
}

ImageBatch GraphExecutor::encode(NNGraph& graph, const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                 std::span<const ImageBatch> sourceImages,
                                 std::span<const StateBatch> sourceStates,
                                 std::vector<ImageBatch>* intermediateImages,
                                 std::vector<StateBatch>* destinationStates, bool isStack) {
  check(graph, commandBuffer, sourceImages, sourceStates);
  // Padding policies and allocators are asked before anything is recorded.
  mtl::RecordingGuard userCode(*commandBuffer);
  waitForHostUpdates(graph, *commandBuffer);
  GraphLayout& layout = layoutFor(graph, sourceImages);
  const bool hasImages = !sourceImages[0].empty();
  GraphLayout::Bound* const bound = hasImages ? &bind(graph, layout, commandBuffer->commandQueue()) : nullptr;
  Run run{graph,
          commandBuffer,
          layout,
          bound != nullptr ? bound->images : imagesOfNone(layout),
          {},
          {},
          {*device_, program_, graph.gradientNormLimit()}};
  joinRanks(run, sourceImages[0].count());
  run.states.resize(program_->states.size());
  for (std::size_t i = 0; i < sourceStates.size(); ++i)
    run.states[program_->sourceStates[i]] = sourceStates[i];
  run.isStack = isStack;
  if (bound != nullptr) {
    run.scratch = bound->scratch;
    commandBuffer->submission()->retain(run.scratch);
    bound->lastUse = commandBuffer->submission();
  }
  if (hasImages) clearFailures(run.images);
  run.owned.resize(program_->images.size());
  if (hasImages) allocateOwned(run);

  // One encode takes one read, however many steps read a source.
  for (const ImageBatch& images : sourceImages) run.reads.hold(images, 1);
  for (const StateBatch& states : sourceStates) run.reads.hold(states, 1);
  KernelStates kernelStates(graph, *program_);
  mtl::RecordingGuard guard(*commandBuffer);
  if (hasImages) enterSources(run, sourceImages);
  beginRecordings(run);
  // For each encode anew: a reload may have changed where a data source keeps its weights.
  for (StepIndex s = 0; s < program_->steps.size(); ++s) {
    const StepIndex forward = program_->steps[s].forward;
    run.lastUses[deviceParametersOf(*program_->steps[forward != nowhere ? forward : s].kernel)] = s;
  }
  for (StepIndex s = 0; s < program_->steps.size(); ++s) {
    if (!layout.reuse.leavesOut[s]) hasImages ? repeatOrEncode(run, s) : encodeStepWithoutImages(run, s);
    if (run.reduction)
      sumGradients(run, s);
    else
      encodeUpdates(run, s);
  }
  if (run.reduction) {
    finishSums(run);
    encodeUpdates(run, program_->steps.size());
  }
  run.combinedUpdates.record(*commandBuffer);
  if (run.recordings) run.recordings->keep(*commandBuffer, run.states);
  guard.keep();
  userCode.keep();
  run.reads.keep();
  kernelStates.keep();

  for (ImageIndex i = 0; i < program_->images.size(); ++i)
    if (hasImages && program_->images[i].synchronizes && !run.images[i].empty())
      ImageBatchSynchronize(run.images[i], commandBuffer);
  if (!run.hostUpdates.empty()) {
    {
      const std::lock_guard lock(updateMutex_);
      pendingUpdate_ = commandBuffer->submission();
    }
    commandBuffer->addCompletedHandler(
        [self = shared_from_this(), updates = std::move(run.hostUpdates)](mtl::CommandBuffer& completed) {
          std::exception_ptr thrown;
          try {
            if (completed.status() == mtl::CommandBufferStatus::Completed)
              for (const auto& [update, gradientStates, sourceState] : updates)
                update->updateOnHost(gradientStates, sourceState);
          } catch (...) {
            thrown = std::current_exception();
          }
          {
            const std::lock_guard lock(self->updateMutex_);
            self->pendingUpdate_.reset();
          }
          self->updated_.notify_all();
          if (thrown) std::rethrow_exception(thrown);
        });
  }
  if (intermediateImages != nullptr)
    for (const ImageIndex i : program_->intermediateImages) intermediateImages->push_back(run.owned[i]);
  for (const StateIndex i : program_->resultStates) {
    if (program_->states[i].synchronizes) StateBatchSynchronize(run.states[i], commandBuffer);
    if (destinationStates != nullptr) destinationStates->push_back(run.states[i]);
  }
  return program_->firstResultIsNeeded ? run.owned[program_->results[0]] : ImageBatch{};
}

GraphTrace GraphExecutor::trace(NNGraph& graph, const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                std::span<const ImageBatch> sourceImages,
                                std::span<const StateBatch> sourceStates) {
  check(graph, commandBuffer, sourceImages, sourceStates);
  waitForHostUpdates(graph, *commandBuffer);
  GraphLayout layout = layoutFor(graph, sourceImages);
  layout.reuse = noReuse(*program_);
  Run run{graph, commandBuffer,       layout, std::vector<ImageBatch>(program_->images.size()), {},
          {},    {*device_, program_}};
  run.states.resize(program_->states.size());
  for (std::size_t i = 0; i < sourceImages.size(); ++i)
    run.images[program_->sourceImages[i]] = sourceImages[i];
  for (std::size_t i = 0; i < sourceStates.size(); ++i)
    run.states[program_->sourceStates[i]] = sourceStates[i];
  for (ImageIndex i = 0; i < program_->images.size(); ++i)
    if (program_->images[i].producer != nowhere)
      run.images[i] = ImageBatch::create(device_, layout.images[i], layout.count);

  GraphTrace trace;
  trace.calls.resize(program_->steps.size());
  mtl::RecordingGuard guard(*commandBuffer);
  for (StepIndex s = 0; s < program_->steps.size(); ++s) {
    const CallObserver observer([&](const PreparedCall& prepared, const CallOperands& operands) {
      const auto copy = [](const BatchOperand* operand) {
        return operand != nullptr ? std::optional(*operand) : std::nullopt;
      };
      const BatchOperand* const destination = operands.destination;
      trace.calls[s].push_back(
          {prepared, copy(operands.source), copy(operands.secondary), copy(operands.gradient),
           copy(destination),
           destination ? destination->firstImageIn(run.images[program_->steps[s].result]) : 0});
    });
    encodeStep(run, s);
  }
  guard.keep();
  trace.images = std::move(run.images);
  trace.states = std::move(run.states);
  return trace;
}

}  // namespace mps::detail
