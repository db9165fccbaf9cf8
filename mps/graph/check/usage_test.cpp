#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "mps/arithmetic/arithmetic_node.hpp"
#include "mps/conform/compare.hpp"
#include "mps/convolution/check/test_source.hpp"
#include "mps/core/kernel/command_buffer.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/graph/check/test_network.hpp"
#include "mps/pooling/pooling.hpp"
#include "mps/softmax/softmax.hpp"

/// Behaviours that programs rely on, seen through a graph.
namespace mps::usage_test {
namespace {

using testing::ArraySource;
using testing::errorOf;
using ::testing::HasSubstr;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;

const std::shared_ptr<mtl::Device>& device() {
  static const auto device = mtl::newCPUDevice(2);
  return device;
}

CNNConvolutionDescriptor onePixel(std::size_t in, std::size_t out) {
  return CNNConvolutionDescriptor::cnnConvolutionDescriptor(1, 1, in, out);
}
CNNLossDescriptor loss(CNNLossType type, float weight = 1) {
  auto descriptor = CNNLossDescriptor::cnnLossDescriptor(type, CNNReductionType::Sum);
  descriptor.setWeight(weight);
  return descriptor;
}
std::shared_ptr<Image> image(const ImageDescriptor& size, const Values& values) {
  auto made = Image::create(device(), size);
  testing::fill(*made, values);
  return made;
}
std::shared_ptr<CNNLossLabels> labels(const ImageDescriptor& size, const Values& values) {
  return CNNLossLabels::create(device(), {1, 1, 1}, image(size, values), nullptr);
}

/// Encodes one image, waits.
std::shared_ptr<Image> run(NNGraph& graph, const std::shared_ptr<Image>& source,
                           const std::shared_ptr<State>& targets = nullptr) {
  const auto queue = device()->newCommandQueue();
  const auto commandBuffer = queue->commandBuffer();
  std::vector<std::shared_ptr<State>> states;
  if (targets) states.push_back(targets);
  auto result = graph.encode(commandBuffer, {source}, states);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  return result;
}

/// A graph that returns the gradient of the input of a network with one loss.
std::shared_ptr<NNGraph> inputGradient(NNFilterNode& lossNode) {
  const auto termini = lossNode.trainingGraph(nullptr, nullptr);
  return NNGraph::create(device(), termini.at(0)->resultImage());
}

/// One weight w for y = w x, updated by an optimiser that the program shares or counts with.
class SharedAdamSource : public ArraySource {
 public:
  SharedAdamSource(std::shared_ptr<NNOptimizerAdam> adam, float weight)
      : ArraySource(onePixel(1, 1), {weight}), adam_(std::move(adam)) {}
  std::shared_ptr<CNNConvolutionWeightsAndBiasesState> update(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      const std::shared_ptr<CNNConvolutionGradientState>& gradientState,
      const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& sourceState) override {
    auto result = CNNConvolutionWeightsAndBiasesState::create(device(), shape);
    adam_->encode(commandBuffer, gradientState, sourceState, {momentum_}, {velocity_}, result);
    return result;
  }

