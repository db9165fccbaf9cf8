#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "mps/core/kernel/cnn_gradient_kernel.hpp"
#include "mps/core/kernel/cnn_kernel.hpp"
#include "mps/core/kernel/kernel_class.hpp"
#include "mps/core/kernel/kernel_roles.hpp"
#include "mps/core/kernel/node.hpp"
#include "mps/pooling/pooling_kind.hpp"

/// Pooling: maximum, average, L2 norm and dilated maximum over a window, per feature channel
/// (MPSCNNPooling.h). Channels never mix; the result has as many as were read.
///
/// Window of destination pixel x on one axis: taps left + dilation * p, p = 0 ... kernel - 1, with
/// left = offset + stride * x - floor(((kernel - 1) * dilation + 1) / 2).
///
/// Kernels take edge mode Zero by default; graph nodes take Clamp.
namespace mps {

namespace detail {
struct PoolingProblem;
}  // namespace detail

/// Base of the forward pooling kernels (MPSCNNPooling). Sources: every format; destinations: float16,
/// float32.
class CNNPooling : public CNNKernel, public detail::ReLUGradientFusion {
 public:
  [[nodiscard]] std::size_t kernelWidth() const override { return kernelWidth_; }
  [[nodiscard]] std::size_t kernelHeight() const override { return kernelHeight_; }
  [[nodiscard]] std::size_t strideInPixelsX() const override { return strideInPixelsX_; }
  [[nodiscard]] std::size_t strideInPixelsY() const override { return strideInPixelsY_; }

 protected:
  using CNNKernel::CNNKernel;
  CNNPooling(std::shared_ptr<mtl::Device> device, const std::string& className, std::size_t kernelWidth,
             std::size_t kernelHeight, std::size_t strideInPixelsX, std::size_t strideInPixelsY);
  CNNPooling(const CNNPooling&) = default;
  void codeProperties(Coder& coder) override;
  [[nodiscard]] bool hasWindow() const override { return true; }
  [[nodiscard]] virtual detail::PoolingKind kind() const = 0;
  virtual void describeProblem(detail::PoolingProblem& /*problem*/) const {}
  void describeForward(std::any& family) const override;
  [[nodiscard]] detail::PreparedCall prepareForward(const detail::ForwardCall& call) const override;
  /// Of maxima: the source is the result of a ReLU with slope 0, as this library computes
  /// it, and the gradient kernel includes that ReLU's derivative. A graph sets it.
  void setAfterReLU(bool afterReLU) override { afterReLU_ = afterReLU; }
  [[nodiscard]] detail::KernelRoles roles() override;
  [[nodiscard]] bool repeatsCommands() const override { return true; }

 private:
  std::size_t kernelWidth_ = 1;
  std::size_t kernelHeight_ = 1;
  std::size_t strideInPixelsX_ = 1;
  std::size_t strideInPixelsY_ = 1;
  bool afterReLU_ = false;
};

namespace detail {
/// What a class of one pooling function says of itself; its gradient's has CNNPoolingGradient as Base.
template <class Class, ClassName name, PoolingKind function, class Base = CNNPooling>
class PoolingKernelClass : public KernelClass<Class, Base, name> {
 public:
  /// @param kernelWidth,kernelHeight window in pixels, odd or even, at least 1
  /// @param strideInPixelsX,strideInPixelsY step from window to window, at least 1; a gradient kernel has window and step of
  ///   its forward kernel
  /// @throws Error for a size or stride of 0
  static std::shared_ptr<Class> create(const std::shared_ptr<mtl::Device>& device, std::size_t kernelWidth,
                                       std::size_t kernelHeight, std::size_t strideInPixelsX = 1,
                                       std::size_t strideInPixelsY = 1) {
    return std::shared_ptr<Class>(
        new Class(device, name.characters, kernelWidth, kernelHeight, strideInPixelsX, strideInPixelsY));
  }

