#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mps/batch_normalization/batch_normalization_node.hpp"
#include "mps/conform/tolerance.hpp"
#include "mps/core/layer/loss_scale.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/graph/check/test_network.hpp"
#include "mps/instance_normalization/instance_normalization_node.hpp"
#include "mps/trainable/trainable_batch_normalization.hpp"
#include "mps/trainable/trainable_image_normalization.hpp"

/// Weights that several layers of a graph use, and layers that have several gradient nodes: no weight changes between
/// its first use in a step and its last one.
namespace mps::shared_weights_test {
namespace {

using testing::errorOf;
using ::testing::HasSubstr;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;

const std::shared_ptr<mtl::Device>& device() {
  static const auto device = mtl::createSystemDefaultDevice();
  return device;
}

constexpr std::size_t side = 4, channels = 4, images = 3;

class NamedHandle final : public Handle {
 public:
  explicit NamedHandle(std::string label) : label_(std::move(label)) {}
  [[nodiscard]] std::string label() const override { return label_; }

 private:
  std::string label_;
};

std::shared_ptr<NNImageNode> input(const char* name) {
  return NNImageNode::create(std::make_shared<NamedHandle>(name));
}

/// Other numbers for each seed.
ImageBatch batch(unsigned seed) {
  auto made = ImageBatch::create(device(), sizeOf(side, side, channels), images);
  Values values(images * side * side * channels);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = std::sin(static_cast<float>(i * (2 * seed + 1)) + static_cast<float>(seed));
  made.writeBytes(std::span<const float>(values), DataLayout::HeightxWidthxFeatureChannels);
  return made;
}

using MakeNode = std::function<std::shared_ptr<NNFilterNode>(const std::shared_ptr<NNImageNode>&)>;

/// A ready-made data source and how nodes of it are made.
struct Layer {
  std::shared_ptr<TrainableLayer> source;
  MakeNode node;

  [[nodiscard]] std::map<std::string, Values> values() const {
    const auto commandBuffer = device()->newCommandQueue()->commandBuffer();
    source->synchronize(commandBuffer);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    std::map<std::string, Values> all;
    for (const SafetensorsTensor& tensor : source->tensors(false)) {
      Values& values = all[tensor.name];
      values.resize(tensor.bytes.size() / sizeof(float));
      std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    }
    return all;
  }
};

template <class Node, class Source>
Layer layerOf(const std::shared_ptr<Source>& source) {
  return {source, [source](const std::shared_ptr<NNImageNode>& image) -> std::shared_ptr<NNFilterNode> {
            return Node::create(image, source);
          }};
}

/// A kind of layer, and what updates its weights: without momentum, so that the steps of two gradients add up.
struct Case {
  std::string name;
  std::function<Layer(const std::shared_ptr<NNOptimizer>&)> make;
  bool scales = false;  ///< gradients, with a loss scale

  friend std::ostream& operator<<(std::ostream& out, const Case& tested) { return out << tested.name; }

  [[nodiscard]] Layer layer() const {
    const auto sgd = NNOptimizerStochasticGradientDescent::create(device(), 0.05F);
    if (scales) sgd->setLossScale(scale());
    return make(sgd);
  }
  static const std::shared_ptr<LossScale>& scale() {
    static const auto scale = LossScale::create(device(), {.initialScale = 1});
    return scale;
  }
};

std::shared_ptr<TrainableConvolution> weights(std::size_t kernel,
                                              const std::shared_ptr<NNOptimizer>& optimizer) {
  return TrainableConvolution::create(
      device(), CNNConvolutionDescriptor::cnnConvolutionDescriptor(kernel, kernel, channels, channels),
      "layer", 7, optimizer);
}

std::vector<Case> cases() {
  std::vector<Case> all{
      {"Convolution", [](const auto& sgd) { return layerOf<CNNConvolutionNode>(weights(3, sgd)); }},
      {"TransposedConvolution",
       [](const auto& sgd) { return layerOf<CNNConvolutionTransposeNode>(weights(3, sgd)); }},
      {"BatchNormalization",
       [](const auto& sgd) {
         return layerOf<CNNBatchNormalizationNode>(
             TrainableBatchNormalization::create(device(), channels, "layer", sgd));
       }},
      {"InstanceNormalization",
       [](const auto& sgd) {
         return layerOf<CNNInstanceNormalizationNode>(
             TrainableInstanceNormalization::create(device(), channels, "layer", sgd));
       }},
      {"GroupNormalization", [](const auto& sgd) {
         return layerOf<CNNGroupNormalizationNode>(
             TrainableGroupNormalization::create(device(), channels, 2, "layer", sgd));
       }}};
  for (std::size_t i = 0, count = all.size(); i < count; ++i) {
    Case scaled = all[i];
    scaled.name += "Scaled";
    scaled.scales = true;
    all.push_back(std::move(scaled));
  }
  return all;
}

/// A graph over inputs with names; all results are handed out.
class Graph {
 public:
  explicit Graph(const std::vector<std::shared_ptr<NNImageNode>>& results)
      : graph_(NNGraph::create(device(), results)) {}
  std::vector<Values> run(const std::map<std::string, ImageBatch>& inputs) {
    std::vector<ImageBatch> sources;
    for (const auto& handle : graph_->sourceImageHandles()) sources.push_back(inputs.at(handle->label()));
    const auto commandBuffer = queue_->commandBuffer();
    std::vector<ImageBatch> others;
    const ImageBatch first = graph_->encodeBatch(commandBuffer, sources, {}, &others);
    ImageBatchSynchronize(first, commandBuffer);
    for (const ImageBatch& other : others) ImageBatchSynchronize(other, commandBuffer);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    commandBuffer->waitUntilCompleted();
    std::vector<Values> values{valuesOf(first)};
    for (const ImageBatch& other : others) values.push_back(valuesOf(other));
    return values;
  }
  [[nodiscard]] const std::shared_ptr<NNGraph>& graph() const { return graph_; }

