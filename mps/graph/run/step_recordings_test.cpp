#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "mps/arithmetic/arithmetic.hpp"
#include "mps/arithmetic/arithmetic_node.hpp"
#include "mps/core/kernel/command_buffer.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/graph/check/test_network.hpp"
#include "mps/graph/compile/graph_program.hpp"
#include "mps/neuron/neuron.hpp"
#include "mps/neuron/neuron_node.hpp"

/// An encode with the same sizes repeats the commands of the one before, and computes what it would compute without.
namespace mps::step_recordings_test {
namespace {

using Weights = std::vector<std::vector<float>>;

/// conv 3x3x4 + ReLU, max pool 2, fully connected 3, which train themselves.
class Training {
 public:
  explicit Training(const std::shared_ptr<mtl::Device>& device)
      : device_(device),
        first(test::layer(device, 3, 1, 4, "conv")),
        second(test::layer(device, 4, 4, 3, "dense")),
        graph(test::SmallNetwork(first, second, false).trainingGraph(device)),
        queue(device->newCommandQueue()) {}

  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, unsigned step) const {
    graph->encodeBatch(commandBuffer, {test::pictures(device_, step)}, {test::labels(device_, step)});
  }
  void step(unsigned number) const {
    const auto commandBuffer = queue->commandBuffer();
    encode(commandBuffer, number);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
  }
  /// A step that repeats nothing, because its commands may be left out.
  void stepUnderPredicate(unsigned number) const {
    const auto predicate = Predicate::create(device_);
    predicate->predicateBuffer()->contentsAs<std::uint32_t>()[0] = 1;
    const auto commandBuffer = CommandBuffer::create(queue);
    commandBuffer->setPredicate(predicate);
    encode(commandBuffer, number);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
  }
  [[nodiscard]] Weights weights() const { return test::weightsOf({first, second}, device_); }
  [[nodiscard]] bool repeatsSteps() const {
    return graph->debugDescription().find(", 0 steps repeat") == std::string::npos;
  }

 private:
  std::shared_ptr<mtl::Device> device_;

 public:
  std::shared_ptr<TrainableConvolution> first, second;
  std::shared_ptr<NNGraph> graph;
  std::shared_ptr<mtl::CommandQueue> queue;
};

class StepRecordingsTest : public testing::DeviceTest {};

TEST_F(StepRecordingsTest, TrainAsEncodesThatRepeatNothing) {
  const Training repeating(device_), plain(device_);
  for (unsigned step = 0; step < 5; ++step) {
    repeating.step(step);
    plain.stepUnderPredicate(step);
  }
  EXPECT_TRUE(repeating.repeatsSteps());
  EXPECT_FALSE(plain.repeatsSteps());
  EXPECT_EQ(repeating.weights(), plain.weights());
}

TEST_F(StepRecordingsTest, FollowOtherSizesQueuesAndOptions) {
  const Training changing(device_), plain(device_);
  const auto other = device_->newCommandQueue();
  const auto slice = [&](const Training& training, const std::shared_ptr<mtl::CommandQueue>& queue) {
    const auto commandBuffer = queue->commandBuffer();
    training.graph->encodeBatch(commandBuffer, {test::pictures(device_, 7).slice(0, 2)},
                                {test::labels(device_, 7).slice(0, 2)});
    run(commandBuffer);
  };
  for (unsigned step = 0; step < 3; ++step) changing.step(step);
  slice(changing, changing.queue);
  slice(changing, other);
  changing.graph->setOptions(KernelOptions::AllowReducedPrecision);
  EXPECT_FALSE(changing.repeatsSteps());
  for (unsigned step = 3; step < 6; ++step) changing.step(step);
  for (unsigned step = 0; step < 3; ++step) plain.stepUnderPredicate(step);
  slice(plain, plain.queue);
  slice(plain, plain.queue);
  for (unsigned step = 3; step < 6; ++step) plain.stepUnderPredicate(step);
  EXPECT_EQ(changing.weights(), plain.weights());
}

TEST_F(StepRecordingsTest, FollowParametersThatAreReloaded) {
  const auto source = std::make_shared<test::UserSource>(device_, *test::layer(device_, 3, 1, 4, "conv"));
  const auto node = CNNConvolutionNode::create(NNImageNode::create(), source);
  const auto relu = CNNNeuronReLUNode::create(node->resultImage());
  const auto add = NNAdditionNode::create(std::vector{relu->resultImage(), node->resultImage()});
  const auto last = CNNNeuronReLUNode::create(add->resultImage());
  const auto graph = NNGraph::create(device_, last->resultImage());
  const auto encode = [&] {
    const auto commandBuffer = commands();
    auto result = graph->encodeBatch(commandBuffer, {test::pictures(device_, 1)});
    run(commandBuffer);
    return testing::valuesOf(*result[0]);
  };
  const auto before = encode();
  EXPECT_EQ(encode(), before);
  auto* const weights = const_cast<std::byte*>(source->weights().data());
  std::memset(weights, 0, source->weights().size());
  EXPECT_EQ(encode(), before) << "the kernel has a copy";
  graph->reloadFromDataSources();
  const auto after = encode();
  EXPECT_NE(after, before);
  EXPECT_EQ(encode(), after);
}

/// Stands for a kernel that the user keeps.
class KeptKernelNode final : public NNFilterNode {
 public:
  KeptKernelNode(std::vector<std::shared_ptr<NNImageNode>> sources, std::shared_ptr<Kernel> kernel)
      : NNFilterNode(std::move(sources)), kernel_(std::move(kernel)) {}
  [[nodiscard]] std::string className() const override { return "KeptKernelNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(
      const std::shared_ptr<mtl::Device>& /*device*/) const override {
    return kernel_;
  }

