#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mps/core/array/matrix.hpp"
#include "mps/core/array/vector.hpp"
#include "mps/core/kernel/kernel.hpp"
#include "mps/core/kernel/kernel_class.hpp"
#include "mps/core/layer/batch_normalization_state.hpp"
#include "mps/core/layer/convolution_state.hpp"
#include "mps/core/layer/image_normalization_state.hpp"
#include "mps/core/layer/update_counter.hpp"
#include "mps/core/types/array_ref.hpp"
#include "mps/optimizer/optimizer_descriptor.hpp"

/// Optimisers (MPSNNOptimizers.h). Each update works element by element on float32 values
/// v, with the gradient g prepared as NNOptimizerDescriptor says. Nothing is averaged over a batch.
///
/// The result may be the very values or the very gradient, with the same strides; with either it shares either all
/// elements or none. Momentum and other buffers are the application's: they start at 0 and are read and overwritten, so
/// that none may share elements with another argument. Nor may what is written for the weights (gamma) share elements
/// with anything of the biases (beta), and the other way round. Vectors of one encode have the same
/// length and number of vectors, matrices the same rows, columns and number of matrices, with strides of their own. The
/// convolution forms update weights (vector 0) and biases (vector 1); with one vector the biases are copied unchanged.
/// The batch-normalisation forms do the same for gamma (vector 0) and beta (vector 1), with the gradients of one state
/// and the current values of the same or of another one. Extension: the forms with a batch of states of an instance or
/// group normalisation sum the gradients of the images first and begin with the values that the forward pass used. They
/// take one read off each temporary state, vector and matrix that they read and do not write. All throw Error before
/// anything is recorded.
///
/// On a CPU momentum and velocity below 1.2e-38 become 0: processors compute with subnormal numbers many times slower, and
/// a weight that gets no gradients any more would keep some for ever.
///
/// Learning rate, rescale, regularisation scale and momentum are finite numbers of any sign, limits of the gradient any but
/// NaN, and the lower one at most the upper one where they are used; decay, beta1 and beta2 are at least 0 and below 1,
/// epsilon is at least 0. Where an optimiser is made or decoded, others throw Error.
namespace mps {

class LossScale;

namespace detail {
enum class OptimizerKind : std::uint8_t;
struct OptimizerNumbers;
}  // namespace detail

/// Base of the optimisers (MPSNNOptimizer).
class NNOptimizer : public Kernel {
 public:
  [[nodiscard]] float learningRate() const { return descriptor_.learningRate(); }
  /// For later encodes; any sign. @throws Error unless it is finite
  void setLearningRate(float learningRate);
  [[nodiscard]] float gradientRescale() const { return descriptor_.gradientRescale(); }
  [[nodiscard]] bool applyGradientClipping() const { return descriptor_.applyGradientClipping(); }
  void setApplyGradientClipping(bool apply) { descriptor_.setApplyGradientClipping(apply); }
  [[nodiscard]] float gradientClipMax() const { return descriptor_.gradientClipMax(); }
  [[nodiscard]] float gradientClipMin() const { return descriptor_.gradientClipMin(); }
  [[nodiscard]] float regularizationScale() const { return descriptor_.regularizationScale(); }
  [[nodiscard]] NNRegularizationType regularizationType() const { return descriptor_.regularizationType(); }
  /// Extension: gradients are divided by its scale before all else, and an update whose gradients are not all
  /// finite is left out. Null. Copies share it, or a copy of it, with those of the loss: LossScale.
  /// @throws Error for one of another device.
  [[nodiscard]] const std::shared_ptr<LossScale>& lossScale() const { return lossScale_; }
  void setLossScale(std::shared_ptr<LossScale> lossScale);

  /// @name The library's own
  /// @{
  /// For decode. A template, so that {} is a descriptor.
  template <std::same_as<detail::Decoding> Decoding>
  NNOptimizer(std::shared_ptr<mtl::Device> device, Decoding decoding) : Kernel(std::move(device), decoding) {}
  /// This optimiser where it counts its updates, else null.
  [[nodiscard]] virtual detail::UpdateCounter* updateCounter() { return nullptr; }
  /// @}

 protected:
  NNOptimizer(std::shared_ptr<mtl::Device> device, const NNOptimizerDescriptor& descriptor);
  NNOptimizer(const NNOptimizer&) = default;
  void codeProperties(Coder& coder) override;
  void didCopy(bool hasMoved) override;

