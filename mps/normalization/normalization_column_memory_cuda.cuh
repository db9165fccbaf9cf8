#pragma once

#include "mps/core/element_grid_cuda.cuh"
#include "mps/normalization/normalization_column_sums_cuda.cuh"
#include "mps/normalization/normalization_powers_cuda.cuh"

/// What kernels that go down columns are told, and how what they work on lies in shared memory.
namespace mps::detail::cuda {

inline constexpr int kFewChannels = 3;

/// Threads of four pixels of slices of 64 bytes.
inline constexpr int kSliceThreads = 16;
/// And those of pixels of three channels.
template <class T, bool isContrast, bool isGradient>
inline constexpr int kFewThreads = isContrast && !isGradient && sizeof(T) == 2 ? 1 : kFewChannels;

/// How a kernel is built, by what was measured on an H100.
/// @tparam T float or Float16  @tparam threads of four pixels
template <class T, int threads, bool isContrast, bool isGradient>
struct ColumnBuild {
  static constexpr bool isFew = threads <= kFewChannels;
  static constexpr bool isWhole = threads == 1;  ///< a thread has all channels of its pixels
  static constexpr bool isHalf = sizeof(T) == 2;
  static constexpr int lanes =
      isFew ? kFewChannels / threads : 4 / static_cast<int>(sizeof(T));  ///< channels of a thread
  /// Rows are summed before columns: pixels are shorter than what columns have. A thread keeps more of them.
  static constexpr bool isRowsFirst = isWhole || (!isFew && isContrast && (isHalf || !isGradient));
  /// A pixel's adjacent slices in a block are one access of memory: where there is room for two.
  static constexpr int threadsOfBlock = isFew ? 128 : isHalf || (isContrast && !isGradient) ? 256 : 512;
  static constexpr int blocks = isFew && isGradient ? (isContrast || isHalf ? 4 : 5)
                                : isFew             ? (isWhole ? 2 : 8)
                                : isRowsFirst       ? (isGradient ? 1 : 2)
                                : isGradient        ? (isHalf ? 2 : 1)
                                : isHalf            ? 3
                                                    : 2;
  static constexpr int ahead = isRowsFirst && !isGradient ? 2 : 1;  ///< pairs of rows that are on their way
  /// What windows tell their neighbours is added up in the next step, behind the barrier that it begins with.
  static constexpr bool isDelayed = isRowsFirst && isGradient;
  /// Blocks go from image to image. Otherwise those of the slices of one begin together again and again: what they read in a
  /// row of memory stays together.
  static constexpr bool goesOn = isFew || isHalf || isGradient || !isContrast;
  static constexpr int lag =
      (isGradient ? 2 : 1) + (isDelayed ? 1 : 0);  ///< pairs from a source to its results
  /// Pairs of zeros between images. Where it is one, windows between images see both, and nobody looks at their gradients; the
  /// branch around those costs a kernel of many registers more than a second pair.
  static constexpr int gap = isDelayed ? 2 : 1;
};

struct ColumnArguments {
  Divider segments;        ///< fours of pixels of a row
  Divider pairs;           ///< of rows of an image
  Divider slicesPerBlock;  ///< of an image
  Divider slices;          ///< groups of so many
  std::uint32_t imagesPerBlock = 1;
  std::uint32_t images = 0;
  /// Of each block, and how many of the first ones of a group of slices have one more.
  std::uint32_t pairsPerBlock = 0, blocksWithMore = 0;
  std::int32_t height = 0;
  std::int32_t width = 0;
  bool accumulate = false;
  bool isNormal = false;  ///< T is no smaller than delta, which is a normal number
  SourceView source;
  SourceView gradient;
  ResultView destination;
  float ofWindow = 1;  ///< 1 / taps
  float delta = 0;
  float ofSquares = 0;  ///< times what Moments has as squares
  float p0 = 0, pm = 0, ps = 1;
  float ofSum = 0;   ///< 2 alpha beta / taps
  float ofMean = 0;  ///< p0 / taps
  PowerRule rule{1.0F};
};

/// How an item, a slice of an image, lies in shared memory: pairs of rows of the source and of the gradient, then what
/// threads tell their neighbours, of pairs of rows, too. Both rows of four columns of a slice lie beside one another.
template <class T, int threads, bool isContrast, bool isGradient>
struct ColumnMemory {
  using Build = ColumnBuild<T, threads, isContrast, isGradient>;
  static constexpr int sourcePairs = 3 + Build::ahead + (Build::isDelayed ? 1 : 0);
  static constexpr int gradientPairs = isGradient ? 1 + Build::ahead : 0;
  /// Of delayed gradients those of two steps.
  static constexpr int exchanges =
      (isGradient ? 1 : 0) + (Build::isRowsFirst ? 0 : 1) + (Build::isDelayed ? 1 : 0);
  static constexpr int exchangedBytes = (isContrast ? 2 : 1) * Build::lanes * 4;  ///< of a thread's column
  static constexpr int column = threads * Build::lanes * static_cast<int>(sizeof(T));
  static constexpr int exchangedColumn = threads * exchangedBytes;
  /// From one four of columns to the next: fours of narrow columns lie in different banks.
  static constexpr int segment = Build::isFew ? kColumns * column : 2 * kColumns * column + column % 128;
  static constexpr int exchangedSegment =
      2 * kColumns * exchangedColumn + (128 + exchangedColumn - 2 * kColumns * exchangedColumn % 128) % 128;
  /// Zeros on the left of each pair of rows, or of each row of few channels, which are those on the right of the one before.
  static constexpr int zeros = !Build::isRowsFirst ? 0 : Build::isFew ? 16 : segment;

