#include "mps/normalization/check/normalization_reference.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace mps::detail {
namespace {

/// An element that a window sees.
struct Tap {
  std::size_t from = 0;  ///< of the source
  std::int64_t to = -1;  ///< of the gradient's destination; -1: it does not show this one
};

/// The window of a destination element.
struct Window {
  std::vector<Tap> taps;  ///< those inside the source; a clamped one counts as the edge pixel it stands for
  bool hasCenter = true;
  Tap center;
  std::int64_t channel = 0;  ///< how many elements behind those all of them are
};

std::int64_t inside(std::int64_t at, std::int64_t size) {
  return std::clamp<std::int64_t>(at, 0, size - 1);
}

/// Channel c of a source pixel.
Tap tapOf(const NormalizationProblem& problem, const ReferenceTensor& source, std::int64_t n, std::int64_t y,
          std::int64_t x, std::int64_t c) {
  const TensorShape& shown = problem.destination;
  const std::int64_t toY = y - problem.destinationOriginY;
  const std::int64_t toX = x - problem.destinationOriginX;
  const bool isShown = toY >= 0 && toY < shown.height && toX >= 0 && toX < shown.width;
  return {source.index(n, y, x, c),
          isShown ? ((n * shown.height + toY) * shown.width + toX) * shown.channels + c : -1};
}

void setChannelWindow(const NormalizationProblem& problem, const ReferenceTensor& source, std::int64_t n,
                      std::int64_t y, std::int64_t x, std::int64_t c, Window& window) {
  const std::int64_t size = problem.kernelSize;
  window.taps.clear();
  window.center = tapOf(problem, source, n, y, x, c);
  const std::int64_t end = std::min(problem.source.channels - 1, c + (size - 1) / 2);
  for (std::int64_t q = std::max<std::int64_t>(0, c - size / 2); q <= end; ++q)
    window.taps.push_back(tapOf(problem, source, n, y, x, q));
}

/// Of channel 0; those of the others lie side by side with it.
void setPixelWindow(const NormalizationProblem& problem, const ReferenceTensor& source, std::int64_t n,
                    std::int64_t y, std::int64_t x, Window& window) {
  const bool clamps = problem.edgeMode == ImageEdgeMode::Clamp;
  const std::int64_t width = problem.x.sourceSize;
  const std::int64_t height = problem.y.sourceSize;
  const std::int64_t centerX = x + problem.x.offset;
  const std::int64_t centerY = y + problem.y.offset;
  const auto isOutside = [&](std::int64_t atY, std::int64_t atX) {
    return atY < 0 || atY >= height || atX < 0 || atX >= width;
  };
  const auto tapAt = [&](std::int64_t atY, std::int64_t atX) {
    return tapOf(problem, source, n, inside(atY, height), inside(atX, width), 0);
  };
  window.taps.clear();
  window.center = tapAt(centerY, centerX);
  window.hasCenter = clamps || !isOutside(centerY, centerX);
  const std::int64_t kw = problem.x.kernelSize;
  const std::int64_t kh = problem.y.kernelSize;
  for (std::int64_t l = centerY - kh / 2; l <= centerY + (kh - 1) / 2; ++l)
    for (std::int64_t k = centerX - kw / 2; k <= centerX + (kw - 1) / 2; ++k)
      if (clamps || !isOutside(l, k)) window.taps.push_back(tapAt(l, k));
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

Statistics statisticsOf(const NormalizationProblem& problem, const ReferenceTensor& source,
                        const Window& window) {
  const double* const values = source.values.data() + window.channel;
  const auto at = [&](const Tap& tap) { return values[tap.from]; };
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

/// Calls visit(image, y, x, channel, window) for all elements of a tensor with one for each window.
template <class Visit>
void forEachWindow(const NormalizationProblem& problem, const TensorShape& shape,
                   const ReferenceTensor& source, Visit visit) {
  const bool mixesChannels = problem.kind == NormalizationKind::CrossChannel;
  Window window;
  for (std::int64_t n = 0; n < shape.images; ++n)
    for (std::int64_t y = 0; y < shape.height; ++y)
      for (std::int64_t x = 0; x < shape.width; ++x) {
        if (!mixesChannels) setPixelWindow(problem, source, n, y, x, window);
        for (std::int64_t c = 0; c < shape.channels; ++c) {
          if (mixesChannels)
            setChannelWindow(problem, source, n, y, x, c, window);
          else
            window.channel = c;
          visit(n, y, x, c, window);
        }
      }
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
  const auto visit = [&](std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t c,
                         const Window& window) {
    const Statistics s = statisticsOf(problem, source, window);
    const double power = std::pow(s.t, -beta);
    const std::size_t i = result.index(n, y, x, c);
    result.values[i] = pm + ps * s.numerator * power;
    result.magnitude[i] =
        std::abs(pm) + std::abs(ps * power) * (s.numeratorSize + std::abs(s.numerator * beta) * s.tSize);
  };
  forEachWindow(problem, problem.destination, source, visit);
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
  const auto visit = [&](std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t c,
                         const Window& window) {
    const auto add = [&](const Tap& tap, double value, double size) {
      if (tap.to < 0) return;
      const auto to = static_cast<std::size_t>(tap.to + window.channel);
      result.values[to] += value;
      result.magnitude[to] += size;
    };
    const Statistics s = statisticsOf(problem, source, window);
    const double dy = gradient.at(n, y, x, c);
    const double power = std::pow(s.t, -beta - 1);
    const double a = dy * std::pow(s.t, -beta);
    const double b = dy * s.numerator * power;
    const double aSize = std::abs(a) * (1 + std::abs(beta) * s.tSize);
    const double bSize =
        std::abs(dy * power) * (s.numeratorSize + std::abs(s.numerator) * (std::abs(beta) + 1) * s.tSize);
    if (window.hasCenter) add(window.center, ps * a, std::abs(ps) * aSize);
    const double* const values = source.values.data() + window.channel;
    for (const Tap& tap : window.taps) {
      const double value = values[tap.from];
      add(tap, -ps * factor * value * b, std::abs(ps * factor * value) * bSize);
      if (isContrast)
        add(tap, -ps * (p0 / count * a - factor * b * s.mean),
            std::abs(ps) * (std::abs(p0) / count * aSize + std::abs(factor) * bSize * s.meanSize));
    }
  };
  forEachWindow(problem, problem.gradient, source, visit);
  return result;
}

}  // namespace mps::detail
