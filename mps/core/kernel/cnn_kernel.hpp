#pragma once

#include <any>
#include <cstddef>
#include <limits>
#include <memory>
#include <span>

#include "mps/core/kernel/image_kernel.hpp"

namespace mps {

namespace detail {
class BatchOperand;
struct ForwardCall;
struct PreparedCall;
struct TensorShape;
}  // namespace detail

/// Base of the kernels with one source and one destination (MPSCNNKernel).
///
/// Window of destination pixel (x, y), counted from clipRect.origin, one axis:
///
///     tap p       = offset + stride * x - floor(dilatedSize / 2) + dilation * p
///     dilatedSize = (size - 1) * dilation + 1
///
/// Only destination pixels inside clipRect (intersected with the destination) are written; sources are not
/// clipped. Reads outside the source give what edgeMode says.
///
/// The encodes that take a destination use offset and clipRect as they stand; those that return one size it
/// by `padding`, set `offset` (it stays set) and take the image from `destinationImageAllocator`. The encodes
/// with states make or fill one gradient state per image. All throw Error before anything is recorded.
class CNNKernel : public detail::ImageKernel {
 public:
  /// Source position of the window's centre for the first pixel of clipRect; z: first image of a stack.
  /// {0,0,0}. Encodes throw for one beyond 2^31.
  [[nodiscard]] Offset offset() const { return offset_; }
  void setOffset(const Offset& offset) { offset_ = offset; }
  /// Destination pixels to write (z: images of a stack). RectNoClip.
  [[nodiscard]] const mtl::Region& clipRect() const { return clipRect_; }
  void setClipRect(const mtl::Region& clipRect) { clipRect_ = clipRect; }
  /// First source channel read, a multiple of 4. 0.
  [[nodiscard]] std::size_t sourceFeatureChannelOffset() const { return sourceFeatureChannelOffset_; }
  void setSourceFeatureChannelOffset(std::size_t offset) { sourceFeatureChannelOffset_ = offset; }
  /// Most channels read from there; cut to what the source has. No limit.
  [[nodiscard]] std::size_t sourceFeatureChannelMaxCount() const { return sourceFeatureChannelMaxCount_; }
  void setSourceFeatureChannelMaxCount(std::size_t count) { sourceFeatureChannelMaxCount_ = count; }
  /// Zero or Clamp, unless a class takes more. Zero.
  [[nodiscard]] ImageEdgeMode edgeMode() const { return edgeMode_; }
  void setEdgeMode(ImageEdgeMode edgeMode) { edgeMode_ = edgeMode; }

  /// Window; 1 for kernels without one.
  [[nodiscard]] virtual std::size_t kernelWidth() const { return 1; }
  [[nodiscard]] virtual std::size_t kernelHeight() const { return 1; }
  [[nodiscard]] virtual std::size_t strideInPixelsX() const { return 1; }
  [[nodiscard]] virtual std::size_t strideInPixelsY() const { return 1; }
  [[nodiscard]] virtual std::size_t dilationRateX() const { return 1; }
  [[nodiscard]] virtual std::size_t dilationRateY() const { return 1; }

