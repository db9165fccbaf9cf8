#include "mps/concatenation/concatenation_reference.hpp"
#include "mps/conform/reference_call.hpp"

namespace mps::detail {

bool computeConcatenation(ReferenceCall& call) {
  const auto* problem = call.problem<ConcatenationProblem>();
  if (problem == nullptr) return false;
  const bool isForward = problem->direction == ConcatenationDirection::Forward;
  call.setDestination(concatenationReference(
      *problem, isForward ? call.source(problem->input) : call.gradient(problem->input)));
  return true;
}

}  // namespace mps::detail
