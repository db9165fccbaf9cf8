// T^-beta of vectors, once per instruction set. Include it after hwy/highway.h in a file that hwy/foreach_target.h
// compiles several times; mps/core/cpu/highway_targets.hpp comes before both.

#if defined(UNMETAL_MPS_NORMALIZATION_POWERS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_NORMALIZATION_POWERS_INL_HPP
#undef UNMETAL_MPS_NORMALIZATION_POWERS_INL_HPP
#else
#define UNMETAL_MPS_NORMALIZATION_POWERS_INL_HPP
#endif

#include <hwy/highway.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>

#include "mps/core/cpu/vector_math-inl.hpp"
#include "mps/normalization/normalization_powers.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// What T^-beta is made of beside whole powers, so that loops know it beforehand.
enum class PowerKind : std::uint8_t {
  Whole,
  Quarter,
  Half,
  ThreeQuarters,
  Logarithm,
  LogarithmForHalf,  ///< of results that are rounded to float16
  Any
};
/// Of many instructions, each of which waits for the one before.
constexpr bool isLong(PowerKind kind) {
  return kind == PowerKind::Logarithm || kind == PowerKind::LogarithmForHalf || kind == PowerKind::Any;
}

template <PowerKind kind>
struct PowerKindTag {
  static constexpr PowerKind value = kind;
};

/// Calls function(tag of the rule's kind). @param isForHalf all results are rounded to float16
template <class Function>
HWY_INLINE void withPowerKind(const PowerRule& rule, [[maybe_unused]] bool isForHalf, Function&& function) {
  if (rule.isGeneral) {
#if HWY_TARGET == HWY_AVX3
    // Whole powers of negative numbers are numbers, and a short sum of logarithms is good for small exponents alone.
    if (std::abs(rule.beta) <= PowerRule::largest && std::floor(rule.beta) != rule.beta) {
      if (isForHalf) return function(PowerKindTag<PowerKind::LogarithmForHalf>());
      return function(PowerKindTag<PowerKind::Logarithm>());
    }
#endif
    return function(PowerKindTag<PowerKind::Any>());
  }
  if (rule.hasRoot && rule.hasFourthRoot) return function(PowerKindTag<PowerKind::ThreeQuarters>());
  if (rule.hasRoot) return function(PowerKindTag<PowerKind::Half>());
  if (rule.hasFourthRoot) return function(PowerKindTag<PowerKind::Quarter>());
  function(PowerKindTag<PowerKind::Whole>());
}
template <class Function>
HWY_INLINE void withPowerKind(const PowerRule& rule, Function&& function) {
  withPowerKind(rule, false, std::forward<Function>(function));
}

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

#if HWY_TARGET == HWY_AVX3

/// T^-beta for |beta| <= PowerRule::largest, NaN where T is negative: 2^(-beta n) 2^(-beta log2(m)) for T = 2^n m.
/// @tparam isForHalf rounded to float16 afterwards: to some 2^-18 of itself. Otherwise the first product is exact.
template <bool isForHalf, class D, class V = hn::Vec<D>>
HWY_INLINE V logarithmPower(D d, V t, float beta) {
  const hn::RebindToUnsigned<D> du;
  // Of the middle of each sixteenth of 1 ... 2: the reciprocal and minus its logarithm; and powers of 2.
  HWY_ALIGN static constexpr float reciprocals[16] = {0.969696999F, 0.914285719F, 0.864864886F, 0.820512831F,
                                                      0.780487776F, 0.744186044F, 0.711111128F, 0.680851042F,
                                                      0.653061211F, 0.627451003F, 0.603773594F, 0.581818163F,
                                                      0.561403513F, 0.542372882F, 0.524590135F, 0.507936537F};
  HWY_ALIGN static constexpr float logarithms[16] = {0.0443940759F, 0.129283011F, 0.209453329F, 0.285402209F,
                                                     0.357552052F,  0.426264763F, 0.491853058F, 0.554588914F,
                                                     0.614709854F,  0.67242527F,  0.727920413F, 0.781359732F,
                                                     0.832889974F,  0.882643044F, 0.930737436F, 0.977279842F};
  HWY_ALIGN static constexpr float powers[16] = {
      1.0F,        1.04427373F, 1.09050775F, 1.13878858F, 1.18920708F, 1.24185777F, 1.29683959F, 1.35425556F,
      1.41421354F, 1.47682619F, 1.54221082F, 1.61049032F, 1.68179286F, 1.75625217F, 1.8340081F,  1.91520655F};
  // log2(1 + r) / r for |r| < 1/33 and (2^f - 1) / f for |f| <= 1/32, minimax.
  constexpr float logarithm[] = {1.4426949F, -0.72162205F, 0.481273323F};
  constexpr float power[] = {0.693147182F, 0.240234286F, 0.05550595F};
  constexpr float powerForHalf[] = {0.693187796F, 0.240235705F};
  const auto chosen = [](V table, auto bits)
                          HWY_ATTR { return V{_mm512_permutexvar_ps(bits.raw, table.raw)}; };
  const V n{_mm512_getexp_ps(t.raw)};
  const V m{_mm512_getmant_ps(t.raw, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_nan)};
  const auto sixteenth = hn::ShiftRight<19>(hn::BitCast(du, m));
  const V r = hn::MulSub(m, chosen(hn::Load(d, reciprocals), sixteenth), hn::Set(d, 1.0F));
  // -beta is in the constants, which loops keep.
  const float ofLogarithm[] = {-beta * logarithm[0], -beta * logarithm[1], -beta * logarithm[2]};
  const V ofMiddle = chosen(hn::Mul(hn::Load(d, logarithms), hn::Set(d, -beta)), sixteenth);
  // So few bits that their product with n is exact.
  const float high = std::bit_cast<float>(std::bit_cast<std::uint32_t>(-beta) & 0xFFFFF000U);
  const float ofExponent = isForHalf ? -beta : -beta - high;
  const V rest =
      hn::MulAdd(r, evaluateTerms<0, 1>(d, r, ofLogarithm), hn::MulAdd(n, hn::Set(d, ofExponent), ofMiddle));
  const V whole = isForHalf ? hn::Zero(d) : hn::Mul(n, hn::Set(d, high));
  const V exponent = isForHalf ? rest : hn::Add(whole, rest);
  // Adding 1.5 * 2^19 rounds to sixteenths, whose number then stands in the low bits.
  const V shift = hn::Set(d, 0x1.8p19F);
  const V shifted = hn::Add(exponent, shift);
  const V rounded = hn::Sub(shifted, shift);
  const V f = isForHalf ? hn::Sub(rest, rounded) : hn::Add(hn::Sub(whole, rounded), rest);
  const V scale = chosen(hn::Load(d, powers), hn::BitCast(du, shifted));
  const V fraction = [&]() HWY_ATTR {
    if constexpr (isForHalf)
      return hn::Mul(f, evaluateTerms<0, 1>(d, f, powerForHalf));
    else
      return hn::Mul(f, evaluateTerms<0, 1>(d, f, power));
  }();
  const V result = hn::MulAdd(scale, fraction, scale);
  return V{_mm512_scalef_ps(result.raw, rounded.raw)};
}

