#include "mps/concatenation/concatenation.hpp"

#include <algorithm>
#include <any>

#include "mps/concatenation/concatenation_problem.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/image/gradient_state.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/kernel/graph_traits.hpp"
#include "mps/core/kernel/pointwise.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/as_signed.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/command.hpp"
#include "mtl/device.hpp"

namespace mps {

using detail::BatchOperand;
using detail::ConcatenationDirection;
using detail::ConcatenationProblem;
using detail::ForwardRecord;

namespace {

using detail::asSigned;

/// What the record of a call keeps for the gradients: the call as each source sees it.
struct ConcatenationRecord {
  std::vector<std::shared_ptr<const ForwardRecord>> ofSource;
};

/// [origin, origin + size) cut to [0, limit).
void cut(std::size_t& origin, std::size_t& size, std::int64_t limit) {
  const auto most = static_cast<std::size_t>(limit);
  origin = std::min(origin, most);
  size = std::min(size, most - origin);
}

}  // namespace

NNConcatenation::NNConcatenation(std::shared_ptr<mtl::Device> device, std::size_t sourceCount)
    : KernelClass(std::move(device), sourceCount) {}

std::shared_ptr<NNConcatenation> NNConcatenation::create(const std::shared_ptr<mtl::Device>& device,
                                                         std::size_t sourceCount) {
  return std::shared_ptr<NNConcatenation>(new NNConcatenation(device, sourceCount));
}

void NNConcatenation::setChannelAlignment(std::size_t channelAlignment) {
  if (channelAlignment != 1 && channelAlignment != 4)
    throw Error(describe(), "channelAlignment", std::to_string(channelAlignment), "1 or 4");
  channelAlignment_ = channelAlignment;
}

detail::ChannelTraits NNConcatenation::channelTraits() const {
  return {.alignment = channelAlignment_};
}

std::size_t NNConcatenation::aligned(std::size_t channels) const {
  return (channels + channelAlignment_ - 1) / channelAlignment_ * channelAlignment_;
}

std::size_t NNConcatenation::producedFeatureChannels(std::span<const std::size_t> sourceChannels) const {
  std::size_t sum = 0;
  for (const std::size_t channels : sourceChannels) sum += aligned(channels);
  return sum;
}

void NNConcatenation::checkProperties() const {
  for (std::size_t i = 0; i < sourceCount(); ++i) {
    if (kernelWidth(i) != 1 || kernelHeight(i) != 1 || strideInPixelsX(i) != 1 || strideInPixelsY(i) != 1 ||
        dilationRateX(i) != 1 || dilationRateY(i) != 1)
      throw Error(describe(), "kernel size, stride or dilation", "not 1 for source " + std::to_string(i),
                  "1: a concatenation has no window");
    detail::checkChannelOffset(*this, "sourceFeatureChannelOffset", sourceFeatureChannelOffset(i));
  }
  detail::checkChannelOffset(*this, "destinationFeatureChannelOffset", destinationFeatureChannelOffset());
}

std::vector<std::size_t> NNConcatenation::channelsOf(std::span<const ImageBatch> sources) const {
  std::vector<std::size_t> channels;
  const ImageDescriptor& first = sources[0].descriptor();
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const ImageDescriptor& source = sources[i].descriptor();
    if (source.width() != first.width() || source.height() != first.height())
      throw Error(
          describe(), "sourceImages", "source " + std::to_string(i) + " is " + source.describe(),
          std::to_string(first.width()) + "x" + std::to_string(first.height()) + " pixels, as source 0");
    const std::size_t begin = sourceFeatureChannelOffset(i);
    if (begin >= source.featureChannels() || sourceFeatureChannelMaxCount(i) == 0)
      throw Error(describe(), "sourceImages",
                  "source " + std::to_string(i) + " with " + std::to_string(source.featureChannels()) +
                      " feature channels",
                  "more than the channel offset " + std::to_string(begin));
    channels.push_back(std::min(sourceFeatureChannelMaxCount(i), source.featureChannels() - begin));
  }
  return channels;
}

