#include "mps/core/kernel/cnn_kernel.hpp"

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
using detail::ForwardCall;
using detail::ForwardRecord;
using detail::PreparedCall;

namespace {

using detail::asSigned;

/// [origin, origin + size) cut to [0, limit), without overflow.
void intersect(std::size_t& origin, std::size_t& size, std::size_t limit) {
  if (origin >= limit) {
    origin = 0;
    size = 0;
    return;
  }
  size = std::min(size, limit - origin);
}

struct UnaryGeometry {
  Offset placement;
  Offset offset;
  mtl::Region clipRect;
  std::size_t sourceFeatureChannelOffset = 0;
  std::size_t sourceFeatureChannelMaxCount = 0;
  std::size_t destinationFeatureChannelOffset = 0;
  ImageEdgeMode edgeMode = ImageEdgeMode::Zero;
};

}  // namespace

detail::DerivativeTraits CNNKernel::derivativeTraits() const {
  if (!isItsOwnGradient()) return {};
  return {.beginsGradients = true, .ownSource = 0};
}

std::any CNNKernel::geometry() const {
  return UnaryGeometry{placement(),
                       offset_,
                       clipRect_,
                       sourceFeatureChannelOffset_,
                       sourceFeatureChannelMaxCount_,
                       destinationFeatureChannelOffset(),
                       edgeMode_};
}

void CNNKernel::setGeometry(const std::any& geometry) {
  const auto& given = std::any_cast<const UnaryGeometry&>(geometry);
  setPlacement(given.placement);
  offset_ = given.offset;
  clipRect_ = given.clipRect;
  sourceFeatureChannelOffset_ = given.sourceFeatureChannelOffset;
  sourceFeatureChannelMaxCount_ = given.sourceFeatureChannelMaxCount;
  setDestinationFeatureChannelOffset(given.destinationFeatureChannelOffset);
  edgeMode_ = given.edgeMode;
}

