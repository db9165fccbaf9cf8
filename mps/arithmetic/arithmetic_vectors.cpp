#include "mps/arithmetic/arithmetic_vectors.hpp"

#include <cstddef>

#include "mps/core/highway_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/arithmetic/arithmetic_vectors.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/core/vector_runs-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

using Floats = hn::ScalableTag<float>;
using FloatVector = hn::Vec<Floats>;

/// The operation without bias and limits, of scaled operands.
template <ArithmeticOperation operation>
HWY_INLINE FloatVector combine(FloatVector x, FloatVector y) {
  if constexpr (operation == ArithmeticOperation::Add) return hn::Add(x, y);
  if constexpr (operation == ArithmeticOperation::Subtract) return hn::Sub(x, y);
  if constexpr (operation == ArithmeticOperation::Multiply) return hn::Mul(x, y);
  if constexpr (operation == ArithmeticOperation::Divide) return hn::Div(x, y);
}

template <ArithmeticOperation operation>
HWY_INLINE void computeValues(const ArithmeticProblem& problem, const ArithmeticRun& run, float* result) {
  const Floats d;
  const auto a = hn::Set(d, problem.primaryScale);
  const auto b = hn::Set(d, problem.secondaryScale);
  const auto bias = hn::Set(d, problem.bias);
  const auto minimum = hn::Set(d, problem.minimumValue);
  const auto maximum = hn::Set(d, problem.maximumValue);
  forVectors(d, static_cast<std::size_t>(run.count), [&](std::size_t i, auto lanes) {
    const auto x = lanes.load(d, run.primary + i);
    const auto y = lanes.load(d, run.secondary + i);
    const auto r = hn::Add(combine<operation>(hn::Mul(a, x), hn::Mul(b, y)), bias);
    if (run.newMask != nullptr) {
      const auto inside = hn::And(hn::Gt(r, minimum), hn::Lt(r, maximum));
      lanes.store(d, hn::IfThenElseZero(inside, hn::Set(d, 1.0F)), run.newMask + i);
    }
    if (run.newQuotient != nullptr) lanes.store(d, hn::Div(x, y), run.newQuotient + i);
    // Comparisons, because minimum and maximum instructions may drop NaN.
    const auto below = hn::IfThenElse(hn::Gt(r, maximum), maximum, r);
    lanes.store(d, hn::IfThenElse(hn::Lt(r, minimum), minimum, below), result + i);
  });
}

void arithmeticValues(const ArithmeticProblem& problem, const ArithmeticRun& run, float* result) {
  switch (problem.operation) {
    case ArithmeticOperation::Add:
      return computeValues<ArithmeticOperation::Add>(problem, run, result);
    case ArithmeticOperation::Subtract:
      return computeValues<ArithmeticOperation::Subtract>(problem, run, result);
    case ArithmeticOperation::Multiply:
      return computeValues<ArithmeticOperation::Multiply>(problem, run, result);
    case ArithmeticOperation::Divide:
      return computeValues<ArithmeticOperation::Divide>(problem, run, result);
  }
}

enum class GradientFormula { Scale, Multiply, Divide, DivideSecondary };

template <GradientFormula formula>
HWY_INLINE void computeGradients(const ArithmeticProblem& problem, const ArithmeticRun& run, float* result) {
  const Floats d;
  const auto a = hn::Set(d, problem.primaryScale);
  const auto b = hn::Set(d, problem.secondaryScale);
  forVectors(d, static_cast<std::size_t>(run.count), [&](std::size_t i, auto lanes) {
    auto value = hn::Mul(a, lanes.load(d, run.gradient + i));
    if constexpr (formula != GradientFormula::Scale) {
      const auto z = hn::Mul(b, lanes.load(d, run.secondary + i));
      value = formula == GradientFormula::Multiply ? hn::Mul(value, z) : hn::Div(value, z);
    }
    if constexpr (formula == GradientFormula::DivideSecondary)
      value = hn::Neg(hn::Mul(value, lanes.load(d, run.quotient + i)));
    if (run.mask != nullptr)
      value = hn::IfThenElseZero(hn::Ne(lanes.load(d, run.mask + i), hn::Zero(d)), value);
    lanes.store(d, value, result + i);
  });
}

