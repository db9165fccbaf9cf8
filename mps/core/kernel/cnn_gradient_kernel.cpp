#include "mps/core/kernel/cnn_gradient_kernel.hpp"

#include <algorithm>

#include "mps/core/coding/coder.hpp"
#include "mps/core/image/gradient_state.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/kernel/graph_traits.hpp"
#include "mps/core/kernel/several_sources.hpp"
#include "mps/core/types/as_signed.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/command.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps {

using detail::BatchOperand;
using detail::ForwardRecord;
using detail::GradientCall;

namespace {

using detail::asSigned;

bool sameExtent(const ImageDescriptor& a, const ImageDescriptor& b) {
  return a.width() == b.width() && a.height() == b.height() && a.featureChannels() == b.featureChannels();
}

StateBatch stateBatchOf(const Kernel& kernel, const std::shared_ptr<State>& state) {
  if (!state) throw Error(kernel.describe(), "gradientState", "null", "the state of the forward pass");
  return StateBatch{state};
}

/// Whether the operand is made of images first, first + 1, ... of the place.
bool isPartOf(const ForwardRecord::Place& place, const BatchOperand& operand, std::size_t first) {
  if (!operand.storage() || place.storage.lock() != operand.storage()) return false;
  const detail::TensorShape shape = operand.shape();
  if (shape.images > 1 && shape.imageStride != place.imageStride) return false;
  const auto skipped = static_cast<std::size_t>(place.imageStride) * first * bytesPerChannel(shape.format);
  return place.byteOffset + skipped == operand.byteOffset();
}

[[noreturn]] void throwExchanged(const std::string& kernel, const std::string& why) {
  throw Error(kernel + ": sourceGradient and sourceImage look exchanged: " + why);
}

std::string sizeText(std::size_t width, std::size_t height) {
  return std::to_string(width) + "x" + std::to_string(height);
}

}  // namespace

bool CNNGradientKernel::needsSourceMemory(bool /*forwardSavesFields*/) const {
  return true;
}

detail::DerivativeTraits CNNGradientKernel::derivativeTraits() const {
  return {.isGradient = true,
          .forwardSource = forwardSourceIndex(),
          .sourceImage = sourceImageIndex(),
          .readsBesideSavedFields = needsSourceMemory(true),
          .readsWithoutSavedFields = needsSourceMemory(false),
          .canAccumulate = canAccumulate()};
}

std::optional<std::size_t> CNNGradientKernel::sourceImageIndex() const {
  if (takesForwardResult()) return std::nullopt;
  return forwardSourceIndex().value_or(0);
}

std::shared_ptr<const ForwardRecord> CNNGradientKernel::ownRecord(
    std::shared_ptr<const ForwardRecord> record) const {
  return record;
}

detail::BatchRecord CNNGradientKernel::forwardRecord(const ImageDescriptor& /*sourceImage*/,
                                                     const StateBatch& states) const {
  detail::BatchRecord found = detail::recordOf(describe(), states);
  found.record = ownRecord(found.record);
  return found;
}

const ImageDescriptor& CNNGradientKernel::expectedSourceImage(const ForwardRecord& record) const {
  return takesForwardResult() ? record.destination : record.source;
}

void CNNGradientKernel::checkNotExchanged(const ForwardRecord& record, const BatchOperand& gradient,
                                          const BatchOperand& source) const {
  const ForwardRecord::Place& expected = takesForwardResult() ? record.resultPlace : record.sourcePlace;
  const auto isExpected = [&](const BatchOperand& operand) {
    return operand.storage() && expected.storage.lock() == operand.storage() &&
           expected.byteOffset == operand.byteOffset();
  };
  if (isExpected(gradient) && !isExpected(source))
    throwExchanged(describe(), std::string("sourceGradient is the forward ") +
                                   (takesForwardResult() ? "result" : "source") +
                                   ", which belongs in the place of sourceImage");
}

void CNNGradientKernel::checkRole(const ForwardRecord& record, const BatchOperand& source) const {
  if (!source.storage()) return;
  const auto is = [&](const ForwardRecord::Place& place) {
    return place.storage.lock() == source.storage() && place.byteOffset == source.byteOffset();
  };
  const bool isSource = is(record.sourcePlace);
  const bool isResult = is(record.resultPlace);
  if (takesForwardResult() ? isSource && !isResult : isResult && !isSource)
    throw Error(describe(), "sourceImage", takesForwardResult() ? "the forward source" : "the forward result",
                takesForwardResult() ? "the forward result" : "the forward source");
}

