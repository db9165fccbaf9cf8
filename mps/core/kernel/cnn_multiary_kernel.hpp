#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "mps/core/kernel/cnn_binary_kernel.hpp"

namespace mps {

/// Base of the kernels with n sources and one destination (MPSCNNMultiaryKernel).
///
/// Properties of source i are read and set with an index from 0 to sourceCount() - 1; another index throws
/// Error. The destination is sized by the padding policy on source 0; each source gets its own offset against
/// it.
class CNNMultiaryKernel : public detail::ImageKernel {
 public:
  [[nodiscard]] std::size_t sourceCount() const override { return sources_.size(); }
  [[nodiscard]] Offset offset(std::size_t index) const { return at(index).offset.get(); }
  void setOffset(const Offset& offset, std::size_t index) { at(index).offset.set(offset); }
  [[nodiscard]] std::size_t sourceFeatureChannelOffset(std::size_t index) const {
    return at(index).featureChannelOffset.get();
  }
  void setSourceFeatureChannelOffset(std::size_t offset, std::size_t index) {
    at(index).featureChannelOffset.set(offset);
  }
  [[nodiscard]] std::size_t sourceFeatureChannelMaxCount(std::size_t index) const {
    return at(index).featureChannelMaxCount.get();
  }
  void setSourceFeatureChannelMaxCount(std::size_t count, std::size_t index) {
    at(index).featureChannelMaxCount.set(count);
  }
  [[nodiscard]] ImageEdgeMode edgeMode(std::size_t index) const { return at(index).edgeMode.get(); }
  void setEdgeMode(ImageEdgeMode edgeMode, std::size_t index) { at(index).edgeMode.set(edgeMode); }
  [[nodiscard]] std::size_t kernelWidth(std::size_t index) const { return at(index).kernelWidth.get(); }
  void setKernelWidth(std::size_t width, std::size_t index) { at(index).kernelWidth.set(width); }
  [[nodiscard]] std::size_t kernelHeight(std::size_t index) const { return at(index).kernelHeight.get(); }
  void setKernelHeight(std::size_t height, std::size_t index) { at(index).kernelHeight.set(height); }
  [[nodiscard]] std::size_t strideInPixelsX(std::size_t index) const {
    return at(index).strideInPixelsX.get();
  }
  void setStrideInPixelsX(std::size_t stride, std::size_t index) { at(index).strideInPixelsX.set(stride); }
  [[nodiscard]] std::size_t strideInPixelsY(std::size_t index) const {
    return at(index).strideInPixelsY.get();
  }
  void setStrideInPixelsY(std::size_t stride, std::size_t index) { at(index).strideInPixelsY.set(stride); }
  [[nodiscard]] std::size_t dilationRateX(std::size_t index) const { return at(index).dilationRateX.get(); }
  void setDilationRateX(std::size_t rate, std::size_t index) { at(index).dilationRateX.set(rate); }
  [[nodiscard]] std::size_t dilationRateY(std::size_t index) const { return at(index).dilationRateY.get(); }
  void setDilationRateY(std::size_t rate, std::size_t index) { at(index).dilationRateY.set(rate); }

  /// Destination pixels to write. RectNoClip.
  [[nodiscard]] const mtl::Region& clipRect() const { return clipRect_; }
  void setClipRect(const mtl::Region& clipRect) { clipRect_ = clipRect; }

