#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "mps/arithmetic/arithmetic_node.hpp"
#include "mps/conform/check_gradients.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/graph/check/test_network.hpp"
#include "mps/loss/forward_loss.hpp"
#include "mps/softmax/softmax.hpp"

/// Graphs whose losses are images, 7.9 and 11.7.
namespace mps::loss_graph_test {
namespace {

using test::SmallNetwork;
using testing::errorOf;
using testing::names;
using testing::Values;
using testing::valuesOf;
using Images = std::vector<std::shared_ptr<NNImageNode>>;
using Filters = std::vector<std::shared_ptr<NNFilterNode>>;

const std::shared_ptr<mtl::Device>& device() {
  static const auto device = mtl::createSystemDefaultDevice();
  return device;
}

CNNLossDescriptor loss(CNNLossType type, CNNReductionType reduction = CNNReductionType::Sum,
                       float weight = 1) {
  auto descriptor = CNNLossDescriptor::cnnLossDescriptor(type, reduction);
  descriptor.setWeight(weight);
  return descriptor;
}

std::vector<std::string> classesOf(const Filters& nodes) {
  std::vector<std::string> classes;
  for (const auto& node : nodes) classes.push_back(node->className());
  return classes;
}

std::shared_ptr<NNGraph> graphOf(const Filters& termini, bool areNeeded = true) {
  Images results;
  for (const auto& terminus : termini) results.push_back(terminus->resultImage());
  return NNGraph::create(device(), results, std::vector<bool>(results.size(), areNeeded));
}

ImageBatch pixels(std::size_t count, const Values& values) {
  auto images = ImageBatch::create(device(), testing::sizeOf(1, 1, values.size() / count), count);
  images.writeBytes(std::span(values), testing::pixelsFirst);
  return images;
}

/// The first result of one encode, and the others.
std::vector<Values> resultsOf(NNGraph& graph, const std::vector<ImageBatch>& sources) {
  const auto commandBuffer = device()->newCommandQueue()->commandBuffer();
  std::vector<ImageBatch> others;
  graph.setDestinationImageAllocator(Image::defaultAllocator());
  std::vector<ImageBatch> results{graph.encodeBatch(commandBuffer, sources, {}, &others, nullptr)};
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  results.insert(results.end(), others.begin(), others.end());
  std::vector<Values> values;
  for (const ImageBatch& result : results) values.push_back(valuesOf(result));
  return values;
}

SmallNetwork network() {
  return {test::layer(device(), 3, 1, 4, "conv"), test::layer(device(), 4, 4, 3, "dense")};
}

/// One-hot labels of the classes that test::labels gives.
ImageBatch oneHot(unsigned step) {
  Values values(SmallNetwork::batch * 3);
  for (std::size_t i = 0; i < SmallNetwork::batch; ++i) values[i * 3 + (step + i) % 3] = 1;
  return pixels(SmallNetwork::batch, values);
}

TEST(LossGraph, AForwardLossTrainsToTheBitsOfALoss) {
  const SmallNetwork usual = network();
  test::train(*usual.trainingGraph(device()), device(), 3);

  const SmallNetwork same = network();
  const auto labels = NNImageNode::create();
  const auto value = NNForwardLossNode::create(same.dense->resultImage(), labels, same.loss->descriptor());
  const auto graph =
      graphOf(NNInitialGradientNode::create(value->resultImage())->trainingGraph(nullptr), false);
  ASSERT_EQ(graph->sourceImageHandles().size(), 2U);
  const auto queue = device()->newCommandQueue();
  for (unsigned step = 0; step < 3; ++step) {
    const auto commandBuffer = queue->commandBuffer();
    graph->encodeBatch(commandBuffer, {test::pictures(device(), step), oneHot(step)}, {});
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
  }
  EXPECT_EQ(test::weightsOf(*same.first), test::weightsOf(*usual.first));
  EXPECT_EQ(test::weightsOf(*same.second), test::weightsOf(*usual.second));
}

TEST(LossGraph, D28AClassIndexOutOfRangeFailsTheStepThatReadsIt) {
  const SmallNetwork net = network();
  net.loss->setLabel("crossEntropy");
  const auto graph = net.trainingGraph(device());
  const auto labels = test::labels(device(), 0);
  CNNLossLabels::writeClassIndices(labels, std::vector<std::uint32_t>{0, 1, 2, 3, 0});
  const auto commandBuffer = device()->newCommandQueue()->commandBuffer();
  graph->encodeBatch(commandBuffer, {test::pictures(device(), 0)}, {labels});
  commandBuffer->commit();
  EXPECT_TRUE(names(errorOf([&] { commandBuffer->throwIfFailed(); }),
                    {"CNNLoss \"crossEntropy\"", "labels", "image 3", "class index 3", "less than 3"}));
  EXPECT_TRUE(names(errorOf([&] { valuesOf(*CNNLossLabels::lossImages(labels)[0]); }), {"class index 3"}));
  EXPECT_EQ(errorOf([&] { test::train(*network().trainingGraph(device()), device(), 1); }), "");
}

/// Section 11.7: f = L1 L2 gives each loss gradient the other loss.
TEST(LossGraph, TheProductOfTwoLossesIsDifferentiatedExactly) {
  const auto y = NNImageNode::create(), t = NNImageNode::create();
  const auto squares = NNForwardLossNode::create(y, t, loss(CNNLossType::MeanSquaredError));
  const auto distances = NNForwardLossNode::create(y, t, loss(CNNLossType::MeanAbsoluteError));
  const auto product = NNMultiplicationNode::create(squares->resultImage(), distances->resultImage());
  const auto termini = NNInitialGradientNode::create(product->resultImage())->trainingGraph(nullptr);
  EXPECT_EQ(classesOf(termini), std::vector<std::string>{"NNAdditionNode"});
  const auto graph = graphOf(termini);
  // L1 = 4 + 1 = 5, L2 = 2 + 1 = 3: dy = L2 2 (y - t) + L1 sign(y - t)
  EXPECT_EQ(resultsOf(*graph, {pixels(1, {3, 0}), pixels(1, {1, 1})}),
            std::vector<Values>{(Values{17, -11})});
  const auto report = checkGradients(*graph, {pixels(2, {3, 0, 0.5F, -2}), pixels(2, {1, 1, 0.25F, 3})});
  EXPECT_TRUE(report.passed()) << report.describe();
}

/// Section 4.2: two losses on one trunk, their sum and the initial gradient as self.
TEST(LossGraph, TwoLossesOnOneTrunkAreAdded) {
  const SmallNetwork net = network();
  const auto labels = NNImageNode::create(), weights = NNImageNode::create();
  const auto first =
      NNForwardLossNode::create(net.dense->resultImage(), labels, weights,
                                loss(CNNLossType::SigmoidCrossEntropy, CNNReductionType::Mean));
  const auto second = NNForwardLossNode::create(
      net.dense->resultImage(), labels, loss(CNNLossType::MeanSquaredError, CNNReductionType::Sum, 0.5F));
  const auto sum = NNAdditionNode::create(first->resultImage(), second->resultImage());
  const auto graph = graphOf(NNInitialGradientNode::create(sum->resultImage())->trainingGraph(nullptr));
  const auto report =
      checkGradients(*graph, {test::pictures(device(), 1), oneHot(1),
                              pixels(SmallNetwork::batch, testing::counted(SmallNetwork::batch * 3))});
  EXPECT_TRUE(report.passed()) << report.describe();
  std::size_t ofLosses = 0;
  for (const auto& row : report.rows)
    ofLosses += row.kernel == "NNLossGradient" && row.derivatives > 0 ? 1 : 0;
  EXPECT_EQ(ofLosses, 2U);
}

/// Question Q8: the labels have a gradient where the graph computes them.
TEST(LossGraph, Q8LabelsThatTheGraphComputesGetAGradient) {
  const auto y = NNImageNode::create(), x = NNImageNode::create();
  const auto labels = CNNSoftMaxNode::create(x);
  const auto value = NNForwardLossNode::create(y, labels->resultImage(), loss(CNNLossType::MeanSquaredError));
  const auto initial = NNInitialGradientNode::create(value->resultImage());
  const auto both = initial->trainingGraph(nullptr);
  EXPECT_EQ(classesOf(both), (std::vector<std::string>{"NNLossGradientNode", "CNNSoftMaxGradientNode"}));
  const auto graph = graphOf(both);
  const auto report = checkGradients(*graph, {pixels(2, {1, 2, 3, 4, 5, 6}), pixels(2, {1, 0, 2, 1, 1, 3})});
  EXPECT_TRUE(report.passed()) << report.describe();

  labels->resultImage()->setStopGradient(true);
  EXPECT_EQ(classesOf(initial->trainingGraph(nullptr)), std::vector<std::string>{"NNLossGradientNode"});
  EXPECT_EQ(classesOf(NNInitialGradientNode::create(
                          NNForwardLossNode::create(y, x, loss(CNNLossType::MeanSquaredError))->resultImage())
                          ->trainingGraph(nullptr)),
            std::vector<std::string>{"NNLossGradientNode"})
      << "labels from outside";
}

TEST(LossGraph, LossesOfEachElementAndAcrossTheBatchPassTheCheck) {
  for (const CNNReductionType reduction :
       {CNNReductionType::None, CNNReductionType::Mean, CNNReductionType::SumByNonZeroWeights})
    for (const bool acrossBatch : {false, true}) {
      const auto y = NNImageNode::create(), t = NNImageNode::create(), w = NNImageNode::create();
      auto descriptor = loss(CNNLossType::Huber, reduction, 0.5F);
      descriptor.setReduceAcrossBatch(acrossBatch);
      const auto value = NNForwardLossNode::create(y, t, w, descriptor);
      const auto graph = graphOf(NNInitialGradientNode::create(value->resultImage())->trainingGraph(nullptr));
      const auto report = checkGradients(
          *graph,
          {pixels(2, {1, 2, 3, 4, 5, 6}), pixels(2, {1.5F, 0, 2, 1, 1, 3}), pixels(2, {1, 0, 2, 0, 1, 3})});
      EXPECT_TRUE(report.passed()) << static_cast<int>(reduction) << acrossBatch << report.describe();
    }
}

/// A gradient of twice the loss, wired by hand.
TEST(LossGraph, AWrongFirstGradientIsNamedByTheCheck) {
  const auto y = NNImageNode::create(), t = NNImageNode::create();
  const auto value = NNForwardLossNode::create(y, t, loss(CNNLossType::MeanSquaredError));
  value->setLabel("value");
  const auto other = NNForwardLossNode::create(y, t, loss(CNNLossType::MeanAbsoluteError));
  const auto ofOther = NNInitialGradientNode::create(other->resultImage());
  const auto ofOwn = NNInitialGradientNode::create(value->resultImage());
  const auto wrong = value->gradientFilter(ofOther->resultImage());
  const auto graph = graphOf({wrong, ofOwn});
  const auto report = checkGradients(*graph, {pixels(1, {1, 2}), pixels(1, {0, 5})});
  EXPECT_FALSE(report.passed());
  EXPECT_TRUE(names(report.describe(), {"value", "gradient"}));
}

/// Gives 1, 2, 3, ...
class CountedWeight : public NNLossCallback {
 public:
  float scalarWeight(const std::shared_ptr<Image>&, const std::shared_ptr<Image>&) override {
    return static_cast<float>(++calls_);
  }

