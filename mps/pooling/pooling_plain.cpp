#include "mps/pooling/pooling_plain.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "mps/core/storage.hpp"
#include "mps/pooling/pooling_layout.hpp"
#include "mtl/cpu/stream.hpp"

namespace mps::detail {
namespace {

/// Elements below which another thread does not pay.
constexpr std::int64_t kGrain = 4096;
/// A number that no tap has.
constexpr std::uint32_t kNoTap = 0xFFFFFFFFU;

float load(const TensorShape& shape, const std::byte* memory, std::int64_t offset) {
  return withElementType(shape.format, [&](auto element) {
    return loadFloat(reinterpret_cast<const decltype(element)*>(memory) + offset);
  });
}

void store(const TensorShape& shape, std::byte* memory, std::int64_t offset, float value) {
  withElementType(shape.format, [&](auto element) {
    storeFloat(value, reinterpret_cast<decltype(element)*>(memory) + offset);
  });
}

/// One window of one channel of one image.
struct Window {
  std::int64_t image;
  std::int64_t y;
  std::int64_t x;
  std::int64_t channel;
};

/// The chosen tap, none for an outside zero or what a ReLU cut off, and its value.
struct Choice {
  std::optional<std::int64_t> tap;
  float value = 0;
};

/// Calls visit(tap, coordinate) for the taps of a window that can hold its maximum: those inside and, with `clamps`, the
/// first on each side that repeats a border pixel. The others repeat what was seen before.
template <class Visit>
void forEachTapOfMaximum(const WindowAxis& axis, std::int64_t window, bool clamps, Visit visit) {
  const std::int64_t first = axis.firstInside(window);
  const std::int64_t end = axis.endInside(window);
  if (clamps && first > 0) visit(std::int64_t{0}, std::int64_t{0});
  for (std::int64_t tap = first; tap < end; ++tap) visit(tap, axis.firstTap(window) + axis.dilation * tap);
  if (clamps && end < axis.kernelSize) visit(end, axis.sourceSize - 1);
}

class WindowReader {
 public:
  WindowReader(const PoolingProblem& problem, const Operands& operands)
      : problem_(problem), operands_(operands) {}

  [[nodiscard]] float source(std::int64_t image, std::int64_t y, std::int64_t x, std::int64_t channel) const {
    return load(problem_.source, operands_.source, problem_.source.offset(image, y, x, channel));
  }

  [[nodiscard]] Choice maximum(const Window& window) const {
    const WindowAxis& axisX = problem_.x;
    const WindowAxis& axisY = problem_.y;
    const bool clamps = problem_.edgeMode == ImageEdgeMode::Clamp;
    Choice best;
    forEachTapOfMaximum(axisY, window.y, clamps, [&](std::int64_t q, std::int64_t y) {
      forEachTapOfMaximum(axisX, window.x, clamps, [&](std::int64_t p, std::int64_t x) {
        const float value = source(window.image, y, x, window.channel);
        const bool wins = !(value <= best.value) && !std::isnan(best.value);
        if (!best.tap || wins) best = {p + axisX.kernelSize * q, value};
      });
    });
    const bool hasOutside = !isInside(axisX, window.x) || !isInside(axisY, window.y);
    if (!clamps && hasOutside && (!best.tap || best.value < 0)) return {};
    if (problem_.afterReLU && std::signbit(best.value) && !std::isnan(best.value)) best.tap.reset();
    return best;
  }

  [[nodiscard]] float average(const Window& window) const {
    float sum = 0;
    forEachInside(window, [&](float value) { sum += value; });
    return sum / divisor(window);
  }

  [[nodiscard]] float norm(const Window& window) const {
    float sum = 0;
    forEachInside(window, [&](float value) { sum += value * value; });
    return std::sqrt(sum);
  }

  /// At least 1: without a tap to count there is nothing to divide.
  [[nodiscard]] float divisor(const Window& window) const {
    const std::int64_t countX = countedTaps(problem_.x, window.x, problem_.edgeMode, problem_.zeroPadSizeX);
    const std::int64_t countY = countedTaps(problem_.y, window.y, problem_.edgeMode, problem_.zeroPadSizeY);
    return static_cast<float>(std::max<std::int64_t>(1, countX * countY));
  }

