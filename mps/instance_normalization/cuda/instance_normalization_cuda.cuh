#pragma once

#include <cstdint>

#include "mps/core/cuda/channel_sums_cuda.cuh"

/// Kernels of instance and group normalisation; what they compute, and in which roundings, says
/// InstanceNormalizationProblem. blockIdx.z is the image, or in those with a thread for each group or channel
/// blockIdx.y. Tensors may have been widened: channel c of theirs is channel c % channels then.
namespace mps::detail::cuda {

/// Threads of a block that joins chunks.
inline constexpr unsigned kImageJoinThreads = 256;

/// mean and r of the groups of each image.
struct GroupStatistics {
  double* memory = nullptr;
  std::int64_t groups = 0;
  std::int64_t channels = 0;

  [[nodiscard]] __device__ double* means(std::int64_t image) const { return memory + 2 * image * groups; }
  [[nodiscard]] __device__ double* inverseDeviations(std::int64_t image) const {
    return means(image) + groups;
  }
  [[nodiscard]] __device__ std::uint32_t groupChannels() const {
    return static_cast<std::uint32_t>(channels) / static_cast<std::uint32_t>(groups);
  }
};

/// The mean of a channel's group as a float32 number and what that lacks, and r.
struct ChannelStatistics {
  float nearMean;
  double restOfMean;
  double r;

  __device__ ChannelStatistics(const GroupStatistics& statistics, std::int64_t image, std::int64_t group)
      : nearMean(static_cast<float>(statistics.means(image)[group])),
        restOfMean(statistics.means(image)[group] - static_cast<double>(nearMean)),
        r(statistics.inverseDeviations(image)[group]) {}
};

/// Two float64 numbers of each channel of each image: [image][which][channel].
struct ImageSums {
  double* memory = nullptr;
  std::int64_t channels = 0;

  [[nodiscard]] __device__ double* first(std::int64_t image) const { return memory + 2 * image * channels; }
  [[nodiscard]] __device__ double* second(std::int64_t image) const { return first(image) + channels; }
};

/// sum dy and sum dy (x - mean) of each chunk, with the float32 number next to the mean.
template <class Access>
__global__ void __launch_bounds__(ChannelGrid::kThreads, 2)
    sumImageGradients(ChannelGrid grid, SourceView source, SourceView gradient, GroupStatistics statistics,
                      ChunkSums sums) {
  constexpr int lanes = Access::lanes;
  const std::uint32_t vector = grid.vector();
  const bool isInside = vector < grid.vectors;
  double first[lanes] = {};
  double second[lanes] = {};
  if (isInside) {
    double mean[lanes];
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) {
      const std::uint32_t c = channelOf(vector * lanes + lane, statistics.channels);
      mean[lane] = static_cast<double>(
          ChannelStatistics(statistics, blockIdx.z, c / statistics.groupChannels()).nearMean);
    }
    addGradients<Access, true, (lanes > 1)>(grid, source, gradient, mean, SameGradient(), first, second);
  }
  storeChunk(sums, vector, isInside, first, second);
}

/// Joins the chunks of each image. @param pixels of an image: the results are means and sums of squared differences;
/// 0: they are sums
static __global__ void __launch_bounds__(kImageJoinThreads)
    joinImageChunks(ChunkSums sums, SourceView source, double pixels, ImageSums result) {
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  JoinedSums<kImageJoinThreads> joined(sums, result.channels, c);
  if (threadIdx.y != 0 || c >= result.channels) return;
  if (pixels > 0) {
    const double quotient = joined.both[0] / pixels;
    joined.both[1] -= joined.both[0] * quotient;
    joined.both[0] = shiftOf(source, blockIdx.z, c) + quotient;
  }
  result.first(blockIdx.z)[c] = joined.both[0];
  result.second(blockIdx.z)[c] = joined.both[1];
}

struct MeanAndDeviation {
  double mean;
  double inverseDeviation;
};