void CNNGradientKernel::checkRecord(const ForwardRecord& record, const ImageDescriptor& gradient,
                                    const ImageDescriptor& source) const {
  if (!acceptsForward(record.kernelClass))
    throw Error(describe(), "gradientState", "of a forward " + record.kernelClass,
                "of this gradient's own forward kernel");
  const auto hasSizeOfGradient = [&](const ImageDescriptor& image) {
    const auto& [width, height, depth] = record.clipRect.size;
    return (image.width() == record.destination.width() && image.height() == record.destination.height()) ||
           (image.width() == width && image.height() == height);
  };
  if (const ImageDescriptor& expected = expectedSourceImage(record); !sameExtent(source, expected)) {
    if (sameExtent(gradient, expected) && hasSizeOfGradient(source) &&
        source.featureChannels() >= record.destinationFeatureChannels)
      throwExchanged(describe(), "sourceGradient is " + gradient.describe() + " and sourceImage " +
                                     source.describe() + ", each of the size of the other");
    throw Error(describe(), "sourceImage", source.describe(),
                expected.describe() + " as in the forward pass");
  }
  if (!hasSizeOfGradient(gradient))
    throw Error(describe(), "sourceGradient", gradient.describe(),
                sizeText(record.destination.width(), record.destination.height()) +
                    " pixels, the forward result, or " +
                    sizeText(record.clipRect.size.width, record.clipRect.size.height) +
                    ", its clip rectangle");
  if (gradient.featureChannels() < record.destinationFeatureChannels)
    throw Error(describe(), "sourceGradient", gradient.describe(),
                "at least " + std::to_string(record.destinationFeatureChannels) + " feature channels");
}

CNNGradientKernel::Geometry CNNGradientKernel::geometryFor(const ForwardRecord& record,
                                                           const Offset& gradientOrigin) const {
  return {gradientOrigin, record.offset, 0, 0};
}

void CNNGradientKernel::transferProperties(const ForwardRecord& record, const ImageDescriptor& gradient) {
  const auto transfer = [](auto& property, auto value) {
    if (!property.isSet()) property.transfer(value);
  };
  const bool whole =
      gradient.width() == record.destination.width() && gradient.height() == record.destination.height();
  const Offset origin =
      whole ? Offset{asSigned(record.clipRect.origin.x), asSigned(record.clipRect.origin.y), 0} : Offset{};
  Geometry geometry = geometryFor(record, origin);
  const bool wholeStack = gradient.numberOfImages() == record.destination.numberOfImages();
  geometry.primaryOffset.z = wholeStack ? asSigned(record.clipRect.origin.z) : 0;
  geometry.secondaryOffset.z = record.offset.z;
  transfer(primary_.offset, geometry.primaryOffset);
  transfer(secondary_.offset, geometry.secondaryOffset);
  transfer(kernelOffsetX_, geometry.kernelOffsetX);
  transfer(kernelOffsetY_, geometry.kernelOffsetY);
  transfer(primary_.strideInPixelsX, record.strideInPixelsX);
  transfer(primary_.strideInPixelsY, record.strideInPixelsY);
  transfer(secondary_.kernelWidth, record.kernelWidth);
  transfer(secondary_.kernelHeight, record.kernelHeight);
  transfer(secondary_.strideInPixelsX, record.strideInPixelsX);
  transfer(secondary_.strideInPixelsY, record.strideInPixelsY);
  transfer(secondary_.dilationRateX, record.dilationRateX);
  transfer(secondary_.dilationRateY, record.dilationRateY);
  transfer(secondary_.edgeMode, record.edgeMode);
  const bool slice = gradient.featureChannels() < record.destination.featureChannels();
  transfer(primary_.featureChannelOffset, slice ? std::size_t{0} : record.destinationFeatureChannelOffset);
  transfer(primary_.featureChannelMaxCount, record.destinationFeatureChannels);
  const bool ofResult = takesForwardResult();
  transfer(secondary_.featureChannelOffset,
           ofResult ? record.destinationFeatureChannelOffset : record.sourceFeatureChannelOffset);
  transfer(secondary_.featureChannelMaxCount,
           ofResult ? record.destinationFeatureChannels : record.sourceFeatureChannels);
  transferOwnProperties(record);
}

