// Softmax of adjacent pixels, once per instruction set. Include it after hwy/highway.h in a file that
// hwy/foreach_target.h compiles several times; mps/core/highway_targets.hpp comes before both.

#if defined(UNMETAL_MPS_SOFTMAX_SOFTMAX_ROWS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_SOFTMAX_SOFTMAX_ROWS_INL_HPP
#undef UNMETAL_MPS_SOFTMAX_SOFTMAX_ROWS_INL_HPP
#else
#define UNMETAL_MPS_SOFTMAX_SOFTMAX_ROWS_INL_HPP
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "mps/core/tile_io.hpp"
#include "mps/core/vector_math-inl.hpp"
#include "mps/core/vector_runs-inl.hpp"
#include "mps/softmax/softmax_problem.hpp"

#ifndef UNMETAL_MPS_SOFTMAX_PACKED_PIXELS
#define UNMETAL_MPS_SOFTMAX_PACKED_PIXELS
namespace mps::detail {

/// Adjacent pixels of at most kPackedChannels channels.
struct PackedPixels {
  std::size_t pixels = 0;
  std::size_t channels = 0;
  const std::int32_t* pixelOfElement = nullptr;  ///< i / channels, for kPackedGroup pixels
};

/// Channels beyond which a pixel fills enough vectors of its own.
inline constexpr std::int64_t kPackedChannels = 128;
/// No vector has more lanes.
inline constexpr std::int64_t kPackedGroup = 16;

}  // namespace mps::detail
#endif

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

// Runs: the channels of a pixel, or some of them
// --------------------------------------------------------------------

/// The first lanes of v, `filler` behind them.
template <class D, class V>
HWY_INLINE V withFiller(D /*d*/, AllLanes /*lanes*/, V v, float /*filler*/) {
  return v;
}
template <class D, class V>
HWY_INLINE V withFiller(D d, FirstLanes lanes, V v, float filler) {
  return hn::IfThenElse(hn::FirstN(d, lanes.count), v, hn::Set(d, filler));
}

/// The largest x, in all lanes. NaN may be left out: it makes the sum of exponentials NaN.
template <class D>
HWY_INLINE hn::Vec<D> largest(D d, ConstFloatRun x, std::size_t count) {
  constexpr float lowest = -std::numeric_limits<float>::infinity();
  auto result = hn::Set(d, lowest);
  forVectors(d, count, [&](std::size_t i, auto lanes) {
    result = hn::Max(result, withFiller(d, lanes, lanes.load(d, x + i), lowest));
  });
  return hn::MaxOfLanes(d, result);
}

/// exp(x) for x <= 0, as exact as the result needs it.
/// @tparam isHalf the result is rounded to float16
template <bool isHalf, class D, class V>
HWY_INLINE V exponential(D d, V x) {
  if constexpr (isHalf)
    return vectorExpNonPositiveForHalf(d, x);
  else
    return vectorExpNonPositive(d, x);
}

/// sum exp(x - shift), in all lanes.
template <bool isHalf, class D, class V = hn::Vec<D>>
HWY_INLINE V exponentialSum(D d, ConstFloatRun x, std::size_t count, V shift) {
  auto sum = hn::Zero(d);
  forVectors(d, count, [&](std::size_t i, auto lanes) {
    const V e = exponential<isHalf>(d, hn::Sub(lanes.load(d, x + i), shift));
    sum = hn::Add(sum, withFiller(d, lanes, e, 0.0F));
  });
  return hn::SumOfLanes(d, sum);
}

/// y = exp(x - shift), and their sum in all lanes. y may be x.
template <bool isHalf, class D, class V = hn::Vec<D>>
HWY_INLINE V exponentials(D d, ConstFloatRun x, std::size_t count, V shift, float* y) {
  auto sum = hn::Zero(d);
  forVectors(d, count, [&](std::size_t i, auto lanes) {
    const V e = exponential<isHalf>(d, hn::Sub(lanes.load(d, x + i), shift));
    lanes.store(d, e, y + i);
    sum = hn::Add(sum, withFiller(d, lanes, e, 0.0F));
  });
  return hn::SumOfLanes(d, sum);
}

