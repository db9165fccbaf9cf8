#include "mps/matrix/check/matrix_layers_reference.hpp"

#include "mps/core/neuron/neuron_reference.hpp"

namespace mps::detail {

ReferenceTensor matrixSumReference(ReferenceTensor result, std::span<const MatrixTermReference> terms,
                                   bool transpose, std::span<const double> bias,
                                   const NNNeuronDescriptor& neuron) {
  result.roundings = 2 * static_cast<std::int64_t>(terms.size());  // products and sums
  for (const MatrixTermReference& term : terms)
    for (std::int64_t i = 0; i < result.height; ++i)
      for (std::int64_t j = 0; j < result.channels; ++j) {
        const std::int64_t y = term.row + (transpose ? j : i);
        const std::int64_t x = term.column + (transpose ? i : j);
        if (y < term.source.height && x < term.source.channels)
          result.add(result.index(0, i, 0, j), term.scale * term.source.at(0, y, 0, x));
      }
  return withBiasAndNeuron(std::move(result), bias, neuron);
}

ReferenceTensor withBiasAndNeuron(ReferenceTensor product, std::span<const double> bias,
                                  const NNNeuronDescriptor& neuron) {
  if (product.magnitude.empty()) product.magnitude.resize(product.values.size());
  if (!bias.empty()) {
    ++product.roundings;
    for (std::size_t i = 0; i < product.values.size(); ++i) product.add(i, bias[i % bias.size()]);
  }
  if (neuron.neuronType() == CNNNeuronType::None) return product;
  NeuronBound bound;
  for (std::size_t i = 0; i < product.values.size(); ++i) {
    bound = neuronValueBound(neuron, product.values[i]);
    // An error of the argument is one of the value, at most.
    product.magnitude[i] += bound.magnitude;
    product.values[i] = neuronValue(neuron, product.values[i]);
  }
  product.roundings += bound.roundings;
  product.transcendental = bound.transcendental;
  return product;
}

ReferenceTensor matrixCopyReference(const MatrixCopyProblem& problem, const ReferenceTensor& source,
                                    ReferenceTensor destination, std::span<const std::uint32_t> offsets,
                                    std::span<const std::uint32_t> rowIndices,
                                    std::span<const std::uint32_t> columnIndices) {
  for (std::int64_t i = 0; i < problem.rows; ++i)
    for (std::int64_t j = 0; j < problem.columns; ++j) {
      const std::int64_t y = offsets[0] + (problem.sourceIsTransposed ? j : i);
      const std::int64_t x = offsets[1] + (problem.sourceIsTransposed ? i : j);
      const auto row = static_cast<std::size_t>(problem.destinationIsTransposed ? j : i);
      const auto column = static_cast<std::size_t>(problem.destinationIsTransposed ? i : j);
      const std::int64_t toY =
          offsets[2] + (rowIndices.empty() ? static_cast<std::int64_t>(row) : rowIndices[row]);
      const std::int64_t toX =
          offsets[3] + (columnIndices.empty() ? static_cast<std::int64_t>(column) : columnIndices[column]);
      if (y < source.height && x < source.channels && toY < destination.height && toX < destination.channels)
        destination.at(0, toY, 0, toX) = source.at(0, y, 0, x);
    }
  return destination;
}

ReferenceTensor columnSumsReference(const ReferenceTensor& matrix) {
  ReferenceTensor sums(1, 1, 1, matrix.channels);
  sums.roundings = 1;  // sums are float64
  for (std::size_t i = 0; i < matrix.values.size(); ++i)
    sums.add(i % static_cast<std::size_t>(matrix.channels), matrix.values[i]);
  return sums;
}

}  // namespace mps::detail
