#pragma once

#include <any>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mps/core/kernel/cnn_gradient_kernel.hpp"
#include "mps/core/kernel/cnn_kernel.hpp"
#include "mps/core/kernel/kernel_class.hpp"

/// Images of another shape with the same elements (MPSNNReshape.h).
namespace mps {

/// The elements of each image in their order, channels fastest, then x, then y, in another shape (MPSNNReshape):
///
///     out[(y W + x) C + c] = in[(y' W' + x') C' + c']      where both indices are equal
///
/// This is the order of a fully connected layer's weights. With channelsFirst() the channels are slowest, as in
/// PyTorch's view: out[(c H + y) W + x] = in[(c' H' + y') W' + x'], each element by itself, more slowly. A given
/// destination, from destinationFeatureChannelOffset on, says the shape; so do the encodes that take one. Those that
/// return an image and take none give the source's shape.
///
/// Sources: every format; destinations: float16, float32. offset and clipRect are those of a whole image.
///
/// @throws Error (encodes) when source and destination differ in the number of elements, or offset or clipRect is set
class NNReshape : public detail::KernelClass<NNReshape, CNNKernel, "NNReshape"> {
 public:
  static std::shared_ptr<NNReshape> create(const std::shared_ptr<mtl::Device>& device);

  /// Extension: whether the order of the elements has the channels slowest. false.
  [[nodiscard]] bool channelsFirst() const { return channelsFirst_; }
  void setChannelsFirst(bool channelsFirst) { channelsFirst_ = channelsFirst; }

  using CNNKernel::encode;
  using CNNKernel::encodeBatch;
  /// @name Encodes that return an image of this shape. States as in CNNKernel.
  /// @{
  std::shared_ptr<Image> encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                const std::shared_ptr<Image>& sourceImage, std::size_t reshapedWidth,
                                std::size_t reshapedHeight, std::size_t reshapedFeatureChannels);
  std::shared_ptr<Image> encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                const std::shared_ptr<Image>& sourceImage,
                                std::shared_ptr<State>& destinationState, bool destinationStateIsTemporary,
                                std::size_t reshapedWidth, std::size_t reshapedHeight,
                                std::size_t reshapedFeatureChannels);
  ImageBatch encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                         const ImageBatch& sourceImages, std::size_t reshapedWidth,
                         std::size_t reshapedHeight, std::size_t reshapedFeatureChannels);
  ImageBatch encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                         const ImageBatch& sourceImages, StateBatch& destinationStates,
                         bool destinationStatesAreTemporary, std::size_t reshapedWidth,
                         std::size_t reshapedHeight, std::size_t reshapedFeatureChannels);
  /// @}

  /// @name The library's own
  /// @{
  /// The shape of the encodes that return an image. @throws Error when a size is 0
  void setReshapedSize(std::size_t width, std::size_t height, std::size_t featureChannels);
  /// @}

 protected:
  using KernelClass::KernelClass;
  NNReshape(const NNReshape&) = default;
  void codeProperties(Coder& coder) override;
  /// Elements are not where they were.
  [[nodiscard]] bool hasWindow() const override { return true; }
  [[nodiscard]] bool fillsDestination() const override { return true; }
  void adjustDestination(ImageDescriptor& destination, const ImageDescriptor& source) override;
  void describeForward(std::any& family) const override { family = channelsFirst_; }
  [[nodiscard]] detail::PreparedCall prepareForward(const detail::ForwardCall& call) const override;

 private:
  friend KernelClass;
  struct Size {
    std::size_t width, height, featureChannels;
  };
  template <class Encode>
  auto reshapedTo(const Size& size, Encode encode);

  std::optional<Size> reshapedSize_;
  bool channelsFirst_ = false;
};

/// dIn = the incoming gradient in the shape of the forward source, its elements in the order of the forward encode
/// (MPSNNReshapeGradient). Of sourceImage only the size counts.
///
///     auto reshape = mps::NNReshape::create(device);
///     std::shared_ptr<mps::State> state;
///     auto y = reshape->encode(commandBuffer, x, state, false, 1, 1, 3136);
///     auto dx = mps::NNReshapeGradient::create(device)->encode(commandBuffer, dy, x, state);
///
/// @throws Error (encodes) without a state, when clipRect is set, and when the sizes are not those of the forward call
class NNReshapeGradient
    : public detail::KernelClass<NNReshapeGradient, CNNGradientKernel, "NNReshapeGradient"> {
 public:
  static std::shared_ptr<NNReshapeGradient> create(const std::shared_ptr<mtl::Device>& device);

 protected:
  using KernelClass::KernelClass;
  NNReshapeGradient(const NNReshapeGradient&) = default;
  [[nodiscard]] std::vector<detail::PreparedCall> prepareGradient(
      const detail::GradientCall& call) const override;
  [[nodiscard]] bool acceptsForward(const std::string& forwardClassName) const override;
  [[nodiscard]] bool needsSourceMemory(bool /*forwardSavesFields*/) const override { return false; }
  [[nodiscard]] bool canAccumulate() const override { return true; }

 private:
  friend KernelClass;
};

}  // namespace mps
