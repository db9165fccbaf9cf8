#include "mps/core/neuron/neuron_span.hpp"
#include "mps/graph/graph_program.hpp"
#include "mps/neuron/neuron.hpp"
#include "mps/pooling/pooling.hpp"

namespace mps::detail {

bool isPlainReLU(const NNNeuronDescriptor& neuron) {
  return neuron.neuronType() == CNNNeuronType::ReLU && neuron.a() == 0 && derivativeFromResult(neuron);
}

namespace {

bool isMaximum(const Kernel& kernel) {
  return dynamic_cast<const CNNPoolingMax*>(&kernel) != nullptr ||
         dynamic_cast<const CNNDilatedPoolingMax*>(&kernel) != nullptr;
}

/// Whether a forward step applies that neuron to whole images, each pixel where it was.
bool applies(const ProgramStep& step, const NNNeuronDescriptor& descriptor) {
  const auto* neuron = dynamic_cast<const CNNNeuron*>(step.kernel.get());
  return neuron == nullptr ||  // fused ones were looked at
         (isDefaultPadding(*neuron->padding()) && neuron->descriptor().isSameFunction(descriptor));
}

/// The pooling gradient that can include the neuron gradient, or nowhere.
StepIndex poolingGradientBefore(const GraphProgram& program, StepIndex neuronGradient) {
  const ProgramStep& step = program.steps[neuronGradient];
  const auto* kernel = dynamic_cast<const CNNNeuronGradient*>(step.kernel.get());
  if (kernel == nullptr || step.forward == nowhere || !isPlainReLU(kernel->descriptor()) ||
      !applies(program.steps[step.forward], kernel->descriptor()))
    return nowhere;
  const ProgramImage& between = program.images[step.sources[0]];
  if (!between.isPlanned() || between.readers.size() != 1 ||
      between.format != program.images[step.result].format)
    return nowhere;
  const ProgramStep& pooling = program.steps[between.producer];
  if (dynamic_cast<const CNNPoolingGradient*>(pooling.kernel.get()) == nullptr || pooling.forward == nowhere)
    return nowhere;
  const ProgramStep& maximum = program.steps[pooling.forward];
  const bool isOfThisNeuron =
      isMaximum(*maximum.kernel) && maximum.sources[0] == program.steps[step.forward].result;
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
    static_cast<CNNPooling&>(*program.steps[gradient.forward].kernel).setAfterReLU(true);
    gradient.result = from.result;
    gradient.neuron = from.forward;
    gradient.fused = from.name;
    from.kernel = nullptr;
  }
  dropFusedSteps(program);
}

}  // namespace mps::detail
