#include "mps/core/kernel/cnn_multiary_kernel.hpp"

#include <utility>

#include "mps/core/coding/coder.hpp"
#include "mps/core/image/gradient_state.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/kernel/several_sources.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/command.hpp"
#include "mtl/device.hpp"

namespace mps {
namespace {

struct MultiaryGeometry {
  std::vector<detail::SourceProperties> sources;
  mtl::Region clipRect;
  std::size_t destinationFeatureChannelOffset = 0;
};

}  // namespace

std::any CNNMultiaryKernel::geometry() const {
  return MultiaryGeometry{sources_, clipRect_, destinationFeatureChannelOffset()};
}

void CNNMultiaryKernel::setGeometry(const std::any& geometry) {
  const auto& given = std::any_cast<const MultiaryGeometry&>(geometry);
  sources_ = given.sources;
  clipRect_ = given.clipRect;
  setDestinationFeatureChannelOffset(given.destinationFeatureChannelOffset);
}

std::vector<Offset> CNNMultiaryKernel::sourceOffsets() const {
  std::vector<Offset> offsets;
  for (const detail::SourceProperties& source : sources_) offsets.push_back(source.offset.get());
  return offsets;
}

void CNNMultiaryKernel::setSourceOffsets(std::span<const Offset> offsets) {
  for (std::size_t i = 0; i < offsets.size(); ++i) sources_[i].offset.transfer(offsets[i]);
}

CNNMultiaryKernel::CNNMultiaryKernel(std::shared_ptr<mtl::Device> device, std::size_t sourceCount)
    : ImageKernel(std::move(device)), sources_(sourceCount) {
  if (sourceCount == 0) throw Error("CNNMultiaryKernel", "sourceCount", "0", "at least 1");
}

const detail::SourceProperties& CNNMultiaryKernel::at(std::size_t index) const {
  if (index >= sources_.size())
    throw Error(describe(), "index", std::to_string(index),
                "less than sourceCount " + std::to_string(sources_.size()));
  return sources_[index];
}

detail::SourceProperties& CNNMultiaryKernel::at(std::size_t index) {
  return const_cast<detail::SourceProperties&>(std::as_const(*this).at(index));
}

void CNNMultiaryKernel::checkSourceCount(std::size_t found) const {
  if (found != sourceCount())
    throw Error(describe(), "sourceImages", std::to_string(found) + " sources",
                std::to_string(sourceCount()));
}

std::vector<ImageBatch> CNNMultiaryKernel::batchesOf(std::span<const std::shared_ptr<Image>> images) const {
  checkSourceCount(images.size());
  std::vector<ImageBatch> batches;
  for (const auto& image : images) batches.push_back(detail::batchOf(*this, "sourceImages", image));
  return batches;
}

ImageDescriptor CNNMultiaryKernel::destinationImageDescriptor(ArrayRef<std::shared_ptr<Image>> sourceImages,
                                                              ArrayRef<std::shared_ptr<State>> sourceStates) {
  checkSourceCount(sourceImages.size());
  std::vector<detail::SourceOfSize> sources;
  std::vector<std::size_t> channels;
  for (std::size_t i = 0; i < sourceCount(); ++i) {
    if (!sourceImages[i]) throw Error(describe(), "sourceImages", "null", "images");
    sources.push_back({&sources_[i], sourceImages[i]->descriptor()});
    channels.push_back(sources[i].featureChannelsRead());
  }
  ImageDescriptor descriptor =
      detail::sizeBySources(*this, "sourceImages", padding()->paddingMethod(), sources);
  descriptor.setFeatureChannels(producedFeatureChannels(channels) + destinationFeatureChannelOffset());
  return detail::askHooks(*this, *padding(), sourceImages, sourceStates, descriptor);
}

StateBatch CNNMultiaryKernel::makeStates(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                         std::size_t count) const {
  if (!makesState() || count == 0) return {};
  if (isResultStateReusedAcrossBatch()) return StateBatch(makeState(commandBuffer), count);
  const auto self = std::static_pointer_cast<const CNNMultiaryKernel>(shared_from_this());
  return StateBatch([self, commandBuffer](std::size_t) { return self->makeState(commandBuffer); }, count);
}

std::shared_ptr<State> CNNMultiaryKernel::makeState(
    const std::shared_ptr<mtl::CommandBuffer>& /*commandBuffer*/) const {
  return NNMultiaryGradientState::create(device());
}

void CNNMultiaryKernel::encodeInto(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                   std::span<const ImageBatch> sources, const StateBatch& states,
                                   const ImageBatch& destinations, bool isBatch) {
  detail::checkCommandBuffer(*this, commandBuffer);
  checkSourceCount(sources.size());
  for (const ImageBatch& source : sources)
    detail::checkCount(*this, "sourceImages", source.count(), sources[0].count());
  detail::checkCount(*this, "destinationImages", destinations.count(), sources[0].count());
  for (const detail::SourceProperties& source : sources_) source.checkPositions(*this, "offset");
  detail::checkNotEmpty(*this, "sourceImages", sources[0]);
  if (!has(options(), KernelOptions::SkipAPIValidation)) {
    detail::checkDestinations(*this, "destinationImage", *commandBuffer, destinations);
    for (const ImageBatch& source : sources) {
      detail::checkSources(*this, "sourceImages", *commandBuffer, source);
      detail::checkNoAlias(*this, "sourceImages", source, destinations);
      if (isBatch) detail::checkNotStacked(*this, "sourceImages", source);
    }
    if (isBatch) detail::checkNotStacked(*this, "destinationImages", destinations);
    if (!states.empty())
      detail::checkStates(*this, "destinationStates", *commandBuffer, states, destinations.count());
  }
  mtl::RecordingGuard guard(*commandBuffer);
  encodeCall(commandBuffer, sources, states, destinations);
  guard.keep();
  detail::setProducer(destinations, describe());
  for (const ImageBatch& source : sources) detail::consumeRead(source, describe());
}

ImageBatch CNNMultiaryKernel::encodeReturning(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                              std::span<const ImageBatch> sources, StateBatch* states,
                                              bool temporaryStates, bool isBatch) {
  detail::checkCommandBuffer(*this, commandBuffer);
  checkSourceCount(sources.size());
  if (states != nullptr) *states = {};
  detail::checkNotEmpty(*this, "sourceImages", sources[0]);
  const auto before = sources_;
  try {
    mtl::RecordingGuard guard(*commandBuffer);  // padding policies are asked
    std::vector<std::shared_ptr<Image>> first;
    for (const ImageBatch& source : sources) {
      detail::checkCount(*this, "sourceImages", source.count(), sources[0].count());
      detail::checkNotStacked(*this, "sourceImages", source);
      first.push_back(source[0]);
    }
    ImageDescriptor descriptor = destinationImageDescriptor(first);
    descriptor.setNumberOfImages(1);
    ImageBatch destinations = detail::allocateImages(*this, *destinationImageAllocator(), commandBuffer,
                                                     descriptor, sources[0].count());
    StateBatch made;
    if (states != nullptr) made = makeStates(temporaryStates ? commandBuffer : nullptr, sources[0].count());
    encodeInto(commandBuffer, sources, made, destinations, isBatch);
    guard.keep();
    if (states != nullptr) *states = made;
    return destinations;
  } catch (...) {
    sources_ = before;
    throw;
  }
}

void CNNMultiaryKernel::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                               ArrayRef<std::shared_ptr<Image>> sourceImages,
                               const std::shared_ptr<Image>& destinationImage) {
  if (!destinationImage) throw Error(describe(), "destinationImage", "null", "an image");
  encodeInto(commandBuffer, batchesOf(sourceImages), {}, ImageBatch::of(destinationImage), false);
}

