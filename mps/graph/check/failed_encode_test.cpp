#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <vector>

#include "mps/concatenation/concatenation_node.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/graph/check/test_network.hpp"
#include "mps/neuron/neuron.hpp"

/// An encode that throws leaves nothing behind.
namespace mps::failed_encode_test {
namespace {

using testing::errorOf;
using testing::sizeOf;

class FailedEncode : public testing::DeviceTest {
 protected:
  /// Temporary pictures that a kernel has written.
  [[nodiscard]] ImageBatch temporaryPictures(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) const {
    ImageBatch made = ImageBatch::createTemporary(commandBuffer, sizeOf(8, 8, 1), test::SmallNetwork::batch);
    const auto copy =
        CNNNeuron::create(device_, NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::Linear, 1, 0));
    copy->encodeBatch(commandBuffer, test::pictures(device_, 0), made);
    return made;
  }
};

std::size_t readsOf(const ImageBatch& batch) {
  return std::static_pointer_cast<TemporaryImage>(batch[0])->readCount();
}

TEST_F(FailedEncode, LeavesReadCountsAndMemoryOfItsSources) {
  const auto a = NNImageNode::create(), b = NNImageNode::create();
  const auto neuron = CNNNeuronReLUNode::create(a);
  const auto joined = NNConcatenationNode::create(std::vector{neuron->resultImage(), b});
  const auto graph = NNGraph::create(device_, joined->resultImage());
  const auto commandBuffer = commands();
  const ImageBatch source = temporaryPictures(commandBuffer);
  const auto others = [&](std::size_t side) {
    return ImageBatch::create(device_, sizeOf(side, side, 1), test::SmallNetwork::batch);
  };
  EXPECT_NE(errorOf([&] { graph->encodeBatch(commandBuffer, {source, others(5)}); }), "");
  EXPECT_EQ(readsOf(source), 1U);
  const ImageBatch result = graph->encodeBatch(commandBuffer, {source, others(8)});
  EXPECT_EQ(readsOf(source), 0U);
  run(commandBuffer);
  const testing::Values found = testing::valuesOf(*result[0]);
  const testing::Values pixels = testing::valuesOf(*test::pictures(device_, 0)[0]);
  const std::size_t channels = result.descriptor().featureChannels();
  for (std::size_t i = 0; i < pixels.size(); ++i) EXPECT_EQ(found[channels * i], std::max(pixels[i], 0.0F));
}

/// Throws while it is asked to.
class ThrowingSource final : public test::UserSource {
 public:
  using UserSource::update;
  using UserSource::UserSource;
  std::shared_ptr<CNNConvolutionWeightsAndBiasesState> update(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      const std::shared_ptr<CNNConvolutionGradientState>& gradientState,
      const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& sourceState) override {
    if (throws) throw std::runtime_error("the user's own");
    return UserSource::update(commandBuffer, gradientState, sourceState);
  }
  bool throws = false;
};

TEST_F(FailedEncode, LeavesTheTimeStepOfReadyMadeLayers) {
  const auto dense =
      TrainableConvolution::create(device_, CNNConvolutionDescriptor::cnnConvolutionDescriptor(4, 4, 4, 3),
                                   "dense", 5, NNOptimizerAdam::create(device_, 0.1F));
  const auto convolution = std::make_shared<ThrowingSource>(device_, *test::layer(device_, 3, 1, 4, "conv"));
  const auto graph = test::SmallNetwork(convolution, dense, false).trainingGraph(device_);
  const auto adam = std::dynamic_pointer_cast<NNOptimizerAdam>(dense->optimizer());
  const auto commandBuffer = commands();
  const ImageBatch source = temporaryPictures(commandBuffer);
  const auto encode = [&] { graph->encodeBatch(commandBuffer, {source}, {test::labels(device_, 0)}); };
  convolution->throws = true;
  EXPECT_THROW(encode(), std::runtime_error);
  EXPECT_EQ(adam->timeStep(), 0U);
  EXPECT_EQ(readsOf(source), 1U);
  convolution->throws = false;
  encode();
  EXPECT_EQ(adam->timeStep(), 1U);
  run(commandBuffer);
}

}  // namespace
}  // namespace mps::failed_encode_test
