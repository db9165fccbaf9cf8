#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "mps/arithmetic/arithmetic_node.hpp"
#include "mps/concatenation/concatenation_node.hpp"
#include "mps/core/kernel/cnn_binary_kernel.hpp"
#include "mps/core/kernel/cnn_kernel.hpp"
#include "mps/core/kernel/cnn_multiary_kernel.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/graph/nn_graph.hpp"
#include "mps/neuron/neuron_node.hpp"
#include "mps/pooling/pooling_node.hpp"
#include "mps/upsampling/upsampling_node.hpp"

/// One graph for images of several sizes, and for padding policies of the user's own: each encode computes what a new graph
/// would.
namespace mps::graph_sizes_test {
namespace {

using testing::counted;
using testing::errorOf;
using testing::sizeOf;
using testing::Values;

using Node = std::shared_ptr<NNImageNode>;

/// Moves the first source, of images of the wanted width alone, and repeats its edge there; several are cut.
class MovingPadding final : public NNPadding {
 public:
  explicit MovingPadding(std::size_t width) : width_(width) {}
  [[nodiscard]] NNPaddingMethod paddingMethod() const override {
    return NNPaddingMethod::SizeSame | NNPaddingMethod::Custom;
  }
  ImageDescriptor destinationImageDescriptor(std::span<const std::shared_ptr<Image>> sourceImages,
                                             std::span<const std::shared_ptr<State>>, Kernel& kernel,
                                             const ImageDescriptor& suggestedDescriptor) override {
    ++calls;
    if (sourceImages[0]->width() != width_) return suggestedDescriptor;
    if (auto* unary = dynamic_cast<CNNKernel*>(&kernel)) {
      unary->setOffset(moved(unary->offset()));
      unary->setEdgeMode(ImageEdgeMode::Clamp);
    }
    if (auto* binary = dynamic_cast<CNNBinaryKernel*>(&kernel)) {
      binary->setPrimaryOffset(moved(binary->primaryOffset()));
      binary->setPrimaryEdgeMode(ImageEdgeMode::Clamp);
    }
    ImageDescriptor result = suggestedDescriptor;
    if (auto* multiary = dynamic_cast<CNNMultiaryKernel*>(&kernel)) {  // these read no edges
      multiary->setOffset({1, 0, 0}, 0);
      result.setWidth(width_ - 1);
    }
    return result;
  }
  int calls = 0;

 private:
  static Offset moved(Offset offset) {
    offset.x -= 1;
    return offset;
  }
  std::size_t width_;
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

/// Pixels 1, 2, ... of a square, each row moved one to the right, its first pixel repeated.
Values movedRight(std::size_t side) {
  Values values = counted(side * side);
  for (std::size_t i = side * side; i-- > 0;)
    if (i % side != 0) values[i] = values[i - 1];
  return values;
}

/// Once for each set of sizes, in any order; what it did to the kernel for one set does not count for the others.
TEST_F(GraphSizes, APolicyIsAskedOnceForEachSetOfSizes) {
  const auto padding = std::make_shared<MovingPadding>(9);
  const auto first = CNNNeuronLinearNode::create(NNImageNode::create(), 1.0F, 0.0F);
  const auto moving = CNNNeuronLinearNode::create(first->resultImage(), 1.0F, 0.0F);
  moving->setPaddingPolicy(padding);
  const auto last = CNNNeuronLinearNode::create(moving->resultImage(), 1.0F, 0.0F);
  const auto graph = NNGraph::create(device_, last->resultImage());
  for (int times = 0; times < 3; ++times) {
    EXPECT_EQ(encode(*graph, {9}), movedRight(9));
    EXPECT_EQ(padding->calls, times == 0 ? 1 : 2);
    EXPECT_EQ(encode(*graph, {8}), counted(64)) << "the edge mode of width 9 is not that of width 8";
    EXPECT_EQ(padding->calls, 2);
  }
  const auto another = NNGraph::create(device_, last->resultImage());
  EXPECT_EQ(encode(*another, {9}), movedRight(9));
  EXPECT_EQ(padding->calls, 3) << "a new graph asks";
}

TEST_F(GraphSizes, APolicyOfSeveralSourcesIsAskedOnceForEachSetOfSizes) {
  const auto padding = std::make_shared<MovingPadding>(9);
  const auto first = CNNNeuronLinearNode::create(NNImageNode::create(), 1.0F, 0.0F);
  const auto moving = NNSubtractionNode::create(first->resultImage(), NNImageNode::create());
  moving->setPaddingPolicy(padding);
  const auto last = CNNNeuronLinearNode::create(moving->resultImage(), 1.0F, 0.0F);
  const auto graph = NNGraph::create(device_, last->resultImage());
  Values expected = movedRight(9);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] -= static_cast<float>(i + 1);
  for (int times = 0; times < 2; ++times) {
    EXPECT_EQ(encode(*graph, {9, 9}), expected);
    EXPECT_EQ(encode(*graph, {8, 8}), Values(64));
    EXPECT_EQ(padding->calls, 2);
  }
}

TEST_F(GraphSizes, APolicyOfAnyNumberOfSourcesIsAskedOnceForEachSetOfSizes) {
  const auto padding = std::make_shared<MovingPadding>(9);
  const auto joined = NNConcatenationNode::create({NNImageNode::create(), NNImageNode::create()});
  joined->setChannelAlignment(1);
  joined->setPaddingPolicy(padding);
  const auto graph = NNGraph::create(device_, joined->resultImage());
  Values expected;
  for (std::size_t y = 0; y < 9; ++y)
    for (std::size_t x = 0; x < 8; ++x)
      for (const std::size_t pixel : {9 * y + x + 1, 9 * y + x})
        expected.push_back(static_cast<float>(pixel + 1));
  for (int times = 0; times < 2; ++times) {
    EXPECT_EQ(encode(*graph, {9, 9}), expected);
    EXPECT_EQ(encode(*graph, {8, 8}).size(), 128U);
    EXPECT_EQ(padding->calls, 2);
  }
}

}  // namespace
}  // namespace mps::graph_sizes_test
