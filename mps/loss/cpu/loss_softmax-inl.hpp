// Softmax cross-entropy on adjacent values, once per instruction set. Include it after hwy/highway.h in a file
// that hwy/foreach_target.h compiles several times; mps/core/cpu/highway_targets.hpp comes before both.

#if defined(UNMETAL_MPS_LOSS_LOSS_SOFTMAX_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_LOSS_LOSS_SOFTMAX_INL_HPP
#undef UNMETAL_MPS_LOSS_LOSS_SOFTMAX_INL_HPP
#else
#define UNMETAL_MPS_LOSS_LOSS_SOFTMAX_INL_HPP
#endif

#include <hwy/highway.h>

#include <array>
#include <cstddef>
#include <limits>
#include <type_traits>

#include "mps/core/cpu/float16_runs-inl.hpp"
#include "mps/core/cpu/non_temporal_runs-inl.hpp"
#include "mps/core/cpu/vector_math-inl.hpp"
#include "mps/core/cpu/vector_runs-inl.hpp"
#include "mps/loss/cpu/loss_rows-inl.hpp"
#include "mps/loss/cpu/loss_run.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

// One pixel, in parts, so that a row of channels can be longer than a tile
// --------------------------------------------------------------------------------------------------------

/// The largest of `count` predictions; NaN may be dropped, the exponentials have it.
HWY_INLINE float largestPrediction(ConstFloatRun predictions, std::size_t count) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const V lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  V largest = lowest;
  forVectors(
      d, count, [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
        largest = hn::Max(largest, inLanes(d, lanes, lanes.load(d, predictions + i), lowest));
      });
  return hn::GetLane(largestLane(d, largest));
}

/// Sum of exp(y - shift). The exponentials go to memory that holds whole vectors, unless it is null.
template <bool isHalf>
HWY_INLINE float sumExponentials(ConstFloatRun predictions, std::size_t count, float shift,
                                 float* exponentials) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  V sum = hn::Zero(d);
  forVectors(
      d, count, [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
        const V e = exponential<isHalf>(d, hn::Sub(lanes.load(d, predictions + i), hn::Set(d, shift)));
        if (exponentials != nullptr) hn::StoreU(e, d, exponentials + i);
        sum = hn::Add(sum, inLanes(d, lanes, e, hn::Zero(d)));
      });
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

template <class D, class V>
HWY_INLINE V smoothedLabel(D d, const LossNumbers& numbers, V t) {
  return hn::MulAdd(t, hn::Set(d, numbers.labelScale), hn::Set(d, numbers.labelOffset));
}

/// Sum of t' with the factors of the derivatives, for the exact gradient.
HWY_INLINE float sumWeightedLabels(const LossNumbers& numbers, const LossRows& rows, std::size_t first,
                                   std::size_t count, float imageFactor) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const V factor = hn::Set(d, imageFactor);
  V sum = hn::Zero(d);
  forVectors(
      d, count, [&](std::size_t offset, auto lanes) HWY_ATTR __attribute__((always_inline)) {
        const std::size_t i = first + offset;
        const V scale = derivativeScale(d, lanes, rows, i, loadWeights(d, lanes, rows, i), factor);
        const V t = smoothedLabel(d, numbers, lanes.load(d, rows.labels + i));
        sum = hn::Add(sum, inLanes(d, lanes, hn::Mul(scale, t), hn::Zero(d)));
      });
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

/// What the channels of each pixel of a tile share.
struct SoftMaxTile {
  // Whole vectors are read and written.
  using Numbers = std::array<float, kLossTile + hn::MaxLanes(hn::ScalableTag<float>())>;
  alignas(64) Numbers shift;           ///< the largest prediction
  alignas(64) Numbers sum;             ///< of the exponentials
  alignas(64) Numbers logOfSum;        ///< from here on by finishSums()
  alignas(64) Numbers reciprocal;      ///< 1 / sum
  alignas(64) Numbers exponentials;    ///< of all channels
  alignas(64) Numbers weightedLabels;  ///< sumWeightedLabels(), for the exact gradient
};

