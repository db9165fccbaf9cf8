#include "mps/arithmetic/arithmetic.hpp"

#include <algorithm>
#include <any>
#include <cmath>
#include <utility>

#include "mps/arithmetic/arithmetic_problem.hpp"
#include "mps/arithmetic/arithmetic_record.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/kernel/graph_traits.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/as_signed.hpp"
#include "mps/core/types/checked_number.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/command.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps {

using detail::ArithmeticOperand;
using detail::ArithmeticOperation;
using detail::ArithmeticProblem;
using detail::ArithmeticRecord;
using detail::BatchOperand;
using detail::ForwardRecord;
using detail::TensorShape;

namespace {

using detail::asSigned;

/// Channels that a source contributes: from its offset on, at most its count; 1 when they are repeated.
std::size_t channelsRead(const Kernel& kernel, const char* argument, const detail::SourceProperties& source,
                         std::size_t channels, std::size_t stride) {
  const std::size_t first = source.featureChannelOffset.get();
  if (first >= channels || source.featureChannelMaxCount.get() == 0)
    throw Error(kernel.describe(), argument, std::to_string(channels) + " feature channels",
                "more than the channel offset " + std::to_string(first));
  return stride == 0 ? 1 : std::min(source.featureChannelMaxCount.get(), channels - first);
}

ArithmeticOperand describeOperand(const detail::SourceProperties& source, const ImageBatch& images,
                                  std::size_t strideInFeatureChannels, std::size_t channels) {
  return {images.descriptor(),
          source.offset.get(),
          source.edgeMode.get(),
          source.strideInPixelsX.get(),
          source.strideInPixelsY.get(),
          strideInFeatureChannels,
          source.featureChannelOffset.get(),
          channels,
          {}};
}

/// Narrows a source to what the clip rectangle reads; where that leaves the image, `filled` becomes a copy
/// with its edges filled. Returns the operand to read.
const BatchOperand* selectOperand(mtl::CommandBuffer& commandBuffer, const std::string& label,
                                  ArithmeticOperand& operand, const mtl::Region& clip, BatchOperand& source,
                                  BatchOperand& filled) {
  const std::int64_t width = operand.strideInPixelsX == 0 ? 1 : asSigned(clip.size.width);
  const std::int64_t height = operand.strideInPixelsY == 0 ? 1 : asSigned(clip.size.height);
  source.selectChannels(asSigned(operand.featureChannelOffset), asSigned(operand.featureChannels));
  operand.place = detail::placeOf(source);
  const TensorShape from = source.shape();
  const bool inside = operand.offset.x >= 0 && operand.offset.x + width <= from.width &&
                      operand.offset.y >= 0 && operand.offset.y + height <= from.height;
  if (inside) {
    source.selectRegion(operand.offset.x, operand.offset.y, width, height);
    return &source;
  }
  filled = detail::recordEdgeCopy(commandBuffer, label, source, operand.offset.x, operand.offset.y, width,
                                  height, operand.edgeMode);
  return &filled;
}

/// The call as the gradient with respect to one of its sources sees it.
void describeSource(ForwardRecord& record, ArithmeticOperation operation, const ArithmeticRecord& family,
                    bool isSecondary) {
  const ArithmeticOperand& operand = family.own(isSecondary);
  record.offset = operand.offset;
  record.edgeMode = operand.edgeMode;
  record.strideInPixelsX = operand.strideInPixelsX;
  record.strideInPixelsY = operand.strideInPixelsY;
  record.sourceFeatureChannelOffset = operand.featureChannelOffset;
  record.sourceFeatureChannels = operand.featureChannels;
  record.source = operand.image;
  record.sourcePlace = family.sourceImage(operation, isSecondary).place;
  record.family = family;
}

}  // namespace

