#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mps/arithmetic/arithmetic_node.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/graph/check/test_network.hpp"
#include "mps/graph/compile/graph_program.hpp"

/// The pass that puts a neuron into the convolution before it, and what it never crosses.
namespace mps::neuron_fusion_test {
namespace {

using testing::Values;
using testing::valuesOf;

/// Changes nothing; what its flag bits allow counts.
class CustomPolicy final : public NNPadding {
 public:
  explicit CustomPolicy(NNPaddingMethod method) : method_(method) {}
  [[nodiscard]] NNPaddingMethod paddingMethod() const override { return method_; }
  ImageDescriptor destinationImageDescriptor(std::span<const std::shared_ptr<Image>>,
                                             std::span<const std::shared_ptr<State>>, Kernel&,
                                             const ImageDescriptor& suggestedDescriptor) override {
    ++calls;
    return suggestedDescriptor;
  }
  int calls = 0;

 private:
  NNPaddingMethod method_;
};

class NeuronFusion : public testing::DeviceTest {
 protected:
  using MakeNeuron = std::function<std::shared_ptr<CNNNeuronNode>(std::shared_ptr<NNImageNode>)>;

  std::shared_ptr<CNNConvolutionNode> makeConvolution() {
    return CNNConvolutionNode::create(NNImageNode::create(), test::layer(device_, 3, 1, 4, "conv"));
  }
  static std::size_t fusedSteps(const NNGraph& graph) {
    std::size_t count = 0;
    for (const auto& step : graph.program().steps) count += step.fused.empty() ? 0U : 1U;
    return count;
  }
  bool fuses() { return fuses({neuron_->resultImage()}); }
  bool fuses(const std::vector<std::shared_ptr<NNImageNode>>& results) {
    return fusedSteps(*NNGraph::create(device_, results)) > 0;
  }
  Values resultOf(const std::shared_ptr<NNImageNode>& node) {
    const auto graph = NNGraph::create(device_, node);
    const auto buffer = commands();
    const auto result = graph->encode(buffer, {test::pictures(device_, 2)[0]});
    run(buffer);
    return valuesOf(*result);
  }
  ImageDescriptor resultSizeOf(const std::shared_ptr<NNFilterNode>& node,
                               const std::shared_ptr<Image>& picture) {
    const auto buffer = commands();
    const auto result = NNGraph::create(device_, node->resultImage())->encode(buffer, {picture});
    run(buffer);
    return result->descriptor();
  }
  /// Whether the neuron is fused in a network that trains through it.
  bool fusesInTraining(const MakeNeuron& make) {
    const auto convolution = makeConvolution();
    const auto neuron = make(convolution->resultImage());
    const auto loss = CNNLossNode::create(
        neuron->resultImage(),
        CNNLossDescriptor::cnnLossDescriptor(CNNLossType::MeanSquaredError, CNNReductionType::Sum));
    const auto termini = loss->trainingGraph(nullptr);
    return fusedSteps(*NNGraph::create(device_, termini.at(0)->resultImage(), false)) > 0;
  }

