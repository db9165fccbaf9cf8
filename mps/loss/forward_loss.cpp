#include "mps/loss/forward_loss.hpp"

#include <limits>

#include "mps/core/coding/coder.hpp"
#include "mps/core/image/gradient_state.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/kernel/graph_traits.hpp"
#include "mps/core/plan/tensor_copy.hpp"
#include "mps/core/types/error.hpp"
#include "mps/loss/loss_call.hpp"
#include "mtl/command.hpp"

namespace mps {

float detail::LossKernelProperties::weightOfPart(const std::string& kernel, float weight,
                                                 bool hasWeightsImages) const {
  const bool divides =
      reductionType() == CNNReductionType::Mean || reductionType() == CNNReductionType::SumByNonZeroWeights;
  if (share_.totalCount == share_.imageCount || !divides || !reduceAcrossBatch()) return weight;
  if (reductionType() == CNNReductionType::SumByNonZeroWeights && hasWeightsImages)
    throw Error(kernel, "reductionType", "SumByNonZeroWeights across a batch of several ranks",
                "another: a rank does not know the weights of the others");
  return static_cast<float>(static_cast<double>(weight) * static_cast<double>(share_.imageCount) /
                            static_cast<double>(share_.totalCount));
}

using detail::LossCall;
using detail::LossRecord;

namespace {

void checkDescriptor(const char* className, const CNNLossDescriptor& descriptor) {
  detail::checkLossDescriptor(className, descriptor);
  if (descriptor.lossScale())
    throw Error(className, "lossScale", "set", "null: CNNLoss takes it; here the first gradient is scaled");
}

/// Labels and weights, checked against what is written.
void checkTargets(const Kernel& kernel, const ImageBatch& sources, const ImageBatch& labels,
                  const ImageBatch& weights, const ImageBatch& destinations) {
  detail::checkCount(kernel, "destinationImages", destinations.count(), sources.count());
  detail::checkCount(kernel, "labels", labels.count(), sources.count());
  if (!weights.empty()) detail::checkCount(kernel, "weights", weights.count(), sources.count());
  detail::checkLossTargets(kernel, labels, weights, destinations);
}

/// Whether the user has set a range of channels.
bool selectsChannels(const detail::SourceProperties& source) {
  return (source.featureChannelOffset.isSet() && source.featureChannelOffset.get() != 0) ||
         (source.featureChannelMaxCount.isSet() &&
          source.featureChannelMaxCount.get() != std::numeric_limits<std::size_t>::max());
}

/// Forward sources of a graph's step with weights: predictions, labels, weights.
constexpr std::size_t kStepWithWeights = 3;

}  // namespace

NNForwardLoss::NNForwardLoss(std::shared_ptr<mtl::Device> device, const CNNLossDescriptor& lossDescriptor)
    : KernelClass(std::move(device)), LossKernelProperties(lossDescriptor) {
  checkDescriptor("NNForwardLoss", descriptor_);
}

std::shared_ptr<NNForwardLoss> NNForwardLoss::create(const std::shared_ptr<mtl::Device>& device,
                                                     const CNNLossDescriptor& lossDescriptor) {
  return std::shared_ptr<NNForwardLoss>(new NNForwardLoss(device, lossDescriptor));
}

detail::KernelRoles NNForwardLoss::roles() {
  return {.sharedBatch = this};
}

detail::KernelRoles NNLossGradient::roles() {
  return {.sharedBatch = this};
}

detail::DerivativeTraits NNLossGradient::derivativeTraits() const {
  static constexpr const char* further[] = {"labels", "weights"};
  detail::DerivativeTraits traits = CNNGradientKernel::derivativeTraits();
  traits.furtherSources = further;
  traits.ownSource = computeLabelGradients_ ? 2 : 1;  // behind the incoming gradient
  return traits;
}

detail::DerivativeTraits NNInitialGradient::derivativeTraits() const {
  return {.beginsGradients = true};
}

detail::PreparedCall NNForwardLoss::prepareForward(const detail::ForwardCall& /*call*/) const {
  throw Error(describe() + ": encoded without labels; call encodeBatch with labels");
}

std::size_t NNForwardLoss::producedFeatureChannels(std::size_t sourceFeatureChannels) const {
  return reductionType() == CNNReductionType::None ? sourceFeatureChannels : 1;
}

void NNForwardLoss::adjustDestination(ImageDescriptor& destination, const ImageDescriptor& source) {
  const bool perElement = reductionType() == CNNReductionType::None;
  destination.setWidth(perElement ? source.width() : 1);
  destination.setHeight(perElement ? source.height() : 1);
}

void NNForwardLoss::encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                const ImageBatch& sourceImages, const ImageBatch& labels,
                                const ImageBatch& weights, const StateBatch& destinationStates,
                                const ImageBatch& destinationImages) {
  detail::checkCommandBuffer(*this, commandBuffer);
  checkTargets(*this, sourceImages, labels, weights, destinationImages);
  detail::checkNotEmpty(*this, "sourceImages", sourceImages);
  if (!destinationStates.empty())
    detail::checkStates(*this, "destinationStates", *commandBuffer, destinationStates, sourceImages.count());
  detail::checkLossImages(*this, *commandBuffer, sourceImages, destinationImages);
  detail::checkCoversWholeImages(*this);
  detail::checkLossDescriptor(describe(), descriptor_);

  LossRecord numbers{weight(), labelSmoothing(), epsilon(), delta()};
  mtl::RecordingGuard guard(*commandBuffer);
  if (callback_) numbers.weight = callback_->scalarWeight(sourceImages[0], destinationImages[0]);
  numbers.weight = weightOfPart(describe(), numbers.weight, !weights.empty());
  LossCall call(*this, *commandBuffer, descriptor_, sourceImages);
  call.setNumbers(numbers);
  call.setLabels(labels);
  if (!weights.empty()) call.setWeights(weights);
  call.setOnlyLosses(destinationImages);
  call.record();
  guard.keep();

  if (!destinationStates.empty()) {
    auto record = std::make_shared<detail::ForwardRecord>();
    record->kernelClass = className();
    record->source = sourceImages.descriptor();
    record->destination = destinationImages.descriptor();
    record->imageCount = sourceImages.count();
    record->family = numbers;
    destinationStates.setRecord(record);
  }
  detail::setProducer(destinationImages, describe());
  detail::consumeRead(sourceImages, describe());
  detail::consumeRead(labels, describe());
  if (!weights.empty()) detail::consumeRead(weights, describe());
}

