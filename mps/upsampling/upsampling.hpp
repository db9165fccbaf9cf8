#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mps/core/kernel/cnn_gradient_kernel.hpp"
#include "mps/core/kernel/cnn_kernel.hpp"
#include "mps/core/kernel/kernel_class.hpp"

/// Upsampling by whole factors, per feature channel (MPSCNNUpsampling.h). Channels never mix;
/// the result has as many as were read.
///
/// The result of the encodes that return an image has width * scaleFactorX by height * scaleFactorY pixels, for
/// every padding policy. Result pixel x, counted from clipRect.origin, lies at source position offset + t(x) on
/// each axis; the classes say what t is. Positions outside the source read 0 (edge mode Zero) or the edge pixel
/// (Clamp); with offset 0 and the size above there are none.
namespace mps {

namespace detail {
enum class UpsamplingSampling : std::uint8_t;
}  // namespace detail

/// Base of the forward upsampling kernels (MPSCNNUpsampling). Sources: every format; destinations: float16,
/// float32. Edge mode Zero by default.
class CNNUpsampling : public CNNKernel {
 public:
  /// A whole number, at least 1; 1 copies.
  [[nodiscard]] double scaleFactorX() const { return static_cast<double>(scaleFactorX_); }
  [[nodiscard]] double scaleFactorY() const { return static_cast<double>(scaleFactorY_); }
  /// Whether the centres of the corner pixels of source and result coincide. false.
  [[nodiscard]] virtual bool alignCorners() const { return false; }

 protected:
  using CNNKernel::CNNKernel;
  CNNUpsampling(std::shared_ptr<mtl::Device> device, const std::string& className,
                std::size_t integerScaleFactorX, std::size_t integerScaleFactorY);
  CNNUpsampling(const CNNUpsampling&) = default;
  void codeProperties(Coder& coder) override;
  /// Positions, not windows: the base class leaves edges to the family.
  [[nodiscard]] bool hasWindow() const override { return true; }
  [[nodiscard]] virtual detail::UpsamplingSampling sampling() const = 0;
  void adjustDestination(ImageDescriptor& destination, const ImageDescriptor& source) override;
  void describeForward(std::any& family) const override;
  [[nodiscard]] detail::PreparedCall prepareForward(const detail::ForwardCall& call) const override;

 private:
  std::size_t scaleFactorX_ = 1;
  std::size_t scaleFactorY_ = 1;
};

/// t(x) = floor(x / scaleFactor): each source pixel becomes a block (MPSCNNUpsamplingNearest).
class CNNUpsamplingNearest
    : public detail::KernelClass<CNNUpsamplingNearest, CNNUpsampling, "CNNUpsamplingNearest"> {
 public:
  /// @param integerScaleFactorX,integerScaleFactorY 1 to 2^24
  /// @throws Error for another factor
  static std::shared_ptr<CNNUpsamplingNearest> create(const std::shared_ptr<mtl::Device>& device,
                                                      std::size_t integerScaleFactorX,
                                                      std::size_t integerScaleFactorY);

 protected:
  using KernelClass::KernelClass;
  [[nodiscard]] detail::UpsamplingSampling sampling() const override;
};

/// Bilinear interpolation (MPSCNNUpsamplingBilinear): with w the fraction of the position and i what is below,
///
///     out = (1 - w) in[i] + w in[i + 1]      on both axes, the weights multiplied
///
/// S being the source's size, n = S * scaleFactor:
///
/// | alignCorners | halfPixelCenters | t(x)                                                                   |
/// |--------------|------------------|------------------------------------------------------------------------|
/// | true         | false            | x (S - 1) / (n - 1); 0 if n = 1                                        |
/// | false        | false            | min(x / scaleFactor, S - 1), as in TensorFlow 1                        |
/// | false        | true             | (x + 0.5) / scaleFactor - 0.5 within 0 ... S - 1, as in PyTorch        |
///
/// A source pixel whose weight is 0 is not looked at: NaN or infinity there does not spread.
class CNNUpsamplingBilinear
    : public detail::KernelClass<CNNUpsamplingBilinear, CNNUpsampling, "CNNUpsamplingBilinear"> {
 public:
  /// Parameters as for CNNUpsamplingNearest.
  static std::shared_ptr<CNNUpsamplingBilinear> create(const std::shared_ptr<mtl::Device>& device,
                                                       std::size_t integerScaleFactorX,
                                                       std::size_t integerScaleFactorY,
                                                       bool alignCorners = false);
  [[nodiscard]] bool alignCorners() const override { return alignCorners_; }
  /// Whether pixels are sampled at their centres. Not in Apple's class. false.
  [[nodiscard]] bool halfPixelCenters() const { return halfPixelCenters_; }
  /// @throws Error for true with alignCorners
  void setHalfPixelCenters(bool halfPixelCenters);

 protected:
  using KernelClass::KernelClass;
  CNNUpsamplingBilinear(std::shared_ptr<mtl::Device> device, std::size_t integerScaleFactorX,
                        std::size_t integerScaleFactorY, bool alignCorners);
  CNNUpsamplingBilinear(const CNNUpsamplingBilinear&) = default;
  void codeProperties(Coder& coder) override;
  [[nodiscard]] detail::UpsamplingSampling sampling() const override;

 private:
  friend KernelClass;
  bool alignCorners_ = false;
  bool halfPixelCenters_ = false;
};

/// Base of the upsampling gradients (MPSCNNUpsamplingGradient).
///
///     dIn[i] = sum over result pixels x of weight(x, i) * g(primaryOffset + kernelOffset + x)
///
/// weight(x, i) being the forward weight of source pixel i in result pixel x, with secondaryOffset as the forward
/// offset. x runs over the forward clip rectangle, without a state over all pixels of the gradient image; a pixel
/// outside that image adds nothing. Destination pixel (x, y) is the gradient of source pixel (x, y), in all
/// encodes; pixels that no result takes a share of are 0. Of sourceImage only the size counts: an unwritten
/// temporary image will do. The gradient image is as fine as the gradient itself, so kernelOffset (docs/decisions.md, D8)
/// counts its pixels. The result is deterministic. How the forward kernel aligned its samples stands in the state.
class CNNUpsamplingGradient : public CNNGradientKernel {
 public:
  /// The factors of the forward kernel; the gradient is that much smaller than what comes in.
  [[nodiscard]] double scaleFactorX() const { return static_cast<double>(scaleFactorX_); }
  [[nodiscard]] double scaleFactorY() const { return static_cast<double>(scaleFactorY_); }

