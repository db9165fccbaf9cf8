// Neurons on vectors of float32 lanes, once per instruction set. Include it after
// hwy/highway.h in a file that hwy/foreach_target.h compiles several times; mps/core/cpu/highway_targets.hpp
// comes before both. Code that works on runs in memory calls mps/core/neuron/neuron_span.hpp instead: it compiles
// these types only once.

#if defined(UNMETAL_MPS_CORE_NEURON_VECTORS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_CORE_NEURON_VECTORS_INL_HPP
#undef UNMETAL_MPS_CORE_NEURON_VECTORS_INL_HPP
#else
#define UNMETAL_MPS_CORE_NEURON_VECTORS_INL_HPP
#endif

#include <hwy/highway.h>

#include <cmath>
#include <limits>

#include "mps/core/cpu/normal_tail-inl.hpp"
#include "mps/core/cpu/vector_math-inl.hpp"
#include "mps/core/neuron/neuron_descriptor.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Each type below has
//
//   value(d, x, slope)            f(x)
//   derivative(d, x, slope)       f'(x)
//
// and, where f' can be had from y = f(x) (derivativeFromResult() in mps/core/neuron/neuron_span.hpp),
//
//   derivativeFromResult(d, y, slope)
//
// and, where it is cheaper,
//
//   valueForHalf(d, x, slope)       f(x), to be rounded to float16
//   derivativeForHalf(d, x, slope)  f'(x), the same
//
// `slope` is PReLU's slope of each lane; the other types ignore it. NaN in gives NaN out, as
// neuron_reference.hpp says. Where a type has a kink at 0, its result has the sign bit set exactly where x <
// 0 (a zero slope gives -0), so that the result tells the side, also at x = 0.

/// x where x >= 0, slope * x where x < 0; a zero slope also takes an infinite x to zero.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V kinkedLine(D d, V x, V slope) {
  const V zero = hn::Zero(d);
  const V product = hn::IfThenElse(hn::Eq(slope, zero), hn::Neg(slope), hn::Mul(slope, x));
  return hn::IfThenElse(hn::Lt(x, zero), product, hn::Add(x, zero));  // x + 0 makes -0 a 0
}

/// 1 where x >= 0, `slope` where x < 0, x where it is NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V kinkedSlope(D d, V x, V slope) {
  const V zero = hn::Zero(d);
  return hn::IfThenElse(hn::Lt(x, zero), slope, hn::IfThenElse(hn::Ge(x, zero), hn::Set(d, 1.0F), x));
}

/// 1 where y's sign bit is clear, `slope` where it is set, y where it is NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V kinkedSlopeFromSign(D d, V y, V slope) {
  const hn::RebindToSigned<D> di;
  const auto isNegative = hn::RebindMask(d, hn::Lt(hn::BitCast(di, y), hn::Zero(di)));
  const V side = hn::IfThenElse(isNegative, slope, hn::Set(d, 1.0F));
  return hn::IfThenElse(hn::IsNaN(y), y, side);
}

/// a x + b.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V line(D d, V x, float a, float b) {
  return hn::MulAdd(hn::Set(d, a), x, hn::Set(d, b));
}

/// 1 / (1 + exp(-x)) from e = exp(-|x|).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V logisticFrom(D d, V x, V e) {
  const V one = hn::Set(d, 1.0F);
  return hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one), hn::Add(one, e));
}

/// e / (1 + e)^2: the slope of the logistic function from e = exp(-|x|), without cancellation where it is close to 1.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V logisticSlope(D d, V e) {
  const V sum = hn::Add(e, hn::Set(d, 1.0F));
  return hn::Div(e, hn::Mul(sum, sum));
}

/// 1 / (1 + exp(-x)) without overflow.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V logistic(D d, V x) {
  return logisticFrom(d, x, vectorExpNonPositive(d, hn::Neg(hn::Abs(x))));
}

