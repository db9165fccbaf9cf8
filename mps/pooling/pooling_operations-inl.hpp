// What each pooling function is, written once: for one float of the CPU or of a GPU, and for Highway's vectors, for which
// it is included after hwy/highway.h, once per instruction set.

#if defined(UNMETAL_MPS_POOLING_OPERATIONS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_POOLING_OPERATIONS_INL_HPP
#undef UNMETAL_MPS_POOLING_OPERATIONS_INL_HPP
#else
#define UNMETAL_MPS_POOLING_OPERATIONS_INL_HPP
#endif

#include "mps/pooling/pooling_problem.hpp"

#ifdef HWY_NAMESPACE
#define UNMETAL_POOLING_FUNCTION static HWY_INLINE
HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {
#else
#ifdef __CUDACC__
#define UNMETAL_POOLING_FUNCTION static __device__
#else
#define UNMETAL_POOLING_FUNCTION static
#endif
namespace mps::detail {
#endif

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
// divide(v) is v over the number of taps that count; only functions with countsTaps call it. Math has the type Value and
// its arithmetic, as the kernel that takes the function knows it: a float, or a vector of them.

/// The greatest value, or NaN.
template <class Math>
struct MaximumPooling {
  using Value = typename Math::Value;
  static constexpr PoolingTraits kTraits{.name = "Max", .selects = true};

  UNMETAL_POOLING_FUNCTION Value first(Value value) { return value; }
  UNMETAL_POOLING_FUNCTION Value add(Value best, Value value) { return Math::largerOrNaN(best, value); }
  UNMETAL_POOLING_FUNCTION Value merge(Value best, Value other) { return Math::largerOrNaN(best, other); }
  template <class Divide>
  UNMETAL_POOLING_FUNCTION Value finish(Value best, const Divide& /*divide*/) {
    return best;
  }
};

/// The sum over the number of taps that count.
template <class Math>
struct AveragePooling {
  using Value = typename Math::Value;
  static constexpr PoolingTraits kTraits{.name = "Average", .countsTaps = true, .isLinear = true};

  UNMETAL_POOLING_FUNCTION Value first(Value value) { return value; }
  UNMETAL_POOLING_FUNCTION Value add(Value sum, Value value) { return Math::add(sum, value); }
  UNMETAL_POOLING_FUNCTION Value merge(Value sum, Value other) { return Math::add(sum, other); }
  template <class Divide>
  UNMETAL_POOLING_FUNCTION Value finish(Value sum, const Divide& divide) {
    return divide(sum);
  }
  template <class Divide>
  UNMETAL_POOLING_FUNCTION Value share(Value gradient, const Divide& divide) {
    return divide(gradient);
  }
};

/// The root of the sum of squares.
template <class Math>
struct L2NormPooling {
  using Value = typename Math::Value;
  static constexpr PoolingTraits kTraits{.name = "L2Norm"};

  UNMETAL_POOLING_FUNCTION Value first(Value value) { return Math::multiply(value, value); }
  UNMETAL_POOLING_FUNCTION Value add(Value sum, Value value) { return Math::multiplyAdd(value, value, sum); }
  UNMETAL_POOLING_FUNCTION Value merge(Value sum, Value other) { return Math::add(sum, other); }
  template <class Divide>
  UNMETAL_POOLING_FUNCTION Value finish(Value sum, const Divide& /*divide*/) {
    return Math::squareRoot(sum);
  }
  template <class Divide>
  UNMETAL_POOLING_FUNCTION Value share(Value gradient, Value norm, const Divide& /*divide*/) {
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