ImageBatch NNForwardLoss::encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                      const ImageBatch& sourceImages, const ImageBatch& labels,
                                      const ImageBatch& weights) {
  detail::checkCommandBuffer(*this, commandBuffer);
  detail::checkNotEmpty(*this, "sourceImages", sourceImages);
  detail::checkNotStacked(*this, "sourceImages", sourceImages);
  ImageBatch destinations =
      detail::allocateImages(*this, *destinationImageAllocator(), commandBuffer,
                             sizeDestination(sourceImages.descriptor()), sourceImages.count());
  encodeBatch(commandBuffer, sourceImages, labels, weights, {}, destinations);
  return destinations;
}

ImageBatch NNForwardLoss::encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                      const ImageBatch& sourceImages, const ImageBatch& labels,
                                      const ImageBatch& weights, StateBatch& destinationStates,
                                      bool destinationStatesAreTemporary) {
  detail::checkCommandBuffer(*this, commandBuffer);
  destinationStates = {};
  detail::checkNotEmpty(*this, "sourceImages", sourceImages);
  detail::checkNotStacked(*this, "sourceImages", sourceImages);
  ImageBatch destinations =
      detail::allocateImages(*this, *destinationImageAllocator(), commandBuffer,
                             sizeDestination(sourceImages.descriptor()), sourceImages.count());
  const StateBatch states = destinationStatesAreTemporary
                                ? temporaryResultStateBatch(commandBuffer, sourceImages)
                                : resultStateBatch(sourceImages);
  encodeBatch(commandBuffer, sourceImages, labels, weights, states, destinations);
  destinationStates = states;
  return destinations;
}

void NNForwardLoss::encodeStep(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                               std::span<const ImageBatch> sources, const StateBatch& destinationStates,
                               const ImageBatch& destinationImages) {
  encodeBatch(commandBuffer, sources[0], sources[1],
              sources.size() == kStepWithWeights ? sources[2] : ImageBatch{}, destinationStates,
              destinationImages);
}

NNLossGradient::NNLossGradient(std::shared_ptr<mtl::Device> device, const CNNLossDescriptor& lossDescriptor)
    : KernelClass(std::move(device)), LossKernelProperties(lossDescriptor) {
  checkDescriptor("NNLossGradient", descriptor_);
}

std::shared_ptr<NNLossGradient> NNLossGradient::create(const std::shared_ptr<mtl::Device>& device,
                                                       const CNNLossDescriptor& lossDescriptor) {
  return std::shared_ptr<NNLossGradient>(new NNLossGradient(device, lossDescriptor));
}

bool NNLossGradient::acceptsForward(const std::string& forwardClassName) const {
  return forwardClassName == "NNForwardLoss";
}

std::vector<detail::PreparedCall> NNLossGradient::prepareGradient(
    const detail::GradientCall& /*call*/) const {
  throw Error(describe() + ": encoded without labels; call encodeBatch with labels");
}