ForwardCall CNNKernel::resolveCall(BatchOperand& source, BatchOperand& destination, bool withState) const {
  const bool checks = !has(options(), KernelOptions::SkipAPIValidation);
  const detail::TensorShape from = source.shape();
  const detail::TensorShape to = destination.shape();
  detail::checkOffset(*this, "offset", offset_);
  if (checks) {
    if (sourceChannelAlignment() > 1)
      detail::checkChannelOffset(*this, "sourceFeatureChannelOffset", sourceFeatureChannelOffset_);
    detail::checkChannelOffset(*this, "destinationFeatureChannelOffset", destinationFeatureChannelOffset());
    if (!takesEdgeMode(edgeMode_)) throw Error(describe(), "edgeMode", mps::name(edgeMode_), "Zero or Clamp");
    if (sourceFeatureChannelOffset_ >= static_cast<std::size_t>(from.channels) ||
        sourceFeatureChannelMaxCount_ == 0)
      throw Error(describe(), "sourceFeatureChannelOffset", std::to_string(sourceFeatureChannelOffset_),
                  "less than the " + std::to_string(from.channels) + " channels of sourceImage");
  }
  std::size_t read = std::min(sourceFeatureChannelMaxCount_,
                              static_cast<std::size_t>(from.channels) - sourceFeatureChannelOffset_);
  if (const std::size_t required = requiredFeatureChannels(); required != 0) {
    // Where the user chose a range, what lies behind it may stay unread (docs/decisions.md, D29).
    const bool isRange = sourceFeatureChannelOffset_ != 0 ||
                         sourceFeatureChannelMaxCount_ != std::numeric_limits<std::size_t>::max();
    if (read < required || (read > required && !isRange))
      throw Error(describe(), "sourceImage",
                  std::to_string(read) + " feature channels" +
                      (isRange ? " from sourceFeatureChannelOffset " +
                                     std::to_string(sourceFeatureChannelOffset_) + " on"
                               : ""),
                  (isRange ? "at least " : "") + std::to_string(required) +
                      ", inputFeatureChannels (sourceFeatureChannelMaxCount leaves some unread; a "
                      "concatenation pads each part to a multiple of its channelAlignment, 4 or 1)");
    read = required;
  }
  const bool fills =
      fillsDestination() && destinationFeatureChannelOffset() < static_cast<std::size_t>(to.channels);
  const std::size_t produced = fills
                                   ? static_cast<std::size_t>(to.channels) - destinationFeatureChannelOffset()
                                   : producedFeatureChannels(read);
  if (const auto room = static_cast<std::size_t>(to.channels);
      produced > room || destinationFeatureChannelOffset() > room - produced)
    throw Error(describe(), "destinationImage", std::to_string(to.channels) + " feature channels",
                "at least " + std::to_string(destinationFeatureChannelOffset() + produced));

  mtl::Region clip = clipRect_;
  const detail::SourceImages images[] = {{&source, offset_.z, "offset.z"}};
  detail::selectImages(*this, images, destination, clip);
  intersect(clip.origin.x, clip.size.width, static_cast<std::size_t>(to.width));
  intersect(clip.origin.y, clip.size.height, static_cast<std::size_t>(to.height));
  limitClip(clip, from);
  if (clip.size.width == 0 || clip.size.height == 0) clip.size.width = clip.size.height = 0;

  source.selectChannels(asSigned(sourceFeatureChannelOffset_), asSigned(read));
  destination.selectChannels(asSigned(destinationFeatureChannelOffset()), asSigned(produced));
  destination.selectRegion(asSigned(clip.origin.x), asSigned(clip.origin.y), asSigned(clip.size.width),
                           asSigned(clip.size.height));

  ForwardCall call;
  call.edgeMode = edgeMode_;
  call.wantsSavedFields = withState;
  call.options = options();
  call.clipRect = clip;
  call.offset = offset_;
  call.sourceFeatureChannelOffset = sourceFeatureChannelOffset_;
  call.x = {from.width,
            asSigned(clip.size.width),
            asSigned(kernelWidth()),
            asSigned(strideInPixelsX()),
            asSigned(dilationRateX()),
            offset_.x};
  call.y = {from.height,
            asSigned(clip.size.height),
            asSigned(kernelHeight()),
            asSigned(strideInPixelsY()),
            asSigned(dilationRateY()),
            offset_.y};
  call.destination = destination.shape();
  if (!hasWindow()) {
    const auto inside = [](std::int64_t offset, std::int64_t size, std::int64_t limit) {
      return offset >= 0 && offset + size <= limit;
    };
    call.needsEdgeCopy = !inside(offset_.x, call.x.destinationSize, from.width) ||
                         !inside(offset_.y, call.y.destinationSize, from.height);
    if (!call.needsEdgeCopy)
      source.selectRegion(offset_.x, offset_.y, call.x.destinationSize, call.y.destinationSize);
  }
  call.source = source.shape();
  if (call.needsEdgeCopy) {
    call.source =
        detail::TensorShape::dense(call.source.images, call.y.destinationSize, call.x.destinationSize,
                                   call.source.channels, call.source.format);
  }
  return call;
}

bool CNNKernel::movesPixels() const {
  return offset_ != Offset{} || clipRect_.origin != mtl::Origin{} ||
         sourceFeatureChannelOffset_ != destinationFeatureChannelOffset();
}