  using Vectors = ArrayRef<std::shared_ptr<Vector>>;
  /// Buffers of one update beside gradient, values and result: momentum, velocity, maximum velocity, as the
  /// kind has them.
  /// Of vectors or of matrices.
  template <class Array>
  void encodeArrays(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, detail::OptimizerKind kind,
                    const detail::OptimizerNumbers& numbers, const std::shared_ptr<Array>& gradient,
                    const std::shared_ptr<Array>& values, const std::vector<std::shared_ptr<Array>>& buffers,
                    const std::shared_ptr<Array>& result);
  /// @param buffers one list per buffer of the kind, each for weights and perhaps biases
  void encodeConvolution(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, detail::OptimizerKind kind,
                         const detail::OptimizerNumbers& numbers,
                         const std::shared_ptr<CNNConvolutionGradientState>& gradientState,
                         const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& sourceState,
                         const std::vector<Vectors>& buffers,
                         const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& resultState);
  /// @param buffers as of encodeConvolution
  void encodeBatchNormalization(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                detail::OptimizerKind kind, const detail::OptimizerNumbers& numbers,
                                const std::shared_ptr<CNNBatchNormalizationState>& gradientState,
                                const std::shared_ptr<CNNBatchNormalizationState>& sourceState,
                                const std::vector<Vectors>& buffers,
                                const std::shared_ptr<CNNNormalizationGammaAndBetaState>& resultState);
  /// @param states of an instance or group normalisation @param buffers as of encodeConvolution
  void encodeImageNormalization(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                detail::OptimizerKind kind, const detail::OptimizerNumbers& numbers,
                                const StateBatch& states, const std::vector<Vectors>& buffers,
                                const std::shared_ptr<CNNNormalizationGammaAndBetaState>& resultState);
  /// The numbers that all kinds share.
  [[nodiscard]] detail::OptimizerNumbers numbers() const;

 private:
  /// @throws Error for numbers that are not finite; limits of the gradient may be infinite
  void checkDescriptor() const;
  struct Arrays;
  /// One update of two arrays: weights and biases, gamma and beta. With shorter lists of buffers the second is
  /// copied.
  void recordPair(mtl::CommandBuffer& commandBuffer, detail::OptimizerKind kind,
                  const detail::OptimizerNumbers& numbers, std::span<Arrays> pair,
                  const std::vector<Vectors>& buffers) const;
  void record(mtl::CommandBuffer& commandBuffer, detail::OptimizerKind kind,
              const detail::OptimizerNumbers& numbers, const Arrays& arrays) const;
  NNOptimizerDescriptor descriptor_;
  std::shared_ptr<LossScale> lossScale_;
};

namespace detail {

/// What the optimisers with one buffer have in common: stochastic gradient descent, whose buffer is the momentum, and
/// RMSProp, whose buffer is the sum of squares.
class OneBufferOptimizer : public NNOptimizer {
 public:
  using Kernel::encode;
  /// @name Encodes.
  /// @param inputBufferVectors (or ...Vector, ...Matrix) the momentum, nullptr or empty for none, or the sum of squares,
  ///                             which must be there: one vector, or with biases or beta two
  /// @{
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<Vector>& inputGradientVector,
              const std::shared_ptr<Vector>& inputValuesVector,
              const std::shared_ptr<Vector>& inputBufferVector,
              const std::shared_ptr<Vector>& resultValuesVector);
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<Matrix>& inputGradientMatrix,
              const std::shared_ptr<Matrix>& inputValuesMatrix,
              const std::shared_ptr<Matrix>& inputBufferMatrix,
              const std::shared_ptr<Matrix>& resultValuesMatrix);
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<CNNConvolutionGradientState>& convolutionGradientState,
              const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& convolutionSourceState,
              ArrayRef<std::shared_ptr<Vector>> inputBufferVectors,
              const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& resultState);
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationState,
              ArrayRef<std::shared_ptr<Vector>> inputBufferVectors,
              const std::shared_ptr<CNNNormalizationGammaAndBetaState>& resultState);
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationGradientState,
              const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationSourceState,
              ArrayRef<std::shared_ptr<Vector>> inputBufferVectors,
              const std::shared_ptr<CNNNormalizationGammaAndBetaState>& resultState);
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const StateBatch& normalizationStates,
              ArrayRef<std::shared_ptr<Vector>> inputBufferVectors,
              const std::shared_ptr<CNNNormalizationGammaAndBetaState>& resultState);
  /// @}

 protected:
  using NNOptimizer::NNOptimizer;
  [[nodiscard]] virtual OptimizerKind kind(bool hasBuffer) const = 0;
  /// All numbers of an update.
  [[nodiscard]] virtual OptimizerNumbers ownNumbers() const = 0;
};

}  // namespace detail

