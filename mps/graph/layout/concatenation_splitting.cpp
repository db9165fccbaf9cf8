#include <algorithm>

#include "mps/core/kernel/graph_traits.hpp"
#include "mps/graph/layout/image_reuse.hpp"

namespace mps::detail {
namespace {

const SliceGradientKernel* sliceOf(const ProgramStep& step) {
  return step.kernel->roles().sliceGradient;
}

/// Whether the step can be done along with another one.
bool isFree(const ImageReuse& reuse, const ProgramStep& step, StepIndex index) {
  return !reuse.leavesOut[index] && !reuse.accumulates[index] && reuse.partners[index] == nowhere &&
         reuse.ownerOf(step.result) == step.result;
}

bool areNeighbours(const ProgramStep& a, const ProgramStep& b) {
  const std::size_t i = sliceOf(a)->sourceIndex();
  const std::size_t k = sliceOf(b)->sourceIndex();
  return a.forward == b.forward && a.sources[0] == b.sources[0] && a.sourceStates == b.sourceStates &&
         std::max(i, k) - std::min(i, k) == 1;
}

}  // namespace

void splitInPairs(const GraphProgram& program, ImageReuse& reuse) {
  for (StepIndex s = 0; s < program.steps.size(); ++s) {
    const ProgramStep& step = program.steps[s];
    if (sliceOf(step) == nullptr || step.forward == nowhere || !isFree(reuse, step, s)) continue;
    for (const StepIndex other : gradientsOf(program, step.forward)) {
      const ProgramStep& later = program.steps[other];
      if (other <= s || sliceOf(later) == nullptr || !isFree(reuse, later, other) ||
          !areNeighbours(step, later))
        continue;
      reuse.partners[s] = other;
      reuse.leavesOut[other] = true;
      reuse.firstUse[later.result] = std::min(reuse.firstUse[later.result], s);
      break;
    }
  }
}

}  // namespace mps::detail
