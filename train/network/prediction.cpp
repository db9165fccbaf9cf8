#include <algorithm>
#include <cmath>

#include "mps/core/image/image_batch.hpp"
#include "mps/core/image/image_descriptor.hpp"
#include "mps/core/types/error.hpp"
#include "mps/distributed/communicator.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "train/batches/dataset_batches.hpp"
#include "train/data/dataset.hpp"
#include "train/network/network.hpp"
#include "train/network/network_state.hpp"
#include "train/ranks/ranks.hpp"

namespace unmetal::train {
namespace {

/// Of one command buffer: as many as fit in 32 MiB of float32, at most 500.
std::size_t picturesAtOnce(const Shape& shape) {
  constexpr std::size_t most = 500;
  constexpr std::size_t mostBytes = std::size_t{32} << 20;
  return std::clamp<std::size_t>(mostBytes / (shape.count() * sizeof(float)), 1, most);
}

/// Hands batches of pictures to the inference graph.
class Classifier {
 public:
  Classifier(detail::NetworkState& network, const Network& handle, mps::ImageFeatureChannelFormat format)
      : network_(network), format_(format), queue_(network.options.device->newCommandQueue()) {
    if (!network_.inference) network_.inference = handle.makeInferenceGraph();
  }

  /// @param pixels of `count` pictures, in the format
  std::vector<float> probabilities(std::span<const std::byte> pixels, std::size_t count) {
    const Shape& shape = network_.layers.front().shape;
    if (images_.count() != count)
      images_ = mps::ImageBatch::create(network_.options.device,
                                        {format_, shape.width, shape.height, shape.channels}, count);
    images_.writeBytes(pixels, mps::DataLayout::HeightxWidthxFeatureChannels);
    const auto commandBuffer = queue_->commandBuffer();
    const mps::ImageBatch result = network_.inference->encodeBatch(commandBuffer, {images_});
    mps::ImageBatchSynchronize(result, commandBuffer);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    std::vector<float> values(count * network_.layers.back().shape.count());
    result.readBytes(std::span(values), mps::DataLayout::HeightxWidthxFeatureChannels);
    if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); }))
      throw mps::Error("the network's probabilities are not finite; train it with a smaller learning rate");
    return values;
  }

 private:
  detail::NetworkState& network_;
  mps::ImageFeatureChannelFormat format_;
  std::shared_ptr<mtl::CommandQueue> queue_;
  mps::ImageBatch images_;
};

/// Calls use(batch, probabilities) for all pictures of this rank, in their order.
template <class Use>
void classify(detail::NetworkState& network, const Network& handle, const Dataset& data,
              const detail::Ranks& ranks, const Use& use) {
  const auto format = detail::formatOf(data, *handle.device(), handle.normalization());
  Classifier classifier(network, handle, format);
  BatchOptions options = detail::sharedOut({}, ranks);
  options.batchSize =
      std::min(options.ranks * picturesAtOnce(data.shape()), std::max<std::size_t>(data.size(), 1));
  options.lastBatch = LastBatch::Keep;
  options.shuffle = false;
  BatchLoader loader(
      data.size(),
      detail::sourceFrom(
          data, {.format = format, .pictures = data.shape(), .normalization = handle.normalization()}),
      options);
  for (Batch batch; loader.next(batch);)
    if (batch.count() > 0) use(batch, classifier.probabilities(batch.images, batch.count()));
}

}  // namespace

Evaluation Network::evaluate(const Dataset& data) const {
  return evaluate(data, nullptr);
}

Evaluation Network::evaluate(const Dataset& data, const detail::Ranks& ranks) const {
  const Shape& output = outputShape();
  if (output.height != 1 || output.width != 1)
    throw mps::Error("Network", "result of \"" + layers().back().label + "\"", describe(output),
                     "1x1 pixel with a score for each class");
  detail::checkFits(data, "data", inputShape(), output.channels);
  detail::Answers answers(data.size());
  detail::together(ranks, [&] {
    classify(*state_, *this, data, ranks, [&](const Batch& batch, const std::vector<float>& probabilities) {
      for (std::size_t i = 0; i < batch.count(); ++i)
        answers.set(batch.firstPlace + i, batch.labels[i],
                    std::span(probabilities).subspan(i * output.channels, output.channels));
    });
  });
  answers.share(ranks);
  Evaluation evaluation;
  evaluation.classCount = output.channels;
  double loss = 0;
  for (std::size_t i = 0; i < answers.count(); ++i) {
    const detail::Answer answer = answers.at(i);
    evaluation.correct += answer.prediction == answer.label ? 1 : 0;
    ++evaluation.confusion[{answer.label, answer.prediction}];
    loss += answer.loss();
    ++evaluation.count;
  }
  evaluation.loss = loss / static_cast<double>(evaluation.count);
  return evaluation;
}

std::vector<float> Network::predict(const Dataset& data) const {
  if (data.shape() != inputShape())
    throw mps::Error("data", "shape of a picture", describe(data.shape()),
                     describe(inputShape()) + ", the network's");
  std::vector<float> all;
  classify(*state_, *this, data, nullptr, [&](const Batch&, const std::vector<float>& probabilities) {
    all.insert(all.end(), probabilities.begin(), probabilities.end());
  });
  return all;
}

std::vector<float> Network::predict(std::span<const float> pictures) const {
  const std::size_t size = inputShape().count();
  if (pictures.empty() || pictures.size() % size != 0)
    throw mps::Error("Network", "number of values in pictures", std::to_string(pictures.size()),
                     "a multiple of " + std::to_string(size) + " for pictures of " + describe(inputShape()));
  Classifier classifier(*state_, *this, mps::ImageFeatureChannelFormat::Float32);
  const std::size_t most = picturesAtOnce(inputShape());
  std::vector<float> all;
  for (std::size_t first = 0; first < pictures.size(); first += most * size) {
    const auto part = pictures.subspan(first, std::min(most * size, pictures.size() - first));
    std::vector<float> values(part.begin(), part.end());
    if (normalization()) normalize(values, *normalization());
    const std::vector<float> probabilities =
        classifier.probabilities(std::as_bytes(std::span(values)), values.size() / size);
    all.insert(all.end(), probabilities.begin(), probabilities.end());
  }
  return all;
}

}  // namespace unmetal::train
