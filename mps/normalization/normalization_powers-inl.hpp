// T^-beta of vectors, once per instruction set. Include it after hwy/highway.h in a file that hwy/foreach_target.h
// compiles several times; mps/core/highway_targets.hpp comes before both.

#if defined(UNMETAL_MPS_NORMALIZATION_POWERS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_NORMALIZATION_POWERS_INL_HPP
#undef UNMETAL_MPS_NORMALIZATION_POWERS_INL_HPP
#else
#define UNMETAL_MPS_NORMALIZATION_POWERS_INL_HPP
#endif

#include <hwy/highway.h>

#include "mps/core/vector_math-inl.hpp"
#include "mps/normalization/normalization_powers.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// x^n for n >= 0.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V wholePower(D d, V x, int n) {
  V result = (n & 1) != 0 ? x : hn::Set(d, 1.0F);
  for (n >>= 1; n != 0; n >>= 1) {
    x = hn::Mul(x, x);
    if ((n & 1) != 0) result = hn::Mul(result, x);
  }
  return result;
}

/// T^-beta.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V negativePower(D d, V t, const PowerRule& rule) {
  if (rule.isGeneral) return vectorPow(d, t, hn::Set(d, -rule.beta));
  if (rule.whole < 0) return wholePower(d, t, -rule.whole);
  // The reciprocal first: it overflows no sooner than the result.
  const V reciprocal = hn::Div(hn::Set(d, 1.0F), t);
  V power = wholePower(d, reciprocal, rule.whole);
  if (rule.hasRoot || rule.hasFourthRoot) {
    const V root = hn::Sqrt(reciprocal);
    if (rule.hasRoot) power = rule.whole == 0 ? root : hn::Mul(power, root);
    if (rule.hasFourthRoot) power = hn::Mul(power, hn::Sqrt(root));
  }
  return power;
}

/// T^(-beta - 1), given T^-beta.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V nextNegativePower(D d, V t, V power, const PowerRule& rule) {
  // A product of T alone stays exact.
  if (rule.whole < 0) return wholePower(d, t, -rule.whole - 1);
  return hn::Div(power, t);
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
