#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "mps/arithmetic/arithmetic_node.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/graph/check/test_network.hpp"
#include "mps/softmax/softmax.hpp"

/// Gradient nodes that an application chains by hand, and how a graph refuses wrongly wired ones.
namespace mps::gradient_chain_test {
namespace {

using Source = std::shared_ptr<NNImageNode>;

const std::shared_ptr<mtl::Device>& device() {
  static const auto device = mtl::createSystemDefaultDevice();
  return device;
}

template <class Node>
std::shared_ptr<Node> labelled(std::shared_ptr<Node> node, const std::string& label) {
  node->setLabel(label);
  return node;
}

/// What a graph that ends with this gradient throws; empty when it is made.
std::string refusalOf(const std::shared_ptr<NNFilterNode>& gradient) {
  gradient->setLabel("gradient");
  return testing::errorOf([&] { NNGraph::create(device(), gradient->resultImage()); });
}

std::string refusal(const std::string& className, const std::string& argument, const std::string& found,
                    const std::string& expected) {
  return className + " \"gradient\": " + argument + " is " + found + ", expected " + expected;
}

/// A layer and something behind it.
struct GradientChain : ::testing::Test {
  Source x = NNImageNode::create();
  Source g = NNImageNode::create();
  std::shared_ptr<CNNNeuronLinearNode> before = labelled(CNNNeuronLinearNode::create(x, 2, 1), "before");
  Source between = before->resultImage();
};

TEST_F(GradientChain, ANeuronsGradientTakesTheNeuronsSource) {
  const auto neuron = labelled(CNNNeuronSigmoidNode::create(between), "neuron");
  const auto given = [&](const Source& image) {
    return refusalOf(CNNNeuronGradientNode::create(g, image, neuron->resultState(), neuron->descriptor()));
  };
  const auto refused = [](const std::string& found) {
    return refusal("CNNNeuronGradientNode", "sourceImage", found,
                   "source 0 of CNNNeuronSigmoidNode \"neuron\"");
  };
  EXPECT_EQ(given(between), "");
  EXPECT_EQ(given(x), refused("source 0 of CNNNeuronLinearNode \"before\""));
  EXPECT_EQ(given(NNImageNode::create()), refused("another input of the graph"));
  EXPECT_EQ(given(neuron->resultImage()), refused("the result of CNNNeuronSigmoidNode \"neuron\""));
  EXPECT_EQ(given(labelled(CNNNeuronTanHNode::create(x), "other")->resultImage()),
            refused("the result of CNNNeuronTanHNode \"other\""));
}

TEST_F(GradientChain, SoDoesThatOfAMaximumThoughItsStateSaysWhereItWas) {
  const auto pooling = labelled(CNNPoolingMaxNode::create(between, 3, 1), "pooling");
  const auto given = [&](const Source& image) {
    return refusalOf(CNNPoolingMaxGradientNode::create(g, image, pooling->resultState(), 3, 3, 1, 1));
  };
  EXPECT_EQ(given(between), "");
  EXPECT_EQ(given(x),
            refusal("CNNPoolingMaxGradientNode", "sourceImage", "source 0 of CNNNeuronLinearNode \"before\"",
                    "source 0 of CNNPoolingMaxNode \"pooling\""));
}

TEST_F(GradientChain, TheGradientOfASoftmaxTakesItsResult) {
  const auto softMax = labelled(CNNSoftMaxNode::create(between), "soft");
  const auto logarithm = labelled(CNNLogSoftMaxNode::create(between), "log");
  EXPECT_EQ(refusalOf(CNNSoftMaxGradientNode::create(g, softMax->resultImage(), softMax->resultState())), "");
  EXPECT_EQ(refusalOf(CNNSoftMaxGradientNode::create(g, between, softMax->resultState())),
            refusal("CNNSoftMaxGradientNode", "sourceImage", "source 0 of CNNSoftMaxNode \"soft\"",
                    "the result of CNNSoftMaxNode \"soft\""));
  EXPECT_EQ(refusalOf(CNNSoftMaxGradientNode::create(g, logarithm->resultImage(), softMax->resultState())),
            refusal("CNNSoftMaxGradientNode", "sourceImage", "the result of CNNLogSoftMaxNode \"log\"",
                    "the result of CNNSoftMaxNode \"soft\""));
  EXPECT_EQ(refusalOf(CNNLogSoftMaxGradientNode::create(g, x, logarithm->resultState())),
            refusal("CNNLogSoftMaxGradientNode", "sourceImage", "source 0 of CNNNeuronLinearNode \"before\"",
                    "the result of CNNLogSoftMaxNode \"log\""));
}

TEST_F(GradientChain, TheGradientOfAProductTakesTheOtherFactorAndThatOfAQuotientTheDivisor) {
  const auto product = labelled(NNMultiplicationNode::create(x, between), "product");
  const auto quotient = labelled(NNDivisionNode::create(x, between), "quotient");
  for (const bool isSecondary : {false, true}) {
    const auto ofProduct = [&](const Source& image) {
      return refusalOf(NNMultiplicationGradientNode::create(g, image, product->resultState(), isSecondary));
    };
    const auto ofQuotient = [&](const Source& image) {
      return refusalOf(NNDivisionGradientNode::create(g, image, quotient->resultState(), isSecondary));
    };
    const auto sourceOf = [](int source, const std::string& forward) {
      return "source " + std::to_string(source) + " of " + forward;
    };
    EXPECT_EQ(ofProduct(isSecondary ? x : between), "");
    EXPECT_EQ(ofProduct(isSecondary ? between : x),
              refusal("NNMultiplicationGradientNode", "sourceImage",
                      sourceOf(isSecondary ? 1 : 0, "NNMultiplicationNode \"product\""),
                      sourceOf(isSecondary ? 0 : 1, "NNMultiplicationNode \"product\"")));
    EXPECT_EQ(ofQuotient(between), "");
    EXPECT_EQ(ofQuotient(x),
              refusal("NNDivisionGradientNode", "sourceImage", sourceOf(0, "NNDivisionNode \"quotient\""),
                      sourceOf(1, "NNDivisionNode \"quotient\"")));
  }
}

/// docs/decisions.md, D10.
TEST_F(GradientChain, WhereOnlyTheSizeCountsAnyImageButTheResultIsTaken) {
  const auto pooling = labelled(CNNPoolingAverageNode::create(between, 3, 1), "pooling");
  const auto sum = labelled(NNAdditionNode::create(x, between), "sum");
  for (const Source& image : {between, x, NNImageNode::create()}) {
    EXPECT_EQ(refusalOf(CNNPoolingAverageGradientNode::create(g, image, pooling->resultState(), 3, 3, 1, 1)),
              "");
    EXPECT_EQ(refusalOf(NNAdditionGradientNode::create(g, image, sum->resultState(), false)), "");
    EXPECT_EQ(refusalOf(NNAdditionGradientNode::create(g, image, sum->resultState(), true)), "");
  }
  EXPECT_EQ(refusalOf(CNNPoolingAverageGradientNode::create(g, pooling->resultImage(), pooling->resultState(),
                                                            3, 3, 1, 1)),
            refusal("CNNPoolingAverageGradientNode", "sourceImage",
                    "the result of CNNPoolingAverageNode \"pooling\"",
                    "source 0 of CNNPoolingAverageNode \"pooling\""));
  EXPECT_EQ(refusalOf(NNAdditionGradientNode::create(g, sum->resultImage(), sum->resultState(), true)),
            refusal("NNAdditionGradientNode", "sourceImage", "the result of NNAdditionNode \"sum\"",
                    "source 1 of NNAdditionNode \"sum\""));
}

TEST_F(GradientChain, TheStateOfANodeOfAnotherKindIsRefused) {
  const auto pooling = labelled(CNNPoolingMaxNode::create(between, 3, 1), "pooling");
  EXPECT_EQ(refusalOf(CNNPoolingAverageGradientNode::create(g, between, pooling->resultState(), 3, 3, 1, 1)),
            refusal("CNNPoolingAverageGradientNode", "gradientState", "that of CNNPoolingMaxNode \"pooling\"",
                    "that of a node which this is the gradient of"));
}

TEST_F(GradientChain, TheGradientOfALossTakesItsImages) {
  const auto descriptor =
      CNNLossDescriptor::cnnLossDescriptor(CNNLossType::MeanSquaredError, CNNReductionType::Sum);
  const auto labels = NNImageNode::create(), weights = NNImageNode::create();
  const auto plain = labelled(NNForwardLossNode::create(between, labels, descriptor), "plain");
  const auto weighted = labelled(NNForwardLossNode::create(between, labels, weights, descriptor), "weighted");
  const std::string linear = "source 0 of CNNNeuronLinearNode \"before\"";
  for (const bool ofLabels : {false, true}) {
    const auto given = [&](NNForwardLossNode& loss, const std::vector<Source>& images) {
      std::vector<Source> sources{g};
      sources.insert(sources.end(), images.begin(), images.end());
      return refusalOf(NNLossGradientNode::create(sources, loss.resultState(), descriptor, ofLabels));
    };
    const auto refused = [](const std::string& argument, const std::string& found,
                            const std::string& expected) {
      return refusal("NNLossGradientNode", argument, found, expected);
    };
    EXPECT_EQ(given(*plain, {between, labels}), "");
    EXPECT_EQ(given(*weighted, {between, labels, weights}), "");
    EXPECT_EQ(given(*plain, {x, labels}),
              refused("sourceImage", linear, "source 0 of NNForwardLossNode \"plain\""));
    EXPECT_EQ(given(*plain, {between, x}),
              refused("labels", linear, "source 1 of NNForwardLossNode \"plain\""));
    EXPECT_EQ(given(*weighted, {between, labels, x}),
              refused("weights", linear, "source 2 of NNForwardLossNode \"weighted\""));
    EXPECT_EQ(given(*weighted, {between, labels}),
              refused("weights", "none", "source 2 of NNForwardLossNode \"weighted\""));
    EXPECT_EQ(given(*plain, {between, labels, weights}),
              refused("weights", "another input of the graph", "none, as NNForwardLossNode \"plain\" has"));
  }
}

}  // namespace
}  // namespace mps::gradient_chain_test
