#pragma once

#include <memory>
#include <span>
#include <string>

#include "mps/core/array/matrix.hpp"
#include "mps/core/array/matrix_kernel.hpp"
#include "mps/core/array/vector.hpp"
#include "mps/core/kernel/kernel_class.hpp"
#include "mps/core/neuron/kernel_neuron.hpp"

/// Neurons of matrices whose rows are samples and whose columns are channels (MPSMatrixNeuron.h).
/// Origins, batches and types are described in mps/core/array/matrix_kernel.hpp; vectors have the type of the matrices.
namespace mps {

namespace detail {
/// What MatrixNeuron and its gradient have in common.
class MatrixNeuronProperties : public KernelNeuron, public MatrixSampleLimits {
 public:
  /// What the input is multiplied with, as float32. 1. @throws Error unless that is finite
  [[nodiscard]] double alpha() const { return alpha_; }
  void setAlpha(double alpha);
  /// PReLU with one slope for each column, the first one for the first column that is read; they are copied. Parameters
  /// A and B become 0. @throws Error for no slopes; fewer than columns throw when encoding
  void setNeuronToPReLU(std::span<const float> parametersA);
  /// PReLU's slopes.
  [[nodiscard]] std::span<const float> neuronParametersA() const { return neuron().data(); }

 protected:
  void codeNeuronProperties(Coder& coder);

 private:
  double alpha_ = 1;
};
}  // namespace detail

/// y_ij = f(alpha x_ij + bias_j) (MPSMatrixNeuron).
class MatrixNeuron : public detail::KernelClass<MatrixNeuron, MatrixUnaryKernel, "MatrixNeuron">,
                     public detail::MatrixNeuronProperties {
 public:
  static std::shared_ptr<MatrixNeuron> create(const std::shared_ptr<mtl::Device>& device);

  /// @param biasVector one element for each column, from its first element on; null: 0. The result may be the very
  /// region of the input. @throws Error for types that are not Float32 or Float16 or differ, an origin outside its
  /// matrix, a result or bias that is too small, a result that shares other elements with the input, too few slopes.
  using Kernel::encode;
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<Matrix>& inputMatrix, const std::shared_ptr<Vector>& biasVector,
              const std::shared_ptr<Matrix>& resultMatrix);

 protected:
  using KernelClass::KernelClass;
  MatrixNeuron(const MatrixNeuron&) = default;
  void codeProperties(Coder& coder) override;

 private:
  friend KernelClass;
};

/// The gradients of MatrixNeuron (MPSMatrixNeuronGradient), with z = alpha x + bias:
///
///     dx_ij  = alpha dy_ij f'(z_ij)
///     dBias_j = sum_i dy_ij f'(z_ij)
///
/// alpha, neuron and bias are to be those of the forward kernel. The primary source is the incoming gradient, the
/// secondary one the forward input. Results are overwritten; without rows dBias is 0. PReLU's slopes get no gradient.
///
///     auto neuron = mps::MatrixNeuron::create(device);
///     neuron->setNeuronType(mps::CNNNeuronType::TanH, 1, 1, 0);
///     neuron->encode(commandBuffer, x, bias, y);
///     auto gradient = mps::MatrixNeuronGradient::create(device);
///     gradient->setNeuronType(mps::CNNNeuronType::TanH, 1, 1, 0);
///     gradient->encode(commandBuffer, dy, x, bias, dx, dBias);
class MatrixNeuronGradient
    : public detail::KernelClass<MatrixNeuronGradient, MatrixBinaryKernel, "MatrixNeuronGradient">,
      public detail::MatrixNeuronProperties {
 public:
  static std::shared_ptr<MatrixNeuronGradient> create(const std::shared_ptr<mtl::Device>& device);

  /// @param biasVector that of the forward call; null: 0 @param resultGradientForBiasVector null: not computed; begins
  /// at its first element. The data's gradient may be the very region of either source.
  /// @throws Error as MatrixNeuron::encode
  using Kernel::encode;
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<Matrix>& gradientMatrix, const std::shared_ptr<Matrix>& inputMatrix,
              const std::shared_ptr<Vector>& biasVector,
              const std::shared_ptr<Matrix>& resultGradientForDataMatrix,
              const std::shared_ptr<Vector>& resultGradientForBiasVector);

 protected:
  using KernelClass::KernelClass;
  MatrixNeuronGradient(const MatrixNeuronGradient&) = default;
  void codeProperties(Coder& coder) override;

 private:
  friend KernelClass;
};

}  // namespace mps
