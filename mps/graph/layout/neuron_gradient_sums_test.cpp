#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mps/arithmetic/arithmetic_node.hpp"
#include "mps/conform/check_gradients.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/graph/check/test_network.hpp"
#include "mtl/check/test_devices.hpp"

/// The pass that lets the gradient of a neuron add the two gradients that meet at it.
namespace mps::neuron_gradient_sums_test {
namespace {

using enum ImageFeatureChannelFormat;
using testing::Values;
using testing::valuesOf;

using Source = std::shared_ptr<NNImageNode>;
using Visit = std::function<void(NNFilterNode& node)>;
/// What lies between the first layer and the last one.
using Between = std::function<Source(const Source& x)>;

class NeuronGradientSums : public ::testing::TestWithParam<std::shared_ptr<mtl::Device>> {
 protected:
  static Source relu(const Source& x) { return CNNNeuronReLUNode::create(x)->resultImage(); }
  static Source tanh(const Source& x) { return CNNNeuronTanHNode::create(x)->resultImage(); }
  static Source sum(const Source& x, const Source& y) { return NNAdditionNode::create(x, y)->resultImage(); }
  static Source maximum(const Source& x) { return CNNPoolingMaxNode::create(x, 3, 1)->resultImage(); }

  /// conv 3x3x4, something, fully connected 3, loss.
  struct Network {
    std::shared_ptr<TrainableConvolution> first, branch, dense;
    std::shared_ptr<NNGraph> graph;
  };
  /// @param visit sees each node that the training adds
  Network network(const std::function<Source(const Source& x, const Network& network)>& between,
                  const Visit& visit = nullptr) const {
    Network made{test::layer(device_, 3, 1, 4, "first"), test::layer(device_, 3, 4, 4, "branch"),
                 test::layer(device_, 8, 4, 3, "dense"), nullptr};
    const auto convolution = CNNConvolutionNode::create(NNImageNode::create(), made.first);
    const auto dense = CNNFullyConnectedNode::create(between(convolution->resultImage(), made), made.dense);
    const auto loss = CNNLossNode::create(
        dense->resultImage(),
        CNNLossDescriptor::cnnLossDescriptor(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Sum));
    std::vector<Source> results;
    const auto block = [&](const std::shared_ptr<NNFilterNode>& node, const std::shared_ptr<NNFilterNode>&,
                           const Source&, const Source&) {
      if (visit) visit(*node);
    };
    for (const auto& terminus : loss->trainingGraph(nullptr, block))
      results.push_back(terminus->resultImage());
    made.graph = NNGraph::create(device_, results, std::vector<bool>(results.size(), false));
    return made;
  }
  Network network(const Between& between, const Visit& visit = nullptr) const {
    return network([&](const Source& x, const Network&) { return between(x); }, visit);
  }
  /// A residual block: relu(y + branch(y)) of y = relu(x). The gradients of y are that of the sum and the branch's.
  Network residual(const Visit& visit = nullptr) const {
    return network(
        [](const Source& x, const Network& made) {
          const auto y = relu(x);
          return relu(sum(y, CNNConvolutionNode::create(y, made.branch)->resultImage()));
        },
        visit);
  }

  static std::size_t countOf(const NNGraph& graph, const std::string& part) {
    const std::string text = graph.debugDescription();
    std::size_t count = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
    return count;
  }
  /// Sums that gradients of neurons have taken over, once sizes are known.
  std::size_t fusedIn(const Network& made, ImageFeatureChannelFormat format = Float16) const {
    made.graph->setFormat(format);
    test::train(*made.graph, device_, 1);
    const std::size_t count = countOf(*made.graph, ", done by the neuron's gradient");
    EXPECT_EQ(countOf(*made.graph, ", adds image "), count);
    return count;
  }
  std::size_t fusedIn(const Between& between, const Visit& visit = nullptr,
                      ImageFeatureChannelFormat format = Float16) const {
    return fusedIn(network(between, visit), format);
  }
  std::vector<Values> trained(const Network& made, ImageFeatureChannelFormat format) const {
    made.graph->setFormat(format);
    test::train(*made.graph, device_, 6, 2);
    return test::weightsOf({made.first, made.branch, made.dense}, device_);
  }

  /// Changes the sums of gradients.
  static Visit ofSums(const std::function<void(NNImageNode& result)>& change) {
    return [change](NNFilterNode& node) {
      if (node.className() == "NNAdditionNode") change(*node.resultImage());
    };
  }
  static void exportIt(NNImageNode& image) { image.setExportFromGraph(true); }

