// Softmax of float16 values without a shift, once per instruction set. Include it after hwy/highway.h in a file that
// hwy/foreach_target.h compiles several times; mps/core/cpu/highway_targets.hpp comes before both.

#if defined(UNMETAL_MPS_CORE_HALF_RUNS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_CORE_HALF_RUNS_INL_HPP
#undef UNMETAL_MPS_CORE_HALF_RUNS_INL_HPP
#else
#define UNMETAL_MPS_CORE_HALF_RUNS_INL_HPP
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "mps/core/cpu/vector_math-inl.hpp"
#include "mps/core/types/float_run.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// The run, of which the compiler knows that it is float16 where isHalf says so.
template <bool isHalf, class Run>
HWY_INLINE Run known(Run run) {
  if (isHalf) run.isHalf = true;
  return run;
}

/// Largest |x| of which exponentials and their sums need no shift.
constexpr float kModest = 32;

/// Whether no |x| is above 32: vectorExpForHalf() and sums of what it returns then need no shift, and no x is NaN.
inline bool areModest(const Float16* x, std::size_t count) {
  const hn::ScalableTag<std::uint16_t> d;
  constexpr std::uint16_t bitsOf32 = 0x5000;
  const auto* const bits = reinterpret_cast<const std::uint16_t*>(x);
  const std::size_t step = 2 * hn::Lanes(d);
  if (count < step)
    return std::all_of(bits, bits + count, [](std::uint16_t b) { return (b & 0x7FFFU) <= bitsOf32; });
  const auto twiceLargest = [&](std::size_t i) HWY_ATTR __attribute__((always_inline)) {
    const auto a = hn::LoadU(d, bits + i);
    const auto b = hn::LoadU(d, bits + i + hn::Lanes(d));
    return hn::Max(hn::Add(a, a), hn::Add(b, b));  // their signs are gone
  };
  auto largest = twiceLargest(count - step);
  for (std::size_t i = 0; i + step < count; i += step) largest = hn::Max(largest, twiceLargest(i));
  return hn::AllFalse(d, hn::Gt(largest, hn::Set(d, 2 * bitsOf32)));
}

/// ln(x) as a sum: y - upper - lower keeps digits that y - ln(x) would lose.
template <class D>
struct Logarithm {
  hn::Vec<D> upper;
  hn::Vec<D> lower;
};

/// For normal x > 0.
template <class D, class V = hn::Vec<D>>
HWY_INLINE Logarithm<D> logarithm(D d, V x) {
  const hn::RebindToSigned<D> di;
  const auto bits = hn::BitCast(di, x);
  const auto exponent = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(di, 0x3F3504F3)));
  const V f = hn::Sub(hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(exponent))), hn::Set(d, 1.0F));
  const V n = hn::ConvertTo(d, exponent);
  const V square = hn::Mul(f, f);
  const V small = hn::MulAdd(n, hn::Set(d, -2.12194440e-4F), restOfLog1p(d, f, square));
  return {hn::Mul(n, hn::Set(d, 0.693359375F)), hn::Add(f, hn::NegMulAdd(square, hn::Set(d, 0.5F), small))};
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
