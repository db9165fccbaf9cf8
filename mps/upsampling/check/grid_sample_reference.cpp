#include <algorithm>
#include <cmath>
#include <cstdint>

#include "mps/upsampling/check/grid_sample_cases.hpp"

namespace mps::detail {
namespace {

bool isCode(ImageFeatureChannelFormat format) {
  return format == ImageFeatureChannelFormat::Unorm8 || format == ImageFeatureChannelFormat::Unorm16;
}

/// What a position is made of on one axis.
struct Neighbours {
  std::int64_t first;
  double fraction;
};

Neighbours neighboursOf(const GridSampleProblem& problem, double grid, std::int64_t x, std::int64_t size,
                        std::int64_t offset) {
  // A unorm code is a quotient, which float32 rounds.
  const double value = static_cast<float>(grid);
  const double at = static_cast<double>(offset) + (problem.usesGridAsCoordinates
                                                       ? (value + 1) / 2 * static_cast<double>(size - 1)
                                                       : static_cast<double>(x) + value);
  if (std::isnan(at)) return {-2, 0};
  const double near = std::clamp(at, -2.0, static_cast<double>(size + 1));
  return {static_cast<std::int64_t>(std::floor(near)), near - std::floor(near)};
}

}  // namespace

ReferenceTensor gridSampleReference(const GridSampleProblem& problem, const ReferenceTensor& source,
                                    const ReferenceTensor& grid) {
  ReferenceTensor result(grid.images, grid.height, grid.width, source.channels);
  result.magnitude.resize(result.values.size());
  // Two weights and their products, an addition on each axis.
  result.roundings = (isCode(problem.source.format) ? 1 : 0) + 4 + 2;
  for (std::int64_t n = 0; n < grid.images; ++n)
    for (std::int64_t y = 0; y < grid.height; ++y)
      for (std::int64_t x = 0; x < grid.width; ++x) {
        const Neighbours column =
            neighboursOf(problem, grid.at(n, y, x, 0), x, source.width, problem.offsetX);
        const Neighbours row = neighboursOf(problem, grid.at(n, y, x, 1), y, source.height, problem.offsetY);
        for (const std::int64_t down : {0, 1})
          for (const std::int64_t right : {0, 1}) {
            const double weight = (down == 0 ? 1 - row.fraction : row.fraction) *
                                  (right == 0 ? 1 - column.fraction : column.fraction);
            const std::int64_t v = std::clamp<std::int64_t>(row.first + down, 0, source.height - 1);
            const std::int64_t u = std::clamp<std::int64_t>(column.first + right, 0, source.width - 1);
            const bool isOutside = v != row.first + down || u != column.first + right;
            if (weight == 0 || (isOutside && problem.edgeMode == ImageEdgeMode::Zero)) continue;
            for (std::int64_t c = 0; c < source.channels; ++c)
              result.add(result.index(n, y, x, c), weight * source.at(n, v, u, c));
          }
      }
  return result;
}

}  // namespace mps::detail