  std::shared_ptr<mtl::Device> device_ = GetParam();
};

TEST_P(NeuronGradientSums, OfGradientsThatMeetAtAResidualBlock) {
  EXPECT_EQ(fusedIn(residual(), Float16), 1U);
  EXPECT_EQ(fusedIn(residual(), Float32), 1U) << "the branch's gradient reads what it would be added to";
  EXPECT_EQ(fusedIn(residual(ofSums(exportIt))), 0U);
}

/// In float16, too: a rounded sum is multiplied by 0 or 1.
TEST_P(NeuronGradientSums, WeightsHaveTheBitsOfATrainingWithTwoSteps) {
  for (const auto format : {Float32, Float16}) {
    EXPECT_EQ(trained(residual(), format), trained(residual(ofSums(exportIt)), format));
    const Between identity = [](const Source& x) { return x; };
    EXPECT_NE(trained(residual(), format), trained(network(identity), format));
  }
}

/// What the kernel of the later gradient can add is not read again.
TEST_P(NeuronGradientSums, NotWhereALaterGradientIsAddedToTheEarlierOne) {
  const Between between = [](const Source& x) {
    const auto y = relu(x);
    return sum(tanh(y), maximum(y));
  };
  EXPECT_EQ(fusedIn(between, nullptr, Float16), 1U);
  EXPECT_EQ(fusedIn(between, nullptr, Float32), 0U);
}

TEST_P(NeuronGradientSums, OfThreeGradientsTheLastSum) {
  const Between between = [](const Source& x) {
    const auto y = relu(x);
    return sum(sum(tanh(y), maximum(y)), y);
  };
  EXPECT_EQ(fusedIn(between), 1U);
  EXPECT_EQ(trained(network(between), Float16), trained(network(between, ofSums(exportIt)), Float16));
}

TEST_P(NeuronGradientSums, AlsoOfOtherNeuronsWhoseDerivativeTheResultTells) {
  const auto behind = [](const std::function<Source(const Source&)>& neuron) {
    return [neuron](const Source& x) {
      const auto y = neuron(x);
      return sum(maximum(y), CNNNeuronAbsoluteNode::create(y)->resultImage());
    };
  };
  EXPECT_EQ(fusedIn(behind(tanh)), 1U);
  EXPECT_EQ(
      fusedIn(behind([](const Source& x) { return CNNNeuronReLUNode::create(x, 0.5F)->resultImage(); })), 1U);
  EXPECT_EQ(fusedIn(behind([](const Source& x) { return CNNNeuronGeLUNode::create(x)->resultImage(); })), 0U);
  EXPECT_EQ(fusedIn(behind([](const Source& x) {
              return CNNNeuronHardSigmoidNode::create(x, 0.2F, 0.5F)->resultImage();
            })),
            0U);
}

TEST_P(NeuronGradientSums, NotOfSumsThatOthersSeeOrOfAnotherFormat) {
  const Between between = [](const Source& x) {
    const auto y = relu(x);
    return sum(tanh(y), maximum(y));
  };
  const auto with = [&](const std::function<void(NNImageNode&)>& change) {
    return fusedIn(between, ofSums(change));
  };
  EXPECT_EQ(with([](NNImageNode&) {}), 1U);
  EXPECT_EQ(with(exportIt), 0U);
  EXPECT_EQ(with([](NNImageNode& image) { image.setImageAllocator(Image::defaultAllocator()); }), 0U);
  EXPECT_EQ(with([](NNImageNode& image) { image.setFormat(Float32); }), 0U);
  // One of the summands.
  const auto withPooling = [&](const std::function<void(NNImageNode&)>& change) {
    return fusedIn(between, [change](NNFilterNode& node) {
      if (node.className() == "CNNPoolingMaxGradientNode") change(*node.resultImage());
    });
  };
  EXPECT_EQ(withPooling(exportIt), 0U);
  EXPECT_EQ(withPooling([](NNImageNode& image) { image.setFormat(Float32); }), 0U);
}

/// An application's own sum, of the first and the second source, before the gradient of its ReLU of the others' sum.
struct ByHand {
  static Source linear(float factor) {
    return CNNNeuronLinearNode::create(NNImageNode::create(), factor)->resultImage();
  }
  Source first = linear(2);
  std::shared_ptr<NNAdditionNode> sum;
  std::shared_ptr<NNAdditionNode> forward = NNAdditionNode::create(linear(1), linear(1));
  std::shared_ptr<CNNNeuronReLUNode> relu = CNNNeuronReLUNode::create(forward->resultImage());
  std::shared_ptr<CNNNeuronGradientNode> gradient;

