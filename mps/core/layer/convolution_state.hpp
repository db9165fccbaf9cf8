#pragma once

#include <cstddef>
#include <memory>

#include "mps/core/image/gradient_state.hpp"
#include "mps/core/layer/convolution_descriptor.hpp"

namespace mps {

class CNNConvolution;
class CNNConvolutionTranspose;

/// Weights and biases on the device, for update, reload and export (MPSCNNConvolutionWeightsAndBiasesState).
/// Weights: float32, [out][kernel row][kernel column][in / groups]; biases: float32, one per output channel.
class CNNConvolutionWeightsAndBiasesState : public State {
 public:
  /// Around buffers of exactly the right size. @param biases may be null: no biases (a reload takes zeros)
  static std::shared_ptr<CNNConvolutionWeightsAndBiasesState> create(std::shared_ptr<mtl::Buffer> weights,
                                                                     std::shared_ptr<mtl::Buffer> biases);
  /// Around ranges of buffers, which may be one buffer. @param weightsOffset,biasesOffset in bytes, multiples
  /// of 4
  /// @throws Error when a range leaves its buffer, or the ranges overlap.
  static std::shared_ptr<CNNConvolutionWeightsAndBiasesState> create(
      std::shared_ptr<mtl::Buffer> weights, std::size_t weightsOffset, std::shared_ptr<mtl::Buffer> biases,
      std::size_t biasesOffset, const CNNConvolutionDescriptor& descriptor);
  /// With zero-filled buffers of its own. A descriptor does not say whether the layer has biases: of one without, those
  /// here are unused memory (docs/decisions.md, D26).
  static std::shared_ptr<CNNConvolutionWeightsAndBiasesState> create(
      const std::shared_ptr<mtl::Device>& device, const CNNConvolutionDescriptor& descriptor);
  /// Temporary, undefined content; biases likewise.
  static std::shared_ptr<CNNConvolutionWeightsAndBiasesState> createTemporary(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const CNNConvolutionDescriptor& descriptor);

  [[nodiscard]] std::shared_ptr<mtl::Buffer> weights() { return resource(0); }
  /// Null when there are none.
  [[nodiscard]] std::shared_ptr<mtl::Buffer> biases() { return resourceCount() > 1 ? resource(1) : nullptr; }
  /// Bytes before the first value.
  [[nodiscard]] std::size_t weightsOffset() const { return weightsOffset_; }
  [[nodiscard]] std::size_t biasesOffset() const { return biasesOffset_; }

  /// Number of weights and biases.
  [[nodiscard]] std::size_t weightCount() const { return weightCount_; }
  [[nodiscard]] std::size_t biasCount() const { return biasCount_; }

  /// @name The library's own
  /// @{
  /// A state for weights, and biases where the layer has any. @param commandBuffer null for a permanent one
  static std::shared_ptr<CNNConvolutionWeightsAndBiasesState> createFor(
      const std::shared_ptr<mtl::Device>& device, const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      const CNNConvolutionDescriptor& descriptor, bool hasBiases);
  /// Whether the biases may be unused memory, because the state was made from a descriptor.
  [[nodiscard]] bool mayHaveUnusedBiases() const { return mayHaveUnusedBiases_; }
  /// @}

 protected:
  using State::State;

 private:
  std::size_t weightsOffset_ = 0;
  std::size_t biasesOffset_ = 0;
  std::size_t weightCount_ = 0;
  std::size_t biasCount_ = 0;
  bool mayHaveUnusedBiases_ = false;
};

/// Record of a convolution's forward pass and the gradients of its weights and biases
/// (MPSCNNConvolutionGradientState).
///
/// One state serves a whole batch. The gradients are sums over all images and positions, never divided; the
/// first gradient encode sets them, later ones with the same state add (sub-batches). Make a new state for
/// the next batch.
class CNNConvolutionGradientState : public NNGradientState {
 public:
  /// float32, [out][kernel row][kernel column][in / groups]; dL/dW.
  [[nodiscard]] std::shared_ptr<mtl::Buffer> gradientForWeights() { return resource(0); }
  /// float32, one per output channel; dL/db, also for layers without biases: optimisers leave it alone there.
  [[nodiscard]] std::shared_ptr<mtl::Buffer> gradientForBiases() { return resource(1); }
  [[nodiscard]] CNNConvolutionWeightsLayout gradientForWeightsLayout() const {
    return CNNConvolutionWeightsLayout::OHWI;
  }
  /// The forward kernel that made the state; null in a CNNConvolutionTransposeGradientState without partner.
  [[nodiscard]] const std::shared_ptr<const CNNConvolution>& convolution() const { return convolution_; }

  /// Whether the layer has biases.
  [[nodiscard]] bool hasBiases() const { return hasBiases_; }

  /// @name The library's own
  /// @{
  /// Use CNNConvolution::resultState. @param commandBuffer null for a permanent state
  static std::shared_ptr<CNNConvolutionGradientState> create(
      const std::shared_ptr<mtl::Device>& device, const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      const CNNConvolutionDescriptor& descriptor, std::shared_ptr<const CNNConvolution> convolution,
      bool hasBiases);
  /// Whether the next gradient encode adds to the buffers. It does after the first.
  [[nodiscard]] bool isAccumulating() const { return accumulating_; }
  void setAccumulating(bool accumulating) { accumulating_ = accumulating; }
  void willEncodeGradient(mtl::CommandBuffer& commandBuffer) override;
  /// @}

 protected:
  using NNGradientState::NNGradientState;
  void setConvolution(std::shared_ptr<const CNNConvolution> convolution) {
    convolution_ = std::move(convolution);
  }
  void setHasBiases(bool hasBiases) { hasBiases_ = hasBiases; }

 private:
  std::shared_ptr<const CNNConvolution> convolution_;
  bool hasBiases_ = true;
  bool accumulating_ = false;
};
using CNNConvolutionGradientStateBatch = StateBatch;

/// Record of a transposed convolution's forward pass and the gradients of its own weights and biases
/// (MPSCNNConvolutionTransposeGradientState). One serves a whole batch, as its parent does.
/// convolution() is the convolution that the transposed one undoes, where it was told.
class CNNConvolutionTransposeGradientState : public CNNConvolutionGradientState {
 public:
  /// The forward kernel that made the state.
  [[nodiscard]] const std::shared_ptr<const CNNConvolutionTranspose>& convolutionTranspose() const {
    return convolutionTranspose_;
  }
  /// The state of convolution(), which places and sizes the result; or null.
  [[nodiscard]] const std::shared_ptr<CNNConvolutionGradientState>& convolutionGradientState() const {
    return convolutionGradientState_;
  }

  /// @name The library's own
  /// @{
  /// Use CNNConvolutionTranspose::resultState. @param commandBuffer null for a permanent state
  static std::shared_ptr<CNNConvolutionTransposeGradientState> create(
      const std::shared_ptr<mtl::Device>& device, const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      const CNNConvolutionDescriptor& descriptor,
      std::shared_ptr<const CNNConvolutionTranspose> convolutionTranspose,
      std::shared_ptr<CNNConvolutionGradientState> convolutionGradientState, bool hasBiases);
  /// @}

 protected:
  using CNNConvolutionGradientState::CNNConvolutionGradientState;

 private:
  std::shared_ptr<const CNNConvolutionTranspose> convolutionTranspose_;
  std::shared_ptr<CNNConvolutionGradientState> convolutionGradientState_;
};
using CNNConvolutionTransposeGradientStateBatch = StateBatch;

}  // namespace mps