/// Of a group, from the moments of its channels. @param pixels of an image
__device__ inline MeanAndDeviation statisticsOf(const double* means, const double* squares,
                                                std::int64_t channels, double pixels, double epsilon) {
  double mean = means[0];
  if (channels > 1) {
    double sum = 0;
    for (std::int64_t i = 0; i < channels; ++i) sum += means[i] - mean;
    mean += sum / static_cast<double>(channels);
  }
  double sum = 0;
  for (std::int64_t i = 0; i < channels; ++i)
    sum += squares[i] + pixels * (means[i] - mean) * (means[i] - mean);
  const double variance = sum / (pixels * static_cast<double>(channels));
  return {mean, rsqrt((variance < 0 ? 0.0 : variance) + epsilon)};
}

/// One thread for each group.
static __global__ void finishStatistics(ImageSums moments, double pixels, double epsilon,
                                        GroupStatistics statistics) {
  const std::int64_t group = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (group >= statistics.groups) return;
  const std::int64_t each = statistics.groupChannels();
  const MeanAndDeviation found =
      statisticsOf(moments.first(blockIdx.y) + group * each, moments.second(blockIdx.y) + group * each, each,
                   pixels, epsilon);
  statistics.means(blockIdx.y)[group] = found.mean;
  statistics.inverseDeviations(blockIdx.y)[group] = found.inverseDeviation;
}

struct FinishGradientArguments {
  ImageSums sums;  ///< B and the sums of dy (x - mean)
  GroupStatistics statistics;
  double pixels = 0;
  const float* gamma = nullptr;
  float* gammaGradient = nullptr;  ///< rows of channels; null: `sums` becomes B and G
  float* betaGradient = nullptr;
  double* shares = nullptr;  ///< 1/m sum e of each group of each image, then 1/m sum(e h)
};

/// G, and the shares of the groups; one thread for each group.
static __global__ void finishGradients(FinishGradientArguments a) {
  const std::int64_t group = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (group >= a.statistics.groups) return;
  const std::int64_t image = blockIdx.y;
  const std::int64_t each = a.statistics.groupChannels();
  const ChannelStatistics own(a.statistics, image, group);
  double sum = 0;
  double product = 0;
  for (std::int64_t c = group * each; c < (group + 1) * each; ++c) {
    const double b = a.sums.first(image)[c];
    const double g = own.r * (a.sums.second(image)[c] - own.restOfMean * b);
    if (a.gammaGradient == nullptr) {
      a.sums.second(image)[c] = g;
    } else {
      a.gammaGradient[image * a.statistics.channels + c] = static_cast<float>(g);
      a.betaGradient[image * a.statistics.channels + c] = static_cast<float>(b);
    }
    sum += static_cast<double>(a.gamma[c]) * b;
    product += static_cast<double>(a.gamma[c]) * g;
  }
  const double count = a.pixels * static_cast<double>(each);
  double* const shares = a.shares + 2 * image * a.statistics.groups + group;
  shares[0] = sum / count;
  shares[a.statistics.groups] = product / count;
}

/// Sums over images of which a launch has a part: one launch carries them to the next.
struct CarriedSums {
  double* memory = nullptr;  ///< two numbers of each channel; null where there is one launch
  bool isFirst = true;
  bool isLast = true;
};

/// One thread for each channel: image after image.
static __global__ void sumImages(ImageSums sums, std::int64_t images, CarriedSums carried,
                                 float* gammaGradient, float* betaGradient) {
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (c >= sums.channels) return;
  double gamma = carried.isFirst ? 0 : carried.memory[c];
  double beta = carried.isFirst ? 0 : carried.memory[sums.channels + c];
  for (std::int64_t image = 0; image < images; ++image) {
    gamma += sums.second(image)[c];
    beta += sums.first(image)[c];
  }
  if (!carried.isLast) {
    carried.memory[c] = gamma;
    carried.memory[sums.channels + c] = beta;
    return;
  }
  gammaGradient[c] = static_cast<float>(gamma);
  betaGradient[c] = static_cast<float>(beta);
}

