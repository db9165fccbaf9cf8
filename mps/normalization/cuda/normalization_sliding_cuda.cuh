#pragma once

#include <algorithm>
#include <cstdint>

#include "mps/core/cuda/element_grid_cuda.cuh"
#include "mps/normalization/cuda/normalization_powers_cuda.cuh"
#include "mps/normalization/normalization_problem.hpp"

/// Windows of pixels that slide down. A block has a tile of columns and some channels of two images, a thread one element of
/// each row. Rows lie in shared memory, where a thread finds its neighbours' values; what the latest rows of a window add up
/// to stays in registers. A gradient's windows are summed up in the same way, so that nothing but results is written.
namespace mps::detail::cuda::sliding_window {

inline constexpr int kThreads = 384;  ///< of a block at most
inline constexpr int kBlocksOfMultiprocessor = 2;
inline constexpr int kWidestWindow = 7;
/// Their addresses and edges are the same, so that each costs half.
inline constexpr int kImages = 2;

/// Positions of an axis are counted so that window p sees source pixels p to p + size - 1, and the gradient of pixel p is
/// the sum over windows p to p + size - 1. Position 0 is the first one that a result needs.
struct Axis {
  std::int32_t size = 1;     ///< of a window
  std::int32_t results = 1;  ///< pixels that are written
  std::int32_t windows = 1;
  std::int32_t sources = 1;
  std::int32_t firstWindow = 0;  ///< at position 0
  std::int32_t firstSource = 0;

  Axis() = default;
  /// @param origin source coordinate of pixel 0 of a gradient's destination
  Axis(const WindowAxis& axis, std::int64_t resultCount, bool isGradient, std::int64_t origin)
      : size(static_cast<std::int32_t>(axis.kernelSize)),
        results(static_cast<std::int32_t>(resultCount)),
        windows(static_cast<std::int32_t>(axis.destinationSize)),
        sources(static_cast<std::int32_t>(axis.sourceSize)),
        firstWindow(isGradient ? static_cast<std::int32_t>(origin - axis.firstTap(0)) - size + 1 : 0),
        firstSource(static_cast<std::int32_t>(axis.firstTap(0)) + firstWindow) {}

  [[nodiscard]] __device__ bool isWindow(std::int32_t position) const {
    const std::int32_t window = position + firstWindow;
    return window >= 0 && window < windows;
  }
  /// The source pixel at a position, or which stands for it; -1: what is there counts as 0.
  [[nodiscard]] __device__ std::int32_t sourceAt(std::int32_t position, bool clamps) const {
    const std::int32_t at = position + firstSource;
    if (at >= 0 && at < sources) return at;
    if (!clamps) return -1;
    return at < 0 ? 0 : sources - 1;
  }
  /// Whether any window sees the source pixel whose gradient is that of a position.
  [[nodiscard]] __device__ bool isSeen(std::int32_t position) const {
    const std::int32_t window = position + firstWindow;
    return sourceAt(position + size - 1, false) >= 0 && window + size > 0 && window < windows;
  }
};

struct Arguments {
  Axis x;
  Axis y;
  Divider tiles;   ///< of the columns
  Divider slices;  ///< of the channels
  Divider chunks;  ///< of the rows
  Divider channelsOfSlice;
  std::int32_t pixelsOfTile = 1;  ///< that are written
  std::int32_t rowsOfChunk = 1;
  std::int32_t rowLength = 0;  ///< of shared memory
  std::int32_t images = 1;
  std::int32_t channels = 1;
  bool clamps = false;
  bool accumulate = false;
  SourceView source;
  SourceView gradient;
  ResultView destination;
  float ofWindow = 1;  ///< 1 / taps
  float ofRow = 1;     ///< 1 / width of a window
  float delta = 0, ofSquares = 0, p0 = 0, pm = 0, ps = 1;
  float ofSum = 0;   ///< 2 alpha beta / taps
  float ofMean = 0;  ///< p0 / taps
  PowerRule rule{1.0F};
  bool isNormal = false;  ///< T is no smaller than delta, which is a normal number
};

template <class T>
struct alignas(kImages * sizeof(T)) Pair {
  T of[kImages];
};
using Values = Pair<float>;

template <class T>
__device__ Values valuesOf(const Pair<T>& stored) {
  Values result;
#pragma unroll
  for (int n = 0; n < kImages; ++n) result.of[n] = cuda::load(&stored.of[n]);
  return result;
}

/// Some numbers of a window of each image.
template <int count>
struct alignas(count * sizeof(Values)) Terms {
  Values of[count];
};

/// What the latest rows add up to. @tparam most rows
template <int count, int most>
struct RowSums {
  Terms<count> latest[most - 1]{};  ///< of the latest 1, 2, ... rows

