#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mps/arithmetic/arithmetic_node.hpp"
#include "mps/concatenation/concatenation_node.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/graph/check/test_network.hpp"
#include "mps/instance_normalization/check/instance_normalization_fixed_source.hpp"
#include "mps/instance_normalization/instance_normalization.hpp"
#include "mps/instance_normalization/instance_normalization_node.hpp"
#include "mps/neuron/neuron.hpp"
#include "mps/reduction/reduction_node.hpp"
#include "mps/reshape/reshape_node.hpp"
#include "mps/softmax/softmax.hpp"
#include "mps/upsampling/upsampling_node.hpp"

/// Temporary images and states that go into a graph and come out of it, rules 12 and 14.
namespace mps::read_counts_test {
namespace {

using testing::sizeOf;
using testing::Values;

using Node = std::shared_ptr<NNFilterNode>;
using ImageNode = std::shared_ptr<NNImageNode>;

struct Case {
  std::string name;
  std::function<Node(const ImageNode&)> make;
};

/// Kernels whose gradients need the elements of their source, its size, or nothing of it.
std::vector<Case> cases() {
  return {
      {"average", [](const ImageNode& x) { return CNNPoolingAverageNode::create(x, 2); }},
      {"maximum", [](const ImageNode& x) { return CNNPoolingMaxNode::create(x, 2); }},
      {"reshape", [](const ImageNode& x) { return NNReshapeNode::create(x, 16, 1, 4); }},
      {"nearest", [](const ImageNode& x) { return CNNUpsamplingNearestNode::create(x, 2, 2); }},
      {"relu", [](const ImageNode& x) { return CNNNeuronReLUNode::create(x); }},
      {"mean", [](const ImageNode& x) { return NNReductionSpatialMeanNode::create(x); }},
      {"dropout", [](const ImageNode& x) { return CNNDropoutNode::create(x, 0.5F, 1); }},
      {"concatenation",
       [](const ImageNode& x) {
         return NNConcatenationNode::create(std::vector{x, x});
       }},
      {"softmax", [](const ImageNode& x) { return CNNSoftMaxNode::create(x); }},
      {"sum", [](const ImageNode& x) { return NNAdditionNode::create(x, x); }},
      {"two",
       [](const ImageNode& x) {
         return NNAdditionNode::create(CNNPoolingAverageNode::create(x, 2, 1)->resultImage(),
                                       CNNPoolingAverageNode::create(x, 3, 1)->resultImage());
       }},
      {"residual",
       [](const ImageNode& x) {
         const auto sum = NNAdditionNode::create(CNNNeuronTanHNode::create(x)->resultImage(), x);
         return CNNNeuronSigmoidNode::create(sum->resultImage());
       }},
  };
}

class ReadCounts : public testing::DeviceTest {
 protected:
  static constexpr std::size_t side = 4;
  static constexpr std::size_t channels = 4;

  [[nodiscard]] std::shared_ptr<Image> permanent(const ImageDescriptor& size) const {
    return image(size, testing::counted(testing::elementsOf(size)));
  }
  /// A temporary image that a kernel has written.
  [[nodiscard]] std::shared_ptr<TemporaryImage> temporary(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const ImageDescriptor& size) const {
    auto made = TemporaryImage::create(commandBuffer, size);
    const auto copy =
        CNNNeuron::create(device_, NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::Linear, 1, 0));
    copy->encode(commandBuffer, permanent(size), made);
    return made;
  }
  /// Size of a node's result for a source of 4 x 4 x 4.
  [[nodiscard]] ImageDescriptor resultSize(const Node& node) const {
    const auto graph = NNGraph::create(device_, node->resultImage());
    const auto commandBuffer = commands();
    const auto size = graph->encode(commandBuffer, {permanent(sizeOf(side, side, channels))})->descriptor();
    return sizeOf(size.width(), size.height(), size.featureChannels());
  }
  /// Encodes a gradient's graph, whose first source is the incoming gradient.
  static std::vector<std::shared_ptr<Image>> encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                                    NNGraph& graph, const std::shared_ptr<Image>& source,
                                                    const std::shared_ptr<Image>& incoming) {
    std::vector<std::shared_ptr<Image>> intermediates;
    graph.encode(commandBuffer, {incoming, source}, {}, &intermediates);
    return intermediates;
  }
};

TEST_F(ReadCounts, OneEncodeTakesOneReadOffTheSourcesOfForwardAndGradient) {
  for (const Case& each : cases()) {
    SCOPED_TRACE(each.name);
    for (const std::size_t reads : {1U, 3U}) {
      const Node last = each.make(NNImageNode::create());
      const auto graph =
          NNGraph::create(device_, last->trainingGraph(NNImageNode::create())[0]->resultImage());
      const auto commandBuffer = commands();
      const auto source = temporary(commandBuffer, sizeOf(side, side, channels));
      const auto incoming = temporary(commandBuffer, resultSize(last));
      for (const auto& one : {source, incoming}) one->setReadCount(reads);
      encode(commandBuffer, *graph, source, incoming);
      EXPECT_EQ(source->readCount(), reads - 1);
      EXPECT_EQ(incoming->readCount(), reads - 1);
      run(commandBuffer);
    }
  }
}

