#include <gtest/gtest.h>

#include "mps/arithmetic/arithmetic.hpp"
#include "mps/convolution/convolution.hpp"
#include "mps/core/testing/test_kernels.hpp"
#include "mps/graph/check/test_network.hpp"
#include "mps/graph/compile/graph_program.hpp"

/// States that a graph hands out, permanent and temporary.
namespace mps::exported_states_test {
namespace {

const std::shared_ptr<mtl::Device>& device() {
  static const auto device = mtl::createSystemDefaultDevice();
  return device;
}

/// A sum whose state has a buffer, as no kernel of the library has so far.
class SumWithBuffer final : public CNNAdd {
 public:
  explicit SumWithBuffer(const std::shared_ptr<mtl::Device>& device) : CNNAdd(device) {}

 protected:
  [[nodiscard]] std::shared_ptr<State> makeState(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) const override {
    StateResourceList list;
    list.appendBuffer(16);
    return commandBuffer ? State::createTemporary(commandBuffer, list) : State::create(device(), list);
  }
};

class SumWithBufferNode final : public NNFilterNode {
 public:
  static std::shared_ptr<SumWithBufferNode> create() {
    return std::shared_ptr<SumWithBufferNode>(new SumWithBufferNode());
  }
  [[nodiscard]] std::string className() const override { return "SumWithBufferNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(
      const std::shared_ptr<mtl::Device>& device) const override {
    return std::make_shared<SumWithBuffer>(device);
  }

 private:
  SumWithBufferNode() : NNFilterNode({NNImageNode::create(), NNImageNode::create()}) {
    addResultState(std::make_unique<NNBinaryGradientStateNode>());
  }
};

/// A kernel with three sources, as users write them.
class DigitsNode final : public NNFilterNode {
 public:
  static std::shared_ptr<DigitsNode> create() { return std::shared_ptr<DigitsNode>(new DigitsNode()); }
  [[nodiscard]] std::string className() const override { return "DigitsNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(
      const std::shared_ptr<mtl::Device>& device) const override {
    auto kernel = testing::Digits::create(device, sources().size());
    kernel->setMakesState(true);
    return kernel;
  }