ImageDescriptor CNNGradientKernel::sizeDestination(const ImageDescriptor& primary,
                                                   const ImageDescriptor& secondary) {
  ImageDescriptor destination(primary.channelFormat(), secondary.width(), secondary.height(),
                              secondary.featureChannels(), secondary.numberOfImages());
  return destination;
}

ImageDescriptor CNNGradientKernel::destinationImageDescriptor(ArrayRef<std::shared_ptr<Image>> sourceImages,
                                                              ArrayRef<std::shared_ptr<State>> sourceStates) {
  if (sourceImages.size() != 2)
    throw Error(describe(), "sourceImages", std::to_string(sourceImages.size()) + " images",
                "exactly 2: source gradient and source image");
  if (!sourceImages[0] || !sourceImages[1]) throw Error(describe(), "sourceImages", "null", "images");
  if (sourceStates.size() > 1)
    throw Error(describe(), "sourceStates", std::to_string(sourceStates.size()) + " states",
                "the gradient state");
  if (!sourceStates.empty()) {
    const auto record = forwardRecord(sourceImages[1]->descriptor(), StateBatch{sourceStates[0]}).record;
    checkRecord(*record, sourceImages[0]->descriptor(), sourceImages[1]->descriptor());
    transferProperties(*record, sourceImages[0]->descriptor());
    ImageDescriptor descriptor = record->source;
    descriptor.setChannelFormat(sourceImages[0]->featureChannelFormat());
    descriptor.setNumberOfImages(sourceImages[0]->numberOfImages());
    descriptor.setStorageMode(mtl::StorageMode::Managed);
    descriptor.setFeatureChannels(record->source.featureChannels() + destinationFeatureChannelOffset());
    return detail::askHooks(*this, *padding(), sourceImages, sourceStates, descriptor);
  }
  return CNNBinaryKernel::destinationImageDescriptor(sourceImages, sourceStates);
}

void CNNGradientKernel::selectStackedImages(const ForwardRecord& record, BatchOperand& gradient,
                                            BatchOperand& source, BatchOperand& destination,
                                            mtl::Region& clip) const {
  const std::int64_t firstGradient = primaryOffset().z;
  const std::int64_t firstDestination = record.offset.z;
  const std::int64_t firstSource =
      takesForwardResult() ? asSigned(record.clipRect.origin.z) : secondaryOffset().z;
  const std::int64_t depth = asSigned(record.clipRect.size.depth);
  const auto check = [&](const char* argument, const BatchOperand& operand, std::int64_t first) {
    if (first < 0 || first + depth > operand.shape().images)
      throw Error(describe(), argument, "a stack of " + std::to_string(operand.shape().images),
                  "images " + std::to_string(first) + " to " + std::to_string(first + depth - 1) +
                      " of the forward pass");
  };
  check("sourceGradient", gradient, firstGradient);
  check("sourceImage", source, firstSource);
  check("destinationGradient", destination, firstDestination);
  const std::int64_t images = destination.shape().images;
  const auto clipFirst = static_cast<std::int64_t>(std::min(clip.origin.z, static_cast<std::size_t>(images)));
  const auto clipDepth =
      static_cast<std::int64_t>(std::min(clip.size.depth, static_cast<std::size_t>(images)));
  const std::int64_t begin = std::max(firstDestination, clipFirst);
  const std::int64_t end = std::min(firstDestination + depth, clipFirst + clipDepth);
  const std::int64_t count = std::max<std::int64_t>(0, end - begin);
  gradient.selectImages(firstGradient + begin - firstDestination, count);
  source.selectImages(firstSource + begin - firstDestination, count);
  destination.selectImages(begin, count);
  clip.origin.z = static_cast<std::size_t>(begin);
  clip.size.depth = static_cast<std::size_t>(count);
}

bool CNNGradientKernel::holdsWholeSource(const ForwardRecord& record, std::size_t channels) const {
  const std::size_t first = destinationFeatureChannelOffset();
  return first < channels && channels - first == record.source.featureChannels();
}

