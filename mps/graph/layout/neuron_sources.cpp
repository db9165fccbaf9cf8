#include "mps/core/kernel/graph_traits.hpp"
#include "mps/graph/layout/image_reuse.hpp"

namespace mps::detail {
namespace {

/// Whether the reader is the gradient of a neuron that was applied to the whole image, and does without it.
bool doesWithout(const GraphProgram& program, const std::vector<ImageDescriptor>& sizes,
                 const std::vector<Offset>& offsets, ImageIndex image, StepIndex reader) {
  const ProgramStep& step = program.steps[reader];
  const NeuronGradientKernel* const gradient = step.kernel->roles().neuronGradient;
  if (gradient == nullptr || !step.ownsKernel || step.forward == nowhere || step.sources[0] == image ||
      gradient->readsSource(sizes[image]))
    return false;
  const ProgramStep& forward = program.steps[step.forward];
  return forward.kernel->appliedNeuron() != nullptr && forward.ownsKernel && forward.sources[0] == image &&
         offsets[step.forward] == Offset{} && sizes[forward.result] == sizes[image];
}

}  // namespace

void forgetNeuronSources(const GraphProgram& program, const std::vector<ImageDescriptor>& sizes,
                         const std::vector<Offset>& offsets, ImageReuse& reuse) {
  for (ImageIndex i = 0; i < program.images.size(); ++i) {
    reuse.lastUse[i] = reuse.firstUse[i];
    for (const StepIndex reader : program.images[i].readers)
      if (!doesWithout(program, sizes, offsets, i, reader)) reuse.lastUse[i] = reader;
  }
}

}  // namespace mps::detail
