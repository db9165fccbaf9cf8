#include "mps/core/array/matrix_call.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "mps/core/array/array_storage.hpp"
#include "mps/core/types/error.hpp"
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

/// Matrices, or vectors, each of which is a row, as they are in memory.
struct StoredArrays {
  std::size_t count = 0;
  std::size_t stride = 0;  ///< bytes from one to the next
  std::size_t rows = 0;
  std::size_t rowBytes = 0;
  std::size_t columns = 0;
  DataType dataType = DataType::Float32;
};

/// Strides that do not count may be anything: they become those without gaps, and 0 where there is no element.
TensorShape tensorOf(const Kernel& kernel, const char* argument, const StoredArrays& arrays) {
  checkSize(kernel, argument, arrays.dataType);
  const std::size_t size = sizeInBytes(arrays.dataType);
  TensorShape shape;
  shape.images = static_cast<std::int64_t>(arrays.count);
  shape.height = static_cast<std::int64_t>(arrays.rows);
  shape.width = 1;
  shape.channels = static_cast<std::int64_t>(arrays.columns);
  shape.pixelStride = shape.channels;
  shape.format = formatOf(size, arrays.dataType);
  if (arrays.count == 0 || arrays.rows == 0 || arrays.columns == 0) return shape;
  // What is allocated at first use may be any size.
  const std::size_t bytes =
      (arrays.count - 1) * arrays.stride + (arrays.rows - 1) * arrays.rowBytes + arrays.columns * size;
  if (bytes > static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max()))
    throw Error(kernel.describe(), argument, std::to_string(bytes) + " bytes", "less than 2^63");
  const auto elements = [&](std::size_t stride) { return static_cast<std::int64_t>(stride / size); };
  shape.rowStride = arrays.rows > 1 ? elements(arrays.rowBytes) : shape.channels;
  shape.imageStride =
      arrays.count > 1 ? elements(arrays.stride) : (shape.height - 1) * shape.rowStride + shape.channels;
  return shape;
}

std::string sizeText(std::size_t rows, std::size_t columns) {
  return std::to_string(rows) + "x" + std::to_string(columns);
}

}  // namespace

TensorShape tensorOf(const Kernel& kernel, const char* argument, mtl::CommandBuffer& commandBuffer,
                     const std::shared_ptr<Matrix>& matrix, bool isRead) {
  if (!matrix) throw Error(kernel.describe(), argument, "null", "a matrix");
  matrix->storage().check(kernel, argument, commandBuffer, isRead);
  return tensorOf(kernel, argument,
                  StoredArrays{matrix->matrices(), matrix->matrixBytes(), matrix->rows(), matrix->rowBytes(),
                               matrix->columns(), matrix->dataType()});
}

TensorShape tensorOf(const Kernel& kernel, const char* argument, mtl::CommandBuffer& commandBuffer,
                     const std::shared_ptr<Vector>& vector, bool isRead) {
  if (!vector) throw Error(kernel.describe(), argument, "null", "a vector");
  vector->storage().check(kernel, argument, commandBuffer, isRead);
  return tensorOf(kernel, argument,
                  StoredArrays{vector->vectors(), vector->vectorBytes(), 1, vector->vectorBytes(),
                               vector->length(), vector->dataType()});
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
  if (!region.isEmpty())
    region.firstElement = whole.offset(static_cast<std::int64_t>(first), static_cast<std::int64_t>(origin.x),
                                       0, static_cast<std::int64_t>(origin.y));
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
