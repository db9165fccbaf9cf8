#include "mps/arithmetic/cpu/arithmetic_vectors.hpp"

#include <algorithm>
#include <cstddef>

#include "mps/core/cpu/highway_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/arithmetic/cpu/arithmetic_vectors.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/core/cpu/vector_runs-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

using Floats = hn::ScalableTag<float>;
using FloatVector = hn::Vec<Floats>;

template <class Element>
HWY_INLINE FloatVector load(AllLanes /*lanes*/, const Element* from) {
  return loadFloats(Floats(), from);
}
template <class Element>
HWY_INLINE FloatVector load(FirstLanes lanes, const Element* from) {
  return loadFloats(Floats(), from, lanes.count);
}
template <class Element>
HWY_INLINE void store(AllLanes /*lanes*/, FloatVector value, Element* to) {
  storeFloats(Floats(), value, to);
}
template <class Element>
HWY_INLINE void store(FirstLanes lanes, FloatVector value, Element* to) {
  storeFloats(Floats(), value, to, lanes.count);
}
/// Writes the result.
template <class Element, class Result>
HWY_INLINE void put(AllLanes /*lanes*/, FloatVector value, const ArithmeticRun<Element>& run, Result* to) {
  storeOrStream(Floats(), value, to, run.isNonTemporal);
}
template <class Element, class Result>
HWY_INLINE void put(FirstLanes lanes, FloatVector value, const ArithmeticRun<Element>& /*run*/, Result* to) {
  store(lanes, value, to);
}

/// Calls body(i, k, lanes) for whole vectors and a rest: element i of the run belongs to element k of the secondary
/// operand.
template <class Element, class Body>
HWY_INLINE void forPeriods(const ArithmeticRun<Element>& run, Body&& body) {
  const auto count = static_cast<std::size_t>(run.count);
  const auto period = static_cast<std::size_t>(run.secondaryPeriod);
  for (std::size_t first = 0; first < count; first += period)
    forVectors(Floats(), std::min(period, count - first),
               [&](std::size_t k, auto lanes) { body(first + k, k, lanes); });
}

/// The operation without bias and limits, of scaled operands.
template <ArithmeticOperation operation>
HWY_INLINE FloatVector combine(FloatVector x, FloatVector y) {
  if constexpr (operation == ArithmeticOperation::Add) return hn::Add(x, y);
  if constexpr (operation == ArithmeticOperation::Subtract) return hn::Sub(x, y);
  if constexpr (operation == ArithmeticOperation::Multiply) return hn::Mul(x, y);
  if constexpr (operation == ArithmeticOperation::Divide) return hn::Div(x, y);
}

/// @tparam saves whether there is a mask to write, or what a division keeps: its constants need the registers
template <ArithmeticOperation operation, bool saves, class Element>
HWY_INLINE void computeValues(const ArithmeticProblem& problem, ArithmeticRun<Element> run, Element* result) {
  const Floats d;
  const auto a = hn::Set(d, problem.primaryScale);
  const auto b = hn::Set(d, problem.secondaryScale);
  const auto bias = hn::Set(d, problem.bias);
  const auto minimum = hn::Set(d, problem.minimumValue);
  const auto lowest = hn::Set(d, problem.lowest());
  const auto highest = hn::Set(d, problem.highest());
  forPeriods(run, [&](std::size_t i, std::size_t k, auto lanes) {
    const auto x = load(lanes, run.primary + i);
    const auto y = load(lanes, run.secondary + k);
    const auto r = hn::Add(combine<operation>(hn::Mul(a, x), hn::Mul(b, y)), bias);
    if (saves && run.newMask != nullptr) {
      // A limit that means none has no side: NaN, too, is inside.
      const auto one = hn::Set(d, 1.0F);
      const auto above = problem.hasMinimum() ? hn::IfThenElseZero(hn::Gt(r, minimum), one) : one;
      store(lanes, problem.hasMaximum() ? hn::IfThenElseZero(hn::Lt(r, highest), above) : above,
            run.newMask + i);
    }
    if constexpr (saves && operation == ArithmeticOperation::Divide)
      if (run.newKept != nullptr) store(lanes, x, run.newKept + i);
    // Comparisons, because minimum and maximum instructions may drop NaN.
    const auto below = hn::IfThenElse(hn::Gt(r, highest), highest, r);
    put(lanes, hn::IfThenElse(hn::Lt(r, lowest), lowest, below), run, result + i);
  });
}

