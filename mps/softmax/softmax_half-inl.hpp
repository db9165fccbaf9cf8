// Softmax of adjacent float16 pixels, once per instruction set. Include it after hwy/highway.h in a file that
// hwy/foreach_target.h compiles several times; mps/core/highway_targets.hpp comes before both.

#if defined(UNMETAL_MPS_SOFTMAX_SOFTMAX_HALF_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_SOFTMAX_SOFTMAX_HALF_INL_HPP
#undef UNMETAL_MPS_SOFTMAX_SOFTMAX_HALF_INL_HPP
#else
#define UNMETAL_MPS_SOFTMAX_SOFTMAX_HALF_INL_HPP
#endif

#include <hwy/highway.h>

#include <cstddef>

#include "mps/core/half_runs-inl.hpp"
#include "mps/softmax/softmax_rows-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// Whether vectors may have channels of more than two pixels.
template <class D>
HWY_INLINE bool isPacked(D d, const PackedPixels& tile) {
  return tile.pixelOfElement != nullptr && tile.channels % hn::Lanes(d) != 0;
}

/// Calls body(element, lanes, numbers...) for the vectors of a tile, with the numbers of each element's pixel.
template <class D, class Body, class... Floats>
HWY_INLINE void forVectorsOfPixels(D d, const PackedPixels& tile, Body&& body, const Floats*... numbers) {
  const std::size_t step = hn::Lanes(d);
  if (isPacked(d, tile))
    return forPackedVectors(d, tile, [&](std::size_t i, auto lanes, auto spread) UNMETAL_INLINE_BODY {
      body(i, lanes, spread(numbers)...);
    });
  std::size_t i = 0;
  for (std::size_t p = 0; p < tile.pixels; ++p) {
    const std::size_t end = (p + 1) * tile.channels;
    for (; i + step <= end; i += step) body(i, AllLanes{}, hn::Set(d, numbers[p])...);
    if (i >= end) continue;
    // A vector of two pixels, or the last one.
    const auto isOfPixel = hn::FirstN(d, end - i);
    const auto mixed = [&](const float* two) UNMETAL_INLINE_BODY {
      return hn::IfThenElse(isOfPixel, hn::Set(d, two[0]), hn::Set(d, two[1]));
    };
    if (p + 1 < tile.pixels)
      body(i, AllLanes{}, mixed(numbers + p)...);
    else
      body(i, FirstLanes{end - i}, mixed(numbers + p)...);
    i += step;
  }
}

/// As sumPixels(), for few pixels.
template <class D, class Value>
HWY_INLINE void sumLongPixels(D d, const PackedPixels& tile, Value&& value, float* sums) {
  for (std::size_t p = 0; p < tile.pixels; ++p) {
    auto sum = hn::Zero(d);
    forVectors(d, tile.channels, [&](std::size_t i, auto lanes) UNMETAL_INLINE_BODY {
      sum = hn::Add(sum, value(p * tile.channels + i, lanes));
    });
    sums[p] = hn::GetLane(hn::SumOfLanes(d, sum));
  }
}

/// exp(x) of modest x, as exponential() has it.
template <SoftMaxKind kind, class D, class V>
HWY_INLINE V exponentialOfModest(D d, V x) {
  return kind == SoftMaxKind::LogSoftMax ? vectorExpForLogOfHalf(d, x) : vectorExpForHalf(d, x);
}

