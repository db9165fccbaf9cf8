#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "mps/graph/check/test_network.hpp"
#include "mps/graph/check/test_replaying_stream.hpp"
#include "mtl/check/test_devices.hpp"
#include "mtl/command.hpp"
#include "mtl/cpu/stream.hpp"
#include "mtl/submission.hpp"

/// Devices may keep the commands of a step and replay them (docs/architecture.md); nobody must notice. A step
/// on a queue of its own is never a replay, so it is what the others are compared with.
namespace mps::replayed_training_test {
namespace {

using test::SmallNetwork;

enum class Queues { One, OneForEachStep, Same };

class ReplayedTraining : public ::testing::TestWithParam<std::shared_ptr<mtl::Device>> {
 protected:
  using Weights = std::vector<std::vector<float>>;
  static constexpr unsigned steps = 8;

  struct Layers {
    std::shared_ptr<TrainableConvolution> first, second;
  };
  std::shared_ptr<TrainableConvolution> adamLayer(std::size_t kernel, std::size_t in, std::size_t out) const {
    return TrainableConvolution::create(
        device_, CNNConvolutionDescriptor::cnnConvolutionDescriptor(kernel, kernel, in, out), "layer",
        in * 100 + out, NNOptimizerAdam::create(device_, 0.01F));
  }
  Layers sgdLayers() const {
    return {test::layer(device_, 3, 1, 4, "conv"), test::layer(device_, 4, 4, 3, "dense")};
  }
  Layers adamLayers() const { return {adamLayer(3, 1, 4), adamLayer(4, 4, 3)}; }

  template <class Source>
  std::vector<float> weightsOf(Source& source) const {
    const auto commandBuffer = device_->newCommandQueue()->commandBuffer();
    source.synchronize(commandBuffer);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    return test::weightsOf(source);
  }
  template <class Source>
  Weights weightsOf(Source& first, Source& second) const {
    return {weightsOf(first), weightsOf(second)};
  }

  /// A new queue for all steps or for each, or the last one.
  std::shared_ptr<mtl::CommandQueue> queueFor(Queues queues) {
    if (queues == Queues::OneForEachStep || !queue_) queue_ = device_->newCommandQueue();
    return queue_;
  }
  /// @param before called with the number of the step, when those before it have ended
  /// @param countOf images of a step
  void train(NNGraph& graph, Queues queues, const std::function<void(unsigned)>& before = nullptr,
             const std::function<std::size_t(unsigned)>& countOf = nullptr) {
    queue_ = nullptr;
    std::vector<std::shared_ptr<mtl::CommandBuffer>> pending;
    for (unsigned step = 1; step <= steps; ++step) {
      if (before && step > 1) pending.back()->throwIfFailed();
      if (before) before(step);
      const std::size_t count = countOf ? countOf(step) : SmallNetwork::batch;
      const auto commandBuffer = queueFor(queues)->commandBuffer();
      graph.encodeBatch(commandBuffer, {test::pictures(device_, step).slice(0, count)},
                        {test::labels(device_, step).slice(0, count)});
      commandBuffer->commit();
      pending.push_back(commandBuffer);
      if (queues == Queues::OneForEachStep) commandBuffer->throwIfFailed();
    }
    for (const auto& commandBuffer : pending) commandBuffer->throwIfFailed();
  }
  Weights trained(const Layers& layers, Queues queues, const std::function<void(unsigned)>& before = nullptr,
                  const std::function<std::size_t(unsigned)>& countOf = nullptr) {
    const auto graph = SmallNetwork(layers.first, layers.second).trainingGraph(device_);
    train(*graph, queues, before, countOf);
    return weightsOf(*layers.first, *layers.second);
  }

