#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "mps/conform/check_gradients.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/graph/check/test_network.hpp"
#include "mps/upsampling/scale_node.hpp"

/// Scale nodes with a transform provider.
namespace mps::image_scale_graph_test {
namespace {

using testing::sizeOf;
using testing::Values;
using testing::valuesOf;

/// Moves image n of each encode n pixels to the right.
class MovesEachFurther final : public ImageTransformProvider {
 public:
  ScaleTransform transformForSourceImage(const std::shared_ptr<Image>& image,
                                         const std::shared_ptr<Handle>& /*handle*/) override {
    widths.push_back(image->width());
    return {1, 1, static_cast<double>((widths.size() - 1) % 3), 0};
  }
  std::vector<std::size_t> widths;
};

class ScaleGraph : public testing::DeviceTest {
 protected:
  ImageBatch sources_ = batch(sizeOf(3, 1, 1), 3, {-1, 2, -3, 4, 5, -6, 7, 8, 9});
  std::shared_ptr<MovesEachFurther> provider_ = std::make_shared<MovesEachFurther>();
};

TEST_F(ScaleGraph, TheProviderIsAskedAtEachEncodeForEachImage) {
  const auto before = CNNNeuronReLUNode::create(NNImageNode::create(), 0);
  const auto scale = NNBilinearScaleNode::create(before->resultImage(), provider_, {4, 1, 1});
  const auto behind = CNNNeuronLinearNode::create(scale->resultImage(), 10, 0);
  const auto graph = NNGraph::create(device_, behind->resultImage());
  for (std::size_t encode = 1; encode <= 3; ++encode) {
    const auto buffer = commands();
    const ImageBatch results = graph->encodeBatch(buffer, {sources_}, {});
    run(buffer);
    EXPECT_EQ(valuesOf(results), (Values{0, 20, 0, 0, 0, 40, 50, 0, 0, 0, 70, 80})) << encode;
    EXPECT_EQ(provider_->widths, std::vector<std::size_t>(3 * encode, 3));
    EXPECT_TRUE(buffer->logs().empty());
  }
}

/// Layers before and behind: the gradient goes through the scale, image by image where each is moved in its own way.
TEST_F(ScaleGraph, LayersAroundScalesTrain) {
  const auto first =
      CNNConvolutionNode::create(NNImageNode::create(), test::layer(device_, 3, 1, 1, "first"));
  const auto smaller = NNLanczosScaleNode::create(first->resultImage(), {2, 1, 1});
  const auto moved = NNLanczosScaleNode::create(smaller->resultImage(), provider_, {4, 2, 1});
  const auto larger =
      NNBilinearScaleNode::create(moved->resultImage(), std::make_shared<MovesEachFurther>(), {5, 4, 1});
  const auto last = CNNConvolutionNode::create(larger->resultImage(), test::layer(device_, 3, 1, 1, "last"));
  const auto loss = CNNLossNode::create(
      last->resultImage(),
      CNNLossDescriptor::cnnLossDescriptor(CNNLossType::MeanSquaredError, CNNReductionType::Sum));
  std::vector<std::shared_ptr<NNImageNode>> results;
  for (const auto& terminus : loss->trainingGraph(nullptr)) results.push_back(terminus->resultImage());
  const auto graph = NNGraph::create(device_, results, std::vector<bool>(results.size(), false));
  const ImageBatch wanted = batch(sizeOf(5, 4, 1), 3, Values(60, 0.5F));
  const auto report =
      checkGradients(*graph, {sources_}, {CNNLossLabels::createBatch(device_, {1, 1, 1}, wanted)});
  EXPECT_TRUE(report.passed()) << report.describe();
}

}  // namespace
}  // namespace mps::image_scale_graph_test
