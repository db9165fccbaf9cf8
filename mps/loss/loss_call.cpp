#include "mps/loss/loss_call.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <string>

#include "mps/core/layer/loss_scale_problem.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/checked_number.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"
#include "mtl/submission.hpp"

namespace mps::detail {
namespace {

std::string sizeText(const TensorShape& shape) {
  return std::to_string(shape.width) + "x" + std::to_string(shape.height) + "x" +
         std::to_string(shape.channels);
}

bool isSameSize(const TensorShape& a, const TensorShape& b) {
  return a.width == b.width && a.height == b.height && a.channels == b.channels;
}

bool isSingle(const TensorShape& shape) {
  return shape.width == 1 && shape.height == 1 && shape.channels == 1;
}

/// What is read of an image: as wide and high as the predictions, with at least so many channels.
/// @param repeats axes of size 1 are repeated over the predictions
TensorShape fitted(const Kernel& kernel, const char* argument, TensorShape shape,
                   const TensorShape& predictions, std::int64_t channels, bool repeats) {
  const auto fits = [&](std::int64_t size, std::int64_t wanted) {
    return size == wanted || (repeats && size == 1);
  };
  const bool couldRepeat = !repeats && (shape.width == 1 || shape.height == 1);
  if (!fits(shape.width, predictions.width) || !fits(shape.height, predictions.height) ||
      shape.channels < channels)
    throw Error(kernel.describe(), argument, sizeText(shape),
                "the predictions' " + std::to_string(predictions.width) + "x" +
                    std::to_string(predictions.height) + " with at least " + std::to_string(channels) +
                    " channels" +
                    (couldRepeat ? "; broadcastsLabels of the descriptor repeats axes of size 1" : ""));
  if (shape.width != predictions.width) shape.pixelStride = 0;
  if (shape.height != predictions.height) shape.rowStride = 0;
  shape.width = predictions.width;
  shape.height = predictions.height;
  return shape;
}

}  // namespace

void checkLossDescriptor(const std::string& kernel, const CNNLossDescriptor& descriptor) {
  const auto check = [&](bool right, const char* property, const std::string& found, const char* expected) {
    if (!right) throw Error(kernel, property, found, expected);
  };
  const CNNReductionType reduction = descriptor.reductionType();
  check(descriptor.lossType() < CNNLossType::Count, "lossType",
        std::to_string(static_cast<int>(descriptor.lossType())), "a loss type");
  check(reduction >= CNNReductionType::None && reduction < CNNReductionType::Count, "reductionType",
        std::to_string(static_cast<int>(reduction)), "a reduction type");
  check(descriptor.numberOfClasses() >= 1, "numberOfClasses", "0", "at least 1");
  checkedFinite(kernel, "weight", descriptor.weight());
  check(descriptor.epsilon() > 0 && std::isfinite(descriptor.epsilon()), "epsilon",
        std::to_string(descriptor.epsilon()), "a finite number greater than 0");
  checkedNotNegative(kernel, "delta", descriptor.delta());
  check(descriptor.labelSmoothing() <= 1 && std::isfinite(descriptor.labelSmoothing()), "labelSmoothing",
        std::to_string(descriptor.labelSmoothing()), "a finite number, at most 1");
  check(descriptor.lossType() != CNNLossType::CosineDistance || reduction == CNNReductionType::Sum,
        "reductionType", name(reduction), "Sum for the cosine distance");
}

void checkCoversWholeImages(const CNNKernel& kernel) {
  if (!(kernel.offset() == Offset{}) || !(kernel.clipRect() == RectNoClip))
    throw Error(kernel.describe(), "offset and clipRect", "changed",
                "their defaults: a loss covers whole images");
  if (kernel.sourceFeatureChannelOffset() != 0 ||
      kernel.sourceFeatureChannelMaxCount() != std::numeric_limits<std::size_t>::max() ||
      kernel.destinationFeatureChannelOffset() != 0)
    throw Error(kernel.describe(),
                "sourceFeatureChannelOffset, sourceFeatureChannelMaxCount and "
                "destinationFeatureChannelOffset",
                "changed", "their defaults: a loss covers all channels");
}

void checkLossTargets(const Kernel& kernel, const ImageBatch& labels, const ImageBatch& weights,
                      const ImageBatch& destinations) {
  if (!labels.empty()) checkNoAlias(kernel, "labels", labels, destinations);
  if (!weights.empty()) checkNoAlias(kernel, "weights", weights, destinations);
}

void checkLossImages(const Kernel& kernel, mtl::CommandBuffer& commandBuffer, const ImageBatch& sources,
                     const ImageBatch& destinations) {
  checkSources(kernel, "sourceImages", commandBuffer, sources);
  checkDestinations(kernel, "destinationImages", commandBuffer, destinations);
  checkNoAlias(kernel, "sourceImages", sources, destinations);
  checkNotStacked(kernel, "sourceImages", sources);
  checkNotStacked(kernel, "destinationImages", destinations);
}

LossCall::LossCall(const Kernel& kernel, mtl::CommandBuffer& commandBuffer,
                   const CNNLossDescriptor& descriptor, const ImageBatch& predictions)
    : kernel_(kernel),
      commandBuffer_(commandBuffer),
      broadcastsLabels_(descriptor.broadcastsLabels()),
      predictions_(predictions) {
  problem_.lossType = descriptor.lossType();
  problem_.reductionType = descriptor.reductionType();
  problem_.reduceAcrossBatch =
      descriptor.reduceAcrossBatch() && descriptor.reductionType() != CNNReductionType::None;
  problem_.exactSoftMaxGradient = descriptor.exactSoftMaxGradient();
  problem_.numberOfClasses = static_cast<std::int64_t>(descriptor.numberOfClasses());
  problem_.predictions = predictions_.shape();
  problem_.countedChannels = problem_.predictions.channels;
  if (problem_.lossType == CNNLossType::SoftMaxCrossEntropy && problem_.numberOfClasses > 1)
    problem_.countedChannels = std::min(problem_.countedChannels, problem_.numberOfClasses);
  numbers_ = {descriptor.weight(), descriptor.labelSmoothing(), descriptor.epsilon(), descriptor.delta()};
}

void LossCall::setLabels(const ImageBatch& labels) {
  checkSources(kernel_, "labels", commandBuffer_, labels);
  checkNotStacked(kernel_, "labels", labels);
  labels_ = BatchOperand(labels);
  problem_.labels = fitted(kernel_, "labels", labels_.shape(), problem_.predictions, problem_.countedChannels,
                           broadcastsLabels_);
}

void LossCall::setClassIndices(const LossOperands& labels) {
  if (problem_.predictions.width != 1 || problem_.predictions.height != 1)
    throw Error(kernel_.describe(), "labels", "one class index per image",
                "dense labels for predictions of several pixels");
  const auto classes = static_cast<std::size_t>(problem_.countedChannels);
  if (labels.numberOfClasses > classes)
    throw Error(kernel_.describe(), "labels", "of " + std::to_string(labels.numberOfClasses) + " classes",
                "at most " + std::to_string(classes) + ", the channels that count");
  const auto& indices = labels.classIndices;
  const auto images = static_cast<std::size_t>(problem_.predictions.images);
  problem_.labelKind = LossLabels::ClassIndices;
  problem_.labels = TensorShape::dense(problem_.predictions.images, 1, 1, 1);
  labels_ =
      BatchOperand::ofMemory(problem_.labels, indices->memory(), labels.firstIndex * sizeof(std::uint32_t));
  // The host wrote them, and has them as long as the command may run.
  const auto values = indices->contentsAs<const std::uint32_t>().subspan(labels.firstIndex, images);
  checkLabels_ = [indices, values, classes] {
    if (const auto wrong = wrongClassIndex(values, classes); !wrong.empty())
      throw std::runtime_error("labels: " + wrong);
  };
}

void LossCall::setWeights(const ImageBatch& weights) {
  checkSources(kernel_, "weights", commandBuffer_, weights);
  checkNotStacked(kernel_, "weights", weights);
  const TensorView view = gather(commandBuffer_, kernel_.describe(), BatchOperand(weights));
  problem_.weights = fitted(kernel_, "weights", view.shape, problem_.predictions,
                            view.shape.channels == 1 ? 1 : problem_.countedChannels, true);
  prepared_.parameters[0] = PreparedCall::Parameter::of(view);
}

void LossCall::setSourceGradients(const ImageBatch& gradients, bool divides) {
  sourceGradient_ = BatchOperand(gradients);
  problem_.sourceGradient = sourceGradient_.shape();
  problem_.divideGradient = divides;
  const TensorShape& found = problem_.sourceGradient;
  if (perElement() ? !isSameSize(found, problem_.predictions) : !isSingle(found))
    throw Error(kernel_.describe(), "sourceGradients", sizeText(found),
                perElement() ? sizeText(problem_.predictions) + ", as the losses" : "1x1x1, as the losses");
}

void LossCall::setScale(const LossScale& scale) {
  problem_.sourceGradient =
      TensorShape::dense(problem_.predictions.images, 1, 1, 1, ImageFeatureChannelFormat::Float32);
  problem_.sourceGradient.imageStride = 0;
  sourceGradient_ = BatchOperand::ofMemory(problem_.sourceGradient, scale.numbers()->memory(),
                                           offsetof(LossScaleNumbers, scale));
}

void LossCall::checkAsPredictions(const char* argument, const TensorShape& shape) const {
  if (!isSameSize(shape, problem_.predictions))
    throw Error(kernel_.describe(), argument, sizeText(shape), sizeText(problem_.predictions));
}

void LossCall::setGradients(const ImageBatch& gradients) {
  destination_ = BatchOperand(gradients, true);
  problem_.gradient = destination_.shape();
  checkAsPredictions("destinationImages", problem_.gradient);
}

void LossCall::setLabelGradients(const ImageBatch& gradients) {
  destination_ = BatchOperand(gradients, true);
  problem_.labelGradient = destination_.shape();
  checkAsPredictions("destinationImages", problem_.labelGradient);
  checkAsPredictions("labels", labels_.shape());
  prepared_.destinationParameter = 2;
}

bool LossCall::perElement() const {
  return problem_.reductionType == CNNReductionType::None;
}

void LossCall::checkLossSize(const char* argument, const TensorShape& loss) const {
  if (isSameSize(loss, problem_.predictions) || (isSingle(loss) && !perElement())) return;
  throw Error(kernel_.describe(), argument, sizeText(loss),
              perElement() ? sizeText(problem_.predictions) + ", as the predictions"
                           : "1x1x1, or " + sizeText(problem_.predictions));
}

void LossCall::setLosses(const ImageBatch& losses) {
  losses_ = BatchOperand(losses, true);
  const TensorShape loss = losses_.shape();
  if (isSingle(loss) && !isSingle(problem_.predictions) && perElement())
    problem_.reductionType = CNNReductionType::Sum;  // docs/decisions.md, D25
  checkLossSize("lossImageSize", loss);
  if (losses_.isLoose())
    looseLosses_ = {loss, commandBuffer_.heap()->allocate(static_cast<std::size_t>(loss.bytes())), 0};
  const TensorView written = losses_.isLoose() ? looseLosses_ : losses_.view(commandBuffer_, true);
  problem_.loss = written.shape;
  prepared_.parameters[1] = PreparedCall::Parameter::of(written, true);
}

void LossCall::setOnlyLosses(const ImageBatch& losses) {
  destination_ = BatchOperand(losses, true);
  problem_.loss = destination_.shape();
  checkLossSize("destinationImages", problem_.loss);
  prepared_.destinationParameter = 1;
}

void LossCall::record() {
  prepared_.scalars[0] = static_cast<double>(numbers_.weight);
  prepared_.scalars[1] = static_cast<double>(numbers_.labelSmoothing);
  prepared_.scalars[2] = static_cast<double>(numbers_.epsilon);
  prepared_.scalars[3] = static_cast<double>(numbers_.delta);
  prepared_.plan = planFor(*kernel_.device(), lossBackEnds, problem_);
  CallOperands operands;
  operands.source = &predictions_;
  operands.secondary = &labels_;
  operands.destination = &destination_;
  if (problem_.sourceGradient.channels > 0) operands.gradient = &sourceGradient_;
  if (checkLabels_) commandBuffer_.submission()->checkBeforeNext(checkLabels_);
  recordCall(commandBuffer_, kernel_, prepared_, operands);
  if (looseLosses_.memory) scatter(commandBuffer_, kernel_.describe(), looseLosses_, losses_);
}

}  // namespace mps::detail
