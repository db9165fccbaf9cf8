#pragma once

#include <cuda_pipeline.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "mps/instance_normalization/instance_normalization_cuda.cuh"

/// A block for some channels of an image, whole groups of them: it holds their pixels in shared memory, so that each is
/// read once.
namespace mps::detail::cuda {

inline constexpr unsigned kMostSliceThreads = 512;

struct SliceArguments {
  SourceView source;
  SourceView gradient;
  ResultView destination;
  std::uint32_t pixels = 0;    ///< of an image
  std::uint32_t packs = 0;     ///< of 16 bytes of a slice, at most 32
  std::uint32_t steps = 0;     ///< pixels of a thread, at most
  std::uint32_t held = 0;      ///< tensors in shared memory: 1 or 2, the source first
  std::uint32_t channels = 0;  ///< of a slice, as the caller has them
  std::uint32_t repeats = 1;   ///< of these in a widened pixel
  std::uint32_t groupChannels = 1;
  double imagePixels = 0;  ///< as the caller has them
  double epsilon = 0;
  GroupStatistics statistics;  ///< saved ones, or no memory
  bool readsStatistics = false;
  const float* gamma = nullptr;
  const float* beta = nullptr;
  float* gammaGradient = nullptr;  ///< rows of channels; null: `sums` becomes B and G
  float* betaGradient = nullptr;
  ImageSums sums;
  bool accumulate = false;
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
                std::int64_t groupChannels, std::uint32_t tensors, std::size_t sharedLimit,
                std::size_t sharedOfProcessor) {
    const bool isWidened = shape.channels != channels;
    const std::int64_t packsOfPixel = shape.channels / lanes;
    // Two blocks take turns in loading and storing. Slices of a sector of memory at least.
    const std::size_t half = std::min(sharedLimit, sharedOfProcessor / 2 - 1024);
    for (const std::uint32_t held : {2U, 1U}) {
      if (held > tensors) continue;
      for (const std::size_t limit : {half, sharedLimit}) {
        for (std::int64_t packs = std::min<std::int64_t>(32, packsOfPixel); packs > 0; --packs) {
          const bool isWhole = packs == packsOfPixel;
          if (!isWhole &&
              (isWidened || packs < 2 || packsOfPixel % packs != 0 || packs * lanes % groupChannels != 0))
            continue;
          if (set(shape, packs, lanes, held, limit == half ? 256 : kMostSliceThreads) > limit) continue;
          arguments.channels = static_cast<std::uint32_t>(isWidened ? channels : packs * lanes);
          arguments.repeats = static_cast<std::uint32_t>(packs * lanes / arguments.channels);
          arguments.groupChannels = static_cast<std::uint32_t>(groupChannels);
          slices = static_cast<std::uint32_t>(packsOfPixel / packs);
          return;
        }
      }
    }
  }

 private:
  std::size_t set(const TensorShape& shape, std::int64_t packs, std::int64_t lanes, std::uint32_t held,
                  unsigned blockThreads) {
    threads = blockThreads;
    arguments.pixels = static_cast<std::uint32_t>(shape.width * shape.height);
    arguments.packs = static_cast<std::uint32_t>(packs);
    const std::uint32_t rows = threads / arguments.packs;
    arguments.steps = (arguments.pixels + rows - 1) / rows;
    arguments.held = held;
    const auto channels = static_cast<std::size_t>(packs * lanes);
    sharedBytes = std::size_t{held} * arguments.steps * threads * sizeof(uint4) +
                  (2 * threads / 32 + 4) * channels * sizeof(double) + 5 * channels * sizeof(float);
    return sharedBytes;
  }
};

