#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "mps/core/layer/loss_scale_problem.hpp"
#include "mps/core/plan/plan.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/tensor_shape.hpp"
#include "mps/optimizer/optimizer_descriptor.hpp"
#include "mtl/stream.hpp"

namespace mps::detail {

/// Update of a value v by its prepared gradient g.
enum class OptimizerKind : std::uint8_t {
  SGD,          ///< v = v - lr g
  SGDMomentum,  ///< m = decay m + lr g; v = v - m
  SGDNesterov,  ///< m = decay m + g; v = v - lr (g + decay m) with the new m
  RMSProp,      ///< s = decay s + (1 - decay) g^2; v = v - lr g / (sqrt(s) + epsilon)
  Adam,  ///< m = decay m + (1 - decay) g; u = beta2 u + (1 - beta2) g^2; v = v - lr m / (sqrt(u) + epsilon)
  AMSGrad,  ///< as Adam, x = max(x, u); v = v - lr m / (sqrt(x) + epsilon)
};
/// "SGD", ...
const char* name(OptimizerKind kind);

/// What does not change from step to step.
struct OptimizerRule {
  OptimizerKind kind = OptimizerKind::SGD;
  NNRegularizationType regularizationType = NNRegularizationType::None;
  bool applyGradientClipping = false;
  bool operator==(const OptimizerRule&) const = default;
};

/// What may change from step to step, in the order of Operands::scalars.
struct OptimizerNumbers {
  double learningRate = 0.001;  ///< lr; for Adam and AMSGrad adamLearningRate()
  double gradientRescale = 1;
  double gradientClipMin = 0;
  double gradientClipMax = 0;
  double regularizationScale = 0;  ///< of Decoupled the part of the value that is taken off it
  double decay = 0;                ///< momentumScale of SGD, decay of RMSProp, beta1 of Adam
  double beta2 = 0;
  double epsilon = 0;
  bool operator==(const OptimizerNumbers&) const = default;

  [[nodiscard]] std::array<double, 8> scalars() const {
    return {learningRate,        gradientRescale, gradientClipMin, gradientClipMax,
            regularizationScale, decay,           beta2,           epsilon};
  }
  static OptimizerNumbers fromScalars(const std::array<double, 8>& scalars) {
    return {scalars[0], scalars[1], scalars[2], scalars[3], scalars[4], scalars[5], scalars[6], scalars[7]};
  }
};

/// OptimizerNumbers in float32. The complements are taken before the rounding: 1 - 0.999F has only 10 right
/// bits.
struct OptimizerFloats {
  explicit OptimizerFloats(const OptimizerNumbers& numbers)
      : learningRate(static_cast<float>(numbers.learningRate)),
        gradientRescale(static_cast<float>(numbers.gradientRescale)),
        gradientClipMin(static_cast<float>(numbers.gradientClipMin)),
        gradientClipMax(static_cast<float>(numbers.gradientClipMax)),
        regularizationScale(static_cast<float>(numbers.regularizationScale)),
        decay(static_cast<float>(numbers.decay)),
        decayComplement(static_cast<float>(1 - numbers.decay)),
        beta2(static_cast<float>(numbers.beta2)),
        beta2Complement(static_cast<float>(1 - numbers.beta2)),
        epsilon(static_cast<float>(numbers.epsilon)) {}

  float learningRate;
  float gradientRescale;
  float gradientClipMin;
  float gradientClipMax;
  float regularizationScale;
  float decay;
  float decayComplement;
  float beta2;
  float beta2Complement;
  float epsilon;
};

/// lr_t = learningRate sqrt(1 - beta2^t) / (1 - beta1^t), in float64. @param timeStep t, counted from 1
inline double adamLearningRate(double learningRate, double beta1, double beta2, std::uint64_t timeStep) {
  const auto t = static_cast<double>(timeStep);
  return learningRate * std::sqrt(1 - std::pow(beta2, t)) / (1 - std::pow(beta1, t));
}

/// One update of `rows` vectors of `count` float32 values: of an MPSVector, a matrix, a weight or bias array.
///
/// Operands: gradient, source (old values), destination (new values; may be the source), parameters[0]
/// momentum m, parameters[1] velocity u (RMSProp: sum of squares s), parameters[2] maximum velocity x; the
/// kinds that do not have a buffer ignore its address. The buffers are read and overwritten. parameters[3]:
/// LossScaleNumbers, or null for no loss scale. scalars: OptimizerNumbers.
///
/// The result of an element depends on its own numbers alone.
struct OptimizerProblem {
  OptimizerRule rule;
  std::int64_t count = 0;
  std::int64_t rows = 1;
  /// Elements from one row to the next.
  std::int64_t gradientStride = 0;
  std::int64_t valuesStride = 0;
  std::int64_t resultStride = 0;
  std::int64_t momentumStride = 0;
  std::int64_t velocityStride = 0;
  std::int64_t maximumVelocityStride = 0;

  bool operator==(const OptimizerProblem&) const = default;

  [[nodiscard]] std::size_t hash() const {
    return hashOf(rule.kind, rule.regularizationType, rule.applyGradientClipping, count, rows, gradientStride,
                  valuesStride, resultStride, momentumStride, velocityStride, maximumVelocityStride);
  }
  /// "Adam L2 clipped, 25 x 1000".
  [[nodiscard]] std::string describe() const;
};

/// One vectorised implementation, which takes every problem. Nothing depends on the number of threads.
std::span<const Implementation<OptimizerProblem>> optimizerImplementationsCpu();
std::span<const Implementation<OptimizerProblem>> optimizerImplementationsCuda();
inline constexpr BackEnds<OptimizerProblem> optimizerBackEnds{
    optimizerImplementationsCpu, UNMETAL_CUDA_LIST(optimizerImplementationsCuda)};

/// How some of the tensors of updateTensorsCpu() and updateTensorsCuda() are updated.
struct OptimizerStep {
  OptimizerRule rule;
  OptimizerNumbers numbers;
  const LossScaleNumbers* lossScale = nullptr;  ///< on the device; null: none
  const float* gradientFactor = nullptr;        ///< on the device, of measureGradientNorm...(); null: 1
  bool operator==(const OptimizerStep&) const = default;
};

/// One tensor of these. Buffers that its kind does not have may be null.
struct OptimizerTensor {
  const float* gradient = nullptr;
  const float* values = nullptr;
  float* result = nullptr;
  float* momentum = nullptr;
  float* velocity = nullptr;
  float* maximumVelocity = nullptr;
  std::int64_t count = 0;
  std::size_t step = 0;  ///< index into the steps
};

/// Updates all tensors of a net in one parallel loop, with the bits of separate plans.
void updateTensorsCpu(mtl::Stream& stream, std::span<const OptimizerStep> steps,
                      std::span<const OptimizerTensor> tensors);
/// The same in one launch, where the tensors are few and of one kind.
void updateTensorsCuda(mtl::Stream& stream, std::span<const OptimizerStep> steps,
                       std::span<const OptimizerTensor> tensors);

}  // namespace mps::detail
