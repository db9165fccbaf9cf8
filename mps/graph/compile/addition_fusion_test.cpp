#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "mps/arithmetic/arithmetic.hpp"
#include "mps/arithmetic/arithmetic_node.hpp"
#include "mps/conform/check_gradients.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/graph/check/test_network.hpp"
#include "mps/graph/compile/graph_program.hpp"
#include "mtl/check/test_devices.hpp"

/// The pass that puts a plain ReLU into the addition before it.
namespace mps::addition_fusion_test {
namespace {

using testing::Values;
using testing::valuesOf;

using Source = std::shared_ptr<NNImageNode>;
using MakeNeuron = std::function<std::shared_ptr<CNNNeuronNode>(const Source&)>;
using Weights = std::vector<Values>;

class AdditionFusion : public ::testing::TestWithParam<std::shared_ptr<mtl::Device>> {
 protected:
  static std::shared_ptr<CNNNeuronNode> relu(const Source& x) { return CNNNeuronReLUNode::create(x); }

  /// The sum of two sources, a neuron behind it.
  struct Sum {
    std::shared_ptr<NNBinaryArithmeticNode> sum =
        NNAdditionNode::create(NNImageNode::create(), NNImageNode::create());
    std::shared_ptr<CNNNeuronNode> neuron = relu(sum->resultImage());
  };
  static std::size_t stepsOf(const NNGraph& graph, const std::string& className) {
    std::size_t count = 0;
    for (const auto& step : graph.program().steps) count += step.kernel->className() == className ? 1U : 0U;
    return count;
  }
  bool fuses(const std::vector<Source>& results) const {
    return stepsOf(*NNGraph::create(device_, results), "CNNNeuron") == 0;
  }
  bool fuses(const std::function<void(Sum& sum)>& change) const {
    Sum made;
    change(made);
    return fuses(std::vector<Source>{made.neuron->resultImage()});
  }
  bool fusesNeuron(const MakeNeuron& make) const {
    return fuses([&](Sum& made) { made.neuron = make(made.sum->resultImage()); });
  }
  Values resultOf(NNGraph& graph, const std::vector<ImageBatch>& sources) const {
    const auto commandBuffer = device_->newCommandQueue()->commandBuffer();
    const auto result = graph.encodeBatch(commandBuffer, sources);
    ImageBatchSynchronize(result, commandBuffer);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    return valuesOf(result);
  }
  static std::vector<std::uint32_t> bitsOf(const Values& values) {
    std::vector<std::uint32_t> bits;
    for (const float value : values)
      bits.push_back(std::isnan(value) ? 0x7FC00000U : std::bit_cast<std::uint32_t>(value));
    return bits;
  }
  ImageBatch images(const Values& values) const {
    auto batch =
        ImageBatch::create(device_, {ImageFeatureChannelFormat::Float32, values.size() / 8, 1, 8}, 1);
    batch.writeBytes(std::span(values), testing::pixelsFirst);
    return batch;
  }

  /// Two convolutions of the picture, ReLU of their sum, fully connected 3, loss.
  struct Network {
    std::shared_ptr<TrainableConvolution> left, right, dense;
    std::shared_ptr<NNGraph> graph;
  };
  using Behind = std::function<Source(const Source&)>;
  Network network(bool isApart, const Behind& behind = nullptr) const {
    Network made;
    made.left = test::layer(device_, 3, 1, 4, "left");
    made.right = test::layer(device_, 1, 1, 4, "right");
    made.dense = test::layer(device_, behind ? 4 : 8, 4, 3, "dense");
    const auto picture = NNImageNode::create();
    const auto sum = NNAdditionNode::create(CNNConvolutionNode::create(picture, made.left)->resultImage(),
                                            CNNConvolutionNode::create(picture, made.right)->resultImage());
    sum->resultImage()->setExportFromGraph(isApart);
    Source result = relu(sum->resultImage())->resultImage();
    if (behind) result = behind(result);
    const auto loss = CNNLossNode::create(
        CNNFullyConnectedNode::create(result, made.dense)->resultImage(),
        CNNLossDescriptor::cnnLossDescriptor(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Sum));
    std::vector<Source> results;
    for (const auto& terminus : loss->trainingGraph(nullptr)) results.push_back(terminus->resultImage());
    made.graph = NNGraph::create(device_, results, std::vector<bool>(results.size(), false));
    return made;
  }
  Weights trained(const Network& network) const {
    test::train(*network.graph, device_, 6, 2);
    return test::weightsOf({network.left, network.right, network.dense}, device_);
  }

