#pragma once

#include "mps/core/plan/reference_tensor.hpp"
#include "mps/gram_matrix/gram_matrix_problem.hpp"

/// Gram matrices in float64, straight from the formula. Of the problem the formats count only for the error
/// bounds, the strides not at all.
namespace mps::detail {

ReferenceTensor gramMatrixForwardReference(const GramMatrixProblem& problem, const ReferenceTensor& source,
                                           double alpha);

ReferenceTensor gramMatrixGradientReference(const GramMatrixProblem& problem, const ReferenceTensor& source,
                                            const ReferenceTensor& gradient, double alpha);

}  // namespace mps::detail
