// Elementary functions on vectors of float32 lanes, once per instruction set. Include it after hwy/highway.h
// in a file that hwy/foreach_target.h compiles several times; mps/core/cpu/highway_targets.hpp comes before both.
//
// Largest error in units in the last place of float32 over the arguments of the range; vector_math_test.cpp
// measures it. NaN gives NaN.
//
//   function                     range                              error   outside the range
//   vectorExp                    all                                2       overflow: infinity
//   vectorExpNonPositive         -87.336544 <= x <= 0               2       below 2^-126; below -88.03 0
//   vectorExpMinus1              x <= 0                             2
//   vectorLog                    x >= 0, subnormal too              1       NaN
//   vectorLog1p                  0 <= x <= 1                        2
//   vectorTanh                   all                                3
//   vectorPow                    all, both arguments                1
//   vectorNormal, distribution   x >= -13                           8       0
//   vectorNormal, density        |x| <= 13                          3       0
//
// and of those for results that are rounded to float16:
//
//   vectorExpNonPositiveForHalf  -20 <= x <= 0              12      -87.336544 <= x < -20: 32
//   vectorExpForHalf             |x| <= 32                  16      |x| <= 87: 32; beyond it any number
//   vectorExpForLogOfHalf        |x| <= 32                  24      |x| <= 87: 48; beyond it any number
//   vectorLog1pForHalf           0 <= x <= 1                24
//   vectorTanhForHalf            all                        16
//
// The 8 is the product of an exponential and a quotient of polynomials, for negative x; it is a relative
// error even in the tail, where 1 + erf(x) with an erf of 4 units would have no correct digit.

#if defined(UNMETAL_MPS_CORE_VECTOR_MATH_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_CORE_VECTOR_MATH_INL_HPP
#undef UNMETAL_MPS_CORE_VECTOR_MATH_INL_HPP
#else
#define UNMETAL_MPS_CORE_VECTOR_MATH_INL_HPP
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// x86's maximum and minimum give their second operand if one is NaN; a comparison costs as much as a product. Those of
// the fallback, which is another one for each compiler, give a number.
#define UNMETAL_MAXIMUM_IS_SECOND_IF_NAN \
  (HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128)

/// The larger of x and a bound; NaN stays NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V atLeast(D d, V x, float bound) {
  const V limit = hn::Set(d, bound);
#if UNMETAL_MAXIMUM_IS_SECOND_IF_NAN
  return hn::Max(limit, x);
#else
  return hn::IfThenElse(hn::Lt(x, limit), limit, x);
#endif
}
/// The smaller one.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V atMost(D d, V x, float bound) {
  const V limit = hn::Set(d, bound);
#if UNMETAL_MAXIMUM_IS_SECOND_IF_NAN
  return hn::Min(limit, x);
#else
  return hn::IfThenElse(hn::Gt(x, limit), limit, x);
#endif
}

#undef UNMETAL_MAXIMUM_IS_SECOND_IF_NAN

/// The largest lane, in all lanes. Highway's of emulated vectors is no less than the lowest finite number.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V largestLane(D d, V v) {
#if HWY_TARGET == HWY_EMU128
  if (hn::AllTrue(d, hn::Eq(v, hn::Set(d, -std::numeric_limits<float>::infinity())))) return v;
#endif
  return hn::MaxOfLanes(d, v);
}

/// c[i] + c[i + step] x + c[i + 2 step] x^2 + ...; no loop, because the compiler would keep it.
template <std::size_t i, std::size_t step, class D, class V, class Coefficient, std::size_t count>
HWY_INLINE V evaluateTerms(D d, V x, const Coefficient (&c)[count]) {
  if constexpr (i + step >= count)
    return hn::Set(d, c[i]);
  else
    return hn::MulAdd(evaluateTerms<i + step, step>(d, x, c), x, hn::Set(d, c[i]));
}

