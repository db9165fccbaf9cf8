#pragma once

#include <cmath>
#include <limits>
#include <type_traits>

#include "mps/core/cuda/special_functions_cuda.cuh"
#include "mps/core/neuron/neuron_descriptor.hpp"

/// Neurons in kernels. The formulas, and what they give at 0, infinity and NaN, are those
/// of neuron_vectors-inl.hpp.
namespace mps::detail::cuda {

/// The numbers of a neuron, as kernels take them.
struct NeuronNumbers {
  CNNNeuronType type = CNNNeuronType::None;
  float a = 0;
  float b = 0;
  float c = 0;
  float logOfBase = 1;          ///< Logarithm
  float exponentialFactor = 1;  ///< Exponential: derivative / value

  NeuronNumbers() = default;
  explicit NeuronNumbers(const NNNeuronDescriptor& neuron)
      : type(neuron.neuronType()), a(neuron.a()), b(neuron.b()), c(neuron.c()) {
    const bool isNatural = c == -1;
    logOfBase = isNatural ? 1.0F : std::log(c);
    exponentialFactor = isNatural ? a : c > 0 ? a * std::log(c) : std::numeric_limits<float>::quiet_NaN();
  }
};

/// x where x >= 0, slope * x where x < 0; a zero slope also takes an infinite x to zero.
__device__ inline float kinkedLine(float x, float slope) {
  const float product = slope == 0.0F ? -slope : slope * x;
  return x < 0.0F ? product : x + 0.0F;  // x + 0 makes -0 a 0
}
/// 1 where x >= 0, `slope` where x < 0, x where it is NaN.
__device__ inline float kinkedSlope(float x, float slope) {
  return x < 0.0F ? slope : x >= 0.0F ? 1.0F : x;
}
/// 1 where y's sign bit is clear, `slope` where it is set, y where it is NaN.
__device__ inline float kinkedSlopeFromSign(float y, float slope) {
  const float side = __float_as_int(y) < 0 ? slope : 1.0F;
  return y != y ? y : side;
}
/// 1 / (1 + exp(-x)) without overflow.
__device__ inline float logistic(float x) {
  const float e = expf(-fabsf(x));
  return (x < 0.0F ? e : 1.0F) * reciprocal(1.0F + e);
}
/// base^exponent as C's pow. Squares are exact where they can be.
static __device__ __noinline__ float powerOf(float base, float exponent) {
  if (exponent == 1.0F) return base;
  return exponent == 2.0F ? base * base : powf(base, exponent);
}
/// (1 - Phi(z)) / exp(-z^2 / 2) for z >= 0.
__device__ inline float tailQuotient(float z) {
  const float t = reciprocal(fmaf(z, 0.35F, 1.0F));
  constexpr float coefficients[]{-0.0291652493F, 0.144067377F, -0.255915761F, 0.159409195F, -0.0232753437F,
                                 0.105579816F,   0.119814187F, 0.139864519F,  0.139621243F};
  return polynomialOf(coefficients, t) * t;
}
constexpr float kHalfOfLog2E = 0.72134752F;
constexpr float kDensityAtZero = 0.398942280F;  ///< of the normal distribution

/// The normal distribution beyond z = |x|: density(z) = power / sqrt(2 pi), 1 - Phi(z) = quotient power. Beyond
/// z = 16 power is 0. @tparam ofHalf x is a half, whose square is exact
template <bool ofHalf>
struct NormalTail {
  float z;
  float power;
  float quotient;

