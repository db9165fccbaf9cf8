#include <algorithm>
#include <vector>

#include "mps/core/kernel/graph_traits.hpp"
#include "mps/graph/layout/image_reuse.hpp"

namespace mps::detail {
namespace {

/// The sum that a neuron's gradient reads as its incoming one, if that is computed from the neuron's result, which is
/// that of whole images; nowhere otherwise. It has to be the step before: nobody writes over the summands meanwhile.
StepIndex sumBefore(const GraphProgram& program, StepIndex index) {
  const ProgramStep& step = program.steps[index];
  const NeuronGradientKernel* const gradient = step.kernel->roles().neuronGradient;
  if (gradient == nullptr || !gradient->usesResult()) return nowhere;
  const ProgramImage& incoming = program.images[step.sources[0]];
  const bool isJustMade = incoming.producer != nowhere && incoming.producer + 1 == index;
  return isJustMade && isPlainSum(program, program.steps[incoming.producer]) ? incoming.producer : nowhere;
}

/// Whether nobody but the step behind the sum sees it, and all have one size and format.
bool canLeaveOut(const GraphProgram& program, const std::vector<ImageDescriptor>& sizes, StepIndex sum) {
  const ProgramStep& step = program.steps[sum];
  const auto isAlike = [&](ImageIndex image) {
    return program.images[image].isPlanned() && sizes[image] == sizes[step.result];
  };
  return program.images[step.result].readers.size() == 1 && isAlike(step.result) &&
         std::ranges::all_of(step.sources, isAlike);
}

}  // namespace

void addInNeuronGradients(const GraphProgram& program, const std::vector<ImageDescriptor>& sizes,
                          ImageReuse& reuse) {
  for (StepIndex s = 0; s < program.steps.size(); ++s) {
    const StepIndex sum = sumBefore(program, s);
    if (sum == nowhere || reuse.leavesOut[sum] || !canLeaveOut(program, sizes, sum)) continue;
    const ProgramStep& step = program.steps[sum];
    reuse.leavesOut[sum] = true;
    reuse.memoryOf[step.result] = reuse.ownerOf(step.sources[0]);
    reuse.addends[s] = step.sources[1];
    for (const ImageIndex source : step.sources) {
      std::size_t& lastUse = reuse.lastUse[reuse.ownerOf(source)];
      lastUse = std::max(lastUse, s);
    }
  }
}

}  // namespace mps::detail