struct NormalizeImageArguments {
  ChannelGrid grid;
  SourceView source;
  ResultView destination;
  GroupStatistics statistics;
  const float* gamma = nullptr;
  const float* beta = nullptr;
};

template <class Access>
__global__ void __launch_bounds__(ChannelGrid::kThreads, 2) normalizeImagePixels(NormalizeImageArguments a) {
  constexpr int lanes = Access::lanes;
  const std::uint32_t vector = a.grid.vector();
  if (vector >= a.grid.vectors) return;
  float mean[lanes];
  float scale[lanes];
  float shift[lanes];
#pragma unroll
  for (int lane = 0; lane < lanes; ++lane) {
    const std::uint32_t c = channelOf(vector * lanes + lane, a.statistics.channels);
    const ChannelStatistics own(a.statistics, blockIdx.z, c / a.statistics.groupChannels());
    mean[lane] = own.nearMean;
    scale[lane] = static_cast<float>(static_cast<double>(a.gamma[c]) * own.r);
    shift[lane] = static_cast<float>(static_cast<double>(a.beta[c]) -
                                     own.restOfMean * static_cast<double>(scale[lane]));
  }
  forEachPixel<Access, true, 1>(a.grid, vector * lanes, {a.source},
                                [&](const ElementPlace& place, const typename Access::Fetched(&fetched)[1]) {
                                  typename Access::Values values = Access::valuesOf(fetched[0]);
#pragma unroll
                                  for (int lane = 0; lane < lanes; ++lane)
                                    values.values[lane] =
                                        (values.values[lane] - mean[lane]) * scale[lane] + shift[lane];
                                  Access::store(values, a.destination, place);
                                });
}

struct ImageGradientArguments {
  ChannelGrid grid;
  SourceView gradient;
  SourceView source;
  ResultView destination;
  GroupStatistics statistics;
  const float* gamma = nullptr;
  const double* shares = nullptr;  ///< as FinishGradientArguments
  bool accumulate = false;
};

template <class Access>
__global__ void __launch_bounds__(ChannelGrid::kThreads, 2) imageGradientOfPixels(ImageGradientArguments a) {
  constexpr int lanes = Access::lanes;
  const std::uint32_t vector = a.grid.vector();
  if (vector >= a.grid.vectors) return;
  float mean[lanes];
  float gamma[lanes];
  float meanGradient[lanes];
  float factor[lanes];
  float inverseDeviation[lanes];
#pragma unroll
  for (int lane = 0; lane < lanes; ++lane) {
    const std::uint32_t c = channelOf(vector * lanes + lane, a.statistics.channels);
    const std::int64_t group = c / a.statistics.groupChannels();
    const ChannelStatistics own(a.statistics, blockIdx.z, group);
    const double* const shares = a.shares + 2 * blockIdx.z * a.statistics.groups + group;
    mean[lane] = own.nearMean;
    gamma[lane] = a.gamma[c];
    factor[lane] = static_cast<float>(own.r * shares[a.statistics.groups]);
    meanGradient[lane] = static_cast<float>(shares[0] - own.restOfMean * static_cast<double>(factor[lane]));
    inverseDeviation[lane] = static_cast<float>(own.r);
  }
  forEachPixel<Access, true, 2>(
      a.grid, vector * lanes, {a.gradient, a.source},
      [&](const ElementPlace& place, const typename Access::Fetched(&fetched)[2]) {
        typename Access::Values values = Access::valuesOf(fetched[0]);
        const typename Access::Values x = Access::valuesOf(fetched[1]);
#pragma unroll
        for (int lane = 0; lane < lanes; ++lane) {
          const float centred = values.values[lane] * gamma[lane] - meanGradient[lane];
          values.values[lane] =
              fmaf(-(x.values[lane] - mean[lane]), factor[lane], centred) * inverseDeviation[lane];
        }
        Access::store(values, a.destination, place, a.accumulate);
      });
}

}  // namespace mps::detail::cuda
