#include "mps/arithmetic/check/arithmetic_reference.hpp"
#include "mps/conform/reference_call.hpp"
#include "mps/core/types/error.hpp"

namespace mps::detail {
namespace {

/// Mask and derivative of the forward pass, as far as the problem has them.
ArithmeticReference savedFields(const ReferenceCall& call, const ArithmeticProblem& problem) {
  if (!problem.hasMask() && !problem.hasKept()) return {};
  const auto* saved = std::any_cast<ArithmeticReference>(&call.forwardSaved());
  if (saved == nullptr || saved->mask.height != problem.gradient.height ||
      saved->mask.width != problem.gradient.width)
    throw Error(problem.describe() + ": the gradient covers a part of the forward pass only");
  return *saved;
}

}  // namespace

bool computeArithmetic(ReferenceCall& call) {
  const auto* problem = call.problem<ArithmeticProblem>();
  if (problem == nullptr) return false;
  if (problem->isForward()) {
    ArithmeticProblem alone = *problem;
    alone.hasReLU = problem->hasReLU && !call.wantsBetween();
    ArithmeticReference reference =
        arithmeticForwardReference(alone, call.source(problem->primary), call.secondary(problem->secondary));
    if (problem->hasReLU && call.wantsBetween()) {
      call.between(reference.result);
      for (double& value : reference.result.values)
        if (value < 0) value = -0.0;
    }
    call.setDestination(reference.result);
    call.setSaved(std::move(reference));
    return true;
  }
  const ArithmeticReference saved = savedFields(call, *problem);
  const ReferenceTensor other =
      problem->needsSecondary() ? call.secondary(problem->secondary) : ReferenceTensor();
  call.setDestination(arithmeticGradientReference(*problem, call.gradient(problem->gradient), other,
                                                  saved.mask, saved.derivative));
  return true;
}

}  // namespace mps::detail
