#include "mps/conform/reference_call.hpp"
#include "mps/upsampling/check/upsampling_reference.hpp"

namespace mps::detail {

bool computeUpsampling(ReferenceCall& call) {
  const auto* problem = call.problem<UpsamplingProblem>();
  if (problem == nullptr) return false;
  call.setDestination(upsamplingReference(*problem, problem->direction == UpsamplingDirection::Forward
                                                        ? call.source(problem->input)
                                                        : call.gradient(problem->input)));
  return true;
}

}  // namespace mps::detail
