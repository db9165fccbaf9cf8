#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mps/arithmetic/arithmetic_node.hpp"
#include "mps/batch_normalization/batch_normalization.hpp"
#include "mps/batch_normalization/batch_normalization_node.hpp"
#include "mps/conform/check_gradients.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/kernel/graph_traits.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/graph/check/test_network.hpp"
#include "mps/trainable/trainable_batch_normalization.hpp"
#include "mtl/check/test_devices.hpp"

/// The pass that lets a batch normalisation do the addition with ReLU behind it.
namespace mps::second_sources_test {
namespace {

using enum ImageFeatureChannelFormat;
using testing::Values;
using testing::valuesOf;

using Source = std::shared_ptr<NNImageNode>;

class SecondSources : public ::testing::TestWithParam<std::shared_ptr<mtl::Device>> {
 protected:
  /// What a test changes before the graph is made.
  struct Nodes {
    std::shared_ptr<CNNBatchNormalizationNode> normalization, other;
    std::shared_ptr<NNAdditionNode> sum;
    Source shortcut, result;
  };
  using Change = std::function<void(Nodes& nodes)>;
  static void changeNothing(Nodes& /*nodes*/) {}
  static void exportNormalization(Nodes& nodes) {
    nodes.normalization->resultImage()->setExportFromGraph(true);
  }

  /// conv 3x3x4, a residual block with batch normalisation, fully connected 3, loss.
  struct Network {
    std::shared_ptr<TrainableConvolution> first, branch, dense;
    std::vector<std::shared_ptr<TrainableBatchNormalization>> layers;
    Nodes nodes;
    Source scores;
    std::shared_ptr<CNNLossNode> loss;
  };
  /// The block is relu(norm(branch(x)) + x), or with two normalisations relu(norm(branch(x)) + norm(x)).
  Network network(bool hasTwo = false, const Change& change = changeNothing, bool isSwapped = false) const {
    Network made{test::layer(device_, 3, 1, 4, "first"),
                 test::layer(device_, 3, 4, 4, "branch"),
                 test::layer(device_, 8, 4, 3, "dense"),
                 {},
                 {},
                 nullptr,
                 nullptr};
    const auto normalized = [&](const Source& x) {
      made.layers.push_back(TrainableBatchNormalization::create(
          device_, 4, "norm" + std::to_string(made.layers.size()), test::sgd(device_)));
      return CNNBatchNormalizationNode::create(x, made.layers.back());
    };
    const auto x = CNNConvolutionNode::create(NNImageNode::create(), made.first)->resultImage();
    made.nodes.normalization = normalized(CNNConvolutionNode::create(x, made.branch)->resultImage());
    made.nodes.shortcut = x;
    if (hasTwo) {
      made.nodes.other = normalized(x);
      made.nodes.shortcut = made.nodes.other->resultImage();
    }
    const Source& shortcut = made.nodes.shortcut;
    const Source own = made.nodes.normalization->resultImage();
    made.nodes.sum =
        isSwapped ? NNAdditionNode::create(shortcut, own) : NNAdditionNode::create(own, shortcut);
    made.nodes.result = CNNNeuronReLUNode::create(made.nodes.sum->resultImage())->resultImage();
    change(made.nodes);
    made.scores = CNNFullyConnectedNode::create(made.nodes.result, made.dense)->resultImage();
    made.loss = CNNLossNode::create(
        made.scores,
        CNNLossDescriptor::cnnLossDescriptor(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Sum));
    return made;
  }
  using Visit = std::function<void(NNFilterNode& node)>;
  /// @param visit sees each node that the training adds
  std::shared_ptr<NNGraph> training(const Network& network, ImageFeatureChannelFormat format,
                                    const Visit& visit = nullptr) const {
    std::vector<Source> results;
    const auto block = [&](const std::shared_ptr<NNFilterNode>& node, const std::shared_ptr<NNFilterNode>&,
                           const Source&, const Source&) {
      if (visit) visit(*node);
    };
    for (const auto& terminus : network.loss->trainingGraph(nullptr, block))
      results.push_back(terminus->resultImage());
    auto graph = NNGraph::create(device_, results, std::vector<bool>(results.size(), false));
    graph->setFormat(format);
    return graph;
  }
  static std::size_t countOf(const NNGraph& graph) {
    const std::string text = graph.debugDescription();
    const std::string part = ", done by the step before it";
    std::size_t count = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
    return count;
  }
  /// Additions that normalisations have taken over, once sizes are known.
  std::size_t fusedIn(const Network& network, ImageFeatureChannelFormat format = Float16,
                      const Visit& visit = nullptr) const {
    const auto graph = training(network, format, visit);
    test::train(*graph, device_, 1);
    return countOf(*graph);
  }
  std::vector<Values> trained(const Network& network, ImageFeatureChannelFormat format) const {
    test::train(*training(network, format), device_, 6, 2);
    std::vector<Values> weights = test::weightsOf({network.first, network.branch, network.dense}, device_);
    const auto commandBuffer = device_->newCommandQueue()->commandBuffer();
    for (const auto& layer : network.layers) layer->synchronize(commandBuffer);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    for (const auto& layer : network.layers)
      for (const auto numbers : {layer->gamma(), layer->beta(), layer->mean(), layer->variance()})
        weights.emplace_back(numbers.begin(), numbers.end());
    return weights;
  }
  Values inferred(const Network& network, std::size_t* count) const {
    const auto graph = NNGraph::create(device_, network.scores);
    const auto commandBuffer = device_->newCommandQueue()->commandBuffer();
    const auto result = graph->encodeBatch(commandBuffer, {test::pictures(device_, 2)});
    ImageBatchSynchronize(result, commandBuffer);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    *count = countOf(*graph);
    return valuesOf(result);
  }

