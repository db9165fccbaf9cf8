#include <algorithm>

#include "mps/convolution/convolution.hpp"
#include "mps/core/neuron_span.hpp"
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

/// Whether only the neuron and its gradients read the image between convolution and neuron, and nobody else
/// sees it.
bool isPrivate(const GraphProgram& program, ImageIndex image, StepIndex neuron,
               const std::vector<StepIndex>& gradients) {
  const ProgramImage& between = program.images[image];
  return between.isPlanned() && std::ranges::all_of(between.readers, [&](StepIndex reader) {
           return reader == neuron || std::ranges::find(gradients, reader) != gradients.end();
         });
}

void fuse(GraphProgram& program, StepIndex convolution, StepIndex neuron,
          const std::vector<StepIndex>& gradients) {
  ProgramStep& into = program.steps[convolution];
  ProgramStep& from = program.steps[neuron];
  const auto& kernel = static_cast<const CNNNeuron&>(*from.kernel);
  static_cast<CNNConvolution&>(*into.kernel).setGraphNeuron(kernel.descriptor());
  into.fused = from.name;
  into.result = from.result;
  into.fusedNeuronState = from.resultState;
  for (const StepIndex gradient : gradients) {
    ProgramStep& step = program.steps[gradient];
    static_cast<CNNNeuronGradient&>(*step.kernel).setUsesResult(true);
    step.sources[1] = from.result;
    step.forward = convolution;
  }
  from.kernel = nullptr;
}

}  // namespace

void fuseNeurons(GraphProgram& program) {
  for (StepIndex s = 0; s < program.steps.size(); ++s) {
    const auto* neuron = dynamic_cast<const CNNNeuron*>(program.steps[s].kernel.get());
    if (neuron == nullptr || !isDefaultPadding(*neuron->padding())) continue;
    const ImageIndex between = program.steps[s].sources[0];
    const StepIndex producer = program.images[between].producer;
    if (producer == nowhere) continue;
    const auto* convolution = dynamic_cast<const CNNConvolution*>(program.steps[producer].kernel.get());
    if (convolution == nullptr || convolution->fusedNeuronDescriptor().neuronType() != CNNNeuronType::None ||
        convolution->subPixelScaleFactor() != 1)  // a fused neuron has the filters' channels
      continue;
    if (program.images[between].format != program.images[program.steps[s].result].format) continue;
    const auto gradients = gradientsOf(program, s);
    if (!gradients.empty() && !derivativeFromResult(neuron->descriptor())) continue;
    const bool stateIsExported =
        program.steps[s].resultState && program.states[*program.steps[s].resultState].isExported;
    if (stateIsExported || !isPrivate(program, between, s, gradients)) continue;
    fuse(program, producer, s, gradients);
  }
  dropFusedSteps(program);
}

}  // namespace mps::detail