/// c[0] + c[1] x + c[2] x^2 + ... Even and odd powers apart: each step waits for the one before it.
template <class D, class V = hn::Vec<D>, class Coefficient, std::size_t count>
HWY_INLINE V evaluatePolynomial(D d, V x, const Coefficient (&c)[count]) {
  if constexpr (count < 4) return evaluateTerms<0, 1>(d, x, c);
  const V square = hn::Mul(x, x);
  return hn::MulAdd(evaluateTerms<1, 2>(d, square, c), x, evaluateTerms<0, 2>(d, square, c));
}

/// exp(x) = 2^n (1 + fraction), |fraction| < 0.42.
template <class D>
struct ReducedExponential {
  hn::Vec<D> fraction;
  hn::Vec<hn::RebindToSigned<D>> n;
};

/// n nearest to x / ln 2, as float32 and in the low bits of `shifted`; for |x| < 2^21.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V multiplesOfLn2(D d, V x, V& shifted) {
  // Adding 1.5 * 2^23 rounds to an integer, which then stands in the low bits.
  const V shift = hn::Set(d, 12582912.0F);
  shifted = hn::MulAdd(x, hn::Set(d, 1.44269504F), shift);
  return hn::Sub(shifted, shift);
}

/// x - n ln 2. ln 2 is in two parts, the first one short, so that its product with n is exact.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V subtractMultiplesOfLn2(D d, V x, V n) {
  const V r = hn::NegMulAdd(n, hn::Set(d, 0.693359375F), x);
  return hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4F), r);
}

/// exp(r) = 1 + fraction for |r| <= ln(2) / 2.
template <class D, class V = hn::Vec<D>>
HWY_INLINE ReducedExponential<D> reducedExponential(D d, V r, V shifted) {
  const hn::RebindToSigned<D> di;
  // (exp(r) - 1 - r) / r^2, minimax.
  constexpr float coefficients[] = {0.5F, 1.666653901e-01F, 4.166641086e-02F, 8.367154747e-03F,
                                    1.394005609e-03F};
  const V fraction = hn::MulAdd(hn::Mul(r, r), evaluatePolynomial(d, r, coefficients), r);
  return {fraction, hn::Sub(hn::BitCast(di, shifted), hn::Set(di, 0x4B400000))};
}

/// For |x| < 2^21; NaN gives a NaN fraction.
template <class D, class V = hn::Vec<D>>
HWY_INLINE ReducedExponential<D> reduceExponential(D d, V x) {
  V shifted;
  const V n = multiplesOfLn2(d, x, shifted);
  return reducedExponential(d, subtractMultiplesOfLn2(d, x, n), shifted);
}

/// 2^n for -126 <= n <= 127.
template <class D, class VI>
HWY_INLINE hn::Vec<D> powerOfTwo(D d, VI n) {
  const hn::RebindToSigned<D> di;
  return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));
}

/// 2^n (1 + fraction), in two steps so that subnormals and the largest exponent come out right.
template <class D>
HWY_INLINE hn::Vec<D> scaleExponential(D d, ReducedExponential<D> reduced) {
  const auto half = hn::ShiftRight<1>(reduced.n);
  const auto mantissa = hn::Add(reduced.fraction, hn::Set(d, 1.0F));
  return hn::Mul(hn::Mul(mantissa, powerOfTwo(d, half)), powerOfTwo(d, hn::Sub(reduced.n, half)));
}

/// exp(x).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vectorExp(D d, V x) {
  return scaleExponential(d, reduceExponential(d, atMost(d, atLeast(d, x, -104.0F), 89.0F)));
}

#if HWY_TARGET == HWY_AVX3
/// c 2^(n / 16), n in the low bits of `shifted`: the low four bits of n choose c 2^(k / 16) from the table, less what they
/// add to its bits when n moves into the exponent.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V multipleOfSixteenths(D d, V shifted, const std::uint32_t (&sixteenths)[16]) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, shifted);
  const hn::Vec<decltype(du)> mantissa{_mm512_permutexvar_epi32(bits.raw, hn::Load(du, sixteenths).raw)};
  return hn::BitCast(d, hn::Add(mantissa, hn::ShiftLeft<19>(bits)));
}

