#include "mps/core/array/matrix.hpp"

#include "mps/core/array/array_storage.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/coding/core_decoders.hpp"
#include "mps/core/types/error.hpp"

namespace mps {
namespace {

constexpr const char* kMatrixDescriptor = "MatrixDescriptor";

void checkRowBytes(std::size_t rowBytes, std::size_t columns, DataType dataType) {
  detail::checkElementType(kMatrixDescriptor, dataType);
  const std::size_t size = sizeInBytes(dataType);
  const std::size_t least = detail::checkedProduct(kMatrixDescriptor, columns, size);
  if (rowBytes % size != 0 || rowBytes < least)
    throw Error(kMatrixDescriptor, "rowBytes", std::to_string(rowBytes),
                "a multiple of " + std::to_string(size) + " from " + std::to_string(least) + " on");
}

void checkMatrixBytes(std::size_t matrixBytes, std::size_t rows, std::size_t rowBytes) {
  const std::size_t least = detail::checkedProduct(kMatrixDescriptor, rows, rowBytes);
  if (matrixBytes < least || (rowBytes != 0 && matrixBytes % rowBytes != 0))
    throw Error(
        kMatrixDescriptor, "matrixBytes", std::to_string(matrixBytes),
        "a multiple of rowBytes " + std::to_string(rowBytes) + " from " + std::to_string(least) + " on");
}

detail::ArrayExtent extentOf(const MatrixDescriptor& descriptor) {
  // The setters may have changed what the strides were chosen for.
  checkRowBytes(descriptor.rowBytes(), descriptor.columns(), descriptor.dataType());
  if (descriptor.matrices() > 1)
    checkMatrixBytes(descriptor.matrixBytes(), descriptor.rows(), descriptor.rowBytes());
  // At most rows * rowBytes, so the sum has an end.
  const std::size_t whole =
      detail::checkedProduct(kMatrixDescriptor, descriptor.rows(), descriptor.rowBytes());
  const std::size_t lastRow = descriptor.columns() * sizeInBytes(descriptor.dataType());
  const std::size_t itemBytes =
      descriptor.rows() == 0 || lastRow == 0 ? 0 : whole - descriptor.rowBytes() + lastRow;
  return {descriptor.matrices(), descriptor.matrixBytes(), itemBytes};
}

}  // namespace

MatrixDescriptor MatrixDescriptor::create(std::size_t rows, std::size_t columns, std::size_t rowBytes,
                                          DataType dataType) {
  checkRowBytes(rowBytes, columns, dataType);
  return {rows, columns, 1, rowBytes, detail::checkedProduct(kMatrixDescriptor, rows, rowBytes), dataType};
}

MatrixDescriptor MatrixDescriptor::create(std::size_t rows, std::size_t columns, std::size_t matrices,
                                          std::size_t rowBytes, std::size_t matrixBytes, DataType dataType) {
  checkRowBytes(rowBytes, columns, dataType);
  checkMatrixBytes(matrixBytes, rows, rowBytes);
  return {rows, columns, matrices, rowBytes, matrixBytes, dataType};
}

std::size_t MatrixDescriptor::rowBytes(std::size_t columns, DataType dataType) {
  detail::checkElementType(kMatrixDescriptor, dataType);
  return detail::recommendedStride(kMatrixDescriptor, columns, dataType);
}

void MatrixDescriptor::encode(Coder& coder) const {
  MatrixDescriptor(*this).codeFields(coder);
}

MatrixDescriptor MatrixDescriptor::decode(Coder& coder) {
  detail::checkDecodes(coder, kMatrixDescriptor);
  MatrixDescriptor descriptor(0, 0, 0, 0, 0, DataType::Float32);
  descriptor.codeFields(coder);
  return descriptor;
}

void MatrixDescriptor::codeFields(Coder& coder) {
  coder.codeClass(kMatrixDescriptor);
  coder.code("rows", rows_);
  coder.code("columns", columns_);
  coder.code("matrices", matrices_);
  coder.code("rowBytes", rowBytes_);
  coder.code("matrixBytes", matrixBytes_);
  detail::codeElementType(coder, dataType_);
}

Matrix::Matrix(std::unique_ptr<detail::ArrayStorage> storage, const MatrixDescriptor& descriptor)
    : Array(std::move(storage)), descriptor_(descriptor) {}

std::shared_ptr<Matrix> Matrix::create(std::shared_ptr<mtl::Buffer> buffer,
                                       const MatrixDescriptor& descriptor, std::size_t offset) {
  return std::shared_ptr<Matrix>(
      new Matrix(std::make_unique<detail::ArrayStorage>("Matrix", std::move(buffer), offset,
                                                        extentOf(descriptor), descriptor.dataType()),
                 descriptor));
}

std::shared_ptr<Matrix> Matrix::create(std::shared_ptr<mtl::Device> device,
                                       const MatrixDescriptor& descriptor) {
  return std::shared_ptr<Matrix>(new Matrix(
      std::make_unique<detail::ArrayStorage>("Matrix", std::move(device), extentOf(descriptor)), descriptor));
}

std::shared_ptr<TemporaryMatrix> TemporaryMatrix::create(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const MatrixDescriptor& descriptor) {
  return std::shared_ptr<TemporaryMatrix>(new TemporaryMatrix(
      std::make_unique<detail::ArrayStorage>("TemporaryMatrix", commandBuffer, extentOf(descriptor)),
      descriptor));
}

void TemporaryMatrix::prefetchStorage(const std::shared_ptr<mtl::CommandBuffer>& /*commandBuffer*/,
                                      std::span<const MatrixDescriptor> /*descriptors*/) {}

}  // namespace mps
