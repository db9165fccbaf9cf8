#pragma once

#include <algorithm>
#include <cstdint>

#include "mps/core/element_grid_cuda.cuh"
#include "mps/normalization/normalization_powers_cuda.cuh"
#include "mps/normalization/normalization_problem.hpp"

/// Windows of pixels that slide down: a thread stays with one or four channels of a column and goes down some rows. It
/// keeps what each row adds to the window until the last window that has the row.
namespace mps::detail::cuda::sliding_window {

inline constexpr unsigned kThreads = 128;
/// Sides that windows have at most: a thread holds the values of a row, and what it knows of that many rows.
inline constexpr int kWidestWindow = 7;

/// How a thread reads and writes tensors of type T: `count` channels at once, 4 or 1.
template <class T, int count>
struct Channels {
  static constexpr int lanes = count;
  using Type = T;
  struct alignas(count * sizeof(float)) Values {
    float values[count];
  };
  struct alignas(count * sizeof(T)) Stored {
    T values[count];
  };

  __device__ static Values loadAt(const T* from) {
    const auto stored = *reinterpret_cast<const Stored*>(from);
    Values result;
#pragma unroll
    for (int i = 0; i < count; ++i) result.values[i] = cuda::load(&stored.values[i]);
    return result;
  }
  __device__ static Values load(const SourceView& view, const ElementPlace& place) {
    return loadAt(reinterpret_cast<const T*>(view.memory) + view.offset(place));
  }
  __device__ static void store(Values values, const ResultView& view, const ElementPlace& place,
                               bool accumulate = false) {
    auto* const to = reinterpret_cast<Stored*>(reinterpret_cast<T*>(view.memory) + view.offset(place));
    Stored stored;
    if (accumulate) stored = *to;
#pragma unroll
    for (int i = 0; i < count; ++i)
      cuda::store(accumulate ? cuda::load(&stored.values[i]) + values.values[i] : values.values[i],
                  &stored.values[i]);
    *to = stored;
  }
};

/// What the gradients of all windows have, in scratch memory: dense tensors of their size, one after the other.
struct TermPlanes {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;
  std::int64_t size = 0;
  float* memory = nullptr;

  [[nodiscard]] __device__ float* at(int plane, const ElementPlace& place) const {
    return memory + plane * size + ((place.image * height + place.y) * width + place.x) * channels +
           place.channel;
  }
};

struct Arguments {
  Divider columns;  ///< groups of channels in a row of what is written
  Divider groups;   ///< of channels of a pixel
  Divider chunks;   ///< of the rows of an image
  std::uint32_t items = 0;
  std::int32_t rowsPerChunk = 0;
  std::int32_t height = 0;
  /// Windows: their size, where those of pixel 0 begin, and the size of what they see.
  std::int32_t kernelWidth = 1, kernelHeight = 1;
  std::int32_t firstX = 0, firstY = 0;
  std::int32_t seenWidth = 1, seenHeight = 1;
  bool clamps = false;
  bool accumulate = false;
  /// Of windows: from the first pixel to the one in the middle. Of a gradient: what destination pixel 0 stands for, and
  /// the size of the source.
  std::int32_t centerX = 0, centerY = 0;
  std::int32_t sourceWidth = 1, sourceHeight = 1;
  SourceView source;
  SourceView gradient;
  ResultView destination;
  TermPlanes terms;
  float ofWindow = 1;  ///< 1 / taps
  float ofRow = 1;     ///< 1 / width of a window
  float delta = 0, ofSquares = 0, p0 = 0, pm = 0, ps = 1;
  float ofSum = 0;   ///< 2 alpha beta / taps
  float ofMean = 0;  ///< p0 / taps
  PowerRule rule{1.0F};
  bool isNormal = false;  ///< T is no smaller than delta, which is a normal number

