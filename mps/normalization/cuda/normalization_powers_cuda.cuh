#pragma once

#include <cmath>

#include "mps/core/cuda/special_functions_cuda.cuh"
#include "mps/normalization/normalization_powers.hpp"

/// T^-beta on the device, of several T at once.
namespace mps::detail::cuda {

/// x^n for n >= 0.
__device__ inline float wholePower(float x, int n) {
  float result = (n & 1) != 0 ? x : 1.0F;
  for (n >>= 1; n != 0; n >>= 1) {
    x *= x;
    if ((n & 1) != 0) result *= x;
  }
  return result;
}

/// The root of a normal number to a unit in the last place.
__device__ inline float rootOf(float x) {
  float result;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// 1 / the root of a normal number, or of an infinite one or NaN.
__device__ inline float inverseRootOf(float x) {
  float result;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// x^exponent where |exponent| is at most kSmallExponent, so that no normal number's power leaves the normal numbers. As
/// generalPower(), but what is whole of the power's logarithm is rounded, and put into the result's exponent, by additions:
/// the instructions that convert take as long as those for logarithms.
inline constexpr float kSmallExponent = 0.95F;
__device__ inline float smallPower(float x, float exponent) {
  const int bits = __float_as_int(x);
  if (bits < 0x00800000 || bits >= 0x7F800000) return powf(x, exponent);  // not a normal positive number
  constexpr float wholes = 0x1.8p23F;                                     // float32 numbers there are whole
  const int binary = (bits - 0x3F400000) >> 23;                           // the rest is 0.75 ... 1.5
  float logarithm;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(logarithm) : "f"(__int_as_float(bits - (binary << 23))));
  const float factor = __int_as_float(__float_as_int(wholes) + binary) - wholes;
  const float moved = fmaf(exponent, factor, wholes);
  const float rest = fmaf(exponent, factor, wholes - moved);
  return __int_as_float(__float_as_int(powerOfTwo(fmaf(exponent, logarithm, rest))) +
                        (__float_as_int(moved) << 23));
}

/// x^exponent. The binary exponent of x is taken apart, so that the logarithm of what is left is small.
__device__ inline float generalPower(float x, float exponent) {
  const int bits = __float_as_int(x);
  if (bits < 0x00800000 || bits >= 0x7F800000) return powf(x, exponent);  // not a normal positive number
  const int binary = (bits - 0x3F400000) >> 23;                           // the rest is 0.75 ... 1.5
  float logarithm;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(logarithm) : "f"(__int_as_float(bits - (binary << 23))));
  const auto factor = static_cast<float>(binary);
  const float product = exponent * factor;
  const float whole = rintf(product);
  const float rest = fmaf(exponent, factor, -product) + (product - whole);
  return powerOfTwo(fmaf(exponent, logarithm, rest)) * powerOfTwo(whole);
}

/// x^exponent where |exponent| is at most kSmallExponent, of several x at once. The logarithms of most are small enough to be
/// multiplied as they are: what a product of kSmallLogarithm loses by rounding is six roundings of the power.
inline constexpr float kSmallLogarithm = 8;
template <int count>
__device__ void smallPowers(const float (&x)[count], float exponent, float (&powers)[count]) {
  bool areSmall = true;
#pragma unroll
  for (int i = 0; i < count; ++i) {
    float logarithm;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(logarithm) : "f"(x[i]));
    areSmall = areSmall && fabsf(logarithm) <= kSmallLogarithm;  // NaN, and the logarithm of 0, are not
    powers[i] = powerOfTwo(exponent * logarithm);
  }
  if (areSmall) return;
#pragma unroll
  for (int i = 0; i < count; ++i) powers[i] = smallPower(x[i], exponent);
}

/// T^-beta. @param isNormal whether each T is a normal number, infinite or NaN, which saves some instructions
template <int count>
__device__ void negativePowers(const PowerRule& rule, const float (&t)[count], float (&powers)[count],
                               bool isNormal = false) {
  if (rule.isGeneral) {
    if (fabsf(rule.beta) <= kSmallExponent) {
      smallPowers(t, -rule.beta, powers);
    } else {
#pragma unroll
      for (int i = 0; i < count; ++i) powers[i] = generalPower(t[i], -rule.beta);
    }
    return;
  }
  if (rule.whole < 0) {
#pragma unroll
    for (int i = 0; i < count; ++i) powers[i] = wholePower(t[i], -rule.whole);
    return;
  }
  if (rule.whole == 0) {
#pragma unroll
    for (int i = 0; i < count; ++i) powers[i] = 1;
  } else {
    // The reciprocal first: it overflows no sooner than the result.
#pragma unroll
    for (int i = 0; i < count; ++i) powers[i] = wholePower(1.0F / t[i], rule.whole);
  }
  if (!rule.hasRoot && !rule.hasFourthRoot) return;
  const auto multiply = [&](auto inverseRoot) {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const float root = inverseRoot(t[i]);
      if (rule.hasRoot) powers[i] *= root;
      if (rule.hasFourthRoot) powers[i] *= rootOf(root);
    }
  };
  if (isNormal)
    multiply([](float x) { return inverseRootOf(x); });
  else
    multiply([](float x) { return rsqrtf(x); });
}

/// T^-beta, and T^(-beta - 1) as `next`. @param isNormal as negativePowers has it
template <int count>
__device__ void bothNegativePowers(const PowerRule& rule, const float (&t)[count], float (&powers)[count],
                                   float (&next)[count], bool isNormal) {
  if (isNormal && !rule.isGeneral && rule.whole == 0 && (rule.hasRoot || rule.hasFourthRoot)) {
    // The reciprocal is the square of what is there.
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const float root = inverseRootOf(t[i]);
      powers[i] = rule.hasRoot ? root : 1.0F;
      if (rule.hasFourthRoot) powers[i] *= rootOf(root);
      next[i] = powers[i] * root * root;
    }
    return;
  }
  negativePowers(rule, t, powers, isNormal);
  // A product of T alone stays exact.
  if (rule.whole < 0) {
#pragma unroll
    for (int i = 0; i < count; ++i) next[i] = wholePower(t[i], -rule.whole - 1);
    return;
  }
  if (isNormal) {
#pragma unroll
    for (int i = 0; i < count; ++i) next[i] = powers[i] * reciprocal(t[i]);
    return;
  }
#pragma unroll
  for (int i = 0; i < count; ++i) next[i] = __fdividef(powers[i], t[i]);
}

}  // namespace mps::detail::cuda