/// 2^(n / 16) for -127 <= n / 16 <= 127, n in the low bits of `shifted`; 0 for the lowest n.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V powerOfSixteenths(D d, V shifted) {
  HWY_ALIGN static constexpr std::uint32_t sixteenths[16] = {
      0x3F800000, 0x3F7DAAC3, 0x3F7B95C2, 0x3F79C3D3, 0x3F7837F0, 0x3F76F532, 0x3F75FED7, 0x3F75583F,
      0x3F7504F3, 0x3F7508A4, 0x3F75672A, 0x3F76248C, 0x3F7744FD, 0x3F78CCDF, 0x3F7AC0C7, 0x3F7D257D};
  return multipleOfSixteenths(d, shifted, sixteenths);
}
#endif

/// -127 ln 2: with it the scale below is 0.
constexpr float kLeastExponent = -88.0297F;

/// exp(x) for kLeastExponent <= x <= 87; where it is below 2^-126, some number from 0 to 2^-126.
/// @param subtract subtract(n, c) is x - n c: x may have more digits than float32 holds
template <class D, class V = hn::Vec<D>, class Subtract>
HWY_INLINE V exponentialInRange(D d, V x, Subtract&& subtract) {
  V fraction;
  V scale;
#if HWY_TARGET == HWY_AVX3
  if constexpr (hn::MaxLanes(D()) == 16) {
    // A smaller fraction needs fewer terms.
    const V shift = hn::Set(d, 12582912.0F);
    const V shifted = hn::MulAdd(x, hn::Set(d, 16 * 1.44269504F), shift);
    const V n = hn::Sub(shifted, shift);
    const V r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4F / 16), subtract(n, 0.693359375F / 16));
    const V terms = hn::MulAdd(r, hn::Set(d, 1.0F / 6), hn::Set(d, 0.50000983F));
    fraction = hn::MulAdd(hn::Mul(r, r), terms, r);
    scale = powerOfSixteenths(d, shifted);
  } else
#endif
  {
    V shifted;
    const V n = multiplesOfLn2(d, x, shifted);
    const V r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4F), subtract(n, 0.693359375F));
    const ReducedExponential<D> reduced = reducedExponential(d, r, shifted);
    fraction = reduced.fraction;
    scale = powerOfTwo(d, reduced.n);
  }
  return hn::MulAdd(fraction, scale, scale);
}

/// exp(x) for x <= 0; where it is below 2^-126, some number from 0 to 2^-126, and 0 below 2^-127.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vectorExpNonPositive(D d, V x) {
  x = atLeast(d, x, kLeastExponent);
  return exponentialInRange(d, x, [&](V n, float c) { return hn::NegMulAdd(n, hn::Set(d, c), x); });
}

/// exp(x) - 1 for x <= 0, without the cancellation near 0.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vectorExpMinus1(D d, V x) {
  const ReducedExponential<D> reduced = reduceExponential(d, atLeast(d, x, -20.0F));
  const V scale = powerOfTwo(d, reduced.n);
  return hn::MulAdd(reduced.fraction, scale, hn::Sub(scale, hn::Set(d, 1.0F)));
}

/// ln(1 + f) - f + f^2 / 2 for sqrt(1/2) <= 1 + f < sqrt(2).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V restOfLog1p(D d, V f, V square) {
  // Over f^3, minimax.
  constexpr float coefficients[] = {3.333333135e-01F, -2.500081956e-01F, 2.000124305e-01F, -1.662341058e-01F,
                                    1.420153975e-01F, -1.315955073e-01F, 1.276248544e-01F, -7.636940479e-02F};
  return hn::Mul(hn::Mul(square, f), evaluatePolynomial(d, f, coefficients));
}

