#include "mps/conform/kernel_cases.hpp"
#include "mps/loss/check/yolo_loss_cases.hpp"
#include "mps/loss/check/yolo_loss_reference.hpp"

namespace mps::detail {
namespace {

using YOLOImplementation = Implementation<YOLOLossProblem>;

void runPlan(ConformRun& run, const YOLOImplementation& implementation, const YOLOLossProblem& problem,
             double classRange, std::size_t firstElement) {
  const auto plan = run.prepare(implementation, problem);
  if (!plan) return;
  TestTensor predictions =
      run.source(problem.predictions, yoloPredictions(problem, classRange, run.nextSeed()), firstElement);
  TestTensor labels = run.source(problem.labels, yoloLabels(problem, run.nextSeed()), firstElement);
  TestTensor weights = run.source(problem.weights, yoloWeights(problem, run.nextSeed()), 2 * firstElement);
  TestTensor gradient = run.destination(problem.gradient, 3 * firstElement);
  TestTensor loss = run.destination(problem.loss, firstElement);
  Operands operands;
  operands.source = predictions.address();
  operands.secondary = labels.address();
  if (problem.weights.channels > 0) operands.parameters[0] = weights.address();
  operands.parameters[1] = loss.address();
  operands.destination = gradient.address();
  run.execute(*plan, operands);
  run.require(predictions.isUnchanged() && labels.isUnchanged() && weights.isUnchanged(),
              "an input was written");
  const YOLOLossOutputs expected =
      yoloLossReference(problem, predictions.reference(), labels.reference(),
                        problem.weights.channels > 0 ? weights.reference() : ReferenceTensor());
  run.check(expected.gradient, gradient, Zeros::Expected);
  run.check(expected.loss, loss, Zeros::Expected);
}

}  // namespace

void conformYoloLoss(Conform& conform) {
  for (const YOLOImplementation& implementation : conform.implementations(yoloLossBackEnds))
    for (const auto format : kGradientFormats) {
      const ConformKey key{"CNNYOLOLoss", Direction::Gradient, format, std::string(implementation.name),
                           Tier::Bounded};
      if (!conform.isSelected(key)) continue;
      std::vector<ConformCase> cases;
      for (const YOLOLossCase& item : yoloLossCases()) {
        const YOLOLossProblem problem = item.problem(format);
        for (const std::size_t firstElement : {std::size_t{0}, std::size_t{1}})
          cases.push_back({item.name, [=, classRange = item.classRange](ConformRun& run) {
                             runPlan(run, implementation, problem, classRange, firstElement);
                           }});
      }
      conformRow(conform, key, cases);
    }
}

}  // namespace mps::detail
