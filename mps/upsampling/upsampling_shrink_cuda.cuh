#pragma once

#include <cuda_pipeline.h>

#include <cstdint>
#include <type_traits>

#include "mps/core/element_grid_cuda.cuh"

/// Weighted sums of rows and columns where an image becomes smaller: a block goes down the rows of a part of the input. A
/// thread has four elements of each row and adds them, weighted, to the few results that take that row, which stay in
/// registers. Of a result that has all of its rows the columns are summed through shared memory.
namespace mps::detail::cuda {

/// How the elements of a row are shared out.
enum class ShrinkAccess : std::uint8_t {
  Pixels,   ///< packs of four channels of a pixel; results likewise
  Packs,    ///< packs that go on from pixel to pixel
  Elements  ///< one by one, wherever they lie
};

inline constexpr int kShrinkLanes = 4;     ///< elements of a thread
inline constexpr int kShrinkColumns = 2;   ///< adjacent results that a thread sums at once
inline constexpr int kShrinkRowsHeld = 4;  ///< rows of a thread on their way, or in use; a power of two
inline constexpr int kShrinkRowFloats = 8;
/// Results that take the same row: pixels count within three lobes on both sides, each as wide as results are apart, and
/// roundings may let in one more than six.
inline constexpr int kShrinkMostResults = 7;

/// Where results have 64 bytes of channels and rows 56 pixels, no thread is idle.
template <class T>
inline constexpr int kShrinkThreads = 896 / static_cast<int>(sizeof(T));

/// The rows of a chunk of results.
struct ShrinkChunk {
  std::int32_t firstRow;     ///< of the input
  std::int32_t rows;         ///< of the input
  std::int32_t firstResult;  ///< that ends in these rows
  std::int32_t end;          ///< of the results that are the chunk's
};

struct ShrinkArguments {
  Divider slices;          ///< of the channels
  Divider tiles;           ///< of the columns
  Divider chunks;          ///< of the rows of an image
  Divider threadsOfImage;  ///< in a block: fours of a part of a row
  Divider packs;           ///< of a column
  Divider pieces;          ///< of the channels of a group of columns
  Divider piecesOfImage;
  std::int32_t images = 0;
  std::int32_t imagesOfBlock = 0;
  std::int32_t rowsPerChunk = 0;
  std::int32_t width = 0;  ///< of the destination
  std::int32_t channels = 0;
  std::int32_t inputWidth = 0;
  std::int32_t groupsOfTile = 0;  ///< of adjacent columns
  std::int32_t span = 0;          ///< input pixels of a group
  std::int32_t pixelFloats = 0;   ///< from a pixel to the next one in shared memory
  std::int32_t mostRows = 0;      ///< of a chunk
  const float* rowTable = nullptr;
  const ShrinkChunk* chunkTable = nullptr;
  /// For each tile: the first input pixel of each group, and [pixel of the span][group][column of the group].
  const float* tileTable = nullptr;
  SourceView input;
  ResultView destination;

  [[nodiscard]] __host__ __device__ std::int32_t tileFloats() const {
    return (1 + span * kShrinkColumns) * groupsOfTile;
  }
};

/// Where a block works.
struct ShrinkPlace {
  std::int32_t slice, tile, chunk, image;

  __device__ explicit ShrinkPlace(const ShrinkArguments& a) {
    const std::uint32_t strip = a.slices.divide(blockIdx.x);
    slice = static_cast<std::int32_t>(blockIdx.x - strip * a.slices.divisor());
    const std::uint32_t ofTiles = a.tiles.divide(strip);
    tile = static_cast<std::int32_t>(strip - ofTiles * a.tiles.divisor());
    const std::uint32_t ofChunks = a.chunks.divide(ofTiles);
    chunk = static_cast<std::int32_t>(ofTiles - ofChunks * a.chunks.divisor());
    image = static_cast<std::int32_t>(ofChunks) * a.imagesOfBlock;
  }
};

/// Four elements of type T, float or Float16, as memory has them.
template <class T>
struct ShrinkPack {
  using Type = uint4;
};
template <>
struct ShrinkPack<Float16> {
  using Type = uint2;
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

/// The elements of a thread, row after row: packs come through shared memory that this thread alone sees.
template <class T, ShrinkAccess access>
class ShrinkRows {
 public:
  using Pack = typename ShrinkPack<T>::Type;