/// y = exponentials / sum.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void normalize(D d, const float* exponentials, std::size_t count, V sum, FloatRun y) {
  const V factor = hn::Div(hn::Set(d, 1.0F), sum);
  forVectors(d, count, [&](std::size_t i, auto lanes) {
    lanes.store(d, hn::Mul(lanes.load(d, exponentials + i), factor), y + i);
  });
}

/// y = x - shift - logarithm.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void subtractBoth(D d, ConstFloatRun x, std::size_t count, V shift, V logarithm, FloatRun y) {
  forVectors(d, count, [&](std::size_t i, auto lanes) {
    lanes.store(d, hn::Sub(hn::Sub(lanes.load(d, x + i), shift), logarithm), y + i);
  });
}

/// sum dy s, or sum dy, in all lanes.
template <class D>
HWY_INLINE hn::Vec<D> gradientSum(D d, SoftMaxKind kind, ConstFloatRun result, ConstFloatRun dy,
                                  std::size_t count) {
  auto sum = hn::Zero(d);
  if (kind == SoftMaxKind::SoftMax)
    forVectors(d, count, [&](std::size_t i, auto lanes) {
      sum = hn::MulAdd(lanes.load(d, dy + i), lanes.load(d, result + i), sum);
    });
  else
    forVectors(d, count, [&](std::size_t i, auto lanes) { sum = hn::Add(sum, lanes.load(d, dy + i)); });
  return hn::SumOfLanes(d, sum);
}

/// dx = s (dy - sum), or dy - exp(l) sum.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void finishGradient(D d, SoftMaxKind kind, ConstFloatRun result, ConstFloatRun dy,
                               std::size_t count, V sum, FloatRun dx) {
  if (kind == SoftMaxKind::SoftMax)
    forVectors(d, count, [&](std::size_t i, auto lanes) {
      lanes.store(d, hn::Mul(lanes.load(d, result + i), hn::Sub(lanes.load(d, dy + i), sum)), dx + i);
    });
  else
    forVectors(d, count, [&](std::size_t i, auto lanes) {
      lanes.store(d, hn::NegMulAdd(vectorExp(d, lanes.load(d, result + i)), sum, lanes.load(d, dy + i)),
                  dx + i);
    });
}

// Short pixels, packed
// -----------------------------------------------------------------------------------------------
//
// As many pixels as a vector has lanes fill as many vectors as they have channels, so that no lane is idle; what
// a pixel's channels share is looked up in the vector of those pixels. In passes over a tile: the processor
// overlaps pixels, but not the steps of one.

/// Room for a number per pixel or element of a tile, and for the rest of a vector behind the last one.
using Numbers = float[Tiling::capacity + hn::MaxLanes(hn::ScalableTag<float>())];

/// numbers[i] = function(numbers[i]).
template <class Function>
HWY_INLINE void replaceAll(std::size_t count, float* numbers, Function&& function) {
  const hn::ScalableTag<float> d;
  forVectors(d, count, [&](std::size_t i, auto lanes) {
    lanes.store(d, function(d, lanes.load(d, numbers + i)), numbers + i);
  });
}

/// Calls body(element, lanes, spread) for the vectors of a tile; spread(numbers) has the number of each
/// element's pixel.
template <class D, class Body>
HWY_INLINE void forPackedVectors(D d, const PackedPixels& tile, Body&& body) {
  const std::size_t group = hn::Lanes(d) * tile.channels;
  std::size_t inGroup = 0;
  std::size_t firstPixel = 0;
  // One loop without branches, not one for each group: a short loop ends with a misprediction.
  forVectors(
      d, tile.pixels * tile.channels, [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
        const auto indices = hn::SetTableIndices(d, tile.pixelOfElement + inGroup);
        const auto spread = [&](const float* numbers) HWY_ATTR __attribute__((always_inline)) {
          return hn::TableLookupLanes(hn::LoadU(d, numbers + firstPixel), indices);
        };
        body(i, lanes, spread);
        inGroup += hn::Lanes(d);
        const bool isLast = inGroup == group;
        inGroup = isLast ? 0 : inGroup;
        firstPixel += isLast ? hn::Lanes(d) : 0;
      });
}

