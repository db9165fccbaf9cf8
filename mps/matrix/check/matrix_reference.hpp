#pragma once

#include <cstdint>
#include <vector>

#include "mps/core/plan/reference_tensor.hpp"
#include "mps/matrix/matrix_problem.hpp"

/// The float64 references of the matrix kernels.
namespace mps::detail {

/// alpha op(A) op(B) + beta C. @param old C before the call; not read when beta is 0
ReferenceTensor matrixMultiplicationReference(const MatrixMultiplicationProblem& problem,
                                              const ReferenceTensor& left, const ReferenceTensor& right,
                                              const ReferenceTensor& old);

/// @param source images or matrix, as problem.toMatrix says
ReferenceTensor imageMatrixCopyReference(const ImageMatrixCopyProblem& problem,
                                         const ReferenceTensor& source);

/// The words that MTGP32 gives after a seed; `skipped` of them are left out first. Parameter set 1 of the
/// authors' 11213 list (Saito and Matsumoto).
std::vector<std::uint32_t> mtgp32Reference(std::uint32_t seed, std::size_t skipped, std::size_t count);
/// The words of MatrixRandomPhilox from a block on.
std::vector<std::uint32_t> philoxReference(std::uint64_t seed, std::uint64_t firstBlock, std::size_t count);

/// x with Phi(x) = p, 0 < p < 1; accurate for p near 0.
double normalQuantileReference(double p);

/// Numbers from words. Words themselves become two unorm16 numbers k / 65535, that of the low bits first, so that
/// they are compared bit by bit.
ReferenceTensor matrixRandomReference(const MatrixRandomProblem& problem,
                                      const std::vector<std::uint32_t>& words);

}  // namespace mps::detail
