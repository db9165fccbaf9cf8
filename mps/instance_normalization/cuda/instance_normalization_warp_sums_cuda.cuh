#pragma once

#include <algorithm>
#include <cstdint>

/// Sums over the threads of a warp, in which vectors of channels follow one another: thread i has the vector i % vectors.
namespace mps::detail::cuda {

/// Adds up sums of threads that are `distance` apart, then of those half as far apart, down to those of one vector: each of two
/// threads goes on with half of what both have.
/// @tparam have sums of this thread @param begin, count which ones of all it has in the end
template <int have, unsigned distance, int all>
__device__ void shareOutSums(double (&sums)[all], std::uint32_t vectors, int& begin, int& count) {
  if constexpr (distance > 0) {
    if (distance < vectors) return;
    constexpr unsigned warp = 0xFFFFFFFFU;
    constexpr int half = have / 2;
    if constexpr (half == 0) {
      sums[0] += __shfl_xor_sync(warp, sums[0], distance);
    } else {
      const bool takesUpper = (threadIdx.x & distance) != 0;
#pragma unroll
      for (int n = 0; n < half; ++n) {
        const double other = __shfl_xor_sync(warp, takesUpper ? sums[n] : sums[half + n], distance);
        sums[n] = (takesUpper ? sums[half + n] : sums[n]) + other;
      }
      if (takesUpper) begin += half;
      count = half;
    }
    shareOutSums<std::max(half, 1), distance / 2>(sums, vectors, begin, count);
  }
}

/// Calls store(n, sum) for sum n of this thread's vector over the threads that have it; each in one of them, or in several.
template <int all, class Store>
__device__ void sumWarp(double (&sums)[all], std::uint32_t vectors, Store store) {
  const std::uint32_t lane = threadIdx.x % 32;
  if (32 % vectors != 0) {
    for (std::uint32_t distance = vectors; distance < 32; distance *= 2)
#pragma unroll
      for (double& sum : sums) {
        const double other = __shfl_down_sync(0xFFFFFFFFU, sum, distance);
        if (lane + distance < 32) sum += other;
      }
    if (lane < vectors)
#pragma unroll
      for (int n = 0; n < all; ++n) store(n, sums[n]);
    return;
  }
  int begin = 0;
  int count = all;
  shareOutSums<all, 16>(sums, vectors, begin, count);
#pragma unroll
  for (int n = 0; n < all; ++n)
    if (n < count) store(begin + n, sums[n]);
}

}  // namespace mps::detail::cuda
