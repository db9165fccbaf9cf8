#pragma once

#include <cuda_pipeline.h>

#include "mps/pooling/pooling_staged_rows_cuda.cuh"
#include "mps/pooling/pooling_strips_cuda.cuh"

/// Averages at stride 1 and their gradients, which both are sums of neighbours: a thread goes down a strip, reads each
/// row once and adds it to all sums that it is a part of.
namespace mps::detail::cuda {

inline constexpr unsigned kAverageThreads = 128;
/// Blocks of a multiprocessor at least: what registers are left for.
inline constexpr unsigned kAverageBlocks = 7;

/// `kernelSize` over the taps of a window that count: exact for sizes up to 3.
template <int kernelSize>
__device__ float weightOf(std::int32_t taps) {
  if (taps == kernelSize) return 1.0F;
  return kernelSize == 3 && taps == 2 ? 1.5F : static_cast<float>(kernelSize);
}

/// Divides by a number of taps, at most 9. Quotients that float32 holds are exact; the others are off by two roundings of
/// float32 at most for float16, and for float32 Quotient's.
template <class T>
class TapQuotient {
 public:
  __device__ explicit TapQuotient(std::int32_t taps) {
    const auto divisor = static_cast<float>(max(1, taps));  // without a tap the sum is 0
    const float nearest = __frcp_rn(divisor);
    if constexpr (kIsHalf) {
      high_ = nearest;
    } else {
      high_ = __uint_as_float(__float_as_uint(nearest) - 1);
      low_ = fmaf(-high_, divisor, 1.0F) * nearest;
    }
  }
  __device__ float operator()(float value) const {
    return kIsHalf ? value * high_ : fmaf(value, high_, value * low_);
  }

 private:
  static constexpr bool kIsHalf = sizeof(T) == 2;
  float high_;
  float low_ = 0;
};

/// How many taps of a window count along an axis with at most 3 taps, and for which windows that is all.
class CountedTaps {
 public:
  __device__ CountedTaps(const PoolingAxis& axis, bool countsNearTaps)
      : dilation_(axis.dilation),
        kernelSize_(axis.kernelSize),
        first_(-axis.zeroPadSize),
        end_(axis.sourceSize + axis.zeroPadSize),
        leastFull_(countsNearTaps ? first_ : -kFarthest),
        mostFull_(countsNearTaps ? end_ - axis.dilatedSize : kFarthest) {}
  /// @param firstTap of the window
  [[nodiscard]] __device__ bool areAll(std::int32_t firstTap) const {
    return firstTap >= leastFull_ && firstTap <= mostFull_;
  }
  [[nodiscard]] __device__ std::int32_t operator()(std::int32_t firstTap) const {
    if (areAll(firstTap)) return kernelSize_;
    std::int32_t count = 0;
#pragma unroll
    for (int tap = 0; tap < 3; ++tap) {
      const std::int32_t place = firstTap + dilation_ * tap;
      count += tap < kernelSize_ && place >= first_ && place < end_ ? 1 : 0;
    }
    return count;
  }

