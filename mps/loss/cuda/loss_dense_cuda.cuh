#pragma once

#include "mps/loss/cuda/loss_cuda.cuh"

/// The losses that training asks for most: dense labels without weights, of which the sum, the gradient for the
/// predictions or both are wanted. What other calls may have besides costs instructions at each element, even where it is
/// left out; here only the type is left.
namespace mps::detail::cuda {

inline constexpr std::int64_t kDenseSoftMaxChannels = 1024;  ///< at most, which the threads of a row hold

/// Whether the kernels below compute a problem with joined axes whose tensors take vectors. They add nothing to a gradient
/// that is there.
[[nodiscard]] inline bool isDenseLoss(const LossProblem& problem) {
  const TensorShape& shape = problem.predictions;
  if (problem.labelKind != LossLabels::Dense || problem.labels.channels < shape.channels ||
      problem.weights.channels > 0 || problem.labelGradient.channels > 0 ||
      problem.reductionType == CNNReductionType::None || shape.height != 1)
    return false;
  if (problem.lossType != CNNLossType::SoftMaxCrossEntropy) return shape.width == 1;
  return problem.gradient.channels > 0 && !problem.exactSoftMaxGradient &&
         shape.channels <= kDenseSoftMaxChannels;
}

/// The first elements of an image, or of a pixel.
template <class T>
struct DenseAddresses {
  const T* predictions;
  const T* labels;
  T* gradient;

  __device__ DenseAddresses(const LossArguments& a, std::uint32_t image, std::uint32_t pixel)
      : predictions(reinterpret_cast<const T*>(a.predictions.memory) + image * a.predictions.image +
                    static_cast<std::int64_t>(pixel) * a.predictions.pixel),
        labels(reinterpret_cast<const T*>(a.labels.memory) + image * a.labels.image +
               static_cast<std::int64_t>(pixel) * a.labels.pixel),
        gradient(reinterpret_cast<T*>(a.gradient.memory) + image * a.gradient.image +
                 static_cast<std::int64_t>(pixel) * a.gradient.pixel) {}
};

template <class T>
__device__ uint4 fetchVector(const T* from, std::uint32_t vector) {
  return *(reinterpret_cast<const uint4*>(from) + vector);
}
template <class T>
__device__ Lanes<T> valuesOf(const uint4& vector) {
  return lanesOf(vector, static_cast<const T*>(nullptr));
}

/// Any type but softmax, of images whose elements lie one behind the other.
template <class T, CNNLossType type>
__global__ void __launch_bounds__(32 * kMostWarps, 4) lossDenseElements(LossArguments a) {
  constexpr int lanes = kLanes<T>;
  constexpr bool ofHalf = lanes == 8;
  constexpr int batch = 2;  // on their way at once
  const Chunk chunk(a);
  const float factor = a.factor(chunk.image);
  const DenseAddresses<T> at(a, chunk.image, 0);
  const bool hasGradient = a.gradient.memory != nullptr;
  double sum = 0;
  const auto compute = [&](std::uint32_t vector, const uint4& predictions, const uint4& labels) {
    const Lanes<T> y = valuesOf<T>(predictions);
    const Lanes<T> t = valuesOf<T>(labels);
    float ofVector = 0;
#pragma unroll
    for (int i = 0; i < lanes; ++i) ofVector += lossOf<ofHalf>(type, a.numbers, y.values[i], t.values[i]);
    sum += static_cast<double>(ofVector);
    if (!hasGradient) return;
    Lanes<T> gradient;
#pragma unroll
    for (int i = 0; i < lanes; ++i)
      gradient.values[i] = factor * lossGradient<ofHalf>(type, a.numbers, y.values[i], t.values[i]);
    storeLanes(gradient, at.gradient + static_cast<std::int64_t>(vector) * lanes);
  };
  std::uint32_t vector = chunk.begin + threadIdx.x;
  for (; vector + (batch - 1) * blockDim.x < chunk.end; vector += batch * blockDim.x) {
    uint4 predictions[batch];
    uint4 labels[batch];
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const std::uint32_t number = vector + static_cast<std::uint32_t>(i) * blockDim.x;
      predictions[i] = fetchVector(at.predictions, number);
      labels[i] = fetchVector(at.labels, number);
    }
#pragma unroll
    for (int i = 0; i < batch; ++i)
      compute(vector + static_cast<std::uint32_t>(i) * blockDim.x, predictions[i], labels[i]);
  }
  for (; vector < chunk.end; vector += blockDim.x)
    compute(vector, fetchVector(at.predictions, vector), fetchVector(at.labels, vector));
  storeSum(a, sum);
}

