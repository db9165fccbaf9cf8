#pragma once

#include <cuda_pipeline.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "mps/instance_normalization/instance_normalization_cuda.cuh"

/// A block for some channels of an image, whole groups of them: it holds their pixels in shared memory, so that each is
/// read once.
namespace mps::detail::cuda {

inline constexpr unsigned kMostSliceThreads = 1024;

struct SliceArguments {
  SourceView source;
  ResultView destination;
  std::uint32_t pixels = 0;    ///< of an image
  std::uint32_t packs = 0;     ///< of 16 bytes of a slice, at most 32
  std::uint32_t channels = 0;  ///< of a slice, as the caller has them
  std::uint32_t groupChannels = 1;
  double imagePixels = 0;  ///< as the caller has them
  double epsilon = 0;
  GroupStatistics statistics;  ///< to save, or no memory
  const float* gamma = nullptr;
  const float* beta = nullptr;
};

/// How the slices of a problem are cut.
struct SliceDivision {
  SliceArguments arguments;
  std::uint32_t slices = 0;  ///< 0: an image is too large
  unsigned threads = 0;
  std::size_t sharedBytes = 0;

  /// @param shape of the source, perhaps widened @param channels before that @param sharedLimit of a block
  /// @param sharedOfProcessor of all of its blocks
  SliceDivision(const TensorShape& shape, std::int64_t lanes, std::int64_t channels,
                std::int64_t groupChannels, std::size_t sharedLimit, std::size_t sharedOfProcessor) {
    const bool isWidened = shape.channels != channels;
    const std::int64_t packsOfPixel = shape.channels / lanes;
    // Two blocks take turns in loading and storing. Slices of a sector of memory at least.
    const std::size_t half = std::min(sharedLimit, sharedOfProcessor / 2 - 1024);
    for (const std::size_t limit : {half, sharedLimit}) {
      threads = limit == half ? kMostSliceThreads / 2 : kMostSliceThreads;
      for (std::int64_t packs = std::min<std::int64_t>(32, packsOfPixel); packs > 0; --packs) {
        const bool isWhole = packs == packsOfPixel;
        if (!isWhole &&
            (isWidened || packs < 2 || packsOfPixel % packs != 0 || packs * lanes % groupChannels != 0))
          continue;
        const auto wide = static_cast<std::size_t>(packs * lanes);
        const auto pixels = static_cast<std::size_t>(shape.width * shape.height);
        sharedBytes = pixels * static_cast<std::size_t>(packs) * sizeof(uint4) +
                      (2 * threads / 32 + 4) * wide * sizeof(double) + 3 * wide * sizeof(float);
        if (sharedBytes > limit) continue;
        arguments.pixels = static_cast<std::uint32_t>(pixels);
        arguments.packs = static_cast<std::uint32_t>(packs);
        arguments.channels = static_cast<std::uint32_t>(isWidened ? channels : packs * lanes);
        arguments.groupChannels = static_cast<std::uint32_t>(groupChannels);
        slices = static_cast<std::uint32_t>(packsOfPixel / packs);
        return;
      }
    }
  }
};

/// The pixels of a thread's pack of channels, and the shared memory of its block.
template <class T>
struct SlicePart {
  static constexpr int lanes = kLanes<T>;
  static constexpr std::uint32_t stages = 4;  ///< that are waited for one after the other
  std::uint32_t rows, row, pack, count, image;
  std::uint32_t stageSteps;
  std::uint32_t wide;    ///< channels of a slice, widened
  std::int64_t channel;  ///< the first one
  const T* source;
  uint4* held;
  std::uint32_t step;  ///< from one held pixel of a thread to the next
  double* partial;     ///< [warp][which][widened channel]
  double* first;       ///< of channels
  double* second;
  double* means;  ///< of groups
  double* inverseDeviations;
  float* table;  ///< [which][widened channel]

