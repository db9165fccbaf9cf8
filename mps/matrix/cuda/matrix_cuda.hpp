#pragma once

#include "mps/matrix/matrix_problem.hpp"

namespace mps::detail {

/// cuBLASLt's product, for float32 matrices in rows without gaps whose product is no vector; an entry of
/// matrixMultiplicationImplementationsCuda(). Earns large products, and the Gram matrices of style transfer.
Preparation prepareCublasLtProduct(const MatrixMultiplicationProblem& problem);

}  // namespace mps::detail
