#pragma once

#include <cstdint>
#include <type_traits>

#include "mps/upsampling/upsampling_shrink_rows_cuda.cuh"

/// Weighted sums of rows and columns where an image becomes smaller: a block goes down the rows of a part of the input. A
/// thread has four elements of each row and adds them, weighted, to the few results that take that row, which stay in
/// registers. Of some rows of results that have all of theirs the columns are summed through shared memory.
namespace mps::detail::cuda {

/// Some results of a row that a thread sums.
template <class T>
struct ShrinkPiece {
  std::uint32_t row;     ///< of the batch; more than there are: nothing is stored
  std::int32_t from;     ///< in a batch of rows of results whose rows are summed
  std::int32_t weights;  ///< in the tile's table
  std::int32_t second;   ///< elements to the second column; 0: there is none
  T* to;                 ///< where the batch begins with the chunk's first row
};

/// Sums the columns of a batch of rows of results whose rows are summed.
/// @tparam span of a group and @tparam pixelFloats where they are known, or 0
template <class T, ShrinkAccess access, int span, int pixelFloats>
class ShrinkColumnSums {
 public:
  /// @param place of the block's first image and channel, and of the chunk's first result
  /// @param results rows of the chunk @param y of the first batch @param firstFloat of the block's in a row
  /// @param tile the block's table
  __device__ ShrinkColumnSums(const ShrinkArguments& a, const ElementPlace& place, std::int32_t results,
                              std::int32_t y, std::int32_t firstColumn, std::int32_t firstFloat,
                              const float* tile)
      : a_(a),
        results_(static_cast<std::uint32_t>(results)),
        place_(place),
        firstColumn_(firstColumn),
        firstFloat_(firstFloat),
        tile_(tile),
        all_(static_cast<std::uint32_t>(a.imagesOfBlock) * a.piecesOfRow() * a.rowsOfBatch.divisor()),
        own_(pieceOf(threadIdx.x)) {
    own_.to += y * a.destination.row;
  }

  /// Of the next batch. @param y of its first row, counted from the chunk's first result
  __device__ void sum(const float* batch, std::int32_t y) {
    if constexpr (access == ShrinkAccess::Pixels) {
      // Pixels have more packs than results.
      sum(own_, batch, y, own_.to);
      own_.to += a_.rowsOfBatch.divisor() * a_.destination.row;
    } else {
      sum(own_, batch, y, own_.to + y * a_.destination.row);
#pragma unroll 1
      for (std::uint32_t number = threadIdx.x + blockDim.x; number < all_; number += blockDim.x) {
        const ShrinkPiece<T> piece = pieceOf(number);
        sum(piece, batch, y, piece.to + y * a_.destination.row);
      }
    }
  }

 private:
  static constexpr int n = kShrinkColumns;
  static constexpr int lanes = access == ShrinkAccess::Pixels ? kShrinkLanes : 1;

