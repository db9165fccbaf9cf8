#pragma once

#include <span>
#include <vector>

#include "mps/core/neuron/neuron_descriptor.hpp"
#include "mps/core/plan/reference_tensor.hpp"
#include "mps/matrix/matrix_problem.hpp"

/// The float64 references of MatrixSum, MatrixCopy and MatrixFullyConnected.
namespace mps::detail {

/// One source of a sum.
struct MatrixTermReference {
  ReferenceTensor source;  ///< the whole matrix
  double scale = 1;
  std::int64_t row = 0;
  std::int64_t column = 0;
};

/// f(the sum of the terms + bias). @param result of the result's size, without values
/// @param bias of the columns, empty: 0 @param neuron whose slope is at most 1 everywhere
ReferenceTensor matrixSumReference(ReferenceTensor result, std::span<const MatrixTermReference> terms,
                                   bool transpose, std::span<const double> bias,
                                   const NNNeuronDescriptor& neuron);

/// Adds the bias to alpha x W and applies a neuron whose slope is at most 1 everywhere.
ReferenceTensor withBiasAndNeuron(ReferenceTensor product, std::span<const double> bias,
                                  const NNNeuronDescriptor& neuron);

/// The destination after a copy. @param offsets of source row and column, destination row and column
/// @param rowIndices, columnIndices empty: none
ReferenceTensor matrixCopyReference(const MatrixCopyProblem& problem, const ReferenceTensor& source,
                                    ReferenceTensor destination, std::span<const std::uint32_t> offsets,
                                    std::span<const std::uint32_t> rowIndices,
                                    std::span<const std::uint32_t> columnIndices);

/// The sums of the columns of one matrix.
ReferenceTensor columnSumsReference(const ReferenceTensor& matrix);

}  // namespace mps::detail
