#pragma once

#include <type_traits>

#include "mps/core/elements_cuda.cuh"

namespace mps::detail::cuda {

__device__ inline uint4 packOf(const float (&v)[4]) {
  return {__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]), __float_as_uint(v[3])};
}
__device__ inline uint4 packOf(const float (&v)[8]) {
  return {toHalves(v[0], v[1]), toHalves(v[2], v[3]), toHalves(v[4], v[5]), toHalves(v[6], v[7])};
}

/// Elements one by one, or 16 bytes of them.
template <class T, int lanes>
struct Terms {
  using Fetched = std::conditional_t<lanes == 1, T, uint4>;
  float sums[lanes] = {};

  __device__ static Fetched fetch(const T* from) { return *reinterpret_cast<const Fetched*>(from); }
  __device__ void add(const Fetched& fetched) {
    if constexpr (lanes == 1) {
      sums[0] += load(&fetched);
    } else {
      const Lanes<T> values = lanesOf(fetched, static_cast<const T*>(nullptr));
#pragma unroll
      for (int lane = 0; lane < lanes; ++lane) sums[lane] += values.values[lane];
    }
  }
  /// The intrinsic keeps 16 bytes together, which the compiler stores one by one.
  __device__ void store(T* to) const {
    if constexpr (lanes == 1) {
      cuda::store(sums[0], to);
    } else {
      __stcs(reinterpret_cast<uint4*>(to), packOf(sums));
    }
  }
};

}  // namespace mps::detail::cuda