/// ln(x).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vectorLog(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  const V nan = hn::Set(d, std::numeric_limits<float>::quiet_NaN());
  // x = 2^n (1 + f), sqrt(1/2) <= 1 + f < sqrt(2).
  const auto isSubnormal = hn::Lt(x, hn::Set(d, std::numeric_limits<float>::min()));
  const auto bits = hn::BitCast(di, hn::IfThenElse(isSubnormal, hn::Mul(x, hn::Set(d, 0x1p23F)), x));
  const auto exponent = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(di, 0x3F3504F3)));
  const V f = hn::Sub(hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(exponent))), hn::Set(d, 1.0F));
  const V n = hn::Sub(hn::ConvertTo(d, exponent), hn::IfThenElseZero(isSubnormal, hn::Set(d, 23.0F)));
  const V square = hn::Mul(f, f);
  V small = restOfLog1p(d, f, square);
  small = hn::MulAdd(n, hn::Set(d, -2.12194440e-4F), small);
  small = hn::NegMulAdd(square, hn::Set(d, 0.5F), small);
  const V result = hn::MulAdd(n, hn::Set(d, 0.693359375F), hn::Add(f, small));
  // Infinity and NaN stay as they are.
  const V belowOrZero = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Neg(infinity), nan);
  return hn::IfThenElse(hn::Le(x, hn::Zero(d)), belowOrZero, hn::IfThenElse(hn::Lt(x, infinity), result, x));
}

/// ln(1 + x) for 0 <= x <= 1.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vectorLog1p(D d, V x) {
  // ln(1 + x) / x about x = 1/2, where the coefficients fall fastest, minimax.
  constexpr float coefficients[] = {8.109301925e-01F, -2.885271013e-01F, 1.326122582e-01F, -6.768896431e-02F,
                                    3.657298163e-02F, -2.054581605e-02F, 1.196589321e-02F, -6.902034394e-03F,
                                    4.487787839e-03F, -2.94667366e-03F};
  return hn::Mul(x, evaluatePolynomial(d, hn::Sub(x, hn::Set(d, 0.5F)), coefficients));
}

/// tanh(x) = -t / (t + 2), t = exp(-2 |x|) - 1.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vectorTanh(D d, V x) {
  const V t = vectorExpMinus1(d, hn::Neg(hn::Abs(hn::Add(x, x))));
  return hn::CopySign(hn::Div(t, hn::Add(t, hn::Set(d, 2.0F))), x);
}

/// q(z) for 0 <= z <= 13.27 with Phi(-z) = exp(-z^2 / 2) q(z): smooth, so that the product keeps its relative
/// accuracy in the tail, where 1 + erf loses it.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V normalQuotient(D d, V z) {
  // A quotient of polynomials with positive coefficients, minimax.
  constexpr float numerator[] = {0.5F, 0.4385035F, 0.1833895F, 0.040685214F, 0.0041240104F};
  constexpr float denominator[] = {1.0F, 1.674892F, 1.2031447F, 0.46987805F, 0.10198909F, 0.010337243F};
  return hn::Div(evaluatePolynomial(d, z, numerator), evaluatePolynomial(d, z, denominator));
}

/// Of the normal distribution Phi and its density phi.
template <class D>
struct Normal {
  hn::Vec<D> tail;     ///< Phi(-|x|)
  hn::Vec<D> density;  ///< phi(x)
};

/// Both 0 for |x| > 13.27.
template <class D, class V = hn::Vec<D>>
HWY_INLINE Normal<D> vectorNormal(D d, V x) {
  const V z = atMost(d, hn::Abs(x), 13.2688F);  // z^2 / 2 = -kLeastExponent
  // The rounding of z^2 must not reach the exponential.
  const V half = hn::Mul(z, hn::Set(d, -0.5F));
#if HWY_NATIVE_FMA
  const auto subtract = [&](V n, float c) { return hn::MulSub(half, z, hn::Mul(n, hn::Set(d, c))); };
#else
  // z = high + low with an exact high^2.
  const hn::RebindToUnsigned<D> du;
  const V high = hn::BitCast(d, hn::And(hn::BitCast(du, z), hn::Set(du, 0xFFFFF000U)));
  const V square = hn::Mul(hn::Mul(high, high), hn::Set(d, -0.5F));
  const V rest = hn::Mul(hn::Mul(hn::Sub(z, high), hn::Add(z, high)), hn::Set(d, -0.5F));
  const auto subtract = [&](V n, float c) { return hn::Add(hn::NegMulAdd(n, hn::Set(d, c), square), rest); };
#endif
  const V exponential = exponentialInRange(d, hn::Mul(half, z), subtract);
  return {hn::Mul(exponential, normalQuotient(d, z)), hn::Mul(exponential, hn::Set(d, 0.398942280F))};
}

