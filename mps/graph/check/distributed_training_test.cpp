#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mps/core/layer/loss_scale.hpp"
#include "mps/core/types/error.hpp"
#include "mps/distributed/communicator.hpp"
#include "mps/graph/check/test_ranks_network.hpp"
#include "mps/instance_normalization/instance_normalization_node.hpp"
#include "mps/loss/loss_node.hpp"
#include "mps/trainable/trainable_image_normalization.hpp"
#include "mps/weights/test_folder.hpp"

/// A graph whose batch is shared by ranks trains as one on one device does.
namespace mps::distributed_training_test {
namespace {

using test::runAll;
using test::SmallNetwork;
using test::trainPart;

constexpr unsigned steps = 20;
using Device = std::shared_ptr<mtl::Device>;
using Weights = std::vector<std::vector<float>>;

/// The graph of one rank, and what it trains.
struct Training {
  std::shared_ptr<NNGraph> graph;
  std::vector<std::shared_ptr<TrainableConvolution>> layers;
  [[nodiscard]] Weights weights() const { return test::weightsOf(layers, graph->device()); }
};
using MakeTraining = std::function<Training(const Device&)>;

Training networkOf(const Device& device, const std::vector<std::shared_ptr<TrainableConvolution>>& layers,
                   const std::shared_ptr<LossScale>& lossScale = nullptr) {
  return {SmallNetwork(layers[0], layers[1], true, lossScale).trainingGraph(device), layers};
}

Training withMomentum(const Device& device) {
  return networkOf(device, {test::layer(device, 3, 1, 4, "conv"), test::layer(device, 4, 4, 3, "dense")});
}

Training withAdam(const Device& device) {
  const auto layer = [&](std::size_t kernel, std::size_t in, std::size_t out, const char* label) {
    return TrainableConvolution::create(
        device, CNNConvolutionDescriptor::cnnConvolutionDescriptor(kernel, kernel, in, out), label,
        in * 100 + out, NNOptimizerAdam::create(device, 0.01F));
  };
  return networkOf(device, {layer(3, 1, 4, "conv"), layer(4, 4, 3, "dense")});
}

/// The same layer twice, so that one update has the gradients of both.
Training withSharedWeights(const Device& device) {
  const auto shared = test::layer(device, 3, 4, 4, "shared");
  const std::vector layers{test::layer(device, 3, 1, 4, "conv"), shared,
                           test::layer(device, 8, 4, 3, "dense")};
  auto image = CNNConvolutionNode::create(NNImageNode::create(), layers[0])->resultImage();
  for (int i = 0; i < 2; ++i)
    image =
        CNNNeuronReLUNode::create(CNNConvolutionNode::create(image, shared)->resultImage())->resultImage();
  const auto dense = CNNFullyConnectedNode::create(image, layers[2]);
  auto descriptor =
      CNNLossDescriptor::cnnLossDescriptor(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Sum);
  descriptor.setWeight(1.0F / SmallNetwork::batch);
  const auto loss = CNNLossNode::create(dense->resultImage(), descriptor);
  return {NNGraph::create(device, loss->trainingGraph(nullptr)[0]->resultImage(), false), layers};
}

/// Its gradients come image by image.
Training withInstanceNormalization(const Device& device) {
  const std::vector layers{test::layer(device, 3, 1, 4, "conv"), test::layer(device, 8, 4, 3, "dense")};
  const auto convolution = CNNConvolutionNode::create(NNImageNode::create(), layers[0]);
  const auto normalization = CNNInstanceNormalizationNode::create(
      convolution->resultImage(),
      TrainableInstanceNormalization::create(device, 4, "normalization", test::sgd(device)));
  const auto dense = CNNFullyConnectedNode::create(normalization->resultImage(), layers[1]);
  auto descriptor =
      CNNLossDescriptor::cnnLossDescriptor(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Sum);
  descriptor.setWeight(1.0F / SmallNetwork::batch);
  const auto loss = CNNLossNode::create(dense->resultImage(), descriptor);
  return {NNGraph::create(device, loss->trainingGraph(nullptr)[0]->resultImage(), false), layers};
}

Weights trainedAlone(const MakeTraining& make, unsigned count = steps) {
  const Training training = make(mtl::newCPUDevice(1));
  trainPart(*training.graph, nullptr, count);
  return training.weights();
}

/// Of each rank.
std::vector<Weights> trainedTogether(const MakeTraining& make, std::size_t ranks, unsigned count = steps) {
  std::vector<Weights> weights(ranks);
  runAll(test::ranks(ranks), [&](const auto& communicator) {
    const Training training = make(communicator->device());
    training.graph->setCommunicator(communicator);
    trainPart(*training.graph, communicator.get(), count);
    test::encodeNow(*communicator,
                    [&](const auto& commandBuffer) { training.graph->encodeAgreement(commandBuffer); });
    weights[static_cast<std::size_t>(communicator->rank())] = training.weights();
  });
  return weights;
}

void expectFollowsOne(const MakeTraining& make) {
  const Weights alone = trainedAlone(make);
  ASSERT_NE(alone, trainedAlone(make, 0));
  for (const std::size_t ranks : std::vector<std::size_t>{2, 3, 4}) {
    const std::vector<Weights> together = trainedTogether(make, ranks);
    for (const Weights& weights : together) EXPECT_EQ(weights, together[0]);
    test::expectClose(together[0], alone);
    EXPECT_EQ(together, trainedTogether(make, ranks));  // the same bits in each run
  }
}

TEST(DistributedTraining, FollowsOneDeviceWithMomentum) {
  expectFollowsOne(withMomentum);
}
TEST(DistributedTraining, FollowsOneDeviceWithAdam) {
  expectFollowsOne(withAdam);
}
TEST(DistributedTraining, FollowsOneDeviceWithSharedWeights) {
  expectFollowsOne(withSharedWeights);
}
TEST(DistributedTraining, FollowsOneDeviceWithInstanceNormalization) {
  expectFollowsOne(withInstanceNormalization);
}

/// Until it is told otherwise.
TEST(DistributedTraining, TakesAllPartsForEqual) {
  constexpr std::size_t ranks = 2;
  const auto sizes = [](unsigned) { return std::size_t{4}; };
  const Training alone = withMomentum(mtl::newCPUDevice(1));
  trainPart(*alone.graph, nullptr, 3, sizes);
  std::vector<Weights> weights(ranks);
  runAll(test::ranks(ranks), [&](const auto& communicator) {
    const Training training = withMomentum(communicator->device());
    training.graph->setCommunicator(communicator);
    const auto& device = communicator->device();
    for (unsigned step = 0; step < 3; ++step)
      test::encodeNow(*communicator, [&](const auto& commandBuffer) {
        const auto first = static_cast<std::size_t>(communicator->rank()) * 2;
        training.graph->encodeBatch(commandBuffer, {test::pictures(device, step).slice(first, 2)},
                                    {test::labels(device, step).slice(first, 2)});
      });
    weights[static_cast<std::size_t>(communicator->rank())] = training.weights();
  });
  for (const Weights& found : weights) test::expectClose(found, alone.weights());
}

TEST(DistributedTraining, AGroupOfOneIsNoGroup) {
  const auto device = mtl::newCPUDevice(1);
  std::vector<Weights> weights;
  std::vector<std::size_t> commands;
  for (const bool withCommunicator : {false, true}) {
    const Training training = withMomentum(device);
    if (withCommunicator) training.graph->setCommunicator(Communicator::create(device));
    const auto commandBuffer = device->newCommandQueue()->commandBuffer();
    training.graph->encodeBatch(commandBuffer, {test::pictures(device, 0)}, {test::labels(device, 0)});
    training.graph->encodeAgreement(commandBuffer);
    commands.push_back(commandBuffer->commandCount());
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    weights.push_back(training.weights());
  }
  EXPECT_EQ(weights[0], weights[1]);
  EXPECT_EQ(commands[0], commands[1]);
}

/// The gradients of the first layer alone are a bucket.
TEST(DistributedTraining, FullBucketsAreSummedOnTheWay) {
  constexpr std::size_t channels = 2600;
  ASSERT_GT(channels * channels * sizeof(float), std::size_t{25} << 20U);
  const MakeTraining make = [](const Device& device) {
    const std::vector layers{test::layer(device, 8, 1, channels, "first"),
                             test::layer(device, 1, channels, channels, "large", 0.0001F),
                             test::layer(device, 1, channels, 3, "last", 0.0001F)};
    auto image = NNImageNode::create();
    for (const auto& layer : layers) image = CNNFullyConnectedNode::create(image, layer)->resultImage();
    auto descriptor =
        CNNLossDescriptor::cnnLossDescriptor(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Sum);
    descriptor.setWeight(1.0F / SmallNetwork::batch);
    const auto loss = CNNLossNode::create(image, descriptor);
    return Training{NNGraph::create(device, loss->trainingGraph(nullptr)[0]->resultImage(), false), layers};
  };
  const Weights alone = trainedAlone(make, 2);
  for (const Weights& weights : trainedTogether(make, 2, 2)) test::expectClose(weights, alone);
}

/// Data sources of the user's own, whichever way they update.
TEST(DistributedTraining, UserCodeSeesTheSums) {
  for (const NNTrainingStyle style : {NNTrainingStyle::UpdateDeviceGPU, NNTrainingStyle::UpdateDeviceCPU}) {
    const auto train = [&](const Device& device, const std::shared_ptr<Communicator>& communicator) {
      const auto start = test::layer(device, 3, 1, 4, "conv");
      const auto first = std::make_shared<test::UserSource>(device, *start);
      const auto second = test::layer(device, 4, 4, 3, "dense");
      const auto graph =
          SmallNetwork(first, second)
              .trainingGraph(device, [&](const auto& gradient, const auto&, const auto&, const auto&) {
                if (auto* node = dynamic_cast<CNNConvolutionGradientNode*>(gradient.get()))
                  node->setTrainingStyle(style);
              });
      graph->setCommunicator(communicator);
      trainPart(*graph, communicator.get(), 6);
      return Weights{test::weightsOf(*first), test::weightsOf(*second)};
    };
    const Weights alone = train(mtl::newCPUDevice(1), nullptr);
    runAll(test::ranks(3), [&](const auto& communicator) {
      test::expectClose(train(communicator->device(), communicator), alone);
    });
  }
}

/// An overflow of one rank's gradients is one of their sum.
TEST(DistributedTraining, AnOverflowLeavesOutTheStepOnAllRanks) {
  const auto train = [](const Device& device, const std::shared_ptr<Communicator>& communicator) {
    LossScaleOptions options;
    options.initialScale = 0x1p126F;
    options.backoffFactor = 0x1p-60F;
    const auto scale = LossScale::create(device, options);
    const auto layer = [&](std::size_t kernel, std::size_t in, std::size_t out, const char* label) {
      auto optimizer = test::sgd(device);
      optimizer->setLossScale(scale);
      return TrainableConvolution::create(
          device, CNNConvolutionDescriptor::cnnConvolutionDescriptor(kernel, kernel, in, out), label,
          in * 100 + out, optimizer);
    };
    const Training training = networkOf(device, {layer(3, 1, 4, "conv"), layer(4, 4, 3, "dense")}, scale);
    training.graph->setCommunicator(communicator);
    // The first picture alone makes gradients overflow.
    const auto images = test::pictures(device, 0);
    std::vector<float> values(SmallNetwork::batch * 64);
    images.readBytes(values, DataLayout::HeightxWidthxFeatureChannels);
    for (std::size_t i = 0; i < 64; ++i) values[i] *= 100;
    images.writeBytes(values, DataLayout::HeightxWidthxFeatureChannels);
    const std::size_t first = communicator && communicator->rank() == 1 ? 2 : 0;
    const std::size_t count = communicator ? (first == 0 ? 2 : 3) : SmallNetwork::batch;
    if (communicator) training.graph->setBatchShare(first, SmallNetwork::batch);
    const auto queue = device->newCommandQueue();
    for (int step = 0; step < 4; ++step) {
      const auto commandBuffer = queue->commandBuffer();
      training.graph->encodeBatch(commandBuffer, {images.slice(first, count)},
                                  {test::labels(device, 0).slice(first, count)});
      commandBuffer->commit();
      commandBuffer->throwIfFailed();
    }
    EXPECT_GE(scale->skippedSteps(), 1U);
    return std::pair(scale->skippedSteps(), training.weights());
  };
  const auto alone = train(mtl::newCPUDevice(1), nullptr);
  runAll(test::ranks(2), [&](const auto& communicator) {
    const auto together = train(communicator->device(), communicator);
    EXPECT_EQ(together.first, alone.first);
    test::expectClose(together.second, alone.second);
  });
}

TEST(DistributedTraining, PlantedDriftIsNamed) {
  const auto errors = test::runRanks(test::ranks(2), [&](const auto& communicator) {
    const Training training = withMomentum(communicator->device());
    training.graph->setCommunicator(communicator);
    trainPart(*training.graph, communicator.get(), 1);
    if (communicator->rank() == 1) {
      const auto state = training.layers[1]->deviceWeightsAndBiases(communicator->device());
      state->weights()->template contentsAs<float>()[3] += 1e-7F;
    }
    test::encodeNow(*communicator,
                    [&](const auto& commandBuffer) { training.graph->encodeAgreement(commandBuffer); });
  });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("dense"), std::string::npos) << error;
    EXPECT_NE(error.find(": weights differs between ranks 0 and 1"), std::string::npos) << error;
  }
}

