#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <string>

#include "mps/core/array/matrix.hpp"
#include "mps/core/array/matrix_kernel.hpp"
#include "mps/core/kernel/kernel_class.hpp"

/// Softmax and log-softmax of the rows of matrices, one row per sample (MPSMatrixSoftMax.h). The
/// largest value of a row with large values is subtracted before the exponential, so nothing overflows; a row's results have
/// the same bits wherever it lies. Origins, batches and types are described in mps/core/array/matrix_kernel.hpp.
namespace mps {

/// y_ij = exp(x_ij) / sum_k exp(x_ik) (MPSMatrixSoftMax).
class MatrixSoftMax : public detail::KernelClass<MatrixSoftMax, MatrixUnaryKernel, "MatrixSoftMax"> {
 public:
  static std::shared_ptr<MatrixSoftMax> create(const std::shared_ptr<mtl::Device>& device);
  /// Rows, at most those of the input from its origin on. All.
  [[nodiscard]] std::size_t sourceRows() const { return sourceRows_; }
  void setSourceRows(std::size_t rows) { sourceRows_ = rows; }
  /// Elements of a row, likewise. All.
  [[nodiscard]] std::size_t sourceColumns() const { return sourceColumns_; }
  void setSourceColumns(std::size_t columns) { sourceColumns_ = columns; }

  /// The result may be the very region of the input. @throws Error for types that are not Float32 or Float16 or
  /// differ, an origin outside its matrix, a result that is too small or shares other elements with the input.
  using Kernel::encode;
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<Matrix>& inputMatrix, const std::shared_ptr<Matrix>& resultMatrix);

 protected:
  using KernelClass::KernelClass;
  MatrixSoftMax(const MatrixSoftMax&) = default;
  void codeProperties(Coder& coder) override;
  [[nodiscard]] virtual bool isLogarithm() const { return false; }

 private:
  friend KernelClass;
  std::size_t sourceRows_ = std::numeric_limits<std::size_t>::max();
  std::size_t sourceColumns_ = std::numeric_limits<std::size_t>::max();
};

/// y_ij = x_ij - ln sum_k exp(x_ik) (MPSMatrixLogSoftMax).
class MatrixLogSoftMax : public detail::KernelClass<MatrixLogSoftMax, MatrixSoftMax, "MatrixLogSoftMax"> {
 public:
  static std::shared_ptr<MatrixLogSoftMax> create(const std::shared_ptr<mtl::Device>& device);

 protected:
  using KernelClass::KernelClass;
  MatrixLogSoftMax(const MatrixLogSoftMax&) = default;
  [[nodiscard]] bool isLogarithm() const override { return true; }

 private:
  friend KernelClass;
};

/// dx_ij = y_ij (dy_ij - sum_k dy_ik y_ik), y being the forward RESULT (MPSMatrixSoftMaxGradient). The primary source
/// is the incoming gradient, the secondary one the forward result.
///
///     auto softMax = mps::MatrixSoftMax::create(device);
///     softMax->encode(commandBuffer, x, y);
///     auto gradient = mps::MatrixSoftMaxGradient::create(device);
///     gradient->encode(commandBuffer, dy, y, dx);
class MatrixSoftMaxGradient
    : public detail::KernelClass<MatrixSoftMaxGradient, MatrixBinaryKernel, "MatrixSoftMaxGradient"> {
 public:
  static std::shared_ptr<MatrixSoftMaxGradient> create(const std::shared_ptr<mtl::Device>& device);
  /// Rows, at most those of both sources from their origins on. All.
  [[nodiscard]] std::size_t sourceRows() const { return sourceRows_; }
  void setSourceRows(std::size_t rows) { sourceRows_ = rows; }
  /// Elements of a row, likewise. All.
  [[nodiscard]] std::size_t sourceColumns() const { return sourceColumns_; }
  void setSourceColumns(std::size_t columns) { sourceColumns_ = columns; }

  /// The result may be the very region of either source. @throws Error as MatrixSoftMax::encode
  using Kernel::encode;
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<Matrix>& gradientMatrix,
              const std::shared_ptr<Matrix>& forwardOutputMatrix,
              const std::shared_ptr<Matrix>& resultMatrix);

 protected:
  using KernelClass::KernelClass;
  MatrixSoftMaxGradient(const MatrixSoftMaxGradient&) = default;
  void codeProperties(Coder& coder) override;
  [[nodiscard]] virtual bool isLogarithm() const { return false; }

 private:
  friend KernelClass;
  std::size_t sourceRows_ = std::numeric_limits<std::size_t>::max();
  std::size_t sourceColumns_ = std::numeric_limits<std::size_t>::max();
};

/// dx_ij = dy_ij - exp(y_ij) sum_k dy_ik (MPSMatrixLogSoftMaxGradient). Apple's header has the sum inside the
/// exponential, which is not the derivative.
///
///     auto logSoftMax = mps::MatrixLogSoftMax::create(device);
///     logSoftMax->encode(commandBuffer, x, y);
///     auto gradient = mps::MatrixLogSoftMaxGradient::create(device);
///     gradient->encode(commandBuffer, dy, y, dx);
class MatrixLogSoftMaxGradient : public detail::KernelClass<MatrixLogSoftMaxGradient, MatrixSoftMaxGradient,
                                                            "MatrixLogSoftMaxGradient"> {
 public:
  static std::shared_ptr<MatrixLogSoftMaxGradient> create(const std::shared_ptr<mtl::Device>& device);

 protected:
  using KernelClass::KernelClass;
  MatrixLogSoftMaxGradient(const MatrixLogSoftMaxGradient&) = default;
  [[nodiscard]] bool isLogarithm() const override { return true; }

 private:
  friend KernelClass;
};

}  // namespace mps
