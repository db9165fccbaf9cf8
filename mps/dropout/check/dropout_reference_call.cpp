#include "mps/conform/reference_call.hpp"
#include "mps/dropout/check/dropout_reference.hpp"

namespace mps::detail {

bool computeDropout(ReferenceCall& call) {
  const auto* problem = call.problem<DropoutProblem>();
  if (problem == nullptr) return false;
  const ReferenceTensor input = problem->direction == DropoutDirection::Forward
                                    ? call.source(problem->input)
                                    : call.gradient(problem->input);
  const auto encodeCounter = static_cast<std::uint32_t>(call.scalar(0)) + call.laterEncodes();
  const auto firstImage = static_cast<std::uint32_t>(call.scalar(1));
  call.setDestination(dropoutReference(*problem, input, encodeCounter, firstImage));
  return true;
}

}  // namespace mps::detail
