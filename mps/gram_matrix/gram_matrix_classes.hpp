#pragma once

#include "mps/core/kernel/kernel_class.hpp"
#include "mps/gram_matrix/gram_matrix.hpp"

namespace mps::detail {

/// Kernels over images, of which graphs are made.
using GramMatrixClasses = KernelClasses<NNGramMatrixCalculation, NNGramMatrixCalculationGradient>;

}  // namespace mps::detail
