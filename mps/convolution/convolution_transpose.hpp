#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mps/convolution/kernel_with_weights.hpp"
#include "mps/core/kernel/cnn_gradient_kernel.hpp"
#include "mps/core/kernel/cnn_kernel.hpp"
#include "mps/core/kernel/kernel_class.hpp"

/// Transposed convolution and its gradients (MPSCNNConvolution.h).
namespace mps {

/// Convolution that enlarges (MPSCNNConvolutionTranspose): zeros are put between the pixels of the source, and that is
/// correlated with the weights.
///
///     Z[sY y][sX x]   = in[y][x], 0 elsewhere;   (S - 1) s + 1 pixels along an axis of S
///     result[v][u][k] = bias[k] + sum over q, p, c of W[k][q][p][c]
///                       * Z[v + T.y - floor(kHd / 2) + dY q][u + T.x - floor(kWd / 2) + dX p][group(k) Cg + c]
///     T               = offset * stride + kernelOffset
///
/// with strides s, dilations d, kWd = (kernelWidth - 1) dX + 1, Cg = inputFeatureChannels / groups. (u, v) are counted
/// from clipRect.origin. Weights are those of an ordinary convolution from this source to this result,
/// [out][kernel row][kernel column][in / groups], and are not rotated. In PyTorch's ConvTranspose2d they are rotated
/// by 180 degrees, in the order [in][out][kH][kW], with padding (k - 1) + T - floor(k / 2) at dilation 1.
///
/// The result's size, D, along an axis:
/// - by the padding policy: (S - 1) s + 1 + style (kd - 1), style -1 valid, 0 same, 1 full; sets offset to 0 and
///   kernelOffset. To undo a convolution take valid for full, full for valid, same for same, and for even kernels the
///   other remainder (D19).
/// - by the gradient state of the convolution to undo: that convolution's source size; sets offset to 0 and
///   kernelOffset to 1 - offset of that convolution for an even dilated window, -offset for an odd one. With strides
///   above 1 only this tells which of several sizes it was.
/// - a given destination: as the caller placed it.
///
/// Sources: every format; results: float16, float32. edgeMode has to be Zero, a fused neuron is applied last. Gradient
/// states are CNNConvolutionTransposeGradientState, one per batch.
///
///     auto up = mps::CNNConvolutionTranspose::create(device, dataSource);
///     auto y = up->encode(commandBuffer, x, convolutionState);   // as large as the source of that convolution
class CNNConvolutionTranspose
    : public detail::KernelClass<CNNConvolutionTranspose, CNNKernel, "CNNConvolutionTranspose">,
      public detail::ForwardKernelWithWeights {
 public:
  /// Reads the data source once. @throws Error when it is null, fails to load, its sizes disagree, or it is
  /// depth-wise.
  static std::shared_ptr<CNNConvolutionTranspose> create(const std::shared_ptr<mtl::Device>& device,
                                                         std::shared_ptr<CNNConvolutionDataSource> weights);

  /// Position in the source with zeros between its pixels, added to offset * stride. 0.
  [[nodiscard]] std::int64_t kernelOffsetX() const { return kernelOffsetX_.get(); }
  [[nodiscard]] std::int64_t kernelOffsetY() const { return kernelOffsetY_.get(); }
  void setKernelOffsetX(std::int64_t offset) { kernelOffsetX_.set(offset); }
  void setKernelOffsetY(std::int64_t offset) { kernelOffsetY_.set(offset); }
  [[nodiscard]] std::size_t kernelWidth() const override { return descriptor().kernelWidth(); }
  [[nodiscard]] std::size_t kernelHeight() const override { return descriptor().kernelHeight(); }
  /// Result pixels from one source pixel to the next.
  [[nodiscard]] std::size_t strideInPixelsX() const override { return descriptor().strideInPixelsX(); }
  [[nodiscard]] std::size_t strideInPixelsY() const override { return descriptor().strideInPixelsY(); }
  [[nodiscard]] std::size_t dilationRateX() const override { return descriptor().dilationRateX(); }
  [[nodiscard]] std::size_t dilationRateY() const override { return descriptor().dilationRateY(); }
  [[nodiscard]] bool isBackwards() const override { return true; }
  [[nodiscard]] bool isResultStateReusedAcrossBatch() const override { return true; }

  using CNNKernel::encode;
  using CNNKernel::encodeBatch;
  /// @name Encodes that undo a convolution
  /// The state (of a batch: the one that its images share) is that of the convolution; each encode takes one read off
  /// it. With a given destination it gives the kernel offsets that the user has not set (docs/decisions.md, D7).
  /// @throws Error for a state of another kind, or one that no convolution has encoded with.
  /// @{
  std::shared_ptr<Image> encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                const std::shared_ptr<Image>& sourceImage,
                                const std::shared_ptr<State>& convolutionGradientState);
  ImageBatch encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                         const ImageBatch& sourceImages,
                         const CNNConvolutionGradientStateBatch& convolutionGradientStates);
  /// @param[out] destinationState the new state for the gradient, which holds on to convolutionGradientState
  std::shared_ptr<Image> encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                const std::shared_ptr<Image>& sourceImage,
                                const std::shared_ptr<State>& convolutionGradientState,
                                std::shared_ptr<State>& destinationState, bool destinationStateIsTemporary);
  ImageBatch encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                         const ImageBatch& sourceImages,
                         const CNNConvolutionGradientStateBatch& convolutionGradientStates,
                         StateBatch& destinationStates, bool destinationStatesAreTemporary);
  /// @param state a CNNConvolutionGradientState: places the result; or a CNNConvolutionTransposeGradientState: receives
  ///              what the gradient needs, and its convolutionGradientState() places the result
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<Image>& sourceImage, const std::shared_ptr<State>& state,
              const std::shared_ptr<Image>& destinationImage);
  void encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const ImageBatch& sourceImages,
                   const StateBatch& states, const ImageBatch& destinationImages);
  /// @}

 protected:
  using KernelClass::KernelClass;
  CNNConvolutionTranspose(std::shared_ptr<mtl::Device> device,
                          std::shared_ptr<CNNConvolutionDataSource> weights);
  CNNConvolutionTranspose(const CNNConvolutionTranspose&) = default;
  void codeProperties(Coder& coder) override;
  void didCopy(bool hasMoved) override { didCopyKernel(hasMoved); }
  [[nodiscard]] bool hasWindow() const override { return true; }
  [[nodiscard]] std::size_t requiredFeatureChannels() const override { return inputFeatureChannels(); }
  [[nodiscard]] std::size_t producedFeatureChannels(std::size_t) const override {
    return outputFeatureChannels();
  }
  [[nodiscard]] std::shared_ptr<State> makeState(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      std::span<const std::shared_ptr<State>> sourceStates) const override;
  void describeForward(std::any& family) const override;
  [[nodiscard]] const Kernel& kernel() const override { return *this; }
  [[nodiscard]] std::shared_ptr<ForwardKernelWithWeights> shared() override;
  [[nodiscard]] detail::PreparedCall prepareForward(const detail::ForwardCall& call) const override;
  void encodeWithSourceStates(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                              const ImageBatch& sourceImages, const StateBatch& sourceStates,
                              const StateBatch& destinationStates,
                              const ImageBatch& destinationImages) override;
  [[nodiscard]] Offset placement() const override { return {kernelOffsetX(), kernelOffsetY(), offset().z}; }
  void setPlacement(const Offset& placement) override;
  [[nodiscard]] bool isSizedByState() const override { return true; }
  /// As by the state of a convolution. @param undone its source  @param placement its offset
  ImageDescriptor sizeUndoing(const ImageDescriptor& source, const ImageDescriptor& undone,
                              const Offset& placement) override;
  [[nodiscard]] detail::KernelRoles roles() override;

 private:
  friend KernelClass;
  [[nodiscard]] Offset placementUndoing(const Offset& offset) const;
  [[nodiscard]] const detail::ForwardRecord& recordOfUndone(const State* state) const;
  /// Takes the kernel offsets that the user has not set.
  void placeBy(const State& undone);
  ImageBatch encodeUndoing(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                           const ImageBatch& sourceImages, const StateBatch& undone,
                           StateBatch* destinationStates, bool destinationStatesAreTemporary);

  detail::Settable<std::int64_t> kernelOffsetX_{0};
  detail::Settable<std::int64_t> kernelOffsetY_{0};
};

