// Softmax of adjacent pixels, once per instruction set. Include it after hwy/highway.h in a file that
// hwy/foreach_target.h compiles several times; mps/core/highway_targets.hpp comes before both.

#if defined(UNMETAL_MPS_SOFTMAX_SOFTMAX_ROWS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_SOFTMAX_SOFTMAX_ROWS_INL_HPP
#undef UNMETAL_MPS_SOFTMAX_SOFTMAX_ROWS_INL_HPP
#else
#define UNMETAL_MPS_SOFTMAX_SOFTMAX_ROWS_INL_HPP
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "mps/core/streamed_runs-inl.hpp"
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

// The compiler would call the bodies of the loops, and then keep all constants in memory. Sanitized builds may: what
// they add to every access makes inlined and unrolled bodies slow to compile.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define UNMETAL_INLINE_BODY HWY_ATTR
#define UNMETAL_UNROLL(factor)
#else
#define UNMETAL_INLINE_BODY HWY_ATTR __attribute__((always_inline))
#define UNMETAL_UNROLL(factor) HWY_UNROLL(factor)
#endif

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

/// Asks for what lies `count` values behind a place of a run: the next pixel or tile, while the processor computes.
HWY_INLINE void prefetch(ConstFloatRun x, std::size_t i, std::size_t count) {
  hwy::Prefetch(static_cast<const std::byte*>((x + (i + count)).address));
}