void CNNMultiaryKernel::encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                    ArrayRef<ImageBatch> sourceImages, const ImageBatch& destinationImages) {
  encodeInto(commandBuffer, sourceImages, {}, destinationImages, true);
}

void CNNMultiaryKernel::encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                    ArrayRef<ImageBatch> sourceImages, const StateBatch& destinationStates,
                                    const ImageBatch& destinationImages) {
  encodeInto(commandBuffer, sourceImages, destinationStates, destinationImages, true);
}

std::shared_ptr<Image> CNNMultiaryKernel::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                                 ArrayRef<std::shared_ptr<Image>> sourceImages) {
  return encodeReturning(commandBuffer, batchesOf(sourceImages), nullptr, false, false)[0];
}

ImageBatch CNNMultiaryKernel::encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                          ArrayRef<ImageBatch> sourceImages) {
  return encodeReturning(commandBuffer, sourceImages, nullptr, false, true);
}

std::shared_ptr<Image> CNNMultiaryKernel::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                                 ArrayRef<std::shared_ptr<Image>> sourceImages,
                                                 std::shared_ptr<State>& destinationState,
                                                 bool destinationStateIsTemporary) {
  StateBatch states;
  const ImageBatch images =
      encodeReturning(commandBuffer, batchesOf(sourceImages), &states, destinationStateIsTemporary, false);
  destinationState = states.empty() ? nullptr : states[0];
  return images[0];
}

