// Sums and lines of every channel over rows of pixels, once per instruction set. Include it after
// hwy/highway.h in a file that hwy/foreach_target.h compiles several times; mps/core/cpu/highway_targets.hpp comes
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

#include "mps/core/cpu/channel_layout.hpp"
#include "mps/core/cpu/vector_runs-inl.hpp"
#include "mps/core/types/float_run.hpp"

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

/// Vectors of a row: what sums over rows keep in registers from row to row.
template <std::size_t count>
struct Strip {
  static constexpr std::size_t vectors = count;
};
using FourVectors = Strip<4>;
template <class Lanes>
inline constexpr bool isStrip = false;
template <std::size_t vectors>
inline constexpr bool isStrip<Strip<vectors>> = true;

constexpr std::size_t kMostRowsTogether = 8;
/// Rows whose sums or numbers stay in registers where they come from memory, which gives long ones sooner one by one.
HWY_INLINE std::size_t rowsTogether(const ChannelRows& rows) {
  constexpr std::size_t longRow = 128;
  return rows.length < longRow ? kMostRowsTogether : 1;
}

/// Calls body(first element, its place in the row, rows, lanes) for strips of a few vectors down a group of rows:
/// FourVectors as far as they go, then single vectors with the lanes of forVectors(), those of a shorter last row at the
/// end. Rows of just `most` vectors are one strip, down all of them: memory is read in its order.
/// @param group rows of a group
template <std::size_t most = 4, class D, class Body>
HWY_INLINE void forStrips(D d, const ChannelRows& rows, std::size_t group, Body&& body) {
  const std::size_t whole = rows.elements / rows.length;
  const std::size_t strip = FourVectors::vectors * hn::Lanes(d);
  std::size_t row = 0;
  if constexpr (most * hn::MaxLanes(D()) >= ChannelLayout::shortestRow) {
    if (rows.length == most * hn::Lanes(d) && whole > 0) {
      body(std::size_t{0}, std::size_t{0}, whole, Strip<most>());
      row = whole;
    }
  }
  while (row < whole) {
    const std::size_t together = std::min(group, whole - row);
    const std::size_t first = row * rows.length;
    row += together;
    std::size_t i = 0;
    for (; i + strip <= rows.length; i += strip) body(first + i, i, together, FourVectors());
    forVectors(
        d, rows.length - i, [&](std::size_t j, auto lanes) HWY_ATTR __attribute__((always_inline)) {
          body(first + i + j, i + j, together, lanes);
        });
  }
  forVectors(
      d, rows.elements % rows.length, [&](std::size_t j, auto lanes) HWY_ATTR __attribute__((always_inline)) {
        body(whole * rows.length + j, j, std::size_t{1}, lanes);
      });
}

/// Calls body(element, its place in the row, lanes) for the vectors of all rows.
template <class D, class Body>
HWY_INLINE void forRowVectors(D d, const ChannelRows& rows, Body&& body) {
  for (std::size_t first = 0; first < rows.elements; first += rows.length)
    forVectors(d, std::min(rows.length, rows.elements - first),
               [&](std::size_t i, auto lanes) { body(first + i, i, lanes); });
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