void CNNKernel::encodeInto(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                           const ImageBatch& sources, const StateBatch& states,
                           const ImageBatch& destinations, bool isBatch) {
  detail::checkCommandBuffer(*this, commandBuffer);
  detail::checkCount(*this, "destinationImages", destinations.count(), sources.count());
  detail::checkNotEmpty(*this, "sourceImages", sources);
  if (!has(options(), KernelOptions::SkipAPIValidation)) {
    detail::checkSources(*this, "sourceImage", *commandBuffer, sources);
    detail::checkDestinations(*this, "destinationImage", *commandBuffer, destinations);
    detail::checkNoAlias(*this, "sourceImage", sources, destinations, worksInPlace() && !movesPixels());
    if (isBatch) {
      detail::checkNotStacked(*this, "sourceImages", sources);
      detail::checkNotStacked(*this, "destinationImages", destinations);
    }
    if (!states.empty())
      detail::checkStates(*this, "destinationStates", *commandBuffer, states, sources.count());
  }
  const bool withState = !states.empty() && makesState();
  // What is left out at run time saves nothing for the gradient.
  const bool savesFields = withState && (savesFieldsUnderPredicates_ || !commandBuffer->mayLeaveOut());
  BatchOperand source(sources);
  BatchOperand destination(destinations, true);
  ForwardCall call = resolveCall(source, destination, savesFields);
  if (withState) call.state = states[0];
  checkCall(call);
  mtl::RecordingGuard guard(*commandBuffer);

  if (auto* state = dynamic_cast<NNGradientState*>(call.state.get())) state->willEncode(*commandBuffer);
  std::shared_ptr<ForwardRecord> record;
  if (call.destination.elements() > 0) {
    const PreparedCall prepared = prepareForward(call);
    detail::CallOperands operands;
    operands.destination = &destination;
    operands.source = &source;
    if (withState) {
      record = std::make_shared<ForwardRecord>();
      if (prepared.savedBytes > 0) {
        record->saved = device()->allocate(prepared.savedBytes);
        record->savedBytesPerImage = prepared.savedBytes / static_cast<std::size_t>(call.source.images);
        operands.saved = record->saved;
      }
    }
    BatchOperand filled;
    if (call.needsEdgeCopy) {
      filled = detail::recordEdgeCopy(*commandBuffer, describe(), source, offset_.x, offset_.y,
                                      call.x.destinationSize, call.y.destinationSize, edgeMode_);
      operands.source = &filled;
    }
    detail::recordCall(*commandBuffer, *this, prepared, operands);
  } else if (withState) {
    record = std::make_shared<ForwardRecord>();
  }
  guard.keep();

  if (record) {
    record->kernelClass = className();
    record->offset = offset_;
    record->clipRect = call.clipRect;
    if (!destination.isStack()) record->clipRect.size.depth = 1;  // as for each image of the batch alone
    record->edgeMode = edgeMode_;
    record->kernelWidth = kernelWidth();
    record->kernelHeight = kernelHeight();
    record->strideInPixelsX = strideInPixelsX();
    record->strideInPixelsY = strideInPixelsY();
    record->dilationRateX = dilationRateX();
    record->dilationRateY = dilationRateY();
    record->sourceFeatureChannelOffset = sourceFeatureChannelOffset_;
    record->sourceFeatureChannels = static_cast<std::size_t>(call.source.channels);
    record->destinationFeatureChannelOffset = destinationFeatureChannelOffset();
    record->destinationFeatureChannels = static_cast<std::size_t>(call.destination.channels);
    record->source = sources.descriptor();
    record->destination = destinations.descriptor();
    record->imageCount = sources.count();
    record->sourcePlace = detail::placeOf(source);
    record->resultPlace = detail::placeOf(destination);
    describeForward(record->family);
    states.setRecord(record);
  }
  detail::setProducer(destinations, describe());
  detail::consumeRead(sources, describe());
  didEncode(call);
}

ImageDescriptor CNNKernel::destinationOf(const ImageDescriptor& source, std::size_t width,
                                         std::size_t height) const {
  ImageDescriptor destination(source.channelFormat(), width, height, 1, source.numberOfImages());
  // unorm images are sources only (docs/decisions.md, D16)
  if (source.channelFormat() == ImageFeatureChannelFormat::Unorm8 ||
      source.channelFormat() == ImageFeatureChannelFormat::Unorm16)
    destination.setChannelFormat(ImageFeatureChannelFormat::Float32);
  std::size_t read =
      sourceFeatureChannelOffset_ < source.featureChannels()
          ? std::min(sourceFeatureChannelMaxCount_, source.featureChannels() - sourceFeatureChannelOffset_)
          : 0;
  if (requiredFeatureChannels() != 0) read = requiredFeatureChannels();
  destination.setFeatureChannels(producedFeatureChannels(read) + destinationFeatureChannelOffset());
  return destination;
}

