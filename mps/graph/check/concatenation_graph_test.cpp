#include <gtest/gtest.h>

#include "mps/arithmetic/arithmetic_node.hpp"
#include "mps/concatenation/concatenation_node.hpp"
#include "mps/conform/tolerance.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/core/types/error.hpp"
#include "mps/graph/check/test_network.hpp"

/// Networks that fork and join by concatenation, docs/decisions.md, D18.
namespace mps::concatenation_graph_test {
namespace {

using testing::errorOf;
using testing::names;
using Numbers = std::vector<float>;

/// The example's numbers have five decimals or more.
constexpr double kPrinted = detail::printedTolerance(5);

const std::shared_ptr<mtl::Device>& device() {
  static const auto device = mtl::createSystemDefaultDevice();
  return device;
}

std::shared_ptr<test::UserSource> given(std::size_t in, std::size_t out, const Numbers& weights,
                                        const Numbers& biases) {
  return std::make_shared<test::UserSource>(device(),
                                            CNNConvolutionDescriptor::cnnConvolutionDescriptor(1, 1, in, out),
                                            std::as_bytes(std::span(weights)), biases, 0.01F);
}

std::shared_ptr<CNNLossNode> squaredError(const std::shared_ptr<NNImageNode>& source) {
  return CNNLossNode::create(
      source, CNNLossDescriptor::cnnLossDescriptor(CNNLossType::MeanSquaredError, CNNReductionType::Sum));
}

/// Worked example 2: A = F1(X), B = F2(A), S = A + B, K = [S, A], P = F5(K), squared error.
struct WorkedExample {
  std::shared_ptr<test::UserSource> w1 = given(
      4, 4, {-0.2F, -0.1F, 0, 0.1F, 0.2F, -0.2F, -0.1F, 0, 0.1F, 0.2F, -0.2F, -0.1F, 0, 0.1F, 0.2F, -0.2F},
      {0.1F, 0, -0.1F, 0.2F});
  std::shared_ptr<test::UserSource> w2 =
      given(4, 4, {-0.1F, 0.1F, -0.1F, 0.1F, 0, 0.2F, 0, 0.2F, 0.1F, -0.1F, 0.1F, -0.1F, 0.2F, 0, 0.2F, 0},
            {0, 0.1F, 0, -0.1F});
  std::shared_ptr<test::UserSource> wF = given(
      8, 2, {-0.3F, -0.2F, -0.1F, 0, 0.1F, 0.2F, 0.3F, -0.3F, 0, 0.1F, 0.2F, 0.3F, -0.3F, -0.2F, -0.1F, 0},
      {0.05F, -0.05F});
  std::shared_ptr<NNImageNode> x = NNImageNode::create();
  std::shared_ptr<CNNConvolutionNode> f1 = CNNConvolutionNode::create(x, w1);
  std::shared_ptr<CNNConvolutionNode> f2 = CNNConvolutionNode::create(f1->resultImage(), w2);
  std::shared_ptr<NNAdditionNode> f3 = NNAdditionNode::create(f1->resultImage(), f2->resultImage());
  std::shared_ptr<NNConcatenationNode> f4;
  std::shared_ptr<CNNFullyConnectedNode> f5;
  std::shared_ptr<CNNLossNode> f6;

