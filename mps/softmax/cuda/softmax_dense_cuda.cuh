#pragma once

#include <cuda_pipeline.h>

#include <algorithm>

#include "mps/softmax/cuda/softmax_pixels_cuda.cuh"

/// Softmax of tensors without gaps, of any number of channels: chunks of whole pixels go through shared memory,
/// from and to memory 16 bytes at once.
namespace mps::detail::cuda {

/// Elements of a pixel that a thread holds at most.
inline constexpr unsigned kDenseHeld = 24;
inline constexpr unsigned kDenseThreads = 256;
inline constexpr unsigned kDenseElements = kDenseHeld * kDenseThreads;  ///< of a chunk

struct DenseSoftMax {
  bool isLog = false;
  bool accumulate = false;
  std::uint32_t channels = 0;
  std::uint32_t threads = 1;  ///< that share a pixel: a power of two, at most a warp
  std::uint32_t rounds = 1;   ///< pixels of a chunk that such threads work on, one after the other
  std::int64_t pixels = 0;

  static bool fits(std::int64_t channels) { return channels > 0 && channels <= kDenseHeld * 32; }

  DenseSoftMax() = default;
  /// @param channelCount that fits
  explicit DenseSoftMax(std::int64_t channelCount, std::int64_t pixelCount)
      : channels(static_cast<std::uint32_t>(channelCount)), pixels(pixelCount) {
    // Where the number of channels is even, threads of one each would read the same banks of shared memory.
    while (each() > kDenseHeld || (channels % (4 * threads) == 0 && threads < 32)) threads *= 2;
    rounds = std::max(1U, kDenseElements / (channels * (kDenseThreads / threads)));
  }
  /// Elements of a pixel for each thread, at most.
  [[nodiscard]] __host__ __device__ std::uint32_t each() const { return (channels + threads - 1) / threads; }
  /// Of a chunk; a multiple of 8, so that chunks begin at multiples of 16 bytes.
  [[nodiscard]] __host__ __device__ std::uint32_t chunkPixels() const {
    return kDenseThreads / threads * rounds;
  }
  [[nodiscard]] std::int64_t chunks() const { return (pixels + chunkPixels() - 1) / chunkPixels(); }
};

/// Begins to copy `count` elements to shared memory, both from and to multiples of 16 bytes, by all threads.
template <unsigned threads, class T>
__device__ void fetchChunk(const T* from, std::uint32_t count, T* to) {
  const std::uint32_t vectors = count / kLanes<T>;
#pragma unroll 4
  for (std::uint32_t i = threadIdx.x; i < vectors; i += threads)
    __pipeline_memcpy_async(reinterpret_cast<uint4*>(to) + i, reinterpret_cast<const uint4*>(from) + i,
                            sizeof(uint4));
  for (std::uint32_t i = vectors * kLanes<T> + threadIdx.x; i < count; i += threads) to[i] = from[i];
}
/// Waits for all that was fetched.
__device__ inline void finishFetching() {
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
}
/// The way back. @param accumulate add to what is there
template <unsigned threads, class T>
__device__ void storeChunk(const T* from, std::uint32_t count, T* to, bool accumulate) {
  const std::uint32_t vectors = count / kLanes<T>;
  for (std::uint32_t i = threadIdx.x; i < vectors; i += threads) {
    uint4 vector = reinterpret_cast<const uint4*>(from)[i];
    if (accumulate) {
      Lanes<T> sum = lanesOf(vector, from);
      const Lanes<T> old = loadLanes(to + i * kLanes<T>);
      for (int lane = 0; lane < kLanes<T>; ++lane) sum.values[lane] += old.values[lane];
      storeLanes(sum, to + i * kLanes<T>);
    } else {
      reinterpret_cast<uint4*>(to)[i] = vector;
    }
  }
  for (std::uint32_t i = vectors * kLanes<T> + threadIdx.x; i < count; i += threads)
    store(load(from + i) + (accumulate ? load(to + i) : 0.0F), to + i);
}

/// Combines the values of the threads that share a pixel.
template <class Combine>
__device__ float combinePixel(float value, std::uint32_t threads, Combine combine) {
  for (int distance = static_cast<int>(threads) / 2; distance > 0; distance /= 2)
    value = combine(value, __shfl_xor_sync(0xFFFFFFFFU, value, distance));
  return value;
}

template <class T, SoftMaxDirection direction>
__global__ void __launch_bounds__(kDenseThreads)
    softMaxDense(DenseSoftMax a, const T* input, const T* gradient, T* destination) {
  constexpr bool isForward = direction == SoftMaxDirection::Forward;
  __shared__ uint4 memory[(isForward ? 1 : 2) * kDenseElements / kLanes<T>];
  T* const inputs = reinterpret_cast<T*>(memory);
  T* const results = isForward ? inputs : inputs + kDenseElements;  // dy, then dx
  const std::int64_t firstPixel = static_cast<std::int64_t>(blockIdx.x) * a.chunkPixels();
  const auto pixels =
      static_cast<std::uint32_t>(min(static_cast<std::int64_t>(a.chunkPixels()), a.pixels - firstPixel));
  const std::int64_t first = firstPixel * a.channels;
  fetchChunk<kDenseThreads>(input + first, pixels * a.channels, inputs);
  if constexpr (!isForward) fetchChunk<kDenseThreads>(gradient + first, pixels * a.channels, results);
  finishFetching();

  const std::uint32_t lane = threadIdx.x % a.threads;
  const std::uint32_t each = a.each();
  for (std::uint32_t round = 0; round < a.rounds; ++round) {
    const std::uint32_t pixel = (threadIdx.x + round * kDenseThreads) / a.threads;
    const std::uint32_t begin = pixel * a.channels + lane;
    const std::uint32_t count = pixel < pixels ? (a.channels - lane + a.threads - 1) / a.threads : 0;
    /// Of 24, eight at once are left out; what an element beyond `count` holds does not count.
    const auto forEachHeld = [&](auto visit) {
#pragma unroll
      for (std::uint32_t i = 0; i < kDenseHeld; ++i) {
        if (i % 8 == 0 && i >= each) break;
        visit(i);
      }
    };
    const auto forEachElement = [&](auto visit) {
      std::uint32_t place = begin;
      forEachHeld([&](std::uint32_t i) {
        if (i < count) visit(i, place);
        place += a.threads;
      });
    };
    float values[kDenseHeld];
    if constexpr (isForward) {
      float shift = kLowest;
      forEachHeld([&](std::uint32_t i) { values[i] = kLowest; });
      forEachElement([&](std::uint32_t i, std::uint32_t place) { values[i] = load(inputs + place); });
      forEachHeld([&](std::uint32_t i) { shift = fmaxf(shift, values[i]); });
      shift = combinePixel(shift, a.threads, Maximum());
      float sum = 0;
      forEachHeld([&](std::uint32_t i) {
        values[i] -= shift;
        const float power = exponential(values[i]);
        sum += power;
        if (!a.isLog) values[i] = power;
      });
      sum = combinePixel(sum, a.threads, Sum());
      const LastStep last(a.isLog, sum);
      forEachElement([&](std::uint32_t i, std::uint32_t place) { store(last(values[i]), results + place); });
    } else {
      float dy[kDenseHeld];
      float sum = 0;
      forEachElement([&](std::uint32_t i, std::uint32_t place) {
        values[i] = load(inputs + place);
        dy[i] = load(results + place);
        sum += a.isLog ? dy[i] : dy[i] * values[i];
      });
      sum = combinePixel(sum, a.threads, Sum());
      forEachElement([&](std::uint32_t i, std::uint32_t place) {
        store(gradientOf(a.isLog, values[i], dy[i], sum), results + place);
      });
    }
  }
  __syncthreads();
  storeChunk<kDenseThreads>(results, pixels * a.channels, destination + first, a.accumulate);
}

}  // namespace mps::detail::cuda
