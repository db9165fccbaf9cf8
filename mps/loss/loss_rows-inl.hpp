// Losses and their derivatives on adjacent values, once per instruction set. Include it after
// hwy/highway.h in a file that hwy/foreach_target.h compiles several times; mps/core/highway_targets.hpp
// comes before both.

#if defined(UNMETAL_MPS_LOSS_LOSS_ROWS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_LOSS_LOSS_ROWS_INL_HPP
#undef UNMETAL_MPS_LOSS_LOSS_ROWS_INL_HPP
#else
#define UNMETAL_MPS_LOSS_LOSS_ROWS_INL_HPP
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "mps/core/vector_math-inl.hpp"
#include "mps/core/vector_runs-inl.hpp"
#include "mps/loss/loss_run.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// exp(x) for x <= 0, as exact as the results need it.
/// @tparam isHalf predictions and gradient are float16
template <bool isHalf, class D, class V>
HWY_INLINE V exponential(D d, V x) {
  if constexpr (isHalf)
    return vectorExpNonPositiveForHalf(d, x);
  else
    return vectorExpNonPositive(d, x);
}

// Element-wise losses
// --------------------------------------------------------------------------------------------------------
//
// Each type has loss, gradient and labelGradient of spec/04 sections 11.4, 11.6, 11.7 without any weight.
// `shared` is what loss and gradient have in common, computed once; the comparisons let NaN through.

struct NothingShared {
  template <class D, class V>
  HWY_INLINE V shared(D d, V) const {
    return hn::Zero(d);
  }
};

struct MeanAbsoluteErrorVectors : NothingShared {
  explicit MeanAbsoluteErrorVectors(const LossNumbers&) {}
  template <class D, class V>
  HWY_INLINE V loss(D, V y, V t, V) const {
    return hn::Abs(hn::Sub(y, t));
  }
  template <class D, class V>
  HWY_INLINE V gradient(D d, V y, V t, V) const {
    const V x = hn::Sub(y, t);
    const V zero = hn::Zero(d);
    const V positive = hn::IfThenElse(hn::Gt(x, zero), hn::Set(d, 1.0F), x);
    return hn::IfThenElse(hn::Lt(x, zero), hn::Set(d, -1.0F), positive);
  }
  template <class D, class V>
  HWY_INLINE V labelGradient(D d, V y, V t, V shared) const {
    return hn::Neg(gradient(d, y, t, shared));
  }
};

struct MeanSquaredErrorVectors : NothingShared {
  explicit MeanSquaredErrorVectors(const LossNumbers&) {}
  template <class D, class V>
  HWY_INLINE V loss(D, V y, V t, V) const {
    const V x = hn::Sub(y, t);
    return hn::Mul(x, x);
  }
  template <class D, class V>
  HWY_INLINE V gradient(D d, V y, V t, V) const {
    return hn::Mul(hn::Set(d, 2.0F), hn::Sub(y, t));
  }
  template <class D, class V>
  HWY_INLINE V labelGradient(D d, V y, V t, V) const {
    return hn::Mul(hn::Set(d, 2.0F), hn::Sub(t, y));
  }
};

/// @tparam isHalf predictions and gradient are float16
template <bool isHalf>
struct SigmoidCrossEntropyVectors {
  explicit SigmoidCrossEntropyVectors(const LossNumbers& numbers)
      : labelScale(numbers.labelScale), labelOffset(numbers.labelOffset) {}
  /// exp(-|y|).
  template <class D, class V>
  HWY_INLINE V shared(D d, V y) const {
    return exponential<isHalf>(d, hn::Neg(hn::Abs(y)));
  }
  template <class D, class V>
  HWY_INLINE V loss(D d, V y, V t, V shared) const {
    const V line = hn::NegMulAdd(y, smoothed(d, t), atLeast(d, y, 0.0F));
    if constexpr (isHalf)
      return hn::Add(line, vectorLog1pForHalf(d, shared));
    else
      return hn::Add(line, vectorLog1p(d, shared));
  }
  template <class D, class V>
  HWY_INLINE V gradient(D d, V y, V t, V shared) const {
    const V one = hn::Set(d, 1.0F);
    const V numerator = hn::IfThenElse(hn::Lt(y, hn::Zero(d)), shared, one);
    return hn::Sub(hn::Div(numerator, hn::Add(one, shared)), smoothed(d, t));
  }
  template <class D, class V>
  HWY_INLINE V labelGradient(D d, V y, V, V) const {
    return hn::Mul(y, hn::Set(d, -labelScale));
  }
  template <class D, class V>
  HWY_INLINE V smoothed(D d, V t) const {
    return hn::MulAdd(t, hn::Set(d, labelScale), hn::Set(d, labelOffset));
  }
  float labelScale;
  float labelOffset;
};