namespace detail {

std::size_t describeSavedFields(ArithmeticProblem& problem, const TensorShape& result, bool mask,
                                ImageFeatureChannelFormat kept) {
  const std::int64_t elements = result.height * result.width * result.channels;
  const auto bytesFor = [&](ImageFeatureChannelFormat format) {
    return (elements * static_cast<std::int64_t>(bytesPerChannel(format)) + 3) / 4 * 4;
  };
  const bool keeps = kept != ImageFeatureChannelFormat::None;
  const std::int64_t keptBytes = keeps ? bytesFor(kept) : 0;
  const std::int64_t perImage = keptBytes + (mask ? bytesFor(ImageFeatureChannelFormat::Unorm8) : 0);
  const auto dense = [&](ImageFeatureChannelFormat format) {
    TensorShape shape =
        TensorShape::dense(result.images, result.height, result.width, result.channels, format);
    shape.imageStride = perImage / static_cast<std::int64_t>(bytesPerChannel(format));
    return shape;
  };
  if (keeps) problem.kept = dense(kept);
  if (mask) {
    problem.mask = dense(ImageFeatureChannelFormat::Unorm8);
    problem.maskOffset = keptBytes;
  }
  return static_cast<std::size_t>(perImage);
}

}  // namespace detail

std::shared_ptr<CNNArithmeticGradientState> CNNArithmeticGradientState::create(
    const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<CNNArithmeticGradientState>(
      new CNNArithmeticGradientState(device, StateResourceList{}));
}

std::shared_ptr<State> CNNArithmetic::makeState(
    const std::shared_ptr<mtl::CommandBuffer>& /*commandBuffer*/) const {
  return CNNArithmeticGradientState::create(device());
}

void CNNArithmetic::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                           const std::shared_ptr<Image>& primaryImage,
                           const std::shared_ptr<Image>& secondaryImage,
                           const std::shared_ptr<State>& destinationState,
                           const std::shared_ptr<Image>& destinationImage) {
  if (!destinationState) throw Error(describe(), "destinationState", "null", "a state");
  const ImageBatch primary = detail::batchOf(*this, "primaryImage", primaryImage);
  const ImageBatch secondary = detail::batchOf(*this, "secondaryImage", secondaryImage);
  const ImageBatch destination = detail::batchOf(*this, "destinationImage", destinationImage);
  checkEncode(commandBuffer, "primaryImage", primary, "secondaryImage", secondary, destination, false);
  mtl::RecordingGuard guard(*commandBuffer);
  encodeCall(commandBuffer, primary, secondary, StateBatch{destinationState}, destination);
  guard.keep();
  detail::consumeRead(primary, describe());
  detail::consumeRead(secondary, describe());
}

std::size_t CNNArithmetic::producedFeatureChannels(std::size_t primaryChannels,
                                                   std::size_t secondaryChannels) const {
  if (primaryStrideInFeatureChannels_ != 0) return primaryChannels;
  return secondaryStrideInFeatureChannels_ != 0 ? secondaryChannels : 1;
}

ImageDescriptor CNNArithmetic::sizeDestination(const ImageDescriptor& primary,
                                               const ImageDescriptor& secondary) {
  ImageDescriptor destination = CNNBinaryKernel::sizeDestination(primary, secondary);
  const NNPaddingMethod method = padding()->paddingMethod();
  Offset primaryOffset = this->primaryOffset();
  Offset secondaryOffset = this->secondaryOffset();
  const auto axis = [&](std::size_t first, std::size_t firstStride, std::size_t second,
                        std::size_t secondStride, bool remainderFirst, std::int64_t& firstOffset,
                        std::int64_t& secondOffset) {
    const std::size_t size = firstStride != 0 ? first : secondStride != 0 ? second : 1;
    const auto offsetIn = [&](std::size_t source, std::size_t stride) {
      return stride == 0
                 ? 0
                 : detail::forwardOffset(method, remainderFirst, asSigned(source), asSigned(size), 1, 1);
    };
    firstOffset = offsetIn(first, firstStride);
    secondOffset = offsetIn(second, secondStride);
    return size;
  };
  destination.setWidth(axis(primary.width(), primaryStrideInPixelsX(), secondary.width(),
                            secondaryStrideInPixelsX(), detail::remainderToLeft(method), primaryOffset.x,
                            secondaryOffset.x));
  destination.setHeight(axis(primary.height(), primaryStrideInPixelsY(), secondary.height(),
                             secondaryStrideInPixelsY(), detail::remainderToTop(method), primaryOffset.y,
                             secondaryOffset.y));
  primary_.offset.transfer(primaryOffset);
  secondary_.offset.transfer(secondaryOffset);
  return destination;
}

