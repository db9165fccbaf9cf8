#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "mps/core/cuda/elements_cuda.cuh"
#include "mps/core/cuda/quotient_cuda.cuh"
#include "mps/core/cuda/rows_cuda.cuh"
#include "mps/pooling/pooling_operations-inl.hpp"
#include "mps/pooling/pooling_problem.hpp"

/// What the pooling kernels know about a problem, in 32-bit numbers, and how they find windows and taps.
namespace mps::detail::cuda {

/// WindowAxis, for kernels that work on 16 bytes of channels at once.
struct PoolingAxis {
  std::int32_t sourceSize = 1;
  std::int32_t windows = 1;
  std::int32_t kernelSize = 1;
  std::int32_t stride = 1;
  std::int32_t dilation = 1;
  std::int32_t dilatedSize = 1;
  std::int32_t origin = 0;  ///< source coordinate of the first tap of window 0
  Divider byStride;
  Divider byDilation;
  /// With Clamp taps up to so far outside count.
  std::int32_t zeroPadSize = 0;

  static constexpr std::int64_t kLargest = std::int64_t{1} << 29U;

  /// Whether no number that kernels compute leaves 31 bits.
  static bool fits(const WindowAxis& axis) {
    const std::int64_t first = axis.firstTap(0);
    const std::int64_t last = axis.firstTap(axis.destinationSize) + axis.dilatedSize();
    return axis.sourceSize < kLargest && axis.dilatedSize() < kLargest && axis.stride < kLargest &&
           first > -kLargest && first < kLargest && last > -kLargest && last < kLargest;
  }
  PoolingAxis() = default;
  PoolingAxis(const WindowAxis& axis, std::int64_t zeroPad)
      : sourceSize(static_cast<std::int32_t>(axis.sourceSize)),
        windows(static_cast<std::int32_t>(axis.destinationSize)),
        kernelSize(static_cast<std::int32_t>(axis.kernelSize)),
        stride(static_cast<std::int32_t>(axis.stride)),
        dilation(static_cast<std::int32_t>(axis.dilation)),
        dilatedSize(static_cast<std::int32_t>(axis.dilatedSize())),
        origin(static_cast<std::int32_t>(axis.firstTap(0))),
        byStride(axis.stride),
        byDilation(axis.dilation),
        zeroPadSize(static_cast<std::int32_t>(std::min(zeroPad, kLargest))) {}

  __device__ std::int32_t firstTap(std::int32_t window) const { return origin + stride * window; }
  /// Number of the first tap at `coordinate` or behind it; taps begin at `first`.
  __device__ std::int32_t tapFrom(std::int32_t first, std::int32_t coordinate) const {
    return first >= coordinate
               ? 0
               : min(kernelSize, static_cast<std::int32_t>(byDilation.divide(
                                     static_cast<std::uint32_t>(coordinate - first + dilation - 1))));
  }
  /// Taps of a window that count. @param clamps only those near the source do
  __device__ std::int32_t countedTaps(std::int32_t window, bool clamps) const {
    if (!clamps) return kernelSize;
    const std::int32_t first = firstTap(window);
    if (first >= -zeroPadSize && first + dilatedSize <= sourceSize + zeroPadSize) return kernelSize;
    return tapFrom(first, sourceSize + zeroPadSize) - tapFrom(first, -zeroPadSize);
  }
  /// The coordinate of a tap; outside ones stand for the nearest pixel.
  __device__ std::int32_t clamped(std::int32_t coordinate) const {
    return max(0, min(coordinate, sourceSize - 1));
  }
};

/// Taps of a window that are looked at: those inside and, with `clamps`, those of TapsOfMaximum. A loop over [begin,
/// end) visits them.
struct TapRange {
  std::int32_t first;  ///< coordinate of tap 0
  std::int32_t begin;
  std::int32_t end;

  __device__ TapRange(const PoolingAxis& axis, std::int32_t window, bool clamps)
      : first(axis.firstTap(window)),
        begin(axis.tapFrom(first, 0)),
        end(axis.tapFrom(first, axis.sourceSize)),
        firstInside_(begin) {
    if (!clamps) return;
    const bool standsBefore = begin > 0 && (begin == axis.kernelSize || first + axis.dilation * begin != 0);
    const bool standsBehind =
        end < axis.kernelSize && (end == 0 || first + axis.dilation * (end - 1) != axis.sourceSize - 1);
    begin -= standsBefore ? 1 : 0;
    end += standsBehind ? 1 : 0;
  }
  /// The number of tap i of the loop.
  [[nodiscard]] __device__ std::int32_t tap(std::int32_t i) const { return i < firstInside_ ? 0 : i; }
  [[nodiscard]] __device__ std::int32_t pixel(const PoolingAxis& axis, std::int32_t i) const {
    return axis.clamped(first + axis.dilation * tap(i));
  }
  [[nodiscard]] __device__ bool isPartial(const PoolingAxis& axis) const {
    return end - begin < axis.kernelSize;
  }

 private:
  std::int32_t firstInside_;
};

/// Windows [begin, end) that may read a pixel.
struct PoolingWindowRange {
  std::int32_t begin;
  std::int32_t end;

