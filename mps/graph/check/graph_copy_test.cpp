#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mps/batch_normalization/batch_normalization_node.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/layer/loss_scale.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/graph/check/test_network.hpp"
#include "mps/instance_normalization/instance_normalization_node.hpp"
#include "mps/trainable/trainable_batch_normalization.hpp"
#include "mps/trainable/trainable_image_normalization.hpp"

/// A graph's copy, on the same device or another, by NNGraph::copy or by a coder, trains as the graph itself would go on.
namespace mps::graph_copy_test {
namespace {

using Image = std::shared_ptr<NNImageNode>;
using Losses = std::vector<float>;

std::shared_ptr<NNGraph> trainingGraph(const Image& predictions, const std::shared_ptr<mtl::Device>& device,
                                       const std::shared_ptr<LossScale>& scale = nullptr) {
  auto descriptor =
      CNNLossDescriptor::cnnLossDescriptor(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Sum);
  descriptor.setWeight(1.0F / test::SmallNetwork::batch);
  descriptor.setLossScale(scale);
  const auto loss = CNNLossNode::create(predictions, descriptor);
  return NNGraph::create(device, loss->trainingGraph(nullptr)[0]->resultImage(), false);
}

/// The losses of these steps, whose pictures and labels are given.
Losses lossesOf(NNGraph& graph, unsigned first, unsigned count) {
  const auto& device = graph.device();
  const auto queue = device->newCommandQueue();
  Losses losses;
  for (unsigned step = first; step < first + count; ++step) {
    const auto commandBuffer = queue->commandBuffer();
    const StateBatch labels = test::labels(device, step);
    graph.encodeBatch(commandBuffer, {test::pictures(device, step)}, {labels});
    StateBatchSynchronize(labels, commandBuffer);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    const testing::Values each = testing::valuesOf(CNNLossLabels::lossImages(labels));
    losses.insert(losses.end(), each.begin(), each.end());
  }
  return losses;
}

std::shared_ptr<NNGraph> decodedOn(const std::shared_ptr<mtl::Device>& device, NNGraph& graph) {
  KeyedArchiver archiver;
  graph.encode(archiver);
  const auto bytes = archiver.encodedData();
  KeyedUnarchiver unarchiver(bytes, device);
  return NNGraph::decode(unarchiver, device);
}

class GraphCopy : public testing::DeviceTest {
 protected:
  std::shared_ptr<mtl::Device> other_ = mtl::newCPUDevice(2);

  /// @param learningRate large, so that a wrong gradient shows
  [[nodiscard]] std::shared_ptr<TrainableConvolution> layer(std::size_t kernel, std::size_t in,
                                                            std::size_t out) const {
    return test::layer(device_, kernel, in, out, "layer", 0.1F);
  }

