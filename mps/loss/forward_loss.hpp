#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mps/core/kernel/cnn_gradient_kernel.hpp"
#include "mps/core/kernel/cnn_kernel.hpp"
#include "mps/core/kernel/kernel_class.hpp"
#include "mps/loss/loss_descriptor.hpp"

/// Losses as kernels with a gradient kernel of their own (MPSNNLoss.h): the loss is an image like
/// any other, so that losses can be added, multiplied and differentiated.
namespace mps {

/// Asked for the weight of a loss at each encode (protocol MPSNNLossCallback).
class NNLossCallback : public SecureCoding {
 public:
  /// In place of the kernel's weight, for this encode. @param sourceImage the first image of the predictions
  /// @param destinationImage the first image that is written
  [[nodiscard]] virtual float scalarWeight(const std::shared_ptr<Image>& sourceImage,
                                           const std::shared_ptr<Image>& destinationImage) = 0;
};

/// The loss of predictions against labels (MPSNNForwardLoss).
///
///     loss = reduction of weight * w_k * l_k       CNNLossType lists l, CNNReductionType the reductions
///
/// Labels and weights are ordinary images: as wide and high as the predictions, with at least as many channels; weights may
/// have a single channel for all. An axis of size 1 is repeated: of weights always, of labels where
/// CNNLossDescriptor::broadcastsLabels is set. The destination has the size of the predictions for reduction
/// None, else 1 x 1 x 1 per image; across the batch the first image gets the loss, the others 0. State: the numbers of
/// the encode, for NNLossGradient. Offset, clipRect and the ranges of channels keep their defaults.
/// CNNLossDescriptor::lossScale is for CNNLoss alone: scale the first gradient instead.
class NNForwardLoss : public detail::KernelClass<NNForwardLoss, CNNKernel, "NNForwardLoss">,
                      public detail::LossKernelProperties {
 public:
  /// @throws Error for values out of the ranges that CNNLossDescriptor names, and with a lossScale.
  static std::shared_ptr<NNForwardLoss> create(const std::shared_ptr<mtl::Device>& device,
                                               const CNNLossDescriptor& lossDescriptor);

  /// @name Encodes. The forms without labels that the base class has throw.
  /// @param weights           empty: 1
  /// @param destinationStates as many as images, or empty for none
  /// @{
  void encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const ImageBatch& sourceImages,
                   const ImageBatch& labels, const ImageBatch& weights, const StateBatch& destinationStates,
                   const ImageBatch& destinationImages);
  ImageBatch encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                         const ImageBatch& sourceImages, const ImageBatch& labels,
                         const ImageBatch& weights = {});
  ImageBatch encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                         const ImageBatch& sourceImages, const ImageBatch& labels, const ImageBatch& weights,
                         StateBatch& destinationStates, bool destinationStatesAreTemporary);
  /// @}

 protected:
  using KernelClass::KernelClass;
  NNForwardLoss(std::shared_ptr<mtl::Device> device, const CNNLossDescriptor& lossDescriptor);
  NNForwardLoss(const NNForwardLoss&) = default;
  void codeProperties(Coder& coder) override;
  [[nodiscard]] std::size_t producedFeatureChannels(std::size_t sourceFeatureChannels) const override;
  void adjustDestination(ImageDescriptor& destination, const ImageDescriptor& source) override;
  [[nodiscard]] detail::PreparedCall prepareForward(const detail::ForwardCall& call) const override;
  [[nodiscard]] bool takesSources(std::size_t count) const override { return count == 2 || count == 3; }
  [[nodiscard]] detail::KernelRoles roles() override;
  /// @param sources predictions, labels and, if there are any, weights
  void encodeStep(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                  std::span<const ImageBatch> sources, const StateBatch& destinationStates,
                  const ImageBatch& destinationImages) override;

 private:
  friend KernelClass;
};