struct CategoricalCrossEntropyVectors : NothingShared {
  explicit CategoricalCrossEntropyVectors(const LossNumbers&) {}
  template <class D, class V>
  HWY_INLINE V loss(D d, V y, V t, V) const {
    return hn::IfThenZeroElse(hn::Eq(t, hn::Zero(d)), hn::Neg(hn::Mul(t, vectorLog(d, y))));
  }
  template <class D, class V>
  HWY_INLINE V gradient(D d, V y, V t, V) const {
    return hn::IfThenZeroElse(hn::Eq(t, hn::Zero(d)), hn::Neg(hn::Div(t, y)));
  }
  template <class D, class V>
  HWY_INLINE V labelGradient(D d, V y, V, V) const {
    return hn::Neg(vectorLog(d, y));
  }
};

struct HingeVectors : NothingShared {
  explicit HingeVectors(const LossNumbers&) {}
  template <class D, class V>
  HWY_INLINE V loss(D d, V y, V t, V) const {
    const V margin = hn::NegMulAdd(sign(d, t), y, hn::Set(d, 1.0F));
    return atLeast(d, margin, 0.0F);
  }
  template <class D, class V>
  HWY_INLINE V gradient(D d, V y, V t, V) const {
    return hn::IfThenElseZero(isInside(d, y, t), hn::Neg(sign(d, t)));
  }
  template <class D, class V>
  HWY_INLINE V labelGradient(D d, V y, V t, V) const {
    return hn::IfThenElseZero(isInside(d, y, t), hn::Mul(y, hn::Set(d, -2.0F)));
  }
  /// s = 2 t - 1.
  template <class D, class V>
  HWY_INLINE V sign(D d, V t) const {
    return hn::MulSub(t, hn::Set(d, 2.0F), hn::Set(d, 1.0F));
  }
  template <class D, class V>
  HWY_INLINE hn::Mask<D> isInside(D d, V y, V t) const {
    return hn::Lt(hn::Mul(sign(d, t), y), hn::Set(d, 1.0F));
  }
};

struct HuberVectors : NothingShared {
  explicit HuberVectors(const LossNumbers& numbers) : delta(numbers.delta) {}
  template <class D, class V>
  HWY_INLINE V loss(D d, V y, V t, V) const {
    const V a = hn::Abs(hn::Sub(y, t));
    const V limit = hn::Set(d, delta);
    const V half = hn::Set(d, 0.5F);
    const V square = hn::Mul(half, hn::Mul(a, a));
    const V line = hn::MulAdd(limit, hn::Sub(a, limit), hn::Mul(half, hn::Mul(limit, limit)));
    return hn::IfThenElse(hn::Le(a, limit), square, line);
  }
  template <class D, class V>
  HWY_INLINE V gradient(D d, V y, V t, V) const {
    return atMost(d, atLeast(d, hn::Sub(y, t), -delta), delta);
  }
  template <class D, class V>
  HWY_INLINE V labelGradient(D d, V y, V t, V shared) const {
    return hn::Neg(gradient(d, y, t, shared));
  }
  float delta;
};

/// The loss is y t; "1 minus" follows after the sum.
struct CosineDistanceVectors : NothingShared {
  explicit CosineDistanceVectors(const LossNumbers&) {}
  template <class D, class V>
  HWY_INLINE V loss(D, V y, V t, V) const {
    return hn::Mul(y, t);
  }
  template <class D, class V>
  HWY_INLINE V gradient(D, V, V t, V) const {
    return hn::Neg(t);
  }
  template <class D, class V>
  HWY_INLINE V labelGradient(D, V y, V, V) const {
    return hn::Neg(y);
  }
};

