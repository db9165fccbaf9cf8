#include <cstdint>

#include "mps/reduction/check/reduce_binary_cases.hpp"

namespace mps::detail {

ReferenceTensor reduceBinaryReference(const ReduceBinaryProblem& problem, const ReferenceTensor& source,
                                      const ReferenceTensor& weights) {
  ReferenceTensor result(source.images, source.height, source.width, 1);
  result.magnitude.resize(result.values.size());
  // Each code of both that float32 rounds; products and sums; the quotient.
  result.roundings = 2 + source.channels + 1;
  for (std::int64_t n = 0; n < source.images; ++n)
    for (std::int64_t y = 0; y < source.height; ++y)
      for (std::int64_t x = 0; x < source.width; ++x) {
        const std::size_t i = result.index(n, y, x, 0);
        double nonZero = 0;
        for (std::int64_t c = 0; c < source.channels; ++c) {
          const double weight = weights.at(n, y, x, c);
          result.add(i, source.at(n, y, x, c) * weight);
          if (weight != 0) ++nonZero;
        }
        double by = 1;
        if (problem.divisor == ReduceBinaryDivisor::FeatureChannels)
          by = static_cast<double>(source.channels);
        else if (problem.divisor == ReduceBinaryDivisor::NonZeroWeights)
          by = nonZero;
        result.values[i] = by == 0 ? 0 : result.values[i] / by;
        result.magnitude[i] = by == 0 ? 0 : result.magnitude[i] / by;
      }
  return result;
}

}  // namespace mps::detail
