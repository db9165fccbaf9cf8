#include "mps/loss/yolo_loss.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "mps/core/coding/coder.hpp"
#include "mps/core/coding/core_decoders.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/checked_number.hpp"
#include "mps/core/types/error.hpp"
#include "mps/loss/loss_call.hpp"
#include "mps/loss/loss_labels.hpp"
#include "mps/loss/loss_problem.hpp"
#include "mps/loss/yolo_loss_problem.hpp"
#include "mtl/command.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps {

using detail::BatchOperand;
using detail::LossOperands;
using detail::TensorShape;
using detail::YOLOLossPart;
using detail::YOLOLossProblem;

namespace {

std::string sizeText(const TensorShape& shape) {
  return std::to_string(shape.width) + "x" + std::to_string(shape.height) + "x" +
         std::to_string(shape.channels);
}

bool sameSize(const TensorShape& a, const TensorShape& b) {
  return a.width == b.width && a.height == b.height && a.channels == b.channels;
}

/// One of the four, checked.
std::shared_ptr<CNNLoss> partOf(const std::shared_ptr<mtl::Device>& device, const char* property,
                                CNNLossDescriptor descriptor, CNNReductionType reduction) {
  if (descriptor.lossType() == CNNLossType::CosineDistance)
    throw Error("CNNYOLOLoss", property, "the cosine distance", "a loss of single elements, or softmax");
  if (descriptor.lossScale()) throw Error("CNNYOLOLoss", property, "with a loss scale", "one without");
  descriptor.setReductionType(reduction);
  return CNNLoss::create(device, descriptor);
}

YOLOLossPart numbersOf(const CNNLoss& loss) {
  return {loss.lossType(),
          loss.weight(),
          loss.labelSmoothing(),
          static_cast<std::int64_t>(loss.numberOfClasses()),
          loss.epsilon(),
          loss.delta(),
          loss.descriptor().exactSoftMaxGradient()};
}

}  // namespace

CNNYOLOLoss::CNNYOLOLoss(std::shared_ptr<mtl::Device> device, const CNNYOLOLossDescriptor& lossDescriptor)
    : KernelClass(std::move(device)),
      descriptor_(lossDescriptor),
      lossXY_(partOf(this->device(), "XYLossDescriptor", descriptor_.XYLossDescriptor(), reductionType())),
      lossWH_(partOf(this->device(), "WHLossDescriptor", descriptor_.WHLossDescriptor(), reductionType())),
      lossConfidence_(partOf(this->device(), "confidenceLossDescriptor",
                             descriptor_.confidenceLossDescriptor(), reductionType())),
      lossClasses_(partOf(this->device(), "classesLossDescriptor", descriptor_.classesLossDescriptor(),
                          reductionType())) {
  if (numberOfAnchorBoxes() < 1) throw Error("CNNYOLOLoss", "numberOfAnchorBoxes", "0", "at least 1");
  constexpr auto most = static_cast<std::size_t>(YOLOLossProblem::kMostAnchors);
  if (numberOfAnchorBoxes() > most)
    throw Error("CNNYOLOLoss", "numberOfAnchorBoxes", std::to_string(numberOfAnchorBoxes()),
                "at most " + std::to_string(most));
  if (anchorBoxes().size() != 2 * numberOfAnchorBoxes())
    throw Error("CNNYOLOLoss", "anchorBoxes", std::to_string(anchorBoxes().size()) + " numbers",
                std::to_string(2 * numberOfAnchorBoxes()) + ", a width and a height for each anchor");
  for (const float size : anchorBoxes())
    if (!(size > 0) || std::isinf(size))
      throw Error("CNNYOLOLoss", "anchorBoxes", std::to_string(size), "finite sizes above 0");
  for (const auto& [property, number] :
       {std::pair("scaleXY", scaleXY()), std::pair("scaleWH", scaleWH()),
        std::pair("scaleNoObject", scaleNoObject()), std::pair("scaleObject", scaleObject()),
        std::pair("scaleClass", scaleClass()),
        std::pair("minIOUForObjectPresence", minIOUForObjectPresence()),
        std::pair("maxIOUForObjectAbsence", maxIOUForObjectAbsence())})
    detail::checkedFinite("CNNYOLOLoss", property, number);
}

