#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "mps/distributed/batch_share.hpp"

namespace mps {

class Coder;
class LossScale;
class NNLossCallback;

/// MPSCNNLossType: the loss l of one element with prediction y and label t.
///
/// t' is the smoothed label. The gradients are those with respect to y.
///
/// Hinge agrees with its printed gradient, (1 + (1 - 2t) y) > 0 ? 1 - 2t : 0. The loss that is printed beside it, and in
/// some programs, is max(1 - t y, 0), which has another gradient. For predictions (0.5, -1, 2, 0.25) and labels
/// (1, 0, 0, 0) ours is (0.5, 0, 3, 1.25) and that one (0.5, 1, 1, 1); the gradient is (-1, 0, 1, 1)
/// (docs/decisions.md, D27).
enum class CNNLossType : std::uint32_t {
  MeanAbsoluteError = 0,    ///< |y - t|; gradient sign(y - t), 0 at y = t
  MeanSquaredError = 1,     ///< (y - t)^2, no factor 1/2; gradient 2 (y - t)
  SoftMaxCrossEntropy = 2,  ///< -t' log(softmax(y)) over the channels of a pixel; gradient softmax(y) - t'
  SigmoidCrossEntropy = 3,  ///< max(y, 0) - y t' + log(1 + exp(-|y|)); gradient sigmoid(y) - t'
  CategoricalCrossEntropy = 4,    ///< -t log(y), 0 where t = 0, y a probability; gradient -t / y
  Hinge = 5,                      ///< max(1 - s y, 0), s = 2t - 1, labels 0 or 1; gradient -s where s y < 1
  Huber = 6,                      ///< (y - t)^2 / 2 up to |y - t| = delta, then delta |y - t| - delta^2 / 2
  CosineDistance = 7,             ///< 1 - sum(y t) of the whole image, reduction Sum only; gradient -t
  Log = 8,                        ///< -t log(y + epsilon) - (1 - t) log(1 - y + epsilon)
  KullbackLeiblerDivergence = 9,  ///< t (log(t) - y), 0 where t = 0, y a log-probability; gradient -t
  Count = 10,                     ///< number of types
};

/// MPSCNNReductionType: how the losses of an image become its loss value.
enum class CNNReductionType : std::int32_t {
  /// One loss per element; the loss image has the size of the predictions. In a loss image of 1 x 1 x 1, that of labels
  /// made from the labels descriptor alone, CNNLoss writes their sum (docs/decisions.md, D25).
  None = 0,
  Sum = 1,                  ///< sum of the elements
  Mean = 2,                 ///< sum / (width height channels); SoftMaxCrossEntropy: sum / (width height)
  SumByNonZeroWeights = 3,  ///< sum / number of weights that are not 0; without weights: / number of elements
  Count = 4,                ///< number of types
};

/// MPSCNNLossDescriptor: what a loss computes. A value; kernels copy it when they are made.
///
///     value of element k = weight * w_k * l_k       w_k = 1 without a weights image
///     loss               = reduction(values)
///
/// The kernels check the ranges: finite numbers, numberOfClasses >= 1, epsilon > 0, delta >= 0, labelSmoothing <= 1;
/// CosineDistance takes reduction Sum only.
class CNNLossDescriptor {
 public:
  static CNNLossDescriptor create(CNNLossType lossType, CNNReductionType reductionType) {
    return {lossType, reductionType};
  }
  /// Apple's name of create: +cnnLossDescriptorWithType:reductionType:
  static CNNLossDescriptor cnnLossDescriptor(CNNLossType lossType, CNNReductionType reductionType) {
    return create(lossType, reductionType);
  }

  [[nodiscard]] CNNLossType lossType() const { return lossType_; }
  void setLossType(CNNLossType value) { lossType_ = value; }

  /// Changes the reported loss. The gradient of CNNLoss is never divided by a count, whatever the reduction.
  [[nodiscard]] CNNReductionType reductionType() const { return reductionType_; }
  void setReductionType(CNNReductionType value) { reductionType_ = value; }

  /// Default false. True: the loss of the first image is the reduction over the whole batch, the others are
  /// 0; counts are those of the batch. No effect with CNNReductionType::None.
  [[nodiscard]] bool reduceAcrossBatch() const { return reduceAcrossBatch_; }
  void setReduceAcrossBatch(bool value) { reduceAcrossBatch_ = value; }

  /// Factor of loss and gradient, default 1. 1 / N with reduction Sum is the usual mean over a batch of N.
  [[nodiscard]] float weight() const { return weight_; }
  void setWeight(float value) { weight_ = value; }

  /// Default 0; used by two types when it is positive:
  ///
  ///     SoftMaxCrossEntropy   t' = t (1 - labelSmoothing) + labelSmoothing / numberOfClasses
  ///     SigmoidCrossEntropy   t' = t (1 - labelSmoothing) + labelSmoothing / 2
  [[nodiscard]] float labelSmoothing() const { return labelSmoothing_; }
  void setLabelSmoothing(float value) { labelSmoothing_ = value; }

  /// Default 1, and never taken from the number of channels: set it when SoftMaxCrossEntropy smooths labels,
  /// or the smoothed labels do not sum to 1. SoftMaxCrossEntropy with more than 1: only so many channels
  /// count, the loss and the gradient of the others are 0.
  [[nodiscard]] std::size_t numberOfClasses() const { return numberOfClasses_; }
  void setNumberOfClasses(std::size_t value) { numberOfClasses_ = value; }