  /// @param clamps windows with taps that stand for the pixel count, too
  __device__ PoolingWindowRange(const PoolingAxis& axis, std::int32_t pixel, bool clamps) {
    const std::int32_t distance = pixel - axis.origin;
    const std::int32_t behind = distance - axis.dilatedSize + axis.stride;
    const auto divide = [&](std::int32_t number) {
      return static_cast<std::int32_t>(axis.byStride.divide(static_cast<std::uint32_t>(number)));
    };
    begin = behind < axis.stride || (clamps && pixel == 0) ? 0 : divide(behind);
    end = clamps && pixel == axis.sourceSize - 1 ? axis.windows
          : distance < 0                         ? 0
                                                 : min(axis.windows, divide(distance) + 1);
  }
};

/// The tap of a window of PoolingWindowRange that TapRange has for a pixel. Negative: none.
__device__ inline std::int32_t tapAt(const PoolingAxis& axis, std::int32_t window, std::int32_t pixel,
                                     bool clamps) {
  const std::int32_t first = axis.firstTap(window);
  if (pixel >= first) {
    const auto distance = static_cast<std::uint32_t>(pixel - first);
    const std::uint32_t tap = axis.byDilation.divide(distance);
    if (tap * axis.byDilation.divisor() == distance && tap < static_cast<std::uint32_t>(axis.kernelSize))
      return static_cast<std::int32_t>(tap);
  }
  if (clamps && pixel == 0 && first < 0) return 0;
  if (!clamps || pixel != axis.sourceSize - 1) return -1;
  const std::int32_t beyond = axis.tapFrom(first, pixel);
  return beyond < axis.kernelSize ? beyond : -1;
}

/// Distances in a tensor, in elements.
struct Strides {
  std::int64_t image = 0;
  std::int64_t row = 0;
  std::int64_t pixel = 0;

  Strides() = default;
  explicit Strides(const TensorShape& shape)
      : image(shape.imageStride), row(shape.rowStride), pixel(shape.pixelStride) {}
};

/// One call, for kernels that work on 16 bytes of channels at once.
struct PoolingArguments {
  RowGrid grid;     ///< pieces: 16 bytes of channels
  Divider height;   ///< rows of an image of what the grid covers
  Divider vectors;  ///< pieces of a pixel
  PoolingAxis y, x;
  bool clamps = false;          ///< outside taps stand for the nearest pixel
  bool zeroWins = false;        ///< an outside tap is 0
  bool afterReLU = false;       ///< what a ReLU cut off has no index
  bool countsNearTaps = false;  ///< only taps near the source count
  Quotient byAllTaps;
  std::int32_t allTaps = 1;
  Strides source, destination, gradient;
  std::int32_t originX = 0, originY = 0;  ///< of the destination of a gradient, in the source
  std::int32_t viewWidth = 0, viewHeight = 0;
  bool accumulate = false;

  static bool fits(const PoolingProblem& problem) {
    const std::int64_t images = problem.source.images;
    const auto rowFits = [&](const TensorShape& shape) {
      return RowGrid::fits(images * std::max(shape.height, problem.y.destinationSize),
                           shape.width * shape.channels);
    };
    return PoolingAxis::fits(problem.x) && PoolingAxis::fits(problem.y) && problem.taps() <= 1 << 20U &&
           rowFits(problem.source) && rowFits(problem.destination) &&
           RowGrid::fits(images, problem.x.destinationSize * problem.source.channels) &&
           std::abs(problem.destinationOriginX) < PoolingAxis::kLargest &&
           std::abs(problem.destinationOriginY) < PoolingAxis::kLargest;
  }
  PoolingArguments() = default;
  explicit PoolingArguments(const PoolingProblem& problem)
      : y(problem.y, problem.zeroPadSizeY),
        x(problem.x, problem.zeroPadSizeX),
        clamps(problem.clampsTaps()),
        zeroWins(problem.traits().selects && problem.edgeMode == ImageEdgeMode::Zero),
        afterReLU(problem.afterReLU),
        countsNearTaps(problem.traits().countsTaps && problem.edgeMode == ImageEdgeMode::Clamp),
        byAllTaps(static_cast<float>(problem.taps())),
        allTaps(static_cast<std::int32_t>(problem.taps())),
        source(problem.source),
        destination(problem.destination),
        gradient(problem.gradient),
        originX(static_cast<std::int32_t>(problem.destinationOriginX)),
        originY(static_cast<std::int32_t>(problem.destinationOriginY)),
        viewWidth(static_cast<std::int32_t>(problem.destination.width)),
        viewHeight(static_cast<std::int32_t>(problem.destination.height)) {}
  /// The grid goes over `rows` rows of each image, `width` pixels of `vectorCount` pieces.
  void cover(std::int64_t images, std::int64_t rows, std::int64_t width, std::int64_t vectorCount) {
    grid = RowGrid(images * rows, width * vectorCount, kPiecesPerThread);
    height = Divider(rows);
    vectors = Divider(vectorCount);
  }

 private:
  static constexpr std::int64_t kPiecesPerThread = 2;
};

}  // namespace mps::detail::cuda