std::shared_ptr<CNNYOLOLoss> CNNYOLOLoss::create(const std::shared_ptr<mtl::Device>& device,
                                                 const CNNYOLOLossDescriptor& lossDescriptor) {
  return std::shared_ptr<CNNYOLOLoss>(new CNNYOLOLoss(device, lossDescriptor));
}

detail::PreparedCall CNNYOLOLoss::prepareForward(const detail::ForwardCall& /*call*/) const {
  throw Error(describe() + ": encoded without labels; pass CNNLossLabels");
}

void CNNYOLOLoss::encodeWithSourceStates(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                         const ImageBatch& sourceImages, const StateBatch& sourceStates,
                                         const StateBatch& /*destinationStates*/,
                                         const ImageBatch& destinationImages) {
  encodeBatch(commandBuffer, sourceImages, sourceStates, destinationImages);
}

void CNNYOLOLoss::encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                              const ImageBatch& sourceImages, const CNNLossLabelsBatch& labels,
                              const ImageBatch& destinationImages) {
  detail::checkCommandBuffer(*this, commandBuffer);
  detail::checkCount(*this, "destinationImages", destinationImages.count(), sourceImages.count());
  detail::checkStates(*this, "labels", *commandBuffer, labels, sourceImages.count());
  detail::checkNotEmpty(*this, "sourceImages", sourceImages);
  detail::checkSources(*this, "sourceImages", *commandBuffer, sourceImages);
  detail::checkDestinations(*this, "destinationImages", *commandBuffer, destinationImages);
  detail::checkNoAlias(*this, "sourceImages", sourceImages, destinationImages);
  detail::checkNotStacked(*this, "sourceImages", sourceImages);
  detail::checkNotStacked(*this, "destinationImages", destinationImages);
  detail::checkCoversWholeImages(*this);

  const LossOperands operands = detail::lossOperands(describe(), labels);
  if (operands.classIndices) throw Error(describe(), "labels", "class indices", "images of labels");
  detail::checkLossTargets(*this, operands.labels, operands.weights, destinationImages);
  const BatchOperand source(sourceImages);
  const BatchOperand destination(destinationImages, true);
  YOLOLossProblem problem;
  problem.parts = {numbersOf(*lossXY_), numbersOf(*lossWH_), numbersOf(*lossConfidence_),
                   numbersOf(*lossClasses_)};
  problem.reductionType = reductionType();
  problem.reduceAcrossBatch = reduceAcrossBatch() && reductionType() != CNNReductionType::None;
  problem.rescore = descriptor_.rescore();
  problem.scaleXY = scaleXY();
  problem.scaleWH = scaleWH();
  problem.scaleNoObject = scaleNoObject();
  problem.scaleObject = scaleObject();
  problem.scaleClass = scaleClass();
  problem.minIOUForObjectPresence = minIOUForObjectPresence();
  problem.maxIOUForObjectAbsence = maxIOUForObjectAbsence();
  problem.anchorBoxes = anchorBoxes();
  problem.predictions = source.shape();
  problem.gradient = destination.shape();
  constexpr std::int64_t fewestChannels = 5;
  if (problem.predictions.channels % problem.anchors() != 0 || problem.channelsPerAnchor() < fewestChannels)
    throw Error(describe(), "sourceImages",
                std::to_string(problem.predictions.channels) + " feature channels",
                "5 + number of classes for each of " + std::to_string(problem.anchors()) + " anchors");
  if (!sameSize(problem.gradient, problem.predictions))
    throw Error(describe(), "destinationImages", sizeText(problem.gradient), sizeText(problem.predictions));

  mtl::RecordingGuard guard(*commandBuffer);
  const auto check = [&](const char* argument, const ImageBatch& images, const TensorShape& shape) {
    detail::checkSources(*this, argument, *commandBuffer, images);
    detail::checkNotStacked(*this, argument, images);
    if (!sameSize(shape, problem.predictions))
      throw Error(describe(), argument, sizeText(shape),
                  sizeText(problem.predictions) + ", as the predictions");
  };
  const BatchOperand targets(operands.labels);
  check("labels", operands.labels, targets.shape());
  problem.labels = targets.shape();
  detail::PreparedCall prepared;
  if (!operands.weights.empty()) {
    const BatchOperand weights(operands.weights);
    check("weights", operands.weights, weights.shape());
    const detail::TensorView view = detail::gather(*commandBuffer, describe(), weights);
    problem.weights = view.shape;
    prepared.parameters[0] = detail::PreparedCall::Parameter::of(view);
  }
  const BatchOperand losses(operands.losses, true);
  const TensorShape loss = losses.shape();
  const bool single = loss.width == 1 && loss.height == 1 && loss.channels == 1;
  if (!sameSize(loss, problem.predictions) && !single)
    throw Error(describe(), "lossImageSize", sizeText(loss),
                "1x1x1, or " + sizeText(problem.predictions) + ", as the predictions");
  if (single && problem.reductionType == CNNReductionType::None)
    problem.reductionType = CNNReductionType::Sum;  // docs/decisions.md, D25
  detail::TensorView written;
  if (losses.isLoose()) {
    written.shape = loss;
    written.memory = commandBuffer->heap()->allocate(static_cast<std::size_t>(loss.bytes()));
  } else {
    written = losses.view(*commandBuffer, true);
  }
  problem.loss = written.shape;
  prepared.parameters[1] = detail::PreparedCall::Parameter::of(written, true);
  prepared.plan = detail::planFor(*device(), detail::yoloLossBackEnds, problem);
  detail::CallOperands call;
  call.source = &source;
  call.secondary = &targets;
  call.destination = &destination;
  detail::recordCall(*commandBuffer, *this, prepared, call);
  if (losses.isLoose()) detail::scatter(*commandBuffer, describe(), written, losses);
  guard.keep();
  detail::setProducer(destinationImages, describe());
  detail::consumeRead(sourceImages, describe());
}

