#pragma once

#include <cuda_pipeline.h>

#include <algorithm>
#include <cstdint>

#include "mps/instance_normalization/cuda/instance_normalization_slice_arguments_cuda.cuh"
#include "mps/instance_normalization/cuda/instance_normalization_warp_sums_cuda.cuh"

/// A block's share of a slice: it holds pixels in shared memory, so that each is read once.
namespace mps::detail::cuda {

inline constexpr unsigned kMostSliceThreads = 512;
inline constexpr unsigned kFewestSliceThreads = 96;

/// The pixels of a thread's vector of channels, and the shared memory of its block.
/// @tparam blocks of a slice @tparam tensors that are held: the source, and the gradient
template <class T, unsigned blocks, unsigned tensors>
struct SlicePart {
  static constexpr int lanes = kLanes<T>;
  static constexpr bool isCluster = blocks > 1;
  static constexpr std::uint32_t stages = kSliceStages;
  static_assert(kFewestSliceThreads / 32 * 2 * sizeof(double) >= 2 * sizeof(double) + 4 * sizeof(float));
  std::uint32_t rows, row, vector, firstPixel, image;
  std::uint32_t count;  ///< pixels of a thread
  std::uint32_t stageSteps;
  std::uint32_t wide;    ///< channels of a slice, widened
  std::int64_t channel;  ///< the first one
  uint4* held;
  uint4* heldGradient;
  std::uint32_t step;  ///< from one held pixel of a thread to the next
  double* partial;     ///< [warp][which][widened channel]
  double* joining;     ///< [block][which][channel] of a cluster
  double* first;       ///< of channels; where sums of warps were
  double* second;
  double* means;  ///< of groups
  double* inverseDeviations;
  float* gammas;
  float* betas;            ///< of the forward pass
  T* shifts;               ///< the image's first pixel, perhaps widened
  std::uint64_t* mailbox;  ///< of a block of a cluster
  float*
      table;  ///< [which][widened channel], where sums of warps were, which have room for that and two more of them

