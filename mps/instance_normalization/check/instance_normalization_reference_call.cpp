#include "mps/conform/reference_call.hpp"
#include "mps/instance_normalization/check/instance_normalization_reference.hpp"

namespace mps::detail {

bool computeInstanceNormalization(ReferenceCall& call) {
  const auto* problem = call.problem<InstanceNormalizationProblem>();
  if (problem == nullptr) return false;
  const auto numbers = [&](std::size_t index) {
    const auto values = call.parameter(index, problem->source.channels);
    return std::vector<double>(values.begin(), values.end());
  };
  const ReferenceTensor source = call.source(problem->source);
  if (problem->operation == InstanceNormalizationOperation::Forward) {
    call.setDestination(instanceNormalizationReference(*problem, numbers(0), numbers(1), source));
    return true;
  }
  const InstanceNormalizationGradients gradients =
      instanceNormalizationGradientReference(*problem, numbers(0), source, call.gradient(problem->gradient));
  call.setParameterGradient(2, 0, "gamma", gradients.gamma, !problem->sumsImages);
  call.setParameterGradient(3, 1, "beta", gradients.beta, !problem->sumsImages);
  if (problem->computesData) call.setDestination(gradients.source);
  return true;
}

}  // namespace mps::detail