GradientCall CNNGradientKernel::resolveCall(BatchOperand& gradient, BatchOperand& source,
                                            BatchOperand& destination,
                                            const std::shared_ptr<const ForwardRecord>& record,
                                            bool stateDriven) const {
  detail::checkPosition(*this, "kernelOffsetX", kernelOffsetX());
  detail::checkPosition(*this, "kernelOffsetY", kernelOffsetY());
  if (!has(options(), KernelOptions::SkipAPIValidation)) {
    // What comes from the state was right for the forward kernel.
    if (primary_.featureChannelOffset.isSet())
      detail::checkChannelOffset(*this, "primarySourceFeatureChannelOffset",
                                 primarySourceFeatureChannelOffset());
    if (secondary_.featureChannelOffset.isSet())
      detail::checkChannelOffset(*this, "secondarySourceFeatureChannelOffset",
                                 secondarySourceFeatureChannelOffset());
    detail::checkChannelOffset(*this, "destinationFeatureChannelOffset", destinationFeatureChannelOffset());
    if (!usesKernelOffset() && (kernelOffsetX() != 0 || kernelOffsetY() != 0))
      throw Error(describe(), "kernelOffset",
                  std::to_string(kernelOffsetX()) + ", " + std::to_string(kernelOffsetY()),
                  "0, 0: this kernel has no window");
  }
  const auto select = [&](BatchOperand& operand, const char* argument, std::size_t first, std::size_t most) {
    const auto channels = static_cast<std::size_t>(operand.shape().channels);
    if (first >= channels)
      throw Error(describe(), argument, std::to_string(channels) + " feature channels",
                  "more than the channel offset " + std::to_string(first));
    operand.selectChannels(asSigned(first), asSigned(std::min(most, channels - first)));
  };
  select(gradient, "sourceGradient", primarySourceFeatureChannelOffset(),
         primarySourceFeatureChannelMaxCount());
  const auto sourceFirst = secondarySourceFeatureChannelOffset();
  select(source, "sourceImage",
         sourceFirst < static_cast<std::size_t>(source.shape().channels) ? sourceFirst : 0,
         secondarySourceFeatureChannelMaxCount());

  const std::size_t written =
      record ? record->sourceFeatureChannels : static_cast<std::size_t>(source.shape().channels);
  std::size_t first = destinationFeatureChannelOffset();
  const auto destinationChannels = static_cast<std::size_t>(destination.shape().channels);
  if (record && holdsWholeSource(*record, destinationChannels)) first += record->sourceFeatureChannelOffset;
  if (written > destinationChannels || first > destinationChannels - written)
    throw Error(describe(), "destinationGradient", std::to_string(destinationChannels) + " feature channels",
                "at least " + std::to_string(first + written));
  destination.selectChannels(asSigned(first), asSigned(written));

  GradientCall call;
  call.record = record;
  call.stateDriven = stateDriven;
  call.clipRectIsSet = clipRectIsSet_ && !stateDriven;
  call.options = options();
  call.primaryOffset = primaryOffset();
  call.secondaryOffset = secondaryOffset();
  call.kernelOffsetX = kernelOffsetX();
  call.kernelOffsetY = kernelOffsetY();
  call.kernelWidth = asSigned(secondaryKernelWidth());
  call.kernelHeight = asSigned(secondaryKernelHeight());
  call.strideInPixelsX = asSigned(secondaryStrideInPixelsX());
  call.strideInPixelsY = asSigned(secondaryStrideInPixelsY());
  call.dilationRateX = asSigned(secondaryDilationRateX());
  call.dilationRateY = asSigned(secondaryDilationRateY());
  call.edgeMode = secondaryEdgeMode();

  mtl::Region clip = stateDriven ? RectNoClip : clipRect();
  const detail::TensorShape to = destination.shape();
  const auto cut = [](std::size_t& origin, std::size_t& size, std::int64_t limit) {
    const auto most = static_cast<std::size_t>(limit);
    origin = std::min(origin, most);
    size = std::min(size, most - origin);
  };
  cut(clip.origin.x, clip.size.width, to.width);
  cut(clip.origin.y, clip.size.height, to.height);
  if (record && destination.isStack()) {
    selectStackedImages(*record, gradient, source, destination, clip);
  } else {
    const detail::SourceImages images[] = {{&gradient, call.primaryOffset.z, "primaryOffset.z"},
                                           {&source, call.secondaryOffset.z, "secondaryOffset.z"}};
    detail::selectImages(*this, images, destination, clip);
  }
  destination.selectRegion(asSigned(clip.origin.x), asSigned(clip.origin.y), asSigned(clip.size.width),
                           asSigned(clip.size.height));
  call.clipRect = clip;
  call.gradient = gradient.shape();
  call.source = source.shape();
  call.destination = destination.shape();
  return call;
}

