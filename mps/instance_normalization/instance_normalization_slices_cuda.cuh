#pragma once

#include <cuda_pipeline.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <type_traits>

#include "mps/instance_normalization/instance_normalization_cuda.cuh"

/// A few blocks for some channels of an image, whole groups of them: they hold the pixels in shared memory, so that each
/// is read once, and read one another's sums there.
namespace mps::detail::cuda {

inline constexpr unsigned kMostSliceThreads = 512;

/// Blocks of one slice, which follow one another along x, share their memory from compute capability 9.0 on.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define UNMETAL_BLOCKS_OF_SLICE(blocks)
#else
#define UNMETAL_BLOCKS_OF_SLICE(blocks) __cluster_dims__(blocks)
#endif

/// @name Between the blocks of a slice. All threads take part in arriving and waiting.
/// @{
__device__ inline void arriveInSlice() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
}
__device__ inline void waitInSlice() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}
/// @param own address in this block's shared memory @return what stands there in that of another block
__device__ inline double readInSlice(const double* own, unsigned block) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  std::uint32_t address = 0;
  double value = 0;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(address)
      : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(own))), "r"(block));
  asm volatile("ld.shared::cluster.f64 %0, [%1];" : "=d"(value) : "r"(address) : "memory");
  return value;
#else
  return *own;
#endif
}
/// @}

struct SliceArguments {
  SourceView source;
  SourceView gradient;  ///< of gradients
  ResultView destination;
  std::uint32_t pixels = 0;         ///< of an image
  std::uint32_t pixelsOfBlock = 0;  ///< at most
  std::uint32_t packs = 0;          ///< of 16 bytes of a slice, at most 32
  Divider channels;                 ///< of a slice, as the caller has them
  Divider groupChannels;
  double imagePixels = 0;           ///< as the caller has them
  double inversePixels = 0;         ///< 1 / imagePixels
  double inverseGroupElements = 0;  ///< 1 / m
  double epsilon = 0;
  GroupStatistics statistics;  ///< to save, or for gradients to read; or no memory
  const float* gamma = nullptr;
  const float* beta = nullptr;
  // Of gradients.
  ImageSums sums;                  ///< what B and G go to where the next is null
  float* gammaGradient = nullptr;  ///< rows of channels
  float* betaGradient = nullptr;
  bool computesData = true;
  bool accumulate = false;

  /// The caller's channel of a slice behind a widened one.
  [[nodiscard]] __device__ std::uint32_t channelOf(std::uint32_t i) const {
    return i - channels.divide(i) * channels.divisor();
  }
  /// Of a channel as the caller has it.
  [[nodiscard]] __device__ std::uint32_t groupOf(std::uint32_t c) const { return groupChannels.divide(c); }
};

/// How the slices of a problem are cut.
struct SliceDivision {
  SliceArguments arguments;
  unsigned slices = 0;  ///< 0: an image is too large
  unsigned blocks = 1;  ///< of a slice: 1, 2, 4 or 8
  unsigned threads = 0;
  std::size_t sharedBytes = 0;

  /// How many blocks of a multiprocessor take turns in loading, adding and storing, and how many packs slices have at
  /// least: the L2 cache answers for a line of 128 bytes as fast as for a part of it.
  struct Preference {
    std::int64_t fewestPacks;
    unsigned neighbours;
    unsigned mostBlocks;  ///< of a slice; those alone wait for no others
  };
  /// Best first. @param sums of a thread, two for each: sixteen take so long that turns matter more than lines
  static std::span<const Preference> preferences(std::int64_t sums) {
    static constexpr Preference few[] = {{8, 4, 1}, {8, 3, 1}, {8, 4, 8}, {8, 2, 8}, {4, 4, 8},
                                         {4, 2, 8}, {2, 4, 8}, {2, 2, 8}, {4, 1, 8}, {2, 1, 8}};
    static constexpr Preference many[] = {{8, 4, 1}, {8, 3, 1}, {4, 4, 8}, {8, 2, 8}, {4, 2, 8},
                                          {2, 4, 8}, {2, 2, 8}, {4, 1, 8}, {2, 1, 8}};
    return sums < 16 ? std::span<const Preference>(few) : many;
  }

