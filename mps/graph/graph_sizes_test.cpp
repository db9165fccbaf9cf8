#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "mps/arithmetic/arithmetic_node.hpp"
#include "mps/concatenation/concatenation_node.hpp"
#include "mps/core/cnn_binary_kernel.hpp"
#include "mps/core/cnn_kernel.hpp"
#include "mps/core/test_images.hpp"
#include "mps/graph/nn_graph.hpp"
#include "mps/neuron/neuron_node.hpp"
#include "mps/pooling/pooling_node.hpp"
#include "mps/upsampling/upsampling_node.hpp"

/// One graph for images of several sizes, and for a padding policy that changes its mind: each encode computes what a
/// new graph would.
namespace mps::graph_sizes_test {
namespace {

using testing::counted;
using testing::errorOf;
using testing::sizeOf;
using testing::Values;

using Node = std::shared_ptr<NNImageNode>;

/// Moves the first source to the left of where the built-in rule puts it.
class MovingPadding final : public NNPadding {
 public:
  [[nodiscard]] NNPaddingMethod paddingMethod() const override {
    return NNPaddingMethod::SizeSame | NNPaddingMethod::Custom;
  }
  ImageDescriptor destinationImageDescriptor(std::span<const std::shared_ptr<Image>>,
                                             std::span<const std::shared_ptr<State>>, Kernel& kernel,
                                             const ImageDescriptor& suggestedDescriptor) override {
    if (auto* unary = dynamic_cast<CNNKernel*>(&kernel)) unary->setOffset(moved(unary->offset()));
    if (auto* binary = dynamic_cast<CNNBinaryKernel*>(&kernel))
      binary->setPrimaryOffset(moved(binary->primaryOffset()));
    return suggestedDescriptor;
  }
  std::int64_t pixels = 0;

 private:
  [[nodiscard]] Offset moved(Offset offset) const {
    offset.x += pixels;
    return offset;
  }
};

class GraphSizes : public testing::DeviceTest {
 protected:
  /// Result of the graph for square sources of one channel, whose pixels are 1, 2, ...
  [[nodiscard]] Values encode(NNGraph& graph, const std::vector<std::size_t>& sides) const {
    const auto commandBuffer = commands();
    std::vector<ImageBatch> sources;
    for (const std::size_t side : sides)
      sources.push_back({image(sizeOf(side, side, 1), counted(side * side))});
    const ImageBatch result = graph.encodeBatch(commandBuffer, sources);
    run(commandBuffer);
    return testing::valuesOf(result);
  }
};

/// x + a coarse x, which is smaller unless the side of x is a multiple of 4: the rule centres one in the other.
std::shared_ptr<NNAdditionNode> sumWithCoarse(const Node& source) {
  const auto pool = CNNPoolingMaxNode::create(source, 4, 4);
  pool->setPaddingPolicy(NNDefaultPadding::padding(NNPaddingMethod::SizeValidOnly));
  const auto coarse = CNNUpsamplingNearestNode::create(pool->resultImage(), 4, 4);
  return NNAdditionNode::create(coarse->resultImage(), source);
}

TEST_F(GraphSizes, ASumReadsItsSourcesWhereTheSizesOfThisEncodePutThem) {
  const auto graph = NNGraph::create(device_, sumWithCoarse(NNImageNode::create())->resultImage());
  const auto small = encode(*graph, {8});
  const auto large = encode(*graph, {11});
  EXPECT_EQ(encode(*graph, {8}), small);
  EXPECT_EQ(encode(*graph, {11}), large);
  EXPECT_EQ(small[0], 28.0F + 1.0F) << "the largest of the first 4 x 4 pixels, and the first";
}

TEST_F(GraphSizes, ThatWereRefusedLeaveASumAsItWas) {
  const Node a = NNImageNode::create(), b = NNImageNode::create();
  const auto sum = sumWithCoarse(a);
  const auto pool = CNNPoolingMaxNode::create(b, 4, 4);
  pool->setPaddingPolicy(NNDefaultPadding::padding(NNPaddingMethod::SizeValidOnly));
  const auto joined = NNConcatenationNode::create({sum->resultImage(), pool->resultImage()});
  const auto graph = NNGraph::create(device_, joined->resultImage());
  const auto expected = encode(*graph, {4, 16});
  const auto refused = errorOf([&] { static_cast<void>(encode(*graph, {11, 3})); });
  EXPECT_TRUE(testing::names(refused, {"CNNPoolingMax", "3x3"}));
  EXPECT_EQ(encode(*graph, {4, 16}), expected);
}

TEST_F(GraphSizes, ThatAConcatenationRefusesDoNotSpoilThoseThatItTakes) {
  const auto joined =
      NNConcatenationNode::create({NNImageNode::create(), NNImageNode::create(), NNImageNode::create()});
  const auto graph = NNGraph::create(device_, joined->resultImage());
  const auto expected = encode(*graph, {4, 4, 4});
  EXPECT_NE(errorOf([&] { static_cast<void>(encode(*graph, {4, 4, 7})); }), "");
  EXPECT_EQ(encode(*graph, {4, 4, 4}), expected);
}

/// Pixels 1, 2, ... of a square, each row moved one to the right.
Values movedRight(std::size_t side) {
  Values values(side * side);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = i % side == 0 ? 0 : static_cast<float>(i);
  return values;
}

TEST_F(GraphSizes, APolicyMayMoveASourceFromOneEncodeToTheNext) {
  const auto padding = std::make_shared<MovingPadding>();
  const auto first = CNNNeuronLinearNode::create(NNImageNode::create(), 1.0F, 0.0F);
  const auto moving = CNNNeuronLinearNode::create(first->resultImage(), 1.0F, 0.0F);
  moving->setPaddingPolicy(padding);
  const auto last = CNNNeuronLinearNode::create(moving->resultImage(), 1.0F, 0.0F);
  const auto graph = NNGraph::create(device_, last->resultImage());
  EXPECT_EQ(encode(*graph, {9}), counted(81));
  padding->pixels = -1;
  EXPECT_EQ(encode(*graph, {9}), movedRight(9));
  padding->pixels = 0;
  EXPECT_EQ(encode(*graph, {9}), counted(81));
}

TEST_F(GraphSizes, APolicyMayMoveTheFirstOfTwoSourcesFromOneEncodeToTheNext) {
  const auto padding = std::make_shared<MovingPadding>();
  const auto first = CNNNeuronLinearNode::create(NNImageNode::create(), 1.0F, 0.0F);
  const auto moving = NNSubtractionNode::create(first->resultImage(), NNImageNode::create());
  moving->setPaddingPolicy(padding);
  const auto last = CNNNeuronLinearNode::create(moving->resultImage(), 1.0F, 0.0F);
  const auto graph = NNGraph::create(device_, last->resultImage());
  EXPECT_EQ(encode(*graph, {9, 9}), Values(81));
  padding->pixels = -1;
  Values expected = movedRight(9);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] -= static_cast<float>(i + 1);
  EXPECT_EQ(encode(*graph, {9, 9}), expected);
  padding->pixels = 0;
  EXPECT_EQ(encode(*graph, {9, 9}), Values(81));
}

}  // namespace
}  // namespace mps::graph_sizes_test
