#include <algorithm>

#include "mps/core/kernel/graph_traits.hpp"
#include "mps/graph/layout/image_reuse.hpp"

namespace mps::detail {

bool isPlainSum(const GraphProgram& program, const ProgramStep& step) {
  if (!step.kernel->sumTraits().isPlain) return false;
  if (step.resultState) {
    const ProgramState& state = program.states[*step.resultState];
    if (state.isExported || !state.readers.empty()) return false;
  }
  return true;
}

namespace {

class GradientAccumulation {
 public:
  GradientAccumulation(const GraphProgram& program, const std::vector<ImageDescriptor>& sizes,
                       ImageReuse& reuse)
      : program_(program), sizes_(sizes), reuse_(reuse), writtenAt_(program.images.size(), nowhere) {
    for (ImageIndex i = 0; i < program.images.size(); ++i) writtenAt_[i] = program.images[i].producer;
  }

  void join(StepIndex index) {
    const ProgramStep& step = program_.steps[index];
    if (isShared(index)) writtenAt_[step.result] = writtenAt_[step.sources[0]];
    if (!isPlainSum(program_, step)) return;
    ImageIndex earlier = step.sources[0];
    ImageIndex later = step.sources[1];
    if (reuse_.ownerOf(earlier) == reuse_.ownerOf(later) || writtenAt_[earlier] == nowhere ||
        writtenAt_[later] == nowhere)
      return;
    if (writtenAt_[earlier] > writtenAt_[later]) std::swap(earlier, later);
    const StepIndex adder = program_.images[later].producer;
    if (adder != writtenAt_[later] || !canAdd(adder)) return;
    for (const ImageIndex image : {earlier, later, step.result})
      if (!program_.images[image].isPlanned() || sizes_[image] != sizes_[step.result]) return;
    if (!isReadOnlyBy(earlier, index) || !isReadOnlyBy(later, index)) return;
    const ImageIndex owner = reuse_.ownerOf(earlier);
    if (isReadFrom(owner, adder, index)) return;
    reuse_.leavesOut[index] = true;
    reuse_.accumulates[adder] = true;
    reuse_.memoryOf[later] = owner;
    reuse_.memoryOf[step.result] = owner;
    reuse_.lastUse[owner] = std::max(reuse_.lastUse[owner], reuse_.lastUse[step.result]);
    writtenAt_[step.result] = adder;
  }

 private:
  [[nodiscard]] bool canAdd(StepIndex index) const {
    const ProgramStep& step = program_.steps[index];
    return step.kernel->derivativeTraits().canAccumulate && step.writesResult && !reuse_.accumulates[index] &&
           sizes_[step.result].channelFormat() == ImageFeatureChannelFormat::Float32;
  }
  [[nodiscard]] bool isReadOnlyBy(ImageIndex image, StepIndex reader) const {
    return program_.images[image].readers == std::vector<StepIndex>{reader};
  }
  /// Whether the step is left out because its result is the gradient that comes in (shareGradients).
  [[nodiscard]] bool isShared(StepIndex index) const {
    const ProgramStep& step = program_.steps[index];
    return reuse_.leavesOut[index] && reuse_.ownerOf(step.result) == reuse_.ownerOf(step.sources[0]);
  }
  /// Whether a step from `first` on, other than `exception`, reads memory of `owner`, as whichever image.
  [[nodiscard]] bool isReadFrom(ImageIndex owner, StepIndex first, StepIndex exception) const {
    const auto isIn = [&](ImageIndex image) { return reuse_.ownerOf(image) == owner; };
    for (StepIndex s = first; s < program_.steps.size(); ++s) {
      const ProgramStep& step = program_.steps[s];
      if (s == exception || reuse_.leavesOut[s]) continue;
      if (std::ranges::any_of(step.sources, isIn)) return true;
    }
    return false;
  }

  const GraphProgram& program_;
  const std::vector<ImageDescriptor>& sizes_;
  ImageReuse& reuse_;
  std::vector<StepIndex> writtenAt_;  ///< of every image, with the sums that are left out
};

}  // namespace

void accumulateGradients(const GraphProgram& program, const std::vector<ImageDescriptor>& sizes,
                         ImageReuse& reuse) {
  GradientAccumulation pass(program, sizes, reuse);
  for (StepIndex s = 0; s < program.steps.size(); ++s) pass.join(s);
}

}  // namespace mps::detail
