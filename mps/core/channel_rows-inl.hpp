// Sums and lines of every channel over rows of pixels, once per instruction set. Include it after
// hwy/highway.h in a file that hwy/foreach_target.h compiles several times; mps/core/highway_targets.hpp comes
// before both.

#if defined(UNMETAL_MPS_CORE_CHANNEL_ROWS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_CORE_CHANNEL_ROWS_INL_HPP
#undef UNMETAL_MPS_CORE_CHANNEL_ROWS_INL_HPP
#else
#define UNMETAL_MPS_CORE_CHANNEL_ROWS_INL_HPP
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "mps/core/channel_layout.hpp"
#include "mps/core/float_run.hpp"
#include "mps/core/vector_runs-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// v, zero in the lanes that are not used.
template <class D, class V>
HWY_INLINE V usedLanes(D /*d*/, AllLanes /*lanes*/, V v) {
  return v;
}
template <class D, class V>
HWY_INLINE V usedLanes(D d, FirstLanes lanes, V v) {
  return hn::IfThenElseZero(hn::FirstN(d, lanes.count), v);
}

/// Calls body(first element, rows at once, elements of each), short rows in groups as far as they go. Of long
/// ones a group would be read in as many places at once, which memory delivers slowly.
template <class Body>
HWY_INLINE void forRowGroups(const ChannelRows& rows, Body&& body) {
  constexpr std::size_t group = 4;
  constexpr std::size_t longRow = 128;
  std::size_t first = 0;
  if (rows.length < longRow)
    for (; first + group * rows.length <= rows.elements; first += group * rows.length)
      body(first, std::integral_constant<std::size_t, group>(), rows.length);
  for (; first < rows.elements; first += rows.length)
    body(first, std::integral_constant<std::size_t, 1>(), std::min(rows.length, rows.elements - first));
}

/// Calls body(element, its place in the row, lanes) for the vectors of all rows.
template <class D, class Body>
HWY_INLINE void forRowVectors(D d, const ChannelRows& rows, Body&& body) {
  for (std::size_t first = 0; first < rows.elements; first += rows.length)
    forVectors(d, std::min(rows.length, rows.elements - first),
               [&](std::size_t i, auto lanes) { body(first + i, i, lanes); });
}

/// sums += x - shift, squares += (x - shift)^2, in float64. Both have room for a vector behind a row.
inline void addMoments(const ChannelRows& rows, ConstFloatRun x, const float* shifts, double* sums,
                       double* squares) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  forRowGroups(rows, [&](std::size_t first, auto rowsAtOnce, std::size_t count) {
    forVectors(d, count, [&](std::size_t i, auto lanes) {
      const auto shift = hn::PromoteTo(d, lanes.load(df, shifts + i));
      auto sum = hn::LoadU(d, sums + i);
      auto square = hn::LoadU(d, squares + i);
      for (std::size_t row = 0; row < rowsAtOnce; ++row) {
        const auto value = hn::PromoteTo(d, lanes.load(df, x + (first + row * rows.length + i)));
        const auto difference = usedLanes(d, lanes, hn::Sub(value, shift));
        sum = hn::Add(sum, difference);
        square = hn::MulAdd(difference, difference, square);
      }
      hn::StoreU(sum, d, sums + i);
      hn::StoreU(square, d, squares + i);
    });
  });
}

/// sums += g, products += g (x - mean), in float64. Both have room for a vector behind a row.
/// @param gradientOf g from a vector of x, of dy, and the place in the row: gradientOf(df, lanes, x, dy, i)
template <class GradientOf>
HWY_INLINE void addGradientProducts(const ChannelRows& rows, ConstFloatRun dy, ConstFloatRun x,
                                    const float* means, GradientOf&& gradientOf, double* sums,
                                    double* products) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  forRowGroups(rows, [&](std::size_t first, auto rowsAtOnce, std::size_t count) {
    forVectors(d, count, [&](std::size_t i, auto lanes) {
      const auto mean = hn::PromoteTo(d, lanes.load(df, means + i));
      auto sum = hn::LoadU(d, sums + i);
      auto product = hn::LoadU(d, products + i);
      for (std::size_t row = 0; row < rowsAtOnce; ++row) {
        const std::size_t at = first + row * rows.length + i;
        const auto value = lanes.load(df, x + at);
        const auto wide = hn::PromoteTo(d, gradientOf(df, lanes, value, lanes.load(df, dy + at), i));
        const auto difference = usedLanes(d, lanes, hn::Sub(hn::PromoteTo(d, value), mean));
        sum = hn::Add(sum, wide);
        product = hn::MulAdd(wide, difference, product);
      }
      hn::StoreU(sum, d, sums + i);
      hn::StoreU(product, d, products + i);
    });
  });
}

/// (x - mean) scale + shift, no two operations in one rounding.
template <class D, class Lanes, class V = hn::Vec<D>>
HWY_INLINE V onLine(D d, Lanes lanes, V x, const ChannelLine& line, std::size_t i) {
  const V difference = hn::Sub(x, lanes.load(d, line.mean + i));
  return hn::Add(hn::Mul(difference, lanes.load(d, line.scale + i)), lanes.load(d, line.shift + i));
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
