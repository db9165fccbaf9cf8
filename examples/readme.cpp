#include <cstdio>
#include <vector>
#include "unmetal.hpp"
int main() {
  const auto device = mtl::createSystemDefaultDevice();
  const auto queue = device->newCommandQueue();
  // A layer y = W x + b from 2 channels to 1 with its optimiser; the network, its loss, its gradient nodes.
  const auto shape = mps::CNNConvolutionDescriptor::cnnConvolutionDescriptor(1, 1, 2, 1);
  const auto adam = mps::NNOptimizerAdam::create(device, 0.1F);
  const auto layer = mps::TrainableConvolution::create(device, shape, "layer", /*seed=*/1, adam);
  const auto dense = mps::CNNFullyConnectedNode::create(mps::NNImageNode::create(), layer);
  const auto loss = mps::CNNLossNode::create(
      dense->resultImage(), mps::CNNLossDescriptor::cnnLossDescriptor(mps::CNNLossType::MeanSquaredError,
                                                                      mps::CNNReductionType::Sum));
  const auto training = mps::NNGraph::create(device, loss->trainingGraph(nullptr)[0]->resultImage(), false);
  const auto layout = mps::DataLayout::HeightxWidthxFeatureChannels;
  const std::vector<float> points{0, 0, 1, 0, 0, 1, 1, 1}, targets{2, 4, -1, 1};  // 2 a - 3 b + 2
  const auto x = mps::ImageBatch::create(device, {mps::ImageFeatureChannelFormat::Float32, 1, 1, 2}, 4);
  const auto t = mps::ImageBatch::create(device, {mps::ImageFeatureChannelFormat::Float32, 1, 1, 1}, 4);
  x.writeBytes(std::span(points), layout);
  t.writeBytes(std::span(targets), layout);
  for (int step = 0; step < 300; ++step) {
    const auto commandBuffer = queue->commandBuffer();
    training->encodeBatch(commandBuffer, {x}, {mps::CNNLossLabels::createBatch(device, {1, 1, 1}, t)});
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
  }
  mps::writeSafetensors("layer.safetensors", layer->tensors(false), {});
  // Later, elsewhere: the same layer from the file, and a graph without loss.
  const auto loaded = mps::TrainableConvolution::create(device, shape, "layer", 0, nullptr);
  loaded->read(mps::SafetensorsFile::read("layer.safetensors"), false);
  const auto node = mps::CNNFullyConnectedNode::create(mps::NNImageNode::create(), loaded);
  const auto commandBuffer = queue->commandBuffer();
  const auto y = mps::NNGraph::create(device, node->resultImage())->encodeBatch(commandBuffer, {x});
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  std::vector<float> values(4);
  y.readBytes(std::span(values), layout);
  for (const float value : values) std::printf("%.2f ", static_cast<double>(value));  // 2.00 4.00 -1.00 1.00
}