  std::shared_ptr<mtl::Device> device_ = GetParam();
};

/// Zeros of both signs, infinities and NaN on either side; sums that are zero, and large.
TEST_P(AdditionFusion, TheResultHasTheBitsOfTwoSteps) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  const Values each{0,   -0.0F, 1,      -1,       2.5F,      -2.5F, infinity, -infinity,
                    nan, 60000, -60000, 0x1p-23F, -0x1p-23F, 3,     -4,       7};
  Values x;
  Values y;
  for (const float left : each)
    for (const float right : each) {
      x.push_back(left);
      y.push_back(right);
    }
  for (const auto format : {ImageFeatureChannelFormat::Float32, ImageFeatureChannelFormat::Float16})
    for (const float scale : {1.0F, -0.5F}) {
      const auto result = [&](bool isApart) {
        Sum made;
        made.sum->setSecondaryScale(scale);
        made.sum->resultImage()->setExportFromGraph(isApart);
        const auto graph = NNGraph::create(device_, made.neuron->resultImage());
        EXPECT_EQ(stepsOf(*graph, "CNNNeuron"), isApart ? 1U : 0U);
        graph->setFormat(format);
        return bitsOf(resultOf(*graph, {images(x), images(y)}));
      };
      EXPECT_EQ(result(false), result(true)) << scale;
    }
}

TEST_P(AdditionFusion, OfPlainReLUsAlone) {
  EXPECT_TRUE(fusesNeuron(relu));
  EXPECT_TRUE(fusesNeuron([](const Source& x) { return CNNNeuronReLUNode::create(x, 0); }));
  EXPECT_FALSE(fusesNeuron([](const Source& x) { return CNNNeuronReLUNode::create(x, 0.1F); }));
  EXPECT_FALSE(fusesNeuron([](const Source& x) { return CNNNeuronReLUNode::create(x, -0.0F); }));
  EXPECT_FALSE(fusesNeuron([](const Source& x) { return CNNNeuronTanHNode::create(x); }));
}

TEST_P(AdditionFusion, NotIntoOtherArithmetic) {
  EXPECT_FALSE(fuses([](Sum& made) {
    made.sum = NNSubtractionNode::create(NNImageNode::create(), NNImageNode::create());
    made.neuron = relu(made.sum->resultImage());
  }));
  EXPECT_FALSE(fuses([](Sum& made) { made.sum->setMinimumValue(-1); }));
  EXPECT_FALSE(fuses([](Sum& made) { made.sum->setMaximumValue(1); }));
  EXPECT_FALSE(fuses([](Sum& made) { made.sum->setBias(-0.0F); }));
  EXPECT_TRUE(fuses([](Sum& made) { made.sum->setBias(-1); }));
  EXPECT_TRUE(fuses([](Sum& made) { made.sum->setPrimaryScale(2); }));
}

TEST_P(AdditionFusion, NotWhereSomebodyWantsTheImageBetween) {
  EXPECT_FALSE(fuses([](Sum& made) { made.sum->resultImage()->setExportFromGraph(true); }));
  EXPECT_FALSE(
      fuses([](Sum& made) { made.sum->resultImage()->setFormat(ImageFeatureChannelFormat::Float16); }));
  EXPECT_FALSE(
      fuses([](Sum& made) { made.sum->resultImage()->setImageAllocator(Image::defaultAllocator()); }));
  EXPECT_FALSE(fuses([](Sum& made) { made.neuron->resultState()->setExportFromGraph(true); }));
  const Sum asked;
  EXPECT_FALSE(fuses(std::vector<Source>{asked.neuron->resultImage(), asked.sum->resultImage()}));
  const Sum readTwice;
  EXPECT_FALSE(fuses(std::vector<Source>{
      NNSubtractionNode::create(readTwice.neuron->resultImage(), readTwice.sum->resultImage())
          ->resultImage()}));
}

TEST_P(AdditionFusion, NotWithACustomPaddingPolicyOnTheNeuron) {
  EXPECT_FALSE(
      fuses([](Sum& made) { made.neuron->setPaddingPolicy(std::make_shared<test::CustomPadding>()); }));
}

/// The gradient of the ReLU reads its result; those of the sum are that one, so there is no mask.
TEST_P(AdditionFusion, WeightsHaveTheBitsOfATrainingWithTwoSteps) {
  const Network fused = network(false);
  const Network apart = network(true);
  EXPECT_EQ(stepsOf(*fused.graph, "CNNNeuron"), 0U);
  EXPECT_EQ(stepsOf(*fused.graph, "CNNNeuronGradient"), 1U);
  EXPECT_EQ(stepsOf(*apart.graph, "CNNNeuron"), 1U);
  EXPECT_EQ(trained(fused), trained(apart));
  EXPECT_THAT(fused.graph->debugDescription(), ::testing::HasSubstr(", the incoming gradient itself"));
}

TEST_P(AdditionFusion, BeforeAMaximumTheGradientOfTheReLUGoesIntoThatOfThePooling) {
  const Behind maximum = [](const Source& x) { return CNNPoolingMaxNode::create(x, 2)->resultImage(); };
  const Network fused = network(false, maximum);
  EXPECT_EQ(stepsOf(*fused.graph, "CNNNeuron"), 0U);
  EXPECT_EQ(stepsOf(*fused.graph, "CNNNeuronGradient"), 0U);
  EXPECT_EQ(trained(fused), trained(network(true, maximum)));
  const auto report = checkGradients(*network(false, maximum).graph, {test::pictures(device_, 0)},
                                     {test::labels(device_, 0)});
  EXPECT_EQ(report.describe(), "");
}

TEST_P(AdditionFusion, GradientsAreRight) {
  const Network made = network(false);
  const auto report = checkGradients(*made.graph, {test::pictures(device_, 0)}, {test::labels(device_, 0)});
  EXPECT_EQ(report.describe(), "");
  EXPECT_TRUE(report.passed());
}

/// A sum of gradients that has a ReLU behind it is no plain sum any more.
TEST_P(AdditionFusion, AnApplicationsOwnReLUOfASumOfGradientsStays) {
  const auto result = [&](bool isApart) {
    const auto x = NNImageNode::create();
    const auto tanh = CNNNeuronTanHNode::create(x);
    const auto both = CNNNeuronSigmoidNode::create(tanh->resultImage());
    const auto outer = CNNNeuronLinearNode::create(
        NNMultiplicationNode::create(tanh->resultImage(), both->resultImage())->resultImage(), -1);
    std::shared_ptr<NNFilterNode> sum;
    for (const auto& terminus : outer->trainingGraph(
             NNImageNode::create(), [&](const std::shared_ptr<NNFilterNode>&node,
                                        const std::shared_ptr<NNFilterNode>&, const Source&, const Source&) {
               if (node->className() == "NNAdditionNode") sum = node;
             }))
      (void)terminus;
    EXPECT_TRUE(sum);
    sum->resultImage()->setExportFromGraph(isApart);
    const auto graph = NNGraph::create(device_, relu(sum->resultImage())->resultImage());
    const Values values{0.5F, -1, 2, 0.25F, -0.75F, 1, -2, 3};
    return resultOf(*graph, {images(values), images(values)});
  };
  const Values found = result(false);
  EXPECT_EQ(found, result(true));
  for (const float value : found) EXPECT_GE(value, 0);
}

TEST_P(AdditionFusion, ADecodedGraphComputesTheSame) {
  const Sum made;
  const auto graph = NNGraph::create(device_, made.neuron->resultImage());
  KeyedArchiver archiver;
  graph->encode(archiver);
  KeyedUnarchiver unarchiver(archiver.encodedData());
  const Values x{1, -2, 3, -4, 5, -6, 7, -8};
  const Values y{-2, 1, -4, 3, -6, 5, -8, 7};
  const Values found = resultOf(*NNGraph::decode(unarchiver, device_), {images(x), images(y)});
  EXPECT_EQ(bitsOf(found), bitsOf(Values(8, -0.0F)));
  EXPECT_EQ(bitsOf(resultOf(*graph, {images(x), images(y)})), bitsOf(found));
}

INSTANTIATE_TEST_SUITE_P(Devices, AdditionFusion, ::testing::ValuesIn(mtl::copyAllDevices()),
                         mtl::testing::nameOf);

}  // namespace
}  // namespace mps::addition_fusion_test