 private:
  static std::shared_ptr<Vector> zero() {
    return Vector::create(device(), VectorDescriptor::vectorDescriptor(1, DataType::Float32));
  }
  std::shared_ptr<NNOptimizerAdam> adam_;
  std::shared_ptr<Vector> momentum_ = zero();
  std::shared_ptr<Vector> velocity_ = zero();
};

TEST(Usage, Behaviour01OneAdamOverTenLayersCountsTenPerIteration) {
  const auto adam = NNOptimizerAdam::create(device(), 0.01F);
  auto node = NNImageNode::create();
  for (int i = 0; i < 10; ++i)
    node = CNNConvolutionNode::create(node, std::make_shared<SharedAdamSource>(adam, 1.0F))->resultImage();
  const auto lossNode = CNNLossNode::create(node, loss(CNNLossType::MeanSquaredError));
  const auto graph =
      NNGraph::create(device(), lossNode->trainingGraph(nullptr, nullptr).at(0)->resultImage(), false);
  const auto targets = labels(sizeOf(1, 1, 1), {3});
  for (std::size_t iteration = 1; iteration <= 3; ++iteration) {
    EXPECT_EQ(run(*graph, image(sizeOf(1, 1, 1), {1}), targets), nullptr);
    EXPECT_EQ(adam->timeStep(), 10 * iteration);
  }
}

/// y = w x without a bias, with states made from the descriptor, as public programs make them.
class UnbiasedSource : public ArraySource {
 public:
  UnbiasedSource() : ArraySource(onePixel(1, 1), {2}) {}
  std::shared_ptr<CNNConvolutionWeightsAndBiasesState> update(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      const std::shared_ptr<CNNConvolutionGradientState>& gradientState,
      const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& sourceState) override {
    if (!live) {
      EXPECT_EQ(sourceState->biases(), nullptr);
    }
    EXPECT_FALSE(gradientState->hasBiases());
    // The first update reads what the kernel has, later ones go on in place.
    const auto& before = updates++ == 0 ? sourceState : state;
    adam_->encode(commandBuffer, gradientState, before, {zero(), zero()}, {zero(), zero()}, state);
    return state;
  }
  bool update(const std::shared_ptr<CNNConvolutionGradientState>& gradientState,
              const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& sourceState) override {
    const auto queue = device()->newCommandQueue();
    const auto commandBuffer = queue->commandBuffer();
    update(commandBuffer, gradientState, sourceState);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    setWeights({state->weights()->contentsAs<float>()[0]});
    return true;
  }
  std::shared_ptr<CNNConvolutionWeightsAndBiasesState> state =
      CNNConvolutionWeightsAndBiasesState::create(device(), shape);
  int updates = 0;

 private:
  static std::shared_ptr<Vector> zero() {
    return Vector::create(device(), VectorDescriptor::vectorDescriptor(1, DataType::Float32));
  }
  std::shared_ptr<NNOptimizerAdam> adam_ = NNOptimizerAdam::create(device(), 0.25F);
};

TEST(Usage, D26ALayerWithoutBiasesHasNoneForGood) {
  for (const auto style : {NNTrainingStyle::UpdateDeviceGPU, NNTrainingStyle::UpdateDeviceCPU})
    for (const bool isLive : {false, true}) {
      const auto source = std::make_shared<UnbiasedSource>();
      if (isLive) {
        source->live = source->state;
        source->state->weights()->contentsAs<float>()[0] = 2;
      }
      const auto convolution = CNNConvolutionNode::create(NNImageNode::create(), source);
      convolution->setTrainingStyle(style);
      const auto lossNode =
          CNNLossNode::create(convolution->resultImage(), loss(CNNLossType::MeanSquaredError));
      const auto graph =
          NNGraph::create(device(), lossNode->trainingGraph(nullptr, nullptr).at(0)->resultImage(), false);
      // x = 0: the gradient of a bias would be -6, that of the weight is 0. Then x = 1.
      for (const float x : {0.0F, 0.0F, 1.0F})
        run(*graph, image(sizeOf(1, 1, 1), {x}), labels(sizeOf(1, 1, 1), {3}));
      EXPECT_EQ(source->updates, 3);
      EXPECT_EQ(valuesOf(source->state->biases()), Values{0}) << "unused memory";
      EXPECT_NE(source->state->weights()->contentsAs<float>()[0], 2) << "the weight is trained";
      const auto zero = labels(sizeOf(1, 1, 1), {0});
      run(*graph, image(sizeOf(1, 1, 1), {0}), zero);
      EXPECT_EQ(valuesOf(*zero->lossImage()), Values{0}) << "w 0";
    }
}

TEST(Usage, D29AConvolutionInAGraphReadsAllChannelsOfItsSource) {
  const auto node =
      CNNConvolutionNode::create(NNImageNode::create(), ArraySource::create(onePixel(1, 1), {2}));
  node->setLabel("conv1");
  const auto graph = NNGraph::create(device(), node->resultImage());
  EXPECT_TRUE(testing::names(errorOf([&] {
                               run(*graph, image(sizeOf(1, 1, 3), {1, 2, 3}));
                             }),
                             {"CNNConvolution \"conv1\"", "sourceImage", "3 feature channels", "expected 1",
                              "inputFeatureChannels"}));
  EXPECT_EQ(valuesOf(*run(*graph, image(sizeOf(1, 1, 1), {4}))), Values{8});
}

/// What programs do with read counts when they freeze a layer: lower them themselves, or raise them first.
class CountingSource : public ArraySource {
 public:
  enum class Habit { Nothing, Lowers, LowersTwice, Raises };
  explicit CountingSource(Habit habit) : ArraySource(onePixel(1, 1), {2}), habit_(habit) {}
  std::shared_ptr<CNNConvolutionWeightsAndBiasesState> update(
      const std::shared_ptr<mtl::CommandBuffer>& /*commandBuffer*/,
      const std::shared_ptr<CNNConvolutionGradientState>& gradientState,
      const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& sourceState) override {
    ++updates;
    for (State* state : {static_cast<State*>(gradientState.get()), static_cast<State*>(sourceState.get())}) {
      const std::size_t count = state->readCount();
      if (habit_ == Habit::Lowers || habit_ == Habit::LowersTwice) state->setReadCount(count - 1);
      if (habit_ == Habit::LowersTwice) state->setReadCount(state->readCount() - 1);
      if (habit_ == Habit::Raises) state->setReadCount(count + 1);
    }
    return nullptr;
  }
  int updates = 0;

