#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "mps/batch_normalization/batch_normalization_node.hpp"
#include "mps/batch_normalization/check/batch_normalization_fixed_source.hpp"
#include "mps/conform/check_gradients.hpp"
#include "mps/conform/gradients/graph_reference.hpp"
#include "mps/conform/testing/stored_values.hpp"
#include "mps/conform/tolerance.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/graph/check/test_network.hpp"
#include "mps/neuron/neuron.hpp"
#include "mps/optimizer/check/optimizer_reference.hpp"
#include "mps/trainable/trainable_batch_normalization.hpp"

/// Batch normalisation in graphs.
namespace mps::batch_normalization_graph_test {
namespace {

using detail::FixedBatchNormalization;
using detail::GraphReference;
using detail::ReferenceTensor;
using Flags = CNNBatchNormalizationFlags;
using NormalizationSource = std::shared_ptr<CNNBatchNormalizationDataSource>;
using Values = std::vector<float>;

const std::shared_ptr<mtl::Device>& device() {
  static const auto device = mtl::newCPUDevice(2);
  return device;
}

Values valuesOf(std::span<const float> values) {
  return {values.begin(), values.end()};
}

std::shared_ptr<TrainableBatchNormalization> normalizationLayer() {
  return TrainableBatchNormalization::create(device(), 4, "norm", test::sgd(device()));
}

/// conv 3x3x4 + batch normalisation + ReLU, max pool 2, fully connected 3, softmax cross-entropy, on 8 x 8
/// pictures.
struct Network {
  std::shared_ptr<TrainableConvolution> first = test::layer(device(), 3, 1, 4, "conv");
  std::shared_ptr<TrainableConvolution> second = test::layer(device(), 4, 4, 3, "dense");
  NormalizationSource source;
  std::shared_ptr<CNNBatchNormalizationNode> normalization;
  std::shared_ptr<CNNFullyConnectedNode> dense;
  std::shared_ptr<CNNLossNode> loss;

  explicit Network(NormalizationSource normalizationSource) : source(std::move(normalizationSource)) {
    const auto convolution = CNNConvolutionNode::create(NNImageNode::create(), first);
    normalization = CNNBatchNormalizationNode::create(convolution->resultImage(), source);
    const auto relu = CNNNeuronReLUNode::create(normalization->resultImage());
    const auto pool = CNNPoolingMaxNode::create(relu->resultImage(), 2);
    dense = CNNFullyConnectedNode::create(pool->resultImage(), second);
    auto descriptor =
        CNNLossDescriptor::cnnLossDescriptor(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Sum);
    descriptor.setWeight(1.0F / test::SmallNetwork::batch);
    loss = CNNLossNode::create(dense->resultImage(), descriptor);
  }

