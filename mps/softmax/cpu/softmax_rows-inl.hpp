// Softmax of adjacent pixels, once per instruction set. Include it after hwy/highway.h in a file that
// hwy/foreach_target.h compiles several times; mps/core/cpu/highway_targets.hpp comes before both.

#if defined(UNMETAL_MPS_SOFTMAX_SOFTMAX_ROWS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_SOFTMAX_SOFTMAX_ROWS_INL_HPP
#undef UNMETAL_MPS_SOFTMAX_SOFTMAX_ROWS_INL_HPP
#else
#define UNMETAL_MPS_SOFTMAX_SOFTMAX_ROWS_INL_HPP
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "mps/core/cpu/float16_runs-inl.hpp"
#include "mps/core/cpu/non_temporal_runs-inl.hpp"
#include "mps/core/cpu/tile_io.hpp"
#include "mps/core/cpu/vector_math-inl.hpp"
#include "mps/core/cpu/vector_runs-inl.hpp"
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
#else
#define UNMETAL_INLINE_BODY HWY_ATTR __attribute__((always_inline))
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
  return largestLane(d, result);
}

/// exp(x) for x <= 32, as exact as the result needs it; 0, or very small, far below.
/// @tparam isHalf the result is rounded to float16
template <SoftMaxKind kind, bool isHalf, class D, class V>
HWY_INLINE V exponential(D d, V x) {
  if constexpr (isHalf && kind == SoftMaxKind::LogSoftMax) {
    return vectorExpForLogOfHalf(d, atLeast(d, x, -87.0F));
  } else {
    const V argument = atLeast(d, x, kLeastExponent);
    if constexpr (isHalf)
      return vectorExpForHalf(d, argument);
    else
      return exponentialInRange(
          d, argument, [&](V n, float c) HWY_ATTR { return hn::NegMulAdd(n, hn::Set(d, c), argument); });
  }
}

/// Whether no |x| is above 32: exponentials and their sums then need no shift, and no x is NaN.
inline bool areModest(ConstFloatRun x, std::size_t count) {
  if (x.isHalf) return areModest(static_cast<const Float16*>(x.address), count);
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  // As integers, of which those of infinity and NaN are larger.
  auto largest = hn::Zero(di);
  forVectors(d, count, [&](std::size_t i, auto lanes) HWY_ATTR {
    largest = hn::Max(largest, hn::BitCast(di, hn::Abs(lanes.load(d, x + i))));
  });
  return hn::AllFalse(di, hn::Gt(largest, hn::BitCast(di, hn::Set(d, kModest))));
}

/// Asks for what lies `count` values behind a place of a run: the next pixel or tile, while the processor computes.
HWY_INLINE void prefetch(ConstFloatRun x, std::size_t i, std::size_t count) {
  hwy::Prefetch(static_cast<const std::byte*>((x + (i + count)).address));
}

/// sum exp(x - shift), in all lanes, for logarithms.
template <bool isHalf, class D, class V = hn::Vec<D>>
HWY_INLINE V exponentialSum(D d, ConstFloatRun x, std::size_t count, V shift) {
  auto sum = hn::Zero(d);
  forVectors(d, count, [&](std::size_t i, auto lanes) {
    prefetch(x, i, count);
    const V e = exponential<SoftMaxKind::LogSoftMax, isHalf>(d, hn::Sub(lanes.load(d, x + i), shift));
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
    const V e = exponential<SoftMaxKind::SoftMax, isHalf>(d, hn::Sub(lanes.load(d, x + i), shift));
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

/// The logarithm of a sum of exponentials; NaN stays NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE Logarithm<D> logarithmOfSum(D d, V sum) {
  Logarithm<D> result = logarithm(d, sum);
  result.lower = hn::IfThenElse(hn::IsNaN(sum), sum, result.lower);
  return result;
}

/// y = x - shift - ln(sum).
template <class D, class V = hn::Vec<D>>
HWY_INLINE void subtractBoth(D d, ConstFloatRun x, std::size_t count, V shift, V sum, FloatRun y) {
  const Logarithm<D> ln = logarithmOfSum(d, sum);
  forVectors(d, count, [&](std::size_t i, auto lanes) {
    const V difference = hn::Sub(lanes.load(d, x + i), shift);
    lanes.store(d, hn::Sub(hn::Sub(difference, ln.upper), ln.lower), y + i);
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

/// sums[i] + rests[i] = ln(sums[i]).
inline void takeLogarithms(std::size_t count, float* sums, float* rests) {
  const hn::ScalableTag<float> d;
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    const auto ln = logarithmOfSum(d, hn::LoadU(d, sums + i));
    hn::StoreU(ln.upper, d, sums + i);
    hn::StoreU(ln.lower, d, rests + i);
  }
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

/// Lane i of the result is the sum of the lanes of row i of as many rows as vectors have lanes, adjacent and aligned. Each
/// lane is added to the one half a row away, their sum to the one a quarter away, and so on: a row that begins in another
/// lane, and goes on in the first one, has the same sum to the last bit.
template <class D>
HWY_INLINE hn::Vec<D> sumStoredRows(D d, const float* rows) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Load(d, rows);
#else
  using V = hn::Vec<D>;
  constexpr std::size_t lanes = hn::MaxLanes(D());
  if constexpr (lanes == 4) {
    return reduceStoredRows(d, rows, [](V a, V b) { return hn::Add(a, b); });
  } else {
    const hn::Repartition<std::uint64_t, D> pairs;
    // Row i in the lower half, the other one in the upper half.
    const auto interleaved = [&](std::size_t i, std::size_t j) UNMETAL_INLINE_BODY {
      const V a = hn::Load(d, rows + i * lanes);
      const V b = hn::Load(d, rows + j * lanes);
      return hn::Add(hn::ConcatLowerLower(d, b, a), hn::ConcatUpperUpper(d, b, a));
    };
    // Every fourth row from i on, one in each block of four lanes.
    const auto blocks = [&](std::size_t i) UNMETAL_INLINE_BODY {
      if constexpr (lanes == 8) {
        return interleaved(i, i + 4);
      } else {
        static_assert(lanes == 16);
        const V a = interleaved(i, i + 8);
        const V b = interleaved(i + 4, i + 12);
        return hn::Add(hn::OddEvenBlocks(b, a), hn::SwapAdjacentBlocks(hn::OddEvenBlocks(a, b)));
      }
    };
    // In each block: a pair of lanes of each of two rows, alternating.
    const auto alternating = [&](std::size_t i) UNMETAL_INLINE_BODY {
      const V a = blocks(i);
      const V b = blocks(i + 1);
      return hn::BitCast(pairs, hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)));
    };
    const auto a = alternating(0);
    const auto b = alternating(2);
    return hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, a, b)),
                   hn::BitCast(d, hn::InterleaveUpper(pairs, a, b)));
  }