/// With u = y + epsilon and v = 1 - y + epsilon.
struct LogVectors : NothingShared {
  explicit LogVectors(const LossNumbers& numbers) : epsilon(numbers.epsilon) {}
  template <class D, class V>
  HWY_INLINE V loss(D d, V y, V t, V) const {
    const V otherLabel = hn::Sub(hn::Set(d, 1.0F), t);
    const V first = hn::Mul(t, vectorLog(d, sumWithPrediction(d, y)));
    return hn::Neg(hn::MulAdd(otherLabel, vectorLog(d, sumWithComplement(d, y)), first));
  }
  /// Two quotients: the one of the header cancels near y = t.
  template <class D, class V>
  HWY_INLINE V gradient(D d, V y, V t, V) const {
    const V otherLabel = hn::Sub(hn::Set(d, 1.0F), t);
    return hn::Sub(hn::Div(otherLabel, sumWithComplement(d, y)), hn::Div(t, sumWithPrediction(d, y)));
  }
  template <class D, class V>
  HWY_INLINE V labelGradient(D d, V y, V, V) const {
    return hn::Sub(vectorLog(d, sumWithComplement(d, y)), vectorLog(d, sumWithPrediction(d, y)));
  }
  template <class D, class V>
  HWY_INLINE V sumWithPrediction(D d, V y) const {
    return hn::Add(y, hn::Set(d, epsilon));
  }
  template <class D, class V>
  HWY_INLINE V sumWithComplement(D d, V y) const {
    return hn::Add(hn::Sub(hn::Set(d, 1.0F), y), hn::Set(d, epsilon));
  }
  float epsilon;
};

struct KullbackLeiblerDivergenceVectors : NothingShared {
  explicit KullbackLeiblerDivergenceVectors(const LossNumbers&) {}
  template <class D, class V>
  HWY_INLINE V loss(D d, V y, V t, V) const {
    return hn::IfThenZeroElse(hn::Eq(t, hn::Zero(d)), hn::Mul(t, hn::Sub(vectorLog(d, t), y)));
  }
  template <class D, class V>
  HWY_INLINE V gradient(D, V, V t, V) const {
    return hn::Neg(t);
  }
  template <class D, class V>
  HWY_INLINE V labelGradient(D d, V y, V t, V) const {
    const V slope = hn::Sub(hn::Add(vectorLog(d, t), hn::Set(d, 1.0F)), y);
    return hn::IfThenZeroElse(hn::Eq(t, hn::Zero(d)), slope);
  }
};

// Rows
// --------------------------------------------------------------------------------------------------------

// The bodies of the loops say always_inline: the compiler would call them, and then keep all constants in
// memory.

/// `value` in the lanes that were loaded, `other` in the rest.
template <class D, class V>
HWY_INLINE V inLanes(D, AllLanes, V value, V) {
  return value;
}
template <class D, class V>
HWY_INLINE V inLanes(D d, FirstLanes lanes, V value, V other) {
  return hn::IfThenElse(hn::FirstN(d, lanes.count), value, other);
}

/// w, or 1 without weights.
template <class D, class Lanes>
HWY_INLINE hn::Vec<D> loadWeights(D d, Lanes lanes, const LossRows& rows, std::size_t i) {
  return rows.weights ? lanes.load(d, rows.weights + i) : hn::Set(d, 1.0F);
}

/// What multiplies a derivative: w, the factor of the image and the incoming gradient of the element.
template <class D, class Lanes, class V>
HWY_INLINE V derivativeScale(D d, Lanes lanes, const LossRows& rows, std::size_t i, V w, V factor) {
  const V scale = hn::Mul(w, factor);
  return rows.sourceGradient ? hn::Mul(scale, lanes.load(d, rows.sourceGradient + i)) : scale;
}

/// Whether predictions and gradient are float16.
inline bool isAllHalf(const LossRows& rows) {
  return rows.predictions.isHalf && rows.gradient.isHalf;
}

/// Writes the wanted outputs of `count` elements from element `first` on and returns the sum of w l.
template <class Vectors>
HWY_INLINE float runElements(const Vectors& vectors, const LossNumbers& numbers, const LossRows& rows,
                             std::size_t first, std::size_t count, float imageFactor) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const V factor = hn::Set(d, imageFactor);
  V sum = hn::Zero(d);
  forVectors(
      d, count, [&](std::size_t offset, auto lanes) HWY_ATTR __attribute__((always_inline)) {
        const std::size_t i = first + offset;
        const V y = lanes.load(d, rows.predictions + i);
        const V t = lanes.load(d, rows.labels + i);
        const V w = loadWeights(d, lanes, rows, i);
        const V shared = vectors.shared(d, y);
        if (rows.wantsLoss) {
          const V loss = hn::Mul(w, vectors.loss(d, y, t, shared));
          sum = hn::Add(sum, inLanes(d, lanes, loss, hn::Zero(d)));
          if (rows.loss) lanes.store(d, hn::Mul(loss, hn::Set(d, numbers.weight)), rows.loss + i);
        }
        const V scale = derivativeScale(d, lanes, rows, i, w, factor);
        if (rows.gradient)
          lanes.store(d, hn::Mul(scale, vectors.gradient(d, y, t, shared)), rows.gradient + i);
        if (rows.labelGradient)
          lanes.store(d, hn::Mul(scale, vectors.labelGradient(d, y, t, shared)), rows.labelGradient + i);
      });
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

