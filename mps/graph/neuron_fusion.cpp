#include <algorithm>
#include <cfloat>
#include <cmath>

#include "mps/arithmetic/arithmetic.hpp"
#include "mps/batch_normalization/batch_normalization.hpp"
#include "mps/convolution/convolution.hpp"
#include "mps/core/neuron/neuron_span.hpp"
#include "mps/graph/graph_program.hpp"
#include "mps/neuron/neuron.hpp"

namespace mps::detail {

std::vector<StepIndex> gradientsOf(const GraphProgram& program, StepIndex forward) {
  std::vector<StepIndex> steps;
  for (StepIndex s = 0; s < program.steps.size(); ++s)
    if (program.steps[s].forward == forward) steps.push_back(s);
  return steps;
}

bool isDefaultPadding(const NNPadding& padding) {
  return padding.paddingMethod() == defaultPadding()->paddingMethod() ||
         (padding.paddingMethod() & NNPaddingMethod::CustomWhitelistForNodeFusion) ==
             NNPaddingMethod::CustomWhitelistForNodeFusion;
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
    const auto* gradient = dynamic_cast<const CNNNeuronGradient*>(program.steps[step].kernel.get());
    return gradient != nullptr && gradient->descriptor().isSameFunction(neuron);
  });
}

bool takesNeuron(const CNNConvolution& convolution, const NNNeuronDescriptor& neuron,
                 const NeuronPlace& place) {
  return convolution.fusedNeuronDescriptor().neuronType() == CNNNeuronType::None &&
         convolution.subPixelScaleFactor() == 1 &&  // a fused neuron has the filters' channels
         (place.gradients.empty() || derivativeFromResult(neuron));
}

/// Limits leave a mask for the gradient; a bias of -0 may make a sum of -0, which a ReLU would make 0.
bool takesNeuron(const CNNAdd& addition, const NNNeuronDescriptor& neuron) {
  return isPlainReLU(neuron) && addition.minimumValue() == -FLT_MAX && addition.maximumValue() == FLT_MAX &&
         !(addition.bias() == 0 && std::signbit(addition.bias()));
}

/// Its gradient computes the derivative from the source and the statistics, so it has to be the only reader of the
/// neuron's gradient.
bool takesNeuron(const GraphProgram& program, const CNNBatchNormalization& normalization,
                 const NNNeuronDescriptor& neuron, const NeuronPlace& place) {
  if (normalization.fusedNeuronDescriptor().neuronType() != CNNNeuronType::None ||
      isExported(program, program.steps[place.before].resultState))
    return false;
  if (neuron.neuronType() == CNNNeuronType::PReLU &&
      neuron.data().size() < normalization.numberOfFeatureChannels())
    return false;
  const auto own = gradientsOf(program, place.before);
  if (own.empty() && place.gradients.empty()) return true;
  if (own.size() != 1 || place.gradients.size() != 1) return false;
  if (dynamic_cast<const BatchNormalizationGradientKernel*>(program.steps[own[0]].kernel.get()) == nullptr)
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
    static_cast<CNNNeuronGradient&>(*step.kernel).setUsesResult(true);
    step.sources[1] = from.result;
    step.forward = place.before;
  }
  takeResult(program.steps[place.before], from);
}

/// The neuron's gradient goes into that of the normalisation.
void fuseBoth(GraphProgram& program, CNNBatchNormalization& normalization, const NNNeuronDescriptor& neuron,
              const NeuronPlace& place) {
  for (const StepIndex gradient : place.gradients) {
    ProgramStep& from = program.steps[gradient];
    ProgramStep& into = program.steps[gradientsOf(program, place.before)[0]];
    dynamic_cast<BatchNormalizationGradientKernel&>(*into.kernel).setGraphNeuron(neuron);
    into.fused = from.name;
    into.sources[0] = from.sources[0];
    from.kernel = nullptr;
  }
  normalization.setGraphNeuron(neuron);
  takeResult(program.steps[place.before], program.steps[place.neuron]);
}

}  // namespace

void fuseNeurons(GraphProgram& program) {
  for (StepIndex s = 0; s < program.steps.size(); ++s) {
    const auto kernel = std::dynamic_pointer_cast<CNNNeuron>(program.steps[s].kernel);
    if (kernel == nullptr || !isDefaultPadding(*kernel->padding())) continue;
    const ImageIndex between = program.steps[s].sources[0];
    const NeuronPlace place{program.images[between].producer, s, gradientsOf(program, s)};
    if (place.before == nowhere || isExported(program, program.steps[s].resultState) ||
        program.images[between].format != program.images[program.steps[s].result].format ||
        !isPrivate(program, between, s, place.gradients))
      continue;
    const NNNeuronDescriptor& neuron = kernel->descriptor();
    if (!haveFunctionOf(neuron, program, place.gradients)) continue;
    Kernel* const before = program.steps[place.before].kernel.get();
    if (auto* convolution = dynamic_cast<CNNConvolution*>(before)) {
      if (!takesNeuron(*convolution, neuron, place)) continue;
      convolution->setGraphNeuron(neuron);
      fuseForward(program, place);
    } else if (auto* addition = dynamic_cast<CNNAdd*>(before)) {
      if (!takesNeuron(*addition, neuron)) continue;
      addition->setGraphReLU(true);
      fuseForward(program, place);
    } else if (auto* normalization = dynamic_cast<CNNBatchNormalization*>(before)) {
      if (takesNeuron(program, *normalization, neuron, place))
        fuseBoth(program, *normalization, neuron, place);
    }
  }
  dropFusedSteps(program);
}

}  // namespace mps::detail
