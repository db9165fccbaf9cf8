#pragma once

#include <any>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "mps/core/kernel/cnn_gradient_kernel.hpp"
#include "mps/core/kernel/cnn_kernel.hpp"
#include "mps/core/kernel/kernel_class.hpp"

/// Resizing to any size, per feature channel (MPSNNResize.h).
namespace mps {

namespace detail {
enum class UpsamplingSampling : std::uint8_t;
}  // namespace detail

/// Bilinear interpolation to resizeWidth x resizeHeight pixels (MPSNNResizeBilinear). On each axis, S being the source's
/// size and R the result's, result pixel x lies at source position t(x); with w the fraction of the position and i what
/// is below,
///
///     out = (1 - w) in[i] + w in[i + 1]      on both axes, the weights multiplied
///
/// | alignCorners | halfPixelCenters | t(x)                                                        |
/// |--------------|------------------|-------------------------------------------------------------|
/// | true         | false            | x (S - 1) / (R - 1); 0 if R = 1                             |
/// | false        | false            | min(x S / R, S - 1), as in TensorFlow 1                     |
/// | false        | true             | (x + 0.5) S / R - 0.5 within 0 ... S - 1, as in PyTorch     |
///
/// Nothing is filtered: where the result is much smaller, most source pixels do not count. The result has that size for
/// every padding policy. Of a destination that is given, the pixels in clipRect are written: x counts from
/// clipRect.origin, offset is added to t(x), and what lies outside the source is 0 (edge mode Zero) or the edge pixel
/// (Clamp). Sources: every format; destinations: float16, float32. A source pixel whose weight is 0 is not looked at.
class NNResizeBilinear final : public detail::KernelClass<NNResizeBilinear, CNNKernel, "NNResizeBilinear"> {
 public:
  /// @param resizeWidth,resizeHeight 1 to 2^24  @throws Error for another size
  static std::shared_ptr<NNResizeBilinear> create(const std::shared_ptr<mtl::Device>& device,
                                                  std::size_t resizeWidth, std::size_t resizeHeight,
                                                  bool alignCorners = false);
  [[nodiscard]] std::size_t resizeWidth() const { return resizeWidth_; }
  [[nodiscard]] std::size_t resizeHeight() const { return resizeHeight_; }
  [[nodiscard]] bool alignCorners() const { return alignCorners_; }
  /// Whether pixels are sampled at their centres. Not in Apple's class. false.
  [[nodiscard]] bool halfPixelCenters() const { return halfPixelCenters_; }
  /// @throws Error for true with alignCorners
  void setHalfPixelCenters(bool halfPixelCenters);

 protected:
  using KernelClass::KernelClass;
  /// Positions, not windows: the base class leaves edges to the family.
  [[nodiscard]] bool hasWindow() const override { return true; }
  [[nodiscard]] bool keepsOffset() const override { return true; }
  void adjustDestination(ImageDescriptor& destination, const ImageDescriptor& source) override;
  void describeForward(std::any& family) const override;
  [[nodiscard]] detail::PreparedCall prepareForward(const detail::ForwardCall& call) const override;

 private:
  friend KernelClass;
  NNResizeBilinear(std::shared_ptr<mtl::Device> device, std::size_t resizeWidth, std::size_t resizeHeight,
                   bool alignCorners);
  NNResizeBilinear(const NNResizeBilinear&) = default;
  void codeProperties(Coder& coder) override;
  [[nodiscard]] detail::UpsamplingSampling sampling() const;
  void checkSize() const;

  std::size_t resizeWidth_ = 1;
  std::size_t resizeHeight_ = 1;
  bool alignCorners_ = false;
  bool halfPixelCenters_ = false;
};

/// The gradient of a resize, an extension (docs/decisions.md, D6): each source pixel gets
///
///     dIn[i] = sum over result pixels x of weight(x, i) * g(primaryOffset + kernelOffset + x)
///
/// weight(x, i) being the forward weight, with secondaryOffset as the forward offset. Pixels that no result takes a share
/// of are 0. What was resized and how comes from the state. Of sourceImage only the size counts.
///
/// @throws Error (encodes) without a state
///
///     auto resize = mps::NNResizeBilinear::create(device, 12, 6);
///     std::shared_ptr<mps::State> state;
///     auto y = resize->encode(commandBuffer, x, state, false);
///     auto gradient = mps::NNResizeBilinearGradient::create(device);
///     auto dx = gradient->encode(commandBuffer, dy, x, state);
class NNResizeBilinearGradient final
    : public detail::KernelClass<NNResizeBilinearGradient, CNNGradientKernel, "NNResizeBilinearGradient"> {
 public:
  static std::shared_ptr<NNResizeBilinearGradient> create(const std::shared_ptr<mtl::Device>& device);

 protected:
  using KernelClass::KernelClass;
  NNResizeBilinearGradient(const NNResizeBilinearGradient&) = default;
  [[nodiscard]] bool usesKernelOffset() const override { return true; }
  [[nodiscard]] std::vector<detail::PreparedCall> prepareGradient(
      const detail::GradientCall& call) const override;
  [[nodiscard]] bool acceptsForward(const std::string& forwardClassName) const override;
  [[nodiscard]] bool canAccumulate() const override { return true; }
  [[nodiscard]] bool needsSourceMemory(bool /*forwardSavesFields*/) const override { return false; }

 private:
  friend KernelClass;
};

}  // namespace mps