  struct Values {
    float values[n][lanes];
  };
  [[nodiscard]] __device__ ShrinkPiece<T> pieceOf(std::uint32_t piece) const {
    // Rows of a batch lie between packs of a pixel and groups: adjacent threads read different banks.
    const std::uint32_t ofPixels = a_.pieces.divide(piece);
    const auto inner = static_cast<std::int32_t>(piece - ofPixels * a_.pieces.divisor()) * lanes;
    const std::uint32_t ofRows = a_.rowsOfBatch.divide(ofPixels);
    const auto row = static_cast<std::int32_t>(ofPixels - ofRows * a_.rowsOfBatch.divisor());
    const std::uint32_t ofImages = a_.groups.divide(ofRows);
    const auto group = static_cast<std::int32_t>(ofRows - ofImages * a_.groups.divisor());
    const auto image = static_cast<std::int32_t>(ofImages);
    const std::int32_t channel = place_.channel + inner;
    const std::int32_t x = firstColumn_ + group * n;
    ShrinkPiece<T> own{0x80000000U, 0, 0, 0, nullptr};
    if (piece >= all_ || x >= a_.width || channel >= a_.channels || place_.image + image >= a_.images)
      return own;
    own.row = static_cast<std::uint32_t>(row);
    own.from = row * kShrinkSums +
               image * static_cast<std::int32_t>(a_.threadsOfImage.divisor()) * kShrinkLanes +
               __float_as_int(tile_[group]) * a_.pixelFloats - firstFloat_ + inner;
    own.weights = a_.weightsAt() + group * a_.groupWeights;
    own.second = x + 1 < a_.width ? static_cast<std::int32_t>(a_.destination.pixel) : 0;
    own.to = reinterpret_cast<T*>(a_.destination.memory) +
             a_.destination.offset({place_.image + image, place_.y + row, x, channel});
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
  __device__ static void add(const float (&weights)[n], const float* row, Values& sums) {
    float pixel[lanes];
    load(row, pixel);
#pragma unroll
    for (int j = 0; j < n; ++j) {
      if (!looks && weights[j] == 0) continue;
#pragma unroll
      for (int i = 0; i < lanes; ++i) sums.values[j][i] = fmaf(weights[j], pixel[i], sums.values[j][i]);
    }
  }
  template <bool looks>
  __device__ void addPixels(const float* row, const float* weights, Values& sums) const {
    const std::int32_t pixels = span != 0 ? span : a_.span;
    const std::int32_t toNext = pixelFloats != 0 ? pixelFloats : a_.pixelFloats;
    if constexpr (lanes == kShrinkLanes) {
#pragma unroll(!looks ? 1 : span != 0 ? span / 2 : 2)
      for (std::int32_t k = 0; k < pixels; k += 2) {
        const float4 four = *reinterpret_cast<const float4*>(weights);
        add<looks>({four.x, four.y}, row, sums);
        add<looks>({four.z, four.w}, row + toNext, sums);
        row += 2 * toNext;
        weights += 2 * n;
      }
    } else {
#pragma unroll(looks ? 4 : 1)
      for (std::int32_t k = 0; k < pixels; ++k) {
        const float2 two = *reinterpret_cast<const float2*>(weights);
        add<looks>({two.x, two.y}, row, sums);
        row += toNext;
        weights += a_.pixelWeights;
      }
    }
  }
  __device__ void sum(const ShrinkPiece<T>& own, const float* batch, std::int32_t y, T* to) const {
    if (static_cast<std::uint32_t>(y) + own.row >= results_) return;
    Values sums{};
    addPixels<true>(batch + own.from, tile_ + own.weights, sums);
    float all = sums.values[0][0];
#pragma unroll
    for (int i = 1; i < n * lanes; ++i) all += sums.values[i / lanes][i % lanes];
    if (all != all) {
      // A pixel that is not finite must not be looked at where it counts nothing.
      sums = {};
      addPixels<false>(batch + own.from, tile_ + own.weights, sums);
    }
    store(sums.values[0], to);
    if (own.second != 0) store(sums.values[1], to + own.second);
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
  std::uint32_t results_;
  ElementPlace place_;
  std::int32_t firstColumn_;
  std::int32_t firstFloat_;
  const float* tile_;
  std::uint32_t all_;
  ShrinkPiece<T> own_;  ///< of pixels in the next batch
};

/// Adds elements of a row to the results that take it. @tparam looks whether it counts in all of them
template <bool looks, int most>
__device__ void addRow(const float (&weights)[kShrinkRowFloats], const float (&values)[kShrinkLanes],
                       float (&results)[most][kShrinkLanes]) {
#pragma unroll
  for (int s = 0; s < most; ++s)
#pragma unroll
    for (int lane = 0; lane < kShrinkLanes; ++lane)
      // What is not a number must not be looked at where it counts nothing.
      if (looks || weights[s] != 0) results[s][lane] = fmaf(weights[s], values[lane], results[s][lane]);
}

/// Rows of the input that are taken in a round.
template <class T, ShrinkAccess access, int most, int every>
inline constexpr int kShrinkRowsAtOnce = every == 0 ? kShrinkRowsHeld<T, access> : most* every;

/// @tparam most results that take the same row
/// @tparam every rows after which the next result has all of its rows; 0: any number
template <class T, ShrinkAccess access, int most, int every>
__global__ void __launch_bounds__(kShrinkThreads, kShrinkBlocks)
    shrinkTiles(const __grid_constant__ ShrinkArguments a) {
  extern __shared__ uint4 memory[];
  using Rows = ShrinkRows<T, access>;
  // Rows that come, two batches of rows of sums [thread][lane], weights of rows, the tile's table
  auto* const sums = reinterpret_cast<float*>(memory) + Rows::floats;
  const std::int32_t rowsOfBatch =
      every == 0 ? static_cast<std::int32_t>(a.rowsOfBatch.divisor()) : kShrinkRowsOfBatch;
  float* const rowLines = sums + 2 * rowsOfBatch * kShrinkSums;
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
  place.y = chunk.begin;

  const auto step = static_cast<std::int32_t>(blockDim.x);
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  constexpr int rowsAtOnce = kShrinkRowsAtOnce<T, access, most, every>;
  static_assert(rowsAtOnce % kShrinkRowsHeld<T, access> == 0 &&
                (every == 0 || most % kShrinkRowsOfBatch == 0));
  // Rows behind the last one count nothing.
  const std::int32_t rows = (chunk.rows + rowsAtOnce - 1) / rowsAtOnce * rowsAtOnce;
  for (std::int32_t i = thread; i < rows * kShrinkRowFloats; i += step)
    rowLines[i] = i < chunk.rows * kShrinkRowFloats ? a.rowTable[chunk.firstRow * kShrinkRowFloats + i] : 0;
  for (std::int32_t i = thread; i < a.tileFloats(); i += step) tile[i] = tileTable[i];
  __syncthreads();

  const std::int32_t results = chunk.end - chunk.begin;
  const std::int32_t first = chunk.firstResult - chunk.begin;  // below 0: those of the chunk before this one
  constexpr int pixelFloats = every == 0 ? 0 : kShrinkSlice;
  ShrinkColumnSums<T, access, kShrinkSpan<most, every>, pixelFloats> columns(
      a, place, results, every == 0 ? 0 : first, at.tile * a.groupsOfTile() * kShrinkColumns, firstFloat,
      tile);
  std::int32_t done = first;
  float* batch = sums;
  float* otherBatch = sums + rowsOfBatch * kShrinkSums;
  float slots[most][kShrinkLanes] = {};
  const auto put = [&](float(&values)[kShrinkLanes], std::int32_t row) {
    reinterpret_cast<float4*>(batch + row * kShrinkSums)[threadIdx.x] =
        float4{values[0], values[1], values[2], values[3]};
#pragma unroll
    for (float& value : values) value = 0;
  };
  const auto sumColumns = [&](std::int32_t y) {
    __syncthreads();
    columns.sum(batch, y);
    // While other threads sum, the next rows go beside these ones.
    float* const next = otherBatch;
    otherBatch = batch;
    batch = next;
  };
  const float* line = rowLines;
  // @return how many results have all of their rows with this one
  const auto take = [&](int i) {
    float values[kShrinkLanes];
    input.next(i, values);
    float weights[kShrinkRowFloats];
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const float4 four = *reinterpret_cast<const float4*>(line + kShrinkRowFloats * i + 4 * part);
      weights[4 * part] = four.x;
      weights[4 * part + 1] = four.y;
      weights[4 * part + 2] = four.z;
      weights[4 * part + 3] = four.w;
    }
    const std::uint32_t ends = __float_as_uint(weights[kShrinkMostResults]);
    if ((ends & kShrinkHasNothing) == 0)
      addRow<true>(weights, values, slots);
    else
      addRow<false>(weights, values, slots);
    return ends & ~kShrinkHasNothing;
  };
  const auto goOn = [&] {
    line += rowsAtOnce * kShrinkRowFloats;
    input.goOn(rowsAtOnce);
  };
  if constexpr (every == 0) {
    int slot = chunk.firstResult % most;
    std::int32_t row = 0;
#pragma unroll 1
    for (std::int32_t i = 0; i < rows; i += rowsAtOnce) {
#pragma unroll
      for (int j = 0; j < rowsAtOnce; ++j) {
        const unsigned ends = take(j);
#pragma unroll 1
        for (unsigned left = ends; left > 0 && done < results; --left) {
#pragma unroll
          for (int s = 0; s < most; ++s)
            if (s == slot) put(slots[s], row);
          slot = slot + 1 == most ? 0 : slot + 1;
          if (++done <= 0) continue;
          if (++row < rowsOfBatch && done < results) continue;
          sumColumns(done - row);
          row = 0;
        }
      }
      goOn();
    }
  } else {
#pragma unroll 1
    while (true) {
#pragma unroll
      for (int s = 0; s < most; ++s) {
#pragma unroll
        for (int j = 0; j < every; ++j) take(s * every + j);
        put(slots[s], s % kShrinkRowsOfBatch);
        if (++done == results) break;
        if ((s + 1) % kShrinkRowsOfBatch == 0) sumColumns(done - kShrinkRowsOfBatch);
      }
      if (done == results) break;
      goOn();
    }
    sumColumns(results - 1 - (results - 1 - first) % kShrinkRowsOfBatch);
  }
}

}  // namespace mps::detail::cuda