/// Stochastic gradient descent (MPSNNOptimizerStochasticGradientDescent):
///
///     without momentum buffer   v = v - lr g
///     momentum                  m = mu m + lr g;  v = v - m
///     Nesterov                  m = mu m + g;     v = v - lr (g + mu m), m the new one
class NNOptimizerStochasticGradientDescent
    : public detail::KernelClass<NNOptimizerStochasticGradientDescent, detail::OneBufferOptimizer,
                                 "NNOptimizerStochasticGradientDescent"> {
 public:
  static std::shared_ptr<NNOptimizerStochasticGradientDescent> create(
      const std::shared_ptr<mtl::Device>& device, float learningRate);
  static std::shared_ptr<NNOptimizerStochasticGradientDescent> create(
      const std::shared_ptr<mtl::Device>& device, float momentumScale, bool useNesterovMomentum,
      const NNOptimizerDescriptor& optimizerDescriptor);
  /// mu. 0.
  [[nodiscard]] float momentumScale() const { return momentumScale_; }
  [[nodiscard]] bool useNesterovMomentum() const { return useNesterovMomentum_; }
  /// Apple's first spelling.
  [[nodiscard]] bool useNestrovMomentum() const { return useNesterovMomentum_; }

 protected:
  using KernelClass::KernelClass;
  NNOptimizerStochasticGradientDescent(std::shared_ptr<mtl::Device> device, float momentumScale,
                                       bool useNesterovMomentum, const NNOptimizerDescriptor& descriptor);
  void codeProperties(Coder& coder) override;

 private:
  [[nodiscard]] detail::OptimizerKind kind(bool hasBuffer) const override;
  [[nodiscard]] detail::OptimizerNumbers ownNumbers() const override;
  float momentumScale_ = 0;
  bool useNesterovMomentum_ = false;
};

/// s = decay s + (1 - decay) g^2;  v = v - lr g / (sqrt(s) + epsilon) (MPSNNOptimizerRMSProp).
class NNOptimizerRMSProp
    : public detail::KernelClass<NNOptimizerRMSProp, detail::OneBufferOptimizer, "NNOptimizerRMSProp"> {
 public:
  static std::shared_ptr<NNOptimizerRMSProp> create(const std::shared_ptr<mtl::Device>& device,
                                                    float learningRate);
  static std::shared_ptr<NNOptimizerRMSProp> create(const std::shared_ptr<mtl::Device>& device, double decay,
                                                    float epsilon,
                                                    const NNOptimizerDescriptor& optimizerDescriptor);
  /// 0.9.
  [[nodiscard]] double decay() const { return decay_; }
  /// 1e-8.
  [[nodiscard]] float epsilon() const { return epsilon_; }

 protected:
  using KernelClass::KernelClass;
  NNOptimizerRMSProp(std::shared_ptr<mtl::Device> device, double decay, float epsilon,
                     const NNOptimizerDescriptor& descriptor);
  void codeProperties(Coder& coder) override;

 private:
  [[nodiscard]] detail::OptimizerKind kind(bool hasBuffer) const override;
  [[nodiscard]] detail::OptimizerNumbers ownNumbers() const override;
  double decay_ = 0;
  float epsilon_ = 0;
};