/// Phi(x) from Phi(-|x|).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V normalDistribution(D d, V x, V tail) {
  return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(hn::Set(d, 1.0F), tail));
}

// For results that are rounded to float16
// ----------------------------------------------------------------------------------------------

#if HWY_NATIVE_FMA

/// Whether a power of two is computed as 2^(n / 16) from a table and a small fraction.
template <class D>
constexpr bool hasSixteenths() {
  return HWY_TARGET == HWY_AVX3 && hn::MaxLanes(D()) == 16;
}

/// 2^(a b) = scale (1 + fraction).
template <class D>
struct ScaledFraction {
  hn::Vec<D> scale;
  hn::Vec<D> fraction;
};

/// For -127 <= a b <= 127; scale = 0 for the lowest.
/// @tparam isNearZero the fraction has a small relative error too
template <bool isNearZero, class D, class V = hn::Vec<D>>
HWY_INLINE ScaledFraction<D> powerOfTwoForHalf(D d, V a, float b) {
  const V shift = hn::Set(d, 12582912.0F);
  const V factor = hn::Set(d, hasSixteenths<D>() ? 16 * b : b);
  const V shifted = hn::MulAdd(a, factor, shift);
  const V r = hn::MulSub(a, factor, hn::Sub(shifted, shift));
#if HWY_TARGET == HWY_AVX3
  if constexpr (hasSixteenths<D>()) {
    // (2^(r / 16) - 1) / r, minimax; the first one of 2^(r / 16).
    constexpr float two[] = {4.3324233e-02F, 9.3838454e-04F};
    constexpr float three[] = {4.3321699e-02F, 9.3841231e-04F, 1.3550808e-05F};
    const V scale = powerOfSixteenths(d, shifted);
    if constexpr (isNearZero)
      return {scale, hn::Mul(r, evaluateTerms<0, 1>(d, r, three))};
    else
      return {scale, hn::Mul(r, evaluateTerms<0, 1>(d, r, two))};
  }
#endif
  // (2^r - 1) / r, minimax.
  constexpr float coefficients[] = {6.9314714e-01F, 2.4022351e-01F, 5.5505002e-02F, 9.6662460e-03F,
                                    1.3333539e-03F};
  const hn::RebindToSigned<D> di;
  const auto n = hn::Sub(hn::BitCast(di, shifted), hn::Set(di, 0x4B400000));
  return {powerOfTwo(d, n), hn::Mul(r, evaluatePolynomial(d, r, coefficients))};
}

/// exp(x) for kLeastExponent <= x <= 87.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vectorExpForHalf(D d, V x) {
  const auto power = powerOfTwoForHalf<false>(d, x, 1.44269504F);
  return hn::MulAdd(power.fraction, power.scale, power.scale);
}

/// exp(x) for |x| <= 87, to be added to others before a logarithm is taken and rounded to float16.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vectorExpForLogOfHalf(D d, V x) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (hasSixteenths<D>()) {
    // 2^r for |r| <= 1/32 as a multiple of (r / 2 + k)^2 + b, k a multiple of the rounding's step: what is left of the
    // product by the rounding is r / 2 + k at once. The table has the multiple in it.
    constexpr float k = 23.0F / 32;
    constexpr float b = 0.5202584F;
    HWY_ALIGN static constexpr std::uint32_t sixteenths[16] = {
        0x3F76E633, 0x3F78EA4A, 0x3F769F6D, 0x3F749540, 0x3F72CEA2, 0x3F714E8F, 0x3F701827, 0x3F6F2EAD,
        0x3F6E9589, 0x3F6E5049, 0x3F6E62A5, 0x3F6ED07D, 0x3F6F9DDE, 0x3F70CF03, 0x3F726857, 0x3F746E77};
    const V factor = hn::Set(d, 0.5F * 1.44269504F);
    const V shifted = hn::MulAdd(x, factor, hn::Set(d, 393216.0F));
    const V t = hn::MulSub(x, factor, hn::Sub(shifted, hn::Set(d, 393216.0F + k)));
    return hn::Mul(hn::MulAdd(t, t, hn::Set(d, b)), multipleOfSixteenths(d, shifted, sixteenths));
  }
