#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "mps/conform/check_gradients.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/graph/check/test_network.hpp"
#include "mps/instance_normalization/check/instance_normalization_fixed_source.hpp"
#include "mps/instance_normalization/instance_normalization_node.hpp"
#include "mps/neuron/neuron_node.hpp"
#include "mps/trainable/trainable_image_normalization.hpp"

/// Instance and group normalisation in graphs, 7.4 and 8.1.
namespace mps::instance_normalization_graph_test {
namespace {

using detail::FixedInstanceNormalization;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;
using InstanceSource = std::shared_ptr<CNNInstanceNormalizationDataSource>;

const std::shared_ptr<mtl::Device>& device() {
  static const auto device = mtl::newCPUDevice(2);
  return device;
}

Values valuesIn(std::span<const float> values) {
  return {values.begin(), values.end()};
}

std::shared_ptr<TrainableInstanceNormalization> instanceLayer() {
  return TrainableInstanceNormalization::create(device(), 4, "instance", test::sgd(device()));
}

/// conv 3x3x4 + instance normalisation + ReLU, group normalisation, max pool 2, fully connected 3, softmax
/// cross-entropy, on 8 x 8 pictures.
struct Network {
  std::shared_ptr<TrainableConvolution> first = test::layer(device(), 3, 1, 4, "conv");
  std::shared_ptr<TrainableConvolution> second = test::layer(device(), 4, 4, 3, "dense");
  std::shared_ptr<TrainableGroupNormalization> groups =
      TrainableGroupNormalization::create(device(), 4, 2, "groups", test::sgd(device()));
  InstanceSource source;
  std::shared_ptr<CNNInstanceNormalizationNode> instance;
  std::shared_ptr<CNNGroupNormalizationNode> group;
  std::shared_ptr<CNNLossNode> loss;

  explicit Network(InstanceSource instanceSource) : source(std::move(instanceSource)) {
    const auto convolution = CNNConvolutionNode::create(NNImageNode::create(), first);
    instance = CNNInstanceNormalizationNode::create(convolution->resultImage(), source);
    const auto relu = CNNNeuronReLUNode::create(instance->resultImage());
    group = CNNGroupNormalizationNode::create(relu->resultImage(), groups);
    const auto pool = CNNPoolingMaxNode::create(group->resultImage(), 2);
    const auto dense = CNNFullyConnectedNode::create(pool->resultImage(), second);
    auto descriptor =
        CNNLossDescriptor::cnnLossDescriptor(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Sum);
    descriptor.setWeight(1.0F / test::SmallNetwork::batch);
    loss = CNNLossNode::create(dense->resultImage(), descriptor);
  }

