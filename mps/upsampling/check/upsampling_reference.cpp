#include "mps/upsampling/check/upsampling_reference.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace mps::detail {
namespace {

/// A source pixel that a result pixel takes a share of, on one axis.
struct Share {
  std::int64_t pixel = 0;
  double weight = 0;
};

/// offset + t(x), see UpsamplingAxis.
double position(UpsamplingSampling sampling, const UpsamplingAxis& axis, std::int64_t result) {
  const auto x = static_cast<double>(result);
  const auto size = static_cast<double>(axis.sourceSize);
  const auto n = static_cast<double>(axis.resultSize);
  double t = 0;
  switch (sampling) {
    case UpsamplingSampling::Nearest:
      t = std::floor(x * size / n);
      break;
    case UpsamplingSampling::Bilinear:
      t = std::min(x * size / n, size - 1);
      break;
    case UpsamplingSampling::BilinearAlignCorners:
      t = n == 1 ? 0 : x * (size - 1) / (n - 1);
      break;
    case UpsamplingSampling::BilinearHalfPixel:
      t = std::clamp((x + 0.5) * size / n - 0.5, 0.0, size - 1);
      break;
    case UpsamplingSampling::BilinearRegion:
    case UpsamplingSampling::BilinearScale:
    case UpsamplingSampling::LanczosScale:
      t = axis.start + axis.step * x;
      break;
  }
  return static_cast<double>(axis.offset) + t;
}

/// Exactly 0 for whole numbers.
double sinc(double u) {
  if (u == 0) return 1;
  if (u == std::floor(u)) return 0;
  return std::sin(std::numbers::pi * u) / (std::numbers::pi * u);
}

/// All source pixels within three lobes, weighted so that the sum is 1.
std::vector<Share> lanczosShares(const UpsamplingAxis& axis, double at) {
  const double scale = std::max(1.0, axis.step);
  std::vector<Share> shares;
  double sum = 0;
  for (std::int64_t i = 0; i < axis.sourceSize; ++i) {
    const double u = (static_cast<double>(i) - at) / scale;
    if (std::abs(u) >= 3) continue;
    const double weight = sinc(u) * sinc(u / 3);
    sum += weight;
    if (weight != 0) shares.push_back({i, weight});
  }
  for (Share& share : shares) share.weight /= sum;
  return shares;
}

std::vector<Share> sharesOf(const UpsamplingProblem& problem, const UpsamplingAxis& axis,
                            std::int64_t result) {
  double at = position(problem.sampling, axis, result);
  if (problem.sampling >= UpsamplingSampling::BilinearRegion) {
    const auto last = static_cast<double>(axis.sourceSize - 1);
    // A position that was computed from fractions is not outside for a last digit.
    const double margin = 1e-6 + (problem.sampling == UpsamplingSampling::BilinearRegion ? 0 : 0.5);
    const bool isOutside = at < -margin || at > last + margin;
    if (isOutside && problem.edgeMode == ImageEdgeMode::Zero) return {};
    const bool isLanczos = problem.sampling == UpsamplingSampling::LanczosScale;
    if (isOutside || !isLanczos) at = std::clamp(at, 0.0, last);
    if (isLanczos) return lanczosShares(axis, at);
  }
  const double below = std::floor(at);
  std::vector<Share> shares;
  for (const Share share : {Share{static_cast<std::int64_t>(below), 1 - (at - below)},
                            Share{static_cast<std::int64_t>(below) + 1, at - below}}) {
    const std::int64_t inside = std::clamp<std::int64_t>(share.pixel, 0, axis.sourceSize - 1);
    const bool isLost = problem.edgeMode == ImageEdgeMode::Zero && inside != share.pixel;
    if (share.weight == 0 || isLost) continue;
    if (!shares.empty() && shares.back().pixel == inside)
      shares.back().weight += share.weight;
    else
      shares.push_back({inside, share.weight});
  }
  return shares;
}

/// For each of `count` result pixels from `first` on.
std::vector<std::vector<Share>> allShares(const UpsamplingProblem& problem, const UpsamplingAxis& axis,
                                          std::int64_t first, std::int64_t count) {
  std::vector<std::vector<Share>> shares;
  for (std::int64_t i = 0; i < count; ++i) shares.push_back(sharesOf(problem, axis, first + i));
  return shares;
}

/// Most result pixels that one source pixel gives a share to.
std::int64_t mostReaders(const UpsamplingAxis& axis, const std::vector<std::vector<Share>>& shares) {
  std::vector<std::int64_t> readers(static_cast<std::size_t>(axis.sourceSize));
  for (const auto& result : shares)
    for (const Share& share : result) ++readers[static_cast<std::size_t>(share.pixel)];
  return *std::max_element(readers.begin(), readers.end());
}

/// Most source pixels that one result pixel takes a share of.
std::int64_t mostShares(const std::vector<std::vector<Share>>& shares) {
  std::size_t most = 0;
  for (const auto& result : shares) most = std::max(most, result.size());
  return static_cast<std::int64_t>(most);
}

/// A sum of `columns` terms on one axis, of `rows` such sums on the other: the additions, and where the weights
/// are not all 1 two weights and their products.
std::int64_t roundings(const UpsamplingProblem& problem, std::int64_t columns, std::int64_t rows) {
  // A unorm code is a quotient, which float32 rounds.
  const bool isCode = problem.input.format == ImageFeatureChannelFormat::Unorm8 ||
                      problem.input.format == ImageFeatureChannelFormat::Unorm16;
  const std::int64_t additions = std::max<std::int64_t>(1, columns) - 1 + std::max<std::int64_t>(1, rows) - 1;
  return (isCode ? 1 : 0) + additions + (problem.sampling == UpsamplingSampling::Nearest ? 0 : 4);
}

/// Calls visit(image, y, x) for all pixels of a tensor of that size.
template <class Visit>
void forEachPixel(const TensorShape& shape, Visit visit) {
  for (std::int64_t n = 0; n < shape.images; ++n)
    for (std::int64_t y = 0; y < shape.height; ++y)
      for (std::int64_t x = 0; x < shape.width; ++x) visit(n, y, x);
}

/// Adds a share of a pixel, of which `from` is the first channel, to another one.
void addPixel(ReferenceTensor& result, std::size_t to, double weight, const ReferenceTensor& source,
              std::size_t from) {
  for (std::size_t c = 0; c < static_cast<std::size_t>(result.channels); ++c)
    result.add(to + c, weight * source.values[from + c]);
}

}  // namespace

