#include "mps/conform/check_gradients.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "mps/arithmetic/arithmetic_node.hpp"
#include "mps/concatenation/concatenation_node.hpp"
#include "mps/conform/compare.hpp"
#include "mps/conform/gradients/spoiled_gradients.hpp"
#include "mps/convolution/convolution.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/core/types/error.hpp"
#include "mps/gram_matrix/gram_matrix_node.hpp"
#include "mps/graph/check/test_network.hpp"
#include "mps/loss/yolo_loss_node.hpp"
#include "mps/neuron/neuron.hpp"
#include "mps/normalization/normalization_node.hpp"
#include "mps/reduction/reduction_node.hpp"
#include "mps/reshape/reshape_node.hpp"
#include "mps/softmax/softmax.hpp"
#include "mps/upsampling/scale_node.hpp"
#include "mps/upsampling/upsampling_node.hpp"

namespace mps::check_gradients_test {
namespace {

using test::AnyGradientNode;
using test::CarelessNeuronGradientKernel;
using test::SmallNetwork;
using test::SpoiledConvolutionGradientKernel;
using test::SpoiledNeuronGradientKernel;
using ::testing::HasSubstr;

using Images = std::vector<std::shared_ptr<NNImageNode>>;

const std::shared_ptr<mtl::Device>& device() {
  static const auto device = mtl::createSystemDefaultDevice();
  return device;
}

std::shared_ptr<NNGraph> graphOf(const Images& results, bool areNeeded = false) {
  return NNGraph::create(device(), results, std::vector<bool>(results.size(), areNeeded));
}

Images resultsOf(const std::vector<std::shared_ptr<NNFilterNode>>& nodes) {
  Images images;
  for (const auto& node : nodes) images.push_back(node->resultImage());
  return images;
}

ImageBatch randomImages(std::size_t count, std::size_t width, std::size_t height, std::size_t channels,
                        std::uint64_t seed) {
  auto images =
      ImageBatch::create(device(), {ImageFeatureChannelFormat::Float32, width, height, channels}, count);
  const auto values =
      detail::randomValues(count * width * height * channels, seed, detail::RandomKind::Uniform);
  const std::vector<float> stored(values.begin(), values.end());
  images.writeBytes(std::span<const float>(stored), DataLayout::HeightxWidthxFeatureChannels);
  return images;
}

StateBatch randomLabels(std::size_t count, std::size_t channels, std::uint64_t seed) {
  return CNNLossLabels::createBatch(device(), {1, 1, 1}, randomImages(count, 1, 1, channels, seed));
}

std::shared_ptr<CNNLossNode> squaredError(const std::shared_ptr<NNImageNode>& source) {
  return CNNLossNode::create(
      source, CNNLossDescriptor::cnnLossDescriptor(CNNLossType::MeanSquaredError, CNNReductionType::Sum));
}

const GradientCheckRow& rowOf(const GradientCheckReport& report, const std::string& node,
                              const std::string& tensor) {
  for (const GradientCheckRow& row : report.rows)
    if (row.node.find(node) != std::string::npos && row.tensor == tensor) return row;
  throw Error("no row " + node + ", " + tensor);
}

/// Nodes with failed rows, each once, in order.
std::vector<std::string> failedNodes(const GradientCheckReport& report) {
  std::vector<std::string> nodes;
  for (const GradientCheckRow& row : report.rows)
    if (!row.passed() && (nodes.empty() || nodes.back() != row.node)) nodes.push_back(row.node);
  return nodes;
}

struct Layers {
  std::shared_ptr<TrainableConvolution> first = test::layer(device(), 3, 1, 4, "conv");
  std::shared_ptr<TrainableConvolution> second = test::layer(device(), 4, 4, 3, "dense");
  SmallNetwork network{first, second};
};

TEST(CheckGradients, D21ATrainingGraphWithFusedNeuronAndDropoutIsRightInEveryTensor) {
  const Layers layers;
  const auto graph = layers.network.trainingGraph(device());
  const auto before = test::weightsOf(*layers.first);
  const auto report = checkGradients(*graph, {test::pictures(device(), 0)}, {test::labels(device(), 0)});
  EXPECT_EQ(report.describe(), "");
  EXPECT_TRUE(report.passed());
  EXPECT_EQ(report.passedCount(), report.rows.size());
  EXPECT_EQ(test::weightsOf(*layers.first), before);
  EXPECT_EQ(graph->randomCounters(), std::vector<std::uint64_t>{0});
  for (const char* tensor : {"weights", "biases"}) {
    // Once against the layer's own reference, once through the whole graph.
    EXPECT_GT(rowOf(report, "conv gradient", tensor).derivatives, 4) << tensor;
    EXPECT_GT(rowOf(report, "dense gradient", tensor).elements, 0) << tensor;
  }
  // The pooling's gradient includes the neuron's.
  for (const char* node :
       {"CNNPoolingMaxGradientNode", "CNNDropoutGradientNode", "CNNLossNode", "dense gradient"}) {
    EXPECT_GT(rowOf(report, node, "source gradient").elements, 0) << node;
    EXPECT_GT(rowOf(report, node, "source gradient").derivatives, 0) << node;
  }
  EXPECT_EQ(rowOf(report, "CNNPoolingMaxNode", "result").derivatives, 0);
}

TEST(CheckGradients, TheNextStepIsTheSameAfterACheck) {
  const Layers checked;
  const Layers plain;
  const auto graph = checked.network.trainingGraph(device());
  checkGradients(*graph, {test::pictures(device(), 0)}, {test::labels(device(), 0)});
  test::train(*graph, device(), 3);
  test::train(*plain.network.trainingGraph(device()), device(), 3);
  EXPECT_EQ(test::weightsOf(*checked.first), test::weightsOf(*plain.first));
}

TEST(CheckGradients, AForkOfArithmeticAveragesAndNormsIsRightBackToTheSourceImages) {
  const auto x = NNImageNode::create();
  const auto a = CNNConvolutionNode::create(x, test::layer(device(), 3, 4, 4, "a"));
  const auto tanh = CNNNeuronTanHNode::create(a->resultImage());
  const auto b = CNNConvolutionNode::create(tanh->resultImage(), test::layer(device(), 1, 4, 4, "b"));
  const auto product = NNMultiplicationNode::create(tanh->resultImage(), b->resultImage());
  product->setMaximumValue(0.25F);
  const auto difference = NNSubtractionNode::create(product->resultImage(), tanh->resultImage());
  const auto average = CNNPoolingAverageNode::create(difference->resultImage(), 3, 2);
  const auto norm = CNNPoolingL2NormNode::create(average->resultImage(), 2, 1);
  const auto sigmoid = CNNNeuronSigmoidNode::create(norm->resultImage());
  const auto c = CNNFullyConnectedNode::create(sigmoid->resultImage(), test::layer(device(), 3, 4, 4, "c"));
  const auto logSoftMax = CNNLogSoftMaxNode::create(c->resultImage());
  const auto loss = squaredError(logSoftMax->resultImage());
  const auto graph = graphOf(resultsOf(loss->trainingGraph(nullptr)), true);
  const auto report = checkGradients(*graph, {randomImages(3, 6, 5, 4, 7)}, {randomLabels(3, 4, 8)},
                                     {.elementsPerTensor = 6});
  EXPECT_EQ(report.describe(), "");
  EXPECT_TRUE(report.passed());
  // The whole graph's derivative by the source, beside the step's own.
  EXPECT_GT(rowOf(report, "GradientNode \"a\"", "source gradient").derivatives, 6);
}

/// 3x2 pixels become 24x24 in four ways.
TEST(CheckGradients, UpsamplingIsRightBackToTheSourceImages) {
  const auto x = NNImageNode::create();
  const auto a = CNNConvolutionNode::create(x, test::layer(device(), 3, 4, 4, "a"));
  const auto nearest = CNNUpsamplingNearestNode::create(a->resultImage(), 2, 3);
  const auto topLeft = CNNUpsamplingBilinearNode::create(nearest->resultImage(), 2, 1);
  topLeft->setLabel("top left");
  const auto aligned = CNNUpsamplingBilinearNode::create(topLeft->resultImage(), 1, 2, true);
  aligned->setLabel("aligned");
  const auto halfPixel = CNNUpsamplingBilinearNode::create(aligned->resultImage(), 2, 2);
  halfPixel->setHalfPixelCenters(true);
  halfPixel->setLabel("half pixel");
  const auto average = CNNPoolingAverageNode::create(halfPixel->resultImage(), 6);
  const auto b = CNNFullyConnectedNode::create(average->resultImage(), test::layer(device(), 4, 4, 4, "b"));
  const auto loss = squaredError(b->resultImage());
  const auto graph = graphOf(resultsOf(loss->trainingGraph(nullptr)), true);
  const auto report = checkGradients(*graph, {randomImages(3, 3, 2, 4, 7)}, {randomLabels(3, 4, 8)},
                                     {.elementsPerTensor = 6});
  EXPECT_EQ(report.describe(), "");
  EXPECT_TRUE(report.passed());
  for (const char* node : {"CNNUpsamplingNearestGradientNode", "top left", "aligned", "half pixel"})
    EXPECT_GT(rowOf(report, node, "source gradient").derivatives, 0) << node;
  EXPECT_GT(rowOf(report, "GradientNode \"a\"", "source gradient").derivatives, 6);
}

TEST(CheckGradients, D6ResizingIsRightBackToTheSourceImages) {
  const auto x = NNImageNode::create();
  const auto a = CNNConvolutionNode::create(x, test::layer(device(), 3, 4, 4, "a"));
  const auto larger = NNBilinearScaleNode::create(a->resultImage(), {7, 5, 1});
  larger->setLabel("larger");
  const auto smaller = NNBilinearScaleNode::create(larger->resultImage(), {2, 2, 1});
  smaller->setLabel("smaller");
  const auto b = CNNFullyConnectedNode::create(smaller->resultImage(), test::layer(device(), 2, 4, 4, "b"));
  const auto loss = squaredError(b->resultImage());
  const auto graph = graphOf(resultsOf(loss->trainingGraph(nullptr)), true);
  const auto report = checkGradients(*graph, {randomImages(3, 3, 4, 4, 7)}, {randomLabels(3, 4, 8)},
                                     {.elementsPerTensor = 6});
  EXPECT_EQ(report.describe(), "");
  EXPECT_TRUE(report.passed());
  for (const char* node : {"larger gradient", "smaller gradient"})
    EXPECT_GT(rowOf(report, node, "source gradient").derivatives, 0) << node;
  EXPECT_GT(rowOf(report, "GradientNode \"a\"", "source gradient").derivatives, 6);
}

/// A fork that meets again by concatenation, with padded channels and without, of one image twice.
TEST(CheckGradients, ConcatenationIsRightBackToTheSourceImages) {
  const auto x = NNImageNode::create();
  const auto a = CNNConvolutionNode::create(x, test::layer(device(), 3, 4, 3, "a"));
  const auto tanh = CNNNeuronTanHNode::create(a->resultImage());
  const auto b = CNNConvolutionNode::create(tanh->resultImage(), test::layer(device(), 1, 3, 2, "b"));
  const auto padded = NNConcatenationNode::create({b->resultImage(), tanh->resultImage(), b->resultImage()});
  padded->setLabel("padded");
  const auto adjacent = NNConcatenationNode::create({tanh->resultImage(), padded->resultImage(), x});
  adjacent->setChannelAlignment(1);
  adjacent->setLabel("adjacent");
  const auto c = CNNFullyConnectedNode::create(adjacent->resultImage(), test::layer(device(), 3, 19, 4, "c"));
  const auto loss = squaredError(c->resultImage());
  const auto graph = graphOf(resultsOf(loss->trainingGraph(nullptr)), true);
  const auto report = checkGradients(*graph, {randomImages(3, 3, 3, 4, 7)}, {randomLabels(3, 4, 8)},
                                     {.elementsPerTensor = 6});
  EXPECT_EQ(report.describe(), "");
  EXPECT_TRUE(report.passed());
  for (const char* node : {"padded gradient", "adjacent gradient"})
    EXPECT_GT(rowOf(report, node, "source gradient").derivatives, 0) << node;
  EXPECT_GT(rowOf(report, "GradientNode \"a\"", "weights").derivatives, 6);
}

/// Each way of padding behind the other, and another shape at the end.
TEST(CheckGradients, PaddingAndReshapeAreRightBackToTheSourceImages) {
  const auto x = NNImageNode::create();
  const auto a = CNNConvolutionNode::create(x, test::layer(device(), 3, 4, 3, "a"));
  const auto mirror = NNPadNode::create(a->resultImage(), {2, 1, 1}, {1, 3, 0}, ImageEdgeMode::Mirror);
  mirror->setLabel("mirror");
  const auto clamp = NNPadNode::create(mirror->resultImage(), {1, 0, 0}, {0, 1, 0}, ImageEdgeMode::Clamp);
  clamp->setLabel("clamp");
  const auto constant =
      NNPadNode::create(clamp->resultImage(), {0, 0, 1}, {1, 1, 0}, ImageEdgeMode::Constant);
  constant->setFillValue(0.5F);
  constant->setLabel("constant");
  const auto average = CNNPoolingAverageNode::create(constant->resultImage(), 2);
  const auto flat = NNReshapeNode::create(average->resultImage(), 1, 1, 4 * 5 * 5);
  const auto b = CNNFullyConnectedNode::create(flat->resultImage(), test::layer(device(), 1, 100, 4, "b"));
  const auto loss = squaredError(b->resultImage());
  const auto graph = graphOf(resultsOf(loss->trainingGraph(nullptr)), true);
  const auto report = checkGradients(*graph, {randomImages(3, 3, 3, 4, 7)}, {randomLabels(3, 4, 8)},
                                     {.elementsPerTensor = 6});
  EXPECT_EQ(report.describe(), "");
  EXPECT_TRUE(report.passed());
  for (const char* node : {"mirror gradient", "clamp gradient", "constant gradient", "NNReshapeGradientNode"})
    EXPECT_GT(rowOf(report, node, "source gradient").derivatives, 0) << node;
  EXPECT_GT(rowOf(report, "GradientNode \"a\"", "source gradient").derivatives, 6);
}

TEST(CheckGradients, D6ReductionsAreRightBackToTheSourceImages) {
  const auto x = NNImageNode::create();
  const auto a = CNNConvolutionNode::create(x, test::layer(device(), 3, 4, 6, "a"));
  const auto maximum = NNReductionRowMaxNode::create(a->resultImage());
  const auto minimum = NNReductionColumnMinNode::create(a->resultImage());
  const auto product = NNMultiplicationNode::create(a->resultImage(), maximum->resultImage());
  product->setSecondaryStrideInPixelsX(0);
  const auto other = NNMultiplicationNode::create(product->resultImage(), minimum->resultImage());
  other->setSecondaryStrideInPixelsY(0);
  const auto sum = NNReductionFeatureChannelsSumNode::create(other->resultImage());
  sum->setWeight(0.5F);
  const auto scaled = NNMultiplicationNode::create(other->resultImage(), sum->resultImage());
  scaled->setSecondaryStrideInFeatureChannels(0);
  const auto mean = NNReductionSpatialMeanNode::create(scaled->resultImage());
  mean->setClipRectSource({{1, 0, 0}, {3, 2, 1}});
  const auto b = CNNFullyConnectedNode::create(mean->resultImage(), test::layer(device(), 1, 6, 4, "b"));
  const auto loss = squaredError(b->resultImage());
  const auto graph = graphOf(resultsOf(loss->trainingGraph(nullptr)), true);
  const auto report = checkGradients(*graph, {randomImages(3, 4, 3, 4, 7)}, {randomLabels(3, 4, 8)},
                                     {.elementsPerTensor = 6});
  EXPECT_EQ(report.describe(), "");
  EXPECT_TRUE(report.passed());
  EXPECT_GT(rowOf(report, "NNReductionSpatialMeanGradientNode", "source gradient").derivatives, 0);
  EXPECT_GT(rowOf(report, "NNUnaryReductionGradientNode", "source gradient").derivatives, 0);
  EXPECT_GT(rowOf(report, "GradientNode \"a\"", "source gradient").derivatives, 6);
}

TEST(CheckGradients, GramMatricesAreRightBackToTheSourceImages) {
  const auto x = NNImageNode::create();
  const auto a = CNNConvolutionNode::create(x, test::layer(device(), 3, 4, 3, "a"));
  const auto gram = NNGramMatrixCalculationNode::create(a->resultImage(), 0.25F);
  const auto flat = NNReshapeNode::create(gram->resultImage(), 1, 1, 9);
  const auto b = CNNFullyConnectedNode::create(flat->resultImage(), test::layer(device(), 1, 9, 4, "b"));
  const auto loss = squaredError(b->resultImage());
  const auto graph = graphOf(resultsOf(loss->trainingGraph(nullptr)), true);
  const auto report = checkGradients(*graph, {randomImages(3, 5, 4, 4, 7)}, {randomLabels(3, 4, 8)},
                                     {.elementsPerTensor = 6});
  EXPECT_EQ(report.describe(), "");
  EXPECT_TRUE(report.passed());
  EXPECT_GT(rowOf(report, "NNGramMatrixCalculationGradientNode", "source gradient").derivatives, 0);
  EXPECT_GT(rowOf(report, "GradientNode \"a\"", "source gradient").derivatives, 6);
}

/// Without rescoring the gradient of YOLO's loss is a derivative.
TEST(CheckGradients, TheLossOfYOLOIsRightBackToTheSourceImages) {
  constexpr std::size_t channels = 2 * 7;
  const auto x = NNImageNode::create();
  const auto a = CNNConvolutionNode::create(x, test::layer(device(), 3, 4, channels, "a"));
  using enum CNNLossType;
  const std::vector<float> anchors{1, 1, 2, 3};
  auto descriptor =
      CNNYOLOLossDescriptor::cnnLossDescriptor(MeanSquaredError, MeanSquaredError, SigmoidCrossEntropy,
                                               SoftMaxCrossEntropy, CNNReductionType::Sum, anchors, 2);
  descriptor.setRescore(false);
  const auto loss = CNNYOLOLossNode::create(a->resultImage(), descriptor);
  const auto graph = graphOf(resultsOf(loss->trainingGraph(nullptr)), true);
  std::vector<float> values(3 * 2 * channels);
  for (std::size_t cell = 0; cell < 3 * 2; cell += 2) {
    const std::vector<float> object{0.25F, 0.5F, 1.5F, 2, 1, 0, 1};
    std::copy(object.begin(), object.end(),
              values.begin() + static_cast<std::ptrdiff_t>(cell * channels + 7));
  }
  auto labels = ImageBatch::create(device(), {ImageFeatureChannelFormat::Float32, 2, 1, channels}, 3);
  labels.writeBytes(std::span<const float>(values), DataLayout::HeightxWidthxFeatureChannels);
  const auto report =
      checkGradients(*graph, {randomImages(3, 2, 1, 4, 7)},
                     {CNNLossLabels::createBatch(device(), {1, 1, 1}, labels)}, {.elementsPerTensor = 6});
  EXPECT_EQ(report.describe(), "");
  EXPECT_TRUE(report.passed());
  EXPECT_GT(rowOf(report, "CNNYOLOLossNode", "source gradient").derivatives, 0);
  EXPECT_GT(rowOf(report, "GradientNode \"a\"", "source gradient").derivatives, 6);
}

TEST(CheckGradients, NormalisationByNeighboursIsRightBackToTheSourceImages) {
  const auto x = NNImageNode::create();
  const auto a = CNNConvolutionNode::create(x, test::layer(device(), 3, 4, 4, "a"));
  const auto channels = CNNCrossChannelNormalizationNode::create(a->resultImage(), 3);
  channels->setBeta(0.75F);
  const auto spatial = CNNSpatialNormalizationNode::create(channels->resultImage(), 3);
  spatial->setAlpha(2);
  spatial->setBeta(0.5F);
  spatial->setKernelHeight(2);
  const auto contrast = CNNLocalContrastNormalizationNode::create(spatial->resultImage(), 4);
  contrast->setDelta(0.25F);
  contrast->setP0(0.75F);
  contrast->setPs(2);
  const auto b = CNNFullyConnectedNode::create(contrast->resultImage(), test::layer(device(), 5, 4, 4, "b"));
  const auto loss = squaredError(b->resultImage());
  const auto graph = graphOf(resultsOf(loss->trainingGraph(nullptr)), true);
  const auto report = checkGradients(*graph, {randomImages(3, 5, 5, 4, 7)}, {randomLabels(3, 4, 8)},
                                     {.elementsPerTensor = 6});
  EXPECT_EQ(report.describe(), "");
  EXPECT_TRUE(report.passed());
  for (const char* node : {"CNNCrossChannelNormalizationGradientNode", "CNNSpatialNormalizationGradientNode",
                           "CNNLocalContrastNormalizationGradientNode"})
    EXPECT_GT(rowOf(report, node, "source gradient").derivatives, 0) << node;
  EXPECT_GT(rowOf(report, "GradientNode \"a\"", "source gradient").derivatives, 6);
}

TEST(CheckGradients, AFirstGradientThatIsAnInputIsTakenAsGiven) {
  const auto x = NNImageNode::create();
  const auto a = CNNConvolutionNode::create(x, test::layer(device(), 3, 2, 4, "a"));
  const auto elu = CNNNeuronELUNode::create(a->resultImage());
  const auto gradient = NNImageNode::create();
  const auto graph = graphOf(resultsOf(elu->trainingGraph(gradient)), true);
  const auto report = checkGradients(*graph, {randomImages(2, 4, 4, 4, 1), randomImages(2, 4, 4, 2, 2)});
  EXPECT_EQ(report.describe(), "");
  EXPECT_TRUE(report.passed());
}

TEST(CheckGradients, AFirstGradientThatIsTheResultItselfIsTakenAsGiven) {
  const auto a = CNNConvolutionNode::create(NNImageNode::create(), test::layer(device(), 3, 2, 4, "a"));
  const auto softMax = CNNSoftMaxNode::create(a->resultImage());
  const auto graph = graphOf(resultsOf(softMax->trainingGraph(nullptr)), true);
  const auto report = checkGradients(*graph, {randomImages(2, 4, 4, 2, 2)});
  EXPECT_EQ(report.describe(), "");
  EXPECT_TRUE(report.passed());
}

TEST(CheckGradients, AnImageWhereGradientsStopIsAConstant) {
  const auto x = NNImageNode::create();
  const auto a = CNNConvolutionNode::create(x, test::layer(device(), 1, 4, 4, "a"));
  const auto b = CNNConvolutionNode::create(a->resultImage(), test::layer(device(), 1, 4, 4, "b"));
  const auto sum = NNAdditionNode::create(a->resultImage(), b->resultImage());
  const auto loss = squaredError(sum->resultImage());
  const auto nodes = loss->trainingGraph(
      nullptr, [&](const std::shared_ptr<NNFilterNode>& node, const std::shared_ptr<NNFilterNode>& forward,
                   const std::shared_ptr<NNImageNode>&, const std::shared_ptr<NNImageNode>&) {
        if (forward == b) node->resultImage()->setStopGradient(true);
      });
  const auto report =
      checkGradients(*graphOf(resultsOf(nodes)), {randomImages(2, 1, 1, 4, 3)}, {randomLabels(2, 4, 4)});
  EXPECT_EQ(report.describe(), "");
  EXPECT_TRUE(report.passed());
}

TEST(CheckGradients, Float16ImagesAreRightWithinTheirFormat) {
  const Layers layers;
  const auto graph = layers.network.trainingGraph(device());
  graph->setFormat(ImageFeatureChannelFormat::Float16);
  const auto report = checkGradients(*graph, {test::pictures(device(), 0)}, {test::labels(device(), 0)});
  EXPECT_EQ(report.describe(), "");
  EXPECT_TRUE(report.passed());
}

TEST(CheckGradients, ALossWhoseGradientIsNotItsDerivativeIsLinear) {
  const auto a = CNNFullyConnectedNode::create(NNImageNode::create(), test::layer(device(), 1, 4, 3, "a"));
  const auto lossNode = CNNLossNode::create(
      a->resultImage(),
      CNNLossDescriptor::cnnLossDescriptor(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Mean));
  const auto graph = graphOf(resultsOf(lossNode->trainingGraph(nullptr)));
  const auto report = checkGradients(*graph, {randomImages(2, 1, 1, 4, 5)}, {randomLabels(2, 3, 6)});
  EXPECT_EQ(report.describe(), "");
  EXPECT_TRUE(report.passed());
  EXPECT_EQ(rowOf(report, "CNNLossNode", "source gradient").derivatives, 0);
}

/// a, ELU, b, squared error, chained by hand.
struct HandChained {
  std::shared_ptr<TrainableConvolution> aWeights = test::layer(device(), 1, 4, 4, "a");
  std::shared_ptr<CNNConvolutionNode> a = CNNConvolutionNode::create(NNImageNode::create(), aWeights);
  std::shared_ptr<CNNNeuronELUNode> elu = CNNNeuronELUNode::create(a->resultImage());
  std::shared_ptr<CNNConvolutionNode> b =
      CNNConvolutionNode::create(elu->resultImage(), test::layer(device(), 1, 4, 4, "b"));
  std::shared_ptr<CNNLossNode> loss = squaredError(b->resultImage());
  std::shared_ptr<NNGradientFilterNode> bGradient = b->gradientFilter(loss->resultImage());