 protected:
  using CNNGradientKernel::CNNGradientKernel;
  CNNUpsamplingGradient(std::shared_ptr<mtl::Device> device, const std::string& className,
                        std::size_t integerScaleFactorX, std::size_t integerScaleFactorY);
  CNNUpsamplingGradient(const CNNUpsamplingGradient&) = default;
  void codeProperties(Coder& coder) override;
  /// Where there is no state.
  [[nodiscard]] virtual detail::UpsamplingSampling defaultSampling() const = 0;
  [[nodiscard]] bool usesKernelOffset() const override { return true; }
  void transferOwnProperties(const detail::ForwardRecord& record) override;
  [[nodiscard]] std::vector<detail::PreparedCall> prepareGradient(
      const detail::GradientCall& call) const override;
  [[nodiscard]] bool canAccumulate() const override { return true; }
  [[nodiscard]] bool needsSourceMemory(bool /*forwardSavesFields*/) const override { return false; }

 private:
  std::size_t scaleFactorX_ = 1;
  std::size_t scaleFactorY_ = 1;
};

/// dIn[i] = the sum, not the mean, of the gradients of its block (MPSCNNUpsamplingNearestGradient).
///
///     auto upsampling = mps::CNNUpsamplingNearest::create(device, 2, 2);
///     std::shared_ptr<mps::State> state;
///     auto y = upsampling->encode(commandBuffer, x, state, false);
///     auto gradient = mps::CNNUpsamplingNearestGradient::create(device, 2, 2);
///     auto dx = gradient->encode(commandBuffer, dy, x, state);
class CNNUpsamplingNearestGradient
    : public detail::KernelClass<CNNUpsamplingNearestGradient, CNNUpsamplingGradient,
                                 "CNNUpsamplingNearestGradient"> {
 public:
  /// Parameters as for CNNUpsamplingNearest.
  static std::shared_ptr<CNNUpsamplingNearestGradient> create(const std::shared_ptr<mtl::Device>& device,
                                                              std::size_t integerScaleFactorX,
                                                              std::size_t integerScaleFactorY);

 protected:
  using KernelClass::KernelClass;
  [[nodiscard]] detail::UpsamplingSampling defaultSampling() const override;
  [[nodiscard]] bool acceptsForward(const std::string& forwardClassName) const override;
};

/// dIn[i] = sum over x of weight(x, i) * g[x] (MPSCNNUpsamplingBilinearGradient). alignCorners and
/// halfPixelCenters come from the state; in the inherited encodes without one both are false.
///
///     auto upsampling = mps::CNNUpsamplingBilinear::create(device, 2, 2, true);
///     std::shared_ptr<mps::State> state;
///     auto y = upsampling->encode(commandBuffer, x, state, false);
///     auto gradient = mps::CNNUpsamplingBilinearGradient::create(device, 2, 2);
///     auto dx = gradient->encode(commandBuffer, dy, x, state);
class CNNUpsamplingBilinearGradient
    : public detail::KernelClass<CNNUpsamplingBilinearGradient, CNNUpsamplingGradient,
                                 "CNNUpsamplingBilinearGradient"> {
 public:
  /// Parameters as for CNNUpsamplingNearest.
  static std::shared_ptr<CNNUpsamplingBilinearGradient> create(const std::shared_ptr<mtl::Device>& device,
                                                               std::size_t integerScaleFactorX,
                                                               std::size_t integerScaleFactorY);

 protected:
  using KernelClass::KernelClass;
  [[nodiscard]] detail::UpsamplingSampling defaultSampling() const override;
  [[nodiscard]] bool acceptsForward(const std::string& forwardClassName) const override;
};

}  // namespace mps