  std::shared_ptr<CNNConvolutionNode> convolution_ = makeConvolution();
  std::shared_ptr<CNNNeuronNode> neuron_ = CNNNeuronTanHNode::create(convolution_->resultImage());
};

TEST_F(NeuronFusion, ANeuronGoesIntoTheConvolutionBeforeItAndTheResultIsTheSame) {
  const auto graph = NNGraph::create(device_, neuron_->resultImage());
  ASSERT_EQ(graph->program().steps.size(), 1U);
  EXPECT_EQ(graph->program().steps[0].fused, neuron_->describe());
  const Values fused = resultOf(neuron_->resultImage());
  convolution_->resultImage()->setExportFromGraph(true);
  EXPECT_FALSE(fuses());
  EXPECT_EQ(resultOf(neuron_->resultImage()), fused);
}

TEST_F(NeuronFusion, NotWhenTheConvolutionsResultIsExported) {
  ASSERT_TRUE(fuses());
  convolution_->resultImage()->setExportFromGraph(true);
  EXPECT_FALSE(fuses());
}

TEST_F(NeuronFusion, NotWhenTheConvolutionsResultIsAResultOfTheGraph) {
  EXPECT_FALSE(fuses({neuron_->resultImage(), convolution_->resultImage()}));
}

TEST_F(NeuronFusion, NotWhenTheConvolutionsResultIsReadTwice) {
  const auto sum = NNAdditionNode::create(neuron_->resultImage(), convolution_->resultImage());
  EXPECT_FALSE(fuses({sum->resultImage()}));
  const auto second = CNNNeuronSigmoidNode::create(convolution_->resultImage());
  const auto both = NNAdditionNode::create(neuron_->resultImage(), second->resultImage());
  EXPECT_FALSE(fuses({both->resultImage()}));
}

TEST_F(NeuronFusion, ASecondReaderThatNothingNeedsIsNoBarrier) {
  const auto unneeded = CNNNeuronSigmoidNode::create(convolution_->resultImage());
  EXPECT_TRUE(fusedSteps(*NNGraph::create(device_, {neuron_->resultImage(), unneeded->resultImage()},
                                          {true, false})) > 0);
}

TEST_F(NeuronFusion, NotAcrossAChangeOfFormat) {
  neuron_->resultImage()->setFormat(ImageFeatureChannelFormat::Float16);
  EXPECT_FALSE(fuses());
  convolution_->resultImage()->setFormat(ImageFeatureChannelFormat::Float16);
  EXPECT_TRUE(fuses()) << "the same format again";
}

TEST_F(NeuronFusion, NotWhenTheConvolutionsResultHasAnAllocatorOfItsOwn) {
  convolution_->resultImage()->setImageAllocator(Image::defaultAllocator());
  EXPECT_FALSE(fuses());
}

TEST_F(NeuronFusion, NotWithACustomPaddingPolicyOnTheNeuronUnlessItAllowsIt) {
  const auto custom = std::make_shared<CustomPolicy>(NNPaddingMethod::SizeSame | NNPaddingMethod::Custom);
  neuron_->setPaddingPolicy(custom);
  EXPECT_FALSE(fuses());
  const Values apart = resultOf(neuron_->resultImage());
  EXPECT_GT(custom->calls, 0);

  const auto allowing = std::make_shared<CustomPolicy>(NNPaddingMethod::SizeSame | NNPaddingMethod::Custom |
                                                       NNPaddingMethod::CustomWhitelistForNodeFusion);
  neuron_->setPaddingPolicy(allowing);
  EXPECT_TRUE(fuses());
  EXPECT_EQ(resultOf(neuron_->resultImage()), apart);
  EXPECT_EQ(allowing->calls, 0) << "then the policy is never asked";
}

TEST_F(NeuronFusion, NotWhenTheNeuronsStateIsExported) {
  neuron_->resultState()->setExportFromGraph(true);
  EXPECT_FALSE(fuses());
}

TEST_F(NeuronFusion, NotIntoAConvolutionThatHasANeuronAlready) {
  const auto descriptor = [] {
    auto made = CNNConvolutionDescriptor::cnnConvolutionDescriptor(3, 3, 1, 4);
    made.setFusedNeuronDescriptor(NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::Sigmoid));
    return made;
  }();
  const auto source = TrainableConvolution::create(device_, descriptor, "conv", 1, test::sgd(device_));
  const auto convolution = CNNConvolutionNode::create(NNImageNode::create(), source);
  EXPECT_FALSE(fuses({CNNNeuronTanHNode::create(convolution->resultImage())->resultImage()}));
  const auto second = CNNNeuronAbsoluteNode::create(neuron_->resultImage());
  const auto graph = NNGraph::create(device_, second->resultImage());
  ASSERT_EQ(graph->program().steps.size(), 2U) << "of two neurons in a row the first one";
  EXPECT_EQ(graph->program().steps[0].fused, neuron_->describe());
  EXPECT_EQ(graph->program().steps[1].name, second->describe());
}

TEST_F(NeuronFusion, NotIntoAnythingButAConvolution) {
  const auto pool = CNNPoolingMaxNode::create(NNImageNode::create(), 2);
  EXPECT_FALSE(fuses({CNNNeuronReLUNode::create(pool->resultImage())->resultImage()}));
  EXPECT_FALSE(fuses({CNNNeuronReLUNode::create(NNImageNode::create())->resultImage()}));
}

/// A gradient node made by hand may have the function of another neuron.
TEST_F(NeuronFusion, NotWhereItsGradientIsThatOfAnotherFunctionWhichIsRefused) {
  const auto input = NNImageNode::create();
  const auto sum = NNAdditionNode::create(input, input);
  for (const auto& before : std::vector<std::shared_ptr<NNFilterNode>>{convolution_, sum}) {
    const auto relu = CNNNeuronReLUNode::create(before->resultImage());
    const auto gradientOf = [&](float slope) {
      return CNNNeuronGradientNode::create(
          NNImageNode::create(), before->resultImage(), relu->resultState(),
          NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU, slope));
    };
    EXPECT_TRUE(fuses({gradientOf(0)->resultImage()})) << before->describe();
    const auto wrong = gradientOf(0.5F)->resultImage();
    EXPECT_FALSE(fuses({wrong})) << before->describe();
    const auto graph = NNGraph::create(device_, wrong);
    const auto picture = test::pictures(device_, 2)[0];
    const auto gradient = before == sum ? picture : Image::create(device_, resultSizeOf(before, picture));
    EXPECT_TRUE(
        testing::names(testing::errorOf([&] {
                         graph->encode(commands(), {gradient, picture});
                       }),
                       {"CNNNeuronGradient", "neuronDescriptor", "0.5", "that of the forward kernel"}));
  }
}

