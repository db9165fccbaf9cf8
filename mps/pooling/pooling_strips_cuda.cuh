#pragma once

#include <type_traits>

#include "mps/core/special_functions_cuda.cuh"
#include "mps/pooling/pooling_strip_arguments_cuda.cuh"
#include "mps/pooling/pooling_vectors_cuda.cuh"

/// Pooling with the windows that networks use. A thread goes down a strip of rows at one column and 16 bytes of
/// channels, so that a row is read once for all windows of the strip; the next row is on its way meanwhile.
namespace mps::detail::cuda {

/// Blocks of a multiprocessor at least: what registers are left for. Places of maxima take many.
inline constexpr unsigned kStripBlocks = 3;
inline constexpr unsigned kPlaceStripBlocks = 2;

/// What a thread works on: lines `line`, `line` + dilation ..., and a column, of windows or cells.
struct StripPlace {
  std::int32_t image;
  std::int32_t line;
  std::int32_t count;  ///< of lines
  std::int32_t column;
  std::int32_t channel;

  __device__ StripPlace(const StripArguments& a, std::uint32_t thread, int lanes) {
    const std::uint32_t dilation = a.y.byDilation.divisor();
    const std::uint32_t pixel = a.packs.divide(thread);
    const std::uint32_t row = a.columns.divide(pixel);
    const std::uint32_t picture = a.strips.divide(row);
    const std::uint32_t strip = row - picture * a.strips.divisor();
    const std::uint32_t part = a.y.byDilation.divide(strip);
    image = static_cast<std::int32_t>(picture);
    column = static_cast<std::int32_t>(pixel - row * a.columns.divisor());
    channel = static_cast<std::int32_t>(thread - pixel * a.packs.divisor()) * lanes;
    const std::uint32_t first = strip - part * dilation + part * a.length * dilation;
    line = static_cast<std::int32_t>(first);
    count =
        first >= a.lines
            ? 0
            : static_cast<std::int32_t>(min(a.length, a.y.byDilation.divide(a.lines - first + dilation - 1)));
  }
};

__device__ inline uint4 loadPack(const void* from) {
  return __ldg(static_cast<const uint4*>(from));
}
/// Keeps an address from being computed again from its parts wherever it is used.
template <class T>
__device__ T* settled(T* address) {
  asm("" : "+l"(address));
  __builtin_assume(__isGlobal(address));
  return address;
}

/// The maxima of some taps, and their numbers.
template <class T>
struct Maxima;

template <>
struct Maxima<float> {
  float value[4];
  unsigned tap[4];

  static constexpr unsigned kLeast = 0xFF800000U;  ///< minus infinity

  __device__ static Maxima of(const uint4& pack) {
    return {
        {__uint_as_float(pack.x), __uint_as_float(pack.y), __uint_as_float(pack.z), __uint_as_float(pack.w)},
        {0, 0, 0, 0}};
  }
  /// Taps that come later; their numbers begin at `first`.
  __device__ void join(const Maxima& later, unsigned first) {
#pragma unroll
    for (int lane = 0; lane < 4; ++lane) {
      if (later.value[lane] <= value[lane] || value[lane] != value[lane]) continue;
      value[lane] = later.value[lane];
      tap[lane] = later.tap[lane] + first;
    }
  }
  __device__ void joinOutsideZero() {
#pragma unroll
    for (int lane = 0; lane < 4; ++lane) {
      if (!(value[lane] < 0)) continue;
      value[lane] = 0;
      tap[lane] = kNoIndex;
    }
  }
  __device__ void dropCutOff() {
#pragma unroll
    for (int lane = 0; lane < 4; ++lane)
      if (isCutOff(value[lane])) tap[lane] = kNoIndex;
  }
  [[nodiscard]] __device__ uint4 pack() const {
    return {__float_as_uint(value[0]), __float_as_uint(value[1]), __float_as_uint(value[2]),
            __float_as_uint(value[3])};
  }
  [[nodiscard]] __device__ IndexBytes<4> places() const {
    return {{tap[0] | tap[1] << 8U | tap[2] << 16U | tap[3] << 24U}};
  }
};

__device__ inline __half2 halves(unsigned bits) {
  __half2 both;
  memcpy(&both, &bits, sizeof both);
  return both;
}

/// Two lanes in a word, also of taps.
template <>
struct Maxima<Float16> {
  unsigned value[4];
  unsigned tap[4];

  static constexpr unsigned kLeast = 0xFC00FC00U;

