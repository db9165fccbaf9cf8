#pragma once

#include "mps/arithmetic/arithmetic.hpp"
#include "mps/arithmetic/compare.hpp"
#include "mps/core/kernel/kernel_class.hpp"

namespace mps::detail {

/// Kernels over images, of which graphs are made.
using ArithmeticClasses = KernelClasses<CNNAdd, CNNAddGradient, CNNSubtract, CNNSubtractGradient, CNNMultiply,
                                        CNNMultiplyGradient, CNNDivide, CNNDivideGradient, NNCompare>;

}  // namespace mps::detail
