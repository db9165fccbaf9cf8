#pragma once

#include <algorithm>
#include <cstdint>

#include "mps/core/cuda/elements_cuda.cuh"
#include "mps/core/cuda/rows_cuda.cuh"

/// Sums over many pixels in two steps of a fixed shape: blocks add up slices, then few threads add up the
/// slices' sums in their order.
namespace mps::detail::cuda {

inline constexpr unsigned kSumLanes = 32;  ///< adjacent results of a block
inline constexpr unsigned kSumRows = 8;    ///< threads that share one result

/// The sum of the values of the block's threads of one threadIdx.x, for threadIdx.y = 0; the others get their own
/// value. All threads of the block, kSumLanes x rows, take part.
template <unsigned rows>
__device__ float sumOfRows(float value) {
  __shared__ float shared[rows][kSumLanes];
  shared[threadIdx.y][threadIdx.x] = value;
  __syncthreads();
  if (threadIdx.y == 0)
    for (unsigned row = 1; row < rows; ++row) value += shared[row][threadIdx.x];
  __syncthreads();
  return value;
}

/// Where the sum with number i belongs: a function of i, or null where nobody wants it.
struct SamePlace {
  float* to;
  __device__ float* operator()(std::int64_t i) const { return to + i; }
};

/// Slices that a thread loads together.
inline constexpr int kSlicesAtOnce = 8;

/// *place(i) = partial[0][i] + partial[1][i] + ..., or added to what is there.
/// @tparam rows threads that share one sum
template <unsigned rows, class Place>
__global__ void sumSlices(const float* partial, std::int64_t slices, std::int64_t count, bool accumulate,
                          Place place) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  float sum = 0;
  if (i < count)
    for (std::int64_t first = threadIdx.y; first < slices; first += kSlicesAtOnce * rows) {
      float values[kSlicesAtOnce];
#pragma unroll
      for (int k = 0; k < kSlicesAtOnce; ++k) {
        const std::int64_t slice = first + k * std::int64_t{rows};
        values[k] = slice < slices ? partial[slice * count + i] : 0.0F;
      }
#pragma unroll
      for (const float value : values) sum += value;
    }
  if constexpr (rows > 1) sum = sumOfRows<rows>(sum);
  if (i >= count || threadIdx.y != 0) return;
  float* const to = place(i);
  if (to != nullptr) *to = accumulate ? *to + sum : sum;
}

/// Threads share a sum where that shortens the way through the slices, unless there are sums enough to keep all of a
/// GPU's threads busy.
template <class Place>
void launchSumSlices(mtl::Stream& stream, const float* partial, std::int64_t slices, std::int64_t count,
                     bool accumulate, const Place& place) {
  constexpr std::int64_t kManySums = std::int64_t{1} << 17U;
  constexpr unsigned kFewRows = 8;
  constexpr unsigned kManyRows = 32;
  const auto start = [&](auto* kernel, unsigned lanes, unsigned rows) {
    mtl::cuda::launch(stream, kernel, dim3(mtl::cuda::blocksFor(count, lanes)), dim3(lanes, rows), 0, partial,
                      slices, count, accumulate, place);
  };
  if (slices <= kSlicesAtOnce || count >= kManySums)
    start(sumSlices<1, Place>, mtl::cuda::kBlockThreads, 1);
  else if (slices <= kSlicesAtOnce * std::int64_t{kFewRows})
    start(sumSlices<kFewRows, Place>, kSumLanes, kFewRows);
  else
    start(sumSlices<kManyRows, Place>, kSumLanes, kManyRows);
}

/// Slices that keep a GPU busy, `blocks` blocks for each of them; at most one for each of `items` items.
inline std::int64_t slicesFor(std::int64_t blocks, std::int64_t items) {
  constexpr std::int64_t kBusyBlocks = 1024;
  return std::clamp<std::int64_t>(items, 1, std::max<std::int64_t>(1, kBusyBlocks / blocks));
}

}  // namespace mps::detail::cuda