  __device__ static Maxima of(const uint4& pack) { return {{pack.x, pack.y, pack.z, pack.w}, {0, 0, 0, 0}}; }
  __device__ void join(const Maxima& later, unsigned first) {
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const __half2 known = halves(value[pair]);
      const unsigned wins = __hgtu2_mask(halves(later.value[pair]), known) & __heq2_mask(known, known);
      value[pair] = (later.value[pair] & wins) | (value[pair] & ~wins);
      tap[pair] = ((later.tap[pair] + first * 0x00010001U) & wins) | (tap[pair] & ~wins);
    }
  }
  __device__ void joinOutsideZero() {
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const unsigned wins = __hlt2_mask(halves(value[pair]), halves(0));
      value[pair] &= ~wins;
      tap[pair] |= wins & (kNoIndex * 0x00010001U);  // all bits of a byte
    }
  }
  __device__ void dropCutOff() {
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const unsigned signs = (value[pair] & 0x80008000U) >> 15U;
      const unsigned cutOff = signs * 0xFFFFU & __heq2_mask(halves(value[pair]), halves(value[pair]));
      tap[pair] |= cutOff & (kNoIndex * 0x00010001U);
    }
  }
  [[nodiscard]] __device__ uint4 pack() const {
    return {value[0], value[1], value[2], value[3]};
  }
  [[nodiscard]] __device__ IndexBytes<8> places() const {
    return {{__byte_perm(tap[0], tap[1], 0x6420), __byte_perm(tap[2], tap[3], 0x6420)}};
  }
};

/// The maxima alone, two lanes in a word of halves.
template <class T>
struct MaximumValues {
  unsigned word[4];

  __device__ static MaximumValues of(const uint4& pack) { return {{pack.x, pack.y, pack.z, pack.w}}; }
  __device__ void join(const MaximumValues& later, unsigned /*first*/) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (sizeof(T) == sizeof(float)) {
        word[i] = __float_as_uint(largerOrNaN(__uint_as_float(word[i]), __uint_as_float(later.word[i])));
      } else {
        const __half2 larger = __hmax2_nan(halves(word[i]), halves(later.word[i]));
        memcpy(&word[i], &larger, sizeof larger);
      }
    }
  }
  __device__ void joinOutsideZero() {
    join({{0, 0, 0, 0}}, 0);
  }
  [[nodiscard]] __device__ uint4 pack() const {
    return {word[0], word[1], word[2], word[3]};
  }
};

/// What a row of taps, or a window, comes to. Taps outside the source are outside().
/// @tparam places whether those of maxima are wanted
template <class T, PoolingKind kind, bool places = false>
struct WindowSum {
  Lanes<T> sum;

  __device__ static uint4 outside() { return {0, 0, 0, 0}; }
  template <int taps>
  __device__ static WindowSum ofRow(const uint4 (&packs)[taps]) {
    WindowSum row{};
#pragma unroll
    for (int p = 0; p < taps; ++p) {
      const Lanes<T> values = lanesOf(packs[p], static_cast<const T*>(nullptr));
#pragma unroll
      for (int lane = 0; lane < kLanes<T>; ++lane) {
        const float value = values.values[lane];
        const float term = kind == PoolingKind::L2Norm ? value * value : value;
        if (p == 0)
          row.sum.values[lane] = term;
        else if (kind == PoolingKind::L2Norm)
          row.sum.values[lane] = fmaf(value, value, row.sum.values[lane]);
        else
          row.sum.values[lane] += value;
      }
    }
    return row;
  }
  __device__ void join(const WindowSum& below, int /*firstTap*/) {
#pragma unroll
    for (int lane = 0; lane < kLanes<T>; ++lane) sum.values[lane] += below.sum.values[lane];
  }
};

template <class T, bool places>
struct WindowSum<T, PoolingKind::Max, places> {
  using Values = std::conditional_t<places, Maxima<T>, MaximumValues<T>>;
  Values maxima;

  __device__ static uint4 outside() {
    constexpr unsigned least = Maxima<T>::kLeast;  // where an outside zero wins, it wins over this, too
    return {least, least, least, least};
  }
  template <int taps>
  __device__ static WindowSum ofRow(const uint4 (&packs)[taps]) {
    WindowSum row{Values::of(packs[0])};
#pragma unroll
    for (int p = 1; p < taps; ++p) row.maxima.join(Values::of(packs[p]), p);
    return row;
  }
  __device__ void join(const WindowSum& below, int firstTap) {
    maxima.join(below.maxima, static_cast<unsigned>(firstTap));
  }
};

