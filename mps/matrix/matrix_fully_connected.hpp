#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <string>

#include "mps/core/array/matrix.hpp"
#include "mps/core/array/matrix_kernel.hpp"
#include "mps/core/array/vector.hpp"
#include "mps/core/kernel/kernel_class.hpp"
#include "mps/core/neuron/kernel_neuron.hpp"

/// Fully connected layers made of matrices (MPSMatrixFullyConnected.h). Rows of
/// the input are samples, its columns inputs; the weights have a row for each input and a column for each output, which
/// is the transpose of CNNFullyConnected's. Origins, batches and types are described in mps/core/array/matrix_kernel.hpp;
/// vectors have the type of the matrices.
namespace mps {

namespace detail {
/// What MatrixFullyConnected and its gradient have in common.
class MatrixFullyConnectedProperties : public MatrixSampleLimits {
 public:
  /// Columns of the weights, at most those that the arguments have from their origins on. All. The limit of
  /// sourceInputFeatureChannels holds for their rows.
  [[nodiscard]] std::size_t sourceOutputFeatureChannels() const { return sourceOutputFeatureChannels_; }
  void setSourceOutputFeatureChannels(std::size_t columns) { sourceOutputFeatureChannels_ = columns; }
  /// What the product is multiplied with, as float32. 1. @throws Error unless that is finite
  [[nodiscard]] double alpha() const { return alpha_; }
  void setAlpha(double alpha);

 protected:
  void codeLayerProperties(Coder& coder);

 private:
  std::size_t sourceOutputFeatureChannels_ = std::numeric_limits<std::size_t>::max();
  double alpha_ = 1;
};
}  // namespace detail

/// y = f(alpha x W + bias) (MPSMatrixFullyConnected). The primary source is x, the secondary one W. Sums are float32,
/// rounded once behind the neuron.
class MatrixFullyConnected
    : public detail::KernelClass<MatrixFullyConnected, MatrixBinaryKernel, "MatrixFullyConnected">,
      public KernelNeuron,
      public detail::MatrixFullyConnectedProperties {
 public:
  static std::shared_ptr<MatrixFullyConnected> create(const std::shared_ptr<mtl::Device>& device);

  /// @param biasVector one element for each output, from its first element on; null: 0. @throws Error for types that are
  /// not Float32 or Float16 or differ, an origin outside its matrix, a result or bias that is too small, a result that
  /// shares elements with anything that is read.
  using Kernel::encode;
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<Matrix>& inputMatrix, const std::shared_ptr<Matrix>& weightMatrix,
              const std::shared_ptr<Vector>& biasVector, const std::shared_ptr<Matrix>& resultMatrix);

 protected:
  using KernelClass::KernelClass;
  MatrixFullyConnected(const MatrixFullyConnected&) = default;
  void codeProperties(Coder& coder) override;

 private:
  friend KernelClass;
};

/// The gradients of MatrixFullyConnected without a neuron (MPSMatrixFullyConnectedGradient); for one with a neuron put a
/// MatrixNeuron behind it:
///
///     dX = alpha dY W^T        dW = alpha X^T dY        dBias = sums of the columns of dY
///
/// The primary source is dY; the secondary one is W or X, and the result origin that of dX or dW. Results are
/// overwritten.
///
///     auto layer = mps::MatrixFullyConnected::create(device);
///     layer->encode(commandBuffer, x, weights, bias, y);
///     auto gradient = mps::MatrixFullyConnectedGradient::create(device);
///     gradient->encodeGradientForData(commandBuffer, dy, weights, dx);
///     gradient->encodeGradientForWeightsAndBias(commandBuffer, dy, x, dWeights, dBias);
class MatrixFullyConnectedGradient
    : public detail::KernelClass<MatrixFullyConnectedGradient, MatrixBinaryKernel,
                                 "MatrixFullyConnectedGradient">,
      public detail::MatrixFullyConnectedProperties {
 public:
  static std::shared_ptr<MatrixFullyConnectedGradient> create(const std::shared_ptr<mtl::Device>& device);

  /// @throws Error as MatrixFullyConnected::encode
  void encodeGradientForData(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                             const std::shared_ptr<Matrix>& gradientMatrix,
                             const std::shared_ptr<Matrix>& weightMatrix,
                             const std::shared_ptr<Matrix>& resultGradientForDataMatrix);
  /// @param resultGradientForBiasVector null: not computed; begins at its first element
  /// @throws Error as MatrixFullyConnected::encode
  void encodeGradientForWeightsAndBias(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                       const std::shared_ptr<Matrix>& gradientMatrix,
                                       const std::shared_ptr<Matrix>& inputMatrix,
                                       const std::shared_ptr<Matrix>& resultGradientForWeightMatrix,
                                       const std::shared_ptr<Vector>& resultGradientForBiasVector);

 protected:
  using KernelClass::KernelClass;
  MatrixFullyConnectedGradient(const MatrixFullyConnectedGradient&) = default;
  void codeProperties(Coder& coder) override;

 private:
  friend KernelClass;
};

}  // namespace mps