  /// @param place of the first row in this thread's image, and of the block's first pixel and channel
  /// @param firstFloat of the block's in a row @param pack this thread's of the block's
  __device__ ShrinkRows(const ShrinkArguments& a, ElementPlace place, std::int32_t firstFloat,
                        std::uint32_t pack, std::int32_t rows, uint4* memory)
      : rowBytes_(a.input.row * static_cast<std::int64_t>(sizeof(T))),
        ring_(reinterpret_cast<Pack*>(memory) + threadIdx.x) {
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
    left_ = takes ? rows : 0;
#pragma unroll
    for (int i = 0; i < kShrinkRowsHeld - 1; ++i) request(i);
  }
  /// @param i number of the row, from 0 on
  __device__ void next(std::int32_t i, float (&to)[kShrinkLanes]) {
    request(i + kShrinkRowsHeld - 1);
    __pipeline_wait_prior(kShrinkRowsHeld - 1);
    const Pack pack = *slot(i);
    unpack(pack, to);
  }

 private:
  [[nodiscard]] __device__ Pack* slot(std::int32_t i) const {
    return ring_ + static_cast<unsigned>(i) % kShrinkRowsHeld * blockDim.x;
  }
  __device__ void request(std::int32_t i) {
    if (i < left_) {
      __pipeline_memcpy_async(slot(i), from_, sizeof(Pack));
      from_ += rowBytes_;
    }
    __pipeline_commit();
  }

  const std::byte* from_;
  std::int64_t rowBytes_;
  std::int32_t left_;  ///< rows that there are
  Pack* ring_;
};

/// One by one through registers, a row ahead.
template <class T>
class ShrinkRows<T, ShrinkAccess::Elements> {
 public:
  using Pack = typename ShrinkPack<T>::Type;

  __device__ ShrinkRows(const ShrinkArguments& a, ElementPlace place, std::int32_t firstFloat,
                        std::uint32_t pack, std::int32_t rows, uint4* /*memory*/)
      : row_(a.input.row), rows_(rows) {
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
    request(0);
  }
  __device__ void next(std::int32_t i, float (&to)[kShrinkLanes]) {
#pragma unroll
    for (int lane = 0; lane < kShrinkLanes; ++lane) to[lane] = cuda::load(&ahead_[lane]);
    request(i + 1);
  }

 private:
  __device__ void request(std::int32_t i) {
    if (i >= rows_) return;
#pragma unroll
    for (int lane = 0; lane < kShrinkLanes; ++lane)
      if (offsets_[lane] >= 0) ahead_[lane] = from_[offsets_[lane]];
    from_ += row_;
  }

  const T* from_;
  std::int64_t row_;
  std::int32_t rows_;
  std::int64_t offsets_[kShrinkLanes];  ///< below 0: none
  T ahead_[kShrinkLanes] = {};
};

/// Some results of a row that a thread sums.
template <class T>
struct ShrinkPiece {
  std::int32_t from;     ///< in a row of results whose rows are summed; below 0: nothing is stored
  std::int32_t weights;  ///< in the tile's table
  bool hasSecond;        ///< column
  T* to;                 ///< in row 0
};

/// Sums the columns of a row of results whose rows are summed.
template <class T, ShrinkAccess access>
class ShrinkColumnSums {
 public:
  /// @param place of the block's first image and channel @param firstFloat of the block's in a row
  /// @param tile the block's table
  __device__ ShrinkColumnSums(const ShrinkArguments& a, const ElementPlace& place, std::int32_t firstColumn,
                              std::int32_t firstFloat, const float* tile)
      : a_(a),
        place_(place),
        firstColumn_(firstColumn),
        firstFloat_(firstFloat),
        tile_(tile),
        all_(static_cast<std::uint32_t>(a.imagesOfBlock) * a.piecesOfImage.divisor()),
        own_(pieceOf(threadIdx.x)) {}

  __device__ void sum(const float* row, std::int32_t y) const {
    sum(own_, row, y);
    // Pixels have more packs than results.
    if constexpr (access != ShrinkAccess::Pixels)
#pragma unroll 1
      for (std::uint32_t piece = threadIdx.x + blockDim.x; piece < all_; piece += blockDim.x)
        sum(pieceOf(piece), row, y);
  }

