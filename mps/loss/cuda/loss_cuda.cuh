#pragma once

#include <cstdint>

#include "mps/core/cuda/element_grid_cuda.cuh"
#include "mps/core/cuda/row_reduction_cuda.cuh"
#include "mps/core/cuda/special_functions_cuda.cuh"
#include "mps/loss/loss_numbers.hpp"

/// Losses and their derivatives in kernels: the formulas of
/// loss_rows-inl.hpp, and what a vector of elements needs and gives.
namespace mps::detail::cuda {

/// One run. Tensors of one value per element have the counted channels alone; one that is not there has a null
/// address.
struct LossArguments {
  CNNLossType type = CNNLossType::MeanSquaredError;
  LossNumbers numbers;
  bool perElement = false;  ///< reduction None
  bool wantsLoss = false;   ///< as values or as a sum
  bool accumulate = false;

  // What derivatives are multiplied with.
  double weight = 1;
  bool divideGradient = false;
  bool reduceAcrossBatch = false;
  double divisor = 1;                          ///< of the reduction
  const unsigned long long* counts = nullptr;  ///< in place of it, of each image, and at last of the batch

  std::uint32_t images = 0;
  std::uint32_t items = 0;          ///< of an image: vectors; for softmax, pixels
  std::uint32_t itemsPerChunk = 0;  ///< of a block
  Divider chunks;                   ///< of an image
  Divider width;
  Divider vectors;  ///< of a pixel
  std::uint32_t classes = 0;

  SourceView predictions;
  LossLabels labelKind = LossLabels::Dense;
  SourceView labels;
  SourceView weights;
  SourceView sourceGradient;  ///< of reduction None per element, otherwise per image
  ResultView gradient;
  ResultView labelGradient;
  ResultView loss;         ///< of reduction None
  double* sums = nullptr;  ///< of w l, [image][chunk]

  [[nodiscard]] __device__ double divisorOf(std::uint32_t image) const {
    return counts == nullptr ? divisor : static_cast<double>(counts[reduceAcrossBatch ? images : image]);
  }
  /// What every derivative of an image is multiplied with.
  [[nodiscard]] __device__ float factor(std::uint32_t image) const {
    if (perElement) return numbers.weight;
    double value = weight;
    if (sourceGradient.memory != nullptr)
      value *= static_cast<double>(loadAs(sourceGradient.format, sourceGradient.memory,
                                          (reduceAcrossBatch ? 0 : image) * sourceGradient.image));
    if (divideGradient) {
      const double by = divisorOf(image);
      value = by == 0 ? 0 : value / by;
    }
    return static_cast<float>(value);
  }
  /// @param pixel in the order y, x
  [[nodiscard]] __device__ ElementPlace place(std::uint32_t image, std::uint32_t pixel) const {
    const std::uint32_t y = width.divide(pixel);
    return {static_cast<std::int32_t>(image), static_cast<std::int32_t>(y),
            static_cast<std::int32_t>(pixel - y * width.divisor()), 0};
  }
  /// The class of a pixel; of dense labels 0.
  [[nodiscard]] __device__ std::uint32_t classOf(ElementPlace place) const {
    place.channel = 0;
    if (labelKind == LossLabels::Dense) return 0;
    return reinterpret_cast<const std::uint32_t*>(labels.memory)[labels.offset(place)];
  }
  [[nodiscard]] __device__ bool isLeftOut(std::uint32_t index) const { return index >= classes; }
};

/// Predictions and labels of a vector, as memory has them.
template <class Access>
struct FetchedInputs {
  typename Access::Fetched predictions{};
  typename Access::Fetched labels{};

