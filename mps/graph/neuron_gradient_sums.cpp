#include <algorithm>
#include <array>
#include <vector>

#include "mps/graph/image_reuse.hpp"
#include "mps/neuron/neuron.hpp"

namespace mps::detail {
namespace {

/// Whether the step is the gradient of a neuron that is computed from its result: whole images, pixel for pixel.
bool takesAddend(const ProgramStep& step) {
  const auto* gradient = dynamic_cast<const CNNNeuronGradient*>(step.kernel.get());
  return gradient != nullptr && gradient->usesResult();
}

/// Whether `next`, the step behind the sum, can add its sources. No other step comes between them, so nobody writes over
/// the sources meanwhile.
bool canTakeSum(const GraphProgram& program, const std::vector<ImageDescriptor>& sizes, StepIndex sum,
                StepIndex next) {
  const ProgramStep& step = program.steps[sum];
  const ImageIndex result = step.result;
  if (!isPlainSum(program, step) || !takesAddend(program.steps[next]) ||
      program.steps[next].sources[0] != result ||
      program.images[result].readers != std::vector<StepIndex>{next})
    return false;
  return std::ranges::all_of(std::array{step.sources[0], step.sources[1], result}, [&](ImageIndex image) {
    return program.images[image].isPlanned() && sizes[image] == sizes[result];
  });
}

}  // namespace

void addInNeuronGradients(const GraphProgram& program, const std::vector<ImageDescriptor>& sizes,
                          ImageReuse& reuse) {
  for (StepIndex next = 1; next < program.steps.size(); ++next) {
    const StepIndex sum = next - 1;
    if (reuse.leavesOut[sum] || !canTakeSum(program, sizes, sum, next)) continue;
    const ProgramStep& step = program.steps[sum];
    reuse.leavesOut[sum] = true;
    reuse.memoryOf[step.result] = reuse.ownerOf(step.sources[0]);
    reuse.addends[next] = step.sources[1];
    for (const ImageIndex source : step.sources) {
      std::size_t& lastUse = reuse.lastUse[reuse.ownerOf(source)];
      lastUse = std::max(lastUse, next);
    }
  }
}

}  // namespace mps::detail