template <ArithmeticOperation operation, class Element>
HWY_INLINE void computeValues(const ArithmeticProblem& problem, const ArithmeticRun<Element>& run,
                              Element* result) {
  if (run.newMask != nullptr || run.newKept != nullptr)
    computeValues<operation, true>(problem, run, result);
  else
    computeValues<operation, false>(problem, run, result);
}

/// Where a comparison of x and y holds.
template <ArithmeticOperation operation>
HWY_INLINE auto compare(FloatVector x, FloatVector y, FloatVector threshold) {
  if constexpr (operation == ArithmeticOperation::Equal) return hn::Le(hn::Abs(hn::Sub(x, y)), threshold);
  if constexpr (operation == ArithmeticOperation::NotEqual)
    return hn::Not(hn::Le(hn::Abs(hn::Sub(x, y)), threshold));
  if constexpr (operation == ArithmeticOperation::Less) return hn::Lt(x, y);
  if constexpr (operation == ArithmeticOperation::LessOrEqual) return hn::Le(x, y);
  if constexpr (operation == ArithmeticOperation::Greater) return hn::Gt(x, y);
  if constexpr (operation == ArithmeticOperation::GreaterOrEqual) return hn::Ge(x, y);
}

template <ArithmeticOperation operation, class Element>
HWY_INLINE void compareValues(const ArithmeticProblem& problem, ArithmeticRun<Element> run, Element* result) {
  const Floats d;
  const auto threshold = hn::Set(d, problem.threshold);
  forPeriods(run, [&](std::size_t i, std::size_t k, auto lanes) {
    const auto holds =
        compare<operation>(load(lanes, run.primary + i), load(lanes, run.secondary + k), threshold);
    put(lanes, hn::IfThenElseZero(holds, hn::Set(d, 1.0F)), run, result + i);
  });
}

template <class Element>
HWY_INLINE void dispatchValues(const ArithmeticProblem& problem, const ArithmeticRun<Element>& run,
                               Element* result) {
  switch (problem.operation) {
    case ArithmeticOperation::Add:
      return computeValues<ArithmeticOperation::Add>(problem, run, result);
    case ArithmeticOperation::Subtract:
      return computeValues<ArithmeticOperation::Subtract>(problem, run, result);
    case ArithmeticOperation::Multiply:
      return computeValues<ArithmeticOperation::Multiply>(problem, run, result);
    case ArithmeticOperation::Divide:
      return computeValues<ArithmeticOperation::Divide>(problem, run, result);
    case ArithmeticOperation::Equal:
      return compareValues<ArithmeticOperation::Equal>(problem, run, result);
    case ArithmeticOperation::NotEqual:
      return compareValues<ArithmeticOperation::NotEqual>(problem, run, result);
    case ArithmeticOperation::Less:
      return compareValues<ArithmeticOperation::Less>(problem, run, result);
    case ArithmeticOperation::LessOrEqual:
      return compareValues<ArithmeticOperation::LessOrEqual>(problem, run, result);
    case ArithmeticOperation::Greater:
      return compareValues<ArithmeticOperation::Greater>(problem, run, result);
    case ArithmeticOperation::GreaterOrEqual:
      return compareValues<ArithmeticOperation::GreaterOrEqual>(problem, run, result);
  }
}

void valuesFloat32(const ArithmeticProblem& problem, const ArithmeticRun<float>& run, float* result) {
  dispatchValues(problem, run, result);
}
void valuesFloat16(const ArithmeticProblem& problem, const ArithmeticRun<Float16>& run, Float16* result) {
  dispatchValues(problem, run, result);
}

