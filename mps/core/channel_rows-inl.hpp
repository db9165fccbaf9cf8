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

/// Four vectors of a row: what sums over rows keep in registers from row to row.
struct FourVectors {};

/// Calls body(first element, its place in the row, rows, lanes) for strips of a few vectors down a group of rows:
/// FourVectors as far as they go, then single vectors with the lanes of forVectors(), those of a shorter last row at the end.
/// @param group rows of a group
template <class D, class Body>
HWY_INLINE void forStrips(D d, const ChannelRows& rows, std::size_t group, Body&& body) {
  const std::size_t whole = rows.elements / rows.length;
  const std::size_t strip = 4 * hn::Lanes(d);
  for (std::size_t row = 0; row < whole;) {
    const std::size_t together = std::min(group, whole - row);
    const std::size_t first = row * rows.length;
    row += together;
    std::size_t i = 0;
    for (; i + strip <= rows.length; i += strip) body(first + i, i, together, FourVectors{});
    forVectors(d, rows.length - i,
               [&](std::size_t j, auto lanes) { body(first + i + j, i + j, together, lanes); });
  }
  forVectors(d, rows.elements % rows.length,
             [&](std::size_t j, auto lanes) { body(whole * rows.length + j, j, std::size_t{1}, lanes); });
}

/// Two float64 sums of each channel, along a row with room for a vector behind it.
struct TwoSums {
  double* first;
  double* second;
};

/// Whether strips ask for the same places of the next tile, where tiles lie one behind the other: gaps between the rows
/// of a strip are then longer than what processors foresee.
inline bool fetchesAhead(const ChannelRows& rows, ConstFloatRun x) {
  constexpr std::size_t longRow = 256;
  return rows.length * (x.isHalf ? sizeof(Float16) : sizeof(float)) > longRow;
}
template <std::size_t count>
HWY_INLINE void fetch(ConstFloatRun x) {
  constexpr std::size_t cacheLine = 64;
  const auto* const address = static_cast<const std::byte*>(x.address);
  __builtin_prefetch(address, 0, 2);
  if (!x.isHalf)
    for (std::size_t i = cacheLine; i < count * sizeof(float); i += cacheLine)
      __builtin_prefetch(address + i, 0, 2);
}

/// Calls add(element, its place in the row, lanes, shift, first, second), which adds to two vectors of sums, for all
/// vectors. @param shifts null: there are none, and `shift` is 0
/// @param inputs what is asked for ahead of `add`; two at once come sooner row by row
template <class D, class Add, class... Inputs>
HWY_INLINE void addTwoSums(D d, const ChannelRows& rows, const float* shifts, const TwoSums& sums, Add&& add,
                           Inputs... inputs) {
  using V = hn::Vec<D>;
  const hn::Rebind<float, D> df;
  const std::size_t step = hn::Lanes(d);
  const auto load = [&](const double* from) HWY_ATTR __attribute__((always_inline)) {
    return hn::LoadU(d, from);
  };
  const auto shiftAt = [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
    return shifts == nullptr ? hn::Zero(d) : hn::PromoteTo(d, lanes.load(df, shifts + i));
  };
  const bool fetches = (fetchesAhead(rows, inputs) || ...);
  // Memory delivers slowly what is read in many places at once, or with gaps, and was not asked for: a group is then a
  // kilobyte or two.
  constexpr std::size_t longRow = 128;
  const std::size_t group = rows.length < longRow || fetches ? 8 : 1;
  forStrips(
      d, rows, group,
      [&](std::size_t first, std::size_t i, std::size_t count, auto lanes) HWY_ATTR
      __attribute__((always_inline)) {
        double* const a = sums.first + i;
        double* const b = sums.second + i;
        V a0 = load(a);
        V b0 = load(b);
        if constexpr (std::is_same_v<decltype(lanes), FourVectors>) {
          V a1 = load(a + step);
          V a2 = load(a + 2 * step);
          V a3 = load(a + 3 * step);
          V b1 = load(b + step);
          V b2 = load(b + 2 * step);
          V b3 = load(b + 3 * step);
          const V s0 = shiftAt(i, AllLanes{});
          const V s1 = shiftAt(i + step, AllLanes{});
          const V s2 = shiftAt(i + 2 * step, AllLanes{});
          const V s3 = shiftAt(i + 3 * step, AllLanes{});
          for (std::size_t row = 0, at = first; row < count; ++row, at += rows.length) {
            if (fetches) (fetch<4 * hn::MaxLanes(D())>(inputs + (at + rows.elements)), ...);
            add(at, i, AllLanes{}, s0, a0, b0);
            add(at + step, i + step, AllLanes{}, s1, a1, b1);
            add(at + 2 * step, i + 2 * step, AllLanes{}, s2, a2, b2);
            add(at + 3 * step, i + 3 * step, AllLanes{}, s3, a3, b3);
          }
          hn::StoreU(a1, d, a + step);
          hn::StoreU(a2, d, a + 2 * step);
          hn::StoreU(a3, d, a + 3 * step);
          hn::StoreU(b1, d, b + step);
          hn::StoreU(b2, d, b + 2 * step);
          hn::StoreU(b3, d, b + 3 * step);
        } else {
          const V s0 = shiftAt(i, lanes);
          for (std::size_t row = 0; row < count; ++row) add(first + row * rows.length, i, lanes, s0, a0, b0);
        }
        hn::StoreU(a0, d, a);
        hn::StoreU(b0, d, b);
      });
}