/// sums[p] = the sum over the channels of a pixel of what value(element, lanes) returns, 0 in the lanes that
/// are not used.
template <class D, class Value>
HWY_INLINE void sumPixels(D d, const PackedPixels& tile, Value&& value, float* sums) {
  using V = hn::Vec<D>;
  reduceRows(
      d, tile.pixels,
      [&](std::size_t p) HWY_ATTR __attribute__((always_inline)) {
        V sum = hn::Zero(d);
        forVectors(
            d, tile.channels, [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
              sum = hn::Add(sum, value(p * tile.channels + i, lanes));
            });
        return sum;
      },
      [](V a, V b) { return hn::Add(a, b); }, sums);
}

/// shifts[p] = the largest channel of each pixel.
HWY_INLINE void largestOfPixels(const PackedPixels& tile, ConstFloatRun x, float* shifts) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  reduceRows(
      d, tile.pixels,
      [&](std::size_t p) HWY_ATTR __attribute__((always_inline)) {
        constexpr float lowest = -std::numeric_limits<float>::infinity();
        V result = hn::Set(d, lowest);
        forVectors(
            d, tile.channels, [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
              const V values = lanes.load(d, x + (p * tile.channels + i));
              result = hn::Max(result, withFiller(d, lanes, values, lowest));
            });
        return result;
      },
      [](V a, V b) { return hn::Max(a, b); }, shifts);
}

/// Whether no x lies so far below `shift` that exp(x - shift) would lose digits.
HWY_INLINE bool staysNormal(ConstFloatRun x, std::size_t count, float shift) {
  const hn::ScalableTag<float> d;
  auto smallest = hn::Set(d, shift);
  forVectors(d, count, [&](std::size_t i, auto lanes) {
    smallest = hn::Min(smallest, withFiller(d, lanes, lanes.load(d, x + i), shift));
  });
  return shift - hn::GetLane(hn::MinOfLanes(d, smallest)) < 87.0F;
}

/// Whether no sum is NaN or so small that the shift was far from the pixel's largest channel.
HWY_INLINE bool areWellScaled(std::size_t pixels, const float* sums) {
  const hn::ScalableTag<float> d;
  bool all = true;
  forVectors(d, pixels, [&](std::size_t i, auto lanes) {
    const auto values = withFiller(d, lanes, lanes.load(d, sums + i), 1.0F);
    all &= hn::AllTrue(d, hn::Ge(values, hn::Set(d, 0x1p-16F)));
  });
  return all;
}