  /// @param shape of the source, perhaps widened @param channels before that @param tensors that are held
  /// @param mostBlocks of a slice @param sharedLimit of a block @param sharedOfProcessor of all of its blocks
  SliceDivision(const TensorShape& shape, std::int64_t lanes, std::int64_t channels,
                std::int64_t groupChannels, std::int64_t tensors, unsigned mostBlocks,
                std::size_t sharedLimit, std::size_t sharedOfProcessor) {
    const bool isWidened = shape.channels != channels;
    const std::int64_t packsOfPixel = shape.channels / lanes;
    const std::int64_t pixels = shape.width * shape.height;
    for (const auto& [fewestPacks, neighbours, most] : preferences(lanes * tensors)) {
      const std::size_t limit = std::min(sharedLimit, sharedOfProcessor / neighbours - 1024);
      threads = kMostSliceThreads / std::bit_ceil(neighbours);
      for (blocks = 1; blocks <= std::min(most, mostBlocks); blocks *= 2)
        for (std::int64_t packs = std::min<std::int64_t>(32, packsOfPixel); packs > 0; --packs) {
          const bool isWhole = packs == packsOfPixel;
          if (!isWhole && (isWidened || packs < fewestPacks || packsOfPixel % packs != 0 ||
                           packs * lanes % groupChannels != 0))
            continue;
          const auto wide = static_cast<std::size_t>(packs * lanes);
          const std::int64_t own = (pixels + blocks - 1) / blocks;
          sharedBytes = static_cast<std::size_t>(own * packs * tensors) * sizeof(uint4) +
                        (2 * threads / 32 + 8) * wide * sizeof(double) + 3 * wide * sizeof(float);
          if (sharedBytes > limit) continue;
          arguments.pixels = static_cast<std::uint32_t>(pixels);
          arguments.pixelsOfBlock = static_cast<std::uint32_t>(own);
          arguments.packs = static_cast<std::uint32_t>(packs);
          arguments.channels = Divider(isWidened ? channels : packs * lanes);
          arguments.groupChannels = Divider(groupChannels);
          slices = static_cast<unsigned>(packsOfPixel / packs);
          return;
        }
    }
  }
};

/// The pixels of a thread's pack of channels, and the shared memory of its block.
/// @tparam blocks of a slice @tparam tensors that are held: the source, and the gradient
template <class T, unsigned blocks, unsigned tensors>
struct SlicePart {
  static constexpr int lanes = kLanes<T>;
  static constexpr std::uint32_t stages = 4;  ///< that are waited for one after the other
  static_assert(kMostSliceThreads / 4 / 32 * 2 * sizeof(double) >= 2 * sizeof(double) + 5 * sizeof(float));
  std::uint32_t rows, row, pack, firstPixel, count, image;
  std::uint32_t stageSteps;
  std::uint32_t wide;    ///< channels of a slice, widened
  std::int64_t channel;  ///< the first one
  uint4* held;
  uint4* heldGradient;
  std::uint32_t step;  ///< from one held pixel of a thread to the next
  double* partial;     ///< [warp][which][widened channel]
  double* own;         ///< [round][which][channel], sums of this block where it has neighbours
  double* first;       ///< of channels
  double* second;
  double* means;  ///< of groups
  double* inverseDeviations;
  float* gammas;
  float* betas;  ///< of the forward pass
  T* shifts;     ///< the image's first pixel, perhaps widened
  float*
      table;  ///< [which][widened channel], where sums of warps were, which have room for that and two more of them

  __device__ explicit SlicePart(const SliceArguments& a)
      : rows(blockDim.x / a.packs),
        row(threadIdx.x / a.packs),
        pack(threadIdx.x - row * a.packs),
        firstPixel(blockIdx.x % blocks * a.pixelsOfBlock),
        image(blockIdx.y),
        stageSteps((a.pixelsOfBlock + stages * rows - 1) / (stages * rows)),
        wide(a.packs * lanes),
        channel(static_cast<std::int64_t>(blockIdx.x / blocks) * wide),
        step(rows * a.packs) {
    const std::uint32_t pixels = firstPixel < a.pixels ? min(a.pixelsOfBlock, a.pixels - firstPixel) : 0;
    count = row < rows && row < pixels ? (pixels - row + rows - 1) / rows : 0;
    extern __shared__ uint4 memory[];
    const std::uint32_t packsOfTensor = a.pixelsOfBlock * a.packs;
    held = memory + threadIdx.x;
    heldGradient = held + packsOfTensor;
    partial = reinterpret_cast<double*>(memory + tensors * packsOfTensor);
    own = partial + 2 * (blockDim.x / 32) * wide;
    first = own + (blocks > 1 ? 4 * wide : 0);
    second = first + wide;
    means = second + wide;
    inverseDeviations = means + wide;
    gammas = reinterpret_cast<float*>(inverseDeviations + wide);
    betas = gammas + wide;
    shifts = reinterpret_cast<T*>(betas + wide);
    table = reinterpret_cast<float*>(partial + 2 * wide);
  }
  /// Of a pixel of this thread's pack in a tensor.
  template <class View>
  [[nodiscard]] __device__ std::int64_t offset(const View& view, std::uint32_t i) const {
    return image * view.image + static_cast<std::int64_t>(firstPixel + row + i * rows) * view.pixel +
           channel + pack * lanes;
  }

