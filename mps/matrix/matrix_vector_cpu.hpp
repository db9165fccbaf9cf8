#pragma once

#include "mps/matrix/matrix_problem.hpp"

namespace mps::detail {

/// One row times a matrix that is not transposed, without a copy: the matrix is read once, row after row, in strips of
/// columns whose sums stay in the first-level cache. A column's sum does not depend on the number of threads.
Preparation prepareRowTimesMatrix(const MatrixMultiplicationProblem& problem);

/// A matrix that is not transposed times one column, without a copy: row after row, each by one thread.
Preparation prepareMatrixTimesColumn(const MatrixMultiplicationProblem& problem);

}  // namespace mps::detail