void arithmeticGradients(const ArithmeticProblem& problem, const ArithmeticRun& run, float* result) {
  switch (problem.operation) {
    case ArithmeticOperation::Add:
    case ArithmeticOperation::Subtract:
      return computeGradients<GradientFormula::Scale>(problem, run, result);
    case ArithmeticOperation::Multiply:
      return computeGradients<GradientFormula::Multiply>(problem, run, result);
    case ArithmeticOperation::Divide:
      if (problem.direction == ArithmeticDirection::PrimaryGradient)
        return computeGradients<GradientFormula::Divide>(problem, run, result);
      return computeGradients<GradientFormula::DivideSecondary>(problem, run, result);
  }
}

void repeatChannels(const float* from, std::int64_t pixels, std::int64_t channels, float* to) {
  const Floats d;
  const auto count = static_cast<std::size_t>(channels);
  for (std::int64_t i = 0; i < pixels; ++i, to += channels) {
    const auto value = hn::Set(d, from[i]);
    forVectors(d, count, [&](std::size_t c, auto lanes) { lanes.store(d, value, to + c); });
  }
}

void sumChannels(float* values, std::int64_t pixels, std::int64_t channels) {
  const Floats d;
  const auto count = static_cast<std::size_t>(channels);
  for (std::int64_t i = 0; i < pixels; ++i) {
    const float* pixel = values + i * channels;
    if (count < hn::Lanes(d)) {
      float sum = pixel[0];
      for (std::size_t c = 1; c < count; ++c) sum += pixel[c];
      values[i] = sum;
    } else {
      auto sum = hn::Zero(d);
      forVectors(d, count, [&](std::size_t c, auto lanes) { sum = hn::Add(sum, lanes.load(d, pixel + c)); });
      values[i] = hn::GetLane(hn::SumOfLanes(d, sum));
    }
  }
}

void sumPixels(float* values, std::int64_t pixels, std::int64_t channels) {
  const Floats d;
  while (pixels > 1) {
    const std::int64_t half = pixels / 2;
    const float* upper = values + (pixels - half) * channels;
    forVectors(d, static_cast<std::size_t>(half * channels), [&](std::size_t i, auto lanes) {
      lanes.store(d, hn::Add(lanes.load(d, values + i), lanes.load(d, upper + i)), values + i);
    });
    pixels -= half;
  }
}

void addToSums(const float* values, std::int64_t count, double* sums) {
  for (std::int64_t i = 0; i < count; ++i) sums[i] += static_cast<double>(values[i]);
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace mps::detail {

HWY_EXPORT(arithmeticValues);
HWY_EXPORT(arithmeticGradients);
HWY_EXPORT(repeatChannels);
HWY_EXPORT(sumChannels);
HWY_EXPORT(sumPixels);
HWY_EXPORT(addToSums);

void arithmeticValues(const ArithmeticProblem& problem, const ArithmeticRun& run, float* result) {
  HWY_DYNAMIC_DISPATCH(arithmeticValues)(problem, run, result);
}

void arithmeticGradients(const ArithmeticProblem& problem, const ArithmeticRun& run, float* result) {
  HWY_DYNAMIC_DISPATCH(arithmeticGradients)(problem, run, result);
}

void repeatChannels(const float* from, std::int64_t pixels, std::int64_t channels, float* to) {
  HWY_DYNAMIC_DISPATCH(repeatChannels)(from, pixels, channels, to);
}

void sumChannels(float* values, std::int64_t pixels, std::int64_t channels) {
  HWY_DYNAMIC_DISPATCH(sumChannels)(values, pixels, channels);
}

void sumPixels(float* values, std::int64_t pixels, std::int64_t channels) {
  HWY_DYNAMIC_DISPATCH(sumPixels)(values, pixels, channels);
}

void addToSums(const float* values, std::int64_t count, double* sums) {
  HWY_DYNAMIC_DISPATCH(addToSums)(values, count, sums);
}

}  // namespace mps::detail

#endif  // HWY_ONCE
