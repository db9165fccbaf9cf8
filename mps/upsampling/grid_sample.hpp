#pragma once

#include <memory>
#include <string>

#include "mps/core/kernel/cnn_binary_kernel.hpp"
#include "mps/core/kernel/kernel_class.hpp"

/// Sampling at positions that another image holds (MPSNNGridSample.h).
namespace mps {

/// Samples the primary image where the secondary one, the grid, says (MPSNNGridSample). Channel 0 of the grid is for x,
/// channel 1 for y; W being the primary image's width, pixel x of the result lies at
///
///     px = (grid + 1) / 2 * (W - 1)      useGridValueAsInputCoordinate: -1 is the first pixel's centre, 1 the last one's
///     px = x + grid                      else: in pixels, beside the pixel's own position
///
/// and y likewise. The result is interpolated between the four pixels around; one outside is 0 (primary edge mode Zero) or
/// the edge pixel (Clamp). This is PyTorch's grid_sample with align_corners, which Apple's header names. A position that
/// is NaN lies outside, at the top left.
///
/// The result has the grid's size and the primary image's channels, for every padding policy. The grid's first two
/// channels count, from secondarySourceFeatureChannelOffset on. Of a destination that is given, the pixels in clipRect
/// are written: x counts from clipRect.origin, the grid is read from secondaryOffset on, and primaryOffset is added to the
/// positions. Strides are not used. Sources: every format; destinations: float16, float32. Apple has neither node nor
/// gradient, and neither have we.
///
/// @throws Error (encodes) for another primary edge mode than Zero and Clamp, a grid of fewer than two channels, and a
///         grid that does not cover the pixels that are written
class NNGridSample final : public detail::KernelClass<NNGridSample, CNNBinaryKernel, "NNGridSample"> {
 public:
  static std::shared_ptr<NNGridSample> create(const std::shared_ptr<mtl::Device>& device);
  /// true.
  [[nodiscard]] bool useGridValueAsInputCoordinate() const { return usesGridAsCoordinates_; }
  void setUseGridValueAsInputCoordinate(bool uses) { usesGridAsCoordinates_ = uses; }

 protected:
  using KernelClass::KernelClass;
  void codeProperties(Coder& coder) override;
  void encodeCall(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const ImageBatch& primary,
                  const ImageBatch& secondary, const StateBatch& destinationStates,
                  const ImageBatch& destinations) override;
  ImageDescriptor sizeDestination(const ImageDescriptor& primary, const ImageDescriptor& secondary) override;

 private:
  friend KernelClass;
  NNGridSample(const NNGridSample&) = default;

  bool usesGridAsCoordinates_ = true;
};

}  // namespace mps