void NNLossGradient::encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                 const ImageBatch& sourceGradients, const ImageBatch& sourceImages,
                                 const ImageBatch& labels, const ImageBatch& weights,
                                 const StateBatch& sourceStates, const ImageBatch& destinationGradients) {
  detail::checkCommandBuffer(*this, commandBuffer);
  checkTargets(*this, sourceImages, labels, weights, destinationGradients);
  detail::checkCount(*this, "sourceGradients", sourceGradients.count(), sourceImages.count());
  detail::checkNotEmpty(*this, "sourceImages", sourceImages);
  detail::checkLossImages(*this, *commandBuffer, sourceImages, destinationGradients);
  detail::checkSources(*this, "sourceGradients", *commandBuffer, sourceGradients);
  detail::checkNotStacked(*this, "sourceGradients", sourceGradients);
  detail::checkNoAlias(*this, "sourceGradients", sourceGradients, destinationGradients);
  if (!(primaryOffset() == Offset{}) || !(secondaryOffset() == Offset{}) || !(clipRect() == RectNoClip))
    throw Error(describe(), "offsets and clipRect", "changed", "their defaults: a loss covers whole images");
  if (selectsChannels(primary_) || selectsChannels(secondary_) || destinationFeatureChannelOffset() != 0)
    throw Error(describe(), "feature channel offsets and counts", "changed",
                "their defaults: a loss covers all channels");

  LossRecord numbers{weightOfPart(describe(), weight(), !weights.empty()), labelSmoothing(), epsilon(),
                     delta()};
  if (!sourceStates.empty()) {
    detail::checkStates(*this, "sourceStates", *commandBuffer, sourceStates, sourceImages.count());
    const auto record = detail::recordOf(describe(), sourceStates).record;
    const auto* recorded = std::any_cast<LossRecord>(&record->family);
    if (recorded == nullptr)
      throw Error(describe(), "sourceStates", "of " + record->kernelClass, "of NNForwardLoss");
    const ImageDescriptor found = sourceImages.descriptor();
    if (found.width() != record->source.width() || found.height() != record->source.height() ||
        found.featureChannels() != record->source.featureChannels())
      throw Error(describe(), "sourceImages", found.describe(),
                  record->source.describe() + ", as the forward kernel's");
    numbers = *recorded;
  } else {
    detail::checkLossDescriptor(describe(), descriptor_);
  }
  mtl::RecordingGuard guard(*commandBuffer);
  if (callback_)
    numbers.weight = weightOfPart(
        describe(), callback_->scalarWeight(sourceImages[0], destinationGradients[0]), !weights.empty());
  LossCall call(*this, *commandBuffer, descriptor_, sourceImages);
  call.setNumbers(numbers);
  call.setLabels(labels);
  if (!weights.empty()) call.setWeights(weights);
  call.setSourceGradients(sourceGradients, dividesByCount_);
  if (computeLabelGradients_)
    call.setLabelGradients(destinationGradients);
  else
    call.setGradients(destinationGradients);
  call.record();
  guard.keep();

  detail::setProducer(destinationGradients, describe());
  for (const ImageBatch* read : {&sourceGradients, &sourceImages, &labels})
    detail::consumeRead(*read, describe());
  if (!weights.empty()) detail::consumeRead(weights, describe());
}

ImageBatch NNLossGradient::encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                       const ImageBatch& sourceGradients, const ImageBatch& sourceImages,
                                       const ImageBatch& labels, const ImageBatch& weights,
                                       const StateBatch& sourceStates) {
  detail::checkCommandBuffer(*this, commandBuffer);
  detail::checkCount(*this, "sourceGradients", sourceGradients.count(), sourceImages.count());
  detail::checkNotEmpty(*this, "sourceImages", sourceImages);
  detail::checkNotStacked(*this, "sourceImages", sourceImages);
  ImageBatch destinations = detail::allocateImages(
      *this, *destinationImageAllocator(), commandBuffer,
      sizeDestination(sourceGradients.descriptor(), sourceImages.descriptor()), sourceImages.count());
  encodeBatch(commandBuffer, sourceGradients, sourceImages, labels, weights, sourceStates, destinations);
  return destinations;
}

void NNLossGradient::encodeStep(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                std::span<const ImageBatch> sources, const StateBatch& gradientStates,
                                const ImageBatch& destinationGradients, bool /*accumulates*/) {
  const std::span<const ImageBatch> forward = sources.subspan(1);
  encodeBatch(commandBuffer, sources[0], forward[0], forward[1],
              forward.size() == kStepWithWeights ? forward[2] : ImageBatch{}, gradientStates,
              destinationGradients);
}

std::shared_ptr<NNInitialGradient> NNInitialGradient::create(const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<NNInitialGradient>(new NNInitialGradient(device));
}

detail::PreparedCall NNInitialGradient::prepareForward(const detail::ForwardCall& call) const {
  detail::TensorCopyProblem ones;
  ones.fills = true;
  ones.destination = call.destination;
  detail::PreparedCall prepared;
  prepared.scalars[0] = 1;
  prepared.readsSource = false;
  prepared.plan = detail::planFor(*device(), detail::tensorCopyBackEnds, ones);
  return prepared;
}

void NNForwardLoss::codeProperties(Coder& coder) {
  CNNKernel::codeProperties(coder);
  coder.code("descriptor", descriptor_);
  coder.codeOptional("propertyCallBack", callback_);
  checkDescriptor("NNForwardLoss", descriptor_);
}

void NNLossGradient::codeProperties(Coder& coder) {
  CNNGradientKernel::codeProperties(coder);
  coder.code("descriptor", descriptor_);
  coder.code("computeLabelGradients", computeLabelGradients_);
  coder.code("dividesByCount", dividesByCount_);
  coder.codeOptional("propertyCallBack", callback_);
  checkDescriptor("NNLossGradient", descriptor_);
}

}  // namespace mps