#endif
}

/// sums[p] = the sum over the channels of a pixel of what value(element, lanes) returns, 0 in the lanes that
/// are not used.
template <class D, class Value>
HWY_INLINE void sumPixels(D d, const PackedPixels& tile, Value&& value, float* sums) {
  using V = hn::Vec<D>;
  constexpr std::size_t lanes = hn::MaxLanes(D());
  HWY_ALIGN float rows[lanes * lanes];
  for (std::size_t first = 0; first < tile.pixels; first += lanes) {
    const std::size_t last = std::min(lanes, tile.pixels - first);
    for (std::size_t p = 0; p < last; ++p) {
      V sum = hn::Zero(d);
      forVectors(d, tile.channels, [&](std::size_t i, auto used) UNMETAL_INLINE_BODY {
        sum = hn::Add(sum, value((first + p) * tile.channels + i, used));
      });
      hn::Store(sum, d, rows + p * lanes);
    }
    for (std::size_t p = last; p < lanes; ++p) hn::Store(hn::Zero(d), d, rows + p * lanes);
    hn::StoreU(sumStoredRows(d, rows), d, sums + first);
  }
}

/// numbers[p] = the largest of what valueOf() makes of the channels of each pixel.
template <class ValueOf>
HWY_INLINE void largestOfPixels(const PackedPixels& tile, ConstFloatRun x, ValueOf&& valueOf,
                                float* numbers) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  reduceRows(
      d, tile.pixels,
      [&](std::size_t p) UNMETAL_INLINE_BODY {
        constexpr float lowest = -std::numeric_limits<float>::infinity();
        V result = hn::Set(d, lowest);
        forVectors(d, tile.channels, [&](std::size_t i, auto lanes) UNMETAL_INLINE_BODY {
          const V values = valueOf(lanes.load(d, x + (p * tile.channels + i)));
          result = hn::Max(result, withFiller(d, lanes, values, lowest));
        });
        return result;
      },
      [](V a, V b) { return hn::Max(a, b); }, numbers);
}

/// shifts[p] = the largest channel of each pixel, 0 where the pixel is modest: what it gets in a tile without shifts.
inline void shiftsOfPixels(const PackedPixels& tile, ConstFloatRun x, float* shifts) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  alignas(64) Numbers magnitudes;
  largestOfPixels(
      tile, x, [](V v) UNMETAL_INLINE_BODY { return v; }, shifts);
  largestOfPixels(
      tile, x, [](V v) UNMETAL_INLINE_BODY { return hn::Abs(v); }, magnitudes);
  for (std::size_t p = 0; p < tile.pixels; p += hn::Lanes(d)) {
    const auto isModest = hn::Le(hn::LoadU(d, magnitudes + p), hn::Set(d, kModest));
    hn::StoreU(hn::IfThenZeroElse(isModest, hn::LoadU(d, shifts + p)), d, shifts + p);
  }
}