/// The rank that has it says so; the others do not go on without its part.
TEST(DistributedTraining, D28AWrongClassIndexOfOneRankFailsTheStepOfAll) {
  const auto communicators = test::ranks(3);
  for (const auto& communicator : communicators) communicator->setTimeout(std::chrono::milliseconds(400));
  const auto errors = test::runRanks(communicators, [&](const auto& communicator) {
    const auto& device = communicator->device();
    const auto rank = static_cast<std::size_t>(communicator->rank());
    const Training training = withMomentum(device);
    training.graph->setCommunicator(communicator);
    training.graph->setBatchShare(rank, 3);
    const auto labels = CNNLossLabels::createClassBatch(device, 1);
    CNNLossLabels::writeClassIndices(labels, std::vector<std::uint32_t>{rank == 1 ? 3U : 0U});
    const auto commandBuffer = device->newCommandQueue()->commandBuffer();
    training.graph->encodeBatch(commandBuffer, {test::pictures(device, 0).slice(rank, 1)}, {labels});
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
  });
  EXPECT_NE(errors[1].find("class index 3"), std::string::npos) << errors[1];
  for (const std::size_t other : {0U, 2U})
    EXPECT_NE(errors[other].find("rank 1 of 3 did not come"), std::string::npos) << errors[other];
}