std::vector<detail::PreparedCall> CNNGradientKernel::preparedParts(const GradientCall& call) const {
  if (call.destination.elements() == 0 && !preparesWithoutPixels()) return {};
  return prepareGradient(call);
}

void CNNGradientKernel::encodeGradient(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                       const ImageBatch& gradients, const ImageBatch& sources,
                                       const StateBatch& states, const ImageBatch& destinations,
                                       const Manner& manner) {
  checkEncode(commandBuffer, "sourceGradient", gradients, "sourceImage", sources, destinations,
              manner.isBatch);
  detail::checkNotEmpty(*this, "sourceGradients", gradients);
  detail::checkStates(*this, "gradientStates", *commandBuffer, states, gradients.count());
  mtl::RecordingGuard guard(*commandBuffer);
  std::vector<GradientCall> calls;
  recordGradient(*commandBuffer, gradients, sources, states, destinations, manner, calls);
  guard.keep();
  for (const GradientCall& call : calls) didEncode(call);
  detail::setProducer(destinations, describe());
  detail::consumeRead(gradients, describe());
  detail::consumeRead(sources, describe());
  detail::consumeRead(states);
}

void CNNGradientKernel::recordGradient(mtl::CommandBuffer& commandBuffer, const ImageBatch& gradients,
                                       const ImageBatch& sources, const StateBatch& states,
                                       const ImageBatch& destinations, const Manner& manner,
                                       std::vector<GradientCall>& calls) {
  const detail::BatchRecord record = forwardRecord(sources.descriptor(), states);
  const ForwardRecord& forward = *record.record;
  checkRecord(forward, gradients.descriptor(), sources.descriptor());
  if (gradients.count() > 1 && ((!record.inOrder && needsStatesInOrder()) || !takesTogether(states))) {
    for (std::size_t i = 0; i < gradients.count(); ++i)
      recordGradient(commandBuffer, gradients.slice(i, 1), sources.slice(i, 1), states.slice(i, 1),
                     destinations.slice(i, 1), manner, calls);
    return;
  }
  transferProperties(forward, gradients.descriptor());
  willEncode(*states[0]);
  BatchOperand gradient(gradients);
  BatchOperand source(sources);
  BatchOperand destination(destinations, true);
  BatchOperand whole(destinations, true);
  GradientCall call = resolveCall(gradient, source, destination, record.record, manner.stateDriven);
  call.accumulate = manner.accumulate;
  call.state = states[0];
  call.states = states;
  call.firstImage = record.firstImage;
  checkNotExchanged(forward, gradient, source);
  checkRole(forward, source);
  call.savedFieldsFit =
      forward.saved && record.inOrder && isPartOf(forward.sourcePlace, source, record.firstImage);
  std::vector<detail::PreparedCall> prepared = preparedParts(call);
  const auto writesSums = [](const detail::PreparedCall& part) {
    return std::ranges::any_of(part.parameters, &detail::PreparedCall::Parameter::isWritten);
  };
  if (auto* state = dynamic_cast<NNGradientState*>(states[0].get())) {
    state->willEncode(commandBuffer);
    if (std::ranges::any_of(prepared, writesSums)) state->willEncodeGradient(commandBuffer);
  }
  const bool writes = prepared.empty() || std::any_of(prepared.begin(), prepared.end(), [](const auto& part) {
                        return part.writesDestination;
                      });
  const auto covers = [&](const detail::TensorShape& shape) {
    return call.destination.channels == shape.channels && call.destination.images == shape.images;
  };
  checkAliases(prepared, covers(whole.shape()), gradients, sources, destinations);
  // What the forward pass did not read has no gradient: zeros. Channels of others stay as they are.
  const auto channels = static_cast<std::size_t>(whole.shape().channels);
  if (holdsWholeSource(forward, channels)) {
    const std::size_t first = destinationFeatureChannelOffset();
    whole.selectChannels(asSigned(first), asSigned(channels - first));
  } else {
    whole.selectChannels(destination.first().channel, call.destination.channels);
  }
  if (writes && !covers(whole.shape()) && !call.clipRectIsSet && !call.accumulate)
    detail::recordZeros(commandBuffer, describe(), whole);
  std::erase_if(prepared, [](const detail::PreparedCall& part) { return part.plan.plan == nullptr; });
  for (detail::PreparedCall& part : prepared) {
    if (call.accumulate && part.writesDestination) {
      if (!part.plan.plan->canAccumulate())
        throw Error(describe(), "destinationGradients", call.destination.describe(),
                    "one that gradients can be added to");
      part.accumulate = true;
      part.zeroDestinationFirst = false;
    }
    detail::CallOperands operands;
    operands.gradient = &gradient;
    operands.source = &source;
    operands.destination = &destination;
    if (part.readsSavedFields) {
      operands.saved = forward.saved;
      operands.savedByteOffset = record.firstImage * forward.savedBytesPerImage;
    }
    detail::recordCall(commandBuffer, *this, part, operands);
  }
  calls.push_back(std::move(call));
}