 private:
  DigitsNode() : NNFilterNode({NNImageNode::create(), NNImageNode::create(), NNImageNode::create()}) {
    addResultState(std::make_unique<NNMultiaryGradientStateNode>());
  }
};

/// What a state's node has, and which states it stands for.
TEST(ExportedStates, OfAKernelWithManySourcesStandForItsStates) {
  const auto digits = DigitsNode::create();
  const std::shared_ptr<NNStateNode> node = digits->resultState();
  EXPECT_TRUE(std::dynamic_pointer_cast<NNMultiaryGradientStateNode>(node));
  EXPECT_EQ(node->handle(), nullptr);
  EXPECT_FALSE(node->exportFromGraph());
  EXPECT_FALSE(node->synchronizeResource());
  EXPECT_EQ(node->producer(), digits.get());
  const auto encode = [&] {
    const auto graph = NNGraph::create(device(), digits->resultImage());
    const auto commandBuffer = device()->newCommandQueue()->commandBuffer();
    std::vector<StateBatch> states;
    graph->encodeBatch(
        commandBuffer,
        {test::pictures(device(), 0), test::pictures(device(), 1), test::pictures(device(), 2)}, {}, nullptr,
        &states);
    return states;
  };
  EXPECT_TRUE(encode().empty());
  node->setExportFromGraph(true);
  const auto states = encode();
  ASSERT_EQ(states.size(), 1U);
  EXPECT_EQ(states[0].count(), test::SmallNetwork::batch);
  EXPECT_TRUE(std::dynamic_pointer_cast<NNMultiaryGradientState>(states[0][1]));
}

TEST(ExportedStates, OfAKernelWithTwoSourcesFollowOutputStateIsTemporary) {
  for (const bool isTemporary : {false, true}) {
    const auto sum = SumWithBufferNode::create();
    sum->resultState()->setExportFromGraph(true);
    const auto graph = NNGraph::create(device(), sum->resultImage());
    graph->setOutputStateIsTemporary(isTemporary);
    const auto commandBuffer = device()->newCommandQueue()->commandBuffer();
    std::vector<StateBatch> states;
    graph->encodeBatch(commandBuffer, {test::pictures(device(), 0), test::pictures(device(), 1)}, {}, nullptr,
                       &states);
    ASSERT_EQ(states.size(), 1U);
    EXPECT_EQ(states[0].count(), test::SmallNetwork::batch);
    EXPECT_EQ(states[0][1]->isTemporary(), isTemporary);
    EXPECT_EQ(states[0][1]->readCount(), isTemporary ? 1U : 0U);
  }
}

std::shared_ptr<TrainableConvolution> firstLayer(LayerBiases biases) {
  return TrainableConvolution::create(
      device(), CNNConvolutionDescriptor::cnnConvolutionDescriptor(3, 3, 1, 4), "conv", 1,
      test::sgd(device()), WeightInitialization::He, AdamForm::Adam, biases);
}

/// A training network whose convolution hands out its gradient state.
struct ExportingNetwork : test::SmallNetwork {
  explicit ExportingNetwork(LayerBiases biases = LayerBiases::Trained)
      : SmallNetwork(firstLayer(biases), test::layer(device(), 4, 4, 3, "dense"), false) {
    convolution->resultState()->setExportFromGraph(true);
  }
  /// The state of one step.
  std::shared_ptr<State> step(bool isTemporary = true) {
    const auto graph = trainingGraph(device());
    graph->setOutputStateIsTemporary(isTemporary);
    const auto commandBuffer = device()->newCommandQueue()->commandBuffer();
    std::vector<StateBatch> states;
    graph->encodeBatch(commandBuffer, {test::pictures(device(), 0)}, {test::labels(device(), 0)}, nullptr,
                       &states);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    return states.at(0)[0];
  }
};

TEST(ExportedStates, ATemporaryOneThatTheGraphReadsKeepsOneReadForTheCaller) {
  const auto state = ExportingNetwork().step();
  EXPECT_TRUE(state->isTemporary());
  EXPECT_EQ(state->readCount(), 1U) << "read by the gradient and by the update";
}

TEST(ExportedStates, OneThatTheHostReadsLaterIsPermanent) {
  ExportingNetwork network;
  network.convolution->setTrainingStyle(NNTrainingStyle::UpdateDeviceCPU);
  EXPECT_FALSE(network.step()->isTemporary());
}

std::vector<float> biasGradients(ExportingNetwork network) {
  network.convolution->setTrainingStyle(NNTrainingStyle::UpdateDeviceCPU);  // so that the state is permanent
  const auto state = std::static_pointer_cast<CNNConvolutionGradientState>(network.step());
  const auto values = state->gradientForBiases()->contentsAs<const float>();
  return {values.begin(), values.end()};
}

TEST(ExportedStates, HaveTheGradientOfBiasesThatTheLayerLacks) {
  const auto gradients = biasGradients(ExportingNetwork(LayerBiases::None));
  EXPECT_EQ(gradients, biasGradients(ExportingNetwork(LayerBiases::Trained))) << "biases begin at 0";
  EXPECT_NE(gradients, std::vector<float>(4));
}

std::vector<float> weightGradients(NNTrainingStyle style) {
  ExportingNetwork network;
  network.convolution->setTrainingStyle(style);
  const auto state = std::static_pointer_cast<CNNConvolutionGradientState>(network.step(false));
  const auto values = state->gradientForWeights()->contentsAs<const float>();
  return {values.begin(), values.end()};
}

TEST(ExportedStates, OfALayerThatDoesNotTrainHaveItsGradients) {
  const auto gradients = weightGradients(NNTrainingStyle::UpdateDeviceNone);
  EXPECT_EQ(gradients, weightGradients(NNTrainingStyle::UpdateDeviceGPU));
  EXPECT_NE(gradients, std::vector<float>(gradients.size()));
}

TEST(ExportedStates, OnlyTheyKeepTheGradientOfALayerThatDoesNotTrain) {
  ExportingNetwork network;
  network.convolution->setTrainingStyle(NNTrainingStyle::UpdateDeviceNone);
  const auto steps = [&] { return network.trainingGraph(device())->program().steps.size(); };
  const std::size_t with = steps();
  network.convolution->resultState()->setExportFromGraph(false);
  EXPECT_LT(steps(), with);
}

/// Whether the gradient of the convolution computes one of biases.
bool computesBiases(const ExportingNetwork& network) {
  const auto graph = network.trainingGraph(device());
  for (const auto& step : graph->program().steps)
    if (const auto* gradient = dynamic_cast<const CNNConvolutionGradient*>(step.kernel.get()))
      if (gradient->dataSource() == network.first) return gradient->computesBiases();
  ADD_FAILURE() << "no gradient of the convolution";
  return false;
}

TEST(ExportedStates, OnlyTheyMakeTheGradientOfBiasesThatTheLayerLacks) {
  ExportingNetwork without(LayerBiases::None);
  EXPECT_TRUE(computesBiases(without));
  without.convolution->resultState()->setExportFromGraph(false);
  EXPECT_FALSE(computesBiases(without));
  without.convolution->setTrainingStyle(NNTrainingStyle::UpdateDeviceCPU);
  EXPECT_TRUE(computesBiases(without)) << "the host may read it";

  ExportingNetwork with(LayerBiases::Trained);
  with.convolution->resultState()->setExportFromGraph(false);
  EXPECT_TRUE(computesBiases(with));
}

}  // namespace
}  // namespace mps::exported_states_test