 private:
  static constexpr int n = kShrinkColumns;
  static constexpr int lanes = access == ShrinkAccess::Pixels ? kShrinkLanes : 1;

  struct Values {
    float values[n][lanes];
  };
  [[nodiscard]] __device__ ShrinkPiece<T> pieceOf(std::uint32_t piece) const {
    const std::uint32_t ofBlock = a_.piecesOfImage.divide(piece);
    const std::uint32_t ofImage = piece - ofBlock * a_.piecesOfImage.divisor();
    const auto group = static_cast<std::int32_t>(a_.pieces.divide(ofImage));
    const auto inner =
        static_cast<std::int32_t>(ofImage - static_cast<std::uint32_t>(group) * a_.pieces.divisor()) * lanes;
    const auto image = static_cast<std::int32_t>(ofBlock);
    const std::int32_t channel = place_.channel + inner;
    const std::int32_t x = firstColumn_ + group * n;
    ShrinkPiece<T> own{-1, 0, false, nullptr};
    if (piece >= all_ || x >= a_.width || channel >= a_.channels || place_.image + image >= a_.images)
      return own;
    own.from = image * static_cast<std::int32_t>(a_.threadsOfImage.divisor()) * kShrinkLanes +
               __float_as_int(tile_[group]) * a_.pixelFloats - firstFloat_ + inner;
    own.weights = a_.groupsOfTile + group * n;
    own.hasSecond = x + 1 < a_.width;
    own.to = reinterpret_cast<T*>(a_.destination.memory) +
             a_.destination.offset({place_.image + image, 0, x, channel});
    return own;
  }
  __device__ static void load(const float* from, float (&to)[lanes]) {
    if constexpr (lanes == 4)
      unpack(*reinterpret_cast<const uint4*>(from), to);
    else
      to[0] = *from;
  }
  /// @tparam looks at pixels that count nothing, too
  template <bool looks>
  __device__ void add(const float* row, const float* weights, Values& sums) const {
    const std::int32_t step = a_.groupsOfTile * n;
#pragma unroll(looks ? 4 : 1)
    for (std::int32_t k = 0; k < a_.span; ++k) {
      float pixel[lanes];
      load(row, pixel);
      const float2 two = *reinterpret_cast<const float2*>(weights);
      const float own[n] = {two.x, two.y};
#pragma unroll
      for (int j = 0; j < n; ++j) {
        if (!looks && own[j] == 0) continue;
#pragma unroll
        for (int i = 0; i < lanes; ++i) sums.values[j][i] = fmaf(own[j], pixel[i], sums.values[j][i]);
      }
      row += a_.pixelFloats;
      weights += step;
    }
  }
  __device__ void sum(const ShrinkPiece<T>& own, const float* row, std::int32_t y) const {
    if (own.from < 0) return;
    Values sums{};
    add<true>(row + own.from, tile_ + own.weights, sums);
    float all = 0;
#pragma unroll
    for (int i = 0; i < n * lanes; ++i) all += sums.values[i / lanes][i % lanes];
    if (all != all) {
      // A pixel that is not finite must not be looked at where it counts nothing.
      sums = {};
      add<false>(row + own.from, tile_ + own.weights, sums);
    }
    T* const to = own.to + y * a_.destination.row;
    store(sums.values[0], to);
    if (own.hasSecond) store(sums.values[1], to + a_.destination.pixel);
  }
  __device__ static void store(const float (&values)[lanes], T* to) {
    if constexpr (lanes == 1)
      cuda::store(values[0], to);
    else if constexpr (std::is_same_v<T, float>)
      *reinterpret_cast<float4*>(to) = float4{values[0], values[1], values[2], values[3]};
    else
      *reinterpret_cast<uint2*>(to) = uint2{toHalves(values[0], values[1]), toHalves(values[2], values[3])};
  }

