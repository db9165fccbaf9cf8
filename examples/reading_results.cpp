// How results get back to the host: results of kernels and graphs, exported images and states, loss images, an allocator of
// one's own. docs/reading-results.md explains it.

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "unmetal.hpp"

namespace {

constexpr auto layout = mps::DataLayout::HeightxWidthxFeatureChannels;
constexpr auto float32 = mps::ImageFeatureChannelFormat::Float32;

class LabelledImages : public mps::ImageAllocator {
 public:
  std::shared_ptr<mps::Image> image(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                    const mps::ImageDescriptor& descriptor,
                                    const mps::Kernel& kernel) override {
    auto image = mps::Image::create(commandBuffer->device(), descriptor);
    image->setLabel("of " + kernel.describe());
    return image;
  }
};

bool close(float found, double expected) {
  return static_cast<double>(found) > expected - 1e-4 && static_cast<double>(found) < expected + 1e-4;
}

/// Of one kernel.
bool readKernel(const std::shared_ptr<mtl::Device>& device) {
  const auto queue = device->newCommandQueue();
  const auto image = mps::Image::create(device, {float32, 4, 4, 1});
  const std::vector<float> pixels{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  image->writeBytes(pixels, layout);

  const auto pool = mps::CNNPoolingMax::create(device, 2, 2, 2, 2);
  pool->setDestinationImageAllocator(mps::Image::defaultAllocator());
  const auto commandBuffer = queue->commandBuffer();
  const auto result = pool->encode(commandBuffer, image);
  result->synchronize(commandBuffer);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  std::vector<float> values(result->width() * result->height() * result->featureChannels());
  result->readBytes(values, layout);

  // Without the allocator the result is temporary: the error says what to do.
  std::string message;
  try {
    pool->setDestinationImageAllocator(mps::TemporaryImage::defaultAllocator());
    pool->encode(queue->commandBuffer(), image)->readBytes(values, layout);
  } catch (const mps::Error& error) {
    message = error.what();
  }
  std::printf("%s\n", message.c_str());
  return values == std::vector<float>{6, 8, 14, 16} &&
         message.find("setExportFromGraph") != std::string::npos &&
         message.find("setDestinationImageAllocator") != std::string::npos;
}

/// Of a graph that trains one step: y = W x + b, mean squared error against 1.
bool readGraph(const std::shared_ptr<mtl::Device>& device) {
  const auto queue = device->newCommandQueue();
  const auto layer = mps::TrainableConvolution::create(
      device, mps::CNNConvolutionDescriptor::create(1, 1, 2, 1), "layer", 1,
      mps::NNOptimizerStochasticGradientDescent::create(device, 0.1F), mps::WeightInitialization::Constant);
  const auto dense = mps::CNNFullyConnectedNode::create(mps::NNImageNode::create(), layer);
  const auto loss = mps::CNNLossNode::create(
      dense->resultImage(),
      mps::CNNLossDescriptor::create(mps::CNNLossType::MeanSquaredError, mps::CNNReductionType::Sum));

  dense->resultImage()->setExportFromGraph(true);
  dense->resultImage()->setSynchronizeResource(true);
  dense->resultImage()->setImageAllocator(std::make_shared<LabelledImages>());
  dense->resultState()->setExportFromGraph(true);
  dense->resultState()->setSynchronizeResource(true);
  const auto graph = mps::NNGraph::create(device, loss->trainingGraph(nullptr).at(0)->resultImage(), false);

  const auto images = mps::ImageBatch::create(device, {float32, 1, 1, 2}, 3);
  images.writeBytes(std::vector<float>{1, 0, 0, 1, 1, 1}, layout);
  std::vector<std::shared_ptr<mps::CNNLossLabels>> labels;
  for (int i = 0; i < 3; ++i) {
    const float target = 1;
    labels.push_back(mps::CNNLossLabels::create(
        device, mps::CNNLossDataDescriptor::create(std::span(&target, 1), layout, {1, 1, 1})));
  }

  const auto commandBuffer = queue->commandBuffer();
  std::vector<mps::ImageBatch> exportedImages;
  std::vector<mps::StateBatch> exportedStates;
  graph->encodeBatch(commandBuffer, {images}, {labels}, &exportedImages, &exportedStates);
  mps::StateBatchSynchronize(labels, commandBuffer);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();

  // In the order of graph->intermediateImageHandles() and graph->resultStateHandles().
  std::vector<float> predictions(3);
  exportedImages.at(0).readBytes(predictions, layout);
  const auto state =
      std::dynamic_pointer_cast<mps::CNNConvolutionGradientState>(exportedStates.at(0).sharedState());
  const auto gradient = state->gradientForWeights()->contentsAs<const float>();

  std::vector<float> losses(3);
  mps::CNNLossLabels::lossImages(labels).readBytes(losses, layout);

  // Weights of 0.01: 0.01, 0.01 and 0.02; the loss is (y - 1)^2, the gradient of each weight 2 (y - 1) of its two images.
  std::printf("predictions %.2f %.2f %.2f, losses %.4f %.4f %.4f, gradient %.2f %.2f, image %s\n",
              static_cast<double>(predictions[0]), static_cast<double>(predictions[1]),
              static_cast<double>(predictions[2]), static_cast<double>(losses[0]),
              static_cast<double>(losses[1]), static_cast<double>(losses[2]),
              static_cast<double>(gradient[0]), static_cast<double>(gradient[1]),
              exportedImages.at(0)[0]->label().c_str());
  return close(predictions[0], 0.01) && close(predictions[2], 0.02) && close(losses[0], 0.99 * 0.99) &&
         close(losses[2], 0.98 * 0.98) && close(gradient[0], -2 * 0.99 - 2 * 0.98) &&
         exportedImages.at(0)[0]->label().find("CNNFullyConnected") != std::string::npos;
}

}  // namespace

int main() {
  const auto device = mtl::createSystemDefaultDevice();
  const bool kernel = readKernel(device);
  const bool graph = readGraph(device);
  return kernel && graph ? 0 : 1;
}
