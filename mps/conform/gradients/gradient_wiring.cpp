#include "mps/conform/gradients/gradient_wiring.hpp"

#include <algorithm>
#include <cfloat>

#include "mps/arithmetic/arithmetic.hpp"
#include "mps/core/kernel/cnn_gradient_kernel.hpp"
#include "mps/core/kernel/cnn_kernel.hpp"
#include "mps/core/kernel/graph_traits.hpp"

namespace mps::detail {
namespace {

/// Whether a step adds its sources and does nothing else.
bool isPlainAddition(const Kernel& kernel) {
  const auto* addition = dynamic_cast<const CNNAdd*>(&kernel);
  return addition != nullptr && addition->primaryScale() == 1 && addition->secondaryScale() == 1 &&
         addition->bias() == 0 && addition->minimumValue() == -FLT_MAX &&
         addition->maximumValue() == FLT_MAX && !addition->hasGraphReLU();
}

}  // namespace

std::string nameOf(const ProgramStep& step) {
  const std::string& label = step.kernel->label();
  if (label.empty() || step.name.ends_with('"')) return step.name;
  return step.name + " \"" + label + '"';
}

GradientWiring::GradientWiring(const GraphProgram& program)
    : program_(program),
      backward_(program.steps.size()),
      isGradientImage_(program.images.size()),
      claims_(program.images.size()),
      errors_(program.steps.size()) {
  for (StepIndex s = 0; s < program.steps.size(); ++s) {
    const ProgramStep& step = program.steps[s];
    backward_[s] = isGradientStep(s) || std::ranges::any_of(step.sources, [&](ImageIndex image) {
                     return isGradientImage_[image];
                   });
    isGradientImage_[step.result] = backward_[s] || isLoss(s);
    claims_[step.result] = claimOf(s);
    if (const auto edge = edgeOf(s); edge && step.writesResult) open_.insert(*edge);
    if (step.neuron != nowhere) open_.insert({step.forward, 0});  // from the neuron to the step after it
    if (isLoss(s)) open_.insert({s, 0});
  }
  for (StepIndex s = 0; s < program.steps.size(); ++s)
    if (isGradientStep(s)) examine(s);
}

bool GradientWiring::isLoss(StepIndex step) const {
  const auto* kernel = dynamic_cast<const CNNKernel*>(program_.steps[step].kernel.get());
  return kernel != nullptr && kernel->isItsOwnGradient();
}

bool GradientWiring::isGradientStep(StepIndex step) const {
  return program_.steps[step].forward != nowhere;
}

bool GradientWiring::startsBetween(StepIndex step) const {
  const ProgramStep& described = program_.steps[step];
  const ProgramStep& forward = program_.steps[described.forward];
  return forward.fusedNeuronState && described.sourceStates[0] == forward.resultState;
}

std::optional<GraphEdge> GradientWiring::edgeOf(StepIndex step) const {
  if (!isGradientStep(step)) return std::nullopt;
  const ProgramStep& described = program_.steps[step];
  if (described.neuron != nowhere)
    return GraphEdge{described.neuron, program_.steps[described.neuron].fused.empty() ? 0 : betweenFused};
  const ProgramStep& forward = program_.steps[described.forward];
  if (!forward.fused.empty() && described.sourceStates[0] == forward.fusedNeuronState)
    return GraphEdge{described.forward, betweenFused};
  return GraphEdge{described.forward, described.kernel->derivativeTraits().forwardSource.value_or(0)};
}

std::string GradientWiring::forwardNameOf(StepIndex step) const {
  const GraphEdge edge = *edgeOf(step);
  const ProgramStep& first = program_.steps[edge.step];
  const std::string name = edge.source == betweenFused ? first.fused : nameOf(first);
  const ProgramStep& described = program_.steps[step];
  return described.neuron == nowhere ? name : name + " and " + nameOf(program_.steps[described.forward]);
}

std::optional<GradientWiring::Edges> GradientWiring::claimOf(StepIndex step) const {
  if (isLoss(step)) return Edges{{step, 0}};
  if (const auto edge = edgeOf(step)) return Edges{*edge};
  const ProgramStep& described = program_.steps[step];
  if (!isPlainAddition(*described.kernel)) return std::nullopt;
  Edges sum;
  for (const ImageIndex source : described.sources) {
    if (!claims_[source]) return std::nullopt;
    sum.insert(claims_[source]->begin(), claims_[source]->end());
  }
  return sum;
}

GradientWiring::Edges GradientWiring::readingsOf(ImageIndex image) const {
  Edges readings;
  for (const GraphEdge& edge : open_)
    if (edge.source != betweenFused && program_.steps[edge.step].sources[edge.source] == image)
      readings.insert(edge);
  return readings;
}

GradientWiring::Edges GradientWiring::readingsBehindSums(ImageIndex image, Edges& through) const {
  Edges readings;
  for (StepIndex s = 0; s < program_.steps.size(); ++s) {
    const ProgramStep& step = program_.steps[s];
    if (backward_[s]) continue;
    for (std::size_t i = 0; i < step.sources.size(); ++i) {
      const GraphEdge edge{s, i};
      if (step.sources[i] != image) continue;
      if (isOpen(edge) && !handedOn_.contains(edge)) {
        readings.insert(edge);
      } else if (isPlainAddition(*step.kernel) && through.insert(edge).second) {
        readings.merge(readingsBehindSums(step.result, through));
      }
    }
  }
  return readings;
}

std::string GradientWiring::namesOf(const Edges& edges) const {
  std::string names;
  for (const GraphEdge& edge : edges) {
    if (!names.empty()) names += " and ";
    const ProgramStep& step = program_.steps[edge.step];
    names += edge.source == betweenFused ? "the source of " + step.fused
                                         : "source " + std::to_string(edge.source) + " of " + nameOf(step);
  }
  return names;
}

void GradientWiring::examine(StepIndex step) {
  const ProgramStep& described = program_.steps[step];
  const ProgramStep& forward = program_.steps[described.forward];
  const bool between = startsBetween(step);
  const Edges expected = between ? Edges{{described.forward, betweenFused}} : readingsOf(forward.result);
  const ImageIndex given = described.sources[0];
  const StepIndex producer = program_.images[given].producer;
  const auto wrong = [&](const std::string& found) {
    errors_[step] = "  it is given " + found + "; expected the gradient of the result of " + nameOf(forward) +
                    (expected.empty() ? "" : ", which is that of " + namesOf(expected)) + '\n';
  };
  if (claims_[given]) {
    if (*claims_[given] == expected) return;
    Edges through;
    if (between || *claims_[given] != readingsBehindSums(forward.result, through))
      return wrong("the gradient of " + namesOf(*claims_[given]));
    open_.insert(through.begin(), through.end());
    handedOn_.insert(through.begin(), through.end());
    return;
  }
  if (producer != nowhere && backward_[producer]) {
    // The application's own arithmetic on gradients: what it makes of them is the gradient by definition.
    for (const GraphEdge& edge : expected) open_.erase(edge);
  } else if (producer != nowhere && given != forward.result) {
    return wrong("the forward result of " + nameOf(program_.steps[producer]));
  } else if (!expected.empty()) {
    return wrong(producer == nowhere ? "an input of the graph"
                                     : "a first gradient, " + nameOf(program_.steps[producer]));
  }
  seeds_.push_back({described.forward, between, given});
}

}  // namespace mps::detail