void NNConcatenation::encodeCall(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                 std::span<const ImageBatch> sources, const StateBatch& destinationStates,
                                 const ImageBatch& destinations) {
  checkProperties();
  const std::vector<std::size_t> channels = channelsOf(sources);
  BatchOperand destination(destinations, true);
  const std::size_t produced = producedFeatureChannels(channels);
  if (const auto room = static_cast<std::size_t>(destination.shape().channels);
      destinationFeatureChannelOffset() + produced > room)
    throw Error(describe(), "destinationImage", std::to_string(room) + " feature channels",
                "at least " + std::to_string(destinationFeatureChannelOffset() + produced) +
                    " with channelAlignment " + std::to_string(channelAlignment_));

  mtl::Region clip = clipRect();
  cut(clip.origin.x, clip.size.width, destination.shape().width);
  cut(clip.origin.y, clip.size.height, destination.shape().height);
  std::vector<BatchOperand> operands(sources.begin(), sources.end());
  std::vector<detail::SourceImages> images;
  for (std::size_t i = 0; i < sources.size(); ++i) images.push_back({&operands[i], offset(i).z, "offset.z"});
  detail::selectImages(*this, images, destination, clip);
  const auto width = asSigned(clip.size.width);
  const auto height = asSigned(clip.size.height);
  destination.selectRegion(asSigned(clip.origin.x), asSigned(clip.origin.y), width, height);

  const auto record = std::make_shared<ForwardRecord>();
  ConcatenationRecord family;
  record->kernelClass = className();
  record->clipRect = clip;
  if (!destination.isStack()) record->clipRect.size.depth = 1;  // as for each image of the batch alone
  record->destination = destinations.descriptor();
  record->imageCount = destinations.count();

  std::vector<std::size_t> begins{destinationFeatureChannelOffset()};
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const Offset from = offset(i);
    BatchOperand& source = operands[i];
    if (from.x < 0 || from.y < 0 || from.x + width > source.shape().width ||
        from.y + height > source.shape().height)
      throw Error(describe(), "sourceImages",
                  "source " + std::to_string(i) + " is " + sources[i].descriptor().describe(),
                  "one that holds the " + std::to_string(width) + "x" + std::to_string(height) +
                      " pixels of clipRect from offset " + std::to_string(from.x) + ", " +
                      std::to_string(from.y) + " on");
    source.selectChannels(asSigned(sourceFeatureChannelOffset(i)), asSigned(channels[i]));
    source.selectRegion(from.x, from.y, width, height);
    ForwardRecord ofSource = *record;
    ofSource.offset = from;
    ofSource.sourceFeatureChannelOffset = sourceFeatureChannelOffset(i);
    ofSource.sourceFeatureChannels = channels[i];
    ofSource.destinationFeatureChannelOffset = begins[i];
    ofSource.destinationFeatureChannels = channels[i];
    ofSource.source = sources[i].descriptor();
    ofSource.sourcePlace = detail::placeOf(source);
    family.ofSource.push_back(std::make_shared<const ForwardRecord>(std::move(ofSource)));
    begins.push_back(begins[i] + aligned(channels[i]));
  }

  // Two at once, where the first one has no padding: by themselves they would write parts of lines of memory.
  for (std::size_t i = 0, end = 0; i < sources.size(); i = end) {
    const bool isPair = i + 1 < sources.size() && aligned(channels[i]) == channels[i];
    end = i + (isPair ? 2 : 1);
    BatchOperand part = destination;
    part.selectChannels(asSigned(begins[i]), asSigned(begins[end] - begins[i]));
    if (part.shape().elements() == 0) continue;
    ConcatenationProblem problem;
    problem.direction = ConcatenationDirection::Forward;
    problem.input = operands[i].shape();
    if (isPair) problem.second = operands[i + 1].shape();
    problem.destination = part.shape();
    detail::PreparedCall prepared;
    prepared.plan = detail::planFor(*device(), detail::concatenationBackEnds, problem);
    prepared.sourceIndex = i;
    detail::recordCall(*commandBuffer, *this, prepared,
                       {&operands[i], isPair ? &operands[i + 1] : nullptr, nullptr, &part, nullptr, 0});
  }
  if (destinationStates.empty()) return;
  record->family = std::move(family);
  destinationStates.setRecord(record);
}