ImageBatch CNNYOLOLoss::encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                    const ImageBatch& sourceImages, const CNNLossLabelsBatch& labels) {
  detail::checkCommandBuffer(*this, commandBuffer);
  detail::checkNotEmpty(*this, "sourceImages", sourceImages);
  detail::checkNotStacked(*this, "sourceImages", sourceImages);
  ImageDescriptor size = sizeDestination(sourceImages.descriptor());
  size.setNumberOfImages(1);
  ImageBatch destinations =
      detail::allocateImages(*this, *destinationImageAllocator(), commandBuffer, size, sourceImages.count());
  encodeBatch(commandBuffer, sourceImages, labels, destinations);
  return destinations;
}

void CNNYOLOLoss::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                         const std::shared_ptr<Image>& sourceImage,
                         const std::shared_ptr<CNNLossLabels>& labels,
                         const std::shared_ptr<Image>& destinationImage) {
  if (!sourceImage || !destinationImage)
    throw Error(describe(), "sourceImage or destinationImage", "null", "an image");
  if (!labels) throw Error(describe(), "labels", "null", "CNNLossLabels");
  encodeBatch(commandBuffer, ImageBatch{sourceImage}, StateBatch{labels}, ImageBatch{destinationImage});
}

std::shared_ptr<Image> CNNYOLOLoss::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                           const std::shared_ptr<Image>& sourceImage,
                                           const std::shared_ptr<CNNLossLabels>& labels) {
  if (!sourceImage) throw Error(describe(), "sourceImage", "null", "an image");
  if (!labels) throw Error(describe(), "labels", "null", "CNNLossLabels");
  return encodeBatch(commandBuffer, ImageBatch{sourceImage}, StateBatch{labels})[0];
}

