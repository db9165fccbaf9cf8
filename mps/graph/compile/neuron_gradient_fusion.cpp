#include "mps/core/kernel/graph_traits.hpp"
#include "mps/graph/compile/graph_program.hpp"

namespace mps::detail {
namespace {

/// Whether the step that a neuron's gradient belongs to applies that neuron to whole images, each pixel where it was.
bool applies(const ProgramStep& forward, const ProgramStep& gradient, const NNNeuronDescriptor& descriptor) {
  if (forward.fusedNeuronState && forward.fusedNeuronState == gradient.sourceStates[0]) return true;
  const NNNeuronDescriptor* const neuron = forward.kernel->appliedNeuron();
  return neuron != nullptr && neuron->isSameFunction(descriptor);
}

/// The pooling gradient that can include the neuron gradient, or nowhere.
StepIndex poolingGradientBefore(const GraphProgram& program, StepIndex neuronGradient) {
  const ProgramStep& step = program.steps[neuronGradient];
  const NeuronGradientKernel* const kernel = step.kernel->roles().neuronGradient;
  if (kernel == nullptr || step.forward == nowhere || !isPlainReLU(kernel->differentiatedNeuron()) ||
      !applies(program.steps[step.forward], step, kernel->differentiatedNeuron()))
    return nowhere;
  const ProgramImage& between = program.images[step.sources[0]];
  if (!between.isPlanned() || between.readers.size() != 1 ||
      between.format != program.images[step.result].format)
    return nowhere;
  const ProgramStep& pooling = program.steps[between.producer];
  if (pooling.kernel == nullptr || pooling.forward == nowhere) return nowhere;
  const ProgramStep& maximum = program.steps[pooling.forward];
  const bool isOfThisNeuron = maximum.kernel->roles().reluGradientFusion != nullptr &&
                              maximum.sources[0] == program.steps[step.forward].result;
  // Who else differentiates the pooling wants its own derivative alone.
  const bool isOnlyGradient = maximum.resultState && !program.states[*maximum.resultState].isExported &&
                              gradientsOf(program, pooling.forward).size() == 1;
  return isOfThisNeuron && isOnlyGradient ? between.producer : nowhere;
}

}  // namespace

void fuseNeuronGradients(GraphProgram& program) {
  for (StepIndex s = 0; s < program.steps.size(); ++s) {
    const StepIndex into = poolingGradientBefore(program, s);
    if (into == nowhere) continue;
    ProgramStep& from = program.steps[s];
    ProgramStep& gradient = program.steps[into];
    program.steps[gradient.forward].kernel->roles().reluGradientFusion->setAfterReLU(true);
    gradient.result = from.result;
    gradient.neuron = from.forward;
    gradient.fused = from.name;
    from.kernel = nullptr;
  }
  dropFusedSteps(program);
}

}  // namespace mps::detail