 private:
  Habit habit_;
};

TEST(Usage, Behaviour02ReadCountsNeverFailAFrozenLayer) {
  using enum CountingSource::Habit;
  for (const auto habit : {Nothing, Lowers, LowersTwice, Raises}) {
    const auto source = std::make_shared<CountingSource>(habit);
    const auto convolution = CNNConvolutionNode::create(NNImageNode::create(), source);
    const auto lossNode =
        CNNLossNode::create(convolution->resultImage(), loss(CNNLossType::MeanSquaredError));
    const auto graph = inputGradient(*lossNode);
    for (int step = 0; step < 3; ++step) {
      const auto gradient = run(*graph, image(sizeOf(1, 1, 1), {3}), labels(sizeOf(1, 1, 1), {1}));
      EXPECT_EQ(valuesOf(*gradient), Values{20}) << "2 (2 * 3 - 1) * 2";
    }
    EXPECT_EQ(source->updates, 3);
    EXPECT_EQ(source->loads, 2) << "for the forward and the gradient kernel; never reloaded";
  }
}

/// s = softmax(x), p = softmax(s), dx = s (p - t - sum((p - t) s)).
TEST(Usage, Behaviour05TwoSoftmaxesAreDifferentiatedAsTheyStand) {
  const auto softMax = CNNSoftMaxNode::create(NNImageNode::create());
  const auto lossNode = CNNLossNode::create(softMax->resultImage(), loss(CNNLossType::SoftMaxCrossEntropy));
  const auto graph = inputGradient(*lossNode);
  const std::vector<double> x{0.5, -1, 2};
  const std::vector<double> t{0, 1, 0};
  const auto softMaxOf = [](const std::vector<double>& values) {
    std::vector<double> result;
    double sum = 0;
    for (const double value : values) sum += std::exp(value);
    for (const double value : values) result.push_back(std::exp(value) / sum);
    return result;
  };
  const auto s = softMaxOf(x);
  const auto p = softMaxOf(s);
  double mixed = 0;
  for (std::size_t k = 0; k < 3; ++k) mixed += (p[k] - t[k]) * s[k];
  detail::ReferenceTensor expected(1, 1, 1, 3);
  for (std::size_t k = 0; k < 3; ++k) expected.values[k] = s[k] * (p[k] - t[k] - mixed);
  expected.magnitude.assign(3, 4);  // |x| up to 2 in the exponentials, and the terms of the differences
  expected.roundings = 16;
  expected.transcendental = 4;

  const auto targets = labels(sizeOf(1, 1, 3), {0, 1, 0});
  const Values found = valuesOf(*run(*graph, image(sizeOf(1, 1, 3), {0.5F, -1, 2}), targets));
  const auto compared =
      detail::compare(expected, std::vector<double>(found.begin(), found.end()),
                      ImageFeatureChannelFormat::Float32, detail::Tier::Bounded, detail::Zeros::Expected);
  EXPECT_EQ(compared.report, "");
  const std::string text = graph->debugDescription();
  EXPECT_THAT(text, HasSubstr("[CNNSoftMax]"));
  EXPECT_THAT(text, HasSubstr("[CNNSoftMaxGradient]"));
}

TEST(Usage, Behaviour05TwoSoftmaxesTrain) {
  const auto layer = TrainableConvolution::create(device(), onePixel(2, 3), "dense", 1,
                                                  NNOptimizerStochasticGradientDescent::create(device(), 1));
  const auto dense = CNNFullyConnectedNode::create(NNImageNode::create(), layer);
  const auto softMax = CNNSoftMaxNode::create(dense->resultImage());
  const auto lossNode = CNNLossNode::create(softMax->resultImage(), loss(CNNLossType::SoftMaxCrossEntropy));
  const auto graph =
      NNGraph::create(device(), lossNode->trainingGraph(nullptr, nullptr).at(0)->resultImage(), false);
  const auto targets = labels(sizeOf(1, 1, 3), {0, 0, 1});
  const auto step = [&] {
    run(*graph, image(sizeOf(1, 1, 2), {1, -1}), targets);
    return valuesOf(*targets->lossImage())[0];
  };
  float last = step();
  for (int i = 0; i < 20; ++i) {
    const float now = step();
    EXPECT_LT(now, last);
    last = now;
  }
  EXPECT_GT(last, 0.5F) << "the second softmax keeps it above ln(1 + 2 / e)";
}

/// purge() frees the host copy; load() makes it anew with work on the device, and waits for it.
class LoadingSource : public ArraySource {
 public:
  explicit LoadingSource(float weight) : ArraySource(onePixel(1, 1), {}), weight(weight) {}
  bool load() override {
    if (isLoaded) ADD_FAILURE() << "loaded twice";
    isLoaded = true;
    const auto made = Vector::create(device(), VectorDescriptor::vectorDescriptor(1, DataType::Float32));
    const auto gradient = Vector::create(device(), VectorDescriptor::vectorDescriptor(1, DataType::Float32));
    gradient->data()->contentsAs<float>()[0] = -weight;
    const auto queue = device()->newCommandQueue();
    const auto commandBuffer = queue->commandBuffer();
    NNOptimizerStochasticGradientDescent::create(device(), 1)
        ->encode(commandBuffer, gradient, made, std::shared_ptr<Vector>(), made);
    commandBuffer->commit();
    commandBuffer->waitUntilCompleted();
    setWeights({made->data()->contentsAs<float>()[0]});
    return ArraySource::load();
  }
  void purge() override {
    EXPECT_TRUE(isLoaded);
    isLoaded = false;
    bytes.clear();
    bytes.shrink_to_fit();
    ArraySource::purge();
  }
  [[nodiscard]] std::span<const std::byte> weights() const override {
    EXPECT_TRUE(isLoaded) << "read without load()";
    return ArraySource::weights();
  }
  bool isLoaded = false;
  float weight;
};

TEST(Usage, Behaviour08LoadComesBeforeEveryReadAndMayRunWork) {
  const auto source = std::make_shared<LoadingSource>(3.0F);
  const auto graph =
      NNGraph::create(device(), CNNConvolutionNode::create(NNImageNode::create(), source)->resultImage());
  const auto result = [&](NNGraph& graph) { return valuesOf(*run(graph, image(sizeOf(1, 1, 1), {10}))); };
  EXPECT_EQ(result(*graph), Values{30});
  source->weight = 4;
  EXPECT_EQ(result(*graph), Values{30});
  graph->reloadFromDataSources();
  EXPECT_EQ(result(*graph), Values{40});
  source->weight = 5;
  EXPECT_EQ(result(*graph->copy()), Values{40});
  EXPECT_FALSE(source->isLoaded);
  EXPECT_EQ(source->loads, source->purges);
}

TEST(Usage, Behaviour11TheResultOfTheLossNodeIsTheGradient) {
  const auto lossNode = CNNLossNode::create(NNImageNode::create(), loss(CNNLossType::MeanSquaredError, 0.5F));
  const auto graph = NNGraph::create(device(), lossNode->resultImage());
  const auto targets = labels(sizeOf(1, 1, 3), {1, 1, 1});
  const auto result = run(*graph, image(sizeOf(1, 1, 3), {1, 3, -4}), targets);
  EXPECT_EQ(valuesOf(*result), (Values{0, 2, -5}));
  EXPECT_EQ(valuesOf(*targets->lossImage()), Values{14.5F});
}

TEST(Usage, Behaviour14MaxPoolingWithTensorFlowPaddingAndOnOddSizes) {
  const auto results = [](std::size_t stride, const std::shared_ptr<NNPadding>& policy, std::size_t size) {
    const auto pool = CNNPoolingMaxNode::create(NNImageNode::create(), 2, stride);
    pool->setPaddingPolicy(policy);
    const auto lossNode = CNNLossNode::create(pool->resultImage(), loss(CNNLossType::MeanSquaredError, 0.5F));
    const auto source = image(sizeOf(3, 3, 1), testing::counted(9));
    const auto y = run(*NNGraph::create(device(), pool->resultImage()), source);
    EXPECT_EQ(y->width(), size);
    const auto zeros = labels(sizeOf(size, size, 1), Values(size * size));
    return std::pair(valuesOf(*y), valuesOf(*run(*inputGradient(*lossNode), source, zeros)));
  };
  const auto [same, sameGradient] = results(1, NNDefaultPadding::paddingForTensorflowAveragePooling(), 3);
  EXPECT_EQ(same, (Values{5, 6, 6, 8, 9, 9, 8, 9, 9})) << "the odd pixel lies to the bottom right";
  EXPECT_EQ(sameGradient, (Values{0, 0, 0, 0, 5, 12, 0, 16, 36})) << "each result goes to its maximum";
  const auto [valid, validGradient] =
      results(2, NNDefaultPadding::padding(NNPaddingMethod::SizeValidOnly), 1);
  EXPECT_EQ(valid, Values{5});
  EXPECT_EQ(validGradient, (Values{0, 0, 0, 0, 5, 0, 0, 0, 0}));
}

/// Starts at pixel 1, writes two pixels, repeats the edge.
class CutPadding : public NNPadding {
 public:
  [[nodiscard]] NNPaddingMethod paddingMethod() const override {
    return NNPaddingMethod::Custom | NNPaddingMethod::SizeSame;
  }
  ImageDescriptor destinationImageDescriptor(std::span<const std::shared_ptr<Image>> /*sourceImages*/,
                                             std::span<const std::shared_ptr<State>> /*sourceStates*/,
                                             Kernel& kernel, const ImageDescriptor& suggested) override {
    auto& unary = dynamic_cast<CNNKernel&>(kernel);
    unary.setOffset({first, 0, 0});
    unary.setEdgeMode(ImageEdgeMode::Clamp);
    ImageDescriptor changed = suggested;
    changed.setWidth(2);
    return changed;
  }
  std::int64_t first = 1;
};

TEST(Usage, Behaviour16ACustomPaddingObjectOnANodeShapesForwardAndGradient) {
  const auto padding = std::make_shared<CutPadding>();
  const auto convolution =
      CNNConvolutionNode::create(NNImageNode::create(), ArraySource::create(onePixel(1, 1), {2}));
  convolution->setPaddingPolicy(padding);
  const auto lossNode =
      CNNLossNode::create(convolution->resultImage(), loss(CNNLossType::MeanSquaredError, 0.5F));
  const auto forward = NNGraph::create(device(), convolution->resultImage());
  const auto backward = inputGradient(*lossNode);
  const auto source = image(sizeOf(4, 1, 1), {1, 10, 100, 1000});
  const auto zeros = labels(sizeOf(2, 1, 1), {0, 0});
  EXPECT_EQ(valuesOf(*run(*forward, source)), (Values{20, 200}));
  EXPECT_EQ(valuesOf(*run(*backward, source, zeros)), (Values{0, 40, 400, 0}));
  padding->first = 3;  // a graph has asked for this size: another one asks anew
  EXPECT_EQ(valuesOf(*run(*forward, source)), (Values{20, 200}));
  const auto later = NNGraph::create(device(), convolution->resultImage());
  EXPECT_EQ(valuesOf(*run(*later, source)), (Values{2000, 2000})) << "the second pixel repeats the edge";
  EXPECT_EQ(valuesOf(*run(*inputGradient(*lossNode), source, zeros)), (Values{0, 0, 0, 8000}));
}

class NamedHandle final : public Handle {
 public:
  explicit NamedHandle(std::string label) : label_(std::move(label)) {}
  [[nodiscard]] std::string label() const override { return label_; }