  __device__ explicit NormalTail(float x) : z(fminf(fabsf(x), 16.0F)) {
    // exp(-z^2 / 2) as a power of 2. The exponent is large, so what its roundings lose counts.
    const float square = z * z;
    const float exponent = square * -kHalfOfLog2E;
    float lost = fmaf(square, -kHalfOfLog2E, -exponent);
    lost = fmaf(square, -9.62981517e-09F, lost);  // of the constant
    if constexpr (!ofHalf) lost = fmaf(fmaf(z, z, -square), -kHalfOfLog2E, lost);
    const float rounded = powerOfTwo(exponent);
    power = fmaf(rounded, lost * 0.693147181F, rounded);
    quotient = tailQuotient(z);
  }
};
/// x Phi(x) of a half: where the exponent is so large that its roundings count, the result is 0 as a half.
__device__ inline float geluOfHalf(float x) {
  const float z = fabsf(smallerOrNaN(x, 16.0F));
  return fmaf(-z * tailQuotient(z), powerOfTwo(z * z * -kHalfOfLog2E), fmaxf(x, 0.0F));
}
/// tanh x, by a polynomial where the exponential would leave no digits.
__device__ inline float hyperbolicTangent(float x) {
  const float size = fabsf(x);
  const float square = x * x;
  constexpr float coefficients[]{-0.0463218726F, 0.132466495F, -0.333304852F};
  const float near = fmaf(x * square, polynomialOf(coefficients, square), x);
  const float far = fmaf(-2.0F, reciprocal(powerOfTwo(size * 2.88539008F) + 1.0F), 1.0F);
  return size < 0.45F ? near : copysignf(far, x);
}

// Neurons, each with its value f(x) and derivative f'(x); where derivativeFromResult() of neuron_span.hpp, also with f'(x) from
// y = f(x).

struct IdentityNeuron {
  __device__ static float value(float x) { return x; }
  __device__ static float derivative(float /*x*/) { return 1.0F; }
  __device__ static float derivativeFromResult(float /*y*/) { return 1.0F; }
};
/// And PReLU, whose slope is that of the channel.
struct ReLUNeuron {
  float slope;
  __device__ float value(float x) const { return kinkedLine(x, slope); }
  __device__ float derivative(float x) const { return kinkedSlope(x, slope); }
  __device__ float derivativeFromResult(float y) const { return kinkedSlopeFromSign(y, slope); }
};
struct LinearNeuron {
  float a;
  float b;
  __device__ float value(float x) const { return a * x + b; }
  __device__ float derivative(float /*x*/) const { return a; }
  __device__ float derivativeFromResult(float /*y*/) const { return a; }
};
struct SigmoidNeuron {
  __device__ static float value(float x) { return logistic(x); }
  __device__ static float derivative(float x) {
    // No cancellation where the sigmoid is close to 1.
    const float e = expf(-fabsf(x));
    return e * reciprocal((1.0F + e) * (1.0F + e));
  }
  __device__ static float derivativeFromResult(float y) { return y * (1.0F - y); }
};
struct HardSigmoidNeuron {
  float a;
  float b;
  __device__ float value(float x) const {
    const float v = a * x + b;
    return v < 0.0F ? 0.0F : v > 1.0F ? 1.0F : v;
  }
  __device__ float derivative(float x) const {
    const float v = a * x + b;
    return x != x ? x : v >= 0.0F && v <= 1.0F ? a : 0.0F;
  }
};
struct TanHNeuron {
  float a;
  float b;
  __device__ float value(float x) const { return a * hyperbolicTangent(b * x); }
  __device__ float derivative(float x) const {
    // 1 - tanh(v)^2 = 4 e / (1 + e)^2
    const float e = exponential(-2.0F * fabsf(b * x));
    return 4.0F * a * b * (e * reciprocal((1.0F + e) * (1.0F + e)));
  }
  __device__ float derivativeFromResult(float y) const {
    const float t = y * (1.0F / a);
    return a * b * (1.0F - t * t);
  }
};
struct AbsoluteNeuron {
  __device__ static float value(float x) { return fabsf(x); }
  __device__ static float derivative(float x) { return fabsf(x) > 0.0F ? copysignf(1.0F, x) : x; }
};
struct SoftPlusNeuron {
  float a;
  float b;
  __device__ float value(float x) const {
    const float v = b * x;
    return a * ((v < 0.0F ? 0.0F : v) + logOfOnePlus(expf(-fabsf(v))));
  }
  __device__ float derivative(float x) const { return a * b * logistic(b * x); }
  __device__ float derivativeFromResult(float y) const { return -a * b * expm1f(-fabsf(y * (1.0F / a))); }
};
struct SoftSignNeuron {
  __device__ static float value(float x) { return x / (1.0F + fabsf(x)); }
  __device__ static float derivative(float x) {
    const float reciprocal = 1.0F / (1.0F + fabsf(x));
    return reciprocal * reciprocal;
  }
  __device__ static float derivativeFromResult(float y) {
    const float reciprocal = 1.0F - fabsf(y);
    return reciprocal * reciprocal;
  }
};
struct ELUNeuron {
  float a;
  __device__ float value(float x) const { return x < 0.0F ? a * expm1f(x) : x + 0.0F; }
  __device__ float derivative(float x) const { return kinkedSlope(x, x < 0.0F ? a * expf(x) : 1.0F); }
  __device__ float derivativeFromResult(float y) const { return kinkedSlopeFromSign(y, y + a); }
};
struct ReLUNNeuron {
  float a;
  float b;
  __device__ float value(float x) const {
    const float v = kinkedLine(x, a);
    return v > b ? b : v;
  }
  __device__ float derivative(float x) const { return kinkedLine(x, a) >= b ? 0.0F : kinkedSlope(x, a); }
  __device__ float derivativeFromResult(float y) const { return y >= b ? 0.0F : kinkedSlopeFromSign(y, a); }
};
struct PowerNeuron {
  float a;
  float b;
  float c;
  __device__ float value(float x) const { return powerOf(a * x + b, c); }
  __device__ float derivative(float x) const {
    return c == 0.0F ? 0.0F : a * c * powerOf(a * x + b, c - 1.0F);
  }
};
struct ExponentialNeuron {
  const NeuronNumbers& n;
  __device__ float value(float x) const {
    return n.c == -1.0F ? expf(n.a * x + n.b) : powerOf(n.c, n.a * x + n.b);
  }
  __device__ float derivative(float x) const { return n.exponentialFactor * value(x); }
  __device__ float derivativeFromResult(float y) const { return n.exponentialFactor * y; }
};
struct LogarithmNeuron {
  const NeuronNumbers& n;
  __device__ float value(float x) const { return logf(n.a * x + n.b) / n.logOfBase; }
  __device__ float derivative(float x) const { return n.a / (n.logOfBase * (n.a * x + n.b)); }
};
/// @tparam ofHalf x is a half, and so will be the result
template <bool ofHalf>
struct GeLUNeuron {
  /// x Phi(x): x less what is beyond it.
  __device__ static float value(float x) {
    if constexpr (ofHalf) {
      return geluOfHalf(x);
    } else {
      const NormalTail<false> tail(x);
      const float factor = (x < 0.0F ? x : -tail.z) * tail.quotient;
      return fmaf(factor, tail.power, x < 0.0F ? 0.0F : x);
    }
  }
  /// Phi(x) + x density(x)
  __device__ static float derivative(float x) {
    const NormalTail<ofHalf> tail(x);
    const float factor = fmaf(x, kDensityAtZero, x < 0.0F ? tail.quotient : -tail.quotient);
    return fmaf(tail.power, factor, x < 0.0F ? 0.0F : 1.0F);
  }
};

/// compute(neuron) with the neuron above that a type says. The type may be a constant; then only its formula is compiled.
/// @param slope PReLU's, of the channel
template <bool ofHalf, class Compute>
__device__ __forceinline__ float withNeuronFunction(CNNNeuronType type, const NeuronNumbers& n, float slope,
                                                    Compute compute) {
  switch (type) {
    case CNNNeuronType::ReLU:
      return compute(ReLUNeuron{n.a});
    case CNNNeuronType::PReLU:
      return compute(ReLUNeuron{slope});
    case CNNNeuronType::Linear:
      return compute(LinearNeuron{n.a, n.b});
    case CNNNeuronType::Sigmoid:
      return compute(SigmoidNeuron());
    case CNNNeuronType::HardSigmoid:
      return compute(HardSigmoidNeuron{n.a, n.b});
    case CNNNeuronType::TanH:
      return compute(TanHNeuron{n.a, n.b});
    case CNNNeuronType::Absolute:
      return compute(AbsoluteNeuron());
    case CNNNeuronType::SoftPlus:
      return compute(SoftPlusNeuron{n.a, n.b});
    case CNNNeuronType::SoftSign:
      return compute(SoftSignNeuron());
    case CNNNeuronType::ELU:
      return compute(ELUNeuron{n.a});
    case CNNNeuronType::ReLUN:
      return compute(ReLUNNeuron{n.a, n.b});
    case CNNNeuronType::Power:
      return compute(PowerNeuron{n.a, n.b, n.c});
    case CNNNeuronType::Exponential:
      return compute(ExponentialNeuron{n});
    case CNNNeuronType::Logarithm:
      return compute(LogarithmNeuron{n});
    case CNNNeuronType::GeLU:
      return compute(GeLUNeuron<ofHalf>());
    default:
      return compute(IdentityNeuron());
  }
}
/// f(x)
template <bool ofHalf = false>
__device__ __forceinline__ float neuronValue(CNNNeuronType type, const NeuronNumbers& n, float slope,
                                             float x) {
  return withNeuronFunction<ofHalf>(type, n, slope, [x](const auto& neuron) { return neuron.value(x); });
}
/// f'(x)
template <bool ofHalf = false>
__device__ __forceinline__ float neuronDerivative(CNNNeuronType type, const NeuronNumbers& n, float slope,
                                                  float x) {
  return withNeuronFunction<ofHalf>(type, n, slope, [x](const auto& neuron) { return neuron.derivative(x); });
}
/// f'(x) from y = f(x); only where derivativeFromResult() of neuron_span.hpp.
__device__ __forceinline__ float neuronDerivativeFromResult(CNNNeuronType type, const NeuronNumbers& n,
                                                            float slope, float y) {
  return withNeuronFunction<false>(type, n, slope, [y](const auto& neuron) {
    if constexpr (requires { neuron.derivativeFromResult(y); })
      return neuron.derivativeFromResult(y);
    else
      return 1.0F;  // never asked
  });
}

/// Calls body(std::integral_constant) with the type.
template <class Body>
__device__ __forceinline__ void withConstantType(CNNNeuronType type, Body body) {
  using enum CNNNeuronType;
  const auto with = [&]<CNNNeuronType... types>() {
    static_cast<void>(
        ((type == types && (body(std::integral_constant<CNNNeuronType, types>()), true)) || ...));
  };
  with.template operator()<None, ReLU, Linear, Sigmoid, HardSigmoid, TanH, Absolute, SoftPlus, SoftSign, ELU,
                           PReLU, ReLUN, Power, Exponential, Logarithm, GeLU>();
}

}  // namespace mps::detail::cuda
