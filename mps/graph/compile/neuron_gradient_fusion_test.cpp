#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mps/arithmetic/arithmetic_node.hpp"
#include "mps/core/kernel/command_buffer.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/graph/check/test_network.hpp"
#include "mps/graph/compile/graph_program.hpp"

/// The pass that puts the derivative of a ReLU into the gradient of the maximum pooling behind it.
namespace mps::neuron_gradient_fusion_test {
namespace {

using test::SmallNetwork;

using Source = std::shared_ptr<NNImageNode>;
using Weights = std::vector<std::vector<float>>;

class NeuronGradientFusion : public testing::DeviceTest {
 protected:
  /// conv 3x3x4, something, fully connected 3, squared error; `between` makes the something.
  struct Network {
    std::shared_ptr<TrainableConvolution> first, second;
    std::shared_ptr<CNNConvolutionNode> convolution;
    std::vector<std::shared_ptr<NNFilterNode>> termini;
  };
  using Between = std::function<Source(const Source&)>;
  /// Sees each gradient node that is made.
  using Visit = std::function<void(NNFilterNode& gradient)>;

  Network network(const Between& between, const Visit& visit = nullptr) const {
    Network made;
    made.first = test::layer(device_, 3, 1, 4, "conv");
    made.second = test::layer(device_, 4, 4, 3, "dense");
    made.convolution = CNNConvolutionNode::create(NNImageNode::create(), made.first);
    const auto dense = CNNFullyConnectedNode::create(between(made.convolution->resultImage()), made.second);
    const auto loss = CNNLossNode::create(
        dense->resultImage(),
        CNNLossDescriptor::cnnLossDescriptor(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Sum));
    made.termini = loss->trainingGraph(
        nullptr, [&](const std::shared_ptr<NNFilterNode>& node, const std::shared_ptr<NNFilterNode>&,
                     const std::shared_ptr<NNImageNode>&, const std::shared_ptr<NNImageNode>&) {
          if (visit) visit(*node);
        });
    return made;
  }
  std::shared_ptr<NNGraph> graphOf(const Network& network) const {
    std::vector<Source> results;
    for (const auto& terminus : network.termini) results.push_back(terminus->resultImage());
    return NNGraph::create(device_, results, std::vector<bool>(results.size(), false));
  }
  /// Steps whose gradient includes that of a neuron.
  static std::size_t fusedGradients(const NNGraph& graph) {
    std::size_t count = 0;
    for (const auto& step : graph.program().steps) count += step.neuron != detail::nowhere ? 1U : 0U;
    return count;
  }
  static std::size_t stepsOf(const NNGraph& graph, const std::string& className) {
    std::size_t count = 0;
    for (const auto& step : graph.program().steps) count += step.kernel->className() == className ? 1U : 0U;
    return count;
  }
  bool fuses(const Between& between, const Visit& visit = nullptr) const {
    const auto graph = graphOf(network(between, visit));
    EXPECT_EQ(fusedGradients(*graph) == 0, stepsOf(*graph, "CNNNeuronGradient") > 0);
    return fusedGradients(*graph) > 0;
  }
  /// Weights after some steps.
  Weights trained(const Between& between, const Visit& visit = nullptr) const {
    const Network made = network(between, visit);
    test::train(*graphOf(made), device_, 6);
    return {test::weightsOf(*made.first), test::weightsOf(*made.second)};
  }

