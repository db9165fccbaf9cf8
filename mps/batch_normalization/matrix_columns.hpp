#pragma once

#include <cstddef>
#include <optional>

#include "mps/batch_normalization/batch_normalization_problem.hpp"
#include "mps/core/array/matrix_encoding.hpp"

/// Batch normalisation of a matrix whose rows are samples and whose columns are feature channels.
///
/// A neuron behind alpha x + bias is one, too, with given statistics: gamma = alpha, beta = bias, mean = 0, variance = 1
/// and epsilon = 0 make z = alpha x + bias and the gradient of beta that of the bias.
namespace mps::detail {

/// What the plans take for each column, float32.
struct ColumnNumbers {
  BatchOperand gamma = {}, beta = {}, mean = {}, variance = {};
};

/// Where the gradients of a call go; those of parameters where they are wanted, that of gamma never with constant
/// statistics.
struct ColumnGradients {
  MatrixPart data;
  std::optional<MatrixPart> gamma, beta;

  /// Those of one of the matrices.
  [[nodiscard]] ColumnGradients matrix(std::size_t index) const;
};

/// Records mean and variance of the columns of one matrix.
void recordColumnStatistics(const MatrixEncoding& encoding, const MatrixPart& x,
                            const ColumnNumbers& numbers);

/// Records y = f(z) for one matrix. @param settings neuron and epsilon
void recordColumns(const MatrixEncoding& encoding, const BatchNormalizationProblem& settings,
                   const ColumnNumbers& numbers, const MatrixPart& x, const MatrixPart& y);

/// Records the gradients for one matrix. @param settings neuron, epsilon and whether the statistics are constant
void recordColumnGradients(const MatrixEncoding& encoding, const BatchNormalizationProblem& settings,
                           const ColumnNumbers& numbers, const MatrixPart& dy, const MatrixPart& x,
                           const ColumnGradients& gradients);

/// Records 0 for the gradients of parameters, which are sums over no rows.
void recordNoColumnGradients(const MatrixEncoding& encoding, const ColumnGradients& gradients);

/// PReLU: at least one slope for each column. @throws Error
void checkSlopes(const Kernel& kernel, const NNNeuronDescriptor& neuron, std::size_t columns);

}  // namespace mps::detail