  std::shared_ptr<mtl::Device> device_ = GetParam();
};

TEST_P(SecondSources, OfAResidualBlock) {
  for (const auto format : {Float32, Float16})
    for (const bool isSwapped : {false, true}) {
      EXPECT_EQ(fusedIn(network(false, changeNothing, isSwapped), format), 1U);
      EXPECT_EQ(fusedIn(network(true, changeNothing, isSwapped), format), 1U);
    }
}

/// In float32 z is rounded as if it were stored.
TEST_P(SecondSources, WeightsHaveTheBitsOfATrainingWithTwoSteps) {
  for (const bool hasTwo : {false, true}) {
    ASSERT_EQ(fusedIn(network(hasTwo, exportNormalization), Float32), 0U);
    EXPECT_EQ(trained(network(hasTwo), Float32), trained(network(hasTwo, exportNormalization), Float32));
  }
}

TEST_P(SecondSources, InferenceHasTheBitsOfTwoSteps) {
  std::size_t fused = 0;
  std::size_t apart = 0;
  EXPECT_EQ(inferred(network(), &fused), inferred(network(false, exportNormalization), &apart));
  EXPECT_EQ(fused, 1U);
  EXPECT_EQ(apart, 0U);
}

TEST_P(SecondSources, NotOfImagesThatOthersSeeOrOfAnotherFormat) {
  EXPECT_EQ(fusedIn(network(false, exportNormalization)), 0U);
  const auto with = [&](const Change& change) { return fusedIn(network(false, change)); };
  EXPECT_EQ(with([](Nodes& nodes) { nodes.result->setExportFromGraph(true); }), 0U);
  EXPECT_EQ(with([](Nodes& nodes) { nodes.sum->resultImage()->setExportFromGraph(true); }), 0U);
  EXPECT_EQ(with([](Nodes& nodes) { nodes.normalization->resultImage()->setFormat(Float32); }), 0U);
  EXPECT_EQ(with([](Nodes& nodes) { nodes.result->setFormat(Float32); }), 0U);
  EXPECT_EQ(with([](Nodes& nodes) {
              nodes.normalization->resultImage()->setImageAllocator(Image::defaultAllocator());
            }),
            0U);
  EXPECT_EQ(fusedIn(network(true, exportNormalization)), 0U);
}

TEST_P(SecondSources, OfPlainSumsAlone) {
  const auto with = [&](const Change& change) { return fusedIn(network(false, change)); };
  EXPECT_EQ(with([](Nodes& nodes) { nodes.sum->setPrimaryScale(2); }), 0U);
  EXPECT_EQ(with([](Nodes& nodes) { nodes.sum->setBias(1); }), 0U);
  EXPECT_EQ(with([](Nodes& nodes) { nodes.result = nodes.sum->resultImage(); }), 0U) << "no ReLU";
  EXPECT_EQ(with([](Nodes& nodes) {
              nodes.result = CNNNeuronReLUNode::create(nodes.sum->resultImage(), 0.5F)->resultImage();
            }),
            0U);
}

/// Its own ReLU comes before the addition.
TEST_P(SecondSources, NotWhereTheNormalizationHasANeuron) {
  EXPECT_EQ(fusedIn(network(false,
                            [](Nodes& nodes) {
                              const auto relu = CNNNeuronReLUNode::create(nodes.normalization->resultImage());
                              const auto sum = NNAdditionNode::create(relu->resultImage(), nodes.shortcut);
                              nodes.result = CNNNeuronReLUNode::create(sum->resultImage())->resultImage();
                            })),
            0U);
}

TEST_P(SecondSources, NotWhereSomethingElseReadsTheNormalization) {
  EXPECT_EQ(
      fusedIn(network(
          false,
          [](Nodes& nodes) {
            nodes.result =
                NNMultiplicationNode::create(nodes.result, nodes.normalization->resultImage())->resultImage();
          })),
      0U);
}

/// Gradients of the addition that are no copies read its state.
TEST_P(SecondSources, NotWhereTheAdditionsStateIsWanted) {
  std::size_t exported = 0;
  EXPECT_EQ(fusedIn(network(), Float16,
                    [&](NNFilterNode& node) {
                      if (node.className().find("AdditionGradient") == std::string::npos) return;
                      node.resultImage()->setExportFromGraph(true);
                      ++exported;
                    }),
            0U);
  EXPECT_GT(exported, 0U);
  EXPECT_EQ(fusedIn(network(false, [](Nodes& nodes) { nodes.sum->resultState()->setExportFromGraph(true); })),
            0U);
}

TEST_P(SecondSources, NotOfANormalizationAndItself) {
  EXPECT_EQ(fusedIn(network(false,
                            [](Nodes& nodes) {
                              const Source own = nodes.normalization->resultImage();
                              const auto sum = NNAdditionNode::create(own, own);
                              nodes.result = CNNNeuronReLUNode::create(sum->resultImage())->resultImage();
                            })),
            0U);
}

/// Gives a graph a normalisation as somebody has made it.
class MadeNormalizationNode final : public NNFilterNode {
 public:
  using Make = std::function<std::shared_ptr<Kernel>()>;
  MadeNormalizationNode(const Source& source, Make make) : NNFilterNode({source}), make_(std::move(make)) {}
  [[nodiscard]] std::string className() const override { return "MadeNormalizationNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(
      const std::shared_ptr<mtl::Device>& /*device*/) const override {
    return make_();
  }