TEST(DistributedTraining, AWrongShareOfTheBatchIsASentence) {
  const auto errors = test::runRanks(test::ranks(2), [&](const auto& communicator) {
    const Training training = withMomentum(communicator->device());
    training.graph->setCommunicator(communicator);
    test::encodeNow(*communicator, [&](const auto& commandBuffer) {
      const std::size_t count = communicator->rank() == 0 ? 2 : 3;  // and nobody told the graph
      training.graph->encodeBatch(commandBuffer, {test::pictures(communicator->device(), 0).slice(0, count)},
                                  {test::labels(communicator->device(), 0).slice(0, count)});
    });
  });
  EXPECT_NE(errors[0].find("the ranks have 5 images together, expected 4"), std::string::npos) << errors[0];
  EXPECT_NE(errors[1].find("the ranks have 5 images together, expected 6"), std::string::npos) << errors[1];
}

TEST(DistributedTraining, RefusesWhatIsNoPartOfABatch) {
  const auto communicators = test::ranks(2);
  const auto device = communicators[0]->device();
  const Training training = withMomentum(device);
  EXPECT_NE(detail::errorOf<Error>([&] {
              training.graph->setCommunicator(communicators[1]);
            }).find("communicator is of cpu"),
            std::string::npos);
  training.graph->setCommunicator(communicators[0]);
  EXPECT_NE(detail::errorOf<Error>([&] {
              training.graph->setBatchShare(3, 2);
            }).find("3 and 2, expected a place in a batch"),
            std::string::npos);
  training.graph->setBatchShare(1, 2);
  const auto commandBuffer = device->newCommandQueue()->commandBuffer();
  const auto encode = [&](std::size_t count) {
    training.graph->encodeBatch(commandBuffer, {test::pictures(device, 0).slice(0, count)},
                                {test::labels(device, 0).slice(0, count)});
  };
  EXPECT_NE(
      detail::errorOf<Error>([&] { encode(2); }).find("2 images from number 1 on, expected a part of the 2"),
      std::string::npos);
  EXPECT_NE(detail::errorOf<Error>([&] {
              training.graph->encodeBatch(commandBuffer, {ImageBatch()}, {StateBatch()});
            }).find("at least one image"),
            std::string::npos);
  training.graph->setCommunicator(nullptr);
  EXPECT_NE(detail::errorOf<Error>([&] { encode(0); }).find("an empty batch"), std::string::npos);
}

}  // namespace
}  // namespace mps::distributed_training_test
