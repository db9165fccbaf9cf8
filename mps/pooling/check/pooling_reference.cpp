#include "mps/pooling/check/pooling_reference.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace mps::detail {
namespace {

struct Pixel {
  std::int64_t y = 0;
  std::int64_t x = 0;
};

/// Where tap p of a window lies.
std::int64_t tapPosition(const WindowAxis& axis, std::int64_t window, std::int64_t tap) {
  const std::int64_t dilated = (axis.kernelSize - 1) * axis.dilation + 1;
  return axis.offset + axis.stride * window - dilated / 2 + axis.dilation * tap;
}

bool isInside(const PoolingProblem& problem, Pixel pixel) {
  return pixel.x >= 0 && pixel.x < problem.x.sourceSize && pixel.y >= 0 && pixel.y < problem.y.sourceSize;
}

/// A tap of a window, inside the source or not.
struct Tap {
  std::int64_t number = 0;  ///< in row-major order
  Pixel pixel;
  bool isInside = false;
};

/// What a window sees is the same in all channels.
struct Window {
  std::int64_t image = 0;
  Pixel place;
  std::vector<Tap> taps;
};

void setTaps(const PoolingProblem& problem, Window& window) {
  window.taps.clear();
  for (std::int64_t q = 0; q < problem.y.kernelSize; ++q)
    for (std::int64_t p = 0; p < problem.x.kernelSize; ++p) {
      const Pixel pixel{tapPosition(problem.y, window.place.y, q), tapPosition(problem.x, window.place.x, p)};
      window.taps.push_back({p + problem.x.kernelSize * q, pixel, isInside(problem, pixel)});
    }
}

/// Calls visit(window) for all windows, in the order image, y, x.
template <class Visit>
void forEachWindow(const PoolingProblem& problem, Visit visit) {
  Window window;
  for (window.image = 0; window.image < problem.source.images; ++window.image)
    for (window.place.y = 0; window.place.y < problem.y.destinationSize; ++window.place.y)
      for (window.place.x = 0; window.place.x < problem.x.destinationSize; ++window.place.x) {
        setTaps(problem, window);
        visit(std::as_const(window));
      }
}

struct Maximum {
  double value = 0;
  std::int64_t tap = -1;  ///< -1: an outside zero, or cut off by a ReLU
  Pixel pixel;
};

/// The first NaN, otherwise the first maximum. Outside zeros come last: the image wins a tie.
Maximum findMaximum(const PoolingProblem& problem, const ReferenceTensor& source, const Window& window,
                    std::int64_t c) {
  Maximum best;
  bool hasBest = false;
  bool hasOutsideZero = false;
  for (const Tap& tap : window.taps) {
    Pixel pixel = tap.pixel;
    if (!tap.isInside) {
      if (problem.edgeMode != ImageEdgeMode::Clamp) {
        hasOutsideZero = true;
        continue;
      }
      pixel.x = std::clamp<std::int64_t>(pixel.x, 0, problem.x.sourceSize - 1);
      pixel.y = std::clamp<std::int64_t>(pixel.y, 0, problem.y.sourceSize - 1);
    }
    const double value = source.at(window.image, pixel.y, pixel.x, c);
    const bool wins = value > best.value || (std::isnan(value) && !std::isnan(best.value));
    if (!hasBest || wins) best = {value, tap.number, pixel};
    hasBest = true;
  }
  if (hasOutsideZero && (!hasBest || best.value < 0)) return {};
  // Of the taps that read the chosen pixel, the one inside counts.
  std::int64_t row = best.tap / problem.x.kernelSize;
  std::int64_t column = best.tap % problem.x.kernelSize;
  for (std::int64_t q = 0; q < problem.y.kernelSize; ++q)
    if (tapPosition(problem.y, window.place.y, q) == best.pixel.y) row = q;
  for (std::int64_t p = 0; p < problem.x.kernelSize; ++p)
    if (tapPosition(problem.x, window.place.x, p) == best.pixel.x) column = p;
  best.tap = column + problem.x.kernelSize * row;
  if (problem.afterReLU && std::signbit(best.value) && !std::isnan(best.value)) best.tap = -1;
  return best;
}

/// How many taps of a window count for an average.
std::int64_t averageDivisor(const PoolingProblem& problem, const Window& window) {
  if (problem.edgeMode == ImageEdgeMode::Zero) return problem.x.kernelSize * problem.y.kernelSize;
  return std::ranges::count_if(window.taps, [&](const Tap& tap) {
    const auto& [y, x] = tap.pixel;
    return x >= -problem.zeroPadSizeX && x <= problem.x.sourceSize - 1 + problem.zeroPadSizeX &&
           y >= -problem.zeroPadSizeY && y <= problem.y.sourceSize - 1 + problem.zeroPadSizeY;
  });
}

double l2Norm(const ReferenceTensor& source, const Window& window, std::int64_t c) {
  double sum = 0;
  for (const Tap& tap : window.taps) {
    if (!tap.isInside) continue;
    const double value = source.at(window.image, tap.pixel.y, tap.pixel.x, c);
    sum += value * value;
  }
  return std::sqrt(sum);
}

/// A unorm code is a quotient, which float32 rounds.
std::int64_t loadRoundings(ImageFeatureChannelFormat format) {
  return format == ImageFeatureChannelFormat::Unorm8 || format == ImageFeatureChannelFormat::Unorm16 ? 1 : 0;
}

/// Most windows that one source pixel belongs to, on one axis.
std::int64_t mostWindows(const WindowAxis& axis) {
  return std::min(axis.destinationSize, ((axis.kernelSize - 1) * axis.dilation + axis.stride) / axis.stride);
}

/// The source gradient over the whole source, to which windows add.
class SourceGradient {
 public:
  SourceGradient(const PoolingProblem& problem, ReferenceTensor& destination)
      : problem_(problem), destination_(destination) {
    destination_.magnitude.resize(destination_.values.size());
  }
  void add(std::int64_t n, Pixel pixel, std::int64_t c, double term) {
    const std::int64_t y = pixel.y - problem_.destinationOriginY;
    const std::int64_t x = pixel.x - problem_.destinationOriginX;
    if (y < 0 || y >= destination_.height || x < 0 || x >= destination_.width) return;
    destination_.add(destination_.index(n, y, x, c), term);
  }

