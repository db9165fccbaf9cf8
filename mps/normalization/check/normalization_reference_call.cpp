#include "mps/conform/reference_call.hpp"
#include "mps/normalization/check/normalization_reference.hpp"

namespace mps::detail {

bool computeNormalization(ReferenceCall& call) {
  const auto* problem = call.problem<NormalizationProblem>();
  if (problem == nullptr) return false;
  const ReferenceTensor source = call.source(problem->source);
  call.setDestination(problem->isGradient()
                          ? normalizationGradientReference(*problem, source, call.gradient(problem->gradient))
                          : normalizationForwardReference(*problem, source));
  return true;
}

}  // namespace mps::detail