  [[nodiscard]] std::shared_ptr<NNGraph> training() const {
    std::vector<std::shared_ptr<NNImageNode>> results;
    for (const auto& terminus : loss->trainingGraph(nullptr)) results.push_back(terminus->resultImage());
    return NNGraph::create(device(), results, std::vector<bool>(results.size(), false));
  }
};

TEST(InstanceNormalizationGraph, GradientsOfATrainingGraphAreRight) {
  const Network network(instanceLayer());
  const auto report =
      checkGradients(*network.training(), {test::pictures(device(), 0)}, {test::labels(device(), 0)});
  EXPECT_EQ(report.describe(), "");
  EXPECT_TRUE(report.passed());
  for (const char* kernel : {"CNNInstanceNormalizationGradient", "CNNGroupNormalizationGradient"}) {
    int found = 0;
    for (const GradientCheckRow& row : report.rows) {
      if (row.kernel != kernel) continue;
      EXPECT_GT(row.elements, 0) << row.tensor;
      EXPECT_GT(row.derivatives, 0) << row.tensor;
      ++found;
    }
    EXPECT_EQ(found, 3) << kernel << ": source gradient, gamma and beta";
  }
}

/// A first layer: nobody reads its data gradient, and its parameters are trained all the same.
TEST(InstanceNormalizationGraph, WithoutADataGradient) {
  const auto layer = TrainableInstanceNormalization::create(device(), 1, "first", test::sgd(device()));
  const auto node = CNNInstanceNormalizationNode::create(NNImageNode::create(), layer);
  const auto dense = test::layer(device(), 8, 1, 3, "dense");
  const auto fully = CNNFullyConnectedNode::create(node->resultImage(), dense);
  const auto loss = CNNLossNode::create(
      fully->resultImage(),
      CNNLossDescriptor::cnnLossDescriptor(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Sum));
  std::vector<std::shared_ptr<NNImageNode>> results;
  for (const auto& terminus : loss->trainingGraph(nullptr)) results.push_back(terminus->resultImage());
  const auto graph = NNGraph::create(device(), results, std::vector<bool>(results.size(), false));
  const auto report = checkGradients(*graph, {test::pictures(device(), 0)}, {test::labels(device(), 0)});
  EXPECT_EQ(report.describe(), "");
  test::train(*graph, device(), 2);
  EXPECT_NE(valuesIn(layer->gamma()), Values{1});
  EXPECT_NE(valuesIn(layer->beta()), Values{0});
}

/// The normalisation behind it takes off what beta adds, so that its gradient is all rounding.
TEST(InstanceNormalizationGraph, GradientsThatAddUpToNothingAreRight) {
  const auto layer = [](const char* label) {
    return TrainableInstanceNormalization::create(device(), 1, label, test::sgd(device()));
  };
  const auto first = CNNInstanceNormalizationNode::create(NNImageNode::create(), layer("first"));
  const auto second = CNNInstanceNormalizationNode::create(first->resultImage(), layer("second"));
  const auto dense =
      CNNFullyConnectedNode::create(second->resultImage(), test::layer(device(), 8, 1, 3, "dense"));
  const auto loss = CNNLossNode::create(
      dense->resultImage(),
      CNNLossDescriptor::cnnLossDescriptor(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Sum));
  const auto graph = NNGraph::create(device(), loss->trainingGraph(nullptr)[0]->resultImage(), false);
  const auto report = checkGradients(*graph, {test::pictures(device(), 0)}, {test::labels(device(), 0)});
  EXPECT_EQ(report.describe(), "");
}

TEST(InstanceNormalizationGraph, HostUpdatesEqualDeviceUpdates) {
  const auto onDevice = instanceLayer(), onHost = instanceLayer();
  const Network first(onDevice), second(onHost);
  second.instance->setTrainingStyle(NNTrainingStyle::UpdateDeviceCPU);
  second.group->setTrainingStyle(NNTrainingStyle::UpdateDeviceCPU);
  test::train(*first.training(), device(), 4);
  test::train(*second.training(), device(), 4);
  EXPECT_EQ(valuesIn(onHost->gamma()), valuesIn(onDevice->gamma()));
  EXPECT_EQ(valuesIn(onHost->beta()), valuesIn(onDevice->beta()));
  EXPECT_EQ(valuesIn(second.groups->gamma()), valuesIn(first.groups->gamma()));
  EXPECT_NE(valuesIn(onHost->gamma()), Values(4, 1));
  EXPECT_NE(valuesIn(first.groups->gamma()), Values(4, 1));
  EXPECT_EQ(test::weightsOf(*second.first), test::weightsOf(*first.first));
}

TEST(InstanceNormalizationGraph, AFrozenLayerIsNotUpdated) {
  const auto layer = instanceLayer();
  const Network network(layer);
  network.instance->setTrainingStyle(NNTrainingStyle::UpdateDeviceNone);
  network.groups->setFrozen(true);
  const auto before = test::weightsOf(*network.first);
  test::train(*network.training(), device(), 2);
  EXPECT_EQ(valuesIn(layer->gamma()), Values(4, 1));
  EXPECT_EQ(valuesIn(network.groups->gamma()), Values(4, 1));
  EXPECT_NE(test::weightsOf(*network.first), before);
}

/// A data source of the user's own: the kernel is reloaded from what it returns.
class UserNormalization : public FixedInstanceNormalization {
 public:
  UserNormalization() : FixedInstanceNormalization(4, TrainableInstanceNormalization::defaultEpsilon) {
    for (int i = 0; i < 2; ++i)
      momentum_.push_back(Vector::create(device(), VectorDescriptor::vectorDescriptor(4, DataType::Float32)));
  }
  std::shared_ptr<CNNNormalizationGammaAndBetaState> updateGammaAndBeta(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const StateBatch& states) override {
    EXPECT_EQ(states.count(), test::SmallNetwork::batch) << "one state for each image";
    optimizer_->encode(commandBuffer, states, momentum_, weights_);
    return weights_;
  }
  [[nodiscard]] Values trainedGamma() const { return valuesOf(weights_->gamma()); }

