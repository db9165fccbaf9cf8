#include "mps/loss/yolo_loss.hpp"

#include <vector>

#include "fuzz/random_calls/families.hpp"
#include "fuzz/random_calls/images.hpp"
#include "mps/core/image/state.hpp"
#include "mps/loss/loss.hpp"
#include "mps/loss/yolo_loss_descriptor.hpp"

namespace unmetal::random_calls {
namespace {

/// Channels of a box: position, size, confidence, classes.
constexpr std::size_t kWidthChannel = 2;
constexpr std::size_t kConfidenceChannel = 4;
constexpr std::size_t kClassChannel = 5;

mps::CNNYOLOLossDescriptor drawYOLOLoss(Call& call, std::size_t anchors) {
  using Type = mps::CNNLossType;
  RandomNumbers& random = call.random;
  const auto reduction = call.noted("reduction", static_cast<mps::CNNReductionType>(random.integer(0, 3)));
  const Type ofClasses =
      call.noted("lossOfClasses", random.chance(0.5) ? Type::SoftMaxCrossEntropy : Type::SigmoidCrossEntropy);
  const std::vector<float> boxes = call.vector(2 * anchors, Numbers::Positive);
  auto descriptor = mps::CNNYOLOLossDescriptor::cnnLossDescriptor(
      Type::MeanSquaredError, Type::Huber, Type::SigmoidCrossEntropy, ofClasses, reduction, boxes, anchors);
  descriptor.setRescore(call.noted("rescore", random.chance(0.5)));
  descriptor.setReduceAcrossBatch(call.noted("acrossBatch", random.chance(0.3)));
  return descriptor;
}

/// Boxes of class 0 in some cells, nothing in the others.
Images makeBoxes(Call& call, const mps::ImageDescriptor& size, std::size_t count, std::size_t channelsOfBox) {
  RandomNumbers& random = call.random;
  bool hasBox = false;
  return makeSources(call, "labels", size, count, [&, channelsOfBox](std::size_t element) -> double {
    const std::size_t channel = element % channelsOfBox;
    if (channel == 0) hasBox = random.chance(0.3);
    if (channel < kWidthChannel) return random.real(0, 1);
    if (channel < kConfidenceChannel) return hasBox ? random.real(0.05, 1.5) : 0;
    return channel == kConfidenceChannel ? hasBox : channel == kClassChannel;
  });
}

}  // namespace

void callYOLOLoss(Call& call) {
  RandomNumbers& random = call.random;
  const std::size_t anchors = call.noted("anchors", random.size(1, 5));
  const std::size_t channelsOfBox = kClassChannel + call.noted("classes", random.size(0, 9));
  const mps::CNNYOLOLossDescriptor loss = drawYOLOLoss(call, anchors);
  const std::size_t count = call.imageCount();
  const mps::ImageDescriptor size{call.anyFormat(), random.size(1, 14), random.size(1, 14),
                                  channelsOfBox * anchors};
  call.stage = "sources";
  const Images source = makeSources(call, "source", size, count, Numbers::Uniform);
  const Images boxes = makeBoxes(call, withFormat(size, call.floatFormat()), count, channelsOfBox);
  const bool isReduced = loss.reductionType() != mps::CNNReductionType::None;
  const mtl::Size lossSize =
      isReduced ? mtl::Size{1, 1, 1} : mtl::Size{size.width(), size.height(), size.featureChannels()};
  const mps::StateBatch labels = mps::CNNLossLabels::createBatch(call.device, lossSize, boxes.batch);
  // Overlaps decide which box counts.
  const Images gradient = makeDestinations(call, "gradient", withFormat(size, call.resultFormat()), count,
                                           {.factor = 4, .jumps = 0.002});
  const auto kernel = mps::CNNYOLOLoss::create(call.device, loss);
  call.stage = "encode";
  const CommandBufferPointer commandBuffer = call.begin();
  kernel->encodeBatch(commandBuffer, source.batch, labels, gradient.batch);
  call.finish(commandBuffer);
  observeImages(call, "lossValue", mps::CNNLossLabels::lossImages(labels), {.factor = 5, .leastScale = 1});
}

}  // namespace unmetal::random_calls
