#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mps/arithmetic/arithmetic_node.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/graph/check/test_network.hpp"
#include "mps/graph/compile/graph_program.hpp"
#include "mps/normalization/normalization.hpp"
#include "mps/normalization/normalization_node.hpp"
#include "mps/optimizer/optimizer.hpp"
#include "mtl/memory.hpp"

/// What goes into a graph's encodes and what comes out.
namespace mps::graph_interface_test {
namespace {

using ::testing::ElementsAre;
using testing::errorOf;
using ::testing::HasSubstr;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;

class NamedHandle final : public Handle {
 public:
  explicit NamedHandle(std::string label) : label_(std::move(label)) {}
  [[nodiscard]] std::string label() const override { return label_; }

 private:
  std::string label_;
};

std::shared_ptr<Handle> named(const char* label) {
  return std::make_shared<NamedHandle>(label);
}

std::vector<std::string> labelsOf(const std::vector<std::shared_ptr<Handle>>& handles) {
  std::vector<std::string> labels;
  for (const auto& handle : handles) labels.push_back(handle->label());
  return labels;
}

/// Permanent images, with a record of who asked.
class CountingAllocator final : public ImageAllocator {
 public:
  std::shared_ptr<Image> image(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                               const ImageDescriptor& descriptor, const Kernel& kernel) override {
    asked.push_back(kernel.className() + " " + std::to_string(descriptor.width()) + "x" +
                    std::to_string(descriptor.height()) + "x" + std::to_string(descriptor.featureChannels()));
    made.push_back(Image::create(commandBuffer->device(), descriptor));
    return made.back();
  }
  std::vector<std::string> asked;
  std::vector<std::shared_ptr<Image>> made;
};

/// conv 3x3x4 + absolute value, average pool 2: on 8 x 8 pictures, without training.
class GraphInterface : public testing::DeviceTest {
 protected:
  [[nodiscard]] std::shared_ptr<Image> picture() const { return test::pictures(device_, 1)[0]; }
  static std::size_t readsOf(const std::shared_ptr<Image>& image) {
    return std::static_pointer_cast<TemporaryImage>(image)->readCount();
  }
  std::shared_ptr<NNGraph> graph() { return NNGraph::create(device_, pool_->resultImage()); }