  /// The sum of the latest `rows` rows, of which this one is the last.
  __device__ Terms<count> push(const Terms<count>& row, std::int32_t rows) {
    Terms<count> result = row;
#pragma unroll
    for (int k = most - 1; k > 0; --k) {
      Terms<count> sum = latest[k - 1];
#pragma unroll
      for (int i = 0; i < count; ++i)
#pragma unroll
        for (int n = 0; n < kImages; ++n) sum.of[i].of[n] += row.of[i].of[n];
      if (k + 1 == rows) result = sum;
      if (k < most - 1) latest[k] = sum;
    }
    latest[0] = row;
    return result;
  }
};

/// The same of rows' sums and of their squared distances from the mean: sums of what is never negative lose nothing. The
/// mean comes first, so that what float32 holds exactly stays exact. @tparam most rows
template <int most>
struct RowMoments {
  Terms<2> previous[most - 1]{};  ///< rows, the latest one first

  /// @param ofRow 1 / values of a row @param ofWindow 1 / values of a window
  __device__ Terms<2> push(const Terms<2>& row, std::int32_t rows, float width, float ofRow, float ofWindow) {
    Terms<2> result = row;
#pragma unroll
    for (int n = 0; n < kImages; ++n) {
#pragma unroll
      for (int k = 0; k < most - 1; ++k) {
        if (k + 1 >= rows) continue;
        result.of[0].of[n] += previous[k].of[0].of[n];
        result.of[1].of[n] += previous[k].of[1].of[n];
      }
      const float mean = result.of[0].of[n] * ofWindow;
      const float own = row.of[0].of[n] * ofRow - mean;
      float between = own * own;
#pragma unroll
      for (int k = 0; k < most - 1; ++k) {
        const float distance = previous[k].of[0].of[n] * ofRow - mean;
        if (k + 1 < rows) between = fmaf(distance, distance, between);
      }
      result.of[1].of[n] = fmaf(width, between, result.of[1].of[n]);
    }
#pragma unroll
    for (int k = most - 2; k > 0; --k) previous[k] = previous[k - 1];
    previous[0] = row;
    return result;
  }
};

/// The sums of a row's values from `row` on, at distances of `step`: of the squares; or of the values, and of their squared
/// distances from their mean.
template <bool isContrast, int most>
__device__ Terms<isContrast ? 2 : 1> sumsOfRow(const Values* row, std::int32_t step, std::int32_t count,
                                               float ofRow) {
  Values held[most];
#pragma unroll
  for (int k = 0; k < most; ++k) held[k] = k < count ? row[k * step] : Values{};
  Terms<isContrast ? 2 : 1> sums{};
#pragma unroll
  for (int n = 0; n < kImages; ++n) {
    float& first = sums.of[0].of[n];
#pragma unroll
    for (int k = 0; k < most; ++k)
      first = isContrast ? first + held[k].of[n] : fmaf(held[k].of[n], held[k].of[n], first);
    if constexpr (isContrast) {
      const float mean = first * ofRow;
#pragma unroll
      for (int k = 0; k < most; ++k) {
        const float distance = held[k].of[n] - mean;
        if (k < count) sums.of[1].of[n] = fmaf(distance, distance, sums.of[1].of[n]);
      }
    }
  }
  return sums;
}

/// What a thread of a block works on.
struct Place {
  std::int32_t x;  ///< position of its column
  std::int32_t y;  ///< that of the block's first row
  std::int32_t rows;
  std::int32_t image;
  std::int32_t channel;
  bool isResult;  ///< of this column

