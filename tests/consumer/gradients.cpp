#include <cstdio>
#include <vector>

#include <unmetal_conform.hpp>

int main() {
  const auto device = mtl::createSystemDefaultDevice();
  const auto weights = mps::TrainableConvolution::create(
      device, mps::CNNConvolutionDescriptor::create(3, 3, 1, 2), "layer", 1, nullptr);
  const auto node = mps::CNNConvolutionNode::create(mps::NNImageNode::create(), weights);
  const auto loss = mps::CNNLossNode::create(
      node->resultImage(),
      mps::CNNLossDescriptor::create(mps::CNNLossType::MeanSquaredError, mps::CNNReductionType::Sum));
  const auto gradient = loss->trainingGraph(nullptr).at(0);
  const auto graph = mps::NNGraph::create(device, gradient->resultImage(), false);

  const auto images = mps::ImageBatch::create(device, {mps::ImageFeatureChannelFormat::Float32, 4, 4, 1}, 1);
  std::vector<float> pixels(16);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = 0.1F * static_cast<float>(i);
  images.writeBytes(pixels, mps::DataLayout::HeightxWidthxFeatureChannels);
  const auto targets = mps::ImageBatch::create(device, {mps::ImageFeatureChannelFormat::Float32, 4, 4, 2}, 1);
  const std::vector<float> wanted(32, 0.5F);
  targets.writeBytes(wanted, mps::DataLayout::HeightxWidthxFeatureChannels);

  const auto report =
      mps::checkGradients(*graph, {images}, {mps::CNNLossLabels::createBatch(device, {1, 1, 1}, targets)});
  std::printf("%zu tensors are right\n%s", report.passedCount(), report.describe().c_str());
  return report.passed() ? 0 : 1;
}