 private:
  Make make_;
};

TEST_P(SecondSources, OnlyOfKernelsOfTheGraphsOwnThatWriteAllOfTheirResult) {
  const auto source = TrainableBatchNormalization::create(device_, 1, "norm", test::sgd(device_));
  const auto fused = [&](const MadeNormalizationNode::Make& make) {
    const auto x = CNNNeuronSigmoidNode::create(NNImageNode::create())->resultImage();
    const auto normalization =
        std::make_shared<MadeNormalizationNode>(CNNNeuronTanHNode::create(x)->resultImage(), make);
    const auto sum = NNAdditionNode::create(normalization->resultImage(), x);
    const auto relu = CNNNeuronReLUNode::create(sum->resultImage());
    const auto last = CNNNeuronLinearNode::create(relu->resultImage(), 2);
    const auto graph = NNGraph::create(device_, last->resultImage());
    const auto commandBuffer = device_->newCommandQueue()->commandBuffer();
    graph->encodeBatch(commandBuffer, {test::pictures(device_, 2)});
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    return countOf(*graph);
  };
  const auto made = [&] { return CNNBatchNormalization::create(device_, source); };
  EXPECT_EQ(fused(made), 1U);
  auto kept = made();
  EXPECT_EQ(fused([&] { return kept; }), 0U);
  EXPECT_EQ(fused([&] {
              auto kernel = made();
              kernel->setClipRect({{0, 0, 0}, {4, 4, 8}});
              return kernel;
            }),
            0U);
}

TEST_P(SecondSources, NotBesideChannelsOfOthers) {
  const auto source = TrainableBatchNormalization::create(device_, 4, "norm", test::sgd(device_));
  const auto kernel = CNNBatchNormalization::create(device_, source);
  detail::ImageKernel& image = *kernel;
  EXPECT_TRUE(image.roles().addsSecondSource);
  kernel->setDestinationFeatureChannelOffset(4);
  EXPECT_FALSE(image.roles().addsSecondSource);
}

TEST_P(SecondSources, StepsRepeatTheirCommands) {
  const Network made = network(true);
  const auto graph = training(made, Float32);
  test::train(*graph, device_, 3);
  EXPECT_EQ(countOf(*graph), 1U);
  EXPECT_THAT(graph->debugDescription(), ::testing::Not(::testing::HasSubstr(" 0 steps repeat")));
}

TEST_P(SecondSources, GradientsAreRight) {
  const auto graph = training(network(true), Float32);
  const auto report = checkGradients(*graph, {test::pictures(device_, 0)}, {test::labels(device_, 0)});
  EXPECT_EQ(report.describe(), "");
  EXPECT_TRUE(report.passed());
}

TEST_P(SecondSources, ADecodedGraphTakesThemToo) {
  const auto graph = training(network(), Float16);
  KeyedArchiver archiver;
  graph->encode(archiver);
  KeyedUnarchiver unarchiver(archiver.encodedData());
  const auto decoded = NNGraph::decode(unarchiver, device_);
  test::train(*decoded, device_, 2);
  EXPECT_EQ(countOf(*decoded), 1U);
}

INSTANTIATE_TEST_SUITE_P(Devices, SecondSources, ::testing::ValuesIn(mtl::copyAllDevices()),
                         mtl::testing::nameOf);

}  // namespace
}  // namespace mps::second_sources_test