 private:
  static std::shared_ptr<mtl::Buffer> filled(float value) {
    const Values values(4, value);
    return device()->newBuffer(std::as_bytes(std::span(values)));
  }
  std::shared_ptr<NNOptimizerStochasticGradientDescent> optimizer_ =
      std::static_pointer_cast<NNOptimizerStochasticGradientDescent>(test::sgd(device()));
  std::shared_ptr<CNNNormalizationGammaAndBetaState> weights_ =
      CNNNormalizationGammaAndBetaState::create(filled(1), filled(0));
  std::vector<std::shared_ptr<Vector>> momentum_;
};

TEST(InstanceNormalizationGraph, AUsersSourceTrainsAsTheReadyMadeOne) {
  const auto layer = instanceLayer();
  const auto user = std::make_shared<UserNormalization>();
  const Network first(layer), second(user);
  test::train(*first.training(), device(), 3);
  test::train(*second.training(), device(), 3);
  EXPECT_EQ(user->trainedGamma(), valuesIn(layer->gamma()));
  EXPECT_EQ(test::weightsOf(*second.first), test::weightsOf(*first.first)) << "the kernel was reloaded";
}

TEST(InstanceNormalizationGraph, ReloadsFromDataSources) {
  const auto source = FixedInstanceNormalization::create(1, 3);
  const auto graph = NNGraph::create(
      device(), CNNInstanceNormalizationNode::create(NNImageNode::create(), source)->resultImage());
  auto x = ImageBatch::create(device(), sizeOf(2, 1, 1), 1);
  x.writeBytes(std::span<const float>(Values{1, 3}), DataLayout::HeightxWidthxFeatureChannels);
  const auto result = [&] {
    const auto commandBuffer = device()->newCommandQueue()->commandBuffer();
    const ImageBatch y = graph->encodeBatch(commandBuffer, {x});
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    return valuesOf(*y[0]);
  };
  EXPECT_EQ(result(), (Values{-0.5F, 0.5F}));
  source->gammas = {4};
  EXPECT_EQ(result(), (Values{-0.5F, 0.5F}));
  graph->reloadFromDataSources();
  EXPECT_EQ(result(), (Values{-2, 2}));
}

/// Exported states come out with what the step computed, and with a read left where they are temporary.
TEST(InstanceNormalizationGraph, ExportedStates) {
  const auto source = FixedInstanceNormalization::create(1, 3);
  source->gammas = {4};
  source->betas = {1};
  const auto node = CNNInstanceNormalizationNode::create(NNImageNode::create(), source);
  node->resultState()->setExportFromGraph(true);
  const auto gradient = node->gradientFilter(node->resultImage());
  const auto graph = NNGraph::create(device(), {node->resultImage(), gradient->resultImage()}, {true, true});
  for (const bool isTemporary : {false, true}) {
    graph->setOutputStateIsTemporary(isTemporary);
    const auto commandBuffer = device()->newCommandQueue()->commandBuffer();
    auto x = ImageBatch::create(device(), sizeOf(2, 1, 1), 2);
    x.writeBytes(std::span<const float>(Values{1, 3, 10, 12}), DataLayout::HeightxWidthxFeatureChannels);
    std::vector<StateBatch> states;
    const ImageBatch y = graph->encodeBatch(commandBuffer, {x}, {}, nullptr, &states);
    ASSERT_EQ(states.size(), 1U);
    const CNNInstanceNormalizationGradientStateBatch& batch = states[0];
    ASSERT_EQ(batch.count(), 2U);
    EXPECT_EQ(batch[1]->isTemporary(), isTemporary);
    EXPECT_EQ(batch[1]->readCount(), isTemporary ? 1U : 0U);
    if (isTemporary) StateBatchIncrementReadCount(batch, -1);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    EXPECT_EQ(valuesOf(*y[1]), (Values{-1, 3}));
    if (!isTemporary) {
      const auto second = std::static_pointer_cast<CNNInstanceNormalizationGradientState>(batch[1]);
      EXPECT_EQ(valuesOf(second->gradientForBeta()), Values{2});
      EXPECT_EQ(valuesOf(second->gradientForGamma()), Values{2});
    }
    EXPECT_TRUE(commandBuffer->logs().empty());
  }
}

/// A user's source of group normalisation gets the states of the batch and is asked for its groups.
class UserGroups final : public CNNGroupNormalizationDataSource {
 public:
  [[nodiscard]] std::size_t numberOfFeatureChannels() const override { return 4; }
  [[nodiscard]] std::size_t numberOfGroups() const override { return 2; }
  [[nodiscard]] std::span<const float> gamma() const override { return gamma_; }
  [[nodiscard]] std::span<const float> beta() const override { return {}; }
  std::shared_ptr<CNNNormalizationGammaAndBetaState> updateGammaAndBeta(
      const std::shared_ptr<mtl::CommandBuffer>& /*commandBuffer*/,
      const CNNGroupNormalizationGradientStateBatch& states) override {
    for (std::size_t i = 0; i < states.count(); ++i)
      EXPECT_TRUE(std::dynamic_pointer_cast<CNNGroupNormalizationGradientState>(states[i])) << i;
    updates += states.count();
    return nullptr;
  }
  std::size_t updates = 0;

