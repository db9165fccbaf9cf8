#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "mps/arithmetic/arithmetic_problem.hpp"
#include "mps/core/cuda/element_grid_cuda.cuh"
#include "mps/core/cuda/special_functions_cuda.cuh"
#include "mps/core/neuron/neuron_cuda.cuh"

/// The formulas of ArithmeticProblem, for vectors of elements. Values holds a vector.
namespace mps::detail::cuda {

template <class Values>
inline constexpr int kLanesOf = sizeof(Values) / sizeof(float);

/// A byte for each lane. @param place in memory a multiple of the number of lanes
template <int lanes>
__device__ void storeBytes(const unsigned (&bytes)[lanes], std::byte* to) {
  if constexpr (lanes == 1) {
    *reinterpret_cast<std::uint8_t*>(to) = static_cast<std::uint8_t>(bytes[0]);
  } else {
#pragma unroll
    for (int i = 0; i < lanes; i += 4)
      reinterpret_cast<unsigned*>(to)[i / 4] =
          bytes[i] | bytes[i + 1] << 8U | bytes[i + 2] << 16U | bytes[i + 3] << 24U;
  }
}
template <int lanes>
__device__ void loadBytes(unsigned (&bytes)[lanes], const std::byte* from) {
  if constexpr (lanes == 1) {
    bytes[0] = *reinterpret_cast<const std::uint8_t*>(from);
  } else {
#pragma unroll
    for (int i = 0; i < lanes; ++i)
      bytes[i] = reinterpret_cast<const unsigned*>(from)[i / 4] >> 8 * (i % 4) & 0xFFU;
  }
}

/// float32 values, whatever the format of the other tensors.
template <class Values>
__device__ void storeFloats(const Values& values, float* to) {
  if constexpr (kLanesOf<Values> == 1) {
    *to = values.values[0];
  } else {
#pragma unroll
    for (int i = 0; i < kLanesOf<Values>; i += 4)
      storeLanes(
          Lanes<float>{{values.values[i], values.values[i + 1], values.values[i + 2], values.values[i + 3]}},
          to + i);
  }
}
template <class Values>
__device__ void loadFloats(Values& values, const float* from) {
  if constexpr (kLanesOf<Values> == 1) {
    values.values[0] = *from;
  } else {
#pragma unroll
    for (int i = 0; i < kLanesOf<Values>; i += 4) {
      const Lanes<float> part = loadLanes(from + i);
#pragma unroll
      for (int k = 0; k < 4; ++k) values.values[i + k] = part.values[k];
    }
  }
}

/// Quotients, but for the rarest to the bits of a division: that is left to vectors with infinities, NaN, zeros or
/// huge numbers in the divisor.
/// @tparam areSmall no divisor is huge but finite: quotients show the others
template <bool areSmall, class Values>
__device__ Values divide(const Values& dividend, const Values& divisor) {
  Values quotient;
  bool isPlain = true;
  float watch = 0;  // NaN behind a quotient that is no number
#pragma unroll
  for (int i = 0; i < kLanesOf<Values>; ++i) {
    const float by = divisor.values[i];
    const float inverse = reciprocal(by);
    const float about = dividend.values[i] * inverse;
    quotient.values[i] = fmaf(fmaf(-about, by, dividend.values[i]), inverse, about);
    if constexpr (areSmall)
      watch = fmaf(quotient.values[i], 0.0F, watch);
    else
      isPlain = isPlain & fabsf(by) < 0x1p120F & fabsf(quotient.values[i]) < 0x1p120F;  // no branches
  }
  if (isPlain && watch == 0) return quotient;
  for (int i = 0; i < kLanesOf<Values>; ++i) quotient.values[i] = dividend.values[i] / divisor.values[i];
  return quotient;
}

/// Mask and the x that a division keeps; null where there are none.
struct SavedViews {
  ResultView mask;
  ResultView kept;

  [[nodiscard]] __host__ __device__ bool keepsHalf() const {
    return kept.format == ImageFeatureChannelFormat::Float16;
  }
  template <class Values>
  __device__ void storeKept(const Values& values, const ElementPlace& place) const {
    const std::int64_t offset = kept.offset(place);
    if (!keepsHalf()) return storeFloats(values, reinterpret_cast<float*>(kept.memory) + offset);
    auto* const to = reinterpret_cast<Float16*>(kept.memory) + offset;
    if constexpr (kLanesOf<Values> == kLanes<Float16>)
      storeLanes(values, to);
    else
      for (int i = 0; i < kLanesOf<Values>; ++i) cuda::store(values.values[i], to + i);
  }
  template <class Values>
  [[nodiscard]] __device__ Values loadKept(const ElementPlace& place) const {
    const std::int64_t offset = kept.offset(place);
    Values values;
    if (!keepsHalf()) {
      loadFloats(values, reinterpret_cast<const float*>(kept.memory) + offset);
      return values;
    }
    const auto* const from = reinterpret_cast<const Float16*>(kept.memory) + offset;
    if constexpr (kLanesOf<Values> == kLanes<Float16>)
      values = loadLanes(from);
    else
      for (int i = 0; i < kLanesOf<Values>; ++i) values.values[i] = cuda::load(from + i);
    return values;
  }
};

struct ArithmeticForward {
  ArithmeticOperation operation;
  float a, b, bias, minimum, lowest, highest, threshold;
  bool hasScales;
  bool hasMinimum;
  bool hasMaximum;
  bool hasReLU;
  SavedViews saved;

