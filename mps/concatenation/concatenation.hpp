#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mps/core/kernel/cnn_gradient_kernel.hpp"
#include "mps/core/kernel/cnn_multiary_kernel.hpp"
#include "mps/core/kernel/kernel_class.hpp"
#include "mps/core/kernel/kernel_roles.hpp"

/// Concatenation along the feature channels. Apple shows its nodes alone; the kernels behind them
/// are an extension.
namespace mps {

/// Puts the channels of its sources side by side:
///
///     out[destinationFeatureChannelOffset + first(i) + c] = source i[c]       c = 0 ... channels(i) - 1
///     first(i) = sum over j < i of channels(j), each rounded up to a multiple of channelAlignment
///
/// The channels that round a part up, the last one too, become 0: of 23, 5 and 8 channels alignment 4 makes 40,
/// which begin at 0, 24 and 32, and alignment 1 makes 36. Whoever reads the result, a convolution for one, must expect
/// as many channels. A CNN kernel that writes with a destinationFeatureChannelOffset of its own needs no
/// concatenation.
///
/// Sources: every format, of one width and height. Destinations: float16, float32; float32 where source 0 is unorm.
/// Each source has an offset and a range of channels of its own; the windows, strides and edge modes of the base
/// class are not used.
///
/// @throws Error (encodes) when the sources differ in width or height, when offset and clipRect lead beyond a source,
/// and when a window, stride or dilation is not 1.
class NNConcatenation : public detail::KernelClass<NNConcatenation, CNNMultiaryKernel, "NNConcatenation"> {
 public:
  /// @throws Error when sourceCount is 0
  static std::shared_ptr<NNConcatenation> create(const std::shared_ptr<mtl::Device>& device,
                                                 std::size_t sourceCount);
  /// What each part is rounded up to a multiple of (docs/decisions.md, D18): 4, Apple's rule, or 1, nothing between
  /// the parts. 4.
  [[nodiscard]] std::size_t channelAlignment() const { return channelAlignment_; }
  /// @throws Error for another number than 1 and 4
  void setChannelAlignment(std::size_t channelAlignment);

 protected:
  using KernelClass::KernelClass;
  NNConcatenation(std::shared_ptr<mtl::Device> device, std::size_t sourceCount);
  NNConcatenation(const NNConcatenation&) = default;
  void codeProperties(Coder& coder) override;
  [[nodiscard]] bool makesState() const override { return true; }
  [[nodiscard]] std::size_t producedFeatureChannels(
      std::span<const std::size_t> sourceChannels) const override;
  void encodeCall(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                  std::span<const ImageBatch> sources, const StateBatch& destinationStates,
                  const ImageBatch& destinations) override;
  [[nodiscard]] detail::ChannelTraits channelTraits() const override;
  [[nodiscard]] bool repeatsCommands() const override { return true; }

 private:
  friend KernelClass;
  [[nodiscard]] std::size_t aligned(std::size_t channels) const;
  void checkProperties() const;
  [[nodiscard]] std::vector<std::size_t> channelsOf(std::span<const ImageBatch> sources) const;

  std::size_t channelAlignment_ = 4;
};

/// The gradient of one source of an NNConcatenation: its slice of the incoming gradient.
///
///     dSource[c] = g[first + c]
///
/// The gradient of the padding channels is dropped. An incoming gradient with fewer channels than the forward result
/// is taken to begin with the slice. Channels and pixels of the source that were not read get 0. Of sourceImage only
/// the size counts. In the encodes without a state the properties of the base class say where the slice begins.
///
///     auto concatenation = mps::NNConcatenation::create(device, 2);
///     const std::vector sources{a, b};
///     std::shared_ptr<mps::State> state;
///     auto y = concatenation->encode(commandBuffer, sources, state, false);
///     auto db = mps::NNConcatenationGradient::create(device, 1)->encode(commandBuffer, dy, b, state);
class NNConcatenationGradient
    : public detail::KernelClass<NNConcatenationGradient, CNNGradientKernel, "NNConcatenationGradient">,
      public detail::SliceGradientKernel {
 public:
  /// @param sourceIndex the source of the forward kernel that the gradient belongs to
  static std::shared_ptr<NNConcatenationGradient> create(const std::shared_ptr<mtl::Device>& device,
                                                         std::size_t sourceIndex);
  [[nodiscard]] std::size_t sourceIndex() const override { return sourceIndex_; }

  /// The gradients of this source and of the next one, sourceIndex() + 1: what this kernel and that one's make, to the
  /// bit, in one pass over the incoming gradient where their slices lie side by side. Where pixels have few channels,
  /// both slices lie in the same lines of memory, which then come once. A graph does so by itself.
  ///
  /// Takes the reads of two encodes: two off sourceGradients and gradientStates, one off each of the others. Properties
  /// that the user has set hold for both sources.
  ///
  ///     gradient->encodeBatchWithNext(commandBuffer, dy, std::array{a, b}, states, std::array{da, db});
  ///
  /// @param sourceImages         of both sources  @param destinationGradients of both sources
  /// @throws Error as encodeBatch does, when there are not two of each, and when both destinations share memory
  void encodeBatchWithNext(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                           const ImageBatch& sourceGradients, std::span<const ImageBatch> sourceImages,
                           const StateBatch& gradientStates,
                           std::span<const ImageBatch> destinationGradients) override;

 protected:
  using KernelClass::KernelClass;
  NNConcatenationGradient(std::shared_ptr<mtl::Device> device, std::size_t sourceIndex);
  NNConcatenationGradient(const NNConcatenationGradient&) = default;
  void codeProperties(Coder& coder) override;
  [[nodiscard]] std::vector<detail::PreparedCall> prepareGradient(
      const detail::GradientCall& call) const override;
  [[nodiscard]] bool acceptsForward(const std::string& forwardClassName) const override;
  [[nodiscard]] bool needsSourceMemory(bool /*forwardSavesFields*/) const override { return false; }
  [[nodiscard]] bool canAccumulate() const override { return true; }
  [[nodiscard]] detail::KernelRoles roles() override;
  [[nodiscard]] bool repeatsCommands() const override { return true; }
  [[nodiscard]] std::optional<std::size_t> forwardSourceIndex() const override { return sourceIndex_; }
  [[nodiscard]] std::shared_ptr<const detail::ForwardRecord> ownRecord(
      std::shared_ptr<const detail::ForwardRecord> record) const override;

 private:
  friend KernelClass;
  struct Slice;
  Slice resolveSlice(const ImageBatch& gradients, const ImageBatch& sources, const StateBatch& states,
                     const ImageBatch& destinations);

  std::size_t sourceIndex_ = 0;
};

}  // namespace mps