/// 0^exponent and infinity^exponent for a power that is NaN there.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V withPoles(D /*d*/, V power, V t, float exponent) {
  // Four bits for each class of numbers: what stands for `power`, 0 for `power` itself.
  constexpr int ofZero = 1 << 8;
  constexpr int ofInfinity = 1 << 20;
  constexpr int infinity = 5;
  constexpr int zero = 8;
  const auto table = hn::Set(hn::RebindToSigned<D>(), exponent < 0 ? infinity * ofZero + zero * ofInfinity
                                                                   : zero * ofZero + infinity * ofInfinity);
  return V{_mm512_fixupimm_ps(power.raw, t.raw, table.raw, 0)};
}

/// T^-1/2, T^-1/4 or T^-3/4: an estimate of 14 bits and one step that squares its error, because a second root or a
/// quotient would wait for the unit that computes the first. The step makes NaN of 0 and infinity; of two numbers
/// the minimum and maximum give the second if the first is NaN.
template <PowerKind kind, class D, class V = hn::Vec<D>>
HWY_INLINE V rootPower(D d, V t) {
  const V one = hn::Set(d, 1.0F);
  const V square = kind == PowerKind::Half ? t : hn::Sqrt(t);
  const V root = hn::ApproximateReciprocalSqrt(square);
  const V rootSquared = hn::Mul(root, root);
  const V error = hn::NegMulAdd(square, rootSquared, one);
  if constexpr (kind == PowerKind::ThreeQuarters) {
    const V power = hn::Mul(rootSquared, root);
    const V larger = hn::Mul(power, hn::Set(d, 1.5F));
    return hn::Min(hn::MulAdd(larger, error, power), larger);
  } else {
    const V smaller = hn::Mul(root, hn::Set(d, 0.5F));
    return hn::Max(hn::MulAdd(smaller, error, root), smaller);
  }
}

#else

template <PowerKind kind, class D, class V = hn::Vec<D>>
HWY_INLINE V rootPower(D d, V t) {
  // The reciprocal first: it overflows no sooner than the result.
  const V root = hn::Sqrt(hn::Div(hn::Set(d, 1.0F), t));
  if constexpr (kind == PowerKind::Half) return root;
  if constexpr (kind == PowerKind::Quarter) return hn::Sqrt(root);
  return hn::Mul(root, hn::Sqrt(root));
}

#endif

/// T^-beta of vectors.
template <PowerKind kind, class D>
class NegativePower {
  using V = hn::Vec<D>;

 public:
  explicit NegativePower(const PowerRule& rule) : beta_(rule.beta), whole_(rule.whole) {}

  HWY_INLINE V operator()(D d, V t) const {
    if constexpr (kind == PowerKind::Any) {
      return vectorPow(d, t, hn::Set(d, -beta_));
#if HWY_TARGET == HWY_AVX3
    } else if constexpr (kind == PowerKind::Logarithm || kind == PowerKind::LogarithmForHalf) {
      return withPoles(d, logarithmPower<kind == PowerKind::LogarithmForHalf>(d, t, beta_), t, -beta_);
#endif
    } else if constexpr (kind == PowerKind::Whole) {
      if (whole_ < 0) return wholePower(d, t, -whole_);
      return wholePower(d, hn::Div(hn::Set(d, 1.0F), t), whole_);
    } else {
      const V power = rootPower<kind>(d, t);
      if (whole_ == 0) return power;
      return hn::Mul(power, wholePower(d, hn::Div(hn::Set(d, 1.0F), t), whole_));
    }
  }

  /// T^(-beta - 1), given T^-beta.
  HWY_INLINE V next(D d, V t, V power) const {
    // A product of T alone stays exact.
    if (kind == PowerKind::Whole && whole_ < 0) return wholePower(d, t, -whole_ - 1);
    if (kind == PowerKind::Half && whole_ == 0) return hn::Mul(power, hn::Mul(power, power));
    return hn::Div(power, t);
  }

 private:
  float beta_;
  int whole_;
};

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