  /// Position of a window in Operands::saved.
  [[nodiscard]] std::int64_t savedPosition(const Window& window) const {
    return ((window.image * problem_.y.destinationSize + window.y) * problem_.x.destinationSize + window.x) *
               problem_.source.channels +
           window.channel;
  }

 private:
  /// Whether all taps of a window are.
  static bool isInside(const WindowAxis& axis, std::int64_t window) {
    return axis.firstInside(window) == 0 && axis.endInside(window) == axis.kernelSize;
  }

  template <class Visit>
  void forEachInside(const Window& window, Visit visit) const {
    const WindowAxis& axisX = problem_.x;
    const WindowAxis& axisY = problem_.y;
    for (std::int64_t q = axisY.firstInside(window.y); q < axisY.endInside(window.y); ++q)
      for (std::int64_t p = axisX.firstInside(window.x); p < axisX.endInside(window.x); ++p)
        visit(source(window.image, axisY.firstTap(window.y) + axisY.dilation * q,
                     axisX.firstTap(window.x) + axisX.dilation * p, window.channel));
  }

  const PoolingProblem& problem_;
  const Operands& operands_;
};

/// Calls body(image, y, x, channel) for all elements of a shape; images and rows are shared among threads.
template <class Body>
void forEachElement(mtl::Stream& stream, const TensorShape& shape, const Body& body) {
  const std::int64_t rowElements = std::max<std::int64_t>(1, shape.width * shape.channels);
  const std::int64_t grain = (kGrain + rowElements - 1) / rowElements;
  const auto rows = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      for (std::int64_t x = 0; x < shape.width; ++x)
        for (std::int64_t c = 0; c < shape.channels; ++c) body(row / shape.height, row % shape.height, x, c);
  };
  mtl::cpu::asCpu(stream).parallelFor(shape.images * shape.height, grain, rows);
}

class PlainForward final : public Plan {
 public:
  explicit PlainForward(const PoolingProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const WindowReader reader(problem_, operands);
    const TensorShape& shape = problem_.destination;
    forEachElement(stream, shape, [&](std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t c) {
      const Window window{n, y, x, c};
      store(shape, operands.destination, shape.offset(n, y, x, c), value(reader, window, operands.saved));
    });
  }

 private:
  [[nodiscard]] float value(const WindowReader& reader, const Window& window, std::byte* saved) const {
    switch (problem_.kind) {
      case PoolingKind::Max: {
        const Choice choice = reader.maximum(window);
        if (problem_.saveIndices) save(choice, saved + reader.savedPosition(window) * indexBytes());
        return choice.value;
      }
      case PoolingKind::Average:
        return reader.average(window);
      case PoolingKind::L2Norm:
        return reader.norm(window);
    }
    return 0;
  }

  [[nodiscard]] std::int64_t indexBytes() const { return static_cast<std::int64_t>(problem_.indexBytes()); }

  void save(const Choice& choice, std::byte* to) const {
    const std::uint32_t index = choice.tap ? static_cast<std::uint32_t>(*choice.tap) : problem_.noIndex();
    const auto narrow8 = static_cast<std::uint8_t>(index);
    const auto narrow16 = static_cast<std::uint16_t>(index);
    switch (problem_.indexBytes()) {
      case 1:
        std::memcpy(to, &narrow8, sizeof narrow8);
        break;
      case 2:
        std::memcpy(to, &narrow16, sizeof narrow16);
        break;
      default:
        std::memcpy(to, &index, sizeof index);
        break;
    }
  }

  PoolingProblem problem_;
};

class PlainGradient final : public Plan {
 public:
  explicit PlainGradient(const PoolingProblem& problem)
      : problem_(problem), rows_(problem.y, clamps()), columns_(problem.x, clamps()) {}

  [[nodiscard]] bool canAccumulate() const override {
    return problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }

  [[nodiscard]] std::size_t scratchBytes() const override {
    static_assert(sizeof(std::uint32_t) == sizeof(float));
    const TensorShape& windows = problem_.gradient;
    return findsMaxima() || findsNorms() ? static_cast<std::size_t>(windows.elements()) * sizeof(float) : 0;
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const WindowReader reader(problem_, operands);
    findInWindows(stream, reader, operands);
    const TensorShape& shape = problem_.destination;
    forEachElement(stream, shape, [&](std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t c) {
      const std::int64_t offset = shape.offset(n, y, x, c);
      const float old = operands.accumulate ? load(shape, operands.destination, offset) : 0.0F;
      const float sum = pixelGradient(reader, operands, n, y + problem_.destinationOriginY,
                                      x + problem_.destinationOriginX, c);
      store(shape, operands.destination, offset, old + sum);
    });
  }

 private:
  [[nodiscard]] bool clamps() const {
    return problem_.kind == PoolingKind::Max && problem_.edgeMode == ImageEdgeMode::Clamp;
  }

  [[nodiscard]] bool findsMaxima() const { return problem_.kind == PoolingKind::Max && !problem_.useIndices; }
  [[nodiscard]] bool findsNorms() const { return problem_.kind == PoolingKind::L2Norm; }

  /// What each window has to be searched for, once and not by each of its pixels.
  void findInWindows(mtl::Stream& stream, const WindowReader& reader, const Operands& operands) const {
    if (!findsMaxima() && !findsNorms()) return;
    forEachElement(stream, problem_.gradient,
                   [&](std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t c) {
                     const Window window{n, y, x, c};
                     const std::int64_t position = reader.savedPosition(window);
                     if (findsNorms())
                       reinterpret_cast<float*>(operands.scratch)[position] = reader.norm(window);
                     else
                       reinterpret_cast<std::uint32_t*>(operands.scratch)[position] =
                           static_cast<std::uint32_t>(reader.maximum(window).tap.value_or(kNoTap));
                   });
  }

  /// Sum over the windows that read a source pixel.
  [[nodiscard]] float pixelGradient(const WindowReader& reader, const Operands& operands, std::int64_t n,
                                    std::int64_t y, std::int64_t x, std::int64_t c) const {
    if (y < 0 || y >= problem_.y.sourceSize || x < 0 || x >= problem_.x.sourceSize) return 0;
    float sum = 0;
    for (const WindowTap* row = rows_.begin(y); row != rows_.end(y); ++row) {
      for (const WindowTap* column = columns_.begin(x); column != columns_.end(x); ++column) {
        const Window window{n, row->window, column->window, c};
        const float g =
            load(problem_.gradient, operands.gradient, problem_.gradient.offset(n, window.y, window.x, c));
        switch (problem_.kind) {
          case PoolingKind::Max:
            if (choice(reader, operands, window) == column->tap + problem_.x.kernelSize * row->tap) sum += g;
            break;
          case PoolingKind::Average:
            sum += g / reader.divisor(window);
            break;
          case PoolingKind::L2Norm: {
            const float norm = reinterpret_cast<const float*>(operands.scratch)[reader.savedPosition(window)];
            if (norm != 0) sum += g / norm;
            break;
          }
        }
      }
    }
    // Pixels that no window reads stay 0, whatever the source holds.
    const bool isRead = rows_.isRead(y) && columns_.isRead(x);
    return problem_.kind == PoolingKind::L2Norm && isRead ? sum * reader.source(n, y, x, c) : sum;
  }

  /// The chosen tap; a number that no tap has when it is an outside zero.
  [[nodiscard]] std::int64_t choice(const WindowReader& reader, const Operands& operands,
                                    const Window& window) const {
    const std::int64_t position = reader.savedPosition(window);
    if (findsMaxima()) return reinterpret_cast<const std::uint32_t*>(operands.scratch)[position];
    switch (problem_.indexBytes()) {
      case 1:
        return reinterpret_cast<const std::uint8_t*>(operands.saved)[position];
      case 2:
        return reinterpret_cast<const std::uint16_t*>(operands.saved)[position];
      default:
        return reinterpret_cast<const std::uint32_t*>(operands.saved)[position];
    }
  }

  PoolingProblem problem_;
  WindowsOfPixels rows_;
  WindowsOfPixels columns_;
};

}  // namespace

Preparation preparePlainPooling(const PoolingProblem& problem) {
  if (problem.direction == PoolingDirection::Forward) return std::make_shared<const PlainForward>(problem);
  return std::make_shared<const PlainGradient>(problem);
}

}  // namespace mps::detail
