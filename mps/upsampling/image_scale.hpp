#pragma once

#include <any>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mps/core/coding/secure_coding.hpp"
#include "mps/core/kernel/cnn_gradient_kernel.hpp"
#include "mps/core/kernel/cnn_kernel.hpp"
#include "mps/core/kernel/kernel_class.hpp"
#include "mps/core/kernel/node.hpp"

namespace mps::detail {
struct UpsamplingManner;
}

/// Scaling and moving images (MPSImageResampling.h).
namespace mps {

/// Where the points of a source lie in the result, in pixels from the top left corner of the image, on both axes
/// result = scale * source + translate (MPSScaleTransform).
struct ScaleTransform {
  double scaleX = 1;
  double scaleY = 1;
  double translateX = 0;
  double translateY = 0;
  bool operator==(const ScaleTransform&) const = default;
};

/// Chooses the transform of each image of a graph (protocol MPSImageTransformProvider). A graph with one can be coded when
/// it overrides what SecureCoding asks for.
class ImageTransformProvider : public SecureCoding {
 public:
  /// Called whenever the graph is encoded, once for each image. @param handle of the source's node; may be null
  virtual ScaleTransform transformForSourceImage(const std::shared_ptr<Image>& image,
                                                 const std::shared_ptr<Handle>& handle) = 0;
};

/// Base of the kernels that scale and move images (MPSImageScale). The result has outputWidth x outputHeight pixels for
/// every padding policy. On each axis the centre of result pixel x lies at source position
///
///     t(x) = (x + 0.5 - translate) / scale - 0.5
///
/// of the pixels' centres. Without a transform the source fills the result: scale = result size / source size,
/// translate = 0. More than half a pixel outside the source is 0 (edge mode Zero) or the edge pixel (Clamp).
///
/// Of a destination that is given, the pixels in clipRect are written: x counts from clipRect.origin, and offset is added
/// to t(x). Sources: every format, at most 2^24 pixels on each axis; destinations: float16, float32.
class ImageScale : public CNNKernel {
 public:
  [[nodiscard]] std::size_t outputWidth() const { return outputWidth_; }
  [[nodiscard]] std::size_t outputHeight() const { return outputHeight_; }
  /// Empty: the source fills the result. Empty.
  [[nodiscard]] const std::optional<ScaleTransform>& scaleTransform() const { return transform_; }
  /// @throws Error for a scale outside of 1e-9 to 1e9, or a translation outside of -1e9 to 1e9
  void setScaleTransform(const std::optional<ScaleTransform>& transform);

  /// @name The library's own
  /// @{
  /// Steps of graphs ask it, and leave its answer for the last image in scaleTransform.
  void setTransformProvider(std::shared_ptr<ImageTransformProvider> provider,
                            std::shared_ptr<Handle> handle) {
    provider_ = std::move(provider);
    handle_ = std::move(handle);
  }
  [[nodiscard]] bool hasTransformProvider() const { return provider_ != nullptr; }
  /// How a source of that size is sampled.
  [[nodiscard]] detail::UpsamplingManner mannerFor(std::int64_t sourceWidth, std::int64_t sourceHeight) const;
  /// @}

 protected:
  using CNNKernel::CNNKernel;
  ImageScale(const char* className, std::shared_ptr<mtl::Device> device, std::size_t outputWidth,
             std::size_t outputHeight);
  ImageScale(const ImageScale&) = default;
  void codeProperties(Coder& coder) override;
  /// Positions, not windows: the base class leaves edges to the family.
  [[nodiscard]] bool hasWindow() const override { return true; }
  [[nodiscard]] bool keepsOffset() const override { return true; }
  void adjustDestination(ImageDescriptor& destination, const ImageDescriptor& source) override;
  void describeForward(std::any& family) const override;
  [[nodiscard]] virtual bool isLanczos() const = 0;
  [[nodiscard]] detail::PreparedCall prepareForward(const detail::ForwardCall& call) const override;
  void encodeStep(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                  std::span<const ImageBatch> sources, const StateBatch& destinationStates,
                  const ImageBatch& destinationImages) override;