  __device__ explicit SlicePart(const SliceArguments& a)
      : rows(blockDim.x / a.packs),
        row(threadIdx.x / a.packs),
        pack(threadIdx.x - row * a.packs),
        count(row < rows && row < a.pixels ? (a.pixels - row + rows - 1) / rows : 0),
        image(blockIdx.y),
        stageSteps((a.pixels + stages * rows - 1) / (stages * rows)),
        wide(a.packs * lanes),
        channel(static_cast<std::int64_t>(blockIdx.x) * wide),
        source(reinterpret_cast<const T*>(a.source.memory) + image * a.source.image + channel + pack * lanes),
        step(rows * a.packs) {
    extern __shared__ uint4 memory[];
    held = memory + threadIdx.x;
    partial = reinterpret_cast<double*>(memory + a.pixels * a.packs);
    first = partial + 2 * (blockDim.x / 32) * wide;
    second = first + wide;
    means = second + wide;
    inverseDeviations = means + wide;
    table = reinterpret_cast<float*>(inverseDeviations + wide);
  }
  [[nodiscard]] __device__ std::int64_t offset(std::uint32_t i, std::int32_t pixelStride) const {
    return static_cast<std::int64_t>(row + i * rows) * pixelStride;
  }

  /// Starts to load all that is held.
  __device__ void load(const SliceArguments& a) const {
    for (std::uint32_t stage = 0; stage < stages; ++stage) {
      const std::uint32_t end = min((stage + 1) * stageSteps, count);
      for (std::uint32_t i = stage * stageSteps; i < end; ++i)
        __pipeline_memcpy_async(held + i * step, source + offset(i, a.source.pixel), sizeof(uint4));
      __pipeline_commit();
    }
  }
  [[nodiscard]] __device__ Lanes<T> x(std::uint32_t i) const {
    return lanesOf(held[i * step], static_cast<const T*>(nullptr));
  }

  /// What moments of a channel are taken of differences from: the image's first pixel. An infinite one would make NaN of
  /// every difference.
  [[nodiscard]] __device__ float shiftOf(const SliceArguments& a, std::uint32_t c) const {
    const float value =
        cuda::load(reinterpret_cast<const T*>(a.source.memory) + image * a.source.image + channel + c);
    return value - value == 0.0F ? value : 0.0F;
  }

  /// Sums of the differences from shiftOf and of their squares over the pixels, into `first` and `second`.
  __device__ void sumMoments(const SliceArguments& a) const {
    double shift[lanes];
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane)
      shift[lane] = static_cast<double>(shiftOf(a, (pack * lanes + lane) % a.channels));
    double sums[2 * lanes] = {};
    FiniteWatch watch;
    const auto take = [&](auto* type, std::uint32_t begin, std::uint32_t end) {
      using Pack = std::remove_pointer_t<decltype(type)>;
      for (std::uint32_t i = begin; i < end; ++i) {
        const Pack values(held[i * step], watch);
#pragma unroll
        for (int lane = 0; lane < lanes; ++lane) {
          const double difference = fma(values.values[lane], Pack::factor, -shift[lane]);
          sums[lane] += difference;
          sums[lanes + lane] = fma(difference, difference, sums[lanes + lane]);
        }
      }
    };
    constexpr MovedPack<T>* moved = nullptr;
    __pipeline_wait_prior(3);
    take(moved, 0, min(stageSteps, count));
    __pipeline_wait_prior(2);
    take(moved, stageSteps, min(2 * stageSteps, count));
    __pipeline_wait_prior(1);
    take(moved, 2 * stageSteps, min(3 * stageSteps, count));
    __pipeline_wait_prior(0);
    take(moved, 3 * stageSteps, count);
    if (!watch.allFinite()) {
#pragma unroll
      for (double& sum : sums) sum = 0;
      take(static_cast<ConvertedPack<InPacks<T>>*>(nullptr), 0, count);
    }