template <bool isHalf>
HWY_INLINE void softMaxPackedPixels(SoftMaxKind kind, const PackedPixels& tile, ConstFloatRun x, FloatRun y) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  alignas(64) Numbers shifts;
  alignas(64) Numbers sums;
  alignas(64) Numbers exponentials;
  const auto sum = [&] {
    sumPixels(
        d, tile,
        [&](std::size_t i, auto lanes) HWY_ATTR
        __attribute__((always_inline)) { return lanes.load(d, exponentials + i); },
        sums);
  };
  // Any shift serves that is not far from a pixel's largest channel; one for the tile is cheaper.
  const V common = largest(d, x, tile.pixels * tile.channels);
  forVectors(
      d, tile.pixels * tile.channels, [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
        lanes.store(d, exponential<isHalf>(d, hn::Sub(lanes.load(d, x + i), common)), exponentials + i);
      });
  sum();
  const bool needsAllDigits = !isHalf && kind == SoftMaxKind::SoftMax;
  const bool isCommon = areWellScaled(tile.pixels, sums) &&
                        (!needsAllDigits || staysNormal(x, tile.pixels * tile.channels, hn::GetLane(common)));
  if (!isCommon) {
    largestOfPixels(tile, x, shifts);
    forPackedVectors(
        d, tile, [&](std::size_t i, auto lanes, auto spread) HWY_ATTR __attribute__((always_inline)) {
          const V shifted = hn::Sub(lanes.load(d, x + i), spread(shifts));
          lanes.store(d, exponential<isHalf>(d, shifted), exponentials + i);
        });
    sum();
  }
  if (kind == SoftMaxKind::SoftMax) {
    replaceAll(tile.pixels, sums, [](auto dn, auto sum) { return hn::Div(hn::Set(dn, 1.0F), sum); });
    forPackedVectors(
        d, tile, [&](std::size_t i, auto lanes, auto spread) HWY_ATTR __attribute__((always_inline)) {
          lanes.store(d, hn::Mul(lanes.load(d, exponentials + i), spread(sums)), y + i);
        });
    return;
  }
  replaceAll(tile.pixels, sums, [](auto dn, auto sum) { return vectorLog(dn, sum); });
  if (isCommon)
    forPackedVectors(
        d, tile, [&](std::size_t i, auto lanes, auto spread) HWY_ATTR __attribute__((always_inline)) {
          lanes.store(d, hn::Sub(hn::Sub(lanes.load(d, x + i), common), spread(sums)), y + i);
        });
  else
    forPackedVectors(
        d, tile, [&](std::size_t i, auto lanes, auto spread) HWY_ATTR __attribute__((always_inline)) {
          const V shifted = hn::Sub(lanes.load(d, x + i), spread(shifts));
          lanes.store(d, hn::Sub(shifted, spread(sums)), y + i);
        });
}

inline void softMaxPackedGradients(SoftMaxKind kind, const PackedPixels& tile, ConstFloatRun result,
                                   ConstFloatRun dy, FloatRun dx) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  alignas(64) Numbers sums;
  if (kind == SoftMaxKind::SoftMax) {
    const auto product = [&](std::size_t i, auto lanes) {
      return hn::Mul(lanes.load(d, dy + i), lanes.load(d, result + i));
    };
    sumPixels(d, tile, product, sums);
    forPackedVectors(d, tile, [&](std::size_t i, auto lanes, auto spread) {
      const V difference = hn::Sub(lanes.load(d, dy + i), spread(sums));
      lanes.store(d, hn::Mul(lanes.load(d, result + i), difference), dx + i);
    });
  } else {
    sumPixels(
        d, tile, [&](std::size_t i, auto lanes) { return lanes.load(d, dy + i); }, sums);
    forPackedVectors(d, tile, [&](std::size_t i, auto lanes, auto spread) {
      const V exponential = vectorExp(d, lanes.load(d, result + i));
      lanes.store(d, hn::NegMulAdd(exponential, spread(sums), lanes.load(d, dy + i)), dx + i);
    });
  }
}

// Longer pixels, one after the other
// ---------------------------------------------------------------------------------

template <bool isHalf>
HWY_INLINE void softMaxLongPixels(SoftMaxKind kind, std::size_t pixels, std::size_t channels, ConstFloatRun x,
                                  FloatRun y) {
  const hn::ScalableTag<float> d;
  alignas(64) float buffer[Tiling::capacity];
  for (std::size_t p = 0; p < pixels; ++p) {
    const ConstFloatRun from = x + p * channels;
    const FloatRun to = y + p * channels;
    const auto shift = largest(d, from, channels);
    if (kind == SoftMaxKind::SoftMax)
      normalize(d, buffer, channels, exponentials<isHalf>(d, from, channels, shift, buffer), to);
    else
      subtractBoth(d, from, channels, shift, vectorLog(d, exponentialSum<isHalf>(d, from, channels, shift)),
                   to);
  }
}

// Pixels of a few vectors, in registers
// -----------------------------------------------------------------------------------------------

// The bodies of the loops say always_inline: the compiler would call them.