  FetchedInputs() = default;
  __device__ FetchedInputs(const LossArguments& a, const ElementPlace& place)
      : predictions(Access::fetch(a.predictions, place)) {
    if (a.labelKind == LossLabels::Dense) labels = Access::fetch(a.labels, place);
  }
  /// @param index classOf() the pixel
  [[nodiscard]] __device__ typename Access::Values labelValues(const LossArguments& a,
                                                               const ElementPlace& place,
                                                               std::uint32_t index) const {
    if (a.labelKind == LossLabels::Dense) return Access::valuesOf(labels);
    typename Access::Values values;
    for (int i = 0; i < Access::lanes; ++i)
      values.values[i] = index == static_cast<std::uint32_t>(place.channel + i) ? 1.0F : 0.0F;
    return values;
  }
  /// Where the pixel is left out such that losses and derivatives of all types are finite.
  [[nodiscard]] __device__ typename Access::Values predictionValues(const LossArguments& a,
                                                                    std::uint32_t index) const {
    typename Access::Values values = Access::valuesOf(predictions);
    if (a.isLeftOut(index))
      for (float& value : values.values) value = 0.5F;
    return values;
  }
};

/// A vector of weights; 0 where the pixel is left out.
template <class Access>
__device__ typename Access::Values loadWeights(const LossArguments& a, const ElementPlace& place,
                                               std::uint32_t index) {
  typename Access::Values values;
  if (a.weights.memory != nullptr && !a.isLeftOut(index)) return Access::load(a.weights, place);
  for (float& value : values.values) value = a.isLeftOut(index) ? 0.0F : 1.0F;
  return values;
}

/// What derivatives are multiplied with: w, the factor of the image and the incoming gradient of the element.
template <class Access>
__device__ typename Access::Values derivativeScale(const LossArguments& a, const ElementPlace& place,
                                                   typename Access::Values w, float factor) {
  for (float& value : w.values) value *= factor;
  if (!a.perElement || a.sourceGradient.memory == nullptr) return w;
  const auto incoming = Access::load(a.sourceGradient, place);
  for (int i = 0; i < Access::lanes; ++i) w.values[i] *= incoming.values[i];
  return w;
}

/// The items of a block, which are of one image.
struct Chunk {
  std::uint32_t image;
  std::uint32_t begin;
  std::uint32_t end;

