#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "mps/batch_normalization/batch_normalization_node.hpp"
#include "mps/conform/tolerance.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/types/error.hpp"
#include "mps/graph/check/test_network.hpp"
#include "mps/trainable/trainable_batch_normalization.hpp"

/// Training with a limit of the norm of all gradients, on every device of the machine.
namespace mps::clipped_training_test {
namespace {

constexpr std::size_t channels = 4;

/// conv 3x3x4, batch normalisation, fully connected 3, softmax cross-entropy; plain descent with learning rate 1.
struct ClippedNetwork {
  std::shared_ptr<mtl::Device> device;
  std::shared_ptr<TrainableConvolution> first, last;
  std::shared_ptr<TrainableBatchNormalization> normalization;
  std::shared_ptr<NNGraph> graph;

  ClippedNetwork(std::shared_ptr<mtl::Device> where, float limit,
                 const std::shared_ptr<LossScale>& lossScale = nullptr)
      : device(std::move(where)) {
    const auto descent = NNOptimizerStochasticGradientDescent::create(device, 1);
    descent->setLossScale(lossScale);
    const auto convolution = [&](std::size_t kernel, std::size_t in, std::size_t out, const char* label) {
      return TrainableConvolution::create(
          device, CNNConvolutionDescriptor::cnnConvolutionDescriptor(kernel, kernel, in, out), label, in,
          descent);
    };
    first = convolution(3, 1, channels, "conv");
    last = convolution(8, channels, 3, "dense");
    normalization = TrainableBatchNormalization::create(device, channels, "norm", descent);
    const auto convolved = CNNConvolutionNode::create(NNImageNode::create(), first);
    const auto normalized = CNNBatchNormalizationNode::create(convolved->resultImage(), normalization);
    const auto dense = CNNFullyConnectedNode::create(normalized->resultImage(), last);
    auto descriptor =
        CNNLossDescriptor::cnnLossDescriptor(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Sum);
    descriptor.setWeight(1.0F / test::SmallNetwork::batch);
    descriptor.setLossScale(lossScale);
    std::vector<std::shared_ptr<NNImageNode>> results;
    for (const auto& terminus : CNNLossNode::create(dense->resultImage(), descriptor)->trainingGraph(nullptr))
      results.push_back(terminus->resultImage());
    graph = NNGraph::create(device, results, std::vector<bool>(results.size(), false));
    graph->setGradientNormLimit(limit);
  }
  /// Of all layers, without statistics.
  [[nodiscard]] std::vector<float> values() const {
    const auto commandBuffer = device->newCommandQueue()->commandBuffer();
    first->synchronize(commandBuffer);
    last->synchronize(commandBuffer);
    normalization->synchronize(commandBuffer);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    std::vector<float> all;
    const auto append = [&](std::span<const float> more) { all.insert(all.end(), more.begin(), more.end()); };
    for (const auto& layer : {first, last}) {
      append(test::weightsOf(*layer));
      append(layer->biasTerms());
    }
    append(normalization->gamma());
    append(normalization->beta());
    return all;
  }
  /// Of all weights, in one step.
  double stepLength() const {
    const std::vector<float> before = values();
    test::train(*graph, device, 1);
    const std::vector<float> after = values();
    double sum = 0;
    for (std::size_t i = 0; i < before.size(); ++i) {
      const double difference = static_cast<double>(after[i]) - static_cast<double>(before[i]);
      sum += difference * difference;
    }
    return std::sqrt(sum);
  }
};

class ClippedTraining : public ::testing::TestWithParam<std::shared_ptr<mtl::Device>> {};

/// Weights of about 1 are rounded when a step is taken off them.
const double bound = detail::arithmeticBound(1, 160, 0);

TEST_P(ClippedTraining, StepsAreAtMostAsLongAsTheLimit) {
  const double whole = ClippedNetwork(GetParam(), 0).stepLength();
  ASSERT_GT(whole, 0.1);
  const auto half = static_cast<float>(whole / 2);
  EXPECT_NEAR(ClippedNetwork(GetParam(), half).stepLength(), whole / 2, bound);
  const ClippedNetwork far(GetParam(), static_cast<float>(2 * whole));
  const ClippedNetwork unlimited(GetParam(), 0);
  EXPECT_NEAR(far.stepLength(), whole, bound);
  unlimited.stepLength();
  EXPECT_EQ(far.values(), unlimited.values()) << "a limit that is not reached changes no bit";
}

TEST_P(ClippedTraining, StatisticsAreThoseOfTheBatch) {
  const ClippedNetwork clipped(GetParam(), 1e-3F);
  const ClippedNetwork unlimited(GetParam(), 0);
  clipped.stepLength();
  unlimited.stepLength();
  for (std::size_t i = 0; i < channels; ++i) {
    EXPECT_EQ(clipped.normalization->mean()[i], unlimited.normalization->mean()[i]);
    EXPECT_EQ(clipped.normalization->variance()[i], unlimited.normalization->variance()[i]);
  }
}

TEST_P(ClippedTraining, ALossScaleChangesNoBit) {
  const ClippedNetwork plain(GetParam(), 0.25F);
  const ClippedNetwork scaled(GetParam(), 0.25F, LossScale::create(GetParam()));
  test::train(*plain.graph, GetParam(), 5);
  test::train(*scaled.graph, GetParam(), 5);
  EXPECT_EQ(scaled.values(), plain.values());
}

TEST_P(ClippedTraining, FrozenLayersCountNothing) {
  ClippedNetwork network(GetParam(), 0.125F);
  network.last->setFrozen(true);
  EXPECT_NEAR(network.stepLength(), 0.125, bound) << "the others take a step of the whole length";
}

TEST_P(ClippedTraining, CopiesAndCodedGraphsHaveTheLimit) {
  const ClippedNetwork network(GetParam(), 0.25F);
  EXPECT_EQ(network.graph->copy()->gradientNormLimit(), 0.25F);
  EXPECT_EQ(ClippedNetwork(GetParam(), 0).graph->gradientNormLimit(), 0);
  KeyedArchiver archiver;
  network.graph->encode(archiver);
  const auto bytes = archiver.encodedData();
  KeyedUnarchiver unarchiver(bytes);
  EXPECT_EQ(NNGraph::decode(unarchiver, GetParam())->gradientNormLimit(), 0.25F);
}

TEST_P(ClippedTraining, LayersThatAreUpdatedApartAreRefused) {
  const auto first = test::layer(GetParam(), 3, 1, 4, "conv");
  const auto second = test::layer(GetParam(), 4, 4, 3, "dense");
  const auto graph = test::SmallNetwork(std::make_shared<test::UserSource>(GetParam(), *first), second)
                         .trainingGraph(GetParam());
  graph->setGradientNormLimit(1);
  const auto sentence = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_NE(sentence([&] {
              test::train(*graph, GetParam(), 1);
            }).find("is updated apart, expected layers whose weights"),
            std::string::npos);
  test::SmallNetwork onHost(first, second);
  onHost.convolution->setTrainingStyle(NNTrainingStyle::UpdateDeviceCPU);
  const auto hostGraph = onHost.trainingGraph(GetParam());
  hostGraph->setGradientNormLimit(1);
  EXPECT_NE(sentence([&] { test::train(*hostGraph, GetParam(), 1); }).find("is updated apart"),
            std::string::npos);
  for (const float limit : {-1.0F, std::numeric_limits<float>::infinity(), std::nanf("")})
    EXPECT_NE(sentence([&] { graph->setGradientNormLimit(limit); }).find("gradientNormLimit"),
              std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Devices, ClippedTraining, ::testing::ValuesIn(mtl::copyAllDevices()),
                         [](const auto& info) { return "device" + std::to_string(info.index); });

}  // namespace
}  // namespace mps::clipped_training_test
