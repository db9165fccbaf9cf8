#pragma once

#include <limits>

#include "mps/core/cuda/element_grid_cuda.cuh"
#include "mps/core/cuda/row_reduction_cuda.cuh"
#include "mps/core/cuda/special_functions_cuda.cuh"
#include "mps/softmax/softmax_problem.hpp"

/// Softmax where rows of threads share the vectors of a pixel.
namespace mps::detail::cuda {

inline constexpr float kLowest = -std::numeric_limits<float>::infinity();

struct SoftMaxArguments {
  bool isLog = false;
  std::uint32_t pixels = 0;
  std::uint32_t vectors = 0;  ///< of a pixel
  Divider height, width;
  SourceView input;  ///< x, or the forward result
  SourceView gradient;
  ResultView destination;
  bool accumulate = false;

  [[nodiscard]] __device__ ElementPlace place(std::uint32_t pixel) const {
    const std::uint32_t row = width.divide(pixel);
    const std::uint32_t image = height.divide(row);
    return {static_cast<std::int32_t>(image), static_cast<std::int32_t>(row - image * height.divisor()),
            static_cast<std::int32_t>(pixel - row * width.divisor()), 0};
  }
};

// What is known of a pixel, and one step of each kind, for a vector of channels.

template <class Values>
__device__ float largestOf(const Values& x, float largest) {
  // NaN may be left out: it makes the sum of exponentials NaN.
  for (const float value : x.values) largest = fmaxf(largest, value);
  return largest;
}
/// Makes x its exponentials, or of the logarithm x - shift. Returns the sum of exponentials.
template <class Values>
__device__ float takePowers(bool isLog, Values& x, float shift) {
  float sum = 0;
  for (float& value : x.values) {
    value -= shift;
    const float power = exponential(value);
    sum += power;
    if (!isLog) value = power;
  }
  return sum;
}
/// The last step: an exponential over their sum, or x - shift less the sum's logarithm.
struct LastStep {
  float factor;
  float term;

  __device__ LastStep(bool isLog, float sum)
      : factor(isLog ? 1.0F : reciprocal(sum)), term(isLog ? -logf(sum) : 0.0F) {}
  __device__ float operator()(float value) const { return fmaf(value, factor, term); }
};
template <class Values>
__device__ float gradientSum(bool isLog, const Values& result, const Values& dy) {
  float sum = 0;
  for (int i = 0; i < static_cast<int>(sizeof(Values) / sizeof(float)); ++i)
    sum += isLog ? dy.values[i] : dy.values[i] * result.values[i];
  return sum;
}
__device__ inline float gradientOf(bool isLog, float result, float dy, float sum) {
  return isLog ? dy - expf(result) * sum : result * (dy - sum);
}
template <class Values>
__device__ Values finishGradient(bool isLog, const Values& result, Values dy, float sum) {
  for (int i = 0; i < static_cast<int>(sizeof(Values) / sizeof(float)); ++i)
    dy.values[i] = gradientOf(isLog, result.values[i], dy.values[i], sum);
  return dy;
}

/// Pixels of at most `held` vectors for each thread of a row of the block: they are read once.
template <class Access, SoftMaxDirection direction, int held>
__global__ void softMaxHeld(SoftMaxArguments a) {
  constexpr bool isForward = direction == SoftMaxDirection::Forward;
  using Values = typename Access::Values;
  __shared__ float shared[kMostWarps];
  const std::uint32_t pixel = blockIdx.x * blockDim.y + threadIdx.y;
  ElementPlace place = a.place(min(pixel, a.pixels - 1));
  const std::uint32_t vectors = pixel < a.pixels ? a.vectors : 0;
  typename Access::Fetched fetched[held];
  typename Access::Fetched fetchedGradient[isForward ? 1 : held];
  const auto forEachVector = [&](auto visit) {
#pragma unroll
    for (int i = 0; i < held; ++i) {
      const std::uint32_t vector = threadIdx.x + static_cast<std::uint32_t>(i) * blockDim.x;
      if (vector >= vectors) continue;
      place.channel = static_cast<std::int32_t>(vector * Access::lanes);
      visit(i);
    }
  };
  forEachVector([&](int i) {
    fetched[i] = Access::fetch(a.input, place);
    if constexpr (!isForward) fetchedGradient[i] = Access::fetch(a.gradient, place);
  });
  Values values[held];
  forEachVector([&](int i) { values[i] = Access::valuesOf(fetched[i]); });
  if constexpr (isForward) {
    float shift = kLowest;
    forEachVector([&](int i) { shift = largestOf(values[i], shift); });
    shift = combineRow(shift, shared, Maximum());
    float sum = 0;
    forEachVector([&](int i) { sum += takePowers(a.isLog, values[i], shift); });
    sum = combineRow(sum, shared, Sum());
    const LastStep last(a.isLog, sum);
    forEachVector([&](int i) {
      for (float& value : values[i].values) value = last(value);
      Access::store(values[i], a.destination, place);
    });
  } else {
    float sum = 0;
    forEachVector(
        [&](int i) { sum += gradientSum(a.isLog, values[i], Access::valuesOf(fetchedGradient[i])); });
    sum = combineRow(sum, shared, Sum());
    forEachVector([&](int i) {
      Access::store(finishGradient(a.isLog, values[i], Access::valuesOf(fetchedGradient[i]), sum),
                    a.destination, place, a.accumulate);
    });
  }
}

/// Pixels of any length, a block for each: they are read once for each step.
template <class Access, SoftMaxDirection direction>
__global__ void softMaxLong(SoftMaxArguments a) {
  __shared__ float shared[kMostWarps];
  ElementPlace place = a.place(blockIdx.x);
  const auto forEachVector = [&](auto visit) {
    for (std::uint32_t vector = threadIdx.x; vector < a.vectors; vector += blockDim.x) {
      place.channel = static_cast<std::int32_t>(vector * Access::lanes);
      visit();
    }
  };
  if constexpr (direction == SoftMaxDirection::Forward) {
    float shift = kLowest;
    forEachVector([&] { shift = largestOf(Access::load(a.input, place), shift); });
    shift = combineRow(shift, shared, Maximum());
    float sum = 0;
    forEachVector([&] {
      auto x = Access::load(a.input, place);
      sum += takePowers(a.isLog, x, shift);
    });
    sum = combineRow(sum, shared, Sum());
    const LastStep last(a.isLog, sum);
    forEachVector([&] {
      auto x = Access::load(a.input, place);
      takePowers(a.isLog, x, shift);
      for (float& value : x.values) value = last(value);
      Access::store(x, a.destination, place);
    });
  } else {
    float sum = 0;
    forEachVector(
        [&] { sum += gradientSum(a.isLog, Access::load(a.input, place), Access::load(a.gradient, place)); });
    sum = combineRow(sum, shared, Sum());
    forEachVector([&] {
      const auto result = Access::load(a.input, place);
      Access::store(finishGradient(a.isLog, result, Access::load(a.gradient, place), sum), a.destination,
                    place, a.accumulate);
    });
  }
}

}  // namespace mps::detail::cuda