void CNNGradientKernel::checkAliases(const std::vector<detail::PreparedCall>& prepared, bool writesAll,
                                     const ImageBatch& gradients, const ImageBatch& sources,
                                     const ImageBatch& destinations) const {
  if (has(options(), KernelOptions::SkipAPIValidation)) return;
  const auto any = [&](auto holds) { return std::any_of(prepared.begin(), prepared.end(), holds); };
  if (any([](const auto& part) { return part.readsSource; }))
    detail::checkNoAlias(*this, "sourceImage", sources, destinations);
  const bool movesPixels = any([](const detail::PreparedCall& part) {
    return part.zeroDestinationFirst || part.gradientOrigin != part.destinationOrigin;
  });
  // Parts before the last must leave the gradient as it is.
  const bool writesEarly =
      !prepared.empty() && std::any_of(prepared.begin(), prepared.end() - 1,
                                       [](const auto& part) { return part.writesDestination; });
  if (worksInPlace() && (movesPixels || !writesAll || writesEarly))
    detail::checkNoAlias(*this, "sourceGradient", gradients, destinations);
}

void CNNGradientKernel::encodeCall(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                   const ImageBatch& primary, const ImageBatch& secondary,
                                   const StateBatch& /*destinationStates*/, const ImageBatch& destinations) {
  BatchOperand gradient(primary);
  BatchOperand source(secondary);
  BatchOperand destination(destinations, true);
  const GradientCall call = resolveCall(gradient, source, destination, nullptr, false);
  for (const detail::PreparedCall& prepared : preparedParts(call))
    if (prepared.plan.plan)
      detail::recordCall(*commandBuffer, *this, prepared,
                         {&source, nullptr, &gradient, &destination, nullptr, 0});
}

std::size_t CNNGradientKernel::scratchBytes(const ImageBatch& primary, const ImageBatch& secondary,
                                            const StateBatch& states, const ImageBatch& destinations) {
  std::shared_ptr<const ForwardRecord> record;
  if (!states.empty()) {
    record = forwardRecord(secondary.descriptor(), states).record;
    checkRecord(*record, primary.descriptor(), secondary.descriptor());
    transferProperties(*record, primary.descriptor());
    willEncode(*states[0]);
  }
  BatchOperand gradient(primary);
  BatchOperand source(secondary);
  BatchOperand destination(destinations, true);
  GradientCall call = resolveCall(gradient, source, destination, record, false);
  if (record) {
    call.state = states[0];
    call.states = states;
  }
  std::size_t bytes = 0;
  for (const detail::PreparedCall& prepared : preparedParts(call))
    if (prepared.plan.plan)
      bytes = std::max(bytes, prepared.plan.plan->scratchBytes());  // one after the other, in the same memory
  return bytes;
}

