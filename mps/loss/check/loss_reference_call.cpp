#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "mps/conform/reference_call.hpp"
#include "mps/conform/testing/stored_values.hpp"
#include "mps/conform/tolerance.hpp"
#include "mps/core/plan/tensor_copy.hpp"
#include "mps/loss/check/loss_reference.hpp"
#include "mps/loss/loss_labels.hpp"
#include "mtl/buffer.hpp"

namespace mps::detail {
namespace {

/// Repeats axes of size 1 over the predictions.
ReferenceTensor expanded(const ReferenceTensor& tensor, const LossProblem& problem) {
  const TensorShape& to = problem.predictions;
  ReferenceTensor result(to.images, to.height, to.width, tensor.channels);
  for (std::int64_t n = 0; n < to.images; ++n)
    for (std::int64_t y = 0; y < to.height; ++y)
      for (std::int64_t x = 0; x < to.width; ++x)
        for (std::int64_t c = 0; c < tensor.channels; ++c)
          result.at(n, y, x, c) = tensor.at(n, tensor.height == 1 ? 0 : y, tensor.width == 1 ? 0 : x, c);
  return result;
}

LossInputs numbersOf(const ReferenceCall& call) {
  LossInputs inputs;
  inputs.weight = call.scalar(0);
  inputs.labelSmoothing = call.scalar(1);
  inputs.epsilon = call.scalar(2);
  inputs.delta = call.scalar(3);
  return inputs;
}

/// Of CNNLoss, whose labels are states.
LossInputs inputsWithStates(const ReferenceCall& call, const LossProblem& problem) {
  LossInputs inputs = numbersOf(call);
  inputs.predictions = call.source(problem.predictions);
  const LossOperands operands = lossOperands(problem.describe(), call.sourceStates());
  if (operands.classIndices) {
    const auto images = problem.predictions.images;
    inputs.labels = ReferenceTensor(images, 1, 1, 1);
    const auto indices = operands.classIndices->contentsAs<const std::uint32_t>();
    for (std::size_t i = 0; i < inputs.labels.values.size(); ++i)
      inputs.labels.values[i] = indices[operands.firstIndex + i];
  } else {
    inputs.labels = expanded(storedValues(operands.labels), problem);
  }
  if (!operands.weights.empty()) inputs.weights = expanded(storedValues(operands.weights), problem);
  return inputs;
}

/// Of the kernels whose labels are images: sources `first` and those behind it.
LossInputs inputsWithImages(const ReferenceCall& call, const LossProblem& problem, std::size_t first) {
  LossInputs inputs = numbersOf(call);
  inputs.predictions = call.stepSource(first);
  inputs.labels = expanded(call.stepSource(first + 1), problem);
  if (problem.weights.channels > 0) inputs.weights = expanded(call.stepSource(first + 2), problem);
  return inputs;
}

bool isDerivative(const ReferenceTensor& gradient, const ReferenceTensor& derivative) {
  for (std::size_t i = 0; i < gradient.values.size(); ++i)
    if (!(std::abs(gradient.values[i] - derivative.values[i]) <= kFloat64Tolerance * derivative.magnitude[i]))
      return false;
  return true;
}

/// CNNLoss: the gradient, and the loss beside it.
void computeLossAndGradient(ReferenceCall& call, const LossProblem& problem) {
  const LossInputs inputs = inputsWithStates(call, problem);
  const LossOutputs outputs = lossReference(problem, inputs);
  call.setDestination(outputs.gradient);
  // CNNLoss divides the loss by the count of a reduction, but not the gradient.
  LossProblem undivided = problem;
  if (undivided.reductionType != CNNReductionType::None && !undivided.divideGradient)
    undivided.reductionType = CNNReductionType::Sum;
  undivided.exactSoftMaxGradient = true;
  LossOutputs exact = lossReference(undivided, inputs);
  // The usual softmax formula is a derivative only where the labels of a pixel, with their weights, add up
  // to 1.
  if (isDerivative(outputs.gradient, exact.gradient)) call.setObjective(std::move(exact.loss));
}

/// NNLossGradient.
void computeLossGradient(ReferenceCall& call, const LossProblem& problem) {
  LossInputs inputs = inputsWithImages(call, problem, 1);
  inputs.sourceGradient = call.stepSource(0);
  const LossOutputs outputs = lossReference(problem, inputs);
  call.setDestination(problem.gradient.channels > 0 ? outputs.gradient : outputs.labelGradient);
}

/// NNInitialGradient: the derivative of the sum of its source.
void computeOnes(ReferenceCall& call) {
  const ReferenceTensor& source = call.stepSource(0);
  ReferenceTensor ones = source;
  std::fill(ones.values.begin(), ones.values.end(), 1.0);
  call.setDestination(ones);
  call.setObjective(source);
}

}  // namespace

bool computeLoss(ReferenceCall& call) {
  if (const auto* fill = call.problem<TensorCopyProblem>(); fill != nullptr && fill->fills) {
    computeOnes(call);
    return true;
  }
  const auto* problem = call.problem<LossProblem>();
  if (problem == nullptr) return false;
  if (problem->loss.channels == 0)
    computeLossGradient(call, *problem);
  else if (problem->gradient.channels == 0)
    call.setDestination(lossReference(*problem, inputsWithImages(call, *problem, 0)).loss);
  else
    computeLossAndGradient(call, *problem);
  return true;
}

}  // namespace mps::detail