/// Of modest x, without shifts.
template <SoftMaxKind kind>
void softMaxModestTile(const PackedPixels& tile, const Float16* x, FloatRun y) {
  constexpr bool isLog = kind == SoftMaxKind::LogSoftMax;
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  y.isHalf = true;  // so that the compiler knows
  alignas(64) Numbers sums;
  alignas(64) Numbers arguments;
  alignas(64) Numbers exponentials;
  const std::size_t count = tile.pixels * tile.channels;
  const auto compute = [&](std::size_t i, auto lanes) UNMETAL_INLINE_BODY {
    prefetch(ConstFloatRun(x), i, count);
    const V argument = lanes.load(d, ConstFloatRun(x + i));
    const V e = exponentialOfModest<kind>(d, argument);
    if constexpr (isLog) lanes.store(d, argument, arguments + i);
    return withFiller(d, lanes, e, 0.0F);
  };
  const auto computeAndStore = [&](std::size_t i, auto lanes) UNMETAL_INLINE_BODY {
    const V e = compute(i, lanes);
    lanes.store(d, e, exponentials + i);
    return e;
  };
  if (isPacked(d, tile)) {
    forVectors(d, count, computeAndStore);
    sumPixels(
        d, tile,
        [&](std::size_t i, auto lanes) UNMETAL_INLINE_BODY { return lanes.load(d, exponentials + i); }, sums);
  } else {
    const auto value = [&](std::size_t i, auto lanes) UNMETAL_INLINE_BODY {
      return isLog ? compute(i, lanes) : computeAndStore(i, lanes);
    };
    if (tile.pixelOfElement != nullptr)
      sumPixels(d, tile, value, sums);
    else
      sumLongPixels(d, tile, value, sums);
  }
  if constexpr (isLog) {
    alignas(64) Numbers rests;
    takeLogarithms(tile.pixels, sums, rests);
    forVectorsOfPixels(
        d, tile,
        [&](std::size_t i, auto lanes, V upper, V lower) UNMETAL_INLINE_BODY {
          lanes.store(d, hn::Sub(hn::Sub(lanes.load(d, arguments + i), upper), lower), y + i);
        },
        sums, rests);
  } else {
    replaceAll(tile.pixels, sums, [](auto dn, V sum) { return hn::Div(hn::Set(dn, 1.0F), sum); });
    forVectorsOfPixels(
        d, tile,
        [&](std::size_t i, auto lanes, V factor)
            UNMETAL_INLINE_BODY { lanes.store(d, hn::Mul(lanes.load(d, exponentials + i), factor), y + i); },
        sums);
  }
}

// Pixels of at least one vector, in groups
// ---------------------------------------------------------------------------------
//
// The exponentials of one group and the results of the one before it share a loop: the former are products, the latter
// differences and shuffles, which different parts of the processor compute; and it reads and writes memory evenly.

/// Pixels of a group at most.
inline constexpr std::size_t kGroupPixels = 32;

/// What a group of pixels leaves behind for its results.
struct PixelGroup {
  alignas(64) float values[Tiling::capacity];           ///< exponentials, or x for logarithms
  alignas(64) float sums[kGroupPixels * kPackedGroup];  ///< of the exponentials, a vector for each pixel
  alignas(64) float numbers[kGroupPixels];              ///< a factor for each pixel, or its logarithm
  alignas(64) float rests[kGroupPixels];                ///< of the logarithm
};

/// numbers and rests from the sums.
template <SoftMaxKind kind>
HWY_INLINE void finishSums(std::size_t pixels, PixelGroup& group) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t p = 0; p < pixels; p += lanes) {
    const V sum = sumStoredRows(d, group.sums + p * lanes);
    if constexpr (kind == SoftMaxKind::SoftMax) {
      hn::Store(hn::Div(hn::Set(d, 1.0F), sum), d, group.numbers + p);
    } else {
      const auto ln = logarithm(d, sum);
      hn::Store(ln.upper, d, group.numbers + p);
      hn::Store(ln.lower, d, group.rests + p);
    }
  }
}