 private:
  std::shared_ptr<Kernel> kernel_;
};

TEST_F(StepRecordingsTest, LeaveOutKernelsThatTheUserKeeps) {
  const auto source = NNImageNode::create();
  const auto add = CNNAdd::create(device_);
  const auto images = std::vector{CNNNeuronSigmoidNode::create(source)->resultImage(),
                                  CNNNeuronAbsoluteNode::create(source)->resultImage()};
  const auto sum = std::make_shared<KeptKernelNode>(images, add);
  const auto last = CNNNeuronSigmoidNode::create(sum->resultImage());
  const auto graph = NNGraph::create(device_, last->resultImage());
  const auto encode = [&] {
    const auto commandBuffer = commands();
    auto result = graph->encodeBatch(commandBuffer, {test::pictures(device_, 1)});
    run(commandBuffer);
    return testing::valuesOf(*result[0]);
  };
  const auto before = encode();
  EXPECT_EQ(encode(), before);
  add->setPrimaryScale(3);
  EXPECT_NE(encode(), before);
  add->setPrimaryScale(1);
  EXPECT_EQ(encode(), before);
}

TEST_F(StepRecordingsTest, BeginAgainWhereTheirBufferWasDropped) {
  const Training dropped(device_), plain(device_);
  dropped.encode(dropped.queue->commandBuffer(), 0);  // which nobody commits
  for (unsigned step = 0; step < 4; ++step) {
    dropped.step(step);
    plain.stepUnderPredicate(step);
  }
  EXPECT_EQ(dropped.weights(), plain.weights());
}

TEST_F(StepRecordingsTest, LeaveTemporaryImagesAlone) {
  const Training training(device_), plain(device_);
  training.step(0);
  plain.stepUnderPredicate(0);
  const auto commandBuffer = training.queue->commandBuffer();
  const auto copy =
      CNNNeuron::create(device_, NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::Linear, 1, 0));
  const ImageBatch before =
      ImageBatch::createTemporary(commandBuffer, testing::sizeOf(8, 8, 1), test::SmallNetwork::batch);
  copy->encodeBatch(commandBuffer, test::pictures(device_, 3), before);
  training.encode(commandBuffer, 1);
  const ImageBatch after = ImageBatch::create(device_, testing::sizeOf(8, 8, 1), test::SmallNetwork::batch);
  copy->encodeBatch(commandBuffer, before, after);
  run(commandBuffer);
  for (std::size_t i = 0; i < after.count(); ++i)
    EXPECT_EQ(testing::valuesOf(*after[i]), testing::valuesOf(*test::pictures(device_, 3)[i]));
  plain.stepUnderPredicate(1);
  EXPECT_EQ(training.weights(), plain.weights());
}

TEST_F(StepRecordingsTest, EncodesLeaveThePropertiesOfKernels) {
  const auto node = CNNPoolingMaxNode::create(NNImageNode::create(), 3, 2);
  const auto graph = NNGraph::create(device_, node->resultImage());
  detail::ImageKernel& kernel = *graph->program().steps[0].kernel;
  const Offset own{5, 6, 0};
  kernel.setPlacement(own);
  const auto commandBuffer = commands();
  graph->encodeBatch(commandBuffer, {test::pictures(device_, 0)});
  run(commandBuffer);
  EXPECT_EQ(kernel.placement(), own);
}

}  // namespace
}  // namespace mps::step_recordings_test
