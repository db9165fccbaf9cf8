#include "mps/graph/layout/image_reuse.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "mps/arithmetic/arithmetic_node.hpp"
#include "mps/conform/tolerance.hpp"
#include "mps/core/kernel/command_buffer.hpp"
#include "mps/graph/check/test_network.hpp"

/// The passes that let images share memory: accumulation and work in place.
namespace mps::image_reuse_test {
namespace {

using test::SmallNetwork;
using ::testing::HasSubstr;
using ::testing::Not;

const std::shared_ptr<mtl::Device>& device() {
  static const auto device = mtl::createSystemDefaultDevice();
  return device;
}

constexpr std::size_t imageBytes = SmallNetwork::batch * 8 * 8 * 4 * sizeof(float);

/// A = F1(X); B = one branch of A; C = another; loss of F5(B + C). The gradients of B and C meet at A.
class Fork {
 public:
  using Branch = std::function<std::shared_ptr<NNFilterNode>(const std::shared_ptr<NNImageNode>&)>;

  /// @param sharesMemory false: every gradient is exported, so that no image lends its memory
  std::vector<float> train(const Branch& b, const Branch& c, bool sharesMemory) {
    const auto layer = test::layer(device(), 3, 1, 4, "F1");
    const auto dense = test::layer(device(), 8, 4, 2, "F5");
    const auto f1 = CNNConvolutionNode::create(NNImageNode::create(), layer);
    const auto sum =
        NNAdditionNode::create(b(f1->resultImage())->resultImage(), c(f1->resultImage())->resultImage());
    const auto f5 = CNNFullyConnectedNode::create(sum->resultImage(), dense);
    const auto loss = CNNLossNode::create(
        f5->resultImage(),
        CNNLossDescriptor::cnnLossDescriptor(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Sum));
    std::vector<std::shared_ptr<NNImageNode>> results;
    for (const auto& terminus : loss->trainingGraph(
             nullptr, [&](const std::shared_ptr<NNFilterNode>&node, const std::shared_ptr<NNFilterNode>&,
                          const std::shared_ptr<NNImageNode>&, const std::shared_ptr<NNImageNode>&) {
               if (!sharesMemory) node->resultImage()->setExportFromGraph(true);
             }))
      results.push_back(terminus->resultImage());
    const auto graph = NNGraph::create(device(), results, std::vector<bool>(results.size(), false));
    const auto queue = device()->newCommandQueue();
    const auto commandBuffer = queue->commandBuffer();
    auto classes = CNNLossLabels::createClassBatch(device(), SmallNetwork::batch);
    CNNLossLabels::writeClassIndices(classes, std::vector<std::uint8_t>{0, 1, 1, 0, 1});
    std::vector<ImageBatch> exported;
    graph->encodeBatch(commandBuffer, {test::pictures(device(), 1)}, {classes}, &exported);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    description_ = graph->debugDescription();
    return test::weightsOf(*layer);
  }
  [[nodiscard]] const std::string& description() const { return description_; }

 private:
  std::string description_;
};

std::shared_ptr<NNFilterNode> dropout(const std::shared_ptr<NNImageNode>& image) {
  return CNNDropoutNode::create(image, 0.5F, 5);
}
std::shared_ptr<NNFilterNode> absolute(const std::shared_ptr<NNImageNode>& image) {
  return CNNNeuronAbsoluteNode::create(image);
}
std::shared_ptr<NNFilterNode> pooling(const std::shared_ptr<NNImageNode>& image) {
  return CNNPoolingMaxNode::create(image, 3, 1);
}
std::shared_ptr<NNFilterNode> convolution(const std::shared_ptr<NNImageNode>& image) {
  return CNNConvolutionNode::create(image, test::layer(device(), 3, 4, 4, "F2"));
}

void expectSameTraining(const Fork::Branch& b, const Fork::Branch& c) {
  Fork shared;
  Fork separate;
  const auto found = shared.train(b, c, true);
  const auto expected = separate.train(b, c, false);
  ASSERT_EQ(found.size(), expected.size());
  // A gradient that is added to another one is rounded once less often; the sums over the batch pass that on.
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], detail::arithmeticBound(1, 8, 0)) << i;
  EXPECT_THAT(shared.description(), HasSubstr(", accumulates"));
  EXPECT_THAT(shared.description(), HasSubstr(", done by accumulation"));
  EXPECT_THAT(separate.description(), Not(HasSubstr(", accumulates")));
}

