#include "mps/normalization/normalization_plain.hpp"

#include <algorithm>
#include <cmath>

#include "mps/core/storage.hpp"
#include "mps/normalization/normalization_windows.hpp"
#include "mtl/cpu/stream.hpp"

namespace mps::detail {
namespace {

/// Pixels below which another thread does not pay.
constexpr std::int64_t kGrain = 256;

double load(const TensorShape& shape, const std::byte* memory, std::int64_t offset) {
  return withElementType(shape.format, [&](auto element) {
    return static_cast<double>(loadFloat(reinterpret_cast<const decltype(element)*>(memory) + offset));
  });
}

void store(const TensorShape& shape, std::byte* memory, std::int64_t offset, double value) {
  withElementType(shape.format, [&](auto element) {
    storeFloat(static_cast<float>(value), reinterpret_cast<decltype(element)*>(memory) + offset);
  });
}

/// What the gradient of a window's result is multiplied with.
struct Terms {
  double a = 0;      ///< dY T^-beta
  double b = 0;      ///< dY numerator T^(-beta - 1)
  double bMean = 0;  ///< b M; 0 but for LocalContrast
};

/// One pixel or channel of a window's axis; `isInside` false: a 0.
struct Position {
  std::int64_t at = 0;
  bool isInside = true;
};

class PlainNormalization final : public Plan {
 public:
  explicit PlainNormalization(const NormalizationProblem& problem)
      : problem_(problem), windows_(problem.isGradient() ? problem.gradient : problem.destination) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    auto* const terms = reinterpret_cast<Terms*>(operands.scratch);
    forEachPixel(stream, windows_, [&](std::int64_t n, std::int64_t y, std::int64_t x) {
      for (std::int64_t c = 0; c < windows_.channels; ++c) {
        const Statistics window = statisticsOf(operands, n, y, x, c);
        const double power = std::pow(window.t, -static_cast<double>(problem_.beta));
        if (problem_.isGradient()) {
          const double dy = load(problem_.gradient, operands.gradient, problem_.gradient.offset(n, y, x, c));
          const double b = dy * window.numerator * power / window.t;
          terms[indexOf(n, y, x, c)] = {dy * power, b, isContrast() ? b * window.mean : 0};
        } else {
          const double value = window.numerator * power;
          store(problem_.destination, operands.destination, problem_.destination.offset(n, y, x, c),
                isContrast() ? problem_.pm + problem_.ps * value : value);
        }
      }
    });
    if (!problem_.isGradient()) return;
    const TensorShape& shape = problem_.destination;
    forEachPixel(stream, shape, [&](std::int64_t n, std::int64_t y, std::int64_t x) {
      for (std::int64_t c = 0; c < shape.channels; ++c) {
        const std::int64_t offset = shape.offset(n, y, x, c);
        const double old = operands.accumulate ? load(shape, operands.destination, offset) : 0;
        store(shape, operands.destination, offset, old + gradientOf(operands, terms, n, y, x, c));
      }
    });
  }

  [[nodiscard]] std::size_t scratchBytes() const override {
    return problem_.isGradient() ? static_cast<std::size_t>(windows_.elements()) * sizeof(Terms) : 0;
  }
  [[nodiscard]] bool canAccumulate() const override {
    return problem_.isGradient() && problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }

 private:
  struct Statistics {
    double numerator = 0;  ///< X, or X - p0 M
    double mean = 0;
    double t = 0;
  };

  [[nodiscard]] bool isContrast() const { return problem_.kind == NormalizationKind::LocalContrast; }
  [[nodiscard]] std::int64_t indexOf(std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t c) const {
    return ((n * windows_.height + y) * windows_.width + x) * windows_.channels + c;
  }

