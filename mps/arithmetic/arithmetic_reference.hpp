#pragma once

#include "mps/arithmetic/arithmetic_problem.hpp"
#include "mps/core/reference_tensor.hpp"

/// The float64 reference of the arithmetic kernels (spec/02 sections 5.1 to 5.3). Of the problem the numbers
/// and the sizes of the result and of the destination count.
namespace mps::detail {

struct ArithmeticReference {
  ReferenceTensor result;
  ReferenceTensor mask;      ///< 1 or 0
  ReferenceTensor quotient;  ///< x / y
};
ArithmeticReference arithmeticForwardReference(const ArithmeticProblem& problem, const ReferenceTensor& x,
                                               const ReferenceTensor& y);

/// @param z not read for Add and Subtract  @param mask, quotient as a state holds them; not read where the
/// problem has none
ReferenceTensor arithmeticGradientReference(const ArithmeticProblem& problem, const ReferenceTensor& g,
                                            const ReferenceTensor& z, const ReferenceTensor& mask,
                                            const ReferenceTensor& quotient);

}  // namespace mps::detail
