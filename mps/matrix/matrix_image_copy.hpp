#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "mps/core/array/matrix.hpp"
#include "mps/core/image/image.hpp"
#include "mps/core/image/image_batch.hpp"
#include "mps/core/kernel/kernel.hpp"
#include "mps/core/kernel/kernel_class.hpp"
#include "mps/core/types/types.hpp"
#include "mtl/types.hpp"

/// Copies between images and the rows of a matrix (MPSImageCopy.h): for fully connected
/// layers made of matrix kernels. Whole images, all feature channels, bit by bit:
///
///     row      origin.x + index of the image; an image with numberOfImages n counts as n
///     column   origin.y + (c H + y) W + x       FeatureChannelsxHeightxWidth
///              origin.y + (y W + x) C + c       HeightxWidthxFeatureChannels
///
/// The gradient of either copy is the other one, with the same layout and origin. The matrix has the images'
/// type: Float32, Float16; for unorm8 Unorm8 or UInt8, for unorm16 UInt16. unorm images are sources only
/// (docs/decisions.md, D16).
namespace mps {

/// What both copies have in common.
class ImageMatrixCopy : public Kernel {
 public:
  [[nodiscard]] DataLayout dataLayout() const { return dataLayout_; }

 protected:
  using Kernel::Kernel;
  ImageMatrixCopy(std::shared_ptr<mtl::Device> device, DataLayout dataLayout)
      : Kernel(std::move(device)), dataLayout_(dataLayout) {}
  ImageMatrixCopy(const ImageMatrixCopy&) = default;
  void codeProperties(Coder& coder) override;
  /// Checks and records one copy. @param matrixArgument for messages
  void record(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, bool toMatrix,
              const ImageBatch& images, const char* imageArgument, const std::shared_ptr<Matrix>& matrix,
              const char* matrixArgument);
  [[nodiscard]] const mtl::Origin& matrixOrigin() const { return matrixOrigin_; }
  void setMatrixOrigin(const mtl::Origin& origin) { matrixOrigin_ = origin; }
  [[nodiscard]] std::size_t matrixBatchIndex() const { return matrixBatchIndex_; }
  void setMatrixBatchIndex(std::size_t index) { matrixBatchIndex_ = index; }

 private:
  DataLayout dataLayout_ = DataLayout::FeatureChannelsxHeightxWidth;
  mtl::Origin matrixOrigin_;
  std::size_t matrixBatchIndex_ = 0;
};

/// Copies images to a matrix (MPSImageCopyToMatrix). Takes one read off each temporary source image.
class ImageCopyToMatrix
    : public detail::KernelClass<ImageCopyToMatrix, ImageMatrixCopy, "ImageCopyToMatrix"> {
 public:
  static std::shared_ptr<ImageCopyToMatrix> create(
      const std::shared_ptr<mtl::Device>& device,
      DataLayout dataLayout = DataLayout::FeatureChannelsxHeightxWidth);
  /// Where the first element goes: x is the row, y the column, z is 0. {0, 0, 0}.
  [[nodiscard]] const mtl::Origin& destinationMatrixOrigin() const { return matrixOrigin(); }
  void setDestinationMatrixOrigin(const mtl::Origin& origin) { setMatrixOrigin(origin); }
  /// Which of the destination's matrices. 0.
  [[nodiscard]] std::size_t destinationMatrixBatchIndex() const { return matrixBatchIndex(); }
  void setDestinationMatrixBatchIndex(std::size_t index) { setMatrixBatchIndex(index); }

  /// @throws Error for a matrix of another type, too small from the origin on, or otherwise unusable.
  using Kernel::encode;
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<Image>& sourceImage, const std::shared_ptr<Matrix>& destinationMatrix);
  /// Images of one size with numberOfImages 1; the rows are in their order.
  void encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const ImageBatch& sourceImages,
                   const std::shared_ptr<Matrix>& destinationMatrix);

 protected:
  using KernelClass::KernelClass;
};

/// Copies rows of a matrix to images (MPSMatrixCopyToImage). Takes one read off a temporary source matrix.
class MatrixCopyToImage
    : public detail::KernelClass<MatrixCopyToImage, ImageMatrixCopy, "MatrixCopyToImage"> {
 public:
  static std::shared_ptr<MatrixCopyToImage> create(
      const std::shared_ptr<mtl::Device>& device,
      DataLayout dataLayout = DataLayout::FeatureChannelsxHeightxWidth);
  /// Where the first element comes from: x is the row, y the column, z is 0. {0, 0, 0}.
  [[nodiscard]] const mtl::Origin& sourceMatrixOrigin() const { return matrixOrigin(); }
  void setSourceMatrixOrigin(const mtl::Origin& origin) { setMatrixOrigin(origin); }
  /// Which of the source's matrices. 0.
  [[nodiscard]] std::size_t sourceMatrixBatchIndex() const { return matrixBatchIndex(); }
  void setSourceMatrixBatchIndex(std::size_t index) { setMatrixBatchIndex(index); }

  /// @throws Error for a matrix of another type, too small from the origin on, or otherwise unusable.
  using Kernel::encode;
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<Matrix>& sourceMatrix, const std::shared_ptr<Image>& destinationImage);
  void encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                   const std::shared_ptr<Matrix>& sourceMatrix, const ImageBatch& destinationImages);

 protected:
  using KernelClass::KernelClass;
};

}  // namespace mps
