#include <memory>
#include <vector>

#include "mps/conform/testing/kernel_samples.hpp"
#include "mps/core/layer/loss_scale.hpp"
#include "mps/loss/forward_loss.hpp"
#include "mps/loss/loss.hpp"
#include "mps/loss/yolo_loss.hpp"

namespace mps::test {
namespace {

Values ofLoss(Kernel& kernel, int seed) {
  auto& loss = dynamic_cast<CNNLoss&>(kernel);
  loss.setDestinationImageAllocator(Image::defaultAllocator());
  const auto labels = CNNLossLabels::create(kernel.device(), {1, 1, 1}, source(kernel, seed + 1), nullptr);
  return valuesOf(
      *ran(kernel, [&](const auto& buffer) { return loss.encode(buffer, source(kernel, seed), labels); }));
}

/// Cells with two anchors and two classes.
Values ofBoxes(Kernel& kernel, int seed) {
  const ImageDescriptor cells = sizeOf(side, side, 2 * (5 + 2));
  auto& loss = dynamic_cast<CNNYOLOLoss&>(kernel);
  loss.setDestinationImageAllocator(Image::defaultAllocator());
  const auto labels =
      CNNLossLabels::create(kernel.device(), {1, 1, 1}, image(kernel.device(), cells, seed + 1), nullptr);
  return valuesOf(*ran(kernel, [&](const auto& buffer) {
    return loss.encode(buffer, image(kernel.device(), cells, seed), labels);
  }));
}

/// A forward loss, or the gradient of one.
Values ofImageLosses(Kernel& kernel, int seed) {
  const auto& device = kernel.device();
  auto* gradient = dynamic_cast<NNLossGradient*>(&kernel);
  const auto loss = gradient != nullptr ? NNForwardLoss::create(device, gradient->descriptor())
                                        : std::dynamic_pointer_cast<NNForwardLoss>(kernel.shared_from_this());
  loss->setDestinationImageAllocator(Image::defaultAllocator());
  if (gradient != nullptr) gradient->setDestinationImageAllocator(Image::defaultAllocator());
  const ImageBatch x{source(kernel, seed)};
  const ImageBatch labels{source(kernel, seed + 1)};
  return valuesOf(ran(kernel, [&](const auto& buffer) {
    StateBatch states;
    ImageBatch y = loss->encodeBatch(buffer, x, labels, ImageBatch{}, states, false);
    if (gradient == nullptr) return y;
    return gradient->encodeBatch(buffer, ImageBatch{image(device, y.descriptor(), seed + 2)}, x, labels,
                                 ImageBatch{}, states);
  }));
}

}  // namespace

void addLossSamples(KernelSamples& samples) {
  const Device& device = samples.device();
  auto descriptor = CNNLossDescriptor::cnnLossDescriptor(CNNLossType::Huber, CNNReductionType::Mean);
  descriptor.setDelta(0.5F);
  descriptor.setWeight(3);
  descriptor.setLossScale(LossScale::create(device));
  samples.add(CNNLoss::create(device, descriptor), ofLoss);
  descriptor.setLossScale(nullptr);
  auto boxes = CNNYOLOLossDescriptor::cnnLossDescriptor(
      CNNLossType::Huber, CNNLossType::MeanSquaredError, CNNLossType::SigmoidCrossEntropy,
      CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Mean, std::vector<float>{1, 2, 3, 0.5F}, 2);
  boxes.setScaleXY(7);
  boxes.setMinIOUForObjectPresence(0.25F);
  samples.add(CNNYOLOLoss::create(device, boxes), ofBoxes);
  samples.add(NNForwardLoss::create(device, descriptor), ofImageLosses);
  samples.add(NNLossGradient::create(device, descriptor), ofImageLosses);
  samples.add(NNInitialGradient::create(device));
}

}  // namespace mps::test
