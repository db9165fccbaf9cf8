#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mps/convolution/kernel_with_weights.hpp"
#include "mps/core/kernel/cnn_gradient_kernel.hpp"
#include "mps/core/kernel/cnn_kernel.hpp"
#include "mps/core/kernel/kernel_class.hpp"
#include "mps/core/kernel/kernel_roles.hpp"

/// Convolution and its gradients (MPSCNNConvolution.h).
namespace mps {

/// Two-dimensional cross-correlation with bias and optional neuron (MPSCNNConvolution).
///
///     result[y][x][k] = neuron(bias[k] + sum over rows q, columns p, channels c of
///                              W[k][q][p][c] * in[offset.y + sY y - floor(kHd / 2) + dY q]
///                                                [offset.x + sX x - floor(kWd / 2) + dX p][group(k) Cg + c])
///
/// with kWd = (kernelWidth - 1) dX + 1, Cg = inputFeatureChannels / groups. The window is not flipped.
/// Outside the source: 0 (edge mode Zero) or the nearest pixel (Clamp). Sums are float32, rounded once to the
/// result's format. Weights are float32 in the kernel, whatever the data source has.
///
/// With a CNNSubPixelConvolutionDescriptor each pixel of this result becomes a block of r x r pixels: the padding
/// policy sizes the convolution, the destination is r times as wide and high with 1 / r^2 of the channels, clipRect and
/// destinationFeatureChannelOffset are the destination's, and blocks begin at clipRect.origin. There is no gradient.
///
/// Sources: every format; results: float16, float32; inputFeatureChannels is the number of channels of the source.
/// Where sourceFeatureChannelOffset or sourceFeatureChannelMaxCount is set, further channels stay unread; else
/// encodes throw (docs/decisions.md, D29). Gradient states are CNNConvolutionGradientState, one per batch.
///
/// copy() reads the data source's copy(), or the source itself where that is null: what was reloaded from a state stays
/// behind. A copy on the same device that shares the source has the weights that this kernel has.
class CNNConvolution : public detail::KernelClass<CNNConvolution, CNNKernel, "CNNConvolution">,
                       public detail::ForwardKernelWithWeights,
                       public detail::NeuronFusion {
 public:
  /// Reads the data source once. @throws Error when it is null, fails to load, or its sizes disagree.
  static std::shared_ptr<CNNConvolution> create(const std::shared_ptr<mtl::Device>& device,
                                                std::shared_ptr<CNNConvolutionDataSource> weights);

  /// 0 for an ordinary convolution, else the depth-wise multiplier.
  [[nodiscard]] std::size_t channelMultiplier() const { return descriptor().channelMultiplier(); }
  [[nodiscard]] const NNNeuronDescriptor& fusedNeuronDescriptor() const {
    return descriptor().fusedNeuronDescriptor();
  }
  [[nodiscard]] std::size_t kernelWidth() const override { return descriptor().kernelWidth(); }
  [[nodiscard]] std::size_t kernelHeight() const override { return descriptor().kernelHeight(); }
  [[nodiscard]] std::size_t strideInPixelsX() const override { return descriptor().strideInPixelsX(); }
  [[nodiscard]] std::size_t strideInPixelsY() const override { return descriptor().strideInPixelsY(); }
  [[nodiscard]] std::size_t dilationRateX() const override { return descriptor().dilationRateX(); }
  [[nodiscard]] std::size_t dilationRateY() const override { return descriptor().dilationRateY(); }
  [[nodiscard]] bool isResultStateReusedAcrossBatch() const override { return true; }

  /// @name The library's own
  /// @{
  /// A neuron that a graph has fused behind the descriptor's.
  [[nodiscard]] const NNNeuronDescriptor& graphNeuron() const { return graphNeuron_; }
  /// @}

 protected:
  using KernelClass::KernelClass;
  CNNConvolution(std::shared_ptr<mtl::Device> device, std::shared_ptr<CNNConvolutionDataSource> weights,
                 const char* className);
  CNNConvolution(const CNNConvolution&) = default;
  void codeProperties(Coder& coder) override;
  void didCopy(bool hasMoved) override { didCopyKernel(hasMoved); }
  [[nodiscard]] bool hasWindow() const override { return true; }
  [[nodiscard]] std::size_t requiredFeatureChannels() const override { return inputFeatureChannels(); }
  [[nodiscard]] std::size_t producedFeatureChannels(std::size_t) const override {
    return outputFeatureChannels() / (subPixelScaleFactor() * subPixelScaleFactor());
  }
  void adjustDestination(ImageDescriptor& destination, const ImageDescriptor& source) override;
  [[nodiscard]] std::shared_ptr<State> makeState(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      std::span<const std::shared_ptr<State>> sourceStates) const override;
  void describeForward(std::any& family) const override;
  /// Where the window lies; fully connected covers the whole source.
  virtual void placeWindow(detail::ConvolutionProblem& /*problem*/) const {}
  [[nodiscard]] const Kernel& kernel() const override { return *this; }
  [[nodiscard]] std::shared_ptr<ForwardKernelWithWeights> shared() override;
  [[nodiscard]] detail::PreparedCall prepareForward(const detail::ForwardCall& call) const override;
  [[nodiscard]] detail::KernelRoles roles() override;
  [[nodiscard]] detail::ChannelTraits channelTraits() const override;
  [[nodiscard]] bool repeatsCommands() const override { return true; }
  [[nodiscard]] Answer canFuse(const NNNeuronDescriptor& neuron, bool isDifferentiated) const override;
  void fuse(const NNNeuronDescriptor& neuron) override { graphNeuron_ = neuron; }

 private:
  friend KernelClass;
  NNNeuronDescriptor graphNeuron_;
};

/// Gradients of a convolution with respect to its source, weights and biases (MPSCNNConvolutionGradient).
///
///     dIn[v][u][c]   = sum of W[k][q][p][c] * E[y][x][k]
///                      over k and the results (y, x) and taps (q, p) that read pixel (v, u)
///     dW[k][q][p][c] = sum over images, y, x of E[y][x][k] * in(tap q of y, tap p of x, group(k) Cg + c)
///     db[k]          = sum over images, y, x of E[y][x][k]
///
/// E, the source gradient, has the size of the forward clip rectangle, or of the whole result: then the part in the
/// clip rectangle counts; where that was empty, dIn, dW and db are 0. dIn goes to the destination; dW and db
/// go to the gradient state: the first encode with a state sets them, later ones add. clipRect cuts dIn alone, and may
/// leave nothing of it: with a state, destination pixel (x, y) is the gradient of source pixel (x, y), as in all
/// gradient kernels; without one, v and u count from clipRect.origin. After a forward pass with edgeMode Clamp a
/// clipRect that leaves part of the source out throws. dIn uses the weights
/// that the forward kernel had at the first encode; later ones only come by a reload, so reload both kernels.
///
/// State-driven encodes set primaryOffset = 0, kernelOffset = -offset + (1 for an even dilated window) and
/// secondaryOffset = offset - floor(dilatedSize / 2), the position of the first tap. With a given destination
/// what the user has set counts: primary offset and stride and kernelOffset place dIn, secondary offset and
/// stride the taps of dW. A state of a forward kernel with a fused neuron or folded batch normalisation
/// throws: their derivative would be missing.
///
/// KernelOptions::AllowReducedPrecision lets a CPU with matrix units (AMX) multiply inputs rounded to bfloat16, and a GPU
/// inputs rounded to TF32, or to float16 where E or the source is float16. Sums stay float32, but dW of two float16 images may become float16 before it is stored as
/// float32: beyond 65504 it is infinite, and below 6e-5 it loses bits. LossScale keeps gradients between the two.
///
///     auto conv = mps::CNNConvolution::create(device, dataSource);
///     std::shared_ptr<mps::State> state;
///     auto y = conv->encode(commandBuffer, x, state, false);
///     auto gradient = mps::CNNConvolutionGradient::create(device, dataSource);
///     auto dx = gradient->encode(commandBuffer, dy, x, state);
class CNNConvolutionGradient
    : public detail::KernelClass<CNNConvolutionGradient, CNNGradientKernel, "CNNConvolutionGradient">,
      public detail::GradientKernelWithWeights {
 public:
  /// @param weights the data source of the forward kernel
  static std::shared_ptr<CNNConvolutionGradient> create(const std::shared_ptr<mtl::Device>& device,
                                                        std::shared_ptr<CNNConvolutionDataSource> weights);

  [[nodiscard]] std::size_t channelMultiplier() const { return descriptor().channelMultiplier(); }
  [[nodiscard]] bool isStateModified() const override { return true; }

 protected:
  using KernelClass::KernelClass;
  CNNConvolutionGradient(std::shared_ptr<mtl::Device> device,
                         std::shared_ptr<CNNConvolutionDataSource> weights, const char* className);
  CNNConvolutionGradient(const CNNConvolutionGradient&) = default;
  void codeProperties(Coder& coder) override;
  void didCopy(bool hasMoved) override { didCopyKernel(hasMoved); }
  [[nodiscard]] Geometry geometryFor(const detail::ForwardRecord& record,
                                     const Offset& gradientOrigin) const override;
  [[nodiscard]] bool usesKernelOffset() const override { return true; }
  void transferOwnProperties(const detail::ForwardRecord& record) override;
  void willEncode(State& gradientState) override;
  void didEncode(const detail::GradientCall& call) override;
  virtual void placeWindow(detail::ConvolutionProblem& /*problem*/) const {}
  [[nodiscard]] const Kernel& kernel() const override { return *this; }
  [[nodiscard]] std::vector<detail::PreparedCall> prepareGradient(
      const detail::GradientCall& call) const override;
  [[nodiscard]] bool canAccumulate() const override { return true; }
  [[nodiscard]] bool acceptsForward(const std::string& forwardClassName) const override;
  [[nodiscard]] bool needsSourceMemory(bool /*forwardSavesFields*/) const override {
    return computesWeights();
  }
  [[nodiscard]] bool preparesWithoutPixels() const override { return true; }
  [[nodiscard]] detail::KernelRoles roles() override;
  [[nodiscard]] detail::ChannelTraits channelTraits() const override;
  [[nodiscard]] bool repeatsCommands() const override { return true; }

 private:
  friend KernelClass;
  /// The gradient of pixels beside the source belongs to its edge, which a clip rectangle would move. @throws Error
  void checkRepeatedEdges(const detail::GradientCall& call) const;
};

}  // namespace mps
