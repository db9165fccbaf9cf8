#pragma once

#include <cuda_pipeline.h>

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "mps/core/cuda/element_grid_cuda.cuh"

/// Weighted sums of rows and columns of pixels of many channels: a block goes down some rows of an image, with rows of input
/// pixels on their way to shared memory. A thread has a few channels of a few columns of results, adds up each input row
/// for them, and keeps as many of these sums in registers as a result takes rows.
namespace mps::detail::cuda {

inline constexpr int kTileChannels = 64;
inline constexpr int kTileRowsHeld = 4;  ///< input rows in shared memory

/// What a kernel takes. @tparam lanes channels of a thread @tparam columns of results of a thread
/// @tparam span input pixels of those in a row, at most @tparam rows of a result, at most
/// @tparam threads of a block, at most @tparam blocks of a multiprocessor, at least
template <int lanes, int columns, int span, int rows, int threads, int blocks>
struct Tile {
  static constexpr int kLanes = lanes;
  static constexpr int kColumns = columns;
  static constexpr int kSpan = span;
  static constexpr int kRows = rows;
  static constexpr int kThreads = threads;
  static constexpr int kBlocks = blocks;
  static constexpr int kThreadsOfGroup = kTileChannels / lanes;  ///< that have the same columns
  /// Floats for a result row: its weights, that of the last input row first, and that row behind them.
  static constexpr int kRowFloats = (rows + 1 + 3) / 4 * 4;
  /// Floats for the columns of a thread: weights for each pixel, and the first one behind them.
  static constexpr int kGroupFloats = span * columns + 1;
  /// Vectors of 16 bytes that a thread copies of each input row, at most.
  template <class T>
  static constexpr int kCopies = lanes* static_cast<int>(sizeof(T)) / 4 + 1;
};

struct TileArguments {
  Divider slices;  ///< of the channels
  Divider tiles;   ///< of the columns
  Divider chunks;  ///< of the rows of an image
  std::int32_t rowsPerChunk = 0;
  std::int32_t height = 0, width = 0;  ///< of the destination
  std::int32_t channels = 0;
  std::int32_t inputWidth = 0;
  std::int32_t columnsHeld = 0;  ///< input pixels of a row in shared memory
  std::int32_t groupsOfTile = 0;
  const float* rowTable = nullptr;
  const float* groupTable = nullptr;
  SourceView input;
  ResultView destination;
};

/// A few elements of type T, float or Float16, as memory has them.
template <class T, int lanes>
struct alignas(lanes * sizeof(T)) FewStored {
  std::uint32_t words[lanes * sizeof(T) / 4];
};
template <int lanes>
struct Few {
  float values[lanes];
};
template <int lanes>
__device__ Few<lanes> fewOf(const FewStored<float, lanes>& stored) {
  Few<lanes> few;
#pragma unroll
  for (int i = 0; i < lanes; ++i) few.values[i] = __uint_as_float(stored.words[i]);
  return few;
}
template <int lanes>
__device__ Few<lanes> fewOf(const FewStored<Float16, lanes>& stored) {
  Few<lanes> few;
#pragma unroll
  for (int i = 0; i < lanes; i += 2) {
    const float2 pair = float2Of(stored.words[i / 2]);
    few.values[i] = pair.x;
    few.values[i + 1] = pair.y;
  }
  return few;
}
template <int lanes>
__device__ void storeFew(const Few<lanes>& few, FewStored<float, lanes>* to) {
  FewStored<float, lanes> stored;
#pragma unroll
  for (int i = 0; i < lanes; ++i) stored.words[i] = __float_as_uint(few.values[i]);
  *to = stored;
}
template <int lanes>
__device__ void storeFew(const Few<lanes>& few, FewStored<Float16, lanes>* to) {
  FewStored<Float16, lanes> stored;
#pragma unroll
  for (int i = 0; i < lanes; i += 2) stored.words[i / 2] = toHalves(few.values[i], few.values[i + 1]);
  *to = stored;
}

/// Copies a block's part of input rows, one after the other, to shared memory.
template <class T, class Tile>
class TileRows {
 public:
  static constexpr int vectors = kTileChannels / kLanes<T>;  ///< of 16 bytes in a column
  static constexpr int copies = Tile::template kCopies<T>;

