#pragma once

#include <any>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mps/core/kernel/cnn_gradient_kernel.hpp"
#include "mps/core/kernel/cnn_kernel.hpp"
#include "mps/core/kernel/kernel_class.hpp"

/// Normalisations by what lies around a value: neighbouring channels, or neighbouring pixels of its own channel
/// (MPSCNNNormalization.h).
///
/// A window has kernelWidth x kernelHeight pixels, N = kernelWidth * kernelHeight. That of destination pixel (x, y) covers
/// source pixels x + offset.x - floor(kernelWidth / 2) ... x + offset.x + floor((kernelWidth - 1) / 2), and rows
/// likewise. An even window has one pixel more to the left and to the top. Pixels outside the source are 0 (edge mode
/// Zero) or the edge pixel (Clamp). The divisor is always N. Strides are 1.
///
/// The encodes that return an image set `offset` by the padding policy and ignore its remainder bits. With size "same" and
/// centred alignment, the default, offset is 0.
///
/// The gradients are the exact derivatives of the formulas. Those that Apple's header prints differ in places. A parameter
/// that has not been set on a gradient kernel comes from the gradient state; Apple's must all be set by hand. In the
/// encodes without a state it has its default.
namespace mps {

namespace detail {
enum class NormalizationKind : std::uint8_t;
struct NormalizationProblem;

/// The parameters of the formulas; p0, pm and ps of local contrast alone.
struct NormalizationParameters {
  float alpha = 1;
  float beta = 5;
  float delta = 1;
  float p0 = 1;
  float pm = 0;
  float ps = 1;
};
}  // namespace detail

/// Base of the forward kernels. Sources: every format; destinations: float16, float32. Edge mode Zero by default.
class CNNNormalization : public CNNKernel {
 public:
  [[nodiscard]] float alpha() const { return parameters_.alpha; }
  /// @throws Error unless finite and at least 0
  void setAlpha(float alpha);
  [[nodiscard]] float beta() const { return parameters_.beta; }
  /// Multiples of a quarter from 0 to 16, and whole numbers from -16 on, are faster than others.
  /// @throws Error unless finite
  void setBeta(float beta);
  [[nodiscard]] float delta() const { return parameters_.delta; }
  /// Where T becomes 0 the result is undefined. @throws Error unless finite
  void setDelta(float delta);
  [[nodiscard]] std::size_t kernelWidth() const override { return kernelWidth_; }
  [[nodiscard]] std::size_t kernelHeight() const override { return kernelHeight_; }

 protected:
  using CNNKernel::CNNKernel;
  CNNNormalization(std::shared_ptr<mtl::Device> device, const std::string& className, std::size_t kernelWidth,
                   std::size_t kernelHeight, const detail::NormalizationParameters& parameters);
  CNNNormalization(const CNNNormalization&) = default;
  void codeProperties(Coder& coder) override;
  [[nodiscard]] bool hasWindow() const override;
  void adjustDestination(ImageDescriptor& destination, const ImageDescriptor& source) override;
  void describeForward(std::any& family) const override;
  [[nodiscard]] virtual detail::NormalizationKind kind() const = 0;
  /// Channels of a window; 1 for windows of pixels.
  [[nodiscard]] virtual std::size_t windowChannels() const { return 1; }
  detail::NormalizationParameters parameters_;
  [[nodiscard]] detail::PreparedCall prepareForward(const detail::ForwardCall& call) const override;

