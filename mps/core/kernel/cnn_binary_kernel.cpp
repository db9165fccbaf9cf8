#include "mps/core/kernel/cnn_binary_kernel.hpp"

#include "mps/core/coding/coder.hpp"
#include "mps/core/image/gradient_state.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/kernel/several_sources.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/command.hpp"
#include "mtl/device.hpp"

namespace mps {
namespace {

struct BinaryGeometry {
  detail::SourceProperties primary;
  detail::SourceProperties secondary;
  mtl::Region clipRect;
  bool clipRectIsSet = false;
  std::size_t destinationFeatureChannelOffset = 0;
};

}  // namespace

std::any CNNBinaryKernel::geometry() const {
  return BinaryGeometry{primary_, secondary_, clipRect_, clipRectIsSet_, destinationFeatureChannelOffset()};
}

void CNNBinaryKernel::setGeometry(const std::any& geometry) {
  const auto& given = std::any_cast<const BinaryGeometry&>(geometry);
  primary_ = given.primary;
  secondary_ = given.secondary;
  clipRect_ = given.clipRect;
  clipRectIsSet_ = given.clipRectIsSet;
  setDestinationFeatureChannelOffset(given.destinationFeatureChannelOffset);
}

std::vector<Offset> CNNBinaryKernel::sourceOffsets() const {
  return {primaryOffset(), secondaryOffset()};
}

void CNNBinaryKernel::setSourceOffsets(std::span<const Offset> offsets) {
  primary_.offset.transfer(offsets[0]);
  secondary_.offset.transfer(offsets[1]);
}

void CNNBinaryKernel::checkEncode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                  const char* primaryName, const ImageBatch& primary,
                                  const char* secondaryName, const ImageBatch& secondary,
                                  const ImageBatch& destinations, bool isBatch) const {
  detail::checkCommandBuffer(*this, commandBuffer);
  detail::checkCount(*this, secondaryName, secondary.count(), primary.count());
  detail::checkCount(*this, "destinationImages", destinations.count(), primary.count());
  primary_.checkPositions(*this, "primaryOffset");
  secondary_.checkPositions(*this, "secondaryOffset");
  if (primary.empty() || has(options(), KernelOptions::SkipAPIValidation)) return;
  detail::checkSources(*this, primaryName, *commandBuffer, primary);
  detail::checkSources(*this, secondaryName, *commandBuffer, secondary);
  detail::checkDestinations(*this, "destinationImage", *commandBuffer, destinations);
  detail::checkNoAlias(*this, primaryName, primary, destinations, worksInPlace());
  if (readsSecondary()) detail::checkNoAlias(*this, secondaryName, secondary, destinations);
  if (!isBatch) return;
  detail::checkNotStacked(*this, primaryName, primary);
  detail::checkNotStacked(*this, secondaryName, secondary);
  detail::checkNotStacked(*this, "destinationImages", destinations);
}

ImageDescriptor CNNBinaryKernel::sizeDestination(const ImageDescriptor& primary,
                                                 const ImageDescriptor& secondary) {
  const detail::SourceOfSize sources[] = {{&primary_, primary}, {&secondary_, secondary}};
  ImageDescriptor destination =
      detail::sizeBySources(*this, "primaryImage", padding()->paddingMethod(), sources);
  destination.setFeatureChannels(
      producedFeatureChannels(sources[0].featureChannelsRead(), sources[1].featureChannelsRead()) +
      destinationFeatureChannelOffset());
  return destination;
}

ImageDescriptor CNNBinaryKernel::destinationImageDescriptor(ArrayRef<std::shared_ptr<Image>> sourceImages,
                                                            ArrayRef<std::shared_ptr<State>> sourceStates) {
  if (sourceImages.size() != 2)
    throw Error(describe(), "sourceImages", std::to_string(sourceImages.size()) + " images", "exactly 2");
  if (!sourceImages[0] || !sourceImages[1]) throw Error(describe(), "sourceImages", "null", "images");
  return detail::askHooks(*this, *padding(), sourceImages, sourceStates,
                          sizeDestination(sourceImages[0]->descriptor(), sourceImages[1]->descriptor()));
}

