#pragma once

#include "mps/conform/conform.hpp"

namespace mps::detail {

/// The front ends over matrices: MatrixNeuron, MatrixBatchNormalization and their gradients.
void conformMatrixColumns(Conform& conform);

}  // namespace mps::detail
