#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mps/arithmetic/arithmetic_node.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/graph/check/test_network.hpp"

/// Graphs on images that hold several.
namespace mps::stacked_images_test {
namespace {

using testing::counted;
using testing::DeviceTest;
using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;

class StackedImages : public DeviceTest {
 protected:
  static ImageDescriptor stackOf(std::size_t count) {
    auto size = sizeOf(8, 8, 1);
    size.setNumberOfImages(count);
    return size;
  }
  /// Convolution with a neuron, exported, then pooling; without states.
  struct Network {
    std::shared_ptr<CNNConvolutionNode> convolution;
    std::shared_ptr<CNNNeuronReLUNode> relu;
    std::shared_ptr<CNNPoolingMaxNode> pool;
  };
  Network network() {
    Network made;
    made.convolution =
        CNNConvolutionNode::create(NNImageNode::create(), test::layer(device_, 3, 1, 4, "conv"));
    made.relu = CNNNeuronReLUNode::create(made.convolution->resultImage());
    made.pool = CNNPoolingMaxNode::create(made.relu->resultImage(), 2);
    return made;
  }
  std::shared_ptr<Image> stack_ = image(stackOf(3), counted(3 * 64, -90));
};

TEST_F(StackedImages, GiveTheResultsOfTheImagesOneByOne) {
  const auto nodes = network();
  const auto graph = NNGraph::create(device_, nodes.pool->resultImage());
  auto buffer = commands();
  const auto together = graph->encode(buffer, {stack_});
  run(buffer);
  EXPECT_EQ(together->numberOfImages(), 3U);
  Values oneByOne;
  for (std::size_t i = 0; i < 3; ++i) {
    buffer = commands();
    const auto alone = graph->encode(buffer, {stack_->batchRepresentation()[i]});
    run(buffer);
    for (const float value : valuesOf(*alone)) oneByOne.push_back(value);
  }
  EXPECT_EQ(valuesOf(*together), oneByOne);
}

TEST_F(StackedImages, ExportedImagesAreStacksToo) {
  const auto nodes = network();
  nodes.relu->resultImage()->setExportFromGraph(true);
  nodes.relu->resultImage()->setImageAllocator(Image::defaultAllocator());
  const auto graph = NNGraph::create(device_, nodes.pool->resultImage());
  const auto buffer = commands();
  std::vector<std::shared_ptr<Image>> others;
  graph->encode(buffer, {stack_}, {}, &others);
  run(buffer);
  ASSERT_EQ(others.size(), 1U);
  EXPECT_EQ(others[0]->numberOfImages(), 3U);
  EXPECT_THAT(valuesOf(*others[0]), ::testing::Contains(::testing::Gt(0.0F)));
}

TEST_F(StackedImages, ATemporaryStackLosesOneRead) {
  const auto nodes = network();
  nodes.relu->resultImage()->setExportFromGraph(true);
  const auto graph = NNGraph::create(device_, nodes.pool->resultImage());
  const auto buffer = commands();
  const auto source = TemporaryImage::create(buffer, stackOf(3));
  source->setReadCount(2);
  std::vector<std::shared_ptr<Image>> others;
  graph->encode(buffer, {source}, {}, &others);
  EXPECT_EQ(source->readCount(), 1U);
  EXPECT_EQ(std::static_pointer_cast<TemporaryImage>(others.at(0))->readCount(), 1U);
}

TEST_F(StackedImages, ARefusedEncodeLeavesTheReadsOfATemporaryStack) {
  const auto sum = NNAdditionNode::create(NNImageNode::create(), NNImageNode::create());
  const auto graph = NNGraph::create(device_, sum->resultImage());
  const auto buffer = commands();
  const auto source = TemporaryImage::create(buffer, stackOf(3));
  EXPECT_TRUE(names(errorOf([&] {
                      graph->encode(buffer, {source, image(stackOf(2))});
                    }),
                    {"NNGraph", "sourceImages", "a batch of 2"}));
  EXPECT_EQ(source->readCount(), 1U);
  EXPECT_EQ(buffer->commandCount(), 0U);
}

TEST_F(StackedImages, AreRefusedWhereEachImageHasAState) {
  const auto graph =
      test::SmallNetwork(test::layer(device_, 3, 1, 4, "conv"), test::layer(device_, 4, 4, 3, "dense"))
          .trainingGraph(device_);
  const auto buffer = commands();
  EXPECT_TRUE(names(errorOf([&] { graph->encode(buffer, {stack_}, {test::labels(device_, 0)[0]}); }),
                    {"NNGraph", "sourceImages", "numberOfImages 1", "states"}));
  EXPECT_TRUE(names(errorOf([&] { graph->encodeBatch(buffer, {ImageBatch{stack_}}, {}); }), {"NNGraph"}));
}

}  // namespace
}  // namespace mps::stacked_images_test