 private:
  std::string label_;
};

TEST(Usage, Behaviour21LabelsHandlesAndDescriptionsFindTheWayInAGraph) {
  const auto picture = std::make_shared<NamedHandle>("picture");
  const auto features = std::make_shared<NamedHandle>("features");
  const auto truth = std::make_shared<NamedHandle>("truth");
  const auto gradientHandle = std::make_shared<NamedHandle>("gradient of picture");
  const auto source = ArraySource::create(onePixel(1, 1), {2});
  source->name = "from the data source";
  const auto convolution = CNNConvolutionNode::create(NNImageNode::create(picture), source);
  convolution->resultImage()->setHandle(features);
  convolution->resultImage()->setExportFromGraph(true);
  const auto relu = CNNNeuronReLUNode::create(convolution->resultImage());
  relu->setLabel("activation");
  const auto lossNode = CNNLossNode::create(relu->resultImage(), loss(CNNLossType::MeanSquaredError));
  lossNode->setLabel("distance");
  lossNode->inputLabels()->setHandle(truth);
  const auto termini = lossNode->trainingGraph(nullptr, nullptr);
  termini[0]->resultImage()->setHandle(gradientHandle);
  const auto graph = NNGraph::create(device(), termini[0]->resultImage());
  ASSERT_EQ(graph->sourceImageHandles().size(), 1U);
  EXPECT_EQ(graph->sourceImageHandles()[0], picture);
  ASSERT_EQ(graph->sourceStateHandles().size(), 1U);
  EXPECT_EQ(graph->sourceStateHandles()[0], truth);
  ASSERT_EQ(graph->intermediateImageHandles().size(), 1U);
  EXPECT_EQ(graph->intermediateImageHandles()[0], features);
  EXPECT_EQ(graph->resultHandle(), gradientHandle);
  const std::string text = graph->debugDescription();
  for (const char* name : {"picture", "features", "activation", "distance", "activation gradient"})
    EXPECT_THAT(text, HasSubstr(std::string("\"") + name + "\"")) << text;
  EXPECT_THAT(text, HasSubstr("from the data source"));

  // The names come back in errors.
  const auto wrong = labels(sizeOf(2, 1, 1), {0, 0});
  EXPECT_THAT(errorOf([&] { run(*graph, image(sizeOf(1, 1, 1), {1}), wrong); }),
              HasSubstr("CNNLoss \"distance\""));
}

/// Throws in the middle of an encode when it is told to.
class ThrowingSource : public test::UserSource {
 public:
  using UserSource::UserSource;
  std::shared_ptr<CNNConvolutionWeightsAndBiasesState> update(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      const std::shared_ptr<CNNConvolutionGradientState>& gradientState,
      const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& sourceState) override {
    if (throws) throw std::runtime_error("the user's update");
    return UserSource::update(commandBuffer, gradientState, sourceState);
  }
  using UserSource::update;
  bool throws = false;
};

/// The second layer is updated before the first one's update throws; dropout has drawn by then.
TEST(NNGraph, AnUpdateThatThrowsLeavesWeightsAndRandomNumbersAsTheyWere) {
  const auto weightsAfter = [](bool withFailure) {
    const auto firstStart = test::layer(device(), 3, 1, 4, "conv");
    const auto secondStart = test::layer(device(), 4, 4, 3, "dense");
    const auto first = std::make_shared<ThrowingSource>(device(), *firstStart);
    const auto second = std::make_shared<test::UserSource>(device(), *secondStart);
    const test::SmallNetwork network(first, second);
    const auto graph = network.trainingGraph(device());
    test::train(*graph, device(), 2);
    if (withFailure) {
      first->throws = true;
      const auto queue = device()->newCommandQueue();
      const auto commandBuffer = queue->commandBuffer();
      EXPECT_THROW(
          graph->encodeBatch(commandBuffer, {test::pictures(device(), 2)}, {test::labels(device(), 2)}),
          std::runtime_error);
      first->throws = false;
      commandBuffer->commit();
      commandBuffer->throwIfFailed();
    }
    test::train(*graph, device(), 3);
    auto all = test::weightsOf(*first);
    for (const float value : test::weightsOf(*second)) all.push_back(value);
    return all;
  };
  EXPECT_EQ(weightsAfter(true), weightsAfter(false));
}

/// Throws, on the host's thread, once.
class ThrowingHostSource : public test::UserSource {
 public:
  using UserSource::update;
  using UserSource::UserSource;
  bool update(const std::shared_ptr<CNNConvolutionGradientState>& gradientState,
              const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& sourceState) override {
    if (std::exchange(throws, false)) throw std::runtime_error("the user's host update");
    return UserSource::update(gradientState, sourceState);
  }
  bool throws = true;
};

TEST(NNGraph, AHostUpdateThatThrowsFailsItsBufferAndTheNextEncodeGoesOn) {
  const auto start = test::layer(device(), 3, 1, 4, "conv");
  const auto source = std::make_shared<ThrowingHostSource>(device(), *start);
  test::SmallNetwork network(source, test::layer(device(), 4, 4, 3, "dense"));
  network.convolution->setTrainingStyle(NNTrainingStyle::UpdateDeviceCPU);
  const auto graph = network.trainingGraph(device());
  const auto queue = device()->newCommandQueue();
  std::vector<std::shared_ptr<mtl::CommandBuffer>> kept;  // the next encode asks the last one's submission
  const auto step = [&] {
    const auto& commandBuffer = kept.emplace_back(queue->commandBuffer());
    graph->encodeBatch(commandBuffer, {test::pictures(device(), 0)}, {test::labels(device(), 0)});
    commandBuffer->commit();
    return errorOf([&] { commandBuffer->throwIfFailed(); });
  };
  EXPECT_THAT(step(), HasSubstr("the user's host update"));
  EXPECT_EQ(source->hostUpdates, 0);
  EXPECT_EQ(step(), "");
  EXPECT_EQ(source->hostUpdates, 1);
}

/// The next encode waits for a host update that will come, and refuses to wait for one that cannot.
TEST(NNGraph, AHostUpdateInABufferThatIsNotCommittedIsAnErrorAndNoHang) {
  const auto start = test::layer(device(), 3, 1, 4, "conv");
  const auto dense = test::layer(device(), 4, 4, 3, "dense");
  const auto source = std::make_shared<test::UserSource>(device(), *start);
  test::SmallNetwork network(source, dense);
  network.convolution->setTrainingStyle(NNTrainingStyle::UpdateDeviceCPU);
  const auto graph = network.trainingGraph(device());
  const auto queue = device()->newCommandQueue();
  const auto encode = [&](const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
    return errorOf([&] {
      graph->encodeBatch(commandBuffer, {test::pictures(device(), 0)}, {test::labels(device(), 0)});
    });
  };
  auto first = queue->commandBuffer();
  EXPECT_EQ(encode(first), "");
  EXPECT_THAT(encode(queue->commandBuffer()), HasSubstr("committed"));
  first->commit();
  auto dropped = queue->commandBuffer();
  EXPECT_EQ(encode(dropped), "") << "waits";
  EXPECT_EQ(source->hostUpdates, 1);
  first.reset();
  dropped.reset();
  const auto last = queue->commandBuffer();
  EXPECT_EQ(encode(last), "");
  last->commit();
  last->throwIfFailed();
}

TEST(Decisions, D5GradientNodesHaveNoGradient) {
  const auto source = NNImageNode::create();
  const std::vector<std::shared_ptr<NNFilterNode>> filters = {
      CNNConvolutionNode::create(source, ArraySource::create(onePixel(1, 1), {2})),
      CNNFullyConnectedNode::create(source, ArraySource::create(onePixel(1, 1), {2})),
      CNNPoolingMaxNode::create(source, 2),
      CNNPoolingAverageNode::create(source, 2),
      CNNNeuronReLUNode::create(source),
      CNNSoftMaxNode::create(source),
      CNNDropoutNode::create(source)};
  for (const auto& filter : filters) {
    filter->setLabel("layer");
    const auto gradient = filter->gradientFilter(filter->resultImage());
    const auto follower = CNNNeuronAbsoluteNode::create(gradient->resultImage());
    follower->setLabel("follower");
    const std::string words = gradient->className() + " \"layer gradient\", the gradient of " +
                              filter->describe() + ": no second derivatives";
    const std::string giver = " (asked for the gradient made by CNNNeuronAbsoluteNode \"follower\")";
    for (const auto& image : {NNImageNode::create(), follower->resultImage()}) {
      const std::string expected = image->producer() == nullptr ? words : words + giver;
      const std::vector<std::shared_ptr<NNImageNode>> images{image};
      EXPECT_EQ(errorOf([&] { gradient->gradientFilter(image); }), expected);
      EXPECT_EQ(errorOf([&] { gradient->gradientFilter(images); }), expected);
      EXPECT_EQ(errorOf([&] { gradient->gradientFilters(image); }), expected);
      EXPECT_EQ(errorOf([&] { gradient->gradientFilters(images); }), expected);
      EXPECT_EQ(errorOf([&] { gradient->trainingGraph(image); }), expected);
    }
  }
}

/// docs/decisions.md, D6: division has a gradient here; a loss is its own.
TEST(Decisions, D6AGraphTrainsThroughADivision) {
  const auto x = NNImageNode::create(), y = NNImageNode::create();
  const auto division = NNDivisionNode::create(x, y);
  const auto lossNode =
      CNNLossNode::create(division->resultImage(), loss(CNNLossType::MeanSquaredError, 0.5F));
  const auto termini = lossNode->trainingGraph(nullptr, nullptr);
  ASSERT_EQ(termini.size(), 2U);
  const auto graph = NNGraph::create(device(), {termini[0]->resultImage(), termini[1]->resultImage()});
  const auto queue = device()->newCommandQueue();
  const auto commandBuffer = queue->commandBuffer();
  const std::vector<std::shared_ptr<Image>> sources{image(sizeOf(1, 1, 1), {8}), image(sizeOf(1, 1, 1), {2})};
  const bool xIsFirst = graph->sourceImageHandles().at(0) == x->handle() || x->handle() == nullptr;
  ASSERT_TRUE(xIsFirst);
  std::vector<std::shared_ptr<Image>> others;
  const auto first = graph->encode(commandBuffer, sources, {labels(sizeOf(1, 1, 1), {1})}, &others);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  EXPECT_EQ(valuesOf(*first), Values{1.5F}) << "(8 / 2 - 1) / 2";
  EXPECT_EQ(valuesOf(*others.at(0)), Values{-6}) << "(8 / 2 - 1) * -8 / 4";
  const std::string isGradient =
      "CNNLossNode has no gradient node: its result is the gradient of its source; call trainingGraph with "
      "null";
  EXPECT_EQ(errorOf([&] { lossNode->gradientFilter(lossNode->resultImage()); }), isGradient);
  EXPECT_EQ(errorOf([&] { lossNode->gradientFilters(lossNode->resultImage()); }), isGradient);
}

/// docs/decisions.md, D12: where Apple returns nil, a sentence.
TEST(Decisions, D12DevicesThatCannotBeUsedAreRefused) {
  for (const char* name : {"cuda:999", "gpu", "", "cpu:1", "cuda:x"})
    EXPECT_TRUE(testing::names(errorOf([&] { mtl::deviceNamed(name); }), {name})) << name;
  EXPECT_EQ(mtl::deviceNamed("cpu"), mtl::createSystemDefaultDevice());
  EXPECT_TRUE(testing::names(errorOf([] { NNGraph::create(nullptr, NNImageNode::create()); }), {"null"}));
  EXPECT_TRUE(testing::names(errorOf([] { CNNPoolingMax::create(nullptr, 2, 2); }), {"device", "null"}));
  EXPECT_FALSE(SupportsMTLDevice(nullptr));
  for (const auto& usable : mtl::copyAllDevices()) EXPECT_TRUE(SupportsMTLDevice(usable)) << usable->name();
}

/// docs/decisions.md, D17: float32 unless asked; one switch for activations, gradients apart.
TEST(Decisions, D17FormatsOfActivationsAndGradients) {
  using enum ImageFeatureChannelFormat;
  const auto formats = [](ImageFeatureChannelFormat activations, bool gradientsInFloat32) {
    const auto convolution =
        CNNConvolutionNode::create(NNImageNode::create(), ArraySource::create(onePixel(1, 1), {2}));
    convolution->resultImage()->setExportFromGraph(true);
    const auto lossNode =
        CNNLossNode::create(convolution->resultImage(), loss(CNNLossType::MeanSquaredError));
    if (gradientsInFloat32) lossNode->resultImage()->setFormat(Float32);
    const auto termini = lossNode->trainingGraph(nullptr, nullptr);
    const auto graph = NNGraph::create(device(), termini[0]->resultImage());
    if (activations != None) graph->setFormat(activations);
    const auto queue = device()->newCommandQueue();
    std::vector<ImageBatch> exported;
    const auto result = graph->encodeBatch(queue->commandBuffer(), {ImageBatch{image(sizeOf(1, 1, 1), {1})}},
                                           {StateBatch{labels(sizeOf(1, 1, 1), {1})}}, &exported);
    return std::array{exported.at(0).descriptor().channelFormat(), result.descriptor().channelFormat()};
  };
  EXPECT_EQ(formats(None, false), (std::array{Float32, Float32}));
  EXPECT_EQ(formats(Float16, false), (std::array{Float16, Float16}));
  EXPECT_EQ(formats(Float16, true), (std::array{Float16, Float32}));
}

}  // namespace
}  // namespace mps::usage_test
