#pragma once

#include <type_traits>

#include "mps/pooling/cuda/pooling_vectors_cuda.cuh"

/// Pooling with the windows that networks use: 2x2 and 3x3 at strides 1 and 2. A thread slides down a column with 16
/// bytes of channels, so that a row is read once for all windows that share it; what comes next is on its way
/// meanwhile.
namespace mps::detail::cuda {

inline constexpr unsigned kSlidingThreads = 256;
/// Blocks of a multiprocessor at least: what registers are left for.
inline constexpr unsigned kSlidingBlocks = 2;

/// One call. Lines and columns are those of the windows, or, in a gradient, of cells: stride x stride pixels, of which
/// the first one is tap 0 of a window.
struct SlidingArguments : PoolingArguments {
  Divider columns;
  Divider parts;  ///< of a column
  std::uint32_t lines = 0;
  std::uint32_t length = 1;  ///< most lines of a part
  std::uint32_t threads = 0;
  std::int32_t firstLine = 0;  ///< number of the first line's and column's window
  std::int32_t firstColumn = 0;
  std::int64_t savedImage = 0;  ///< distances in saved indices
  std::int64_t savedRow = 0;
  std::int64_t savedPixel = 0;

  SlidingArguments() = default;
  explicit SlidingArguments(const PoolingProblem& problem)
      : PoolingArguments(problem),
        savedImage(problem.y.destinationSize * problem.x.destinationSize * problem.source.channels),
        savedRow(problem.x.destinationSize * problem.source.channels),
        savedPixel(problem.source.channels) {}
  /// @param longest lines of a part
  void cover(std::int64_t images, std::int64_t lineCount, std::int64_t columnCount, std::int64_t vectorCount,
             std::int64_t longest);
  [[nodiscard]] unsigned blocks() const {
    return std::max(1U, (threads + kSlidingThreads - 1) / kSlidingThreads);
  }
};

/// Addresses of a call; all but those that PoolingProblem says are not used are multiples of 16.
template <class T>
struct PoolingAddresses {
  const T* source;
  const T* gradient;
  T* destination;
  std::uint8_t* saved;
};

/// Prepares and starts the kernels.
class SlidingWindows {
 public:
  /// Why a problem that PoolingArguments fit is not taken, or "".
  static std::string objectionTo(const PoolingProblem& problem);

  explicit SlidingWindows(const PoolingProblem& problem);

  /// The forward pass. The destination may be null where a tap is selected, or the saved indices.
  template <class T>
  void pool(mtl::Stream& stream, const PoolingAddresses<T>& at) const;
  /// The gradient of what selects a tap, from saved indices, and of linear functions.
  template <class T>
  void gather(mtl::Stream& stream, const PoolingAddresses<T>& at, bool accumulate) const;

 private:
  PoolingKind kind_;
  SlidingArguments windows_;
  SlidingArguments cells_;
};

/// What a thread works on: some lines of a column.
struct SlidingPlace {
  std::int32_t image;
  std::int32_t line;
  std::int32_t count;  ///< of lines
  std::int32_t column;
  std::int32_t channel;

  __device__ SlidingPlace(const SlidingArguments& a, std::uint32_t thread, int lanes) {
    const std::uint32_t pixel = a.vectors.divide(thread);
    const std::uint32_t part = a.columns.divide(pixel);
    const std::uint32_t picture = a.parts.divide(part);
    const std::uint32_t first = (part - picture * a.parts.divisor()) * a.length;
    image = static_cast<std::int32_t>(picture);
    column = static_cast<std::int32_t>(pixel - part * a.columns.divisor());
    channel = static_cast<std::int32_t>(thread - pixel * a.vectors.divisor()) * lanes;
    line = static_cast<std::int32_t>(first);
    count = first >= a.lines ? 0 : static_cast<std::int32_t>(min(a.length, a.lines - first));
  }
};

/// What some taps, in row-major order, come to. Taps outside the source are outside().
/// @tparam hasTaps whether the numbers of the selected ones are wanted
template <class Operation, class T, bool hasTaps>
struct WindowPart {
  static constexpr int kLanes = cuda::kLanes<T>;
  Lanes<T> value;
  std::int32_t tap[hasTaps ? kLanes : 1];

