#pragma once

#include <algorithm>
#include <cstdint>

#include "mps/core/elements_cuda.cuh"
#include "mps/core/rows_cuda.cuh"

/// Sums over many pixels in two steps of a fixed shape: blocks add up slices, then few threads add up the
/// slices' sums in their order.
namespace mps::detail::cuda {

inline constexpr unsigned kSumLanes = 32;  ///< adjacent results of a block
inline constexpr unsigned kSumRows = 8;    ///< threads that share one result

/// The sum of the values of the block's threads of one threadIdx.x, for threadIdx.y = 0. All threads of the
/// block, kSumLanes x rows, take part.
template <unsigned rows>
__device__ float sumOfRows(float value) {
  __shared__ float shared[rows][kSumLanes];
  shared[threadIdx.y][threadIdx.x] = value;
  __syncthreads();
  float sum = shared[0][threadIdx.x];
  for (unsigned row = 1; row < rows; ++row) sum += shared[row][threadIdx.x];
  __syncthreads();
  return sum;
}

/// Where the sum with number i belongs: a function of i, or null where nobody wants it.
struct SamePlace {
  float* to;
  __device__ float* operator()(std::int64_t i) const { return to + i; }
};

inline constexpr unsigned kSliceRows = 32;  ///< threads that share one sum of slices

/// *place(i) = partial[0][i] + partial[1][i] + ..., or added to what is there.
template <class Place>
__global__ void sumSlices(const float* partial, std::int64_t slices, std::int64_t count, bool accumulate,
                          Place place) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kSumLanes + threadIdx.x;
  float sum = 0;
  if (i < count)
#pragma unroll 8
    for (std::int64_t slice = threadIdx.y; slice < slices; slice += kSliceRows)
      sum += partial[slice * count + i];
  sum = sumOfRows<kSliceRows>(sum);
  if (i >= count || threadIdx.y != 0) return;
  float* const to = place(i);
  if (to != nullptr) *to = accumulate ? *to + sum : sum;
}

template <class Place>
void launchSumSlices(mtl::Stream& stream, const float* partial, std::int64_t slices, std::int64_t count,
                     bool accumulate, const Place& place) {
  mtl::cuda::launch(stream, sumSlices<Place>, dim3(mtl::cuda::blocksFor(count, kSumLanes)),
                    dim3(kSumLanes, kSliceRows), 0, partial, slices, count, accumulate, place);
}

/// Slices that keep a GPU busy, `blocks` blocks for each of them; at most one for each of `items` items.
inline std::int64_t slicesFor(std::int64_t blocks, std::int64_t items) {
  constexpr std::int64_t kBusyBlocks = 1024;
  return std::clamp<std::int64_t>(items, 1, std::max<std::int64_t>(1, kBusyBlocks / blocks));
}

}  // namespace mps::detail::cuda
