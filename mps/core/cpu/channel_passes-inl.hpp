// Passes over rows of pixels: two float64 sums of every channel, or elements by numbers of their channels; once per
// instruction set. Include it after hwy/highway.h in a file that hwy/foreach_target.h compiles several times; mps/core/cpu/highway_targets.hpp comes before both.

#if defined(UNMETAL_MPS_CORE_CHANNEL_PASSES_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_CORE_CHANNEL_PASSES_INL_HPP
#undef UNMETAL_MPS_CORE_CHANNEL_PASSES_INL_HPP
#else
#define UNMETAL_MPS_CORE_CHANNEL_PASSES_INL_HPP
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <type_traits>

#include "mps/core/cpu/channel_layout.hpp"
#include "mps/core/cpu/channel_rows-inl.hpp"
#include "mps/core/cpu/float16_runs-inl.hpp"
#include "mps/core/cpu/vector_runs-inl.hpp"
#include "mps/core/types/float_run.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// Two float64 sums of each channel, along a row with room for a vector behind it.
struct ChannelSums {
  double* first;
  double* second;
};

/// Asks for the memory of `count` values, which will be read soon.
template <std::size_t count>
HWY_INLINE void fetchValues(ConstFloatRun x) {
  constexpr std::size_t cacheLine = 64;
  constexpr std::size_t halfBytes = count * sizeof(Float16);
  constexpr std::size_t halfLines = (halfBytes + cacheLine - 1) / cacheLine;
  const auto* const address = static_cast<const std::byte*>(x.address);
  for (std::size_t i = 0; i < halfLines; ++i) __builtin_prefetch(address + i * cacheLine, 0, 2);
  if (!x.isHalf)
    for (std::size_t i = halfLines; i * cacheLine < 2 * halfBytes; ++i)
      __builtin_prefetch(address + i * cacheLine, 0, 2);
}

/// Calls add(element, its place in the row, lanes, shift, first, second), which adds to two vectors of sums, for all
/// vectors. @param shifts null: there are none, and `shift` is 0
/// @param inputs what `add` reads: the same places of the next tile, where tiles lie one behind the other, are asked for
/// ahead. Processors do not foresee the way down a strip, nor fast enough two inputs at once.
template <class D, class Add, class... Inputs>
HWY_INLINE void addChannelSums(D d, const ChannelRows& rows, const float* shifts, const ChannelSums& sums,
                               Add&& add, Inputs... inputs) {
  using V = hn::Vec<D>;
  const hn::Rebind<float, D> df;
  const std::size_t step = hn::Lanes(d);
  const auto shiftAt = [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
    return shifts == nullptr ? hn::Zero(d) : hn::PromoteTo(d, lanes.load(df, shifts + i));
  };
  // Of each vector two sums and a shift stay in registers: there are 32 with AVX-512, with other sets mostly 16.
  constexpr std::size_t mostVectors = hn::MaxLanes(D()) >= 8 ? 8 : 4;
  forStrips<mostVectors>(
      d, rows, rowsTogether(rows),
      [&](std::size_t first, std::size_t i, std::size_t count, auto lanes) HWY_ATTR
      __attribute__((always_inline)) {
        if constexpr (isStrip<decltype(lanes)>) {
          constexpr std::size_t vectors = decltype(lanes)::vectors;
          V a[vectors];
          V b[vectors];
          V shift[vectors];
          unrolled<vectors>([&](auto k) HWY_ATTR __attribute__((always_inline)) {
            a[k] = hn::LoadU(d, sums.first + i + k * step);
            b[k] = hn::LoadU(d, sums.second + i + k * step);
            shift[k] = shiftAt(i + k * step, AllLanes{});
          });
          for (std::size_t row = 0, at = first; row < count; ++row, at += rows.length) {
            (fetchValues<vectors * hn::MaxLanes(D())>(inputs + (at + rows.elements)), ...);
            unrolled<vectors>([&](auto k) HWY_ATTR __attribute__((always_inline)) {
              add(at + k * step, i + k * step, AllLanes{}, shift[k], a[k], b[k]);
            });
          }
          unrolled<vectors>([&](auto k) HWY_ATTR __attribute__((always_inline)) {
            hn::StoreU(a[k], d, sums.first + i + k * step);
            hn::StoreU(b[k], d, sums.second + i + k * step);
          });
        } else {
          V a = hn::LoadU(d, sums.first + i);
          V b = hn::LoadU(d, sums.second + i);
          const V shift = shiftAt(i, lanes);
          for (std::size_t row = 0; row < count; ++row) add(first + row * rows.length, i, lanes, shift, a, b);
          hn::StoreU(a, d, sums.first + i);
          hn::StoreU(b, d, sums.second + i);
        }
      });
}

/// Formats of all runs, where the compiler knows them.
struct AnyFormats {
  template <class Run>
  static HWY_INLINE Run of(Run run) {
    return run;
  }
};
template <bool isHalf>
struct KnownFormats {
  template <class Run>
  static HWY_INLINE Run of(Run run) {
    run.isHalf = isHalf;
    return run;
  }
};
/// Calls body(formats) for runs of which so many are float16.
template <class Body>
HWY_INLINE void withFormats(std::size_t float16Count, std::size_t runs, Body&& body) {
  if (float16Count == runs)
    body(KnownFormats<true>());
  else if (float16Count == 0)
    body(KnownFormats<false>());
  else
    body(AnyFormats());
}

