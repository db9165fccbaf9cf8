#include "mps/loss/yolo_loss_problem.hpp"

#include <bit>

#include "mps/loss/loss_problem.hpp"

namespace mps::detail {

LossNumbers YOLOLossPart::lossNumbers() const {
  LossProblem problem;
  problem.lossType = type;
  problem.numberOfClasses = numberOfClasses;
  problem.exactSoftMaxGradient = exactSoftMaxGradient;
  Operands operands;
  operands.scalars = {static_cast<double>(weight), static_cast<double>(labelSmoothing),
                      static_cast<double>(epsilon), static_cast<double>(delta)};
  return detail::lossNumbers(problem, operands);
}

double YOLOLossProblem::divisor() const {
  const std::int64_t elements = predictions.height * predictions.width * predictions.channels *
                                (reduceAcrossBatch ? predictions.images : 1);
  return reductionType == CNNReductionType::Mean || reductionType == CNNReductionType::SumByNonZeroWeights
             ? static_cast<double>(elements)
             : 1;
}

std::size_t YOLOLossProblem::hash() const {
  const auto bits = [](float value) { return std::bit_cast<std::uint32_t>(value); };
  std::size_t result =
      hashOf(reductionType, reduceAcrossBatch, rescore, bits(scaleXY), bits(scaleWH), bits(scaleNoObject),
             bits(scaleObject), bits(scaleClass), bits(minIOUForObjectPresence), bits(maxIOUForObjectAbsence),
             predictions.hash(), labels.hash(), weights.hash(), gradient.hash(), loss.hash());
  for (const YOLOLossPart& part : parts)
    result = hashCombine(result,
                         hashOf(part.type, bits(part.weight), bits(part.labelSmoothing), part.numberOfClasses,
                                bits(part.epsilon), bits(part.delta), part.exactSoftMaxGradient));
  for (const float size : anchorBoxes) result = hashCombine(result, bits(size));
  return result;
}

std::string YOLOLossProblem::describe() const {
  std::string text = "YOLO loss";
  for (const YOLOLossPart& part : parts) text += std::string(" ") + name(part.type);
  return text + ", " + name(reductionType) + ", " + std::to_string(anchors()) + " anchors, predictions " +
         predictions.describe() + ", labels " + labels.describe() +
         (weights.channels > 0 ? ", weights " + weights.describe() : "") + " -> gradient " +
         gradient.describe() + ", loss " + loss.describe();
}

}  // namespace mps::detail
