#pragma once

#include <cuda_pipeline.h>

#include <cstdint>

#include "mps/core/element_grid_cuda.cuh"

/// What kernels for images that become smaller are told, and how rows of the input come to them.
namespace mps::detail::cuda {

/// How the elements of a row are shared out.
enum class ShrinkAccess : std::uint8_t {
  Pixels,   ///< packs of four channels of a pixel; results likewise
  Packs,    ///< packs that go on from pixel to pixel
  Elements  ///< one by one, wherever they lie
};

inline constexpr int kShrinkLanes = 4;      ///< elements of a thread
inline constexpr int kShrinkColumns = 2;    ///< adjacent results that a thread sums at once
inline constexpr int kShrinkSlice = 32;     ///< channels of a block
inline constexpr int kShrinkThreads = 448;  ///< so many as rows of 56 pixels of a slice have packs
inline constexpr int kShrinkBlocks = 2;     ///< of a multiprocessor
inline constexpr int kShrinkRowFloats = 8;
/// In the last number of a row beside how many results have it as their last one: it counts nothing in some places.
inline constexpr std::uint32_t kShrinkHasNothing = 0x80000000U;
/// Results that take the same row: pixels count within three lobes on both sides, each as wide as results are apart, and
/// roundings may let in one more than six.
inline constexpr int kShrinkMostResults = 7;
/// Rows of results whose columns are summed together, where a result has all of its rows every few ones.
inline constexpr int kShrinkRowsOfBatch = 2;
/// Floats from a row of sums in shared memory to the next one: rows begin in different banks.
inline constexpr int kShrinkSums = kShrinkThreads * kShrinkLanes + 16;
/// Pixels of a group of columns where both axes become so many times smaller; 0: any number.
template <int most, int every>
inline constexpr int kShrinkSpan = (most + kShrinkColumns - 1) * every;
/// Rows of a thread that are on their way or in use.
template <class T, ShrinkAccess access>
inline constexpr int kShrinkRowsHeld = access == ShrinkAccess::Elements                  ? 1
                                       : access == ShrinkAccess::Packs && sizeof(T) == 2 ? 2
                                                                                         : 4;

/// The rows of a chunk of results.
struct ShrinkChunk {
  std::int32_t firstRow;     ///< of the input; below 0: there is none
  std::int32_t rows;         ///< of the input, with those behind it
  std::int32_t firstResult;  ///< that ends in these rows
  std::int32_t begin;        ///< of the results that are the chunk's
  std::int32_t end;
};

struct ShrinkArguments {
  Divider slices;          ///< of the channels
  Divider tiles;           ///< of the columns
  Divider cutStrips;       ///< the last ones of all strips, whose rows are several chunks
  Divider threadsOfImage;  ///< in a block: fours of a part of a row
  Divider packs;           ///< of a column
  Divider pieces;          ///< of the channels of a group of columns
  Divider groups;          ///< of adjacent columns, of a tile
  Divider rowsOfBatch;     ///< rows of results whose columns are summed together
  std::int32_t images = 0;
  std::int32_t imagesOfBlock = 0;
  std::int32_t width = 0;  ///< of the destination
  std::int32_t channels = 0;
  std::int32_t inputWidth = 0;
  std::int32_t inputHeight = 0;
  std::uint32_t wholeStrips = 0;  ///< whose rows are chunk 0
  std::int32_t firstPart = 0;     ///< chunk of strips that are cut
  std::int32_t span = 0;          ///< input pixels of a group
  std::int32_t pixelWeights = 0;  ///< floats from a pixel's weights to those of the next one of a group
  std::int32_t groupWeights = 0;  ///< and to those of the next group
  std::int32_t pixelFloats = 0;   ///< from a pixel to the next one in shared memory
  std::int32_t mostRows = 0;      ///< of a chunk
  const float* rowTable = nullptr;
  const ShrinkChunk* chunkTable = nullptr;
  /// For each tile: the first input pixel of each group, and weights of a pixel of the span for a group's columns.
  const float* tileTable = nullptr;
  SourceView input;
  ResultView destination;

