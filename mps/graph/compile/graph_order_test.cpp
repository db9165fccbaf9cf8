#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "mps/arithmetic/arithmetic_node.hpp"
#include "mps/convolution/convolution.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/graph/check/test_network.hpp"
#include "mps/graph/compile/graph_program.hpp"

/// Which steps a graph has, and in which order.
namespace mps::graph_order_test {
namespace {

using test::SmallNetwork;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::errorOf;
using ::testing::HasSubstr;
using testing::names;
using ::testing::Not;

class GraphPass : public testing::DeviceTest {
 protected:
  static std::shared_ptr<CNNNeuronNode> neuron(const std::shared_ptr<NNImageNode>& source,
                                               const char* label) {
    auto node = CNNNeuronAbsoluteNode::create(source);
    node->setLabel(label);
    return node;
  }
  static std::shared_ptr<NNAdditionNode> sum(const std::shared_ptr<NNFilterNode>& a,
                                             const std::shared_ptr<NNFilterNode>& b, const char* label) {
    auto node = NNAdditionNode::create(a->resultImage(), b->resultImage());
    node->setLabel(label);
    return node;
  }
  /// Labels of the steps, or class names where a node has none.
  static std::vector<std::string> stepsOf(const NNGraph& graph) {
    std::vector<std::string> found;
    for (const auto& step : graph.program().steps) {
      const auto& label = step.kernel->label();
      found.push_back(label.empty() ? step.kernel->className() : label);
    }
    return found;
  }
  std::vector<std::string> stepsFor(const std::vector<std::shared_ptr<NNImageNode>>& results,
                                    const std::vector<bool>& needed = {}) {
    return stepsOf(*NNGraph::create(device_, results, needed));
  }
  static CNNConvolutionGradientOption optionOf(const NNGraph& graph, const std::string& label) {
    for (const auto& step : graph.program().steps)
      if (const auto* gradient = dynamic_cast<const CNNConvolutionGradient*>(step.kernel.get()))
        if (step.name.find(label) != std::string::npos) return gradient->gradientOption();
    throw Error("no gradient of " + label);
  }

