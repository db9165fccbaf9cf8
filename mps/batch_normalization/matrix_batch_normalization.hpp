#pragma once

#include <cfloat>
#include <memory>
#include <string>

#include "mps/core/array/matrix.hpp"
#include "mps/core/array/matrix_kernel.hpp"
#include "mps/core/array/vector.hpp"
#include "mps/core/kernel/kernel_class.hpp"
#include "mps/core/neuron/kernel_neuron.hpp"

/// Batch normalisation of matrices whose n rows are samples and whose columns are channels (MPSMatrixBatchNormalization.h;
/// For column j, with r = 1 / sqrt(variance + epsilon) (Apple's header leaves the root out) and f
/// the neuron:
///
///     h_ij = (x_ij - mean_j) r_j        z_ij = gamma_j h_ij + beta_j        y_ij = f(z_ij)
///
/// Vectors have the type of the matrices and one element for each column, from their first element on; gamma null means
/// 1, beta null 0. Origins, batches and types are described in mps/core/array/matrix_kernel.hpp.
namespace mps {

namespace detail {
/// What MatrixBatchNormalization and its gradient have in common.
class MatrixBatchNormalizationProperties : public KernelNeuron, public MatrixSampleLimits {
 public:
  /// Added to the variance. The least normal float, 2^-126. @throws Error when it is negative, infinite or not a number
  [[nodiscard]] float epsilon() const { return epsilon_; }
  void setEpsilon(float epsilon);

 protected:
  void codeNormalizationProperties(Coder& coder);

 private:
  float epsilon_ = FLT_MIN;
};
}  // namespace detail

/// y (MPSMatrixBatchNormalization).
class MatrixBatchNormalization
    : public detail::KernelClass<MatrixBatchNormalization, MatrixUnaryKernel, "MatrixBatchNormalization">,
      public detail::MatrixBatchNormalizationProperties {
 public:
  static std::shared_ptr<MatrixBatchNormalization> create(const std::shared_ptr<mtl::Device>& device);
  /// True: mean and variance of the columns (divided by n, not n - 1) are computed and written to the vectors, which
  /// stay as they are where there are no rows; false: the vectors are read. False.
  [[nodiscard]] bool computeStatistics() const { return computeStatistics_; }
  void setComputeStatistics(bool computeStatistics) { computeStatistics_ = computeStatistics; }

  /// The result may be the very region of the input. @throws Error for null where only gamma and beta may be null,
  /// types that are not Float32 or Float16 or differ, an origin outside its matrix, a result or vector that is too
  /// small, a result that shares other elements with the input.
  using Kernel::encode;
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<Matrix>& inputMatrix, const std::shared_ptr<Vector>& meanVector,
              const std::shared_ptr<Vector>& varianceVector, const std::shared_ptr<Vector>& gammaVector,
              const std::shared_ptr<Vector>& betaVector, const std::shared_ptr<Matrix>& resultMatrix);

 protected:
  using KernelClass::KernelClass;
  MatrixBatchNormalization(const MatrixBatchNormalization&) = default;
  void codeProperties(Coder& coder) override;

 private:
  friend KernelClass;
  bool computeStatistics_ = false;
};

/// The gradients of MatrixBatchNormalization (MPSMatrixBatchNormalizationGradient), with dz = dy f'(z):
///
///     dBeta  = sum_i dz                 dGamma = sum_i dz h
///     dx     = gamma r (dz - dBeta / n - h dGamma / n)
///
/// That is the formula of training, wherever mean and variance come from. epsilon, neuron, gamma and beta are to be those
/// of the forward kernel. The primary source is the incoming gradient, the secondary one the forward input. Results are
/// overwritten; without rows dGamma and dBeta are 0.
///
///     auto normalization = mps::MatrixBatchNormalization::create(device);
///     normalization->setComputeStatistics(true);
///     normalization->encode(commandBuffer, x, mean, variance, gamma, beta, y);
///     auto gradient = mps::MatrixBatchNormalizationGradient::create(device);
///     gradient->encode(commandBuffer, dy, x, mean, variance, gamma, beta, dx, dGamma, dBeta);
class MatrixBatchNormalizationGradient
    : public detail::KernelClass<MatrixBatchNormalizationGradient, MatrixBinaryKernel,
                                 "MatrixBatchNormalizationGradient">,
      public detail::MatrixBatchNormalizationProperties {
 public:
  static std::shared_ptr<MatrixBatchNormalizationGradient> create(const std::shared_ptr<mtl::Device>& device);

  /// The last two vectors may be null: then their gradients are not kept. The data's gradient may be the very region of
  /// either source. @throws Error as MatrixBatchNormalization::encode
  using Kernel::encode;
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<Matrix>& gradientMatrix, const std::shared_ptr<Matrix>& inputMatrix,
              const std::shared_ptr<Vector>& meanVector, const std::shared_ptr<Vector>& varianceVector,
              const std::shared_ptr<Vector>& gammaVector, const std::shared_ptr<Vector>& betaVector,
              const std::shared_ptr<Matrix>& resultGradientForDataMatrix,
              const std::shared_ptr<Vector>& resultGradientForGammaVector,
              const std::shared_ptr<Vector>& resultGradientForBetaVector);

 protected:
  using KernelClass::KernelClass;
  MatrixBatchNormalizationGradient(const MatrixBatchNormalizationGradient&) = default;
  void codeProperties(Coder& coder) override;

 private:
  friend KernelClass;
};

}  // namespace mps