ImageBatch CNNGradientKernel::encodeGradientReturning(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const ImageBatch& gradients,
    const ImageBatch& sources, const StateBatch& states, bool isBatch) {
  detail::checkCommandBuffer(*this, commandBuffer);
  detail::checkCount(*this, "sourceImages", sources.count(), gradients.count());
  detail::checkCount(*this, "gradientStates", states.count(), gradients.count());
  detail::checkNotEmpty(*this, "sourceGradients", gradients);
  detail::checkNotStacked(*this, "sourceGradients", gradients);
  detail::checkNotStacked(*this, "sourceImages", sources);
  const auto before = std::tuple(primary_, secondary_, kernelOffsetX_, kernelOffsetY_);
  try {
    mtl::RecordingGuard guard(*commandBuffer);  // padding policies are asked
    ImageBatch destinations = makeDestinations(commandBuffer, gradients, sources, states);
    encodeGradient(commandBuffer, gradients, sources, states, destinations,
                   {.isBatch = isBatch, .stateDriven = true});
    guard.keep();
    return destinations;
  } catch (...) {
    std::tie(primary_, secondary_, kernelOffsetX_, kernelOffsetY_) = before;
    throw;
  }
}

std::shared_ptr<Image> CNNGradientKernel::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                                 const std::shared_ptr<Image>& sourceGradient,
                                                 const std::shared_ptr<Image>& sourceImage,
                                                 const std::shared_ptr<State>& gradientState) {
  return encodeGradientReturning(commandBuffer, detail::batchOf(*this, "sourceGradient", sourceGradient),
                                 detail::batchOf(*this, "sourceImage", sourceImage),
                                 stateBatchOf(*this, gradientState), false)[0];
}

void CNNGradientKernel::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                               const std::shared_ptr<Image>& sourceGradient,
                               const std::shared_ptr<Image>& sourceImage,
                               const std::shared_ptr<State>& gradientState,
                               const std::shared_ptr<Image>& destinationGradient) {
  encodeGradient(commandBuffer, detail::batchOf(*this, "sourceGradient", sourceGradient),
                 detail::batchOf(*this, "sourceImage", sourceImage), stateBatchOf(*this, gradientState),
                 detail::batchOf(*this, "destinationGradient", destinationGradient), {});
}

ImageBatch CNNGradientKernel::encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                          const ImageBatch& sourceGradients, const ImageBatch& sourceImages,
                                          const StateBatch& gradientStates) {
  return encodeGradientReturning(commandBuffer, sourceGradients, sourceImages, gradientStates, true);
}

void CNNGradientKernel::encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                    const ImageBatch& sourceGradients, const ImageBatch& sourceImages,
                                    const StateBatch& gradientStates,
                                    const ImageBatch& destinationGradients) {
  detail::checkCount(*this, "gradientStates", gradientStates.count(), sourceGradients.count());
  encodeGradient(commandBuffer, sourceGradients, sourceImages, gradientStates, destinationGradients,
                 {.isBatch = true});
}

void CNNGradientKernel::encodeStep(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                   std::span<const ImageBatch> sources, const StateBatch& gradientStates,
                                   const ImageBatch& destinationGradients, bool accumulates) {
  if (accumulates)
    encodeBatchAccumulating(commandBuffer, sources[0], sources[1], gradientStates, destinationGradients);
  else
    encodeBatch(commandBuffer, sources[0], sources[1], gradientStates, destinationGradients);
}

void CNNGradientKernel::encodeGraphStep(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                        const detail::GraphStep& step) {
  encodeStep(commandBuffer, step.sources, step.sourceStates.empty() ? StateBatch{} : step.sourceStates[0],
             step.result, step.accumulates);
}

void CNNGradientKernel::encodeBatchAccumulating(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                                const ImageBatch& sourceGradients,
                                                const ImageBatch& sourceImages,
                                                const StateBatch& gradientStates,
                                                const ImageBatch& destinationGradients) {
  detail::checkCount(*this, "gradientStates", gradientStates.count(), sourceGradients.count());
  encodeGradient(commandBuffer, sourceGradients, sourceImages, gradientStates, destinationGradients,
                 {.isBatch = true, .accumulate = true});
}

void CNNGradientKernel::codeProperties(Coder& coder) {
  CNNBinaryKernel::codeProperties(coder);
  kernelOffsetX_.code(coder, "kernelOffsetX");
  kernelOffsetY_.code(coder, "kernelOffsetY");
}

}  // namespace mps
