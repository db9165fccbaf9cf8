#include "mps/core/matrix_call.hpp"

#include <algorithm>
#include <string>

#include "mps/core/array_storage.hpp"
#include "mps/core/error.hpp"
#include "mtl/buffer.hpp"
#include "mtl/memory.hpp"

namespace mps::detail {
namespace {

ImageFeatureChannelFormat formatOf(std::size_t elementSize, DataType dataType) {
  if (dataType == DataType::Float16) return ImageFeatureChannelFormat::Float16;
  if (elementSize == 4) return ImageFeatureChannelFormat::Float32;
  return elementSize == 2 ? ImageFeatureChannelFormat::Unorm16 : ImageFeatureChannelFormat::Unorm8;
}

void checkSize(const Kernel& kernel, const char* argument, DataType dataType) {
  if (sizeInBytes(dataType) > 4)
    throw Error(kernel.describe(), argument, name(dataType), "elements of at most 4 bytes");
}

/// In elements; of several arrays only, of which it is a multiple of their size.
std::int64_t elements(std::size_t bytes, DataType dataType) {
  return static_cast<std::int64_t>(bytes / sizeInBytes(dataType));
}

std::string sizeText(std::size_t rows, std::size_t columns) {
  return std::to_string(rows) + "x" + std::to_string(columns);
}

}  // namespace

TensorShape tensorOf(const Kernel& kernel, const char* argument, mtl::CommandBuffer& commandBuffer,
                     const std::shared_ptr<Matrix>& matrix, bool isRead) {
  if (!matrix) throw Error(kernel.describe(), argument, "null", "a matrix");
  matrix->storage().check(kernel, argument, commandBuffer, isRead);
  const DataType type = matrix->dataType();
  checkSize(kernel, argument, type);
  const auto rows = static_cast<std::int64_t>(matrix->rows());
  const auto columns = static_cast<std::int64_t>(matrix->columns());
  const std::int64_t rowStride = elements(matrix->rowBytes(), type);
  return {static_cast<std::int64_t>(matrix->matrices()),
          rows,
          1,
          columns,
          matrix->matrices() > 1 ? elements(matrix->matrixBytes(), type) : rows * rowStride,
          rowStride,
          columns,
          formatOf(sizeInBytes(type), type)};
}

TensorShape tensorOf(const Kernel& kernel, const char* argument, mtl::CommandBuffer& commandBuffer,
                     const std::shared_ptr<Vector>& vector, bool isRead) {
  if (!vector) throw Error(kernel.describe(), argument, "null", "a vector");
  vector->storage().check(kernel, argument, commandBuffer, isRead);
  const DataType type = vector->dataType();
  checkSize(kernel, argument, type);
  const auto length = static_cast<std::int64_t>(vector->length());
  return {static_cast<std::int64_t>(vector->vectors()),
          1,
          1,
          length,
          vector->vectors() > 1 ? elements(vector->vectorBytes(), type) : length,
          length,
          length,
          formatOf(sizeInBytes(type), type)};
}

MatrixRegion regionOf(const Kernel& kernel, const char* argument, const TensorShape& whole,
                      const mtl::Origin& origin, std::size_t first, std::size_t count, std::size_t rows,
                      std::size_t columns) {
  const auto wholeRows = static_cast<std::size_t>(whole.height);
  const auto wholeColumns = static_cast<std::size_t>(whole.channels);
  if (origin.z != 0)
    throw Error(kernel.describe(), std::string("origin of ") + argument, "z " + std::to_string(origin.z),
                "z 0");
  if (origin.x > wholeRows || origin.y > wholeColumns || rows > wholeRows - origin.x ||
      columns > wholeColumns - origin.y)
    throw Error(kernel.describe(), argument, sizeText(wholeRows, wholeColumns),
                "at least " + sizeText(rows, columns) + " from row " + std::to_string(origin.x) +
                    ", column " + std::to_string(origin.y) + " on");
  const auto matrices = static_cast<std::size_t>(whole.images);
  if (first > matrices || count > matrices - first)
    throw Error(kernel.describe(), argument, std::to_string(matrices) + " matrices",
                "at least " + std::to_string(count) + " from " + std::to_string(first) + " on");
  MatrixRegion region;
  region.shape = whole;
  region.shape.images = static_cast<std::int64_t>(count);
  region.shape.height = static_cast<std::int64_t>(rows);
  region.shape.channels = static_cast<std::int64_t>(columns);
  region.shape.pixelStride = region.shape.channels;
  region.firstElement = whole.offset(static_cast<std::int64_t>(first), static_cast<std::int64_t>(origin.x), 0,
                                     static_cast<std::int64_t>(origin.y));
  return region;
}

BatchOperand operandOf(ArrayStorage& storage, const MatrixRegion& region) {
  const std::size_t byteOffset =
      storage.offset() + static_cast<std::size_t>(region.firstElement) * bytesPerChannel(region.shape.format);
  return BatchOperand::ofMemory(region.shape, storage.buffer()->memory(), byteOffset, !storage.isTemporary());
}

ByteRows rowsOf(const ArrayStorage& storage, const MatrixRegion& region) {
  const TensorShape& shape = region.shape;
  const auto size = static_cast<std::int64_t>(bytesPerChannel(shape.format));
  return {static_cast<std::int64_t>(storage.offset()) + region.firstElement * size,
          shape.images,
          shape.imageStride * size,
          shape.height,
          shape.rowStride * size,
          shape.channels * size};
}

bool overlap(ArrayStorage& one, const MatrixRegion& oneRegion, ArrayStorage& other,
             const MatrixRegion& otherRegion) {
  if (oneRegion.isEmpty() || otherRegion.isEmpty()) return false;
  return one.buffer()->memory() == other.buffer()->memory() &&
         overlap(rowsOf(one, oneRegion), rowsOf(other, otherRegion));
}

std::size_t batchCount(const Kernel& kernel, std::size_t batchStart, std::size_t batchSize,
                       std::size_t available) {
  if (batchStart > available)
    throw Error(kernel.describe(), "batchStart", std::to_string(batchStart),
                "at most the number of matrices, " + std::to_string(available));
  return std::min(batchSize, available - batchStart);
}

}  // namespace mps::detail
