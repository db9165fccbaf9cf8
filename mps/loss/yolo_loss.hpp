#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "mps/core/kernel/cnn_kernel.hpp"
#include "mps/core/kernel/kernel_class.hpp"
#include "mps/loss/loss.hpp"
#include "mps/loss/yolo_loss_descriptor.hpp"

/// The loss of YOLO's object detection (MPSCNNLoss.h).
namespace mps {

/// Loss and its gradient in one pass (MPSCNNYOLOLoss): the destination image receives the gradient with respect to the
/// predictions, the labels' lossImage the loss.
///
/// Each pixel is a cell, with M channels for each of A anchors, one anchor after the other: x, y, w, h, confidence, and
/// M - 5 class scores. The predictions are raw: rx, ry, rw, rh, ... . Of the labels x and y are the centre in the cell,
/// 0 to 1, w and h the size in cells, the confidence 1 for an anchor that is to find an object, else 0, with w = h = 0;
/// the classes are one-hot. With aw, ah the anchor's size (Q6):
///
///     px, py  = sigmoid(rx), sigmoid(ry)         pw, ph = aw exp(rw), ah exp(rh)
///     tw, th  = log(w / aw + 1e-5), log(h / ah + 1e-5)
///     cIOU    = overlap of boxes (w, h) and (aw, ah) of one centre; 0 without a size
///     IOU     = overlap of the boxes (px, py, pw, ph) and (x, y, w, h)
///     obj     = confidence 1, and cIOU the largest of the cell's anchors or above minIOUForObjectPresence
///     noobj   = not obj, and cIOU below maxIOUForObjectAbsence
///
///     value = scaleXY obj lossXY(px or py, x or y)
///           + scaleWH obj lossWH(rw or rh, tw or th)
///           + (scaleObject obj + scaleNoObject noobj) lossConfidence(raw, obj IOU, or obj without rescore)
///           + scaleClass obj lossClasses(raw, one-hot)
///
/// times the weights image; the loss is the reduction of the values, Mean by all M A channels. The gradient is the
/// derivative of their sum with obj, noobj and IOU held constant, never divided by a count. What does not count is 0,
/// whatever predictions and labels are there. Labels and weights have the size of the predictions and every format.
class CNNYOLOLoss final : public detail::KernelClass<CNNYOLOLoss, CNNKernel, "CNNYOLOLoss"> {
 public:
  /// @throws Error unless there are 1 to 64 anchors, as many pairs as anchors, sizes of anchors are positive, and the
  /// four losses are in the ranges that CNNLossDescriptor names; for the cosine distance and a loss scale
  static std::shared_ptr<CNNYOLOLoss> create(const std::shared_ptr<mtl::Device>& device,
                                             const CNNYOLOLossDescriptor& lossDescriptor);
  /// The four losses, for their properties. @{
  [[nodiscard]] const std::shared_ptr<CNNLoss>& lossXY() const { return lossXY_; }
  [[nodiscard]] const std::shared_ptr<CNNLoss>& lossWH() const { return lossWH_; }
  [[nodiscard]] const std::shared_ptr<CNNLoss>& lossConfidence() const { return lossConfidence_; }
  [[nodiscard]] const std::shared_ptr<CNNLoss>& lossClasses() const { return lossClasses_; }
  /// @}
  [[nodiscard]] float scaleXY() const { return descriptor_.scaleXY(); }
  [[nodiscard]] float scaleWH() const { return descriptor_.scaleWH(); }
  [[nodiscard]] float scaleNoObject() const { return descriptor_.scaleNoObject(); }
  [[nodiscard]] float scaleObject() const { return descriptor_.scaleObject(); }
  [[nodiscard]] float scaleClass() const { return descriptor_.scaleClass(); }
  [[nodiscard]] float minIOUForObjectPresence() const { return descriptor_.minIOUForObjectPresence(); }
  [[nodiscard]] float maxIOUForObjectAbsence() const { return descriptor_.maxIOUForObjectAbsence(); }
  [[nodiscard]] CNNReductionType reductionType() const { return descriptor_.reductionType(); }
  [[nodiscard]] bool reduceAcrossBatch() const { return descriptor_.reduceAcrossBatch(); }
  [[nodiscard]] std::size_t numberOfAnchorBoxes() const { return descriptor_.numberOfAnchorBoxes(); }
  [[nodiscard]] const std::vector<float>& anchorBoxes() const { return descriptor_.anchorBoxes(); }
  [[nodiscard]] const CNNYOLOLossDescriptor& descriptor() const { return descriptor_; }

  /// @name Encodes; offset, clipRect and the ranges of channels keep their defaults
  /// @{
  using Kernel::encode;
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<Image>& sourceImage, const std::shared_ptr<CNNLossLabels>& labels,
              const std::shared_ptr<Image>& destinationImage);
  std::shared_ptr<Image> encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                const std::shared_ptr<Image>& sourceImage,
                                const std::shared_ptr<CNNLossLabels>& labels);
  void encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const ImageBatch& sourceImages,
                   const CNNLossLabelsBatch& labels, const ImageBatch& destinationImages);
  ImageBatch encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                         const ImageBatch& sourceImages, const CNNLossLabelsBatch& labels);
  /// @}

 protected:
  using KernelClass::KernelClass;
  [[nodiscard]] bool makesState() const override { return false; }
  [[nodiscard]] bool isItsOwnGradient() const override { return true; }
  /// A loss needs labels: throws.
  [[nodiscard]] detail::PreparedCall prepareForward(const detail::ForwardCall& call) const override;
  void encodeWithSourceStates(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                              const ImageBatch& sourceImages, const StateBatch& sourceStates,
                              const StateBatch& destinationStates,
                              const ImageBatch& destinationImages) override;

 private:
  friend KernelClass;
  CNNYOLOLoss(std::shared_ptr<mtl::Device> device, const CNNYOLOLossDescriptor& lossDescriptor);
  CNNYOLOLoss(const CNNYOLOLoss&) = default;
  void codeProperties(Coder& coder) override;

  CNNYOLOLossDescriptor descriptor_ = CNNYOLOLossDescriptor::cnnLossDescriptor({}, {}, {}, {}, {}, {}, 0);
  std::shared_ptr<CNNLoss> lossXY_;
  std::shared_ptr<CNNLoss> lossWH_;
  std::shared_ptr<CNNLoss> lossConfidence_;
  std::shared_ptr<CNNLoss> lossClasses_;
};

}  // namespace mps
