// Training with a graph that the loss node builds by itself.

#include <cstdio>
#include <memory>
#include <vector>

#include "examples/synthetic_digits.hpp"
#include "unmetal.hpp"

namespace {

constexpr std::size_t batchSize = 32;
constexpr std::size_t steps = 150;

std::shared_ptr<mps::TrainableConvolution> layer(const std::shared_ptr<mtl::Device>& device,
                                                 std::size_t kernel, std::size_t in, std::size_t out,
                                                 const char* label, std::uint64_t seed) {
  return mps::TrainableConvolution::create(device,
                                           mps::CNNConvolutionDescriptor::create(kernel, kernel, in, out),
                                           label, seed, mps::NNOptimizerRMSProp::create(device, 2e-3F));
}

}  // namespace

int main() {
  const auto device = mtl::createSystemDefaultDevice();
  const auto queue = device->newCommandQueue();

  // A residual block: the first convolution's result has two readers, whose gradients meet in an addition.
  const auto input = mps::NNImageNode::create();
  const auto stem = mps::CNNConvolutionNode::create(input, layer(device, 3, 1, 8, "stem", 1));
  const auto relu = mps::CNNNeuronReLUNode::create(stem->resultImage());
  const auto inner = mps::CNNConvolutionNode::create(relu->resultImage(), layer(device, 3, 8, 8, "inner", 2));
  const auto sum = mps::NNAdditionNode::create(relu->resultImage(), inner->resultImage());
  const auto pool = mps::CNNPoolingMaxNode::create(sum->resultImage(), 2);
  const auto dropout = mps::CNNDropoutNode::create(pool->resultImage(), 0.8F, 5);
  const auto dense = mps::CNNFullyConnectedNode::create(
      dropout->resultImage(), layer(device, 6, 8, SyntheticDigits::classes, "dense", 3));
  auto descriptor =
      mps::CNNLossDescriptor::create(mps::CNNLossType::SoftMaxCrossEntropy, mps::CNNReductionType::Sum);
  descriptor.setWeight(1.0F / batchSize);
  const auto loss = mps::CNNLossNode::create(dense->resultImage(), descriptor);

  std::vector<std::shared_ptr<mps::NNImageNode>> results;
  for (const auto& terminus : loss->trainingGraph(nullptr)) results.push_back(terminus->resultImage());
  const auto graph = mps::NNGraph::create(device, results, std::vector<bool>(results.size(), false));

  const SyntheticDigits data(batchSize * steps, 23);
  const mps::ImageDescriptor picture(mps::ImageFeatureChannelFormat::Float32, SyntheticDigits::size,
                                     SyntheticDigits::size, 1);
  const auto images = mps::ImageBatch::create(device, picture, batchSize);
  const auto labels = mps::CNNLossLabels::createClassBatch(device, batchSize);
  constexpr std::size_t pixelsPerBatch = batchSize * SyntheticDigits::size * SyntheticDigits::size;
  float meanLoss = 0;
  for (std::size_t step = 0; step < steps; ++step) {
    images.writeBytes(std::span(data.pixels.data() + step * pixelsPerBatch, pixelsPerBatch),
                      mps::DataLayout::HeightxWidthxFeatureChannels);
    mps::CNNLossLabels::writeClassIndices(labels, {data.labels.data() + step * batchSize, batchSize});
    const auto commandBuffer = queue->commandBuffer();
    graph->encodeBatch(commandBuffer, {images}, {labels});
    mps::StateBatchSynchronize(labels, commandBuffer);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    std::vector<float> losses(batchSize);
    mps::CNNLossLabels::lossImages(labels).readBytes(std::span(losses),
                                                     mps::DataLayout::HeightxWidthxFeatureChannels);
    meanLoss = 0;
    for (const float value : losses) meanLoss += value;
  }
  std::printf("loss of the last step %.4f\n%s", static_cast<double>(meanLoss),
              graph->debugDescription().c_str());
  return meanLoss < 0.2F ? 0 : 1;
}
