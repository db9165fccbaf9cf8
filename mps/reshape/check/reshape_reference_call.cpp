#include "mps/conform/reference_call.hpp"
#include "mps/reshape/check/reshape_reference.hpp"

namespace mps::detail {

bool computeReshape(ReferenceCall& call) {
  const auto* problem = call.problem<ReshapeProblem>();
  if (problem == nullptr) return false;
  const bool isForward = problem->direction == ReshapeDirection::Forward;
  call.setDestination(
      reshapeReference(*problem, isForward ? call.source(problem->input) : call.gradient(problem->input)));
  return true;
}

}  // namespace mps::detail
