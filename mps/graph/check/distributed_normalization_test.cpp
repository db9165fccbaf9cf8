#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mps/arithmetic/arithmetic_node.hpp"
#include "mps/batch_normalization/batch_normalization_node.hpp"
#include "mps/graph/check/test_ranks_network.hpp"
#include "mps/graph/check/test_replaying_stream.hpp"
#include "mps/trainable/trainable_batch_normalization.hpp"
#include "mtl/back_ends.hpp"
#include "mtl/command.hpp"
#include "mtl/cpu/stream.hpp"
#include "mtl/submission.hpp"

/// Batch normalisation in a graph whose batch is shared by ranks.
namespace mps::distributed_normalization_test {
namespace {

using test::SmallNetwork;
using Device = std::shared_ptr<mtl::Device>;
using Weights = std::vector<std::vector<float>>;

enum class Statistics { OfAllRanks, OfEachRank };

/// conv + batch normalisation + ReLU, conv + batch normalisation, ReLU of the sum of both, fully connected.
struct Training {
  std::vector<std::shared_ptr<TrainableConvolution>> layers;
  std::vector<std::shared_ptr<TrainableBatchNormalization>> normalizations;
  std::shared_ptr<NNGraph> graph;

  explicit Training(const Device& device)
      : layers{test::layer(device, 3, 1, 4, "conv1"), test::layer(device, 3, 4, 4, "conv2"),
               test::layer(device, 8, 4, 3, "dense")},
        normalizations{TrainableBatchNormalization::create(device, 4, "norm1", test::sgd(device)),
                       TrainableBatchNormalization::create(device, 4, "norm2", test::sgd(device))} {
    const auto normalized = [&](const std::shared_ptr<NNImageNode>& image, std::size_t i) {
      return CNNBatchNormalizationNode::create(CNNConvolutionNode::create(image, layers[i])->resultImage(),
                                               normalizations[i])
          ->resultImage();
    };
    const auto first = CNNNeuronReLUNode::create(normalized(NNImageNode::create(), 0))->resultImage();
    const auto sum = NNAdditionNode::create(normalized(first, 1), first)->resultImage();
    const auto dense =
        CNNFullyConnectedNode::create(CNNNeuronReLUNode::create(sum)->resultImage(), layers[2]);
    auto descriptor =
        CNNLossDescriptor::cnnLossDescriptor(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Sum);
    descriptor.setWeight(1.0F / SmallNetwork::batch);
    const auto loss = CNNLossNode::create(dense->resultImage(), descriptor);
    graph = NNGraph::create(device, loss->trainingGraph(nullptr)[0]->resultImage(), false);
  }