  std::shared_ptr<CNNConvolutionNode> convolution_ =
      CNNConvolutionNode::create(NNImageNode::create(), test::layer(device_, 3, 1, 4, "conv"));
  std::shared_ptr<CNNNeuronAbsoluteNode> absolute_ =
      CNNNeuronAbsoluteNode::create(convolution_->resultImage());
  std::shared_ptr<CNNPoolingAverageNode> pool_ = CNNPoolingAverageNode::create(absolute_->resultImage(), 2);
};

TEST_F(GraphInterface, ResultImageIsNeededSaysWhetherEncodeReturnsOne) {
  const auto handle = named("pooled");
  pool_->resultImage()->setHandle(handle);
  const auto needed = NNGraph::create(device_, pool_->resultImage(), true);
  EXPECT_TRUE(needed->resultImageIsNeeded());
  EXPECT_EQ(needed->resultHandle(), handle);
  const auto buffer = commands();
  EXPECT_EQ(needed->encode(buffer, {picture()})->descriptor(), sizeOf(4, 4, 4));

  convolution_->resultImage()->setExportFromGraph(true);
  const auto unneeded = NNGraph::create(device_, pool_->resultImage(), false);
  EXPECT_FALSE(unneeded->resultImageIsNeeded());
  EXPECT_EQ(unneeded->resultHandle(), nullptr);
  std::vector<std::shared_ptr<Image>> others;
  EXPECT_EQ(unneeded->encode(buffer, {picture()}, {}, &others), nullptr);
  EXPECT_EQ(others.size(), 1U);
  EXPECT_TRUE(unneeded->encodeBatch(buffer, {test::pictures(device_, 1)}).empty());
  EXPECT_THAT(unneeded->debugDescription(), ::testing::Not(HasSubstr("Pooling"))) << "cut back";
}

TEST_F(GraphInterface, OptionsReachEveryKernel) {
  const auto graph = NNGraph::create(device_, pool_->resultImage());
  graph->setOptions(KernelOptions::AllowReducedPrecision);
  EXPECT_EQ(graph->options(), KernelOptions::AllowReducedPrecision);
  EXPECT_GT(graph->program().steps.size(), 1U);
  for (const auto& step : graph->program().steps)
    EXPECT_EQ(step.kernel->options(), KernelOptions::AllowReducedPrecision) << step.name;
}

/// All normalisations by neighbours have these.
TEST_F(GraphInterface, ParametersOfNormalizationNodesReachTheirKernels) {
  const auto source = NNImageNode::create();
  const std::vector<std::shared_ptr<CNNNormalizationNode>> nodes{
      CNNSpatialNormalizationNode::create(source), CNNLocalContrastNormalizationNode::create(source),
      CNNCrossChannelNormalizationNode::create(source)};
  for (const auto& node : nodes) {
    SCOPED_TRACE(node->className());
    EXPECT_EQ(node->alpha(), 1);
    node->setAlpha(0.25F);
    node->setBeta(0.75F);
    node->setDelta(3);
    const auto kernel = std::dynamic_pointer_cast<CNNNormalization>(node->makeKernel(device_));
    ASSERT_NE(kernel, nullptr);
    EXPECT_EQ((Values{kernel->alpha(), kernel->beta(), kernel->delta()}), (Values{0.25F, 0.75F, 3}));
  }
}

TEST_F(GraphInterface, SourcesAreAskedForInTheOrderOfTheWalkFromTheResult) {
  const auto a = NNImageNode::create(named("a"));
  const auto b = NNImageNode::create(named("b"));
  const auto c = NNImageNode::create();
  const auto right = NNSubtractionNode::create(b, c);
  const auto sum = NNAdditionNode::create(a, right->resultImage());
  const auto graph = NNGraph::create(device_, sum->resultImage());
  EXPECT_THAT(labelsOf(graph->sourceImageHandles()), ElementsAre("a", "b", ""));
  EXPECT_NE(graph->sourceImageHandles()[2], nullptr) << "a place holder";
  EXPECT_TRUE(graph->sourceStateHandles().empty());
  EXPECT_EQ(graph->resultHandle(), nullptr);
  const auto buffer = commands();
  const auto size = sizeOf(1, 1, 1);
  const auto result = graph->encode(buffer, {image(size, {100}), image(size, {20}), image(size, {3})});
  run(buffer);
  EXPECT_EQ(valuesOf(*result), Values{117});
}

TEST_F(GraphInterface, AnExportedNodeIsOneWithTheFlagSet) {
  const auto node = NNImageNode::exportedNodeWithHandle(named("features"));
  EXPECT_TRUE(node->exportFromGraph());
  EXPECT_EQ(node->handle()->label(), "features");
  EXPECT_FALSE(NNImageNode::create(named("features"))->exportFromGraph());
}

TEST_F(GraphInterface, IntermediateImagesComeInEncodeOrderBehindFurtherResults) {
  convolution_->resultImage()->setHandle(named("conv"));
  convolution_->resultImage()->setExportFromGraph(true);
  absolute_->resultImage()->setHandle(named("abs"));
  absolute_->resultImage()->setExportFromGraph(true);
  const auto second = CNNNeuronTanHNode::create(pool_->resultImage());
  second->resultImage()->setHandle(named("tanh"));
  const auto graph = NNGraph::create(device_, {pool_->resultImage(), second->resultImage()});
  EXPECT_THAT(labelsOf(graph->intermediateImageHandles()), ElementsAre("tanh", "conv", "abs"));
  const auto buffer = commands();
  std::vector<ImageBatch> others(1);
  graph->encodeBatch(buffer, {test::pictures(device_, 1)}, {}, &others);
  ASSERT_EQ(others.size(), 4U) << "appended to what was there";
  EXPECT_EQ(others[1].descriptor().width(), 4U);
  EXPECT_EQ(others[2].descriptor().width(), 8U);
  EXPECT_EQ(others[3].descriptor().width(), 8U);
  EXPECT_NE(others[2][0], others[3][0]);
  run(buffer);
}

TEST_F(GraphInterface, ExportedStatesComeInEncodeOrderFromBothEncodes) {
  for (const auto& state : {pool_->resultState(), convolution_->resultState()})
    state->setExportFromGraph(true);
  convolution_->resultState()->setHandle(named("conv state"));
  pool_->resultState()->setHandle(named("pool state"));
  const auto graph = this->graph();
  EXPECT_THAT(labelsOf(graph->resultStateHandles()), ElementsAre("conv state", "pool state"));
  const auto buffer = commands();
  std::vector<std::shared_ptr<State>> states(1);
  graph->encode(buffer, {picture()}, {}, nullptr, &states);
  ASSERT_EQ(states.size(), 3U) << "appended to what was there";
  EXPECT_EQ(states[0], nullptr);
  EXPECT_NE(std::dynamic_pointer_cast<CNNConvolutionGradientState>(states[1]), nullptr);
  const auto pooling = std::dynamic_pointer_cast<NNGradientState>(states[2]);
  ASSERT_NE(pooling, nullptr);
  EXPECT_EQ(pooling->sourceWidth(), 8U) << "the forward pass filled it";
  std::vector<StateBatch> batches;
  graph->encodeBatch(buffer, {test::pictures(device_, 1)}, {}, nullptr, &batches);
  ASSERT_EQ(batches.size(), 2U);
  for (const StateBatch& batch : batches) EXPECT_EQ(batch.count(), test::SmallNetwork::batch);
  EXPECT_EQ(batches[0][0], batches[0][1]) << "one convolution state for the whole batch";
  EXPECT_NE(std::dynamic_pointer_cast<CNNConvolutionGradientState>(batches[0][0]), nullptr);
  run(buffer);
}

TEST_F(GraphInterface, ExportedStatesArePermanentUnlessTheGraphSaysOtherwise) {
  convolution_->resultState()->setExportFromGraph(true);
  const auto graph = this->graph();
  EXPECT_FALSE(graph->outputStateIsTemporary());
  const auto stateOfAStep = [&] {
    const auto buffer = commands();
    std::vector<std::shared_ptr<State>> states;
    graph->encode(buffer, {picture()}, {}, nullptr, &states);
    return states.at(0);
  };
  EXPECT_FALSE(stateOfAStep()->isTemporary());
  graph->setOutputStateIsTemporary(true);
  EXPECT_TRUE(graph->outputStateIsTemporary());
  EXPECT_TRUE(graph->copy()->outputStateIsTemporary());
  const auto temporary = stateOfAStep();
  EXPECT_TRUE(temporary->isTemporary());
  EXPECT_EQ(temporary->readCount(), 1U);
}

TEST_F(GraphInterface, SynchronizeResourceReachesTheProgramAndTheImageIsReadable) {
  const auto synchronizing = [](const NNGraph& graph) {
    std::size_t images = 0;
    for (const auto& image : graph.program().images) images += image.synchronizes ? 1U : 0U;
    std::size_t states = 0;
    for (const auto& state : graph.program().states) states += state.synchronizes ? 1U : 0U;
    return std::pair(images, states);
  };
  EXPECT_EQ(synchronizing(*graph()), std::pair(std::size_t{0}, std::size_t{0}));
  convolution_->resultImage()->setExportFromGraph(true);
  convolution_->resultImage()->setSynchronizeResource(true);
  convolution_->resultImage()->setImageAllocator(Image::defaultAllocator());
  convolution_->resultState()->setExportFromGraph(true);
  convolution_->resultState()->setSynchronizeResource(true);
  const auto graph = this->graph();
  EXPECT_EQ(synchronizing(*graph), std::pair(std::size_t{1}, std::size_t{1}));
  const auto buffer = commands();
  std::vector<std::shared_ptr<Image>> images;
  std::vector<std::shared_ptr<State>> states;
  const auto pooled = graph->encode(buffer, {picture()}, {}, &images, &states);
  run(buffer);
  const Values before = valuesOf(*images.at(0));
  const Values after = valuesOf(*pooled);
  const auto at = [&](std::size_t x) { return std::abs(before[x * 4]); };
  EXPECT_EQ(after[0], (at(0) + at(1) + at(8) + at(9)) / 4) << "mean of the absolute values, channel 0";
}

TEST_F(GraphInterface, ANodesOwnAllocatorMakesItsImage) {
  const auto allocator = std::make_shared<CountingAllocator>();
  absolute_->resultImage()->setImageAllocator(allocator);
  const auto plain = this->graph();
  auto buffer = commands();
  const auto result = plain->encode(buffer, {picture()});
  run(buffer);
  EXPECT_THAT(allocator->asked, ElementsAre(HasSubstr("8x8x4")));
  Values pooled = valuesOf(*result);
  EXPECT_THAT(pooled, ::testing::Each(::testing::Ge(0.0F)));

  absolute_->resultImage()->setExportFromGraph(true);
  const auto exporting = this->graph();
  buffer = commands();
  std::vector<ImageBatch> others;
  exporting->encodeBatch(buffer, {test::pictures(device_, 1)}, {}, &others);
  run(buffer);
  ASSERT_EQ(allocator->made.size(), 1 + test::SmallNetwork::batch) << "one by one, by the default imageBatch";
  EXPECT_EQ(others.at(0)[0], allocator->made[1]);
  EXPECT_THAT(valuesOf(*others[0][0]), ::testing::Contains(::testing::Gt(0.0F)));
}

TEST_F(GraphInterface, ResultsComeFromTheGraphsAllocatorNotFromTheNodes) {
  const auto ofNode = std::make_shared<CountingAllocator>();
  const auto ofGraph = std::make_shared<CountingAllocator>();
  pool_->resultImage()->setImageAllocator(ofNode);
  const auto graph = this->graph();
  EXPECT_EQ(graph->destinationImageAllocator(), Image::defaultAllocator());
  graph->setDestinationImageAllocator(ofGraph);
  EXPECT_EQ(graph->destinationImageAllocator(), ofGraph);
  EXPECT_EQ(graph->copy()->destinationImageAllocator(), ofGraph);
  const auto buffer = commands();
  const auto result = graph->encode(buffer, {picture()});
  run(buffer);
  EXPECT_THAT(ofGraph->asked, ElementsAre("CNNPoolingAverage 4x4x4"));
  EXPECT_EQ(result, ofGraph->made.at(0));
  EXPECT_TRUE(ofNode->asked.empty());
  EXPECT_TRUE(names(errorOf([&] { graph->setDestinationImageAllocator(nullptr); }),
                    {"NNGraph", "destinationImageAllocator", "null"}));
}

TEST_F(GraphInterface, TemporaryResultsAndExportsKeepOneReadForTheCallerAndBothTogetherTwo) {
  convolution_->resultImage()->setExportFromGraph(true);
  const auto run = [&] {
    const auto graph = this->graph();
    graph->setDestinationImageAllocator(TemporaryImage::defaultAllocator());
    const auto buffer = commands();
    std::vector<std::shared_ptr<Image>> others;
    const auto result = graph->encode(buffer, {picture()}, {}, &others);
    std::vector<std::size_t> reads{readsOf(result)};
    for (const auto& other : others) reads.push_back(readsOf(other));
    EXPECT_EQ(others.back() == result, pool_->resultImage()->exportFromGraph());
    return reads;
  };
  EXPECT_THAT(run(), ElementsAre(1U, 1U));
  pool_->resultImage()->setExportFromGraph(true);
  EXPECT_THAT(run(), ElementsAre(2U, 1U, 2U)) << "the result is handed out twice";
}

TEST_F(GraphInterface, OneEncodeTakesOneReadOffEachSource) {
  const test::SmallNetwork network(test::layer(device_, 3, 1, 4, "conv"),
                                   test::layer(device_, 4, 4, 3, "dense"));
  const auto graph = network.trainingGraph(device_);
  EXPECT_EQ(graph->readCountForSourceImage(0), 1U);
  EXPECT_EQ(graph->readCountForSourceState(0), 1U);
  EXPECT_TRUE(names(errorOf([&] { (void)graph->readCountForSourceImage(1); }), {"NNGraph", "index", "1"}));
  EXPECT_TRUE(names(errorOf([&] { (void)graph->readCountForSourceState(1); }), {"NNGraph", "index", "1"}));
  const auto buffer = commands();
  const auto source = TemporaryImage::create(buffer, sizeOf(8, 8, 1));
  source->setReadCount(3);
  this->graph()->encode(buffer, {source});
  EXPECT_EQ(source->readCount(), 2U);
}

TEST_F(GraphInterface, ExecuteAsyncReportsAFailureAndTheGraphGoesOn) {
  const auto graph = this->graph();
  graph->setStopsAtNonFiniteValues(true);
  const auto outcome = [&](const std::shared_ptr<Image>& source) {
    std::promise<std::pair<std::shared_ptr<Image>, std::string>> done;
    const auto returned =
        graph->executeAsync({source}, [&](const std::shared_ptr<Image>& result, const std::string& error) {
          done.set_value({result, error});
        });
    EXPECT_NE(returned, nullptr);
    return done.get_future().get();
  };
  const auto broken = image(sizeOf(8, 8, 1), Values(64, std::numeric_limits<float>::quiet_NaN()));
  const auto [nothing, message] = outcome(broken);
  EXPECT_EQ(nothing, nullptr);
  EXPECT_TRUE(names(message, {"\"conv\"", "not finite"}));
  const auto [result, none] = outcome(picture());
  ASSERT_NE(result, nullptr);
  EXPECT_EQ(none, "");
  EXPECT_EQ(result->descriptor(), sizeOf(4, 4, 4));
}

TEST_F(GraphInterface, ExecuteAsyncRefusesAnEmptyHandlerAndWrongSourcesAtOnce) {
  const auto allocator = std::make_shared<CountingAllocator>();
  const auto graph = this->graph();
  graph->setDestinationImageAllocator(allocator);
  EXPECT_TRUE(names(errorOf([&] { graph->executeAsync({picture()}, nullptr); }),
                    {"NNGraph", "completionHandler", "empty"}));
  const NNGraphCompletionHandler handler = [](const std::shared_ptr<Image>&, const std::string&) {
    FAIL() << "nothing was committed";
  };
  EXPECT_TRUE(names(errorOf([&] { graph->executeAsync({}, handler); }), {"NNGraph", "sourceImages"}));
  EXPECT_NE(errorOf([&] { graph->executeAsync({nullptr}, handler); }), "");
  const auto neuron = CNNNeuronReLUNode::create(NNImageNode::create());
  neuron->resultImage()->setExportFromGraph(true);
  const auto without = NNGraph::create(device_, neuron->resultImage(), false);
  EXPECT_TRUE(names(errorOf([&] { without->executeAsync({picture()}, handler); }),
                    {"NNGraph", "resultImageIsNeeded", "false"}));
  EXPECT_TRUE(allocator->asked.empty());
}

/// A node of the user's own whose kernel takes no images.
class OptimizerNode final : public NNFilterNode {
 public:
  OptimizerNode() : NNFilterNode({NNImageNode::create()}) {}
  [[nodiscard]] std::string className() const override { return "OptimizerNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(
      const std::shared_ptr<mtl::Device>& device) const override {
    return NNOptimizerAdam::create(device, 0.1F);
  }
};

TEST_F(GraphInterface, AKernelWithoutImagesIsRefused) {
  const auto node = std::make_shared<OptimizerNode>();
  EXPECT_TRUE(names(errorOf([&] { NNGraph::create(device_, node->resultImage()); }),
                    {"NNGraph", "cannot run", "OptimizerNode"}));
}

}  // namespace
}  // namespace mps::graph_interface_test
