#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <memory>
#include <span>
#include <type_traits>

#include "mps/core/kernel/image_kernel.hpp"

namespace mps {

namespace detail {
class BatchOperand;
struct PreparedCall;

/// A property that knows whether the user set it (docs/decisions.md, D7): unset ones are taken from the gradient
/// state.
template <class T>
class Settable {
 public:
  explicit Settable(T value) : value_(value) {}
  [[nodiscard]] const T& get() const { return value_; }
  [[nodiscard]] bool isSet() const { return set_; }
  void set(T value) {
    value_ = value;
    set_ = true;
  }
  /// The library's value, shown by the getter; the user's flag stays.
  void transfer(T value) { value_ = value; }
  template <class AnyCoder>
  void code(AnyCoder& coder, const char* key) {
    coder.codeGroup(key, [&] {
      if constexpr (std::is_same_v<T, ImageEdgeMode>)
        coder.codeEnumeration("value", value_, ImageEdgeMode::Constant);
      else if constexpr (std::is_same_v<T, std::size_t>)
        coder.codeSizeOrAll("value", value_);
      else
        coder.code("value", value_);
      coder.code("isSet", set_);
    });
  }

 private:
  T value_;
  bool set_ = false;
};

/// What a kernel with several sources knows of one of them.
struct SourceProperties {
  Settable<Offset> offset{Offset{}};
  Settable<std::size_t> featureChannelOffset{0};
  Settable<std::size_t> featureChannelMaxCount{std::numeric_limits<std::size_t>::max()};
  Settable<ImageEdgeMode> edgeMode{ImageEdgeMode::Zero};
  Settable<std::size_t> kernelWidth{1};
  Settable<std::size_t> kernelHeight{1};
  Settable<std::size_t> strideInPixelsX{1};
  Settable<std::size_t> strideInPixelsY{1};
  Settable<std::size_t> dilationRateX{1};
  Settable<std::size_t> dilationRateY{1};
  void codeProperties(Coder& coder);
  /// @throws Error, naming kernel and property, for an offset or stride whose products could leave 64 bits
  void checkPositions(const Kernel& kernel, const char* offsetName) const;
};

}  // namespace detail

/// Base of the kernels with two sources, primary and secondary (MPSCNNBinaryKernel).
///
/// The encodes are those of CNNKernel with two sources. Size and offsets come from the padding policy on the
/// primary image; each source gets its own offset against the common destination.
class CNNBinaryKernel : public detail::ImageKernel {
 public:
  /// Position in each source for the first pixel of clipRect; z: first image of a stack. {0,0,0}. Encodes throw for
  /// offsets and strides beyond 2^31.
  [[nodiscard]] Offset primaryOffset() const { return primary_.offset.get(); }
  void setPrimaryOffset(const Offset& offset) { primary_.offset.set(offset); }
  [[nodiscard]] Offset secondaryOffset() const { return secondary_.offset.get(); }
  void setSecondaryOffset(const Offset& offset) { secondary_.offset.set(offset); }
  /// Destination pixels to write. RectNoClip.
  [[nodiscard]] const mtl::Region& clipRect() const { return clipRect_; }
  void setClipRect(const mtl::Region& clipRect) {
    clipRect_ = clipRect;
    clipRectIsSet_ = true;
  }
  /// First channel read of each source, a multiple of 4, and how many at most. 0, no limit.
  [[nodiscard]] std::size_t primarySourceFeatureChannelOffset() const {
    return primary_.featureChannelOffset.get();
  }
  void setPrimarySourceFeatureChannelOffset(std::size_t offset) { primary_.featureChannelOffset.set(offset); }
  [[nodiscard]] std::size_t secondarySourceFeatureChannelOffset() const {
    return secondary_.featureChannelOffset.get();
  }
  void setSecondarySourceFeatureChannelOffset(std::size_t offset) {
    secondary_.featureChannelOffset.set(offset);
  }
  [[nodiscard]] std::size_t primarySourceFeatureChannelMaxCount() const {
    return primary_.featureChannelMaxCount.get();
  }
  void setPrimarySourceFeatureChannelMaxCount(std::size_t count) {
    primary_.featureChannelMaxCount.set(count);
  }
  [[nodiscard]] std::size_t secondarySourceFeatureChannelMaxCount() const {
    return secondary_.featureChannelMaxCount.get();
  }
  void setSecondarySourceFeatureChannelMaxCount(std::size_t count) {
    secondary_.featureChannelMaxCount.set(count);
  }
  /// Zero or Clamp, for each source. Zero.
  [[nodiscard]] ImageEdgeMode primaryEdgeMode() const { return primary_.edgeMode.get(); }
  void setPrimaryEdgeMode(ImageEdgeMode edgeMode) { primary_.edgeMode.set(edgeMode); }
  [[nodiscard]] ImageEdgeMode secondaryEdgeMode() const { return secondary_.edgeMode.get(); }
  void setSecondaryEdgeMode(ImageEdgeMode edgeMode) { secondary_.edgeMode.set(edgeMode); }
  /// Window and step in each source; 1 for kernels without a window. Strides can be set.
  [[nodiscard]] std::size_t primaryKernelWidth() const { return primary_.kernelWidth.get(); }
  [[nodiscard]] std::size_t primaryKernelHeight() const { return primary_.kernelHeight.get(); }
  [[nodiscard]] std::size_t secondaryKernelWidth() const { return secondary_.kernelWidth.get(); }
  [[nodiscard]] std::size_t secondaryKernelHeight() const { return secondary_.kernelHeight.get(); }
  [[nodiscard]] std::size_t primaryStrideInPixelsX() const { return primary_.strideInPixelsX.get(); }
  [[nodiscard]] std::size_t primaryStrideInPixelsY() const { return primary_.strideInPixelsY.get(); }
  void setPrimaryStrideInPixelsX(std::size_t stride) { primary_.strideInPixelsX.set(stride); }
  void setPrimaryStrideInPixelsY(std::size_t stride) { primary_.strideInPixelsY.set(stride); }
  [[nodiscard]] std::size_t secondaryStrideInPixelsX() const { return secondary_.strideInPixelsX.get(); }
  [[nodiscard]] std::size_t secondaryStrideInPixelsY() const { return secondary_.strideInPixelsY.get(); }
  void setSecondaryStrideInPixelsX(std::size_t stride) { secondary_.strideInPixelsX.set(stride); }
  void setSecondaryStrideInPixelsY(std::size_t stride) { secondary_.strideInPixelsY.set(stride); }
  [[nodiscard]] std::size_t primaryDilationRateX() const { return primary_.dilationRateX.get(); }
  [[nodiscard]] std::size_t primaryDilationRateY() const { return primary_.dilationRateY.get(); }
  [[nodiscard]] std::size_t secondaryDilationRateX() const { return secondary_.dilationRateX.get(); }
  [[nodiscard]] std::size_t secondaryDilationRateY() const { return secondary_.dilationRateY.get(); }