  __device__ explicit Place(const Arguments& a) {
    const std::uint32_t slice = a.tiles.divide(blockIdx.x);
    const auto tile = static_cast<std::int32_t>(blockIdx.x - slice * a.tiles.divisor());
    const std::uint32_t chunk = a.slices.divide(slice);
    const std::uint32_t pair = a.chunks.divide(chunk);
    const std::uint32_t pixel = a.channelsOfSlice.divide(threadIdx.x);
    x = tile * a.pixelsOfTile + static_cast<std::int32_t>(pixel);
    y = static_cast<std::int32_t>(chunk - pair * a.chunks.divisor()) * a.rowsOfChunk;
    rows = min(a.rowsOfChunk, a.y.results - y);
    image = static_cast<std::int32_t>(pair) * kImages;
    channel = static_cast<std::int32_t>((slice - chunk * a.slices.divisor()) * a.channelsOfSlice.divisor() +
                                        threadIdx.x - pixel * a.channelsOfSlice.divisor());
    isResult = static_cast<std::int32_t>(pixel) < a.pixelsOfTile && x < a.x.results && channel < a.channels;
  }
};

/// A column of a tensor in two images; of an odd last one, twice.
template <class T>
struct ColumnOf {
  T* memory;
  std::int64_t row;
  std::int64_t image;
  bool isAny;

  template <class Byte>
  __device__ ColumnOf(const Arguments& a, const Place& place, const TensorView<Byte>& view, std::int32_t x,
                      bool isInside)
      : memory(reinterpret_cast<T*>(view.memory) +
               view.offset({place.image, 0, isInside ? x : 0, isInside ? place.channel : 0})),
        row(view.row),
        image(place.image + 1 < a.images ? view.image : 0),
        isAny(isInside) {}

