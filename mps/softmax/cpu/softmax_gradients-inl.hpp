// Gradients of softmax of adjacent pixels, once per instruction set. Include it after hwy/highway.h in a file that
// hwy/foreach_target.h compiles several times; mps/core/cpu/highway_targets.hpp comes before both.

#if defined(UNMETAL_MPS_SOFTMAX_SOFTMAX_GRADIENTS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_SOFTMAX_SOFTMAX_GRADIENTS_INL_HPP
#undef UNMETAL_MPS_SOFTMAX_SOFTMAX_GRADIENTS_INL_HPP
#else
#define UNMETAL_MPS_SOFTMAX_SOFTMAX_GRADIENTS_INL_HPP
#endif

#include <hwy/highway.h>

#include <cstddef>

#include "mps/core/cpu/float16_runs-inl.hpp"
#include "mps/softmax/cpu/softmax_rows-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// dx of one vector: s (dy - sum), or dy - exp(l) sum.
template <bool allHalf, class D, class V>
HWY_INLINE V gradientOf(D d, SoftMaxKind kind, V result, V dy, V sum) {
  if (kind == SoftMaxKind::SoftMax) return hn::Mul(result, hn::Sub(dy, sum));
  // A result is not positive; of what is not one the exponential only has to stay finite.
  if constexpr (allHalf)
    return hn::NegMulAdd(vectorExpNonPositiveForHalf(d, atMost(d, result, 87.0F)), sum, dy);
  else
    return hn::NegMulAdd(vectorExp(d, result), sum, dy);
}

/// sum dy s, or sum dy, in all lanes.
template <class D>
HWY_INLINE hn::Vec<D> gradientSum(D d, SoftMaxKind kind, ConstFloatRun result, ConstFloatRun dy,
                                  std::size_t count) {
  auto sum = hn::Zero(d);
  if (kind == SoftMaxKind::SoftMax)
    forVectors(d, count, [&](std::size_t i, auto lanes) UNMETAL_INLINE_BODY {
      sum = hn::MulAdd(lanes.load(d, dy + i), lanes.load(d, result + i), sum);
    });
  else
    forVectors(d, count, [&](std::size_t i, auto lanes) UNMETAL_INLINE_BODY {
      sum = hn::Add(sum, lanes.load(d, dy + i));
    });
  return hn::SumOfLanes(d, sum);
}

/// dx of a run.
template <bool allHalf, class D, class V = hn::Vec<D>>
HWY_INLINE void finishGradient(D d, SoftMaxKind kind, ConstFloatRun result, ConstFloatRun dy,
                               std::size_t count, V sum, FloatRun dx) {
  forVectors(d, count, [&](std::size_t i, auto lanes) UNMETAL_INLINE_BODY {
    lanes.store(d, gradientOf<allHalf>(d, kind, lanes.load(d, result + i), lanes.load(d, dy + i), sum),
                dx + i);
  });
}

template <bool allHalf>
HWY_INLINE void softMaxPackedGradients(SoftMaxKind kind, const PackedPixels& tile, ConstFloatRun result,
                                       ConstFloatRun dy, FloatRun dx) {
  const hn::ScalableTag<float> d;
  alignas(64) Numbers sums;
  sumPixels(
      d, tile,
      [&](std::size_t i, auto lanes) UNMETAL_INLINE_BODY {
        const auto term = lanes.load(d, dy + i);
        return kind == SoftMaxKind::SoftMax ? hn::Mul(term, lanes.load(d, result + i)) : term;
      },
      sums);
  forPackedVectors(d, tile, [&](std::size_t i, auto lanes, auto spread) UNMETAL_INLINE_BODY {
    lanes.store(d,
                gradientOf<allHalf>(d, kind, lanes.load(d, result + i), lanes.load(d, dy + i), spread(sums)),
                dx + i);
  });
}

template <bool allHalf>
HWY_INLINE void softMaxLongGradients(SoftMaxKind kind, std::size_t pixels, std::size_t channels,
                                     ConstFloatRun result, ConstFloatRun dy, FloatRun dx) {
  const hn::ScalableTag<float> d;
  for (std::size_t p = 0; p < pixels; ++p) {
    const ConstFloatRun s = result + p * channels;
    const ConstFloatRun g = dy + p * channels;
    finishGradient<allHalf>(d, kind, s, g, channels, gradientSum(d, kind, s, g, channels), dx + p * channels);
  }
}

/// @tparam areRuns the compiler may know that all runs are float16
template <bool allHalf, bool areRuns>
void softMaxGradientTileOf(SoftMaxKind kind, const PackedPixels& tile, ConstFloatRun result, ConstFloatRun dy,
                           FloatRun dx) {
  const ConstFloatRun s = known<areRuns>(result);
  const ConstFloatRun g = known<areRuns>(dy);
  const FloatRun to = known<areRuns>(dx);
  if (tile.pixelOfElement != nullptr) return softMaxPackedGradients<allHalf>(kind, tile, s, g, to);
  const auto compute = [&](FloatRun y) UNMETAL_INLINE_BODY {
    softMaxLongGradients<allHalf>(kind, tile.pixels, tile.channels, s, g, y);
  };
  if (to.isHalf)
    streamPixels<Float16>(tile.pixels, tile.channels, to, compute);
  else
    streamPixels<float>(tile.pixels, tile.channels, to, compute);
}

/// @param allHalf all operands are float16, also where loadRun() and runTarget() have them as float32
inline void softMaxGradientTile(SoftMaxKind kind, bool allHalf, const PackedPixels& tile,
                                ConstFloatRun result, ConstFloatRun dy, FloatRun dx) {
  if (!allHalf)
    softMaxGradientTileOf<false, false>(kind, tile, result, dy, dx);
  else if (result.isHalf && dy.isHalf && dx.isHalf)
    softMaxGradientTileOf<true, true>(kind, tile, result, dy, dx);
  else
    softMaxGradientTileOf<true, false>(kind, tile, result, dy, dx);
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