  ArithmeticForward(const ArithmeticProblem& problem, const SavedViews& savedViews)
      : operation(problem.operation),
        a(problem.primaryScale),
        b(problem.secondaryScale),
        bias(problem.bias),
        minimum(problem.minimumValue),
        lowest(problem.lowest()),
        highest(problem.highest()),
        threshold(problem.threshold),
        hasScales(a != 1 || b != 1),
        hasMinimum(problem.hasMinimum()),
        hasMaximum(problem.hasMaximum()),
        hasReLU(problem.hasReLU),
        saved(savedViews) {}

  /// Whether x and y are combined and nothing else, but for limits and a ReLU behind a sum.
  [[nodiscard]] bool isPlain() const {
    return !isComparison(operation) && (!hasReLU || operation == ArithmeticOperation::Add) && !hasScales &&
           bias == 0 && saved.mask.memory == nullptr && saved.kept.memory == nullptr;
  }
  [[nodiscard]] __host__ __device__ bool hasLimits() const { return hasMinimum || hasMaximum; }
  /// r cut to the limits. Comparisons, because the minimum and maximum of two numbers drop NaN.
  [[nodiscard]] __device__ static float limited(float r, float lowest, float highest) {
    return r > highest ? highest : r < lowest ? lowest : r;
  }

  template <class Values>
  __device__ void operator()(const ElementPlace& place, const Values (&in)[2], Values& result) const {
    constexpr int lanes = kLanesOf<Values>;
    if (isComparison(operation)) {
#pragma unroll
      for (int i = 0; i < lanes; ++i)
        result.values[i] = holds(in[0].values[i], in[1].values[i]) ? 1.0F : 0.0F;
      return;
    }
    Values x = in[0];
    Values y = in[1];
    if (hasScales) {
#pragma unroll
      for (int i = 0; i < lanes; ++i) {
        x.values[i] *= a;
        y.values[i] *= b;
      }
    }
    const auto combine = [&](auto function) {
#pragma unroll
      for (int i = 0; i < lanes; ++i) result.values[i] = function(x.values[i], y.values[i]);
    };
    switch (operation) {
      case ArithmeticOperation::Add:
        combine([](float p, float q) { return p + q; });
        break;
      case ArithmeticOperation::Subtract:
        combine([](float p, float q) { return p - q; });
        break;
      case ArithmeticOperation::Multiply:
        combine([](float p, float q) { return p * q; });
        break;
      default:
        result = divide<false>(x, y);
        break;
    }
    if (saved.kept.memory != nullptr) saved.storeKept(in[0], place);
    for (float& r : result.values) r += bias;
    if (saved.mask.memory != nullptr) {
      unsigned inside[lanes];
      for (int i = 0; i < lanes; ++i)
        inside[i] = (!hasMinimum || result.values[i] > minimum) && (!hasMaximum || result.values[i] < highest)
                        ? 0xFFU
                        : 0U;  // a limit that means none has no side: NaN, too, is inside
      storeBytes(inside, saved.mask.memory + saved.mask.offset(place));
    }
    if (!hasLimits() && !hasReLU) return;
    for (float& r : result.values) r = limited(r, lowest, highest);
  }

 private:
  /// Whether a comparison does.
  __device__ bool holds(float x, float y) const {
    switch (operation) {
      case ArithmeticOperation::Equal:
        return fabsf(x - y) <= threshold;
      case ArithmeticOperation::NotEqual:
        return !(fabsf(x - y) <= threshold);
      case ArithmeticOperation::Less:
        return x < y;
      case ArithmeticOperation::LessOrEqual:
        return x <= y;
      case ArithmeticOperation::Greater:
        return x > y;
      default:
        return x >= y;
    }
  }
};

/// What follows where x and y are combined.
enum class PlainEnd { Nothing, ReLU, Limits };

/// ArithmeticForward where it isPlain().
template <ArithmeticOperation operation, PlainEnd end>
struct PlainForward {
  float lowest, highest;  ///< of limits

