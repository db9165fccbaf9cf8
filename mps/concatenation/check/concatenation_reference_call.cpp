#include "mps/concatenation/check/concatenation_reference.hpp"
#include "mps/conform/reference_call.hpp"

namespace mps::detail {

bool computeConcatenation(ReferenceCall& call) {
  const auto* problem = call.problem<ConcatenationProblem>();
  if (problem == nullptr) return false;
  const bool isForward = problem->direction == ConcatenationDirection::Forward;
  const ReferenceTensor input = isForward ? call.source(problem->input) : call.gradient(problem->input);
  if (problem->hasSecond()) {
    const ReferenceTensor second = call.secondary(problem->second);
    call.setDestination(concatenationReference(*problem, input, &second));
  } else {
    call.setDestination(concatenationReference(*problem, input));
  }
  return true;
}

}  // namespace mps::detail