  static Source relu(const Source& x) { return CNNNeuronReLUNode::create(x)->resultImage(); }
  static Source maximum(const Source& x) { return CNNPoolingMaxNode::create(x, 2)->resultImage(); }
  static Source reluAndMaximum(const Source& x) { return maximum(relu(x)); }
  /// Exports the gradients of nodes of this class, so that nothing is fused across them.
  static Visit exporting(const std::string& className) {
    return [className](NNFilterNode& gradient) {
      if (gradient.className() == className) gradient.resultImage()->setExportFromGraph(true);
    };
  }
};

TEST_F(NeuronGradientFusion, AReLUsDerivativeGoesIntoTheGradientOfTheMaximumBehindIt) {
  const auto graph = graphOf(network(reluAndMaximum));
  EXPECT_EQ(fusedGradients(*graph), 1U);
  EXPECT_EQ(stepsOf(*graph, "CNNNeuronGradient"), 0U);
  EXPECT_THAT(graph->debugDescription(),
              ::testing::ContainsRegex("CNNPoolingMaxGradient. with CNNNeuronGradientNode"));
}

TEST_F(NeuronGradientFusion, WeightsHaveTheBitsOfATrainingInWhichItIsAStep) {
  const Visit apart = exporting("CNNPoolingMaxGradientNode");
  ASSERT_FALSE(fuses(reluAndMaximum, apart));
  const Weights expected = trained(reluAndMaximum, apart);
  EXPECT_EQ(trained(reluAndMaximum), expected);
  EXPECT_NE(trained(maximum), expected);

  // Windows that overlap, and have gaps.
  const auto others = [](std::size_t kernel, std::size_t stride) {
    return [=](const Source& x) {
      const auto pooled = CNNPoolingMaxNode::create(relu(x), kernel, stride)->resultImage();
      return stride == 1 ? maximum(pooled) : pooled;
    };
  };
  for (const auto& between : {Between(others(3, 2)), Between(others(3, 1))}) {
    EXPECT_TRUE(fuses(between));
    EXPECT_EQ(trained(between), trained(between, apart));
  }
}

/// A gradient node made by hand may have the function of another neuron: it stays apart, where it is refused.
TEST_F(NeuronGradientFusion, NotWhereTheNeuronIsNoReLU) {
  const auto x = NNImageNode::create(), g = NNImageNode::create();
  const auto gradientOf = [&](const std::shared_ptr<CNNNeuronNode>& neuron) {
    const auto pooling = CNNPoolingMaxNode::create(neuron->resultImage(), 2);
    return NNGraph::create(device_, CNNNeuronGradientNode::create(
                                        pooling->gradientFilter(g)->resultImage(), x, neuron->resultState(),
                                        NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU))
                                        ->resultImage());
  };
  EXPECT_EQ(fusedGradients(*gradientOf(CNNNeuronReLUNode::create(x))), 1U);
  const auto wrong = gradientOf(CNNNeuronSigmoidNode::create(x));
  EXPECT_EQ(fusedGradients(*wrong), 0U);
  EXPECT_TRUE(testing::names(
      testing::errorOf([&] {
        wrong->encode(commands(), {image(testing::sizeOf(1, 1, 1)), image(testing::sizeOf(2, 2, 1))});
      }),
      {"CNNNeuronGradient", "neuronDescriptor", "that of the forward kernel"}));
}

/// Zeros of both signs before the maximum: where x is 0 the derivative of a ReLU is 1.
TEST_F(NeuronGradientFusion, WhereTheReLUWasGivenZeroTheDerivativeIsOne) {
  const auto gradients = [&](const Visit& visit) {
    const Network made = network(reluAndMaximum, visit);
    const auto graph = graphOf(made);
    const auto buffer = commands();
    const auto black = batch({ImageFeatureChannelFormat::Float32, 8, 8, 1}, SmallNetwork::batch,
                             testing::Values(SmallNetwork::batch * 64, 0));
    graph->encodeBatch(buffer, {black}, {test::labels(device_, 1)});
    run(buffer);
    const auto biases = made.first->biasTerms();
    return std::vector<float>(biases.begin(), biases.end());
  };
  const std::vector<float> biases = gradients(nullptr);
  EXPECT_EQ(biases, gradients(exporting("CNNPoolingMaxGradientNode")));
  EXPECT_NE(biases, std::vector<float>(4, 0)) << "black pictures and biases of 0 give x = 0 everywhere";
}

TEST_F(NeuronGradientFusion, AlsoOfDilatedMaximaAndOfAReLUThatIsAStep) {
  const Visit apart = exporting("CNNPoolingMaxGradientNode");
  const Between ofDifference = [](const Source& x) {
    return maximum(
        relu(NNSubtractionNode::create(x, CNNNeuronTanHNode::create(x)->resultImage())->resultImage()));
  };
  const Between ofDilated = [](const Source& x) {
    return CNNDilatedPoolingMaxNode::create(relu(x), 2, 2, 2)->resultImage();
  };
  EXPECT_TRUE(fuses(ofDilated));
  EXPECT_EQ(trained(ofDilated), trained(ofDilated, exporting("CNNDilatedPoolingMaxGradientNode")));
  const auto graph = graphOf(network(ofDifference));
  EXPECT_EQ(fusedGradients(*graph), 1U) << "of the ReLU; the hyperbolic tangent's stays";
  EXPECT_EQ(trained(ofDifference), trained(ofDifference, apart));
}

TEST_F(NeuronGradientFusion, NotOfOtherNeuronsOrSlopes) {
  EXPECT_TRUE(fuses([](const Source& x) { return maximum(CNNNeuronReLUNode::create(x, 0)->resultImage()); }));
  EXPECT_FALSE(
      fuses([](const Source& x) { return maximum(CNNNeuronReLUNode::create(x, 0.1F)->resultImage()); }));
  EXPECT_FALSE(
      fuses([](const Source& x) { return maximum(CNNNeuronReLUNode::create(x, -0.0F)->resultImage()); }));
  EXPECT_FALSE(fuses([](const Source& x) { return maximum(CNNNeuronTanHNode::create(x)->resultImage()); }));
}

TEST_F(NeuronGradientFusion, NotBeforeOtherPoolings) {
  EXPECT_FALSE(
      fuses([](const Source& x) { return CNNPoolingAverageNode::create(relu(x), 2)->resultImage(); }));
  EXPECT_FALSE(
      fuses([](const Source& x) { return CNNPoolingL2NormNode::create(relu(x), 2)->resultImage(); }));
}

/// What else reads the ReLU's result adds to its gradient.
TEST_F(NeuronGradientFusion, NotWhereTheNetworkForks) {
  EXPECT_FALSE(fuses([](const Source& x) {
    const auto y = relu(x);
    const auto average = CNNPoolingAverageNode::create(y, 2)->resultImage();
    return NNAdditionNode::create(maximum(y), average)->resultImage();
  }));
}

TEST_F(NeuronGradientFusion, NotWhereSomebodyWantsTheGradientBetween) {
  EXPECT_FALSE(fuses(reluAndMaximum, exporting("CNNPoolingMaxGradientNode")));
  EXPECT_TRUE(fuses(reluAndMaximum, exporting("CNNNeuronGradientNode"))) << "it is there";
  EXPECT_FALSE(fuses(reluAndMaximum, [](NNFilterNode& gradient) {
    if (gradient.className() == "CNNNeuronGradientNode")
      gradient.resultImage()->setFormat(ImageFeatureChannelFormat::Float16);
  }));
  EXPECT_FALSE(fuses(reluAndMaximum, [](NNFilterNode& gradient) {
    if (gradient.className() == "CNNPoolingMaxGradientNode")
      gradient.resultImage()->setImageAllocator(Image::defaultAllocator());
  }));
}

/// Somebody may differentiate the pooling with it.
TEST_F(NeuronGradientFusion, NotWhereThePoolingsStateIsExported) {
  EXPECT_FALSE(fuses([](const Source& x) {
    const auto pool = CNNPoolingMaxNode::create(relu(x), 2);
    pool->resultState()->setExportFromGraph(true);
    return pool->resultImage();
  }));
}

/// Saved places are there under a predicate, too: the source's memory may serve others by then.
TEST_F(NeuronGradientFusion, UnderAPredicateAStepRunsWhollyOrNotAtAll) {
  const auto trainedUnder = [&](std::uint32_t value) {
    const Network made = network(reluAndMaximum);
    const auto graph = graphOf(made);
    const auto predicate = Predicate::create(device_);
    predicate->predicateBuffer()->contentsAs<std::uint32_t>()[0] = value;
    for (unsigned step = 0; step < 6; ++step) {
      const auto buffer = CommandBuffer::create(queue_);
      buffer->setPredicate(predicate);
      graph->encodeBatch(buffer, {test::pictures(device_, step)}, {test::labels(device_, step)});
      run(buffer);
    }
    return Weights{test::weightsOf(*made.first), test::weightsOf(*made.second)};
  };
  EXPECT_EQ(trainedUnder(1), trained(reluAndMaximum));
  const Network untouched = network(reluAndMaximum);
  EXPECT_EQ(trainedUnder(0),
            (Weights{test::weightsOf(*untouched.first), test::weightsOf(*untouched.second)}));
}

}  // namespace
}  // namespace mps::neuron_gradient_fusion_test
