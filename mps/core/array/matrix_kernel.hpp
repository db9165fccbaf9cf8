#pragma once

#include <cstddef>
#include <limits>

#include "mps/core/kernel/kernel.hpp"
#include "mtl/types.hpp"

/// What all kernels on matrices share (MPSMatrixTypes.h).
///
/// An origin is the first element that a kernel touches in each matrix: **x is the row, y the column**, z is
/// 0. Matrices batchStart to batchStart + batchSize - 1 of every argument are worked on, vector k being matrix k's; a
/// batchSize beyond what all arguments have means all of them, 0 means nothing. A number of rows or columns that is a
/// property means at most what the sources have from their origins on; results must have as many. Elements are Float32
/// or Float16, the same in all arguments; arithmetic is float32 and rounded once. What lies outside the region stays as
/// it is. An encode takes one read off each temporary argument that it reads. All throw Error before anything is
/// recorded.
namespace mps {

/// The batch of matrices that a kernel works on.
class MatrixKernel : public Kernel {
 public:
  /// 0.
  [[nodiscard]] std::size_t batchStart() const { return batchStart_; }
  void setBatchStart(std::size_t batchStart) { batchStart_ = batchStart; }
  /// All.
  [[nodiscard]] std::size_t batchSize() const { return batchSize_; }
  void setBatchSize(std::size_t batchSize) { batchSize_ = batchSize; }

 protected:
  using Kernel::Kernel;
  MatrixKernel(const MatrixKernel&) = default;
  void codeProperties(Coder& coder) override;

 private:
  std::size_t batchStart_ = 0;
  std::size_t batchSize_ = std::numeric_limits<std::size_t>::max();
};

/// How many rows, which are samples, and columns, which are channels, a kernel works on.
class MatrixSampleLimits {
 public:
  /// Rows, at most those that the sources have from their origins on. All.
  [[nodiscard]] std::size_t sourceNumberOfFeatureVectors() const { return sourceNumberOfFeatureVectors_; }
  void setSourceNumberOfFeatureVectors(std::size_t rows) { sourceNumberOfFeatureVectors_ = rows; }
  /// Columns, likewise. All.
  [[nodiscard]] std::size_t sourceInputFeatureChannels() const { return sourceInputFeatureChannels_; }
  void setSourceInputFeatureChannels(std::size_t columns) { sourceInputFeatureChannels_ = columns; }

 protected:
  void codeLimits(Coder& coder);

 private:
  std::size_t sourceNumberOfFeatureVectors_ = std::numeric_limits<std::size_t>::max();
  std::size_t sourceInputFeatureChannels_ = std::numeric_limits<std::size_t>::max();
};

/// Base of kernels with one source (MPSMatrixUnaryKernel).
class MatrixUnaryKernel : public MatrixKernel {
 public:
  [[nodiscard]] const mtl::Origin& sourceMatrixOrigin() const { return sourceMatrixOrigin_; }
  void setSourceMatrixOrigin(const mtl::Origin& origin) { sourceMatrixOrigin_ = origin; }
  [[nodiscard]] const mtl::Origin& resultMatrixOrigin() const { return resultMatrixOrigin_; }
  void setResultMatrixOrigin(const mtl::Origin& origin) { resultMatrixOrigin_ = origin; }

 protected:
  using MatrixKernel::MatrixKernel;
  MatrixUnaryKernel(const MatrixUnaryKernel&) = default;
  void codeProperties(Coder& coder) override;

 private:
  mtl::Origin sourceMatrixOrigin_;
  mtl::Origin resultMatrixOrigin_;
};

/// Base of kernels with two sources (MPSMatrixBinaryKernel).
class MatrixBinaryKernel : public MatrixKernel {
 public:
  [[nodiscard]] const mtl::Origin& primarySourceMatrixOrigin() const { return primarySourceMatrixOrigin_; }
  void setPrimarySourceMatrixOrigin(const mtl::Origin& origin) { primarySourceMatrixOrigin_ = origin; }
  [[nodiscard]] const mtl::Origin& secondarySourceMatrixOrigin() const {
    return secondarySourceMatrixOrigin_;
  }
  void setSecondarySourceMatrixOrigin(const mtl::Origin& origin) { secondarySourceMatrixOrigin_ = origin; }
  [[nodiscard]] const mtl::Origin& resultMatrixOrigin() const { return resultMatrixOrigin_; }
  void setResultMatrixOrigin(const mtl::Origin& origin) { resultMatrixOrigin_ = origin; }

 protected:
  using MatrixKernel::MatrixKernel;
  MatrixBinaryKernel(const MatrixBinaryKernel&) = default;
  void codeProperties(Coder& coder) override;

 private:
  mtl::Origin primarySourceMatrixOrigin_;
  mtl::Origin secondarySourceMatrixOrigin_;
  mtl::Origin resultMatrixOrigin_;
};

}  // namespace mps