 private:
  std::vector<float> gamma_ = {1, 2, 1, 2};
};

TEST(InstanceNormalizationGraph, AUsersGroups) {
  const auto source = std::make_shared<UserGroups>();
  const auto node = CNNGroupNormalizationNode::create(NNImageNode::create(), source);
  const auto gradient = node->gradientFilter(node->resultImage());
  EXPECT_TRUE(std::dynamic_pointer_cast<CNNGroupNormalizationGradientNode>(gradient));
  const auto graph = NNGraph::create(device(), {node->resultImage(), gradient->resultImage()}, {true, true});
  auto x = ImageBatch::create(device(), sizeOf(1, 1, 4), 2);
  x.writeBytes(std::span<const float>(Values{1, 3, 10, 14, 7, 5, 2, 4}),
               DataLayout::HeightxWidthxFeatureChannels);
  const auto commandBuffer = device()->newCommandQueue()->commandBuffer();
  const ImageBatch y = graph->encodeBatch(commandBuffer, {x});
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  EXPECT_EQ(source->updates, 2U);
  EXPECT_EQ(valuesOf(*y[0]), (Values{-1, 2, -1, 2}));
  EXPECT_EQ(valuesOf(*y[1]), (Values{1, -2, -1, 2}));
}

TEST(InstanceNormalizationGraph, GradientNodesByHand) {
  const auto x = NNImageNode::create(), g = NNImageNode::create();
  const auto instance = CNNInstanceNormalizationNode::create(x, FixedInstanceNormalization::create(1, 3));
  instance->setTrainingStyle(NNTrainingStyle::UpdateDeviceNone);
  const auto made =
      std::dynamic_pointer_cast<CNNInstanceNormalizationGradientNode>(instance->gradientFilter(g));
  ASSERT_TRUE(made);
  EXPECT_EQ(made->trainingStyle(), NNTrainingStyle::UpdateDeviceNone);
  const auto byHand = CNNInstanceNormalizationGradientNode::create(g, x, instance->resultState());
  const auto group = CNNGroupNormalizationGradientNode::create(g, x, instance->resultState());
  for (const NNGradientFilterNode* node :
       std::initializer_list<const NNGradientFilterNode*>{made.get(), byHand.get(), group.get()}) {
    EXPECT_EQ(node->sourceGradient(), g) << node->className();
    EXPECT_EQ(node->sourceImage(), x) << node->className();
    EXPECT_EQ(node->gradientState(), instance->resultState()) << node->className();
    EXPECT_EQ(node->makeKernel(device())->className() + "Node", node->className());
  }
}

TEST(InstanceNormalizationGraph, WhatNodesRefuse) {
  const auto image = NNImageNode::create();
  EXPECT_TRUE(testing::names(testing::errorOf([&] { CNNInstanceNormalizationNode::create(image, nullptr); }),
                             {"CNNInstanceNormalizationNode", "dataSource", "null"}));
  EXPECT_TRUE(testing::names(testing::errorOf([&] { CNNGroupNormalizationNode::create(image, nullptr); }),
                             {"CNNGroupNormalizationNode", "dataSource", "null"}));
}

}  // namespace
}  // namespace mps::instance_normalization_graph_test
