#pragma once

#include <vector>

#include "mps/arithmetic/arithmetic_problem.hpp"
#include "mps/core/plan/reference_tensor.hpp"

/// The float64 reference of the arithmetic kernels. Of the problem the numbers
/// and the sizes of the result and of the destination count.
namespace mps::detail {

struct ArithmeticReference {
  ReferenceTensor result;
  ReferenceTensor mask;        ///< 1 or 0
  ReferenceTensor derivative;  ///< -x / y^2
  ReferenceTensor kept;        ///< x
};
ArithmeticReference arithmeticForwardReference(const ArithmeticProblem& problem, const ReferenceTensor& x,
                                               const ReferenceTensor& y);

/// -x / y^2 from what a division keeps.
/// @param kept read from a state
ReferenceTensor arithmeticDerivative(const ArithmeticProblem& problem, const std::vector<double>& kept,
                                     const ReferenceTensor& z);

/// @param z not read for Add and Subtract, nor for the gradient of a divisor  @param mask, derivative not read where the
/// problem has no mask, and keeps nothing
ReferenceTensor arithmeticGradientReference(const ArithmeticProblem& problem, const ReferenceTensor& g,
                                            const ReferenceTensor& z, const ReferenceTensor& mask,
                                            const ReferenceTensor& derivative);

}  // namespace mps::detail
