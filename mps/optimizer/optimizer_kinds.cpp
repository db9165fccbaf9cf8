#include "mps/core/types/checked_number.hpp"
#include "mps/optimizer/optimizer.hpp"
#include "mps/optimizer/optimizer_problem.hpp"

/// What tells stochastic gradient descent, RMSProp and Adam apart.
namespace mps {

using detail::OptimizerKind;
using detail::OptimizerNumbers;

namespace {

constexpr const char* sgdName = "NNOptimizerStochasticGradientDescent";
constexpr const char* rmsPropName = "NNOptimizerRMSProp";
constexpr const char* adamName = "NNOptimizerAdam";

}  // namespace

namespace detail {

void OneBufferOptimizer::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                const std::shared_ptr<Vector>& inputGradientVector,
                                const std::shared_ptr<Vector>& inputValuesVector,
                                const std::shared_ptr<Vector>& inputBufferVector,
                                const std::shared_ptr<Vector>& resultValuesVector) {
  encodeArrays(commandBuffer, kind(inputBufferVector != nullptr), ownNumbers(), inputGradientVector,
               inputValuesVector, {inputBufferVector}, resultValuesVector);
}

void OneBufferOptimizer::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                const std::shared_ptr<Matrix>& inputGradientMatrix,
                                const std::shared_ptr<Matrix>& inputValuesMatrix,
                                const std::shared_ptr<Matrix>& inputBufferMatrix,
                                const std::shared_ptr<Matrix>& resultValuesMatrix) {
  encodeArrays(commandBuffer, kind(inputBufferMatrix != nullptr), ownNumbers(), inputGradientMatrix,
               inputValuesMatrix, {inputBufferMatrix}, resultValuesMatrix);
}

void OneBufferOptimizer::encode(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    const std::shared_ptr<CNNConvolutionGradientState>& convolutionGradientState,
    const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& convolutionSourceState,
    ArrayRef<std::shared_ptr<Vector>> inputBufferVectors,
    const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& resultState) {
  encodeConvolution(commandBuffer, kind(!inputBufferVectors.empty()), ownNumbers(), convolutionGradientState,
                    convolutionSourceState, {inputBufferVectors}, resultState);
}

void OneBufferOptimizer::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationState,
                                ArrayRef<std::shared_ptr<Vector>> inputBufferVectors,
                                const std::shared_ptr<CNNNormalizationGammaAndBetaState>& resultState) {
  encode(commandBuffer, batchNormalizationState, batchNormalizationState, inputBufferVectors, resultState);
}

void OneBufferOptimizer::encode(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationGradientState,
    const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationSourceState,
    ArrayRef<std::shared_ptr<Vector>> inputBufferVectors,
    const std::shared_ptr<CNNNormalizationGammaAndBetaState>& resultState) {
  encodeBatchNormalization(commandBuffer, kind(!inputBufferVectors.empty()), ownNumbers(),
                           batchNormalizationGradientState, batchNormalizationSourceState,
                           {inputBufferVectors}, resultState);
}

void OneBufferOptimizer::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                const StateBatch& normalizationStates,
                                ArrayRef<std::shared_ptr<Vector>> inputBufferVectors,
                                const std::shared_ptr<CNNNormalizationGammaAndBetaState>& resultState) {
  encodeImageNormalization(commandBuffer, kind(!inputBufferVectors.empty()), ownNumbers(),
                           normalizationStates, {inputBufferVectors}, resultState);
}

}  // namespace detail

NNOptimizerStochasticGradientDescent::NNOptimizerStochasticGradientDescent(
    std::shared_ptr<mtl::Device> device, float momentumScale, bool useNesterovMomentum,
    const NNOptimizerDescriptor& descriptor)
    : KernelClass(std::move(device), descriptor),
      momentumScale_(detail::checkedFinite(sgdName, "momentumScale", momentumScale)),
      useNesterovMomentum_(useNesterovMomentum) {}

