#include <algorithm>

#include "mps/core/kernel/graph_traits.hpp"
#include "mps/graph/layout/image_reuse.hpp"

namespace mps::detail {
namespace {

/// Whether result pixel (x, y, c) comes from pixel (x, y, c) of the step's first source.
bool keepsPlaces(const GraphProgram& program, StepIndex index, const std::vector<Offset>& offsets) {
  const ProgramStep& step = program.steps[index];
  if (!step.kernel->worksInPlace() || offsets[index] != Offset{}) return false;
  if (!step.kernel->derivativeTraits().isGradient) return true;
  if (step.forward == nowhere) return false;
  const ProgramStep& forward = program.steps[step.forward];
  const bool wasFused = forward.fusedNeuronState == step.sourceStates[0];
  return wasFused || offsets[step.forward] == Offset{};
}

}  // namespace

ImageReuse noReuse(const GraphProgram& program) {
  ImageReuse reuse;
  reuse.leavesOut.assign(program.steps.size(), false);
  reuse.accumulates.assign(program.steps.size(), false);
  reuse.addends.assign(program.steps.size(), nowhere);
  reuse.sums.assign(program.steps.size(), nowhere);
  reuse.partners.assign(program.steps.size(), nowhere);
  for (ImageIndex i = 0; i < program.images.size(); ++i) {
    const ProgramImage& image = program.images[i];
    reuse.memoryOf.push_back(i);
    reuse.firstUse.push_back(image.producer);
    reuse.lastUse.push_back(image.readers.empty() ? image.producer : image.readers.back());
  }
  return reuse;
}

void workInPlace(const GraphProgram& program, const std::vector<ImageDescriptor>& sizes,
                 const std::vector<Offset>& offsets, ImageReuse& reuse) {
  for (StepIndex s = 0; s < program.steps.size(); ++s) {
    const ProgramStep& step = program.steps[s];
    const ImageIndex source = step.sources[0];
    const ImageIndex result = step.result;
    if (reuse.leavesOut[s] || reuse.accumulates[s] || !step.writesResult) continue;
    if (!program.images[source].isPlanned() || !program.images[result].isPlanned()) continue;
    if (sizes[source] != sizes[result] || !keepsPlaces(program, s, offsets)) continue;
    const ImageIndex owner = reuse.ownerOf(source);
    const bool readsItTwice = std::any_of(step.sources.begin() + 1, step.sources.end(),
                                          [&](ImageIndex other) { return reuse.ownerOf(other) == owner; });
    if (readsItTwice || reuse.lastUse[owner] != s || reuse.ownerOf(result) != result) continue;
    reuse.memoryOf[result] = owner;
    reuse.lastUse[owner] = std::max(reuse.lastUse[owner], reuse.lastUse[result]);
  }
}

}  // namespace mps::detail
