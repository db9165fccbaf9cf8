#include "mps/concatenation/concatenation.hpp"

#include <array>
#include <span>
#include <vector>

#include "fuzz/random_calls/families.hpp"
#include "fuzz/random_calls/images.hpp"
#include "mps/core/image/state.hpp"

namespace unmetal::random_calls {
namespace {

struct ConcatenatedSources {
  std::vector<mps::ImageBatch> batches;
  std::vector<mps::ImageDescriptor> sizes;
};

ConcatenatedSources makeConcatenatedSources(Call& call, mps::NNConcatenation& kernel, std::size_t sourceCount,
                                            std::size_t imageCount) {
  RandomNumbers& random = call.random;
  mps::ImageDescriptor size = call.imageSizes(20, call.limits.elements);
  const bool isLarge = size.width() * size.height() > 500;
  ConcatenatedSources sources;
  for (std::size_t i = 0; i < sourceCount; ++i) {
    size.setFeatureChannels(isLarge || sourceCount > 5 ? random.size(1, 9) : call.channels());
    if (random.chance(0.3)) size.setChannelFormat(call.anyFormat());
    sources.sizes.push_back(size);
    sources.batches.push_back(makeSources(call, "source", size, imageCount, Numbers::Uniform).batch);
    if (random.chance(0.1))
      kernel.setSourceFeatureChannelMaxCount(call.noted("sourceChannelMaxCount", random.size(1, 8)), i);
    if (random.chance(0.1) && size.featureChannels() > 4)
      kernel.setSourceFeatureChannelOffset(call.noted("sourceChannelOffset", std::size_t{4}), i);
  }
  return sources;
}

void encodeGradients(Call& call, const CommandBufferPointer& commandBuffer,
                     const ConcatenatedSources& sources, const mps::ImageDescriptor& resultSize,
                     const mps::StateBatch& states) {
  RandomNumbers& random = call.random;
  const std::size_t count = sources.batches.front().count();
  const mps::ImageDescriptor size =
      random.chance(0.3) ? withFormat(resultSize, call.floatFormat()) : resultSize;
  const Images gradient = makeSources(call, "gradient", size, count, Numbers::Uniform);
  const auto makeResult = [&](const char* name, std::size_t source) {
    return makeDestinations(call, name, withFormat(sources.sizes[source], call.floatFormat()), count, {})
        .batch;
  };
  const std::size_t which = call.noted("gradientOf", random.size(0, sources.batches.size() - 1));
  const auto kernel = mps::NNConcatenationGradient::create(call.device, which);
  const mps::ImageBatch result = makeResult("sourceGradient", which);
  call.stage = "gradient";
  if (which + 1 == sources.batches.size() || random.chance(0.5))
    return kernel->encodeBatch(commandBuffer, gradient.batch, sources.batches[which], states, result);
  const mps::ImageBatch next = makeResult("nextSourceGradient", which + 1);
  kernel->encodeBatchWithNext(commandBuffer, gradient.batch,
                              std::array{sources.batches[which], sources.batches[which + 1]}, states,
                              std::array{result, next});
}

}  // namespace

void callConcatenation(Call& call) {
  RandomNumbers& random = call.random;
  const std::size_t imageCount = call.imageCount();
  const std::size_t sourceCount = call.noted("sources", random.size(1, random.chance(0.1) ? 40 : 5));
  const auto kernel = mps::NNConcatenation::create(call.device, sourceCount);
  kernel->setDestinationImageAllocator(mps::Image::defaultAllocator());
  kernel->setChannelAlignment(
      call.noted("channelAlignment", random.chance(0.5) ? std::size_t{1} : std::size_t{4}));
  call.stage = "sources";
  const ConcatenatedSources sources = makeConcatenatedSources(call, *kernel, sourceCount, imageCount);
  if (random.chance(0.2))
    kernel->setDestinationFeatureChannelOffset(call.noted("destinationChannelOffset", std::size_t{4}));
  if (random.chance(0.1)) kernel->setClipRect(clipRectangle(call, 2, 0, 9));
  const CommandBufferPointer commandBuffer = call.begin();
  call.stage = "forward";
  mps::StateBatch states;
  const mps::ImageBatch result =
      kernel->encodeBatch(commandBuffer, std::span<const mps::ImageBatch>(sources.batches), states, false);
  observeImages(call, "result", result, {});
  if (random.chance(0.7)) encodeGradients(call, commandBuffer, sources, result.descriptor(), states);
  call.finish(commandBuffer);
}

}  // namespace unmetal::random_calls
