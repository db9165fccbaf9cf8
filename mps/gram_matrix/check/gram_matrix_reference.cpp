#include "mps/gram_matrix/check/gram_matrix_reference.hpp"

#include <cmath>

namespace mps::detail {
namespace {

/// A unorm code is a quotient, which float32 rounds.
std::int64_t roundingsOf(const TensorShape& shape) {
  return shape.format == ImageFeatureChannelFormat::Unorm8 ||
                 shape.format == ImageFeatureChannelFormat::Unorm16
             ? 1
             : 0;
}

}  // namespace

ReferenceTensor gramMatrixForwardReference(const GramMatrixProblem& problem, const ReferenceTensor& source,
                                           double alpha) {
  const std::int64_t channels = problem.channels();
  ReferenceTensor result(source.images, 1, channels, channels);
  result.magnitude.resize(result.values.size());
  // Each product and sum, and the product with alpha.
  result.roundings = 2 * roundingsOf(problem.source) + problem.pixels() + 1;
  for (std::int64_t n = 0; n < source.images; ++n)
    for (std::int64_t f = 0; f < channels; ++f)
      for (std::int64_t c = 0; c < channels; ++c)
        for (std::int64_t y = 0; y < source.height; ++y)
          for (std::int64_t x = 0; x < source.width; ++x)
            result.add(result.index(n, 0, f, c), alpha * (source.at(n, y, x, f) * source.at(n, y, x, c)));
  return result;
}

ReferenceTensor gramMatrixGradientReference(const GramMatrixProblem& problem, const ReferenceTensor& source,
                                            const ReferenceTensor& gradient, double alpha) {
  const std::int64_t channels = problem.channels();
  ReferenceTensor result(source.images, source.height, source.width, channels);
  result.magnitude.resize(result.values.size());
  // The sum of the two gradients, the product with alpha; each product and sum over the channels.
  result.roundings = roundingsOf(problem.source) + roundingsOf(problem.matrix) + 2 + channels;
  for (std::int64_t n = 0; n < source.images; ++n)
    for (std::int64_t y = 0; y < source.height; ++y)
      for (std::int64_t x = 0; x < source.width; ++x)
        for (std::int64_t c = 0; c < channels; ++c)
          for (std::int64_t f = 0; f < channels; ++f) {
            const double factor = alpha * source.at(n, y, x, f);
            const std::size_t i = result.index(n, y, x, c);
            const double one = gradient.at(n, 0, f, c);
            const double other = gradient.at(n, 0, c, f);
            result.values[i] += factor * (one + other);
            result.magnitude[i] += std::abs(factor) * (std::abs(one) + std::abs(other));
          }
  return result;
}

}  // namespace mps::detail