  /// @param shape of what is written, not empty
  void setGrid(const TensorShape& shape, std::int64_t lanes) {
    constexpr std::int64_t threads = std::int64_t{1} << 19;
    const std::int64_t groupsOfPixel = shape.channels / lanes;
    const std::int64_t groupsOfRow = shape.width * groupsOfPixel;
    const std::int64_t all = shape.images * groupsOfRow;
    // Enough threads for a large GPU come first; each chunk begins with rows that the one before it has, too.
    const std::int64_t rows = std::clamp<std::int64_t>(shape.height * all / threads, 8, 64);
    const std::int64_t most = std::max<std::int64_t>(1, 0x7FFFFFFF / all);
    const std::int64_t count = std::min(most, (shape.height + rows - 1) / rows);
    rowsPerChunk = static_cast<std::int32_t>((shape.height + count - 1) / count);
    chunks = Divider((shape.height + rowsPerChunk - 1) / rowsPerChunk);
    columns = Divider(groupsOfRow);
    groups = Divider(groupsOfPixel);
    items = static_cast<std::uint32_t>(all * chunks.divisor());
    height = static_cast<std::int32_t>(shape.height);
  }
  static bool fits(const TensorShape& shape) {
    return shape.images * shape.width * shape.channels <= 0x7FFFFFFF;
  }
};

/// The work of this thread: a group of channels of a column, and rows [begin, end) of an image.
struct Column {
  bool isAny;
  ElementPlace place;  ///< in row 0
  std::int32_t begin;
  std::int32_t end;

  __device__ Column(const Arguments& a, int lanes) {
    const std::uint32_t item = blockIdx.x * blockDim.x + threadIdx.x;
    isAny = item < a.items;
    const std::uint32_t chunk = a.columns.divide(item);
    const std::uint32_t group = item - chunk * a.columns.divisor();
    const std::uint32_t image = a.chunks.divide(chunk);
    const std::uint32_t x = a.groups.divide(group);
    place = {static_cast<std::int32_t>(image), 0, static_cast<std::int32_t>(x),
             static_cast<std::int32_t>(group - x * a.groups.divisor()) * lanes};
    begin = static_cast<std::int32_t>(chunk - image * a.chunks.divisor()) * a.rowsPerChunk;
    end = min(begin + a.rowsPerChunk, a.height);
  }
  /// Calls finish(place) from row to row, each after the last call of row(y) that belongs to its window.
  template <class Row, class Finish>
  __device__ void goDown(const Arguments& a, Row row, Finish finish) const {
    ElementPlace at = place;
    for (std::int32_t seen = begin; seen < end + a.kernelHeight - 1; ++seen) {
      row(seen + a.firstY);
      at.y = seen - (a.kernelHeight - 1);
      if (at.y >= begin) finish(at);
    }
  }
};

/// The position of an axis that is read for `at`; -1: what is there counts as 0.
__device__ inline std::int32_t insideOf(std::int32_t at, std::int32_t size, bool clamps) {
  if (at >= 0 && at < size) return at;
  if (!clamps) return -1;
  return at < 0 ? 0 : size - 1;
}

/// Where in a row the pixels of the windows of a column lie; -1: nothing is read. @tparam most pixels
template <int most>
struct ColumnOffsets {
  std::int32_t offsets[most];

  /// @param pixel from pixel to pixel
  __device__ ColumnOffsets(const Arguments& a, const Column& column, std::int32_t pixel) {
#pragma unroll
    for (int k = 0; k < most; ++k) {
      const std::int32_t x = insideOf(column.place.x + a.firstX + k, a.seenWidth, a.clamps);
      offsets[k] = k < a.kernelWidth && x >= 0 ? x * pixel : -1;
    }
  }
};

/// What the rows of a window gave, the latest one last. @tparam most rows
template <class Values, int most>
struct RowSums {
  Values values[most];

