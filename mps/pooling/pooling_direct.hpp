#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "mps/pooling/pooling_operations-inl.hpp"
#include "mps/pooling/pooling_problem.hpp"

/// Pooling one element at a time: every format and size, in 64-bit numbers; both back ends run this code.
#ifdef __CUDACC__
#define UNMETAL_ON_DEVICE __device__
#else
#define UNMETAL_ON_DEVICE
#endif

namespace mps::detail {

/// Whether a ReLU that left the sign bit of what it cut off made this value.
UNMETAL_ON_DEVICE inline bool isCutOffByReLU(float value) {
  return std::bit_cast<std::uint32_t>(value) >> 31U != 0 && value == value;
}

/// The windows that may read a pixel of an axis, and by which tap.
class WindowsAtPixel {
 public:
  /// @param clamps taps outside stand for the border pixels
  UNMETAL_ON_DEVICE WindowsAtPixel(const WindowAxis& axis, std::int64_t pixel, bool clamps)
      : axis_(axis),
        pixel_(pixel),
        isFirst_(clamps && pixel == 0),
        isLast_(clamps && pixel == axis.sourceSize - 1) {
    const std::int64_t distance = pixel - axis.firstTap(0);
    const std::int64_t behind = distance - axis.dilatedSize() + 1;
    begin = isFirst_ || behind <= 0 ? 0 : (behind + axis.stride - 1) / axis.stride;
    end = isLast_ ? axis.destinationSize : distance < 0 ? 0 : distance / axis.stride + 1;
    if (end > axis.destinationSize) end = axis.destinationSize;
  }
  /// The tap that TapsOfMaximum has for the pixel; negative: none.
  [[nodiscard]] UNMETAL_ON_DEVICE std::int64_t tap(std::int64_t window) const {
    const std::int64_t distance = pixel_ - axis_.firstTap(window);
    if (distance >= 0 && distance % axis_.dilation == 0 && distance / axis_.dilation < axis_.kernelSize)
      return distance / axis_.dilation;
    if (isFirst_ && distance > 0) return 0;
    if (!isLast_) return -1;
    const std::int64_t beyond = distance <= 0 ? 0 : (distance + axis_.dilation - 1) / axis_.dilation;
    return beyond < axis_.kernelSize ? beyond : -1;
  }

  std::int64_t begin;
  std::int64_t end;

 private:
  const WindowAxis& axis_;
  std::int64_t pixel_;
  bool isFirst_;
  bool isLast_;
};

/// What a gradient needs to know of each window, and find() looks for in the source: the tap, or the result.
constexpr std::size_t kFoundBytes = sizeof(float);
inline bool findsWindows(const PoolingProblem& problem) {
  return problem.direction == PoolingDirection::Gradient && problem.readsSource();
}
inline std::size_t foundBytes(const PoolingProblem& problem) {
  return findsWindows(problem) ? static_cast<std::size_t>(problem.gradient.elements()) * kFoundBytes : 0;
}

/// One call. @tparam Memory its load() and store() are the back end's
template <class Operation, class Memory>
class DirectPooling {
 public:
  UNMETAL_ON_DEVICE DirectPooling(const PoolingProblem& problem, const Operands& operands)
      : problem_(problem), operands_(operands) {}

  /// An element of the forward result.
  UNMETAL_ON_DEVICE void pool(std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t c) const {
    const Window window{n, y, x, c};
    float value = 0;
    if constexpr (kSelects) {
      const std::int64_t tap = choose(window, value);
      if (problem_.saveIndices)
        storeIndex(tap < 0 ? problem_.noIndex() : static_cast<std::uint32_t>(tap), savedPlace(window));
    } else {
      value = result(window);
    }
    const TensorShape& to = problem_.destination;
    Memory::store(value, to.format, operands_.destination, to.offset(n, y, x, c));
  }

