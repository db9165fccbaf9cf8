#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "unmetal.hpp"
#include "unmetal_train.hpp"

/// The code of docs/training.md.
namespace train = unmetal::train;

namespace {

/// Two convolutions beside a shortcut.
train::Features block(const train::Features& x, std::size_t channels, std::size_t stride) {
  auto y = x.convolution(channels, 3, {.stride = stride, .biases = false}).batchNormalization().relu();
  y = y.convolution(channels, 3, {.biases = false}).batchNormalization();
  if (stride == 1 && x.channels() == channels) return (x + y).relu();
  const auto shortcut = x.convolution(channels, 1, {.stride = stride, .biases = false});
  return (shortcut.batchNormalization() + y).relu();
}

train::Network resnet18(const train::Shape& pictures, std::size_t classes) {
  train::Network network(pictures);
  auto x = network.input().convolution(64, 7, {.stride = 2, .biases = false}).batchNormalization().relu();
  x = x.maxPool(3, {.stride = 2, .padding = train::Padding::Same});
  for (const std::size_t channels : {64U, 128U, 256U, 512U})
    x = block(block(x, channels, channels == 64 ? 1 : 2), channels, 1);
  x.globalAveragePool().dense(classes);
  return network;
}

/// Discs of two sizes.
class Discs : public train::Dataset {
 public:
  [[nodiscard]] train::Shape shape() const override { return {16, 16, 1}; }
  [[nodiscard]] std::size_t size() const override { return 512; }
  [[nodiscard]] std::size_t classCount() const override { return 2; }
  std::uint32_t load(std::size_t index, std::span<float> pixels) const override {
    const double radius = index % 2 != 0 ? 3 : 5;
    const std::size_t x = 5 + index / 2 % 6, y = 5 + index / 12 % 6;
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      const std::size_t column = i % 16, row = i / 16;
      pixels[i] = std::hypot(static_cast<double>(column) - static_cast<double>(x),
                             static_cast<double>(row) - static_cast<double>(y)) < radius;
    }
    return index % 2;
  }
};

bool trainOnDiscs() {
  const Discs discs;
  train::Network network(discs.shape(), {.seed = 1});
  network.input().convolution(8, 5).relu().maxPool(2).dense(2);
  train::TrainerOptions options{.epochs = 3, .batchSize = 32, .optimizer = "adam", .schedule = "cosine"};
  options.onEpoch = [](const train::EpochReport& report) {
    std::printf("epoch %d: loss %.3f, accuracy %.3f\n", static_cast<int>(report.epoch), report.loss,
                report.validation->accuracy());
    return report.validation->accuracy() < 1;  // false: that is enough
  };
  train::Trainer trainer(network, options);
  trainer.fit(discs, discs);

  network.save("discs.safetensors");
  const train::Network loaded = train::Network::load("discs.safetensors");
  std::vector<float> picture(16 * 16);
  const std::uint32_t label = discs.load(7, picture);
  const std::vector<float> probabilities = loaded.predict(picture);
  return probabilities[label] > 0.5F;
}

/// One's own pictures, in a folder with a folder for each class.
double trainOnPictures(const std::string& folder) {
  const train::PictureFolder training(folder, train::Split::Training, {.size = {36, 36, 3}});
  const train::PictureFolder validation(folder, train::Split::Test, {.size = {32, 32, 3}});
  train::Network network(validation.shape());
  network.setNormalization(train::Normalization::of(training));
  auto x = network.input();
  for (const std::size_t channels : {16U, 32U, 64U})
    x = x.convolution(channels, 3, {.biases = false}).batchNormalization().relu().maxPool(2);
  x.globalAveragePool().dense(training.classCount());
  const train::Augmentation augmentation{.crop = 0.125, .flip = true, .rotate = 10};
  train::Trainer trainer(network, {.epochs = 20, .batchSize = 4, .augmentation = augmentation});
  return trainer.fit(training, validation).back().validation->accuracy();
}

/// The graphs, for a loop of one's own: it does what Trainer does.
float stepByHand() {
  train::Network network({16, 16, 1});
  network.input().convolution(8, 5).relu().maxPool(2).dense(2);
  network.setOptimizer(mps::NNOptimizerAdam::create(network.device(), 0.001F));
  const train::TrainingGraph training = network.makeTrainingGraph(1);

  const auto image =
      mps::ImageBatch::create(network.device(), {mps::ImageFeatureChannelFormat::Float32, 16, 16, 1}, 1);
  std::vector<float> picture(16 * 16);
  const std::vector<std::uint32_t> label{Discs().load(0, picture)};
  image.writeBytes(picture, mps::DataLayout::HeightxWidthxFeatureChannels);
  const auto labels = mps::CNNLossLabels::createClassBatch(network.device(), 1);
  mps::CNNLossLabels::writeClassIndices(labels, label);
  const auto commandBuffer = network.device()->newCommandQueue()->commandBuffer();
  training.graph->encodeBatch(commandBuffer, {image}, {labels});
  mps::StateBatchSynchronize(labels, commandBuffer);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  std::vector<float> loss(1);
  mps::CNNLossLabels::lossImages(labels).readBytes(loss, mps::DataLayout::HeightxWidthxFeatureChannels);
  return loss[0];
}

}  // namespace

int main(int count, char** arguments) {
  const train::Network network = resnet18({64, 64, 3}, 10);
  std::printf("%s", network.summary().c_str());
  for (int i = 1; i < count; ++i)
    std::printf("%s: accuracy %.3f\n", arguments[i], trainOnPictures(arguments[i]));
  const bool isRight = network.parameterCount() == 11'181'642 && trainOnDiscs() && stepByHand() > 0;
  std::printf(isRight ? "right\n" : "wrong\n");
  return isRight ? 0 : 1;
}