 private:
  const PoolingProblem& problem_;
  ReferenceTensor& destination_;
};

}  // namespace

ReferenceTensor poolingForwardReference(const PoolingProblem& problem, const ReferenceTensor& source) {
  ReferenceTensor result(problem.source.images, problem.y.destinationSize, problem.x.destinationSize,
                         problem.source.channels);
  result.magnitude.resize(result.values.size());
  const std::int64_t taps = problem.x.kernelSize * problem.y.kernelSize;
  const std::int64_t load = loadRoundings(problem.source.format);
  switch (problem.kind) {
    case PoolingKind::Max:
      result.roundings = load;
      break;
    case PoolingKind::Average:
      result.roundings = load + taps;  // taps - 1 additions, one division
      break;
    case PoolingKind::L2Norm:
      result.roundings = 2 * load + taps;  // a product, taps - 1 additions
      result.transcendental = 1;
      break;
  }
  forEachWindow(problem, [&](const Window& window) {
    const std::int64_t divisor = averageDivisor(problem, window);
    for (std::int64_t c = 0; c < problem.source.channels; ++c) {
      const std::size_t i = result.index(window.image, window.place.y, window.place.x, c);
      switch (problem.kind) {
        case PoolingKind::Max:
          result.add(i, findMaximum(problem, source, window, c).value);
          break;
        case PoolingKind::Average: {
          double sum = 0;
          double absolute = 0;
          for (const Tap& tap : window.taps) {
            if (!tap.isInside) continue;
            const double value = source.at(window.image, tap.pixel.y, tap.pixel.x, c);
            sum += value;
            absolute += std::abs(value);
          }
          result.values[i] = divisor == 0 ? 0 : sum / static_cast<double>(divisor);
          result.magnitude[i] = divisor == 0 ? 0 : absolute / static_cast<double>(divisor);
          break;
        }
        case PoolingKind::L2Norm:
          result.add(i, l2Norm(source, window, c));
          break;
      }
    }
  });
  return result;
}

std::vector<std::uint32_t> poolingIndicesReference(const PoolingProblem& problem,
                                                   const ReferenceTensor& source) {
  std::vector<std::uint32_t> indices;
  forEachWindow(problem, [&](const Window& window) {
    for (std::int64_t c = 0; c < problem.source.channels; ++c) {
      const std::int64_t tap = findMaximum(problem, source, window, c).tap;
      indices.push_back(tap < 0 ? problem.noIndex() : static_cast<std::uint32_t>(tap));
    }
  });
  return indices;
}

ReferenceTensor poolingGradientReference(const PoolingProblem& problem, const ReferenceTensor& source,
                                         const ReferenceTensor& gradient) {
  ReferenceTensor result(problem.destination.images, problem.destination.height, problem.destination.width,
                         problem.destination.channels);
  SourceGradient sum(problem, result);
  const std::int64_t taps = problem.x.kernelSize * problem.y.kernelSize;
  const std::int64_t windowsPerPixel = mostWindows(problem.x) * mostWindows(problem.y);
  const std::int64_t loadGradient = loadRoundings(problem.gradient.format);
  const std::int64_t loadSource = loadRoundings(problem.source.format);
  switch (problem.kind) {
    case PoolingKind::Max:
      // With Clamp a border pixel may collect every window there is.
      result.roundings = loadGradient + problem.x.destinationSize * problem.y.destinationSize;
      break;
    case PoolingKind::Average:
      result.roundings = loadGradient + windowsPerPixel;  // a division, windowsPerPixel - 1 additions
      break;
    case PoolingKind::L2Norm:
      // Sum of squares; root, division, additions, product.
      result.roundings = loadGradient + 3 * loadSource + taps + 2 + windowsPerPixel;
      result.transcendental = 1;
      break;
  }
  forEachWindow(problem, [&](const Window& window) {
    const std::int64_t n = window.image;
    const auto divisor = static_cast<double>(averageDivisor(problem, window));
    for (std::int64_t c = 0; c < problem.source.channels; ++c) {
      const double g = gradient.at(n, window.place.y, window.place.x, c);
      switch (problem.kind) {
        case PoolingKind::Max: {
          const Maximum maximum = findMaximum(problem, source, window, c);
          if (maximum.tap >= 0) sum.add(n, maximum.pixel, c, g);
          break;
        }
        case PoolingKind::Average:
          for (const Tap& tap : window.taps)
            if (tap.isInside) sum.add(n, tap.pixel, c, g / divisor);
          break;
        case PoolingKind::L2Norm: {
          const double norm = l2Norm(source, window, c);
          if (norm == 0) break;
          for (const Tap& tap : window.taps)
            if (tap.isInside) sum.add(n, tap.pixel, c, source.at(n, tap.pixel.y, tap.pixel.x, c) * g / norm);
          break;
        }
      }
    }
  });
  return result;
}

}  // namespace mps::detail