NNConcatenationGradient::NNConcatenationGradient(std::shared_ptr<mtl::Device> device, std::size_t sourceIndex)
    : KernelClass(std::move(device)), sourceIndex_(sourceIndex) {}

std::shared_ptr<NNConcatenationGradient> NNConcatenationGradient::create(
    const std::shared_ptr<mtl::Device>& device, std::size_t sourceIndex) {
  return std::shared_ptr<NNConcatenationGradient>(new NNConcatenationGradient(device, sourceIndex));
}

detail::KernelRoles NNConcatenationGradient::roles() {
  return {.sliceGradient = this};
}

bool NNConcatenationGradient::acceptsForward(const std::string& forwardClassName) const {
  return forwardClassName == "NNConcatenation";
}

std::shared_ptr<const ForwardRecord> NNConcatenationGradient::ownRecord(
    std::shared_ptr<const ForwardRecord> record) const {
  const auto* family = std::any_cast<ConcatenationRecord>(&record->family);
  if (family == nullptr) return record;  // of another kernel: the base class refuses it
  if (sourceIndex_ >= family->ofSource.size())
    throw Error(
        describe(), "sourceIndex", std::to_string(sourceIndex_),
        "less than the " + std::to_string(family->ofSource.size()) + " sources of the forward kernel");
  return family->ofSource[sourceIndex_];
}

std::vector<detail::PreparedCall> NNConcatenationGradient::prepareGradient(
    const detail::GradientCall& call) const {
  if (call.gradient.channels < call.destination.channels)
    throw Error(describe(), "sourceGradient",
                std::to_string(call.gradient.channels) + " feature channels of the slice",
                std::to_string(call.destination.channels) + ", as the gradient of the source");
  detail::PointwiseGradient views = detail::pointwiseGradient(call);
  views.gradient.channels = views.destination.channels;
  ConcatenationProblem problem;
  problem.direction = ConcatenationDirection::Gradient;
  problem.input = views.gradient;
  problem.destination = views.destination;
  detail::PreparedCall prepared =
      detail::preparedPointwise(views, detail::planFor(*device(), detail::concatenationBackEnds, problem));
  prepared.readsSource = false;
  return {prepared};
}

/// The call of one source, and its part of the images.
struct NNConcatenationGradient::Slice {
  BatchOperand gradient, source, destination;
  detail::PointwiseGradient views;
  bool isWhole = false;  ///< every element of the destination is written

  /// Whether the other slice lies behind this one, in the same pixels.
  [[nodiscard]] bool isBefore(const Slice& other) const {
    return isWhole && other.isWhole && views.gradientOrigin == other.views.gradientOrigin &&
           views.gradient.images == other.views.gradient.images &&
           views.gradient.height == other.views.gradient.height &&
           views.gradient.width == other.views.gradient.width &&
           gradient.first().channel + views.destination.channels == other.gradient.first().channel;
  }
};

