#pragma once

#include <cuda_runtime.h>

/// What a GPU computes in one instruction. Of reciprocals and powers subnormal arguments and results are 0.
namespace mps::detail::cuda {

/// 2^x to 2 units in the last place; 1 for 0.
__device__ inline float powerOfTwo(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
/// 1 / x to a unit in the last place; infinite for 0.
__device__ inline float reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// The larger one; NaN where one is NaN.
__device__ inline float largerOrNaN(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
/// The smaller one; NaN where one is NaN.
__device__ inline float smallerOrNaN(float a, float b) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
/// exp x where an error of |x| roundings does no harm.
__device__ inline float exponential(float x) {
  return powerOfTwo(x * 1.44269504F);
}
/// @param coefficients from the highest power to the lowest
template <int count>
__device__ float polynomialOf(const float (&coefficients)[count], float x) {
  float result = coefficients[0];
#pragma unroll
  for (int i = 1; i < count; ++i) result = fmaf(result, x, coefficients[i]);
  return result;
}
/// ln(1 + x) for 0 <= x <= 1 to two units in the last place; NaN stays.
__device__ inline float logOfOnePlus(float x) {
  constexpr float coefficients[]{0.00523262424F, -0.0295049567F, 0.0782254934F, -0.13663207F, 0.191059887F,
                                 -0.248429775F,  0.333190948F,   -0.499994934F, 0.99999994F};
  return x * polynomialOf(coefficients, x);
}

}  // namespace mps::detail::cuda