/// The pixels of a thread's pack of channels, and the shared memory of its block.
template <class T>
struct SlicePart {
  static constexpr int lanes = kLanes<T>;
  static constexpr std::uint32_t batch = 4;   ///< pixels; the sums of float16 are float32 over them
  static constexpr std::uint32_t stages = 4;  ///< that are waited for one after the other
  std::uint32_t rows, row, pack, count, image;
  std::uint32_t stageSteps;
  std::uint32_t wide;    ///< channels of a slice, widened
  std::int64_t channel;  ///< the first one
  const T* source;
  const T* gradient;
  uint4* held;
  double* partial;  ///< [warp][which][widened channel]
  double* first;    ///< of channels
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
        stageSteps((a.steps + stages * batch - 1) / (stages * batch) * batch),
        wide(a.packs * lanes),
        channel(static_cast<std::int64_t>(blockIdx.x) * wide),
        source(reinterpret_cast<const T*>(a.source.memory) + image * a.source.image + channel + pack * lanes),
        gradient(reinterpret_cast<const T*>(a.gradient.memory) + image * a.gradient.image + channel +
                 pack * lanes) {
    extern __shared__ uint4 memory[];
    held = memory + threadIdx.x;
    partial = reinterpret_cast<double*>(memory + a.held * a.steps * blockDim.x);
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
      for (std::uint32_t i = stage * stageSteps; i < end; ++i) {
        __pipeline_memcpy_async(held + i * blockDim.x, source + offset(i, a.source.pixel), sizeof(uint4));
        if (a.held == 2)
          __pipeline_memcpy_async(held + (a.steps + i) * blockDim.x, gradient + offset(i, a.gradient.pixel),
                                  sizeof(uint4));
      }
      __pipeline_commit();
    }
  }
  [[nodiscard]] __device__ Lanes<T> x(std::uint32_t i) const {
    return lanesOf(held[i * blockDim.x], static_cast<const T*>(nullptr));
  }
  [[nodiscard]] __device__ Lanes<T> dy(const SliceArguments& a, std::uint32_t i) const {
    if (a.held == 2) return lanesOf(held[(a.steps + i) * blockDim.x], static_cast<const T*>(nullptr));
    return loadLanes(gradient + offset(i, a.gradient.pixel));
  }

  /// What moments of a channel are taken of differences from: the image's first pixel. An infinite one would make NaN of
  /// every difference.
  [[nodiscard]] __device__ float shiftOf(const SliceArguments& a, std::uint32_t c) const {
    const float value =
        cuda::load(reinterpret_cast<const T*>(a.source.memory) + image * a.source.image + channel + c);
    return value - value == 0.0F ? value : 0.0F;
  }

  /// Sums of two terms over the pixels into `first` and `second`, the terms of lane after lane from
  /// add(i, sums, others). @tparam Add with Sum as the type of sums
  template <class Sum, class Add>
  __device__ void sumPixels(const SliceArguments& a, Add add) const {
    double sums[2 * lanes] = {};
    const auto take = [&](std::uint32_t begin, std::uint32_t end) {
      for (std::uint32_t i = begin; i < end; i += batch) {
        Sum some[2 * lanes] = {};
#pragma unroll
        for (std::uint32_t k = 0; k < batch; ++k)
          if (i + k < end) add(i + k, some);
#pragma unroll
        for (int n = 0; n < 2 * lanes; ++n) sums[n] += static_cast<double>(some[n]);
      }
    };
    __pipeline_wait_prior(3);
    take(0, min(stageSteps, count));
    __pipeline_wait_prior(2);
    take(stageSteps, min(2 * stageSteps, count));
    __pipeline_wait_prior(1);
    take(2 * stageSteps, min(3 * stageSteps, count));
    __pipeline_wait_prior(0);
    take(3 * stageSteps, count);

    // Threads of a warp that have the same pack, then those of all warps and of all repeats.
    const std::uint32_t lane = threadIdx.x % 32;
    const std::uint32_t warp = threadIdx.x / 32;
    for (std::uint32_t distance = a.packs; distance < 32; distance *= 2)
#pragma unroll
      for (double& sum : sums) {
        const double other = __shfl_down_sync(0xFFFFFFFFU, sum, distance);
        if (lane + distance < 32) sum += other;
      }
    __syncthreads();  // the sums of the call before were read
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
    if (a.readsStatistics) {
      for (std::uint32_t g = threadIdx.x; g < groups; g += blockDim.x) {
        means[g] = a.statistics.means(image)[firstGroup + g];
        inverseDeviations[g] = a.statistics.inverseDeviations(image)[firstGroup + g];
      }
      return __syncthreads();
    }
    float shift[lanes];
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) shift[lane] = shiftOf(a, (pack * lanes + lane) % a.channels);
    using Sum = std::conditional_t<sizeof(T) == sizeof(float), double, float>;
    sumPixels<Sum>(a, [&](std::uint32_t i, Sum(&sums)[2 * lanes]) {
      const Lanes<T> values = x(i);
#pragma unroll
      for (int lane = 0; lane < lanes; ++lane) {
        const Sum difference = static_cast<Sum>(values.values[lane]) - static_cast<Sum>(shift[lane]);
        sums[lane] += difference;
        sums[lanes + lane] = fma(difference, difference, sums[lanes + lane]);
      }
    });
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
      values.values[lane] = (values.values[lane] - mean[lane]) * scale[lane] + shift[lane];
    storeLanes(values, to + part.offset(i, a.destination.pixel));
  }
}