/// Of shifted exponentials.
HWY_INLINE void finishSums(SoftMaxTile& tile, std::size_t pixels) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  for (std::size_t i = 0; i < pixels; i += hn::Lanes(d)) {
    const V sum = hn::Load(d, tile.sum.data() + i);
    hn::Store(vectorLog(d, sum), d, tile.logOfSum.data() + i);
    hn::Store(hn::Div(hn::Set(d, 1.0F), sum), d, tile.reciprocal.data() + i);
  }
}

/// Writes the wanted outputs of `count` channels of a pixel, from element `first` of the rows on, and adds w
/// l to `sum`. `exponentials` are those of sumExponentials(), or null: computed again.
/// @tparam plain isPlain(): the processor foresees the branches, but there are many
/// @tparam isHalf areHalfRuns()
template <bool plain, bool isHalf, class V>
HWY_INLINE void runPixel(const LossNumbers& numbers, const LossRows& rows, std::size_t first,
                         std::size_t count, float imageFactor, const SoftMaxTile& tile, std::size_t pixel,
                         const float* exponentials, V& sum) {
  const hn::ScalableTag<float> d;
  const ConstFloatRun predictions = known<isHalf>(rows.predictions) + first;
  const ConstFloatRun labels = known<isHalf>(rows.labels) + first;
  const FloatRun plainGradient = known<isHalf>(rows.gradient) + first;
  const V shift = hn::Set(d, tile.shift[pixel]);
  const V logOfSum = hn::Set(d, tile.logOfSum[pixel]);
  const V reciprocal = hn::Set(d, tile.reciprocal[pixel]);
  const V factor = hn::Set(d, imageFactor);
  const V labelScale = hn::Set(d, numbers.labelScale);
  const V labelOffset = hn::Set(d, numbers.labelOffset);
  forVectors(
      d, count, [&](std::size_t offset, auto lanes) HWY_ATTR __attribute__((always_inline)) {
        prefetch(predictions, offset);
        prefetch(labels, offset);
        const std::size_t i = first + offset;
        const V z = hn::Sub(lanes.load(d, predictions + offset), shift);
        const V t = hn::MulAdd(lanes.load(d, labels + offset), labelScale, labelOffset);
        const V negativeLog = hn::Sub(logOfSum, z);
        if constexpr (plain) {
          sum = hn::Add(sum,
                        inLanes(d, lanes, hn::IfThenZeroElse(hn::Eq(t, hn::Zero(d)), hn::Mul(t, negativeLog)),
                                hn::Zero(d)));
          const V p = hn::Mul(hn::LoadU(d, exponentials + offset), reciprocal);
          lanes.store(d, hn::Mul(factor, hn::Sub(p, t)), plainGradient + offset);
          return;
        }
        const V w = loadWeights(d, lanes, rows, i);
        if (rows.wantsLoss) {
          const V loss = hn::Mul(w, hn::IfThenZeroElse(hn::Eq(t, hn::Zero(d)), hn::Mul(t, negativeLog)));
          sum = hn::Add(sum, inLanes(d, lanes, loss, hn::Zero(d)));
          if (rows.loss) lanes.store(d, hn::Mul(loss, hn::Set(d, numbers.weight)), rows.loss + i);
        }
        const V scale = derivativeScale(d, lanes, rows, i, w, factor);
        if (rows.gradient) {
          const V e =
              exponentials != nullptr ? hn::LoadU(d, exponentials + offset) : vectorExpNonPositive(d, z);
          const V p = hn::Mul(e, reciprocal);
          const V gradient = numbers.exactSoftMaxGradient
                                 ? hn::NegMulAdd(scale, t, hn::Mul(p, hn::Set(d, tile.weightedLabels[pixel])))
                                 : hn::Mul(scale, hn::Sub(p, t));
          lanes.store(d, gradient, rows.gradient + i);
        }
        if (rows.labelGradient) {
          const V slope = hn::Mul(negativeLog, hn::Set(d, numbers.labelScale));
          lanes.store(d, hn::Mul(scale, slope), rows.labelGradient + i);
        }
      });
}