  std::shared_ptr<NNImageNode> x_ = NNImageNode::create();
  std::shared_ptr<CNNNeuronNode> a_ = neuron(x_, "a");
  std::shared_ptr<CNNNeuronNode> b_ = neuron(a_->resultImage(), "b");
};

using Reachability = GraphPass;

TEST_F(Reachability, OnlyWhatAResultDependsOnIsPartOfTheGraph) {
  const auto besides = neuron(a_->resultImage(), "besides");
  const auto behind = neuron(b_->resultImage(), "behind");
  EXPECT_THAT(stepsFor({b_->resultImage()}), ElementsAre("a", "b"));
  EXPECT_THAT(stepsFor({behind->resultImage()}), ElementsAre("a", "b", "behind"));
  EXPECT_THAT(stepsFor({a_->resultImage()}), ElementsAre("a")) << "a result inside a bigger network";
}

TEST_F(Reachability, AnUnneededBranchIsCutBackToWhatIsRequired) {
  const auto c = neuron(b_->resultImage(), "c");
  const auto d = neuron(c->resultImage(), "d");
  EXPECT_THAT(stepsFor({a_->resultImage(), d->resultImage()}, {true, false}), ElementsAre("a"));
  b_->resultImage()->setExportFromGraph(true);
  EXPECT_THAT(stepsFor({a_->resultImage(), d->resultImage()}, {true, false}), ElementsAre("a", "b"))
      << "an export is required";
  c->resultState()->setExportFromGraph(true);
  EXPECT_THAT(stepsFor({a_->resultImage(), d->resultImage()}, {true, false}), ElementsAre("a", "b", "c"))
      << "so is an exported state";
  EXPECT_THAT(stepsFor({d->resultImage()}, {false}), ElementsAre("a", "b", "c"));
}

TEST_F(Reachability, ExportsThatNoResultDependsOnAreNotFound) {
  const auto besides = neuron(a_->resultImage(), "besides");
  besides->resultImage()->setExportFromGraph(true);
  EXPECT_THAT(stepsFor({b_->resultImage()}), ElementsAre("a", "b"));
}

TEST_F(Reachability, AnInputIsNoResult) {
  EXPECT_TRUE(names(errorOf([&] { NNGraph::create(device_, x_); }),
                    {"NNGraph", "resultImages", "an input of the graph"}));
  EXPECT_TRUE(names(errorOf([&] { NNGraph::create(device_, std::vector<std::shared_ptr<NNImageNode>>{}); }),
                    {"NNGraph", "resultImages", "empty"}));
  EXPECT_TRUE(names(errorOf([&] { NNGraph::create(device_, std::shared_ptr<NNImageNode>()); }),
                    {"NNGraph", "resultImages", "null"}));
  EXPECT_TRUE(names(errorOf([&] { NNGraph::create(nullptr, b_->resultImage()); }), {"NNGraph", "device"}));
}

TEST_F(Reachability, TheFirstLayerComputesWeightGradientsAlone) {
  const SmallNetwork network(test::layer(device_, 3, 1, 4, "conv"), test::layer(device_, 4, 4, 3, "dense"));
  const auto graph = network.trainingGraph(device_);
  EXPECT_EQ(optionOf(*graph, "conv"), CNNConvolutionGradientOption::GradientWithWeightsAndBias);
  EXPECT_EQ(optionOf(*graph, "dense"), CNNConvolutionGradientOption::All);
}

TEST_F(Reachability, ANeededGradientOfTheInputIsComputedToo) {
  const SmallNetwork network(test::layer(device_, 3, 1, 4, "conv"), test::layer(device_, 4, 4, 3, "dense"));
  const auto termini = network.loss->trainingGraph(nullptr);
  const auto graph = NNGraph::create(device_, termini.at(0)->resultImage(), true);
  EXPECT_EQ(optionOf(*graph, "conv"), CNNConvolutionGradientOption::All);
}

TEST_F(Reachability, AFrozenLayerInTheMiddlePassesItsDataGradientOn) {
  const SmallNetwork network(test::layer(device_, 3, 1, 4, "conv"), test::layer(device_, 4, 4, 3, "dense"));
  network.dense->setTrainingStyle(NNTrainingStyle::UpdateDeviceNone);
  const auto graph = network.trainingGraph(device_);
  EXPECT_EQ(optionOf(*graph, "dense"), CNNConvolutionGradientOption::GradientWithData);
}

TEST_F(Reachability, AnExportedStateOfAFrozenLayerHoldsItsWeightGradients) {
  const SmallNetwork network(test::layer(device_, 3, 1, 4, "conv"), test::layer(device_, 4, 4, 3, "dense"));
  network.dense->setTrainingStyle(NNTrainingStyle::UpdateDeviceNone);
  network.dense->resultState()->setExportFromGraph(true);
  EXPECT_EQ(optionOf(*network.trainingGraph(device_), "dense"), CNNConvolutionGradientOption::All);
}

TEST_F(Reachability, WhereAllLayersAreFrozenTheLossRemains) {
  const SmallNetwork network(test::layer(device_, 3, 1, 4, "conv"), test::layer(device_, 4, 4, 3, "dense"));
  network.convolution->setTrainingStyle(NNTrainingStyle::UpdateDeviceNone);
  network.dense->setTrainingStyle(NNTrainingStyle::UpdateDeviceNone);
  const auto steps = stepsOf(*network.trainingGraph(device_));
  EXPECT_THAT(steps, Contains("CNNLoss")) << "its value is wanted";
  EXPECT_THAT(steps, Not(Contains(HasSubstr("Gradient"))));
}

using Order = GraphPass;

TEST_F(Order, DepthFirstFromTheFirstResultSourcesLeftToRight) {
  // r = (l1 + l2) + right, right also feeds the second result.
  const auto l1 = neuron(NNImageNode::create(), "l1");
  const auto l2 = neuron(NNImageNode::create(), "l2");
  const auto left = sum(l1, l2, "left");
  const auto right = neuron(NNImageNode::create(), "right");
  const auto r = sum(left, right, "r");
  const auto last = neuron(right->resultImage(), "last");
  EXPECT_THAT(stepsFor({r->resultImage(), last->resultImage()}),
              ElementsAre("l1", "l2", "left", "right", "r", "last"));
  EXPECT_THAT(stepsFor({last->resultImage(), r->resultImage()}),
              ElementsAre("right", "last", "l1", "l2", "left", "r"));
}

TEST_F(Order, EveryStepComesAfterWhatItReads) {
  const SmallNetwork network(test::layer(device_, 3, 1, 4, "conv"), test::layer(device_, 4, 4, 3, "dense"));
  const auto graph = network.trainingGraph(device_);
  const auto& program = graph->program();
  ASSERT_GT(program.steps.size(), 5U);
  for (std::size_t s = 0; s < program.steps.size(); ++s) {
    const auto isBefore = [s](std::size_t producer) { return producer == detail::nowhere || producer < s; };
    for (const auto source : program.steps[s].sources)
      EXPECT_TRUE(isBefore(program.images[source].producer)) << program.steps[s].name;
    for (const auto state : program.steps[s].sourceStates)
      EXPECT_TRUE(isBefore(program.states[state].producer)) << program.steps[s].name;
    if (program.steps[s].forward != detail::nowhere) {
      EXPECT_LT(program.steps[s].forward, s) << program.steps[s].name;
    }
  }
}

TEST_F(Order, ForwardStepsInChainOrderThenTheGradientsBackwards) {
  const SmallNetwork network(test::layer(device_, 3, 1, 4, "conv"), test::layer(device_, 4, 4, 3, "dense"),
                             false);
  const auto graph = network.trainingGraph(device_);
  std::vector<std::string> classes;
  for (const auto& step : graph->program().steps) classes.push_back(step.kernel->className());
  EXPECT_THAT(classes,
              ElementsAre("CNNConvolution", "CNNPoolingMax", "CNNFullyConnected", "CNNLoss",
                          "CNNFullyConnectedGradient", "CNNPoolingMaxGradient", "CNNConvolutionGradient"))
      << "the ReLU is in the convolution, its gradient in the pooling's";
}

using Geometry = GraphPass;

TEST_F(Geometry, SizesFollowFromTheSourcesThroughEveryStep) {
  const SmallNetwork network(test::layer(device_, 3, 1, 4, "conv"), test::layer(device_, 4, 4, 3, "dense"),
                             false);
  const auto pool = CNNPoolingAverageNode::create(network.relu->resultImage(), 3, 2);
  pool->resultImage()->setFormat(ImageFeatureChannelFormat::Float16);
  const auto graph = NNGraph::create(device_, pool->resultImage());
  const auto sizeFor = [&](std::size_t width, std::size_t height) {
    const auto buffer = commands();
    const auto result = graph->encode(buffer, {image(testing::sizeOf(width, height, 1))});
    return result->descriptor();
  };
  using Format = ImageFeatureChannelFormat;
  EXPECT_EQ(sizeFor(8, 8), (ImageDescriptor{Format::Float16, 4, 4, 4, 1})) << "ceil(8 / 2)";
  EXPECT_EQ(sizeFor(9, 5), (ImageDescriptor{Format::Float16, 5, 3, 4, 1}));
  EXPECT_EQ(sizeFor(1, 1), (ImageDescriptor{Format::Float16, 1, 1, 4, 1}));
}

TEST_F(Geometry, TheGraphsFormatIsThatOfNodesThatSayNone) {
  const auto typed = neuron(a_->resultImage(), "typed");
  typed->resultImage()->setFormat(ImageFeatureChannelFormat::Float32);
  const auto graph = NNGraph::create(device_, {b_->resultImage(), typed->resultImage()});
  EXPECT_EQ(graph->format(), ImageFeatureChannelFormat::Float32) << "docs/decisions.md, D17";
  graph->setFormat(ImageFeatureChannelFormat::Float16);
  const auto buffer = commands();
  std::vector<std::shared_ptr<Image>> others;
  const auto result = graph->encode(buffer, {image(testing::sizeOf(2, 2, 1))}, {}, &others);
  EXPECT_EQ(result->featureChannelFormat(), ImageFeatureChannelFormat::Float16);
  EXPECT_EQ(others.at(0)->featureChannelFormat(), ImageFeatureChannelFormat::Float32);
}

TEST_F(Geometry, AGradientHasTheSizeOfItsForwardSource) {
  const auto pool = CNNPoolingMaxNode::create(a_->resultImage(), 2);
  const auto gradient = NNImageNode::create();
  const auto termini = pool->trainingGraph(gradient);
  const auto graph = NNGraph::create(device_, termini.at(0)->resultImage());
  for (const std::size_t width : {8U, 7U}) {  // 7 / 2 is not whole: the state knows the size
    const auto buffer = commands();
    const auto incoming = image(testing::sizeOf(4, 4, 1), testing::counted(16));
    const auto source = image(testing::sizeOf(width, 8, 1), testing::counted(width * 8));
    const bool sourceFirst = graph->program().images[graph->program().sourceImages[0]].readers.front() == 0;
    const auto result =
        graph->encode(buffer, sourceFirst ? std::vector{source, incoming} : std::vector{incoming, source});
    run(buffer);
    EXPECT_EQ(result->descriptor(), testing::sizeOf(width, 8, 1));
  }
}

}  // namespace
}  // namespace mps::graph_order_test