  /// Copies a new graph, and one that has trained, and compares five steps.
  void expectCopiesToTrainAlike(const std::function<std::shared_ptr<NNGraph>()>& make) const {
    const auto expectAlike = [&](const std::shared_ptr<mtl::Device>& device, unsigned before) {
      SCOPED_TRACE(std::to_string(before) + " steps before the copy on " +
                   (device == device_ ? "the same device" : "another device"));
      const auto graph = make();
      lossesOf(*graph, 0, before);
      const auto copy = graph->copy(device);
      const auto decoded = decodedOn(device, *graph);
      const Losses ofCopy = lossesOf(*copy, before, 5);
      const Losses expected = lossesOf(*graph, before, 5);
      EXPECT_EQ(ofCopy, expected);
      EXPECT_EQ(lossesOf(*decoded, before, 5), expected);
    };
    expectAlike(other_, 0);
    expectAlike(other_, 2);
    expectAlike(device_, 2);
  }
};

TEST_F(GraphCopy, TrainsConvolutionsAlike) {
  expectCopiesToTrainAlike(
      [&] { return test::SmallNetwork(layer(3, 1, 4), layer(4, 4, 3)).trainingGraph(device_); });
}

TEST_F(GraphCopy, TrainsLayersWithTwoGradientNodesAlike) {
  expectCopiesToTrainAlike([&] {
    const test::SmallNetwork network(layer(3, 1, 4), layer(4, 4, 3));
    std::vector<Image> results;
    for (int i = 0; i < 2; ++i) results.push_back(network.loss->trainingGraph(nullptr).at(0)->resultImage());
    return NNGraph::create(device_, results, {false, false});
  });
}

TEST_F(GraphCopy, TrainsWithAdamAlike) {
  const auto adamLayer = [&](std::size_t kernel, std::size_t in, std::size_t out) {
    return TrainableConvolution::create(
        device_, CNNConvolutionDescriptor::cnnConvolutionDescriptor(kernel, kernel, in, out), "layer", 7,
        NNOptimizerAdam::create(device_, 0.05F));
  };
  expectCopiesToTrainAlike(
      [&] { return test::SmallNetwork(adamLayer(3, 1, 4), adamLayer(4, 4, 3)).trainingGraph(device_); });
}

TEST_F(GraphCopy, KeepsASharedConvolutionShared) {
  expectCopiesToTrainAlike([&] {
    const auto shared = layer(3, 4, 4);
    const auto first = CNNConvolutionNode::create(NNImageNode::create(), layer(3, 1, 4));
    const auto second = CNNConvolutionNode::create(first->resultImage(), shared);
    const auto neuron = CNNNeuronTanHNode::create(second->resultImage());
    const auto third = CNNConvolutionNode::create(neuron->resultImage(), shared);
    const auto last = CNNFullyConnectedNode::create(third->resultImage(), layer(8, 4, 3));
    return trainingGraph(last->resultImage(), device_);
  });
}

/// conv, the normalisation twice with one data source, fully connected.
template <class Node, class Source>
std::shared_ptr<NNGraph> normalized(const std::shared_ptr<Source>& source,
                                    const std::shared_ptr<TrainableConvolution>& convolution,
                                    const std::shared_ptr<TrainableConvolution>& dense) {
  const auto first = CNNConvolutionNode::create(NNImageNode::create(), convolution);
  const auto second = Node::create(first->resultImage(), source);
  const auto neuron = CNNNeuronTanHNode::create(second->resultImage());
  const auto third = Node::create(neuron->resultImage(), source);
  const auto last = CNNFullyConnectedNode::create(third->resultImage(), dense);
  return trainingGraph(last->resultImage(), convolution->optimizer()->device());
}

TEST_F(GraphCopy, KeepsASharedBatchNormalizationShared) {
  expectCopiesToTrainAlike([&] {
    return normalized<CNNBatchNormalizationNode>(
        TrainableBatchNormalization::create(device_, 4, "shared", test::sgd(device_)), layer(3, 1, 4),
        layer(8, 4, 3));
  });
}

TEST_F(GraphCopy, KeepsASharedInstanceNormalizationShared) {
  expectCopiesToTrainAlike([&] {
    return normalized<CNNInstanceNormalizationNode>(
        TrainableInstanceNormalization::create(device_, 4, "shared", test::sgd(device_)), layer(3, 1, 4),
        layer(8, 4, 3));
  });
}

TEST_F(GraphCopy, KeepsASharedGroupNormalizationShared) {
  expectCopiesToTrainAlike([&] {
    return normalized<CNNGroupNormalizationNode>(
        TrainableGroupNormalization::create(device_, 4, 2, "shared", test::sgd(device_)), layer(3, 1, 4),
        layer(8, 4, 3));
  });
}

TEST_F(GraphCopy, CopiesOfKernelsOneByOneShareALossScale) {
  const auto scale = LossScale::create(device_);
  auto descriptor =
      CNNLossDescriptor::cnnLossDescriptor(CNNLossType::MeanSquaredError, CNNReductionType::Sum);
  descriptor.setLossScale(scale);
  const auto loss = CNNLoss::create(device_, descriptor);
  const auto optimizer = NNOptimizerStochasticGradientDescent::create(device_, 0.1F);
  optimizer->setLossScale(scale);
  const auto other = mtl::newCPUDevice(1);
  const auto third = mtl::newCPUDevice(1);
  const auto copy = loss->copy(other);
  EXPECT_EQ(optimizer->copy(other)->lossScale(), copy->descriptor().lossScale());
  EXPECT_NE(optimizer->copy(third)->lossScale(), copy->descriptor().lossScale());
  scale->set(2, 0, 0);
  EXPECT_EQ(loss->copy(third)->descriptor().lossScale()->scale(), 2) << "nobody has the first copy any more";
  EXPECT_EQ(loss->copy(other)->descriptor().lossScale()->scale(), 65536) << "that of the first copy";
}

TEST_F(GraphCopy, HasALossScaleOfItsOwn) {
  const LossScaleOptions options{.initialScale = 1024, .growthInterval = 2};
  expectCopiesToTrainAlike([&] {
    const auto scale = LossScale::create(device_, options);
    const auto first = layer(3, 1, 4), second = layer(4, 4, 3);
    for (const auto& each : {first, second}) each->optimizer()->setLossScale(scale);
    return test::SmallNetwork(first, second, false, scale).trainingGraph(device_);
  });

  for (const auto& device : {device_, other_}) {
    const auto scale = LossScale::create(device_, options);
    const auto first = layer(3, 1, 4), second = layer(4, 4, 3);
    for (const auto& each : {first, second}) each->optimizer()->setLossScale(scale);
    const auto graph = test::SmallNetwork(first, second, false, scale).trainingGraph(device_);
    lossesOf(*graph, 0, 1);
    const auto copy = graph->copy(device);
    lossesOf(*copy, 1, 4);
    EXPECT_EQ(scale->scale(), 1024) << "the steps of the copy are not the original's";
    EXPECT_EQ(scale->finiteSteps(), 1U);
  }
}

/// Says how often it was copied.
class CopiedSource final : public test::UserSource {
 public:
  using UserSource::update;
  using UserSource::UserSource;
  std::shared_ptr<CNNConvolutionDataSource> copy(const std::shared_ptr<mtl::Device>& device) override {
    ++copies;
    return std::make_shared<CopiedSource>(device, descriptor(), weights(), biasTerms(), 0.05F);
  }
  int copies = 0;
};

TEST_F(GraphCopy, AsksEachDataSourceForOneCopy) {
  for (const auto& device : {std::shared_ptr<mtl::Device>(), other_}) {
    const auto first = std::make_shared<CopiedSource>(device_, *layer(3, 1, 4));
    const auto second = std::make_shared<CopiedSource>(device_, *layer(4, 4, 3));
    const auto graph = test::SmallNetwork(first, second, false).trainingGraph(device_);
    const auto copy = graph->copy(device);
    EXPECT_EQ(first->copies, 1);
    EXPECT_EQ(second->copies, 1);
    const Losses ofCopy = lossesOf(*copy, 0, 5);
    EXPECT_EQ(ofCopy, lossesOf(*graph, 0, 5));
    EXPECT_EQ(first->updates, 5) << "those of the original";
  }
}

/// Without a copy; its optimiser divides gradients.
class ScaledSource final : public test::UserSource {
 public:
  using UserSource::update;
  using UserSource::UserSource;
  void setLossScale(const std::shared_ptr<LossScale>& scale) { optimizer()->setLossScale(scale); }
};

TEST_F(GraphCopy, SharesDataSourcesWithoutACopyAndTheirLossScale) {
  const auto sources = [&] {
    return std::pair(std::make_shared<ScaledSource>(device_, *layer(3, 1, 4)),
                     std::make_shared<ScaledSource>(device_, *layer(4, 4, 3)));
  };
  const auto [first, second] = sources();
  const auto scale = LossScale::create(device_);
  for (const auto& each : {first, second}) each->setLossScale(scale);
  const auto graph = test::SmallNetwork(first, second, false, scale).trainingGraph(device_);
  const auto copy = graph->copy();
  scale->set(16, 0, 0);
  const Losses ofCopy = lossesOf(*copy, 0, 3);
  EXPECT_EQ(first->updates, 3);
  const auto [firstUnscaled, secondUnscaled] = sources();
  const auto unscaled = test::SmallNetwork(firstUnscaled, secondUnscaled, false).trainingGraph(device_);
  EXPECT_EQ(ofCopy, lossesOf(*unscaled, 0, 3))
      << "the loss multiplies with the scale that optimisers divide by";
}

}  // namespace
}  // namespace mps::graph_copy_test