/// sums += x - shift, squares += (x - shift)^2, in float64. Both have room for a vector behind a row.
/// @param shifts of float32 alone; null: none, as float16 allows (momentsFromSums)
inline void sumMoments(const ChannelRows& rows, ConstFloatRun x, const float* shifts, double* sums,
                       double* squares) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  using V = hn::Vec<decltype(d)>;
  const auto addAll = [&](auto formats, auto isShifted) HWY_ATTR __attribute__((always_inline)) {
    const ConstFloatRun values = formats.of(x);
    addChannelSums(
        d, rows, isShifted ? shifts : nullptr, {sums, squares},
        [&](std::size_t at, std::size_t /*i*/, auto lanes, V shift, V& sum, V& square) HWY_ATTR
        __attribute__((always_inline)) {
          V value = hn::PromoteTo(d, lanes.load(df, values + at));
          if constexpr (isShifted) value = usedLanes(d, lanes, hn::Sub(value, shift));
          sum = hn::Add(sum, value);
          square = hn::MulAdd(value, value, square);
        },
        values);
  };
  if (shifts != nullptr)
    addAll(KnownFormats<false>(), std::true_type());
  else
    x.isHalf ? addAll(KnownFormats<true>(), std::false_type())
             : addAll(KnownFormats<false>(), std::false_type());
}

/// sums += g, products += g (x - mean), in float64. Both have room for a vector behind a row.
/// @param means null: products of x itself, as float16 allows (subtractMeans)
/// @param gradientOf g from a vector of x, of dy, and the place in the row: gradientOf(df, lanes, x, dy, i)
template <class GradientOf>
HWY_INLINE void sumGradientProducts(const ChannelRows& rows, ConstFloatRun dy, ConstFloatRun x,
                                    const float* means, GradientOf&& gradientOf, double* sums,
                                    double* products) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  using V = hn::Vec<decltype(d)>;
  const auto addAll = [&](auto isShifted) HWY_ATTR __attribute__((always_inline)) {
    addChannelSums(
        d, rows, isShifted ? means : nullptr, {sums, products},
        [&](std::size_t at, std::size_t i, auto lanes, V mean, V& sum, V& product) HWY_ATTR
        __attribute__((always_inline)) {
          const auto value = lanes.load(df, x + at);
          const V wide = hn::PromoteTo(d, gradientOf(df, lanes, value, lanes.load(df, dy + at), i));
          V difference = hn::PromoteTo(d, value);
          if constexpr (isShifted) difference = usedLanes(d, lanes, hn::Sub(difference, mean));
          sum = hn::Add(sum, wide);
          product = hn::MulAdd(wide, difference, product);
        },
        x, dy);
  };
  means == nullptr ? addAll(std::false_type()) : addAll(std::true_type());
}

/// Calls body(element, lanes, numbers) for the vectors of all rows, a few of them down some rows together: their
/// numbers, load(place in the row, lanes), stay in registers. @param group rows of a group
template <class D, class Load, class Body>
HWY_INLINE void forNumberedVectors(D d, const ChannelRows& rows, std::size_t group, Load&& load,
                                   Body&& body) {
  const std::size_t step = hn::Lanes(d);
  forStrips(
      d, rows, group,
      [&](std::size_t first, std::size_t i, std::size_t count, auto lanes) HWY_ATTR
      __attribute__((always_inline)) {
        if constexpr (std::is_same_v<decltype(lanes), FourVectors>) {
          const auto numbers0 = load(i, AllLanes{});
          const auto numbers1 = load(i + step, AllLanes{});
          const auto numbers2 = load(i + 2 * step, AllLanes{});
          const auto numbers3 = load(i + 3 * step, AllLanes{});
          for (std::size_t row = 0, at = first; row < count; ++row, at += rows.length) {
            body(at, AllLanes{}, numbers0);
            body(at + step, AllLanes{}, numbers1);
            body(at + 2 * step, AllLanes{}, numbers2);
            body(at + 3 * step, AllLanes{}, numbers3);
          }
        } else {
          const auto numbers = load(i, lanes);
          for (std::size_t row = 0; row < count; ++row) body(first + row * rows.length, lanes, numbers);
        }
      });
}

/// The lines of a vector of channels.
template <class D>
struct LineVectors {
  hn::Vec<D> mean;
  hn::Vec<D> scale;
  hn::Vec<D> shift;
};
template <class D, class Lanes>
HWY_INLINE LineVectors<D> lineVectors(D d, Lanes lanes, const ChannelLine& line, std::size_t i) {
  return {lanes.load(d, line.mean + i), lanes.load(d, line.scale + i), lanes.load(d, line.shift + i)};
}

/// y = (x - mean) scale + shift. y may be x. @param areNear whether x lies in a cache already
inline void normalizeRows(const ChannelRows& rows, ConstFloatRun x, const ChannelLine& line, bool areNear,
                          FloatRun y) {
  const hn::ScalableTag<float> d;
  const std::size_t group = areNear ? kMostRowsTogether : rowsTogether(rows);
  withFormats(
      std::size_t{x.isHalf} + y.isHalf, 2, [&](auto formats) HWY_ATTR __attribute__((always_inline)) {
        const ConstFloatRun from = formats.of(x);
        const FloatRun to = formats.of(y);
        forNumberedVectors(
            d, rows, group,
            [&](std::size_t i, auto lanes) HWY_ATTR
            __attribute__((always_inline)) { return lineVectors(d, lanes, line, i); },
            [&](std::size_t at, auto lanes, const auto& own) HWY_ATTR __attribute__((always_inline)) {
              const auto difference = hn::Sub(lanes.load(d, from + at), own.mean);
              lanes.store(d, hn::Add(hn::Mul(difference, own.scale), own.shift), to + at);
            });
      });
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