TEST(GradientAccumulation, TheLaterGradientIsAddedToTheEarlierOne) {
  expectSameTraining(dropout, absolute);
  expectSameTraining(absolute, dropout);
  expectSameTraining(dropout, pooling);
  expectSameTraining(absolute, convolution);
  expectSameTraining(convolution, pooling);
}

TEST(GradientAccumulation, OfFloat16GradientsTheSumIsAStepOfItsOwn) {
  const auto graphOf = [&](ImageFeatureChannelFormat format) {
    const auto source = NNImageNode::create();
    const auto f1 = CNNConvolutionNode::create(source, test::layer(device(), 3, 1, 4, "F1"));
    const auto sum = NNAdditionNode::create(dropout(f1->resultImage())->resultImage(),
                                            absolute(f1->resultImage())->resultImage());
    std::vector<std::shared_ptr<NNImageNode>> results;
    for (const auto& terminus : sum->trainingGraph(NNImageNode::create()))
      results.push_back(terminus->resultImage());
    const auto graph = NNGraph::create(device(), results, std::vector<bool>(results.size(), false));
    graph->setFormat(format);
    const auto queue = device()->newCommandQueue();
    const auto commandBuffer = queue->commandBuffer();
    auto gradients =
        ImageBatch::create(device(), {ImageFeatureChannelFormat::Float32, 8, 8, 4}, SmallNetwork::batch);
    gradients.writeBytes(std::span<const float>(std::vector<float>(SmallNetwork::batch * 256, 1.0F)),
                         DataLayout::HeightxWidthxFeatureChannels);
    graph->encodeBatch(commandBuffer, {gradients, test::pictures(device(), 1)});
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    return graph->debugDescription();
  };
  EXPECT_THAT(graphOf(ImageFeatureChannelFormat::Float32), HasSubstr(", accumulates"));
  EXPECT_THAT(graphOf(ImageFeatureChannelFormat::Float16), Not(HasSubstr(", accumulates")));
}

/// The gradient of a source whose average goes through a neuron.
struct LoneNeuron {
  std::size_t channels;
  std::shared_ptr<CNNNeuronNode> (*makeNeuron)(const std::shared_ptr<NNImageNode>&);

  /// @param mayBeLeftOut encodes under a predicate, which is 1
  [[nodiscard]] std::vector<float> gradient(std::size_t& plannedBytes, bool mayBeLeftOut = false) const {
    const ImageDescriptor size(ImageFeatureChannelFormat::Float32, 16, 16, channels);
    const auto average = CNNPoolingAverageNode::create(NNImageNode::create(), 3, 1);
    const auto behind =
        CNNPoolingAverageNode::create(makeNeuron(average->resultImage())->resultImage(), 3, 1);
    const auto last = behind->trainingGraph(NNImageNode::create()).at(0);
    const auto graph = NNGraph::create(device(), last->resultImage());
    const auto image = [&](unsigned seed) {
      std::mt19937 random(seed);
      std::normal_distribution<float> normal;
      std::vector<float> values(16 * 16 * channels);
      for (float& value : values) value = normal(random);
      auto made = ImageBatch::create(device(), size, 1);
      made.writeBytes(std::span<const float>(values), DataLayout::HeightxWidthxFeatureChannels);
      return made;
    };
    const auto queue = device()->newCommandQueue();
    const auto predicate = Predicate::create(device());
    predicate->predicateBuffer()->contentsAs<std::uint32_t>()[0] = 1;
    const auto commandBuffer = CommandBuffer::create(queue);
    if (mayBeLeftOut) commandBuffer->setPredicate(predicate);
    const auto result = graph->encodeBatch(commandBuffer, {image(1), image(2)});
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    plannedBytes = graph->plannedTemporaryBytes();
    std::vector<float> values(16 * 16 * channels);
    result.readBytes(std::span(values), DataLayout::HeightxWidthxFeatureChannels);
    return values;
  }
};