  __device__ explicit Chunk(const LossArguments& a)
      : image(a.chunks.divide(blockIdx.x)),
        begin((blockIdx.x - image * a.chunks.divisor()) * a.itemsPerChunk),
        end(min(begin + a.itemsPerChunk, a.items)) {}
};

/// Stores the sum of w l of a block.
__device__ inline void storeSum(const LossArguments& a, double sum) {
  __shared__ double shared[kMostWarps];
  if (a.sums == nullptr) return;
  sum = sumOfBlock(sum, shared);
  if (threadIdx.x == 0 && threadIdx.y == 0) a.sums[blockIdx.x] = sum;
}

/// Stores the loss of each element where it is wanted, and returns the sum of w l of a vector.
template <class Access, class LossOfLane>
__device__ float storeLosses(const LossArguments& a, const ElementPlace& place,
                             const typename Access::Values& w, LossOfLane lossOfLane) {
  if (!a.wantsLoss) return 0.0F;
  typename Access::Values values;
  float sum = 0;
  for (int i = 0; i < Access::lanes; ++i) {
    values.values[i] = w.values[i] * lossOfLane(i);
    sum += values.values[i];
  }
  if (a.loss.memory != nullptr) {
    for (float& value : values.values) value *= a.numbers.weight;
    Access::store(values, a.loss, place);
  }
  return sum;
}

__device__ inline float smoothedLabel(const LossNumbers& n, float t) {
  return fmaf(t, n.labelScale, n.labelOffset);
}

/// exp(-|y|). @tparam ofHalf y is a half, as the gradient will be; of its loss the smaller the exponential the less counts
template <bool ofHalf>
__device__ float exponentialOfDistance(float y) {
  return ofHalf ? exponential(-fabsf(y)) : expf(-fabsf(y));
}

// Losses of one element without any weight, with their derivatives for the prediction y and the label t; all but softmax. The
// comparisons let NaN through.

struct MeanAbsoluteErrorLoss {
  __device__ static float loss(float y, float t) { return fabsf(y - t); }
  __device__ static float gradient(float y, float t) {
    const float d = y - t;
    return d < 0.0F ? -1.0F : d > 0.0F ? 1.0F : d;
  }
  __device__ static float labelGradient(float y, float t) { return -gradient(y, t); }
};
struct MeanSquaredErrorLoss {
  __device__ static float loss(float y, float t) { return (y - t) * (y - t); }
  __device__ static float gradient(float y, float t) { return 2.0F * (y - t); }
  __device__ static float labelGradient(float y, float t) { return 2.0F * (t - y); }
};
/// @tparam ofHalf predictions and gradient are float16
template <bool ofHalf>
struct SigmoidCrossEntropyLoss {
  const LossNumbers& n;
  __device__ float loss(float y, float t) const {
    return fmaf(-y, smoothedLabel(n, t), y < 0.0F ? 0.0F : y) +
           logOfOnePlus(exponentialOfDistance<ofHalf>(y));
  }
  __device__ float gradient(float y, float t) const {
    const float e = exponentialOfDistance<ofHalf>(y);
    return fmaf(y < 0.0F ? e : 1.0F, reciprocal(1.0F + e), -smoothedLabel(n, t));
  }
  __device__ float labelGradient(float y, float /*t*/) const { return y * -n.labelScale; }
};
struct CategoricalCrossEntropyLoss {
  __device__ static float loss(float y, float t) { return t == 0.0F ? 0.0F : -(t * logf(y)); }
  __device__ static float gradient(float y, float t) { return t == 0.0F ? 0.0F : -(t / y); }
  __device__ static float labelGradient(float y, float /*t*/) { return -logf(y); }
};
struct HingeLoss {
  __device__ static float loss(float y, float t) {
    const float margin = 1.0F - (2.0F * t - 1.0F) * y;
    return margin < 0.0F ? 0.0F : margin;
  }
  __device__ static float gradient(float y, float t) {
    const float s = 2.0F * t - 1.0F;
    return s * y < 1.0F ? -s : 0.0F;
  }
  __device__ static float labelGradient(float y, float t) {
    return (2.0F * t - 1.0F) * y < 1.0F ? y * -2.0F : 0.0F;
  }
};
struct HuberLoss {
  float delta;
  __device__ float loss(float y, float t) const {
    const float d = fabsf(y - t);
    return d <= delta ? 0.5F * (d * d) : delta * (d - delta) + 0.5F * (delta * delta);
  }
  __device__ float gradient(float y, float t) const {
    const float d = y - t;
    return d < -delta ? -delta : d > delta ? delta : d;
  }
  __device__ float labelGradient(float y, float t) const { return -gradient(y, t); }
};
/// "1 minus" follows after the sum.
struct CosineDistanceLoss {
  __device__ static float loss(float y, float t) { return y * t; }
  __device__ static float gradient(float /*y*/, float t) { return -t; }
  __device__ static float labelGradient(float y, float /*t*/) { return -y; }
};
struct LogLoss {
  float epsilon;
  __device__ float loss(float y, float t) const {
    return -(t * logf(y + epsilon) + (1.0F - t) * logf(1.0F - y + epsilon));
  }
  /// Two quotients: as one it cancels near y = t.
  __device__ float gradient(float y, float t) const {
    return (1.0F - t) / (1.0F - y + epsilon) - t / (y + epsilon);
  }
  __device__ float labelGradient(float y, float /*t*/) const {
    return logf(1.0F - y + epsilon) - logf(y + epsilon);
  }
};
struct KullbackLeiblerDivergenceLoss {
  __device__ static float loss(float y, float t) { return t == 0.0F ? 0.0F : t * (logf(t) - y); }
  __device__ static float gradient(float /*y*/, float t) { return -t; }
  __device__ static float labelGradient(float y, float t) { return t == 0.0F ? 0.0F : logf(t) + 1.0F - y; }
};

/// compute(loss) with the loss above that a type says. The type may be a constant; then only its formula is compiled.
template <bool ofHalf, class Compute>
__device__ __forceinline__ float withLoss(CNNLossType type, const LossNumbers& n, Compute compute) {
  switch (type) {
    case CNNLossType::MeanAbsoluteError:
      return compute(MeanAbsoluteErrorLoss());
    case CNNLossType::MeanSquaredError:
      return compute(MeanSquaredErrorLoss());
    case CNNLossType::SigmoidCrossEntropy:
      return compute(SigmoidCrossEntropyLoss<ofHalf>{n});
    case CNNLossType::CategoricalCrossEntropy:
      return compute(CategoricalCrossEntropyLoss());
    case CNNLossType::Hinge:
      return compute(HingeLoss());
    case CNNLossType::Huber:
      return compute(HuberLoss{n.delta});
    case CNNLossType::CosineDistance:
      return compute(CosineDistanceLoss());
    case CNNLossType::Log:
      return compute(LogLoss{n.epsilon});
    default:
      return compute(KullbackLeiblerDivergenceLoss());
  }
}
template <bool ofHalf = false>
__device__ __forceinline__ float lossOf(CNNLossType type, const LossNumbers& n, float y, float t) {
  return withLoss<ofHalf>(type, n, [=](const auto& loss) { return loss.loss(y, t); });
}
template <bool ofHalf = false>
__device__ __forceinline__ float lossGradient(CNNLossType type, const LossNumbers& n, float y, float t) {
  return withLoss<ofHalf>(type, n, [=](const auto& loss) { return loss.gradient(y, t); });
}
__device__ __forceinline__ float lossLabelGradient(CNNLossType type, const LossNumbers& n, float y, float t) {
  return withLoss<false>(type, n, [=](const auto& loss) { return loss.labelGradient(y, t); });
}

}  // namespace mps::detail::cuda
