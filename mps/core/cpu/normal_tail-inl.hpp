// |x| Phi(-|x|) on vectors of float32 lanes, for GeLU, once per instruction set. Include it after hwy/highway.h in a
// file that hwy/foreach_target.h compiles several times; mps/core/cpu/highway_targets.hpp comes before both.

#if defined(UNMETAL_MPS_CORE_NORMAL_TAIL_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_CORE_NORMAL_TAIL_INL_HPP
#undef UNMETAL_MPS_CORE_NORMAL_TAIL_INL_HPP
#else
#define UNMETAL_MPS_CORE_NORMAL_TAIL_INL_HPP
#endif

#include <hwy/highway.h>

#include "mps/core/cpu/vector_math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// The tail product is computed up to here, where it is below 2^-25.
constexpr float kTailProductEnd = 5.75F;

#if HWY_TARGET == HWY_AVX3
/// |x| Phi(-|x|) by 32 polynomials whose coefficients lie in registers: a choice of 32 numbers is one instruction.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V tailProductByPieces(D d, V x) {
  // Of z Phi(-z) in t = S z - n, |t| <= 1/2, for n = 0 ... 31: minimax of the relative error, which is below 8 2^-24.
  HWY_ALIGN static constexpr float terms[6][32] = {
      {0.0F,
       7.80533403e-02F,
       1.30529240e-01F,
       1.59894735e-01F,
       1.69869259e-01F,
       1.64922565e-01F,
       1.49720430e-01F,
       1.28618509e-01F,
       1.05282038e-01F,
       8.24723244e-02F,
       6.20007925e-02F,
       4.48191576e-02F,
       3.11962403e-02F,
       2.09287554e-02F,
       1.35427108e-02F,
       8.45724158e-03F,
       5.09913266e-03F,
       2.96927616e-03F,
       1.67033426e-03F,
       9.07911162e-04F,
       4.76915651e-04F,
       2.42133872e-04F,
       1.18831638e-04F,
       5.63780086e-05F,
       2.58595119e-05F,
       1.14680706e-05F,
       4.91747369e-06F,
       2.03889158e-06F,
       8.17452360e-07F,
       3.16927867e-07F,
       1.18822769e-07F,
       4.30814246e-08F},
      {9.12741870e-02F,  6.49786964e-02F,  4.03903015e-02F,  1.89692210e-02F,  1.73427234e-03F,
       -1.08414162e-02F, -1.88304745e-02F, -2.27589365e-02F, -2.34530997e-02F, -2.18660478e-02F,
       -1.89214759e-02F, -1.54006053e-02F, -1.18825361e-02F, -8.73418991e-03F, -6.13661343e-03F,
       -4.13094461e-03F, -2.66888854e-03F, -1.65703811e-03F, -9.89662716e-04F, -5.69027965e-04F,
       -3.15168611e-04F, -1.68242404e-04F, -8.65948823e-05F, -4.29896754e-05F, -2.05910310e-05F,
       -9.51791662e-06F, -4.24666314e-06F, -1.82926033e-06F, -7.60841715e-07F, -3.05608012e-07F,
       -1.18560514e-07F, -4.44290968e-08F},
      {-1.32943131e-02F, -1.28567815e-02F, -1.16082421e-02F, -9.72704031e-03F, -7.46849505e-03F,
       -5.11406455e-03F, -2.92017194e-03F, -1.07865874e-03F, 3.03723966e-04F,  1.20538776e-03F,
       1.67358492e-03F,  1.79896003e-03F,  1.68877561e-03F,  1.44488958e-03F,  1.14969700e-03F,
       8.60376167e-04F,  6.09741081e-04F,  4.11088840e-04F,  2.64509494e-04F,  1.62804950e-04F,
       9.60219622e-05F,  5.43418137e-05F,  2.95406135e-05F,  1.54382506e-05F,  7.76199886e-06F,
       3.75662739e-06F,  1.75098853e-06F,  7.86337068e-07F,  3.40352045e-07F,  1.42028355e-07F,
       5.71563739e-08F,  2.21870007e-08F},
      {-3.64755479e-08F, 2.88033072e-04F,  5.34187187e-04F,  7.05466839e-04F,  7.84299104e-04F,
       7.70849641e-04F,  6.80970959e-04F,  5.40774083e-04F,  3.79708363e-04F,  2.24170755e-04F,
       9.31482500e-05F,  -3.48131175e-06F, -6.42369123e-05F, -9.37437799e-05F, -9.98792384e-05F,
       -9.12050455e-05F, -7.51810003e-05F, -5.72812824e-05F, -4.08629203e-05F, -2.75087696e-05F,
       -1.75666046e-05F, -1.06794705e-05F, -6.19729235e-06F, -3.43960710e-06F, -1.82869451e-06F,
       -9.32463138e-07F, -4.56469394e-07F, -2.14701942e-07F, -9.70958638e-08F, -4.22431299e-08F,
       -1.76894943e-08F, -7.13284409e-09F},
      {7.40394025e-05F,  6.82791797e-05F,  5.31869518e-05F,  3.15996585e-05F,  7.83322321e-06F,
       -1.37747720e-05F, -2.98835130e-05F, -3.87765613e-05F, -4.04733219e-05F, -3.63791769e-05F,
       -2.86625746e-05F, -1.95915527e-05F, -1.10202236e-05F, -4.12144527e-06F, 6.36268567e-07F,
       3.34013293e-06F,  4.40950998e-06F,  4.38131156e-06F,  3.75452510e-06F,  2.90821026e-06F,
       2.08169763e-06F,  1.39405836e-06F,  8.80111486e-07F,  5.26514214e-07F,  2.99550010e-07F,
       1.62507774e-07F,  8.42380175e-08F,  4.17891641e-08F,  1.98653041e-08F,  9.05847841e-09F,
       3.96568955e-09F,  1.66801828e-09F},
      {-4.62113206e-07F, -2.09085306e-06F, -3.79161065e-06F, -4.68667758e-06F, -4.67180462e-06F,
       -3.85724661e-06F, -2.52370523e-06F, -1.02616559e-06F, 3.09579150e-07F,  1.26343525e-06F,
       1.75204411e-06F,  1.81495557e-06F,  1.57114675e-06F,  1.16682986e-06F,  7.32190415e-07F,
       3.56709080e-07F,  8.36248759e-08F,  -8.18523702e-08F, -1.58121210e-07F, -1.72979767e-07F,
       -1.53325772e-07F, -1.19782385e-07F, -8.53258655e-08F, -5.63940148e-08F, -3.49376634e-08F,
       -2.04234905e-08F, -1.13166152e-08F, -5.96325300e-09F, -2.99574632e-09F, -1.43752443e-09F,
       -6.59896471e-10F, -2.90150654e-10F}};
  const V z = atMost(d, hn::Abs(x), kTailProductEnd);
  const V pieces = hn::Set(d, 5.478F);  // S, so that n ends with 31
  const V shift = hn::Set(d, 12582912.0F);
  const V shifted = hn::MulAdd(z, pieces, shift);  // its low bits are n, as in multiplesOfLn2()
  const V t = hn::MulSub(z, pieces, hn::Sub(shifted, shift));
  const auto n = hn::BitCast(hn::RebindToSigned<D>(), shifted);
  const auto term = [&](std::size_t i) HWY_ATTR __attribute__((always_inline)) {
    return V{_mm512_permutex2var_ps(hn::Load(d, terms[i]).raw, n.raw, hn::Load(d, terms[i] + 16).raw)};
  };
  V sum = term(5);
  sum = hn::MulAdd(sum, t, term(4));
  sum = hn::MulAdd(sum, t, term(3));
  sum = hn::MulAdd(sum, t, term(2));
  sum = hn::MulAdd(sum, t, term(1));
  return hn::MulAdd(sum, t, term(0));
}
#endif

/// |x| Phi(-|x|), for results that are rounded to float16. Largest error in units in the last place of float32: 20 for
/// |x| <= 5.75; beyond it the value is that of 5.75. NaN gives NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vectorTailProductForHalf(D d, V x) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (hn::MaxLanes(D()) == 16) return tailProductByPieces(d, x);
#endif
  const V z = atMost(d, hn::Abs(x), kTailProductEnd);
#if HWY_NATIVE_FMA
  // q of normalQuotient() for z <= 5.75.
  constexpr float numerator[] = {0.49999997F, 0.33300861F, 0.10364879F, 0.013452601F};
  constexpr float denominator[] = {1.0F, 1.4638986F, 0.87535063F, 0.25922827F, 0.033742721F};
  const auto power = powerOfTwoForHalf<false>(d, hn::Mul(z, z), -0.5F * 1.44269504F);
  const V quotient = hn::Div(evaluatePolynomial(d, z, numerator), evaluatePolynomial(d, z, denominator));
  return hn::Mul(hn::Mul(z, hn::MulAdd(power.fraction, power.scale, power.scale)), quotient);
#else
  return hn::Mul(z, vectorNormal(d, z).tail);
#endif
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