std::shared_ptr<NNOptimizerStochasticGradientDescent> NNOptimizerStochasticGradientDescent::create(
    const std::shared_ptr<mtl::Device>& device, float learningRate) {
  NNOptimizerDescriptor descriptor;
  descriptor.setLearningRate(learningRate);
  return create(device, 0, false, descriptor);
}

std::shared_ptr<NNOptimizerStochasticGradientDescent> NNOptimizerStochasticGradientDescent::create(
    const std::shared_ptr<mtl::Device>& device, float momentumScale, bool useNesterovMomentum,
    const NNOptimizerDescriptor& optimizerDescriptor) {
  return std::shared_ptr<NNOptimizerStochasticGradientDescent>(new NNOptimizerStochasticGradientDescent(
      device, momentumScale, useNesterovMomentum, optimizerDescriptor));
}

OptimizerKind NNOptimizerStochasticGradientDescent::kind(bool hasBuffer) const {
  if (!hasBuffer) return OptimizerKind::SGD;
  return useNesterovMomentum_ ? OptimizerKind::SGDNesterov : OptimizerKind::SGDMomentum;
}

OptimizerNumbers NNOptimizerStochasticGradientDescent::ownNumbers() const {
  OptimizerNumbers step = numbers();
  step.decay = momentumScale_;
  return step;
}

NNOptimizerRMSProp::NNOptimizerRMSProp(std::shared_ptr<mtl::Device> device, double decay, float epsilon,
                                       const NNOptimizerDescriptor& descriptor)
    : KernelClass(std::move(device), descriptor),
      decay_(detail::checkedDecay(rmsPropName, "decay", decay)),
      epsilon_(detail::checkedNotNegative(rmsPropName, "epsilon", epsilon)) {}

std::shared_ptr<NNOptimizerRMSProp> NNOptimizerRMSProp::create(const std::shared_ptr<mtl::Device>& device,
                                                               float learningRate) {
  NNOptimizerDescriptor descriptor;
  descriptor.setLearningRate(learningRate);
  return create(device, 0.9, 1e-8F, descriptor);
}

std::shared_ptr<NNOptimizerRMSProp> NNOptimizerRMSProp::create(
    const std::shared_ptr<mtl::Device>& device, double decay, float epsilon,
    const NNOptimizerDescriptor& optimizerDescriptor) {
  return std::shared_ptr<NNOptimizerRMSProp>(
      new NNOptimizerRMSProp(device, decay, epsilon, optimizerDescriptor));
}

OptimizerKind NNOptimizerRMSProp::kind(bool /*hasBuffer*/) const {
  return OptimizerKind::RMSProp;
}

OptimizerNumbers NNOptimizerRMSProp::ownNumbers() const {
  OptimizerNumbers step = numbers();
  step.decay = decay_;
  step.epsilon = epsilon_;
  return step;
}

NNOptimizerAdam::NNOptimizerAdam(std::shared_ptr<mtl::Device> device, double beta1, double beta2,
                                 float epsilon, std::size_t timeStep, const NNOptimizerDescriptor& descriptor)
    : KernelClass(std::move(device), descriptor),
      beta1_(detail::checkedDecay(adamName, "beta1", beta1)),
      beta2_(detail::checkedDecay(adamName, "beta2", beta2)),
      epsilon_(detail::checkedNotNegative(adamName, "epsilon", epsilon)),
      timeStep_(timeStep) {}

std::shared_ptr<NNOptimizerAdam> NNOptimizerAdam::create(const std::shared_ptr<mtl::Device>& device,
                                                         float learningRate) {
  NNOptimizerDescriptor descriptor;
  descriptor.setLearningRate(learningRate);
  return create(device, 0.9, 0.999, 1e-8F, 0, descriptor);
}

std::shared_ptr<NNOptimizerAdam> NNOptimizerAdam::create(const std::shared_ptr<mtl::Device>& device,
                                                         double beta1, double beta2, float epsilon,
                                                         std::size_t timeStep,
                                                         const NNOptimizerDescriptor& optimizerDescriptor) {
  return std::shared_ptr<NNOptimizerAdam>(
      new NNOptimizerAdam(device, beta1, beta2, epsilon, timeStep, optimizerDescriptor));
}