enum class GradientFormula { Scale, Multiply, Divide, WithDividend };

/// The value of one vector of elements of the result, of which the secondary operand begins at k.
template <GradientFormula formula, class Element>
class GradientValue {
 public:
  GradientValue(const ArithmeticProblem& problem, const ArithmeticRun<Element>& run)
      : run_(run),
        a_(hn::Set(Floats(), problem.primaryScale)),
        b_(hn::Set(Floats(), problem.secondaryScale)) {}

  template <class Lanes>
  HWY_INLINE FloatVector operator()(std::size_t i, std::size_t k, Lanes lanes) const {
    auto value = hn::Mul(a_, load(lanes, run_.gradient + i));
    if constexpr (formula != GradientFormula::Scale) {
      const auto z = load(lanes, run_.secondary + k);
      const auto scaled = hn::Mul(b_, z);
      value = formula == GradientFormula::Multiply ? hn::Mul(value, scaled) : hn::Div(value, scaled);
      if constexpr (formula == GradientFormula::WithDividend)
        value = hn::Neg(hn::Mul(value, hn::Div(load(lanes, run_.dividend + i), z)));
    }
    if (run_.mask != nullptr)
      value = hn::IfThenElseZero(hn::Ne(load(lanes, run_.mask + i), hn::Zero(Floats())), value);
    return value;
  }
  /// The same where the secondary operand has a place for each element.
  template <class Lanes>
  HWY_INLINE FloatVector operator()(std::size_t i, Lanes lanes) const {
    return (*this)(i, i, lanes);
  }
  /// Asks for what the vector at i is computed from.
  HWY_INLINE void prefetch(std::size_t i) const {
    hwy::Prefetch(run_.gradient + i);
    if constexpr (formula == GradientFormula::Multiply) hwy::Prefetch(run_.secondary + i);
    if constexpr (formula == GradientFormula::WithDividend) hwy::Prefetch(run_.dividend + i);
  }

 private:
  ArithmeticRun<Element> run_;  // a copy, which the stores cannot change
  FloatVector a_;
  FloatVector b_;
};

/// Calls body(GradientValue) for the formula of the problem.
template <class Element, class Body>
HWY_INLINE void withGradientValue(const ArithmeticProblem& problem, const ArithmeticRun<Element>& run,
                                  Body&& body) {
  switch (problem.operation) {
    case ArithmeticOperation::Add:
    case ArithmeticOperation::Subtract:
      return body(GradientValue<GradientFormula::Scale, Element>(problem, run));
    case ArithmeticOperation::Multiply:
      return body(GradientValue<GradientFormula::Multiply, Element>(problem, run));
    case ArithmeticOperation::Divide:
      if (problem.direction == ArithmeticDirection::PrimaryGradient)
        return body(GradientValue<GradientFormula::Divide, Element>(problem, run));
      return body(GradientValue<GradientFormula::WithDividend, Element>(problem, run));
    default:
      break;  // comparisons have none
  }
}

template <class Element, class Result>
HWY_INLINE void computeGradients(const ArithmeticProblem& problem, const ArithmeticRun<Element>& run,
                                 Result* result) {
  withGradientValue(problem, run, [&](const auto& value) {
    forPeriods(run, [&](std::size_t i, std::size_t k, auto lanes) {
      put(lanes, value(i, k, lanes), run, result + i);
    });
  });
}

void gradientsFloat32(const ArithmeticProblem& problem, const ArithmeticRun<float>& run, float* result) {
  computeGradients(problem, run, result);
}
void gradientsFloat16(const ArithmeticProblem& problem, const ArithmeticRun<Float16>& run, Float16* result) {
  computeGradients(problem, run, result);
}
void gradientsFloat16To32(const ArithmeticProblem& problem, const ArithmeticRun<Float16>& run,
                          float* result) {
  computeGradients(problem, run, result);
}