    // Threads of a warp that have the same pack, then those of all warps and of all repeats.
    const std::uint32_t lane = threadIdx.x % 32;
    const std::uint32_t warp = threadIdx.x / 32;
    for (std::uint32_t distance = a.packs; distance < 32; distance *= 2)
#pragma unroll
      for (double& sum : sums) {
        const double other = __shfl_down_sync(0xFFFFFFFFU, sum, distance);
        if (lane + distance < 32) sum += other;
      }
    if (lane < a.packs)
#pragma unroll
      for (int n = 0; n < 2 * lanes; ++n)
        partial[(2 * warp + n / lanes) * wide + pack * lanes + n % lanes] = sums[n];
    __syncthreads();
    for (std::uint32_t c = threadIdx.x; c < a.channels; c += blockDim.x) {
      double both[2] = {};
      for (std::uint32_t i = 0; i < blockDim.x / 32; ++i)
        for (std::uint32_t from = c; from < wide; from += a.channels) {
          both[0] += partial[2 * i * wide + from];
          both[1] += partial[(2 * i + 1) * wide + from];
        }
      first[c] = both[0];
      second[c] = both[1];
    }
    __syncthreads();
  }

  /// mean and r of the groups. @param groups of a slice
  __device__ void findStatistics(const SliceArguments& a, std::uint32_t groups,
                                 std::int64_t firstGroup) const {
    sumMoments(a);
    for (std::uint32_t c = threadIdx.x; c < a.channels; c += blockDim.x) {
      const double quotient = first[c] / a.imagePixels;
      second[c] -= first[c] * quotient;
      first[c] = static_cast<double>(shiftOf(a, c)) + quotient;
    }
    __syncthreads();
    for (std::uint32_t g = threadIdx.x; g < groups; g += blockDim.x) {
      const MeanAndDeviation found = statisticsOf(first + g * a.groupChannels, second + g * a.groupChannels,
                                                  a.groupChannels, a.imagePixels, a.epsilon);
      means[g] = found.mean;
      inverseDeviations[g] = found.inverseDeviation;
      if (a.statistics.memory == nullptr) continue;
      a.statistics.means(image)[firstGroup + g] = found.mean;
      a.statistics.inverseDeviations(image)[firstGroup + g] = found.inverseDeviation;
    }
    __syncthreads();
  }
};

template <class T>
__global__ void __launch_bounds__(kMostSliceThreads) normalizeSlices(SliceArguments a) {
  constexpr int lanes = kLanes<T>;
  const SlicePart<T> part(a);
  part.load(a);
  const std::uint32_t groups = a.channels / a.groupChannels;
  part.findStatistics(a, groups, static_cast<std::int64_t>(blockIdx.x) * groups);
  for (std::uint32_t i = threadIdx.x; i < part.wide; i += blockDim.x) {
    const std::uint32_t c = i % a.channels;
    const double mean = part.means[c / a.groupChannels];
    const auto nearMean = static_cast<float>(mean);
    const auto scale = static_cast<float>(static_cast<double>(a.gamma[part.channel + c]) *
                                          part.inverseDeviations[c / a.groupChannels]);
    part.table[i] = nearMean;
    part.table[part.wide + i] = scale;
    part.table[2 * part.wide + i] =
        static_cast<float>(static_cast<double>(a.beta[part.channel + c]) -
                           (mean - static_cast<double>(nearMean)) * static_cast<double>(scale));
  }
  __syncthreads();
  float mean[lanes];
  float scale[lanes];
  float shift[lanes];
#pragma unroll
  for (int lane = 0; lane < lanes; ++lane) {
    const float* const from = part.table + part.pack * lanes + lane;
    mean[lane] = from[0];
    scale[lane] = from[part.wide];
    shift[lane] = from[2 * part.wide];
  }
  T* const to = reinterpret_cast<T*>(a.destination.memory) + part.image * a.destination.image + part.channel +
                part.pack * lanes;
#pragma unroll 4
  for (std::uint32_t i = 0; i < part.count; ++i) {
    Lanes<T> values = part.x(i);
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane)
      values.values[lane] = fmaf(values.values[lane] - mean[lane], scale[lane], shift[lane]);
    storeLanes(values, to + part.offset(i, a.destination.pixel));
  }
}

}  // namespace mps::detail::cuda