#endif
  return vectorExpForHalf(d, x);
}

/// ln(1 + x) for 0 <= x <= 1.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vectorLog1pForHalf(D d, V x) {
  // As in vectorLog1p().
  constexpr float coefficients[] = {8.109300897e-01F, -2.885413028e-01F, 1.326273563e-01F, -6.724278851e-02F,
                                    3.624821237e-02F, -2.397875278e-02F, 1.414103127e-02F};
  return hn::Mul(x, evaluatePolynomial(d, hn::Sub(x, hn::Set(d, 0.5F)), coefficients));
}

/// As vectorTanh(), with t = 2^n - 1 + 2^n fraction.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vectorTanhForHalf(D d, V x) {
  const auto power = powerOfTwoForHalf<true>(d, atMost(d, hn::Abs(x), 10.0F), -2 * 1.44269504F);
  const V t = hn::MulAdd(power.fraction, power.scale, hn::Sub(power.scale, hn::Set(d, 1.0F)));
  return hn::CopySign(hn::Div(t, hn::Add(t, hn::Set(d, 2.0F))), x);
}

#else

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vectorLog1pForHalf(D d, V x) {
  return vectorLog1p(d, x);
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vectorExpForHalf(D d, V x) {
  return exponentialInRange(d, x, [&](V n, float c) { return hn::NegMulAdd(n, hn::Set(d, c), x); });
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vectorExpForLogOfHalf(D d, V x) {
  return vectorExpForHalf(d, x);
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vectorTanhForHalf(D d, V x) {
  return vectorTanh(d, x);
}

#endif

/// exp(x) for x <= 0; 0 below -127 ln 2.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vectorExpNonPositiveForHalf(D d, V x) {
  return vectorExpForHalf(d, atLeast(d, x, kLeastExponent));
}

/// ln(x) / ln(2) of a float64 that is 0 (gives -infinity), infinite, or positive and normal; relative error
/// below 2^-44.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V log2Double(D d, V x) {
  const hn::RebindToUnsigned<D> du;
  const V one = hn::Set(d, 1.0);
  const auto bits = hn::BitCast(du, x);
  // The exponent's bits below 2^52 make it a float64 without a conversion instruction.
  V n = hn::Sub(hn::BitCast(d, hn::Or(hn::ShiftRight<52>(bits), hn::Set(du, 0x4330000000000000ULL))),
                hn::Set(d, 0x1p52 + 1023));
  V m = hn::BitCast(
      d, hn::Or(hn::And(bits, hn::Set(du, 0x000FFFFFFFFFFFFFULL)), hn::Set(du, 0x3FF0000000000000ULL)));
  const auto isLarge = hn::Gt(m, hn::Set(d, 1.4142135623730951));
  m = hn::IfThenElse(isLarge, hn::Mul(m, hn::Set(d, 0.5)), m);
  n = hn::IfThenElse(isLarge, hn::Add(n, one), n);
  // atanh(s) / s as a polynomial in s^2, minimax for 2/3 sqrt(2) <= m <= sqrt(2).
  constexpr double coefficients[] = {2.8853900817778473, 0.9617966941216354,  0.5770779395736444,
                                     0.4122095623604504, 0.31989203110756637, 0.2831073128200442};
  const V s = hn::Div(hn::Sub(m, one), hn::Add(m, one));
  const V infinity = hn::Set(d, std::numeric_limits<double>::infinity());
  const V result = hn::MulAdd(s, evaluatePolynomial(d, hn::Mul(s, s), coefficients), n);
  return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Neg(infinity),
                        hn::IfThenElse(hn::Eq(x, infinity), infinity, result));
}

