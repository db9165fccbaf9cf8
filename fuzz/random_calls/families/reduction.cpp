#include "mps/reduction/reduction.hpp"

#include <memory>

#include "fuzz/random_calls/families.hpp"
#include "fuzz/random_calls/images.hpp"
#include "fuzz/random_calls/kernel_settings.hpp"
#include "fuzz/random_calls/layer_call.hpp"
#include "mps/reduction/reduce_binary.hpp"

namespace unmetal::random_calls {
namespace {

constexpr Tolerance kSums{.factor = 2, .leastScale = 1};

/// Channels of an image times weights of another.
void callReductionWithWeights(Call& call, const mps::ImageDescriptor& size) {
  RandomNumbers& random = call.random;
  std::shared_ptr<mps::NNReduceBinary> kernel;
  const std::int64_t kind = call.noted("withWeights", random.integer(0, 2));
  if (kind == 0)
    kernel = mps::NNReduceFeatureChannelsAndWeightsMean::create(call.device);
  else
    kernel = mps::NNReduceFeatureChannelsAndWeightsSum::create(call.device, kind == 2);
  kernel->setDestinationImageAllocator(mps::Image::defaultAllocator());
  if (random.chance(0.3)) {
    const mtl::Region region = clipRectangle(call, 3, 1, 9);
    kernel->setPrimarySourceClipRect(region);
    kernel->setSecondarySourceClipRect(region);
  }
  const std::size_t count = call.imageCount();
  call.stage = "sources";
  const Images source = makeSources(call, "source", size, count, call.anyNumbers());
  // Whole numbers, whose sum is seldom close to the 0 that the mean divides by.
  const Images weights =
      makeSources(call, "weights", withFormat(size, call.anyFormat()), count, Numbers::Integers);
  const CommandBufferPointer commandBuffer = call.begin();
  if (random.chance(0.5)) {
    call.stage = "encode";
    observeImages(call, "result", kernel->encodeBatch(commandBuffer, source.batch, weights.batch), kSums);
  } else {
    const mps::ImageDescriptor resultSize{call.resultFormat(), size.width(), size.height(),
                                          random.size(1, 3)};
    const Images result = makeDestinations(call, "destination", resultSize, count, kSums);
    call.stage = "encode";
    kernel->encodeBatch(commandBuffer, source.batch, weights.batch, result.batch);
  }
  call.finish(commandBuffer);
}

std::shared_ptr<mps::NNReduceUnary> makeReduction(Call& call) {
  const auto& device = call.device;
  switch (call.noted("reduction", call.random.integer(0, 14))) {
    case 0:
      return mps::NNReduceRowMin::create(device);
    case 1:
      return mps::NNReduceRowMax::create(device);
    case 2:
      return mps::NNReduceRowSum::create(device);
    case 3:
      return mps::NNReduceRowMean::create(device);
    case 4:
      return mps::NNReduceColumnMin::create(device);
    case 5:
      return mps::NNReduceColumnMax::create(device);
    case 6:
      return mps::NNReduceColumnSum::create(device);
    case 7:
      return mps::NNReduceColumnMean::create(device);
    case 8:
      return mps::NNReduceFeatureChannelsMin::create(device);
    case 9:
      return mps::NNReduceFeatureChannelsMax::create(device);
    case 10:
      return mps::NNReduceFeatureChannelsMean::create(device);
    case 11:
      return mps::NNReduceFeatureChannelsArgumentMin::create(device);
    case 12:
      return mps::NNReduceFeatureChannelsArgumentMax::create(device);
    case 13:
      return mps::NNReduceSpatialMean::create(device);
    default: {
      const auto sum = mps::NNReduceFeatureChannelsSum::create(device);
      sum->setWeight(call.noted("weight", call.random.real32(-2, 2)));
      return sum;
    }
  }
}

bool hasGradient(const mps::NNReduceUnary& kernel) {
  return dynamic_cast<const mps::NNReduceFeatureChannelsArgumentMin*>(&kernel) == nullptr &&
         dynamic_cast<const mps::NNReduceFeatureChannelsArgumentMax*>(&kernel) == nullptr;
}

}  // namespace

void callReduction(Call& call) {
  RandomNumbers& random = call.random;
  const mps::ImageDescriptor source = call.imageSizes();
  if (random.chance(0.06)) return callReductionWithWeights(call, source);
  const auto kernel = makeReduction(call);
  setProperties(call, *kernel, source);
  if (random.chance(0.4)) kernel->setClipRectSource(clipRectangle(call, 3, 1, 9));
  std::shared_ptr<mps::NNReduceUnaryGradient> gradient;
  if (random.chance(0.6) && hasGradient(*kernel))
    gradient = mps::NNReduceUnaryGradient::create(call.device, kernel->operation(), kernel->axis());
  LayerCall layer;
  layer.numbers = call.anyNumbers();
  layer.anySizeOfResult = random.chance(0.3);
  layer.result = kSums;
  callLayer(call, *kernel, gradient.get(), source, layer);
}

}  // namespace unmetal::random_calls