  [[nodiscard]] std::shared_ptr<NNGraph> training(const GradientNodeBlock& handler = nullptr) const {
    std::vector<std::shared_ptr<NNImageNode>> results;
    for (const auto& terminus : loss->trainingGraph(nullptr, handler))
      results.push_back(terminus->resultImage());
    return NNGraph::create(device(), results, std::vector<bool>(results.size(), false));
  }
};

Values resultOf(NNGraph& graph, const ImageBatch& images) {
  const auto queue = device()->newCommandQueue();
  const auto commandBuffer = queue->commandBuffer();
  const ImageBatch result = graph.encodeBatch(commandBuffer, {images});
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  Values values(result.count() * result.descriptor().width() * result.descriptor().height() *
                result.descriptor().featureChannels());
  result.readBytes(std::span(values), DataLayout::HeightxWidthxFeatureChannels);
  return values;
}

TEST(BatchNormalizationGraph, GradientsOfATrainingGraphAreRight) {
  const Network network(normalizationLayer());
  const auto report =
      checkGradients(*network.training(), {test::pictures(device(), 0)}, {test::labels(device(), 0)});
  EXPECT_EQ(report.describe(), "");
  EXPECT_TRUE(report.passed());
  int found = 0;
  for (const GradientCheckRow& row : report.rows) {
    if (row.kernel != "CNNBatchNormalizationStatisticsGradient") continue;
    EXPECT_GT(row.elements, 0) << row.tensor;
    EXPECT_GT(row.derivatives, 0) << row.tensor;
    ++found;
  }
  EXPECT_EQ(found, 3) << "source gradient, gamma and beta";
}

TEST(BatchNormalizationGraph, GradientsWithConstantStatisticsAreRight) {
  const auto source = FixedBatchNormalization::create(4);
  source->gammas = {1, -0.5F, 2, 0.25F};
  source->means = {0.5F, 0, -0.25F, 1};
  source->variances = {0.5F, 1, 2, 0.25F};
  const Network network(source);
  network.normalization->setFlags(Flags::CalculateStatisticsNever);
  const auto report =
      checkGradients(*network.training(), {test::pictures(device(), 0)}, {test::labels(device(), 0)});
  EXPECT_EQ(report.describe(), "");
  EXPECT_TRUE(report.passed());
}

/// The losses of steps on the device and by the references of every layer in float64, with the same optimiser.
TEST(BatchNormalizationGraph, TrainingFollowsTheReferences) {
  constexpr unsigned steps = 12;
  const auto layer = normalizationLayer();
  const Network network(layer);
  const auto graph = network.training();
  GraphReference reference(*graph, {test::pictures(device(), 0)}, {test::labels(device(), 0)});
  std::map<detail::ParameterKey, detail::OptimizerReferenceTensors> slots;
  detail::OptimizerNumbers numbers;
  numbers.learningRate = static_cast<double>(0.05F);
  numbers.decay = static_cast<double>(0.9F);
  const auto queue = device()->newCommandQueue();
  std::vector<double> curve;
  for (unsigned step = 0; step < steps; ++step) {
    const ImageBatch pictures = test::pictures(device(), step);
    const StateBatch labels = test::labels(device(), step);
    reference.sourceImages = {detail::storedValues(pictures)};
    reference.sourceStates = {labels};
    const GraphReference::Run run = reference.run();
    double expected = 0;
    for (std::size_t s = 0; s < run.outputs.size(); ++s) {
      if (run.outputs[s].objective)
        for (const double value : run.outputs[s].objective->values) expected += value;
      for (const auto& gradient : run.outputs[s].parameterGradients) {
        const auto key =
            detail::keyOf(reference.parameterOf(reference.program().steps[s].forward, gradient.forwardIndex));
        auto& tensors = slots[key];
        tensors.gradient = gradient.values;
        tensors.values = gradient.values;
        tensors.values.values = reference.parameters.at(key);
        if (tensors.momentum.values.empty())
          tensors.momentum =
              ReferenceTensor(1, 1, 1, static_cast<std::int64_t>(gradient.values.values.size()));
        tensors = detail::optimizerReference({.kind = detail::OptimizerKind::SGDMomentum}, numbers, tensors);
        reference.parameters.at(key) = tensors.values.values;
      }
    }
    const auto commandBuffer = queue->commandBuffer();
    graph->encodeBatch(commandBuffer, {pictures}, {labels});
    StateBatchSynchronize(labels, commandBuffer);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    Values losses(test::SmallNetwork::batch);
    CNNLossLabels::lossImages(labels).readBytes(std::span(losses), DataLayout::HeightxWidthxFeatureChannels);
    double found = 0;
    for (const float loss : losses) found += static_cast<double>(loss);
    EXPECT_LE(std::abs(found - expected), detail::kCurveTolerance * expected)
        << "step " << step << ": device " << found << ", references " << expected;
    curve.push_back(expected);
  }
  EXPECT_EQ(slots.size(), 6U) << "weights and biases of two layers, gamma and beta";
  EXPECT_GT(*std::ranges::max_element(curve) - *std::ranges::min_element(curve), 0.1)
      << "nothing was trained";
  EXPECT_NE(valuesOf(layer->gamma()), Values(4, 1));
  EXPECT_NE(valuesOf(layer->mean()), Values(4, 0));
}

/// The same nodes: batch statistics in the training graph, running ones in the other.
TEST(BatchNormalizationGraph, TheModeFollowsTheGraph) {
  const auto source = FixedBatchNormalization::create(1, 4);
  source->gammas = {3};
  source->betas = {1};
  source->means = {10};
  source->variances = {12};
  const auto node = CNNBatchNormalizationNode::create(NNImageNode::create(), source);
  auto x = ImageBatch::create(device(), testing::sizeOf(2, 1, 1), 2);
  x.writeBytes(std::span<const float>(Values{1, 3, 5, 7}), DataLayout::HeightxWidthxFeatureChannels);
  const Values ofBatch{-2, 0, 2, 4}, ofSource{-5.75F, -4.25F, -2.75F, -1.25F};
  const auto inference = [&](Flags flags) {
    node->setFlags(flags);
    return resultOf(*NNGraph::create(device(), node->resultImage()), x);
  };
  EXPECT_EQ(inference(Flags::Default), ofSource);
  EXPECT_EQ(inference(Flags::CalculateStatisticsNever), ofSource);
  EXPECT_EQ(inference(Flags::CalculateStatisticsAlways), ofBatch);

  const auto training = [&](Flags flags) {
    node->setFlags(flags);
    const auto gradient = node->gradientFilter(node->resultImage());
    const auto graph =
        NNGraph::create(device(), {node->resultImage(), gradient->resultImage()}, {true, true});
    return resultOf(*graph, x);
  };
  EXPECT_EQ(training(Flags::Default), ofBatch);
  EXPECT_EQ(training(Flags::CalculateStatisticsAlways), ofBatch);
  EXPECT_EQ(training(Flags::CalculateStatisticsNever), ofSource);
  // A gradient that nothing needs is not there, so the state is not consumed.
  node->setFlags(Flags::Default);
  const auto gradient = node->gradientFilter(node->resultImage());
  std::static_pointer_cast<CNNBatchNormalizationGradientNode>(gradient)->setTrainingStyle(
      NNTrainingStyle::UpdateDeviceNone);
  const auto pruned =
      NNGraph::create(device(), {node->resultImage(), gradient->resultImage()}, {true, false});
  EXPECT_EQ(resultOf(*pruned, x), ofSource);
}

TEST(BatchNormalizationGraph, AnEvaluationSeesTheTrainedStatistics) {
  const auto layer = normalizationLayer();
  const Network network(layer);
  const auto inference = NNGraph::create(device(), network.dense->resultImage());
  const Values before = resultOf(*inference, test::pictures(device(), 0));
  test::train(*network.training(), device(), 3);
  const Values mean = valuesOf(layer->mean());
  EXPECT_NE(mean, Values(4, 0));
  EXPECT_NE(resultOf(*inference, test::pictures(device(), 0)), before) << "the buffers are shared";
  EXPECT_EQ(valuesOf(layer->mean()), mean) << "inference learns nothing";
}

TEST(BatchNormalizationGraph, AFrozenLayerStaysAsItIs) {
  const auto layer = normalizationLayer();
  const Network network(layer);
  layer->setFrozen(true);
  const auto before = test::weightsOf(*network.first);
  test::train(*network.training(), device(), 2);
  EXPECT_EQ(valuesOf(layer->gamma()), Values(4, 1));
  EXPECT_EQ(valuesOf(layer->mean()), Values(4, 0));
  EXPECT_NE(test::weightsOf(*network.first), before) << "the gradient goes through it";

  const Network styled(normalizationLayer());
  styled.normalization->setTrainingStyle(NNTrainingStyle::UpdateDeviceNone);
  const auto styledBefore = test::weightsOf(*styled.first);
  test::train(*styled.training(), device(), 2);
  EXPECT_EQ(valuesOf(styled.source->gamma()), Values(4, 1));
  EXPECT_EQ(test::weightsOf(*styled.first), test::weightsOf(*network.first)) << "batch statistics in both";
  EXPECT_NE(test::weightsOf(*styled.first), styledBefore);
}

TEST(BatchNormalizationGraph, HostUpdatesEqualDeviceUpdates) {
  const auto onDevice = normalizationLayer(), onHost = normalizationLayer();
  const Network first(onDevice), second(onHost);
  second.normalization->setTrainingStyle(NNTrainingStyle::UpdateDeviceCPU);
  test::train(*first.training(), device(), 4);
  test::train(*second.training(), device(), 4);
  EXPECT_EQ(valuesOf(onHost->gamma()), valuesOf(onDevice->gamma()));
  EXPECT_EQ(valuesOf(onHost->beta()), valuesOf(onDevice->beta()));
  EXPECT_EQ(valuesOf(onHost->mean()), valuesOf(onDevice->mean()));
  EXPECT_EQ(valuesOf(onHost->variance()), valuesOf(onDevice->variance()));
  EXPECT_NE(valuesOf(onHost->gamma()), Values(4, 1));
  EXPECT_EQ(test::weightsOf(*second.first), test::weightsOf(*first.first));
}

/// A data source of the user's own, which updates with the library's optimisers as public programs do.
class UserNormalization : public FixedBatchNormalization {
 public:
  UserNormalization() : FixedBatchNormalization(4) {
    epsilonValue = TrainableBatchNormalization::defaultEpsilon;
    gammaAndBeta_ = CNNNormalizationGammaAndBetaState::create(filled(1), filled(0));
    running_ = CNNNormalizationMeanAndVarianceState::create(filled(0), filled(1));
    for (int i = 0; i < 2; ++i)
      momentum_.push_back(Vector::create(device(), VectorDescriptor::vectorDescriptor(4, DataType::Float32)));
  }
  std::shared_ptr<CNNNormalizationMeanAndVarianceState> updateMeanAndVariance(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      const std::shared_ptr<CNNBatchNormalizationState>& state) override {
    calls += "statistics ";
    const auto average = NNOptimizerStochasticGradientDescent::create(
        device(), 0, false,
        NNOptimizerDescriptor(-(1 - TrainableBatchNormalization::defaultMomentum), 1,
                              NNRegularizationType::L2, -1));
    const auto move = [&](const std::shared_ptr<mtl::Buffer>& running,
                          const std::shared_ptr<mtl::Buffer>& ofBatch) {
      const auto over = [](const std::shared_ptr<mtl::Buffer>& buffer) {
        return Vector::create(buffer, VectorDescriptor::vectorDescriptor(4, DataType::Float32));
      };
      average->encode(commandBuffer, over(ofBatch), over(running), nullptr, over(running));
    };
    move(running_->mean(), state->mean());
    move(running_->variance(), state->variance());
    return running_;
  }
  std::shared_ptr<CNNNormalizationGammaAndBetaState> updateGammaAndBeta(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      const std::shared_ptr<CNNBatchNormalizationState>& state) override {
    calls += "weights ";
    std::static_pointer_cast<NNOptimizerStochasticGradientDescent>(optimizer_)
        ->encode(commandBuffer, state, momentum_, gammaAndBeta_);
    return gammaAndBeta_;
  }
  [[nodiscard]] Values trainedGamma() const { return valuesOf(gammaAndBeta_->gamma()->contentsAs<float>()); }
  [[nodiscard]] Values trainedMean() const { return valuesOf(running_->mean()->contentsAs<float>()); }
  std::string calls;