namespace {

/// Of both directions. @param values read or written
void codeDescriptor(Coder& coder, CNNYOLOLossDescriptor& values) {
  CNNLossDescriptor xy = values.XYLossDescriptor();
  CNNLossDescriptor wh = values.WHLossDescriptor();
  CNNLossDescriptor confidence = values.confidenceLossDescriptor();
  CNNLossDescriptor classes = values.classesLossDescriptor();
  CNNReductionType reductionType = values.reductionType();
  bool reduceAcrossBatch = values.reduceAcrossBatch();
  bool rescore = values.rescore();
  std::vector<float> numbers{values.scaleXY(),
                             values.scaleWH(),
                             values.scaleNoObject(),
                             values.scaleObject(),
                             values.scaleClass(),
                             values.minIOUForObjectPresence(),
                             values.maxIOUForObjectAbsence()};
  std::size_t numberOfAnchorBoxes = values.numberOfAnchorBoxes();
  std::vector<float> anchorBoxes = values.anchorBoxes();
  coder.codeClass("CNNYOLOLossDescriptor");
  coder.code("XYLossDescriptor", xy);
  coder.code("WHLossDescriptor", wh);
  coder.code("confidenceLossDescriptor", confidence);
  coder.code("classesLossDescriptor", classes);
  coder.codeEnumeration("reductionType", reductionType, CNNReductionType::SumByNonZeroWeights);
  coder.code("reduceAcrossBatch", reduceAcrossBatch);
  coder.code("rescore", rescore);
  coder.code("scalesAndOverlaps", numbers);
  coder.code("numberOfAnchorBoxes", numberOfAnchorBoxes);
  coder.code("anchorBoxes", anchorBoxes);
  if (numbers.size() != 7)
    coder.refuse("scalesAndOverlaps", std::to_string(numbers.size()) + " numbers", "7");
  if (anchorBoxes.size() / 2 != numberOfAnchorBoxes)
    coder.refuse("anchorBoxes", std::to_string(anchorBoxes.size()) + " numbers", "two for each anchor");
  values.setXYLossDescriptor(xy);
  values.setWHLossDescriptor(wh);
  values.setConfidenceLossDescriptor(confidence);
  values.setClassesLossDescriptor(classes);
  values.setReductionType(reductionType);
  values.setReduceAcrossBatch(reduceAcrossBatch);
  values.setRescore(rescore);
  values.setScaleXY(numbers[0]);
  values.setScaleWH(numbers[1]);
  values.setScaleNoObject(numbers[2]);
  values.setScaleObject(numbers[3]);
  values.setScaleClass(numbers[4]);
  values.setMinIOUForObjectPresence(numbers[5]);
  values.setMaxIOUForObjectAbsence(numbers[6]);
  values.setNumberOfAnchorBoxes(numberOfAnchorBoxes);
  values.setAnchorBoxes(anchorBoxes);
}

}  // namespace

void CNNYOLOLossDescriptor::encode(Coder& coder) const {
  CNNYOLOLossDescriptor copy = *this;
  codeDescriptor(coder, copy);
}

CNNYOLOLossDescriptor CNNYOLOLossDescriptor::decode(Coder& coder) {
  detail::checkDecodes(coder, "CNNYOLOLossDescriptor");
  auto descriptor = cnnLossDescriptor({}, {}, {}, {}, {}, {}, 0);
  codeDescriptor(coder, descriptor);
  return descriptor;
}

void CNNYOLOLoss::codeProperties(Coder& coder) {
  CNNKernel::codeProperties(coder);
  coder.code("descriptor", descriptor_);
  if (!coder.isDecoding()) return;
  const auto made = create(device(), descriptor_);
  lossXY_ = made->lossXY_;
  lossWH_ = made->lossWH_;
  lossConfidence_ = made->lossConfidence_;
  lossClasses_ = made->lossClasses_;
}

}  // namespace mps