struct IdentityNeuron {
  template <class D, class V>
  HWY_INLINE V value(D /*d*/, V x, V /*slope*/) const {
    return x;
  }
  template <class D, class V>
  HWY_INLINE V derivative(D d, V /*x*/, V /*slope*/) const {
    return hn::Set(d, 1.0F);
  }
  template <class D, class V>
  HWY_INLINE V derivativeFromResult(D d, V y, V slope) const {
    return derivative(d, y, slope);
  }
};

struct ReLUNeuron {
  float a;
  template <class D, class V>
  HWY_INLINE V value(D d, V x, V /*slope*/) const {
    return kinkedLine(d, x, hn::Set(d, a));
  }
  template <class D, class V>
  HWY_INLINE V derivative(D d, V x, V /*slope*/) const {
    return kinkedSlope(d, x, hn::Set(d, a));
  }
  template <class D, class V>
  HWY_INLINE V derivativeFromResult(D d, V y, V /*slope*/) const {
    return kinkedSlopeFromSign(d, y, hn::Set(d, a));
  }
};

struct PReLUNeuron {
  template <class D, class V>
  HWY_INLINE V value(D d, V x, V slope) const {
    return kinkedLine(d, x, slope);
  }
  template <class D, class V>
  HWY_INLINE V derivative(D d, V x, V slope) const {
    return kinkedSlope(d, x, slope);
  }
  template <class D, class V>
  HWY_INLINE V derivativeFromResult(D d, V y, V slope) const {
    return kinkedSlopeFromSign(d, y, slope);
  }
};

struct LinearNeuron {
  float a;
  float b;
  template <class D, class V>
  HWY_INLINE V value(D d, V x, V /*slope*/) const {
    return line(d, x, a, b);
  }
  template <class D, class V>
  HWY_INLINE V derivative(D d, V /*x*/, V /*slope*/) const {
    return hn::Set(d, a);
  }
  template <class D, class V>
  HWY_INLINE V derivativeFromResult(D d, V y, V slope) const {
    return derivative(d, y, slope);
  }
};

struct SigmoidNeuron {
  template <class D, class V>
  HWY_INLINE V value(D d, V x, V /*slope*/) const {
    return logistic(d, x);
  }
  template <class D, class V>
  HWY_INLINE V valueForHalf(D d, V x, V /*slope*/) const {
    return logisticFrom(d, x, vectorExpNonPositiveForHalf(d, hn::Neg(hn::Abs(x))));
  }
  template <class D, class V>
  HWY_INLINE V derivative(D d, V x, V /*slope*/) const {
    return logisticSlope(d, vectorExpNonPositive(d, hn::Neg(hn::Abs(x))));
  }
  template <class D, class V>
  HWY_INLINE V derivativeForHalf(D d, V x, V /*slope*/) const {
    return logisticSlope(d, vectorExpNonPositiveForHalf(d, hn::Neg(hn::Abs(x))));
  }
  template <class D, class V>
  HWY_INLINE V derivativeFromResult(D d, V y, V /*slope*/) const {
    return hn::Mul(y, hn::Sub(hn::Set(d, 1.0F), y));
  }
};

/// Product and sum are rounded apart, so that every instruction set finds the same arguments on the bounds.
struct HardSigmoidNeuron {
  float a;
  float b;
  template <class D, class V>
  HWY_INLINE V roundedLine(D d, V x) const {
    return hn::Add(hn::Mul(hn::Set(d, a), x), hn::Set(d, b));
  }
  template <class D, class V>
  HWY_INLINE V value(D d, V x, V /*slope*/) const {
    return atMost(d, atLeast(d, roundedLine(d, x), 0.0F), 1.0F);
  }
  template <class D, class V>
  HWY_INLINE V derivative(D d, V x, V /*slope*/) const {
    const V v = roundedLine(d, x);
    const auto inside = hn::And(hn::Ge(v, hn::Zero(d)), hn::Le(v, hn::Set(d, 1.0F)));
    return hn::IfThenElse(hn::IsNaN(x), x, hn::IfThenElseZero(inside, hn::Set(d, a)));
  }
};