  const ShrinkArguments& a_;
  ElementPlace place_;
  std::int32_t firstColumn_;
  std::int32_t firstFloat_;
  const float* tile_;
  std::uint32_t all_;
  ShrinkPiece<T> own_;
};

/// Adds elements of a row to the results that take it.
template <int most>
__device__ void addRow(const float (&weights)[kShrinkRowFloats], const float (&values)[kShrinkLanes],
                       float (&results)[most][kShrinkLanes]) {
  // Finite values times 0 are 0, others are not a number.
  float none = 0;
#pragma unroll
  for (const float value : values) none = fmaf(value, 0.0F, none);
  const auto add = [&](bool looks) {
#pragma unroll
    for (int s = 0; s < most; ++s)
#pragma unroll
      for (int lane = 0; lane < kShrinkLanes; ++lane)
        if (looks || weights[s] != 0) results[s][lane] = fmaf(weights[s], values[lane], results[s][lane]);
  };
  if (none == 0)
    add(true);
  else
    add(false);
}

/// @tparam most results that take the same row
template <class T, ShrinkAccess access, int most>
__global__ void __launch_bounds__(kShrinkThreads<T>, sizeof(T))
    shrinkTiles(const __grid_constant__ ShrinkArguments a) {
  extern __shared__ uint4 memory[];
  using Rows = ShrinkRows<T, access>;
  // [rows held][thread], two rows of results [thread][lane], weights of rows, the tile's table
  auto* const rows =
      reinterpret_cast<float*>(reinterpret_cast<typename Rows::Pack*>(memory) + kShrinkRowsHeld * blockDim.x);
  float* const rowLines = rows + 2 * blockDim.x * kShrinkLanes;
  float* const tile = rowLines + a.mostRows * kShrinkRowFloats;

  const ShrinkPlace at(a);
  const ShrinkChunk chunk = a.chunkTable[at.chunk];
  const float* const tileTable = a.tileTable + at.tile * a.tileFloats();
  const std::int32_t firstPixel = __float_as_int(tileTable[0]);
  const std::int32_t firstFloat = firstPixel * a.pixelFloats / kShrinkLanes * kShrinkLanes;
  const std::uint32_t strip = a.threadsOfImage.divide(threadIdx.x);
  ElementPlace place{at.image + static_cast<std::int32_t>(strip), chunk.firstRow, firstPixel,
                     at.slice * static_cast<std::int32_t>(a.packs.divisor()) * kShrinkLanes};
  Rows input(a, place, firstFloat, threadIdx.x - strip * a.threadsOfImage.divisor(), chunk.rows, memory);
  place.image = at.image;

  const auto step = static_cast<std::int32_t>(blockDim.x);
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  for (std::int32_t i = thread; i < chunk.rows * kShrinkRowFloats; i += step)
    rowLines[i] = a.rowTable[chunk.firstRow * kShrinkRowFloats + i];
  for (std::int32_t i = thread; i < a.tileFloats(); i += step) tile[i] = tileTable[i];
  __syncthreads();

  const ShrinkColumnSums<T, access> columns(a, place, at.tile * a.groupsOfTile * kShrinkColumns, firstFloat,
                                            tile);
  const std::int32_t begin = at.chunk * a.rowsPerChunk;
  std::int32_t y = chunk.firstResult;
  int slot = y % most;
  float* row = rows;
  float results[most][kShrinkLanes] = {};
  // The next result has all of its rows.
  const auto finish = [&] {
    float4* const to = reinterpret_cast<float4*>(row) + threadIdx.x;
#pragma unroll
    for (int s = 0; s < most; ++s)
      if (s == slot) {
        *to = float4{results[s][0], results[s][1], results[s][2], results[s][3]};
#pragma unroll
        for (float& value : results[s]) value = 0;
      }
    slot = slot + 1 == most ? 0 : slot + 1;
    if (y >= begin) {
      __syncthreads();
      columns.sum(row, y);
      // While other threads sum, the next row goes beside this one.
      row = row == rows ? rows + blockDim.x * kShrinkLanes : rows;
    }
    ++y;
  };
  const float* line = rowLines;
#pragma unroll 1
  for (std::int32_t i = 0; i < chunk.rows; ++i) {
    float values[kShrinkLanes];
    input.next(i, values);
    float weights[kShrinkRowFloats];
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const float4 four = *reinterpret_cast<const float4*>(line + 4 * part);
      weights[4 * part] = four.x;
      weights[4 * part + 1] = four.y;
      weights[4 * part + 2] = four.z;
      weights[4 * part + 3] = four.w;
    }
    line += kShrinkRowFloats;
    addRow(weights, values, results);
#pragma unroll 1
    for (std::int32_t ends = __float_as_int(weights[kShrinkMostResults]); ends > 0 && y < chunk.end; --ends)
      finish();
  }
}

}  // namespace mps::detail::cuda
