#pragma once

#include "mps/core/storage.hpp"
#include "mps/matrix/matrix_problem.hpp"

namespace mps::detail {

/// Calls multiply(0) of the type that a product's elements have: float or Float16.
template <class Multiply>
void withElements(const MatrixMultiplicationProblem& problem, Multiply multiply) {
  if (problem.result.format == ImageFeatureChannelFormat::Float16)
    multiply(Float16{});
  else
    multiply(0.0F);
}

/// One row times a matrix that is not transposed, without a copy: the matrix is read once, row after row, in strips of
/// columns whose sums stay in the first-level cache. A column's sum does not depend on the number of threads.
Preparation prepareRowTimesMatrix(const MatrixMultiplicationProblem& problem);

/// A matrix that is not transposed times one column, without a copy: row after row, each by one thread.
Preparation prepareMatrixTimesColumn(const MatrixMultiplicationProblem& problem);

}  // namespace mps::detail
