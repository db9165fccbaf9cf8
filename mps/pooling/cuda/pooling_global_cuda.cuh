#pragma once

#include <algorithm>
#include <cstdint>

#include "mps/core/cuda/elements_cuda.cuh"
#include "mps/core/cuda/rows_cuda.cuh"
#include "mps/pooling/cuda/pooling_windows_cuda.cuh"
#include "mps/pooling/pooling_problem.hpp"

/// Linear pooling with one window for each image, which is the image: a block for some channels of an image.
namespace mps::detail::cuda {

inline constexpr std::int32_t kGlobalThreads = 512;

struct GlobalPoolingArguments {
  std::int32_t pixels = 1;  ///< of an image
  std::int32_t channels = 1;
  Divider width;
  Divider blockChannels;  ///< adjacent threads have adjacent channels
  std::int64_t pixelStride = 0;
  std::int64_t rowStride = 0;
  std::int64_t imageStride = 0;
  std::int64_t resultStride = 0;  ///< from one image's results to the next one's
  bool accumulate = false;

  static constexpr std::int64_t kMostBlockChannels = 64;

  /// Whether the problem is of that kind and its numbers are small enough.
  static bool takes(const PoolingProblem& problem) {
    const auto isWhole = [](const WindowAxis& axis) {
      return axis.destinationSize == 1 && axis.kernelSize == axis.sourceSize && axis.dilation == 1 &&
             axis.firstTap(0) == 0;
    };
    const bool showsAll = problem.direction == PoolingDirection::Forward ||
                          (problem.destinationOriginX == 0 && problem.destinationOriginY == 0 &&
                           problem.destination.width == problem.source.width &&
                           problem.destination.height == problem.source.height);
    return problem.traits().isLinear && isWhole(problem.x) && isWhole(problem.y) && showsAll &&
           problem.taps() <= 0x3FFFFFFF && problem.source.images <= 0x7FFFFFFF &&
           problem.source.channels <= 65535 * kMostBlockChannels;
  }

  GlobalPoolingArguments() = default;
  /// @param images, results of the problem's tensors
  GlobalPoolingArguments(const PoolingProblem& problem, const TensorShape& images, const TensorShape& results)
      : pixels(static_cast<std::int32_t>(problem.taps())),
        channels(static_cast<std::int32_t>(images.channels)),
        width(images.width),
        blockChannels(std::min(images.channels, kMostBlockChannels)),
        pixelStride(images.pixelStride),
        rowStride(images.rowStride),
        imageStride(images.imageStride),
        resultStride(results.imageStride) {}

  /// Pixels that a block has at a time.
  [[nodiscard]] __host__ __device__ std::int32_t lanes() const {
    return kGlobalThreads / static_cast<std::int32_t>(blockChannels.divisor());
  }
  [[nodiscard]] __device__ std::int64_t offset(std::int32_t pixel) const {
    const auto y = static_cast<std::int32_t>(width.divide(static_cast<std::uint32_t>(pixel)));
    return y * rowStride + (pixel - y * static_cast<std::int32_t>(width.divisor())) * pixelStride;
  }
};

/// What a thread has of its block's pixels and channels.
struct GlobalPoolingPlace {
  std::int32_t lane;
  std::int32_t channel;
  bool isInside;

  __device__ explicit GlobalPoolingPlace(const GlobalPoolingArguments& a)
      : lane(static_cast<std::int32_t>(a.blockChannels.divide(threadIdx.x))),
        channel(static_cast<std::int32_t>((blockIdx.y - lane) * a.blockChannels.divisor() + threadIdx.x)),
        isInside(lane < a.lanes() && channel < a.channels) {}
};

/// Divides by the taps, all of which count.
struct GlobalDivisor {
  float taps;
  __device__ float operator()(float value) const { return value / taps; }
};

template <class Operation, class T>
__global__ void __launch_bounds__(kGlobalThreads)
    poolImages(GlobalPoolingArguments a, const T* source, T* destination) {
  __shared__ float sums[kGlobalThreads];
  const GlobalPoolingPlace place(a);
  const T* const from = source + blockIdx.x * a.imageStride + place.channel;
  float sum = 0;
  if (place.isInside) {
#pragma unroll 8
    for (std::int32_t pixel = place.lane; pixel < a.pixels; pixel += a.lanes())
      sum = Operation::add(sum, load(from + a.offset(pixel)));
  }
  sums[threadIdx.x] = sum;
  for (std::int32_t count = a.lanes(); count > 1;) {
    const std::int32_t half = (count + 1) / 2;
    __syncthreads();
    if (place.lane < count - half)
      sums[threadIdx.x] =
          Operation::merge(sums[threadIdx.x], sums[threadIdx.x + half * a.blockChannels.divisor()]);
    count = half;
  }
  if (place.lane == 0 && place.isInside)
    store(Operation::finish(sums[threadIdx.x], GlobalDivisor{static_cast<float>(a.pixels)}),
          destination + blockIdx.x * a.resultStride + place.channel);
}

/// Blocks (image, channels, slice of the pixels).
template <class Operation, class T>
__global__ void __launch_bounds__(kGlobalThreads)
    spreadShares(GlobalPoolingArguments a, const T* gradient, T* destination) {
  const GlobalPoolingPlace place(a);
  if (!place.isInside) return;
  const float share = Operation::share(load(gradient + blockIdx.x * a.resultStride + place.channel),
                                       GlobalDivisor{static_cast<float>(a.pixels)});
  T* const to = destination + blockIdx.x * a.imageStride + place.channel;
  const auto step = static_cast<std::int32_t>(gridDim.z) * a.lanes();
  for (std::int32_t pixel = static_cast<std::int32_t>(blockIdx.z) * a.lanes() + place.lane; pixel < a.pixels;
       pixel += step) {
    T* const at = to + a.offset(pixel);
    store(a.accumulate ? load(at) + share : share, at);
  }
}

}  // namespace mps::detail::cuda