  /// @param place of the first pixel's first channel in the first row @param last row
  __device__ TileRows(const TileArguments& a, const ElementPlace& place, std::int32_t last, uint4* memory)
      : from_(a.input.memory + a.input.offset(place) * static_cast<std::int64_t>(sizeof(T))),
        rowBytes_(a.input.row * static_cast<std::int64_t>(sizeof(T))),
        left_(last - place.y + 1),
        begin_(memory + threadIdx.x),
        to_(begin_),
        held_(a.columnsHeld * vectors) {
#pragma unroll
    for (int i = 0; i < copies; ++i) {
      const auto vector = static_cast<std::int32_t>(threadIdx.x + static_cast<unsigned>(i) * blockDim.x);
      const std::int32_t column = vector / vectors;
      const std::int32_t channel = vector % vectors * kLanes<T>;
      const bool takes = vector < a.columnsHeld * vectors && place.x + column < a.inputWidth &&
                         place.channel + channel < a.channels;
      offsets_[i] = takes ? (column * a.input.pixel + channel) * static_cast<std::int32_t>(sizeof(T)) : -1;
    }
  }
  /// Begins with the next row.
  __device__ void request() {
    if (left_ > 0) {
#pragma unroll
      for (int i = 0; i < copies; ++i)
        if (offsets_[i] >= 0)
          __pipeline_memcpy_async(to_ + static_cast<unsigned>(i) * blockDim.x, from_ + offsets_[i],
                                  sizeof(uint4));
      from_ += rowBytes_;
      to_ += held_;
      if (to_ == begin_ + kTileRowsHeld * held_) to_ = begin_;
      --left_;
    }
    __pipeline_commit();
  }

