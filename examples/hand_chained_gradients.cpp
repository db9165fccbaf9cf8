// Training with a graph whose gradient nodes are chained by hand, backwards from the loss.

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
  mps::NNOptimizerDescriptor descriptor;
  descriptor.setLearningRate(0.1F);
  return mps::TrainableConvolution::create(
      device, mps::CNNConvolutionDescriptor::create(kernel, kernel, in, out), label, seed,
      mps::NNOptimizerStochasticGradientDescent::create(device, 0.9F, true, descriptor));
}

}  // namespace

int main() {
  const auto device = mtl::createSystemDefaultDevice();
  const auto queue = device->newCommandQueue();
  const auto input = mps::NNImageNode::create();
  const auto convolution = mps::CNNConvolutionNode::create(input, layer(device, 3, 1, 8, "conv", 1));
  const auto tanh = mps::CNNNeuronTanHNode::create(convolution->resultImage());
  const auto pool = mps::CNNPoolingAverageNode::create(tanh->resultImage(), 2);
  const auto dense = mps::CNNFullyConnectedNode::create(
      pool->resultImage(), layer(device, 6, 8, SyntheticDigits::classes, "dense", 2));
  auto descriptor =
      mps::CNNLossDescriptor::create(mps::CNNLossType::SoftMaxCrossEntropy, mps::CNNReductionType::Sum);
  descriptor.setWeight(1.0F / batchSize);
  const auto loss = mps::CNNLossNode::create(dense->resultImage(), descriptor);

  // The result of the loss node is the gradient of the logits.
  const auto dDense = dense->gradientFilter(loss->resultImage());
  const auto dPool = pool->gradientFilter(dDense->resultImage());
  const auto dTanh = tanh->gradientFilter(dPool->resultImage());
  const auto dConvolution = convolution->gradientFilter(dTanh->resultImage());

  const auto graph = mps::NNGraph::create(device, dConvolution->resultImage(), false);
  const SyntheticDigits data(batchSize * steps, 11);
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
    if (step % 25 == 0) std::printf("step %3zu  loss %.4f\n", step, static_cast<double>(meanLoss));
  }
  std::printf("last      loss %.4f\n%s", static_cast<double>(meanLoss), graph->debugDescription().c_str());
  return meanLoss < 0.1F ? 0 : 1;
}