  /// @param joinsTheInput X is a third source of the concatenation
  explicit WorkedExample(bool joinsTheInput = false) {
    std::vector sources{f3->resultImage(), f1->resultImage()};
    if (joinsTheInput) sources.push_back(x);
    f4 = NNConcatenationNode::create(sources);
    f5 = CNNFullyConnectedNode::create(f4->resultImage(), wF);
    f6 = squaredError(f5->resultImage());
  }
};

/// One image for each vector of channels.
std::shared_ptr<Image> pixel(const Numbers& values) {
  auto image = Image::create(device(), {ImageFeatureChannelFormat::Float32, 1, 1, values.size()});
  testing::fill(*image, values);
  return image;
}

TEST(ConcatenationGraph, Example2TheHandlerSeesTheNodesInOrder) {
  const WorkedExample net;
  std::vector<std::string> calls;
  std::vector<std::shared_ptr<NNImageNode>> sources;
  const auto termini = net.f6->trainingGraph(
      nullptr, [&](const std::shared_ptr<NNFilterNode>& node, const std::shared_ptr<NNFilterNode>&,
                   const std::shared_ptr<NNImageNode>& source, const std::shared_ptr<NNImageNode>&) {
        calls.push_back(node->className());
        sources.push_back(source);
      });
  const std::vector<std::string> expected{"CNNFullyConnectedGradientNode",
                                          "NNConcatenationGradientNode",
                                          "NNConcatenationGradientNode",
                                          "NNAdditionGradientNode",
                                          "NNAdditionGradientNode",
                                          "CNNConvolutionGradientNode",
                                          "NNAdditionNode",
                                          "NNAdditionNode",
                                          "CNNConvolutionGradientNode"};
  EXPECT_EQ(calls, expected);
  const auto a = net.f1->resultImage();
  const auto b = net.f2->resultImage();
  const std::vector expectedSources{net.f4->resultImage(), net.f3->resultImage(), a, a, b, a, a, a, net.x};
  EXPECT_EQ(sources, expectedSources);
  ASSERT_EQ(termini.size(), 1U);
  EXPECT_EQ(termini[0]->className(), "CNNConvolutionGradientNode");
}

TEST(ConcatenationGraph, Example2VariantsOfWhereGradientsStop) {
  const auto namesOf = [](const std::vector<std::shared_ptr<NNFilterNode>>& nodes) {
    std::vector<std::string> classes;
    for (const auto& node : nodes) classes.push_back(node->className());
    return classes;
  };
  const WorkedExample stopped;
  stopped.f1->resultImage()->setStopGradient(true);
  EXPECT_EQ(namesOf(stopped.f6->trainingGraph(nullptr)),
            (std::vector<std::string>{"NNConcatenationGradientNode", "NNAdditionGradientNode",
                                      "CNNConvolutionGradientNode"}));
  const WorkedExample joined(true);
  EXPECT_EQ(namesOf(joined.f6->trainingGraph(nullptr)), std::vector<std::string>{"NNAdditionNode"});
}

/// Section 10.3.
TEST(ConcatenationGraph, Example2Numbers) {
  const WorkedExample net;
  std::vector<std::shared_ptr<NNImageNode>> exported{net.f3->resultImage(), net.f4->resultImage(),
                                                     net.f5->resultImage(), net.f6->resultImage()};
  const auto termini = net.f6->trainingGraph(
      nullptr, [&](const std::shared_ptr<NNFilterNode>& node, const std::shared_ptr<NNFilterNode>&,
                   const std::shared_ptr<NNImageNode>&, const std::shared_ptr<NNImageNode>&) {
        if (node->className() != "NNAdditionNode") exported.push_back(node->resultImage());
      });
  exported.pop_back();  // dX is the result
  for (const auto& image : exported) image->setExportFromGraph(true);
  for (const auto& image : exported) image->setImageAllocator(Image::defaultAllocator());
  const auto graph = NNGraph::create(device(), termini[0]->resultImage(), true);
  const Numbers target{0.5F, -0.5F};
  const std::shared_ptr<State> labels =
      CNNLossLabels::create(device(), CNNLossDataDescriptor::cnnLossDataDescriptor(
                                          target, DataLayout::HeightxWidthxFeatureChannels, {1, 1, 2}));
  const auto queue = device()->newCommandQueue();
  std::vector<std::shared_ptr<Image>> images;
  const auto step = [&] {
    images.clear();
    const auto commandBuffer = queue->commandBuffer();
    images.push_back(graph->encode(commandBuffer, {pixel({1, -2, 0.5F, 3})}, {labels}, &images, nullptr));
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    return testing::valuesOf(*std::static_pointer_cast<CNNLossLabels>(labels)->lossImage())[0];
  };
  EXPECT_NEAR(step(), 0.32609F, kPrinted);
  // In the order of the encode: S, K, P, dP, dK, dA_c, dS, dA_l, dB, dA_r, dX.
  const std::vector<Numbers> expected{
      {0.445F, 0.66F, -0.845F, -0.68F},
      {0.445F, 0.66F, -0.845F, -0.68F, 0.4F, 0.55F, -0.8F, -0.5F},
      {-0.071F, -0.507F},
      {-1.142F, -0.014F},
      {0.3426F, 0.227F, 0.1114F, -0.0042F, -0.11F, -0.2256F, -0.3412F, 0.3426F},
      {-0.11F, -0.2256F, -0.3412F, 0.3426F},
      {0.3426F, 0.227F, 0.1114F, -0.0042F},
      {0.3426F, 0.227F, 0.1114F, -0.0042F},
      {0.3426F, 0.227F, 0.1114F, -0.0042F},
      {-0.02396F, 0.06852F, -0.02396F, 0.06852F},
      {-0.05312F, -0.044908F, 0.125144F, -0.035144F}};
  ASSERT_EQ(images.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const Numbers found = testing::valuesOf(*images[i]);
    ASSERT_EQ(found.size(), expected[i].size()) << i;
    for (std::size_t c = 0; c < found.size(); ++c) EXPECT_NEAR(found[c], expected[i][c], kPrinted) << i;
  }
  EXPECT_NEAR(step(), 0.233568761F, kPrinted);
  const Numbers after = testing::valuesOf(*images[2]);
  EXPECT_NEAR(after[0], 0.0168364F, kPrinted);
  EXPECT_NEAR(after[1], -0.51103F, kPrinted);
}

/// A convolution of 3 and 2 channels side by side.
struct Joined {
  std::shared_ptr<NNConcatenationNode> join;
  std::shared_ptr<CNNLossNode> loss;