template <class T>
__global__ void __launch_bounds__(kMostSliceThreads) gradientOfSlices(SliceArguments a) {
  constexpr int lanes = kLanes<T>;
  const SlicePart<T> part(a);
  part.load(a);
  const std::uint32_t groups = a.channels / a.groupChannels;
  const std::int64_t firstGroup = static_cast<std::int64_t>(blockIdx.x) * groups;
  part.findStatistics(a, groups, firstGroup);
  float mean[lanes];
#pragma unroll
  for (int lane = 0; lane < lanes; ++lane)
    mean[lane] = static_cast<float>(part.means[(part.pack * lanes + lane) % a.channels / a.groupChannels]);
  using Sum = std::conditional_t<sizeof(T) == sizeof(float), double, float>;
  part.template sumPixels<Sum>(a, [&](std::uint32_t i, Sum(&sums)[2 * lanes]) {
    const Lanes<T> x = part.x(i);
    const Lanes<T> dy = part.dy(a, i);
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) {
      const auto g = static_cast<Sum>(dy.values[lane]);
      sums[lane] += g;
      sums[lanes + lane] =
          fma(g, static_cast<Sum>(x.values[lane]) - static_cast<Sum>(mean[lane]), sums[lanes + lane]);
    }
  });
  for (std::uint32_t c = threadIdx.x; c < a.channels; c += blockDim.x) {
    const std::uint32_t group = c / a.groupChannels;
    const double b = part.first[c];
    const double rest = part.means[group] - static_cast<double>(static_cast<float>(part.means[group]));
    const double g = part.inverseDeviations[group] * (part.second[c] - rest * b);
    if (a.gammaGradient == nullptr) {
      a.sums.first(part.image)[part.channel + c] = b;
      a.sums.second(part.image)[part.channel + c] = g;
    } else {
      a.gammaGradient[part.image * a.sums.channels + part.channel + c] = static_cast<float>(g);
      a.betaGradient[part.image * a.sums.channels + part.channel + c] = static_cast<float>(b);
    }
    const auto gamma = static_cast<double>(a.gamma[part.channel + c]);
    part.first[c] = gamma * b;
    part.second[c] = gamma * g;
  }
  if (a.destination.memory == nullptr) return;
  __syncthreads();
  for (std::uint32_t i = threadIdx.x; i < part.wide; i += blockDim.x) {
    const std::uint32_t c = i % a.channels;
    const std::uint32_t group = c / a.groupChannels;
    double sum = 0;
    double product = 0;
    for (std::uint32_t k = group * a.groupChannels; k < (group + 1) * a.groupChannels; ++k) {
      sum += part.first[k];
      product += part.second[k];
    }
    const double size = a.imagePixels * a.groupChannels;
    const double r = part.inverseDeviations[group];
    const auto nearMean = static_cast<float>(part.means[group]);
    const auto factor = static_cast<float>(r * (product / size));
    const double rest = part.means[group] - static_cast<double>(nearMean);
    part.table[i] = nearMean;
    part.table[part.wide + i] = a.gamma[part.channel + c];
    part.table[2 * part.wide + i] = static_cast<float>(sum / size - rest * static_cast<double>(factor));
    part.table[3 * part.wide + i] = factor;
    part.table[4 * part.wide + i] = static_cast<float>(r);
  }
  __syncthreads();
  float gamma[lanes];
  float meanGradient[lanes];
  float factor[lanes];
  float inverseDeviation[lanes];
#pragma unroll
  for (int lane = 0; lane < lanes; ++lane) {
    const float* const from = part.table + part.pack * lanes + lane;
    gamma[lane] = from[part.wide];
    meanGradient[lane] = from[2 * part.wide];
    factor[lane] = from[3 * part.wide];
    inverseDeviation[lane] = from[4 * part.wide];
  }
  T* const to = reinterpret_cast<T*>(a.destination.memory) + part.image * a.destination.image + part.channel +
                part.pack * lanes;
#pragma unroll 2
  for (std::uint32_t i = 0; i < part.count; ++i) {
    const Lanes<T> x = part.x(i);
    Lanes<T> values = part.dy(a, i);
    T* const at = to + part.offset(i, a.destination.pixel);
    Lanes<T> old{};
    if (a.accumulate) old = loadLanes(at);
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) {
      const float centred = values.values[lane] * gamma[lane] - meanGradient[lane];
      values.values[lane] =
          fmaf(-(x.values[lane] - mean[lane]), factor[lane], centred) * inverseDeviation[lane];
      if (a.accumulate) values.values[lane] += old.values[lane];
    }
    storeLanes(values, at);
  }
}

}  // namespace mps::detail::cuda