  [[nodiscard]] __host__ __device__ std::int32_t groupsOfTile() const {
    return static_cast<std::int32_t>(groups.divisor());
  }
  /// That threads sum, of a row of an image.
  [[nodiscard]] __host__ __device__ std::uint32_t piecesOfRow() const {
    return groups.divisor() * pieces.divisor();
  }
  /// Weights are read in fours.
  [[nodiscard]] __host__ __device__ std::int32_t weightsAt() const { return (groupsOfTile() + 3) / 4 * 4; }
  [[nodiscard]] __host__ __device__ std::int32_t tileFloats() const {
    return weightsAt() + (span + span % 2) * kShrinkColumns * groupsOfTile();
  }
};

/// Where a block works.
struct ShrinkPlace {
  std::int32_t slice, tile, chunk, image;

  __device__ explicit ShrinkPlace(const ShrinkArguments& a) {
    std::uint32_t strip = blockIdx.x;
    chunk = 0;
    if (strip >= a.wholeStrips) {
      const std::uint32_t part = a.cutStrips.divide(strip - a.wholeStrips);
      strip -= part * a.cutStrips.divisor();
      chunk = static_cast<std::int32_t>(part) + a.firstPart;
    }
    const std::uint32_t ofSlices = a.slices.divide(strip);
    slice = static_cast<std::int32_t>(strip - ofSlices * a.slices.divisor());
    const std::uint32_t ofTiles = a.tiles.divide(ofSlices);
    tile = static_cast<std::int32_t>(ofSlices - ofTiles * a.tiles.divisor());
    image = static_cast<std::int32_t>(ofTiles) * a.imagesOfBlock;
  }
};

__device__ inline void unpack(const uint4& pack, float (&to)[kShrinkLanes]) {
  to[0] = __uint_as_float(pack.x);
  to[1] = __uint_as_float(pack.y);
  to[2] = __uint_as_float(pack.z);
  to[3] = __uint_as_float(pack.w);
}
__device__ inline void unpack(const uint2& pack, float (&to)[kShrinkLanes]) {
  const float2 low = halvesOf(pack.x);
  const float2 high = halvesOf(pack.y);
  to[0] = low.x;
  to[1] = low.y;
  to[2] = high.x;
  to[3] = high.y;
}

/// Rows of packs of a thread, four elements each: of floats in shared memory that this thread alone sees, where asynchronous
/// copies bring them.
template <class T, int held>
class ShrinkPacks {
 public:
  using Pack = uint4;
  static constexpr int ahead = held - 1;  ///< rows that are asked for before the one that is taken
  static constexpr int floats = held * kShrinkThreads * kShrinkLanes;  ///< of a block's shared memory

  __device__ explicit ShrinkPacks(uint4* memory) : packs_(memory + threadIdx.x) {}

  __device__ void request(int i, const std::byte* from, bool isThere) {
    if (isThere) __pipeline_memcpy_async(packs_ + i % held * kShrinkThreads, from, sizeof(Pack));
    __pipeline_commit();
  }
  /// @param from,isThere of row i + ahead
  __device__ void take(int i, const std::byte* from, bool isThere, float (&to)[kShrinkLanes]) {
    request(i + ahead, from, isThere);
    __pipeline_wait_prior(ahead);
    const Pack pack = packs_[i % held * kShrinkThreads];
    unpack(pack, to);
  }

 private:
  Pack* packs_;
};

/// Of halves in registers: for 8 bytes asynchronous copies take more instructions than they save.
template <int held>
class ShrinkPacks<Float16, held> {
 public:
  using Pack = uint2;
  static constexpr int ahead = held;
  static constexpr int floats = 0;

  __device__ explicit ShrinkPacks(uint4* /*memory*/) {}

  /// @param i constant
  __device__ void request(int i, const std::byte* from, bool isThere) {
    // The block of the channels beside these is going to ask for the other half of the 128 bytes.
    if (isThere)
      asm("ld.global.nc.L1::no_allocate.L2::128B.v2.u32 {%0, %1}, [%2];"
          : "=r"(packs_[i % held].x), "=r"(packs_[i % held].y)
          : "l"(from));
  }
  __device__ void take(int i, const std::byte* from, bool isThere, float (&to)[kShrinkLanes]) {
    unpack(packs_[i % held], to);
    request(i, from, isThere);
  }

 private:
  Pack packs_[held] = {};
};

/// The elements of a thread, row after row.
template <class T, ShrinkAccess access>
class ShrinkRows {
 public:
  using Packs = ShrinkPacks<T, kShrinkRowsHeld<T, access>>;
  static constexpr int floats = Packs::floats;

