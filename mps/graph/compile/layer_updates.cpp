#include <map>
#include <utility>

#include "mps/core/kernel/graph_traits.hpp"
#include "mps/core/layer/layer_kernel.hpp"
#include "mps/core/types/error.hpp"
#include "mps/graph/compile/graph_program.hpp"

namespace mps::detail {

void createUpdates(GraphProgram& program, const std::vector<NNTrainingStyle>& styles) {
  std::map<std::pair<StepIndex, StateIndex>, std::vector<StepIndex>> gradients;
  for (StepIndex s = 0; s < program.steps.size(); ++s) {
    const ProgramStep& step = program.steps[s];
    if (step.forward == nowhere) continue;
    gradients[{step.forward, step.sourceStates.empty() ? nowhere : step.sourceStates[0]}].push_back(s);
  }
  for (const auto& [forwardAndState, steps] : gradients) {
    const ProgramStep& forward = program.steps[forwardAndState.first];
    std::vector<std::shared_ptr<ImageKernel>> kernels;
    for (const StepIndex s : steps) kernels.push_back(program.steps[s].kernel);
    LayerKernel* const layer = forward.kernel->roles().layer;
    StepIndex first = nowhere;  // that trains
    for (const StepIndex s : steps) {
      ProgramStep& step = program.steps[s];
      step.update = layer == nullptr || styles[s] == NNTrainingStyle::UpdateDeviceNone ? nullptr
                    : first == nowhere ? layer->makeUpdate(kernels, styles[s])
                                       : program.steps[first].update;
      if (!step.update) continue;
      if (first == nowhere) first = s;
      if (step.update->style() != styles[s])
        throw Error(step.name, "trainingStyle", "another one than that of " + program.steps[first].name,
                    "the same, or UpdateDeviceNone: both are gradient nodes of " + forward.name +
                        ", which is updated once with their sum");
    }
  }
}

}  // namespace mps::detail