/// Calls function(k) for k = 0 ... count - 1, each a constant: no loop, so that all stays in registers.
template <std::size_t count, std::size_t k = 0, class Function>
HWY_INLINE void forConstants(Function&& function) {
  if constexpr (k < count) {
    function(std::integral_constant<std::size_t, k>());
    forConstants<count, k + 1>(function);
  }
}

/// Pixels of so many vectors. If the last one is not whole, whole ones are written nevertheless, in order.
template <std::size_t vectors, bool isHalf>
HWY_INLINE void softMaxInRegisters(SoftMaxKind kind, std::size_t pixels, std::size_t channels,
                                   ConstFloatRun x, FloatRun y) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr float lowest = -std::numeric_limits<float>::infinity();
  const std::size_t step = hn::Lanes(d);
  const std::size_t rest = channels - (vectors - 1) * step;
  const auto load = [&](std::size_t p, auto k) HWY_ATTR __attribute__((always_inline)) {
    const ConstFloatRun from = x + (p * channels + k * step);
    if (k + 1 < vectors || rest == step) return AllLanes{}.load(d, from);
    return withFiller(d, FirstLanes{rest}, FirstLanes{rest}.load(d, from), lowest);
  };
  const auto store = [&](std::size_t p, auto k, V value) HWY_ATTR __attribute__((always_inline)) {
    AllLanes{}.store(d, value, y + (p * channels + k * step));
  };
  alignas(64) Numbers shifts;
  alignas(64) Numbers sums;
  const auto run = [&](std::size_t first, auto together) HWY_ATTR __attribute__((always_inline)) {
    V values[together * vectors];
    V shift[together];
    V sum[together];
    forConstants<together>([&](auto i) HWY_ATTR __attribute__((always_inline)) {
      shift[i] = hn::Set(d, lowest);
      forConstants<vectors>([&](auto k) HWY_ATTR __attribute__((always_inline)) {
        values[i * vectors + k] = load(first + i, k);
        shift[i] = hn::Max(shift[i], values[i * vectors + k]);
      });
    });
    forConstants<together>([&](auto i) HWY_ATTR __attribute__((always_inline)) {
      shift[i] = hn::MaxOfLanes(d, shift[i]);
      sum[i] = hn::Zero(d);
    });
    forConstants<together * vectors>([&](auto k) HWY_ATTR __attribute__((always_inline)) {
      constexpr std::size_t i = k / vectors;
      values[k] = exponential<isHalf>(d, hn::Sub(values[k], shift[i]));  // 0 where the filler is
      sum[i] = hn::Add(sum[i], values[k]);
    });
    forConstants<together>([&](auto i) HWY_ATTR __attribute__((always_inline)) {
      sum[i] = hn::SumOfLanes(d, sum[i]);
      if (kind == SoftMaxKind::SoftMax) {
        const V factor = hn::Div(hn::Set(d, 1.0F), sum[i]);
        forConstants<vectors>([&](auto k) HWY_ATTR __attribute__((always_inline)) {
          store(first + i, k, hn::Mul(values[i * vectors + k], factor));
        });
      } else {
        shifts[first + i] = hn::GetLane(shift[i]);
        sums[first + i] = hn::GetLane(sum[i]);
      }
    });
  };
  std::size_t p = 0;
  for (; p + 2 <= pixels; p += 2) run(p, std::integral_constant<std::size_t, 2>());
  if (p < pixels) run(p, std::integral_constant<std::size_t, 1>());
  if (kind == SoftMaxKind::SoftMax) return;
  // A logarithm costs as much for one pixel as for a vector of them.
  replaceAll(pixels, sums, [](auto dn, auto sum) { return vectorLog(dn, sum); });
  for (p = 0; p < pixels; ++p)
    forConstants<vectors>([&](auto k) HWY_ATTR __attribute__((always_inline)) {
      store(p, k, hn::Sub(hn::Sub(load(p, k), hn::Set(d, shifts[p])), hn::Set(d, sums[p])));
    });
}