  /// Starts to load what is there for channels and groups, before the pixels, behind which it would come late.
  __device__ void loadParameters(const SliceArguments& a, std::uint32_t groups,
                                 std::int64_t firstGroup) const {
    for (std::uint32_t c = threadIdx.x; c < a.channels.divisor(); c += blockDim.x) {
      __pipeline_memcpy_async(gammas + c, a.gamma + channel + c, sizeof(float));
      if constexpr (tensors == 1) __pipeline_memcpy_async(betas + c, a.beta + channel + c, sizeof(float));
    }
    if (tensors == 1 || a.statistics.memory == nullptr) {
      const auto* const pixel =
          reinterpret_cast<const T*>(a.source.memory) + image * a.source.image + channel;
      if (threadIdx.x < a.packs)
        __pipeline_memcpy_async(shifts + threadIdx.x * lanes, pixel + threadIdx.x * lanes, sizeof(uint4));
    } else {
      for (std::uint32_t g = threadIdx.x; g < groups; g += blockDim.x) {
        __pipeline_memcpy_async(means + g, a.statistics.means(image) + firstGroup + g, sizeof(double));
        __pipeline_memcpy_async(inverseDeviations + g, a.statistics.inverseDeviations(image) + firstGroup + g,
                                sizeof(double));
      }
    }
    __pipeline_commit();
  }
  /// Starts to load all that is held.
  __device__ void loadPixels(const SliceArguments& a) const {
    const auto* const source = reinterpret_cast<const T*>(a.source.memory) + offset(a.source, 0);
    const auto* const gradient = reinterpret_cast<const T*>(a.gradient.memory) + offset(a.gradient, 0);
    for (std::uint32_t stage = 0; stage < stages; ++stage) {
      const std::uint32_t end = min((stage + 1) * stageSteps, count);
      for (std::uint32_t i = stage * stageSteps; i < end; ++i) {
        const auto pixels = static_cast<std::int64_t>(i * rows);
        __pipeline_memcpy_async(held + i * step, source + pixels * a.source.pixel, sizeof(uint4));
        if constexpr (tensors == 2)
          __pipeline_memcpy_async(heldGradient + i * step, gradient + pixels * a.gradient.pixel,
                                  sizeof(uint4));
      }
      __pipeline_commit();
    }
  }
  /// Waits for pixels that loadPixels started to load; the others may still be on their way.
  __device__ static void waitForStage(std::uint32_t stage) {
    static_assert(stages == 4);
    if (stage == 0)
      __pipeline_wait_prior(3);
    else if (stage == 1)
      __pipeline_wait_prior(2);
    else if (stage == 2)
      __pipeline_wait_prior(1);
    else
      __pipeline_wait_prior(0);
  }
  /// Waits for what loadParameters started to load.
  __device__ static void waitForParameters() {
    __pipeline_wait_prior(stages);
    __syncthreads();
  }

  /// What moments of a channel are taken of differences from: the image's first pixel. An infinite one would make NaN of
  /// every difference.
  [[nodiscard]] __device__ float shiftOf(std::uint32_t c) const {
    const float value = cuda::load(shifts + c);
    return value - value == 0.0F ? value : 0.0F;
  }