ImageBatch CNNBinaryKernel::makeDestinations(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                             const ImageBatch& primary, const ImageBatch& secondary,
                                             const StateBatch& states) {
  const std::shared_ptr<Image> images[] = {primary[0], secondary[0]};
  std::vector<std::shared_ptr<State>> first;
  if (!states.empty()) first.push_back(states[0]);
  ImageDescriptor descriptor = destinationImageDescriptor(images, first);
  descriptor.setNumberOfImages(1);
  return detail::allocateImages(*this, *destinationImageAllocator(), commandBuffer, descriptor,
                                primary.count());
}

StateBatch CNNBinaryKernel::makeStates(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                       std::size_t count) const {
  if (!makesState() || count == 0) return {};
  if (isResultStateReusedAcrossBatch()) return StateBatch(makeState(commandBuffer), count);
  const auto self = std::static_pointer_cast<const CNNBinaryKernel>(shared_from_this());
  return StateBatch([self, commandBuffer](std::size_t) { return self->makeState(commandBuffer); }, count);
}

std::shared_ptr<State> CNNBinaryKernel::makeState(
    const std::shared_ptr<mtl::CommandBuffer>& /*commandBuffer*/) const {
  return NNBinaryGradientState::create(device());
}

void CNNBinaryKernel::encodeInto(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                 const ImageBatch& primary, const ImageBatch& secondary,
                                 const StateBatch& states, const ImageBatch& destinations, bool isBatch) {
  checkEncode(commandBuffer, "primaryImage", primary, "secondaryImage", secondary, destinations, isBatch);
  detail::checkNotEmpty(*this, "primaryImages", primary);
  mtl::RecordingGuard guard(*commandBuffer);
  encodeCall(commandBuffer, primary, secondary, states, destinations);
  guard.keep();
  detail::setProducer(destinations, describe());
  detail::consumeRead(primary, describe());
  detail::consumeRead(secondary, describe());
}

ImageBatch CNNBinaryKernel::encodeReturning(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                            const ImageBatch& primary, const ImageBatch& secondary,
                                            StateBatch* states, bool temporaryStates, bool isBatch) {
  detail::checkCommandBuffer(*this, commandBuffer);
  detail::checkCount(*this, "secondaryImages", secondary.count(), primary.count());
  if (states != nullptr) *states = {};
  detail::checkNotEmpty(*this, "primaryImages", primary);
  detail::checkNotStacked(*this, "primaryImages", primary);
  detail::checkNotStacked(*this, "secondaryImages", secondary);
  const auto before = std::pair(primary_, secondary_);
  try {
    mtl::RecordingGuard guard(*commandBuffer);  // padding policies are asked
    ImageBatch destinations = makeDestinations(commandBuffer, primary, secondary, {});
    StateBatch made;
    if (states != nullptr) made = makeStates(temporaryStates ? commandBuffer : nullptr, primary.count());
    encodeInto(commandBuffer, primary, secondary, made, destinations, isBatch);
    guard.keep();
    if (states != nullptr) *states = made;
    return destinations;
  } catch (...) {
    std::tie(primary_, secondary_) = before;
    throw;
  }
}

void CNNBinaryKernel::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                             const std::shared_ptr<Image>& primaryImage,
                             const std::shared_ptr<Image>& secondaryImage,
                             const std::shared_ptr<Image>& destinationImage) {
  encodeInto(commandBuffer, detail::batchOf(*this, "primaryImage", primaryImage),
             detail::batchOf(*this, "secondaryImage", secondaryImage), {},
             detail::batchOf(*this, "destinationImage", destinationImage), false);
}

