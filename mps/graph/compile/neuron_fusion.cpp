#include <algorithm>

#include "mps/core/kernel/graph_traits.hpp"
#include "mps/graph/compile/graph_program.hpp"

namespace mps::detail {

std::vector<StepIndex> gradientsOf(const GraphProgram& program, StepIndex forward) {
  std::vector<StepIndex> steps;
  for (StepIndex s = 0; s < program.steps.size(); ++s)
    if (program.steps[s].forward == forward) steps.push_back(s);
  return steps;
}

void dropFusedSteps(GraphProgram& program) {
  std::vector<StepIndex> moved(program.steps.size(), nowhere);
  std::vector<ProgramStep> kept;
  for (StepIndex s = 0; s < program.steps.size(); ++s) {
    if (program.steps[s].kernel == nullptr) continue;
    moved[s] = kept.size();
    kept.push_back(std::move(program.steps[s]));
  }
  program.steps = std::move(kept);
  for (ProgramStep& step : program.steps)
    for (StepIndex* other : {&step.forward, &step.neuron})
      if (*other != nowhere) *other = moved[*other];
}

namespace {

/// Whether only the neuron and its gradients read the image before it, and nobody else sees it.
bool isPrivate(const GraphProgram& program, ImageIndex image, StepIndex neuron,
               const std::vector<StepIndex>& gradients) {
  const ProgramImage& between = program.images[image];
  return between.isPlanned() && std::ranges::all_of(between.readers, [&](StepIndex reader) {
           return reader == neuron || std::ranges::find(gradients, reader) != gradients.end();
         });
}

bool isExported(const GraphProgram& program, const std::optional<StateIndex>& state) {
  return state && program.states[*state].isExported;
}

/// A neuron and the step before it.
struct NeuronPlace {
  StepIndex before = nowhere;
  StepIndex neuron = nowhere;
  std::vector<StepIndex> gradients;  ///< of the neuron
};

/// Whether all gradients of a neuron are those of its function. A node made by hand may be another's: it stays apart, where
/// it is refused.
bool haveFunctionOf(const NNNeuronDescriptor& neuron, const GraphProgram& program,
                    const std::vector<StepIndex>& gradients) {
  return std::ranges::all_of(gradients, [&](StepIndex step) {
    const NeuronGradientKernel* const gradient = program.steps[step].kernel->roles().neuronGradient;
    return gradient != nullptr && gradient->differentiatedNeuron().isSameFunction(neuron);
  });
}

/// Whether the gradient of the step before the neuron can take that of the neuron along: it has to be its only reader.
bool canIncludeGradient(const GraphProgram& program, const NeuronPlace& place,
                        const NNNeuronDescriptor& neuron) {
  if (isExported(program, program.steps[place.before].resultState)) return false;
  const auto own = gradientsOf(program, place.before);
  if (own.empty() && place.gradients.empty()) return true;
  if (own.size() != 1 || place.gradients.size() != 1) return false;
  const NeuronFusion* const fusion = program.steps[own[0]].kernel->roles().neuronFusion;
  if (fusion == nullptr || fusion->canFuse(neuron, true) != NeuronFusion::Answer::GradientIncluded)
    return false;
  const ProgramStep& gradient = program.steps[place.gradients[0]];
  const ProgramImage& between = program.images[gradient.result];
  return program.steps[own[0]].sources[0] == gradient.result && between.isPlanned() &&
         between.readers == own && between.format == program.images[gradient.sources[0]].format;
}

/// The step before the neuron gives its result.
void takeResult(ProgramStep& into, ProgramStep& neuron) {
  into.fused = neuron.name;
  into.result = neuron.result;
  neuron.kernel = nullptr;
}

/// The neuron's gradient stays, and is computed from the result.
void fuseForward(GraphProgram& program, const NeuronPlace& place) {
  ProgramStep& from = program.steps[place.neuron];
  program.steps[place.before].fusedNeuronState = from.resultState;
  for (const StepIndex gradient : place.gradients) {
    ProgramStep& step = program.steps[gradient];
    step.kernel->roles().neuronGradient->setUsesResult(true);
    step.sources[1] = from.result;
    step.forward = place.before;
  }
  takeResult(program.steps[place.before], from);
}

/// The neuron's gradient goes into that of the step before it.
void fuseBoth(GraphProgram& program, const NNNeuronDescriptor& neuron, const NeuronPlace& place) {
  for (const StepIndex gradient : place.gradients) {
    ProgramStep& from = program.steps[gradient];
    ProgramStep& into = program.steps[gradientsOf(program, place.before)[0]];
    into.kernel->roles().neuronFusion->fuse(neuron);
    into.fused = from.name;
    into.sources[0] = from.sources[0];
    from.kernel = nullptr;
  }
  takeResult(program.steps[place.before], program.steps[place.neuron]);
}

}  // namespace

void fuseNeurons(GraphProgram& program) {
  for (StepIndex s = 0; s < program.steps.size(); ++s) {
    const auto kernel = program.steps[s].kernel;  // the descriptor is its own
    if (kernel == nullptr || kernel->appliedNeuron() == nullptr) continue;
    const ImageIndex between = program.steps[s].sources[0];
    const NeuronPlace place{program.images[between].producer, s, gradientsOf(program, s)};
    if (place.before == nowhere || program.steps[place.before].kernel == nullptr ||
        isExported(program, program.steps[s].resultState) ||
        program.images[between].format != program.images[program.steps[s].result].format ||
        !isPrivate(program, between, s, place.gradients))
      continue;
    const NNNeuronDescriptor& neuron = *kernel->appliedNeuron();
    if (!haveFunctionOf(neuron, program, place.gradients)) continue;
    NeuronFusion* const fusion = program.steps[place.before].kernel->roles().neuronFusion;
    if (fusion == nullptr) continue;
    const auto answer = fusion->canFuse(neuron, !place.gradients.empty());
    if (answer == NeuronFusion::Answer::No) continue;
    const bool includesGradient = answer == NeuronFusion::Answer::GradientIncluded;
    if (includesGradient && !canIncludeGradient(program, place, neuron)) continue;
    fusion->fuse(neuron);
    if (includesGradient)
      fuseBoth(program, neuron, place);
    else
      fuseForward(program, place);
  }
  dropFusedSteps(program);
}

}  // namespace mps::detail
