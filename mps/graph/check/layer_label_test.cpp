#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "mps/batch_normalization/batch_normalization_node.hpp"
#include "mps/batch_normalization/check/batch_normalization_fixed_source.hpp"
#include "mps/convolution/convolution.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/graph/check/test_network.hpp"

/// Messages name the layer: the node's label, else that of the data source.
namespace mps::layer_label_test {
namespace {

using testing::errorOf;
using testing::names;

/// Has weights of a wrong size, and a label.
class ShortSource final : public test::UserSource {
 public:
  using UserSource::UserSource;
  [[nodiscard]] std::span<const std::byte> weights() const override {
    return UserSource::weights().subspan(4);
  }
  [[nodiscard]] std::string label() const override { return "source"; }
};

class LayerLabel : public testing::DeviceTest {
 protected:
  std::shared_ptr<ShortSource> source_ =
      std::make_shared<ShortSource>(device_, *test::layer(device_, 3, 1, 4, "conv"));
  std::shared_ptr<CNNConvolutionNode> node_ = CNNConvolutionNode::create(NNImageNode::create(), source_);

  [[nodiscard]] std::string errorOfGraph() const {
    return errorOf([&] { NNGraph::create(device_, node_->resultImage()); });
  }
};

TEST_F(LayerLabel, OfTheDataSourceIsInMessagesOfConstructors) {
  EXPECT_TRUE(names(errorOf([&] { CNNConvolution::create(device_, source_); }),
                    {"CNNConvolution \"source\": weights", "140 bytes"}));
  EXPECT_TRUE(names(errorOf([&] { CNNConvolutionGradient::create(device_, source_); }),
                    {"CNNConvolutionGradient \"source\": weights"}));
}

TEST_F(LayerLabel, OfTheNodeIsInMessagesOfGraphsThatAreMade) {
  EXPECT_TRUE(names(errorOfGraph(), {"CNNConvolution \"source\"", "weights"}));
  node_->setLabel("layer3");
  EXPECT_TRUE(
      names(errorOfGraph(), {"CNNConvolutionNode \"layer3\"", "CNNConvolution \"source\"", "weights"}));
}

TEST_F(LayerLabel, OfTheNodeIsInMessagesOfEncodes) {
  const auto node =
      CNNConvolutionNode::create(NNImageNode::create(), test::layer(device_, 3, 4, 4, "source"));
  node->setLabel("layer3");
  const auto graph = NNGraph::create(device_, node->resultImage());
  EXPECT_TRUE(
      names(errorOf([&] { graph->encodeBatch(commands(), {test::pictures(device_, 0)}); }), {"\"layer3\""}))
      << "pictures of one channel";
}

TEST_F(LayerLabel, OfTheDataSourceIsInMessagesOfGradients) {
  const auto values = std::make_shared<detail::FixedBatchNormalization>(1);
  values->name = "norm1";
  const auto node = CNNBatchNormalizationNode::create(NNImageNode::create(), values);
  const auto loss = CNNLossNode::create(
      node->resultImage(),
      CNNLossDescriptor::cnnLossDescriptor(CNNLossType::MeanSquaredError, CNNReductionType::Sum));
  const auto graph = NNGraph::create(device_, loss->trainingGraph(nullptr)[0]->resultImage(), true);
  EXPECT_NE(graph->debugDescription().find("\"norm1 gradient\""), std::string::npos)
      << graph->debugDescription();
}

TEST_F(LayerLabel, ExchangedImagesOfAGradientNodeAreNamed) {
  const auto source = NNImageNode::create();
  const auto pool = CNNPoolingMaxNode::create(source, 2);
  pool->setLabel("pool1");
  const auto gradient = CNNPoolingMaxNode::create(NNImageNode::create(), 2)->resultImage();
  const auto node = CNNPoolingMaxGradientNode::create(source, gradient, pool->resultState(), 2, 2, 2, 2);
  EXPECT_TRUE(names(errorOf([&] { NNGraph::create(device_, node->resultImage()); }),
                    {"look exchanged", "sourceGradient is source 0 of CNNPoolingMaxNode \"pool1\""}));
}

TEST_F(LayerLabel, OfTheGraphIsInMessagesOfWaiting) {
  const auto source = std::make_shared<test::UserSource>(device_, *test::layer(device_, 3, 1, 4, "conv"));
  const test::SmallNetwork network(source, test::layer(device_, 4, 4, 3, "dense"), false);
  network.convolution->setTrainingStyle(NNTrainingStyle::UpdateDeviceCPU);
  const auto graph = network.trainingGraph(device_);
  graph->setLabel("net");
  const auto buffer = commands();
  const auto encode = [&] {
    graph->encodeBatch(buffer, {test::pictures(device_, 0)}, {test::labels(device_, 0)});
  };
  encode();
  EXPECT_TRUE(names(errorOf(encode), {"NNGraph \"net\"", "commandBuffer"}));
  run(buffer);
}

}  // namespace
}  // namespace mps::layer_label_test