bool CNNArithmetic::worksInPlace() const {
  return primaryStrideInPixelsX() == 1 && primaryStrideInPixelsY() == 1 &&
         primaryStrideInFeatureChannels_ == 1 && primaryOffset() == Offset{} &&
         clipRect().origin == mtl::Origin{} &&
         primarySourceFeatureChannelOffset() == destinationFeatureChannelOffset();
}

detail::SumTraits CNNArithmetic::sumTraits() const {
  const bool cutsNothing = minimumValue_ == -FLT_MAX && maximumValue_ == FLT_MAX;
  const bool isWhole = cutsNothing && detail::isDefaultPadding(*padding());
  const bool readsFirst = primaryStrideInPixelsX() == 1 && primaryStrideInPixelsY() == 1 &&
                          primaryStrideInFeatureChannels_ == 1 && primaryOffset() == Offset{};
  const bool readsSecond = secondaryStrideInPixelsX() == 1 && secondaryStrideInPixelsY() == 1 &&
                           secondaryStrideInFeatureChannels_ == 1 && secondaryOffset() == Offset{};
  detail::SumTraits traits{.readsWhole = {isWhole && readsFirst, isWhole && readsSecond}};
  const bool isSum = operation() == ArithmeticOperation::Add || operation() == ArithmeticOperation::Subtract;
  traits.handsGradientOn[0] = isSum && primaryScale_ == 1 && traits.readsWhole[0];
  traits.handsGradientOn[1] =
      operation() == ArithmeticOperation::Add && secondaryScale_ == 1 && traits.readsWhole[1];
  traits.isPlain = operation() == ArithmeticOperation::Add && worksInPlace() && cutsNothing && readsSecond &&
                   secondarySourceFeatureChannelOffset() == 0 && primaryScale_ == 1 && secondaryScale_ == 1 &&
                   bias_ == 0;
  return traits;
}

detail::SumTraits CNNAdd::sumTraits() const {
  detail::SumTraits traits = CNNArithmetic::sumTraits();
  traits.isReLUOfPlain = traits.isPlain && hasGraphReLU_;
  traits.isPlain = traits.isPlain && !hasGraphReLU_;
  return traits;
}

detail::KernelRoles CNNAdd::roles() {
  return {.neuronFusion = this};
}

/// Limits leave a mask for the gradient; a bias of -0 may make a sum of -0, which a ReLU would make 0.
CNNAdd::Answer CNNAdd::canFuse(const NNNeuronDescriptor& neuron, bool /*isDifferentiated*/) const {
  const bool takesReLU =
      minimumValue() == -FLT_MAX && maximumValue() == FLT_MAX && !(bias() == 0 && std::signbit(bias()));
  return takesReLU && detail::isPlainReLU(neuron) ? Answer::GradientApart : Answer::No;
}

void CNNArithmetic::checkProperties() const {
  const auto checkStride = [&](const char* property, std::size_t stride) {
    if (stride > 1) throw Error(describe(), property, std::to_string(stride), "0 or 1");
  };
  checkStride("primaryStrideInPixelsX", primaryStrideInPixelsX());
  checkStride("primaryStrideInPixelsY", primaryStrideInPixelsY());
  checkStride("primaryStrideInFeatureChannels", primaryStrideInFeatureChannels_);
  checkStride("secondaryStrideInPixelsX", secondaryStrideInPixelsX());
  checkStride("secondaryStrideInPixelsY", secondaryStrideInPixelsY());
  checkStride("secondaryStrideInFeatureChannels", secondaryStrideInFeatureChannels_);
  detail::checkChannelOffset(*this, "primarySourceFeatureChannelOffset", primarySourceFeatureChannelOffset());
  detail::checkChannelOffset(*this, "secondarySourceFeatureChannelOffset",
                             secondarySourceFeatureChannelOffset());
  detail::checkChannelOffset(*this, "destinationFeatureChannelOffset", destinationFeatureChannelOffset());
  for (const auto& [property, mode] :
       {std::pair("primaryEdgeMode", primaryEdgeMode()), std::pair("secondaryEdgeMode", secondaryEdgeMode())})
    if (mode != ImageEdgeMode::Zero && mode != ImageEdgeMode::Clamp)
      throw Error(describe(), property, mps::name(mode), "Zero or Clamp");
  detail::checkedFinite(describe(), "primaryScale", primaryScale_);
  detail::checkedFinite(describe(), "secondaryScale", secondaryScale_);
  detail::checkedFinite(describe(), "bias", bias_);
  if (!(minimumValue_ <= maximumValue_))
    throw Error(describe(), "minimumValue", std::to_string(minimumValue_),
                "at most maximumValue, " + std::to_string(maximumValue_));
}

