#include "mps/loss/loss.hpp"

#include "mps/core/coding/coder.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/layer/loss_scale.hpp"
#include "mps/core/layer/shared_copies.hpp"
#include "mps/core/types/error.hpp"
#include "mps/loss/loss_call.hpp"
#include "mps/loss/loss_labels.hpp"
#include "mtl/command.hpp"

namespace mps {

CNNLoss::CNNLoss(std::shared_ptr<mtl::Device> device, const CNNLossDescriptor& lossDescriptor)
    : KernelClass(std::move(device)), descriptor_(lossDescriptor) {
  checkDescriptor();
}

void CNNLoss::checkDescriptor() const {
  detail::checkLossDescriptor("CNNLoss", descriptor_);
  if (!descriptor_.lossScale()) return;
  if (reductionType() == CNNReductionType::None)
    throw Error("CNNLoss", "lossScale", "set with reduction None", "a reduction");
  if (descriptor_.lossScale()->device() != this->device())
    throw Error("CNNLoss", "lossScale", "of another device", "one of the loss's");
}

std::shared_ptr<CNNLoss> CNNLoss::create(const std::shared_ptr<mtl::Device>& device,
                                         const CNNLossDescriptor& lossDescriptor) {
  return std::shared_ptr<CNNLoss>(new CNNLoss(device, lossDescriptor));
}

void CNNLoss::didCopy(bool /*hasMoved*/) {
  descriptor_.setLossScale(detail::lossScaleOfLossOn(device(), descriptor_.lossScale()));
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
  detail::checkNotEmpty(*this, "sourceImages", sourceImages);
  detail::checkLossImages(*this, *commandBuffer, sourceImages, destinationImages);
  detail::checkCoversWholeImages(*this);

  const detail::LossOperands operands = detail::lossOperands(describe(), labels);
  detail::checkLossTargets(*this, operands.labels, operands.weights, destinationImages);
  mtl::RecordingGuard guard(*commandBuffer);
  detail::LossCall call(*this, *commandBuffer, descriptor_, sourceImages);
  call.setGradients(destinationImages);
  if (operands.classIndices)
    call.setClassIndices(operands);
  else
    call.setLabels(operands.labels);
  if (!operands.weights.empty()) call.setWeights(operands.weights);
  call.setLosses(operands.losses);
  if (const auto& lossScale = descriptor_.lossScale()) call.setScale(*lossScale);
  call.record();
  guard.keep();
  detail::consumeRead(sourceImages, describe());
}

ImageBatch CNNLoss::encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
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

void CNNLossDescriptor::encode(Coder& coder) const {
  coder.codeClass("CNNLossDescriptor");
  coder.encode("lossType", static_cast<std::uint32_t>(lossType_));
  coder.encode("reductionType", static_cast<std::uint32_t>(reductionType_));
  coder.encode("reduceAcrossBatch", reduceAcrossBatch_);
  coder.encode("weight", weight_);
  coder.encode("labelSmoothing", labelSmoothing_);
  coder.encode("numberOfClasses", numberOfClasses_);
  coder.encode("epsilon", epsilon_);
  coder.encode("delta", delta_);
  coder.encode("exactSoftMaxGradient", exactSoftMaxGradient_);
  coder.encode("broadcastsLabels", broadcastsLabels_);
  coder.encode("lossScale", lossScale_);
}

CNNLossDescriptor CNNLossDescriptor::decode(Coder& coder) {
  coder.codeClass("CNNLossDescriptor");
  CNNLossDescriptor descriptor({}, {});
  coder.codeEnumeration("lossType", descriptor.lossType_, CNNLossType::KullbackLeiblerDivergence);
  coder.codeEnumeration("reductionType", descriptor.reductionType_, CNNReductionType::SumByNonZeroWeights);
  coder.decode("reduceAcrossBatch", descriptor.reduceAcrossBatch_);
  coder.decode("weight", descriptor.weight_);
  coder.decode("labelSmoothing", descriptor.labelSmoothing_);
  coder.decode("numberOfClasses", descriptor.numberOfClasses_);
  coder.decode("epsilon", descriptor.epsilon_);
  coder.decode("delta", descriptor.delta_);
  coder.decode("exactSoftMaxGradient", descriptor.exactSoftMaxGradient_);
  coder.decode("broadcastsLabels", descriptor.broadcastsLabels_);
  coder.decodeOptional("lossScale", descriptor.lossScale_);
  return descriptor;
}

void CNNLoss::codeProperties(Coder& coder) {
  CNNKernel::codeProperties(coder);
  coder.code("descriptor", descriptor_);
  checkDescriptor();
}

}  // namespace mps