  /// Default 1e-7; keeps CNNLossType::Log away from log(0).
  [[nodiscard]] float epsilon() const { return epsilon_; }
  void setEpsilon(float value) { epsilon_ = value; }

  /// Default 1; where CNNLossType::Huber turns from a square into a line.
  [[nodiscard]] float delta() const { return delta_; }
  void setDelta(float value) { delta_ = value; }

  /// Extension, default false: SoftMaxCrossEntropy's gradient is w_k (softmax(y)_k - t'_k). True: it is the
  /// exact derivative of the loss, softmax(y)_k sum_j(w_j t'_j) - w_k t'_k, which differs where the weights
  /// of the channels of a pixel differ or its labels do not sum to 1.
  [[nodiscard]] bool exactSoftMaxGradient() const { return exactSoftMaxGradient_; }
  void setExactSoftMaxGradient(bool value) { exactSoftMaxGradient_ = value; }

  /// Extension, default false: labels are as wide and high as the predictions. True: an axis on which they have size 1 is
  /// repeated over the predictions.
  [[nodiscard]] bool broadcastsLabels() const { return broadcastsLabels_; }
  void setBroadcastsLabels(bool value) { broadcastsLabels_ = value; }

  /// Extension, default null: multiplies the gradient of CNNLoss, not the loss. Needs a reduction.
  [[nodiscard]] const std::shared_ptr<LossScale>& lossScale() const { return lossScale_; }
  void setLossScale(std::shared_ptr<LossScale> value) { lossScale_ = std::move(value); }

  void encode(Coder& coder) const;
  static CNNLossDescriptor decode(Coder& coder);
  bool operator==(const CNNLossDescriptor&) const = default;

 private:
  CNNLossDescriptor(CNNLossType lossType, CNNReductionType reductionType)
      : lossType_(lossType), reductionType_(reductionType) {}

  CNNLossType lossType_;
  CNNReductionType reductionType_;
  bool reduceAcrossBatch_ = false;
  float weight_ = 1.0F;
  float labelSmoothing_ = 0.0F;
  std::size_t numberOfClasses_ = 1;
  float epsilon_ = 1e-7F;
  float delta_ = 1.0F;
  bool exactSoftMaxGradient_ = false;
  bool broadcastsLabels_ = false;
  std::shared_ptr<LossScale> lossScale_;
};

namespace detail {

/// What the kernels of losses that are images, and their nodes, tell of the descriptor that they were made with.
class LossProperties {
 public:
  /// A copy of what the kernel or node was made with.
  [[nodiscard]] const CNNLossDescriptor& descriptor() const { return descriptor_; }
  [[nodiscard]] CNNLossType lossType() const { return descriptor_.lossType(); }
  [[nodiscard]] CNNReductionType reductionType() const { return descriptor_.reductionType(); }
  [[nodiscard]] bool reduceAcrossBatch() const { return descriptor_.reduceAcrossBatch(); }
  [[nodiscard]] std::size_t numberOfClasses() const { return descriptor_.numberOfClasses(); }
  [[nodiscard]] float weight() const { return descriptor_.weight(); }
  [[nodiscard]] float labelSmoothing() const { return descriptor_.labelSmoothing(); }
  [[nodiscard]] float epsilon() const { return descriptor_.epsilon(); }
  [[nodiscard]] float delta() const { return descriptor_.delta(); }
  /// Asked for the weight at each encode. Null, the default: the weight counts, of a gradient that of the state, where it
  /// has one.
  [[nodiscard]] const std::shared_ptr<NNLossCallback>& propertyCallBack() const { return callback_; }
  void setPropertyCallBack(std::shared_ptr<NNLossCallback> callback) { callback_ = std::move(callback); }

 protected:
  LossProperties() = default;
  explicit LossProperties(const CNNLossDescriptor& descriptor) : descriptor_(descriptor) {}
  CNNLossDescriptor descriptor_ = CNNLossDescriptor::cnnLossDescriptor({}, {});
  std::shared_ptr<NNLossCallback> callback_;
};

/// Of the kernels: some may change between encodes, which check them.
class LossKernelProperties : public LossProperties, public SharedBatchKernel {
 public:
  void setWeight(float value) { descriptor_.setWeight(value); }
  void setLabelSmoothing(float value) { descriptor_.setLabelSmoothing(value); }
  void setEpsilon(float value) { descriptor_.setEpsilon(value); }
  void setDelta(float value) { descriptor_.setDelta(value); }

 protected:
  using LossProperties::LossProperties;
  /// The weight of an encode of this rank's part. @param kernel for messages
  /// @throws Error where a rank does not know the count of the whole batch, which follows from weights
  [[nodiscard]] float weightOfPart(const std::string& kernel, float weight, bool hasWeightsImages) const;
  /// A reduction across the batch that divides by a count gives the rank's part: the sum over the ranks is
  /// the loss of the whole batch.
  void setBatchShare(const BatchShare& share) override { share_ = share; }
  void encodeWithoutImages(const std::shared_ptr<mtl::CommandBuffer>& /*commandBuffer*/,
                           const ImageDescriptor& /*source*/, const StateBatch& /*states*/) override {}

 private:
  BatchShare share_;
};

}  // namespace detail

}  // namespace mps