/// Minus infinity everywhere.
template <class T>
__device__ uint4 leastVector() {
  const unsigned least = kLanes<T> == kLanes<float> ? 0xFF800000U : 0xFC00FC00U;
  return {least, least, least, least};
}
/// @name The largest element of a vector; NaN only where all are. @param type null
/// @{
__device__ inline float largestOf(const uint4& vector, const float* /*type*/) {
  return fmaxf(fmaxf(__uint_as_float(vector.x), __uint_as_float(vector.y)),
               fmaxf(__uint_as_float(vector.z), __uint_as_float(vector.w)));
}
__device__ inline float largestOf(const uint4& vector, const Float16* /*type*/) {
  __half2 pairs[4];
  memcpy(pairs, &vector, sizeof vector);
  const float2 largest = __half22float2(__hmax2(__hmax2(pairs[0], pairs[1]), __hmax2(pairs[2], pairs[3])));
  return fmaxf(largest.x, largest.y);
}
/// @}

/// Combines the values of the threads of each row of the block, of at most a warp, which all take part.
template <class Combine>
__device__ float combineInWarp(float value, Combine combine) {
  for (unsigned distance = blockDim.x / 2; distance > 0; distance /= 2)
    value = combine(value, __shfl_xor_sync(0xFFFFFFFFU, value, static_cast<int>(distance)));
  return value;
}

/// Blocks of a multiprocessor at least: what the vectors leave registers for.
template <class T, int held>
inline constexpr int kDenseSoftMaxBlocks = held <= 2                    ? 4
                                           : kLanes<T> == kLanes<float> ? 2
                                                                        : 3;

/// Softmax of pixels of at most `held` vectors for each thread of a row of threads, which stay in registers; a row is at
/// most a warp. Images of one pixel share a block.
template <class T, int held>
__global__ void __launch_bounds__(32 * kMostWarps, kDenseSoftMaxBlocks<T, held>)
    lossDenseSoftMax(LossArguments a) {
  constexpr int lanes = kLanes<T>;
  const std::uint32_t vectors = a.vectors.divisor();
  /// The loss of a pixel, or this thread's part of it. @param isInside whether there is such a pixel
  const auto lossOfPixel = [&](std::uint32_t image, std::uint32_t pixel, bool isInside, float factor) {
    const DenseAddresses<T> at(a, image, pixel);
    const auto isThere = [&](int i) {
      return isInside && threadIdx.x + static_cast<unsigned>(i) * blockDim.x < vectors;
    };
    uint4 predictions[held];
    uint4 labels[held];
#pragma unroll
    for (int i = 0; i < held; ++i) {
      predictions[i] = leastVector<T>();
      labels[i] = {0, 0, 0, 0};
      if (!isThere(i)) continue;
      const std::uint32_t vector = threadIdx.x + static_cast<std::uint32_t>(i) * blockDim.x;
      predictions[i] = fetchVector(at.predictions, vector);
      labels[i] = fetchVector(at.labels, vector);
    }
    float largest = -INFINITY;
#pragma unroll
    for (int i = 0; i < held; ++i)
      largest = fmaxf(largest, largestOf(predictions[i], static_cast<const T*>(nullptr)));
    largest = combineInWarp(largest, Maximum());  // exponentials keep NaN
    Lanes<T> shifted[held];
    float exponentials = 0;
#pragma unroll
    for (int i = 0; i < held; ++i) {
      shifted[i] = valuesOf<T>(predictions[i]);
      if (!isThere(i)) continue;
#pragma unroll
      for (float& value : shifted[i].values) {
        value -= largest;
        exponentials += exponential(value);
      }
    }
    exponentials = combineInWarp(exponentials, Sum());
    const float logOfSum = logf(exponentials);
    const float overSum = reciprocal(exponentials);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < held; ++i) {
      if (!isThere(i)) continue;
      Lanes<T> values = valuesOf<T>(labels[i]);
#pragma unroll
      for (int lane = 0; lane < lanes; ++lane) {
        const float s = shifted[i].values[lane];
        const float t = fmaf(values.values[lane], a.numbers.labelScale, a.numbers.labelOffset);
        if (t != 0.0F) sum = fmaf(t, logOfSum - s, sum);
        values.values[lane] = factor * fmaf(exponential(s), overSum, -t);
      }
      const std::uint32_t vector = threadIdx.x + static_cast<std::uint32_t>(i) * blockDim.x;
      storeLanes(values, at.gradient + static_cast<std::int64_t>(vector) * lanes);
    }
    return sum;
  };
  if (a.items == 1) {
    const std::uint32_t image = blockIdx.x * blockDim.y + threadIdx.y;
    const bool isInside = image < a.images;
    const std::uint32_t known = isInside ? image : 0;
    const float sum = combineInWarp(lossOfPixel(known, 0, isInside, a.factor(known)), Sum());
    if (isInside && threadIdx.x == 0 && a.sums != nullptr) a.sums[image] = static_cast<double>(sum);
    return;
  }
  const Chunk chunk(a);
  const float factor = a.factor(chunk.image);
  double total = 0;
  for (std::uint32_t first = chunk.begin; first < chunk.end; first += blockDim.y) {
    const std::uint32_t pixel = first + threadIdx.y;
    total +=
        static_cast<double>(lossOfPixel(chunk.image, min(pixel, chunk.end - 1), pixel < chunk.end, factor));
  }
  storeSum(a, total);
}

}  // namespace mps::detail::cuda
