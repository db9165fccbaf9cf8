#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mps/convolution/pooled_convolution.hpp"
#include "mps/core/test_images.hpp"
#include "mps/graph/graph_program.hpp"
#include "mps/graph/test_network.hpp"

/// The pass that lets a convolution give the maxima of its result in place of it. A CPU does so where it is forced to,
/// a GPU by itself.
namespace mps::pooled_convolutions_test {
namespace {

using Source = std::shared_ptr<NNImageNode>;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kPooled = "maxima only";

class PooledConvolutions : public testing::DeviceTest {
 protected:
  static constexpr std::size_t count = 3;

  /// Weights after some steps with pictures and gradients that are small integers, so that all sums are exact.
  struct Trained {
    std::vector<float> weights, biases;
    std::string description;
    std::size_t temporaryBytes = 0;
  };
  using Between = std::function<std::shared_ptr<NNFilterNode>(const Source& convolved)>;

  ImageBatch integers(std::size_t side, std::size_t channels, unsigned step) const {
    testing::Values values(count * side * side * channels);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>((i * 7 + i / 5 + step * 13) % 9) - 4;
    return batch({ImageFeatureChannelFormat::Float32, side, side, channels}, count, values);
  }

  Trained trained(bool pools, const Between& between, std::size_t side = 8, std::size_t resultSide = 4,
                  ImageFeatureChannelFormat format = ImageFeatureChannelFormat::Float32) const {
    const detail::ForceImplementation forced(pools ? detail::kPlainPooled : std::string_view());
    const auto layer = test::layer(device_, 3, 1, 4, "conv", 0.25F);
    const auto convolution = CNNConvolutionNode::create(NNImageNode::create(), layer);
    const auto last = between(convolution->resultImage());
    const auto termini = last->trainingGraph(NNImageNode::create());
    const auto graph = NNGraph::create(device_, termini.at(0)->resultImage(), false);
    graph->setFormat(format);
    for (unsigned step = 0; step < 3; ++step) {
      const auto pictures = integers(side, 1, step);
      const auto gradients = integers(resultSide, 4, step + 5);
      const bool picturesFirst =
          graph->program().images[graph->program().sourceImages[0]].readers.front() == 0;
      const auto buffer = commands();
      graph->encodeBatch(buffer,
                         picturesFirst ? std::vector{pictures, gradients} : std::vector{gradients, pictures});
      run(buffer);
    }
    const auto biases = layer->biasTerms();
    return {test::weightsOf(*layer),
            {biases.begin(), biases.end()},
            graph->debugDescription(),
            graph->plannedTemporaryBytes()};
  }

  static Source relu(const Source& x) { return CNNNeuronReLUNode::create(x)->resultImage(); }
  static std::shared_ptr<NNFilterNode> squares(const Source& x) {
    return CNNPoolingMaxNode::create(relu(x), 2);
  }
};

TEST_F(PooledConvolutions, HaveTheWeightsOfSeparateSteps) {
  const Trained expected = trained(false, squares);
  const Trained found = trained(true, squares);
  EXPECT_THAT(expected.description, Not(HasSubstr(kPooled)));
  EXPECT_THAT(found.description, HasSubstr(kPooled));
  EXPECT_THAT(found.description, HasSubstr("done by the convolution"));
  EXPECT_EQ(found.weights, expected.weights);
  EXPECT_EQ(found.biases, expected.biases);
  EXPECT_NE(found.weights, test::weightsOf(*test::layer(device_, 3, 1, 4, "conv")));
  EXPECT_LT(found.temporaryBytes, expected.temporaryBytes) << "the result and its gradient are in no memory";
}

TEST_F(PooledConvolutions, GoOnWhenTheNextBatchCannot) {
  const detail::ForceImplementation forced(detail::kPlainPooled);
  const auto layer = test::layer(device_, 3, 1, 4, "conv");
  const auto convolution = CNNConvolutionNode::create(NNImageNode::create(), layer);
  const auto graph = NNGraph::create(
      device_, squares(convolution->resultImage())->trainingGraph(NNImageNode::create()).at(0)->resultImage(),
      false);
  const bool picturesFirst = graph->program().images[graph->program().sourceImages[0]].readers.front() == 0;
  for (const std::size_t side : {8U, 7U, 8U}) {
    const auto pictures = integers(side, 1, 1);
    const auto gradients = integers(4, 4, 2);
    const auto buffer = commands();
    graph->encodeBatch(buffer,
                       picturesFirst ? std::vector{pictures, gradients} : std::vector{gradients, pictures});
    run(buffer);
    EXPECT_EQ(graph->debugDescription().find(kPooled) != std::string::npos, side == 8) << side;
  }
}

TEST_F(PooledConvolutions, OnlyOfSquaresBehindAReLU) {
  const auto pools = [&](const Between& between, std::size_t resultSide = 4,
                         ImageFeatureChannelFormat format = ImageFeatureChannelFormat::Float32) {
    return trained(true, between, 8, resultSide, format).description.find(kPooled) != std::string::npos;
  };
  EXPECT_TRUE(pools(squares));
  EXPECT_FALSE(pools([](const Source& x) { return CNNPoolingMaxNode::create(x, 2); }));
  EXPECT_FALSE(pools([](const Source& x) { return CNNPoolingMaxNode::create(relu(x), 3, 2); }));
  EXPECT_FALSE(pools([](const Source& x) { return CNNPoolingMaxNode::create(relu(x), 2, 1); }, 8));
  EXPECT_FALSE(pools([](const Source& x) {
    return CNNPoolingMaxNode::create(CNNNeuronReLUNode::create(x, 0.5F)->resultImage(), 2);
  }));
  EXPECT_FALSE(pools([](const Source& x) {
    const auto y = relu(x);
    y->setExportFromGraph(true);
    return CNNPoolingMaxNode::create(y, 2);
  }));
  EXPECT_FALSE(pools(squares, 4, ImageFeatureChannelFormat::Float16));
}

/// The data gradient needs what is not there.
TEST_F(PooledConvolutions, OnlyOfLayersThatNeedNoDataGradient) {
  const detail::ForceImplementation forced(detail::kPlainPooled);
  const auto first =
      CNNConvolutionNode::create(NNImageNode::create(), test::layer(device_, 3, 1, 4, "first"));
  const auto second =
      CNNConvolutionNode::create(first->resultImage(), test::layer(device_, 3, 4, 4, "second"));
  const auto graph = NNGraph::create(
      device_, squares(second->resultImage())->trainingGraph(NNImageNode::create()).at(0)->resultImage(),
      false);
  const bool picturesFirst = graph->program().images[graph->program().sourceImages[0]].readers.front() == 0;
  const auto buffer = commands();
  graph->encodeBatch(buffer, picturesFirst ? std::vector{integers(8, 1, 1), integers(4, 4, 1)}
                                           : std::vector{integers(4, 4, 1), integers(8, 1, 1)});
  run(buffer);
  EXPECT_THAT(graph->debugDescription(), Not(HasSubstr(kPooled)));
}

}  // namespace
}  // namespace mps::pooled_convolutions_test