ImageDescriptor CNNKernel::sizeDestination(const ImageDescriptor& source) {
  static_cast<void>(detail::resolvedDescriptor(describe().c_str(), source));
  const NNPaddingMethod method =
      detail::checkedPaddingMethod(describe(), "padding", padding()->paddingMethod());
  const auto axis = [&](std::size_t size, std::size_t kernel, std::size_t dilation, std::size_t stride,
                        bool first) {
    const std::int64_t dilated = (asSigned(kernel) - 1) * asSigned(dilation) + 1;
    return isBackwards() ? detail::backwardPadding(method, first, asSigned(size), dilated, asSigned(stride))
                         : detail::forwardPadding(method, first, asSigned(size), dilated, asSigned(stride));
  };
  const detail::PaddedAxis x = axis(source.width(), kernelWidth(), dilationRateX(), strideInPixelsX(),
                                    detail::remainderToLeft(method));
  const detail::PaddedAxis y = axis(source.height(), kernelHeight(), dilationRateY(), strideInPixelsY(),
                                    detail::remainderToTop(method));
  if (x.destinationSize < 1 || y.destinationSize < 1)
    throw Error(describe(), "sourceImage", source.describe(),
                "at least the dilated window, " + std::to_string((kernelWidth() - 1) * dilationRateX() + 1) +
                    "x" + std::to_string((kernelHeight() - 1) * dilationRateY() + 1) +
                    ", with valid-only padding");
  ImageDescriptor destination = destinationOf(source, static_cast<std::size_t>(x.destinationSize),
                                              static_cast<std::size_t>(y.destinationSize));
  if (!keepsOffset()) setPlacement({x.offset, y.offset, offset_.z});
  adjustDestination(destination, source);
  return destination;
}

ImageDescriptor CNNKernel::destinationImageDescriptor(ArrayRef<std::shared_ptr<Image>> sourceImages,
                                                      ArrayRef<std::shared_ptr<State>> sourceStates) {
  if (sourceImages.size() != 1)
    throw Error(describe(), "sourceImages", std::to_string(sourceImages.size()) + " images", "exactly 1");
  if (!sourceImages[0]) throw Error(describe(), "sourceImages", "null", "an image");
  return detail::askHooks(*this, *padding(), sourceImages, sourceStates,
                          sizeDestination(sourceImages[0]->descriptor()));
}

ImageBatch CNNKernel::makeDestinations(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                       const ImageBatch& sources) {
  ImageDescriptor descriptor;
  if ((padding()->paddingMethod() & NNPaddingMethod::Custom) == NNPaddingMethod::Custom) {
    const std::shared_ptr<Image> first[] = {sources[0]};  // the policy wants to see an image
    descriptor = destinationImageDescriptor(first);
  } else {
    descriptor = sizeDestination(sources.descriptor());
  }
  descriptor.setNumberOfImages(1);
  return detail::allocateImages(*this, *destinationImageAllocator(), commandBuffer, descriptor,
                                sources.count());
}

StateBatch CNNKernel::makeStates(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, std::size_t count,
                                 std::span<const StateBatch> sourceStates) const {
  if (!makesState() || count == 0) return {};
  const auto self = std::static_pointer_cast<const CNNKernel>(shared_from_this());
  const auto makeFor = [self, commandBuffer,
                        slots = std::vector(sourceStates.begin(), sourceStates.end())](std::size_t image) {
    std::vector<std::shared_ptr<State>> states;
    for (const StateBatch& slot : slots) states.push_back(slot.empty() ? nullptr : slot[image]);
    return detail::producedBy(*self, self->makeState(commandBuffer, states));
  };
  if (isResultStateReusedAcrossBatch()) return StateBatch(makeFor(0), count);
  return StateBatch(makeFor, count);
}