NNConcatenationGradient::Slice NNConcatenationGradient::resolveSlice(const ImageBatch& gradients,
                                                                     const ImageBatch& sources,
                                                                     const StateBatch& states,
                                                                     const ImageBatch& destinations) {
  Slice slice;
  slice.gradient = BatchOperand(gradients);
  slice.source = BatchOperand(sources);
  slice.destination = BatchOperand(destinations, true);
  const auto own = forwardRecord(sources.descriptor(), states).record;
  checkRecord(*own, gradients.descriptor(), sources.descriptor());
  transferProperties(*own, gradients.descriptor());
  const detail::TensorShape whole = slice.destination.shape();
  const detail::GradientCall call = resolveCall(slice.gradient, slice.source, slice.destination, own, false);
  checkRole(*own, slice.source);
  slice.views = detail::pointwiseGradient(call);
  slice.isWhole = slice.views.coversDestination && call.destination == whole && whole.elements() > 0 &&
                  call.gradient.channels >= whole.channels;
  return slice;
}

void NNConcatenationGradient::encodeBatchWithNext(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                                  const ImageBatch& sourceGradients,
                                                  std::span<const ImageBatch> sourceImages,
                                                  const StateBatch& gradientStates,
                                                  std::span<const ImageBatch> destinationGradients) {
  detail::checkCount(*this, "sourceImages", sourceImages.size(), 2);
  detail::checkCount(*this, "destinationGradients", destinationGradients.size(), 2);
  detail::checkCount(*this, "gradientStates", gradientStates.count(), sourceGradients.count());
  const auto next = copy();
  ++next->sourceIndex_;
  for (std::size_t i = 0; i < 2; ++i)
    checkEncode(commandBuffer, "sourceGradient", sourceGradients, "sourceImage", sourceImages[i],
                destinationGradients[i], true);
  detail::checkNotEmpty(*this, "sourceGradients", sourceGradients);
  detail::checkStates(*this, "gradientStates", *commandBuffer, gradientStates, sourceGradients.count());
  const Slice first = resolveSlice(sourceGradients, sourceImages[0], gradientStates, destinationGradients[0]);
  const Slice second =
      next->resolveSlice(sourceGradients, sourceImages[1], gradientStates, destinationGradients[1]);
  if (!first.isBefore(second)) {
    encodeBatch(commandBuffer, sourceGradients, sourceImages[0], gradientStates, destinationGradients[0]);
    return next->encodeBatch(commandBuffer, sourceGradients, sourceImages[1], gradientStates,
                             destinationGradients[1]);
  }
  detail::checkNoAlias(*this, "destinationGradients", destinationGradients[0], destinationGradients[1]);
  BatchOperand both(sourceGradients);
  both.selectChannels(first.gradient.first().channel,
                      first.views.destination.channels + second.views.destination.channels);
  ConcatenationProblem problem;
  problem.direction = ConcatenationDirection::Gradient;
  problem.input = both.shape();
  problem.input.width = first.views.gradient.width;
  problem.input.height = first.views.gradient.height;
  problem.destination = first.views.destination;
  problem.second = second.views.destination;
  detail::PreparedCall prepared = detail::preparedPointwise(
      first.views, detail::planFor(*device(), detail::concatenationBackEnds, problem));
  prepared.readsSource = false;
  detail::CallOperands operands;
  operands.gradient = &both;
  operands.destination = &first.destination;
  operands.secondDestination = &second.destination;
  mtl::RecordingGuard guard(*commandBuffer);
  detail::recordCall(*commandBuffer, *this, prepared, operands);
  guard.keep();
  for (std::size_t i = 0; i < 2; ++i) {
    detail::setProducer(destinationGradients[i], describe());
    detail::consumeRead(sourceGradients, describe());
    detail::consumeRead(sourceImages[i], describe());
    detail::consumeRead(gradientStates);
  }
}

void NNConcatenation::codeProperties(Coder& coder) {
  CNNMultiaryKernel::codeProperties(coder);
  coder.codeSize("channelAlignment", channelAlignment_);
  setChannelAlignment(channelAlignment_);
}

void NNConcatenationGradient::codeProperties(Coder& coder) {
  CNNGradientKernel::codeProperties(coder);
  coder.code("sourceIndex", sourceIndex_);
}

}  // namespace mps
