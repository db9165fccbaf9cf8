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

/// Calls body(element, lanes, number) for the vectors of a tile, with the number of each element's pixel.
template <class D, class Body>
HWY_INLINE void forVectorsOfPixels(D d, const PackedPixels& tile, const float* numbers, Body&& body) {
  const std::size_t step = hn::Lanes(d);
  if (isPacked(d, tile))
    return forPackedVectors(d, tile, [&](std::size_t i, auto lanes, auto spread) UNMETAL_INLINE_BODY {
      body(i, lanes, spread(numbers));
    });
  std::size_t i = 0;
  for (std::size_t p = 0; p < tile.pixels; ++p) {
    const std::size_t end = (p + 1) * tile.channels;
    const auto number = hn::Set(d, numbers[p]);
    for (; i + step <= end; i += step) body(i, AllLanes{}, number);
    if (i >= end) continue;
    // A vector of two pixels, or the last one.
    const auto mixed = hn::IfThenElse(hn::FirstN(d, end - i), number, hn::Set(d, numbers[p + 1]));
    if (p + 1 < tile.pixels)
      body(i, AllLanes{}, mixed);
    else
      body(i, FirstLanes{end - i}, mixed);
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
    const V e = vectorExpForHalf(d, argument);
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
    // Part of the first pixel's logarithm is taken from all x, which is exact; what is left of the logarithms is small.
    const V shift = logarithm(d, hn::Set(d, sums[0])).upper;
    replaceAll(tile.pixels, sums, [&](auto dn, V sum) UNMETAL_INLINE_BODY {
      const auto ln = logarithm(dn, sum);
      return hn::Add(hn::Sub(ln.upper, shift), ln.lower);
    });
    forVectorsOfPixels(d, tile, sums, [&](std::size_t i, auto lanes, V logOfSum) UNMETAL_INLINE_BODY {
      lanes.store(d, hn::Sub(hn::Sub(lanes.load(d, arguments + i), shift), logOfSum), y + i);
    });
  } else {
    replaceAll(tile.pixels, sums, [](auto dn, V sum) { return hn::Div(hn::Set(dn, 1.0F), sum); });
    forVectorsOfPixels(d, tile, sums, [&](std::size_t i, auto lanes, V factor) UNMETAL_INLINE_BODY {
      lanes.store(d, hn::Mul(lanes.load(d, exponentials + i), factor), y + i);
    });
  }
}

inline void softMaxTile(SoftMaxKind kind, const PackedPixels& tile, ConstFloatRun x, FloatRun y) {
  const auto* const halves = static_cast<const Float16*>(x.address);
  if (x.isHalf && y.isHalf && areModest(halves, tile.pixels * tile.channels)) {
    if (kind == SoftMaxKind::SoftMax)
      softMaxModestTile<SoftMaxKind::SoftMax>(tile, halves, y);
    else
      softMaxModestTile<SoftMaxKind::LogSoftMax>(tile, halves, y);
  } else if (y.isHalf) {
    softMaxTileOf<Float16>(kind, tile, x, y);
  } else {
    softMaxTileOf<float>(kind, tile, x, y);
  }
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
