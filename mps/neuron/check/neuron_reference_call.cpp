#include "mps/conform/reference_call.hpp"
#include "mps/neuron/check/neuron_reference.hpp"

namespace mps::detail {

bool computeNeuron(ReferenceCall& call) {
  const auto* problem = call.problem<NeuronProblem>();
  if (problem == nullptr) return false;
  const ReferenceTensor input = problem->direction == NeuronDirection::GradientFromResult
                                    ? call.secondary(problem->input)
                                    : call.source(problem->input);
  call.setDestination(problem->direction == NeuronDirection::Forward
                          ? neuronForwardReference(*problem, input)
                          : neuronGradientReference(*problem, input, call.gradient(problem->gradient)));
  return true;
}

}  // namespace mps::detail
