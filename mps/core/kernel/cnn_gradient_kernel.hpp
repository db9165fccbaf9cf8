#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mps/core/kernel/cnn_binary_kernel.hpp"

namespace mps {

namespace detail {
struct BatchRecord;
struct ForwardRecord;
struct GradientCall;
}  // namespace detail

/// Base of the gradient kernels: from dL/d(result) to dL/d(source) of a forward kernel (MPSCNNGradientKernel).
///
/// The source gradient is the primary image, the forward source image the secondary one (the softmax
/// gradients take the forward result instead). The gradient state says what the forward kernel did. Each encode
/// takes one read off source gradient, source image and state, where temporary.
///
/// The encodes that return the destination configure themselves from the state and write every pixel of it. Those
/// with a given destination take each property that the user has not set from the state (docs/decisions.md, D7).
/// Within the clip rectangle destination pixel (x, y) is the gradient of source pixel (x, y).
///
/// Gradients overwrite the destination from destinationFeatureChannelOffset on. Where the destination ends with the
/// channels of the whole forward source, all of these are written, and those that the forward pass did not read are 0.
/// Else only the channels that it read are written. The others stay as they are.
///
/// All throw Error before anything is recorded: a state of a foreign kernel, an image whose size does not
/// belong to the forward call, or what CNNKernel refuses.
class CNNGradientKernel : public CNNBinaryKernel {
 public:
  /// Added to primaryOffset * stride: position in the gradient with zeros between its pixels. 0. Kernels
  /// without a window throw when it is not 0 (docs/decisions.md, D8).
  [[nodiscard]] std::int64_t kernelOffsetX() const { return kernelOffsetX_.get(); }
  [[nodiscard]] std::int64_t kernelOffsetY() const { return kernelOffsetY_.get(); }
  void setKernelOffsetX(std::int64_t offset) { kernelOffsetX_.set(offset); }
  void setKernelOffsetY(std::int64_t offset) { kernelOffsetY_.set(offset); }