/// The same for the images of a tile.
template <class Vectors>
void runImages(const LossNumbers& numbers, const LossRows& rows, LossImages& images) {
  const Vectors vectors(numbers);
  for (std::size_t n = 0; n < images.count; ++n)
    images.sums[n] =
        runElements(vectors, numbers, rows, n * images.elements, images.elements, images.factors[n]);
}

/// The same for any type but softmax.
inline void runImagesOf(CNNLossType type, const LossNumbers& numbers, const LossRows& rows,
                        LossImages& images) {
  switch (type) {
    case CNNLossType::MeanAbsoluteError:
      return runImages<MeanAbsoluteErrorVectors>(numbers, rows, images);
    case CNNLossType::MeanSquaredError:
      return runImages<MeanSquaredErrorVectors>(numbers, rows, images);
    case CNNLossType::SigmoidCrossEntropy:
      return isAllHalf(rows) ? runImages<SigmoidCrossEntropyVectors<true>>(numbers, rows, images)
                             : runImages<SigmoidCrossEntropyVectors<false>>(numbers, rows, images);
    case CNNLossType::CategoricalCrossEntropy:
      return runImages<CategoricalCrossEntropyVectors>(numbers, rows, images);
    case CNNLossType::Hinge:
      return runImages<HingeVectors>(numbers, rows, images);
    case CNNLossType::Huber:
      return runImages<HuberVectors>(numbers, rows, images);
    case CNNLossType::CosineDistance:
      return runImages<CosineDistanceVectors>(numbers, rows, images);
    case CNNLossType::Log:
      return runImages<LogVectors>(numbers, rows, images);
    case CNNLossType::KullbackLeiblerDivergence:
      return runImages<KullbackLeiblerDivergenceVectors>(numbers, rows, images);
    case CNNLossType::SoftMaxCrossEntropy:
    case CNNLossType::Count:
      break;
  }
}

// Softmax of one pixel, in parts, so that a row of channels can be longer than a tile.

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
  return hn::GetLane(hn::MaxOfLanes(d, largest));
}

/// Sum of exp(y - largest). The exponentials go to memory that holds whole vectors, unless it is null.
template <bool isHalf>
HWY_INLINE float sumExponentials(ConstFloatRun predictions, std::size_t count, float largest,
                                 float* exponentials) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  V sum = hn::Zero(d);
  forVectors(
      d, count, [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
        const V e = exponential<isHalf>(d, hn::Sub(lanes.load(d, predictions + i), hn::Set(d, largest)));
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
  alignas(64) Numbers largest;
  alignas(64) Numbers sum;             ///< of the exponentials
  alignas(64) Numbers logOfSum;        ///< from here on by finishSums()
  alignas(64) Numbers reciprocal;      ///< 1 / sum
  alignas(64) Numbers exponentials;    ///< of all channels
  alignas(64) Numbers weightedLabels;  ///< sumWeightedLabels(), for the exact gradient
};

HWY_INLINE void finishSums(SoftMaxTile& tile, std::size_t pixels) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  for (std::size_t i = 0; i < pixels; i += hn::Lanes(d)) {
    const V sum = hn::Load(d, tile.sum.data() + i);
    hn::Store(vectorLog(d, sum), d, tile.logOfSum.data() + i);
    hn::Store(hn::Div(hn::Set(d, 1.0F), sum), d, tile.reciprocal.data() + i);
  }
}

/// Whether loss and gradient are wanted, by nothing but the predictions and one factor for each image.
inline bool isPlain(const LossNumbers& numbers, const LossRows& rows) {
  return rows.wantsLoss && rows.gradient && !rows.loss && !rows.labelGradient && !rows.weights &&
         !rows.sourceGradient && !numbers.exactSoftMaxGradient;
}