  template <class Values>
  __device__ void operator()(const ElementPlace& /*place*/, const Values (&in)[2], Values& result) const {
    if constexpr (operation == ArithmeticOperation::Divide) {
      result = divide<kLanesOf<Values> == kLanes<Float16>>(in[0], in[1]);
    } else {
#pragma unroll
      for (int i = 0; i < kLanesOf<Values>; ++i) {
        const float x = in[0].values[i];
        const float y = in[1].values[i];
        result.values[i] = operation == ArithmeticOperation::Add        ? x + y
                           : operation == ArithmeticOperation::Subtract ? x - y
                                                                        : x * y;
      }
    }
#pragma unroll
    for (float& r : result.values) {
      if constexpr (end == PlainEnd::ReLU) r = kinkedLine(r, 0.0F);
      // A sum that is -0 becomes 0, as with a bias: behind a ReLU the sign says which side it came from.
      if constexpr (end == PlainEnd::Limits) r = ArithmeticForward::limited(r + 0.0F, lowest, highest);
    }
  }
};

/// The values that a gradient sums, of g, and of z where it is needed.
struct ArithmeticGradient {
  /// Whether what a division has kept may be read.
  static constexpr bool readsKept(int inputs) { return inputs == 2; }
  bool divides;
  bool ofDivisor;
  float a, b;
  SavedViews saved;

  ArithmeticGradient(const ArithmeticProblem& problem, const SavedViews& savedViews)
      : divides(problem.operation == ArithmeticOperation::Divide),
        ofDivisor(divides && problem.direction == ArithmeticDirection::SecondaryGradient),
        a(problem.primaryScale),
        b(problem.secondaryScale),
        saved(savedViews) {}

  /// Whether PlainGradient gives the same. No half is a huge divisor then.
  [[nodiscard]] bool isPlain() const {
    return !ofDivisor && saved.mask.memory == nullptr && hasSmallDivisors();
  }
  [[nodiscard]] bool hasSmallDivisors() const { return !divides || std::abs(b) < 0x1p100F; }
  template <class Values, int inputs>
  __device__ void operator()(const ElementPlace& place, const Values (&in)[inputs], Values& result) const {
    finish(place, in, keptAt<Values>(place), result);
  }
  /// Zeros where it is not needed.
  template <class Values>
  __device__ Values keptAt(const ElementPlace& place) const {
    return ofDivisor ? saved.loadKept<Values>(place) : Values{};
  }
  template <class Values, int inputs>
  __device__ void finish(const ElementPlace& place, const Values (&in)[inputs], const Values& kept,
                         Values& result) const {
    constexpr int lanes = kLanesOf<Values>;
    for (int i = 0; i < lanes; ++i) result.values[i] = a * in[0].values[i];
    if constexpr (inputs == 2) {
      if (ofDivisor)
        result = ofDivisorFrom(result, in[1], kept);
      else if (divides)
        result = divide<false>(result, scaled(in[1]));
      else
        for (int i = 0; i < lanes; ++i) result.values[i] = result.values[i] * (b * in[1].values[i]);
    }
    if (saved.mask.memory != nullptr) {
      unsigned inside[lanes];
      loadBytes(inside, saved.mask.memory + saved.mask.offset(place));
      for (int i = 0; i < lanes; ++i)
        if (inside[i] == 0) result.values[i] = 0;
    }
  }

 private:
  template <class Values>
  __device__ Values scaled(Values z) const {
    for (float& value : z.values) value = b * value;
    return z;
  }
  /// @param g times a
  template <class Values>
  __device__ Values ofDivisorFrom(const Values& g, const Values& z, const Values& kept) const {
    const Values quotients = divide<false>(kept, z);
    Values result = divide<false>(g, scaled(z));
    for (int i = 0; i < kLanesOf<Values>; ++i) result.values[i] = -(result.values[i] * quotients.values[i]);
    return result;
  }
};

/// What a gradient does with g where nothing was saved.
enum class PlainKind { Scale, Multiply, Divide };

/// ArithmeticGradient where there is no mask, and nothing that is kept.
template <PlainKind kind>
struct PlainGradient {
  static constexpr bool readsKept(int /*inputs*/) { return false; }
  float a, b;

  template <class Values, int inputs>
  __device__ void operator()(const ElementPlace& place, const Values (&in)[inputs], Values& result) const {
    finish(place, in, Values{}, result);
  }
  template <class Values, int inputs>
  __device__ void finish(const ElementPlace& /*place*/, const Values (&in)[inputs], const Values& /*kept*/,
                         Values& result) const {
    constexpr int lanes = kLanesOf<Values>;
#pragma unroll
    for (int i = 0; i < lanes; ++i) result.values[i] = a * in[0].values[i];
    if constexpr (inputs == 2) {
      Values by;
#pragma unroll
      for (int i = 0; i < lanes; ++i) by.values[i] = b * in[1].values[i];
      if constexpr (kind == PlainKind::Divide) {
        result = divide<lanes == kLanes<Float16>>(result, by);
      } else {
#pragma unroll
        for (int i = 0; i < lanes; ++i) result.values[i] = result.values[i] * by.values[i];
      }
    }
  }
};

}  // namespace mps::detail::cuda
