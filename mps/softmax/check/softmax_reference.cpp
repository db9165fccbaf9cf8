#include "mps/softmax/check/softmax_reference.hpp"

#include <cmath>
#include <limits>

namespace mps::detail {
namespace {

ReferenceTensor emptyLike(const ReferenceTensor& tensor) {
  ReferenceTensor result(tensor.images, tensor.height, tensor.width, tensor.channels);
  result.magnitude.resize(result.values.size());
  return result;
}

/// Calls pixel(first) with the index of channel 0 of every pixel.
template <class Pixel>
void forEachPixel(const ReferenceTensor& tensor, Pixel&& pixel) {
  for (std::int64_t n = 0; n < tensor.images; ++n)
    for (std::int64_t y = 0; y < tensor.height; ++y)
      for (std::int64_t x = 0; x < tensor.width; ++x) pixel(tensor.index(n, y, x, 0));
}

}  // namespace

ReferenceTensor softMaxForwardReference(const SoftMaxProblem& problem, const ReferenceTensor& x) {
  ReferenceTensor result = emptyLike(x);
  const auto channels = static_cast<std::size_t>(x.channels);
  // Subtractions, the sum, its reciprocal or logarithm, the last product or difference, and a unorm store's
  // scale.
  result.roundings = x.channels + 5;
  result.transcendental = 2;
  forEachPixel(x, [&](std::size_t first) {
    double maximum = -std::numeric_limits<double>::infinity();
    for (std::size_t k = 0; k < channels; ++k) maximum = std::max(maximum, x.values[first + k]);
    double sum = 0;
    for (std::size_t k = 0; k < channels; ++k) sum += std::exp(x.values[first + k] - maximum);
    // What a relative rounding of every difference x_j - maximum changes in the sum, relative to it.
    double shifted = 0;
    for (std::size_t j = 0; j < channels; ++j) {
      const double difference = x.values[first + j] - maximum;
      if (std::isfinite(difference)) shifted += std::exp(difference) / sum * -difference;
    }
    for (std::size_t k = 0; k < channels; ++k) {
      const double difference = x.values[first + k] - maximum;
      if (problem.kind == SoftMaxKind::SoftMax) {
        result.values[first + k] = std::exp(difference) / sum;
        result.magnitude[first + k] = result.values[first + k] * (1 - difference + shifted);
      } else {
        result.values[first + k] = difference - std::log(sum);
        result.magnitude[first + k] = -difference + std::log(sum) + 1 + shifted;
      }
    }
  });
  return result;
}

ReferenceTensor softMaxGradientReference(const SoftMaxProblem& problem, const ReferenceTensor& result,
                                         const ReferenceTensor& dy) {
  ReferenceTensor dx = emptyLike(dy);
  const auto channels = static_cast<std::size_t>(dy.channels);
  const bool isLog = problem.kind == SoftMaxKind::LogSoftMax;
  dx.roundings = dy.channels + 3;
  dx.transcendental = isLog ? 1 : 0;
  forEachPixel(dy, [&](std::size_t first) {
    double sum = 0;
    double magnitude = 0;
    for (std::size_t j = 0; j < channels; ++j) {
      const double term = isLog ? dy.values[first + j] : dy.values[first + j] * result.values[first + j];
      sum += term;
      magnitude += std::abs(term);
    }
    for (std::size_t k = 0; k < channels; ++k) {
      const double y = result.values[first + k];
      const double incoming = dy.values[first + k];
      dx.values[first + k] = isLog ? incoming - std::exp(y) * sum : y * (incoming - sum);
      dx.magnitude[first + k] = isLog ? std::abs(incoming) + std::exp(y) * magnitude
                                      : std::abs(y) * (std::abs(incoming) + magnitude);
    }
  });
  return dx;
}

}  // namespace mps::detail