ReferenceTensor upsamplingForwardReference(const UpsamplingProblem& problem, const ReferenceTensor& source) {
  const TensorShape& shape = problem.destination;
  ReferenceTensor result(shape.images, shape.height, shape.width, shape.channels);
  result.magnitude.resize(result.values.size());
  const auto rows = allShares(problem, problem.y, 0, shape.height);
  const auto columns = allShares(problem, problem.x, 0, shape.width);
  result.roundings = roundings(problem, mostShares(columns), mostShares(rows));
  forEachPixel(shape, [&](std::int64_t n, std::int64_t y, std::int64_t x) {
    for (const Share& row : rows[static_cast<std::size_t>(y)])
      for (const Share& column : columns[static_cast<std::size_t>(x)])
        addPixel(result, result.index(n, y, x, 0), row.weight * column.weight, source,
                 source.index(n, row.pixel, column.pixel, 0));
  });
  return result;
}

ReferenceTensor upsamplingGradientReference(const UpsamplingProblem& problem,
                                            const ReferenceTensor& gradient) {
  const TensorShape& shape = problem.destination;
  ReferenceTensor result(shape.images, shape.height, shape.width, shape.channels);
  result.magnitude.resize(result.values.size());
  const auto rows = allShares(problem, problem.y, problem.y.firstResult, problem.input.height);
  const auto columns = allShares(problem, problem.x, problem.x.firstResult, problem.input.width);
  result.roundings = roundings(problem, mostReaders(problem.x, columns), mostReaders(problem.y, rows));
  forEachPixel(problem.input, [&](std::int64_t n, std::int64_t y, std::int64_t x) {
    for (const Share& row : rows[static_cast<std::size_t>(y)])
      for (const Share& column : columns[static_cast<std::size_t>(x)]) {
        const std::int64_t toY = row.pixel - problem.y.destinationOrigin;
        const std::int64_t toX = column.pixel - problem.x.destinationOrigin;
        if (toY < 0 || toY >= result.height || toX < 0 || toX >= result.width) continue;
        addPixel(result, result.index(n, toY, toX, 0), row.weight * column.weight, gradient,
                 gradient.index(n, y, x, 0));
      }
  });
  return result;
}

ReferenceTensor upsamplingReference(const UpsamplingProblem& problem, const ReferenceTensor& input) {
  return problem.direction == UpsamplingDirection::Forward ? upsamplingForwardReference(problem, input)
                                                           : upsamplingGradientReference(problem, input);
}

}  // namespace mps::detail