/// Writes the wanted outputs of `count` channels of a pixel, from element `first` of the rows on, and adds w
/// l to `sum`. `exponentials` are those of sumExponentials(), or null: computed again.
/// @tparam plain isPlain(): the processor foresees the branches, but there are many
template <bool plain, class V>
HWY_INLINE void runPixel(const LossNumbers& numbers, const LossRows& rows, std::size_t first,
                         std::size_t count, float imageFactor, const SoftMaxTile& tile, std::size_t pixel,
                         const float* exponentials, V& sum) {
  const hn::ScalableTag<float> d;
  const V largest = hn::Set(d, tile.largest[pixel]);
  const V logOfSum = hn::Set(d, tile.logOfSum[pixel]);
  const V reciprocal = hn::Set(d, tile.reciprocal[pixel]);
  const V factor = hn::Set(d, imageFactor);
  forVectors(
      d, count, [&](std::size_t offset, auto lanes) HWY_ATTR __attribute__((always_inline)) {
        const std::size_t i = first + offset;
        const V z = hn::Sub(lanes.load(d, rows.predictions + i), largest);
        const V t = smoothedLabel(d, numbers, lanes.load(d, rows.labels + i));
        const V negativeLog = hn::Sub(logOfSum, z);
        if constexpr (plain) {
          sum = hn::Add(sum,
                        inLanes(d, lanes, hn::IfThenZeroElse(hn::Eq(t, hn::Zero(d)), hn::Mul(t, negativeLog)),
                                hn::Zero(d)));
          const V p = hn::Mul(hn::LoadU(d, exponentials + offset), reciprocal);
          lanes.store(d, hn::Mul(factor, hn::Sub(p, t)), rows.gradient + i);
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
    tile.largest[i] = largestPrediction(predictions + i * channels, channels);
  // The last vector of a pixel reaches into the next one, which comes later.
  for (std::size_t i = 0; i < pixels; ++i)
    tile.sum[i] = sumExponentials<isHalf>(predictions + i * channels, channels, tile.largest[i],
                                          tile.exponentials.data() + i * channels);
  finishSums(tile, pixels);
}

/// Asks for `count` values: the next tile, while the processor computes this one.
HWY_INLINE void prefetch(ConstFloatRun values, std::size_t count) {
  const std::size_t line = values.isHalf ? 32 : 16;
  for (std::size_t i = 0; i < count; i += line)
    hwy::Prefetch(static_cast<const std::byte*>((values + i).address));
}

/// The outputs of the images of a tile that went through reducePixels().
template <bool plain>
void runSoftMaxImagesOf(const LossNumbers& numbers, const LossRows& rows, LossImages& images,
                        std::size_t channels, SoftMaxTile& tile) {
  const hn::ScalableTag<float> d;
  std::size_t pixel = 0;
  for (std::size_t n = 0; n < images.count; ++n) {
    const float factor = images.factors[n];
    hn::Vec<decltype(d)> sum = hn::Zero(d);
    for (const std::size_t end = pixel + images.elements / channels; pixel < end; ++pixel) {
      const std::size_t first = pixel * channels;
      const std::size_t next = first + images.count * images.elements;
      prefetch(rows.predictions + next, channels);
      prefetch(rows.labels + next, channels);
      if (numbers.exactSoftMaxGradient)
        tile.weightedLabels[pixel] = sumWeightedLabels(numbers, rows, first, channels, factor);
      runPixel<plain>(numbers, rows, first, channels, factor, tile, pixel, tile.exponentials.data() + first,
                      sum);
    }
    images.sums[n] = hn::GetLane(hn::SumOfLanes(d, sum));
  }
}

inline void runSoftMaxImages(const LossNumbers& numbers, const LossRows& rows, LossImages& images,
                             std::size_t channels, SoftMaxTile& tile) {
  if (isPlain(numbers, rows))
    runSoftMaxImagesOf<true>(numbers, rows, images, channels, tile);
  else
    runSoftMaxImagesOf<false>(numbers, rows, images, channels, tile);
}

/// Number of values that are not 0; NaN is not 0.
inline std::int64_t countNonZero(ConstFloatRun values, std::int64_t count) {
  const hn::ScalableTag<float> d;
  std::size_t nonZero = 0;
  forVectors(
      d, static_cast<std::size_t>(count),
      [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
        const auto isZero = hn::Eq(lanes.load(d, values + i), hn::Zero(d));
        nonZero += hn::Lanes(d) - hn::CountTrue(d, isZero);  // lanes that were not loaded are 0
      });
  return static_cast<std::int64_t>(nonZero);
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
