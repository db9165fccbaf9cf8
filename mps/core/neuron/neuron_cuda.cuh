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

// `type` may be a constant; then only its formula is compiled. `slope`: PReLU's, of the channel. `ofHalf`: x is a half,
// and so will be the result.

/// f(x)
template <bool ofHalf = false>
__device__ __forceinline__ float neuronValue(CNNNeuronType type, const NeuronNumbers& n, float slope,
                                             float x) {
  switch (type) {
    case CNNNeuronType::ReLU:
      return kinkedLine(x, n.a);
    case CNNNeuronType::PReLU:
      return kinkedLine(x, slope);
    case CNNNeuronType::Linear:
      return n.a * x + n.b;
    case CNNNeuronType::Sigmoid:
      return logistic(x);
    case CNNNeuronType::HardSigmoid: {
      const float v = n.a * x + n.b;
      return v < 0.0F ? 0.0F : v > 1.0F ? 1.0F : v;
    }
    case CNNNeuronType::TanH:
      return n.a * hyperbolicTangent(n.b * x);
    case CNNNeuronType::Absolute:
      return fabsf(x);
    case CNNNeuronType::SoftPlus: {
      const float v = n.b * x;
      return n.a * ((v < 0.0F ? 0.0F : v) + logOfOnePlus(expf(-fabsf(v))));
    }
    case CNNNeuronType::SoftSign:
      return x / (1.0F + fabsf(x));
    case CNNNeuronType::ELU:
      return x < 0.0F ? n.a * expm1f(x) : x + 0.0F;
    case CNNNeuronType::ReLUN: {
      const float v = kinkedLine(x, n.a);
      return v > n.b ? n.b : v;
    }
    case CNNNeuronType::Power:
      return powerOf(n.a * x + n.b, n.c);
    case CNNNeuronType::Exponential:
      return n.c == -1.0F ? expf(n.a * x + n.b) : powerOf(n.c, n.a * x + n.b);
    case CNNNeuronType::Logarithm:
      return logf(n.a * x + n.b) / n.logOfBase;
    case CNNNeuronType::GeLU: {
      // x Phi(x): x less what is beyond it.
      if constexpr (ofHalf) {
        return geluOfHalf(x);
      } else {
        const NormalTail<false> tail(x);
        const float factor = (x < 0.0F ? x : -tail.z) * tail.quotient;
        return fmaf(factor, tail.power, x < 0.0F ? 0.0F : x);
      }
    }
    default:
      return x;
  }
}

/// f'(x)
template <bool ofHalf = false>
__device__ __forceinline__ float neuronDerivative(CNNNeuronType type, const NeuronNumbers& n, float slope,
                                                  float x) {
  switch (type) {
    case CNNNeuronType::ReLU:
      return kinkedSlope(x, n.a);
    case CNNNeuronType::PReLU:
      return kinkedSlope(x, slope);
    case CNNNeuronType::Linear:
      return n.a;
    case CNNNeuronType::Sigmoid: {
      // No cancellation where the sigmoid is close to 1.
      const float e = expf(-fabsf(x));
      return e * reciprocal((1.0F + e) * (1.0F + e));
    }
    case CNNNeuronType::HardSigmoid: {
      const float v = n.a * x + n.b;
      return x != x ? x : v >= 0.0F && v <= 1.0F ? n.a : 0.0F;
    }
    case CNNNeuronType::TanH: {
      // 1 - tanh(v)^2 = 4 e / (1 + e)^2
      const float e = exponential(-2.0F * fabsf(n.b * x));
      return 4.0F * n.a * n.b * (e * reciprocal((1.0F + e) * (1.0F + e)));
    }
    case CNNNeuronType::Absolute:
      return fabsf(x) > 0.0F ? copysignf(1.0F, x) : x;
    case CNNNeuronType::SoftPlus:
      return n.a * n.b * logistic(n.b * x);
    case CNNNeuronType::SoftSign: {
      const float reciprocal = 1.0F / (1.0F + fabsf(x));
      return reciprocal * reciprocal;
    }
    case CNNNeuronType::ELU:
      return kinkedSlope(x, x < 0.0F ? n.a * expf(x) : 1.0F);
    case CNNNeuronType::ReLUN:
      return kinkedLine(x, n.a) >= n.b ? 0.0F : kinkedSlope(x, n.a);
    case CNNNeuronType::Power:
      return n.c == 0.0F ? 0.0F : n.a * n.c * powerOf(n.a * x + n.b, n.c - 1.0F);
    case CNNNeuronType::Exponential:
      return n.exponentialFactor * neuronValue(type, n, slope, x);
    case CNNNeuronType::Logarithm:
      return n.a / (n.logOfBase * (n.a * x + n.b));
    case CNNNeuronType::GeLU: {
      // Phi(x) + x density(x)
      const NormalTail<ofHalf> tail(x);
      const float factor = fmaf(x, kDensityAtZero, x < 0.0F ? tail.quotient : -tail.quotient);
      return fmaf(tail.power, factor, x < 0.0F ? 0.0F : 1.0F);
    }
    default:
      return 1.0F;
  }
}

/// f'(x) from y = f(x); only where derivativeFromResult() of neuron_span.hpp.
__device__ __forceinline__ float neuronDerivativeFromResult(CNNNeuronType type, const NeuronNumbers& n,
                                                            float slope, float y) {
  switch (type) {
    case CNNNeuronType::ReLU:
      return kinkedSlopeFromSign(y, n.a);
    case CNNNeuronType::PReLU:
      return kinkedSlopeFromSign(y, slope);
    case CNNNeuronType::Linear:
      return n.a;
    case CNNNeuronType::Sigmoid:
      return y * (1.0F - y);
    case CNNNeuronType::TanH: {
      const float t = y * (1.0F / n.a);
      return n.a * n.b * (1.0F - t * t);
    }
    case CNNNeuronType::SoftPlus:
      return -n.a * n.b * expm1f(-fabsf(y * (1.0F / n.a)));
    case CNNNeuronType::SoftSign: {
      const float reciprocal = 1.0F - fabsf(y);
      return reciprocal * reciprocal;
    }
    case CNNNeuronType::ELU:
      return kinkedSlopeFromSign(y, y + n.a);
    case CNNNeuronType::ReLUN:
      return y >= n.b ? 0.0F : kinkedSlopeFromSign(y, n.a);
    case CNNNeuronType::Exponential:
      return n.exponentialFactor * y;
    default:
      return 1.0F;
  }
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
