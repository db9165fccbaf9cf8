#include <algorithm>
#include <array>

#include "mps/conform/timing/kernel_bench.hpp"
#include "mps/loss/forward_loss.hpp"
#include "mps/loss/loss.hpp"
#include "mps/loss/loss_problem.hpp"
#include "mps/loss/yolo_loss.hpp"

namespace mps::detail {
namespace {

/// Predictions and labels are read, the gradient is written.
void benchType(Bench& bench, CNNLossType type, std::size_t size, std::size_t channels) {
  for (const auto format : {ImageFeatureChannelFormat::Float32, ImageFeatureChannelFormat::Float16}) {
    const ImageDescriptor descriptor{format, size, size, channels};
    const std::int64_t batch = bench.batchFor(3 * bytesOf(descriptor));
    const std::string text =
        std::to_string(size) + "x" + std::to_string(size) + "x" + std::to_string(channels) + " " + name(type);
    const BenchKey key{"CNNLoss", Direction::Gradient, format, text, batch};
    if (!bench.isSelected(key.describe())) continue;
    const auto count = static_cast<std::size_t>(batch);
    const ImageBatch predictions = benchImages(bench.device(), descriptor, count);
    const ImageBatch targets = benchImages(bench.device(), descriptor, count);
    const ImageBatch gradients = ImageBatch::create(bench.device(), descriptor, count);
    const StateBatch labels = CNNLossLabels::createBatch(bench.device(), {1, 1, 1}, targets);
    const auto kernel =
        CNNLoss::create(bench.device(), CNNLossDescriptor::cnnLossDescriptor(type, CNNReductionType::Sum));
    bench.kernel(key, {.bytes = 3.0 * static_cast<double>(batch) * static_cast<double>(bytesOf(descriptor))},
                 [&](const auto& commandBuffer) {
                   kernel->encodeBatch(commandBuffer, predictions, labels, gradients);
                 });
  }
}

/// Predictions and labels are read; the gradient kernel writes the gradient.
void benchForwardLoss(Bench& bench, CNNLossType type, std::size_t size, std::size_t channels) {
  for (const auto format : {ImageFeatureChannelFormat::Float32, ImageFeatureChannelFormat::Float16})
    for (const Direction direction : {Direction::Forward, Direction::Gradient}) {
      const ImageDescriptor descriptor{format, size, size, channels};
      const double arrays = direction == Direction::Forward ? 2 : 3;
      const std::int64_t batch = bench.batchFor(3 * bytesOf(descriptor));
      const std::string text = std::to_string(size) + "x" + std::to_string(size) + "x" +
                               std::to_string(channels) + " " + name(type);
      const BenchKey key{direction == Direction::Forward ? "NNForwardLoss" : "NNLossGradient", direction,
                         format, text, batch};
      if (!bench.isSelected(key.describe())) continue;
      const auto count = static_cast<std::size_t>(batch);
      const ImageBatch predictions = benchImages(bench.device(), descriptor, count);
      const ImageBatch labels = benchImages(bench.device(), descriptor, count);
      const ImageDescriptor single{ImageFeatureChannelFormat::Float32, 1, 1, 1};
      const ImageBatch incoming = benchImages(bench.device(), single, count);
      const ImageBatch losses = ImageBatch::create(bench.device(), single, count);
      const ImageBatch gradients = ImageBatch::create(bench.device(), descriptor, count);
      const auto lossType = CNNLossDescriptor::cnnLossDescriptor(type, CNNReductionType::Sum);
      const auto forward = NNForwardLoss::create(bench.device(), lossType);
      const auto gradient = NNLossGradient::create(bench.device(), lossType);
      bench.kernel(key,
                   {.bytes = arrays * static_cast<double>(batch) * static_cast<double>(bytesOf(descriptor))},
                   [&](const auto& commandBuffer) {
                     if (direction == Direction::Forward)
                       forward->encodeBatch(commandBuffer, predictions, labels, {}, {}, losses);
                     else
                       gradient->encodeBatch(commandBuffer, incoming, predictions, labels, {}, {}, gradients);
                   });
    }
}

constexpr std::size_t kAnchors = 5;
constexpr std::size_t kChannelsPerAnchor = 25;

/// An object in each 61st cell; of all other anchors nothing is labelled.
ImageBatch yoloLabels(const std::shared_ptr<mtl::Device>& device, const ImageDescriptor& descriptor,
                      std::size_t count) {
  constexpr std::size_t every = 61;
  const std::size_t cells = count * descriptor.width() * descriptor.height();
  const std::size_t channels = descriptor.featureChannels();
  std::vector<double> values(cells * channels);
  for (std::size_t cell = 0; cell < cells; cell += every) {
    double* const label = values.data() + cell * channels + cell / every % kAnchors * kChannelsPerAnchor;
    std::copy_n(std::array{0.25, 0.75, 2.5, 3.5, 1.0}.data(), 5, label);
    label[5 + cell % (kChannelsPerAnchor - 5)] = 1;
  }
  const auto elements = static_cast<std::int64_t>(values.size());
  std::vector<std::byte> bytes(values.size() * bytesPerChannel(descriptor.channelFormat()));
  writeTensor(TensorShape::dense(1, 1, 1, elements, descriptor.channelFormat()), bytes.data(), values);
  ImageBatch images = ImageBatch::create(device, descriptor, count);
  images.writeBytes(std::span<const std::byte>(bytes), DataLayout::HeightxWidthxFeatureChannels);
  return images;
}

/// A grid of 13x13 cells with 5 anchors and 20 classes.
void benchYOLO(Bench& bench) {
  constexpr std::size_t size = 13;
  constexpr std::size_t channels = kAnchors * kChannelsPerAnchor;
  const std::vector<float> anchors{1, 1, 2, 2, 3, 4, 5, 4, 8, 8};
  for (const auto format : {ImageFeatureChannelFormat::Float32, ImageFeatureChannelFormat::Float16}) {
    const ImageDescriptor descriptor{format, size, size, channels};
    const std::int64_t batch = bench.batchFor(3 * bytesOf(descriptor));
    const BenchKey key{"CNNYOLOLoss", Direction::Gradient, format, "13x13x125", batch};
    if (!bench.isSelected(key.describe())) continue;
    const auto count = static_cast<std::size_t>(batch);
    const ImageBatch predictions = benchImages(bench.device(), descriptor, count);
    const ImageBatch gradients = ImageBatch::create(bench.device(), descriptor, count);
    const StateBatch labels =
        CNNLossLabels::createBatch(bench.device(), {1, 1, 1}, yoloLabels(bench.device(), descriptor, count));
    using enum CNNLossType;
    const auto kernel = CNNYOLOLoss::create(
        bench.device(), CNNYOLOLossDescriptor::cnnLossDescriptor(MeanSquaredError, Huber, SigmoidCrossEntropy,
                                                                 SoftMaxCrossEntropy, CNNReductionType::Sum,
                                                                 anchors, anchors.size() / 2));
    bench.kernel(key, {.bytes = 3.0 * static_cast<double>(batch) * static_cast<double>(bytesOf(descriptor))},
                 [&](const auto& commandBuffer) {
                   kernel->encodeBatch(commandBuffer, predictions, labels, gradients);
                 });
  }
}

}  // namespace

void benchLoss(Bench& bench) {
  benchType(bench, CNNLossType::MeanSquaredError, 56, 64);
  benchType(bench, CNNLossType::SigmoidCrossEntropy, 56, 64);
  benchType(bench, CNNLossType::SoftMaxCrossEntropy, 56, 64);
  benchType(bench, CNNLossType::SoftMaxCrossEntropy, 1, 1000);
  benchForwardLoss(bench, CNNLossType::MeanSquaredError, 56, 64);
  benchYOLO(bench);
}

}  // namespace mps::detail
