#include "mps/conform/reference_call.hpp"
#include "mps/softmax/check/softmax_reference.hpp"

namespace mps::detail {

bool computeSoftmax(ReferenceCall& call) {
  const auto* problem = call.problem<SoftMaxProblem>();
  if (problem == nullptr) return false;
  call.setDestination(problem->direction == SoftMaxDirection::Forward
                          ? softMaxForwardReference(*problem, call.source(problem->input))
                          : softMaxGradientReference(*problem, call.secondary(problem->input),
                                                     call.gradient(problem->gradient)));
  return true;
}

}  // namespace mps::detail