OptimizerNumbers NNOptimizerAdam::numbersOfNextStep() const {
  OptimizerNumbers step = numbers();
  step.learningRate = detail::adamLearningRate(step.learningRate, beta1_, beta2_, timeStep_ + 1);
  step.decay = beta1_;
  step.beta2 = beta2_;
  step.epsilon = epsilon_;
  return step;
}

void NNOptimizerAdam::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                             const std::shared_ptr<Vector>& inputGradientVector,
                             const std::shared_ptr<Vector>& inputValuesVector,
                             const std::shared_ptr<Vector>& inputMomentumVector,
                             const std::shared_ptr<Vector>& inputVelocityVector,
                             const std::shared_ptr<Vector>& maximumVelocityVector,
                             const std::shared_ptr<Vector>& resultValuesVector) {
  const OptimizerKind kind = maximumVelocityVector ? OptimizerKind::AMSGrad : OptimizerKind::Adam;
  encodeArrays(commandBuffer, kind, numbersOfNextStep(), inputGradientVector, inputValuesVector,
               {inputMomentumVector, inputVelocityVector, maximumVelocityVector}, resultValuesVector);
  ++timeStep_;
}

void NNOptimizerAdam::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                             const std::shared_ptr<Vector>& inputGradientVector,
                             const std::shared_ptr<Vector>& inputValuesVector,
                             const std::shared_ptr<Vector>& inputMomentumVector,
                             const std::shared_ptr<Vector>& inputVelocityVector,
                             const std::shared_ptr<Vector>& resultValuesVector) {
  encode(commandBuffer, inputGradientVector, inputValuesVector, inputMomentumVector, inputVelocityVector,
         std::shared_ptr<Vector>{}, resultValuesVector);
}

void NNOptimizerAdam::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                             const std::shared_ptr<Matrix>& inputGradientMatrix,
                             const std::shared_ptr<Matrix>& inputValuesMatrix,
                             const std::shared_ptr<Matrix>& inputMomentumMatrix,
                             const std::shared_ptr<Matrix>& inputVelocityMatrix,
                             const std::shared_ptr<Matrix>& maximumVelocityMatrix,
                             const std::shared_ptr<Matrix>& resultValuesMatrix) {
  const OptimizerKind kind = maximumVelocityMatrix ? OptimizerKind::AMSGrad : OptimizerKind::Adam;
  encodeArrays(commandBuffer, kind, numbersOfNextStep(), inputGradientMatrix, inputValuesMatrix,
               {inputMomentumMatrix, inputVelocityMatrix, maximumVelocityMatrix}, resultValuesMatrix);
  ++timeStep_;
}

void NNOptimizerAdam::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                             const std::shared_ptr<Matrix>& inputGradientMatrix,
                             const std::shared_ptr<Matrix>& inputValuesMatrix,
                             const std::shared_ptr<Matrix>& inputMomentumMatrix,
                             const std::shared_ptr<Matrix>& inputVelocityMatrix,
                             const std::shared_ptr<Matrix>& resultValuesMatrix) {
  encode(commandBuffer, inputGradientMatrix, inputValuesMatrix, inputMomentumMatrix, inputVelocityMatrix,
         std::shared_ptr<Matrix>{}, resultValuesMatrix);
}

void NNOptimizerAdam::encode(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    const std::shared_ptr<CNNConvolutionGradientState>& convolutionGradientState,
    const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& convolutionSourceState,
    ArrayRef<std::shared_ptr<Vector>> inputMomentumVectors,
    ArrayRef<std::shared_ptr<Vector>> inputVelocityVectors,
    ArrayRef<std::shared_ptr<Vector>> maximumVelocityVectors,
    const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& resultState) {
  const OptimizerKind kind = maximumVelocityVectors.empty() ? OptimizerKind::Adam : OptimizerKind::AMSGrad;
  encodeConvolution(commandBuffer, kind, numbersOfNextStep(), convolutionGradientState,
                    convolutionSourceState,
                    {inputMomentumVectors, inputVelocityVectors, maximumVelocityVectors}, resultState);
  ++timeStep_;
}