  /// Each step on pictures that are bytes, or their values as float32, in the same memory.
  Weights trainedOnBytes(ImageFeatureChannelFormat format, Queues queues,
                         const std::function<void(NNGraph&)>& change = nullptr) {
    constexpr std::size_t pixels = SmallNetwork::batch * 64;
    const Layers layers = sgdLayers();
    const auto graph = SmallNetwork(layers.first, layers.second).trainingGraph(device_);
    if (change) change(*graph);
    queue_ = nullptr;
    const auto images = ImageBatch::create(device_, {format, 8, 8, 1}, SmallNetwork::batch);
    for (unsigned step = 1; step <= steps; ++step) {
      std::vector<std::uint8_t> bytes(pixels);
      for (std::size_t i = 0; i < pixels; ++i)
        bytes[i] = static_cast<std::uint8_t>((i * 37 + step * 101) % 256);
      std::vector<float> values(pixels);
      std::ranges::transform(bytes, values.begin(),
                             [](std::uint8_t byte) { return static_cast<float>(byte) / 255.0F; });
      const auto written = format == ImageFeatureChannelFormat::Unorm8 ? std::as_bytes(std::span(bytes))
                                                                       : std::as_bytes(std::span(values));
      images.writeBytes(written, DataLayout::HeightxWidthxFeatureChannels);
      const auto commandBuffer = queueFor(queues)->commandBuffer();
      graph->encodeBatch(commandBuffer, {images}, {test::labels(device_, step)});
      commandBuffer->commit();
      commandBuffer->throwIfFailed();
    }
    return weightsOf(*layers.first, *layers.second);
  }

