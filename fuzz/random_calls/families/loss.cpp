#include "mps/loss/loss.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "fuzz/random_calls/families.hpp"
#include "fuzz/random_calls/images.hpp"
#include "mps/core/image/state.hpp"
#include "mps/loss/forward_loss.hpp"

namespace unmetal::random_calls {
namespace {

/// Logarithms and quotients of numbers from 0.02 on; losses are sums over everything.
constexpr Tolerance kLossGradient{.factor = 3};
constexpr Tolerance kLossValue{.factor = 3, .leastScale = 1};

mps::CNNLossDescriptor drawLoss(Call& call, std::size_t channels) {
  using Type = mps::CNNLossType;
  RandomNumbers& random = call.random;
  const auto type = call.noted("loss", static_cast<Type>(random.integer(0, 9)));
  auto reduction = static_cast<mps::CNNReductionType>(random.integer(0, 3));
  // The only one that it has.
  if (type == Type::CosineDistance && !random.chance(0.1)) reduction = mps::CNNReductionType::Sum;
  auto descriptor = mps::CNNLossDescriptor::cnnLossDescriptor(type, call.noted("reduction", reduction));
  if (random.chance(0.5)) descriptor.setWeight(call.noted("weight", random.real32(0.1, 2)));
  if (random.chance(0.3)) descriptor.setReduceAcrossBatch(call.noted("acrossBatch", true));
  if (random.chance(0.3)) descriptor.setLabelSmoothing(call.noted("smoothing", random.real32(0, 0.5)));
  if (random.chance(0.3)) {
    const std::size_t fewer = random.chance(0.3) ? random.size(0, 3) : 0;
    descriptor.setNumberOfClasses(call.noted("classes", std::max(channels, fewer + 1) - fewer));
  }
  if (random.chance(0.2)) descriptor.setDelta(call.noted("delta", random.real32(0, 1)));
  if (random.chance(0.2)) descriptor.setExactSoftMaxGradient(call.noted("exactSoftMaxGradient", true));
  if (random.chance(0.7)) descriptor.setBroadcastsLabels(call.noted("broadcastsLabels", true));
  return descriptor;
}

/// Sources of a loss.
struct LossSources {
  mps::ImageDescriptor size;
  Images source;
  Images labels;
  std::optional<Images> weights;