  __device__ void push(const Values& latest) {
#pragma unroll
    for (int k = 0; k < most - 1; ++k) values[k] = values[k + 1];
    values[most - 1] = latest;
  }
  template <class Visit>
  __device__ void forEach(std::int32_t count, Visit visit) const {
#pragma unroll
    for (int k = 0; k < most; ++k)
      if (k >= most - count) visit(values[k]);
  }
  [[nodiscard]] __device__ Values sum(std::int32_t count) const {
    Values result{};
    forEach(count, [&](const Values& row) {
#pragma unroll
      for (int i = 0; i < static_cast<int>(sizeof(Values) / sizeof(float)); ++i)
        result.values[i] += row.values[i];
    });
    return result;
  }
};

/// Results of windows, or the terms of their gradients. Of local contrast a row gives the sum of its values and of their
/// squared distances from their mean: sums of what is never negative lose nothing.
/// @tparam most of a window's sides
template <class Access, bool isContrast, bool isGradient, int most>
__global__ void __launch_bounds__(kThreads) normalizeWindows(Arguments a) {
  using Values = typename Access::Values;
  constexpr int lanes = Access::lanes;
  using T = typename Access::Type;
  const Column column(a, lanes);
  if (!column.isAny) return;
  RowSums<Values, most> firsts{};
  RowSums<Values, most> seconds{};
  const ColumnOffsets<most> offsets(a, column, a.source.pixel);
  const T* const image = reinterpret_cast<const T*>(a.source.memory) + column.place.image * a.source.image +
                         column.place.channel;
  const auto row = [&](std::int32_t y) {
    Values first{};
    Values second{};
    const std::int32_t inside = insideOf(y, a.seenHeight, a.clamps);
    if (inside >= 0) {
      const T* const from = image + inside * a.source.row;
      Values held[most];
#pragma unroll
      for (int k = 0; k < most; ++k) {
        held[k] = {};
        if (offsets.offsets[k] >= 0) held[k] = Access::loadAt(from + offsets.offsets[k]);
      }
#pragma unroll
      for (int k = 0; k < most; ++k) {
        if (k >= a.kernelWidth) continue;
#pragma unroll
        for (int i = 0; i < lanes; ++i)
          first.values[i] = isContrast ? first.values[i] + held[k].values[i]
                                       : fmaf(held[k].values[i], held[k].values[i], first.values[i]);
      }
      if (isContrast) {
#pragma unroll
        for (int k = 0; k < most; ++k) {
          if (k >= a.kernelWidth) continue;
#pragma unroll
          for (int i = 0; i < lanes; ++i) {
            const float distance = held[k].values[i] - first.values[i] * a.ofRow;
            second.values[i] = fmaf(distance, distance, second.values[i]);
          }
        }
      }
    }
    firsts.push(first);
    if (isContrast) seconds.push(second);
  };
  const auto finish = [&](const ElementPlace& place) {
    const Values sums = firsts.sum(a.kernelHeight);
    float means[lanes];
    float squares[lanes];
#pragma unroll
    for (int i = 0; i < lanes; ++i) {
      means[i] = isContrast ? sums.values[i] * a.ofWindow : 0;
      squares[i] = sums.values[i];
    }
    if (isContrast) {
      const Values distances = seconds.sum(a.kernelHeight);
      const auto width = static_cast<float>(a.kernelWidth);
      float between[lanes]{};
      firsts.forEach(a.kernelHeight, [&](const Values& ofRow) {
#pragma unroll
        for (int i = 0; i < lanes; ++i) {
          const float distance = ofRow.values[i] * a.ofRow - means[i];
          between[i] = fmaf(distance, distance, between[i]);
        }
      });
#pragma unroll
      for (int i = 0; i < lanes; ++i) squares[i] = fmaf(width, between[i], distances.values[i]);
    }
    Values center{};
    const std::int32_t centerY = insideOf(place.y + a.centerY, a.seenHeight, a.clamps);
    const std::int32_t centerX = insideOf(place.x + a.centerX, a.seenWidth, a.clamps);
    if (centerY >= 0 && centerX >= 0)
      center = Access::load(a.source, {place.image, centerY, centerX, place.channel});
    float t[lanes];
    float powers[lanes];
#pragma unroll
    for (int i = 0; i < lanes; ++i) {
      t[i] = fmaf(a.ofSquares, squares[i], a.delta);
      if (isContrast) center.values[i] -= a.p0 * means[i];
    }
    Values result;
    if (!isGradient) {
      negativePowers(a.rule, t, powers, a.isNormal);
#pragma unroll
      for (int i = 0; i < lanes; ++i) {
        const float value = center.values[i] * powers[i];
        result.values[i] = isContrast ? fmaf(a.ps, value, a.pm) : value;
      }
      return Access::store(result, a.destination, place);
    }
    const Values dy = Access::load(a.gradient, place);
    float next[lanes];
    bothNegativePowers(a.rule, t, powers, next, a.isNormal);
    Values sum;
    Values rest;
#pragma unroll
    for (int i = 0; i < lanes; ++i) {
      result.values[i] = dy.values[i] * powers[i];
      sum.values[i] = dy.values[i] * center.values[i] * next[i];
      rest.values[i] = a.ofSum * (sum.values[i] * means[i]) - a.ofMean * result.values[i];
    }
    *reinterpret_cast<Values*>(a.terms.at(0, place)) = result;
    *reinterpret_cast<Values*>(a.terms.at(1, place)) = sum;
    if (isContrast) *reinterpret_cast<Values*>(a.terms.at(2, place)) = rest;
  };
  column.goDown(a, row, finish);
}

/// dX = what the window of which it is the center gives - ofSum X (the sum over the windows that see it) + the sum of the
/// rest of these, times ps.
template <class Access, bool isContrast, int most>
__global__ void __launch_bounds__(kThreads) gatherGradient(Arguments a) {
  using Values = typename Access::Values;
  constexpr int lanes = Access::lanes;
  const Column column(a, lanes);
  if (!column.isAny) return;
  RowSums<Values, most> sums{};
  RowSums<Values, most> rests{};
  const ColumnOffsets<most> offsets(a, column, static_cast<std::int32_t>(a.terms.channels));
  const auto sumOf = [&](int plane, std::int32_t y) {
    Values sum{};
    if (y < 0 || y >= a.seenHeight) return sum;
    const float* const from = a.terms.at(plane, {column.place.image, y, 0, column.place.channel});
    Values held[most];
#pragma unroll
    for (int k = 0; k < most; ++k) {
      held[k] = {};
      if (offsets.offsets[k] >= 0) held[k] = *reinterpret_cast<const Values*>(from + offsets.offsets[k]);
    }
#pragma unroll
    for (int k = 0; k < most; ++k) {
#pragma unroll
      for (int i = 0; i < lanes; ++i) sum.values[i] += held[k].values[i];
    }
    return sum;
  };
  const auto row = [&](std::int32_t y) {
    sums.push(sumOf(1, y));
    if (isContrast) rests.push(sumOf(2, y));
  };
  const auto finish = [&](const ElementPlace& place) {
    Values result{};
    const ElementPlace from{place.image, place.y + a.centerY, place.x + a.centerX, place.channel};
    const std::int32_t y = place.y + a.firstY;
    const std::int32_t x = place.x + a.firstX;
    // What no window sees has no gradient, whatever the source holds there.
    if (from.y >= 0 && from.y < a.sourceHeight && from.x >= 0 && from.x < a.sourceWidth &&
        y + a.kernelHeight > 0 && y < a.seenHeight && x + a.kernelWidth > 0 && x < a.seenWidth) {
      const Values value = Access::load(a.source, from);
      const Values sum = sums.sum(a.kernelHeight);
      // The window whose center it is lies as far from the first one that sees it as a window's last pixel from its center.
      const ElementPlace window{place.image, y + (a.kernelHeight - 1) / 2, x + (a.kernelWidth - 1) / 2,
                                place.channel};
      if (window.y >= 0 && window.y < a.seenHeight && window.x >= 0 && window.x < a.seenWidth)
        result = *reinterpret_cast<const Values*>(a.terms.at(0, window));
#pragma unroll
      for (int i = 0; i < lanes; ++i)
        result.values[i] = fmaf(-a.ofSum * value.values[i], sum.values[i], result.values[i]);
      if (isContrast) {
        const Values rest = rests.sum(a.kernelHeight);
#pragma unroll
        for (int i = 0; i < lanes; ++i) result.values[i] = a.ps * (result.values[i] + rest.values[i]);
      }
    }
    Access::store(result, a.destination, place, a.accumulate);
  };
  column.goDown(a, row, finish);
}

}  // namespace mps::detail::cuda::sliding_window