void sumPixels(float* values, std::int64_t pixels, std::int64_t channels) {
  const Floats d;
  while (pixels > 1) {
    const std::int64_t half = pixels / 2;
    const float* upper = values + (pixels - half) * channels;
    forVectors(d, static_cast<std::size_t>(half * channels), [&](std::size_t i, auto lanes) {
      store(lanes, hn::Add(load(lanes, values + i), load(lanes, upper + i)), values + i);
    });
    pixels -= half;
  }
}

/// result[c] = sum over the pixels, for so many vectors of channels from c on.
template <std::size_t vectors, class Value, class Lanes>
HWY_INLINE void sumStrip(const Value& value, std::size_t pixels, std::size_t channels, std::size_t c,
                         Lanes lanes, float* result) {
  const std::size_t step = hn::Lanes(Floats());
  const std::size_t end = pixels * channels;
  const bool isOdd = pixels % 2 != 0;
  FloatVector sums[vectors];
  for (std::size_t v = 0; v < vectors; ++v) sums[v] = isOdd ? value(c + v * step, lanes) : hn::Zero(Floats());
  for (std::size_t i = (isOdd ? channels : 0) + c; i < end; i += 2 * channels) {
    for (std::size_t v = 0; v < vectors; ++v) {
      const std::size_t first = i + v * step;
      const std::size_t second = first + channels;
      value.prefetch(first + end);
      value.prefetch(second + end);
      sums[v] = hn::Add(sums[v], hn::Add(value(first, lanes), value(second, lanes)));
    }
  }
  for (std::size_t v = 0; v < vectors; ++v) store(lanes, sums[v], result + c + v * step);
}

/// With many channels, strips of them are summed in registers, while the next tile is asked for.
template <class Value>
HWY_INLINE void sumManyChannels(Value value, std::size_t pixels, std::size_t channels, float* result) {
  constexpr std::size_t vectors = 4;
  const std::size_t step = hn::Lanes(Floats());
  std::size_t c = 0;
  for (; c + vectors * step <= channels; c += vectors * step)
    sumStrip<vectors>(value, pixels, channels, c, AllLanes{}, result);
  forVectors(Floats(), channels - c,
             [&](std::size_t i, auto lanes) { sumStrip<1>(value, pixels, channels, c + i, lanes, result); });
}

/// With few channels, eight parts of the run are added while they are computed, so that few values are
/// stored.
template <class Value>
HWY_INLINE void sumFewChannels(Value value, std::int64_t pixels, std::int64_t channels, float* result) {
  const auto part = static_cast<std::size_t>(pixels / 8 * channels);
  const auto rest = static_cast<std::size_t>(pixels % 8 * channels);
  forVectors(Floats(), part, [&](std::size_t i, auto lanes) {
    const auto two = [&](std::size_t k) {
      return hn::Add(value(i + k * part, lanes), value(i + (k + 1) * part, lanes));
    };
    store(lanes, hn::Add(hn::Add(two(0), two(2)), hn::Add(two(4), two(6))), result + i);
  });
  forVectors(Floats(), rest,
             [&](std::size_t i, auto lanes) { store(lanes, value(8 * part + i, lanes), result + part + i); });
  sumPixels(result, pixels / 8 + pixels % 8, channels);
}

template <class Element>
HWY_INLINE void sumGradients(const ArithmeticProblem& problem, const ArithmeticRun<Element>& run,
                             std::int64_t channels, float* result) {
  constexpr std::int64_t fewChannels = 16;
  const std::int64_t pixels = run.count / channels;
  withGradientValue(problem, run, [&](const auto& value) {
    if (channels < fewChannels)
      sumFewChannels(value, pixels, channels, result);
    else
      sumManyChannels(value, static_cast<std::size_t>(pixels), static_cast<std::size_t>(channels), result);
  });
}

void sumGradientsFloat32(const ArithmeticProblem& problem, const ArithmeticRun<float>& run,
                         std::int64_t channels, float* result) {
  sumGradients(problem, run, channels, result);
}
void sumGradientsFloat16(const ArithmeticProblem& problem, const ArithmeticRun<Float16>& run,
                         std::int64_t channels, float* result) {
  sumGradients(problem, run, channels, result);
}

