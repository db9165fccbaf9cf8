#include "mps/graph/nn_graph.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <future>
#include <limits>
#include <sstream>

#include "mps/batch_normalization/batch_normalization_node.hpp"
#include "mps/batch_normalization/check/batch_normalization_fixed_source.hpp"
#include "mps/convolution/check/convolution_fixed_weights.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/core/types/digit_groups.hpp"
#include "mps/core/types/error.hpp"
#include "mps/graph/check/test_network.hpp"
#include "mps/instance_normalization/check/instance_normalization_fixed_source.hpp"
#include "mps/instance_normalization/instance_normalization_node.hpp"
#include "mps/pooling/pooling.hpp"
#include "mps/softmax/softmax.hpp"

namespace mps::nn_graph_test {
namespace {

using test::SmallNetwork;
using ::testing::HasSubstr;
using ::testing::Not;

const std::shared_ptr<mtl::Device>& device() {
  static const auto device = mtl::createSystemDefaultDevice();
  return device;
}

struct Pair {
  std::shared_ptr<TrainableConvolution> first = test::layer(device(), 3, 1, 4, "conv");
  std::shared_ptr<TrainableConvolution> second = test::layer(device(), 4, 4, 3, "dense");
};

std::vector<float> trainedWeights(bool withFusion, unsigned steps, std::size_t inFlight) {
  const Pair layers;
  SmallNetwork network(layers.first, layers.second);
  if (!withFusion) network.convolution->resultImage()->setExportFromGraph(true);
  const auto graph = network.trainingGraph(device());
  test::train(*graph, device(), steps, inFlight);
  EXPECT_EQ(graph->debugDescription().find("with CNNNeuronReLUNode") != std::string::npos, withFusion);
  return test::weightsOf(*layers.first);
}

TEST(NNGraph, TrainingMovesTheWeightsOfEveryLayer) {
  const Pair layers;
  const auto firstBefore = test::weightsOf(*layers.first);
  const auto secondBefore = test::weightsOf(*layers.second);
  test::train(*SmallNetwork(layers.first, layers.second).trainingGraph(device()), device(), 2);
  EXPECT_NE(test::weightsOf(*layers.first), firstBefore);
  EXPECT_NE(test::weightsOf(*layers.second), secondBefore);
}

TEST(NNGraph, AFusedNeuronTrainsToTheSameBits) {
  EXPECT_EQ(trainedWeights(true, 6, 1), trainedWeights(false, 6, 1));
}

TEST(Usage, Behaviour17TwoBuffersInFlightGiveTheResultsOfOneAtATime) {
  EXPECT_EQ(trainedWeights(true, 8, 2), trainedWeights(true, 8, 1));
}

TEST(NNGraph, AUserWrittenSourceTrainsToTheSameBitsAsTheReadyMadeOne) {
  const Pair layers;
  const Pair copies;
  const auto first = std::make_shared<test::UserSource>(device(), *copies.first);
  const auto second = std::make_shared<test::UserSource>(device(), *copies.second);
  test::train(*SmallNetwork(layers.first, layers.second).trainingGraph(device()), device(), 5);
  test::train(*SmallNetwork(first, second).trainingGraph(device()), device(), 5);
  EXPECT_EQ(test::weightsOf(*first), test::weightsOf(*layers.first));
  EXPECT_EQ(test::weightsOf(*second), test::weightsOf(*layers.second));
  EXPECT_EQ(first->updates, 5);
  EXPECT_EQ(first->loads, first->purges);
}

/// docs/decisions.md, D23: before anything has run. The first layer's update comes last.
TEST(Decisions, D23AUsersOwnSourceIsCalledAtEncode) {
  const Pair copies;
  const auto first = std::make_shared<test::UserSource>(device(), *copies.first);
  const auto second = std::make_shared<test::UserSource>(device(), *copies.second);
  const auto graph = SmallNetwork(first, second).trainingGraph(device());
  const auto commandBuffer = device()->newCommandQueue()->commandBuffer();
  graph->encodeBatch(commandBuffer, {test::pictures(device(), 0)}, {test::labels(device(), 0)});
  EXPECT_EQ(commandBuffer->status(), mtl::CommandBufferStatus::NotEnqueued);
  EXPECT_EQ(first->updates, 1);
  EXPECT_EQ(second->updates, 1);
  EXPECT_EQ(first->hostUpdates, 0);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  EXPECT_EQ(first->updates, 1);
}

TEST(NNGraph, HostUpdatesGiveTheWeightsOfDeviceUpdates) {
  const Pair layers;
  const Pair copies;
  const auto first = std::make_shared<test::UserSource>(device(), *copies.first);
  const auto second = std::make_shared<test::UserSource>(device(), *copies.second);
  test::train(*SmallNetwork(layers.first, layers.second).trainingGraph(device()), device(), 4);
  SmallNetwork network(first, second);
  network.convolution->setTrainingStyle(NNTrainingStyle::UpdateDeviceCPU);
  network.dense->setTrainingStyle(NNTrainingStyle::UpdateDeviceCPU);
  const auto graph = network.trainingGraph(device());
  test::train(*graph, device(), 4, 2);
  EXPECT_EQ(test::weightsOf(*first), test::weightsOf(*layers.first));
  EXPECT_EQ(first->hostUpdates, 4);
  EXPECT_EQ(first->updates, 0);
}

TEST(NNGraph, TwoHostUpdatedEncodesOnOneCommandBufferAreRefused) {
  const Pair layers;
  SmallNetwork network(layers.first, layers.second);
  network.convolution->setTrainingStyle(NNTrainingStyle::UpdateDeviceCPU);
  const auto graph = network.trainingGraph(device());
  const auto queue = device()->newCommandQueue();
  const auto commandBuffer = queue->commandBuffer();
  graph->encodeBatch(commandBuffer, {test::pictures(device(), 0)}, {test::labels(device(), 0)});
  EXPECT_THROW(graph->encodeBatch(commandBuffer, {test::pictures(device(), 1)}, {test::labels(device(), 1)}),
               Error);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
}

/// What would wait for ever throws.
TEST(NNGraph, AHandlerBeforeTheHostUpdateCannotEncodeTheNextStep) {
  const Pair layers;
  SmallNetwork network(layers.first, layers.second);
  network.convolution->setTrainingStyle(NNTrainingStyle::UpdateDeviceCPU);
  const auto graph = network.trainingGraph(device());
  const auto queue = device()->newCommandQueue();
  const auto commandBuffer = queue->commandBuffer();
  std::vector<std::string> errors;
  const auto encodeNext = [&](mtl::CommandBuffer&) {
    const auto next = queue->commandBuffer();
    errors.push_back(testing::errorOf(
        [&] { graph->encodeBatch(next, {test::pictures(device(), 1)}, {test::labels(device(), 1)}); }));
  };
  commandBuffer->addCompletedHandler(encodeNext);
  graph->encodeBatch(commandBuffer, {test::pictures(device(), 0)}, {test::labels(device(), 0)});
  commandBuffer->addCompletedHandler(encodeNext);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  ASSERT_EQ(errors.size(), 2U);
  EXPECT_TRUE(testing::names(errors[0], {"NNGraph", "commandBuffer", "handler"}));
  EXPECT_EQ(errors[1], "") << "the update came before";
}

TEST(NNGraph, AHandlerOfAnEarlierBufferCannotWaitForTheHostUpdate) {
  const Pair layers;
  SmallNetwork network(layers.first, layers.second);
  network.convolution->setTrainingStyle(NNTrainingStyle::UpdateDeviceCPU);
  const auto graph = network.trainingGraph(device());
  const auto queue = device()->newCommandQueue();
  const auto early = queue->commandBuffer();
  const auto commandBuffer = queue->commandBuffer();
  std::promise<void> isCommitted;
  std::string error;
  early->addCompletedHandler([&](mtl::CommandBuffer&) {
    isCommitted.get_future().wait();
    error = testing::errorOf([&] {
      graph->encodeBatch(queue->commandBuffer(), {test::pictures(device(), 1)}, {test::labels(device(), 1)});
    });
  });
  early->commit();
  graph->encodeBatch(commandBuffer, {test::pictures(device(), 0)}, {test::labels(device(), 0)});
  commandBuffer->commit();
  isCommitted.set_value();
  commandBuffer->throwIfFailed();
  EXPECT_TRUE(testing::names(error, {"NNGraph", "commandBuffer", "handler"}));
}

TEST(Usage, Behaviour02AnUpdateThatReturnsNothingLeavesTheLayerAlone) {
  const Pair copies;
  const auto first = std::make_shared<test::UserSource>(device(), *copies.first);
  const auto second = std::make_shared<test::UserSource>(device(), *copies.second);
  first->isFrozen = true;
  const auto before = test::weightsOf(*first);
  const auto secondBefore = test::weightsOf(*second);
  test::train(*SmallNetwork(first, second).trainingGraph(device()), device(), 3);
  EXPECT_EQ(test::weightsOf(*first), before);
  EXPECT_NE(test::weightsOf(*second), secondBefore);
  EXPECT_EQ(first->updates, 3);
}

/// A gradient node takes the style of its forward node when it is made; then its own decides.
TEST(NNGraph, TheStyleOfTheGradientNodeDecides) {
  const Pair layers;
  SmallNetwork network(layers.first, layers.second);
  NNTrainableNode& forward = *network.convolution;
  EXPECT_EQ(forward.trainingStyle(), NNTrainingStyle::UpdateDeviceGPU);
  std::vector<std::shared_ptr<NNImageNode>> results;
  for (const auto& terminus : network.loss->trainingGraph(
           nullptr,
           [&](const std::shared_ptr<NNFilterNode>&gradient, const std::shared_ptr<NNFilterNode>&node,
               const std::shared_ptr<NNImageNode>&, const std::shared_ptr<NNImageNode>&) {
             auto* trainable = dynamic_cast<NNTrainableNode*>(gradient.get());
             if (trainable == nullptr || node == network.dense) return;
             EXPECT_EQ(trainable->trainingStyle(), NNTrainingStyle::UpdateDeviceGPU);
             trainable->setTrainingStyle(NNTrainingStyle::UpdateDeviceNone);
           }))
    results.push_back(terminus->resultImage());
  forward.setTrainingStyle(NNTrainingStyle::UpdateDeviceCPU);  // too late to count
  const auto graph = NNGraph::create(device(), results, std::vector<bool>(results.size(), false));
  const auto first = test::weightsOf(*layers.first);
  const auto second = test::weightsOf(*layers.second);
  test::train(*graph, device(), 2);
  EXPECT_EQ(test::weightsOf(*layers.first), first);
  EXPECT_NE(test::weightsOf(*layers.second), second);
}

TEST(NNGraph, AFrozenFirstLayerHasNoGradientSteps) {
  const Pair layers;
  SmallNetwork network(layers.first, layers.second);
  network.convolution->setTrainingStyle(NNTrainingStyle::UpdateDeviceNone);
  const auto graph = network.trainingGraph(device());
  const std::string text = graph->debugDescription();
  EXPECT_EQ(text.find("CNNConvolutionGradient]"), std::string::npos) << text;
  EXPECT_EQ(text.find("CNNPoolingMaxGradient"), std::string::npos) << text;
  EXPECT_THAT(text, HasSubstr("weight gradients only"));
  const auto before = test::weightsOf(*layers.first);
  test::train(*graph, device(), 2);
  EXPECT_EQ(test::weightsOf(*layers.first), before);
}

TEST(Usage, Behaviour06And20TheSameNodesServeAnInferenceGraphThatSeesNewWeightsAfterAReload) {
  const Pair copies;
  const auto first = std::make_shared<test::UserSource>(device(), *copies.first);
  const auto second = std::make_shared<test::UserSource>(device(), *copies.second);
  SmallNetwork network(first, second, false);
  const auto training = network.trainingGraph(device());
  const auto inference =
      NNGraph::create(device(), CNNSoftMaxNode::create(network.dense->resultImage())->resultImage());
  const auto predict = [&] {
    const auto queue = device()->newCommandQueue();
    const auto commandBuffer = queue->commandBuffer();
    const auto result = inference->encodeBatch(commandBuffer, {test::pictures(device(), 9)});
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    std::vector<float> values(SmallNetwork::batch * 3);
    result.readBytes(std::span(values), DataLayout::HeightxWidthxFeatureChannels);
    return values;
  };
  const auto before = predict();
  test::train(*training, device(), 2);
  EXPECT_EQ(predict(), before);
  inference->reloadFromDataSources();
  EXPECT_NE(predict(), before);
}

/// A convolution that multiplies by a factor.
class FactorSource final : public detail::FixedWeights {
 public:
  FactorSource() : FixedWeights(CNNConvolutionDescriptor::cnnConvolutionDescriptor(1, 1, 1, 1), {}, {}) {}
  [[nodiscard]] std::span<const std::byte> weights() const override {
    return std::as_bytes(std::span(&factor, 1));
  }
  bool load() override { return loadsWell; }
  float factor = 1;
  bool loadsWell = true;
};

/// One layer of each family, whose sources a test can change.
struct ReloadedLayers {
  std::shared_ptr<detail::FixedInstanceNormalization> instance =
      detail::FixedInstanceNormalization::create(1, 3);
  std::shared_ptr<detail::FixedBatchNormalization> batch = detail::FixedBatchNormalization::create(1, 0);
  std::shared_ptr<FactorSource> first = std::make_shared<FactorSource>();
  std::shared_ptr<FactorSource> second = std::make_shared<FactorSource>();