 private:
  static std::shared_ptr<mtl::Buffer> filled(float value) {
    const Values values(4, value);
    return device()->newBuffer(std::as_bytes(std::span(values)));
  }
  std::shared_ptr<NNOptimizer> optimizer_ = test::sgd(device());
  std::shared_ptr<CNNNormalizationGammaAndBetaState> gammaAndBeta_;
  std::shared_ptr<CNNNormalizationMeanAndVarianceState> running_;
  std::vector<std::shared_ptr<Vector>> momentum_;
};

TEST(BatchNormalizationGraph, AUsersSourceTrainsAsTheReadyMadeOne) {
  const auto layer = normalizationLayer();
  const auto user = std::make_shared<UserNormalization>();
  const Network first(layer), second(user);
  test::train(*first.training(), device(), 3);
  test::train(*second.training(), device(), 3);
  EXPECT_EQ(user->calls, "statistics weights statistics weights statistics weights ");
  EXPECT_EQ(user->trainedGamma(), valuesOf(layer->gamma()));
  EXPECT_EQ(user->trainedMean(), valuesOf(layer->mean()));
  EXPECT_EQ(test::weightsOf(*second.first), test::weightsOf(*first.first)) << "the kernel was reloaded";
}

TEST(BatchNormalizationGraph, ReloadsFromDataSources) {
  const auto source = FixedBatchNormalization::create(1, 0);
  const auto graph = NNGraph::create(
      device(), CNNBatchNormalizationNode::create(NNImageNode::create(), source)->resultImage());
  auto x = ImageBatch::create(device(), testing::sizeOf(1, 1, 1), 1);
  x.writeBytes(std::span<const float>(Values{6}), DataLayout::HeightxWidthxFeatureChannels);
  EXPECT_EQ(resultOf(*graph, x), Values{6});
  source->gammas = {2};
  source->means = {1};
  EXPECT_EQ(resultOf(*graph, x), Values{6});
  graph->reloadFromDataSources();
  EXPECT_EQ(resultOf(*graph, x), Values{10});
  EXPECT_EQ(resultOf(*graph->copy(), x), Values{10});
}

/// A temporary source loses one read, though statistics and normalisation both read it; an exported state comes
/// out with what the step computed, and with a read left where it is temporary.
TEST(BatchNormalizationGraph, ReadCountsAndExportedStates) {
  const auto source = FixedBatchNormalization::create(1, 4);
  source->gammas = {3};
  const auto node = CNNBatchNormalizationNode::create(NNImageNode::create(), source);
  node->resultState()->setExportFromGraph(true);
  const auto gradient = node->gradientFilter(node->resultImage());
  const auto graph = NNGraph::create(device(), {node->resultImage(), gradient->resultImage()}, {true, true});
  for (const bool isTemporary : {false, true}) {
    graph->setOutputStateIsTemporary(isTemporary);
    const auto queue = device()->newCommandQueue();
    const auto commandBuffer = queue->commandBuffer();
    auto x = ImageBatch::create(device(), testing::sizeOf(2, 1, 1), 2);
    x.writeBytes(std::span<const float>(Values{1, 3, 5, 7}), DataLayout::HeightxWidthxFeatureChannels);
    const auto temporary = ImageBatch::createTemporary(commandBuffer, testing::sizeOf(2, 1, 1), 2);
    const auto identity = CNNNeuronLinear::create(device(), 1, 0);
    identity->encodeBatch(commandBuffer, x, temporary);
    std::vector<StateBatch> states;
    const ImageBatch y = graph->encodeBatch(commandBuffer, {temporary}, {}, nullptr, &states);
    EXPECT_EQ(std::static_pointer_cast<TemporaryImage>(temporary[0])->readCount(), 0U);
    ASSERT_EQ(states.size(), 1U);
    const auto state = std::static_pointer_cast<CNNBatchNormalizationState>(states[0][0]);
    EXPECT_EQ(state->isTemporary(), isTemporary);
    EXPECT_EQ(state->readCount(), isTemporary ? 1U : 0U);
    EXPECT_EQ(state->elementCount(), 4U);
    if (isTemporary) state->setReadCount(0);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    EXPECT_EQ(testing::valuesOf(*y[0]), (Values{-3, -1}));
    if (!isTemporary) {
      EXPECT_EQ(valuesOf(state->mean()->contentsAs<const float>()), Values{4});
      EXPECT_NE(state->gradientForBeta(), nullptr);
    }
    EXPECT_TRUE(commandBuffer->logs().empty());
  }
}

TEST(BatchNormalizationGraph, AFailedEncodeLeavesTheParameters) {
  const auto user = std::make_shared<UserNormalization>();
  const Network network(user);
  const auto graph = network.training();
  const auto queue = device()->newCommandQueue();
  const auto commandBuffer = queue->commandBuffer();
  EXPECT_THROW(graph->encodeBatch(commandBuffer, {test::pictures(device(), 0)}, {StateBatch()}), Error);
  EXPECT_EQ(commandBuffer->commandCount(), 0U);
}

TEST(BatchNormalizationGraph, DescribesItself) {
  const Network network(normalizationLayer());
  const auto graph = network.training();
  test::train(*graph, device(), 1);
  const std::string text = graph->debugDescription();
  EXPECT_NE(text.find("CNNBatchNormalization"), std::string::npos) << text;
  EXPECT_NE(text.find("CNNBatchNormalizationStatisticsGradient"), std::string::npos) << text;
  EXPECT_TRUE(testing::names(
      testing::errorOf([] { CNNBatchNormalizationNode::create(NNImageNode::create(), nullptr); }),
      {"CNNBatchNormalizationNode", "dataSource", "null"}));
}

}  // namespace
}  // namespace mps::batch_normalization_graph_test