 private:
  const std::byte* from_;
  std::int64_t rowBytes_;
  std::int32_t left_;  ///< rows
  uint4* begin_;
  uint4* to_;
  std::int32_t held_;             ///< vectors of a row
  std::int32_t offsets_[copies];  ///< bytes; below 0: nothing is copied
};

/// @tparam accumulates whether results are added to what the destination holds
template <class T, class Tile, bool accumulates>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    sumTiles(const __grid_constant__ TileArguments a) {
  constexpr int n = Tile::kColumns;
  constexpr int lanes = Tile::kLanes;
  using Stored = FewStored<T, lanes>;
  extern __shared__ uint4 memory[];
  const std::uint32_t ofSlices = a.slices.divide(blockIdx.x);
  const std::uint32_t slice = blockIdx.x - ofSlices * a.slices.divisor();
  const std::uint32_t ofTiles = a.tiles.divide(ofSlices);
  const auto tile = static_cast<std::int32_t>(ofSlices - ofTiles * a.tiles.divisor());
  const std::uint32_t image = a.chunks.divide(ofTiles);
  const std::int32_t begin = static_cast<std::int32_t>(ofTiles - image * a.chunks.divisor()) * a.rowsPerChunk;
  const std::int32_t count = min(a.rowsPerChunk, a.height - begin);
  const auto part = static_cast<std::int32_t>(threadIdx.x % Tile::kThreadsOfGroup);
  const std::int32_t group =
      tile * a.groupsOfTile + static_cast<std::int32_t>(threadIdx.x / Tile::kThreadsOfGroup);
  const std::int32_t firstChannel = static_cast<std::int32_t>(slice) * kTileChannels;
  const std::int32_t channel = firstChannel + part * lanes;

  // Beyond the last group its weights serve: nothing is stored.
  const float* const groupLine = a.groupTable + min(group, (a.width - 1) / n) * Tile::kGroupFloats;
  const std::int32_t tileColumn =
      __float_as_int(a.groupTable[tile * a.groupsOfTile * Tile::kGroupFloats + Tile::kGroupFloats - 1]);
  const std::int32_t ownColumn = __float_as_int(groupLine[Tile::kGroupFloats - 1]) - tileColumn;
  const float* const table = a.rowTable + begin * Tile::kRowFloats;
  // The first input row that the first result takes, if it takes as many as there may be.
  std::int32_t row = max(0, __float_as_int(table[Tile::kRows]) - Tile::kRows + 1);
  const std::int32_t last = __float_as_int(table[(count - 1) * Tile::kRowFloats + Tile::kRows]);
  TileRows<T, Tile> rows(a, {static_cast<std::int32_t>(image), row, tileColumn, firstChannel}, last, memory);
#pragma unroll
  for (int i = 0; i < kTileRowsHeld - 1; ++i) rows.request();
  auto* const rowLines =
      reinterpret_cast<float*>(memory + kTileRowsHeld * a.columnsHeld * TileRows<T, Tile>::vectors);
  for (auto i = static_cast<std::int32_t>(threadIdx.x); i < count * Tile::kRowFloats;
       i += static_cast<std::int32_t>(blockDim.x))
    rowLines[i] = table[i];
  // Behind the last result: none.
  if (threadIdx.x == 0) rowLines[count * Tile::kRowFloats + Tile::kRows] = __int_as_float(-1);
  float weights[Tile::kSpan][n];
#pragma unroll
  for (int k = 0; k < Tile::kSpan; ++k)
#pragma unroll
    for (int j = 0; j < n; ++j) weights[k][j] = groupLine[k * n + j];

  const Stored* const firstPixel =
      reinterpret_cast<const Stored*>(memory) + ownColumn * Tile::kThreadsOfGroup + part;
  const std::int32_t held = a.columnsHeld * Tile::kThreadsOfGroup;
  const Stored* own = firstPixel;
  bool stores[n];
#pragma unroll
  for (int j = 0; j < n; ++j) stores[j] = group * n + j < a.width && channel < a.channels;
  std::byte* to = a.destination.memory +
                  a.destination.offset({static_cast<std::int32_t>(image), begin, group * n, channel}) *
                      static_cast<std::int64_t>(sizeof(T));
  const std::int64_t rowBytes = a.destination.row * static_cast<std::int64_t>(sizeof(T));
  const std::int64_t pixelBytes = a.destination.pixel * static_cast<std::int64_t>(sizeof(T));
  const float* line = rowLines;
  std::int32_t until = __float_as_int(table[Tile::kRows]);
  Few<lanes> sums[Tile::kRows][n];
  // Adds up an input row, and makes the results that take it last. @return whether there are more
  const auto goOn = [&](auto place) {
    constexpr int u = place;
    __pipeline_wait_prior(kTileRowsHeld - 2);
    __syncthreads();
    rows.request();
    const auto addTo = [&](Few<lanes>& sum, float weight, const Few<lanes>& few) {
#pragma unroll
      for (int i = 0; i < lanes; ++i) sum.values[i] = fmaf(weight, few.values[i], sum.values[i]);
    };
#pragma unroll
    for (int j = 0; j < n; ++j) sums[u][j] = {};
#pragma unroll
    for (int k = 0; k < Tile::kSpan; ++k) {
      const Stored stored = own[k * Tile::kThreadsOfGroup];
      const Few<lanes> few = fewOf(stored);
#pragma unroll
      for (int j = 0; j < n; ++j) addTo(sums[u][j], weights[k][j], few);
    }
    float all = sums[u][0].values[0];
#pragma unroll
    for (int i = 1; i < n * lanes; ++i) all += sums[u][i / lanes].values[i % lanes];
    if (all != all && stores[0]) {
      // A pixel that is not finite must not be looked at where it counts nothing.
#pragma unroll
      for (int j = 0; j < n; ++j) sums[u][j] = {};
#pragma unroll 1
      for (int k = 0; k < Tile::kSpan; ++k) {
        const Few<lanes> few = fewOf(own[k * Tile::kThreadsOfGroup]);
#pragma unroll
        for (int j = 0; j < n; ++j) {
          const float weight = groupLine[k * n + j];
          if (weight != 0) addTo(sums[u][j], weight, few);
        }
      }
    }
    own += held;
    if (own == firstPixel + kTileRowsHeld * held) own = firstPixel;
#pragma unroll 1
    while (until == row) {
      float lineWeights[Tile::kRowFloats];
#pragma unroll
      for (int i = 0; i < Tile::kRowFloats / 4; ++i) {
        const float4 four = *reinterpret_cast<const float4*>(line + 4 * i);
        lineWeights[4 * i] = four.x;
        lineWeights[4 * i + 1] = four.y;
        lineWeights[4 * i + 2] = four.z;
        lineWeights[4 * i + 3] = four.w;
      }
      line += Tile::kRowFloats;
      until = __float_as_int(line[Tile::kRows]);
      Few<lanes> result[n] = {};
#pragma unroll
      for (int d = 0; d < Tile::kRows; ++d) {
        if (lineWeights[d] == 0) continue;
#pragma unroll
        for (int j = 0; j < n; ++j)
          addTo(result[j], lineWeights[d], sums[(u - d + Tile::kRows) % Tile::kRows][j]);
      }
#pragma unroll
      for (int j = 0; j < n; ++j) {
        auto* const at = reinterpret_cast<Stored*>(to + j * pixelBytes);
        if (accumulates && stores[j]) {
          const Few<lanes> old = fewOf(*at);
#pragma unroll
          for (int i = 0; i < lanes; ++i) result[j].values[i] += old.values[i];
        }
        if (stores[j]) storeFew(result[j], at);
      }
      to += rowBytes;
    }
    return ++row <= last;
  };
  const auto goRound = [&]<int... places>(std::integer_sequence<int, places...> /*unused*/) {
    return (goOn(std::integral_constant<int, places>()) && ...);
  };
  while (goRound(std::make_integer_sequence<int, Tile::kRows>())) {
  }
}

}  // namespace mps::detail::cuda
