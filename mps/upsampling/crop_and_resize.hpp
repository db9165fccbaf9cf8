#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mps/core/kernel/cnn_kernel.hpp"
#include "mps/core/kernel/kernel_class.hpp"

/// Cutting out parts of an image and giving them one size (MPSNNResize.h).
namespace mps {

/// A part of an image in fractions of its width less one and its height less one, so that 0 is the centre of the first
/// pixel and 1 that of the last one (MPSRegion as NNCropAndResizeBilinear takes it). It may leave the image; a negative
/// width or height mirrors.
struct NormalizedRegion {
  double x = 0;
  double y = 0;
  double width = 1;
  double height = 1;
  bool operator==(const NormalizedRegion&) const = default;
};

/// Resizes parts of an image to resizeWidth x resizeHeight pixels each (MPSNNCropAndResizeBilinear). On each axis, S being
/// the source's size and R the result's, pixel d of the result of a region lies at source position
///
///     t(d) = (region.x + d region.width / (R - 1)) (S - 1); the middle of the region if R = 1
///
/// and is interpolated between the two pixels beside it, as NNResizeBilinear does. A position outside the image, beyond the
/// centre of an edge pixel, gives 0 (edge mode Zero) or the edge pixel (Clamp). There is no filter: where the result is
/// much smaller, most source pixels do not count.
///
/// One source image becomes numberOfRegions images of its channels: the images of one stack, or those of a batch. A
/// batch of n sources becomes a batch of n numberOfRegions images, of the first source first. What can be set of CNNKernel
/// counts for each of these: of a destination that is given the pixels in clipRect are written, d counts from
/// clipRect.origin, offset is added to t(d). Its own encodes throw where there is more than one region. Results have that
/// size for every padding policy. Sources: every format; destinations: float16, float32. No gradient, no state.
class NNCropAndResizeBilinear final
    : public detail::KernelClass<NNCropAndResizeBilinear, CNNKernel, "NNCropAndResizeBilinear"> {
 public:
  /// @param resizeWidth,resizeHeight 1 to 2^24
  /// @param regions                  copied
  /// @throws Error for another size, without a region, and for numbers of a region outside of -1e9 to 1e9
  static std::shared_ptr<NNCropAndResizeBilinear> create(const std::shared_ptr<mtl::Device>& device,
                                                         std::size_t resizeWidth, std::size_t resizeHeight,
                                                         std::span<const NormalizedRegion> regions);
  [[nodiscard]] std::size_t resizeWidth() const { return resizeWidth_; }
  [[nodiscard]] std::size_t resizeHeight() const { return resizeHeight_; }
  [[nodiscard]] std::size_t numberOfRegions() const { return regions_.size(); }
  [[nodiscard]] std::span<const NormalizedRegion> regions() const { return regions_; }

  /// @name Encodes. The first two return the destination.
  /// @param destinationImage  a stack of numberOfRegions images
  /// @param destinationImages numberOfRegions for each source
  /// @{
  std::shared_ptr<Image> encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                const std::shared_ptr<Image>& sourceImage);
  ImageBatch encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                         const ImageBatch& sourceImages);
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<Image>& sourceImage, const std::shared_ptr<Image>& destinationImage);
  void encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const ImageBatch& sourceImages,
                   const ImageBatch& destinationImages);
  /// @}
  using Kernel::encode;

 protected:
  using KernelClass::KernelClass;
  /// Positions, not windows: the base class leaves edges to the family.
  [[nodiscard]] bool hasWindow() const override { return true; }
  [[nodiscard]] bool keepsOffset() const override { return true; }
  [[nodiscard]] bool makesState() const override { return false; }
  void adjustDestination(ImageDescriptor& destination, const ImageDescriptor& source) override;
  [[nodiscard]] detail::PreparedCall prepareForward(const detail::ForwardCall& call) const override;

 private:
  friend KernelClass;
  NNCropAndResizeBilinear(std::shared_ptr<mtl::Device> device, std::size_t resizeWidth,
                          std::size_t resizeHeight, std::span<const NormalizedRegion> regions);
  NNCropAndResizeBilinear(const NNCropAndResizeBilinear&) = default;
  void codeProperties(Coder& coder) override;
  void check() const;
  /// Of sources that are evenly spaced, without checks.
  void encodeRegions(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const ImageBatch& sourceImages,
                     const ImageBatch& destinationImages);
  /// Size and format of the results, as a stack. @throws Error for an image that is missing
  ImageDescriptor sizeOfResults(const std::shared_ptr<Image>& source);

  std::size_t resizeWidth_ = 1;
  std::size_t resizeHeight_ = 1;
  std::vector<NormalizedRegion> regions_;
};

}  // namespace mps
