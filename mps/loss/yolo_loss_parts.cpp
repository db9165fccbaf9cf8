#include "mps/loss/yolo_loss_parts.hpp"

#include <algorithm>
#include <bit>

namespace mps::detail {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::size_t kTensorsOfPart = 5;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

LossProblem lossOf(const YOLOLossProblem& problem, std::size_t part) {
  const YOLOLossPart& numbers = problem.parts[part];
  const TensorShape& cells = problem.predictions;
  LossProblem loss;
  loss.lossType = numbers.type;
  loss.reductionType = CNNReductionType::None;
  loss.exactSoftMaxGradient = numbers.exactSoftMaxGradient;
  loss.numberOfClasses = numbers.numberOfClasses;
  loss.countedChannels = problem.countedChannelsOf(part);
  loss.predictions = loss.labels = loss.weights = loss.gradient = loss.loss = TensorShape::dense(
      cells.images, cells.height, cells.width * problem.anchors(), problem.channelsOf(part));
  return loss;
}

}  // namespace

YOLOParts::YOLOParts(const YOLOLossProblem& problem,
                     std::span<const Implementation<LossProblem>> implementations) {
  for (std::size_t i = 0; i < kYOLOLossParts; ++i) {
    if (problem.channelsOf(i) == 0) continue;
    const LossProblem loss = lossOf(problem, i);
    const YOLOLossPart& numbers = problem.parts[i];
    Part& part = parts_[i];
    part.plan = preparePlan(implementations, loss).plan;
    part.scalars = {static_cast<double>(numbers.weight), static_cast<double>(numbers.labelSmoothing),
                    static_cast<double>(numbers.epsilon), static_cast<double>(numbers.delta)};
    part.offset = plansScratch_;
    part.bytes = aligned(static_cast<std::size_t>(loss.predictions.bytes()));
    plansScratch_ += kTensorsOfPart * part.bytes;
    scratchBytes_ = std::max(scratchBytes_, part.plan->scratchBytes());
  }
  scratchBytes_ = aligned(plansScratch_ + scratchBytes_);
}

YOLOTensors YOLOParts::tensors(std::byte* scratch) const {
  YOLOTensors all;
  for (std::size_t i = 0; i < kYOLOLossParts; ++i) {
    const Part& part = parts_[i];
    if (!part.plan) continue;
    const auto tensor = [&](std::size_t number) {
      return reinterpret_cast<float*>(scratch + part.offset + number * part.bytes);
    };
    all[i] = {tensor(0), tensor(1), tensor(2), tensor(3), tensor(4)};
  }
  return all;
}

void YOLOParts::run(mtl::Stream& stream, std::byte* scratch) const {
  const YOLOTensors all = tensors(scratch);
  for (std::size_t i = 0; i < kYOLOLossParts; ++i) {
    const Part& part = parts_[i];
    if (!part.plan) continue;
    Operands operands;
    operands.source = reinterpret_cast<const std::byte*>(all[i].predictions);
    operands.secondary = reinterpret_cast<const std::byte*>(all[i].labels);
    operands.parameters[0] = reinterpret_cast<std::byte*>(all[i].weights);
    operands.parameters[1] = reinterpret_cast<std::byte*>(all[i].loss);
    operands.destination = reinterpret_cast<std::byte*>(all[i].gradient);
    operands.scratch = scratch + plansScratch_;
    operands.scalars = part.scalars;
    part.plan->run(stream, operands);
  }
}

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
