#include "mps/normalization/normalization_reference.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace mps::detail {
namespace {

/// A source element that a window sees, and how often.
struct Tap {
  std::int64_t y, x, c;
};

/// The window of a destination element.
struct Window {
  std::vector<Tap> taps;  ///< those inside the source; a clamped one counts as the edge pixel it stands for
  bool hasCenter = true;
  Tap center{};
};

std::int64_t inside(std::int64_t at, std::int64_t size) {
  return std::clamp<std::int64_t>(at, 0, size - 1);
}

void setWindow(const NormalizationProblem& problem, std::int64_t y, std::int64_t x, std::int64_t c,
               Window& window) {
  window.taps.clear();
  if (problem.kind == NormalizationKind::CrossChannel) {
    const std::int64_t size = problem.kernelSize;
    window.center = {y, x, c};
    const std::int64_t end = std::min(problem.source.channels - 1, c + (size - 1) / 2);
    for (std::int64_t q = std::max<std::int64_t>(0, c - size / 2); q <= end; ++q)
      window.taps.push_back({y, x, q});
    return;
  }
  const bool clamps = problem.edgeMode == ImageEdgeMode::Clamp;
  const std::int64_t width = problem.x.sourceSize;
  const std::int64_t height = problem.y.sourceSize;
  const std::int64_t centerX = x + problem.x.offset;
  const std::int64_t centerY = y + problem.y.offset;
  const auto isOutside = [&](std::int64_t atY, std::int64_t atX) {
    return atY < 0 || atY >= height || atX < 0 || atX >= width;
  };
  window.center = {inside(centerY, height), inside(centerX, width), c};
  window.hasCenter = clamps || !isOutside(centerY, centerX);
  const std::int64_t kw = problem.x.kernelSize;
  const std::int64_t kh = problem.y.kernelSize;
  for (std::int64_t l = centerY - kh / 2; l <= centerY + (kh - 1) / 2; ++l)
    for (std::int64_t k = centerX - kw / 2; k <= centerX + (kw - 1) / 2; ++k)
      if (clamps || !isOutside(l, k)) window.taps.push_back({inside(l, height), inside(k, width), c});
}

/// What a window makes of its values. The "size" of a number is what its float32 roundings are relative to:
/// the sum of the absolute terms, the error of T carried on by the derivative of the power.
struct Statistics {
  double numerator = 0;  ///< X, or X - p0 M
  double numeratorSize = 0;
  double mean = 0;
  double meanSize = 0;
  double t = 0;
  double tSize = 0;  ///< relative to t
};

Statistics statisticsOf(const NormalizationProblem& problem, const ReferenceTensor& source, std::int64_t n,
                        const Window& window) {
  const auto at = [&](const Tap& tap) { return source.at(n, tap.y, tap.x, tap.c); };
  const auto count = static_cast<double>(problem.taps());
  const double alpha = problem.alpha;
  const double delta = problem.delta;
  const double center = window.hasCenter ? at(window.center) : 0;
  Statistics result;
  if (problem.kind != NormalizationKind::LocalContrast) {
    double squares = 0;
    for (const Tap& tap : window.taps) squares += at(tap) * at(tap);
    result.numerator = center;
    result.numeratorSize = std::abs(center);
    result.t = delta + alpha / count * squares;
    result.tSize = (std::abs(delta) + std::abs(alpha) / count * squares) / std::abs(result.t);
    if (std::isinf(result.t)) result.tSize = 1;  // its powers are exact
    return result;
  }
  double largest = 0;
  for (const Tap& tap : window.taps) {
    result.mean += at(tap) / count;
    result.meanSize += std::abs(at(tap)) / count;
    largest = std::max(largest, std::abs(at(tap)));
  }
  const double outside = count - static_cast<double>(window.taps.size());
  double variance = outside * result.mean * result.mean / count;
  double distances = outside * std::abs(result.mean) / count;
  for (const Tap& tap : window.taps) {
    const double distance = at(tap) - result.mean;
    variance += distance * distance / count;
    distances += std::abs(distance) / count;
  }
  const double p0 = problem.p0;
  result.numerator = center - p0 * result.mean;
  result.numeratorSize = std::abs(center) + std::abs(p0) * result.meanSize;
  result.t = delta + alpha * variance;
  result.tSize =
      (std::abs(delta) + std::abs(alpha) * (variance + 2 * distances * largest)) / std::abs(result.t);
  return result;
}

/// Roundings of the sums over one window and of what follows; a power by squaring has one for each unit of its
/// exponent and each product.
std::int64_t roundingsOf(const NormalizationProblem& problem) {
  return problem.taps() + 12 + 2 * static_cast<std::int64_t>(std::ceil(std::abs(problem.beta)));
}

/// Calls visit(image, y, x, channel) for all elements.
template <class Visit>
void forEachElement(const TensorShape& shape, Visit visit) {
  for (std::int64_t n = 0; n < shape.images; ++n)
    for (std::int64_t y = 0; y < shape.height; ++y)
      for (std::int64_t x = 0; x < shape.width; ++x)
        for (std::int64_t c = 0; c < shape.channels; ++c) visit(n, y, x, c);
}

ReferenceTensor resultOf(const NormalizationProblem& problem) {
  const TensorShape& shape = problem.destination;
  ReferenceTensor result(shape.images, shape.height, shape.width, shape.channels);
  result.magnitude.resize(result.values.size());
  result.transcendental = 1;
  return result;
}

}  // namespace