/// The gradient of NNForwardLoss with respect to the predictions or the labels (MPSNNLossGradient).
///
/// With g the gradient of the loss, d and f the derivatives of the loss l of an element by prediction and label:
///
///     reduction None   gradient_k = g_k weight w_k d_k
///     else             gradient_k = g   weight w_k d_k / D       g: 1 x 1 x 1 per image; across the batch that of image 0
///
/// and with f in place of d where computeLabelGradients is set:
///
///     MeanAbsoluteError   -sign(y - t)                  SoftMaxCrossEntropy    -log(softmax(y)) (1 - labelSmoothing)
///     MeanSquaredError    -2 (y - t)                    SigmoidCrossEntropy    -y (1 - labelSmoothing)
///     Huber               -clamp(y - t, -delta, delta)  CategoricalCrossEntropy  -log(y)
///     Hinge               -2 y where s y < 1, else 0    Log                    log(1 - y + epsilon) - log(y + epsilon)
///     CosineDistance      -y                            KullbackLeiblerDivergence  log(t) + 1 - y, 0 at t = 0
///
/// D is 1 for Sum, else the count that the loss was divided by: the chain rule. Apple's text can be read as "never divide"; setDividesByCount(false) does that.
///
///     auto loss = mps::NNForwardLoss::create(device, descriptor);
///     mps::StateBatch states;
///     auto value = loss->encodeBatch(commandBuffer, x, labels, {}, states, false);
///     auto ones = mps::NNInitialGradient::create(device)->encodeBatch(commandBuffer, value);
///     auto gradient = mps::NNLossGradient::create(device, descriptor);
///     auto dx = gradient->encodeBatch(commandBuffer, ones, x, labels, {}, states);
class NNLossGradient : public detail::KernelClass<NNLossGradient, CNNGradientKernel, "NNLossGradient">,
                       public detail::LossKernelProperties {
 public:
  /// @throws Error as NNForwardLoss::create.
  static std::shared_ptr<NNLossGradient> create(const std::shared_ptr<mtl::Device>& device,
                                                const CNNLossDescriptor& lossDescriptor);
  /// false: of the predictions; true: of the labels, which then have the size of the predictions. false.
  [[nodiscard]] bool computeLabelGradients() const { return computeLabelGradients_; }
  void setComputeLabelGradients(bool value) { computeLabelGradients_ = value; }
  /// Whether reductions with a count divide by it. true.
  [[nodiscard]] bool dividesByCount() const { return dividesByCount_; }
  void setDividesByCount(bool value) { dividesByCount_ = value; }

  /// @name Encodes. The forms without labels that the base class has throw.
  /// @param weights      empty: 1
  /// @param sourceStates what NNForwardLoss made or filled: its numbers count; empty: this kernel's
  /// @{
  ImageBatch encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                         const ImageBatch& sourceGradients, const ImageBatch& sourceImages,
                         const ImageBatch& labels, const ImageBatch& weights, const StateBatch& sourceStates);
  void encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                   const ImageBatch& sourceGradients, const ImageBatch& sourceImages,
                   const ImageBatch& labels, const ImageBatch& weights, const StateBatch& sourceStates,
                   const ImageBatch& destinationGradients);
  /// @}

 protected:
  using KernelClass::KernelClass;
  NNLossGradient(std::shared_ptr<mtl::Device> device, const CNNLossDescriptor& lossDescriptor);
  NNLossGradient(const NNLossGradient&) = default;
  void codeProperties(Coder& coder) override;
  [[nodiscard]] std::vector<detail::PreparedCall> prepareGradient(
      const detail::GradientCall& call) const override;
  [[nodiscard]] bool acceptsForward(const std::string& forwardClassName) const override;
  [[nodiscard]] std::optional<std::size_t> forwardSourceIndex() const override {
    return computeLabelGradients_ ? 1 : 0;
  }
  [[nodiscard]] std::optional<std::size_t> sourceImageIndex() const override { return 0; }
  [[nodiscard]] bool takesSources(std::size_t count) const override { return count == 3 || count == 4; }
  [[nodiscard]] detail::DerivativeTraits derivativeTraits() const override;
  [[nodiscard]] detail::KernelRoles roles() override;
  /// @param sources gradient, predictions, labels and, if there are any, weights
  void encodeStep(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                  std::span<const ImageBatch> sources, const StateBatch& gradientStates,
                  const ImageBatch& destinationGradients, bool accumulates) override;

 private:
  friend KernelClass;
  bool computeLabelGradients_ = false;
  bool dividesByCount_ = true;
};

/// The gradient of a number with respect to itself (MPSNNInitialGradient): ones, as many as the source has elements.
/// The source is not read. Where a loss was reduced across the batch the ones of the other images change nothing: their
/// losses are constants.
class NNInitialGradient : public detail::KernelClass<NNInitialGradient, CNNKernel, "NNInitialGradient"> {
 public:
  static std::shared_ptr<NNInitialGradient> create(const std::shared_ptr<mtl::Device>& device);

 protected:
  using KernelClass::KernelClass;
  NNInitialGradient(const NNInitialGradient&) = default;
  [[nodiscard]] bool makesState() const override { return false; }
  [[nodiscard]] bool isItsOwnGradient() const override { return true; }
  /// The result is the gradient of no image that is read.
  [[nodiscard]] detail::DerivativeTraits derivativeTraits() const override;
  [[nodiscard]] detail::PreparedCall prepareForward(const detail::ForwardCall& call) const override;

 private:
  friend KernelClass;
};

}  // namespace mps
