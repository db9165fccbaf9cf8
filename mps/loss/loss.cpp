#include "mps/loss/loss.hpp"

#include <algorithm>
#include <cstddef>

#include "mps/core/call.hpp"
#include "mps/core/error.hpp"
#include "mps/core/loss_scale.hpp"
#include "mps/core/loss_scale_problem.hpp"
#include "mps/core/plan_for.hpp"
#include "mps/loss/loss_labels.hpp"
#include "mps/loss/loss_problem.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps {

using detail::BatchOperand;
using detail::LossOperands;
using detail::LossProblem;
using detail::TensorShape;

namespace {

std::string sizeText(const TensorShape& shape) {
  return std::to_string(shape.width) + "x" + std::to_string(shape.height) + "x" +
         std::to_string(shape.channels);
}

/// Repeats axes of size 1 over the predictions; other sizes must be equal, channels at least `channels`.
TensorShape fitted(const Kernel& kernel, const char* argument, TensorShape shape,
                   const TensorShape& predictions, std::int64_t channels) {
  const bool fits = (shape.width == predictions.width || shape.width == 1) &&
                    (shape.height == predictions.height || shape.height == 1) && shape.channels >= channels;
  if (!fits)
    throw Error(kernel.describe(), argument, sizeText(shape),
                "the predictions' " + std::to_string(predictions.width) + "x" +
                    std::to_string(predictions.height) + " with at least " + std::to_string(channels) +
                    " channels");
  if (shape.width != predictions.width) shape.pixelStride = 0;
  if (shape.height != predictions.height) shape.rowStride = 0;
  shape.width = predictions.width;
  shape.height = predictions.height;
  return shape;
}

}  // namespace

CNNLoss::CNNLoss(std::shared_ptr<mtl::Device> device, const CNNLossDescriptor& lossDescriptor)
    : CNNKernel(std::move(device)), descriptor_(lossDescriptor) {
  const auto check = [](bool right, const char* property, const std::string& found, const char* expected) {
    if (!right) throw Error("CNNLoss", property, found, expected);
  };
  check(lossType() < CNNLossType::Count, "lossType", std::to_string(static_cast<int>(lossType())),
        "a loss type");
  check(reductionType() >= CNNReductionType::None && reductionType() < CNNReductionType::Count,
        "reductionType", std::to_string(static_cast<int>(reductionType())), "a reduction type");
  check(numberOfClasses() >= 1, "numberOfClasses", "0", "at least 1");
  check(epsilon() > 0, "epsilon", std::to_string(epsilon()), "greater than 0");
  check(!descriptor_.lossScale() || reductionType() != CNNReductionType::None, "lossScale",
        "set with reduction None", "a reduction");
  check(!descriptor_.lossScale() || descriptor_.lossScale()->device() == this->device(), "lossScale",
        "of another device", "one of the loss's");
  check(lossType() != CNNLossType::CosineDistance || reductionType() == CNNReductionType::Sum,
        "reductionType", detail::name(reductionType()), "Sum for the cosine distance");
}

std::shared_ptr<CNNLoss> CNNLoss::create(const std::shared_ptr<mtl::Device>& device,
                                         const CNNLossDescriptor& lossDescriptor) {
  return std::shared_ptr<CNNLoss>(new CNNLoss(device, lossDescriptor));
}

std::shared_ptr<Kernel> CNNLoss::clone() const {
  return std::shared_ptr<CNNLoss>(new CNNLoss(*this));
}

detail::PreparedCall CNNLoss::prepareForward(const detail::ForwardCall& /*call*/) const {
  throw Error(describe() + ": encoded without labels; pass CNNLossLabels");
}

void CNNLoss::encodeWithSourceStates(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                     const ImageBatch& sourceImages, const StateBatch& sourceStates,
                                     const StateBatch& /*destinationStates*/,
                                     const ImageBatch& destinationImages) {
  encodeBatch(commandBuffer, sourceImages, sourceStates, destinationImages);
}