  [[nodiscard]] Weights weights() const {
    Weights all = test::weightsOf(layers, graph->device());
    const auto commandBuffer = graph->device()->newCommandQueue()->commandBuffer();
    for (const auto& normalization : normalizations) normalization->synchronize(commandBuffer);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    for (const auto& normalization : normalizations) {
      for (const auto values : {normalization->gamma(), normalization->beta()})
        all.emplace_back(values.begin(), values.end());
      all.emplace_back(normalization->mean().begin(), normalization->mean().end());
      // A mean near 0 is as exact as its deviation says.
      for (const float variance : normalization->variance()) all.back().push_back(std::sqrt(variance));
    }
    return all;
  }
};

Weights trainedAlone(unsigned steps, const test::BatchSizes& sizes = test::unevenBatches) {
  const Training training(mtl::newCPUDevice(1));
  test::trainPart(*training.graph, nullptr, steps, sizes);
  return training.weights();
}

std::vector<Weights> trainedTogether(std::size_t ranks, Statistics statistics, unsigned steps,
                                     const test::BatchSizes& sizes = test::unevenBatches) {
  std::vector<Weights> weights(ranks);
  test::runAll(test::ranks(ranks), [&](const auto& communicator) {
    const Training training(communicator->device());
    training.graph->setCommunicator(communicator);
    training.graph->setSynchronizesBatchNormalization(statistics == Statistics::OfAllRanks);
    test::trainPart(*training.graph, communicator.get(), steps, sizes);
    test::encodeNow(*communicator,
                    [&](const auto& commandBuffer) { training.graph->encodeAgreement(commandBuffer); });
    weights[static_cast<std::size_t>(communicator->rank())] = training.weights();
  });
  return weights;
}

/// With batches that do not divide, and ranks without images.
TEST(DistributedNormalization, WithStatisticsOfAllRanksFollowsOneDevice) {
  constexpr unsigned steps = 20;
  const Weights alone = trainedAlone(steps);
  for (const std::size_t ranks : std::vector<std::size_t>{2, 3, 4}) {
    const auto together = trainedTogether(ranks, Statistics::OfAllRanks, steps);
    for (const Weights& weights : together) EXPECT_EQ(weights, together[0]);
    test::expectClose(together[0], alone);
    EXPECT_EQ(together, trainedTogether(ranks, Statistics::OfAllRanks, steps));
  }
}

/// The running statistics are of the whole batch all the same.
TEST(DistributedNormalization, WithStatisticsOfEachRankMovesAllAlike) {
  const auto together = trainedTogether(3, Statistics::OfEachRank, 6);
  for (const Weights& weights : together) EXPECT_EQ(weights, together[0]);

  const Weights one = trainedTogether(3, Statistics::OfEachRank, 1)[0];
  const Weights alone = trainedAlone(1);
  constexpr std::size_t statisticsOfFirst = 5;  // whose source no normalisation has changed
  test::expectClose({one[statisticsOfFirst]}, {alone[statisticsOfFirst]});
  EXPECT_NE(one, alone);
}

/// In steps between those with all images one rank has none.
TEST(DistributedNormalization, WithStatisticsOfEachRankARankMayHaveNoImages) {
  const auto sizes = [](unsigned step) { return step % 2 == 0 ? std::size_t{1} : SmallNetwork::batch; };
  const auto together = trainedTogether(2, Statistics::OfEachRank, 4, sizes);
  EXPECT_EQ(together[1], together[0]);
  // Where the other rank has all images there is nothing to tell apart.
  test::expectClose(trainedTogether(2, Statistics::OfEachRank, 1, sizes)[0], trainedAlone(1, sizes));
}

/// All that a rank's steps record: what no device can replay, and what the ranks do together.
struct Recorded {
  std::vector<std::string> notReplayed;
  std::size_t collectives = 0;
};

/// One rank's steps, run by a stream.
Weights trainedOn(mtl::cpu::Stream& stream, const std::shared_ptr<Communicator>& communicator,
                  Statistics statistics, Recorded& recorded) {
  const Training training(communicator->device());
  training.graph->setCommunicator(communicator);
  training.graph->setSynchronizesBatchNormalization(statistics == Statistics::OfAllRanks);
  const auto ranks = static_cast<std::size_t>(communicator->size());
  const auto rank = static_cast<std::size_t>(communicator->rank());
  const std::size_t first = SmallNetwork::batch * rank / ranks;
  const std::size_t count = SmallNetwork::batch * (rank + 1) / ranks - first;
  training.graph->setBatchShare(first, SmallNetwork::batch);
  const auto& device = communicator->device();
  const auto queue = device->newCommandQueue();
  std::vector<std::shared_ptr<mtl::CommandBuffer>> kept;  // as in ReplayKeys
  for (unsigned step = 0; step < 8; ++step) {
    kept.push_back(queue->commandBuffer());
    training.graph->encodeBatch(kept.back(), {test::pictures(device, step).slice(first, count)},
                                {test::labels(device, step).slice(first, count)});
    recorded = {};
    for (const mtl::Command& command : kept.back()->submission()->commandsSince({})) {
      if (command.replay.work == nullptr) recorded.notReplayed.push_back(command.label);
      if (command.label == "Communicator") ++recorded.collectives;
    }
    kept.back()->submission()->runCommands(stream);
  }
  return training.weights();
}

/// Sums and gathers are part of the sequence that a GPU replays.
TEST(DistributedNormalization, StepsOfRanksAreReplayed) {
  for (const Statistics statistics : {Statistics::OfAllRanks, Statistics::OfEachRank}) {
    std::vector<Weights> direct(2), replayed(2);
    test::runAll(test::ranks(2), [&](const auto& communicator) {
      mtl::cpu::Stream stream(1);
      Recorded recorded;
      direct[static_cast<std::size_t>(communicator->rank())] =
          trainedOn(stream, communicator, statistics, recorded);
      // On a CPU the ranks' images are counted.
      EXPECT_EQ(recorded.notReplayed, std::vector<std::string>{"NNGraph"});
      // A bucket of gradients in two commands, and either two operations for each normalisation or one for all of them.
      EXPECT_EQ(recorded.collectives, statistics == Statistics::OfAllRanks ? 2U + 4 : 2U + 1);
    });
    test::runAll(test::ranks(2), [&](const auto& communicator) {
      test::ReplayingStream stream(0);
      Recorded recorded;
      replayed[static_cast<std::size_t>(communicator->rank())] =
          trainedOn(stream, communicator, statistics, recorded);
      EXPECT_GT(stream.launchCount(), 0U);
    });
    EXPECT_EQ(replayed, direct);
  }
}

/// Two devices of a kind.
class RanksOnDevices : public ::testing::TestWithParam<mtl::DeviceKind> {
 protected:
  static std::vector<Device> devices() {
    if (GetParam() == mtl::DeviceKind::CPU) return {mtl::newCPUDevice(1), mtl::newCPUDevice(1)};
    const auto gpus = mtl::cudaDevices();
    return {gpus[0], gpus[1]};
  }
  static std::vector<Weights> trained(Statistics statistics) {
    std::vector<Weights> weights(2);
    test::runAll(Communicator::createGroup(devices()), [&](const auto& communicator) {
      const Training training(communicator->device());
      training.graph->setCommunicator(communicator);
      training.graph->setSynchronizesBatchNormalization(statistics == Statistics::OfAllRanks);
      test::trainPart(*training.graph, communicator.get(), steps);
      test::encodeNow(*communicator,
                      [&](const auto& commandBuffer) { training.graph->encodeAgreement(commandBuffer); });
      weights[static_cast<std::size_t>(communicator->rank())] = training.weights();
    });
    return weights;
  }
  static constexpr unsigned steps = 20;
};

/// @return the kinds of which there are two
std::vector<mtl::DeviceKind> kindsOfSeveral() {
  std::vector<mtl::DeviceKind> kinds{mtl::DeviceKind::CPU};
  if (mtl::cudaDevices().size() > 1) kinds.push_back(mtl::DeviceKind::CUDA);
  return kinds;
}

TEST_P(RanksOnDevices, FollowOneDeviceWithTheSameBitsInEachRun) {
  const auto together = trained(Statistics::OfAllRanks);
  EXPECT_EQ(together[1], together[0]);
  EXPECT_EQ(trained(Statistics::OfAllRanks), together);
  const Training alone(devices()[0]);
  test::trainPart(*alone.graph, nullptr, steps);
  test::expectClose(together[0], alone.weights());
}

TEST_P(RanksOnDevices, WithStatisticsOfTheirOwnMoveAlike) {
  const auto together = trained(Statistics::OfEachRank);
  EXPECT_EQ(together[1], together[0]);
  EXPECT_EQ(trained(Statistics::OfEachRank), together);
}

TEST_P(RanksOnDevices, AGroupOfOneHasTheBitsOfNone) {
  std::vector<Weights> weights;
  for (const bool isGroup : {false, true}) {
    const Training training(devices()[0]);
    if (isGroup) training.graph->setCommunicator(Communicator::create(training.graph->device()));
    training.graph->setSynchronizesBatchNormalization(isGroup);
    test::trainPart(*training.graph, nullptr, steps);
    weights.push_back(training.weights());
  }
  EXPECT_EQ(weights[1], weights[0]);
}

INSTANTIATE_TEST_SUITE_P(Devices, RanksOnDevices, ::testing::ValuesIn(kindsOfSeveral()),
                         [](const ::testing::TestParamInfo<mtl::DeviceKind>& info) {
                           return info.param == mtl::DeviceKind::CPU ? "cpu" : "cuda";
                         });

}  // namespace
}  // namespace mps::distributed_normalization_test