  /// Two sums of each channel over the pixels of the image, into `first` and `second`.
  /// @param round 0 or 1: each may be used once @param add (null pointer to a type of packs, i, sums, watch) adds what
  /// belongs to pixel i of this thread @param finish (sums) of packs that were moved
  template <class Add, class Finish>
  __device__ void sumUp(const SliceArguments& a, unsigned round, Add add, Finish finish) const {
    double sums[2 * lanes] = {};
    FiniteWatch watch;
    const auto take = [&](auto* type, std::uint32_t begin, std::uint32_t end) {
      for (std::uint32_t i = begin; i < end; ++i) add(type, i, sums, watch);
    };
    constexpr MovedPack<T>* moved = nullptr;
#pragma unroll 1  // a quarter of the code: what runs once for a block waits for its instructions
    for (std::uint32_t stage = 0; stage < stages; ++stage) {
      waitForStage(stage);
      take(moved, stage * stageSteps, min((stage + 1) * stageSteps, count));
    }
    if (!watch.allFinite()) {
#pragma unroll
      for (double& sum : sums) sum = 0;
      take(static_cast<ConvertedPack<InPacks<T>>*>(nullptr), 0, count);
    } else {
      finish(sums);
    }

    // Threads of a warp that have the same pack, then those of all warps and of all repeats, then the blocks.
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
    double* const ownSums = own + 2 * round * wide;
    double* const joined = blocks == 1 ? first : ownSums;
    for (std::uint32_t c = threadIdx.x; c < 2 * wide; c += blockDim.x) {
      const std::uint32_t which = c < wide ? 0 : wide;
      if (c - which >= a.channels.divisor()) continue;
      double sum = 0;
#pragma unroll 4
      for (std::uint32_t i = 0; i < blockDim.x / 32; ++i)
        for (std::uint32_t from = c; from < which + wide; from += a.channels.divisor())
          sum += partial[2 * i * wide + from];
      joined[c] = sum;
    }
    if constexpr (blocks > 1) {
      arriveInSlice();
      waitInSlice();
      for (std::uint32_t c = threadIdx.x; c < 2 * wide; c += blockDim.x) {
        if (c % wide >= a.channels.divisor()) continue;
        double sum = 0;
#pragma unroll
        for (unsigned block = 0; block < blocks; ++block) sum += readInSlice(ownSums + c, block);
        first[c] = sum;
      }
    }
    __syncthreads();
  }

  /// mean and r of the groups. @param groups of a slice
  __device__ void findStatistics(const SliceArguments& a, std::uint32_t groups,
                                 std::int64_t firstGroup) const {
    double shift[lanes];
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane)
      shift[lane] = static_cast<double>(shiftOf(a.channelOf(pack * lanes + lane)));
    sumUp(
        a, 0,
        [&](auto* type, std::uint32_t i, auto& sums, FiniteWatch& watch) {
          using Pack = std::remove_pointer_t<decltype(type)>;
          const Pack x(held[i * step], watch);
#pragma unroll
          for (int lane = 0; lane < lanes; ++lane) {
            const double difference = fma(x.values[lane], Pack::factor, -shift[lane]);
            sums[lane] += difference;
            sums[lanes + lane] = fma(difference, difference, sums[lanes + lane]);
          }
        },
        [](const auto& /*sums*/) {});
    for (std::uint32_t c = threadIdx.x; c < a.channels.divisor(); c += blockDim.x) {
      const double quotient = first[c] * a.inversePixels;
      second[c] -= first[c] * quotient;
      first[c] = static_cast<double>(shiftOf(c)) + quotient;
    }
    __syncthreads();
    for (std::uint32_t g = threadIdx.x; g < groups; g += blockDim.x) {
      const MeanAndDeviation found =
          statisticsOf(first + g * a.groupChannels.divisor(), second + g * a.groupChannels.divisor(),
                       a.groupChannels.divisor(), a.imagePixels, a.epsilon);
      means[g] = found.mean;
      inverseDeviations[g] = found.inverseDeviation;
      if (tensors > 1 || firstPixel > 0 || a.statistics.memory == nullptr) continue;
      a.statistics.means(image)[firstGroup + g] = found.mean;
      a.statistics.inverseDeviations(image)[firstGroup + g] = found.inverseDeviation;
    }
    __syncthreads();
  }

  /// The rows of the table for this thread's channels.
  template <int count>
  __device__ void readTable(float (&rowsOfTable)[count][lanes]) const {
#pragma unroll
    for (int which = 0; which < count; ++which)
#pragma unroll
      for (int lane = 0; lane < lanes; ++lane)
        rowsOfTable[which][lane] = table[which * wide + pack * lanes + lane];
  }
};

