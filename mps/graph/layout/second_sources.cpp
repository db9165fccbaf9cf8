#include <algorithm>
#include <array>
#include <vector>

#include "mps/core/kernel/graph_traits.hpp"
#include "mps/graph/layout/image_reuse.hpp"

namespace mps::detail {
namespace {

/// Whether nobody wants the sum's own state: gradients that are the incoming one do without.
bool isStateUnused(const GraphProgram& program, const ProgramStep& sum, const ImageReuse& reuse) {
  if (!sum.resultState) return true;
  const ProgramState& state = program.states[*sum.resultState];
  return !state.isExported &&
         std::ranges::all_of(state.readers, [&](StepIndex reader) { return reuse.leavesOut[reader]; });
}

/// Whether the step that makes `own` can add `other` to it: nobody else reads `own`, and the other image is there by then.
bool canAdd(const GraphProgram& program, ImageIndex own, ImageIndex other) {
  const ProgramImage& image = program.images[own];
  if (image.readers.size() != 1 || own == other) return false;
  const ProgramStep& step = program.steps[image.producer];
  return step.kernel->roles().addsSecondSource && step.ownsKernel &&
         program.images[other].producer < image.producer;
}

/// The step that can do the work of a sum, or nowhere.
StepIndex adderOf(const GraphProgram& program, const std::vector<ImageDescriptor>& sizes, StepIndex index,
                  const ImageReuse& reuse) {
  const ProgramStep& sum = program.steps[index];
  if (!sum.kernel->sumTraits().isReLUOfPlain || !isStateUnused(program, sum, reuse)) return nowhere;
  for (const ImageIndex image : {sum.sources[0], sum.sources[1], sum.result})
    if (!program.images[image].isPlanned() || sizes[image] != sizes[sum.result]) return nowhere;
  for (const auto& [own, other] : {std::array{0, 1}, std::array{1, 0}}) {
    const auto first = sum.sources[static_cast<std::size_t>(own)];
    if (canAdd(program, first, sum.sources[static_cast<std::size_t>(other)]))
      return program.images[first].producer;
  }
  return nowhere;
}

}  // namespace

void addSecondSources(const GraphProgram& program, const std::vector<ImageDescriptor>& sizes,
                      ImageReuse& reuse) {
  for (StepIndex s = 0; s < program.steps.size(); ++s) {
    if (reuse.leavesOut[s]) continue;
    const StepIndex adder = adderOf(program, sizes, s, reuse);
    if (adder == nowhere) continue;
    const ProgramStep& sum = program.steps[s];
    const ImageIndex own = program.steps[adder].result;
    const ImageIndex owner = reuse.ownerOf(own);
    reuse.leavesOut[s] = true;
    reuse.sums[adder] = s;
    reuse.addends[adder] = sum.sources[sum.sources[0] == own ? 1 : 0];
    reuse.memoryOf[sum.result] = owner;
    reuse.lastUse[owner] = std::max(reuse.lastUse[owner], reuse.lastUse[sum.result]);
  }
}

}  // namespace mps::detail
