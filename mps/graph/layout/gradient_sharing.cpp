#include <algorithm>

#include "mps/core/kernel/graph_traits.hpp"
#include "mps/graph/layout/image_reuse.hpp"

namespace mps::detail {
namespace {

/// Whether the step's result is the incoming gradient as it is, where their sizes are equal.
bool isCopy(const GraphProgram& program, const ProgramStep& step) {
  const DerivativeTraits gradient = step.kernel->derivativeTraits();
  if (!gradient.isSourceGradient || step.forward == nowhere) return false;
  const std::size_t source = gradient.forwardSource.value_or(0);
  return program.steps[step.forward].kernel->sumTraits().readsWhole[source] &&
         std::ranges::none_of(step.sourceStates,  // the step would take a read off it
                              [&](StateIndex state) { return program.states[state].isExported; });
}

}  // namespace

void shareGradients(const GraphProgram& program, const std::vector<ImageDescriptor>& sizes,
                    ImageReuse& reuse) {
  for (StepIndex s = 0; s < program.steps.size(); ++s) {
    const ProgramStep& step = program.steps[s];
    const ImageIndex source = step.sources[0];
    const ImageIndex result = step.result;
    if (!isCopy(program, step) || sizes[source] != sizes[result]) continue;
    if (!program.images[source].isPlanned() || !program.images[result].isPlanned()) continue;
    const ImageIndex owner = reuse.ownerOf(source);
    reuse.leavesOut[s] = true;
    reuse.memoryOf[result] = owner;
    reuse.lastUse[owner] = std::max(reuse.lastUse[owner], reuse.lastUse[result]);
  }
}

}  // namespace mps::detail