/// @tparam isShifted some pixels are not modest
template <SoftMaxKind kind, bool isHalf, bool isShifted>
void softMaxPackedPixels(const PackedPixels& tile, ConstFloatRun x, FloatRun y) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  alignas(64) Numbers shifts;
  alignas(64) Numbers sums;
  alignas(64) Numbers exponentials;
  const std::size_t count = tile.pixels * tile.channels;
  if constexpr (isShifted) {
    shiftsOfPixels(tile, x, shifts);
    forPackedVectors(d, tile, [&](std::size_t i, auto lanes, auto spread) UNMETAL_INLINE_BODY {
      const V shifted = hn::Sub(lanes.load(d, x + i), spread(shifts));
      lanes.store(d, exponential<kind, isHalf>(d, shifted), exponentials + i);
    });
  } else {
    forVectors(d, count, [&](std::size_t i, auto lanes) UNMETAL_INLINE_BODY {
      prefetch(x, i, count);
      lanes.store(d, exponential<kind, isHalf>(d, lanes.load(d, x + i)), exponentials + i);
    });
  }
  sumPixels(
      d, tile, [&](std::size_t i, auto lanes) UNMETAL_INLINE_BODY { return lanes.load(d, exponentials + i); },
      sums);
  if constexpr (kind == SoftMaxKind::SoftMax) {
    replaceAll(tile.pixels, sums, [](auto dn, auto sum) { return hn::Div(hn::Set(dn, 1.0F), sum); });
    forPackedVectors(d, tile, [&](std::size_t i, auto lanes, auto spread) UNMETAL_INLINE_BODY {
      lanes.store(d, hn::Mul(lanes.load(d, exponentials + i), spread(sums)), y + i);
    });
  } else {
    alignas(64) Numbers rests;
    takeLogarithms(tile.pixels, sums, rests);
    forPackedVectors(d, tile, [&](std::size_t i, auto lanes, auto spread) UNMETAL_INLINE_BODY {
      V difference = lanes.load(d, x + i);
      if constexpr (isShifted) difference = hn::Sub(difference, spread(shifts));
      lanes.store(d, hn::Sub(hn::Sub(difference, spread(sums)), spread(rests)), y + i);
    });
  }
}

/// A shift that other pixels of the tile had a part in would change last bits of the results.
template <SoftMaxKind kind, bool isHalf>
void softMaxPackedPixels(const PackedPixels& tile, ConstFloatRun x, FloatRun y) {
  if (areModest(x, tile.pixels * tile.channels))
    softMaxPackedPixels<kind, isHalf, false>(tile, x, y);
  else
    softMaxPackedPixels<kind, isHalf, true>(tile, x, y);
}

/// Pixels of one channel: 1 or 0; NaN for infinity and NaN.
inline void softMaxOfOneChannel(SoftMaxKind kind, std::size_t pixels, ConstFloatRun x, FloatRun y) {
  const hn::ScalableTag<float> d;
  const auto result = hn::Set(d, kind == SoftMaxKind::SoftMax ? 1.0F : 0.0F);
  forVectors(d, pixels, [&](std::size_t i, auto lanes) {
    const auto values = lanes.load(d, x + i);
    lanes.store(d, hn::Add(hn::Sub(values, values), result), y + i);
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
    // Tiles of modest float16 pixels have no shifts.
    const auto shift = isHalf && areModest(from, channels) ? hn::Zero(d) : largest(d, from, channels);
    if (kind == SoftMaxKind::SoftMax)
      normalize(d, buffer, channels, exponentials<isHalf>(d, from, channels, shift, buffer), to);
    else
      subtractBoth(d, from, channels, shift, exponentialSum<isHalf>(d, from, channels, shift), to);
  }
}

/// Calls compute(y) for a tile's pixels one after the other, or with memory that is copied by non-temporal stores: few pixels may
/// be aligned where the tile is.
/// @tparam T of the result
template <class T, class Compute>
HWY_INLINE void streamPixels(std::size_t pixels, std::size_t channels, FloatRun y, Compute&& compute) {
  if (!y.isNonTemporal || channels % hn::Lanes(hn::ScalableTag<float>()) == 0) return compute(y);
  alignas(64) T results[Tiling::capacity];
  compute(FloatRun(results));
  streamValues(results, pixels * channels, static_cast<T*>(y.address));
}

/// The tile by the fastest way.
/// @tparam T of the result
template <class T>
void softMaxTileOf(SoftMaxKind kind, const PackedPixels& tile, ConstFloatRun x, FloatRun y) {
  constexpr bool isHalf = std::is_same_v<T, Float16>;
  if (tile.pixelOfElement == nullptr)
    streamPixels<T>(tile.pixels, tile.channels, y, [&](FloatRun to) HWY_ATTR {
      softMaxLongPixels<isHalf>(kind, tile.pixels, tile.channels, x, to);
    });
  else if (kind == SoftMaxKind::SoftMax)
    softMaxPackedPixels<SoftMaxKind::SoftMax, isHalf>(tile, x, y);
  else
    softMaxPackedPixels<SoftMaxKind::LogSoftMax, isHalf>(tile, x, y);
}

/// @param isHalf results are rounded to float16, by storeTile() where y is not
inline void softMaxTile(SoftMaxKind kind, bool isHalf, const PackedPixels& tile, ConstFloatRun x,
                        FloatRun y) {
  if (tile.channels == 1)
    softMaxOfOneChannel(kind, tile.pixels, x, y);
  else if (isHalf)
    softMaxTileOf<Float16>(kind, tile, x, y);
  else
    softMaxTileOf<float>(kind, tile, x, y);
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