/// @tparam computes from x to `group`
/// @tparam finishes from `previous`, as many pixels, to y
template <SoftMaxKind kind, bool computes, bool finishes>
HWY_INLINE void runGroup(const PackedPixels& tile, std::size_t pixels, const Float16* x, PixelGroup& group,
                         const PixelGroup& previous, FloatRun y) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr bool isLog = kind == SoftMaxKind::LogSoftMax;
  const std::size_t lanes = hn::Lanes(d);
  // Copies: what is written could otherwise be one of them.
  const std::size_t channels = tile.channels;
  const std::int32_t* const pixelOfElement = tile.pixelOfElement;
  const Float16* const next = x + tile.pixels * channels;
  V numbers = hn::Zero(d);
  V rests = hn::Zero(d);
  V sum = hn::Zero(d);
  float* sums = group.sums;
  std::size_t left = channels;  // of a pixel
  std::size_t i = 0;
  for (std::size_t p = 0; p < pixels; p += lanes) {
    if constexpr (finishes) numbers = hn::Load(d, previous.numbers + p);
    if constexpr (finishes && isLog) rests = hn::Load(d, previous.rests + p);
    for (std::size_t j = 0; j < lanes * channels; j += lanes, i += lanes) {
      if constexpr (computes) {
        hwy::Prefetch(next + i);
        const V argument = loadFloats(d, x + i);
        const V e = exponentialOfModest<kind>(d, argument);
        hn::Store(isLog ? argument : e, d, group.values + i);
        if (left > lanes) {
          sum = hn::Add(sum, e);
          left -= lanes;
        } else {
          const auto isOfPixel = hn::FirstN(d, left);
          const V ofPixel = hn::IfThenElseZero(isOfPixel, e);
          hn::Store(hn::Add(sum, ofPixel), d, sums);
          sums += lanes;
          sum = hn::Sub(e, ofPixel);
          left += channels - lanes;
        }
      }
      if constexpr (finishes) {
        const V values = hn::Load(d, previous.values + i);
        const auto indices = hn::SetTableIndices(d, pixelOfElement + j);
        const V number = hn::TableLookupLanes(numbers, indices);
        // The product with 1 is a difference that does not wait for those above.
        const V result = isLog ? hn::Sub(hn::MulSub(values, hn::Set(d, 1.0F), number),
                                         hn::TableLookupLanes(rests, indices))
                               : hn::Mul(values, number);
        AllLanes{}.store(d, result, y + i);
      }
    }
  }
}

/// The whole groups of a tile of modest x. Returns the number of their pixels.
template <SoftMaxKind kind>
std::size_t softMaxGroups(const PackedPixels& tile, const Float16* x, FloatRun y) {
  const std::size_t lanes = hn::Lanes(hn::ScalableTag<float>());
  const std::size_t whole = tile.pixels / lanes * lanes;
  if (whole == 0) return 0;
  const std::size_t pixels = whole % (2 * lanes) == 0 ? 2 * lanes : lanes;
  const std::size_t count = pixels * tile.channels;
  y.isHalf = true;  // so that the compiler knows
  PixelGroup groups[2];
  runGroup<kind, true, false>(tile, pixels, x, groups[0], groups[1], y);
  std::size_t current = 0;
  for (std::size_t p = pixels; p < whole; p += pixels, y = y + count, current = 1 - current) {
    finishSums<kind>(pixels, groups[current]);
    runGroup<kind, true, true>(tile, pixels, x + p * tile.channels, groups[1 - current], groups[current], y);
  }
  finishSums<kind>(pixels, groups[current]);
  runGroup<kind, false, true>(tile, pixels, x, groups[1 - current], groups[current], y);
  return whole;
}

/// Of modest x.
template <SoftMaxKind kind>
void softMaxOfModest(PackedPixels tile, const Float16* x, FloatRun y) {
  if (tile.pixelOfElement != nullptr && tile.channels >= hn::Lanes(hn::ScalableTag<float>())) {
    const std::size_t done = softMaxGroups<kind>(tile, x, y);
    tile.pixels -= done;
    x += done * tile.channels;
    y = y + done * tile.channels;
  }
  if (tile.pixels > 0) softMaxModestTile<kind>(tile, x, y);
}

/// @param isHalf results are rounded to float16, by storeTile() where y is not
inline void softMaxTile(SoftMaxKind kind, bool isHalf, const PackedPixels& tile, ConstFloatRun x,
                        FloatRun y) {
  const auto* const halves = static_cast<const Float16*>(x.address);
  if (tile.channels == 1) {
    softMaxOfOneChannel(kind, tile.pixels, x, y);
  } else if (!isHalf) {
    softMaxTileOf<float>(kind, tile, x, y);
  } else if (x.isHalf && y.isHalf && areModest(halves, tile.pixels * tile.channels)) {
    if (kind == SoftMaxKind::SoftMax)
      softMaxOfModest<SoftMaxKind::SoftMax>(tile, halves, y);
    else
      softMaxOfModest<SoftMaxKind::LogSoftMax>(tile, halves, y);
  } else {
    softMaxTileOf<Float16>(kind, tile, x, y);
  }
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
