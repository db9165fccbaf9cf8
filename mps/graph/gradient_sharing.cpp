#include <algorithm>

#include "mps/arithmetic/arithmetic.hpp"
#include "mps/graph/image_reuse.hpp"

namespace mps::detail {
namespace {

/// Whether the step's result is the incoming gradient as it is, where their sizes are equal.
bool isCopy(const GraphProgram& program, const ProgramStep& step) {
  const auto* gradient = dynamic_cast<const CNNArithmeticGradient*>(step.kernel.get());
  const bool isOfSum = dynamic_cast<const CNNAddGradient*>(gradient) != nullptr ||
                       dynamic_cast<const CNNSubtractGradient*>(gradient) != nullptr;
  if (!isOfSum || gradient->primaryScale() != 1 || step.forward == nowhere) return false;
  const auto* forward = dynamic_cast<const CNNArithmetic*>(program.steps[step.forward].kernel.get());
  return forward != nullptr && readsWhole(*forward, gradient->isSecondarySourceFilter()) &&
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
