// What each pooling function is, written once: for one float of the CPU or of a GPU, and for Highway's vectors, for which
// it is included after hwy/highway.h, once per instruction set.

#if defined(UNMETAL_MPS_POOLING_OPERATIONS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_POOLING_OPERATIONS_INL_HPP
#undef UNMETAL_MPS_POOLING_OPERATIONS_INL_HPP
#else
#define UNMETAL_MPS_POOLING_OPERATIONS_INL_HPP
#endif

#include <cmath>

#include "mps/pooling/pooling_problem.hpp"

// Math is the arithmetic of a type Value. ---------------------------------------------------------------------------

#if defined(HWY_NAMESPACE)
#define UNMETAL_POOLING_FUNCTION static HWY_INLINE
HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using FloatVector = hn::Vec<FloatTag>;

struct VectorMath {
  using Value = FloatVector;
  static HWY_INLINE Value add(Value a, Value b) { return hn::Add(a, b); }
  static HWY_INLINE Value multiply(Value a, Value b) { return hn::Mul(a, b); }
  static HWY_INLINE Value multiplyAdd(Value a, Value b, Value c) { return hn::MulAdd(a, b, c); }
  static HWY_INLINE Value squareRoot(Value value) { return hn::Sqrt(value); }
  static HWY_INLINE Value quotientOrZero(Value a, Value b) {
    return hn::IfThenZeroElse(hn::Eq(b, hn::Zero(FloatTag())), hn::Div(a, b));
  }
  /// `b` where it is greater or NaN; a NaN in `a` stays.
  static HWY_INLINE Value largerOrNaN(Value a, Value b) {
#if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
    // Of operands one of which is NaN these take the second.
    return hn::IfThenElse(hn::IsNaN(b), b, hn::Max(b, a));
#else
    return hn::IfThenElse(hn::Or(hn::Gt(b, a), hn::IsNaN(b)), b, a);
#endif
  }
};

#elif defined(__CUDACC__)
#include "mps/core/cuda/special_functions_cuda.cuh"

#define UNMETAL_POOLING_FUNCTION static __device__
namespace mps::detail {

struct CudaMath {
  using Value = float;
  __device__ static float add(float a, float b) { return a + b; }
  __device__ static float multiply(float a, float b) { return a * b; }
  __device__ static float multiplyAdd(float a, float b, float c) { return fmaf(a, b, c); }
  __device__ static float squareRoot(float value) { return sqrtf(value); }
  __device__ static float quotientOrZero(float a, float b) { return b == 0 ? 0.0F : a / b; }
  __device__ static float largerOrNaN(float a, float b) { return cuda::largerOrNaN(a, b); }
};

#else
#define UNMETAL_POOLING_FUNCTION static
namespace mps::detail {

/// What DirectPooling asks functions for, in float32.
struct CpuMath {
  using Value = float;
  static float add(float a, float b) { return a + b; }
  static float multiply(float a, float b) { return a * b; }
  static float squareRoot(float value) { return std::sqrt(value); }
  static float quotientOrZero(float a, float b) { return b == 0 ? 0.0F : a / b; }
};
#endif

// Functions ---------------------------------------------------------------------------------------------------------
//
// A function has its traits and
//
//   first(value)                        what one tap comes to
//   add(partial, value)                 what some taps and one more come to
//   merge(partial, partial)             what some taps and others come to
//   finish(partial, divide)             the result
//
// The gradient of one that does not select a tap is
//
//   d in = factor(sum of share over the windows that read it, in)
//
// with share(g, result, divide) of a window's incoming gradient, or share(g, divide) where the function is linear. Of those
// a partial result of 0 stands for no taps, and merge() adds.
//
// divide(v) is v over the number of taps that count; only functions with countsTaps call it.

/// The greatest value, or NaN.
template <class Math>
struct MaximumPooling {
  using Value = typename Math::Value;
  static constexpr PoolingTraits kTraits{.name = "Max", .selects = true};

  UNMETAL_POOLING_FUNCTION Value first(Value value) { return value; }
  UNMETAL_POOLING_FUNCTION Value add(Value best, Value value) { return Math::largerOrNaN(best, value); }
  UNMETAL_POOLING_FUNCTION Value merge(Value best, Value other) { return Math::largerOrNaN(best, other); }
  UNMETAL_POOLING_FUNCTION Value finish(Value best, const auto& /*divide*/) { return best; }
};

/// The sum over the number of taps that count.
template <class Math>
struct AveragePooling {
  using Value = typename Math::Value;
  static constexpr PoolingTraits kTraits{.name = "Average", .countsTaps = true, .isLinear = true};

  UNMETAL_POOLING_FUNCTION Value first(Value value) { return value; }
  UNMETAL_POOLING_FUNCTION Value add(Value sum, Value value) { return Math::add(sum, value); }
  UNMETAL_POOLING_FUNCTION Value merge(Value sum, Value other) { return Math::add(sum, other); }
  UNMETAL_POOLING_FUNCTION Value finish(Value sum, const auto& divide) { return divide(sum); }
  UNMETAL_POOLING_FUNCTION Value share(Value gradient, const auto& divide) { return divide(gradient); }
};

/// The root of the sum of squares.
template <class Math>
struct L2NormPooling {
  using Value = typename Math::Value;
  static constexpr PoolingTraits kTraits{.name = "L2Norm"};

  UNMETAL_POOLING_FUNCTION Value first(Value value) { return Math::multiply(value, value); }
  UNMETAL_POOLING_FUNCTION Value add(Value sum, Value value) { return Math::multiplyAdd(value, value, sum); }
  UNMETAL_POOLING_FUNCTION Value merge(Value sum, Value other) { return Math::add(sum, other); }
  UNMETAL_POOLING_FUNCTION Value finish(Value sum, const auto& /*divide*/) { return Math::squareRoot(sum); }
  UNMETAL_POOLING_FUNCTION Value share(Value gradient, Value norm, const auto& /*divide*/) {
    return Math::quotientOrZero(gradient, norm);
  }
  UNMETAL_POOLING_FUNCTION Value factor(Value sum, Value value) { return Math::multiply(sum, value); }
};

/// Calls function(the pooling function that is meant). This list is the only one.
template <class Math, class Function>
decltype(auto) withPoolingOperation(PoolingKind kind, Function&& function) {
  switch (kind) {
    case PoolingKind::Max:
      return function(MaximumPooling<Math>());
    case PoolingKind::Average:
      return function(AveragePooling<Math>());
    case PoolingKind::L2Norm:
      break;
  }
  return function(L2NormPooling<Math>());
}

#ifdef HWY_NAMESPACE
}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#else
}  // namespace mps::detail
#endif

#undef UNMETAL_POOLING_FUNCTION

#endif