 private:
  int calls_ = 0;
};

TEST(LossGraph, TheCallBackIsAskedAtEachEncodeAndTheGradientTakesWhatItGave) {
  const auto y = NNImageNode::create(), t = NNImageNode::create();
  const auto value = NNForwardLossNode::create(y, t, loss(CNNLossType::MeanSquaredError));
  value->setPropertyCallBack(std::make_shared<CountedWeight>());
  value->resultImage()->setExportFromGraph(true);
  value->resultImage()->setImageAllocator(Image::defaultAllocator());
  const auto graph = graphOf(NNInitialGradientNode::create(value->resultImage())->trainingGraph(nullptr));
  for (const float weight : {1.0F, 2.0F, 3.0F})
    EXPECT_EQ(resultsOf(*graph, {pixels(1, {3, 1}), pixels(1, {1, 0})}),
              (std::vector<Values>{{4 * weight, 2 * weight}, {5 * weight}}));
}

TEST(LossGraph, AGradientNodeWithoutAStateUsesItsOwnNumbers) {
  const auto g = NNImageNode::create(), y = NNImageNode::create(), t = NNImageNode::create();
  const auto node = NNLossGradientNode::create(
      g, y, t, nullptr, loss(CNNLossType::MeanSquaredError, CNNReductionType::Sum, 2), false);
  const auto graph = graphOf({node});
  EXPECT_EQ(resultsOf(*graph, {pixels(1, {10}), pixels(1, {3, 1}), pixels(1, {1, 0})}),
            std::vector<Values>{(Values{80, 40})});
}

TEST(LossGraph, SizesThatDoNotFitAreNamed) {
  const auto y = NNImageNode::create(), t = NNImageNode::create();
  const auto value = NNForwardLossNode::create(y, t, loss(CNNLossType::MeanSquaredError));
  value->setLabel("value");
  const auto graph = graphOf({value});
  EXPECT_TRUE(names(errorOf([&] {
                      resultsOf(*graph, {pixels(1, {3, 1}), pixels(1, {1})});
                    }),
                    {"NNForwardLoss \"value\"", "labels", "1x1x1"}));
}

}  // namespace
}  // namespace mps::loss_graph_test