  [[nodiscard]] mps::ImageBatch weightsOrNone() const { return weights ? weights->batch : mps::ImageBatch(); }
  [[nodiscard]] std::size_t count() const { return source.batch.count(); }
};

/// @param isForward takes labels of one pixel and weights of one channel, too
LossSources makeLossSources(Call& call, const mps::ImageDescriptor& size, std::size_t count,
                            mps::CNNLossType type, bool isForward) {
  using Type = mps::CNNLossType;
  RandomNumbers& random = call.random;
  call.stage = "sources";
  LossSources sources{size, {}, {}, {}};
  const bool takesLogarithm =
      type == Type::CategoricalCrossEntropy || type == Type::Log || type == Type::KullbackLeiblerDivergence;
  const Numbers numbers = takesLogarithm ? Numbers::Probabilities : call.anyNumbers();
  sources.source = makeSources(call, "source", size, count, numbers);
  mps::ImageDescriptor labelSize = withFormat(size, call.anyFormat());
  if (isForward && random.chance(0.2)) {
    labelSize.setWidth(1);
    labelSize.setHeight(1);
  }
  if (random.chance(0.1)) labelSize.setFeatureChannels(labelSize.featureChannels() + 2);
  const bool areClasses = type == Type::Hinge || random.chance(0.5);
  sources.labels =
      makeSources(call, "labels", labelSize, count, areClasses ? Numbers::ZeroOrOne : Numbers::Probabilities);
  if (!random.chance(0.4)) return sources;
  mps::ImageDescriptor weightSize = withFormat(size, call.floatFormat());
  if (isForward && random.chance(0.3)) weightSize.setFeatureChannels(1);
  const Numbers weightNumbers = random.chance(0.5) ? Numbers::ZeroOrOne : Numbers::Positive;
  sources.weights = makeSources(call, "weights", weightSize, count, weightNumbers);
  return sources;
}

mps::StateBatch makeClassIndices(Call& call, std::size_t count, std::size_t channels,
                                 const mps::CNNLossDescriptor& loss) {
  RandomNumbers& random = call.random;
  mps::StateBatch labels = mps::CNNLossLabels::createClassBatch(call.device, count);
  const bool counts = loss.lossType() == mps::CNNLossType::SoftMaxCrossEntropy && loss.numberOfClasses() > 1;
  const std::size_t classes = counts ? std::min(channels, loss.numberOfClasses()) : channels;
  std::vector<std::uint32_t> indices(count);
  for (std::uint32_t& index : indices) index = static_cast<std::uint32_t>(random.size(0, classes - 1));
  mps::CNNLossLabels::writeClassIndices(labels, indices);
  return labels;
}

mps::StateBatch makeLabels(Call& call, const LossSources& sources, const mps::CNNLossDescriptor& loss) {
  RandomNumbers& random = call.random;
  call.stage = "labels";
  const mps::ImageDescriptor& size = sources.size;
  const bool isReduced = loss.reductionType() != mps::CNNReductionType::None;
  const bool isOnePixel = size.width() * size.height() == 1;
  if (isOnePixel && isReduced && !sources.weights && call.noted("classIndices", random.chance(0.4)))
    return makeClassIndices(call, sources.count(), size.featureChannels(), loss);
  const mtl::Size lossSize =
      isReduced ? mtl::Size{1, 1, 1} : mtl::Size{size.width(), size.height(), size.featureChannels()};
  if (call.noted("labelsInOneBatch", random.chance(0.5)))
    return mps::CNNLossLabels::createBatch(call.device, lossSize, sources.labels.batch,
                                           sources.weightsOrNone());
  std::vector<std::shared_ptr<mps::State>> states;
  for (std::size_t i = 0; i < sources.count(); ++i)
    states.push_back(mps::CNNLossLabels::create(call.device, lossSize, sources.labels.batch[i],
                                                sources.weights ? sources.weights->batch[i] : nullptr));
  return states;
}

void callCNNLoss(Call& call, const LossSources& sources, const mps::CNNLossDescriptor& loss) {
  const mps::StateBatch labels = makeLabels(call, sources, loss);
  const Images gradient = makeDestinations(call, "gradient", withFormat(sources.size, call.resultFormat()),
                                           sources.count(), kLossGradient);
  const auto kernel = mps::CNNLoss::create(call.device, loss);
  call.stage = "encode";
  const CommandBufferPointer commandBuffer = call.begin();
  kernel->encodeBatch(commandBuffer, sources.source.batch, labels, gradient.batch);
  call.finish(commandBuffer);
  observeImages(call, "lossValue", mps::CNNLossLabels::lossImages(labels), kLossValue);
}

void callForwardLoss(Call& call, const LossSources& sources, const mps::CNNLossDescriptor& loss) {
  RandomNumbers& random = call.random;
  const auto kernel = mps::NNForwardLoss::create(call.device, loss);
  kernel->setDestinationImageAllocator(mps::Image::defaultAllocator());
  call.stage = "forward";
  const CommandBufferPointer commandBuffer = call.begin();
  mps::StateBatch states;
  const mps::ImageBatch value = kernel->encodeBatch(commandBuffer, sources.source.batch, sources.labels.batch,
                                                    sources.weightsOrNone(), states, false);
  observeImages(call, "lossValue", value, kLossValue);
  const Images gradient = makeSources(call, "gradient", withFormat(value.descriptor(), call.floatFormat()),
                                      sources.count(), Numbers::Uniform);
  const auto gradientKernel = mps::NNLossGradient::create(call.device, loss);
  gradientKernel->setComputeLabelGradients(call.noted("ofLabels", random.chance(0.2)));
  gradientKernel->setDividesByCount(call.noted("dividesByCount", random.chance(0.7)));
  const Images sourceGradient = makeDestinations(
      call, "sourceGradient", withFormat(sources.size, call.floatFormat()), sources.count(), kLossGradient);
  call.stage = "gradient";
  gradientKernel->encodeBatch(commandBuffer, gradient.batch, sources.source.batch, sources.labels.batch,
                              sources.weightsOrNone(), states, sourceGradient.batch);
  call.finish(commandBuffer);
}

}  // namespace

void callLoss(Call& call) {
  RandomNumbers& random = call.random;
  const bool hasManyImages = random.chance(0.1);
  const std::size_t count = hasManyImages ? random.size(10, 70) : call.imageCount();
  mps::ImageDescriptor size = call.imageSizes(std::max<std::size_t>(count, 5), call.limits.elements / 2);
  if (random.chance(0.4)) {
    size.setWidth(1);
    size.setHeight(1);
  }
  const mps::CNNLossDescriptor loss = drawLoss(call, size.featureChannels());
  const bool isForward = call.noted("forward", random.chance(0.4));
  const LossSources sources = makeLossSources(call, size, count, loss.lossType(), isForward);
  if (isForward)
    callForwardLoss(call, sources, loss);
  else
    callCNNLoss(call, sources, loss);
}

}  // namespace unmetal::random_calls