 private:
  std::size_t kernelWidth_ = 1;
  std::size_t kernelHeight_ = 1;
};

/// Division by a power of the mean square in a window of the own channel (MPSCNNSpatialNormalization):
///
///     T = delta + alpha / N * sum of X^2 over the window
///     Y = X * T^-beta
///
/// alpha 1, beta 5, delta 1.
class CNNSpatialNormalization
    : public detail::KernelClass<CNNSpatialNormalization, CNNNormalization, "CNNSpatialNormalization"> {
 public:
  /// @param kernelWidth,kernelHeight at least 1; they may differ
  /// @throws Error for 0
  static std::shared_ptr<CNNSpatialNormalization> create(const std::shared_ptr<mtl::Device>& device,
                                                         std::size_t kernelWidth, std::size_t kernelHeight);

 protected:
  using KernelClass::KernelClass;
  [[nodiscard]] detail::NormalizationKind kind() const override;
};

/// Subtraction of the mean in a window of the own channel, division by a power of the variance there
/// (MPSCNNLocalContrastNormalization):
///
///     M = 1 / N * sum of X over the window        V = 1 / N * sum of (X - M)^2 over the window
///     T = delta + alpha * V
///     Y = pm + ps * (X - p0 * M) * T^-beta
///
/// Defaults: alpha 0, beta 0.5, delta 1/1024, p0 1, pm 0, ps 1. With alpha 0 only the mean is subtracted. A large mean
/// costs the variance no accuracy.
class CNNLocalContrastNormalization
    : public detail::KernelClass<CNNLocalContrastNormalization, CNNNormalization,
                                 "CNNLocalContrastNormalization"> {
 public:
  /// Parameters as for CNNSpatialNormalization.
  static std::shared_ptr<CNNLocalContrastNormalization> create(const std::shared_ptr<mtl::Device>& device,
                                                               std::size_t kernelWidth,
                                                               std::size_t kernelHeight);
  /// @name Each throws Error unless finite.
  /// @{
  [[nodiscard]] float p0() const { return parameters_.p0; }
  void setP0(float p0);
  [[nodiscard]] float pm() const { return parameters_.pm; }
  void setPm(float pm);
  [[nodiscard]] float ps() const { return parameters_.ps; }
  void setPs(float ps);
  /// @}

 protected:
  using KernelClass::KernelClass;
  [[nodiscard]] detail::NormalizationKind kind() const override;
};

/// Division by a power of the mean square over neighbouring channels of the same pixel
/// (MPSCNNCrossChannelNormalization; "local response normalisation"). Of the D channels that are read, with
/// N = kernelSize,
///
///     T(k) = delta + alpha / N * sum of X(q)^2, q = k - floor(N / 2) ... k + floor((N - 1) / 2) within 0 ... D - 1
///     Y(k) = X(k) * T(k)^-beta
///
/// The divisor is N also where the window is cut; an even one has one channel more below. As PyTorch's
/// LocalResponseNorm(size, alpha, beta, k = delta). alpha 1, beta 5, delta 1; kernelWidth and kernelHeight are 1.
class CNNCrossChannelNormalization
    : public detail::KernelClass<CNNCrossChannelNormalization, CNNNormalization,
                                 "CNNCrossChannelNormalization"> {
 public:
  /// @param kernelSize at least 1
  /// @throws Error for 0
  static std::shared_ptr<CNNCrossChannelNormalization> create(const std::shared_ptr<mtl::Device>& device,
                                                              std::size_t kernelSize = 5);
  /// Channels of a window.
  [[nodiscard]] std::size_t kernelSize() const { return kernelSize_; }

 protected:
  using KernelClass::KernelClass;
  CNNCrossChannelNormalization(std::shared_ptr<mtl::Device> device, std::size_t kernelSize);
  CNNCrossChannelNormalization(const CNNCrossChannelNormalization&) = default;
  void codeProperties(Coder& coder) override;
  [[nodiscard]] detail::NormalizationKind kind() const override;
  [[nodiscard]] std::size_t windowChannels() const override { return kernelSize_; }

 private:
  friend KernelClass;
  std::size_t kernelSize_ = 1;
};

/// Base of the gradient kernels. sourceImage is the forward source. Destination pixel (x, y) is the gradient of source
/// pixel (x, y), in all encodes; pixels that no window sees get 0. The result is deterministic.
class CNNNormalizationGradient : public CNNGradientKernel {
 public:
  /// As in the forward kernel.
  [[nodiscard]] float alpha() const { return alpha_.get(); }
  void setAlpha(float alpha);
  [[nodiscard]] float beta() const { return beta_.get(); }
  void setBeta(float beta);
  [[nodiscard]] float delta() const { return delta_.get(); }
  void setDelta(float delta);

 protected:
  using CNNGradientKernel::CNNGradientKernel;
  CNNNormalizationGradient(std::shared_ptr<mtl::Device> device, const std::string& className,
                           std::size_t kernelWidth, std::size_t kernelHeight,
                           const detail::NormalizationParameters& parameters);
  CNNNormalizationGradient(const CNNNormalizationGradient&) = default;
  void codeProperties(Coder& coder) override;
  void transferOwnProperties(const detail::ForwardRecord& record) override;
  [[nodiscard]] virtual detail::NormalizationKind kind() const = 0;
  [[nodiscard]] virtual std::size_t windowChannels() const { return 1; }

  detail::Settable<float> p0_{1};
  detail::Settable<float> pm_{0};
  detail::Settable<float> ps_{1};
  [[nodiscard]] std::vector<detail::PreparedCall> prepareGradient(
      const detail::GradientCall& call) const override;
  [[nodiscard]] bool canAccumulate() const override { return true; }

 private:
  [[nodiscard]] detail::PreparedCall prepareChannels(const detail::GradientCall& call,
                                                     detail::NormalizationProblem problem) const;
  [[nodiscard]] detail::PreparedCall prepareWindows(const detail::GradientCall& call,
                                                    detail::NormalizationProblem problem) const;

