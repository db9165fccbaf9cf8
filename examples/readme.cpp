#include <cstdio>
#include <random>
#include <vector>
#include "unmetal.hpp"
int main() {  // Does a bar in a noisy picture of 16x16 pixels lie or stand?
  const auto device = mtl::createSystemDefaultDevice();
  const auto queue = device->newCommandQueue();
  const auto layer = [&](std::size_t kernel, std::size_t in, std::size_t out, const char* name) {
    const auto shape = mps::CNNConvolutionDescriptor::create(kernel, kernel, in, out);
    return mps::TrainableConvolution::create(device, shape, name, 1,
                                             mps::NNOptimizerAdam::create(device, 0.003F));
  };
  const auto conv = mps::CNNConvolutionNode::create(mps::NNImageNode::create(), layer(5, 1, 8, "conv"));
  const auto relu = mps::CNNNeuronReLUNode::create(conv->resultImage());
  const auto pool = mps::CNNPoolingMaxNode::create(relu->resultImage(), 2);
  const auto dense = mps::CNNFullyConnectedNode::create(pool->resultImage(), layer(8, 8, 2, "dense"));
  const auto loss = mps::CNNLossNode::create(
      dense->resultImage(),
      mps::CNNLossDescriptor::create(mps::CNNLossType::SoftMaxCrossEntropy, mps::CNNReductionType::Mean));
  const auto training = mps::NNGraph::create(device, loss->trainingGraph(nullptr)[0]->resultImage(), false);
  const auto inference = mps::NNGraph::create(device, dense->resultImage());  // the same layers and weights

  const auto pictures =
      mps::ImageBatch::create(device, {mps::ImageFeatureChannelFormat::Float32, 16, 16, 1}, 64);
  const auto labels = mps::CNNLossLabels::createClassBatch(device, 64);
  std::vector<float> pixels(64 * 256), scores(64 * 2);
  std::vector<std::uint8_t> stands(64);
  std::mt19937 random(1);
  int right = 0;
  for (int step = 0; step < 100; ++step) {
    for (float& pixel : pixels) pixel = static_cast<float>(random() % 100) / 100;
    for (std::size_t i = 0; i < 64; ++i) {
      const std::size_t place = random() % 16;
      stands[i] = random() % 2;
      for (std::size_t j = 0; j < 16; ++j)
        pixels[i * 256 + (stands[i] != 0 ? j * 16 + place : place * 16 + j)] += 1;
    }
    pictures.writeBytes(pixels, mps::DataLayout::HeightxWidthxFeatureChannels);
    mps::CNNLossLabels::writeClassIndices(labels, stands);
    const auto commandBuffer = queue->commandBuffer();
    const auto answers = inference->encodeBatch(commandBuffer, {pictures});  // before it has learnt from them
    training->encodeBatch(commandBuffer, {pictures}, {labels});
    commandBuffer->commit();
    commandBuffer->throwIfFailed();  // waits
    answers.readBytes(scores, mps::DataLayout::HeightxWidthxFeatureChannels);
    for (std::size_t i = 0; i < 64 && step >= 90; ++i)
      right += (scores[2 * i + 1] > scores[2 * i]) == (stands[i] != 0);
  }
  std::printf("%d of 640 new pictures are right\n", right);
}