 protected:
  using PoolingKernelClass::KernelClass::KernelClass;
  [[nodiscard]] PoolingKind kind() const override { return function; }
};
}  // namespace detail

/// out(x, y, c) = max over taps of in(tap, c) (MPSCNNPoolingMax).
///
/// Zero: taps outside count as 0, so a window that touches the border never gives less than 0. Clamp: they
/// repeat the nearest edge pixel, the same as limiting the window to the image. NaN propagates. With a
/// gradient state the place of each maximum is kept, one byte per value for windows of up to 255 taps.
class CNNPoolingMax
    : public detail::PoolingKernelClass<CNNPoolingMax, "CNNPoolingMax", detail::PoolingKind::Max> {
 protected:
  friend PoolingKernelClass;
  using PoolingKernelClass::PoolingKernelClass;
};

/// out(x, y, c) = sum over taps inside the image of in(tap, c), divided by N (MPSCNNPoolingAverage).
///
/// Zero: N = kernelWidth * kernelHeight always. Clamp: N = number of taps inside the image grown by
/// zeroPadSizeX columns left and right and zeroPadSizeY rows above and below; the result is 0 where N is 0.
/// Clamp does not repeat edge pixels here: it shrinks the window. zeroPadSize p with Clamp is PyTorch's
/// padding p, and what NNPaddingMethod::ExcludeEdges asks for behind a padding of p; that bit alone changes nothing.
class CNNPoolingAverage : public detail::PoolingKernelClass<CNNPoolingAverage, "CNNPoolingAverage",
                                                            detail::PoolingKind::Average> {
 public:
  /// Width of the band of zeros that the divisor counts, in pixels; with Clamp only. 0.
  [[nodiscard]] std::size_t zeroPadSizeX() const { return zeroPadSizeX_; }
  [[nodiscard]] std::size_t zeroPadSizeY() const { return zeroPadSizeY_; }
  void setZeroPadSizeX(std::size_t size) { zeroPadSizeX_ = size; }
  void setZeroPadSizeY(std::size_t size) { zeroPadSizeY_ = size; }

 protected:
  friend PoolingKernelClass;
  using PoolingKernelClass::PoolingKernelClass;
  void codeProperties(Coder& coder) override;
  void describeProblem(detail::PoolingProblem& problem) const override;
  void describeForward(std::any& family) const override;

 private:
  std::size_t zeroPadSizeX_ = 0;
  std::size_t zeroPadSizeY_ = 0;
};

/// out(x, y, c) = sqrt(sum over taps inside the image of in(tap, c)^2), not divided by the window's size
/// (MPSCNNPoolingL2Norm). Taps outside add nothing in both edge modes (docs/decisions.md, D2).
class CNNPoolingL2Norm
    : public detail::PoolingKernelClass<CNNPoolingL2Norm, "CNNPoolingL2Norm", detail::PoolingKind::L2Norm> {
 protected:
  friend PoolingKernelClass;
  using PoolingKernelClass::PoolingKernelClass;
};

/// Maximum over taps that are dilationRate pixels apart (MPSCNNDilatedPoolingMax). With Clamp, a tap outside
/// repeats the edge pixel even where that is no tap of the window.
class CNNDilatedPoolingMax
    : public detail::KernelClass<CNNDilatedPoolingMax, CNNPooling, "CNNDilatedPoolingMax"> {
 public:
  /// @param dilationRateX,dilationRateY pixels from tap to tap, at least 1; the others as for CNNPoolingMax
  static std::shared_ptr<CNNDilatedPoolingMax> create(const std::shared_ptr<mtl::Device>& device,
                                                      std::size_t kernelWidth, std::size_t kernelHeight,
                                                      std::size_t dilationRateX, std::size_t dilationRateY,
                                                      std::size_t strideInPixelsX,
                                                      std::size_t strideInPixelsY);
  [[nodiscard]] std::size_t dilationRateX() const override { return dilationRateX_; }
  [[nodiscard]] std::size_t dilationRateY() const override { return dilationRateY_; }

 protected:
  using KernelClass::KernelClass;
  CNNDilatedPoolingMax(std::shared_ptr<mtl::Device> device, std::size_t kernelWidth, std::size_t kernelHeight,
                       std::size_t dilationRateX, std::size_t dilationRateY, std::size_t strideInPixelsX,
                       std::size_t strideInPixelsY);
  CNNDilatedPoolingMax(const CNNDilatedPoolingMax&) = default;
  void codeProperties(Coder& coder) override;
  [[nodiscard]] detail::PoolingKind kind() const override;

 private:
  friend KernelClass;
  std::size_t dilationRateX_ = 1;
  std::size_t dilationRateY_ = 1;
};

/// Base of the pooling gradients (MPSCNNPoolingGradient).
///
///     dIn(y) = sum over windows x in [0, n) of g(primaryOffset + x) * d out(x) / d in(y)
///     n      = min(sourceSize, size of the gradient image - primaryOffset), per axis
///     centre of window x in the source = secondaryOffset + stride * x
///
/// The state sets primaryOffset to the forward clip origin, sourceSize to the clip size, secondaryOffset to
/// the forward offset; then destination pixel (x, y) is the gradient of source pixel (x, y), zeros included.
/// In the inherited encodes without a state, destination pixel clipRect.origin + j stands for source pixel y0
/// + j, y0 being the first pixel of the first window that lies inside the source. kernelOffset moves the
/// windows: primaryOffset * stride + kernelOffset is the position in the gradient with zeros between its
/// pixels (docs/decisions.md, D8). The result is deterministic; pixels without a window are 0.
class CNNPoolingGradient : public CNNGradientKernel {
 public:
  /// How many gradient pixels count, from primaryOffset on. All.
  [[nodiscard]] mtl::Size sourceSize() const { return sourceSize_.get(); }
  void setSourceSize(const mtl::Size& size) { sourceSize_.set(size); }

