#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "mps/core/image/gradient_state.hpp"
#include "mps/core/layer/normalization_state.hpp"

namespace mtl {
class Memory;
}

namespace mps {

class CNNGroupNormalization;
class CNNInstanceNormalization;

namespace detail {

/// What an instance or group normalisation computes with: float32, one value per feature channel. A reload
/// exchanges buffers, so that encoded work keeps the old ones. The record of a forward encode holds a copy.
struct ImageNormalizationParameters {
  std::shared_ptr<mtl::Buffer> gamma, beta;
  std::size_t groups = 1;
  float epsilon = 0;
  bool sharesGammaAndBeta = false;  ///< gamma and beta are the data source's own buffers
};

/// The gradients of a batch of states in one block: first those of gamma, one row of channels for each image, then
/// those of beta.
class ImageNormalizationGradients : public StateBlock,
                                    public std::enable_shared_from_this<ImageNormalizationGradients> {
 public:
  /// @param commandBuffer of temporary states, else null
  ImageNormalizationGradients(std::shared_ptr<mtl::Device> device,
                              std::shared_ptr<mtl::CommandBuffer> commandBuffer, std::size_t images,
                              std::size_t channels);

  [[nodiscard]] const std::shared_ptr<mtl::Device>& device() const { return device_; }
  [[nodiscard]] std::size_t channels() const { return channels_; }
  /// Taken at first use.
  [[nodiscard]] std::shared_ptr<mtl::Memory> memory();
  [[nodiscard]] std::size_t gammaOffset(std::size_t image) const { return image * rowBytes(); }
  [[nodiscard]] std::size_t betaOffset(std::size_t image) const { return (images_ + image) * rowBytes(); }
  [[nodiscard]] std::size_t rowBytes() const { return channels_ * sizeof(float); }
  void synchronize(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) override;

  /// What is encoded from here on does not count should the command buffer be dropped.
  void willEncode(mtl::CommandBuffer& commandBuffer);
  void didEncodeGradient(std::size_t firstImage, std::size_t count);
  [[nodiscard]] bool hasGradient(std::size_t image) const { return encodes_[image] > 0; }

 private:
  std::shared_ptr<mtl::Device> device_;
  std::shared_ptr<mtl::CommandBuffer> commandBuffer_;
  std::size_t images_;
  std::size_t channels_;
  std::mutex mutex_;
  std::shared_ptr<mtl::Memory> memory_;         ///< of permanent states
  std::weak_ptr<mtl::Memory> temporaryMemory_;  ///< the states own it
  /// Of the gradient, for each image.
  using Encodes = std::vector<std::uint64_t>;
  struct EncodesOfBuffer;
  Encodes encodes_;
  std::weak_ptr<EncodesOfBuffer> ofBuffer_;  ///< that was encoded on last, while it is not committed
};

/// What the gradient states of instance and group normalisation have in common. One for each image; a state that
/// several images share, or that belongs to a stack, gets the sums over them.
///
/// A temporary state begins with readCount 1; gradient and optimiser encodes take one off, the forward encode none:
/// a step with one recorded update needs 2. Buffers are float32, one value per feature channel; the host can read
/// those of a permanent state after synchronize() and completion. A gradient encode in a command buffer that is dropped
/// leaves no gradients for optimisers.
class ImageNormalizationGradientState : public NNGradientState {
 public:
  [[nodiscard]] std::size_t numberOfFeatureChannels() const { return bufferSize(0) / sizeof(float); }
  /// What the forward pass used; null before it was encoded.
  [[nodiscard]] std::shared_ptr<mtl::Buffer> gamma() const;
  [[nodiscard]] std::shared_ptr<mtl::Buffer> beta() const;
  /// Sums over the pixels of the image, never divided: dL/dgamma and dL/dbeta. Undefined content until the gradient
  /// kernel has run.
  [[nodiscard]] std::shared_ptr<mtl::Buffer> gradientForGamma() { return resource(0); }
  [[nodiscard]] std::shared_ptr<mtl::Buffer> gradientForBeta() { return resource(1); }

  /// gamma and beta, too.
  void synchronize(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) override;

  /// @name The library's own
  /// @{
  [[nodiscard]] const std::shared_ptr<ImageNormalizationGradients>& gradients() const { return gradients_; }
  /// Row of gradients().
  [[nodiscard]] std::size_t gradientRow() const { return row_; }
  /// Null before the forward pass was encoded.
  [[nodiscard]] const ImageNormalizationParameters* parameters() const;
  void willEncode(mtl::CommandBuffer& commandBuffer) override { gradients_->willEncode(commandBuffer); }
  /// @}

 protected:
  ImageNormalizationGradientState(std::shared_ptr<ImageNormalizationGradients> gradients, std::size_t row);
  ImageNormalizationGradientState(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                  std::shared_ptr<ImageNormalizationGradients> gradients, std::size_t row);

 private:
  void takeBuffers();

  std::shared_ptr<ImageNormalizationGradients> gradients_;
  std::size_t row_;
};

}  // namespace detail

/// Weight gradients of an instance normalisation for one image (MPSCNNInstanceNormalizationGradientState).
/// CNNInstanceNormalization::resultState and temporaryResultState make it.
class CNNInstanceNormalizationGradientState : public detail::ImageNormalizationGradientState {
 public:
  /// The kernel that made the state.
  [[nodiscard]] const std::shared_ptr<const CNNInstanceNormalization>& instanceNormalization() const {
    return instanceNormalization_;
  }

  /// @name The library's own
  /// @{
  /// @param commandBuffer null for a permanent state
  static std::shared_ptr<CNNInstanceNormalizationGradientState> create(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      std::shared_ptr<detail::ImageNormalizationGradients> gradients, std::size_t row,
      std::shared_ptr<const CNNInstanceNormalization> instanceNormalization);
  /// @}

 protected:
  using ImageNormalizationGradientState::ImageNormalizationGradientState;

 private:
  std::shared_ptr<const CNNInstanceNormalization> instanceNormalization_;
};
using CNNInstanceNormalizationGradientStateBatch = StateBatch;

/// Weight gradients of a group normalisation for one image (MPSCNNGroupNormalizationGradientState).
/// CNNGroupNormalization::resultState and temporaryResultState make it.
class CNNGroupNormalizationGradientState : public detail::ImageNormalizationGradientState {
 public:
  /// The kernel that made the state.
  [[nodiscard]] const std::shared_ptr<const CNNGroupNormalization>& groupNormalization() const {
    return groupNormalization_;
  }

  /// @name The library's own
  /// @{
  /// @param commandBuffer null for a permanent state
  static std::shared_ptr<CNNGroupNormalizationGradientState> create(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      std::shared_ptr<detail::ImageNormalizationGradients> gradients, std::size_t row,
      std::shared_ptr<const CNNGroupNormalization> groupNormalization);
  /// @}

 protected:
  using ImageNormalizationGradientState::ImageNormalizationGradientState;

 private:
  std::shared_ptr<const CNNGroupNormalization> groupNormalization_;
};
using CNNGroupNormalizationGradientStateBatch = StateBatch;

namespace detail {

/// Where the gradients of a batch of states lie.
struct ImageNormalizationRows {
  std::shared_ptr<ImageNormalizationGradients> gradients;  ///< null: not in adjacent rows of one block
  std::size_t firstRow = 0;
  std::size_t rows = 0;  ///< 1 where the images share one state
};
/// @param kernel named in messages @throws Error when a state is of another kind
ImageNormalizationRows gradientRowsOf(const std::string& kernel, const StateBatch& states);

}  // namespace detail
}  // namespace mps
