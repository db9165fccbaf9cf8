#pragma once

#include "mps/core/plan/reference_tensor.hpp"
#include "mps/softmax/softmax_problem.hpp"

/// The float64 reference of the softmax kernels. Of the problem only the kind counts.
namespace mps::detail {

/// s or l of x.
ReferenceTensor softMaxForwardReference(const SoftMaxProblem& problem, const ReferenceTensor& x);

/// dx. @param result s or l as it was stored
ReferenceTensor softMaxGradientReference(const SoftMaxProblem& problem, const ReferenceTensor& result,
                                         const ReferenceTensor& dy);

}  // namespace mps::detail