 private:
  static constexpr std::int32_t kFarthest = 0x7FFFFFFF;
  std::int32_t dilation_;
  std::int32_t kernelSize_;
  std::int32_t first_;  ///< what counts, of all that windows may read
  std::int32_t end_;
  std::int32_t leastFull_;
  std::int32_t mostFull_;
};

/// @param source x, or the gradient for the result
template <class T, PoolingDirection direction, int kernelSize>
__global__ void __launch_bounds__(kAverageThreads, kAverageBlocks)
    averageStrips(StripArguments a, const T* source, T* destination) {
  constexpr int lanes = kLanes<T>;
  constexpr bool isGradient = direction == PoolingDirection::Gradient;
  const std::uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  if (thread >= a.threads) return;
  const StripPlace at(a, thread, lanes);
  if (at.count == 0) return;

  __shared__ StagedRows<T, kernelSize, false, kAverageThreads> staged;
  constexpr int ahead = decltype(staged)::kAhead;
  // What is read: pixels, or windows.
  const Strides& strides = isGradient ? a.gradient : a.source;
  const std::int32_t rowCount = isGradient ? a.y.windows : a.y.sourceSize;
  const std::int32_t columnCount = isGradient ? a.x.windows : a.x.sourceSize;
  const std::int32_t firstRow =
      isGradient ? a.firstLine + at.line - a.y.dilation * (kernelSize - 1) : a.y.firstTap(at.line);
  const std::int32_t firstColumn =
      isGradient ? a.firstColumn + at.column - a.x.dilation * (kernelSize - 1) : a.x.firstTap(at.column);
  const std::int64_t rowStep = a.y.dilation * strides.row;
  std::int32_t fetchedRow = firstRow - a.y.dilation;
  const T* columns[kernelSize];
  std::uint32_t rows[kernelSize];  // of a column: none where it is outside
  const CountedTaps countedColumns(a.x, a.countsNearTaps);
  unsigned columnTaps = 0;  // of the columns' windows, a byte for each: those that count
#pragma unroll
  for (int p = 0; p < kernelSize; ++p) {
    const std::int32_t column = firstColumn + a.x.dilation * p;
    rows[p] = column >= 0 && column < columnCount ? static_cast<std::uint32_t>(rowCount) : 0;
    columns[p] = settled(source + at.image * strides.image + at.channel + fetchedRow * strides.row +
                         column * strides.pixel);
    if constexpr (isGradient)
      columnTaps |= static_cast<unsigned>(countedColumns(a.x.firstTap(column))) << (8 * p);
  }
  const auto fetchNextRow = [&](auto& to) {
    fetchedRow += a.y.dilation;
#pragma unroll
    for (int p = 0; p < kernelSize; ++p) {
      columns[p] += rowStep;
      to.fetchPack(p, columns[p], static_cast<std::uint32_t>(fetchedRow) < rows[p]);
    }
  };

  const CountedTaps countedRows(a.y, a.countsNearTaps);
  /// First tap of the next window that is finished, or, in a gradient, read.
  std::int32_t windowRow = a.y.firstTap(isGradient ? firstRow : at.line);
  const auto weighRow = [&](float(&sum)[lanes]) {
    if (!countedRows.areAll(windowRow)) {
      const float weight = weightOf<kernelSize>(countedRows(windowRow));
#pragma unroll
      for (float& value : sum) value *= weight;
    }
    windowRow += a.y.dilation;
  };
  const auto sumRow = [&](const uint4(&packs)[kernelSize], float(&sum)[lanes]) {
    constexpr unsigned kAllTaps = kernelSize == 3 ? 0x030303 : 0x0202;
    if (isGradient && columnTaps != kAllTaps) {
#pragma unroll
      for (int p = 0; p < kernelSize; ++p) {
        const float weight = weightOf<kernelSize>(static_cast<std::int32_t>(columnTaps >> (8 * p) & 0xFFU));
        const Lanes<T> values = lanesOf(packs[p], static_cast<const T*>(nullptr));
#pragma unroll
        for (int lane = 0; lane < lanes; ++lane)
          sum[lane] = p == 0 ? weight * values.values[lane] : fmaf(weight, values.values[lane], sum[lane]);
      }
    } else {
#pragma unroll
      for (int p = 0; p < kernelSize; ++p) {
        const Lanes<T> values = lanesOf(packs[p], static_cast<const T*>(nullptr));
#pragma unroll
        for (int lane = 0; lane < lanes; ++lane)
          sum[lane] = p == 0 ? values.values[lane] : sum[lane] + values.values[lane];
      }
    }
    if constexpr (isGradient) weighRow(sum);
  };

  const TapQuotient<T> quotient(isGradient ? a.allTaps : kernelSize * countedColumns(firstColumn));
  T* to = settled(destination + at.image * a.destination.image + at.channel + at.line * a.destination.row +
                  at.column * a.destination.pixel);
  std::int32_t y = at.line + a.originY;
  const std::int32_t x = at.column + a.originX;
  const bool isColumnOfSource = x >= 0 && x < a.x.sourceSize;
  const std::uint32_t plainRows =
      isColumnOfSource && !a.accumulate ? static_cast<std::uint32_t>(a.y.sourceSize) : 0;
  const auto store = [&](float(&sum)[lanes]) {
    Lanes<T> result;
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) result.values[lane] = quotient(sum[lane]);
    if (isGradient && static_cast<std::uint32_t>(y) >= plainRows) {
      if (!isColumnOfSource || y < 0 || y >= a.y.sourceSize) result = {};
      if (a.accumulate) addTo(to, result);
    }
    storeLanes(result, to);
  };
  float begun[kernelSize - 1][lanes] = {};  // sums; the last one lacks one row
#pragma unroll 1
  for (int slot = 0; slot < ahead; ++slot) {
    if (slot < at.count + kernelSize - 1) fetchNextRow(staged.rows[slot]);
    __pipeline_commit();
  }
  int slot = 0;
#pragma unroll 1
  for (std::int32_t i = 1 - kernelSize; i < at.count; ++i) {
    __pipeline_wait_prior(ahead - 1);
    uint4 packs[kernelSize];
#pragma unroll
    for (int p = 0; p < kernelSize; ++p) packs[p] = staged.rows[slot].pack(p);
    if (i + ahead < at.count) fetchNextRow(staged.rows[slot]);
    __pipeline_commit();
    slot = staged.behind(slot);
    float sum[lanes];
    sumRow(packs, sum);
    float whole[lanes];
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) {
      whole[lane] = begun[kernelSize - 2][lane] + sum[lane];
      if constexpr (kernelSize == 3) begun[1][lane] = begun[0][lane] + sum[lane];
      begun[0][lane] = sum[lane];
    }
    if (i < 0) continue;
    if constexpr (!isGradient) weighRow(whole);
    store(whole);
    to += a.destinationStep;
    y += a.y.dilation;
  }
}

}  // namespace mps::detail::cuda
