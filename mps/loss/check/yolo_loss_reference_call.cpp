#include <cmath>
#include <utility>

#include "mps/conform/reference_call.hpp"
#include "mps/conform/testing/stored_values.hpp"
#include "mps/conform/tolerance.hpp"
#include "mps/loss/check/yolo_loss_reference.hpp"
#include "mps/loss/loss_labels.hpp"

namespace mps::detail {
namespace {

bool isSame(const ReferenceTensor& gradient, const ReferenceTensor& derivative) {
  for (std::size_t i = 0; i < gradient.values.size(); ++i)
    if (!(std::abs(gradient.values[i] - derivative.values[i]) <= kFloat64Tolerance * derivative.magnitude[i]))
      return false;
  return true;
}

}  // namespace

bool computeYoloLoss(ReferenceCall& call) {
  const auto* problem = call.problem<YOLOLossProblem>();
  if (problem == nullptr) return false;
  const LossOperands operands = lossOperands(problem->describe(), call.sourceStates());
  const ReferenceTensor predictions = call.source(problem->predictions);
  const ReferenceTensor labels = storedValues(operands.labels);
  const ReferenceTensor weights =
      operands.weights.empty() ? ReferenceTensor() : storedValues(operands.weights);
  const YOLOLossOutputs outputs = yoloLossReference(*problem, predictions, labels, weights);
  call.setDestination(outputs.gradient);
  // The gradient takes the overlap for a constant, so with rescoring it is no derivative.
  if (problem->rescore) return true;
  YOLOLossProblem undivided = *problem;
  if (undivided.reductionType != CNNReductionType::None) undivided.reductionType = CNNReductionType::Sum;
  for (YOLOLossPart& part : undivided.parts) part.exactSoftMaxGradient = true;
  YOLOLossOutputs exact = yoloLossReference(undivided, predictions, labels, weights);
  if (isSame(outputs.gradient, exact.gradient)) call.setObjective(std::move(exact.loss));
  return true;
}

}  // namespace mps::detail