void CNNBinaryKernel::encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                  const ImageBatch& primaryImages, const ImageBatch& secondaryImages,
                                  const ImageBatch& destinationImages) {
  encodeInto(commandBuffer, primaryImages, secondaryImages, {}, destinationImages, true);
}

void CNNBinaryKernel::encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                  const ImageBatch& primaryImages, const ImageBatch& secondaryImages,
                                  const StateBatch& destinationStates, const ImageBatch& destinationImages) {
  encodeInto(commandBuffer, primaryImages, secondaryImages, destinationStates, destinationImages, true);
}

std::shared_ptr<Image> CNNBinaryKernel::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                               const std::shared_ptr<Image>& primaryImage,
                                               const std::shared_ptr<Image>& secondaryImage) {
  return encodeReturning(commandBuffer, detail::batchOf(*this, "primaryImage", primaryImage),
                         detail::batchOf(*this, "secondaryImage", secondaryImage), nullptr, false, false)[0];
}

ImageBatch CNNBinaryKernel::encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                        const ImageBatch& primaryImages, const ImageBatch& secondaryImages) {
  return encodeReturning(commandBuffer, primaryImages, secondaryImages, nullptr, false, true);
}

std::shared_ptr<Image> CNNBinaryKernel::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                               const std::shared_ptr<Image>& primaryImage,
                                               const std::shared_ptr<Image>& secondaryImage,
                                               std::shared_ptr<State>& destinationState,
                                               bool destinationStateIsTemporary) {
  StateBatch states;
  const ImageBatch images = encodeReturning(
      commandBuffer, detail::batchOf(*this, "primaryImage", primaryImage),
      detail::batchOf(*this, "secondaryImage", secondaryImage), &states, destinationStateIsTemporary, false);
  destinationState = states.empty() ? nullptr : states[0];
  return images[0];
}

ImageBatch CNNBinaryKernel::encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                        const ImageBatch& primaryImages, const ImageBatch& secondaryImages,
                                        StateBatch& destinationStates, bool destinationStatesAreTemporary) {
  return encodeReturning(commandBuffer, primaryImages, secondaryImages, &destinationStates,
                         destinationStatesAreTemporary, true);
}

std::shared_ptr<State> CNNBinaryKernel::resultState(
    const std::shared_ptr<Image>& /*primaryImage*/, const std::shared_ptr<Image>& /*secondaryImage*/,
    ArrayRef<std::shared_ptr<State>> /*sourceStates*/,
    const std::shared_ptr<Image>& /*destinationImage*/) const {
  return makesState() ? makeState(nullptr) : nullptr;
}

StateBatch CNNBinaryKernel::resultStateBatch(const ImageBatch& primaryImages,
                                             const ImageBatch& /*secondaryImages*/,
                                             ArrayRef<StateBatch> /*sourceStates*/,
                                             const ImageBatch& /*destinationImages*/) const {
  return makeStates(nullptr, primaryImages.count());
}

std::shared_ptr<State> CNNBinaryKernel::temporaryResultState(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const std::shared_ptr<Image>& /*primaryImage*/,
    const std::shared_ptr<Image>& /*secondaryImage*/, ArrayRef<std::shared_ptr<State>> /*sourceStates*/,
    const std::shared_ptr<Image>& /*destinationImage*/) const {
  detail::checkCommandBuffer(*this, commandBuffer);
  return makesState() ? makeState(commandBuffer) : nullptr;
}

StateBatch CNNBinaryKernel::temporaryResultStateBatch(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const ImageBatch& primaryImages,
    const ImageBatch& /*secondaryImages*/, ArrayRef<StateBatch> /*sourceStates*/,
    const ImageBatch& /*destinationImages*/) const {
  detail::checkCommandBuffer(*this, commandBuffer);
  return makeStates(commandBuffer, primaryImages.count());
}