  /// @param block of the slice
  __device__ SlicePart(const SliceArguments& a, std::uint32_t imageNumber, std::uint32_t slice,
                       std::uint32_t block)
      : rows(a.rows),
        row(threadIdx.x / a.vectors),
        vector(threadIdx.x - row * a.vectors),
        firstPixel(block * a.pixelsOfBlock),
        image(imageNumber),
        stageSteps(a.stageSteps),
        wide(a.vectors * lanes),
        channel(static_cast<std::int64_t>(slice) * wide),
        step(rows * a.vectors) {
    const std::uint32_t pixels = firstPixel < a.pixels ? min(a.pixelsOfBlock, a.pixels - firstPixel) : 0;
    count = row < rows && row < pixels ? (pixels - row + rows - 1) / rows : 0;
    extern __shared__ uint4 memory[];
    const std::uint32_t vectorsOfTensor = a.pixelsOfBlock * a.vectors;
    held = memory + threadIdx.x;
    heldGradient = held + vectorsOfTensor;
    partial = reinterpret_cast<double*>(memory + tensors * vectorsOfTensor);
    joining = partial + 2 * (blockDim.x / 32) * wide;
    first = partial;
    second = first + wide;
    means = joining + sumsOfJoining() * wide;
    inverseDeviations = means + wide;
    gammas = reinterpret_cast<float*>(inverseDeviations + wide);
    betas = gammas + wide;
    shifts = reinterpret_cast<T*>(betas + wide);
    mailbox = reinterpret_cast<std::uint64_t*>(betas + 2 * wide);
    if constexpr (isCluster) {
      if (threadIdx.x == 0) makeMailbox(mailbox);
      openMailbox(a);
    }
    table = reinterpret_cast<float*>(partial + 2 * wide);
  }
  /// Doubles for each channel between sums of warps and statistics.
  static constexpr std::uint32_t sumsOfJoining() { return isCluster ? 2 * blocks : 0; }
  /// Lets the blocks of a cluster send sums to this one, once. All threads take part, when all sums before were read.
  __device__ void openMailbox(const SliceArguments& a) const {
    constexpr auto bytes = static_cast<std::uint32_t>(2 * sizeof(double));
    if (threadIdx.x == 0) expectMail(mailbox, blocks * bytes * a.channels.divisor());
    arriveInSlice();
  }
  /// Of a pixel of this thread's vector in a tensor.
  template <class View>
  [[nodiscard]] __device__ std::int64_t offset(const View& view, std::uint32_t i) const {
    return image * view.image + static_cast<std::int64_t>(firstPixel + row + i * rows) * view.pixel +
           channel + vector * lanes;
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
      if (threadIdx.x < a.vectors)
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
  /// Where this thread's vectors of an image begin.
  struct Inputs {
    const T* source;
    const T* gradient;
  };
  [[nodiscard]] __device__ Inputs inputs(const SliceArguments& a) const {
    return {reinterpret_cast<const T*>(a.source.memory) + offset(a.source, 0),
            reinterpret_cast<const T*>(a.gradient.memory) + offset(a.gradient, 0)};
  }
  /// Starts to load what is held of pixel i.
  __device__ void fetch(const SliceArguments& a, const Inputs& from, std::uint32_t i) const {
    const auto pixels = static_cast<std::int64_t>(i * rows);
    __pipeline_memcpy_async(held + i * step, from.source + pixels * a.source.pixel, sizeof(uint4));
    if constexpr (tensors == 2)
      __pipeline_memcpy_async(heldGradient + i * step, from.gradient + pixels * a.gradient.pixel,
                              sizeof(uint4));
  }
  /// Calls use(begin, end) for the held pixels of each stage, and commits what it starts to load.
  template <class Use>
  __device__ void forEachStage(Use use) const {
    for (std::uint32_t stage = 0; stage < stages; ++stage) {
      use(stage * stageSteps, min((stage + 1) * stageSteps, count));
      __pipeline_commit();
    }
  }
  /// Starts to load all that is held.
  __device__ void loadPixels(const SliceArguments& a) const {
    const Inputs from = inputs(a);
    forEachStage([&](std::uint32_t begin, std::uint32_t end) {
      for (std::uint32_t i = begin; i < end; ++i) fetch(a, from, i);
    });
  }
  /// One vector of each tensor.
  using Vectors = uint4[tensors];
  __device__ void readHeld(std::uint32_t i, Vectors& vectors) const {
    vectors[0] = held[i * step];
    if constexpr (tensors == 2) vectors[1] = heldGradient[i * step];
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
  /// @param round how many there were before @param add (null pointer to a type of vectors, vectors of memory, sums, watch) adds
  /// what belongs to a pixel @param finish (sums) of vectors that were moved @pre a cluster's mailbox is open
  template <class Add, class Finish>
  __device__ void sumUp(const SliceArguments& a, unsigned round, Add add, Finish finish) const {
    double sums[2 * lanes] = {};
    FiniteWatch watch;
    const auto take = [&](auto* type, std::uint32_t begin, std::uint32_t end) {
      for (std::uint32_t i = begin; i < end; ++i) {
        Vectors vectors;
        readHeld(i, vectors);
        add(type, vectors, sums, watch);
      }
    };
    constexpr MovedVector<T>* moved = nullptr;
#pragma unroll 1  // a quarter of the code: what runs once for a block waits for its instructions
    for (std::uint32_t stage = 0; stage < stages; ++stage) {
      waitForStage(stage);
      take(moved, stage * stageSteps, min((stage + 1) * stageSteps, count));
    }
    if (!watch.allFinite()) {
#pragma unroll
      for (double& sum : sums) sum = 0;
      constexpr ConvertedVector<InVectors<T>>* converted = nullptr;
      take(converted, 0, count);
    } else {
      finish(sums);
    }

    double* const ofWarp = partial + threadIdx.x / 32 * 2 * wide + vector * lanes;
    sumWarp(sums, a.vectors, [&](int n, double sum) { ofWarp[n / lanes * wide + n % lanes] = sum; });
    __syncthreads();
    joinWarps(a);
    if constexpr (isCluster) {
      waitForMail(mailbox, round);
      for (std::uint32_t c = threadIdx.x; c < 2 * wide; c += blockDim.x) {
        if (c % wide >= a.channels.divisor()) continue;
        double sum = 0;
#pragma unroll
        for (unsigned block = 0; block < blocks; ++block) sum += joining[block * 2 * wide + c];
        first[c] = sum;
      }
    }
    __syncthreads();
  }

  /// Adds up the sums of all warps, and of all repeats of a channel where it was widened: the sums of this block.
  __device__ void joinWarps(const SliceArguments& a) const {
    if constexpr (isCluster) waitInSlice();
    const auto store = [&](std::uint32_t c, double sum) {
      if constexpr (isCluster) {
        const double* const place = joining + blockIdx.x % blocks * 2 * wide + c;
#pragma unroll
        for (unsigned block = 0; block < blocks; ++block) sendMail(sum, place, mailbox, block);
      } else {
        first[c] = sum;
      }
    };
    const bool isWidened = wide != a.channels.divisor();
    for (std::uint32_t c = threadIdx.x; c < 2 * wide; c += blockDim.x) {
      double sum = 0;
#pragma unroll 4
      for (std::uint32_t i = 0; i < blockDim.x / 32; ++i) sum += partial[2 * i * wide + c];
      if (isWidened)
        partial[c] = sum;
      else
        store(c, sum);
    }
    if (!isWidened) return;
    __syncthreads();
    for (std::uint32_t c = threadIdx.x; c < 2 * wide; c += blockDim.x) {
      const std::uint32_t which = c < wide ? 0 : wide;
      if (c - which >= a.channels.divisor()) continue;
      double sum = 0;
#pragma unroll 4
      for (std::uint32_t from = c; from < which + wide; from += a.channels.divisor()) sum += partial[from];
      store(c, sum);
    }
  }

  /// mean and r of the groups. @param groups of a slice
  __device__ void findStatistics(const SliceArguments& a, unsigned round, std::uint32_t groups,
                                 std::int64_t firstGroup) const {
    double shift[lanes];
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane)
      shift[lane] = static_cast<double>(shiftOf(a.channelOf(vector * lanes + lane)));
    sumUp(
        a, round,
        [&](auto* type, const Vectors& vectors, auto& sums, FiniteWatch& watch) {
          using Converted = std::remove_pointer_t<decltype(type)>;
          const Converted x(vectors[0], watch);
#pragma unroll
          for (int lane = 0; lane < lanes; ++lane) {
            const double difference = fma(x.values[lane], Converted::factor, -shift[lane]);
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
        rowsOfTable[which][lane] = table[which * wide + vector * lanes + lane];
  }

  /// @name The forward pass
  /// @{
  /// Finds mean, scale and shift of this thread's channels.
  __device__ void findLines(const SliceArguments& a, float (&rowsOfTable)[3][lanes]) const {
    for (std::uint32_t i = threadIdx.x; i < wide; i += blockDim.x) {
      const std::uint32_t c = a.channelOf(i);
      const double mean = means[a.groupOf(c)];
      const auto nearMean = static_cast<float>(mean);
      const auto scale = static_cast<float>(static_cast<double>(gammas[c]) * inverseDeviations[a.groupOf(c)]);
      table[i] = nearMean;
      table[wide + i] = scale;
      table[2 * wide + i] =
          static_cast<float>(static_cast<double>(betas[c]) -
                             (mean - static_cast<double>(nearMean)) * static_cast<double>(scale));
    }
    __syncthreads();
    readTable(rowsOfTable);
  }
  __device__ static Lanes<T> normalized(const Vectors& vectors, const float (&rowsOfTable)[3][lanes]) {
    Lanes<T> values = lanesOf(vectors[0], static_cast<const T*>(nullptr));
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane)
      values.values[lane] =
          fmaf(values.values[lane] - rowsOfTable[0][lane], rowsOfTable[1][lane], rowsOfTable[2][lane]);
    return values;
  }
  /// @}

  /// @name Gradients
  /// @{
  /// B and the sums of dy (x - mean), with the float32 number next to the mean. @param round as of sumUp
  __device__ void sumGradients(const SliceArguments& a, unsigned round) const {
    const auto meanOf = [&](int lane) {
      return static_cast<double>(static_cast<float>(means[a.groupOf(a.channelOf(vector * lanes + lane))]));
    };
    // Of few digits nothing is lost by means that are subtracted at last.
    constexpr bool shiftsLater = MovedVector<T>::areSmall;
    double mean[lanes];
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) mean[lane] = shiftsLater ? 0 : meanOf(lane);
    const auto add = [&](auto* type, const Vectors& vectors, auto& sums, FiniteWatch& watch) {
      using Converted = std::remove_pointer_t<decltype(type)>;
      const Converted x(vectors[0], watch);
      const Converted dy(vectors[1], watch);
#pragma unroll
      for (int lane = 0; lane < lanes; ++lane) {
        if constexpr (Converted::areSmall) {
          sums[lane] += dy.values[lane];
          sums[lanes + lane] = fma(dy.values[lane], x.values[lane] * Converted::factor, sums[lanes + lane]);
        } else {
          const double g = dy.values[lane] * Converted::factor;
          sums[lane] += g;
          sums[lanes + lane] =
              fma(g, fma(x.values[lane], Converted::factor, -(shiftsLater ? meanOf(lane) : mean[lane])),
                  sums[lanes + lane]);
        }
      }
    };
    sumUp(a, round, add, [&](auto& sums) {
      if constexpr (shiftsLater) {
#pragma unroll
        for (int lane = 0; lane < lanes; ++lane) {
          sums[lane] *= MovedVector<T>::factor;
          sums[lanes + lane] = fma(-meanOf(lane), sums[lane], sums[lanes + lane] * MovedVector<T>::factor);
        }
      }
    });
  }
  struct ChannelGradients {
    double b, g;
  };
  [[nodiscard]] __device__ ChannelGradients gradientsOf(std::uint32_t c, std::uint32_t group) const {
    const double rest = means[group] - static_cast<double>(static_cast<float>(means[group]));
    return {first[c], inverseDeviations[group] * (second[c] - rest * first[c])};
  }
  /// Stores G and B, which one block of a slice does.
  __device__ void storeGradients(const SliceArguments& a, std::uint32_t c,
                                 const ChannelGradients& both) const {
    const std::int64_t channelOfImage = channel + c;
    if (a.gammaGradient == nullptr) {
      a.sums.first(image)[channelOfImage] = both.b;
      a.sums.second(image)[channelOfImage] = both.g;
    } else {
      a.gammaGradient[image * a.sums.channels + channelOfImage] = static_cast<float>(both.g);
      a.betaGradient[image * a.sums.channels + channelOfImage] = static_cast<float>(both.b);
    }
  }
  /// Stores G and B, and finds mean, factor of dy, factor of x - mean and what is subtracted, of this thread's channels.
  /// Threads compute the shares of their channels' groups again and again rather than wait for each other.
  __device__ void finishGradients(const SliceArguments& a, float (&rowsOfTable)[4][lanes]) const {
    for (std::uint32_t i = threadIdx.x; i < wide; i += blockDim.x) {
      const std::uint32_t c = a.channelOf(i);
      const std::uint32_t group = a.groupOf(c);
      const std::uint32_t begin = group * a.groupChannels.divisor();
      if (i == c && firstPixel == 0) storeGradients(a, c, gradientsOf(c, group));
      // sum e and sum(e h) of the group
      double sum = 0;
      double product = 0;
      for (std::uint32_t k = begin; k < begin + a.groupChannels.divisor(); ++k) {
        const ChannelGradients both = gradientsOf(k, group);
        const auto gamma = static_cast<double>(gammas[k]);
        sum += gamma * both.b;
        product += gamma * both.g;
      }
      const double r = inverseDeviations[group];
      const auto nearMean = static_cast<float>(means[group]);
      const double factor = r * r * (product * a.inverseGroupElements);
      table[i] = nearMean;
      table[wide + i] = static_cast<float>(static_cast<double>(gammas[c]) * r);
      table[2 * wide + i] = static_cast<float>(factor);
      table[3 * wide + i] = static_cast<float>(r * (sum * a.inverseGroupElements) -
                                               (means[group] - static_cast<double>(nearMean)) * factor);
    }
    __syncthreads();
    readTable(rowsOfTable);
  }
  /// dx = r gamma dy - (r^2 share (x - mean) + r share)
  __device__ static Lanes<T> gradientOf(const Vectors& vectors, const float (&rowsOfTable)[4][lanes]) {
    const Lanes<T> x = lanesOf(vectors[0], static_cast<const T*>(nullptr));
    Lanes<T> values = lanesOf(vectors[1], static_cast<const T*>(nullptr));
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) {
      const float rest =
          fmaf(x.values[lane] - rowsOfTable[0][lane], rowsOfTable[2][lane], rowsOfTable[3][lane]);
      values.values[lane] = fmaf(values.values[lane], rowsOfTable[1][lane], -rest);
    }
    return values;
  }
  __device__ static void storeGradient(Lanes<T> values, T* to, bool accumulate) {
    if (accumulate) {
      const Lanes<T> old = loadLanes(to);
#pragma unroll
      for (int lane = 0; lane < lanes; ++lane) values.values[lane] += old.values[lane];
    }
    storeLanes(values, to);
  }
  /// @}
};

}  // namespace mps::detail::cuda