ImageBatch CNNMultiaryKernel::encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                          ArrayRef<ImageBatch> sourceImages, StateBatch& destinationStates,
                                          bool destinationStatesAreTemporary) {
  return encodeReturning(commandBuffer, sourceImages, &destinationStates, destinationStatesAreTemporary,
                         true);
}

std::shared_ptr<State> CNNMultiaryKernel::resultState(
    ArrayRef<std::shared_ptr<Image>> sourceImages, ArrayRef<std::shared_ptr<State>> /*sourceStates*/,
    const std::shared_ptr<Image>& /*destinationImage*/) const {
  checkSourceCount(sourceImages.size());
  return makesState() ? makeState(nullptr) : nullptr;
}

StateBatch CNNMultiaryKernel::resultStateBatch(ArrayRef<ImageBatch> sourceImages,
                                               ArrayRef<StateBatch> /*sourceStates*/,
                                               const ImageBatch& /*destinationImages*/) const {
  checkSourceCount(sourceImages.size());
  return makeStates(nullptr, sourceImages[0].count());
}

std::shared_ptr<State> CNNMultiaryKernel::temporaryResultState(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, ArrayRef<std::shared_ptr<Image>> sourceImages,
    ArrayRef<std::shared_ptr<State>> /*sourceStates*/,
    const std::shared_ptr<Image>& /*destinationImage*/) const {
  detail::checkCommandBuffer(*this, commandBuffer);
  checkSourceCount(sourceImages.size());
  return makesState() ? makeState(commandBuffer) : nullptr;
}

StateBatch CNNMultiaryKernel::temporaryResultStateBatch(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, ArrayRef<ImageBatch> sourceImages,
    ArrayRef<StateBatch> /*sourceStates*/, const ImageBatch& /*destinationImages*/) const {
  detail::checkCommandBuffer(*this, commandBuffer);
  checkSourceCount(sourceImages.size());
  return makeStates(commandBuffer, sourceImages[0].count());
}

StateBatch CNNMultiaryKernel::makeStepStates(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                             std::span<const ImageBatch> sources,
                                             std::span<const StateBatch> /*sourceStates*/) const {
  return makeStates(commandBuffer, sources[0].count());
}

void CNNMultiaryKernel::encodeGraphStep(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                        const detail::GraphStep& step) {
  encodeBatch(commandBuffer, step.sources, step.resultStates, step.result);
}

void CNNMultiaryKernel::checkDecodedWindow(const Coder& coder) const {
  for (const detail::SourceProperties& source : sources_)
    checkWindowElements(coder, source.kernelWidth.get(), source.kernelHeight.get());
}

void CNNMultiaryKernel::codeProperties(Coder& coder) {
  ImageKernel::codeProperties(coder);
  coder.codeList("sources", sources_,
                 [&](detail::SourceProperties& source) { source.codeProperties(coder); });
  if (sources_.empty()) coder.refuse("sources", "empty", "at least one");
  coder.codeSizeOrAll("clipRect", clipRect_);
}

}  // namespace mps
