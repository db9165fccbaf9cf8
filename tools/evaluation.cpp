#include "tools/evaluation.hpp"

#include <algorithm>

#include "mps/core/error.hpp"
#include "mps/core/image_batch.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "tools/data/batches.hpp"

namespace unmetal {

ConfusionMatrix evaluate(const Network& network, const std::shared_ptr<mtl::CommandQueue>& queue,
                         const Dataset& data) {
  const NetworkOptions& expected = network.options;
  if (data.width != expected.width || data.height != expected.height || data.channels != expected.channels ||
      data.classNames.size() != expected.classNames.size())
    throw mps::Error("data " + data.name + ": pictures or classes are others than those of the network");
  BatchOptions options;
  options.batchSize = std::min<std::size_t>(500, data.count());
  options.lastBatch = LastBatch::Keep;
  options.shuffle = false;
  const mps::ImageFeatureChannelFormat format = pictureFormat(*queue->device());
  BatchLoader loader(data.count(), fillFrom(data, format), options);
  const mps::ImageDescriptor picture(format, data.width, data.height, data.channels);
  ConfusionMatrix matrix(data.classNames);
  mps::ImageBatch images;
  std::vector<float> probabilities;
  for (Batch batch; loader.next(batch);) {
    if (images.count() != batch.count())
      images = mps::ImageBatch::create(queue->device(), picture, batch.count());
    images.writeBytes(std::span<const std::byte>(batch.images),
                      mps::DataLayout::HeightxWidthxFeatureChannels);
    const auto commandBuffer = queue->commandBuffer();
    const mps::ImageBatch result = network.inference->encodeBatch(commandBuffer, {images});
    mps::ImageBatchSynchronize(result, commandBuffer);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    const std::size_t classes = network.options.classNames.size();
    probabilities.resize(batch.count() * classes);
    result.readBytes(std::span(probabilities), mps::DataLayout::HeightxWidthxFeatureChannels);
    for (std::size_t i = 0; i < batch.count(); ++i) {
      const auto row = std::span(probabilities).subspan(i * classes, classes);
      matrix.add(batch.labels[i], static_cast<std::size_t>(std::ranges::max_element(row) - row.begin()));
    }
  }
  return matrix;
}

}  // namespace unmetal