void CNNLoss::encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                          const ImageBatch& sourceImages, const CNNLossLabelsBatch& labels,
                          const ImageBatch& destinationImages) {
  detail::checkCommandBuffer(*this, commandBuffer);
  detail::checkCount(*this, "destinationImages", destinationImages.count(), sourceImages.count());
  detail::checkStates(*this, "labels", *commandBuffer, labels, sourceImages.count());
  if (sourceImages.empty()) return;
  detail::checkSources(*this, "sourceImages", *commandBuffer, sourceImages);
  detail::checkDestinations(*this, "destinationImages", *commandBuffer, destinationImages);
  detail::checkNoAlias(*this, "sourceImages", sourceImages, destinationImages);
  detail::checkNotStacked(*this, "sourceImages", sourceImages);
  detail::checkNotStacked(*this, "destinationImages", destinationImages);
  if (!(offset() == Offset{}) || !(clipRect() == RectNoClip))
    throw Error(describe(), "offset and clipRect", "changed", "their defaults: a loss covers whole images");

  const LossOperands operands = detail::lossOperands(describe(), labels);
  const BatchOperand source(sourceImages);
  const BatchOperand destination(destinationImages);
  LossProblem problem;
  problem.lossType = lossType();
  problem.reductionType = reductionType();
  problem.reduceAcrossBatch = reduceAcrossBatch() && reductionType() != CNNReductionType::None;
  problem.exactSoftMaxGradient = descriptor_.exactSoftMaxGradient();
  problem.numberOfClasses = static_cast<std::int64_t>(numberOfClasses());
  problem.predictions = source.shape();
  problem.gradient = destination.shape();
  problem.countedChannels = problem.predictions.channels;
  if (lossType() == CNNLossType::SoftMaxCrossEntropy && numberOfClasses() > 1)
    problem.countedChannels = std::min(problem.countedChannels, problem.numberOfClasses);
  if (problem.gradient.width != problem.predictions.width ||
      problem.gradient.height != problem.predictions.height ||
      problem.gradient.channels != problem.predictions.channels)
    throw Error(describe(), "destinationImages", sizeText(problem.gradient), sizeText(problem.predictions));

  mtl::RecordingGuard guard(*commandBuffer);
  detail::PreparedCall prepared;
  detail::CallOperands call;
  call.source = &source;
  call.destination = &destination;
  BatchOperand targets;
  if (operands.classIndices) {
    if (problem.predictions.width != 1 || problem.predictions.height != 1)
      throw Error(describe(), "labels", "one class index per image",
                  "dense labels for predictions of several pixels");
    problem.labelKind = detail::LossLabels::UInt8Indices;
    problem.labels =
        TensorShape::dense(problem.predictions.images, 1, 1, 1, ImageFeatureChannelFormat::Unorm8);
    targets = BatchOperand::ofMemory(problem.labels, operands.classIndices->memory(), operands.firstIndex);
    call.secondary = &targets;
  } else {
    detail::checkSources(*this, "labels", *commandBuffer, operands.labels);
    detail::checkNotStacked(*this, "labels", operands.labels);
    targets = BatchOperand(operands.labels);
    problem.labels = fitted(*this, "labels", targets.shape(), problem.predictions, problem.countedChannels);
    call.secondary = &targets;
  }
  detail::TensorView weights;
  if (!operands.weights.empty()) {
    detail::checkSources(*this, "weights", *commandBuffer, operands.weights);
    detail::checkNotStacked(*this, "weights", operands.weights);
    weights = detail::gather(*commandBuffer, describe(), BatchOperand(operands.weights));
    const bool perPixel = weights.shape.channels == 1;
    problem.weights =
        fitted(*this, "weights", weights.shape, problem.predictions, perPixel ? 1 : problem.countedChannels);
    prepared.parameters[0] = {weights.memory, weights.byteOffset, false};
  }
  const BatchOperand losses(operands.losses);
  const TensorShape loss = losses.shape();
  const bool perElement = loss.width == problem.predictions.width &&
                          loss.height == problem.predictions.height &&
                          loss.channels == problem.predictions.channels;
  const bool single = loss.width == 1 && loss.height == 1 && loss.channels == 1;
  if (!(perElement || (single && reductionType() != CNNReductionType::None)))
    throw Error(describe(), "lossImageSize", sizeText(loss),
                reductionType() == CNNReductionType::None
                    ? sizeText(problem.predictions) + ", as the predictions"
                    : "1x1x1, or " + sizeText(problem.predictions));
  BatchOperand scale;
  if (const auto& lossScale = descriptor_.lossScale()) {
    // One number for all images.
    problem.sourceGradient =
        TensorShape::dense(problem.predictions.images, 1, 1, 1, ImageFeatureChannelFormat::Float32);
    problem.sourceGradient.imageStride = 0;
    scale = BatchOperand::ofMemory(problem.sourceGradient, lossScale->numbers()->memory(),
                                   offsetof(detail::LossScaleNumbers, scale));
    call.gradient = &scale;
  }
  detail::TensorView written;
  if (losses.isLoose()) {
    written.shape = loss;
    written.memory = commandBuffer->heap()->allocate(static_cast<std::size_t>(loss.bytes()));
  } else {
    written = losses.view(true);
  }
  problem.loss = written.shape;
  prepared.parameters[1] = {written.memory, written.byteOffset, true};
  prepared.scalars[0] = weight();
  prepared.scalars[1] = labelSmoothing();
  prepared.scalars[2] = epsilon();
  prepared.scalars[3] = delta();
  prepared.plan = detail::planFor(*device(), detail::lossBackEnds, problem);
  detail::recordCall(*commandBuffer, *this, prepared, call);
  if (losses.isLoose()) detail::scatter(*commandBuffer, describe(), written, losses);
  guard.keep();
  detail::consumeRead(sourceImages, describe());
}

ImageBatch CNNLoss::encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                const ImageBatch& sourceImages, const CNNLossLabelsBatch& labels) {
  detail::checkCommandBuffer(*this, commandBuffer);
  if (sourceImages.empty()) return {};
  detail::checkNotStacked(*this, "sourceImages", sourceImages);
  ImageDescriptor size = sizeDestination(sourceImages.descriptor());
  size.setNumberOfImages(1);
  ImageBatch destinations =
      detail::allocateImages(*this, *destinationImageAllocator(), commandBuffer, size, sourceImages.count());
  encodeBatch(commandBuffer, sourceImages, labels, destinations);
  return destinations;
}

void CNNLoss::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                     const std::shared_ptr<Image>& sourceImage, const std::shared_ptr<CNNLossLabels>& labels,
                     const std::shared_ptr<Image>& destinationImage) {
  if (!sourceImage || !destinationImage)
    throw Error(describe(), "sourceImage or destinationImage", "null", "an image");
  if (!labels) throw Error(describe(), "labels", "null", "CNNLossLabels");
  encodeBatch(commandBuffer, ImageBatch{sourceImage}, StateBatch{labels}, ImageBatch{destinationImage});
}

std::shared_ptr<Image> CNNLoss::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                       const std::shared_ptr<Image>& sourceImage,
                                       const std::shared_ptr<CNNLossLabels>& labels) {
  if (!sourceImage) throw Error(describe(), "sourceImage", "null", "an image");
  if (!labels) throw Error(describe(), "labels", "null", "CNNLossLabels");
  return encodeBatch(commandBuffer, ImageBatch{sourceImage}, StateBatch{labels})[0];
}

}  // namespace mps