struct TanHNeuron {
  float a;
  float b;
  template <class D, class V>
  HWY_INLINE V value(D d, V x, V /*slope*/) const {
    return hn::Mul(hn::Set(d, a), vectorTanh(d, hn::Mul(hn::Set(d, b), x)));
  }
  template <class D, class V>
  HWY_INLINE V valueForHalf(D d, V x, V /*slope*/) const {
    return hn::Mul(hn::Set(d, a), vectorTanhForHalf(d, hn::Mul(hn::Set(d, b), x)));
  }
  /// 1 - tanh(v)^2 = 4 e / (1 + e)^2 with e = exp(-2 |v|).
  template <class D, class V>
  HWY_INLINE V derivative(D d, V x, V /*slope*/) const {
    const V v = hn::Abs(hn::Mul(hn::Set(d, b), x));
    const V e = vectorExpNonPositive(d, hn::Mul(v, hn::Set(d, -2.0F)));
    return hn::Mul(hn::Set(d, 4 * a * b), logisticSlope(d, e));
  }
  template <class D, class V>
  HWY_INLINE V derivativeForHalf(D d, V x, V /*slope*/) const {
    const V v = hn::Abs(hn::Mul(hn::Set(d, b), x));
    const V e = vectorExpNonPositiveForHalf(d, hn::Mul(v, hn::Set(d, -2.0F)));
    return hn::Mul(hn::Set(d, 4 * a * b), logisticSlope(d, e));
  }
  template <class D, class V>
  HWY_INLINE V derivativeFromResult(D d, V y, V /*slope*/) const {
    const V t = hn::Mul(y, hn::Set(d, 1 / a));
    return hn::Mul(hn::Set(d, a * b), hn::NegMulAdd(t, t, hn::Set(d, 1.0F)));
  }
};

struct AbsoluteNeuron {
  template <class D, class V>
  HWY_INLINE V value(D /*d*/, V x, V /*slope*/) const {
    return hn::Abs(x);
  }
  /// Zero and NaN stay as they are.
  template <class D, class V>
  HWY_INLINE V derivative(D d, V x, V /*slope*/) const {
    const auto isNonZero = hn::Gt(hn::Abs(x), hn::Zero(d));
    return hn::IfThenElse(isNonZero, hn::CopySign(hn::Set(d, 1.0F), x), x);
  }
};

struct SoftPlusNeuron {
  float a;
  float b;
  template <class D, class V>
  HWY_INLINE V value(D d, V x, V /*slope*/) const {
    const V v = hn::Mul(hn::Set(d, b), x);
    const V positive = hn::IfThenZeroElse(hn::Lt(v, hn::Zero(d)), v);
    const V rest = vectorLog1p(d, vectorExpNonPositive(d, hn::Neg(hn::Abs(v))));
    return hn::Mul(hn::Set(d, a), hn::Add(positive, rest));
  }
  template <class D, class V>
  HWY_INLINE V derivative(D d, V x, V /*slope*/) const {
    return hn::Mul(hn::Set(d, a * b), logistic(d, hn::Mul(hn::Set(d, b), x)));
  }
  /// 1 - exp(-y / a); y / a is positive.
  template <class D, class V>
  HWY_INLINE V derivativeFromResult(D d, V y, V /*slope*/) const {
    const V exponent = hn::Neg(hn::Abs(hn::Mul(y, hn::Set(d, 1 / a))));
    return hn::Mul(hn::Set(d, -a * b), vectorExpMinus1(d, exponent));
  }
};

