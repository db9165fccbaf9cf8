#pragma once

#include <cstdint>

#include "mps/core/channel_grid_cuda.cuh"

/// Two float64 sums over the pixels of each channel: chunks of pixels first, which are joined then. Either of all images
/// together, where blockIdx.z is 0, or of each image, where it is the image and a ChannelGrid is that of one.
namespace mps::detail::cuda {

/// Packs that a thread has on their way.
template <class Access, int inputs>
inline constexpr int kPixelBatch = (Access::lanes == 1 ? 2 : 4) / inputs;

/// Two sums of each channel of the tensors from each chunk: [image][chunk][which][channel].
struct ChunkSums {
  double* memory = nullptr;
  std::int64_t channels = 0;  ///< of the tensors, a multiple of the caller's
  std::uint32_t chunks = 0;

  [[nodiscard]] __device__ double* of(std::int64_t image, std::uint32_t chunk, std::int64_t channel) const {
    return memory + (image * chunks + chunk) * 2 * channels + channel;
  }
};

/// Stores the sums of a block's chunk. All threads of the block take part.
template <int lanes>
__device__ void storeChunk(const ChunkSums& to, std::uint32_t pack, bool isInside, double (&first)[lanes],
                           double (&second)[lanes]) {
  __shared__ double shared[lanes][ChannelGrid::kThreads];
  sumColumns(first, shared);
  sumColumns(second, shared);
  if (threadIdx.y != 0 || !isInside) return;
  double* const sums = to.of(blockIdx.z, blockIdx.x, static_cast<std::int64_t>(pack) * lanes);
#pragma unroll
  for (int lane = 0; lane < lanes; ++lane) {
    sums[lane] = first[lane];
    sums[to.channels + lane] = second[lane];
  }
}

/// What moments of a channel are taken of differences from: the image's first pixel. An infinite one would make NaN
/// of every difference.
static __device__ __noinline__ double shiftOf(SourceView source, std::int64_t image, std::int64_t channel) {
  const ElementPlace place{static_cast<std::int32_t>(image), 0, 0, static_cast<std::int32_t>(channel)};
  const float first = OneByOne::load(source, place).values[0];
  return first - first == 0.0F ? static_cast<double>(first) : 0.0;
}

/// sum (x - shift) and sum (x - shift)^2 of each chunk. @tparam byImage of each image @param channels as the caller has
/// them
template <class Access, bool byImage>
__global__ void __launch_bounds__(ChannelGrid::kThreads, 2)
    sumMoments(ChannelGrid grid, std::int64_t channels, SourceView source, ChunkSums sums) {
  constexpr int lanes = Access::lanes;
  constexpr int batch = kPixelBatch<Access, 1>;
  const std::uint32_t pack = grid.pack();
  const bool isInside = pack < grid.packs;
  double first[lanes] = {};
  double second[lanes] = {};
  if (isInside) {
    double shift[lanes];
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane)
      shift[lane] = shiftOf(source, byImage ? blockIdx.z : 0,
                            (static_cast<std::int64_t>(pack) * lanes + lane) % channels);
    typename Access::Fetched fetched[batch];
    grid.template forEachBatch<batch>(
        pack * lanes,
        [&](int i, ElementPlace& place) {
          if constexpr (byImage) place.image = static_cast<std::int32_t>(blockIdx.z);
          fetched[i] = Access::fetch(source, place);
        },
        [&](int i, const ElementPlace& /*place*/) {
          const typename Access::Values values = Access::valuesOf(fetched[i]);
#pragma unroll
          for (int lane = 0; lane < lanes; ++lane) {
            const double difference = static_cast<double>(values.values[lane]) - shift[lane];
            first[lane] += difference;
            second[lane] = fma(difference, difference, second[lane]);
          }
        });
  }
  storeChunk(sums, pack, isInside, first, second);
}

/// sum g and sum g (x - mean) of this thread's pixels, added to `first` and `second`.
/// @tparam byImage of each image @param gradientOf g of a lane, from dy and x
template <class Access, bool byImage, class GradientOf>
__device__ void addGradients(const ChannelGrid& grid, SourceView source, SourceView gradient,
                             const double (&mean)[Access::lanes], GradientOf gradientOf,
                             double (&first)[Access::lanes], double (&second)[Access::lanes]) {
  constexpr int lanes = Access::lanes;
  constexpr int batch = kPixelBatch<Access, 2>;
  typename Access::Fetched fetchedX[batch];
  typename Access::Fetched fetchedDy[batch];
  grid.template forEachBatch<batch>(
      grid.pack() * lanes,
      [&](int i, ElementPlace& place) {
        if constexpr (byImage) place.image = static_cast<std::int32_t>(blockIdx.z);
        fetchedX[i] = Access::fetch(source, place);
        fetchedDy[i] = Access::fetch(gradient, place);
      },
      [&](int i, const ElementPlace& /*place*/) {
        const typename Access::Values x = Access::valuesOf(fetchedX[i]);
        const typename Access::Values dy = Access::valuesOf(fetchedDy[i]);
#pragma unroll
        for (int lane = 0; lane < lanes; ++lane) {
          const auto g = static_cast<double>(gradientOf(lane, dy.values[lane], x.values[lane]));
          first[lane] += g;
          second[lane] = fma(g, static_cast<double>(x.values[lane]) - mean[lane], second[lane]);
        }
      });
}

/// The sums of all chunks for the channel of this column of threads, in the threads with threadIdx.y 0.
/// @tparam threads of a block
template <unsigned threads>
struct JoinedSums {
  double both[2] = {};

  /// @param channels as the caller has them; all threads of the block take part
  __device__ JoinedSums(const ChunkSums& sums, std::int64_t channels, std::int64_t channel) {
    __shared__ double shared[2][threads];
    if (channel < channels) {
      const auto repeats = static_cast<std::uint32_t>(sums.channels / channels);
#pragma unroll 4
      for (std::uint32_t i = threadIdx.y; i < sums.chunks * repeats; i += blockDim.y) {
        const std::uint32_t chunk = i / repeats;
        const double* const from = sums.of(blockIdx.z, chunk, (i - chunk * repeats) * channels + channel);
        both[0] += from[0];
        both[1] += from[sums.channels];
      }
    }
    sumColumns(both, shared);
  }
};

}  // namespace mps::detail::cuda
