#pragma once

#include <cuda_runtime.h>

/// Reductions over the threads of a block, of a fixed shape.
namespace mps::detail::cuda {

/// Warps that a block has at most.
inline constexpr int kMostWarps = 8;

struct Maximum {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};
struct Sum {
  template <class Value>
  __device__ Value operator()(Value a, Value b) const {
    return a + b;
  }
};

/// Combines the values of the threads of each row of the block (threadIdx.x); all of them get the result. The
/// length of a row is a power of two, and the block has 32 threads to 32 kMostWarps. All threads of the block take part.
/// @param shared kMostWarps values of shared memory
template <class Value, class Combine>
__device__ Value combineRow(Value value, Value* shared, Combine combine) {
  const int lanes = min(static_cast<int>(blockDim.x), 32);
  for (int distance = lanes / 2; distance > 0; distance /= 2)
    value = combine(value, __shfl_xor_sync(0xFFFFFFFFU, value, distance));
  if (blockDim.x <= 32) return value;
  const unsigned warps = blockDim.x / 32;
  Value* const ofRow = shared + threadIdx.y * warps;
  __syncthreads();  // the values of the call before were read
  if (threadIdx.x % 32 == 0) ofRow[threadIdx.x / 32] = value;
  __syncthreads();
  value = ofRow[0];
  for (unsigned warp = 1; warp < warps; ++warp) value = combine(value, ofRow[warp]);
  return value;
}

/// The sum of the values of all threads of the block, in thread 0. The number of threads is a power of two, at
/// least 32. @param shared kMostWarps values of shared memory
__device__ inline double sumOfBlock(double value, double* shared) {
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  const unsigned threads = blockDim.x * blockDim.y;
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xFFFFFFFFU, value, distance);
  __syncthreads();
  if (thread % 32 == 0) shared[thread / 32] = value;
  __syncthreads();
  if (thread == 0)
    for (unsigned warp = 1; warp < threads / 32; ++warp) value += shared[warp];
  return value;
}

/// The least power of two with `each` items for each thread of a row, at most a whole block.
inline unsigned threadsOfRow(std::int64_t items, std::int64_t each) {
  unsigned threads = 1;
  while (threads < 32 * kMostWarps && threads * each < items) threads *= 2;
  return threads;
}

}  // namespace mps::detail::cuda
