#pragma once

#include "mps/core/plan/reference_tensor.hpp"
#include "mps/reduction/reduction_problem.hpp"

/// Reductions in float64, straight from the formulas. Of the problem the formats count only for the error bounds,
/// the strides not at all.
namespace mps::detail {

ReferenceTensor reductionForwardReference(const ReductionProblem& problem, const ReferenceTensor& source);

/// @param source only looked at by minimum and maximum
ReferenceTensor reductionGradientReference(const ReductionProblem& problem, const ReferenceTensor& source,
                                           const ReferenceTensor& gradient);

}  // namespace mps::detail
