#include "mps/conform/reference_call.hpp"
#include "mps/reduction/check/reduction_reference.hpp"

namespace mps::detail {

bool computeReduction(ReferenceCall& call) {
  const auto* problem = call.problem<ReductionProblem>();
  if (problem == nullptr) return false;
  if (problem->direction == ReductionDirection::Forward) {
    call.setDestination(reductionForwardReference(*problem, call.source(problem->source)));
    return true;
  }
  const ReferenceTensor source = problem->selects() ? call.source(problem->source) : ReferenceTensor();
  call.setDestination(reductionGradientReference(*problem, source, call.gradient(problem->result)));
  return true;
}

}  // namespace mps::detail
