#include "mps/graph/run/step_recordings.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "mps/core/kernel/graph_traits.hpp"
#include "mps/core/layer/layer_kernel.hpp"
#include "mtl/command.hpp"
#include "mtl/submission.hpp"

namespace mps::detail {
namespace {

std::size_t changeCountOf(const ProgramStep& step) {
  const LayerKernel* const layer = step.kernel->roles().layer;
  return layer != nullptr ? layer->changeCount() : 0;
}

/// All states that a step makes or reads.
std::vector<StateIndex> statesOf(const GraphProgram& program, const GraphLayout& layout, StepIndex index) {
  const ProgramStep& step = program.steps[index];
  std::vector<StateIndex> states = step.sourceStates;
  for (const auto& state : {step.resultState, step.fusedNeuronState})
    if (state) states.push_back(*state);
  const StepIndex sum = layout.reuse.sums[index];
  if (sum != nowhere && program.steps[sum].fusedNeuronState)
    states.push_back(*program.steps[sum].fusedNeuronState);
  return states;
}

}  // namespace

bool isSteady(const GraphProgram& program, const GraphLayout& layout, StepIndex index, bool copiesSources) {
  const ProgramStep& step = program.steps[index];
  if (!step.kernel->repeatsCommands() || !step.ownsKernel || hasCustomPadding(*step.kernel) ||
      mps::has(step.kernel->options(), KernelOptions::Verbose))
    return false;
  if (step.update && step.update->style() != NNTrainingStyle::UpdateDeviceGPU) return false;
  const auto stays = [&](ImageIndex i) {
    const ProgramImage& image = program.images[i];
    return image.producer == nowhere ? copiesSources : image.isPlanned();
  };
  const ImageIndex addend = layout.reuse.addends[index];
  return std::ranges::all_of(step.sources, stays) && stays(step.result) &&
         (addend == nowhere || stays(addend)) &&
         std::ranges::all_of(statesOf(program, layout, index), [&](StateIndex state) {
           return !program.states[state].isExported && program.states[state].producer != nowhere;
         });
}

bool StepRecordings::Key::isSame(const Key& other) const {
  return layout == other.layout && queue.lock() == other.queue.lock() && threadCount == other.threadCount &&
         choice == other.choice && checksFinite == other.checksFinite;
}

StepRecordings::StepRecordings(std::shared_ptr<const GraphProgram> program) : program_(std::move(program)) {
  forget();
}

bool StepRecordings::forget() {
  if (isInUse_) return false;
  const std::size_t steps = program_->steps.size();
  key_ = {};
  canBeRecorded_.assign(steps, false);
  isRecorded_.assign(steps, false);
  commands_.assign(steps, {});
  changeCounts_.assign(steps, 0);
  states_.assign(program_->states.size(), {});
  isDropped_ = std::make_shared<std::atomic<bool>>(false);
  return true;
}

void StepRecordings::findGroups(const GraphLayout& layout, bool copiesSources) {
  const std::vector<ProgramStep>& steps = program_->steps;
  // A group has the number of its first step.
  groups_.resize(steps.size());
  std::iota(groups_.begin(), groups_.end(), std::size_t{0});
  std::vector<StepIndex> firstOf(program_->states.size(), nowhere);
  for (StepIndex s = 0; s < steps.size(); ++s)
    for (const StateIndex state : statesOf(*program_, layout, s)) {
      if (firstOf[state] == nowhere) firstOf[state] = s;
      const std::size_t joined = groups_[firstOf[state]];
      const std::size_t own = groups_[s];
      if (own != joined) std::ranges::replace(groups_, std::max(own, joined), std::min(own, joined));
    }
  std::vector<bool> isSteadyGroup(steps.size(), true);
  for (StepIndex s = 0; s < steps.size(); ++s)
    if (!isSteady(*program_, layout, s, copiesSources)) isSteadyGroup[groups_[s]] = false;
  for (StepIndex s = 0; s < steps.size(); ++s) canBeRecorded_[s] = isSteadyGroup[groups_[s]];
}

void StepRecordings::forgetGroup(std::size_t group) {
  for (StepIndex s = 0; s < groups_.size(); ++s) {
    if (groups_[s] != group) continue;
    isRecorded_[s] = false;
    for (const StateIndex state : statesOf(*program_, *key_.layout, s)) states_[state] = {};
  }
}

std::size_t StepRecordings::stepCount() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(commands_, [](const auto& commands) { return !commands.empty(); }));
}

StepRecordings::Use StepRecordings::begin(const Key& key, bool copiesSources,
                                          std::vector<StateBatch>& states) {
  if (isInUse_) return nullptr;
  if (!key_.isSame(key) || isDropped_->load()) {
    forget();
    key_ = key;
    findGroups(*key.layout, copiesSources);
  }
  for (StepIndex s = 0; s < program_->steps.size(); ++s)
    if (isRecorded_[s] && changeCounts_[s] != changeCountOf(program_->steps[s])) forgetGroup(groups_[s]);
  for (StateIndex state = 0; state < states_.size(); ++state)
    if (!states_[state].empty()) states[state] = states_[state];
  isInUse_ = true;
  return Use(this);
}

void StepRecordings::repeat(StepIndex step, mtl::Submission& submission) const {
  for (const mtl::Command& command : commands_[step]) submission.append(command);
}

void StepRecordings::keep(mtl::CommandBuffer& commandBuffer, const std::vector<StateBatch>& states) {
  bool hasNew = false;
  for (StepIndex s = 0; s < program_->steps.size(); ++s) {
    if (!canBeRecorded_[s] || isRecorded_[s]) continue;
    isRecorded_[s] = hasNew = true;
    for (const StateIndex state : statesOf(*program_, *key_.layout, s)) states_[state] = states[state];
  }
  if (hasNew)
    commandBuffer.ifDropped(
        [dropped = isDropped_](mtl::CommandBuffer& /*instead*/) { dropped->store(true); });
}

StepRecordings::Recording::Recording(StepRecordings& recordings, StepIndex step,
                                     std::shared_ptr<mtl::Submission> submission)
    : recordings_(recordings),
      step_(step),
      submission_(std::move(submission)),
      mark_(submission_->recorded()) {
  recordings_.changeCounts_[step_] = changeCountOf(recordings_.program_->steps[step_]);
}

StepRecordings::Recording::~Recording() {
  const auto commands = submission_->commandsSince(mark_);
  recordings_.commands_[step_].assign(commands.begin(), commands.end());
}

}  // namespace mps::detail