TEST_F(NeuronFusion, IntoAFullyConnectedLayerToo) {
  const auto dense = CNNFullyConnectedNode::create(NNImageNode::create(), test::layer(device_, 8, 1, 3, "d"));
  EXPECT_TRUE(fuses({CNNNeuronReLUNode::create(dense->resultImage())->resultImage()}));
}

TEST_F(NeuronFusion, InTrainingOnlyWhereTheDerivativeCanBeComputedFromTheResult) {
  using Source = std::shared_ptr<NNImageNode>;
  const std::vector<std::pair<MakeNeuron, bool>> table{
      {[](const Source& x) { return CNNNeuronReLUNode::create(x); }, true},
      {[](const Source& x) { return CNNNeuronReLUNode::create(x, 0.1F); }, true},
      {[](const Source& x) { return CNNNeuronReLUNode::create(x, -0.1F); }, false},
      {[](const Source& x) { return CNNNeuronLinearNode::create(x, 2, 1); }, true},
      {[](const Source& x) { return CNNNeuronSigmoidNode::create(x); }, true},
      {[](const Source& x) { return CNNNeuronTanHNode::create(x); }, true},
      {[](const Source& x) { return CNNNeuronSoftSignNode::create(x); }, true},
      {[](const Source& x) { return CNNNeuronSoftPlusNode::create(x); }, true},
      {[](const Source& x) { return CNNNeuronELUNode::create(x); }, true},
      {[](const Source& x) { return CNNNeuronExponentialNode::create(x); }, true},
      {[](const Source& x) { return CNNNeuronHardSigmoidNode::create(x); }, false},
      {[](const Source& x) { return CNNNeuronAbsoluteNode::create(x); }, false},
      {[](const Source& x) { return CNNNeuronPowerNode::create(x, 1, 0, 2); }, false},
      {[](const Source& x) { return CNNNeuronLogarithmNode::create(x); }, false},
      {[](const Source& x) { return CNNNeuronGeLUNode::create(x); }, false},
  };
  for (const auto& [make, expected] : table) {
    const auto neuron = make(convolution_->resultImage());
    EXPECT_EQ(fusesInTraining(make), expected) << neuron->describe();
    EXPECT_TRUE(fuses({neuron->resultImage()})) << "without a gradient every neuron: " << neuron->describe();
  }
}

TEST_F(NeuronFusion, InTrainingTheGradientReadsTheResultInPlaceOfTheSource) {
  const auto relu = CNNNeuronReLUNode::create(convolution_->resultImage());
  const auto loss = CNNLossNode::create(
      relu->resultImage(),
      CNNLossDescriptor::cnnLossDescriptor(CNNLossType::MeanSquaredError, CNNReductionType::Sum));
  const auto termini = loss->trainingGraph(nullptr);
  const auto graph = NNGraph::create(device_, termini.at(0)->resultImage(), false);
  const auto& steps = graph->program().steps;
  ASSERT_EQ(fusedSteps(*graph), 1U);
  EXPECT_EQ(steps[0].fused, relu->describe());
  bool found = false;
  for (const auto& step : steps) {
    if (step.name.find("NeuronGradient") == std::string::npos &&
        step.name.find("ReLUGradient") == std::string::npos)
      continue;
    found = true;
    EXPECT_EQ(step.forward, 0U);
    EXPECT_EQ(step.sources[1], steps[0].result);
  }
  EXPECT_TRUE(found) << graph->debugDescription();
}

}  // namespace
}  // namespace mps::neuron_fusion_test