 private:
  std::shared_ptr<NNGraph> graph_;
  std::shared_ptr<mtl::CommandQueue> queue_ = device()->newCommandQueue();
};

/// All values but running statistics, which do not add up.
void expectSumOfSteps(const Layer& found, const std::map<std::string, Values>& start, const Layer& a,
                      const Layer& b) {
  const auto all = found.values(), ofA = a.values(), ofB = b.values();
  for (const auto& [name, values] : all) {
    if (name.find("running") != std::string::npos) continue;
    bool changed = false;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float before = start.at(name)[i];
      EXPECT_NEAR(values[i], ofA.at(name)[i] + ofB.at(name)[i] - before,
                  detail::arithmeticBound(1 + std::abs(values[i]), 160, 0))
          << name << ' ' << i;
      changed = changed || values[i] != before;
    }
    EXPECT_TRUE(changed) << name;
  }
}

class SharedWeights : public ::testing::TestWithParam<Case> {
 protected:
  /// The gradient of the source of `second` behind `first`.
  static Graph chain(const Layer& first, const Layer& second) {
    const auto a = first.node(input("x"));
    const auto b = second.node(a->resultImage());
    const auto termini = b->trainingGraph(input("gradient"));
    return Graph({termini.at(0)->resultImage()});
  }
  /// The gradients of the source of one layer, one for each of the incoming gradients.
  static Graph fork(const Layer& layer, const std::vector<const char*>& gradients,
                    NNTrainingStyle style = NNTrainingStyle::UpdateDeviceGPU) {
    const auto node = layer.node(input("x"));
    dynamic_cast<NNTrainableNode&>(*node).setTrainingStyle(style);
    std::vector<std::shared_ptr<NNImageNode>> results;
    for (const char* name : gradients)
      results.push_back(node->trainingGraph(input(name)).at(0)->resultImage());
    return Graph(results);
  }
};

TEST_P(SharedWeights, OfTwoLayersChangeBehindTheGradientsOfBoth) {
  const Layer shared = GetParam().layer(), first = GetParam().layer(), second = GetParam().layer();
  const auto start = shared.values();
  const std::map<std::string, ImageBatch> inputs{{"x", batch(1)}, {"gradient", batch(2)}};
  EXPECT_EQ(chain(shared, shared).run(inputs), chain(first, second).run(inputs));
  expectSumOfSteps(shared, start, first, second);
}

/// The branch without a gradient comes behind the gradients of the other.
TEST_P(SharedWeights, ChangeBehindAllForwardPasses) {
  const Layer layer = GetParam().layer();
  const auto forwardOf = [&] { return layer.node(input("other")); };
  const auto expected = Graph({forwardOf()->resultImage()}).run({{"other", batch(3)}}).at(0);
  const auto node = layer.node(input("x"));
  const auto gradient = node->trainingGraph(input("gradient")).at(0);
  const auto start = layer.values();
  const auto found = Graph({gradient->resultImage(), forwardOf()->resultImage()})
                         .run({{"x", batch(1)}, {"gradient", batch(2)}, {"other", batch(3)}});
  EXPECT_EQ(found.at(1), expected);
  EXPECT_NE(layer.values(), start);
}

TEST_P(SharedWeights, ALayerWithTwoGradientNodesIsUpdatedOnceWithTheirSum) {
  for (const auto style : {NNTrainingStyle::UpdateDeviceGPU, NNTrainingStyle::UpdateDeviceCPU}) {
    const Layer both = GetParam().layer(), first = GetParam().layer(), second = GetParam().layer();
    const auto start = both.values();
    const std::map<std::string, ImageBatch> inputs{{"x", batch(1)}, {"a", batch(2)}, {"b", batch(3)}};
    const auto found = fork(both, {"a", "b"}, style).run(inputs);
    EXPECT_EQ(found.at(0), fork(first, {"a"}, style).run(inputs).at(0));
    EXPECT_EQ(found.at(1), fork(second, {"b"}, style).run(inputs).at(0));
    expectSumOfSteps(both, start, first, second);
  }
}

TEST_P(SharedWeights, OfTwoGradientNodesTakeOneReadOffAnExportedState) {
  const Layer layer = GetParam().layer(), expected = GetParam().layer();
  const std::map<std::string, ImageBatch> inputs{{"x", batch(1)}, {"a", batch(2)}, {"b", batch(3)}};
  fork(expected, {"a", "b"}).run(inputs);
  const auto node = layer.node(input("x"));
  node->resultState()->setExportFromGraph(true);
  std::vector<std::shared_ptr<NNImageNode>> results;
  for (const char* name : {"a", "b"})
    results.push_back(node->trainingGraph(input(name)).at(0)->resultImage());
  const auto graph = NNGraph::create(device(), results);
  graph->setOutputStateIsTemporary(true);
  std::vector<ImageBatch> sources;
  for (const auto& handle : graph->sourceImageHandles()) sources.push_back(inputs.at(handle->label()));
  const auto commandBuffer = device()->newCommandQueue()->commandBuffer();
  std::vector<StateBatch> states;
  graph->encodeBatch(commandBuffer, sources, {}, nullptr, &states);
  for (const auto& state : states.at(0).existing()) {
    EXPECT_TRUE(state->isTemporary());
    EXPECT_EQ(state->readCount(), 1U);
  }
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  EXPECT_EQ(layer.values(), expected.values());
}

INSTANTIATE_TEST_SUITE_P(Layers, SharedWeights, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

/// Its weights are not the kernels' own: graphs reload them.
std::shared_ptr<test::UserSource> userSource() {
  return std::make_shared<test::UserSource>(device(), *weights(3, nullptr));
}

/// Two losses on one convolution.
struct TwoLosses {
  std::shared_ptr<CNNConvolutionNode> convolution;
  std::vector<std::shared_ptr<NNFilterNode>> gradients;

  explicit TwoLosses(const std::shared_ptr<CNNConvolutionDataSource>& source)
      : convolution(CNNConvolutionNode::create(input("x"), source)) {
    for (const char* name : {"a", "b"}) gradients.push_back(convolution->trainingGraph(input(name)).at(0));
  }
  [[nodiscard]] CNNConvolutionGradientNode& gradient(std::size_t i) const {
    return dynamic_cast<CNNConvolutionGradientNode&>(*gradients.at(i));
  }
  [[nodiscard]] Graph graph() const {
    return Graph({gradients[0]->resultImage(), gradients[1]->resultImage()});
  }
  static std::map<std::string, ImageBatch> inputs(unsigned step) {
    return {{"x", batch(step)}, {"a", batch(step + 10)}, {"b", batch(step + 20)}};
  }
};

/// All gradient kernels use what the update gives, also that of a node that does not train.
TEST(SharedWeightsOfAUsersSource, ReachEveryGradientNode) {
  for (const bool trainsByBoth : {true, false}) {
    const auto user = userSource();
    const auto ready = weights(3, test::sgd(device()));
    TwoLosses ofUser(user), ofReady(ready);
    if (!trainsByBoth)
      for (TwoLosses* net : {&ofUser, &ofReady})
        net->gradient(1).setTrainingStyle(NNTrainingStyle::UpdateDeviceNone);
    Graph userGraph = ofUser.graph(), readyGraph = ofReady.graph();
    for (unsigned step = 1; step <= 3; ++step)
      EXPECT_EQ(userGraph.run(TwoLosses::inputs(step)), readyGraph.run(TwoLosses::inputs(step))) << step;
    EXPECT_EQ(user->updates, 3);
  }
}

TEST(SharedWeightsOfAUsersSource, AreUpdatedOnceOnTheHost) {
  const auto user = userSource();
  const auto ready = weights(3, test::sgd(device()));
  TwoLosses ofUser(user), ofReady(ready);
  for (std::size_t i = 0; i < 2; ++i) ofUser.gradient(i).setTrainingStyle(NNTrainingStyle::UpdateDeviceCPU);
  Graph userGraph = ofUser.graph(), readyGraph = ofReady.graph();
  for (unsigned step = 1; step <= 3; ++step)
    EXPECT_EQ(userGraph.run(TwoLosses::inputs(step)), readyGraph.run(TwoLosses::inputs(step))) << step;
  EXPECT_EQ(user->hostUpdates, 3);
}

TEST(SharedWeightsOfAUsersSource, AreNotUpdatedInTwoWays) {
  const TwoLosses net(userSource());
  net.convolution->setLabel("trunk");
  net.gradient(0).setLabel("first");
  net.gradient(1).setLabel("second");
  net.gradient(1).setTrainingStyle(NNTrainingStyle::UpdateDeviceCPU);
  const std::string error = errorOf([&] { static_cast<void>(net.graph()); });
  for (const char* part : {"first", "second", "trunk", "trainingStyle"}) EXPECT_THAT(error, HasSubstr(part));
}

/// Its weights are those of another source, which may be replaced.
class MovingSource final : public CNNConvolutionDataSource {
 public:
  [[nodiscard]] DataType dataType() const override { return place->dataType(); }
  [[nodiscard]] CNNConvolutionDescriptor descriptor() const override { return place->descriptor(); }
  [[nodiscard]] std::span<const std::byte> weights() const override { return place->weights(); }
  [[nodiscard]] std::span<const float> biasTerms() const override { return place->biasTerms(); }
  bool load() override { return place->load(); }
  void purge() override { place->purge(); }
  using CNNConvolutionDataSource::update;
  std::shared_ptr<CNNConvolutionWeightsAndBiasesState> update(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      const std::shared_ptr<CNNConvolutionGradientState>& gradientState,
      const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& sourceState) override {
    return place->update(commandBuffer, gradientState, sourceState);
  }
  std::shared_ptr<CNNConvolutionWeightsAndBiasesState> deviceWeightsAndBiases(
      const std::shared_ptr<mtl::Device>& device) override {
    return place->deviceWeightsAndBiases(device);
  }

  std::shared_ptr<TrainableConvolution> place =
      mps::shared_weights_test::weights(3, NNOptimizerStochasticGradientDescent::create(device(), 0.05F));
};

TEST(SharedWeightsOfAUsersSource, ChangeBehindTheGradientsOfBothAlsoWhereAReloadHasMovedThem) {
  const auto chain = [](const std::shared_ptr<CNNConvolutionDataSource>& a,
                        const std::shared_ptr<CNNConvolutionDataSource>& b) {
    const auto first = CNNConvolutionNode::create(input("x"), a);
    const auto second = CNNConvolutionNode::create(first->resultImage(), b);
    return Graph({second->trainingGraph(input("gradient")).at(0)->resultImage()});
  };
  const std::map<std::string, ImageBatch> inputs{{"x", batch(1)}, {"gradient", batch(2)}};
  const auto expected = chain(std::make_shared<MovingSource>(), std::make_shared<MovingSource>()).run(inputs);
  const auto shared = std::make_shared<MovingSource>();
  Graph graph = chain(shared, shared);
  EXPECT_EQ(graph.run(inputs), expected);
  shared->place = MovingSource().place;
  graph.graph()->reloadFromDataSources();
  EXPECT_EQ(graph.run(inputs), expected);
}

TEST(SharedWeightsOfFullyConnectedLayers, ChangeBehindTheGradientsOfBoth) {
  const auto pixels = [](unsigned seed) {
    auto made = ImageBatch::create(device(), sizeOf(1, 1, channels), 1);
    const Values values(channels, static_cast<float>(seed));
    made.writeBytes(std::span<const float>(values), DataLayout::HeightxWidthxFeatureChannels);
    return made;
  };
  const auto run = [&](const std::shared_ptr<TrainableConvolution>& a,
                       const std::shared_ptr<TrainableConvolution>& b) {
    const auto first = CNNFullyConnectedNode::create(input("x"), a);
    const auto second = CNNFullyConnectedNode::create(first->resultImage(), b);
    return Graph({second->trainingGraph(input("gradient")).at(0)->resultImage()})
        .run({{"x", pixels(1)}, {"gradient", pixels(2)}});
  };
  const auto sgd = NNOptimizerStochasticGradientDescent::create(device(), 0.05F);
  const auto shared = weights(1, sgd);
  EXPECT_EQ(run(shared, shared), run(weights(1, sgd), weights(1, sgd)));
}

}  // namespace
}  // namespace mps::shared_weights_test