void NNOptimizerAdam::encode(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    const std::shared_ptr<CNNConvolutionGradientState>& convolutionGradientState,
    const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& convolutionSourceState,
    ArrayRef<std::shared_ptr<Vector>> inputMomentumVectors,
    ArrayRef<std::shared_ptr<Vector>> inputVelocityVectors,
    const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& resultState) {
  encode(commandBuffer, convolutionGradientState, convolutionSourceState, inputMomentumVectors,
         inputVelocityVectors, {}, resultState);
}

void NNOptimizerAdam::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                             const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationState,
                             ArrayRef<std::shared_ptr<Vector>> inputMomentumVectors,
                             ArrayRef<std::shared_ptr<Vector>> inputVelocityVectors,
                             ArrayRef<std::shared_ptr<Vector>> maximumVelocityVectors,
                             const std::shared_ptr<CNNNormalizationGammaAndBetaState>& resultState) {
  encode(commandBuffer, batchNormalizationState, batchNormalizationState, inputMomentumVectors,
         inputVelocityVectors, maximumVelocityVectors, resultState);
}

void NNOptimizerAdam::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                             const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationState,
                             ArrayRef<std::shared_ptr<Vector>> inputMomentumVectors,
                             ArrayRef<std::shared_ptr<Vector>> inputVelocityVectors,
                             const std::shared_ptr<CNNNormalizationGammaAndBetaState>& resultState) {
  encode(commandBuffer, batchNormalizationState, batchNormalizationState, inputMomentumVectors,
         inputVelocityVectors, std::vector<std::shared_ptr<Vector>>(), resultState);
}

void NNOptimizerAdam::encode(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationGradientState,
    const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationSourceState,
    ArrayRef<std::shared_ptr<Vector>> inputMomentumVectors,
    ArrayRef<std::shared_ptr<Vector>> inputVelocityVectors,
    ArrayRef<std::shared_ptr<Vector>> maximumVelocityVectors,
    const std::shared_ptr<CNNNormalizationGammaAndBetaState>& resultState) {
  const OptimizerKind kind = maximumVelocityVectors.empty() ? OptimizerKind::Adam : OptimizerKind::AMSGrad;
  encodeBatchNormalization(commandBuffer, kind, numbersOfNextStep(), batchNormalizationGradientState,
                           batchNormalizationSourceState,
                           {inputMomentumVectors, inputVelocityVectors, maximumVelocityVectors}, resultState);
  ++timeStep_;
}

void NNOptimizerAdam::encode(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationGradientState,
    const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationSourceState,
    ArrayRef<std::shared_ptr<Vector>> inputMomentumVectors,
    ArrayRef<std::shared_ptr<Vector>> inputVelocityVectors,
    const std::shared_ptr<CNNNormalizationGammaAndBetaState>& resultState) {
  encode(commandBuffer, batchNormalizationGradientState, batchNormalizationSourceState, inputMomentumVectors,
         inputVelocityVectors, std::vector<std::shared_ptr<Vector>>(), resultState);
}

void NNOptimizerAdam::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                             const StateBatch& normalizationStates,
                             ArrayRef<std::shared_ptr<Vector>> inputMomentumVectors,
                             ArrayRef<std::shared_ptr<Vector>> inputVelocityVectors,
                             ArrayRef<std::shared_ptr<Vector>> maximumVelocityVectors,
                             const std::shared_ptr<CNNNormalizationGammaAndBetaState>& resultState) {
  const OptimizerKind kind = maximumVelocityVectors.empty() ? OptimizerKind::Adam : OptimizerKind::AMSGrad;
  encodeImageNormalization(commandBuffer, kind, numbersOfNextStep(), normalizationStates,
                           {inputMomentumVectors, inputVelocityVectors, maximumVelocityVectors}, resultState);
  ++timeStep_;
}

}  // namespace mps