CNNArithmetic::Channels CNNArithmetic::resolveChannels(const TensorShape& primary,
                                                       const TensorShape& secondary,
                                                       const TensorShape& destination) const {
  Channels channels;
  channels.primary = channelsRead(*this, "primaryImage", primary_, static_cast<std::size_t>(primary.channels),
                                  primaryStrideInFeatureChannels_);
  channels.secondary =
      channelsRead(*this, "secondaryImage", secondary_, static_cast<std::size_t>(secondary.channels),
                   secondaryStrideInFeatureChannels_);
  channels.produced = producedFeatureChannels(channels.primary, channels.secondary);
  if (secondaryStrideInFeatureChannels_ != 0 && channels.secondary != channels.produced)
    throw Error(
        describe(), "secondaryImage", std::to_string(channels.secondary) + " feature channels",
        std::to_string(channels.produced) + ", as of primaryImage, or secondaryStrideInFeatureChannels 0");
  const auto room = static_cast<std::size_t>(destination.channels);
  if (destinationFeatureChannelOffset() + channels.produced > room)
    throw Error(describe(), "destinationImage", std::to_string(room) + " feature channels",
                "at least " + std::to_string(destinationFeatureChannelOffset() + channels.produced));
  return channels;
}

ArithmeticProblem CNNArithmetic::problemOf(const TensorShape& primary, const TensorShape& secondary,
                                           const TensorShape& destination) const {
  ArithmeticProblem problem;
  problem.operation = operation();
  problem.primaryScale = primaryScale_;
  problem.secondaryScale = secondaryScale_;
  problem.bias = bias_;
  problem.minimumValue = minimumValue_;
  problem.maximumValue = maximumValue_;
  problem.primary = primary;
  problem.secondary = secondary;
  problem.destination = destination;
  describeOperation(problem);
  return problem;
}