  using Kernel::encode;
  /// @name Encodes; sourceImages has sourceCount() entries, of a batch each in the batch forms.
  /// @{
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              ArrayRef<std::shared_ptr<Image>> sourceImages, const std::shared_ptr<Image>& destinationImage);
  void encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                   ArrayRef<ImageBatch> sourceImages, const ImageBatch& destinationImages);
  /// @param destinationStates as many as images of a source, or empty for none
  void encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                   ArrayRef<ImageBatch> sourceImages, const StateBatch& destinationStates,
                   const ImageBatch& destinationImages);
  std::shared_ptr<Image> encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                ArrayRef<std::shared_ptr<Image>> sourceImages);
  ImageBatch encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                         ArrayRef<ImageBatch> sourceImages);
  std::shared_ptr<Image> encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                ArrayRef<std::shared_ptr<Image>> sourceImages,
                                std::shared_ptr<State>& destinationState, bool destinationStateIsTemporary);
  ImageBatch encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                         ArrayRef<ImageBatch> sourceImages, StateBatch& destinationStates,
                         bool destinationStatesAreTemporary);
  /// @}

  /// Size and format of the destination; sets the offsets. @param sourceImages sourceCount() images
  ImageDescriptor destinationImageDescriptor(ArrayRef<std::shared_ptr<Image>> sourceImages,
                                             ArrayRef<std::shared_ptr<State>> sourceStates = {}) override;

  /// @name States to encode with; null (empty) for kernels without.
  /// @param sourceStates     that the encode will read; in the batch forms one batch for each slot
  /// @param destinationImage the one that will be written, when it is there already. No kernel of the library
  ///                         looks at these two.
  /// @{
  [[nodiscard]] std::shared_ptr<State> resultState(
      ArrayRef<std::shared_ptr<Image>> sourceImages, ArrayRef<std::shared_ptr<State>> sourceStates = {},
      const std::shared_ptr<Image>& destinationImage = nullptr) const;
  [[nodiscard]] StateBatch resultStateBatch(ArrayRef<ImageBatch> sourceImages,
                                            ArrayRef<StateBatch> sourceStates = {},
                                            const ImageBatch& destinationImages = {}) const;
  [[nodiscard]] std::shared_ptr<State> temporaryResultState(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, ArrayRef<std::shared_ptr<Image>> sourceImages,
      ArrayRef<std::shared_ptr<State>> sourceStates = {},
      const std::shared_ptr<Image>& destinationImage = nullptr) const;
  [[nodiscard]] StateBatch temporaryResultStateBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                                     ArrayRef<ImageBatch> sourceImages,
                                                     ArrayRef<StateBatch> sourceStates = {},
                                                     const ImageBatch& destinationImages = {}) const;
  /// @}

 protected:
  using ImageKernel::ImageKernel;
  /// @throws Error when sourceCount is 0.
  CNNMultiaryKernel(std::shared_ptr<mtl::Device> device, std::size_t sourceCount);
  CNNMultiaryKernel(const CNNMultiaryKernel&) = default;
  void codeProperties(Coder& coder) override;
  void checkDecodedWindow(const Coder& coder) const override;
  [[nodiscard]] std::any geometry() const override;
  void setGeometry(const std::any& geometry) override;
  [[nodiscard]] std::vector<Offset> sourceOffsets() const override;
  void setSourceOffsets(std::span<const Offset> offsets) override;
  [[nodiscard]] StateBatch makeStepStates(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                          std::span<const ImageBatch> sources,
                                          std::span<const StateBatch> sourceStates) const override;
  void encodeGraphStep(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                       const detail::GraphStep& step) override;

  /// Records one call; arguments are checked, batches not empty.
  virtual void encodeCall(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                          std::span<const ImageBatch> sources, const StateBatch& destinationStates,
                          const ImageBatch& destinations) = 0;
  /// Channels of the result for the channels read of each source.
  [[nodiscard]] virtual std::size_t producedFeatureChannels(
      std::span<const std::size_t> sourceChannels) const {
    return sourceChannels[0];
  }
  [[nodiscard]] virtual bool makesState() const { return false; }
  [[nodiscard]] virtual std::shared_ptr<State> makeState(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) const;

 private:
  [[nodiscard]] const detail::SourceProperties& at(std::size_t index) const;
  [[nodiscard]] detail::SourceProperties& at(std::size_t index);
  void encodeInto(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                  std::span<const ImageBatch> sources, const StateBatch& states,
                  const ImageBatch& destinations, bool isBatch);
  ImageBatch encodeReturning(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                             std::span<const ImageBatch> sources, StateBatch* states, bool temporaryStates,
                             bool isBatch);
  void checkSourceCount(std::size_t found) const;
  [[nodiscard]] StateBatch makeStates(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                      std::size_t count) const;
  [[nodiscard]] std::vector<ImageBatch> batchesOf(std::span<const std::shared_ptr<Image>> images) const;

  std::vector<detail::SourceProperties> sources_;
  mtl::Region clipRect_ = RectNoClip;
};

}  // namespace mps