ImageBatch CNNKernel::encodeReturning(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                      const ImageBatch& sources, StateBatch* states, bool temporaryStates,
                                      bool isBatch) {
  detail::checkCommandBuffer(*this, commandBuffer);
  if (states != nullptr) *states = {};
  detail::checkNotEmpty(*this, "sourceImages", sources);
  detail::checkNotStacked(*this, isBatch ? "sourceImages" : "sourceImage", sources);
  const Offset before = offset_;
  const Offset placed = placement();
  try {
    mtl::RecordingGuard guard(*commandBuffer);  // padding policies are asked
    ImageBatch destinations = makeDestinations(commandBuffer, sources);
    StateBatch made;
    if (states != nullptr) made = makeStates(temporaryStates ? commandBuffer : nullptr, sources.count(), {});
    encodeInto(commandBuffer, sources, made, destinations, isBatch);
    guard.keep();
    if (states != nullptr) *states = made;
    return destinations;
  } catch (...) {
    setPlacement(placed);
    offset_ = before;
    throw;
  }
}

void CNNKernel::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                       const std::shared_ptr<Image>& sourceImage,
                       const std::shared_ptr<Image>& destinationImage) {
  encodeInto(commandBuffer, detail::batchOf(*this, "sourceImage", sourceImage), {},
             detail::batchOf(*this, "destinationImage", destinationImage), false);
}

void CNNKernel::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                       const std::shared_ptr<Image>& sourceImage,
                       const std::shared_ptr<State>& destinationState,
                       const std::shared_ptr<Image>& destinationImage) {
  if (!destinationState) throw Error(describe(), "destinationState", "null", "a state");
  encodeInto(commandBuffer, detail::batchOf(*this, "sourceImage", sourceImage), StateBatch{destinationState},
             detail::batchOf(*this, "destinationImage", destinationImage), false);
}

void CNNKernel::encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                            const ImageBatch& sourceImages, const ImageBatch& destinationImages) {
  encodeInto(commandBuffer, sourceImages, {}, destinationImages, true);
}

void CNNKernel::encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                            const ImageBatch& sourceImages, const StateBatch& destinationStates,
                            const ImageBatch& destinationImages) {
  encodeInto(commandBuffer, sourceImages, destinationStates, destinationImages, true);
}

std::shared_ptr<Image> CNNKernel::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                         const std::shared_ptr<Image>& sourceImage) {
  return encodeReturning(commandBuffer, detail::batchOf(*this, "sourceImage", sourceImage), nullptr, false,
                         false)[0];
}

std::shared_ptr<Image> CNNKernel::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                         const std::shared_ptr<Image>& sourceImage,
                                         std::shared_ptr<State>& destinationState,
                                         bool destinationStateIsTemporary) {
  StateBatch states;
  const ImageBatch images = encodeReturning(commandBuffer, detail::batchOf(*this, "sourceImage", sourceImage),
                                            &states, destinationStateIsTemporary, false);
  destinationState = states.empty() ? nullptr : states[0];
  return images[0];
}

ImageBatch CNNKernel::encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                  const ImageBatch& sourceImages) {
  return encodeReturning(commandBuffer, sourceImages, nullptr, false, true);
}

ImageBatch CNNKernel::encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                  const ImageBatch& sourceImages, StateBatch& destinationStates,
                                  bool destinationStatesAreTemporary) {
  return encodeReturning(commandBuffer, sourceImages, &destinationStates, destinationStatesAreTemporary,
                         true);
}

void CNNKernel::encodeWithSourceStates(const std::shared_ptr<mtl::CommandBuffer>& /*commandBuffer*/,
                                       const ImageBatch& /*sourceImages*/, const StateBatch& /*sourceStates*/,
                                       const StateBatch& /*destinationStates*/,
                                       const ImageBatch& /*destinationImages*/) {
  throw Error(describe() + ": takes no source states");
}

void CNNKernel::encodeStep(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                           std::span<const ImageBatch> sources, const StateBatch& destinationStates,
                           const ImageBatch& destinationImages) {
  encodeInto(commandBuffer, sources[0], destinationStates, destinationImages, true);
}

StateBatch CNNKernel::makeStepStates(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                     std::span<const ImageBatch> sources,
                                     std::span<const StateBatch> sourceStates) const {
  return makeStates(commandBuffer, sources[0].count(), sourceStates);
}

