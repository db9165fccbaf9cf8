#pragma once

#include "mps/core/plan/reference_tensor.hpp"
#include "mps/reshape/reshape_problem.hpp"

/// Reshape, padding and slices in float64, straight from the definitions. Of the problem the formats count only for
/// the error bounds, the strides not at all.
namespace mps::detail {

/// The forward result of a source, or the gradient of the source of an incoming gradient.
ReferenceTensor reshapeReference(const ReshapeProblem& problem, const ReferenceTensor& input);

}  // namespace mps::detail
