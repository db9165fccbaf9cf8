#include "mps/matrix/matrix_image_copy.hpp"

#include "mps/core/array/array_storage.hpp"
#include "mps/core/array/matrix_call.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/types/error.hpp"
#include "mps/matrix/matrix_problem.hpp"
#include "mtl/command.hpp"

namespace mps {
namespace {

bool matches(ImageFeatureChannelFormat format, DataType type) {
  switch (format) {
    case ImageFeatureChannelFormat::Float32:
      return type == DataType::Float32;
    case ImageFeatureChannelFormat::Float16:
      return type == DataType::Float16;
    case ImageFeatureChannelFormat::Unorm8:
      return type == DataType::Unorm8 || type == DataType::UInt8;
    case ImageFeatureChannelFormat::Unorm16:
      return type == DataType::UInt16;
    case ImageFeatureChannelFormat::None:
      break;
  }
  return false;
}

}  // namespace

void ImageMatrixCopy::record(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, bool toMatrix,
                             const ImageBatch& images, const char* imageArgument,
                             const std::shared_ptr<Matrix>& matrix, const char* matrixArgument) {
  detail::checkCommandBuffer(*this, commandBuffer);
  if (toMatrix)
    detail::checkSources(*this, imageArgument, *commandBuffer, images);
  else
    detail::checkDestinations(*this, imageArgument, *commandBuffer, images);
  const detail::TensorShape whole =
      detail::tensorOf(*this, matrixArgument, *commandBuffer, matrix, /*isRead=*/!toMatrix);
  const detail::BatchOperand imageOperand(images, /*isWritten=*/!toMatrix);
  detail::ImageMatrixCopyProblem problem;
  problem.toMatrix = toMatrix;
  problem.channelsFirst = dataLayout_ == DataLayout::FeatureChannelsxHeightxWidth;
  problem.images = imageOperand.shape();
  if (!matches(problem.images.format, matrix->dataType()))
    throw Error(describe(), matrixArgument, name(matrix->dataType()),
                std::string("the type of the images, ") + name(problem.images.format));
  const detail::MatrixRegion region =
      detail::regionOf(*this, matrixArgument, whole, matrixOrigin_, matrixBatchIndex_, 1,
                       static_cast<std::size_t>(problem.images.images),
                       static_cast<std::size_t>(problem.images.elements() / problem.images.images));
  problem.matrix = region.shape;
  mtl::RecordingGuard guard(*commandBuffer);
  detail::PreparedCall prepared;
  prepared.plan = detail::planFor(*device(), detail::imageMatrixCopyBackEnds, problem);
  const detail::BatchOperand matrixOperand = detail::operandOf(matrix->storage(), region);
  detail::CallOperands operands;
  operands.source = toMatrix ? &imageOperand : &matrixOperand;
  operands.destination = toMatrix ? &matrixOperand : &imageOperand;
  detail::recordCall(*commandBuffer, *this, prepared, operands);
  guard.keep();
  if (toMatrix) {
    detail::consumeRead(images, describe());
  } else {
    detail::setProducer(images, describe());
    detail::consumeRead({&matrix->storage()});
  }
}

std::shared_ptr<ImageCopyToMatrix> ImageCopyToMatrix::create(const std::shared_ptr<mtl::Device>& device,
                                                             DataLayout dataLayout) {
  return std::shared_ptr<ImageCopyToMatrix>(new ImageCopyToMatrix(device, dataLayout));
}

void ImageCopyToMatrix::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                               const std::shared_ptr<Image>& sourceImage,
                               const std::shared_ptr<Matrix>& destinationMatrix) {
  if (!sourceImage) throw Error(describe(), "sourceImage", "null", "an image");
  record(commandBuffer, true, ImageBatch::of(sourceImage), "sourceImage", destinationMatrix,
         "destinationMatrix");
}

void ImageCopyToMatrix::encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                    const ImageBatch& sourceImages,
                                    const std::shared_ptr<Matrix>& destinationMatrix) {
  detail::checkNotEmpty(*this, "sourceImages", sourceImages);
  detail::checkNotStacked(*this, "sourceImages", sourceImages);
  record(commandBuffer, true, sourceImages, "sourceImages", destinationMatrix, "destinationMatrix");
}

std::shared_ptr<MatrixCopyToImage> MatrixCopyToImage::create(const std::shared_ptr<mtl::Device>& device,
                                                             DataLayout dataLayout) {
  return std::shared_ptr<MatrixCopyToImage>(new MatrixCopyToImage(device, dataLayout));
}

void MatrixCopyToImage::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                               const std::shared_ptr<Matrix>& sourceMatrix,
                               const std::shared_ptr<Image>& destinationImage) {
  if (!destinationImage) throw Error(describe(), "destinationImage", "null", "an image");
  record(commandBuffer, false, ImageBatch::of(destinationImage), "destinationImage", sourceMatrix,
         "sourceMatrix");
}

void MatrixCopyToImage::encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                    const std::shared_ptr<Matrix>& sourceMatrix,
                                    const ImageBatch& destinationImages) {
  detail::checkNotEmpty(*this, "destinationImages", destinationImages);
  detail::checkNotStacked(*this, "destinationImages", destinationImages);
  record(commandBuffer, false, destinationImages, "destinationImages", sourceMatrix, "sourceMatrix");
}

void ImageMatrixCopy::codeProperties(Coder& coder) {
  Kernel::codeProperties(coder);
  coder.codeEnumeration("dataLayout", dataLayout_, DataLayout::FeatureChannelsxHeightxWidth);
  coder.code("matrixOrigin", matrixOrigin_);
  coder.code("matrixBatchIndex", matrixBatchIndex_);
}

}  // namespace mps
