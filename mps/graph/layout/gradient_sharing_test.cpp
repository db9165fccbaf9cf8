#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "mps/arithmetic/arithmetic_node.hpp"
#include "mps/conform/check_gradients.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/graph/check/test_network.hpp"
#include "mtl/check/test_devices.hpp"

/// The pass that leaves out the gradient of a sum, which is a copy: every reader still reads what it would have.
namespace mps::gradient_sharing_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::Values;
using testing::valuesOf;

using Source = std::shared_ptr<NNImageNode>;
using Visit = std::function<void(NNFilterNode& gradient)>;

constexpr const char* shared = ", the incoming gradient itself";

std::size_t countOf(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// Exports all gradients, so that no image lends its memory.
void exportAll(NNFilterNode& gradient) {
  gradient.resultImage()->setExportFromGraph(true);
}

class GradientSharing : public ::testing::TestWithParam<std::shared_ptr<mtl::Device>> {
 protected:
  /// Two convolutions of the picture, something that joins them, fully connected 3, loss.
  struct Network {
    std::shared_ptr<TrainableConvolution> left, right, dense;
    std::shared_ptr<NNGraph> graph;
  };
  using Join = std::function<Source(const Source& left, const Source& right)>;
  /// Sees each gradient node that is made.
  Network network(const Join& join, const Visit& visit = nullptr) const {
    Network made;
    made.left = test::layer(device_, 3, 1, 4, "left");
    made.right = test::layer(device_, 1, 1, 4, "right");
    made.dense = test::layer(device_, 8, 4, 3, "dense");
    const auto picture = NNImageNode::create();
    const auto joined = join(CNNConvolutionNode::create(picture, made.left)->resultImage(),
                             CNNConvolutionNode::create(picture, made.right)->resultImage());
    const auto loss = CNNLossNode::create(
        CNNFullyConnectedNode::create(joined, made.dense)->resultImage(),
        CNNLossDescriptor::cnnLossDescriptor(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Sum));
    std::vector<Source> results;
    for (const auto& terminus : loss->trainingGraph(nullptr, blockOf(visit)))
      results.push_back(terminus->resultImage());
    made.graph = NNGraph::create(device_, results, std::vector<bool>(results.size(), false));
    return made;
  }
  static GradientNodeBlock blockOf(const Visit& visit) {
    return [visit](const std::shared_ptr<NNFilterNode>& node, const std::shared_ptr<NNFilterNode>&,
                   const Source&, const Source&) {
      if (visit) visit(*node);
    };
  }
  std::vector<Values> trained(NNGraph& graph, const Network& network) const {
    test::train(graph, device_, 6, 2);
    return test::weightsOf({network.left, network.right, network.dense}, device_);
  }
  std::vector<Values> trained(const Join& join, const Visit& visit = nullptr) const {
    const Network made = network(join, visit);
    return trained(*made.graph, made);
  }
  /// Gradients that are left out.
  std::size_t sharedIn(const Join& join, const Visit& visit = nullptr) const {
    const Network made = network(join, visit);
    test::train(*made.graph, device_, 1);
    return countOf(made.graph->debugDescription(), shared);
  }

  static Source sum(const Source& x, const Source& y) { return NNAdditionNode::create(x, y)->resultImage(); }
  static Source difference(const Source& x, const Source& y) {
    return NNSubtractionNode::create(x, y)->resultImage();
  }
  static Source tanh(const Source& x) { return CNNNeuronTanHNode::create(x)->resultImage(); }
  /// Changes the gradient nodes of sums.
  static Visit ofSums(const std::function<void(NNImageNode& result)>& change) {
    return [change](NNFilterNode& gradient) {
      if (gradient.className() == "NNAdditionGradientNode") change(*gradient.resultImage());
    };
  }

  std::shared_ptr<mtl::Device> device_ = GetParam();
};

TEST_P(GradientSharing, BothGradientsOfASumAreTheIncomingOne) {
  EXPECT_EQ(sharedIn(sum), 2U);
  const Network made = network(sum);
  const Network apart = network(sum, exportAll);
  test::train(*made.graph, device_, 1);
  test::train(*apart.graph, device_, 1);
  EXPECT_THAT(apart.graph->debugDescription(), Not(HasSubstr(shared)));
  EXPECT_EQ(trained(sum), trained(sum, exportAll));
}

TEST_P(GradientSharing, OfADifferenceThePrimaryOne) {
  EXPECT_EQ(sharedIn(difference), 1U);
  EXPECT_EQ(trained(difference), trained(difference, exportAll));
}

TEST_P(GradientSharing, OfASumOfSumsAllAreTheLastOnes) {
  const Join join = [](const Source& x, const Source& y) { return sum(sum(x, tanh(y)), sum(tanh(x), y)); };
  EXPECT_EQ(sharedIn(join), 6U);
}

TEST_P(GradientSharing, NotOfSumsThatChangeTheirSources) {
  using Node = std::shared_ptr<NNAdditionNode>;
  const auto with = [&](const std::function<void(const Node&)>& change) {
    return sharedIn([change](const Source& x, const Source& y) {
      const auto node = NNAdditionNode::create(x, y);
      change(node);
      return node->resultImage();
    });
  };
  EXPECT_EQ(with([](const Node& node) { node->setPrimaryScale(2); }), 1U) << "the secondary one";
  EXPECT_EQ(with([](const Node& node) { node->setSecondaryScale(2); }), 1U) << "the primary one";
  EXPECT_EQ(with([](const Node& node) { node->setMinimumValue(-1); }), 0U);
  EXPECT_EQ(with([](const Node& node) { node->setMaximumValue(1); }), 0U);
  EXPECT_EQ(with([](const Node& node) { node->setBias(1); }), 2U) << "a bias has no part in it";
}

TEST_P(GradientSharing, NotOfSourcesThatAreRepeated) {
  const Join repeated = [](const Source& x, const Source& y) {
    const auto node = NNAdditionNode::create(x, CNNPoolingAverageNode::create(y, 8)->resultImage());
    node->setSecondaryStrideInPixelsX(0);
    node->setSecondaryStrideInPixelsY(0);
    return node->resultImage();
  };
  EXPECT_EQ(sharedIn(repeated), 1U);
  EXPECT_EQ(trained(repeated), trained(repeated, exportAll));
}

TEST_P(GradientSharing, NotOfImagesThatOthersSeeOrOfAnotherFormat) {
  EXPECT_EQ(sharedIn(sum, ofSums([](NNImageNode& image) { image.setExportFromGraph(true); })), 0U);
  EXPECT_EQ(
      sharedIn(sum, ofSums([](NNImageNode& image) { image.setImageAllocator(Image::defaultAllocator()); })),
      0U);
  EXPECT_EQ(
      sharedIn(sum, ofSums([](NNImageNode& image) { image.setFormat(ImageFeatureChannelFormat::Float16); })),
      0U);
  EXPECT_EQ(sharedIn(sum,
                     [](NNFilterNode& gradient) {  // the incoming one
                       if (gradient.className().find("FullyConnected") != std::string::npos)
                         exportAll(gradient);
                     }),
            0U);
}

/// Its gradients each take a read off it.
TEST_P(GradientSharing, NotWhereTheSumsStateIsExported) {
  EXPECT_EQ(sharedIn([](const Source& x, const Source& y) {
              const auto node = NNAdditionNode::create(x, y);
              node->resultState()->setExportFromGraph(true);
              return node->resultImage();
            }),
            0U);
}

TEST_P(GradientSharing, NotWithACustomPaddingPolicyOnTheSum) {
  EXPECT_EQ(sharedIn([](const Source& x, const Source& y) {
              const auto node = NNAdditionNode::create(x, y);
              node->setPaddingPolicy(std::make_shared<test::CustomPadding>());
              return node->resultImage();
            }),
            0U);
}

TEST_P(GradientSharing, GradientsOfAResidualNetworkAreRight) {
  const Join residual = [&](const Source& x, const Source& y) {
    const auto branch = CNNConvolutionNode::create(CNNNeuronReLUNode::create(x)->resultImage(),
                                                   test::layer(device_, 3, 4, 4, "branch"));
    return CNNNeuronReLUNode::create(sum(sum(branch->resultImage(), x), y))->resultImage();
  };
  const Network made = network(residual);
  const auto report = checkGradients(*made.graph, {test::pictures(device_, 0)}, {test::labels(device_, 0)});
  EXPECT_EQ(report.describe(), "");
  EXPECT_TRUE(report.passed());
  EXPECT_EQ(sharedIn(residual), 4U);
}

TEST_P(GradientSharing, ADecodedGraphSharesThemToo) {
  const Network made = network(sum);
  KeyedArchiver archiver;
  made.graph->encode(archiver);
  KeyedUnarchiver unarchiver(archiver.encodedData());
  const auto decoded = NNGraph::decode(unarchiver, device_);
  test::train(*decoded, device_, 2);
  EXPECT_EQ(countOf(decoded->debugDescription(), shared), 2U);
}

/// Small whole numbers: sums, differences, kinks and factors of 2 are exact in any order.
class RandomSums : public GradientSharing {
 protected:
  static constexpr std::size_t side = 3;

  /// Gradients of the two sources of a network of 12 random nodes, of three encodes on one queue.
  std::vector<Values> gradients(unsigned seed, const Visit& visit, std::size_t& sharedGradients) const {
    std::mt19937 random(seed);
    const auto pick = [&](std::size_t count) { return static_cast<std::size_t>(random() % count); };
    const Source x = NNImageNode::create(std::make_shared<Name>("x"));
    const Source y = NNImageNode::create(std::make_shared<Name>("y"));
    std::vector<Source> nodes{x, y};
    std::vector<bool> isRead{false, false};
    const auto add = [&](const Source& node) {
      nodes.push_back(node);
      isRead.push_back(false);
    };
    const auto read = [&] {
      const std::size_t at =
          pick(3) == 0 ? pick(nodes.size()) : nodes.size() - 1 - pick(std::min<std::size_t>(3, nodes.size()));
      isRead[at] = true;
      return nodes[at];
    };
    for (int i = 0; i < 12; ++i) {
      const Source first = read();
      switch (pick(7)) {
        case 0:
          add(CNNNeuronReLUNode::create(first)->resultImage());
          break;
        case 1:
          add(CNNNeuronLinearNode::create(first, -2, 1)->resultImage());
          break;
        case 2:
          add(difference(first, read()));
          break;
        default:
          add(sum(first, read()));
      }
    }
    Source joined = nodes.back();
    for (std::size_t i = 0; i + 1 < nodes.size(); ++i)
      if (!isRead[i]) joined = sum(joined, nodes[i]);
    const auto last = CNNNeuronLinearNode::create(joined, 2);
    std::vector<Source> results;
    for (const auto& terminus :
         last->trainingGraph(NNImageNode::create(std::make_shared<Name>("gradient")), blockOf(visit)))
      results.push_back(terminus->resultImage());
    const auto graph = NNGraph::create(device_, results);
    const auto queue = device_->newCommandQueue();
    std::vector<Values> found;
    for (unsigned step = 0; step < 3; ++step) {
      std::vector<ImageBatch> sources;
      for (const auto& handle : graph->sourceImageHandles()) {
        std::mt19937 numbers(step + static_cast<unsigned>(handle->label().size()) +
                             (handle->label() == "y" ? 7U : 0U));
        Values values(2 * side * side);
        for (float& value : values) value = static_cast<float>(numbers() % 7U) - 3;
        sources.push_back(
            ImageBatch::create(device_, {ImageFeatureChannelFormat::Float32, side, side, 1}, 2));
        sources.back().writeBytes(std::span<const float>(values), testing::pixelsFirst);
      }
      const auto commandBuffer = queue->commandBuffer();
      std::vector<ImageBatch> images;
      std::vector<ImageBatch> wanted{graph->encodeBatch(commandBuffer, sources, {}, &images)};
      for (std::size_t i = 0; i + 1 < results.size(); ++i) wanted.push_back(images[i]);
      for (const ImageBatch& batch : wanted) ImageBatchSynchronize(batch, commandBuffer);
      commandBuffer->commit();
      commandBuffer->throwIfFailed();
      for (const ImageBatch& batch : wanted) found.push_back(valuesOf(batch));
    }
    sharedGradients += countOf(graph->debugDescription(), shared);
    return found;
  }

 private:
  class Name final : public Handle {
   public:
    explicit Name(std::string label) : label_(std::move(label)) {}
    [[nodiscard]] std::string label() const override { return label_; }

   private:
    std::string label_;
  };
};

/// Whoever writes over a gradient or adds to it is the last one that reads any image of that memory.
TEST_P(RandomSums, HaveTheBitsOfGradientsThatAreAllApart) {
  const unsigned base = std::random_device{}() % 1000000;
  std::size_t sharedGradients = 0;
  std::size_t none = 0;
  for (unsigned seed = base; seed < base + 60; ++seed)
    ASSERT_EQ(gradients(seed, nullptr, sharedGradients), gradients(seed, exportAll, none)) << "seed " << seed;
  EXPECT_GT(sharedGradients, 60U);
  EXPECT_EQ(none, 0U);
}

INSTANTIATE_TEST_SUITE_P(Devices, GradientSharing, ::testing::ValuesIn(mtl::copyAllDevices()),
                         mtl::testing::nameOf);
INSTANTIATE_TEST_SUITE_P(Devices, RandomSums, ::testing::ValuesIn(mtl::copyAllDevices()),
                         mtl::testing::nameOf);

}  // namespace
}  // namespace mps::gradient_sharing_test
