#include "tools/evaluation/evaluation.hpp"

#include <algorithm>
#include <cmath>

#include "mps/core/types/error.hpp"
#include "mps/distributed/communicator.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "train/batches/batch_loader.hpp"
#include "train/batches/dataset_batches.hpp"

namespace unmetal {

namespace {

void checkFits(const NamedData& data, const NetworkOptions& network) {
  const train::Shape pictures{network.height, network.width, network.channels};
  if (data.pictures->shape() != pictures || data.pictures->classCount() != network.classNames.size())
    throw mps::Error("data " + data.name + ": pictures or classes are others than those of the network");
  if (data.isGenerated) return;
  if (const auto other = firstOtherClass(network.classNames, data.pictures->classNames()))
    throw mps::Error("data " + data.name + ": the network's " + *other);
}

}  // namespace

std::size_t picturesAtOnce(const NetworkOptions& network) {
  constexpr std::size_t most = 500;
  constexpr std::size_t mostBytes = std::size_t{32} << 20;
  const std::size_t bytes = network.width * network.height * network.channels * sizeof(float);
  return std::min(most, std::max({std::size_t{1}, network.batchSize, mostBytes / bytes}));
}

std::vector<float> classify(const Network& network, const std::shared_ptr<mtl::CommandQueue>& queue,
                            const mps::ImageBatch& images) {
  const auto commandBuffer = queue->commandBuffer();
  const mps::ImageBatch result = network.inference->encodeBatch(commandBuffer, {images});
  mps::ImageBatchSynchronize(result, commandBuffer);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  std::vector<float> probabilities(images.count() * network.options.classNames.size());
  result.readBytes(std::span(probabilities), mps::DataLayout::HeightxWidthxFeatureChannels);
  if (!std::ranges::all_of(probabilities, [](float value) { return std::isfinite(value); }))
    throw mps::Error("the network's probabilities are not finite; train it with a smaller --lr");
  return probabilities;
}

namespace {

/// Those of this rank's pictures.
train::detail::Answers answersTo(const Network& network, const std::shared_ptr<mtl::CommandQueue>& queue,
                                 const NamedData& data, const train::detail::Ranks& ranks) {
  const train::Dataset& pictures = *data.pictures;
  train::BatchOptions options = train::detail::sharedOut({}, ranks);
  options.threads = data.threads;
  options.batchSize = std::min(options.ranks * picturesAtOnce(network.options), pictures.size());
  options.lastBatch = train::LastBatch::Keep;
  options.shuffle = false;
  const mps::ImageFeatureChannelFormat format =
      train::detail::formatOf(pictures, *queue->device(), network.options.normalization);
  const train::Shape shape = pictures.shape();
  train::BatchLoader loader(
      pictures.size(),
      train::detail::sourceFrom(
          pictures, {.format = format, .pictures = shape, .normalization = network.options.normalization}),
      options);
  const mps::ImageDescriptor picture(format, shape.width, shape.height, shape.channels);
  mps::ImageBatch images;
  const std::size_t classes = network.options.classNames.size();
  train::detail::Answers answers(pictures.size());
  for (train::Batch batch; loader.next(batch);) {
    if (batch.count() == 0) continue;
    if (images.count() != batch.count())
      images = mps::ImageBatch::create(queue->device(), picture, batch.count());
    images.writeBytes(std::span<const std::byte>(batch.images),
                      mps::DataLayout::HeightxWidthxFeatureChannels);
    const std::vector<float> probabilities = classify(network, queue, images);
    for (std::size_t i = 0; i < batch.count(); ++i)
      answers.set(batch.firstPlace + i, batch.labels[i],
                  std::span(probabilities).subspan(i * classes, classes));
  }
  return answers;
}

}  // namespace

ConfusionMatrix evaluate(const Network& network, const std::shared_ptr<mtl::CommandQueue>& queue,
                         const NamedData& data, WorstPictures* worst, const train::detail::Ranks& ranks) {
  checkFits(data, network.options);
  train::detail::Answers answers(data.pictures->size());
  train::detail::together(ranks, [&] { answers = answersTo(network, queue, data, ranks); });
  answers.share(ranks);
  ConfusionMatrix matrix(data.pictures->classNames());
  for (std::size_t i = 0; i < answers.count(); ++i) {
    const train::detail::Answer answer = answers.at(i);
    matrix.add(answer.label, answer.prediction, answer.loss());
    if (worst != nullptr)
      worst->add({i, answer.label, answer.prediction, answer.probability, answer.confidence});
  }
  return matrix;
}

}  // namespace unmetal