TEST(NeuronSources, AreForgottenWhereTheNeuronHasSavedWhatItsGradientNeeds) {
  const auto relu = [](const std::shared_ptr<NNImageNode>& x) -> std::shared_ptr<CNNNeuronNode> {
    return CNNNeuronReLUNode::create(x, 0.25F);
  };
  const auto elu = [](const std::shared_ptr<NNImageNode>& x) -> std::shared_ptr<CNNNeuronNode> {
    return CNNNeuronELUNode::create(x, 0.5F);
  };
  const auto imagesSavedBy = [](const LoneNeuron& neuron) {
    std::size_t kept = 0;
    std::size_t planned = 0;
    std::vector<float> expected;
    {
      const detail::LeaveOutPasses scope(
          detail::GraphPasses().set(static_cast<std::size_t>(detail::GraphPass::ForgetNeuronSources)));
      expected = neuron.gradient(kept);
    }
    EXPECT_EQ(neuron.gradient(planned), expected);
    EXPECT_EQ(neuron.gradient(planned, true), expected);
    return static_cast<double>(kept - planned) /
           static_cast<double>(16 * 16 * neuron.channels * sizeof(float));
  };
  EXPECT_EQ(imagesSavedBy({8, relu}), 1);
  EXPECT_EQ(imagesSavedBy({6, relu}), 0) << "no whole groups of four channels";
  EXPECT_EQ(imagesSavedBy({8, elu}), 0) << "its derivative takes more than a side";
}

/// Three neurons in a row, without training.
struct Chain {
  std::shared_ptr<CNNNeuronSigmoidNode> first = CNNNeuronSigmoidNode::create(NNImageNode::create());
  std::shared_ptr<CNNNeuronTanHNode> second = CNNNeuronTanHNode::create(first->resultImage());
  std::shared_ptr<CNNNeuronAbsoluteNode> third = CNNNeuronAbsoluteNode::create(second->resultImage());

  /// Bytes of temporary images, after one run.
  std::size_t run(std::vector<float>& values) const {
    const auto graph = NNGraph::create(device(), third->resultImage());
    const auto queue = device()->newCommandQueue();
    const auto commandBuffer = queue->commandBuffer();
    std::vector<ImageBatch> exported;
    const auto result = graph->encodeBatch(commandBuffer, {test::pictures(device(), 3)}, {}, &exported);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    values.resize(SmallNetwork::batch * 64);
    result.readBytes(std::span(values), DataLayout::HeightxWidthxFeatureChannels);
    return graph->plannedTemporaryBytes();
  }
};

TEST(WorkInPlace, ANeuronWritesOverASourceThatNobodyReadsAfterwards) {
  std::vector<float> inPlace;
  std::vector<float> apart;
  EXPECT_EQ(Chain().run(inPlace), imageBytes / 4);
  Chain exporting;
  exporting.second->resultImage()->setExportFromGraph(true);
  exporting.run(apart);
  EXPECT_EQ(inPlace, apart);
}

TEST(WorkInPlace, NotWhereTheSourceIsReadLater) {
  Chain chain;
  const auto sum = NNAdditionNode::create(chain.third->resultImage(), chain.first->resultImage());
  const auto graph = NNGraph::create(device(), sum->resultImage());
  const auto queue = device()->newCommandQueue();
  const auto commandBuffer = queue->commandBuffer();
  const auto result = graph->encodeBatch(commandBuffer, {test::pictures(device(), 3)});
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  EXPECT_EQ(graph->plannedTemporaryBytes(), 2 * imageBytes / 4);
  std::vector<float> third;
  Chain().run(third);
  const auto pictures = test::pictures(device(), 3);
  std::vector<float> x(third.size());
  std::vector<float> found(third.size());
  pictures.readBytes(std::span(x), DataLayout::HeightxWidthxFeatureChannels);
  result.readBytes(std::span(found), DataLayout::HeightxWidthxFeatureChannels);
  for (std::size_t i = 0; i < x.size(); ++i)
    EXPECT_NEAR(found[i], third[i] + 1 / (1 + std::exp(-x[i])), detail::arithmeticBound(2, 4, 1)) << i;
}

TEST(WorkInPlace, NotWhereTheFormatChanges) {
  Chain chain;
  chain.second->resultImage()->setFormat(ImageFeatureChannelFormat::Float16);
  std::vector<float> values;
  EXPECT_EQ(chain.run(values), imageBytes / 4 + (imageBytes / 8 + 255) / 256 * 256) << "both, aligned";
}

}  // namespace
}  // namespace mps::image_reuse_test