TEST_F(ReadCounts, AnExportedTemporaryImageKeepsOneReadForTheCaller) {
  for (const Case& each : cases()) {
    SCOPED_TRACE(each.name);
    const auto incoming = permanent(resultSize(each.make(NNImageNode::create())));
    const auto before = CNNNeuronTanHNode::create(NNImageNode::create());
    before->resultImage()->setExportFromGraph(true);
    const Node last = each.make(before->resultImage());
    const auto graph = NNGraph::create(device_, last->trainingGraph(NNImageNode::create())[0]->resultImage());
    const auto commandBuffer = commands();
    const auto intermediates =
        encode(commandBuffer, *graph, permanent(sizeOf(side, side, channels)), incoming);
    ASSERT_EQ(intermediates.size(), 1U);
    ASSERT_TRUE(intermediates[0]->isTemporary());
    EXPECT_EQ(std::static_pointer_cast<TemporaryImage>(intermediates[0])->readCount(), 1U);
    run(commandBuffer);
  }
}

TEST_F(ReadCounts, ABatchMayMixTemporaryAndPermanentImages) {
  const auto neuron = CNNNeuronReLUNode::create(NNImageNode::create());
  const auto graph = NNGraph::create(device_, neuron->resultImage());
  for (const bool temporaryFirst : {false, true}) {
    const auto commandBuffer = commands();
    const auto fixed = permanent(sizeOf(side, side, channels));
    const auto scratch = temporary(commandBuffer, sizeOf(side, side, channels));
    scratch->setReadCount(2);
    const ImageBatch results = graph->encodeBatch(
        commandBuffer, {temporaryFirst ? ImageBatch{scratch, fixed} : ImageBatch{fixed, scratch}});
    EXPECT_EQ(scratch->readCount(), 1U);
    run(commandBuffer);
    for (std::size_t i = 0; i < 2; ++i)
      EXPECT_EQ(testing::valuesOf(*results[i]), testing::counted(side * side * channels));
  }
}

TEST_F(ReadCounts, AnImageThatIsTwoSourcesLosesTwoReads) {
  const auto a = NNImageNode::create(), b = NNImageNode::create();
  const auto graph = NNGraph::create(device_, NNAdditionNode::create(a, b)->resultImage());
  const auto commandBuffer = commands();
  const auto scratch = temporary(commandBuffer, sizeOf(side, side, channels));
  scratch->setReadCount(5);
  graph->encode(commandBuffer, {scratch, scratch});
  EXPECT_EQ(scratch->readCount(), 3U);
}

TEST_F(ReadCounts, AViewThatIsASourceLetsGoOfItsParent) {
  const auto a = NNImageNode::create(), b = NNImageNode::create();
  const auto graph = NNGraph::create(device_, NNAdditionNode::create(a, b)->resultImage());
  const auto commandBuffer = commands();
  const auto parent = temporary(commandBuffer, sizeOf(side, side, channels));
  parent->setReadCount(2);
  const auto view = parent->subImageWithFeatureChannelRange(0, channels);
  graph->encode(commandBuffer, {view, parent});
  EXPECT_EQ(std::static_pointer_cast<TemporaryImage>(view)->readCount(), 0U);
  EXPECT_EQ(parent->readCount(), 1U) << "2, and one that the view held";
}

TEST_F(ReadCounts, OneEncodeTakesOneReadOffAStateThatTwoNodesRead) {
  const auto gradient = NNImageNode::create(), x = NNImageNode::create();
  const auto state = std::make_shared<NNGradientStateNode>();
  const auto first = CNNInstanceNormalizationGradientNode::create(gradient, x, state);
  const auto second = CNNInstanceNormalizationGradientNode::create(first->resultImage(), x, state);
  const auto graph = NNGraph::create(device_, second->resultImage());
  const auto kernel =
      CNNInstanceNormalization::create(device_, detail::FixedInstanceNormalization::create(channels));
  for (const std::size_t reads : {1U, 3U}) {
    const auto commandBuffer = commands();
    const auto source = permanent(sizeOf(side, side, channels));
    std::shared_ptr<State> made;
    kernel->encode(commandBuffer, source, made, true);
    ASSERT_TRUE(made->isTemporary());
    made->setReadCount(reads);
    graph->encode(commandBuffer, {permanent(sizeOf(side, side, channels)), source}, {made});
    EXPECT_EQ(made->readCount(), reads - graph->readCountForSourceState(0));
    run(commandBuffer);
  }
}

}  // namespace
}  // namespace mps::read_counts_test
