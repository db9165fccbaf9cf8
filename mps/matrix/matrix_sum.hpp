#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "mps/core/array/matrix.hpp"
#include "mps/core/array/vector.hpp"
#include "mps/core/kernel/kernel.hpp"
#include "mps/core/kernel/kernel_class.hpp"
#include "mps/core/neuron/kernel_neuron.hpp"
#include "mtl/types.hpp"

/// Sums of matrices (MPSMatrixSum.h).
namespace mps {

/// Where a kernel begins to read a matrix, as vectors of type UInt32 hold it (MPSMatrixOffset).
struct MatrixOffset {
  std::uint32_t rowOffset = 0;
  std::uint32_t columnOffset = 0;
};
static_assert(sizeof(MatrixOffset) == 8);

/// R = f(sum_k scale_k B_k + bias), transposed before the bias is added where asked (MPSMatrixSum). B_k are the first
/// `rows` x `columns` elements of the first matrix of each source, from the source's offset on. The bias belongs to the
/// columns of the result. Elements are Float32 or Float16, the same in all matrices and the bias; sums are float32 and
/// rounded once, terms added in order.
///
/// Scales and offsets are device data, read when the work runs; an element outside its source counts as 0. Gradients are
/// sums, too: g = dR f'(z), dB_k = scale_k g transposed back, dBias the sums of g's columns.
///
///     auto sum = mps::MatrixSum::create(device, 2, rows, columns, false);
///     sum->encode(commandBuffer, {a, b}, result);
class MatrixSum : public detail::KernelClass<MatrixSum, Kernel, "MatrixSum">, public KernelNeuron {
 public:
  /// @param count of sources, at least 1 @param rows, columns of the sources; with transpose the result is columns x
  /// rows. @throws Error for count 0
  static std::shared_ptr<MatrixSum> create(const std::shared_ptr<mtl::Device>& device, std::size_t count,
                                           std::size_t rows, std::size_t columns, bool transpose);
  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] std::size_t rows() const { return rows_; }
  [[nodiscard]] std::size_t columns() const { return columns_; }
  [[nodiscard]] bool transpose() const { return transpose_; }
  /// First element of the result that is written: x is the row, y the column, z is 0. {0, 0, 0}.
  [[nodiscard]] const mtl::Origin& resultMatrixOrigin() const { return resultMatrixOrigin_; }
  void setResultMatrixOrigin(const mtl::Origin& origin) { resultMatrixOrigin_ = origin; }

  /// @param scaleVector Float32, a factor for each source; null: 1
  /// @param offsetVector UInt32, a MatrixOffset for each source; null: 0
  /// @param biasVector one element for each column of the result, from its first element on; null: 0
  /// @param startIndex of the first scale and offset that are used, in scales and MatrixOffsets
  /// Takes one read off each temporary source and vector. @throws Error for another number of sources, types that differ
  /// or are not those above, sources smaller than rows x columns where there are no offsets, a result or vector that is
  /// too small, a result that shares elements with anything that is read.
  using Kernel::encode;
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              std::span<const std::shared_ptr<Matrix>> sourceMatrices,
              const std::shared_ptr<Matrix>& resultMatrix,
              const std::shared_ptr<Vector>& scaleVector = nullptr,
              const std::shared_ptr<Vector>& offsetVector = nullptr,
              const std::shared_ptr<Vector>& biasVector = nullptr, std::size_t startIndex = 0);

 protected:
  using KernelClass::KernelClass;
  MatrixSum(std::shared_ptr<mtl::Device> device, std::size_t count, std::size_t rows, std::size_t columns,
            bool transpose);
  MatrixSum(const MatrixSum&) = default;
  void codeProperties(Coder& coder) override;

 private:
  friend KernelClass;
  void check() const;

  std::size_t count_ = 1;
  std::size_t rows_ = 0;
  std::size_t columns_ = 0;
  bool transpose_ = false;
  mtl::Origin resultMatrixOrigin_;
};

}  // namespace mps
