#pragma once

#include <any>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mps/core/kernel/cnn_gradient_kernel.hpp"
#include "mps/core/kernel/cnn_kernel.hpp"
#include "mps/core/kernel/kernel_class.hpp"

/// Padding and slices (MPSNNReshape.h, MPSNNSlice.h).
namespace mps {

namespace detail {
struct ReshapeProblem;
}

/// Puts an image into a larger one (MPSNNPad):
///
///     out(x, y, destinationFeatureChannelOffset + c)
///         = in(offset.x + x, offset.y + y, sourceFeatureChannelOffset + c - paddingSizeBefore.channel)
///
/// x and y counted from clipRect.origin. Outside the source, and outside the channels read, each axis alone:
///
/// | edgeMode       | value                                                                              |
/// |----------------|------------------------------------------------------------------------------------|
/// | Zero           | 0; the fill value in channels outside                                              |
/// | Constant       | the fill value                                                                     |
/// | Clamp          | the element at the edge                                                            |
/// | Mirror         | reflected about the element at the edge, again and again: 2 1 0 1 2 3 2 1 of 0 to 3 |
/// | MirrorWithEdge | reflected, the edge twice: 1 0 0 1 2 3 3 2                                         |
///
/// The encodes that return an image size it by both paddings and set offset to minus paddingSizeBefore. With a given
/// destination offset and clipRect decide; the channels written are always those before, those read and those after.
/// Sources: every format, channels from any sourceFeatureChannelOffset on; destinations: float16, float32.
class NNPad : public detail::KernelClass<NNPad, CNNKernel, "NNPad"> {
 public:
  static std::shared_ptr<NNPad> create(const std::shared_ptr<mtl::Device>& device);
  /// @param paddingSizeBefore pixels at the left and the top, channels before the first one
  /// @param paddingSizeAfter  pixels at the right and the bottom, channels behind the last one
  /// @param fillValueArray    a fill value for each channel written, copied; empty: fillValue
  static std::shared_ptr<NNPad> create(const std::shared_ptr<mtl::Device>& device,
                                       const ImageCoordinate& paddingSizeBefore,
                                       const ImageCoordinate& paddingSizeAfter,
                                       std::span<const float> fillValueArray = {});
  /// 0, 0, 0. @throws Error (setters) for a size above 2^31
  [[nodiscard]] const ImageCoordinate& paddingSizeBefore() const { return before_; }
  void setPaddingSizeBefore(const ImageCoordinate& size);
  [[nodiscard]] const ImageCoordinate& paddingSizeAfter() const { return after_; }
  void setPaddingSizeAfter(const ImageCoordinate& size);
  /// For all channels unless there is a fillValueArray. 0.
  [[nodiscard]] float fillValue() const { return fillValue_; }
  void setFillValue(float value) { fillValue_ = value; }

 protected:
  using KernelClass::KernelClass;
  NNPad(const NNPad&) = default;
  void codeProperties(Coder& coder) override;
  [[nodiscard]] bool hasWindow() const override { return true; }
  [[nodiscard]] bool takesEdgeMode(ImageEdgeMode edgeMode) const override;
  [[nodiscard]] std::size_t sourceChannelAlignment() const override { return 1; }
  [[nodiscard]] std::size_t producedFeatureChannels(std::size_t sourceFeatureChannels) const override;
  void adjustDestination(ImageDescriptor& destination, const ImageDescriptor& source) override;
  void describeForward(std::any& family) const override;
  /// @throws Error when fillValueArray has fewer entries than channels are written
  [[nodiscard]] detail::PreparedCall prepareForward(const detail::ForwardCall& call) const override;

 private:
  friend KernelClass;
  ImageCoordinate before_;
  ImageCoordinate after_;
  float fillValue_ = 0;
  std::vector<float> fillValueArray_;
};

/// The adjoint of NNPad (MPSNNPadGradient): each incoming gradient is added to the source element that was copied to
/// its place. Source elements that were not read get 0; fill values do not matter. What the forward kernel did stands
/// in the state. Of sourceImage only the size counts.
///
///     Clamp, 2 before, 3 after, of 3:   g0 + g1 + g2, g3, g4 + g5 + g6 + g7
///     Mirror, 4 before, 1 after, of 3:  g0 + g4, g1 + g3 + g5 + g7, g2 + g6
///
/// @throws Error (encodes) without a state and when clipRect is set
///
///     auto pad = mps::NNPad::create(device, mps::ImageCoordinate{1, 1, 0}, mps::ImageCoordinate{1, 1, 0});
///     std::shared_ptr<mps::State> state;
///     auto y = pad->encode(commandBuffer, x, state, false);
///     auto gradient = mps::NNPadGradient::create(device);
///     auto dx = gradient->encode(commandBuffer, dy, x, state);
class NNPadGradient : public detail::KernelClass<NNPadGradient, CNNGradientKernel, "NNPadGradient"> {
 public:
  static std::shared_ptr<NNPadGradient> create(const std::shared_ptr<mtl::Device>& device);

 protected:
  using KernelClass::KernelClass;
  NNPadGradient(const NNPadGradient&) = default;
  [[nodiscard]] std::vector<detail::PreparedCall> prepareGradient(
      const detail::GradientCall& call) const override;
  [[nodiscard]] bool acceptsForward(const std::string& forwardClassName) const override;
  [[nodiscard]] bool needsSourceMemory(bool /*forwardSavesFields*/) const override { return false; }
  [[nodiscard]] bool canAccumulate() const override { return true; }

 private:
  friend KernelClass;
};

/// Cuts a part out of an image (MPSNNSlice):
///
///     out(clipRect.origin.x + x, clipRect.origin.y + y, destinationFeatureChannelOffset + c)
///         = in(offset.x + x, offset.y + y, sourceFeatureChannelOffset + c)
///
/// for the pixels of clipRect.size and sourceFeatureChannelMaxCount channels, from any sourceFeatureChannelOffset on.
/// Outside the source as NNPad with fill value 0. The encodes that return an image keep offset and size the image to
/// hold clipRect, or without one the rest of the source. No state: the gradient of a slice is an NNPad of edge mode
/// Zero.
class NNSlice : public detail::KernelClass<NNSlice, CNNKernel, "NNSlice"> {
 public:
  static std::shared_ptr<NNSlice> create(const std::shared_ptr<mtl::Device>& device);

 protected:
  using KernelClass::KernelClass;
  NNSlice(const NNSlice&) = default;
  [[nodiscard]] bool hasWindow() const override { return true; }
  [[nodiscard]] bool makesState() const override { return false; }
  [[nodiscard]] bool keepsOffset() const override { return true; }
  [[nodiscard]] bool takesEdgeMode(ImageEdgeMode edgeMode) const override;
  [[nodiscard]] std::size_t sourceChannelAlignment() const override { return 1; }
  void adjustDestination(ImageDescriptor& destination, const ImageDescriptor& source) override;
  [[nodiscard]] detail::PreparedCall prepareForward(const detail::ForwardCall& call) const override;

 private:
  friend KernelClass;
};

}  // namespace mps
