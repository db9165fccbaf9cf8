#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "mps/conform/check_gradients.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/graph/check/test_network.hpp"

/// Sub-pixel convolutions in graphs: forward only.
namespace mps::sub_pixel_graph_test {
namespace {

using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;

class SubPixelGraph : public testing::DeviceTest {
 protected:
  static constexpr std::size_t side = 5;

  [[nodiscard]] std::shared_ptr<TrainableConvolution> weights(std::size_t outputs) const {
    auto descriptor = CNNSubPixelConvolutionDescriptor::cnnConvolutionDescriptor(3, 3, 1, outputs);
    descriptor.setSubPixelScaleFactor(2);
    return TrainableConvolution::create(device_, descriptor, "upscale", 7, nullptr);
  }
  [[nodiscard]] ImageBatch pictures() const {
    Values values(2 * side * side);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 7 % 13) / 13 - 0.25F;
    return batch(sizeOf(side, side, 1), 2, values);
  }
  Values resultOf(const std::shared_ptr<NNImageNode>& node, const ImageBatch& images) {
    const auto graph = NNGraph::create(device_, node);
    const auto buffer = commands();
    const ImageBatch results = graph->encodeBatch(buffer, {images}, {});
    EXPECT_EQ(results.descriptor().width(), 2 * side);
    EXPECT_EQ(results.descriptor().height(), 2 * side);
    run(buffer);
    return valuesOf(results);
  }
};

/// A neuron behind it has the channels of the spread result, not those of the filters: it is not fused.
TEST_F(SubPixelGraph, ANeuronBehindItSeesTheSpreadResult) {
  const auto source = weights(8);
  const auto convolution = CNNConvolutionNode::create(NNImageNode::create(), source);
  const Values slopes{2, 0.5F};
  const auto neuron = CNNNeuronPReLUNode::create(convolution->resultImage(), slopes);
  const auto alone = CNNConvolutionNode::create(NNImageNode::create(), source);
  Values expected = resultOf(alone->resultImage(), pictures());
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (expected[i] < 0) expected[i] *= slopes[i % slopes.size()];
  EXPECT_EQ(resultOf(neuron->resultImage(), pictures()), expected);
}

TEST_F(SubPixelGraph, TrainingThroughItIsRefused) {
  const auto convolution = CNNConvolutionNode::create(NNImageNode::create(), weights(4));
  const auto loss = CNNLossNode::create(
      convolution->resultImage(),
      CNNLossDescriptor::cnnLossDescriptor(CNNLossType::MeanSquaredError, CNNReductionType::Sum));
  const auto termini = loss->trainingGraph(nullptr);
  EXPECT_TRUE(names(errorOf([&] { NNGraph::create(device_, termini.at(0)->resultImage(), false); }),
                    {"CNNConvolutionGradient", "sub-pixel", "not supported"}));
}

/// Layers behind it train; its own reference serves their check.
TEST_F(SubPixelGraph, LayersBehindItTrain) {
  const auto convolution = CNNConvolutionNode::create(NNImageNode::create(), weights(8));
  convolution->resultImage()->setStopGradient(true);
  const auto last =
      CNNConvolutionNode::create(convolution->resultImage(), test::layer(device_, 3, 2, 1, "last"));
  const auto loss = CNNLossNode::create(
      last->resultImage(),
      CNNLossDescriptor::cnnLossDescriptor(CNNLossType::MeanSquaredError, CNNReductionType::Sum));
  std::vector<std::shared_ptr<NNImageNode>> results;
  for (const auto& terminus : loss->trainingGraph(nullptr)) results.push_back(terminus->resultImage());
  const auto graph = NNGraph::create(device_, results, std::vector<bool>(results.size(), false));
  const ImageBatch wanted = batch(sizeOf(2 * side, 2 * side, 1), 2, Values(2 * 4 * side * side, 0.5F));
  const auto report =
      checkGradients(*graph, {pictures()}, {CNNLossLabels::createBatch(device_, {1, 1, 1}, wanted)});
  EXPECT_TRUE(report.passed()) << report.describe();
}

}  // namespace
}  // namespace mps::sub_pixel_graph_test