  using Kernel::encode;
  /// @name Encodes with a given destination. `destinationState(s)` receive what the gradient kernel needs.
  /// @{
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<Image>& sourceImage, const std::shared_ptr<Image>& destinationImage);
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<Image>& sourceImage, const std::shared_ptr<State>& destinationState,
              const std::shared_ptr<Image>& destinationImage);
  void encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const ImageBatch& sourceImages,
                   const ImageBatch& destinationImages);
  /// @param destinationStates as many as images, or empty for none
  void encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const ImageBatch& sourceImages,
                   const StateBatch& destinationStates, const ImageBatch& destinationImages);
  /// @}

  /// @name Encodes that return the destination. Stacked sources are refused.
  /// @param[out] destinationState the new state; null when the kernel makes none
  /// @{
  std::shared_ptr<Image> encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                const std::shared_ptr<Image>& sourceImage);
  std::shared_ptr<Image> encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                const std::shared_ptr<Image>& sourceImage,
                                std::shared_ptr<State>& destinationState, bool destinationStateIsTemporary);
  ImageBatch encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                         const ImageBatch& sourceImages);
  ImageBatch encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                         const ImageBatch& sourceImages, StateBatch& destinationStates,
                         bool destinationStatesAreTemporary);
  /// @}

  /// Size and format of the destination by the padding policy; sets `offset`. The order is
  /// that of the documents: built-in rule, the class, each source state, the policy's own hook.
  /// @param sourceImages exactly one
  /// @throws Error when no window fits.
  ImageDescriptor destinationImageDescriptor(ArrayRef<std::shared_ptr<Image>> sourceImages,
                                             ArrayRef<std::shared_ptr<State>> sourceStates = {}) override;
  [[nodiscard]] std::size_t sourceCount() const override { return 1; }

  /// @name States to encode with; null (empty) for kernels without. Make them after all properties are final
  /// and destinationImageDescriptor was called.
  /// @param sourceStates     that the encode will read; in the batch forms one batch for each slot
  /// @param destinationImage the one that will be written, when it is there already. No kernel of the library
  ///                         looks at it.
  /// @{
  [[nodiscard]] std::shared_ptr<State> resultState(
      const std::shared_ptr<Image>& sourceImage, ArrayRef<std::shared_ptr<State>> sourceStates = {},
      const std::shared_ptr<Image>& destinationImage = nullptr) const;
  [[nodiscard]] StateBatch resultStateBatch(const ImageBatch& sourceImages,
                                            ArrayRef<StateBatch> sourceStates = {},
                                            const ImageBatch& destinationImages = {}) const;
  [[nodiscard]] std::shared_ptr<State> temporaryResultState(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const std::shared_ptr<Image>& sourceImage,
      ArrayRef<std::shared_ptr<State>> sourceStates = {},
      const std::shared_ptr<Image>& destinationImage = nullptr) const;
  [[nodiscard]] StateBatch temporaryResultStateBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                                     const ImageBatch& sourceImages,
                                                     ArrayRef<StateBatch> sourceStates = {},
                                                     const ImageBatch& destinationImages = {}) const;
  /// @}

  /// @name Bytes of scratch memory that an encode of this source takes beside destination and state.
  /// @param sourceStates     as resultState takes them
  /// @param destinationImage null (empty): one as destinationImageDescriptor would size it
  /// @{
  [[nodiscard]] std::size_t encodingStorageSize(
      const std::shared_ptr<Image>& sourceImage, ArrayRef<std::shared_ptr<State>> sourceStates = {},
      const std::shared_ptr<Image>& destinationImage = nullptr) const;
  [[nodiscard]] std::size_t batchEncodingStorageSize(const ImageBatch& sourceImages,
                                                     ArrayRef<StateBatch> sourceStates = {},
                                                     const ImageBatch& destinationImages = {}) const;
  /// @}

  /// @name The library's own
  /// @{
  /// Built-in padding and class rule on sizes alone; sets the placement.
  ImageDescriptor sizeDestination(const ImageDescriptor& source);
  /// Whether the result is the gradient of a number that the kernel computes from its source: a graph's gradients begin
  /// there.
  [[nodiscard]] virtual bool isItsOwnGradient() const { return false; }
  /// @}

 protected:
  using ImageKernel::ImageKernel;
  CNNKernel(const CNNKernel&) = default;
  void codeProperties(Coder& coder) override;
  void checkDecodedWindow(const Coder& coder) const override;

  /// @name What a compiled graph and the encodes ask
  /// @{
  /// What a class requires of a call beside its images, also of one that writes no pixel. @throws Error
  virtual void checkCall(const detail::ForwardCall& /*call*/) const {}
  /// The call for operands of these shapes, all properties resolved and checked.
  [[nodiscard]] detail::ForwardCall resolveCall(detail::BatchOperand& source,
                                                detail::BatchOperand& destination, bool withState) const;
  [[nodiscard]] virtual detail::PreparedCall prepareForward(const detail::ForwardCall& call) const = 0;
  [[nodiscard]] detail::DerivativeTraits derivativeTraits() const override;
  /// From now on saved fields are written under a predicate, too: whoever encodes the gradient under the same one
  /// has both run or neither. Otherwise the gradient is computed from the source image.
  void joinGraph() override { savesFieldsUnderPredicates_ = true; }
  [[nodiscard]] std::any geometry() const override;
  void setGeometry(const std::any& geometry) override;
  /// Encodes a step of a graph with states that are inputs beside the images: loss labels, the state of a convolution
  /// that is undone. The default throws.
  virtual void encodeWithSourceStates(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                      const ImageBatch& sourceImages, const StateBatch& sourceStates,
                                      const StateBatch& destinationStates,
                                      const ImageBatch& destinationImages);
  [[nodiscard]] Offset placement() const override { return offset_; }
  void setPlacement(const Offset& placement) override { offset_ = placement; }
  [[nodiscard]] StateBatch makeStepStates(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                          std::span<const ImageBatch> sources,
                                          std::span<const StateBatch> sourceStates) const override;
  void encodeGraphStep(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                       const detail::GraphStep& step) override;
  /// Encodes a step of a graph, with what must have seen the whole batch before, such as batch statistics, and with
  /// what the kernel reads beside its source, such as labels. The default is encodeBatch of the first source.
  virtual void encodeStep(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                          std::span<const ImageBatch> sources, const StateBatch& destinationStates,
                          const ImageBatch& destinationImages);
  /// @}

  /// Channels of the result for that many channels read. @throws Error when the kernel cannot take so many.
  [[nodiscard]] virtual std::size_t producedFeatureChannels(std::size_t sourceFeatureChannels) const {
    return sourceFeatureChannels;
  }
  /// Channels that the kernel needs from the first one on; 0 means "all that the source has".
  [[nodiscard]] virtual std::size_t requiredFeatureChannels() const { return 0; }
  /// Windowless kernels see source regions of the destination's size, cut out (or filled) by the base class.
  [[nodiscard]] virtual bool hasWindow() const { return false; }
  /// Zero and Clamp.
  [[nodiscard]] virtual bool takesEdgeMode(ImageEdgeMode edgeMode) const {
    return edgeMode == ImageEdgeMode::Zero || edgeMode == ImageEdgeMode::Clamp;
  }
  /// What sourceFeatureChannelOffset is a multiple of.
  [[nodiscard]] virtual std::size_t sourceChannelAlignment() const { return 4; }
  /// Whether all channels of a given destination are written, however many are read.
  [[nodiscard]] virtual bool fillsDestination() const { return false; }
  /// Cuts the clip rectangle, which lies inside the destination, to what a class writes of it. @param source all of it
  virtual void limitClip(mtl::Region& /*clip*/, const detail::TensorShape& /*source*/) const {}
  /// Whether the encodes that return an image leave `offset` as it is.
  [[nodiscard]] virtual bool keepsOffset() const { return false; }
  /// Whether the kernel makes gradient states at all.
  [[nodiscard]] virtual bool makesState() const { return true; }
  /// A fresh state. @param commandBuffer null for a permanent one  @param sourceStates as resultState takes them
  [[nodiscard]] virtual std::shared_ptr<State> makeState(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      std::span<const std::shared_ptr<State>> sourceStates) const;
  /// Fresh states of a batch, made by makeState() unless a class keeps them together.
  [[nodiscard]] virtual StateBatch makeStates(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                              std::size_t count,
                                              std::span<const StateBatch> sourceStates) const;
  /// A destination of that size, in the format and with the channels that the class gives it for such a source.
  [[nodiscard]] ImageDescriptor destinationOf(const ImageDescriptor& source, std::size_t width,
                                              std::size_t height) const;
  /// What the class changes in the built-in size.
  virtual void adjustDestination(ImageDescriptor& /*destination*/, const ImageDescriptor& /*source*/) {}
  /// Adds to the record that the states get. Called once per encode, after prepareForward.
  virtual void describeForward(std::any& /*family*/) const {}
  /// Called after an encode was recorded, e.g. to advance a random sequence.
  virtual void didEncode(const detail::ForwardCall& /*call*/) {}

 private:
  struct Encoding;
  [[nodiscard]] bool movesPixels() const;
  void encodeInto(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const ImageBatch& sources,
                  const StateBatch& states, const ImageBatch& destinations, bool isBatch);
  ImageBatch makeDestinations(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                              const ImageBatch& sources);
  ImageBatch encodeReturning(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                             const ImageBatch& sources, StateBatch* states, bool temporaryStates,
                             bool isBatch);

  Offset offset_;
  mtl::Region clipRect_ = RectNoClip;
  std::size_t sourceFeatureChannelOffset_ = 0;
  std::size_t sourceFeatureChannelMaxCount_ = std::numeric_limits<std::size_t>::max();
  ImageEdgeMode edgeMode_ = ImageEdgeMode::Zero;
  bool savesFieldsUnderPredicates_ = false;
};

}  // namespace mps
