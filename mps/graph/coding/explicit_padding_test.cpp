#include "mps/trainable/explicit_padding.hpp"

#include <gtest/gtest.h>

#include "mps/arithmetic/arithmetic.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/graph/nn_graph.hpp"
#include "mps/pooling/pooling_node.hpp"
#include "mtl/command_queue.hpp"

namespace mps::explicit_padding_test {
namespace {

using detail::ExplicitPadding;
using testing::errorOf;
using testing::names;
using testing::Values;
using testing::valuesOf;
using Bytes = std::vector<std::byte>;

class ExplicitPaddingTest : public testing::DeviceTest {
 protected:
  /// Windows of 2x2 pixels of a picture of 3x2, the first one a row above and two columns before it.
  [[nodiscard]] std::shared_ptr<NNGraph> graphWith(const ExplicitPadding::Geometry& geometry) const {
    const auto pooling = CNNPoolingMaxNode::create(NNImageNode::create(), 2, 2, 1, 1);
    pooling->setPaddingPolicy(std::make_shared<ExplicitPadding>(geometry));
    return NNGraph::create(device_, pooling->resultImage());
  }
  [[nodiscard]] Values resultOf(NNGraph& graph) const {
    const auto source = image(ImageDescriptor(ImageFeatureChannelFormat::Float32, 3, 2, 1));
    testing::fill(*source, {1, 2, 3, 4, 5, 6});
    const auto commandBuffer = device_->newCommandQueue()->commandBuffer();
    const auto results = graph.encodeBatch(commandBuffer, {ImageBatch{source}});
    results[0]->synchronize(commandBuffer);
    commandBuffer->commit();
    commandBuffer->waitUntilCompleted();
    return valuesOf(results);
  }
  [[nodiscard]] static Bytes encoded(const Kernel& graph) {
    KeyedArchiver archiver;
    graph.encode(archiver);
    return archiver.encodedData();
  }
  [[nodiscard]] std::shared_ptr<NNGraph> decoded(const Bytes& bytes) const {
    KeyedUnarchiver unarchiver(bytes, device_);
    return NNGraph::decode(unarchiver);
  }
};

TEST_F(ExplicitPaddingTest, SaysWhereTheFirstWindowLies) {
  const auto graph = graphWith({.left = 1, .top = 1, .width = 4, .height = 2});
  EXPECT_EQ(resultOf(*graph), (Values{1, 2, 3, 3, 4, 5, 6, 6}));
}

TEST_F(ExplicitPaddingTest, AGraphWithItIsCoded) {
  const auto graph = graphWith({.left = 1, .top = 0, .width = 4, .height = 2});
  const Bytes bytes = encoded(*graph);
  const auto copy = decoded(bytes);
  EXPECT_EQ(encoded(*copy), bytes);
  EXPECT_EQ(resultOf(*copy), resultOf(*graph));
}

TEST_F(ExplicitPaddingTest, AResultWithoutPixelsIsNotDecoded) {
  EXPECT_TRUE(names(errorOf([&] { (void)decoded(encoded(*graphWith({.width = 0, .height = 2}))); }),
                    {"ExplicitPadding", "width", "0", "from 1 on"}));
  EXPECT_TRUE(names(errorOf([&] { (void)decoded(encoded(*graphWith({.width = 2, .height = 0}))); }),
                    {"ExplicitPadding", "height", "0", "from 1 on"}));
  EXPECT_FALSE(errorOf([&] {
                 (void)decoded(encoded(*graphWith({.left = 1U << 30U, .width = 2, .height = 2})));
               }).empty());
  KeyedArchiver archiver;
  EXPECT_TRUE(
      names(errorOf([&] { (void)ExplicitPadding::decode(archiver); }), {"ExplicitPadding", "encodes"}));
}

TEST_F(ExplicitPaddingTest, AKernelWithoutWindowsIsRefused) {
  const auto sum = CNNAdd::create(device_);
  ExplicitPadding padding({.width = 1, .height = 1});
  EXPECT_TRUE(names(errorOf([&] {
                      (void)padding.destinationImageDescriptor(
                          {}, {}, *sum, ImageDescriptor(ImageFeatureChannelFormat::Float32, 1, 1, 1));
                    }),
                    {"ExplicitPadding", "CNNAdd", "windows"}));
}

}  // namespace
}  // namespace mps::explicit_padding_test