/// Writes `count` values past the caches where whole vectors are aligned.
template <class T>
HWY_INLINE void streamValues(const T* from, std::size_t count, T* to) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t bytes = count * sizeof(T);
  const auto* source = reinterpret_cast<const std::uint8_t*>(from);
  auto* target = reinterpret_cast<std::uint8_t*>(to);
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(target) % hn::Lanes(d);
  std::size_t i = std::min(misaligned == 0 ? 0 : hn::Lanes(d) - misaligned, bytes);
  std::memcpy(target, source, i);
  for (; i + hn::Lanes(d) <= bytes; i += hn::Lanes(d)) hn::Stream(hn::LoadU(d, source + i), d, target + i);
  std::memcpy(target + i, source + i, bytes - i);
}

/// Most vectors of softMaxInRegisters().
inline constexpr std::size_t kRegisterVectors = 4;

template <bool isHalf>
HWY_INLINE void softMaxPixelsOf(SoftMaxKind kind, std::size_t pixels, std::size_t channels, ConstFloatRun x,
                                FloatRun y) {
  const std::size_t lanes = hn::Lanes(hn::ScalableTag<float>());
  switch ((channels + lanes - 1) / lanes) {
    case 1:
      return softMaxInRegisters<1, isHalf>(kind, pixels, channels, x, y);
    case 2:
      return softMaxInRegisters<2, isHalf>(kind, pixels, channels, x, y);
    case 3:
      return softMaxInRegisters<3, isHalf>(kind, pixels, channels, x, y);
    case kRegisterVectors:
      return softMaxInRegisters<kRegisterVectors, isHalf>(kind, pixels, channels, x, y);
    default:
      return softMaxLongPixels<isHalf>(kind, pixels, channels, x, y);
  }
}

/// Pixels one after the other.
/// @tparam T of the result
template <class T>
HWY_INLINE void softMaxPixels(SoftMaxKind kind, std::size_t pixels, std::size_t channels, ConstFloatRun x,
                              FloatRun y) {
  constexpr bool isHalf = std::is_same_v<T, Float16>;
  constexpr std::size_t lanes = hn::MaxLanes(hn::ScalableTag<float>());
  if (channels % lanes == 0 || (channels > kRegisterVectors * lanes && !y.isStreamed))
    return softMaxPixelsOf<isHalf>(kind, pixels, channels, x, y);
  // Room for whole vectors; and of the pixels few are aligned, while the tile is.
  alignas(64) T results[Tiling::capacity + lanes];
  softMaxPixelsOf<isHalf>(kind, pixels, channels, x, FloatRun(results));
  if (y.isStreamed)
    streamValues(results, pixels * channels, static_cast<T*>(y.address));
  else
    std::memcpy(y.address, results, pixels * channels * sizeof(T));
}

inline void softMaxTile(SoftMaxKind kind, const PackedPixels& tile, ConstFloatRun x, FloatRun y) {
  const std::size_t lanes = hn::Lanes(hn::ScalableTag<float>());
  const std::size_t vectors = (tile.channels + lanes - 1) / lanes;
  // Few lanes may be idle.
  const bool fitsRegisters = vectors <= kRegisterVectors && 8 * tile.channels >= 7 * vectors * lanes;
  if (tile.pixelOfElement != nullptr && !fitsRegisters)
    y.isHalf ? softMaxPackedPixels<true>(kind, tile, x, y) : softMaxPackedPixels<false>(kind, tile, x, y);
  else if (y.isHalf)
    softMaxPixels<Float16>(kind, tile.pixels, tile.channels, x, y);
  else
    softMaxPixels<float>(kind, tile.pixels, tile.channels, x, y);
}

inline void softMaxGradientPixels(SoftMaxKind kind, std::size_t pixels, std::size_t channels,
                                  ConstFloatRun result, ConstFloatRun dy, FloatRun dx) {
  const hn::ScalableTag<float> d;
  for (std::size_t p = 0; p < pixels; ++p) {
    const ConstFloatRun s = result + p * channels;
    const ConstFloatRun g = dy + p * channels;
    finishGradient(d, kind, s, g, channels, gradientSum(d, kind, s, g, channels), dx + p * channels);
  }
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
