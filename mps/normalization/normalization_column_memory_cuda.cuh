#pragma once

#include "mps/core/element_grid_cuda.cuh"
#include "mps/normalization/normalization_column_sums_cuda.cuh"
#include "mps/normalization/normalization_powers_cuda.cuh"

/// What kernels that go down columns are told, and how what they work on lies in shared memory.
namespace mps::detail::cuda {

/// Threads of four pixels: those of slices of 64 bytes, and of pixels of three channels.
inline constexpr int kSliceThreads = 16;
inline constexpr int kFewThreads = 3;

/// How a kernel is built, by what was measured on an H100.
/// @tparam T float or Float16  @tparam threads of four pixels
template <class T, int threads, bool isContrast, bool isGradient>
struct ColumnBuild {
  static constexpr bool isFew = threads == kFewThreads;
  static constexpr bool isHalf = sizeof(T) == 2;
  static constexpr int lanes = isFew ? 1 : 4 / static_cast<int>(sizeof(T));  ///< channels of a thread
  /// Rows are summed before columns: pixels are shorter than what columns have. A thread keeps more of them.
  static constexpr bool isRowsFirst = !isFew && isContrast && (isHalf || !isGradient);
  static constexpr int threadsOfBlock = isFew ? 128 : (isContrast || isGradient || isHalf) ? 256 : 512;
  static constexpr int blocks = isFew && isGradient ? (isContrast ? 4 : 5)
                                : isFew             ? (isContrast && isHalf ? 6 : 8)
                                : isRowsFirst       ? (isGradient ? 1 : 2)
                                : isGradient        ? 2
                                : isHalf            ? 3
                                                    : 2;
  static constexpr int ahead = isRowsFirst && !isGradient ? 2 : 1;  ///< pairs of rows that are on their way
};

struct ColumnArguments {
  Divider chunks;    ///< of the rows of an image
  Divider segments;  ///< fours of pixels of a row
  Divider slices;    ///< of an image
  std::uint32_t items = 0;
  std::uint32_t itemsPerBlock = 1;
  std::int32_t rowsPerChunk = 0;  ///< even
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
/// threads tell their neighbours, of pairs of rows, too.
template <class T, int threads, bool isContrast, bool isGradient>
struct ColumnMemory {
  using Build = ColumnBuild<T, threads, isContrast, isGradient>;
  static constexpr int sourcePairs = 3 + Build::ahead;
  static constexpr int gradientPairs = isGradient ? 1 + Build::ahead : 0;
  static constexpr int exchanges = (isGradient ? 1 : 0) + (Build::isRowsFirst ? 0 : 1);
  static constexpr int exchangedBytes = (isContrast ? 2 : 1) * Build::lanes * 4;  ///< of a thread's column
  static constexpr int column = threads * Build::lanes * static_cast<int>(sizeof(T));
  static constexpr int exchangedColumn = threads * exchangedBytes;
  /// From one four of columns to the next: fours of narrow columns lie in different banks.
  static constexpr int segment = kColumns * column + (Build::isFew ? 0 : column % 128);
  static constexpr int exchangedSegment =
      Build::isFew ? exchangedColumn : kColumns * exchangedColumn + exchangedColumn % 128;
  /// Fours of zeros on the left of each row, which are those on the right of the one before.
  static constexpr int zeros = Build::isRowsFirst ? 1 : 0;

  std::int32_t row;
  /// Of few channels one of the four columns of all threads, which are in different banks then.
  std::int32_t exchangedPlane;
  std::int32_t exchangedRow;
  std::int32_t exchange;

  __host__ __device__ explicit ColumnMemory(std::int32_t segments)
      : row((segments + zeros) * segment),
        exchangedPlane((segments + 1) * exchangedSegment),
        exchangedRow((Build::isFew ? kColumns : 1) * exchangedPlane),
        exchange(2 * exchangedRow + kColumns * exchangedSegment) {}
  [[nodiscard]] __host__ __device__ std::int32_t rows() const {
    return (sourcePairs + gradientPairs) * 2 * row + zeros * segment;
  }
  [[nodiscard]] __host__ __device__ std::int32_t bytes() const { return rows() + exchanges * exchange; }
  /// From the first of a thread's columns to column -2 ... 5.
  [[nodiscard]] __device__ static constexpr int toColumn(int number) {
    const int gap = segment - kColumns * column;
    return number * column + (number < 0 ? -gap : number < kColumns ? 0 : gap);
  }
  [[nodiscard]] __device__ int toExchangedColumn(int number) const {
    if constexpr (Build::isFew) {
      const int beside = number < 0 ? -1 : number < kColumns ? 0 : 1;
      return (number - beside * kColumns) * exchangedPlane + beside * exchangedSegment;
    }
    const int gap = exchangedSegment - kColumns * exchangedColumn;
    return number * exchangedColumn + (number < 0 ? -gap : number < kColumns ? 0 : gap);
  }
};

template <int lanes>
struct alignas(lanes * sizeof(float)) ColumnLanes {
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

/// Sixteen bytes of each row of an item, which a thread brings to shared memory, or from there.
/// @tparam Element const where the tensor is read  @tparam isFew some threads have nothing in rows
template <class Element, bool isFew>
struct ColumnPiece {
  Element* row;
  std::int64_t rowStride;
  std::int32_t place;  ///< in a row of shared memory
  bool isThere;

  /// @param element of row 0
  template <class View>
  __device__ ColumnPiece(const View& view, std::int64_t element, std::int32_t firstRow,
                         std::int32_t placeInRow, bool isInside)
      : row(reinterpret_cast<Element*>(view.memory) + element + firstRow * view.row),
        rowStride(view.row),
        place(placeInRow),
        isThere(isInside) {}
  /// Begins to copy a row; zeros where nothing is there.
  __device__ void fetch(std::int32_t shared, bool isRow) {
    if (isThere || !isFew)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                   :
                   : "r"(static_cast<unsigned>(__cvta_generic_to_shared(sharedMemory() + shared + place))),
                     "l"(row), "r"(isRow && isThere ? 16 : 0)
                   : "memory");
    row += rowStride;
  }
  __device__ void store(std::int32_t shared, bool accumulate) {
    if (isThere) {
      auto* const to = reinterpret_cast<uint4*>(row);
      uint4 pack = *reinterpret_cast<const uint4*>(sharedMemory() + shared + place);
      if (sizeof(Element) == sizeof(float) && accumulate) {
        const uint4 old = *to;
        pack = {sumOfBits(old.x, pack.x), sumOfBits(old.y, pack.y), sumOfBits(old.z, pack.z),
                sumOfBits(old.w, pack.w)};
      }
      *to = pack;
    }
    row += rowStride;
  }

 private:
  __device__ static unsigned sumOfBits(unsigned a, unsigned b) {
    return __float_as_uint(__uint_as_float(a) + __uint_as_float(b));
  }
};

}  // namespace mps::detail::cuda