struct SoftSignNeuron {
  template <class D, class V>
  HWY_INLINE V value(D d, V x, V /*slope*/) const {
    return hn::Div(x, hn::Add(hn::Set(d, 1.0F), hn::Abs(x)));
  }
  template <class D, class V>
  HWY_INLINE V derivative(D d, V x, V /*slope*/) const {
    const V one = hn::Set(d, 1.0F);
    const V reciprocal = hn::Div(one, hn::Add(one, hn::Abs(x)));
    return hn::Mul(reciprocal, reciprocal);
  }
  template <class D, class V>
  HWY_INLINE V derivativeFromResult(D d, V y, V /*slope*/) const {
    const V reciprocal = hn::Sub(hn::Set(d, 1.0F), hn::Abs(y));
    return hn::Mul(reciprocal, reciprocal);
  }
};

struct ELUNeuron {
  float a;
  template <class D, class V>
  HWY_INLINE V value(D d, V x, V /*slope*/) const {
    const auto isNegative = hn::Lt(x, hn::Zero(d));
    const V negative = hn::Mul(hn::Set(d, a), vectorExpMinus1(d, hn::IfThenElseZero(isNegative, x)));
    return hn::IfThenElse(isNegative, negative, hn::Add(x, hn::Zero(d)));
  }
  template <class D, class V>
  HWY_INLINE V derivative(D d, V x, V /*slope*/) const {
    const V e = vectorExpNonPositive(d, hn::IfThenElseZero(hn::Lt(x, hn::Zero(d)), x));
    return kinkedSlope(d, x, hn::Mul(hn::Set(d, a), e));
  }
  template <class D, class V>
  HWY_INLINE V derivativeFromResult(D d, V y, V /*slope*/) const {
    return kinkedSlopeFromSign(d, y, hn::Add(y, hn::Set(d, a)));
  }
};

struct ReLUNNeuron {
  float a;
  float b;
  template <class D, class V>
  HWY_INLINE V value(D d, V x, V /*slope*/) const {
    return atMost(d, kinkedLine(d, x, hn::Set(d, a)), b);
  }
  template <class D, class V>
  HWY_INLINE V derivative(D d, V x, V /*slope*/) const {
    const V v = kinkedLine(d, x, hn::Set(d, a));
    return hn::IfThenZeroElse(hn::Ge(v, hn::Set(d, b)), kinkedSlope(d, x, hn::Set(d, a)));
  }
  template <class D, class V>
  HWY_INLINE V derivativeFromResult(D d, V y, V /*slope*/) const {
    return hn::IfThenZeroElse(hn::Ge(y, hn::Set(d, b)), kinkedSlopeFromSign(d, y, hn::Set(d, a)));
  }
};

struct PowerNeuron {
  float a;
  float b;
  float c;
  template <class D, class V>
  HWY_INLINE V value(D d, V x, V /*slope*/) const {
    return vectorPow(d, line(d, x, a, b), hn::Set(d, c));
  }
  template <class D, class V>
  HWY_INLINE V derivative(D d, V x, V /*slope*/) const {
    if (c == 0) return hn::Zero(d);
    return hn::Mul(hn::Set(d, a * c), vectorPow(d, line(d, x, a, b), hn::Set(d, c - 1)));
  }
};

/// c = -1: base e.
struct NaturalExponentialNeuron {
  float a;
  float b;
  template <class D, class V>
  HWY_INLINE V value(D d, V x, V /*slope*/) const {
    return vectorExp(d, line(d, x, a, b));
  }
  template <class D, class V>
  HWY_INLINE V derivative(D d, V x, V slope) const {
    return hn::Mul(hn::Set(d, a), value(d, x, slope));
  }
  template <class D, class V>
  HWY_INLINE V derivativeFromResult(D d, V y, V /*slope*/) const {
    return hn::Mul(hn::Set(d, a), y);
  }
};

struct ExponentialNeuron {
  float a;
  float b;
  float c;
  template <class D, class V>
  HWY_INLINE V value(D d, V x, V /*slope*/) const {
    return vectorPow(d, hn::Set(d, c), line(d, x, a, b));
  }
  template <class D, class V>
  HWY_INLINE V derivative(D d, V x, V slope) const {
    return derivativeFromResult(d, value(d, x, slope), x);
  }
  template <class D, class V>
  HWY_INLINE V derivativeFromResult(D d, V y, V /*slope*/) const {
    const float factor = c > 0 ? a * std::log(c) : std::numeric_limits<float>::quiet_NaN();
    return hn::Mul(hn::Set(d, factor), y);
  }
};