  using CNNBinaryKernel::encode;
  using CNNBinaryKernel::encodeBatch;
  std::shared_ptr<Image> encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                const std::shared_ptr<Image>& sourceGradient,
                                const std::shared_ptr<Image>& sourceImage,
                                const std::shared_ptr<State>& gradientState);
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<Image>& sourceGradient, const std::shared_ptr<Image>& sourceImage,
              const std::shared_ptr<State>& gradientState, const std::shared_ptr<Image>& destinationGradient);
  ImageBatch encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                         const ImageBatch& sourceGradients, const ImageBatch& sourceImages,
                         const StateBatch& gradientStates);
  void encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                   const ImageBatch& sourceGradients, const ImageBatch& sourceImages,
                   const StateBatch& gradientStates, const ImageBatch& destinationGradients);

  /// Size of the forward source in the format of the source gradient, with destinationFeatureChannelOffset more
  /// channels. Sets the secondary properties, offsets
  /// and strides to what the forward kernel had; they can be read afterwards.
  /// @param sourceImages {source gradient, source image}  @param sourceStates {gradient state}
  ImageDescriptor destinationImageDescriptor(ArrayRef<std::shared_ptr<Image>> sourceImages,
                                             ArrayRef<std::shared_ptr<State>> sourceStates) override;

  /// @name The library's own
  /// @{
  /// encodeBatch that adds to the destinations instead of overwriting them. @throws Error unless
  /// canAccumulate() and float32
  void encodeBatchAccumulating(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                               const ImageBatch& sourceGradients, const ImageBatch& sourceImages,
                               const StateBatch& gradientStates, const ImageBatch& destinationGradients);
  /// @}

 protected:
  using CNNBinaryKernel::CNNBinaryKernel;
  CNNGradientKernel(const CNNGradientKernel&) = default;
  void codeProperties(Coder& coder) override;

  /// @name What a compiled graph and the encodes ask
  /// @{
  [[nodiscard]] detail::GradientCall resolveCall(detail::BatchOperand& gradient, detail::BatchOperand& source,
                                                 detail::BatchOperand& destination,
                                                 const std::shared_ptr<const detail::ForwardRecord>& record,
                                                 bool stateDriven) const;
  [[nodiscard]] virtual std::vector<detail::PreparedCall> prepareGradient(
      const detail::GradientCall& call) const = 0;
  /// Whether prepareGradient is asked about a clip rectangle without pixels, too: by kernels that write sums into their
  /// states, or that refuse clip rectangles. A part that would write the destination then has no plan.
  [[nodiscard]] virtual bool preparesWithoutPixels() const { return false; }
  /// Takes the properties that the user has not set from the record.
  void transferProperties(const detail::ForwardRecord& record, const ImageDescriptor& gradient);
  /// Whether a gradient of this class belongs to that forward kernel.
  [[nodiscard]] bool acceptsForward(const std::string& forwardClassName) const override = 0;
  /// Whether an encode reads the elements of sourceImage, or its size alone.
  [[nodiscard]] virtual bool needsSourceMemory(bool forwardSavesFields) const;
  /// Which call reads them is known when it is prepared.
  [[nodiscard]] bool readsSecondary() const final { return false; }
  /// Whether every plan of this class can add to a float32 destination.
  [[nodiscard]] virtual bool canAccumulate() const { return false; }
  [[nodiscard]] detail::DerivativeTraits derivativeTraits() const override;
  /// Encodes a step of a graph. @param sources the gradient, the forward source, and what else the kernel reads, such as
  /// labels; the default takes the first two  @param accumulates adds to the destinations
  virtual void encodeStep(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                          std::span<const ImageBatch> sources, const StateBatch& gradientStates,
                          const ImageBatch& destinationGradients, bool accumulates);
  void encodeGraphStep(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                       const detail::GraphStep& step) override;
  /// Which source of the forward kernel the destination is the gradient of, where sourceImage does not have
  /// its size.
  [[nodiscard]] virtual std::optional<std::size_t> forwardSourceIndex() const { return std::nullopt; }
  /// Which source of the forward kernel sourceImage is; nothing where it is the forward result.
  [[nodiscard]] virtual std::optional<std::size_t> sourceImageIndex() const;
  /// The forward call as seen from the source that the destination is the gradient of; for kernels with one
  /// source the record as it is.
  [[nodiscard]] virtual std::shared_ptr<const detail::ForwardRecord> ownRecord(
      std::shared_ptr<const detail::ForwardRecord> record) const;
  /// The forward call of these states as ownRecord sees it. @throws Error as recordOf
  [[nodiscard]] virtual detail::BatchRecord forwardRecord(const ImageDescriptor& sourceImage,
                                                          const StateBatch& states) const;
  /// What sourceImage must look like (width, height, channels): the forward source unless a class says
  /// otherwise.
  [[nodiscard]] virtual const ImageDescriptor& expectedSourceImage(const detail::ForwardRecord& record) const;
  /// @}

  /// Offsets that make the gradient match the forward call.
  struct Geometry {
    Offset primaryOffset;
    Offset secondaryOffset;
    std::int64_t kernelOffsetX = 0;
    std::int64_t kernelOffsetY = 0;
  };
  /// The default is that of kernels without a window: gradient pixel clipRect.origin belongs to source pixel
  /// offset.
  /// @param gradientOrigin the gradient pixel that belongs to the first pixel of the forward clip rectangle
  [[nodiscard]] virtual Geometry geometryFor(const detail::ForwardRecord& record,
                                             const Offset& gradientOrigin) const;
  [[nodiscard]] virtual bool usesKernelOffset() const { return false; }
  /// Whether sourceImage is the forward result instead of the forward source.
  [[nodiscard]] virtual bool takesForwardResult() const { return false; }
  /// Whether the images must be those of the forward batch in order; others are then encoded one by one.
  [[nodiscard]] virtual bool needsStatesInOrder() const { return false; }
  /// Whether one call can serve all of these states; else the images are encoded one by one.
  [[nodiscard]] virtual bool takesTogether(const StateBatch& /*states*/) const { return true; }
  /// @throws Error when the images or the record are not those of this kernel's forward call.
  void checkRecord(const detail::ForwardRecord& record, const ImageDescriptor& gradient,
                   const ImageDescriptor& source) const;
  /// @throws Error when sourceGradient is what belongs in the place of sourceImage
  void checkNotExchanged(const detail::ForwardRecord& record, const detail::BatchOperand& gradient,
                         const detail::BatchOperand& source) const;
  /// @throws Error when sourceImage can be told to be another image than the kernel takes.
  virtual void checkRole(const detail::ForwardRecord& record, const detail::BatchOperand& source) const;
  /// Before a call with states is resolved: take from the state what the kernel needs beside the record.
  virtual void willEncode(State& /*gradientState*/) {}
  /// After the call was recorded.
  virtual void didEncode(const detail::GradientCall& /*call*/) {}
  /// A class takes over what else the forward kernel had.
  virtual void transferOwnProperties(const detail::ForwardRecord& /*record*/) {}

  void encodeCall(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const ImageBatch& primary,
                  const ImageBatch& secondary, const StateBatch& destinationStates,
                  const ImageBatch& destinations) override;
  ImageDescriptor sizeDestination(const ImageDescriptor& primary, const ImageDescriptor& secondary) override;
  [[nodiscard]] std::size_t scratchBytes(const ImageBatch& primary, const ImageBatch& secondary,
                                         const StateBatch& states, const ImageBatch& destinations) override;

 private:
  /// Whether a destination with that many channels ends with those of the forward source.
  [[nodiscard]] bool holdsWholeSource(const detail::ForwardRecord& record, std::size_t channels) const;
  /// How an encode with states goes.
  struct Manner {
    bool isBatch = false;
    bool stateDriven = false;  ///< GradientCall::stateDriven
    bool accumulate = false;   ///< GradientCall::accumulate
  };
  void encodeGradient(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const ImageBatch& gradients,
                      const ImageBatch& sources, const StateBatch& states, const ImageBatch& destinations,
                      const Manner& manner);
  /// Records the calls of one encode, checked; more than one where the images must be taken one by one.
  void recordGradient(mtl::CommandBuffer& commandBuffer, const ImageBatch& gradients,
                      const ImageBatch& sources, const StateBatch& states, const ImageBatch& destinations,
                      const Manner& manner, std::vector<detail::GradientCall>& calls);
  /// What prepareGradient says; nothing where the destination has no pixel, unless preparesWithoutPixels().
  [[nodiscard]] std::vector<detail::PreparedCall> preparedParts(const detail::GradientCall& call) const;
  /// Of a call whose plans are known: those aliases that could not be judged before.
  void checkAliases(const std::vector<detail::PreparedCall>& prepared, bool writesAll,
                    const ImageBatch& gradients, const ImageBatch& sources,
                    const ImageBatch& destinations) const;
  /// Of stacks with a state: destination image z stands for image z of the forward source.
  void selectStackedImages(const detail::ForwardRecord& record, detail::BatchOperand& gradient,
                           detail::BatchOperand& source, detail::BatchOperand& destination,
                           mtl::Region& clip) const;
  ImageBatch encodeGradientReturning(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                     const ImageBatch& gradients, const ImageBatch& sources,
                                     const StateBatch& states, bool isBatch);

  detail::Settable<std::int64_t> kernelOffsetX_{0};
  detail::Settable<std::int64_t> kernelOffsetY_{0};
};

}  // namespace mps
