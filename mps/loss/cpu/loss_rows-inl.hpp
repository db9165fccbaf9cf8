// Losses and their derivatives on adjacent values, once per instruction set. Include it after
// hwy/highway.h in a file that hwy/foreach_target.h compiles several times; mps/core/cpu/highway_targets.hpp
// comes before both.

#if defined(UNMETAL_MPS_LOSS_LOSS_ROWS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_LOSS_LOSS_ROWS_INL_HPP
#undef UNMETAL_MPS_LOSS_LOSS_ROWS_INL_HPP
#else
#define UNMETAL_MPS_LOSS_LOSS_ROWS_INL_HPP
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "mps/core/cpu/float16_runs-inl.hpp"
#include "mps/core/cpu/vector_math-inl.hpp"
#include "mps/core/cpu/vector_runs-inl.hpp"
#include "mps/loss/cpu/loss_run.hpp"

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
// Each type has loss, gradient and labelGradient without any weight.
// `shared` is what loss and gradient have in common, computed once; the comparisons let NaN through.

struct NothingShared {
  static constexpr bool isHalf = false;
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

/// @tparam half LossRows::isHalf
template <bool half>
struct SigmoidCrossEntropyVectors {
  static constexpr bool isHalf = half;
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

/// Whether predictions, labels and gradient are float16 where they lie.
inline bool areHalfRuns(const LossRows& rows) {
  return rows.predictions.isHalf && rows.labels.isHalf && rows.gradient.isHalf;
}

/// Whether nothing but loss and gradient may be wanted, by nothing but the predictions and one factor for each image.
inline bool isUnweighted(const LossRows& rows) {
  return !rows.loss && !rows.labelGradient && !rows.weights && !rows.sourceGradient;
}

/// The same where both are wanted.
inline bool isPlain(const LossNumbers& numbers, const LossRows& rows) {
  return rows.wantsLoss && rows.gradient && isUnweighted(rows) && !numbers.exactSoftMaxGradient;
}

/// What lies a page behind: the tile after this one, or of float16 the second one, while the processor computes.
HWY_INLINE void prefetch(ConstFloatRun values, std::size_t i) {
  constexpr std::size_t ahead = sizeof(float) * kLossTile;
  hwy::Prefetch(static_cast<const std::byte*>((values + i).address) + ahead);
}

/// runElements() where isPlain(), in two passes: the processor overlaps more vectors that have fewer steps each.
template <class Vectors>
HWY_INLINE float runPlainElements(const Vectors& vectors, const LossRows& rows, std::size_t first,
                                  std::size_t count, float imageFactor) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  alignas(64) float sharedValues[kLossTile];
  const ConstFloatRun predictions = known<Vectors::isHalf>(rows.predictions) + first;
  const ConstFloatRun labels = known<Vectors::isHalf>(rows.labels) + first;
  const FloatRun gradient = known<Vectors::isHalf>(rows.gradient) + first;
  forVectors(
      d, count, [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
        prefetch(predictions, i);
        prefetch(labels, i);
        lanes.store(d, vectors.shared(d, lanes.load(d, predictions + i)), sharedValues + i);
      });
  const V factor = hn::Set(d, imageFactor);
  V sum = hn::Zero(d);
  forVectors(
      d, count, [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
        const V y = lanes.load(d, predictions + i);
        const V t = lanes.load(d, labels + i);
        const V shared = lanes.load(d, sharedValues + i);
        sum = hn::Add(sum, inLanes(d, lanes, vectors.loss(d, y, t, shared), hn::Zero(d)));
        lanes.store(d, hn::Mul(factor, vectors.gradient(d, y, t, shared)), gradient + i);
      });
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

/// runElements() where isUnweighted() and what is read and wanted is float16: no branches between few instructions.
template <bool wantsLoss, bool wantsGradient, class Vectors>
HWY_INLINE float runHalfElements(const Vectors& vectors, const LossRows& rows, std::size_t first,
                                 std::size_t count, float imageFactor) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const ConstFloatRun predictions = known<true>(rows.predictions) + first;
  const ConstFloatRun labels = known<true>(rows.labels) + first;
  const FloatRun gradient = known<true>(rows.gradient) + first;
  const V factor = hn::Set(d, imageFactor);
  V sum = hn::Zero(d);
  forVectors(
      d, count, [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
        prefetch(predictions, i);
        prefetch(labels, i);
        const V y = lanes.load(d, predictions + i);
        const V t = lanes.load(d, labels + i);
        const V shared = vectors.shared(d, y);
        if constexpr (wantsLoss)
          sum = hn::Add(sum, inLanes(d, lanes, vectors.loss(d, y, t, shared), hn::Zero(d)));
        if constexpr (wantsGradient)
          lanes.store(d, hn::Mul(factor, vectors.gradient(d, y, t, shared)), gradient + i);
      });
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

/// Writes the wanted outputs of `count` elements from element `first` on and returns the sum of w l.
template <class Vectors>
HWY_INLINE float runElements(const Vectors& vectors, const LossNumbers& numbers, const LossRows& rows,
                             std::size_t first, std::size_t count, float imageFactor) {
  if constexpr (Vectors::isHalf)
    if (isPlain(numbers, rows) && areHalfRuns(rows))
      return runPlainElements(vectors, rows, first, count, imageFactor);
  if (isUnweighted(rows) && rows.predictions.isHalf && rows.labels.isHalf) {
    if (!rows.gradient) return runHalfElements<true, false>(vectors, rows, first, count, imageFactor);
    if (rows.gradient.isHalf)
      return rows.wantsLoss ? runHalfElements<true, true>(vectors, rows, first, count, imageFactor)
                            : runHalfElements<false, true>(vectors, rows, first, count, imageFactor);
  }
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const V factor = hn::Set(d, imageFactor);
  V sum = hn::Zero(d);
  forVectors(
      d, count, [&](std::size_t offset, auto lanes) HWY_ATTR __attribute__((always_inline)) {
        const std::size_t i = first + offset;
        prefetch(rows.predictions, i);
        prefetch(rows.labels, i);
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
      return rows.isHalf ? runImages<SigmoidCrossEntropyVectors<true>>(numbers, rows, images)
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
