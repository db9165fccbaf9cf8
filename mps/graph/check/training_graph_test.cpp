#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mps/arithmetic/arithmetic_node.hpp"
#include "mps/conform/check_gradients.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/core/types/error.hpp"
#include "mps/graph/check/test_network.hpp"

namespace mps::training_graph_test {
namespace {

const std::shared_ptr<mtl::Device>& device() {
  static const auto device = mtl::createSystemDefaultDevice();
  return device;
}

class NamedHandle final : public Handle {
 public:
  explicit NamedHandle(std::string label) : label_(std::move(label)) {}
  [[nodiscard]] std::string label() const override { return label_; }

 private:
  std::string label_;
};

/// A network that forks: A = F1(X), B = F2(A), S = A + B, P = F5(S).
struct Residual {
  std::shared_ptr<NNImageNode> x = NNImageNode::create(std::make_shared<NamedHandle>("X"));
  std::shared_ptr<CNNConvolutionNode> f1 =
      CNNConvolutionNode::create(x, test::layer(device(), 1, 4, 4, "F1", 0.002F));
  std::shared_ptr<CNNConvolutionNode> f2 =
      CNNConvolutionNode::create(f1->resultImage(), test::layer(device(), 1, 4, 4, "F2", 0.002F));
  std::shared_ptr<NNAdditionNode> f3 = NNAdditionNode::create(f1->resultImage(), f2->resultImage());
  std::shared_ptr<CNNFullyConnectedNode> f5 =
      CNNFullyConnectedNode::create(f3->resultImage(), test::layer(device(), 1, 4, 2, "F5", 0.002F));
  std::shared_ptr<CNNLossNode> f6 = CNNLossNode::create(
      f5->resultImage(),
      CNNLossDescriptor::cnnLossDescriptor(CNNLossType::MeanSquaredError, CNNReductionType::Sum));
};

TEST(TrainingGraph, AForkIsJoinedByAnAdditionWhenItsProducerIsReached) {
  Residual net;
  std::vector<std::string> calls;
  std::vector<std::shared_ptr<NNFilterNode>> forwards;
  const auto termini = net.f6->trainingGraph(
      nullptr, [&](const std::shared_ptr<NNFilterNode>& node, const std::shared_ptr<NNFilterNode>& forward,
                   const std::shared_ptr<NNImageNode>&, const std::shared_ptr<NNImageNode>&) {
        calls.push_back(node->className());
        forwards.push_back(forward);
      });
  const std::vector<std::string> expected{
      "CNNFullyConnectedGradientNode", "NNAdditionGradientNode", "NNAdditionGradientNode",
      "CNNConvolutionGradientNode",    "NNAdditionNode",         "CNNConvolutionGradientNode"};
  EXPECT_EQ(calls, expected);
  ASSERT_EQ(forwards.size(), 6U);
  EXPECT_EQ(forwards[0], net.f5);
  EXPECT_EQ(forwards[1], net.f3);
  EXPECT_EQ(forwards[3], net.f2);
  EXPECT_EQ(forwards[4], nullptr);
  EXPECT_EQ(forwards[5], net.f1);
  ASSERT_EQ(termini.size(), 1U);
  EXPECT_EQ(termini[0]->className(), "CNNConvolutionGradientNode");
}

TEST(TrainingGraph, StopGradientOnTheForkLeavesItsContributionsAsTermini) {
  Residual net;
  net.f1->resultImage()->setStopGradient(true);
  const auto termini = net.f6->trainingGraph(nullptr);
  ASSERT_EQ(termini.size(), 2U);
  EXPECT_EQ(termini[0]->className(), "NNAdditionGradientNode");
  EXPECT_EQ(termini[1]->className(), "CNNConvolutionGradientNode");
}

TEST(TrainingGraph, AHandlerPrunesABranch) {
  Residual net;
  const auto termini = net.f6->trainingGraph(
      nullptr, [&](const std::shared_ptr<NNFilterNode>& node, const std::shared_ptr<NNFilterNode>& forward,
                   const std::shared_ptr<NNImageNode>&, const std::shared_ptr<NNImageNode>&) {
        if (forward == net.f2) node->resultImage()->setStopGradient(true);
      });
  ASSERT_EQ(termini.size(), 2U);
  EXPECT_EQ(termini[0]->className(), "CNNConvolutionGradientNode");
  EXPECT_EQ(termini[1]->className(), "CNNConvolutionGradientNode");
}

TEST(TrainingGraph, AHandlerPrunesAtAnAddition) {
  for (const bool stopsAtTheSource : {false, true}) {
    Residual net;
    std::vector<std::string> calls;
    const auto termini = net.f6->trainingGraph(
        nullptr, [&](const std::shared_ptr<NNFilterNode>& node, const std::shared_ptr<NNFilterNode>& forward,
                     const std::shared_ptr<NNImageNode>& source, const std::shared_ptr<NNImageNode>&) {
          calls.push_back(node->className());
          if (!forward) (stopsAtTheSource ? source : node->resultImage())->setStopGradient(true);
        });
    ASSERT_EQ(calls.size(), 5U) << "no gradient of F1";
    ASSERT_EQ(termini.size(), 1U);
    EXPECT_EQ(termini[0]->className(), "NNAdditionNode");
  }
}

/// Of three contributions, the third is added to nothing.
TEST(TrainingGraph, WhatIsPrunedAtAnAdditionLeavesTheRestAsTermini) {
  const auto first =
      CNNConvolutionNode::create(NNImageNode::create(), test::layer(device(), 1, 4, 4, "first"));
  const auto sum = NNAdditionNode::create(first->resultImage(), first->resultImage());
  const auto last = NNAdditionNode::create(sum->resultImage(), first->resultImage());
  const auto termini = last->trainingGraph(
      NNImageNode::create(),
      [](const std::shared_ptr<NNFilterNode>& node, const std::shared_ptr<NNFilterNode>& forward,
         const std::shared_ptr<NNImageNode>&, const std::shared_ptr<NNImageNode>&) {
        if (!forward) node->resultImage()->setStopGradient(true);
      });
  ASSERT_EQ(termini.size(), 2U);
  EXPECT_EQ(termini[0]->className(), "NNAdditionGradientNode");
  EXPECT_EQ(termini[1]->className(), "NNAdditionNode");
}

TEST(TrainingGraph, WithoutHandlerGradientsGetTheHandlesOfTheirSources) {
  Residual net;
  const auto termini = net.f6->trainingGraph(nullptr);
  ASSERT_EQ(termini.size(), 1U);
  EXPECT_EQ(termini[0]->resultImage()->handle(), net.x->handle());
}

TEST(TrainingGraph, AFormatSetInTheHandlerGoesOnToLaterNodes) {
  Residual net;
  const auto termini = net.f6->trainingGraph(
      nullptr, [&](const std::shared_ptr<NNFilterNode>& node, const std::shared_ptr<NNFilterNode>& forward,
                   const std::shared_ptr<NNImageNode>&, const std::shared_ptr<NNImageNode>&) {
        if (forward == net.f5) node->resultImage()->setFormat(ImageFeatureChannelFormat::Float16);
      });
  EXPECT_EQ(termini[0]->resultImage()->format(), ImageFeatureChannelFormat::Float16);
}

TEST(TrainingGraph, AForkedInputIsJoinedToo) {
  const auto x = NNImageNode::create();
  const auto a = CNNConvolutionNode::create(x, test::layer(device(), 1, 4, 4, "a"));
  const auto sum = NNAdditionNode::create(a->resultImage(), x);
  const auto gradient = NNImageNode::create();
  const auto termini = sum->trainingGraph(gradient);
  ASSERT_EQ(termini.size(), 1U);
  EXPECT_EQ(termini[0]->className(), "NNAdditionNode");
}

TEST(TrainingGraph, NothingToBuildGivesNothing) {
  Residual net;
  net.f5->resultImage()->setStopGradient(true);
  EXPECT_TRUE(net.f6->trainingGraph(nullptr).empty());
}

/// What a graph of these nodes throws; empty when it is made.
std::string refusalOf(const std::shared_ptr<NNFilterNode>& last) {
  return testing::errorOf([&] { NNGraph::create(device(), last->resultImage()); });
}

TEST(TrainingGraph, AGradientOfAnotherLayerIsRefusedWithBothNodes) {
  Residual net;
  net.f1->setLabel("first");
  net.f2->setLabel("second");
  net.f3->setLabel("sum");
  net.f5->setLabel("fifth");
  net.f6->setLabel("loss");
  const auto refusal = [](const std::string& giver) {
    return "CNNConvolutionGradientNode \"second gradient\": sourceGradient is the gradient of source 0 of " +
           giver + ", expected that of the result of CNNConvolutionNode \"second\"";
  };
  EXPECT_EQ(refusalOf(net.f2->gradientFilter(net.f6->resultImage())), refusal("CNNLossNode \"loss\""));
  const auto ofFifth = net.f5->gradientFilter(net.f6->resultImage());
  const auto ofSum = net.f3->gradientFilters(ofFifth->resultImage());
  EXPECT_EQ(refusalOf(net.f2->gradientFilter(ofSum[0]->resultImage())), refusal("NNAdditionNode \"sum\""));
  EXPECT_EQ(refusalOf(net.f2->gradientFilter(ofSum[1]->resultImage())), "");
}

TEST(TrainingGraph, AShortWayAroundAnAdditionIsNotRefused) {
  Residual net;
  const auto ofFifth = net.f5->gradientFilter(net.f6->resultImage());
  EXPECT_EQ(refusalOf(net.f2->gradientFilter(ofFifth->resultImage())), "");
  EXPECT_EQ(refusalOf(net.f1->gradientFilter(ofFifth->resultImage())), "");
  net.f3->setSecondaryScale(2);
  EXPECT_NE(refusalOf(net.f2->gradientFilter(ofFifth->resultImage())), "");
  EXPECT_EQ(refusalOf(net.f1->gradientFilter(ofFifth->resultImage())), "");
}

TEST(TrainingGraph, NoShortWayGoesAroundAnAdditionThatCutsOffOrBroadcasts) {
  const auto refusal = [](const std::function<void(NNAdditionNode&)>& change) {
    Residual net;
    change(*net.f3);
    const auto ofFifth = net.f5->gradientFilter(net.f6->resultImage());
    return refusalOf(net.f2->gradientFilter(ofFifth->resultImage()));
  };
  EXPECT_EQ(refusal([](NNAdditionNode&) {}), "");
  EXPECT_NE(refusal([](NNAdditionNode& sum) { sum.setMaximumValue(0.5F); }), "");
  EXPECT_NE(refusal([](NNAdditionNode& sum) { sum.setMinimumValue(0); }), "");
  EXPECT_NE(refusal([](NNAdditionNode& sum) { sum.setSecondaryStrideInPixelsX(0); }), "");
  EXPECT_NE(refusal([](NNAdditionNode& sum) { sum.setSecondaryStrideInPixelsY(0); }), "");
  EXPECT_NE(refusal([](NNAdditionNode& sum) { sum.setSecondaryStrideInFeatureChannels(0); }), "");
  EXPECT_EQ(refusal([](NNAdditionNode& sum) { sum.setPrimaryStrideInPixelsX(0); }), "")
      << "f2 is the other source";
}

TEST(TrainingGraph, ASumWithAGradientOfAnotherImageIsRefused) {
  Residual net;
  net.f1->setLabel("first");
  net.f2->setLabel("second");
  const auto ofF5 = net.f5->gradientFilter(net.f6->resultImage());
  const auto ofF2 = net.f2->gradientFilter(ofF5->resultImage());
  const auto ofF1 =
      net.f1->gradientFilter(NNAdditionNode::create(ofF5->resultImage(), ofF2->resultImage())->resultImage());
  EXPECT_EQ(refusalOf(ofF1), "");
  const auto further = NNAdditionNode::create(ofF5->resultImage(), ofF1->resultImage());
  const auto sum = NNAdditionNode::create(ofF2->resultImage(), further->resultImage());
  EXPECT_TRUE(
      testing::names(refusalOf(net.f1->gradientFilter(sum->resultImage())),
                     {"\"first gradient\"", "sourceGradient", "source 0 of CNNConvolutionNode \"first\"",
                      "expected that of the result of CNNConvolutionNode \"first\""}));
  further->setPrimaryScale(2);
  EXPECT_EQ(refusalOf(net.f1->gradientFilter(sum->resultImage())), "") << "no plain sum: the user's own";
}

TEST(TrainingGraph, AGradientOfALossWithoutStateIsRefusedByAnotherLayer) {
  const auto relu = CNNNeuronReLUNode::create(NNImageNode::create());
  const auto tanh = CNNNeuronTanHNode::create(relu->resultImage());
  relu->setLabel("relu");
  const auto descriptor =
      CNNLossDescriptor::cnnLossDescriptor(CNNLossType::MeanSquaredError, CNNReductionType::Sum);
  const auto gradient = [&](const std::shared_ptr<NNImageNode>& predictions,
                            const std::shared_ptr<NNImageNode>& labels, bool ofLabels) {
    return NNLossGradientNode::create(NNImageNode::create(), predictions, labels, nullptr, nullptr,
                                      descriptor, ofLabels)
        ->resultImage();
  };
  const auto other = NNImageNode::create();
  EXPECT_TRUE(testing::names(refusalOf(relu->gradientFilter(gradient(tanh->resultImage(), other, false))),
                             {"\"relu gradient\"", "source 1 of NNLossGradientNode"}));
  EXPECT_EQ(refusalOf(relu->gradientFilter(gradient(relu->resultImage(), other, false))), "");
  EXPECT_EQ(refusalOf(relu->gradientFilter(gradient(other, relu->resultImage(), true))), "");
  EXPECT_TRUE(testing::names(refusalOf(relu->gradientFilter(gradient(relu->resultImage(), other, true))),
                             {"\"relu gradient\"", "source 2 of NNLossGradientNode"}));
}

TEST(TrainingGraph, AShortWayAroundAnAdditionIsRight) {
  Residual net;
  const auto ofF5 = net.f5->gradientFilter(net.f6->resultImage());
  const auto ofF2 = net.f2->gradientFilter(ofF5->resultImage());
  const auto join = NNAdditionNode::create(ofF5->resultImage(), ofF2->resultImage());
  const auto graph = NNGraph::create(device(), net.f1->gradientFilter(join->resultImage())->resultImage());
  auto images = ImageBatch::create(device(), testing::sizeOf(1, 1, 4), 2);
  images.writeBytes(std::span<const float>(testing::Values{1, -2, 0.5F, 3, 2, 0.25F, -1, 4}),
                    testing::pixelsFirst);
  auto targets = ImageBatch::create(device(), testing::sizeOf(1, 1, 2), 2);
  targets.writeBytes(std::span<const float>(testing::Values{0.5F, -0.5F, 1, 2}), testing::pixelsFirst);
  const auto report =
      checkGradients(*graph, {images}, {CNNLossLabels::createBatch(device(), {1, 1, 1}, targets)});
  EXPECT_EQ(report.describe(), "");
  EXPECT_TRUE(report.passed());
}

TEST(TrainingGraph, AGradientThatIsMeantToSkipALayerGoesThroughANodeOfItsOwn) {
  Residual net;
  const auto ofF5 = net.f5->gradientFilter(net.f6->resultImage());
  const auto ofF2 = net.f2->gradientFilter(net.f3->gradientFilters(ofF5->resultImage())[1]->resultImage());
  const auto same = CNNNeuronLinearNode::create(ofF2->resultImage());
  EXPECT_NE(refusalOf(net.f2->gradientFilter(ofF2->resultImage())), "");
  EXPECT_EQ(refusalOf(net.f1->gradientFilter(same->resultImage())), "");
}

TEST(TrainingGraph, TheResidualNetworkLearns) {
  Residual net;
  const auto termini = net.f6->trainingGraph(nullptr);
  const auto graph = NNGraph::create(device(), termini[0]->resultImage(), false);
  const auto queue = device()->newCommandQueue();
  const auto image = Image::create(device(), {ImageFeatureChannelFormat::Float32, 1, 1, 4});
  const std::vector<float> values{1, -2, 0.5F, 3};
  image->writeBytes(std::span<const float>(values), DataLayout::HeightxWidthxFeatureChannels);
  const std::vector<float> target{0.5F, -0.5F};
  const auto labels =
      CNNLossLabels::create(device(), CNNLossDataDescriptor::cnnLossDataDescriptor(
                                          target, DataLayout::HeightxWidthxFeatureChannels, {1, 1, 2}));
  const auto step = [&] {
    const auto commandBuffer = queue->commandBuffer();
    graph->encode(commandBuffer, {image}, {labels});
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    float loss = 0;
    labels->lossImage()->readBytes(std::span(&loss, 1), DataLayout::HeightxWidthxFeatureChannels);
    return loss;
  };
  const float before = step();
  for (int i = 0; i < 5; ++i) step();
  EXPECT_LT(step(), before);
}

/// One stack frame for each node would overflow the stack.
TEST(TrainingGraph, ALongNetworkIsLetGoWithoutRecursion) {
  auto image = NNImageNode::create();
  std::vector<std::shared_ptr<NNFilterNode>> nodes;
  for (int i = 0; i < 80000; ++i) {
    nodes.push_back(CNNNeuronReLUNode::create(image));
    image = nodes.back()->resultImage();
  }
  for (std::size_t i = nodes.size(); i-- > 0;) image = nodes[i]->gradientFilter(image)->resultImage();
  const std::weak_ptr<NNFilterNode> first = nodes.front();
  nodes.clear();
  EXPECT_FALSE(first.expired()) << "the gradients hold it";
  image.reset();
  EXPECT_TRUE(first.expired());
}

/// As a binding of another language holds images: it owns an object that owns the node.
TEST(TrainingGraph, ANodeThatIsLetGoLeavesNodesThatAreHeldInAnotherWay) {
  const auto node = CNNNeuronReLUNode::create(NNImageNode::create());
  const auto ownedElsewhere = [&] {
    return std::shared_ptr<NNImageNode>(node->resultImage().get(), [owner = node](NNImageNode*) {});
  };
  auto next = CNNNeuronReLUNode::create(ownedElsewhere());
  next.reset();
  EXPECT_EQ(node->sources().size(), 1U);
}

}  // namespace
}  // namespace mps::training_graph_test
