#include "python/source/kernels/matrix_kernels.hpp"

#include "mps/matrix/matrix.hpp"
#include "mps/matrix/matrix_image_copy.hpp"
#include "mps/softmax/matrix_softmax.hpp"
#include "python/source/binding/areas.hpp"

namespace python {
namespace {

void bindBases(nb::module_& module) {
  using mps::MatrixBinaryKernel;
  using mps::MatrixKernel;
  using mps::MatrixUnaryKernel;
  nb::class_<MatrixKernel, mps::Kernel> base(
      module, "MatrixKernel",
      "Base of the kernels on matrices. Matrices batch_start to batch_start + batch_size - 1 of every "
      "argument "
      "are worked on, vector k being matrix k's. An origin is the first element that is touched: x is the "
      "row, "
      "y the column. Elements are Float32 or Float16, the same in all arguments; arithmetic is float32, "
      "rounded once. What lies outside the region stays as it is.");
  property(base, "batch_start", &MatrixKernel::batchStart, &MatrixKernel::setBatchStart,
           "The first matrix. 0.");
  property(base, "batch_size", &MatrixKernel::batchSize, &MatrixKernel::setBatchSize,
           "How many matrices; more than all arguments have means all of them. All.");
  nb::class_<MatrixUnaryKernel, MatrixKernel> unary(module, "MatrixUnaryKernel",
                                                    "Base of the kernels on matrices with one source.");
  property(unary, "source_matrix_origin", &MatrixUnaryKernel::sourceMatrixOrigin,
           &MatrixUnaryKernel::setSourceMatrixOrigin, originDocumentation);
  property(unary, "result_matrix_origin", &MatrixUnaryKernel::resultMatrixOrigin,
           &MatrixUnaryKernel::setResultMatrixOrigin, originDocumentation);
  nb::class_<MatrixBinaryKernel, MatrixKernel> binary(module, "MatrixBinaryKernel",
                                                      "Base of the kernels on matrices with two sources.");
  property(binary, "primary_source_matrix_origin", &MatrixBinaryKernel::primarySourceMatrixOrigin,
           &MatrixBinaryKernel::setPrimarySourceMatrixOrigin, originDocumentation);
  property(binary, "secondary_source_matrix_origin", &MatrixBinaryKernel::secondarySourceMatrixOrigin,
           &MatrixBinaryKernel::setSecondarySourceMatrixOrigin, originDocumentation);
  property(binary, "result_matrix_origin", &MatrixBinaryKernel::resultMatrixOrigin,
           &MatrixBinaryKernel::setResultMatrixOrigin, originDocumentation);
}

void bindProducts(nb::module_& module) {
  using mps::MatrixMultiplication;
  auto product = kernelClass<MatrixMultiplication, mps::MatrixKernel>(
      module, "MatrixMultiplication",
      "C = alpha op(A) op(B) + beta C, op the identity or the transpose. op(A) is result_rows x "
      "interior_columns, op(B) interior_columns x result_columns; to be transposed, a matrix is stored the "
      "other way round. With beta 0 the old C is not read. Gradients are products, too: dA = alpha dC "
      "op(B)^T, "
      "dB = alpha op(A)^T dC.");
  product.def(
      nb::new_([](const std::shared_ptr<mtl::Device>& device, std::size_t rows, std::size_t columns,
                  std::size_t interior, bool transposeLeft, bool transposeRight, double alpha, double beta) {
        return MatrixMultiplication::create(device, transposeLeft, transposeRight, rows, columns, interior,
                                            alpha, beta);
      }),
      "device"_a, "result_rows"_a, "result_columns"_a, "interior_columns"_a, nb::kw_only(),
      "transpose_left"_a = false, "transpose_right"_a = false, "alpha"_a = 1.0, "beta"_a = 0.0,
      "alpha and beta are converted to float32.");
  property(product, "left_matrix_origin", &MatrixMultiplication::leftMatrixOrigin,
           &MatrixMultiplication::setLeftMatrixOrigin, originDocumentation);
  property(product, "right_matrix_origin", &MatrixMultiplication::rightMatrixOrigin,
           &MatrixMultiplication::setRightMatrixOrigin, originDocumentation);
  property(product, "result_matrix_origin", &MatrixMultiplication::resultMatrixOrigin,
           &MatrixMultiplication::setResultMatrixOrigin, originDocumentation);
  bindCoding(product);
  bindEncode<Single, MatrixPointer, MatrixPointer, MatrixPointer>(
      product, encodeMatrixDocumentation, "left_matrix"_a, "right_matrix"_a, "result_matrix"_a);
}

void bindSoftMaxes(nb::module_& module) {
  using mps::MatrixSoftMax;
  using mps::MatrixSoftMaxGradient;
  auto forward = kernelClass<MatrixSoftMax, mps::MatrixUnaryKernel>(
      module, "MatrixSoftMax",
      "y_ij = exp(x_ij) / sum over k of exp(x_ik): softmax of each row. Nothing overflows.");
  forward.def(nb::new_(&MatrixSoftMax::create), "device"_a);
  bindSourceSize(forward);
  bindCoding(forward);
  bindEncode<Single, MatrixPointer, MatrixPointer>(forward, encodeMatrixInPlaceDocumentation,
                                                   "input_matrix"_a, "result_matrix"_a);
  kernelClass<mps::MatrixLogSoftMax, MatrixSoftMax>(module, "MatrixLogSoftMax",
                                                    "y_ij = x_ij - ln(sum over k of exp(x_ik)).")
      .def(nb::new_(&mps::MatrixLogSoftMax::create), "device"_a);
  auto gradient = kernelClass<MatrixSoftMaxGradient, mps::MatrixBinaryKernel>(
      module, "MatrixSoftMaxGradient",
      "dx_ij = y_ij (dy_ij - sum over k of dy_ik y_ik), y being the forward RESULT, which is the secondary "
      "source.");
  gradient.def(nb::new_(&MatrixSoftMaxGradient::create), "device"_a);
  bindSourceSize(gradient);
  bindCoding(gradient);
  bindEncode<Single, MatrixPointer, MatrixPointer, MatrixPointer>(
      gradient, encodeMatrixInPlaceDocumentation, "gradient_matrix"_a, "forward_output_matrix"_a,
      "result_matrix"_a);
  kernelClass<mps::MatrixLogSoftMaxGradient, MatrixSoftMaxGradient>(
      module, "MatrixLogSoftMaxGradient",
      "dx_ij = dy_ij - exp(y_ij) sum over k of dy_ik, y being the forward RESULT.")
      .def(nb::new_(&mps::MatrixLogSoftMaxGradient::create), "device"_a);
}

constexpr const char* imageCopyDocumentation =
    "Records the copy. Raises Error before anything is recorded for a matrix of another type than the "
    "images', "
    "too small from the origin on, or otherwise unusable.";

void bindImageCopies(nb::module_& module) {
  using mps::ImageCopyToMatrix;
  using mps::MatrixCopyToImage;
  nb::class_<mps::ImageMatrixCopy, mps::Kernel> base(
      module, "ImageMatrixCopy",
      "Base of the copies between images and the rows of a matrix; whole images, all feature channels, bit "
      "by "
      "bit:\n\n"
      "    row      origin.x + index of the image; an image with number_of_images n counts as n\n"
      "    column   origin.y + (c H + y) W + x       FeatureChannelsxHeightxWidth\n"
      "             origin.y + (y W + x) C + c       HeightxWidthxFeatureChannels\n\n"
      "The gradient of either copy is the other one. The matrix has the images' type: Float32, Float16; for "
      "unorm8 Unorm8 or UInt8, for unorm16 UInt16. unorm images are sources only.");
  readOnly(base, "data_layout", &mps::ImageMatrixCopy::dataLayout, "Order of the elements of a row.");

  auto toMatrix = kernelClass<ImageCopyToMatrix, mps::ImageMatrixCopy>(
      module, "ImageCopyToMatrix",
      "Copies images to a matrix. Takes one read off each temporary source image.");
  toMatrix.def(nb::new_(&ImageCopyToMatrix::create), "device"_a,
               "data_layout"_a = mps::DataLayout::FeatureChannelsxHeightxWidth);
  property(toMatrix, "destination_matrix_origin", &ImageCopyToMatrix::destinationMatrixOrigin,
           &ImageCopyToMatrix::setDestinationMatrixOrigin, originDocumentation);
  property(toMatrix, "destination_matrix_batch_index", &ImageCopyToMatrix::destinationMatrixBatchIndex,
           &ImageCopyToMatrix::setDestinationMatrixBatchIndex, "Which of the destination's matrices. 0.");
  bindCoding(toMatrix);
  bindEncode<Single, ImagePointer, MatrixPointer>(toMatrix, imageCopyDocumentation, "source_image"_a,
                                                  "destination_matrix"_a);
  bindEncode<Batch, mps::ImageBatch, MatrixPointer>(toMatrix, imageCopyDocumentation, "source_images"_a,
                                                    "destination_matrix"_a);

  auto toImage = kernelClass<MatrixCopyToImage, mps::ImageMatrixCopy>(
      module, "MatrixCopyToImage",
      "Copies rows of a matrix to images. Takes one read off a temporary source matrix.");
  toImage.def(nb::new_(&MatrixCopyToImage::create), "device"_a,
              "data_layout"_a = mps::DataLayout::FeatureChannelsxHeightxWidth);
  property(toImage, "source_matrix_origin", &MatrixCopyToImage::sourceMatrixOrigin,
           &MatrixCopyToImage::setSourceMatrixOrigin, originDocumentation);
  property(toImage, "source_matrix_batch_index", &MatrixCopyToImage::sourceMatrixBatchIndex,
           &MatrixCopyToImage::setSourceMatrixBatchIndex, "Which of the source's matrices. 0.");
  bindCoding(toImage);
  bindEncode<Single, MatrixPointer, ImagePointer>(toImage, imageCopyDocumentation, "source_matrix"_a,
                                                  "destination_image"_a);
  bindEncode<Batch, MatrixPointer, mps::ImageBatch>(toImage, imageCopyDocumentation, "source_matrix"_a,
                                                    "destination_images"_a);
}

}  // namespace

void bindMatrixKernels(nb::module_& module) {
  bindBases(module);
  bindProducts(module);
  bindSoftMaxes(module);
  bindImageCopies(module);
}

}  // namespace python
