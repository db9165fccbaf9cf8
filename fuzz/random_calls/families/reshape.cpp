#include "mps/reshape/reshape.hpp"

#include <algorithm>
#include <vector>

#include "fuzz/random_calls/families.hpp"
#include "fuzz/random_calls/images.hpp"
#include "fuzz/random_calls/kernel_settings.hpp"
#include "fuzz/random_calls/layer_call.hpp"
#include "mps/core/image/state.hpp"
#include "mps/gram_matrix/gram_matrix.hpp"
#include "mps/reshape/pad.hpp"

namespace unmetal::random_calls {
namespace {

/// Some divisor, up to 100.
std::size_t anyDivisor(RandomNumbers& random, std::size_t of) {
  std::size_t divisor = 1;
  for (int attempt = 0; attempt < 10; ++attempt)
    if (const std::size_t drawn = random.size(1, std::min<std::size_t>(of, 100)); of % drawn == 0)
      divisor = drawn;
  return divisor;
}

void callSlice(Call& call, const mps::ImageDescriptor& source) {
  const auto kernel = mps::NNSlice::create(call.device);
  setProperties(call, *kernel, source, 0.7);
  // Any channel may be the first.
  if (call.random.chance(0.3))
    kernel->setSourceFeatureChannelOffset(
        call.noted("sliceFrom", call.random.size(0, source.featureChannels() - 1)));
  callLayer(call, *kernel, nullptr, source, {});
}

mps::ImageCoordinate drawPadding(Call& call, const char* name) {
  RandomNumbers& random = call.random;
  const mps::ImageCoordinate padding{random.size(0, 6), random.size(0, 6),
                                     random.chance(0.6) ? 0 : random.size(0, 9)};
  call.description << ' ' << name << '=' << padding.x << ',' << padding.y << ',' << padding.channel;
  return padding;
}

}  // namespace

void callReshape(Call& call) {
  RandomNumbers& random = call.random;
  const mps::ImageDescriptor size = call.imageSizes();
  const auto kernel = mps::NNReshape::create(call.device);
  kernel->setDestinationImageAllocator(mps::Image::defaultAllocator());
  kernel->setChannelsFirst(call.noted("channelsFirst", random.chance(0.4)));
  if (random.chance(0.2))
    kernel->setDestinationFeatureChannelOffset(call.noted("destinationChannelOffset", 4 * random.size(1, 2)));
  if (random.chance(0.2) && size.featureChannels() > 4)
    kernel->setSourceFeatureChannelOffset(call.noted("sourceChannelOffset", std::size_t{4}));
  const std::size_t elements =
      size.width() * size.height() * (size.featureChannels() - kernel->sourceFeatureChannelOffset());
  const std::size_t width = anyDivisor(random, elements);
  const std::size_t height = anyDivisor(random, elements / width);
  const mps::ImageDescriptor resultSize{
      call.resultFormat(), width, height,
      elements / width / height + kernel->destinationFeatureChannelOffset()};

  const std::size_t count = call.imageCount();
  call.stage = "sources";
  const Images source = makeSources(call, "source", size, count, Numbers::Uniform);
  const Images result = makeDestinations(call, "destination", resultSize, count, {});
  call.stage = "forward";
  const CommandBufferPointer commandBuffer = call.begin();
  const mps::StateBatch states = kernel->resultStateBatch(source.batch);
  kernel->encodeBatch(commandBuffer, source.batch, states, result.batch);
  if (random.chance(0.7)) {
    const Images gradient =
        makeSources(call, "gradient", withFormat(resultSize, call.floatFormat()), count, Numbers::Uniform);
    const Images sourceGradient =
        makeDestinations(call, "sourceGradient", withFormat(size, call.floatFormat()), count, {});
    call.stage = "gradient";
    mps::NNReshapeGradient::create(call.device)
        ->encodeBatch(commandBuffer, gradient.batch, source.batch, states, sourceGradient.batch);
  }
  call.finish(commandBuffer);
}

void callPadding(Call& call) {
  RandomNumbers& random = call.random;
  const mps::ImageDescriptor source = call.imageSizes(5, call.limits.elements / 2);
  if (random.chance(0.3)) return callSlice(call, source);
  const mps::ImageCoordinate before = drawPadding(call, "before");
  const mps::ImageCoordinate after = drawPadding(call, "after");
  std::vector<float> fillValues;
  if (call.noted("fillValues", random.chance(0.3)))
    fillValues = call.vector(before.channel + source.featureChannels() + after.channel, Numbers::Uniform);
  const auto kernel = mps::NNPad::create(call.device, before, after, fillValues);
  kernel->setFillValue(call.noted("fillValue", random.real32(-1, 1)));
  setProperties(call, *kernel, source);
  kernel->setEdgeMode(call.noted("padEdgeMode", static_cast<mps::ImageEdgeMode>(random.integer(0, 4))));
  const auto gradient = mps::NNPadGradient::create(call.device);
  LayerCall layer;
  layer.gradient.factor = 2;  // sums of what an edge mode repeats
  callLayer(call, *kernel, random.chance(0.6) ? gradient.get() : nullptr, source, layer);
}

void callGramMatrix(Call& call) {
  RandomNumbers& random = call.random;
  mps::ImageDescriptor source = call.imageSizes(5, call.limits.elements / 4);
  // The result has as many channels as the square of this.
  const bool isTiny = source.width() * source.height() <= 9;
  source.setFeatureChannels(std::min<std::size_t>(source.featureChannels(), isTiny ? 300 : 90));
  const auto kernel = mps::NNGramMatrixCalculation::create(call.device, random.real32(0.1, 2));
  const auto gradient = mps::NNGramMatrixCalculationGradient::create(call.device);
  if (random.chance(0.2))
    kernel->setDestinationFeatureChannelOffset(call.noted("destinationChannelOffset", std::size_t{4}));
  if (random.chance(0.2) && source.featureChannels() > 4)
    kernel->setSourceFeatureChannelOffset(call.noted("sourceChannelOffset", std::size_t{4}));
  if (random.chance(0.2))
    kernel->setSourceFeatureChannelMaxCount(
        call.noted("sourceChannelMaxCount", random.size(1, source.featureChannels())));
  LayerCall layer;
  layer.numbers = call.anyNumbers();
  layer.anySizeOfResult = false;
  layer.result = {.factor = 2, .leastScale = 1};
  layer.gradient = {.factor = 3, .leastScale = 1};
  callLayer(call, *kernel, random.chance(0.6) ? gradient.get() : nullptr, source, layer);
}

}  // namespace unmetal::random_calls