  template <class Body>
  static void forEachPixel(mtl::Stream& stream, const TensorShape& shape, Body&& body) {
    const std::int64_t grain = std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, shape.channels));
    mtl::cpu::asCpu(stream).parallelFor(shape.pixels(), grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        body(i / (shape.width * shape.height), i / shape.width % shape.height, i % shape.width);
    });
  }

  [[nodiscard]] Position inside(std::int64_t at, std::int64_t size) const {
    const std::int64_t within = std::clamp<std::int64_t>(at, 0, size - 1);
    return {within, problem_.edgeMode == ImageEdgeMode::Clamp || within == at};
  }

  /// Calls visit(value) for each element of a window, those outside as well.
  template <class Visit>
  void forEachTap(const Operands& operands, std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t c,
                  Visit visit) const {
    if (problem_.kind == NormalizationKind::CrossChannel) {
      const std::int64_t size = problem_.kernelSize;
      const std::int64_t end = std::min(windows_.channels, c + (size - 1) / 2 + 1);
      for (std::int64_t q = std::max<std::int64_t>(0, c - size / 2); q < end; ++q)
        visit(sourceAt(operands, n, {y}, {x}, q));
      return;
    }
    for (std::int64_t l = 0; l < problem_.y.kernelSize; ++l)
      for (std::int64_t k = 0; k < problem_.x.kernelSize; ++k)
        visit(sourceAt(operands, n, inside(problem_.y.firstTap(y) + l, problem_.y.sourceSize),
                       inside(problem_.x.firstTap(x) + k, problem_.x.sourceSize), c));
  }

  [[nodiscard]] double sourceAt(const Operands& operands, std::int64_t n, Position y, Position x,
                                std::int64_t c) const {
    if (!y.isInside || !x.isInside) return 0;
    return load(problem_.source, operands.source, problem_.source.offset(n, y.at, x.at, c));
  }

  [[nodiscard]] Statistics statisticsOf(const Operands& operands, std::int64_t n, std::int64_t y,
                                        std::int64_t x, std::int64_t c) const {
    const auto count = static_cast<double>(problem_.taps());
    const double alpha = problem_.alpha;
    Statistics result;
    result.numerator = problem_.kind == NormalizationKind::CrossChannel
                           ? sourceAt(operands, n, {y}, {x}, c)
                           : sourceAt(operands, n, inside(y + problem_.y.offset, problem_.y.sourceSize),
                                      inside(x + problem_.x.offset, problem_.x.sourceSize), c);
    double sum = 0;
    if (!isContrast()) {
      forEachTap(operands, n, y, x, c, [&](double value) { sum += value * value; });
      result.t = problem_.delta + alpha / count * sum;
      return result;
    }
    forEachTap(operands, n, y, x, c, [&](double value) { sum += value; });
    result.mean = sum / count;
    double squares = 0;
    forEachTap(operands, n, y, x, c,
               [&](double value) { squares += (value - result.mean) * (value - result.mean); });
    result.numerator -= problem_.p0 * result.mean;
    result.t = problem_.delta + alpha * (squares / count);
    return result;
  }

  [[nodiscard]] double gradientOf(const Operands& operands, const Terms* terms, std::int64_t n,
                                  std::int64_t y, std::int64_t x, std::int64_t c) const {
    double a = 0;
    Terms sum;
    std::int64_t seen = 0;
    if (problem_.kind == NormalizationKind::CrossChannel) {
      const std::int64_t size = problem_.kernelSize;
      a = terms[indexOf(n, y, x, c)].a;
      const std::int64_t end = std::min(windows_.channels, c + size / 2 + 1);
      for (std::int64_t r = std::max<std::int64_t>(0, c - (size - 1) / 2); r < end; ++r, ++seen)
        sum.b += terms[indexOf(n, y, x, r)].b;
    } else {
      y += problem_.destinationOriginY;
      x += problem_.destinationOriginX;
      const auto edgeMode = problem_.edgeMode;
      forEachWindow(windowsCenteredAt(problem_.y, edgeMode, y), windowsCenteredAt(problem_.x, edgeMode, x),
                    [&](std::int64_t l, std::int64_t k) { a += terms[indexOf(n, l, k, c)].a; });
      forEachWindow(windowsSeeing(problem_.y, edgeMode, y), windowsSeeing(problem_.x, edgeMode, x),
                    [&](std::int64_t l, std::int64_t k) {
                      const std::int64_t times =
                          timesSeen(problem_.y, edgeMode, l, y) * timesSeen(problem_.x, edgeMode, k, x);
                      const Terms& one = terms[indexOf(n, l, k, c)];
                      sum.a += static_cast<double>(times) * one.a;
                      sum.b += static_cast<double>(times) * one.b;
                      sum.bMean += static_cast<double>(times) * one.bMean;
                      ++seen;
                    });
    }
    if (seen == 0) return 0;  // whatever the source holds there
    const double value = load(problem_.source, operands.source, problem_.source.offset(n, y, x, c));
    const auto count = static_cast<double>(problem_.taps());
    const double factor = 2 * static_cast<double>(problem_.alpha) * problem_.beta / count;
    const double ofSums = factor * (value * sum.b - sum.bMean);
    if (!isContrast()) return a - ofSums;
    return problem_.ps * (a - problem_.p0 / count * sum.a - ofSums);
  }

  template <class Visit>
  static void forEachWindow(const WindowRange& rows, const WindowRange& columns, Visit visit) {
    for (std::int64_t l = rows.begin; l < rows.end; ++l)
      for (std::int64_t k = columns.begin; k < columns.end; ++k) visit(l, k);
  }

  NormalizationProblem problem_;
  TensorShape windows_;  ///< one element for each window
};

}  // namespace

Preparation preparePlainNormalization(const NormalizationProblem& problem) {
  return std::make_shared<const PlainNormalization>(problem);
}

}  // namespace mps::detail