  [[nodiscard]] std::shared_ptr<NNGraph> graph() const {
    const auto instanceNode = CNNInstanceNormalizationNode::create(NNImageNode::create(), instance);
    const auto batchNode = CNNBatchNormalizationNode::create(instanceNode->resultImage(), batch);
    const auto firstNode = CNNConvolutionNode::create(batchNode->resultImage(), first);
    const auto secondNode = CNNConvolutionNode::create(firstNode->resultImage(), second);
    return NNGraph::create(device(), secondNode->resultImage());
  }
};

TEST(NNGraph, AReloadThatThrowsLeavesTheParametersOfAllLayers) {
  const ReloadedLayers layers;
  const auto graph = layers.graph();
  auto source = ImageBatch::create(device(), testing::sizeOf(2, 1, 1), 1);
  source.writeBytes(std::span<const float>(testing::Values{1, 3}), testing::pixelsFirst);
  const auto result = [&] {
    const auto commandBuffer = device()->newCommandQueue()->commandBuffer();
    const ImageBatch made = graph->encodeBatch(commandBuffer, {source});
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    return testing::valuesOf(made);
  };
  const testing::Values before{-0.5F, 0.5F};
  EXPECT_EQ(result(), before);
  layers.instance->gammas = {2};
  layers.batch->gammas = {3};
  layers.first->factor = 5;
  layers.second->factor = 7;
  layers.second->loadsWell = false;
  EXPECT_TRUE(testing::names(testing::errorOf([&] { graph->reloadFromDataSources(); }), {"load()"}));
  EXPECT_EQ(result(), before);
  layers.second->loadsWell = true;
  graph->reloadFromDataSources();
  EXPECT_EQ(result(), (testing::Values{-105, 105}));
}

TEST(NNGraph, RandomCountersThatAreNoCountersAreRefused) {
  const auto dropout = CNNDropoutNode::create(CNNDropoutNode::create(NNImageNode::create())->resultImage());
  const auto graph = NNGraph::create(device(), dropout->resultImage());
  using Counters = std::vector<std::uint64_t>;
  const auto refused = [&](const Counters& counters) {
    return testing::errorOf([&] { graph->setRandomCounters(counters); });
  };
  constexpr std::uint64_t most = 0xFFFFFFFF;
  graph->setRandomCounters(Counters{3, most});
  EXPECT_TRUE(testing::names(refused({7, most + 1}), {"counters", "4294967296", "2^32"}));
  EXPECT_TRUE(testing::names(refused({7}), {"counters", "1, expected 2"}));
  EXPECT_EQ(graph->randomCounters(), (Counters{3, most}));
}

TEST(NNGraph, AfterTheFirstStepsNothingIsAllocatedFromTheSystem) {
  const Pair layers;
  const auto graph = SmallNetwork(layers.first, layers.second).trainingGraph(device());
  const auto queue = device()->newCommandQueue();
  // Whatever the threads' timing, no more steps are under way at once later than are here.
  std::vector<std::shared_ptr<mtl::CommandBuffer>> together;
  for (unsigned step = 0; step < 3; ++step) {
    together.push_back(queue->commandBuffer());
    graph->encodeBatch(together.back(), {test::pictures(device(), step)}, {test::labels(device(), step)});
  }
  for (const auto& commandBuffer : together) commandBuffer->commit();
  for (const auto& commandBuffer : together) commandBuffer->throwIfFailed();
  together.clear();
  test::train(*graph, device(), 6, 2, queue);
  const std::size_t count = device()->systemAllocationCount();
  test::train(*graph, device(), 20, 2, queue);
  EXPECT_EQ(device()->systemAllocationCount(), count);
}

TEST(NNGraph, ThePlanIsSmallerThanTheImagesTogether) {
  const Pair layers;
  const auto graph = SmallNetwork(layers.first, layers.second).trainingGraph(device());
  EXPECT_EQ(graph->plannedTemporaryBytes(), 0U);
  test::train(*graph, device(), 1);
  // relu 8x8x4, pool 4x4x4, dropout 4x4x4, logits and their gradient 3, then the gradients of all three
  // images
  const std::size_t images = SmallNetwork::batch * sizeof(float) * (3 * 256 + 4 * 64 + 2 * 3);
  EXPECT_GT(graph->plannedTemporaryBytes(), SmallNetwork::batch * sizeof(float) * (256 + 64));
  EXPECT_LT(graph->plannedTemporaryBytes(), images);
}

/// Message of a step that fails because a value is not finite.
std::string failureOf(NNGraph& graph) {
  graph.setStopsAtNonFiniteValues(true);
  const auto commandBuffer = device()->newCommandQueue()->commandBuffer();
  graph.encodeBatch(commandBuffer, {test::pictures(device(), 0)}, {test::labels(device(), 0)});
  commandBuffer->commit();
  commandBuffer->waitUntilCompleted();
  return commandBuffer->error() ? commandBuffer->error()->message : "no failure";
}

void plantInBiases(TrainableConvolution& layer, float value) {
  const auto biases = layer.deviceWeightsAndBiases(device())->biases();
  std::memcpy(biases->contents(), &value, sizeof value);
}

TEST(NNGraph, TheFirstNodeWithAPlantedNaNIsNamed) {
  for (const char* planted : {"conv", "dense"}) {
    const Pair layers;
    SmallNetwork network(layers.first, layers.second);
    const auto graph = network.trainingGraph(device());
    EXPECT_EQ(failureOf(*graph), "no failure");
    plantInBiases(planted == std::string("conv") ? *layers.first : *layers.second,
                  std::numeric_limits<float>::quiet_NaN());
    const std::string failure = failureOf(*graph);
    EXPECT_THAT(failure, HasSubstr("\"" + std::string(planted) + "\"")) << failure;
    EXPECT_THAT(failure, HasSubstr("not finite"));
    const std::string behind = planted == std::string("conv") ? "dense" : "Loss";
    EXPECT_THAT(failure, ::testing::Not(HasSubstr(behind)));
  }
}

TEST(NNGraph, AnInfinityThatBeginsInTheBackwardPassIsNamedThere) {
  const Pair layers;
  SmallNetwork network(layers.first, layers.second, false);
  auto descriptor =
      CNNLossDescriptor::cnnLossDescriptor(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Sum);
  descriptor.setWeight(std::numeric_limits<float>::max());
  network.loss = CNNLossNode::create(network.dense->resultImage(), descriptor);
  for (const char* label : {"conv", "dense"}) {
    auto& layer = label == std::string("conv") ? *layers.first : *layers.second;
    const auto weights = layer.deviceWeightsAndBiases(device())->weights();
    for (float& weight : weights->contentsAs<float>())
      weight *= 8;  // the loss gradient is finite, its product not
  }
  EXPECT_THAT(failureOf(*network.trainingGraph(device())), HasSubstr("dense gradient"));
}

TEST(Usage, Behaviour15SeveralResultsTakeOneFlagEach) {
  const Pair layers;
  SmallNetwork network(layers.first, layers.second, false);
  const std::vector images{network.dense->resultImage(), network.relu->resultImage()};
  for (const std::vector<bool>& flags : {std::vector<bool>{true}, {true, false, true}})
    EXPECT_EQ(testing::errorOf([&] { NNGraph::create(device(), images, flags); }),
              "NNGraph: resultsAreNeeded is " + std::to_string(flags.size()) +
                  " flags, expected 2, one for each result image");
  const auto graph = NNGraph::create(device(), images, {true, true});
  EXPECT_EQ(graph->intermediateImageHandles().size(), 1U);
  const auto queue = device()->newCommandQueue();
  const auto commandBuffer = queue->commandBuffer();
  std::vector<ImageBatch> others;
  const auto logits = graph->encodeBatch(commandBuffer, {test::pictures(device(), 0)}, {}, &others);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  EXPECT_EQ(logits.descriptor().featureChannels(), 3U);
  ASSERT_EQ(others.size(), 1U);
  EXPECT_EQ(others[0].descriptor().featureChannels(), 4U);
}

TEST(NNGraph, WrongInputsAreRefusedAndNothingIsEncoded) {
  const Pair layers;
  const auto graph = SmallNetwork(layers.first, layers.second).trainingGraph(device());
  const auto queue = device()->newCommandQueue();
  const auto commandBuffer = queue->commandBuffer();
  EXPECT_THROW(graph->encodeBatch(commandBuffer, {}, {test::labels(device(), 0)}), Error);
  EXPECT_THROW(graph->encodeBatch(commandBuffer, {test::pictures(device(), 0)}, {}), Error);
  EXPECT_THROW(graph->encodeBatch(commandBuffer, {test::pictures(device(), 0).slice(0, 2)},
                                  {test::labels(device(), 0)}),
               Error);
  const auto wide =
      ImageBatch::create(device(), {ImageFeatureChannelFormat::Float32, 9, 8, 1}, SmallNetwork::batch);
  EXPECT_THROW(graph->encodeBatch(commandBuffer, {wide}, {test::labels(device(), 0)}), Error);
  EXPECT_EQ(commandBuffer->commandCount(), 0U);
}

TEST(NNGraph, ADataSourceThatFailsToLoadIsNamed) {
  const Pair copies;
  const auto first = std::make_shared<test::UserSource>(device(), *copies.first);
  first->loadsWell = false;
  const auto node = CNNConvolutionNode::create(NNImageNode::create(), first);
  EXPECT_THROW(NNGraph::create(device(), node->resultImage()), Error);
}

TEST(NNGraph, ATemporarySourceLosesOneReadHoweverManyNodesReadIt) {
  const Pair layers;
  const auto graph = SmallNetwork(layers.first, layers.second).trainingGraph(device());
  const auto queue = device()->newCommandQueue();
  const auto commandBuffer = queue->commandBuffer();
  const auto pool = CNNPoolingAverage::create(device(), 1, 1);
  const auto source = pool->encodeBatch(commandBuffer, test::pictures(device(), 0));
  ImageBatchIncrementReadCount(source, 1);
  graph->encodeBatch(commandBuffer, {source}, {test::labels(device(), 0)});
  EXPECT_EQ(std::static_pointer_cast<TemporaryImage>(source[0])->readCount(), 1U);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
}

TEST(NNGraph, ExecuteAsyncHandsTheResultToTheHandler) {
  const Pair layers;
  SmallNetwork network(layers.first, layers.second, false);
  const auto graph = NNGraph::create(device(), network.dense->resultImage());
  std::promise<std::shared_ptr<Image>> done;
  const auto result = graph->executeAsync({test::pictures(device(), 0)[0]},
                                          [&](const std::shared_ptr<Image>& image, const std::string& error) {
                                            EXPECT_EQ(error, "");
                                            done.set_value(image);
                                          });
  EXPECT_EQ(done.get_future().get(), result);
}

TEST(NNGraph, WriteDotDrawsEveryStep) {
  const Pair layers;
  const auto graph = SmallNetwork(layers.first, layers.second).trainingGraph(device());
  std::ostringstream out;
  graph->writeDot(out);
  EXPECT_THAT(out.str(), HasSubstr("digraph"));
  for (const char* name : {"conv", "dense", "CNNLossNode", "CNNDropoutNode", "CNNPoolingMaxGradientNode"})
    EXPECT_THAT(out.str(), HasSubstr(name));
}

TEST(NNGraph, WriteDotDrawsTheForwardPartAlone) {
  const Pair layers;
  const auto graph = SmallNetwork(layers.first, layers.second).trainingGraph(device());
  std::ostringstream out;
  graph->writeDot(out, GraphPart::Forward);
  for (const char* name : {"digraph", "conv", "dense", "CNNLossNode", "CNNDropoutNode"})
    EXPECT_THAT(out.str(), HasSubstr(name));
  EXPECT_THAT(out.str(), Not(HasSubstr("Gradient")));
  EXPECT_THAT(out.str(), Not(HasSubstr("dotted")));
}

TEST(NNGraph, DescriptionsDoNotFollowTheLocale) {
  // More than a thousand images, so that even their numbers would have groups of digits.
  auto node = CNNPoolingMaxNode::create(NNImageNode::create(), 1, 1);
  for (int i = 0; i < 1100; ++i) node = CNNPoolingMaxNode::create(node->resultImage(), 1, 1);
  const auto graph = NNGraph::create(device(), node->resultImage());
  const auto commandBuffer = device()->newCommandQueue()->commandBuffer();
  static_cast<void>(graph->encodeBatch(
      commandBuffer, {ImageBatch::create(device(), {ImageFeatureChannelFormat::Float32, 50, 50, 4}, 1)}));
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  const auto dot = [&] {
    std::ostringstream out;
    graph->writeDot(out);
    return out.str();
  };
  const std::string description = graph->debugDescription();
  const std::string drawing = dot();
  const test::DigitGroups groups;
  EXPECT_EQ(graph->debugDescription(), description);
  EXPECT_EQ(dot(), drawing);
}

TEST(NNGraph, ACopyOnAnotherDeviceComputesTheSame) {
  const auto other = mtl::newCPUDevice(device()->threadCount());
  const Pair copies;
  const auto first = std::make_shared<test::UserSource>(device(), *copies.first);
  const auto second = std::make_shared<test::UserSource>(device(), *copies.second);
  SmallNetwork network(first, second, false);
  const auto graph = NNGraph::create(device(), network.dense->resultImage());
  const auto copy = graph->copy(other);
  const auto run = [](const std::shared_ptr<NNGraph>& which) {
    const auto queue = which->device()->newCommandQueue();
    const auto commandBuffer = queue->commandBuffer();
    const auto result = which->encodeBatch(commandBuffer, {test::pictures(which->device(), 3)});
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    std::vector<float> values(SmallNetwork::batch * 3);
    result.readBytes(std::span(values), DataLayout::HeightxWidthxFeatureChannels);
    return values;
  };
  EXPECT_EQ(run(copy), run(graph));
}

}  // namespace
}  // namespace mps::nn_graph_test