 private:
  std::size_t outputWidth_ = 1;
  std::size_t outputHeight_ = 1;
  std::optional<ScaleTransform> transform_;
  std::shared_ptr<ImageTransformProvider> provider_;
  std::shared_ptr<Handle> handle_;
};

/// Interpolates between the two source pixels beside t(x) on each axis (MPSImageBilinearScale):
///
///     out = (1 - w) in[i] + w in[i + 1], i below t(x), w its fraction
///
/// t(x) being moved to the centre of the edge pixel where it is less than half a pixel outside. Nothing is filtered: where
/// the result is much smaller, most source pixels do not count. Without a transform it gives the bits of NNResizeBilinear
/// with halfPixelCenters, or neighbours of them.
class ImageBilinearScale final
    : public detail::KernelClass<ImageBilinearScale, ImageScale, "ImageBilinearScale"> {
 public:
  /// @param outputWidth,outputHeight 1 to 2^24  @throws Error for another size
  static std::shared_ptr<ImageBilinearScale> create(const std::shared_ptr<mtl::Device>& device,
                                                    std::size_t outputWidth, std::size_t outputHeight);

 protected:
  [[nodiscard]] bool isLanczos() const override { return false; }

 private:
  friend KernelClass;
  using KernelClass::KernelClass;
  ImageBilinearScale(const ImageBilinearScale&) = default;
};

/// Weighs all source pixels within three lobes of a windowed sinc around t(x) on each axis (MPSImageLanczosScale):
///
///     out = sum over i of L((i - t(x)) / s) in[i] / sum over i of L((i - t(x)) / s), |i - t(x)| < 3 s
///     L(u) = sinc(u) sinc(u / 3), sinc(u) = sin(pi u) / (pi u)
///
/// with s = 1 where the result is larger than the source, else 1 / scale, so that every source pixel counts. Pixels outside
/// the source are left out of both sums. Weights may be negative: results overshoot at sharp edges. The formula is this
/// library's choice; Apple publishes none.
class ImageLanczosScale final
    : public detail::KernelClass<ImageLanczosScale, ImageScale, "ImageLanczosScale"> {
 public:
  /// @param outputWidth,outputHeight 1 to 2^24  @throws Error for another size
  static std::shared_ptr<ImageLanczosScale> create(const std::shared_ptr<mtl::Device>& device,
                                                   std::size_t outputWidth, std::size_t outputHeight);

 protected:
  [[nodiscard]] bool isLanczos() const override { return true; }

 private:
  friend KernelClass;
  using KernelClass::KernelClass;
  ImageLanczosScale(const ImageLanczosScale&) = default;
};

/// Base of the gradients of the scales, an extension (docs/decisions.md, D6): each source pixel gets
///
///     dIn[i] = sum over result pixels x of weight(x, i) * g(primaryOffset + kernelOffset + x)
///
/// weight(x, i) being what pixel i counted in result pixel x on both axes, with secondaryOffset as the forward offset.
/// Pixels that no result takes a share of are 0. Size and transform are those that the forward kernel had when it encoded,
/// and come from the state; images of a batch that had different transforms are computed one by one. Of sourceImage only
/// the size counts.
///
/// @throws Error (encodes) without a state
class ImageScaleGradient : public CNNGradientKernel {
 protected:
  using CNNGradientKernel::CNNGradientKernel;
  ImageScaleGradient(const ImageScaleGradient&) = default;
  [[nodiscard]] bool usesKernelOffset() const override { return true; }
  [[nodiscard]] bool takesTogether(const StateBatch& states) const override;
  [[nodiscard]] std::vector<detail::PreparedCall> prepareGradient(
      const detail::GradientCall& call) const override;
  [[nodiscard]] bool canAccumulate() const override { return true; }
  [[nodiscard]] bool needsSourceMemory(bool /*forwardSavesFields*/) const override { return false; }
};

/// The gradient of ImageBilinearScale.
///
///     auto scale = mps::ImageBilinearScale::create(device, 12, 6);
///     scale->setScaleTransform(mps::ScaleTransform{2, 2, -3, 0.5});
///     std::shared_ptr<mps::State> state;
///     auto y = scale->encode(commandBuffer, x, state, false);
///     auto gradient = mps::ImageBilinearScaleGradient::create(device);
///     auto dx = gradient->encode(commandBuffer, dy, x, state);
class ImageBilinearScaleGradient final
    : public detail::KernelClass<ImageBilinearScaleGradient, ImageScaleGradient,
                                 "ImageBilinearScaleGradient"> {
 public:
  static std::shared_ptr<ImageBilinearScaleGradient> create(const std::shared_ptr<mtl::Device>& device);

 protected:
  using KernelClass::KernelClass;
  ImageBilinearScaleGradient(const ImageBilinearScaleGradient&) = default;
  [[nodiscard]] bool acceptsForward(const std::string& forwardClassName) const override;

 private:
  friend KernelClass;
};

/// The gradient of ImageLanczosScale. Weights may be negative, and so may shares of a positive gradient.
///
///     auto scale = mps::ImageLanczosScale::create(device, 12, 6);
///     std::shared_ptr<mps::State> state;
///     auto y = scale->encode(commandBuffer, x, state, false);
///     auto gradient = mps::ImageLanczosScaleGradient::create(device);
///     auto dx = gradient->encode(commandBuffer, dy, x, state);
class ImageLanczosScaleGradient final
    : public detail::KernelClass<ImageLanczosScaleGradient, ImageScaleGradient, "ImageLanczosScaleGradient"> {
 public:
  static std::shared_ptr<ImageLanczosScaleGradient> create(const std::shared_ptr<mtl::Device>& device);

 protected:
  using KernelClass::KernelClass;
  ImageLanczosScaleGradient(const ImageLanczosScaleGradient&) = default;
  [[nodiscard]] bool acceptsForward(const std::string& forwardClassName) const override;

 private:
  friend KernelClass;
};

}  // namespace mps