  HandChained() {
    a->setLabel("a");
    b->setLabel("b");
  }

  /// With these nodes for the neuron and the first convolution.
  static GradientCheckReport check(const std::shared_ptr<NNFilterNode>& last) {
    const auto graph = graphOf({last->resultImage()}, true);
    std::vector<StateBatch> states;
    if (!graph->sourceStateHandles().empty())
      states.push_back(CNNLossLabels::createBatch(device(), {1, 1, 1}, randomImages(3, 2, 2, 4, 12)));
    return checkGradients(*graph, {randomImages(3, 2, 2, 4, 11)}, states);
  }
};

TEST(CheckGradients, AGraphThatIsChainedByHandIsRight) {
  const HandChained net;
  const auto eluGradient = net.elu->gradientFilter(net.bGradient->resultImage());
  const auto report = HandChained::check(net.a->gradientFilter(eluGradient->resultImage()));
  EXPECT_EQ(report.describe(), "");
  EXPECT_TRUE(report.passed());
}

TEST(CheckGradients, D21APlantedWrongKernelIsNamedAndNothingElse) {
  const HandChained net;
  const auto wrong = std::make_shared<AnyGradientNode>(
      net.bGradient->resultImage(), *net.elu, [&](const std::shared_ptr<mtl::Device>& on) {
        return std::make_shared<SpoiledNeuronGradientKernel>(on, net.elu->descriptor());
      });
  wrong->setLabel("spoiled");
  const auto report = HandChained::check(net.a->gradientFilter(wrong->resultImage()));
  EXPECT_EQ(failedNodes(report), std::vector<std::string>{wrong->describe()});
  EXPECT_FALSE(report.passed());
  EXPECT_EQ(report.failedCount(), 1U);
  const GradientCheckRow row = rowOf(report, "spoiled", "source gradient");
  EXPECT_EQ(row.kernel, "CNNNeuronGradient");
  EXPECT_THAT(row.report, HasSubstr("image 0, y 0, x 1, channel 3: found "));
  EXPECT_THAT(row.report, HasSubstr("expected "));
  EXPECT_THAT(report.describe(), HasSubstr("\"spoiled\" (CNNNeuronGradient), source gradient"));
}

TEST(CheckGradients, PlantedWrongWeightGradientsAreNamed) {
  const HandChained net;
  const auto eluGradient = net.elu->gradientFilter(net.bGradient->resultImage());
  const auto wrong = std::make_shared<AnyGradientNode>(
      eluGradient->resultImage(), *net.a, [&](const std::shared_ptr<mtl::Device>& on) {
        return std::make_shared<SpoiledConvolutionGradientKernel>(on, net.aWeights);
      });
  net.a->resultState()->setExportFromGraph(true);  // asks for the weights' gradient
  const auto report = HandChained::check(wrong);
  EXPECT_EQ(failedNodes(report), std::vector<std::string>{"AnyGradientNode \"a\""});  // by its data source
  EXPECT_THAT(rowOf(report, "AnyGradientNode", "weights").report,
              HasSubstr("image 1, y 0, x 0, channel 1: found "));
  EXPECT_TRUE(rowOf(report, "AnyGradientNode", "biases").passed());
}

TEST(CheckGradients, D21AGradientOfAnotherFunctionIsNamedByItsDerivative) {
  const HandChained net;
  const auto wrong = std::make_shared<AnyGradientNode>(
      net.bGradient->resultImage(), *net.elu, [](const std::shared_ptr<mtl::Device>& on) {
        return std::make_shared<CarelessNeuronGradientKernel>(
            on, NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ELU, 0.5F));
      });
  const auto report = HandChained::check(net.a->gradientFilter(wrong->resultImage()));
  EXPECT_EQ(failedNodes(report), std::vector<std::string>{wrong->describe()});
  const GradientCheckRow row = rowOf(report, "AnyGradientNode", "source gradient");
  EXPECT_THAT(row.report, HasSubstr("as the derivative of CNNNeuronELUNode"));
  EXPECT_THAT(row.report, HasSubstr("central differences give "));
  EXPECT_GT(row.worstDerivative, detail::kDerivativeTolerance);
}

TEST(CheckGradients, AChainThatLeavesOutALinkIsNamed) {
  const HandChained net;
  // The gradient of b's source has the size of a's result, but the neuron lies between them; the graph itself says so.
  const auto twice = NNAdditionNode::create(net.bGradient->resultImage(), net.bGradient->resultImage());
  const auto aGradient = net.a->gradientFilter(twice->resultImage());
  EXPECT_THAT(mps::testing::errorOf([&] { static_cast<void>(HandChained::check(aGradient)); }),
              HasSubstr("is the gradient of source 0 of CNNConvolutionNode \"b\", "
                        "expected that of the result of CNNConvolutionNode \"a\""));
}

TEST(CheckGradients, AChainThatBeginsWithAForwardImageIsNamed) {
  const HandChained net;
  const auto eluGradient = net.elu->gradientFilter(net.b->resultImage());
  const auto report = HandChained::check(net.a->gradientFilter(eluGradient->resultImage()));
  EXPECT_EQ(failedNodes(report), std::vector<std::string>{eluGradient->describe()});
  EXPECT_THAT(report.describe(), HasSubstr("it is given the forward result of CNNConvolutionNode \"b\""));
}

TEST(CheckGradients, AForkWhoseGradientsAreNotAddedIsNamed) {
  const auto x = NNImageNode::create();
  const auto a = CNNConvolutionNode::create(x, test::layer(device(), 1, 4, 4, "a"));
  const auto b = CNNConvolutionNode::create(a->resultImage(), test::layer(device(), 1, 4, 4, "b"));
  const auto sum = NNAdditionNode::create(a->resultImage(), b->resultImage());
  const auto loss = squaredError(sum->resultImage());
  const auto ofSum = sum->gradientFilters(loss->resultImage());
  const auto ofB = b->gradientFilter(ofSum[1]->resultImage());
  const auto right =
      a->gradientFilter(NNAdditionNode::create(ofSum[0]->resultImage(), ofB->resultImage())->resultImage());
  const auto wrong = a->gradientFilter(ofB->resultImage());
  const auto check = [&](const Images& results) {
    return checkGradients(*graphOf(results, true), {randomImages(2, 2, 2, 4, 3)},
                          {CNNLossLabels::createBatch(device(), {1, 1, 1}, randomImages(2, 2, 2, 4, 4))});
  };
  EXPECT_EQ(check({right->resultImage()}).describe(), "");
  const auto report = check({wrong->resultImage(), ofSum[0]->resultImage()});
  EXPECT_EQ(failedNodes(report), std::vector<std::string>{"CNNConvolutionGradientNode \"a\""});
  EXPECT_THAT(report.describe(), HasSubstr("source 0 of NNAdditionNode"));
}

TEST(CheckGradients, ArithmeticOfTheApplicationOnGradientsIsTakenAsItIs) {
  const HandChained net;
  const auto half = NNAdditionNode::create(net.bGradient->resultImage(), net.bGradient->resultImage());
  half->setPrimaryScale(0.25F);
  half->setSecondaryScale(0.25F);
  const auto eluGradient = net.elu->gradientFilter(half->resultImage());
  const auto report = HandChained::check(net.a->gradientFilter(eluGradient->resultImage()));
  EXPECT_EQ(report.describe(), "");
  EXPECT_TRUE(report.passed());
}

TEST(CheckGradients, ASumOfGradientsThatTheApplicationClipsIsTakenAsItIs) {
  const auto x = NNImageNode::create();
  const auto a = CNNConvolutionNode::create(x, test::layer(device(), 1, 4, 4, "a"));
  const auto b = CNNConvolutionNode::create(a->resultImage(), test::layer(device(), 1, 4, 4, "b"));
  const auto sum = NNAdditionNode::create(a->resultImage(), b->resultImage());
  const auto loss = squaredError(sum->resultImage());
  const auto clip = [](const std::shared_ptr<NNFilterNode>& node, const std::shared_ptr<NNFilterNode>&,
                       const std::shared_ptr<NNImageNode>&, const std::shared_ptr<NNImageNode>&) {
    if (auto* join = dynamic_cast<NNAdditionNode*>(node.get())) {
      join->setMinimumValue(-0.125F);
      join->setMaximumValue(0.125F);
    }
  };
  const auto report = checkGradients(
      *graphOf(resultsOf(loss->trainingGraph(nullptr, clip)), true), {randomImages(2, 2, 2, 4, 3)},
      {CNNLossLabels::createBatch(device(), {1, 1, 1}, randomImages(2, 2, 2, 4, 4))});
  EXPECT_EQ(report.describe(), "");
  EXPECT_TRUE(report.passed());
}

TEST(CheckGradients, InputsThatAreAllTiesAreReported) {
  const auto pool = CNNPoolingMaxNode::create(NNImageNode::create(), 2);
  const auto loss = squaredError(pool->resultImage());
  const auto graph = graphOf(resultsOf(loss->trainingGraph(nullptr)), true);
  auto flat = ImageBatch::create(device(), {ImageFeatureChannelFormat::Float32, 4, 4, 1}, 1);
  flat.writeBytes(std::span<const float>(std::vector<float>(16, 0.5F)),
                  DataLayout::HeightxWidthxFeatureChannels);
  const auto labels = CNNLossLabels::createBatch(device(), {1, 1, 1}, randomImages(1, 2, 2, 1, 1));
  const auto report = checkGradients(*graph, {flat}, {labels});
  const GradientCheckRow row = rowOf(report, "CNNPoolingMaxGradientNode", "source gradient");
  EXPECT_THAT(row.report, HasSubstr("next to a tie or a kink"));
  EXPECT_EQ(row.derivatives, 0);
  EXPECT_GT(row.skipped, 0);
  EXPECT_TRUE(checkGradients(*graph, {randomImages(1, 4, 4, 1, 2)}, {labels}).passed());
}

class Identity final : public CNNNeuronLinear {
 public:
  explicit Identity(std::shared_ptr<mtl::Device> on)
      : CNNNeuronLinear(std::move(on), NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::Linear, 1, 0)) {
  }
  using CNNNeuronLinear::prepareForward;
};