/// What the channels of each pixel of a tile share. In passes over the tile rather than over each pixel,
/// because the processor overlaps pixels, but not the steps of one.
template <bool isHalf>
inline void reducePixels(ConstFloatRun predictions, std::size_t pixels, std::size_t channels,
                         SoftMaxTile& tile) {
  for (std::size_t i = 0; i < pixels; ++i)
    tile.shift[i] = largestPrediction(predictions + i * channels, channels);
  // The last vector of a pixel reaches into the next one, which comes later.
  for (std::size_t i = 0; i < pixels; ++i)
    tile.sum[i] = sumExponentials<isHalf>(predictions + i * channels, channels, tile.shift[i],
                                          tile.exponentials.data() + i * channels);
  finishSums(tile, pixels);
}

/// What runSoftMaxImagesOf() needs.
inline void reduceTile(const LossRows& rows, std::size_t pixels, std::size_t channels, SoftMaxTile& tile) {
  if (rows.isHalf)
    reducePixels<true>(rows.predictions, pixels, channels, tile);
  else
    reducePixels<false>(rows.predictions, pixels, channels, tile);
}

/// The outputs of the images of a tile that went through reduceTile().
template <bool plain, bool isHalf>
void runSoftMaxImagesOf(const LossNumbers& numbers, const LossRows& rows, LossImages& images,
                        std::size_t channels, SoftMaxTile& tile) {
  const hn::ScalableTag<float> d;
  std::size_t pixel = 0;
  for (std::size_t n = 0; n < images.count; ++n) {
    const float factor = images.factors[n];
    hn::Vec<decltype(d)> sum = hn::Zero(d);
    for (const std::size_t end = pixel + images.elements / channels; pixel < end; ++pixel) {
      const std::size_t first = pixel * channels;
      if (numbers.exactSoftMaxGradient)
        tile.weightedLabels[pixel] = sumWeightedLabels(numbers, rows, first, channels, factor);
      runPixel<plain, isHalf>(numbers, rows, first, channels, factor, tile, pixel,
                              tile.exponentials.data() + first, sum);
    }
    images.sums[n] = hn::GetLane(hn::SumOfLanes(d, sum));
  }
}

/// Few of the pixels of a tile are aligned to vectors, the tile is: results go there by way of the cache.
template <class T>
void runPlainImages(const LossNumbers& numbers, LossRows rows, LossImages& images, std::size_t channels,
                    SoftMaxTile& tile) {
  constexpr bool isHalf = std::is_same_v<T, Float16>;
  const std::size_t lanes = hn::Lanes(hn::ScalableTag<float>()) * sizeof(float) / sizeof(T);
  if (!rows.gradient.isNonTemporal || channels % lanes == 0)
    return runSoftMaxImagesOf<true, isHalf>(numbers, rows, images, channels, tile);
  alignas(64) float results[kLossTile];
  auto* const gradient = static_cast<T*>(rows.gradient.address);
  rows.gradient = FloatRun(reinterpret_cast<T*>(results));
  runSoftMaxImagesOf<true, isHalf>(numbers, rows, images, channels, tile);
  streamValues(reinterpret_cast<const T*>(results), images.count * images.elements, gradient);
}

inline void runSoftMaxImages(const LossNumbers& numbers, const LossRows& rows, LossImages& images,
                             std::size_t channels, SoftMaxTile& tile) {
  if (!isPlain(numbers, rows))
    runSoftMaxImagesOf<false, false>(numbers, rows, images, channels, tile);
  else if (areHalfRuns(rows))
    runPlainImages<Float16>(numbers, rows, images, channels, tile);
  else if (!rows.gradient.isHalf)
    runPlainImages<float>(numbers, rows, images, channels, tile);
  else
    runSoftMaxImagesOf<true, false>(numbers, rows, images, channels, tile);
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