  /// @param place of the first row in this thread's image, and of the block's first pixel and channel
  /// @param firstFloat of the block's in a row @param pack this thread's of the block's
  __device__ ShrinkRows(const ShrinkArguments& a, ElementPlace place, std::int32_t firstFloat,
                        std::uint32_t pack, std::int32_t rows, uint4* memory)
      : rowBytes_(static_cast<std::uint32_t>(a.input.row) * static_cast<std::uint32_t>(sizeof(T))),
        packs_(memory) {
    bool takes = place.image < a.images;
    if constexpr (access == ShrinkAccess::Packs) {
      place.channel = firstFloat + static_cast<std::int32_t>(pack) * kShrinkLanes;
      place.x = 0;
      takes = takes && place.channel < a.inputWidth * a.channels;
    } else {
      const std::uint32_t column = a.packs.divide(pack);
      place.channel += static_cast<std::int32_t>(pack - column * a.packs.divisor()) * kShrinkLanes;
      place.x += static_cast<std::int32_t>(column);
      takes = takes && place.x < a.inputWidth && place.channel < a.channels;
    }
    from_ = a.input.memory + a.input.offset(place) * static_cast<std::int64_t>(sizeof(T));
    left_ = takes ? min(rows, a.inputHeight - place.y) : 0;
#pragma unroll
    for (int i = 0; i < Packs::ahead; ++i) {
      // Another one counts nothing in place of a row before the input.
      const std::int32_t row = max(i, -place.y);
      packs_.request(i, rowAt(row), row < left_);
    }
  }
  /// @param i constant: number of the row since goOn()
  __device__ void next(int i, float (&to)[kShrinkLanes]) {
    const int row = i + Packs::ahead;
    packs_.take(i, rowAt(row), row < left_, to);
  }
  /// Behind so many rows, a multiple of those that are held.
  __device__ void goOn(int rows) {
    from_ = rowAt(rows);
    left_ -= rows;
  }

 private:
  [[nodiscard]] const __device__ std::byte* rowAt(std::int32_t row) const {
    return from_ + static_cast<std::uint64_t>(rowBytes_) * static_cast<std::uint32_t>(row);
  }

  const std::byte* from_;
  std::uint32_t rowBytes_;
  std::int32_t left_;  ///< rows that there are
  Packs packs_;
};

/// One by one through registers, a row ahead.
template <class T>
class ShrinkRows<T, ShrinkAccess::Elements> {
 public:
  static constexpr int floats = 0;

  __device__ ShrinkRows(const ShrinkArguments& a, ElementPlace place, std::int32_t firstFloat,
                        std::uint32_t pack, std::int32_t rows, uint4* /*memory*/)
      : row_(a.input.row), left_(rows) {
    const bool takes = place.image < a.images;
    place.x = place.channel = 0;
    from_ = reinterpret_cast<const T*>(a.input.memory) + a.input.offset(place);
#pragma unroll
    for (int i = 0; i < kShrinkLanes; ++i) {
      const std::uint32_t element =
          static_cast<std::uint32_t>(firstFloat) + pack * kShrinkLanes + static_cast<std::uint32_t>(i);
      const std::uint32_t column = a.pieces.divide(element);
      const std::uint32_t channel = element - column * a.pieces.divisor();
      const bool isThere = takes && column < static_cast<std::uint32_t>(a.inputWidth);
      offsets_[i] = isThere ? static_cast<std::int64_t>(column) * a.input.pixel + channel : -1;
    }
    request();
  }
  __device__ void next(int /*i*/, float (&to)[kShrinkLanes]) {
#pragma unroll
    for (int lane = 0; lane < kShrinkLanes; ++lane) to[lane] = cuda::load(&ahead_[lane]);
    request();
  }
  __device__ void goOn(int /*rows*/) {}

 private:
  __device__ void request() {
    if (left_-- <= 0) return;
#pragma unroll
    for (int lane = 0; lane < kShrinkLanes; ++lane)
      if (offsets_[lane] >= 0) ahead_[lane] = from_[offsets_[lane]];
    from_ += row_;
  }

  const T* from_;
  std::int64_t row_;
  std::int32_t left_;
  std::int64_t offsets_[kShrinkLanes];  ///< below 0: none
  T ahead_[kShrinkLanes] = {};
};

}  // namespace mps::detail::cuda
