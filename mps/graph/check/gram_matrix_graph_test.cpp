#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "mps/core/testing/test_images.hpp"
#include "mps/gram_matrix/gram_matrix_node.hpp"
#include "mps/graph/nn_graph.hpp"

/// Gram matrices in graphs.
namespace mps::gram_matrix_graph_test {
namespace {

using testing::sizeOf;
using testing::Values;
using testing::valuesOf;

class GramMatrixGraph : public testing::DeviceTest {};

/// Alpha is 1 / pixels.
class PixelMean final : public NNGramMatrixCallback {
 public:
  float alphaForSourceImage(const std::shared_ptr<Image>& sourceImage,
                            const std::shared_ptr<Image>& destinationImage) override {
    EXPECT_EQ(destinationImage->width(), sourceImage->featureChannels());
    ++calls;
    return 1 / static_cast<float>(sourceImage->width() * sourceImage->height());
  }
  int calls = 0;
};

/// Once for each encode, for images of any size, and in both directions.
TEST_F(GramMatrixGraph, ACallbackChoosesAlpha) {
  const auto node = NNGramMatrixCalculationNode::create(NNImageNode::create(), 100);
  node->resultImage()->setExportFromGraph(true);
  node->resultImage()->setImageAllocator(Image::defaultAllocator());
  const auto mean = std::make_shared<PixelMean>();
  node->setPropertyCallBack(mean);
  EXPECT_EQ(node->propertyCallBack(), mean);
  const auto gradient = node->gradientFilter(NNImageNode::create());
  const auto graph = NNGraph::create(device_, gradient->resultImage(), true);
  graph->setDestinationImageAllocator(Image::defaultAllocator());
  const auto g = image(sizeOf(2, 1, 2), {1, 0, 0, 0});
  const auto encode = [&](const std::shared_ptr<Image>& source, const Values& matrix, const Values& dx) {
    const auto buffer = commands();
    std::vector<std::shared_ptr<Image>> intermediates;
    const auto result = graph->encode(buffer, {g, source}, {}, &intermediates);
    run(buffer);
    ASSERT_EQ(intermediates.size(), 1U);
    EXPECT_EQ(valuesOf(*intermediates[0]), matrix);
    EXPECT_EQ(valuesOf(*result), dx);
  };
  encode(image(sizeOf(2, 1, 2), {1, 2, 3, 4}), {5, 7, 7, 10}, {1, 0, 3, 0});
  encode(image(sizeOf(1, 1, 2), {1, 2}), {1, 2, 2, 4}, {2, 0});
  EXPECT_EQ(mean->calls, 2);
}

}  // namespace
}  // namespace mps::gram_matrix_graph_test