/// logOfBase = ln(c); 1 for c = -1.
struct LogarithmNeuron {
  float a;
  float b;
  float logOfBase;
  template <class D, class V>
  HWY_INLINE V value(D d, V x, V /*slope*/) const {
    return hn::Div(vectorLog(d, line(d, x, a, b)), hn::Set(d, logOfBase));
  }
  template <class D, class V>
  HWY_INLINE V derivative(D d, V x, V /*slope*/) const {
    return hn::Div(hn::Set(d, a), hn::Mul(hn::Set(d, logOfBase), line(d, x, a, b)));
  }
};

struct GeLUNeuron {
  /// x Phi(x) = max(x, 0) - |x| Phi(-|x|).
  template <class D, class V>
  HWY_INLINE V value(D d, V x, V /*slope*/) const {
    const V magnitude = hn::Abs(atMost(d, x, std::numeric_limits<float>::max()));
    return hn::NegMulAdd(magnitude, vectorNormal(d, x).tail, atLeast(d, x, 0.0F));
  }
  /// max(x, 0) as (x + |x|) / 2, which makes the NaN of -infinity * 0.
  template <class D, class V>
  HWY_INLINE V valueForHalf(D d, V x, V /*slope*/) const {
    return hn::MulSub(hn::Set(d, 0.5F), hn::Add(x, hn::Abs(x)), vectorTailProductForHalf(d, x));
  }
  template <class D, class V>
  HWY_INLINE V derivative(D d, V x, V /*slope*/) const {
    const Normal<D> normal = vectorNormal(d, x);
    return hn::MulAdd(x, normal.density, normalDistribution(d, x, normal.tail));
  }
};

/// Calls function(neuron) with the type above that computes the descriptor's function: one switch, outside
/// the loop.
template <class Function>
HWY_INLINE void withNeuron(const NNNeuronDescriptor& descriptor, Function&& function) {
  const float a = descriptor.a();
  const float b = descriptor.b();
  const float c = descriptor.c();
  switch (descriptor.neuronType()) {
    case CNNNeuronType::ReLU:
      return function(ReLUNeuron{a});
    case CNNNeuronType::Linear:
      return function(LinearNeuron{a, b});
    case CNNNeuronType::Sigmoid:
      return function(SigmoidNeuron{});
    case CNNNeuronType::HardSigmoid:
      return function(HardSigmoidNeuron{a, b});
    case CNNNeuronType::TanH:
      return function(TanHNeuron{a, b});
    case CNNNeuronType::Absolute:
      return function(AbsoluteNeuron{});
    case CNNNeuronType::SoftPlus:
      return function(SoftPlusNeuron{a, b});
    case CNNNeuronType::SoftSign:
      return function(SoftSignNeuron{});
    case CNNNeuronType::ELU:
      return function(ELUNeuron{a});
    case CNNNeuronType::PReLU:
      return function(PReLUNeuron{});
    case CNNNeuronType::ReLUN:
      return function(ReLUNNeuron{a, b});
    case CNNNeuronType::Power:
      return function(PowerNeuron{a, b, c});
    case CNNNeuronType::Exponential:
      return c == -1 ? function(NaturalExponentialNeuron{a, b}) : function(ExponentialNeuron{a, b, c});
    case CNNNeuronType::Logarithm:
      return function(LogarithmNeuron{a, b, c == -1 ? 1 : std::log(c)});
    case CNNNeuronType::GeLU:
      return function(GeLUNeuron{});
    case CNNNeuronType::None:
    case CNNNeuronType::Count:
      break;
  }
  function(IdentityNeuron{});
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