  /// Sees a window once, before its pixels gather.
  UNMETAL_ON_DEVICE void find(std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t c) const {
    const Window window{n, y, x, c};
    if constexpr (kSelects) {
      float value = 0;
      taps()[savedPlace(window)] = static_cast<std::int32_t>(choose(window, value));
    } else {
      results()[savedPlace(window)] = result(window);
    }
  }

  /// An element of the gradient: the sum over the windows that read the pixel.
  UNMETAL_ON_DEVICE void gather(std::int64_t n, std::int64_t row, std::int64_t column, std::int64_t c) const {
    const TensorShape& to = problem_.destination;
    const std::int64_t y = row + problem_.destinationOriginY;
    const std::int64_t x = column + problem_.destinationOriginX;
    float sum = 0;
    if (y >= 0 && y < problem_.y.sourceSize && x >= 0 && x < problem_.x.sourceSize) {
      const bool clamps = kSelects && problem_.edgeMode == ImageEdgeMode::Clamp;
      const WindowsAtPixel rows(problem_.y, y, clamps);
      const WindowsAtPixel columns(problem_.x, x, clamps);
      bool isRead = false;
      for (std::int64_t j = rows.begin; j < rows.end; ++j) {
        const std::int64_t q = rows.tap(j);
        for (std::int64_t i = columns.begin; q >= 0 && i < columns.end; ++i) {
          const std::int64_t p = columns.tap(i);
          if (p < 0) continue;
          isRead = true;
          sum += contribution({n, j, i, c}, p + problem_.x.kernelSize * q);
        }
      }
      // A pixel that no window reads gets 0 even when it is infinite.
      if constexpr (kHasFactor)
        if (isRead) sum = Operation::factor(sum, source(n, y, x, c));
    }
    const std::int64_t offset = to.offset(n, row, column, c);
    if (operands_.accumulate) sum += Memory::load(to.format, operands_.destination, offset);
    Memory::store(sum, to.format, operands_.destination, offset);
  }

 private:
  static constexpr bool kSelects = Operation::kTraits.selects;
  static constexpr bool kHasFactor = !kSelects && !Operation::kTraits.isLinear;

  /// One channel of one window.
  struct Window {
    std::int64_t image;
    std::int64_t y;
    std::int64_t x;
    std::int64_t channel;
  };