ReferenceTensor normalizationForwardReference(const NormalizationProblem& problem,
                                              const ReferenceTensor& source) {
  ReferenceTensor result = resultOf(problem);
  result.roundings = roundingsOf(problem);
  const bool isContrast = problem.kind == NormalizationKind::LocalContrast;
  const double ps = isContrast ? problem.ps : 1;
  const double pm = isContrast ? problem.pm : 0;
  const double beta = problem.beta;
  Window window;
  forEachElement(problem.destination, [&](std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t c) {
    setWindow(problem, y, x, c, window);
    const Statistics s = statisticsOf(problem, source, n, window);
    const double power = std::pow(s.t, -beta);
    const std::size_t i = result.index(n, y, x, c);
    result.values[i] = pm + ps * s.numerator * power;
    result.magnitude[i] =
        std::abs(pm) + std::abs(ps * power) * (s.numeratorSize + std::abs(s.numerator * beta) * s.tSize);
  });
  return result;
}

ReferenceTensor normalizationGradientReference(const NormalizationProblem& problem,
                                               const ReferenceTensor& source,
                                               const ReferenceTensor& gradient) {
  ReferenceTensor result = resultOf(problem);
  result.roundings = roundingsOf(problem) + problem.taps() + 8;
  const bool isContrast = problem.kind == NormalizationKind::LocalContrast;
  const double ps = isContrast ? problem.ps : 1;
  const double p0 = problem.p0;
  const double beta = problem.beta;
  const auto count = static_cast<double>(problem.taps());
  const double factor = 2 * static_cast<double>(problem.alpha) * beta / count;
  const auto add = [&](std::int64_t n, const Tap& to, double value, double size) {
    const std::int64_t y = to.y - problem.destinationOriginY;
    const std::int64_t x = to.x - problem.destinationOriginX;
    if (y < 0 || y >= result.height || x < 0 || x >= result.width) return;
    const std::size_t i = result.index(n, y, x, to.c);
    result.values[i] += value;
    result.magnitude[i] += size;
  };
  Window window;
  forEachElement(problem.gradient, [&](std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t c) {
    setWindow(problem, y, x, c, window);
    const Statistics s = statisticsOf(problem, source, n, window);
    const double dy = gradient.at(n, y, x, c);
    const double a = dy * std::pow(s.t, -beta);
    const double b = dy * s.numerator * std::pow(s.t, -beta - 1);
    const double aSize = std::abs(a) * (1 + std::abs(beta) * s.tSize);
    const double bSize = std::abs(dy * std::pow(s.t, -beta - 1)) *
                         (s.numeratorSize + std::abs(s.numerator) * (std::abs(beta) + 1) * s.tSize);
    if (window.hasCenter) add(n, window.center, ps * a, std::abs(ps) * aSize);
    for (const Tap& tap : window.taps) {
      const double value = source.at(n, tap.y, tap.x, tap.c);
      add(n, tap, -ps * factor * value * b, std::abs(ps * factor * value) * bSize);
      if (isContrast)
        add(n, tap, -ps * (p0 / count * a - factor * b * s.mean),
            std::abs(ps) * (std::abs(p0) / count * aSize + std::abs(factor) * bSize * s.meanSize));
    }
  });
  return result;
}

}  // namespace mps::detail