/// Gradients of a transposed convolution with respect to its source, weights and biases
/// (MPSCNNConvolutionTransposeGradient).
///
///     u(x, p)        = sX x - T.x + floor(kWd / 2) - dX p, and v(y, q) likewise: the results that read pixel (x, y)
///     dIn[y][x][c]   = sum over k, q, p of W[k][q][p][c] * G[v(y, q)][u(x, p)][k]
///     dW[k][q][p][c] = sum over images, y, x of in[y][x][c] * G[v(y, q)][u(x, p)][k]
///     db[k]          = sum over images, v, u of G[v][u][k]
///
/// G, the source gradient, has the size of the forward result, or of its clip rectangle; what lies outside adds
/// nothing. dIn has the size of the forward source. dW and db go to the gradient state: the first encode with a state
/// sets them, later ones add. clipRect cuts dIn alone, and may leave nothing of it: with a state, destination pixel
/// (x, y) is the gradient of source pixel (x, y); without one, y and x of dIn count from clipRect.origin.
///
/// Encodes with a state take T from it as kernelOffset, and where the clip rectangle of the forward pass lies as
/// primaryOffset. A state of a kernel with a fused neuron or folded batch normalisation throws: the derivative would be
/// missing.
///
///     auto up = mps::CNNConvolutionTranspose::create(device, dataSource);
///     std::shared_ptr<mps::State> state;
///     auto y = up->encode(commandBuffer, x, state, false);
///     auto gradient = mps::CNNConvolutionTransposeGradient::create(device, dataSource);
///     auto dx = gradient->encode(commandBuffer, dy, x, state);
class CNNConvolutionTransposeGradient
    : public detail::KernelClass<CNNConvolutionTransposeGradient, CNNGradientKernel,
                                 "CNNConvolutionTransposeGradient">,
      public detail::GradientKernelWithWeights {
 public:
  /// @param weights the data source of the forward kernel
  static std::shared_ptr<CNNConvolutionTransposeGradient> create(
      const std::shared_ptr<mtl::Device>& device, std::shared_ptr<CNNConvolutionDataSource> weights);
  [[nodiscard]] bool isStateModified() const override { return true; }

 protected:
  using KernelClass::KernelClass;
  CNNConvolutionTransposeGradient(std::shared_ptr<mtl::Device> device,
                                  std::shared_ptr<CNNConvolutionDataSource> weights);
  CNNConvolutionTransposeGradient(const CNNConvolutionTransposeGradient&) = default;
  void codeProperties(Coder& coder) override;
  void didCopy(bool hasMoved) override { didCopyKernel(hasMoved); }
  [[nodiscard]] Geometry geometryFor(const detail::ForwardRecord& record,
                                     const Offset& gradientOrigin) const override;
  [[nodiscard]] bool usesKernelOffset() const override { return true; }
  void transferOwnProperties(const detail::ForwardRecord& record) override;
  void willEncode(State& gradientState) override;
  void didEncode(const detail::GradientCall& call) override;
  [[nodiscard]] const Kernel& kernel() const override { return *this; }
  [[nodiscard]] std::vector<detail::PreparedCall> prepareGradient(
      const detail::GradientCall& call) const override;
  [[nodiscard]] bool acceptsForward(const std::string& forwardClassName) const override;
  [[nodiscard]] bool needsSourceMemory(bool /*forwardSavesFields*/) const override {
    return computesWeights();
  }
  [[nodiscard]] bool preparesWithoutPixels() const override { return true; }
  [[nodiscard]] detail::KernelRoles roles() override;

 private:
  friend KernelClass;
};

}  // namespace mps