void repeatChannels(const float* from, std::int64_t pixels, std::int64_t channels, float* to) {
  const Floats d;
  const auto count = static_cast<std::size_t>(channels);
  for (std::int64_t i = 0; i < pixels; ++i, to += channels) {
    const auto value = hn::Set(d, from[i]);
    forVectors(d, count, [&](std::size_t c, auto lanes) { lanes.store(d, value, to + c); });
  }
}

void repeatFloat16Channels(const Float16* from, std::int64_t pixels, std::int64_t channels, Float16* to) {
  const hn::ScalableTag<std::uint16_t> d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < pixels; ++i, to += channels) {
    const auto value = hn::Set(d, from[i].bits);
    std::int64_t c = 0;
    for (; c + step <= channels; c += step) hn::StoreU(value, d, reinterpret_cast<std::uint16_t*>(to + c));
    for (; c < channels; ++c) to[c] = from[i];
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

void addToSums(const float* values, std::int64_t count, double* sums) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + step <= count; i += step)
    hn::StoreU(hn::Add(hn::LoadU(d, sums + i), hn::PromoteTo(d, hn::LoadU(df, values + i))), d, sums + i);
  for (; i < count; ++i) sums[i] += static_cast<double>(values[i]);
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace mps::detail {

HWY_EXPORT(valuesFloat32);
HWY_EXPORT(valuesFloat16);
HWY_EXPORT(gradientsFloat32);
HWY_EXPORT(gradientsFloat16);
HWY_EXPORT(gradientsFloat16To32);
HWY_EXPORT(sumGradientsFloat32);
HWY_EXPORT(sumGradientsFloat16);
HWY_EXPORT(repeatChannels);
HWY_EXPORT(repeatFloat16Channels);
HWY_EXPORT(sumChannels);
HWY_EXPORT(sumPixels);
HWY_EXPORT(addToSums);

void arithmeticValues(const ArithmeticProblem& problem, const ArithmeticRun<float>& run, float* result) {
  HWY_DYNAMIC_DISPATCH(valuesFloat32)(problem, run, result);
}

void arithmeticValues(const ArithmeticProblem& problem, const ArithmeticRun<Float16>& run, Float16* result) {
  HWY_DYNAMIC_DISPATCH(valuesFloat16)(problem, run, result);
}

void arithmeticGradients(const ArithmeticProblem& problem, const ArithmeticRun<float>& run, float* result) {
  HWY_DYNAMIC_DISPATCH(gradientsFloat32)(problem, run, result);
}

void arithmeticGradients(const ArithmeticProblem& problem, const ArithmeticRun<Float16>& run,
                         Float16* result) {
  HWY_DYNAMIC_DISPATCH(gradientsFloat16)(problem, run, result);
}

void arithmeticGradients(const ArithmeticProblem& problem, const ArithmeticRun<Float16>& run, float* result) {
  HWY_DYNAMIC_DISPATCH(gradientsFloat16To32)(problem, run, result);
}

void sumArithmeticGradients(const ArithmeticProblem& problem, const ArithmeticRun<float>& run,
                            std::int64_t channels, float* result) {
  HWY_DYNAMIC_DISPATCH(sumGradientsFloat32)(problem, run, channels, result);
}

void sumArithmeticGradients(const ArithmeticProblem& problem, const ArithmeticRun<Float16>& run,
                            std::int64_t channels, float* result) {
  HWY_DYNAMIC_DISPATCH(sumGradientsFloat16)(problem, run, channels, result);
}

void repeatChannels(const float* from, std::int64_t pixels, std::int64_t channels, float* to) {
  HWY_DYNAMIC_DISPATCH(repeatChannels)(from, pixels, channels, to);
}

void repeatChannels(const Float16* from, std::int64_t pixels, std::int64_t channels, Float16* to) {
  HWY_DYNAMIC_DISPATCH(repeatFloat16Channels)(from, pixels, channels, to);
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
