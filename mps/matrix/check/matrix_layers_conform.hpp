#pragma once

#include "mps/conform/conform.hpp"

namespace mps::detail {

/// MatrixSum, MatrixCopy, MatrixFullyConnected and its gradient.
void conformMatrixLayers(Conform& conform);

}  // namespace mps::detail