std::size_t CNNBinaryKernel::encodingStorageSize(const std::shared_ptr<Image>& primaryImage,
                                                 const std::shared_ptr<Image>& secondaryImage,
                                                 ArrayRef<std::shared_ptr<State>> sourceStates,
                                                 const std::shared_ptr<Image>& destinationImage) const {
  std::vector<StateBatch> states;
  for (const auto& state : sourceStates) states.push_back(StateBatch{state});
  return batchEncodingStorageSize(detail::batchOf(*this, "primaryImage", primaryImage),
                                  detail::batchOf(*this, "secondaryImage", secondaryImage), states,
                                  destinationImage ? ImageBatch::of(destinationImage) : ImageBatch{});
}

std::size_t CNNBinaryKernel::batchEncodingStorageSize(const ImageBatch& primaryImages,
                                                      const ImageBatch& secondaryImages,
                                                      ArrayRef<StateBatch> sourceStates,
                                                      const ImageBatch& destinationImages) const {
  detail::checkCount(*this, "secondaryImages", secondaryImages.count(), primaryImages.count());
  if (primaryImages.empty()) return 0;
  const auto sized = std::static_pointer_cast<CNNBinaryKernel>(clone());  // sizing sets the offsets
  ImageBatch destinations = destinationImages;
  if (destinations.empty()) {
    const std::shared_ptr<Image> images[] = {primaryImages[0], secondaryImages[0]};
    std::vector<std::shared_ptr<State>> first;
    for (const StateBatch& states : sourceStates) first.push_back(states[0]);
    destinations =
        detail::standIns(device(), sized->destinationImageDescriptor(images, first), primaryImages.count());
  }
  return sized->scratchBytes(primaryImages, secondaryImages,
                             sourceStates.empty() ? StateBatch{} : sourceStates[0], destinations);
}

StateBatch CNNBinaryKernel::makeStepStates(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                           std::span<const ImageBatch> sources,
                                           std::span<const StateBatch> /*sourceStates*/) const {
  return makeStates(commandBuffer, sources[0].count());
}

void CNNBinaryKernel::encodeGraphStep(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                      const detail::GraphStep& step) {
  encodeBatch(commandBuffer, step.sources[0], step.sources[1], step.resultStates, step.result);
}

void detail::SourceProperties::codeProperties(Coder& coder) {
  offset.code(coder, "offset");
  featureChannelOffset.code(coder, "featureChannelOffset");
  featureChannelMaxCount.code(coder, "featureChannelMaxCount");
  edgeMode.code(coder, "edgeMode");
  kernelWidth.code(coder, "kernelWidth");
  kernelHeight.code(coder, "kernelHeight");
  strideInPixelsX.code(coder, "strideInPixelsX");
  strideInPixelsY.code(coder, "strideInPixelsY");
  dilationRateX.code(coder, "dilationRateX");
  dilationRateY.code(coder, "dilationRateY");
}

void detail::SourceProperties::checkPositions(const Kernel& kernel, const char* offsetName) const {
  checkOffset(kernel, offsetName, offset.get());
  checkStride(kernel, "strideInPixelsX", strideInPixelsX.get());
  checkStride(kernel, "strideInPixelsY", strideInPixelsY.get());
}

void CNNBinaryKernel::checkDecodedWindow(const Coder& coder) const {
  for (const detail::SourceProperties* source : {&primary_, &secondary_})
    checkWindowElements(coder, source->kernelWidth.get(), source->kernelHeight.get());
}

void CNNBinaryKernel::codeProperties(Coder& coder) {
  ImageKernel::codeProperties(coder);
  coder.codeGroup("primary", [&] { primary_.codeProperties(coder); });
  coder.codeGroup("secondary", [&] { secondary_.codeProperties(coder); });
  coder.codeSizeOrAll("clipRect", clipRect_);
  coder.code("clipRectIsSet", clipRectIsSet_);
}

}  // namespace mps
