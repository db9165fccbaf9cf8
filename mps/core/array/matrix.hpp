#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "mps/core/array/array.hpp"
#include "mps/core/types/types.hpp"

namespace mtl {
class Buffer;
class CommandBuffer;
class Device;
}  // namespace mtl

namespace mps {

class Coder;

/// Sizes and type of matrices (MPSMatrixDescriptor). A value; a matrix that was made
/// from it does not see later changes.
class MatrixDescriptor {
 public:
  /// One matrix; matrixBytes is rows * rowBytes. @param rowBytes from one row to the next, a multiple of the
  /// element size, at least one row; 0 only for 0 columns. @throws Error for other strides and for a type of
  /// no whole bytes.
  static MatrixDescriptor create(std::size_t rows, std::size_t columns, std::size_t rowBytes,
                                 DataType dataType);
  /// @param matrixBytes from one matrix to the next, a multiple of rowBytes, at least rows * rowBytes
  static MatrixDescriptor create(std::size_t rows, std::size_t columns, std::size_t matrices,
                                 std::size_t rowBytes, std::size_t matrixBytes, DataType dataType);
  /// Apple's name of create. @{
  static MatrixDescriptor matrixDescriptor(std::size_t rows, std::size_t columns, std::size_t rowBytes,
                                           DataType dataType) {
    return create(rows, columns, rowBytes, dataType);
  }
  static MatrixDescriptor matrixDescriptor(std::size_t rows, std::size_t columns, std::size_t matrices,
                                           std::size_t rowBytes, std::size_t matrixBytes, DataType dataType) {
    return create(rows, columns, matrices, rowBytes, matrixBytes, dataType);
  }
  /// @}
  /// The recommended stride: one element for 1 column, else floating types to 16 bytes, integers to 4
  /// elements: 5 columns of Float32 take 32 bytes. Any legal stride is as good. @throws Error for a type that has no whole
  /// bytes and when the stride is more than memory can have.
  static std::size_t rowBytes(std::size_t columns, DataType dataType);

  [[nodiscard]] std::size_t rows() const { return rows_; }
  void setRows(std::size_t rows) { rows_ = rows; }
  [[nodiscard]] std::size_t columns() const { return columns_; }
  void setColumns(std::size_t columns) { columns_ = columns; }
  [[nodiscard]] std::size_t matrices() const { return matrices_; }
  [[nodiscard]] DataType dataType() const { return dataType_; }
  void setDataType(DataType dataType) { dataType_ = dataType; }
  [[nodiscard]] std::size_t rowBytes() const { return rowBytes_; }
  void setRowBytes(std::size_t rowBytes) { rowBytes_ = rowBytes; }
  /// Fixed when the descriptor is made; only several matrices use it.
  [[nodiscard]] std::size_t matrixBytes() const { return matrixBytes_; }

  void encode(Coder& coder) const;
  /// Strides are checked when a matrix is made. @throws Error for a type that does not exist
  static MatrixDescriptor decode(Coder& coder);
  bool operator==(const MatrixDescriptor&) const = default;

 private:
  void codeFields(Coder& coder);
  MatrixDescriptor(std::size_t rows, std::size_t columns, std::size_t matrices, std::size_t rowBytes,
                   std::size_t matrixBytes, DataType dataType)
      : rows_(rows),
        columns_(columns),
        matrices_(matrices),
        rowBytes_(rowBytes),
        matrixBytes_(matrixBytes),
        dataType_(dataType) {}
  std::size_t rows_;
  std::size_t columns_;
  std::size_t matrices_;
  std::size_t rowBytes_;
  std::size_t matrixBytes_;
  DataType dataType_;
};

/// One or several matrices in a buffer, stored by rows (MPSMatrix).
/// Element (i, j) of matrix k lies at
/// data()->contents() + offset() + k * matrixBytes() + i * rowBytes() + j * size of the type.
/// What the descriptor says is checked and taken over when the matrix is made; it may have no elements.
/// Kernels neither read nor write the gaps between rows.
class Matrix : public detail::Array {
 public:
  /// Shares the buffer, which holds at least offset + (matrices - 1) * matrixBytes + (rows - 1) * rowBytes +
  /// columns * size bytes: no gap behind the last row. @param offset in bytes, a multiple of the element size
  /// @throws Error when rows or matrices overlap or leave the buffer.
  static std::shared_ptr<Matrix> create(std::shared_ptr<mtl::Buffer> buffer,
                                        const MatrixDescriptor& descriptor, std::size_t offset = 0);
  /// With a zero-filled buffer of its own of matrices * matrixBytes bytes, allocated at first use.
  static std::shared_ptr<Matrix> create(std::shared_ptr<mtl::Device> device,
                                        const MatrixDescriptor& descriptor);

  [[nodiscard]] std::size_t rows() const { return descriptor_.rows(); }
  [[nodiscard]] std::size_t columns() const { return descriptor_.columns(); }
  [[nodiscard]] std::size_t matrices() const { return descriptor_.matrices(); }
  [[nodiscard]] std::size_t rowBytes() const { return descriptor_.rowBytes(); }
  [[nodiscard]] std::size_t matrixBytes() const { return descriptor_.matrixBytes(); }
  [[nodiscard]] DataType dataType() const { return descriptor_.dataType(); }

 protected:
  Matrix(std::unique_ptr<detail::ArrayStorage> storage, const MatrixDescriptor& descriptor);

 private:
  MatrixDescriptor descriptor_;
};

/// Scratch matrix of one command buffer (MPSTemporaryMatrix). Its memory is private (no
/// host address), undefined at first, and serves others once readCount is 0: each encode that reads it takes
/// 1 off.
class TemporaryMatrix : public Matrix {
 public:
  /// @throws Error after commit.
  static std::shared_ptr<TemporaryMatrix> create(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                                 const MatrixDescriptor& descriptor);
  /// A hint without effect.
  static void prefetchStorage(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                              std::span<const MatrixDescriptor> descriptors);
  using Matrix::readCount;
  using Matrix::setReadCount;

 private:
  using Matrix::Matrix;
};

}  // namespace mps