  std::int32_t segments;

  __host__ __device__ explicit ColumnMemory(std::int32_t segmentsOfRow) : segments(segmentsOfRow) {}
  /// From the first row of a pair to the second.
  [[nodiscard]] __host__ __device__ std::int32_t row() const {
    return Build::isFew ? segments * segment + zeros : kColumns * column;
  }
  [[nodiscard]] __host__ __device__ std::int32_t pair() const {
    return Build::isFew ? 2 * row() : segments * segment + zeros;
  }
  [[nodiscard]] __host__ __device__ std::int32_t pairs() const {
    return (sourcePairs + gradientPairs) * pair() + zeros;
  }
  /// With fours of zeros at both ends.
  [[nodiscard]] __host__ __device__ std::int32_t exchange() const {
    return (segments + 2) * exchangedSegment;
  }
  /// Of few channels the next item's threads go on in the banks behind those of this one's.
  [[nodiscard]] __host__ __device__ std::int32_t bytes() const {
    const std::int32_t all = (pairs() + exchanges * exchange() + 15) / 16 * 16;
    if constexpr (!Build::isFew) return all;
    const std::int32_t banks = (segments * (exchanges > 0 ? exchangedColumn : segment) + 15) / 16 * 16;
    return all + (banks % 128 - all % 128 + 128) % 128;
  }
  /// From the first of a thread's columns to column -2 ... 5.
  [[nodiscard]] __device__ static constexpr int toColumn(int number) {
    const int gap = segment - kColumns * column;
    return number * column + (number < 0 ? -gap : number < kColumns ? 0 : gap);
  }
  [[nodiscard]] __device__ static constexpr int toExchangedColumn(int number) {
    const int gap = exchangedSegment - kColumns * exchangedColumn;
    return number * exchangedColumn + (number < 0 ? -gap : number < kColumns ? 0 : gap);
  }
};

template <int lanes>
struct alignas((lanes & (lanes - 1)) == 0 ? lanes * sizeof(float) : sizeof(float)) ColumnLanes {
  float values[lanes];
};
/// Of a thread's channels of a pixel as memory has them.
__device__ inline ColumnLanes<1> columnLanesOf(unsigned bits, const float* /*type*/) {
  return {{__uint_as_float(bits)}};
}
__device__ inline ColumnLanes<1> columnLanesOf(unsigned short bits, const Float16* /*type*/) {
  return {{__half2float(__ushort_as_half(bits))}};
}
__device__ inline ColumnLanes<2> columnLanesOf(unsigned bits, const Float16* /*type*/) {
  const float2 two = halvesOf(bits);
  return {{two.x, two.y}};
}
__device__ inline void putColumnLanes(const float (&values)[1], unsigned* to) {
  *to = __float_as_uint(values[0]);
}
__device__ inline void putColumnLanes(const float (&values)[1], unsigned short* to) {
  *to = __half_as_ushort(__float2half_rn(values[0]));
}
__device__ inline void putColumnLanes(const float (&values)[2], unsigned* to) {
  *to = toHalves(values[0], values[1]);
}

/// The block's dynamic shared memory.
__device__ inline std::byte* sharedMemory() {
  extern __shared__ uint4 columnMemory[];
  return reinterpret_cast<std::byte*>(columnMemory);
}

/// Sixteen bytes of each row of an item, which a thread brings to shared memory, or from there. What lies beside them in
/// memory other blocks are going to fetch.
/// @tparam Element const where the tensor is read  @tparam isFew some threads have nothing in rows
template <class Element, bool isFew>
struct ColumnPiece {
  Element* row = nullptr;  ///< the next one
  bool isThere = false;

  /// Begins to copy a row; zeros where nothing is there. @param shared where to  @param bytes behind both
  __device__ void fetch(std::int32_t shared, std::int32_t bytes, bool isRow) const {
    if (isThere || !isFew)
      asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;"
                   :
                   : "r"(static_cast<unsigned>(__cvta_generic_to_shared(sharedMemory() + shared + bytes))),
                     "l"(reinterpret_cast<const std::byte*>(row) + bytes), "r"(isRow && isThere ? 16 : 0)
                   : "memory");
  }
  __device__ void store(std::int32_t shared, std::int32_t bytes, bool accumulate) const {
    if (!isThere) return;
    auto* const to = reinterpret_cast<uint4*>(reinterpret_cast<std::byte*>(row) + bytes);
    uint4 pack = *reinterpret_cast<const uint4*>(sharedMemory() + shared + bytes);
    if (sizeof(Element) == sizeof(float) && accumulate) {
      const uint4 old = *to;
      pack = {sumOfBits(old.x, pack.x), sumOfBits(old.y, pack.y), sumOfBits(old.z, pack.z),
              sumOfBits(old.w, pack.w)};
    }
    *to = pack;
  }

 private:
  __device__ static unsigned sumOfBits(unsigned a, unsigned b) {
    return __float_as_uint(__uint_as_float(a) + __uint_as_float(b));
  }
};

}  // namespace mps::detail::cuda
