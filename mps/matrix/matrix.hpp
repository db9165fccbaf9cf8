#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "mps/core/array/matrix.hpp"
#include "mps/core/array/matrix_kernel.hpp"
#include "mps/core/array/vector.hpp"
#include "mps/core/kernel/kernel_class.hpp"
#include "mtl/types.hpp"

/// Products (MPSMatrixMultiplication.h). Origins, batches and types are described in
/// mps/core/array/matrix_kernel.hpp.
namespace mps {

/// C = alpha op(A) op(B) + beta C, op the identity or the transpose (MPSMatrixMultiplication).
///
/// op(A) is resultRows x interiorColumns, op(B) interiorColumns x resultColumns; to be transposed, a matrix
/// is stored the other way round. With beta 0 the old C is not read. Gradients are products too:
/// dA = alpha dC op(B)^T, dB = alpha op(A)^T dC.
///
///     auto product = mps::MatrixMultiplication::create(device, rows, columns, interior);
///     product->encode(commandBuffer, left, right, result);
class MatrixMultiplication
    : public detail::KernelClass<MatrixMultiplication, MatrixKernel, "MatrixMultiplication"> {
 public:
  /// alpha and beta are converted to float32. @throws Error unless they are finite then
  static std::shared_ptr<MatrixMultiplication> create(const std::shared_ptr<mtl::Device>& device,
                                                      bool transposeLeft, bool transposeRight,
                                                      std::size_t resultRows, std::size_t resultColumns,
                                                      std::size_t interiorColumns, double alpha, double beta);
  /// Without transposes, alpha 1, beta 0.
  static std::shared_ptr<MatrixMultiplication> create(const std::shared_ptr<mtl::Device>& device,
                                                      std::size_t resultRows, std::size_t resultColumns,
                                                      std::size_t interiorColumns);
  [[nodiscard]] const mtl::Origin& leftMatrixOrigin() const { return leftMatrixOrigin_; }
  void setLeftMatrixOrigin(const mtl::Origin& origin) { leftMatrixOrigin_ = origin; }
  [[nodiscard]] const mtl::Origin& rightMatrixOrigin() const { return rightMatrixOrigin_; }
  void setRightMatrixOrigin(const mtl::Origin& origin) { rightMatrixOrigin_ = origin; }
  [[nodiscard]] const mtl::Origin& resultMatrixOrigin() const { return resultMatrixOrigin_; }
  void setResultMatrixOrigin(const mtl::Origin& origin) { resultMatrixOrigin_ = origin; }

  /// A temporary result keeps its readCount. @throws Error for types that are not Float32 or Float16 or
  /// differ, for matrices too small from their origin on, or a result that shares elements with a factor.
  using Kernel::encode;
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<Matrix>& leftMatrix, const std::shared_ptr<Matrix>& rightMatrix,
              const std::shared_ptr<Matrix>& resultMatrix);

 protected:
  using KernelClass::KernelClass;
  MatrixMultiplication(std::shared_ptr<mtl::Device> device, bool transposeLeft, bool transposeRight,
                       std::size_t resultRows, std::size_t resultColumns, std::size_t interiorColumns,
                       double alpha, double beta);
  MatrixMultiplication(const MatrixMultiplication&) = default;
  void codeProperties(Coder& coder) override;

 private:
  friend KernelClass;
  bool transposeLeft_ = false;
  bool transposeRight_ = false;
  std::size_t resultRows_ = 0;
  std::size_t resultColumns_ = 0;
  std::size_t interiorColumns_ = 0;
  double alpha_ = 1;
  double beta_ = 0;
  mtl::Origin leftMatrixOrigin_;
  mtl::Origin rightMatrixOrigin_;
  mtl::Origin resultMatrixOrigin_;
};

/// y = alpha op(A) x + beta y, op the identity or the transpose (MPSMatrixVectorMultiplication).
///
/// op(A) is rows x columns. primarySourceMatrixOrigin belongs to A; the x of secondarySourceMatrixOrigin and
/// resultMatrixOrigin is the first element of x and y, their y is 0. With beta 0 the old y is not read.
class MatrixVectorMultiplication : public detail::KernelClass<MatrixVectorMultiplication, MatrixBinaryKernel,
                                                              "MatrixVectorMultiplication"> {
 public:
  static std::shared_ptr<MatrixVectorMultiplication> create(const std::shared_ptr<mtl::Device>& device,
                                                            bool transpose, std::size_t rows,
                                                            std::size_t columns, double alpha, double beta);
  /// Without transpose, alpha 1, beta 0.
  static std::shared_ptr<MatrixVectorMultiplication> create(const std::shared_ptr<mtl::Device>& device,
                                                            std::size_t rows, std::size_t columns);

  /// @throws Error as MatrixMultiplication::encode
  using Kernel::encode;
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<Matrix>& inputMatrix, const std::shared_ptr<Vector>& inputVector,
              const std::shared_ptr<Vector>& resultVector);

 protected:
  using KernelClass::KernelClass;
  MatrixVectorMultiplication(std::shared_ptr<mtl::Device> device, bool transpose, std::size_t rows,
                             std::size_t columns, double alpha, double beta);
  MatrixVectorMultiplication(const MatrixVectorMultiplication&) = default;
  void codeProperties(Coder& coder) override;

 private:
  friend KernelClass;
  bool transpose_ = false;
  std::size_t rows_ = 0;
  std::size_t columns_ = 0;
  double alpha_ = 1;
  double beta_ = 0;
};

}  // namespace mps