  /// @param y -1: nothing is there
  __device__ auto load(std::int32_t y) const {
    Pair<std::remove_const_t<T>> result{};
    if (isAny && y >= 0) {
#pragma unroll
      for (int n = 0; n < kImages; ++n) result.of[n] = memory[y * row + n * image];
    }
    return result;
  }
  __device__ void store(const Values& values, std::int32_t y, bool accumulate) const {
    if (!isAny) return;
#pragma unroll
    for (int n = 0; n < kImages; ++n) {
      T* const to = memory + y * row + n * image;
      if (n == 0 || image != 0) cuda::store(accumulate ? cuda::load(to) + values.of[n] : values.of[n], to);
    }
  }
};

/// Bytes of shared memory for each element of a row.
template <bool isContrast, bool isGradient, int most>
inline constexpr std::size_t kSharedBytes = most * sizeof(Values) +
                                            (isGradient ? sizeof(Terms < isContrast ? 2 : 1 >) +
                                                              (most / 2 + 1) * sizeof(Values)
                                                        : 0);

/// Results of windows; or dX = what the window of which it is the center gives - ofSum X (the sum over the windows that see
/// it) + the sum of the rest of these, times ps. @tparam most of a window's sides; 5: both sides are 5
template <class T, bool isContrast, bool isGradient, int most>
__global__ void __launch_bounds__(kThreads, kBlocksOfMultiprocessor) normalizeColumns(Arguments a) {
  constexpr int count = isContrast ? 2 : 1;
  extern __shared__ float4 shared[];
  auto* const termsOfRow = reinterpret_cast<Terms<count>*>(shared);
  auto* const sourceRows = reinterpret_cast<Values*>(termsOfRow + (isGradient ? a.rowLength : 0));
  auto* const centerRows = sourceRows + most * a.rowLength;  // most / 2 + 1
  const std::int32_t width = most == 5 ? 5 : a.x.size;
  const std::int32_t height = most == 5 ? 5 : a.y.size;
  const auto step = static_cast<std::int32_t>(a.channelsOfSlice.divisor());
  const Place place(a);
  const std::int32_t sourceX = a.x.sourceAt(place.x, a.clamps);
  const bool isChannel = place.channel < a.channels;
  const ColumnOf<const T> source(a, place, a.source, sourceX, sourceX >= 0 && isChannel);
  const bool isWindow = a.x.isWindow(place.x) && isChannel;
  const ColumnOf<const T> gradient(a, place, a.gradient, place.x + a.x.firstWindow, isGradient && isWindow);
  const ColumnOf<T> destination(a, place, a.destination, place.x, place.isResult);
  const bool isSeen = isGradient && a.x.isSeen(place.x);
  const std::int32_t own = static_cast<std::int32_t>(threadIdx.x);

  const auto sourceOf = [&](std::int32_t row) { return source.load(a.y.sourceAt(place.y + row, a.clamps)); };
  const auto gradientOf = [&](std::int32_t row) {
    const std::int32_t position = place.y + row;
    return gradient.load(a.y.isWindow(position) ? position + a.y.firstWindow : -1);
  };
  RowSums<1, most> squares;
  RowMoments<most> moments;
  RowSums<count, most> sumsOfTerms;
  const std::int32_t end = place.rows + (height - 1) * (isGradient ? 2 : 1);
  auto nextSource = sourceOf(0);
  auto nextGradient = gradientOf(1 - height);
  for (std::int32_t row = 0; row < end; ++row) {
    const auto sourceRow = [&](std::int32_t which) { return sourceRows + which % most * a.rowLength + own; };
    *sourceRow(row) = valuesOf(nextSource);
    const Values dy = valuesOf(nextGradient);
    __syncthreads();
    if (row + 1 < end) {
      nextSource = sourceOf(row + 1);
      if (isGradient) nextGradient = gradientOf(row + 2 - height);
    }
    const auto sums = sumsOfRow<isContrast, most>(sourceRow(row), step, width, a.ofRow);
    Terms<count> window;
    if constexpr (isContrast)
      window = moments.push(sums, height, static_cast<float>(width), a.ofRow, a.ofWindow);
    else
      window = squares.push(sums, height);
    const std::int32_t windowRow = row - (height - 1);
    if (windowRow < 0) continue;

    Values numerators = sourceRow(row - (height - 1) / 2)[width / 2 * step];
    float t[kImages];
    float means[kImages];
    float powers[kImages];
#pragma unroll
    for (int n = 0; n < kImages; ++n) {
      t[n] = fmaf(a.ofSquares, window.of[count - 1].of[n], a.delta);
      means[n] = isContrast ? window.of[0].of[n] * a.ofWindow : 0;
      if (isContrast) numerators.of[n] -= a.p0 * means[n];
    }
    if constexpr (!isGradient) {
      negativePowers(a.rule, t, powers, a.isNormal);
      Values result;
#pragma unroll
      for (int n = 0; n < kImages; ++n) {
        const float value = numerators.of[n] * powers[n];
        result.of[n] = isContrast ? fmaf(a.ps, value, a.pm) : value;
      }
      destination.store(result, place.y + windowRow, false);
    } else {
      float next[kImages];
      bothNegativePowers(a.rule, t, powers, next, a.isNormal);
      const bool isAny = isWindow && a.y.isWindow(place.y + windowRow);
      Terms<count> terms{};
      Values center{};
#pragma unroll
      for (int n = 0; n < kImages; ++n) {
        if (!isAny) continue;
        center.of[n] = dy.of[n] * powers[n];
        terms.of[0].of[n] = dy.of[n] * numerators.of[n] * next[n];
        if (isContrast)
          terms.of[count - 1].of[n] = a.ofSum * (terms.of[0].of[n] * means[n]) - a.ofMean * center.of[n];
      }
      const auto centerRow = [&](std::int32_t which) {
        return centerRows + which % (most / 2 + 1) * a.rowLength + own;
      };
      *centerRow(row) = center;
      termsOfRow[own] = terms;
      // Behind the barrier the next row may take this one's memory.
      const Values x = sourceRow(windowRow)[(width - 1) * step];
      __syncthreads();
      Terms<count> ofColumns{};
#pragma unroll
      for (int k = 0; k < most; ++k) {
        if (k >= width) continue;
        const Terms<count> one = termsOfRow[own + k * step];
#pragma unroll
        for (int i = 0; i < count; ++i)
#pragma unroll
          for (int n = 0; n < kImages; ++n) ofColumns.of[i].of[n] += one.of[i].of[n];
      }
      const Terms<count> seen = sumsOfTerms.push(ofColumns, height);
      const std::int32_t resultRow = windowRow - (height - 1);
      if (resultRow < 0) continue;
      Values result = centerRow(row - height / 2)[(width - 1) / 2 * step];
      // What no window sees has no gradient, whatever the source holds there.
      const bool isAnySeen = isSeen && a.y.isSeen(place.y + resultRow);
#pragma unroll
      for (int n = 0; n < kImages; ++n) {
        result.of[n] = fmaf(-a.ofSum * x.of[n], seen.of[0].of[n], result.of[n]);
        if (isContrast) result.of[n] = a.ps * (result.of[n] + seen.of[count - 1].of[n]);
        if (!isAnySeen) result.of[n] = 0;
      }
      destination.store(result, place.y + resultRow, a.accumulate);
    }
  }
}

}  // namespace mps::detail::cuda::sliding_window