  using Kernel::encode;
  /// @name Encodes with a given destination; properties are used as they stand.
  /// @{
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<Image>& primaryImage, const std::shared_ptr<Image>& secondaryImage,
              const std::shared_ptr<Image>& destinationImage);
  void encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const ImageBatch& primaryImages,
                   const ImageBatch& secondaryImages, const ImageBatch& destinationImages);
  /// @param destinationStates as many as images, or empty for none
  void encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const ImageBatch& primaryImages,
                   const ImageBatch& secondaryImages, const StateBatch& destinationStates,
                   const ImageBatch& destinationImages);
  /// @}
  /// @name Encodes that return the destination, sized by the padding policy.
  /// @{
  std::shared_ptr<Image> encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                const std::shared_ptr<Image>& primaryImage,
                                const std::shared_ptr<Image>& secondaryImage);
  ImageBatch encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                         const ImageBatch& primaryImages, const ImageBatch& secondaryImages);
  std::shared_ptr<Image> encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                const std::shared_ptr<Image>& primaryImage,
                                const std::shared_ptr<Image>& secondaryImage,
                                std::shared_ptr<State>& destinationState, bool destinationStateIsTemporary);
  ImageBatch encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                         const ImageBatch& primaryImages, const ImageBatch& secondaryImages,
                         StateBatch& destinationStates, bool destinationStatesAreTemporary);
  /// @}

  /// Size and format of the destination; sets the offsets. @param sourceImages {primary, secondary}
  ImageDescriptor destinationImageDescriptor(ArrayRef<std::shared_ptr<Image>> sourceImages,
                                             ArrayRef<std::shared_ptr<State>> sourceStates = {}) override;
  [[nodiscard]] std::size_t sourceCount() const override { return 2; }

  /// @name States to encode with; null (empty) for kernels without.
  /// @param sourceStates     that the encode will read; in the batch forms one batch for each slot
  /// @param destinationImage the one that will be written, when it is there already. No kernel of the library
  ///                         looks at these two.
  /// @{
  [[nodiscard]] std::shared_ptr<State> resultState(
      const std::shared_ptr<Image>& primaryImage, const std::shared_ptr<Image>& secondaryImage,
      ArrayRef<std::shared_ptr<State>> sourceStates = {},
      const std::shared_ptr<Image>& destinationImage = nullptr) const;
  [[nodiscard]] StateBatch resultStateBatch(const ImageBatch& primaryImages,
                                            const ImageBatch& secondaryImages,
                                            ArrayRef<StateBatch> sourceStates = {},
                                            const ImageBatch& destinationImages = {}) const;
  [[nodiscard]] std::shared_ptr<State> temporaryResultState(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const std::shared_ptr<Image>& primaryImage,
      const std::shared_ptr<Image>& secondaryImage, ArrayRef<std::shared_ptr<State>> sourceStates = {},
      const std::shared_ptr<Image>& destinationImage = nullptr) const;
  [[nodiscard]] StateBatch temporaryResultStateBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                                     const ImageBatch& primaryImages,
                                                     const ImageBatch& secondaryImages,
                                                     ArrayRef<StateBatch> sourceStates = {},
                                                     const ImageBatch& destinationImages = {}) const;
  /// @}

  /// @name Bytes of scratch memory that an encode of these sources takes beside destination and state.
  /// @param sourceStates     of a gradient kernel: the gradient state; in the batch form one batch for each
  ///                         slot
  /// @param destinationImage null (empty): one as destinationImageDescriptor would size it
  /// @{
  [[nodiscard]] std::size_t encodingStorageSize(
      const std::shared_ptr<Image>& primaryImage, const std::shared_ptr<Image>& secondaryImage,
      ArrayRef<std::shared_ptr<State>> sourceStates = {},
      const std::shared_ptr<Image>& destinationImage = nullptr) const;
  [[nodiscard]] std::size_t batchEncodingStorageSize(const ImageBatch& primaryImages,
                                                     const ImageBatch& secondaryImages,
                                                     ArrayRef<StateBatch> sourceStates = {},
                                                     const ImageBatch& destinationImages = {}) const;
  /// @}

 protected:
  using ImageKernel::ImageKernel;
  CNNBinaryKernel(const CNNBinaryKernel&) = default;
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

  /// Records one call of the class; arguments are checked, batches not empty. The base of gradient kernels
  /// and of the arithmetic kernels each have their own.
  virtual void encodeCall(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const ImageBatch& primary,
                          const ImageBatch& secondary, const StateBatch& destinationStates,
                          const ImageBatch& destinations) = 0;
  /// Size of the destination, without the policy's own hook; sets the offsets.
  virtual ImageDescriptor sizeDestination(const ImageDescriptor& primary, const ImageDescriptor& secondary);
  /// Channels of the result.
  [[nodiscard]] virtual std::size_t producedFeatureChannels(std::size_t primaryChannels,
                                                            std::size_t /*secondaryChannels*/) const {
    return primaryChannels;
  }
  [[nodiscard]] virtual bool makesState() const { return false; }
  [[nodiscard]] virtual std::shared_ptr<State> makeState(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) const;

  /// Scratch memory of one encode; sizes and offsets are final. 0 for kernels without.
  [[nodiscard]] virtual std::size_t scratchBytes(const ImageBatch& /*primary*/,
                                                 const ImageBatch& /*secondary*/,
                                                 const StateBatch& /*states*/,
                                                 const ImageBatch& /*destinations*/) {
    return 0;
  }

  /// Whether the values of the secondary images are read in every call; where not, the destination may lie in
  /// their memory.
  [[nodiscard]] virtual bool readsSecondary() const { return true; }
  void checkEncode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const char* primaryName,
                   const ImageBatch& primary, const char* secondaryName, const ImageBatch& secondary,
                   const ImageBatch& destinations, bool isBatch) const;
  /// The policy's hook and the allocator.
  ImageBatch makeDestinations(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                              const ImageBatch& primary, const ImageBatch& secondary,
                              const StateBatch& states);

  detail::SourceProperties primary_;
  detail::SourceProperties secondary_;
  bool clipRectIsSet_ = false;

 private:
  ImageBatch encodeReturning(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                             const ImageBatch& primary, const ImageBatch& secondary, StateBatch* states,
                             bool temporaryStates, bool isBatch);
  void encodeInto(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const ImageBatch& primary,
                  const ImageBatch& secondary, const StateBatch& states, const ImageBatch& destinations,
                  bool isBatch);
  [[nodiscard]] StateBatch makeStates(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                      std::size_t count) const;

  mtl::Region clipRect_ = RectNoClip;
};

}  // namespace mps
