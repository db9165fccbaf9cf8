#include "mps/conform/reference_call.hpp"
#include "mps/pooling/check/pooling_reference.hpp"

namespace mps::detail {

bool computePooling(ReferenceCall& call) {
  const auto* problem = call.problem<PoolingProblem>();
  if (problem == nullptr) return false;
  const ReferenceTensor source = call.source(problem->source);
  call.setDestination(problem->direction == PoolingDirection::Forward
                          ? poolingForwardReference(*problem, source)
                          : poolingGradientReference(*problem, source, call.gradient(problem->gradient)));
  return true;
}

}  // namespace mps::detail
