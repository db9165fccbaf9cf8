#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mps/core/array/matrix.hpp"
#include "mps/core/array/vector.hpp"
#include "mps/core/kernel/kernel.hpp"
#include "mps/core/kernel/kernel_class.hpp"

/// Copies of parts of matrices (MPSMatrixCopy in MPSMatrixCombination.h).
namespace mps {

/// Where a copy reads and writes, in rows and columns of the matrices as they are in memory (MPSMatrixCopyOffsets).
struct MatrixCopyOffsets {
  std::uint32_t sourceRowOffset = 0;
  std::uint32_t sourceColumnOffset = 0;
  std::uint32_t destinationRowOffset = 0;
  std::uint32_t destinationColumnOffset = 0;
};
static_assert(sizeof(MatrixCopyOffsets) == 16);

/// The sources and destinations of the copies of one encode (MPSMatrixCopyDescriptor). A value, which keeps its matrices
/// alive. Copies of one encode come in any order: none may write what another one reads or writes.
class MatrixCopyDescriptor {
 public:
  /// One copy. @throws Error for null
  static MatrixCopyDescriptor create(std::shared_ptr<Matrix> sourceMatrix,
                                     std::shared_ptr<Matrix> destinationMatrix,
                                     const MatrixCopyOffsets& offsets);
  /// Apple's name of create.
  static MatrixCopyDescriptor descriptor(std::shared_ptr<Matrix> sourceMatrix,
                                         std::shared_ptr<Matrix> destinationMatrix,
                                         const MatrixCopyOffsets& offsets) {
    return create(std::move(sourceMatrix), std::move(destinationMatrix), offsets);
  }
  /// Of `count` copies, all of which are still to be set.
  explicit MatrixCopyDescriptor(std::size_t count) : operations_(count) {}
  /// Source k is copied to destination k with offsets that are device data, read when the work runs.
  /// @param offsetVector UInt32, a MatrixCopyOffsets for each copy; null: all 0 @param offset of the first one in the
  /// vector, in bytes, a multiple of 16. @throws Error for null matrices, numbers of matrices that differ, a vector of
  /// another type or too short, another offset
  MatrixCopyDescriptor(std::span<const std::shared_ptr<Matrix>> sourceMatrices,
                       std::span<const std::shared_ptr<Matrix>> destinationMatrices,
                       std::shared_ptr<Vector> offsetVector, std::size_t offset = 0);

  /// @throws Error for null, an index that is no copy, and where the offsets are a vector's
  void setCopyOperation(std::size_t index, std::shared_ptr<Matrix> sourceMatrix,
                        std::shared_ptr<Matrix> destinationMatrix, const MatrixCopyOffsets& offsets);

  /// Writes the copies, the matrices with their values and, of an offset vector, its first vector. What the device holds
  /// is brought to the host; no work on it may be in flight. @throws Error for temporary matrices and vectors
  void encode(Coder& coder) const;
  /// Matrices on that device, null meaning the one that the coder names, otherwise the system's default device; each in
  /// memory of its own without gaps. Copies that shared a matrix share one. @throws Error for what is wrong with the data
  static MatrixCopyDescriptor decode(Coder& coder, const std::shared_ptr<mtl::Device>& device = nullptr);

  /// What was given, and is still null where a copy is to be set.
  struct Operation {
    std::shared_ptr<Matrix> source, destination;
    MatrixCopyOffsets offsets;
  };
  [[nodiscard]] const std::vector<Operation>& operations() const { return operations_; }
  [[nodiscard]] const std::shared_ptr<Vector>& offsetVector() const { return offsetVector_; }
  [[nodiscard]] std::size_t vectorOffset() const { return vectorOffset_; }

 private:
  std::vector<Operation> operations_;
  std::shared_ptr<Vector> offsetVector_;
  std::size_t vectorOffset_ = 0;
};

/// Copies copyRows x copyColumns elements for each copy of a descriptor (MPSMatrixCopy). With s and d the offsets:
///
///     value_ij = source(s.row + i, s.column + j), of transposed sources source(s.row + j, s.column + i)
///     (r, c)   = (i, j), of transposed destinations (j, i)
///     destination(d.row + P(r), d.column + Q(c)) = value_ij
///
/// P and Q are the permutations of rows and columns; without them P(r) = r and Q(c) = c. Source and destination of a copy
/// have the same type, of at most 4 bytes; bits are copied. Of matrices that hold several the first one counts. Offsets
/// and permutations that are vectors are device data: what they place outside a matrix is left out, so that with a vector
/// of offsets a copyRows or copyColumns beyond the sources means all that there is.
class MatrixCopy : public detail::KernelClass<MatrixCopy, Kernel, "MatrixCopy"> {
 public:
  static std::shared_ptr<MatrixCopy> create(const std::shared_ptr<mtl::Device>& device, std::size_t copyRows,
                                            std::size_t copyColumns, bool sourcesAreTransposed,
                                            bool destinationsAreTransposed);
  [[nodiscard]] std::size_t copyRows() const { return copyRows_; }
  [[nodiscard]] std::size_t copyColumns() const { return copyColumns_; }
  [[nodiscard]] bool sourcesAreTransposed() const { return sourcesAreTransposed_; }
  [[nodiscard]] bool destinationsAreTransposed() const { return destinationsAreTransposed_; }

  /// Takes one read off each temporary source and vector. @throws Error for copies that are not set, types that differ or
  /// are larger than 4 bytes, matrices that are too small for offsets that are no vector's, a destination that shares
  /// elements with a source or another destination; where offsets are a vector's or rows or columns are permuted the
  /// whole matrices count for that.
  using Kernel::encode;
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const MatrixCopyDescriptor& copyDescriptor);
  /// @param rowPermuteIndices, columnPermuteIndices UInt32, P and Q; null: none @param rowPermuteOffset,
  /// columnPermuteOffset elements of the vectors that are left out before the first one that is used
  /// @throws Error as above; also for vectors of another type or too short. No two elements of a copy may go to one place
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const MatrixCopyDescriptor& copyDescriptor, const std::shared_ptr<Vector>& rowPermuteIndices,
              std::size_t rowPermuteOffset, const std::shared_ptr<Vector>& columnPermuteIndices,
              std::size_t columnPermuteOffset);

 protected:
  using KernelClass::KernelClass;
  MatrixCopy(std::shared_ptr<mtl::Device> device, std::size_t copyRows, std::size_t copyColumns,
             bool sourcesAreTransposed, bool destinationsAreTransposed)
      : KernelClass(std::move(device)),
        copyRows_(copyRows),
        copyColumns_(copyColumns),
        sourcesAreTransposed_(sourcesAreTransposed),
        destinationsAreTransposed_(destinationsAreTransposed) {}
  MatrixCopy(const MatrixCopy&) = default;
  void codeProperties(Coder& coder) override;

 private:
  friend KernelClass;
  std::size_t copyRows_ = 0;
  std::size_t copyColumns_ = 0;
  bool sourcesAreTransposed_ = false;
  bool destinationsAreTransposed_ = false;
};

}  // namespace mps
