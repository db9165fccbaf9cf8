#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "mps/conform/check_gradients.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/graph/check/test_network.hpp"

/// Transposed convolution in graphs.
namespace mps::convolution_transpose_graph_test {
namespace {

const std::shared_ptr<mtl::Device>& device() {
  static const auto device = mtl::newCPUDevice(2);
  return device;
}

std::shared_ptr<TrainableConvolution> layer(std::size_t kernel, std::size_t in, std::size_t out,
                                            const char* label, std::size_t stride) {
  auto descriptor = CNNConvolutionDescriptor::cnnConvolutionDescriptor(kernel, kernel, in, out);
  descriptor.setStrideInPixelsX(stride);
  descriptor.setStrideInPixelsY(stride);
  return TrainableConvolution::create(device(), descriptor, label, in * 100 + out,
                                      test::sgd(device(), 0.002F));
}

/// Pictures are made smaller, then as large again, and compared with themselves.
struct Coder {
  std::shared_ptr<TrainableConvolution> down;
  std::shared_ptr<TrainableConvolution> up;
  std::shared_ptr<CNNConvolutionTransposeNode> transpose;
  std::shared_ptr<CNNLossNode> loss;

  explicit Coder(bool undoes, std::size_t kernel = 3)
      : down(layer(kernel, 1, 6, "down", 2)), up(layer(kernel, 6, 1, "up", 2)) {
    const auto convolution = CNNConvolutionNode::create(NNImageNode::create(), down);
    const auto tanh = CNNNeuronTanHNode::create(convolution->resultImage());
    transpose = CNNConvolutionTransposeNode::create(tanh->resultImage(),
                                                    undoes ? convolution->resultState() : nullptr, up);
    loss = CNNLossNode::create(
        transpose->resultImage(),
        CNNLossDescriptor::cnnLossDescriptor(CNNLossType::MeanSquaredError, CNNReductionType::Mean));
  }
  [[nodiscard]] std::shared_ptr<NNGraph> training() const {
    std::vector<std::shared_ptr<NNImageNode>> results;
    for (const auto& terminus : loss->trainingGraph(nullptr)) results.push_back(terminus->resultImage());
    return NNGraph::create(device(), results, std::vector<bool>(results.size(), false));
  }
};

ImageBatch pictures(std::size_t width, std::size_t height) {
  constexpr std::size_t count = 3;
  auto images = ImageBatch::create(device(), {ImageFeatureChannelFormat::Float32, width, height, 1}, count);
  std::vector<float> values(count * width * height);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 7 % 13) / 13;
  images.writeBytes(std::span<const float>(values), DataLayout::HeightxWidthxFeatureChannels);
  return images;
}

StateBatch themselves(const ImageBatch& images) {
  return CNNLossLabels::createBatch(device(), {1, 1, 1}, images);
}

/// Sizes of which several become the same: 7 and 8, both become 4.
TEST(ConvolutionTransposeGraph, TheResultHasTheSizeOfTheSourceOfTheConvolutionThatItUndoes) {
  for (const std::size_t size : {7U, 8U}) {
    const Coder coder(true);
    const auto graph = NNGraph::create(device(), coder.transpose->resultImage());
    const auto buffer = device()->newCommandQueue()->commandBuffer();
    const ImageBatch result = graph->encodeBatch(buffer, {pictures(size, size + 1)});
    buffer->commit();
    buffer->throwIfFailed();
    EXPECT_EQ(result.descriptor().width(), size);
    EXPECT_EQ(result.descriptor().height(), size + 1);
  }
}

TEST(ConvolutionTransposeGraph, GradientsAreRight) {
  for (const bool undoes : {false, true})
    for (const std::size_t kernel : {2U, 3U}) {
      const Coder coder(undoes, kernel);
      const ImageBatch images = pictures(7, 9);  // (4 - 1) 2 + 1 by policy, too
      const auto report = checkGradients(*coder.training(), {images}, {themselves(images)});
      EXPECT_EQ(report.describe(), "");
      EXPECT_TRUE(report.passed());
      int found = 0;
      for (const GradientCheckRow& row : report.rows)
        if (row.kernel == "CNNConvolutionTransposeGradient" && row.elements > 0 && row.derivatives > 0)
          ++found;
      EXPECT_EQ(found, 3) << "source gradient, weights and biases";
    }
}

TEST(ConvolutionTransposeGraph, TrainsItsOwnWeightsAndThoseBelow) {
  const Coder coder(true);
  const auto graph = coder.training();
  const auto queue = device()->newCommandQueue();
  const ImageBatch images = pictures(8, 8);
  const auto first = std::vector(coder.up->weights().begin(), coder.up->weights().end());
  std::vector<float> losses;
  for (int step = 0; step < 30; ++step) {
    const auto buffer = queue->commandBuffer();
    const auto labels = themselves(images);
    graph->encodeBatch(buffer, {images}, {labels});
    buffer->commit();
    buffer->throwIfFailed();
    std::vector<float> each(images.count());
    CNNLossLabels::lossImages(labels).readBytes(std::span(each), DataLayout::HeightxWidthxFeatureChannels);
    losses.push_back(std::accumulate(each.begin(), each.end(), 0.0F));
  }
  EXPECT_LT(losses.back(), losses.front() / 2);
  EXPECT_NE(std::vector(coder.up->weights().begin(), coder.up->weights().end()), first);
}

}  // namespace
}  // namespace mps::convolution_transpose_graph_test