/// All lines of the strip's windows. @param destination null: only places are wanted
/// @param saved of places
template <class T, PoolingKind kind, int kernelSize, int stride, bool places = false>
__global__ void __launch_bounds__(kStripThreads, places ? kPlaceStripBlocks : kStripBlocks)
    poolStrips(StripArguments a, const T* source, T* destination, std::uint8_t* saved) {
  constexpr int lanes = kLanes<T>;
  constexpr int kept = kernelSize - stride;  // rows that the next window reads, too
  using Sum = WindowSum<T, kind, places>;
  const std::uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  if (thread >= a.threads) return;
  const StripPlace at(a, thread, lanes);
  if (at.count == 0) return;

  const T* columns[kernelSize];
  bool isColumnInside[kernelSize];
  bool isPartialColumn = false;
#pragma unroll
  for (int p = 0; p < kernelSize; ++p) {
    const std::int32_t x = a.x.firstTap(at.column) + a.x.dilation * p;
    isColumnInside[p] = x >= 0 && x < a.x.sourceSize;
    isPartialColumn = isPartialColumn || !isColumnInside[p];
    columns[p] = settled(source + at.image * a.source.image + at.channel + a.x.clamped(x) * a.source.pixel);
  }
  std::int32_t y = a.y.firstTap(at.line);
  const auto loadRow = [&](uint4(&packs)[kernelSize]) {
    const bool isInside = y >= 0 && y < a.y.sourceSize;
    const std::int32_t row = a.y.clamped(y) * static_cast<std::int32_t>(a.source.row);
    if (a.clamps || (isInside && !isPartialColumn)) {
#pragma unroll
      for (int p = 0; p < kernelSize; ++p) packs[p] = loadPack(columns[p] + row);
    } else {
#pragma unroll
      for (int p = 0; p < kernelSize; ++p) {
        packs[p] = Sum::outside();
        if (isInside && isColumnInside[p]) packs[p] = loadPack(columns[p] + row);
      }
    }
    y += a.y.dilation;
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
  Sum rows[kernelSize];
#pragma unroll
  for (int q = 0; q < kept; ++q) rows[q] = Sum::ofRow(first[q]);

  T* to = settled(destination + at.image * a.destination.image + at.channel + at.line * a.destination.row +
                  at.column * a.destination.pixel);
  std::uint8_t* place = settled(saved + at.image * a.savedImage + at.channel + at.line * a.savedRow +
                                static_cast<std::int64_t>(at.column) * a.savedPixel);
  const std::int64_t toNext = a.y.dilation * a.destination.row;
  const std::int64_t placeNext = a.y.dilation * a.savedRow;
  std::int32_t window = at.line;
  std::int32_t countedColumns = 0;
  if constexpr (kind == PoolingKind::Average) countedColumns = a.x.countedTaps(at.column, a.countsNearTaps);
  // Where rows were moved from one array to another, their loads would be waited for.
  const auto finishWindow = [&](std::int32_t i, uint4(&packs)[stride][kernelSize]) {
#pragma unroll
    for (int k = 0; k < stride; ++k) rows[kept + k] = Sum::ofRow(packs[k]);
    if (i + ahead < at.count) {
#pragma unroll
      for (int k = 0; k < stride; ++k) loadRow(packs[k]);
    }
    Sum sum = rows[0];
#pragma unroll
    for (int q = 1; q < kernelSize; ++q) sum.join(rows[q], kernelSize * q);
#pragma unroll
    for (int q = 0; q < kept; ++q) rows[q] = rows[q + stride];

    if constexpr (kind == PoolingKind::Max) {
      const std::int32_t first = a.y.firstTap(window);
      const bool isPartial = isPartialColumn || first < 0 || first + a.y.dilatedSize > a.y.sourceSize;
      if (a.zeroWins && isPartial) sum.maxima.joinOutsideZero();
      if (destination != nullptr) *reinterpret_cast<uint4*>(to) = sum.maxima.pack();
      if constexpr (places) {
        if (a.afterReLU) sum.maxima.dropCutOff();
        sum.maxima.places().store(place);
      }
    } else {
      if constexpr (kind == PoolingKind::Average)
        divideByTaps(a, a.y.countedTaps(window, a.countsNearTaps) * countedColumns, sum.sum);
      else
        for (float& value : sum.sum.values) value = sqrtf(value);
      storeLanes(sum.sum, to);
    }
    to += toNext;
    place += placeNext;
    window += a.y.dilation;
  };
  for (std::int32_t i = 0; i < at.count; i += ahead)
#pragma unroll
    for (int w = 0; w < ahead; ++w)
      if (i + w < at.count) finishWindow(i + w, next[w]);
}

}  // namespace mps::detail::cuda
