#include "mps/neuron/check/neuron_reference.hpp"

#include <cmath>

#include "mps/core/neuron/neuron_reference.hpp"

namespace mps::detail {
namespace {

ReferenceTensor emptyLike(const ReferenceTensor& tensor) {
  ReferenceTensor result(tensor.images, tensor.height, tensor.width, tensor.channels);
  result.magnitude.resize(result.values.size());
  return result;
}

std::int64_t channelOf(const ReferenceTensor& tensor, std::size_t i) {
  return static_cast<std::int64_t>(i) % tensor.channels;
}

}  // namespace

ReferenceTensor neuronForwardReference(const NeuronProblem& problem, const ReferenceTensor& x) {
  ReferenceTensor y = emptyLike(x);
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    const NeuronBound bound = neuronValueBound(problem.neuron, x.values[i], channelOf(x, i));
    y.values[i] = neuronValue(problem.neuron, x.values[i], channelOf(x, i));
    y.magnitude[i] = bound.magnitude;
    y.roundings = bound.roundings;
    y.transcendental = bound.transcendental;
  }
  return y;
}

std::vector<std::byte> neuronSidesReference(const ReferenceTensor& x) {
  std::vector<std::byte> sides(x.values.size() / 4);
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    if (x.values[i] < 0) sides[i / 4] |= std::byte{1} << (i % 4);
    if (std::isnan(x.values[i])) sides[i / 4] |= std::byte{16} << (i % 4);
  }
  return sides;
}

ReferenceTensor neuronGradientReference(const NeuronProblem& problem, const ReferenceTensor& input,
                                        const ReferenceTensor& dy, const ReferenceTensor* addend) {
  const bool fromResult = problem.direction == NeuronDirection::GradientFromResult;
  ReferenceTensor dx = emptyLike(dy);
  for (std::size_t i = 0; i < dx.values.size(); ++i) {
    const std::int64_t channel = channelOf(dy, i);
    const double derivative = fromResult
                                  ? neuronDerivativeFromResult(problem.neuron, input.values[i], channel)
                                  : neuronDerivative(problem.neuron, input.values[i], channel);
    const NeuronBound bound = fromResult
                                  ? neuronDerivativeFromResultBound(problem.neuron, input.values[i], channel)
                                  : neuronDerivativeBound(problem.neuron, input.values[i], channel);
    const double added = addend != nullptr ? addend->values[i] : 0;
    dx.values[i] = (dy.values[i] + added) * derivative;
    dx.magnitude[i] = (std::abs(dy.values[i]) + std::abs(added)) * bound.magnitude;
    dx.roundings = bound.roundings + (addend != nullptr ? 2 : 1);
    dx.transcendental = bound.transcendental;
  }
  return dx;
}

}  // namespace mps::detail
