#pragma once

#include "mps/core/array/matrix_encoding.hpp"
#include "mps/matrix/matrix_problem.hpp"

namespace mps::detail {

/// Records left times right; the problem's shapes are taken from the operands. Nothing for a result without elements.
void recordProduct(const MatrixEncoding& encoding, MatrixMultiplicationProblem problem,
                   const BatchOperand& left, const BatchOperand& right, const BatchOperand& result);

}  // namespace mps::detail