void CNNKernel::encodeGraphStep(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                const detail::GraphStep& step) {
  if (step.sourceStates.empty())
    encodeStep(commandBuffer, step.sources, step.resultStates, step.result);
  else
    encodeWithSourceStates(commandBuffer, step.sources[0], step.sourceStates[0], step.resultStates,
                           step.result);
}

std::shared_ptr<State> CNNKernel::makeState(const std::shared_ptr<mtl::CommandBuffer>& /*commandBuffer*/,
                                            std::span<const std::shared_ptr<State>> /*sourceStates*/) const {
  return NNGradientState::create(device());
}

std::shared_ptr<State> CNNKernel::resultState(const std::shared_ptr<Image>& /*sourceImage*/,
                                              ArrayRef<std::shared_ptr<State>> sourceStates,
                                              const std::shared_ptr<Image>& /*destinationImage*/) const {
  return makesState() ? makeState(nullptr, sourceStates) : nullptr;
}

StateBatch CNNKernel::resultStateBatch(const ImageBatch& sourceImages, ArrayRef<StateBatch> sourceStates,
                                       const ImageBatch& /*destinationImages*/) const {
  return makeStates(nullptr, sourceImages.count(), sourceStates);
}

std::shared_ptr<State> CNNKernel::temporaryResultState(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const std::shared_ptr<Image>& /*sourceImage*/,
    ArrayRef<std::shared_ptr<State>> sourceStates, const std::shared_ptr<Image>& /*destinationImage*/) const {
  detail::checkCommandBuffer(*this, commandBuffer);
  return makesState() ? detail::producedBy(*this, makeState(commandBuffer, sourceStates)) : nullptr;
}

StateBatch CNNKernel::temporaryResultStateBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                                const ImageBatch& sourceImages,
                                                ArrayRef<StateBatch> sourceStates,
                                                const ImageBatch& /*destinationImages*/) const {
  detail::checkCommandBuffer(*this, commandBuffer);
  return makeStates(commandBuffer, sourceImages.count(), sourceStates);
}

std::size_t CNNKernel::encodingStorageSize(const std::shared_ptr<Image>& sourceImage,
                                           ArrayRef<std::shared_ptr<State>> /*sourceStates*/,
                                           const std::shared_ptr<Image>& destinationImage) const {
  return batchEncodingStorageSize(detail::batchOf(*this, "sourceImage", sourceImage), {},
                                  destinationImage ? ImageBatch::of(destinationImage) : ImageBatch{});
}

std::size_t CNNKernel::batchEncodingStorageSize(const ImageBatch& sourceImages,
                                                ArrayRef<StateBatch> /*sourceStates*/,
                                                const ImageBatch& destinationImages) const {
  if (sourceImages.empty()) return 0;
  if (destinationImages.empty()) {
    const auto sized = std::static_pointer_cast<CNNKernel>(clone());  // sizing sets the offset
    const std::shared_ptr<Image> first[] = {sourceImages[0]};
    const ImageDescriptor size = sized->destinationImageDescriptor(first);
    return sized->batchEncodingStorageSize(sourceImages, {},
                                           detail::standIns(device(), size, sourceImages.count()));
  }
  BatchOperand source(sourceImages);
  BatchOperand destination(destinationImages, true);
  const ForwardCall call = resolveCall(source, destination, false);
  checkCall(call);
  return call.destination.elements() == 0 ? 0 : prepareForward(call).plan.plan->scratchBytes();
}

void CNNKernel::checkDecodedWindow(const Coder& coder) const {
  checkWindowElements(coder, kernelWidth(), kernelHeight());
}

void CNNKernel::codeProperties(Coder& coder) {
  ImageKernel::codeProperties(coder);
  coder.code("offset", offset_);
  coder.codeSizeOrAll("clipRect", clipRect_);
  coder.codeSize("sourceFeatureChannelOffset", sourceFeatureChannelOffset_);
  coder.codeSizeOrAll("sourceFeatureChannelMaxCount", sourceFeatureChannelMaxCount_);
  coder.codeEnumeration("edgeMode", edgeMode_, ImageEdgeMode::Constant);
  coder.code("savesFieldsUnderPredicates", savesFieldsUnderPredicates_);
}

}  // namespace mps