  [[nodiscard]] UNMETAL_ON_DEVICE float source(std::int64_t n, std::int64_t y, std::int64_t x,
                                               std::int64_t c) const {
    return Memory::load(problem_.source.format, operands_.source, problem_.source.offset(n, y, x, c));
  }
  /// Calls visit(value) for the taps inside the source.
  template <class Visit>
  UNMETAL_ON_DEVICE void forEachInside(const Window& window, Visit visit) const {
    const WindowAxis& axisX = problem_.x;
    const WindowAxis& axisY = problem_.y;
    for (std::int64_t q = axisY.firstInside(window.y); q < axisY.endInside(window.y); ++q)
      for (std::int64_t p = axisX.firstInside(window.x); p < axisX.endInside(window.x); ++p)
        visit(source(window.image, axisY.firstTap(window.y) + axisY.dilation * q,
                     axisX.firstTap(window.x) + axisX.dilation * p, window.channel));
  }
  /// @return the chosen tap, negative for an outside zero and for what a ReLU cut off
  UNMETAL_ON_DEVICE std::int64_t choose(const Window& window, float& value) const {
    const bool clamps = problem_.edgeMode == ImageEdgeMode::Clamp;
    const TapsOfMaximum rows(problem_.y, window.y, clamps);
    const TapsOfMaximum columns(problem_.x, window.x, clamps);
    std::int64_t chosen = -1;
    for (std::int64_t q = rows.begin; q < rows.end; ++q)
      for (std::int64_t p = columns.begin; p < columns.end; ++p) {
        const float next = source(window.image, rows.pixel(q), columns.pixel(p), window.channel);
        if (chosen >= 0 && (next <= value || value != value)) continue;
        value = next;
        chosen = columns.tap(p) + problem_.x.kernelSize * rows.tap(q);
      }
    const bool hasOutsideZero =
        !clamps && (rows.count() < problem_.y.kernelSize || columns.count() < problem_.x.kernelSize);
    if (chosen < 0 || (hasOutsideZero && value < 0)) {
      value = 0;
      return -1;
    }
    return problem_.afterReLU && isCutOffByReLU(value) ? -1 : chosen;
  }
  [[nodiscard]] UNMETAL_ON_DEVICE float result(const Window& window) const {
    float partial = 0;
    forEachInside(window, [&](float value) { partial = Operation::merge(partial, Operation::first(value)); });
    return Operation::finish(partial, divisor(window));
  }
  /// Divides by the number of taps that count.
  struct Divisor {
    float taps = 1;
    UNMETAL_ON_DEVICE float operator()(float value) const { return value / taps; }
  };
  /// At least 1: without a tap to count there is nothing to divide.
  [[nodiscard]] UNMETAL_ON_DEVICE Divisor divisor(const Window& window) const {
    if constexpr (!Operation::kTraits.countsTaps) return {};
    const std::int64_t count = countedTaps(problem_.x, window.x, problem_.edgeMode, problem_.zeroPadSizeX) *
                               countedTaps(problem_.y, window.y, problem_.edgeMode, problem_.zeroPadSizeY);
    return {static_cast<float>(std::max<std::int64_t>(1, count))};
  }
  /// What one window adds to the gradient of the pixel that its tap reads.
  [[nodiscard]] UNMETAL_ON_DEVICE float contribution(const Window& window, std::int64_t tap) const {
    const float g = Memory::load(problem_.gradient.format, operands_.gradient,
                                 problem_.gradient.offset(window.image, window.y, window.x, window.channel));
    const std::int64_t place = savedPlace(window);
    if constexpr (kSelects)
      return (problem_.useIndices ? std::int64_t{loadIndex(place)} : std::int64_t{taps()[place]}) == tap
                 ? g
                 : 0.0F;
    else if constexpr (Operation::kTraits.isLinear)
      return Operation::share(g, divisor(window));
    else
      return Operation::share(g, results()[place], divisor(window));
  }

  /// Place in Operands::saved, and in scratch memory.
  [[nodiscard]] UNMETAL_ON_DEVICE std::int64_t savedPlace(const Window& window) const {
    return ((window.image * problem_.y.destinationSize + window.y) * problem_.x.destinationSize + window.x) *
               problem_.source.channels +
           window.channel;
  }
  [[nodiscard]] UNMETAL_ON_DEVICE float* results() const {
    return reinterpret_cast<float*>(operands_.scratch);
  }
  [[nodiscard]] UNMETAL_ON_DEVICE std::int32_t* taps() const {
    return reinterpret_cast<std::int32_t*>(operands_.scratch);
  }
  [[nodiscard]] UNMETAL_ON_DEVICE std::uint32_t loadIndex(std::int64_t place) const {
    switch (problem_.indexBytes()) {
      case 1:
        return reinterpret_cast<const std::uint8_t*>(operands_.saved)[place];
      case 2:
        return reinterpret_cast<const std::uint16_t*>(operands_.saved)[place];
      default:
        return reinterpret_cast<const std::uint32_t*>(operands_.saved)[place];
    }
  }
  UNMETAL_ON_DEVICE void storeIndex(std::uint32_t index, std::int64_t place) const {
    switch (problem_.indexBytes()) {
      case 1:
        reinterpret_cast<std::uint8_t*>(operands_.saved)[place] = static_cast<std::uint8_t>(index);
        break;
      case 2:
        reinterpret_cast<std::uint16_t*>(operands_.saved)[place] = static_cast<std::uint16_t>(index);
        break;
      default:
        reinterpret_cast<std::uint32_t*>(operands_.saved)[place] = index;
        break;
    }
  }

  const PoolingProblem& problem_;
  const Operands& operands_;
};

}  // namespace mps::detail

#undef UNMETAL_ON_DEVICE