void CNNArithmetic::encodeCall(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                               const ImageBatch& primary, const ImageBatch& secondary,
                               const StateBatch& destinationStates, const ImageBatch& destinations) {
  if (!has(options(), KernelOptions::SkipAPIValidation)) {
    checkProperties();
    if (!destinationStates.empty())
      detail::checkStates(*this, "destinationStates", *commandBuffer, destinationStates, primary.count());
  }
  BatchOperand x(primary);
  BatchOperand y(secondary);
  BatchOperand destination(destinations, true);
  const Channels channels = resolveChannels(x.shape(), y.shape(), destination.shape());
  mtl::Region clip = detail::clipTo(destination.shape(), clipRect());
  const detail::SourceImages images[] = {{&x, primaryOffset().z, "primaryOffset.z"},
                                         {&y, secondaryOffset().z, "secondaryOffset.z"}};
  detail::selectImages(*this, images, destination, clip);

  ArithmeticRecord family;
  family.primary = describeOperand(primary_, primary, primaryStrideInFeatureChannels_, channels.primary);
  family.secondary =
      describeOperand(secondary_, secondary, secondaryStrideInFeatureChannels_, channels.secondary);
  std::shared_ptr<ForwardRecord> record;
  if (!destinationStates.empty()) record = std::make_shared<ForwardRecord>();

  destination.selectChannels(asSigned(destinationFeatureChannelOffset()), asSigned(channels.produced));
  if (record) record->resultPlace = detail::placeOf(destination);
  destination.selectRegion(asSigned(clip.origin.x), asSigned(clip.origin.y), asSigned(clip.size.width),
                           asSigned(clip.size.height));
  if (destination.shape().elements() > 0) {
    BatchOperand filledX;
    BatchOperand filledY;
    detail::CallOperands operands;
    operands.source = selectOperand(*commandBuffer, describe(), family.primary, clip, x, filledX);
    operands.secondary = selectOperand(*commandBuffer, describe(), family.secondary, clip, y, filledY);
    operands.destination = &destination;
    ArithmeticProblem problem =
        problemOf(operands.source->shape(), operands.secondary->shape(), destination.shape());
    detail::PreparedCall prepared;
    if (record) {
      family.hasMask = minimumValue_ > -FLT_MAX || maximumValue_ < FLT_MAX;
      if (operation() == ArithmeticOperation::Divide)
        family.kept = detail::keptFormatFor(problem.primary.format);
      record->savedBytesPerImage =
          detail::describeSavedFields(problem, problem.destination, family.hasMask, family.kept);
      prepared.savedBytes = record->savedBytesPerImage * clip.size.depth;
      if (prepared.savedBytes > 0) record->saved = device()->allocate(prepared.savedBytes);
      operands.saved = record->saved;
    }
    prepared.plan = detail::planFor(*device(), detail::arithmeticBackEnds, problem);
    detail::recordCall(*commandBuffer, *this, prepared, operands);
  }
  if (!record) return;
  record->kernelClass = className();
  record->clipRect = clip;
  if (!destination.isStack()) record->clipRect.size.depth = 1;  // as for each image of the batch alone
  record->destinationFeatureChannelOffset = destinationFeatureChannelOffset();
  record->destinationFeatureChannels = channels.produced;
  record->destination = destinations.descriptor();
  record->imageCount = primary.count();
  const auto ofSecondary = std::make_shared<ForwardRecord>(*record);
  describeSource(*ofSecondary, operation(), family, true);
  family.ofSecondary = ofSecondary;
  describeSource(*record, operation(), family, false);
  destinationStates.setRecord(record);
}

ArithmeticOperation CNNAdd::operation() const {
  return ArithmeticOperation::Add;
}
std::shared_ptr<CNNAdd> CNNAdd::create(const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<CNNAdd>(new CNNAdd(device));
}

void CNNAdd::describeOperation(ArithmeticProblem& problem) const {
  problem.hasReLU = hasGraphReLU_;
}
void CNNAdd::codeProperties(Coder& coder) {
  CNNArithmetic::codeProperties(coder);
  coder.code("hasGraphReLU", hasGraphReLU_);
}

ArithmeticOperation CNNSubtract::operation() const {
  return ArithmeticOperation::Subtract;
}
std::shared_ptr<CNNSubtract> CNNSubtract::create(const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<CNNSubtract>(new CNNSubtract(device));
}

ArithmeticOperation CNNMultiply::operation() const {
  return ArithmeticOperation::Multiply;
}
std::shared_ptr<CNNMultiply> CNNMultiply::create(const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<CNNMultiply>(new CNNMultiply(device));
}

ArithmeticOperation CNNDivide::operation() const {
  return ArithmeticOperation::Divide;
}
std::shared_ptr<CNNDivide> CNNDivide::create(const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<CNNDivide>(new CNNDivide(device));
}

void CNNArithmetic::codeProperties(Coder& coder) {
  CNNBinaryKernel::codeProperties(coder);
  coder.code("primaryScale", primaryScale_);
  coder.code("secondaryScale", secondaryScale_);
  coder.code("bias", bias_);
  coder.code("minimumValue", minimumValue_);
  coder.code("maximumValue", maximumValue_);
  coder.code("primaryStrideInFeatureChannels", primaryStrideInFeatureChannels_);
  coder.code("secondaryStrideInFeatureChannels", secondaryStrideInFeatureChannels_);
}

}  // namespace mps