/// Knows no family.
class OwnKernel final : public CNNKernel {
 public:
  explicit OwnKernel(std::shared_ptr<mtl::Device> on) : CNNKernel(std::move(on)) {}
  [[nodiscard]] std::string className() const override { return "OwnKernel"; }
  [[nodiscard]] detail::PreparedCall prepareForward(const detail::ForwardCall& call) const override {
    auto prepared = std::make_shared<Identity>(device())->prepareForward(call);
    prepared.plan.problem = std::make_shared<const std::any>(7);
    return prepared;
  }

 protected:
  [[nodiscard]] std::shared_ptr<Kernel> clone() const override { return std::make_shared<OwnKernel>(*this); }
};

class OwnNode final : public NNFilterNode {
 public:
  explicit OwnNode(std::shared_ptr<NNImageNode> source) : NNFilterNode({std::move(source)}) {}
  [[nodiscard]] std::string className() const override { return "OwnNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& on) const override {
    return std::make_shared<OwnKernel>(on);
  }
};

TEST(CheckGradients, WrongUseIsRefusedWithASentence) {
  const auto messageOf = [](const std::function<void()>& use) {
    try {
      use();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  const Layers layers;
  const auto graph = layers.network.trainingGraph(device());
  const std::vector<StateBatch> labels{test::labels(device(), 0)};
  EXPECT_THAT(messageOf([&] {
                checkGradients(*graph, {test::pictures(device(), 0)}, labels, {.elementsPerTensor = 0});
              }),
              HasSubstr("elementsPerTensor"));
  EXPECT_THAT(messageOf([&] {
                const auto inference = graphOf({layers.network.dense->resultImage()}, true);
                checkGradients(*inference, {test::pictures(device(), 0)});
              }),
              HasSubstr("without gradient nodes"));
  EXPECT_THAT(messageOf([&] {
                const auto commandBuffer = device()->newCommandQueue()->commandBuffer();
                const auto temporary = ImageBatch::createTemporary(
                    commandBuffer, {ImageFeatureChannelFormat::Float32, 8, 8, 1}, SmallNetwork::batch);
                checkGradients(*graph, {temporary}, labels);
              }),
              HasSubstr("temporary images"));
  EXPECT_THAT(messageOf([&] { checkGradients(*graph, {}, labels); }), HasSubstr("sourceImages"));
  EXPECT_THAT(messageOf([&] {
                const auto own = std::make_shared<OwnNode>(NNImageNode::create());
                const auto a =
                    CNNFullyConnectedNode::create(own->resultImage(), test::layer(device(), 1, 4, 3, "a"));
                const auto ofA = a->gradientFilter(squaredError(a->resultImage())->resultImage());
                checkGradients(*graphOf({ofA->resultImage()}, true), {randomImages(1, 1, 1, 4, 1)},
                               {randomLabels(1, 3, 1)});
              }),
              HasSubstr("OwnKernel"));
}

}  // namespace
}  // namespace mps::check_gradients_test