  std::shared_ptr<mtl::Device> device_ = GetParam();
  std::shared_ptr<mtl::CommandQueue> queue_;
};

TEST_P(ReplayedTraining, HasTheBitsOfStepsThatAreNoReplays) {
  EXPECT_EQ(trained(sgdLayers(), Queues::One), trained(sgdLayers(), Queues::OneForEachStep));
  EXPECT_EQ(trained(adamLayers(), Queues::One), trained(adamLayers(), Queues::OneForEachStep));
}

TEST_P(ReplayedTraining, ALearningRateThatIsChangedTakesEffect) {
  const auto run = [&](Queues queues, unsigned changedAt) {
    const Layers layers = adamLayers();
    return trained(layers, queues, [&](unsigned step) {
      if (step == changedAt) layers.second->optimizer()->setLearningRate(0.1F);
    });
  };
  const Weights changed = run(Queues::One, 3);
  EXPECT_EQ(changed, run(Queues::OneForEachStep, 3));
  EXPECT_NE(changed, run(Queues::One, 4));
  EXPECT_NE(changed, run(Queues::One, steps + 1));
}

TEST_P(ReplayedTraining, AnUpdateThatReturnsNothingLeavesItsLayerAlone) {
  constexpr unsigned frozenStep = 5;
  const auto run = [&](Queues queues) {
    const Layers layers = sgdLayers();
    std::map<unsigned, Weights> before;
    Weights after = trained(layers, queues, [&](unsigned step) {
      layers.first->setFrozen(step == frozenStep);
      before[step] = weightsOf(*layers.first, *layers.second);
    });
    EXPECT_EQ(before[frozenStep + 1][0], before[frozenStep][0]);
    EXPECT_NE(before[frozenStep + 1][1], before[frozenStep][1]);
    EXPECT_NE(before[frozenStep + 2][0], before[frozenStep + 1][0]);
    return after;
  };
  EXPECT_EQ(run(Queues::One), run(Queues::OneForEachStep));
}

TEST_P(ReplayedTraining, WithASourceOfTheUsersOwnHasTheBitsOfTheReadyMadeOne) {
  const Layers layers = sgdLayers();
  const Layers copies = sgdLayers();
  const auto first = std::make_shared<test::UserSource>(device_, *copies.first);
  const auto second = std::make_shared<test::UserSource>(device_, *copies.second);
  train(*SmallNetwork(first, second).trainingGraph(device_), Queues::One);
  EXPECT_EQ(weightsOf(*first, *second), trained(layers, Queues::One));
  EXPECT_EQ(first->updates, static_cast<int>(steps));
}

/// Such as the last batch of a data set.
TEST_P(ReplayedTraining, ABatchOfAnotherSizeInBetweenIsRight) {
  const auto countOf = [](unsigned step) { return step % 4 == 0 ? std::size_t{3} : SmallNetwork::batch; };
  EXPECT_EQ(trained(sgdLayers(), Queues::One, nullptr, countOf),
            trained(sgdLayers(), Queues::OneForEachStep, nullptr, countOf));
}

/// A graph's copies of its sources are float32, whatever those are.
TEST_P(ReplayedTraining, UnormPicturesHaveTheBitsOfTheirValues) {
  const Weights found = trainedOnBytes(ImageFeatureChannelFormat::Unorm8, Queues::One);
  EXPECT_EQ(found, trainedOnBytes(ImageFeatureChannelFormat::Float32, Queues::One));
  const Layers untouched = sgdLayers();
  EXPECT_NE(found, weightsOf(*untouched.first, *untouched.second));
}

/// But for bytes that convolutions take as float16.
TEST_P(ReplayedTraining, UnormPicturesInFloat16HaveTheBitsOfStepsThatAreNoReplays) {
  const auto trained = [&](Queues queues) {
    return trainedOnBytes(ImageFeatureChannelFormat::Unorm8, queues, [](NNGraph& graph) {
      graph.setFormat(ImageFeatureChannelFormat::Float16);
      graph.setOptions(KernelOptions::AllowReducedPrecision);
    });
  };
  const Weights found = trained(Queues::One);
  EXPECT_EQ(found, trained(Queues::OneForEachStep));
  EXPECT_NE(found, trainedOnBytes(ImageFeatureChannelFormat::Unorm8, Queues::One));
}

/// A gradient that somebody keeps is not overwritten by the next step.
TEST_P(ReplayedTraining, AGradientStateThatIsKeptStaysRight) {
  struct Keeper final : test::UserSource {
    using test::UserSource::update;
    using test::UserSource::UserSource;
    std::shared_ptr<CNNConvolutionWeightsAndBiasesState> update(
        const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
        const std::shared_ptr<CNNConvolutionGradientState>& gradientState,
        const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& sourceState) override {
      kept.push_back(gradientState->gradientForWeights());
      kept.back()->synchronize(*commandBuffer);
      return test::UserSource::update(commandBuffer, gradientState, sourceState);
    }
    std::vector<std::shared_ptr<mtl::Buffer>> kept;
  };
  const auto gradients = [&](Queues queues) {
    const Layers start = sgdLayers();
    const auto keeper = std::make_shared<Keeper>(device_, *start.first);
    train(*SmallNetwork(keeper, start.second).trainingGraph(device_), queues);
    Weights values;
    for (const auto& buffer : keeper->kept) {
      const auto found = buffer->contentsAs<const float>();
      values.emplace_back(found.begin(), found.end());
    }
    return values;
  };
  const Weights found = gradients(Queues::One);
  EXPECT_EQ(found, gradients(Queues::OneForEachStep));
  ASSERT_EQ(found.size(), steps);
  EXPECT_NE(found[0], found[1]);
}

class ReplayedResults : public ReplayedTraining {
 protected:
  std::shared_ptr<NNGraph> inferenceGraph() const {
    const Layers layers = sgdLayers();
    const auto convolution = CNNConvolutionNode::create(NNImageNode::create(), layers.first);
    const auto maximum = CNNPoolingMaxNode::create(convolution->resultImage(), 2);
    const auto dense = CNNFullyConnectedNode::create(maximum->resultImage(), layers.second);
    return NNGraph::create(device_, CNNNeuronSigmoidNode::create(dense->resultImage())->resultImage());
  }
  /// Encodes each step's pictures, holds all results and reads them at the end.
  Weights results(NNGraph& graph, Queues queues, bool samePictures) {
    if (queues != Queues::Same) queue_ = nullptr;
    std::vector<ImageBatch> held;
    for (unsigned step = 1; step <= steps; ++step) {
      const auto commandBuffer = queueFor(queues)->commandBuffer();
      held.push_back(
          graph.encodeBatch(commandBuffer, {test::pictures(device_, samePictures ? 1 : step)}, {}));
      ImageBatchSynchronize(held.back(), commandBuffer);
      commandBuffer->commit();
      if (queues == Queues::OneForEachStep || step == steps) commandBuffer->throwIfFailed();
    }
    Weights values;
    for (const ImageBatch& images : held) {
      const ImageDescriptor size = images.descriptor();
      values.emplace_back(images.count() * size.width() * size.height() * size.featureChannels());
      images.readBytes(std::span(values.back()), DataLayout::HeightxWidthxFeatureChannels);
    }
    return values;
  }
};

TEST_P(ReplayedResults, ThatAreHeldStayRight) {
  const auto graph = inferenceGraph();
  const Weights found = results(*graph, Queues::One, false);
  EXPECT_EQ(found, results(*graph, Queues::OneForEachStep, false));
  EXPECT_NE(found[0], found[1]);
}

/// The graph's own memory is invalid then, until the next encode has written it.
TEST_P(ReplayedResults, AreRightAfterABufferThatFailed) {
  const auto graph = inferenceGraph();
  const Weights expected = results(*graph, Queues::One, false);
  const auto failed = queue_->commandBuffer();
  mtl::Command failing;
  failing.label = "planted";
  failing.run = [](mtl::Stream&) { throw std::runtime_error("failure"); };
  failed->append(std::move(failing));
  graph->encodeBatch(failed, {test::pictures(device_, 1)}, {});
  failed->commit();
  failed->waitUntilCompleted();
  EXPECT_TRUE(failed->error());
  EXPECT_EQ(results(*graph, Queues::Same, false), expected);
}

TEST_P(ReplayedResults, OfDropoutDifferFromStepToStep) {
  const auto graph = [&] {
    auto image = NNImageNode::create();
    for (unsigned i = 0; i < 3; ++i) {
      image = CNNDropoutNode::create(image, 0.5F, i)->resultImage();
      image = CNNPoolingMaxNode::create(image, 3, 1)->resultImage();
    }
    return NNGraph::create(device_, image);
  };
  const Weights found = results(*graph(), Queues::One, true);
  EXPECT_EQ(found, results(*graph(), Queues::OneForEachStep, true));
  for (std::size_t i = 1; i < found.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(found[i], found[j]) << i << " and " << j;
}

/// Whatever the work of a step depends on is in the keys of its commands.
TEST(ReplayKeys, D23OfATrainingStepSayAllThatItDoes) {
  const auto device = mtl::newCPUDevice(2);
  const auto trained = [&](mtl::cpu::Stream& stream) {
    const auto adam = [&](std::size_t kernel, std::size_t in, std::size_t out) {
      return TrainableConvolution::create(
          device, CNNConvolutionDescriptor::cnnConvolutionDescriptor(kernel, kernel, in, out), "layer",
          in + out, NNOptimizerAdam::create(device, 0.01F));
    };
    const auto first = adam(3, 1, 4);
    const auto second = adam(4, 4, 3);
    const auto graph = SmallNetwork(first, second).trainingGraph(device);
    const auto queue = device->newCommandQueue();
    // Of a buffer that is dropped the queue runs some commands instead (mtl::Submission): beside those that run here.
    std::vector<std::shared_ptr<mtl::CommandBuffer>> kept;
    for (unsigned step = 1; step <= 12; ++step) {
      if (step == 6) first->optimizer()->setLearningRate(0.05F);
      second->setFrozen(step == 9);
      const auto commandBuffer = queue->commandBuffer();
      kept.push_back(commandBuffer);
      graph->encodeBatch(commandBuffer, {test::pictures(device, step)}, {test::labels(device, step)});
      commandBuffer->submission()->runCommands(stream);
    }
    return std::vector{test::weightsOf(*first), test::weightsOf(*second)};
  };
  mtl::cpu::Stream direct(2);
  const auto expected = trained(direct);
  for (std::size_t updatable = 0; updatable <= 3; ++updatable) {
    test::ReplayingStream replaying(updatable);
    EXPECT_EQ(trained(replaying), expected) << updatable;
    EXPECT_GT(replaying.launchCount(), 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, ReplayedTraining, ::testing::ValuesIn(mtl::copyAllDevices()),
                         mtl::testing::nameOf);
INSTANTIATE_TEST_SUITE_P(Devices, ReplayedResults, ::testing::ValuesIn(mtl::copyAllDevices()),
                         mtl::testing::nameOf);

}  // namespace
}  // namespace mps::replayed_training_test
