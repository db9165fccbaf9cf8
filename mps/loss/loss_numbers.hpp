#pragma once

#include <algorithm>
#include <cstdint>

#include "mps/loss/loss_problem.hpp"

/// What the implementations of all back ends make of a problem.
namespace mps::detail {

/// Numbers of one run that all elements share, rounded to float32.
struct LossNumbers {
  float weight = 1;
  float labelScale = 1;  ///< t' = t * labelScale + labelOffset
  float labelOffset = 0;
  float epsilon = 0;
  float delta = 0;
  bool exactSoftMaxGradient = false;
};

inline LossNumbers lossNumbers(const LossProblem& problem, const Operands& operands) {
  LossNumbers numbers;
  numbers.weight = static_cast<float>(operands.scalars[0]);
  const double smoothing = operands.scalars[1];
  if (smoothing > 0) {
    const bool sigmoid = problem.lossType == CNNLossType::SigmoidCrossEntropy;
    const double classes = sigmoid ? 2.0 : static_cast<double>(problem.numberOfClasses);
    numbers.labelScale = static_cast<float>(1 - smoothing);
    numbers.labelOffset = static_cast<float>(smoothing / classes);
  }
  numbers.epsilon = static_cast<float>(operands.scalars[2]);
  numbers.delta = static_cast<float>(operands.scalars[3]);
  numbers.exactSoftMaxGradient = problem.exactSoftMaxGradient;
  return numbers;
}

/// Whether the divisor of the reduction depends on the weights, and must be counted.
inline bool countsWeights(const LossProblem& problem) {
  return problem.reductionType == CNNReductionType::SumByNonZeroWeights &&
         (problem.weights.channels > 0 || problem.labelKind != LossLabels::Dense);
}

/// The divisor of the reduction of an image, where nothing is counted.
inline double lossDivisor(const LossProblem& problem) {
  const std::int64_t pixels = problem.predictions.height * problem.predictions.width;
  const auto elements = static_cast<double>(pixels * problem.countedChannels);
  switch (problem.reductionType) {
    case CNNReductionType::Mean:
      return problem.lossType == CNNLossType::SoftMaxCrossEntropy ? static_cast<double>(pixels) : elements;
    case CNNReductionType::SumByNonZeroWeights:
      return elements;
    default:
      return 1;
  }
}

/// The problem with tensors that have the counted channels alone.
inline LossProblem narrowed(LossProblem problem) {
  const std::int64_t channels = problem.countedChannels;
  const bool isDense = problem.labelKind == LossLabels::Dense;
  const bool perElement = problem.reductionType == CNNReductionType::None;
  for (TensorShape* shape : {&problem.predictions, isDense ? &problem.labels : nullptr, &problem.weights,
                             perElement ? &problem.sourceGradient : nullptr, &problem.gradient,
                             perElement ? &problem.loss : nullptr, &problem.labelGradient})
    if (shape != nullptr) shape->channels = std::min(shape->channels, channels);
  return problem;
}

}  // namespace mps::detail
