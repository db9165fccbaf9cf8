#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mps/core/kernel/cnn_kernel.hpp"
#include "mps/core/kernel/kernel_class.hpp"
#include "mps/loss/loss_descriptor.hpp"

/// Losses (MPSCNNLoss.h). Without reduceAcrossBatch an image's loss and gradient have the same bits wherever
/// it lies in a batch and in memory, whatever lies beside it, on any number of threads.
namespace mps {

/// Labels or weights in the caller's memory (MPSCNNLossDataDescriptor): float32 values of one image. A view, which must
/// not outlive that memory, and is not coded: the images of the labels made from it hold the data.
class CNNLossDataDescriptor {
 public:
  /// Views `data`; whoever makes labels from it copies. @param size width, height and, as depth, channels
  /// @throws Error when the data is shorter than the image
  static CNNLossDataDescriptor create(std::span<const float> data, DataLayout layout, const mtl::Size& size);
  /// Apple's name of create.
  static CNNLossDataDescriptor cnnLossDataDescriptor(std::span<const float> data, DataLayout layout,
                                                     const mtl::Size& size) {
    return create(data, layout, size);
  }
  [[nodiscard]] DataLayout layout() const { return layout_; }
  [[nodiscard]] const mtl::Size& size() const { return size_; }
  /// Strides in bytes; dense at first. bytesPerImage is that of one channel plane for channel-first data, and
  /// unused otherwise. Labels throw Error when strides lead beyond the data.
  [[nodiscard]] std::size_t bytesPerRow() const { return bytesPerRow_; }
  void setBytesPerRow(std::size_t bytes) { bytesPerRow_ = bytes; }
  [[nodiscard]] std::size_t bytesPerImage() const { return bytesPerImage_; }
  void setBytesPerImage(std::size_t bytes) { bytesPerImage_ = bytes; }
  [[nodiscard]] std::span<const float> data() const { return data_; }

 private:
  CNNLossDataDescriptor(std::span<const float> data, DataLayout layout, const mtl::Size& size);
  std::span<const float> data_;
  DataLayout layout_;
  mtl::Size size_;
  std::size_t bytesPerRow_;
  std::size_t bytesPerImage_;
};

namespace detail {
class LossLabelsBlock;
}

/// Targets of one image, weights if there are any, and the place where the loss is written
/// (MPSCNNLossLabels).
///
/// Labels have the width and height of the predictions, unless CNNLossDescriptor::broadcastsLabels says that axes of size
/// 1 are repeated, and at least as many channels as count; further channels are padding. A labels object may be used again:
/// lossImage is overwritten by each encode.
class CNNLossLabels : public State {
 public:
  /// One loss value, no weights. The data is copied into a float32 image. They train with every reduction: with None the
  /// loss value is the sum of the losses (docs/decisions.md, D25).
  static std::shared_ptr<CNNLossLabels> create(const std::shared_ptr<mtl::Device>& device,
                                               const CNNLossDataDescriptor& labelsDescriptor);
  /// @param lossImageSize {1, 1, 1}, or the size of the predictions, for the losses of reduction None
  /// @param weightsDescriptor a factor for each element; or none
  static std::shared_ptr<CNNLossLabels> create(const std::shared_ptr<mtl::Device>& device,
                                               const mtl::Size& lossImageSize,
                                               const CNNLossDataDescriptor& labelsDescriptor,
                                               const std::optional<CNNLossDataDescriptor>& weightsDescriptor);
  static std::shared_ptr<CNNLossLabels> create(const std::shared_ptr<mtl::Device>& device,
                                               const mtl::Size& lossImageSize,
                                               const CNNLossDataDescriptor& labelsDescriptor,
                                               std::nullptr_t /*weightsDescriptor*/) {
    return create(device, lossImageSize, labelsDescriptor, std::nullopt);
  }
  /// Around images, which must be valid when the loss runs. @param weightsImage may be null
  static std::shared_ptr<CNNLossLabels> create(const std::shared_ptr<mtl::Device>& device,
                                               const mtl::Size& lossImageSize,
                                               std::shared_ptr<Image> labelsImage,
                                               std::shared_ptr<Image> weightsImage);