template <class T, unsigned blocks>
__global__ void UNMETAL_BLOCKS_OF_SLICE(blocks) __launch_bounds__(kMostSliceThreads, 1)
    normalizeSlices(SliceArguments a) {
  constexpr int lanes = kLanes<T>;
  const SlicePart<T, blocks, 1> part(a);
  const std::uint32_t groups = a.groupOf(a.channels.divisor());
  const std::int64_t firstGroup = static_cast<std::int64_t>(blockIdx.x / blocks) * groups;
  part.loadParameters(a, groups, firstGroup);
  part.loadPixels(a);
  part.waitForParameters();
  part.findStatistics(a, groups, firstGroup);
  if constexpr (blocks > 1) arriveInSlice();  // nothing of the others is read any more
  for (std::uint32_t i = threadIdx.x; i < part.wide; i += blockDim.x) {
    const std::uint32_t c = a.channelOf(i);
    const double mean = part.means[a.groupOf(c)];
    const auto nearMean = static_cast<float>(mean);
    const auto scale =
        static_cast<float>(static_cast<double>(part.gammas[c]) * part.inverseDeviations[a.groupOf(c)]);
    part.table[i] = nearMean;
    part.table[part.wide + i] = scale;
    part.table[2 * part.wide + i] =
        static_cast<float>(static_cast<double>(part.betas[c]) -
                           (mean - static_cast<double>(nearMean)) * static_cast<double>(scale));
  }
  __syncthreads();
  float rows[3][lanes];  // mean, scale, shift
  part.readTable(rows);
  T* const to = reinterpret_cast<T*>(a.destination.memory) + part.offset(a.destination, 0);
  const std::int64_t stride = static_cast<std::int64_t>(part.rows) * a.destination.pixel;
#pragma unroll 4
  for (std::uint32_t i = 0; i < part.count; ++i) {
    Lanes<T> values = lanesOf(part.held[i * part.step], static_cast<const T*>(nullptr));
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane)
      values.values[lane] = fmaf(values.values[lane] - rows[0][lane], rows[1][lane], rows[2][lane]);
    storeLanes(values, to + i * stride);
  }
  if constexpr (blocks > 1) waitInSlice();
}

