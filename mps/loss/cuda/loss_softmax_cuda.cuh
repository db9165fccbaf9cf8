#pragma once

#include "mps/loss/cuda/loss_cuda.cuh"

/// The cross entropy of softmax: rows of threads share the vectors of a pixel.
namespace mps::detail::cuda {

/// What is known of all channels of a pixel.
struct SoftMaxSums {
  float logOfSum;        ///< of the exponentials
  float reciprocal;      ///< 1 / their sum
  float weightedLabels;  ///< with the factors of the derivatives, for the exact gradient
};

/// Sum of w t' over a vector.
template <class Access>
__device__ float weightedLabels(const LossArguments& a, const ElementPlace& place, std::uint32_t index,
                                const typename Access::Values& t, float factor) {
  const auto scale = derivativeScale<Access>(a, place, loadWeights<Access>(a, place, index), factor);
  float sum = 0;
  for (int i = 0; i < Access::lanes; ++i) sum += scale.values[i] * smoothedLabel(a.numbers, t.values[i]);
  return sum;
}

/// Stores the results of a vector, and returns the sum of its losses. @param shifted y - the largest y
template <class Access>
__device__ float finishSoftMax(const LossArguments& a, const ElementPlace& place, std::uint32_t index,
                               float factor, const SoftMaxSums& sums, const typename Access::Values& shifted,
                               typename Access::Values t) {
  const auto w = loadWeights<Access>(a, place, index);
  const auto scale = derivativeScale<Access>(a, place, w, factor);
  for (float& label : t.values) label = smoothedLabel(a.numbers, label);
  const auto negativeLog = [&](int i) { return sums.logOfSum - shifted.values[i]; };
  const float sum = storeLosses<Access>(
      a, place, w, [&](int i) { return t.values[i] == 0.0F ? 0.0F : t.values[i] * negativeLog(i); });
  if (a.gradient.memory != nullptr) {
    typename Access::Values values;
    for (int i = 0; i < Access::lanes; ++i) {
      const float p = exponential(shifted.values[i]) * sums.reciprocal;
      values.values[i] = a.numbers.exactSoftMaxGradient
                             ? p * sums.weightedLabels - scale.values[i] * t.values[i]
                             : scale.values[i] * (p - t.values[i]);
    }
    Access::store(values, a.gradient, place, a.accumulate);
  }
  if (a.labelGradient.memory != nullptr) {
    auto values = scale;
    for (int i = 0; i < Access::lanes; ++i) values.values[i] *= negativeLog(i) * a.numbers.labelScale;
    Access::store(values, a.labelGradient, place);
  }
  return sum;
}

/// Calls pixel(place, vectors) for the pixels of a block, one for each of its rows. All threads take part: their
/// rows may have no vectors.
template <class Pixel>
__device__ void forEachPixelOfChunk(const LossArguments& a, const Chunk& chunk, Pixel visit) {
  for (std::uint32_t first = chunk.begin; first < chunk.end; first += blockDim.y) {
    const std::uint32_t pixel = first + threadIdx.y;
    visit(a.place(chunk.image, min(pixel, chunk.end - 1)), pixel < chunk.end ? a.vectors.divisor() : 0);
  }
}

/// Pixels of at most `held` vectors for each thread of a row, which are read once.
template <class Access, int held>
__global__ void __launch_bounds__(held > 2 ? 384 : 32 * kMostWarps, held > 2 ? 1 : 3)
    lossHeldSoftMax(LossArguments a) {
  __shared__ float shared[kMostWarps];
  const Chunk chunk(a);
  const float factor = a.factor(chunk.image);
  double total = 0;
  forEachPixelOfChunk(a, chunk, [&](ElementPlace place, std::uint32_t vectors) {
    const std::uint32_t index = a.classOf(place);
    const auto forEachVector = [&](auto visit) {
#pragma unroll
      for (int i = 0; i < held; ++i) {
        const std::uint32_t vector = threadIdx.x + static_cast<std::uint32_t>(i) * blockDim.x;
        if (vector >= vectors) continue;
        place.channel = static_cast<std::int32_t>(vector * Access::lanes);
        visit(i);
      }
    };
    FetchedInputs<Access> fetched[held];
    typename Access::Values y[held];
    forEachVector([&](int i) { fetched[i] = {a, place}; });
    float largest = -INFINITY;
    forEachVector([&](int i) {
      y[i] = fetched[i].predictionValues(a, index);
      for (const float value : y[i].values) largest = fmaxf(largest, value);  // exponentials keep NaN
    });
    largest = combineRow(largest, shared, Maximum());
    float exponentials = 0;
    forEachVector([&](int i) {
      for (float& value : y[i].values) {
        value -= largest;
        exponentials += exponential(value);
      }
    });
    exponentials = combineRow(exponentials, shared, Sum());
    SoftMaxSums sums{logf(exponentials), reciprocal(exponentials), 0};
    if (a.numbers.exactSoftMaxGradient) {
      forEachVector([&](int i) {
        sums.weightedLabels +=
            weightedLabels<Access>(a, place, index, fetched[i].labelValues(a, place, index), factor);
      });
      sums.weightedLabels = combineRow(sums.weightedLabels, shared, Sum());
    }
    float sum = 0;
    forEachVector([&](int i) {
      sum +=
          finishSoftMax<Access>(a, place, index, factor, sums, y[i], fetched[i].labelValues(a, place, index));
    });
    total += static_cast<double>(sum);
  });
  storeSum(a, total);
}

/// Pixels of any length: they are read three times, but mostly once from memory.
template <class Access>
__global__ void lossSoftMax(LossArguments a) {
  __shared__ float shared[kMostWarps];
  const Chunk chunk(a);
  const float factor = a.factor(chunk.image);
  double total = 0;
  forEachPixelOfChunk(a, chunk, [&](ElementPlace place, std::uint32_t vectors) {
    const std::uint32_t index = a.classOf(place);
    const auto forEachVector = [&](auto visit) {
      for (std::uint32_t vector = threadIdx.x; vector < vectors; vector += blockDim.x) {
        place.channel = static_cast<std::int32_t>(vector * Access::lanes);
        const FetchedInputs<Access> fetched(a, place);
        visit(fetched.predictionValues(a, index), fetched.labelValues(a, place, index));
      }
    };
    using Values = typename Access::Values;
    float largest = -INFINITY;
    forEachVector([&](const Values& y, const Values& /*t*/) {
      for (const float value : y.values) largest = fmaxf(largest, value);
    });
    largest = combineRow(largest, shared, Maximum());
    float exponentials = 0;
    float labels = 0;
    forEachVector([&](const Values& y, const Values& t) {
      for (const float value : y.values) exponentials += exponential(value - largest);
      if (a.numbers.exactSoftMaxGradient) labels += weightedLabels<Access>(a, place, index, t, factor);
    });
    exponentials = combineRow(exponentials, shared, Sum());
    if (a.numbers.exactSoftMaxGradient) labels = combineRow(labels, shared, Sum());
    const SoftMaxSums sums{logf(exponentials), reciprocal(exponentials), labels};
    float sum = 0;
    forEachVector([&](Values y, const Values& t) {
      for (float& value : y.values) value -= largest;
      sum += finishSoftMax<Access>(a, place, index, factor, sums, y, t);
    });
    total += static_cast<double>(sum);
  });
  storeSum(a, total);
}

}  // namespace mps::detail::cuda