  /// @name A whole batch at once, in one block
  /// The states of the result are CNNLossLabels, made when asked for.
  /// @{
  /// Dense labels. @param weightsImages empty, or as many as labels
  static StateBatch createBatch(const std::shared_ptr<mtl::Device>& device, const mtl::Size& lossImageSize,
                                const ImageBatch& labelsImages, const ImageBatch& weightsImages = {});
  /// Room for one class index of 32 bits per image (predictions of 1 x 1 pixel); all 0 at first. Index k stands for a
  /// label of 1 in channel k and 0 elsewhere. An index for which the predictions have no channel that counts makes the
  /// command buffer fail when the loss is due: the error names image and index (docs/decisions.md, D28).
  /// @param numberOfClasses where it is known: wrong indices are refused when they are written, and an encode of a loss
  ///                        with fewer channels throws. 0: not known
  static StateBatch createClassBatch(const std::shared_ptr<mtl::Device>& device, std::size_t count,
                                     std::size_t numberOfClasses = 0);
  /// Writes the class indices of a batch of createClassBatch, before the encode that reads them; no encoded work may
  /// still read the old ones.
  /// @throws Error for another kind of batch, a wrong number of indices, or an index that is not less than
  ///         numberOfClasses; the old ones stay then
  /// @{
  static void writeClassIndices(const StateBatch& labels, std::span<const std::uint32_t> indices);
  static void writeClassIndices(const StateBatch& labels, std::span<const std::uint8_t> indices);
  /// @}
  /// The loss images of a batch, in order: one copy reads them all. @throws Error for states of another kind.
  static ImageBatch lossImages(const StateBatch& labels);
  /// @}

  /// float32; valid after the encode has run. @{
  [[nodiscard]] std::shared_ptr<Image> lossImage() const;
  /// Null for labels that are class indices.
  [[nodiscard]] std::shared_ptr<Image> labelsImage() const;
  /// Null when there are none.
  [[nodiscard]] std::shared_ptr<Image> weightsImage() const;
  /// @}
  /// The loss image, that is.
  void synchronize(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) override;

  /// @name The library's own
  /// @{
  [[nodiscard]] const std::shared_ptr<detail::LossLabelsBlock>& lossBlock() const { return block_; }
  [[nodiscard]] std::size_t indexInBlock() const { return index_; }
  /// @}

 private:
  friend class detail::LossLabelsBlock;
  CNNLossLabels(const std::shared_ptr<mtl::Device>& device, std::shared_ptr<detail::LossLabelsBlock> block,
                std::size_t index);
  std::shared_ptr<detail::LossLabelsBlock> block_;
  std::size_t index_;
};
using CNNLossLabelsBatch = StateBatch;

/// Loss and its gradient in one pass (MPSCNNLoss): the destination image receives the gradient with respect
/// to the predictions, the labels' lossImage the loss.
///
///     loss     = reduction of weight * w_k * l_k       CNNLossType lists l
///     gradient = weight * w_k * d l_k / d y_k          never divided by a count, whatever the reduction
///
/// For the mean over a batch of N give the weight 1 / N with reduction Sum. SoftMaxCrossEntropy contains the
/// softmax. With numberOfClasses above 1 only so many channels count for SoftMaxCrossEntropy; otherwise all
/// channels of the predictions.
///
/// copy() on another device has a copy of the lossScale that copies of its optimisers have, too, and so in the copy of a graph:
/// LossScale.
class CNNLoss : public detail::KernelClass<CNNLoss, CNNKernel, "CNNLoss"> {
 public:
  /// @throws Error for values out of the ranges that CNNLossDescriptor names.
  static std::shared_ptr<CNNLoss> create(const std::shared_ptr<mtl::Device>& device,
                                         const CNNLossDescriptor& lossDescriptor);
  [[nodiscard]] CNNLossType lossType() const { return descriptor_.lossType(); }
  [[nodiscard]] CNNReductionType reductionType() const { return descriptor_.reductionType(); }
  [[nodiscard]] bool reduceAcrossBatch() const { return descriptor_.reduceAcrossBatch(); }
  [[nodiscard]] float weight() const { return descriptor_.weight(); }
  [[nodiscard]] float labelSmoothing() const { return descriptor_.labelSmoothing(); }
  [[nodiscard]] std::size_t numberOfClasses() const { return descriptor_.numberOfClasses(); }
  [[nodiscard]] float epsilon() const { return descriptor_.epsilon(); }
  [[nodiscard]] float delta() const { return descriptor_.delta(); }
  [[nodiscard]] const CNNLossDescriptor& descriptor() const { return descriptor_; }

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
  CNNLoss(std::shared_ptr<mtl::Device> device, const CNNLossDescriptor& lossDescriptor);
  CNNLoss(const CNNLoss&) = default;
  void codeProperties(Coder& coder) override;
  void didCopy(bool hasMoved) override;
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
  void checkDescriptor() const;

  CNNLossDescriptor descriptor_ = CNNLossDescriptor::cnnLossDescriptor({}, {});
};

}  // namespace mps