  detail::Settable<float> alpha_{1};
  detail::Settable<float> beta_{5};
  detail::Settable<float> delta_{1};
};

/// (MPSCNNSpatialNormalizationGradient.) With S = dY * X * T^(-beta - 1) of each window,
///
///     dX = dY * T^-beta - 2 * alpha * beta / N * X * (sum of S over the windows that see the pixel)
///
/// An edge pixel that stands for others (Clamp) counts as often as a window sees it.
///
///     auto normalization = mps::CNNSpatialNormalization::create(device, 3, 3);
///     std::shared_ptr<mps::State> state;
///     auto y = normalization->encode(commandBuffer, x, state, false);
///     auto gradient = mps::CNNSpatialNormalizationGradient::create(device, 3, 3);
///     auto dx = gradient->encode(commandBuffer, dy, x, state);
class CNNSpatialNormalizationGradient
    : public detail::KernelClass<CNNSpatialNormalizationGradient, CNNNormalizationGradient,
                                 "CNNSpatialNormalizationGradient"> {
 public:
  /// Parameters as for CNNSpatialNormalization.
  static std::shared_ptr<CNNSpatialNormalizationGradient> create(const std::shared_ptr<mtl::Device>& device,
                                                                 std::size_t kernelWidth,
                                                                 std::size_t kernelHeight);

 protected:
  using KernelClass::KernelClass;
  [[nodiscard]] detail::NormalizationKind kind() const override;
  [[nodiscard]] bool acceptsForward(const std::string& forwardClassName) const override;
};

/// (MPSCNNLocalContrastNormalizationGradient.) With A = dY * T^-beta and B = dY * (X - p0 * M) * T^(-beta - 1) of each
/// window and sums over the windows that see the pixel,
///
///     dX = ps * (A - p0 / N * sum of A - 2 * alpha * beta / N * (X * sum of B - sum of B * M))
///
/// pm has no part in it. Defaults as in the forward kernel, alpha 0 included.
///
///     auto normalization = mps::CNNLocalContrastNormalization::create(device, 3, 3);
///     std::shared_ptr<mps::State> state;
///     auto y = normalization->encode(commandBuffer, x, state, false);
///     auto gradient = mps::CNNLocalContrastNormalizationGradient::create(device, 3, 3);
///     auto dx = gradient->encode(commandBuffer, dy, x, state);
class CNNLocalContrastNormalizationGradient
    : public detail::KernelClass<CNNLocalContrastNormalizationGradient, CNNNormalizationGradient,
                                 "CNNLocalContrastNormalizationGradient"> {
 public:
  /// Parameters as for CNNSpatialNormalization.
  static std::shared_ptr<CNNLocalContrastNormalizationGradient> create(
      const std::shared_ptr<mtl::Device>& device, std::size_t kernelWidth, std::size_t kernelHeight);
  [[nodiscard]] float p0() const { return p0_.get(); }
  void setP0(float p0);
  [[nodiscard]] float pm() const { return pm_.get(); }
  void setPm(float pm);
  [[nodiscard]] float ps() const { return ps_.get(); }
  void setPs(float ps);

 protected:
  using KernelClass::KernelClass;
  [[nodiscard]] detail::NormalizationKind kind() const override;
  [[nodiscard]] bool acceptsForward(const std::string& forwardClassName) const override;
};

/// (MPSCNNCrossChannelNormalizationGradient.) With S = dY * X * T^(-beta - 1) of each channel,
///
///     dX(k) = dY(k) * T(k)^-beta - 2 * alpha * beta / N * X(k) * (sum of S(r) over the channels r whose windows hold k)
///
///     auto normalization = mps::CNNCrossChannelNormalization::create(device, 5);
///     normalization->setBeta(0.75F);
///     std::shared_ptr<mps::State> state;
///     auto y = normalization->encode(commandBuffer, x, state, false);
///     auto gradient = mps::CNNCrossChannelNormalizationGradient::create(device, 5);
///     auto dx = gradient->encode(commandBuffer, dy, x, state);     // with beta 0.75
class CNNCrossChannelNormalizationGradient
    : public detail::KernelClass<CNNCrossChannelNormalizationGradient, CNNNormalizationGradient,
                                 "CNNCrossChannelNormalizationGradient"> {
 public:
  /// @param kernelSize that of the forward kernel  @throws Error for 0
  static std::shared_ptr<CNNCrossChannelNormalizationGradient> create(
      const std::shared_ptr<mtl::Device>& device, std::size_t kernelSize = 5);
  [[nodiscard]] std::size_t kernelSize() const { return kernelSize_; }

 protected:
  using KernelClass::KernelClass;
  CNNCrossChannelNormalizationGradient(std::shared_ptr<mtl::Device> device, std::size_t kernelSize);
  CNNCrossChannelNormalizationGradient(const CNNCrossChannelNormalizationGradient&) = default;
  void codeProperties(Coder& coder) override;
  [[nodiscard]] detail::NormalizationKind kind() const override;
  [[nodiscard]] std::size_t windowChannels() const override { return kernelSize_; }
  [[nodiscard]] bool acceptsForward(const std::string& forwardClassName) const override;

 private:
  friend KernelClass;
  std::size_t kernelSize_ = 1;
};

}  // namespace mps
