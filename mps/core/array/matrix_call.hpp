#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "mps/core/array/matrix.hpp"
#include "mps/core/array/vector.hpp"
#include "mps/core/image/byte_rows.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/types/tensor_shape.hpp"
#include "mtl/types.hpp"

/// How the matrix kernels see their arguments.
namespace mps::detail {

/// All matrices (vectors) of an argument as a tensor: images = matrices, height = rows, channels = columns,
/// width 1; a vector is one row. Words of four bytes have the format of float32.
/// @throws Error for a null argument, another device, a temporary of another command buffer or without reads left,
/// elements of more than 4 bytes, and memory of 2^63 bytes or more. What is read must not be content that a failed
/// command should have written.
TensorShape tensorOf(const Kernel& kernel, const char* argument, mtl::CommandBuffer& commandBuffer,
                     const std::shared_ptr<Matrix>& matrix, bool isRead);
TensorShape tensorOf(const Kernel& kernel, const char* argument, mtl::CommandBuffer& commandBuffer,
                     const std::shared_ptr<Vector>& vector, bool isRead);

/// Size and strides of a part of the matrices, and its first element.
struct MatrixRegion {
  TensorShape shape;
  std::int64_t firstElement = 0;

  [[nodiscard]] bool isEmpty() const { return shape.images == 0 || shape.height == 0 || shape.channels == 0; }
};
/// `rows` x `columns` elements of `count` matrices, from matrix `first` and from the origin on: x is the row,
/// y the column. @throws Error when they leave the matrix or z is not 0.
MatrixRegion regionOf(const Kernel& kernel, const char* argument, const TensorShape& whole,
                      const mtl::Origin& origin, std::size_t first, std::size_t count, std::size_t rows,
                      std::size_t columns);

/// The operand of a recorded call: takes the memory.
BatchOperand operandOf(ArrayStorage& storage, const MatrixRegion& region);

/// The bytes that a region takes of its memory. @param region not empty
ByteRows rowsOf(const ArrayStorage& storage, const MatrixRegion& region);

/// Whether two regions have an element in common; takes their memory.
bool overlap(ArrayStorage& one, const MatrixRegion& oneRegion, ArrayStorage& other,
             const MatrixRegion& otherRegion);

/// How many matrices a kernel works on: batchSize, at most what all arguments have from batchStart on.
/// @throws Error when batchStart leaves them.
std::size_t batchCount(const Kernel& kernel, std::size_t batchStart, std::size_t batchSize,
                       std::size_t available);

}  // namespace mps::detail