 protected:
  using CNNGradientKernel::CNNGradientKernel;
  CNNPoolingGradient(std::shared_ptr<mtl::Device> device, const std::string& className,
                     std::size_t kernelWidth, std::size_t kernelHeight, std::size_t strideInPixelsX,
                     std::size_t strideInPixelsY, std::size_t dilationRateX = 1,
                     std::size_t dilationRateY = 1);
  CNNPoolingGradient(const CNNPoolingGradient&) = default;
  void codeProperties(Coder& coder) override;
  [[nodiscard]] virtual detail::PoolingKind kind() const = 0;
  virtual void describeProblem(detail::PoolingProblem& /*problem*/) const {}
  [[nodiscard]] bool usesKernelOffset() const override { return true; }
  void transferOwnProperties(const detail::ForwardRecord& record) override;
  [[nodiscard]] std::vector<detail::PreparedCall> prepareGradient(
      const detail::GradientCall& call) const override;
  [[nodiscard]] bool canAccumulate() const override { return true; }
  [[nodiscard]] bool needsSourceMemory(bool forwardSavesFields) const override;
  [[nodiscard]] bool repeatsCommands() const override { return true; }

 private:
  detail::Settable<mtl::Size> sourceSize_{mtl::Size{std::numeric_limits<std::size_t>::max(),
                                                    std::numeric_limits<std::size_t>::max(),
                                                    std::numeric_limits<std::size_t>::max()}};
};

namespace detail {
/// What the gradient of `Forward` says of itself.
template <class Class, ClassName name, class Forward, PoolingKind function>
class PoolingGradientKernelClass : public PoolingKernelClass<Class, name, function, CNNPoolingGradient> {
 protected:
  using PoolingGradientKernelClass::PoolingKernelClass::PoolingKernelClass;
  [[nodiscard]] bool acceptsForward(const std::string& forwardClassName) const override {
    return forwardClassName == Forward::nameOfClass();
  }
};
}  // namespace detail

/// d out(x) / d in(y) = 1 where y is the chosen maximum of window x, else 0 (MPSCNNPoolingMaxGradient).
///
/// Chosen is the first NaN, else the first maximum in row-major order of the taps; a pixel wins against an
/// equal zero outside. The gradient of a window whose maximum lies outside is dropped (Zero) or goes to the
/// edge pixel (Clamp). Indices kept in the state are used when sourceImage is the forward source; the result
/// is the same.
///
///     auto pool = mps::CNNPoolingMax::create(device, 2, 2, 2, 2);
///     std::shared_ptr<mps::State> state;
///     auto y = pool->encode(commandBuffer, x, state, false);
///     auto gradient = mps::CNNPoolingMaxGradient::create(device, 2, 2, 2, 2);
///     auto dx = gradient->encode(commandBuffer, dy, x, state);
class CNNPoolingMaxGradient
    : public detail::PoolingGradientKernelClass<CNNPoolingMaxGradient, "CNNPoolingMaxGradient", CNNPoolingMax,
                                                detail::PoolingKind::Max> {
 protected:
  friend PoolingKernelClass;
  using PoolingGradientKernelClass::PoolingGradientKernelClass;
};

/// dIn(y) = sum over windows x that contain y of g(x) / N(x), N as in the forward pass
/// (MPSCNNPoolingAverageGradient). Only the size of sourceImage counts: an unwritten temporary image will do
/// (docs/decisions.md, D10).
///
///     auto pool = mps::CNNPoolingAverage::create(device, 3, 3);
///     std::shared_ptr<mps::State> state;
///     auto y = pool->encode(commandBuffer, x, state, false);
///     auto gradient = mps::CNNPoolingAverageGradient::create(device, 3, 3);
///     auto dx = gradient->encode(commandBuffer, dy, x, state);
class CNNPoolingAverageGradient
    : public detail::PoolingGradientKernelClass<CNNPoolingAverageGradient, "CNNPoolingAverageGradient",
                                                CNNPoolingAverage, detail::PoolingKind::Average> {
 public:
  /// As for the forward kernel; taken from the state unless set. 0.
  [[nodiscard]] std::size_t zeroPadSizeX() const { return zeroPadSizeX_.get(); }
  [[nodiscard]] std::size_t zeroPadSizeY() const { return zeroPadSizeY_.get(); }
  void setZeroPadSizeX(std::size_t size) { zeroPadSizeX_.set(size); }
  void setZeroPadSizeY(std::size_t size) { zeroPadSizeY_.set(size); }

 protected:
  friend PoolingKernelClass;
  using PoolingGradientKernelClass::PoolingGradientKernelClass;
  void codeProperties(Coder& coder) override;
  void describeProblem(detail::PoolingProblem& problem) const override;
  void transferOwnProperties(const detail::ForwardRecord& record) override;

 private:
  detail::Settable<std::size_t> zeroPadSizeX_{0};
  detail::Settable<std::size_t> zeroPadSizeY_{0};
};

/// dIn(y) = in(y) * sum over windows x that contain y of g(x) / out(x), with 0 for a window whose norm is 0
/// (MPSCNNPoolingL2NormGradient). out(x) is computed again from sourceImage.
///
///     auto pool = mps::CNNPoolingL2Norm::create(device, 2, 2, 2, 2);
///     std::shared_ptr<mps::State> state;
///     auto y = pool->encode(commandBuffer, x, state, false);
///     auto gradient = mps::CNNPoolingL2NormGradient::create(device, 2, 2, 2, 2);
///     auto dx = gradient->encode(commandBuffer, dy, x, state);
class CNNPoolingL2NormGradient
    : public detail::PoolingGradientKernelClass<CNNPoolingL2NormGradient, "CNNPoolingL2NormGradient",
                                                CNNPoolingL2Norm, detail::PoolingKind::L2Norm> {
 protected:
  friend PoolingKernelClass;
  using PoolingGradientKernelClass::PoolingGradientKernelClass;
};

/// The gradient of CNNDilatedPoolingMax (MPSCNNDilatedPoolingMaxGradient); rules as for
/// CNNPoolingMaxGradient.
///
///     auto pool = mps::CNNDilatedPoolingMax::create(device, 3, 3, 2, 2, 1, 1);
///     std::shared_ptr<mps::State> state;
///     auto y = pool->encode(commandBuffer, x, state, false);
///     auto gradient = mps::CNNDilatedPoolingMaxGradient::create(device, 3, 3, 2, 2, 1, 1);
///     auto dx = gradient->encode(commandBuffer, dy, x, state);
class CNNDilatedPoolingMaxGradient
    : public detail::KernelClass<CNNDilatedPoolingMaxGradient, CNNPoolingGradient,
                                 "CNNDilatedPoolingMaxGradient"> {
 public:
  /// Parameters of the forward kernel; the rates read back as secondaryDilationRateX and -Y.
  static std::shared_ptr<CNNDilatedPoolingMaxGradient> create(
      const std::shared_ptr<mtl::Device>& device, std::size_t kernelWidth, std::size_t kernelHeight,
      std::size_t dilationRateX, std::size_t dilationRateY, std::size_t strideInPixelsX,
      std::size_t strideInPixelsY);

 protected:
  using KernelClass::KernelClass;
  [[nodiscard]] detail::PoolingKind kind() const override;
  [[nodiscard]] bool acceptsForward(const std::string& forwardClassName) const override;
};

}  // namespace mps