/// Calls body(element, its place in the row, lanes) for the vectors of all rows.
template <class D, class Body>
HWY_INLINE void forRowVectors(D d, const ChannelRows& rows, Body&& body) {
  for (std::size_t first = 0; first < rows.elements; first += rows.length)
    forVectors(d, std::min(rows.length, rows.elements - first),
               [&](std::size_t i, auto lanes) { body(first + i, i, lanes); });
}

/// sums += x - shift, squares += (x - shift)^2, in float64. Both have room for a vector behind a row.
/// @param shifts null: none, as float16 allows (momentsFromSums)
inline void addMoments(const ChannelRows& rows, ConstFloatRun x, const float* shifts, double* sums,
                       double* squares) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  using V = hn::Vec<decltype(d)>;
  const auto addAll = [&](auto isShifted) HWY_ATTR __attribute__((always_inline)) {
    addTwoSums(
        d, rows, isShifted ? shifts : nullptr, {sums, squares},
        [&](std::size_t at, std::size_t /*i*/, auto lanes, V shift, V& sum, V& square) HWY_ATTR
        __attribute__((always_inline)) {
          V value = hn::PromoteTo(d, lanes.load(df, x + at));
          if constexpr (isShifted) value = usedLanes(d, lanes, hn::Sub(value, shift));
          sum = hn::Add(sum, value);
          square = hn::MulAdd(value, value, square);
        },
        x);
  };
  shifts == nullptr ? addAll(std::false_type()) : addAll(std::true_type());
}

/// sums += g, products += g (x - mean), in float64. Both have room for a vector behind a row.
/// @param means null: products of x itself, as float16 allows (subtractMeans)
/// @param gradientOf g from a vector of x, of dy, and the place in the row: gradientOf(df, lanes, x, dy, i)
template <class GradientOf>
HWY_INLINE void addGradientProducts(const ChannelRows& rows, ConstFloatRun dy, ConstFloatRun x,
                                    const float* means, GradientOf&& gradientOf, double* sums,
                                    double* products) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  using V = hn::Vec<decltype(d)>;
  const auto addAll = [&](auto isShifted) HWY_ATTR __attribute__((always_inline)) {
    addTwoSums(
        d, rows, isShifted ? means : nullptr, {sums, products},
        [&](std::size_t at, std::size_t i, auto lanes, V mean, V& sum, V& product) HWY_ATTR
        __attribute__((always_inline)) {
          const auto value = lanes.load(df, x + at);
          const V wide = hn::PromoteTo(d, gradientOf(df, lanes, value, lanes.load(df, dy + at), i));
          V difference = hn::PromoteTo(d, value);
          if constexpr (isShifted) difference = usedLanes(d, lanes, hn::Sub(difference, mean));
          sum = hn::Add(sum, wide);
          product = hn::MulAdd(wide, difference, product);
        });
  };
  means == nullptr ? addAll(std::false_type()) : addAll(std::true_type());
}

/// From sums of x - shift and of its squares over so many pixels to moments, in place. All have room for a vector behind
/// the channels.
/// @param shiftsLater they are sums of x and of its squares
inline void momentsFromSums(const ChannelLayout& layout, const float* shifts, double pixels, bool shiftsLater,
                            const ChannelMoments& moments) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  layout.fold(moments.mean);
  layout.fold(moments.squares);
  const auto count = hn::Set(d, pixels);
  for (std::size_t c = 0; c < static_cast<std::size_t>(layout.channels); c += hn::Lanes(d)) {
    const auto shift = hn::PromoteTo(d, hn::LoadU(df, shifts + c));
    auto sum = hn::LoadU(d, moments.mean + c);
    auto squares = hn::LoadU(d, moments.squares + c);
    if (shiftsLater) {
      squares = hn::NegMulAdd(shift, hn::NegMulAdd(count, shift, hn::Add(sum, sum)), squares);
      sum = hn::NegMulAdd(shift, count, sum);
    }
    const auto mean = hn::Div(sum, count);
    hn::StoreU(hn::Add(shift, mean), d, moments.mean + c);
    hn::StoreU(hn::NegMulAdd(sum, mean, squares), d, moments.squares + c);
  }
}

/// From sums of g and of g x to those of g (x - mean). All have room for a vector behind the channels.
inline void subtractMeans(std::size_t channels, const float* means, const double* sums, double* products) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  for (std::size_t c = 0; c < channels; c += hn::Lanes(d)) {
    const auto mean = hn::PromoteTo(d, hn::LoadU(df, means + c));
    const auto product = hn::NegMulAdd(mean, hn::LoadU(d, sums + c), hn::LoadU(d, products + c));
    hn::StoreU(product, d, products + c);
  }
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