  Joined(std::size_t channels, std::size_t alignment) {
    const auto x = NNImageNode::create();
    const auto a = CNNConvolutionNode::create(x, test::layer(device(), 3, 1, 3, "a"));
    const auto b = CNNConvolutionNode::create(x, test::layer(device(), 1, 1, 2, "b"));
    join = NNConcatenationNode::create({a->resultImage(), b->resultImage()});
    join->setChannelAlignment(alignment);
    join->setLabel("join");
    const auto c =
        CNNFullyConnectedNode::create(join->resultImage(), test::layer(device(), 8, channels, 3, "c"));
    loss = CNNLossNode::create(
        c->resultImage(),
        CNNLossDescriptor::cnnLossDescriptor(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Sum));
  }
  [[nodiscard]] std::string error() const {
    return errorOf([&] {
      const auto graph = NNGraph::create(device(), loss->trainingGraph(nullptr)[0]->resultImage(), false);
      test::train(*graph, device(), 1);
    });
  }
};

/// docs/decisions.md, D18.
TEST(ConcatenationGraph, D18AConvolutionMustTakeAllChannelsOfAConcatenation) {
  EXPECT_EQ(Joined(8, 4).error(), "");
  EXPECT_EQ(Joined(5, 1).error(), "");
  EXPECT_TRUE(names(Joined(5, 4).error(),
                    {"c\"", "inputFeatureChannels is 5", "expected 8", "\"join\"", "channelAlignment 4"}));
  EXPECT_TRUE(
      names(Joined(8, 1).error(), {"c\"", "inputFeatureChannels is 8", "expected 5", "channelAlignment 1"}));
}

/// The weights of a step whose gradients meet are those of one that shares no memory.
TEST(ConcatenationGraph, AnImageThatIsJoinedTwiceGetsTheSumOfItsSlices) {
  const auto train = [](bool exports) {
    const auto layer = test::layer(device(), 3, 1, 4, "a");
    const auto a = CNNConvolutionNode::create(NNImageNode::create(), layer);
    const auto join = NNConcatenationNode::create({a->resultImage(), a->resultImage(), a->resultImage()});
    const auto c = CNNFullyConnectedNode::create(join->resultImage(), test::layer(device(), 8, 12, 3, "c"));
    const auto loss = CNNLossNode::create(
        c->resultImage(),
        CNNLossDescriptor::cnnLossDescriptor(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Sum));
    const auto termini = loss->trainingGraph(
        nullptr, [&](const std::shared_ptr<NNFilterNode>& node, const std::shared_ptr<NNFilterNode>&,
                     const std::shared_ptr<NNImageNode>&, const std::shared_ptr<NNImageNode>&) {
          node->resultImage()->setExportFromGraph(exports);
        });
    const auto graph = NNGraph::create(device(), termini[0]->resultImage(), false);
    test::train(*graph, device(), 2);
    EXPECT_EQ(graph->debugDescription().find("accumulates") != std::string::npos, !exports)
        << graph->debugDescription();
    return test::weightsOf(*layer);
  };
  EXPECT_EQ(train(false), train(true));
}

/// Three layers of 3, 2 and 4 channels side by side; the gradients of two of them are made in one pass.
TEST(ConcatenationGraph, NeighbouringSlicesOfAGradientAreMadeTogether) {
  const auto x = NNImageNode::create();
  const std::vector<std::size_t> channels{3, 2, 4};
  std::vector<std::shared_ptr<NNImageNode>> parts;
  for (const std::size_t count : channels)
    parts.push_back(CNNConvolutionNode::create(x, test::layer(device(), 3, 1, count, "part"))->resultImage());
  const auto join = NNConcatenationNode::create(parts);
  join->setChannelAlignment(1);
  const auto last =
      CNNFullyConnectedNode::create(join->resultImage(), test::layer(device(), 8, 9, 3, "last"));
  const auto loss = CNNLossNode::create(
      last->resultImage(),
      CNNLossDescriptor::cnnLossDescriptor(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Sum));
  std::vector<std::shared_ptr<NNImageNode>> results(4);  // the whole gradient, then its slices
  static_cast<void>(loss->trainingGraph(
      nullptr, [&](const std::shared_ptr<NNFilterNode>& node, const std::shared_ptr<NNFilterNode>&,
                   const std::shared_ptr<NNImageNode>&, const std::shared_ptr<NNImageNode>&) {
        if (const auto slice = std::dynamic_pointer_cast<NNConcatenationGradientNode>(node))
          results.at(1 + slice->sourceIndex()) = node->resultImage();
        if (node->className() == "CNNFullyConnectedGradientNode") results[0] = node->resultImage();
      }));
  const auto graph = NNGraph::create(device(), results, std::vector<bool>(results.size(), true));
  std::vector<ImageBatch> slices;
  const auto commandBuffer = device()->newCommandQueue()->commandBuffer();
  const ImageBatch whole = graph->encodeBatch(commandBuffer, {test::pictures(device(), 1)},
                                              {test::labels(device(), 1)}, &slices, nullptr);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  const std::string description = graph->debugDescription();
  const std::string words = "done along with another slice";
  const std::size_t found = description.find(words);
  EXPECT_NE(found, std::string::npos) << description;
  EXPECT_EQ(description.find(words, found + 1), std::string::npos) << description;

  ASSERT_EQ(slices.size(), 3U);
  for (std::size_t n = 0; n < whole.count(); ++n) {
    const Numbers all = testing::valuesOf(*whole[n]);
    std::size_t begin = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      const Numbers slice = testing::valuesOf(*slices[i][n]);
      Numbers expected;
      for (std::size_t pixel = 0; pixel < all.size() / 9; ++pixel)
        for (std::size_t c = 0; c < channels[i]; ++c) expected.push_back(all[9 * pixel + begin + c]);
      EXPECT_EQ(slice, expected) << "image " << n << ", slice " << i;
      begin += channels[i];
    }
  }
}

}  // namespace
}  // namespace mps::concatenation_graph_test