/// B, G, and dx where it is asked for.
template <class T, unsigned blocks>
__global__ void UNMETAL_BLOCKS_OF_SLICE(blocks) __launch_bounds__(kMostSliceThreads, 1)
    gradientOfSlices(SliceArguments a) {
  constexpr int lanes = kLanes<T>;
  const SlicePart<T, blocks, 2> part(a);
  const std::uint32_t groups = a.groupOf(a.channels.divisor());
  const std::int64_t firstGroup = static_cast<std::int64_t>(blockIdx.x / blocks) * groups;
  part.loadParameters(a, groups, firstGroup);
  part.loadPixels(a);
  part.waitForParameters();
  if (a.statistics.memory == nullptr) part.findStatistics(a, groups, firstGroup);
  const auto meanOf = [&](int lane) {
    return static_cast<double>(
        static_cast<float>(part.means[a.groupOf(a.channelOf(part.pack * lanes + lane))]));
  };
  // Of few digits nothing is lost by means that are subtracted at last.
  constexpr bool shiftsLater = MovedPack<T>::areSmall;
  double mean[lanes];
#pragma unroll
  for (int lane = 0; lane < lanes; ++lane) mean[lane] = shiftsLater ? 0 : meanOf(lane);
  const auto add = [&](auto* type, std::uint32_t i, auto& sums, FiniteWatch& watch) {
    using Pack = std::remove_pointer_t<decltype(type)>;
    const Pack x(part.held[i * part.step], watch);
    const Pack dy(part.heldGradient[i * part.step], watch);
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) {
      if constexpr (Pack::areSmall) {
        sums[lane] += dy.values[lane];
        sums[lanes + lane] = fma(dy.values[lane], x.values[lane] * Pack::factor, sums[lanes + lane]);
      } else {
        const double g = dy.values[lane] * Pack::factor;
        sums[lane] += g;
        sums[lanes + lane] =
            fma(g, fma(x.values[lane], Pack::factor, -(shiftsLater ? meanOf(lane) : mean[lane])),
                sums[lanes + lane]);
      }
    }
  };
  part.sumUp(a, 1, add, [&](auto& sums) {
    if constexpr (shiftsLater) {
#pragma unroll
      for (int lane = 0; lane < lanes; ++lane) {
        sums[lane] *= MovedPack<T>::factor;
        sums[lanes + lane] = fma(-meanOf(lane), sums[lane], sums[lanes + lane] * MovedPack<T>::factor);
      }
    }
  });
  if constexpr (blocks > 1) arriveInSlice();  // nothing of the others is read any more
  for (std::uint32_t c = threadIdx.x; c < a.channels.divisor(); c += blockDim.x) {
    const double groupMean = part.means[a.groupOf(c)];
    const double rest = groupMean - static_cast<double>(static_cast<float>(groupMean));
    const double b = part.first[c];
    const double g = part.inverseDeviations[a.groupOf(c)] * (part.second[c] - rest * b);
    part.second[c] = g;
    if (part.firstPixel > 0) continue;
    const std::int64_t channel = part.channel + c;
    if (a.gammaGradient == nullptr) {
      a.sums.first(part.image)[channel] = b;
      a.sums.second(part.image)[channel] = g;
    } else {
      a.gammaGradient[part.image * a.sums.channels + channel] = static_cast<float>(g);
      a.betaGradient[part.image * a.sums.channels + channel] = static_cast<float>(b);
    }
  }
  if (a.computesData) {
    __syncthreads();
    // 1/m sum e and 1/m sum(e h) of the groups, to where the sums of this block were.
    double* const shares = part.partial;
    for (std::uint32_t group = threadIdx.x; group < groups; group += blockDim.x) {
      double sum = 0;
      double product = 0;
      for (std::uint32_t c = group * a.groupChannels.divisor(); c < (group + 1) * a.groupChannels.divisor();
           ++c) {
        const auto gamma = static_cast<double>(part.gammas[c]);
        sum += gamma * part.first[c];
        product += gamma * part.second[c];
      }
      shares[group] = sum * a.inverseGroupElements;
      shares[part.wide + group] = product * a.inverseGroupElements;
    }
    __syncthreads();
    for (std::uint32_t i = threadIdx.x; i < part.wide; i += blockDim.x) {
      const std::uint32_t c = a.channelOf(i);
      const std::uint32_t group = a.groupOf(c);
      const double groupMean = part.means[group];
      const auto nearMean = static_cast<float>(groupMean);
      const auto factor = static_cast<float>(part.inverseDeviations[group] * shares[part.wide + group]);
      part.table[i] = nearMean;
      part.table[part.wide + i] = part.gammas[c];
      part.table[2 * part.wide + i] = static_cast<float>(
          shares[group] - (groupMean - static_cast<double>(nearMean)) * static_cast<double>(factor));
      part.table[3 * part.wide + i] = factor;
      part.table[4 * part.wide + i] = static_cast<float>(part.inverseDeviations[group]);
    }
    __syncthreads();
    float rows[5][lanes];  // mean, gamma, share of e, factor of x - mean, r
    part.readTable(rows);
    T* const to = reinterpret_cast<T*>(a.destination.memory) + part.offset(a.destination, 0);
    const std::int64_t stride = static_cast<std::int64_t>(part.rows) * a.destination.pixel;
#pragma unroll 2
    for (std::uint32_t i = 0; i < part.count; ++i) {
      const Lanes<T> x = lanesOf(part.held[i * part.step], static_cast<const T*>(nullptr));
      Lanes<T> values = lanesOf(part.heldGradient[i * part.step], static_cast<const T*>(nullptr));
#pragma unroll
      for (int lane = 0; lane < lanes; ++lane) {
        const float centred = values.values[lane] * rows[1][lane] - rows[2][lane];
        values.values[lane] = fmaf(-(x.values[lane] - rows[0][lane]), rows[3][lane], centred) * rows[4][lane];
      }
      if (a.accumulate) {
        const Lanes<T> old = loadLanes(to + i * stride);
#pragma unroll
        for (int lane = 0; lane < lanes; ++lane) values.values[lane] += old.values[lane];
      }
      storeLanes(values, to + i * stride);
    }
  }
  if constexpr (blocks > 1) waitInSlice();
}

}  // namespace mps::detail::cuda
