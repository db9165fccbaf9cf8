#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mps/conform/compare.hpp"
#include "mps/conform/conform.hpp"
#include "mps/core/array/matrix.hpp"
#include "mps/core/array/vector.hpp"
#include "mtl/buffer.hpp"
#include "mtl/types.hpp"

/// Matrices and vectors for the public matrix kernels, and what is around the elements that a kernel may touch.
namespace mps::detail {

inline DataType dataTypeOf(ImageFeatureChannelFormat format) {
  switch (format) {
    case ImageFeatureChannelFormat::Unorm8:
      return DataType::UInt8;
    case ImageFeatureChannelFormat::Unorm16:
      return DataType::UInt16;
    case ImageFeatureChannelFormat::Float16:
      return DataType::Float16;
    default:
      return DataType::Float32;
  }
}

/// An array of a kernel's arguments, in memory with a frame of other elements around its region.
struct TestArray {
  TensorShape shape;                    ///< of the region
  std::shared_ptr<mtl::Buffer> buffer;  ///< the whole
  std::size_t firstByte = 0;            ///< of the region
  ReferenceTensor before;               ///< the region as it was
  std::vector<std::byte> bytes;         ///< the whole as it was

  [[nodiscard]] std::vector<double> read() const { return readTensor(shape, buffer->contents() + firstByte); }
  /// Of one of the matrices or vectors.
  [[nodiscard]] std::vector<double> read(std::int64_t index) const { return partOf(read(), index); }
  [[nodiscard]] ReferenceTensor beforeOf(std::int64_t index) const {
    ReferenceTensor one(1, shape.height, 1, shape.channels);
    one.values = partOf(before.values, index);
    return one;
  }
  [[nodiscard]] bool isUnchanged() const { return stored() == bytes; }
  /// Whether nothing but the region was written.
  [[nodiscard]] bool surroundingsIntact() const {
    std::vector<std::byte> found = stored();
    writeTensor(shape, found.data() + firstByte, before.values);
    return found == bytes;
  }

 protected:
  /// To be called when shape and memory stand.
  void write(std::span<const double> values) {
    before = ReferenceTensor(shape.images, shape.height, 1, shape.channels);
    writeTensor(shape, buffer->contents() + firstByte, values);
    before.values = read();
    buffer->didModifyRange(0, buffer->length());
    bytes = stored();
  }

 private:
  [[nodiscard]] std::vector<double> partOf(const std::vector<double>& values, std::int64_t index) const {
    const auto first = values.begin() + index * shape.height * shape.channels;
    return {first, first + shape.height * shape.channels};
  }
  [[nodiscard]] std::vector<std::byte> stored() const {
    const auto contents = buffer->contentsAs<const std::byte>();
    return {contents.begin(), contents.end()};
  }
};

struct TestMatrix : TestArray {
  static constexpr std::size_t kRow = 2;
  static constexpr std::size_t kColumn = 3;
  static constexpr mtl::Origin origin{kRow, kColumn, 0};

  std::shared_ptr<Matrix> matrix;

  /// @param region dense: images matrices of height rows and channels columns
  TestMatrix(ConformRun& run, const TensorShape& region, std::span<const double> values) {
    const DataType type = dataTypeOf(region.format);
    const std::size_t columns = static_cast<std::size_t>(region.channels) + kColumn + 1;
    const std::size_t rows = static_cast<std::size_t>(region.height) + kRow + 1;
    const std::size_t rowBytes = MatrixDescriptor::rowBytes(columns, type);
    const auto matrices = static_cast<std::size_t>(region.images);
    // With a row behind the last one: what is written there is seen.
    matrix = Matrix::create(
        run.device()->newBuffer((matrices * rows + 1) * rowBytes),
        MatrixDescriptor::matrixDescriptor(rows, columns, matrices, rowBytes, rows * rowBytes, type));
    shape = region;
    shape.rowStride = static_cast<std::int64_t>(rowBytes / sizeInBytes(type));
    shape.imageStride = static_cast<std::int64_t>(rows) * shape.rowStride;
    buffer = matrix->data();
    firstByte = kRow * rowBytes + kColumn * sizeInBytes(type);
    write(values);
  }
  TestMatrix(ConformRun& run, const TensorShape& region, RandomKind kind)
      : TestMatrix(run, region, run.values(static_cast<std::size_t>(region.elements()), kind)) {}
};

struct TestVector : TestArray {
  static constexpr std::size_t kFirst = 2;

  std::shared_ptr<Vector> vector;

  /// @param first element of the region in each vector
  TestVector(ConformRun& run, std::int64_t length, std::int64_t vectors, std::span<const double> values,
             std::size_t first = 0) {
    const DataType type = dataTypeOf(run.format());
    const std::size_t whole = static_cast<std::size_t>(length) + first + 1;
    const std::size_t vectorBytes = VectorDescriptor::vectorBytes(whole, type);
    vector = Vector::create(run.device(), VectorDescriptor::vectorDescriptor(
                                              whole, static_cast<std::size_t>(vectors), vectorBytes, type));
    shape = TensorShape::dense(vectors, 1, 1, length, run.format());
    shape.imageStride = static_cast<std::int64_t>(vectorBytes / sizeInBytes(type));
    buffer = vector->data();
    firstByte = first * sizeInBytes(type);
    write(values);
  }
  TestVector(ConformRun& run, std::int64_t length, std::int64_t vectors, RandomKind kind)
      : TestVector(run, length, vectors, run.values(static_cast<std::size_t>(length * vectors), kind),
                   kFirst) {}
};

/// Encodes and waits, then checks that the sources are as they were and what is around the results, too. False when the
/// implementation refuses.
inline bool encodeMatrices(ConformRun& run, const std::vector<const TestArray*>& sources,
                           const std::vector<const TestArray*>& results,
                           const std::function<void(const std::shared_ptr<mtl::CommandBuffer>&)>& encode) {
  const bool accepted = run.encode([&](const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
    encode(commandBuffer);
    for (const auto* arrays : {&sources, &results})
      for (const TestArray* array : *arrays) array->buffer->synchronize(*commandBuffer);
  });
  if (!accepted) return false;
  for (const TestArray* source : sources) run.require(source->isUnchanged(), "a source was written");
  for (const TestArray* result : results)
    run.require(result->surroundingsIntact(), "memory around the result was written");
  return true;
}

/// Sizes of matrices for kernels that treat rows as samples.
struct MatrixSize {
  std::string name;
  std::int64_t matrices = 1;
  std::int64_t rows = 1;
  std::int64_t columns = 1;

  [[nodiscard]] TensorShape shape(ImageFeatureChannelFormat format) const {
    return TensorShape::dense(matrices, rows, 1, columns, format);
  }
};

inline std::vector<MatrixSize> matrixSizes() {
  return {
      {.name = "MatrixOfOneElement"},
      {.name = "MatrixOfOneRow", .rows = 1, .columns = 300},
      {.name = "MatrixOfOneColumn", .rows = 70, .columns = 1},
      {.name = "Matrix64x10", .rows = 64, .columns = 10},
      {.name = "Matrix33x16", .rows = 33, .columns = 16},
      {.name = "Matrices7x21", .matrices = 4, .rows = 7, .columns = 21},
      {.name = "Matrices40x64", .matrices = 2, .rows = 40, .columns = 64},
      {.name = "Matrix140x300", .rows = 140, .columns = 300},
      {.name = "Matrix5x1000", .rows = 5, .columns = 1000},
      {.name = "Matrix3x2500", .rows = 3, .columns = 2500},
  };
}

}  // namespace mps::detail