  __device__ static uint4 outside() {
    if constexpr (!Operation::kTraits.selects) return {0, 0, 0, 0};
    // Minus infinity. Where an outside zero wins, it wins over this, too.
    constexpr unsigned least = sizeof(T) == sizeof(float) ? 0xFF800000U : 0xFC00FC00U;
    return {least, least, least, least};
  }
  /// A row of taps, the first of which has number 0.
  template <int taps>
  __device__ static WindowPart ofRow(const uint4 (&vectors)[taps]) {
    WindowPart row{};
#pragma unroll
    for (int p = 0; p < taps; ++p) {
      WindowPart one{lanesOf(vectors[p], static_cast<const T*>(nullptr))};
      for (float& v : one.value.values) v = Operation::first(v);
      if (p == 0)
        row = one;
      else
        row.join(one, p);
    }
    return row;
  }
  /// Adds taps that come later; their numbers begin at `first`.
  __device__ void join(const WindowPart& later, int first) {
#pragma unroll
    for (int lane = 0; lane < kLanes; ++lane) {
      float& known = value.values[lane];
      const float next = later.value.values[lane];
      if constexpr (!hasTaps) {
        known = Operation::merge(known, next);
      } else {
        const bool wins = !(next <= known) && known == known;
        known = wins ? next : known;
        tap[lane] = wins ? later.tap[lane] + first : tap[lane];
      }
    }
  }
  /// Lets an outside zero win where it is greater.
  __device__ void joinOutsideZero() {
#pragma unroll
    for (int lane = 0; lane < kLanes; ++lane) {
      if (!(value.values[lane] < 0)) continue;
      value.values[lane] = 0;
      if constexpr (hasTaps) tap[lane] = kNoIndex;
    }
  }
  /// Stores the taps. @param firstRow, firstColumn the first ones inside the source, see TapsOfMaximum
  __device__ void storeTaps(const SlidingArguments& a, int kernelSize, std::int32_t firstRow,
                            std::int32_t firstColumn, std::uint8_t* to) {
#pragma unroll
    for (int lane = 0; lane < kLanes; ++lane) {
      if (a.clamps && (firstRow > 0 || firstColumn > 0))
        tap[lane] =
            max(tap[lane] % kernelSize, firstColumn) + kernelSize * max(tap[lane] / kernelSize, firstRow);
      if (a.afterReLU && isCutOffByReLU(value.values[lane])) tap[lane] = kNoIndex;
    }
    IndexBytes<kLanes>::of(tap).store(to);
  }
};

__device__ inline uint4 loadVector(const void* from) {
  return __ldg(static_cast<const uint4*>(from));
}

/// The windows of a part. @param destination null: only the taps are wanted
/// @param saved of taps
template <class Operation, class T, int kernelSize, int stride, bool hasTaps>
__global__ void __launch_bounds__(kSlidingThreads, kSlidingBlocks)
    slideWindows(SlidingArguments a, const T* source, T* destination, std::uint8_t* saved) {
  constexpr int kept = kernelSize - stride;  // rows that the next window reads, too
  using Part = WindowPart<Operation, T, hasTaps>;
  const std::uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  if (thread >= a.threads) return;
  const SlidingPlace at(a, thread, kLanes<T>);
  if (at.count == 0) return;

  const std::int32_t firstX = a.x.firstTap(at.column);
  const T* columns[kernelSize];
  bool isColumnInside[kernelSize];
  bool isPartialColumn = false;
#pragma unroll
  for (int p = 0; p < kernelSize; ++p) {
    const std::int32_t x = firstX + p;
    isColumnInside[p] = x >= 0 && x < a.x.sourceSize;
    isPartialColumn = isPartialColumn || !isColumnInside[p];
    columns[p] = source + at.image * a.source.image + at.channel + a.x.clamped(x) * a.source.pixel;
  }
  std::int32_t y = a.y.firstTap(at.line);
  const auto loadRow = [&](uint4(&vectors)[kernelSize]) {
    const bool isInside = y >= 0 && y < a.y.sourceSize;
    const std::int64_t row = a.y.clamped(y) * a.source.row;
#pragma unroll
    for (int p = 0; p < kernelSize; ++p) {
      vectors[p] = Part::outside();
      if (a.clamps || (isInside && isColumnInside[p])) vectors[p] = loadVector(columns[p] + row);
    }
    ++y;
  };

  constexpr int ahead = 2 / stride;  // windows whose rows are on their way
  uint4 first[kept + 1][kernelSize];
  uint4 next[ahead][stride][kernelSize];
#pragma unroll
  for (int q = 0; q < kept; ++q) loadRow(first[q]);
#pragma unroll
  for (int w = 0; w < ahead; ++w)
#pragma unroll
    for (int k = 0; k < stride; ++k)
      if (w < at.count) loadRow(next[w][k]);
  Part rows[kernelSize];
#pragma unroll
  for (int q = 0; q < kept; ++q) rows[q] = Part::ofRow(first[q]);

  constexpr bool selects = Operation::kTraits.selects;
  constexpr bool countsTaps = Operation::kTraits.countsTaps;
  const std::int32_t countedColumns = countsTaps ? a.x.countedTaps(at.column, a.countsNearTaps) : 0;
  std::int32_t window = at.line;
  // Where rows were moved from one array to another, their loads would be waited for.
  const auto finishWindow = [&](std::int32_t i, uint4(&vectors)[stride][kernelSize]) {
#pragma unroll
    for (int k = 0; k < stride; ++k) rows[kept + k] = Part::ofRow(vectors[k]);
    if (i + ahead < at.count) {
#pragma unroll
      for (int k = 0; k < stride; ++k) loadRow(vectors[k]);
    }
    Part part = rows[0];
#pragma unroll
    for (int q = 1; q < kernelSize; ++q) part.join(rows[q], kernelSize * q);
#pragma unroll
    for (int q = 0; q < kept; ++q) rows[q] = rows[q + stride];

    const std::int32_t firstY = a.y.firstTap(window);
    if constexpr (selects) {
      const bool isPartial = isPartialColumn || firstY < 0 || firstY + kernelSize > a.y.sourceSize;
      if (a.zeroWins && isPartial) part.joinOutsideZero();
      if constexpr (hasTaps)
        part.storeTaps(
            a, kernelSize, -firstY, -firstX,
            saved + at.image * a.savedImage + window * a.savedRow + at.column * a.savedPixel + at.channel);
    } else {
      finish<Operation>(
          a, countsTaps ? a.y.countedTaps(window, a.countsNearTaps) * countedColumns : a.allTaps, part.value);
    }
    if (destination != nullptr)
      storeLanes(part.value, destination + at.image * a.destination.image + window * a.destination.row +
                                 at.column * a.destination.pixel + at.channel);
    ++window;
  };
  for (std::int32_t i = 0; i < at.count; i += ahead)
#pragma unroll
    for (int w = 0; w < ahead; ++w)
      if (i + w < at.count) finishWindow(i + w, next[w]);
}

/// `kernelSize` over the taps of a window that count: exact for sizes up to 3.
template <int kernelSize>
__device__ float weightOf(std::int32_t taps) {
  if (taps == kernelSize) return 1.0F;
  return kernelSize == 3 && taps == 2 ? 1.5F : static_cast<float>(kernelSize);
}

/// The gradient for the cells of a part: a row of windows is read once and added to all rows of pixels that its taps
/// read.
template <class Operation, class T, int kernelSize, int stride>
__global__ void __launch_bounds__(kSlidingThreads, kSlidingBlocks)
    slideCells(SlidingArguments a, const T* gradient, const std::uint8_t* saved, T* destination) {
  constexpr int lanes = kLanes<T>;
  constexpr int reach = (kernelSize + stride - 1) / stride;  // windows of an axis that read a cell
  constexpr bool selects = Operation::kTraits.selects;
  const std::uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  if (thread >= a.threads) return;
  const SlidingPlace at(a, thread, lanes);
  if (at.count == 0) return;

  const std::int32_t cellX = a.firstColumn + at.column;
  const std::int32_t firstX = a.x.firstTap(cellX);
  bool isColumn[reach];
  float weights[reach];
#pragma unroll
  for (int b = 0; b < reach; ++b) {
    isColumn[b] = cellX - b >= 0 && cellX - b < a.x.windows;
    weights[b] = selects ? 1.0F : weightOf<kernelSize>(a.x.countedTaps(cellX - b, a.countsNearTaps));
  }
  struct WindowRow {
    uint4 gradients[reach];
    IndexBytes<lanes> chosen[selects ? reach : 1];
  };
  // What is outside are zeros, which change no sum whatever tap they have chosen.
  const auto load = [&](std::int32_t row, WindowRow& to) {
#pragma unroll
    for (int b = 0; b < reach; ++b) {
      to.gradients[b] = {0, 0, 0, 0};
      if constexpr (selects) to.chosen[b] = {};
      if (!isColumn[b] || row < 0 || row >= a.y.windows) continue;
      to.gradients[b] = loadVector(gradient + at.image * a.gradient.image + row * a.gradient.row +
                                   (cellX - b) * a.gradient.pixel + at.channel);
      if constexpr (selects)
        to.chosen[b] = IndexBytes<lanes>::load(saved + at.image * a.savedImage + row * a.savedRow +
                                               (cellX - b) * a.savedPixel + at.channel);
    }
  };

  float sums[kernelSize][stride][lanes] = {};  // of rows of pixels, from the one that tap row 0 reads
  const auto store = [&](std::int32_t y, const float(&ofRow)[stride][lanes]) {
    if (y < a.originY || y - a.originY >= a.viewHeight) return;
#pragma unroll
    for (int dx = 0; dx < stride; ++dx) {
      const std::int32_t x = firstX + dx;
      if (x < a.originX || x - a.originX >= a.viewWidth) continue;
      Lanes<T> result{};
      if (y >= 0 && y < a.y.sourceSize && x >= 0 && x < a.x.sourceSize)
#pragma unroll
        for (int lane = 0; lane < lanes; ++lane)
          if constexpr (selects)
            result.values[lane] = ofRow[dx][lane];
          else
            result.values[lane] = Operation::share(ofRow[dx][lane], a.byAllTaps);
      T* const to = destination + at.image * a.destination.image + (y - a.originY) * a.destination.row +
                    (x - a.originX) * a.destination.pixel + at.channel;
      if (a.accumulate) addTo(to, result);
      storeLanes(result, to);
    }
  };

  std::int32_t row = a.firstLine + at.line - (reach - 1);
  WindowRow next;
  load(row, next);
#pragma unroll 1
  for (std::int32_t i = 1 - reach; i < at.count; ++i, ++row) {
    const WindowRow present = next;
    if (i + 1 < at.count) load(row + 1, next);
    const float rowWeight = selects ? 1.0F : weightOf<kernelSize>(a.y.countedTaps(row, a.countsNearTaps));
#pragma unroll
    for (int b = 0; b < reach; ++b) {
      Lanes<T> g = lanesOf(present.gradients[b], static_cast<const T*>(nullptr));
      if constexpr (!selects)
        for (float& value : g.values) value *= rowWeight * weights[b];
#pragma unroll
      for (int lane = 0; lane < lanes; ++lane) {
        const std::int32_t chosen = selects ? present.chosen[selects ? b : 0].at(lane) : 0;
#pragma unroll
        for (int q = 0; q < kernelSize; ++q)
#pragma unroll
          for (int dx = 0; dx < stride; ++dx) {
            const int p = dx + stride * b;
            if (p < kernelSize && (!selects || chosen == p + kernelSize * q))
              sums[q][dx][lane] += g.values[lane];
          }
      }
    }
    if (i >= 0)
#pragma unroll
      for (int dy = 0; dy < stride; ++dy) store(a.y.firstTap(row) + dy, sums[dy]);
#pragma unroll
    for (int q = 0; q < kernelSize; ++q)
#pragma unroll
      for (int dx = 0; dx < stride; ++dx)
#pragma unroll
        for (int lane = 0; lane < lanes; ++lane)
          sums[q][dx][lane] =
              q + stride < kernelSize ? sums[min(q + stride, kernelSize - 1)][dx][lane] : 0.0F;
  }
}

}  // namespace mps::detail::cuda