/// Adam, and AMSGrad where maximum velocity vectors are given (MPSNNOptimizerAdam):
///
///     t = t + 1;  lr_t = lr sqrt(1 - beta2^t) / (1 - beta1^t)                (in float64)
///     m = beta1 m + (1 - beta1) g;  u = beta2 u + (1 - beta2) g^2
///     Adam     v = v - lr_t m / (sqrt(u) + epsilon)
///     AMSGrad  x = max(x, u);  v = v - lr_t m / (sqrt(x) + epsilon)
///
/// timeStep goes up by one with each encode call, also when weights and biases are updated together: use one
/// object per layer.
class NNOptimizerAdam : public detail::KernelClass<NNOptimizerAdam, NNOptimizer, "NNOptimizerAdam">,
                        public detail::UpdateCounter {
 public:
  static std::shared_ptr<NNOptimizerAdam> create(const std::shared_ptr<mtl::Device>& device,
                                                 float learningRate);
  static std::shared_ptr<NNOptimizerAdam> create(const std::shared_ptr<mtl::Device>& device, double beta1,
                                                 double beta2, float epsilon, std::size_t timeStep,
                                                 const NNOptimizerDescriptor& optimizerDescriptor);
  using Kernel::encode;
  /// 0.9.
  [[nodiscard]] double beta1() const { return beta1_; }
  /// 0.999.
  [[nodiscard]] double beta2() const { return beta2_; }
  /// 1e-8, added to the root of the uncorrected u.
  [[nodiscard]] float epsilon() const { return epsilon_; }
  /// Updates done so far. 0. Set it to go on from a checkpoint.
  [[nodiscard]] std::size_t timeStep() const override { return timeStep_; }
  void setTimeStep(std::size_t timeStep) override { timeStep_ = timeStep; }
  [[nodiscard]] detail::UpdateCounter* updateCounter() override { return this; }

  /// @param maximumVelocityVector null: plain Adam
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<Vector>& inputGradientVector,
              const std::shared_ptr<Vector>& inputValuesVector,
              const std::shared_ptr<Vector>& inputMomentumVector,
              const std::shared_ptr<Vector>& inputVelocityVector,
              const std::shared_ptr<Vector>& maximumVelocityVector,
              const std::shared_ptr<Vector>& resultValuesVector);
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<Vector>& inputGradientVector,
              const std::shared_ptr<Vector>& inputValuesVector,
              const std::shared_ptr<Vector>& inputMomentumVector,
              const std::shared_ptr<Vector>& inputVelocityVector,
              const std::shared_ptr<Vector>& resultValuesVector);
  /// @param maximumVelocityMatrix null: plain Adam
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<Matrix>& inputGradientMatrix,
              const std::shared_ptr<Matrix>& inputValuesMatrix,
              const std::shared_ptr<Matrix>& inputMomentumMatrix,
              const std::shared_ptr<Matrix>& inputVelocityMatrix,
              const std::shared_ptr<Matrix>& maximumVelocityMatrix,
              const std::shared_ptr<Matrix>& resultValuesMatrix);
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<Matrix>& inputGradientMatrix,
              const std::shared_ptr<Matrix>& inputValuesMatrix,
              const std::shared_ptr<Matrix>& inputMomentumMatrix,
              const std::shared_ptr<Matrix>& inputVelocityMatrix,
              const std::shared_ptr<Matrix>& resultValuesMatrix);
  /// @param maximumVelocityVectors nullptr or empty: plain Adam
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<CNNConvolutionGradientState>& convolutionGradientState,
              const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& convolutionSourceState,
              ArrayRef<std::shared_ptr<Vector>> inputMomentumVectors,
              ArrayRef<std::shared_ptr<Vector>> inputVelocityVectors,
              ArrayRef<std::shared_ptr<Vector>> maximumVelocityVectors,
              const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& resultState);
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<CNNConvolutionGradientState>& convolutionGradientState,
              const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& convolutionSourceState,
              ArrayRef<std::shared_ptr<Vector>> inputMomentumVectors,
              ArrayRef<std::shared_ptr<Vector>> inputVelocityVectors,
              const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& resultState);
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationState,
              ArrayRef<std::shared_ptr<Vector>> inputMomentumVectors,
              ArrayRef<std::shared_ptr<Vector>> inputVelocityVectors,
              ArrayRef<std::shared_ptr<Vector>> maximumVelocityVectors,
              const std::shared_ptr<CNNNormalizationGammaAndBetaState>& resultState);
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationState,
              ArrayRef<std::shared_ptr<Vector>> inputMomentumVectors,
              ArrayRef<std::shared_ptr<Vector>> inputVelocityVectors,
              const std::shared_ptr<CNNNormalizationGammaAndBetaState>& resultState);
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationGradientState,
              const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationSourceState,
              ArrayRef<std::shared_ptr<Vector>> inputMomentumVectors,
              ArrayRef<std::shared_ptr<Vector>> inputVelocityVectors,
              ArrayRef<std::shared_ptr<Vector>> maximumVelocityVectors,
              const std::shared_ptr<CNNNormalizationGammaAndBetaState>& resultState);
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationGradientState,
              const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationSourceState,
              ArrayRef<std::shared_ptr<Vector>> inputMomentumVectors,
              ArrayRef<std::shared_ptr<Vector>> inputVelocityVectors,
              const std::shared_ptr<CNNNormalizationGammaAndBetaState>& resultState);
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const StateBatch& normalizationStates,
              ArrayRef<std::shared_ptr<Vector>> inputMomentumVectors,
              ArrayRef<std::shared_ptr<Vector>> inputVelocityVectors,
              ArrayRef<std::shared_ptr<Vector>> maximumVelocityVectors,
              const std::shared_ptr<CNNNormalizationGammaAndBetaState>& resultState);

 protected:
  using KernelClass::KernelClass;
  NNOptimizerAdam(std::shared_ptr<mtl::Device> device, double beta1, double beta2, float epsilon,
                  std::size_t timeStep, const NNOptimizerDescriptor& descriptor);
  void codeProperties(Coder& coder) override;

 private:
  [[nodiscard]] detail::OptimizerNumbers numbersOfNextStep() const;
  double beta1_ = 0;
  double beta2_ = 0;
  float epsilon_ = 0;
  std::size_t timeStep_ = 0;
};

}  // namespace mps