/// 2^x for a result in the range of float32, relative error below 2^-34; 2^-160 below, 2^130 above.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp2Double(D d, V x) {
  const hn::RebindToUnsigned<D> du;
  const V lowest = hn::Set(d, -160.0);
  const V highest = hn::Set(d, 130.0);
  x = hn::IfThenElse(hn::Lt(x, lowest), lowest, x);
  x = hn::IfThenElse(hn::Gt(x, highest), highest, x);
  const V shift = hn::Set(d, 0x1.8p52);
  const V shifted = hn::Add(x, shift);
  const V f = hn::Sub(x, hn::Sub(shifted, shift));
  // 2^f for |f| <= 1/2, minimax.
  constexpr double coefficients[] = {0.9999999999561955,     0.6931471805329819,   0.2402265124546318,
                                     0.055504109827905816,   0.009618021396009866, 0.0013333417191089038,
                                     0.00015471064869790102, 1.531773280568866e-05};
  // The low bits of `shifted` are the integer; what is above them leaves through the shift.
  const auto scale = hn::ShiftLeft<52>(hn::Add(hn::BitCast(du, shifted), hn::Set(du, 1023)));
  return hn::Mul(evaluatePolynomial(d, f, coefficients), hn::BitCast(d, scale));
}

/// base^exponent of float64 lanes, for base >= 0; NaN for 1^infinity, 0^0 and infinity^0.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V powDouble(D d, V base, V exponent) {
  return exp2Double(d, hn::Mul(exponent, log2Double(d, base)));
}

/// Rounded to float32, to infinity if need be: Highway's fallbacks would turn that into the largest finite number.
template <class DF, class V>
HWY_INLINE hn::Vec<DF> roundedToFloat(DF df, V value) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(df, static_cast<float>(hn::GetLane(value)));
#elif HWY_TARGET == HWY_EMU128
  hn::Vec<DF> result = hn::Zero(df);
  for (std::size_t i = 0; i < hn::Lanes(df); ++i) result.raw[i] = static_cast<float>(value.raw[i]);
  return result;
#else
  return hn::DemoteTo(df, value);
#endif
}

/// powDouble() of float32 lanes, rounded once.
template <class DF, class VF>
HWY_INLINE VF powNonNegative(DF df, VF base, VF exponent) {
#if HWY_TARGET == HWY_SCALAR
  const hn::Rebind<double, DF> d;
  return roundedToFloat(df, powDouble(d, hn::PromoteTo(d, base), hn::PromoteTo(d, exponent)));
#else
  const hn::RepartitionToWide<DF> d;
  const hn::Half<DF> dh;
  const auto low =
      powDouble(d, hn::PromoteTo(d, hn::LowerHalf(dh, base)), hn::PromoteTo(d, hn::LowerHalf(dh, exponent)));
  const auto high =
      powDouble(d, hn::PromoteTo(d, hn::UpperHalf(dh, base)), hn::PromoteTo(d, hn::UpperHalf(dh, exponent)));
  return hn::Combine(df, roundedToFloat(dh, high), roundedToFloat(dh, low));
#endif
}

/// base^exponent as C's pow: base^0 = 1^exponent = 1 even for NaN, integer powers of negative bases are
/// defined.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vectorPow(D d, V base, V exponent) {
  const V zero = hn::Zero(d);
  const V one = hn::Set(d, 1.0F);
  const V magnitude = hn::Abs(base);
  V result = powNonNegative(d, magnitude, exponent);
  result = hn::IfThenElse(hn::Eq(magnitude, one), one, result);

  const V half = hn::Mul(exponent, hn::Set(d, 0.5F));
  const auto isInteger = hn::Eq(hn::Floor(exponent), exponent);
  const auto isOdd = hn::AndNot(hn::Eq(hn::Floor(half), half), isInteger);
  const auto isNegative =
      hn::And(hn::Lt(base, zero), hn::Ge(base, hn::Set(d, std::numeric_limits<float>::lowest())));
  result = hn::IfThenElse(hn::AndNot(isInteger, isNegative),
                          hn::Set(d, std::numeric_limits<float>::quiet_NaN()), result);
  result = hn::IfThenElse(isOdd, hn::CopySignToAbs(result, base), result);
  result = hn::IfThenElse(hn::IsNaN(base), base, result);
  return hn::IfThenElse(hn::Or(hn::Eq(exponent, zero), hn::Eq(base, one)), one, result);
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