/// sum exp(x - shift), in all lanes.
template <bool isHalf, class D, class V = hn::Vec<D>>
HWY_INLINE V exponentialSum(D d, ConstFloatRun x, std::size_t count, V shift) {
  auto sum = hn::Zero(d);
  forVectors(d, count, [&](std::size_t i, auto lanes) {
    prefetch(x, i, count);
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
    prefetch(x, i, count);
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
  forVectors(d, tile.pixels * tile.channels, [&](std::size_t i, auto lanes) UNMETAL_INLINE_BODY {
    const auto indices = hn::SetTableIndices(d, tile.pixelOfElement + inGroup);
    const auto spread = [&](const float* numbers) UNMETAL_INLINE_BODY {
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
      [&](std::size_t p) UNMETAL_INLINE_BODY {
        V sum = hn::Zero(d);
        forVectors(d, tile.channels, [&](std::size_t i, auto lanes) UNMETAL_INLINE_BODY {
          sum = hn::Add(sum, value(p * tile.channels + i, lanes));
        });
        return sum;
      },
      [](V a, V b) { return hn::Add(a, b); }, sums);
}

/// shifts[p] = the largest channel of each pixel.
inline void largestOfPixels(const PackedPixels& tile, ConstFloatRun x, float* shifts) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  reduceRows(
      d, tile.pixels,
      [&](std::size_t p) UNMETAL_INLINE_BODY {
        constexpr float lowest = -std::numeric_limits<float>::infinity();
        V result = hn::Set(d, lowest);
        forVectors(d, tile.channels, [&](std::size_t i, auto lanes) UNMETAL_INLINE_BODY {
          const V values = lanes.load(d, x + (p * tile.channels + i));
          result = hn::Max(result, withFiller(d, lanes, values, lowest));
        });
        return result;
      },
      [](V a, V b) { return hn::Max(a, b); }, shifts);
}

/// Whether no x lies so far below `shift` that exp(x - shift) would lose digits.
inline bool staysNormal(ConstFloatRun x, std::size_t count, float shift) {
  const hn::ScalableTag<float> d;
  auto smallest = hn::Set(d, shift);
  forVectors(d, count, [&](std::size_t i, auto lanes) {
    smallest = hn::Min(smallest, withFiller(d, lanes, lanes.load(d, x + i), shift));
  });
  return shift - hn::GetLane(hn::MinOfLanes(d, smallest)) < 87.0F;
}

/// Whether no sum is NaN or so small that the shift was far from the pixel's largest channel.
inline bool areWellScaled(std::size_t pixels, const float* sums) {
  const hn::ScalableTag<float> d;
  bool all = true;
  forVectors(d, pixels, [&](std::size_t i, auto lanes) {
    const auto values = withFiller(d, lanes, lanes.load(d, sums + i), 1.0F);
    all &= hn::AllTrue(d, hn::Ge(values, hn::Set(d, 0x1p-16F)));
  });
  return all;
}

template <bool isHalf>
void softMaxPackedPixels(SoftMaxKind kind, const PackedPixels& tile, ConstFloatRun x, FloatRun y) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  alignas(64) Numbers shifts;
  alignas(64) Numbers sums;
  alignas(64) Numbers exponentials;
  const auto sum = [&] {
    sumPixels(
        d, tile,
        [&](std::size_t i, auto lanes) UNMETAL_INLINE_BODY { return lanes.load(d, exponentials + i); }, sums);
  };
  // Any shift serves that is not far from a pixel's largest channel; one for the tile is cheaper.
  const std::size_t count = tile.pixels * tile.channels;
  const V common = largest(d, x, count);
  forVectors(d, count, [&](std::size_t i, auto lanes) UNMETAL_INLINE_BODY {
    prefetch(x, i, count);
    lanes.store(d, exponential<isHalf>(d, hn::Sub(lanes.load(d, x + i), common)), exponentials + i);
  });
  sum();
  const bool needsAllDigits = !isHalf && kind == SoftMaxKind::SoftMax;
  const bool isCommon =
      areWellScaled(tile.pixels, sums) && (!needsAllDigits || staysNormal(x, count, hn::GetLane(common)));
  if (!isCommon) {
    largestOfPixels(tile, x, shifts);
    forPackedVectors(d, tile, [&](std::size_t i, auto lanes, auto spread) UNMETAL_INLINE_BODY {
      const V shifted = hn::Sub(lanes.load(d, x + i), spread(shifts));
      lanes.store(d, exponential<isHalf>(d, shifted), exponentials + i);
    });
    sum();
  }
  if (kind == SoftMaxKind::SoftMax) {
    replaceAll(tile.pixels, sums, [](auto dn, auto sum) { return hn::Div(hn::Set(dn, 1.0F), sum); });
    forPackedVectors(d, tile, [&](std::size_t i, auto lanes, auto spread) UNMETAL_INLINE_BODY {
      lanes.store(d, hn::Mul(lanes.load(d, exponentials + i), spread(sums)), y + i);
    });
    return;
  }
  replaceAll(tile.pixels, sums, [](auto dn, auto sum) { return vectorLog(dn, sum); });
  if (isCommon)
    forPackedVectors(d, tile, [&](std::size_t i, auto lanes, auto spread) UNMETAL_INLINE_BODY {
      lanes.store(d, hn::Sub(hn::Sub(lanes.load(d, x + i), common), spread(sums)), y + i);
    });
  else
    forPackedVectors(d, tile, [&](std::size_t i, auto lanes, auto spread) UNMETAL_INLINE_BODY {
      const V shifted = hn::Sub(lanes.load(d, x + i), spread(shifts));
      lanes.store(d, hn::Sub(shifted, spread(sums)), y + i);
    });
}

// Longer pixels, one after the other
// ---------------------------------------------------------------------------------

template <bool isHalf>
void softMaxLongPixels(SoftMaxKind kind, std::size_t pixels, std::size_t channels, ConstFloatRun x,
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

/// Vectors of a pixel of softMaxInRegisters(), and its pixels at once: the processor overlaps them.
inline constexpr std::size_t kRegisterVectors = 4;
inline constexpr std::size_t kRegisterPixels = 2;

/// Pixels of so many vectors; the last vector of each may have lanes that are not used.
template <bool isHalf>
void softMaxInRegisters(SoftMaxKind kind, std::size_t pixels, std::size_t channels, ConstFloatRun x,
                        FloatRun y) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr float lowest = -std::numeric_limits<float>::infinity();
  const std::size_t step = hn::Lanes(d);
  const std::size_t rest = channels - (kRegisterVectors - 1) * step;
  const auto load = [&](std::size_t p, std::size_t k) UNMETAL_INLINE_BODY {
    const ConstFloatRun from = x + (p * channels + k * step);
    if (k + 1 < kRegisterVectors || rest == step) return AllLanes{}.load(d, from);
    return withFiller(d, FirstLanes{rest}, FirstLanes{rest}.load(d, from), lowest);
  };
  const auto store = [&](std::size_t p, std::size_t k, V value) UNMETAL_INLINE_BODY {
    const FloatRun to = y + (p * channels + k * step);
    if (k + 1 < kRegisterVectors || rest == step) return AllLanes{}.store(d, value, to);
    FirstLanes{rest}.store(d, value, to);
  };
  alignas(64) Numbers shifts;
  alignas(64) Numbers sums;
  std::size_t p = 0;
  for (; p + kRegisterPixels <= pixels; p += kRegisterPixels) {
    V values[kRegisterPixels * kRegisterVectors];
    V shift[kRegisterPixels];
    V sum[kRegisterPixels];
    UNMETAL_UNROLL(8)
    for (std::size_t k = 0; k < kRegisterPixels * kRegisterVectors; ++k) {
      const std::size_t i = k / kRegisterVectors;
      values[k] = load(p + i, k % kRegisterVectors);
      shift[i] = k % kRegisterVectors == 0 ? values[k] : hn::Max(shift[i], values[k]);
    }
    shift[0] = hn::MaxOfLanes(d, shift[0]);
    shift[1] = hn::MaxOfLanes(d, shift[1]);
    UNMETAL_UNROLL(8)
    for (std::size_t k = 0; k < kRegisterPixels * kRegisterVectors; ++k) {
      const std::size_t i = k / kRegisterVectors;
      values[k] = exponential<isHalf>(d, hn::Sub(values[k], shift[i]));  // 0 where the filler is
      sum[i] = k % kRegisterVectors == 0 ? values[k] : hn::Add(sum[i], values[k]);
    }
    sum[0] = hn::SumOfLanes(d, sum[0]);
    sum[1] = hn::SumOfLanes(d, sum[1]);
    if (kind == SoftMaxKind::SoftMax) {
      const V factors[kRegisterPixels] = {hn::Div(hn::Set(d, 1.0F), sum[0]),
                                          hn::Div(hn::Set(d, 1.0F), sum[1])};
      UNMETAL_UNROLL(8)
      for (std::size_t k = 0; k < kRegisterPixels * kRegisterVectors; ++k)
        store(p + k / kRegisterVectors, k % kRegisterVectors,
              hn::Mul(values[k], factors[k / kRegisterVectors]));
    } else {
      for (std::size_t i = 0; i < kRegisterPixels; ++i) {
        shifts[p + i] = hn::GetLane(shift[i]);
        sums[p + i] = hn::GetLane(sum[i]);
      }
    }
  }
  if (kind == SoftMaxKind::LogSoftMax) {
    // A logarithm costs as much for one pixel as for a vector of them.
    replaceAll(p, sums, [](auto dn, auto sum) { return vectorLog(dn, sum); });
    for (std::size_t q = 0; q < p; ++q) {
      UNMETAL_UNROLL(4)
      for (std::size_t k = 0; k < kRegisterVectors; ++k)
        store(q, k, hn::Sub(hn::Sub(load(q, k), hn::Set(d, shifts[q])), hn::Set(d, sums[q])));
    }
  }
  softMaxLongPixels<isHalf>(kind, pixels - p, channels, x + p * channels, y + p * channels);
}

/// Pixels one after the other.
/// @tparam T of the result
template <class T>
void softMaxPixels(SoftMaxKind kind, std::size_t pixels, std::size_t channels, ConstFloatRun x, FloatRun y) {
  constexpr bool isHalf = std::is_same_v<T, Float16>;
  if (!y.isStreamed || channels % hn::Lanes(hn::ScalableTag<float>()) == 0)
    return softMaxLongPixels<isHalf>(kind, pixels, channels, x, y);
  // Few of the pixels are aligned, the tile is.
  alignas(64) T results[Tiling::capacity];
  softMaxLongPixels<isHalf>(kind, pixels, channels, x, FloatRun(results));
  streamValues(results, pixels * channels, static_cast<T*>(y.address));
}

/// The tile by the fastest way.
/// @tparam T of the result
template <class T>
void softMaxTileOf(SoftMaxKind kind, const PackedPixels& tile, ConstFloatRun x, FloatRun y) {
  constexpr bool isHalf = std::is_same_v<T, Float16>;
  const std::size_t registers = kRegisterVectors * hn::Lanes(hn::ScalableTag<float>());
  // Few lanes may be idle.
  if (tile.channels <= registers && 8 * tile.channels >= 7 * registers)
    softMaxInRegisters<isHalf>(kind, tile.pixels, tile.channels, x, y);
  else if (tile.pixelOfElement != nullptr)
    softMaxPackedPixels<isHalf>(kind, tile, x, y);
  else
    softMaxPixels<T>(kind, tile.pixels, tile.channels, x, y);
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