  explicit ByHand(bool isOfItself = false)
      : sum(NNAdditionNode::create(first, isOfItself ? first : linear(4))),
        gradient(
            CNNNeuronGradientNode::create(sum->resultImage(), forward->resultImage(), relu->resultState(),
                                          NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU))) {}
};

class NeuronGradientSumsByHand : public NeuronGradientSums {
 protected:
  static Values inTurn(float even, float odd) {
    Values values;
    while (values.size() < 64) values.insert(values.end(), {even, odd});
    return values;
  }
  /// The second result, or the only one, of a graph of float16 whose inputs are 3 and -3 in turn.
  Values run(NNGraph& graph) const {
    const Values values = inTurn(3, -3);
    auto batch = ImageBatch::create(device_, {Float32, 8, 1, 8}, 1);
    batch.writeBytes(std::span(values), testing::pixelsFirst);
    graph.setFormat(Float16);
    const auto commandBuffer = device_->newCommandQueue()->commandBuffer();
    std::vector<ImageBatch> further;
    const auto first = graph.encodeBatch(
        commandBuffer, std::vector<ImageBatch>(graph.sourceImageHandles().size(), batch), {}, &further);
    const ImageBatch& result = further.empty() ? first : further[0];
    ImageBatchSynchronize(result, commandBuffer);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    return valuesOf(result);
  }
  /// Whether the sum goes into the gradient. @param expected what that one has where the ReLU was given 3
  bool fuses(const std::vector<Source>& results, float expected = 18) const {
    const auto graph = NNGraph::create(device_, results);
    EXPECT_EQ(run(*graph), inTurn(expected, 0));
    return countOf(*graph, ", adds image ") > 0;
  }
};

TEST_P(NeuronGradientSumsByHand, APlainSum) {
  const ByHand plain;
  EXPECT_TRUE(fuses({plain.relu->resultImage(), plain.gradient->resultImage()}));
  const ByHand scaled;
  scaled.sum->setPrimaryScale(3);
  EXPECT_FALSE(fuses({scaled.relu->resultImage(), scaled.gradient->resultImage()}, 30));
}

TEST_P(NeuronGradientSumsByHand, NotWhereSomethingElseReadsTheSum) {
  const ByHand made;
  const auto other = NNSubtractionNode::create(made.sum->resultImage(), made.first);
  EXPECT_FALSE(fuses({made.relu->resultImage(), made.gradient->resultImage(), other->resultImage()}));
}

TEST_P(NeuronGradientSumsByHand, OfAnImageAndItself) {
  const ByHand made(true);
  EXPECT_TRUE(fuses({made.relu->resultImage(), made.gradient->resultImage()}, 12));
}

/// The gradient is twice as large, so it can take the place of neither.
TEST_P(NeuronGradientSumsByHand, TheSummandsStayUntilTheyAreRead) {
  const ByHand made;
  made.gradient->resultImage()->setFormat(Float32);
  const auto behind = CNNNeuronLinearNode::create(made.gradient->resultImage(), 1);
  EXPECT_TRUE(fuses({made.relu->resultImage(), behind->resultImage()}));
}

/// Others could write over what it reads.
TEST_P(NeuronGradientSumsByHand, NotWhereAnotherStepComesBetween) {
  const ByHand made;
  EXPECT_FALSE(fuses({made.gradient->resultImage()})) << "the sum that the ReLU is of";
}

TEST_P(NeuronGradientSums, GradientsAreRight) {
  const Network made = residual();
  const auto report = checkGradients(*made.graph, {test::pictures(device_, 0)}, {test::labels(device_, 0)});
  EXPECT_EQ(report.describe(), "");
  EXPECT_TRUE(report.passed());
}

TEST_P(NeuronGradientSums, ADecodedGraphTakesThemToo) {
  const Network made = residual();
  made.graph->setFormat(Float16);
  KeyedArchiver archiver;
  made.graph->encode(archiver);
  KeyedUnarchiver unarchiver(archiver.encodedData());
  const auto decoded = NNGraph::decode(unarchiver, device_);
  test::train(*decoded, device_, 2);
  EXPECT_EQ(countOf(*decoded, ", done by the neuron's gradient"), 1U);
}

INSTANTIATE_TEST_SUITE_P(Devices, NeuronGradientSums, ::testing::ValuesIn(mtl::copyAllDevices()),
                         mtl::testing::nameOf);
INSTANTIATE_TEST_SUITE_P(Devices, NeuronGradientSumsByHand, ::testing::ValuesIn(mtl::copyAllDevices()),
                         mtl::testing::nameOf);

}  // namespace
}  // namespace mps::neuron_gradient_sums_test
