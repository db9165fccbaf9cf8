#pragma once

#include <algorithm>
#include <cstdint>

#include "mps/upsampling/pack_stream_cuda.cuh"
#include "mps/upsampling/upsampling_cuda.cuh"

/// Gradients of whole packs of channels: a block has some packs of all columns and goes down some rows of an image. Each
/// thread adds up the rows of one column of results, and then, of what all have, the columns of one source pixel.
namespace mps::detail::cuda {

inline constexpr std::int64_t kColumnThreads = 512;  ///< of a block, at most
inline constexpr int kColumnReaders = 4;  ///< results of a row that a pixel gives shares to, at most

struct ColumnArguments {
  Divider chunks;  ///< of the rows of an image
  Divider slices;  ///< of the packs of a pixel
  std::int32_t rowsPerChunk = 0;
  std::int32_t width = 0, height = 0;  ///< of the destination
  std::int32_t originX = 0, originY = 0;
  bool accumulate = false;
  SourceView input;
  ResultView destination;
  AxisTables x;
  AxisTables y;
  dim3 block;  ///< packs, columns
  unsigned blocks = 0;
  std::size_t sharedBytes = 0;

  /// @return whether a block can have whole rows
  bool setGrid(const TensorShape& from, const TensorShape& to, std::int64_t lanes) {
    const std::int64_t columns = std::max(from.width, to.width);
    const std::int64_t packs = to.channels / lanes;
    // Whole lines of 128 bytes, if there are any.
    std::int64_t own = std::min(packs, kColumnThreads / columns);
    while (own > 0 && packs % own != 0) --own;
    if (own < std::min<std::int64_t>(8, packs)) return false;
    // Enough threads for a large GPU come first, and blocks that are short beside what all take.
    constexpr std::int64_t enough = std::int64_t{1} << 20;
    const std::int64_t rows =
        std::clamp<std::int64_t>(to.height * to.images * columns * packs / enough, 8, 64);
    const std::int64_t count = (to.height + rows - 1) / rows;
    rowsPerChunk = static_cast<std::int32_t>((to.height + count - 1) / count);
    chunks = Divider((to.height + rowsPerChunk - 1) / rowsPerChunk);
    slices = Divider(packs / own);
    if (to.images * chunks.divisor() * slices.divisor() > 0x7FFFFFFF) return false;
    blocks = static_cast<unsigned>(to.images * chunks.divisor() * slices.divisor());
    width = static_cast<std::int32_t>(to.width);
    height = static_cast<std::int32_t>(to.height);
    block = dim3(static_cast<unsigned>(own), static_cast<unsigned>(columns));
    constexpr std::size_t rowsHeld = PackStream<float, uint4>::depth;
    sharedBytes = static_cast<std::size_t>(own * columns) *
                  (rowsHeld * sizeof(uint4) + 2 * static_cast<std::size_t>(lanes) * sizeof(float));
    return true;
  }
};

template <class T>
__global__ void __launch_bounds__(kColumnThreads, 2) gatherColumns(ColumnArguments a) {
  constexpr int lanes = kLanes<T>;
  constexpr int parts = lanes / 4;  // of 16 bytes that a sum has
  const unsigned threads = blockDim.x * blockDim.y;
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  extern __shared__ uint4 memory[];
  auto* shared =
      reinterpret_cast<float4*>(memory + PackStream<T, uint4>::depth * threads);  // [parity][part][thread]
  const std::uint32_t strip = a.slices.divide(blockIdx.x);
  const std::uint32_t slice = blockIdx.x - strip * a.slices.divisor();
  const std::uint32_t image = a.chunks.divide(strip);
  const auto column = static_cast<std::int32_t>(threadIdx.y);
  ElementPlace place{static_cast<std::int32_t>(image),
                     static_cast<std::int32_t>(strip - image * a.chunks.divisor()) * a.rowsPerChunk, column,
                     static_cast<std::int32_t>(slice * blockDim.x + threadIdx.x) * lanes};
  const std::int32_t end = min(place.y + a.rowsPerChunk, a.height);
  const bool isResult = column < a.x.results;
  const bool isPixel = column < a.width;

  const Readers columns = isPixel ? a.x.readers[column] : Readers{0, 0};
  float weights[kColumnReaders];
#pragma unroll
  for (int k = 0; k < kColumnReaders; ++k)
    weights[k] =
        columns.begin + k < columns.end ? weightOf(a.x.at(columns.begin + k), column + a.originX) : 0.0F;
  const std::int32_t neighbour = (columns.begin - column) * static_cast<std::int32_t>(blockDim.x);
  const std::int32_t lastEnd = a.y.readers[end - 1].end;  // 0: nothing is read by the last row
  PackStream<T, uint4> input(reinterpret_cast<const T*>(a.input.memory) +
                                 a.input.offset({place.image, 0, isResult ? column : 0, place.channel}),
                             a.input.row, memory + thread, threads, lastEnd > 0 ? lastEnd : a.y.results);
  float sum[lanes] = {};
  float next[lanes] = {};  // of the row below: a result counts in two rows at most
  std::int32_t row = 0;
  shared += thread;
  std::int32_t parity = 0;
  for (; place.y < end; ++place.y) {
    const Readers rows = a.y.readers[place.y];
    const std::int32_t pixel = place.y + a.originY;
    float4* const own = shared + parity * static_cast<std::int32_t>(parts * threads);
    parity ^= 1;
    if (isResult) {
      for (row = max(row, rows.begin); row < rows.end; ++row) {
        const Samples samples = a.y.samples[row];
        const Lanes<T> values = lanesOf(input.get(row), static_cast<const T*>(nullptr));
        const float weight = weightOf(samples, pixel);
        const float nextWeight = weightOf(samples, pixel + 1);
        if (weight != 0)
#pragma unroll
          for (int i = 0; i < lanes; ++i) sum[i] = fmaf(weight, values.values[i], sum[i]);
        if (nextWeight != 0)
#pragma unroll
          for (int i = 0; i < lanes; ++i) next[i] = fmaf(nextWeight, values.values[i], next[i]);
      }
#pragma unroll
      for (int part = 0; part < parts; ++part)
        own[part * static_cast<std::int32_t>(threads)] =
            float4{sum[4 * part], sum[4 * part + 1], sum[4 * part + 2], sum[4 * part + 3]};
#pragma unroll
      for (int i = 0; i < lanes; ++i) {
        sum[i] = next[i];
        next[i] = 0;
      }
    }
    __syncthreads();
    if (isPixel) {
      Lanes<T> result{};
#pragma unroll
      for (int k = 0; k < kColumnReaders; ++k) {
        if (weights[k] == 0) continue;
        const float4* const from = own + neighbour + k * static_cast<std::int32_t>(blockDim.x);
#pragma unroll
        for (int part = 0; part < parts; ++part) {
          const float4 four = from[part * static_cast<std::int32_t>(threads)];
          float* const to = result.values + 4 * part;
          to[0] = fmaf(weights[k], four.x, to[0]);
          to[1] = fmaf(weights[k], four.y, to[1]);
          to[2] = fmaf(weights[k], four.z, to[2]);
          to[3] = fmaf(weights[k], four.w, to[3]);
        }
      }
      InPacks<T>::store(result, a.destination, place, a.accumulate);
    }
  }
}

}  // namespace mps::detail::cuda
