#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mps/arithmetic/arithmetic_node.hpp"
#include "mps/batch_normalization/batch_normalization_node.hpp"
#include "mps/conform/check_gradients.hpp"
#include "mps/conform/tolerance.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/graph/check/test_network.hpp"
#include "mps/graph/compile/graph_program.hpp"
#include "mps/trainable/trainable_batch_normalization.hpp"
#include "mtl/check/test_devices.hpp"

/// The pass that puts a neuron into the batch normalisation before it, and its derivative into that one's gradient.
namespace mps::batch_normalization_fusion_test {
namespace {

using test::SmallNetwork;
using testing::Values;
using testing::valuesOf;

using Source = std::shared_ptr<NNImageNode>;
using MakeNeuron = std::function<std::shared_ptr<CNNNeuronNode>(const Source&)>;
using Visit = std::function<void(NNFilterNode& gradient)>;
using Weights = std::vector<Values>;

class BatchNormalizationFusion : public ::testing::TestWithParam<std::shared_ptr<mtl::Device>> {
 protected:
  /// conv 3x3x4, batch normalisation, neuron, fully connected 3, loss.
  struct Network {
    std::shared_ptr<TrainableConvolution> convolution, dense;
    std::shared_ptr<TrainableBatchNormalization> layer;
    std::shared_ptr<CNNBatchNormalizationNode> normalization;
    std::shared_ptr<CNNNeuronNode> neuron;
    std::shared_ptr<CNNLossNode> loss;
  };
  static std::shared_ptr<CNNNeuronNode> relu(const Source& x) { return CNNNeuronReLUNode::create(x); }

  /// @param branch something else that reads the neuron's source and result, and gives an image like them
  Network network(const MakeNeuron& make = relu,
                  const std::function<Source(const Source& x, const Source& y)>& branch = nullptr) const {
    Network made;
    made.convolution = test::layer(device_, 3, 1, 4, "conv");
    made.dense = test::layer(device_, 8, 4, 3, "dense");
    made.layer = TrainableBatchNormalization::create(device_, 4, "norm", test::sgd(device_));
    const auto convolution = CNNConvolutionNode::create(NNImageNode::create(), made.convolution);
    made.normalization = CNNBatchNormalizationNode::create(convolution->resultImage(), made.layer);
    made.neuron = make(made.normalization->resultImage());
    Source result = made.neuron->resultImage();
    if (branch) result = branch(made.normalization->resultImage(), result);
    const auto dense = CNNFullyConnectedNode::create(result, made.dense);
    auto descriptor =
        CNNLossDescriptor::cnnLossDescriptor(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Sum);
    descriptor.setWeight(1.0F / SmallNetwork::batch);
    made.loss = CNNLossNode::create(dense->resultImage(), descriptor);
    return made;
  }
  std::shared_ptr<NNGraph> training(const Network& network, const Visit& visit = nullptr) const {
    std::vector<Source> results;
    for (const auto& terminus : network.loss->trainingGraph(
             nullptr, [&](const std::shared_ptr<NNFilterNode>&node, const std::shared_ptr<NNFilterNode>&,
                          const Source&, const Source&) {
               if (visit) visit(*node);
             }))
      results.push_back(terminus->resultImage());
    return NNGraph::create(device_, results, std::vector<bool>(results.size(), false));
  }
  static std::size_t stepsOf(const NNGraph& graph, const std::string& className) {
    std::size_t count = 0;
    for (const auto& step : graph.program().steps) count += step.kernel->className() == className ? 1U : 0U;
    return count;
  }
  /// Of a training graph: forward and gradient, or neither.
  bool fuses(const Network& network, const Visit& visit = nullptr) const {
    const auto graph = training(network, visit);
    const std::size_t forward = stepsOf(*graph, "CNNNeuron");
    EXPECT_EQ(forward, stepsOf(*graph, "CNNNeuronGradient"));
    return forward == 0;
  }
  bool fusesInInference(const Network& network) const {
    const auto graph = NNGraph::create(device_, network.neuron->resultImage());
    return stepsOf(*graph, "CNNNeuron") == 0;
  }
  template <class Layer>
  Values synchronized(Layer& layer, const std::function<Values()>& values) const {
    const auto commandBuffer = device_->newCommandQueue()->commandBuffer();
    layer.synchronize(commandBuffer);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    return values();
  }
  static Values copyOf(std::span<const float> values) { return {values.begin(), values.end()}; }
  Weights weightsOf(const Network& network) const {
    Weights weights;
    for (const auto& layer : {network.convolution, network.dense})
      weights.push_back(synchronized(*layer, [&] { return test::weightsOf(*layer); }));
    weights.push_back(synchronized(*network.layer, [&] { return copyOf(network.layer->gamma()); }));
    weights.push_back(copyOf(network.layer->beta()));
    weights.push_back(copyOf(network.layer->mean()));
    return weights;
  }
  Weights trained(const Network& network, const Visit& visit = nullptr, unsigned steps = 6) const {
    test::train(*training(network, visit), device_, steps, 2);
    return weightsOf(network);
  }
  /// Sums over the batch may go by other chunks; what is summed has the same bits.
  static void expectSame(const Weights& found, const Weights& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      for (std::size_t k = 0; k < found[i].size(); ++k)
        ASSERT_NEAR(found[i][k], expected[i][k], detail::arithmeticBound(1, 64, 0)) << i << ", " << k;
  }
  Values resultOf(const Source& node) const {
    const auto graph = NNGraph::create(device_, node);
    const auto commandBuffer = device_->newCommandQueue()->commandBuffer();
    const auto result = graph->encodeBatch(commandBuffer, {test::pictures(device_, 2)});
    ImageBatchSynchronize(result, commandBuffer);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    return valuesOf(result);
  }
  /// Exports the gradients of neurons, so that nothing is fused across them.
  static void exportNeuronGradients(NNFilterNode& gradient) {
    if (gradient.className().find("ReLUGradient") != std::string::npos ||
        gradient.className().find("NeuronGradient") != std::string::npos)
      gradient.resultImage()->setExportFromGraph(true);
  }

  std::shared_ptr<mtl::Device> device_ = GetParam();
};

TEST_P(BatchNormalizationFusion, ANeuronGoesIntoTheNormalizationAndItsGradientIntoThatOfIt) {
  const Network made = network();
  const auto graph = training(made);
  EXPECT_EQ(stepsOf(*graph, "CNNNeuron"), 0U);
  EXPECT_EQ(stepsOf(*graph, "CNNNeuronGradient"), 0U);
  EXPECT_THAT(graph->debugDescription(),
              ::testing::ContainsRegex("CNNBatchNormalization. with CNNNeuronReLUNode"));
  EXPECT_THAT(graph->debugDescription(),
              ::testing::ContainsRegex("CNNBatchNormalizationStatisticsGradient. with CNNNeuron"));
}

TEST_P(BatchNormalizationFusion, WeightsAreThoseOfATrainingInWhichBothAreSteps) {
  ASSERT_FALSE(fuses(network(), exportNeuronGradients));
  expectSame(trained(network()), trained(network(), exportNeuronGradients));
  const auto linear = [](const Source& x) { return CNNNeuronLinearNode::create(x); };
  EXPECT_NE(trained(network()), trained(network(linear)));
}

TEST_P(BatchNormalizationFusion, InInferenceTheResultHasTheSameBits) {
  const std::vector<MakeNeuron> table{
      relu,
      [](const Source& x) { return CNNNeuronReLUNode::create(x, 0.25F); },
      [](const Source& x) { return CNNNeuronAbsoluteNode::create(x); },
      [](const Source& x) { return CNNNeuronSigmoidNode::create(x); },
      [](const Source& x) {
        return CNNNeuronPReLUNode::create(x, std::vector<float>{0.5F, 0, -1, 2});
      },
  };
  for (const auto& make : table) {
    const Network made = network(make);
    ASSERT_TRUE(fusesInInference(made)) << made.neuron->describe();
    const Values fused = resultOf(made.neuron->resultImage());
    made.normalization->resultImage()->setExportFromGraph(true);
    ASSERT_FALSE(fusesInInference(made));
    EXPECT_EQ(resultOf(made.neuron->resultImage()), fused) << made.neuron->describe();
  }
}

/// The derivative is computed from the source, so neurons whose result does not tell it are fused, too.
TEST_P(BatchNormalizationFusion, GradientsOfEveryKindOfNeuronAreRight) {
  const std::vector<MakeNeuron> table{
      relu,
      [](const Source& x) { return CNNNeuronReLUNode::create(x, -0.25F); },
      [](const Source& x) { return CNNNeuronTanHNode::create(x); },
      [](const Source& x) { return CNNNeuronSigmoidNode::create(x); },
      [](const Source& x) { return CNNNeuronAbsoluteNode::create(x); },
      [](const Source& x) { return CNNNeuronGeLUNode::create(x); },
      [](const Source& x) {
        return CNNNeuronPReLUNode::create(x, std::vector<float>{0.5F, 0, -1, 2});
      },
  };
  for (const auto& make : table) {
    const Network made = network(make);
    ASSERT_TRUE(fuses(made));
    const auto report =
        checkGradients(*training(made), {test::pictures(device_, 0)}, {test::labels(device_, 0)});
    EXPECT_EQ(report.describe(), "") << made.neuron->describe();
    EXPECT_TRUE(report.passed());
  }
}

TEST_P(BatchNormalizationFusion, GradientsWithConstantStatisticsAreRight) {
  const Network made = network();
  made.normalization->setFlags(CNNBatchNormalizationFlags::CalculateStatisticsNever);
  ASSERT_TRUE(fuses(made));
  const auto report =
      checkGradients(*training(made), {test::pictures(device_, 0)}, {test::labels(device_, 0)});
  EXPECT_EQ(report.describe(), "");
  EXPECT_TRUE(report.passed());
  test::train(*training(made), device_, 3);
}

/// Batch normalisation and a neuron on five images of one pixel with two channels.
/// @param first channel 0 of the images; channel 1 is far from all kinks
GradientCheckReport checkOfPixels(const std::shared_ptr<mtl::Device>& device, const MakeNeuron& make,
                                  const Values& first) {
  const auto layer = TrainableBatchNormalization::create(device, 2, "norm", test::sgd(device));
  const auto normalization = CNNBatchNormalizationNode::create(NNImageNode::create(), layer);
  const auto neuron = make(normalization->resultImage());
  const auto loss = CNNLossNode::create(
      neuron->resultImage(),
      CNNLossDescriptor::cnnLossDescriptor(CNNLossType::MeanSquaredError, CNNReductionType::Sum));
  const auto graph = NNGraph::create(device, loss->trainingGraph(nullptr)[0]->resultImage(), false);
  const Values second{1, -2, 3, -1.5F, 0.25F};
  auto images = ImageBatch::create(device, testing::sizeOf(1, 1, 2), first.size());
  auto labels = ImageBatch::create(device, testing::sizeOf(1, 1, 2), first.size());
  Values interleaved;
  for (std::size_t i = 0; i < first.size(); ++i) interleaved.insert(interleaved.end(), {first[i], second[i]});
  images.writeBytes(std::span<const float>(interleaved), testing::pixelsFirst);
  labels.writeBytes(std::span<const float>(Values{3, -1, 2, 5, -4, 2, 1, 0.5F, -2, 3}), testing::pixelsFirst);
  return checkGradients(*graph, {images}, {CNNLossLabels::createBatch(device, {1, 1, 1}, labels)});
}

/// Normalised, three of the values are -2^-23 / 5 by some factor in float64, and 0 for a kernel, whose mean is a float32.
TEST_P(BatchNormalizationFusion, AGradientWithinRoundingOfItsKinkIsRight) {
  const Values values{0, 1 + 0x1p-23F, 0.5F, 0.5F, 0.5F};
  const std::vector<MakeNeuron> table{relu, [](const Source& x) { return CNNNeuronAbsoluteNode::create(x); },
                                      [](const Source& x) {
                                        return CNNNeuronPReLUNode::create(x, std::vector<float>{0.5F, -1});
                                      }};
  for (const auto& make : table) {
    const auto report = checkOfPixels(device_, make, values);
    EXPECT_EQ(report.describe(), "");
    EXPECT_TRUE(report.passed());
  }
}

/// What z is off by grows with the mean, whose rounding it has.
TEST_P(BatchNormalizationFusion, ASmoothGradientFarFromZeroIsRight) {
  const auto report = checkOfPixels(device_, [](const Source& x) { return CNNNeuronTanHNode::create(x); },
                                    {10000.5F, 10001.25F, 9999, 10000, 10002});
  EXPECT_EQ(report.describe(), "");
  EXPECT_TRUE(report.passed());
}

TEST_P(BatchNormalizationFusion, NotWhereSomebodyWantsTheImageBetween) {
  ASSERT_TRUE(fuses(network()));
  const auto both = [](const Source& x, const Source& y) {
    return NNAdditionNode::create(x, y)->resultImage();
  };
  EXPECT_FALSE(fuses(network(relu, both)));
  const Network exported = network();
  exported.normalization->resultImage()->setExportFromGraph(true);
  EXPECT_FALSE(fuses(exported));
  const Network ofAnotherFormat = network();
  ofAnotherFormat.normalization->resultImage()->setFormat(ImageFeatureChannelFormat::Float16);
  EXPECT_FALSE(fuses(ofAnotherFormat));
  const Network allocated = network();
  allocated.normalization->resultImage()->setImageAllocator(Image::defaultAllocator());
  EXPECT_FALSE(fuses(allocated));
  const Network result = network();
  const auto graph =
      NNGraph::create(device_, {result.neuron->resultImage(), result.normalization->resultImage()});
  EXPECT_EQ(stepsOf(*graph, "CNNNeuron"), 1U);
}

TEST_P(BatchNormalizationFusion, NotWhereSomebodyWantsTheGradientBetween) {
  EXPECT_FALSE(fuses(network(), exportNeuronGradients));
  EXPECT_FALSE(fuses(network(), [](NNFilterNode& gradient) {
    if (gradient.className() == "CNNNeuronGradientNode")
      gradient.resultImage()->setFormat(ImageFeatureChannelFormat::Float16);
  }));
  EXPECT_FALSE(fuses(network(), [](NNFilterNode& gradient) {
    if (gradient.className() == "CNNNeuronGradientNode")
      gradient.resultImage()->setImageAllocator(Image::defaultAllocator());
  }));
}

TEST_P(BatchNormalizationFusion, NotWithACustomPaddingPolicyOnTheNeuron) {
  const Network made = network();
  made.neuron->setPaddingPolicy(std::make_shared<test::CustomPadding>());
  EXPECT_FALSE(fuses(made));
  EXPECT_FALSE(fusesInInference(made));
}

/// Somebody may differentiate with them.
TEST_P(BatchNormalizationFusion, NotWhereAStateIsExported) {
  const Network ofNeuron = network();
  ofNeuron.neuron->resultState()->setExportFromGraph(true);
  EXPECT_FALSE(fuses(ofNeuron));
  const Network ofNormalization = network();
  ofNormalization.normalization->resultState()->setExportFromGraph(true);
  EXPECT_FALSE(fuses(ofNormalization));
  EXPECT_FALSE(fusesInInference(ofNormalization));
}

TEST_P(BatchNormalizationFusion, NotWithTooFewSlopes) {
  const Network made = network([](const Source& x) {
    return CNNNeuronPReLUNode::create(x, std::vector<float>{0.5F, 0});
  });
  EXPECT_FALSE(fusesInInference(made));
}

TEST_P(BatchNormalizationFusion, OfTwoNeuronsInARowTheFirst) {
  const Network made = network(
      relu, [](const Source&, const Source& y) { return CNNNeuronTanHNode::create(y)->resultImage(); });
  const auto graph = training(made);
  EXPECT_EQ(stepsOf(*graph, "CNNNeuron"), 1U);
  EXPECT_EQ(stepsOf(*graph, "CNNNeuronGradient"), 1U);
}

/// Blocks as of a residual network: y = ReLU(x + norm(conv(ReLU(norm(conv(x)))))).
TEST_P(BatchNormalizationFusion, AResidualNetworkTrainsToTheSameCurve) {
  const auto make = [&](std::vector<std::shared_ptr<TrainableBatchNormalization>>& layers) {
    const auto normalized = [&](const Source& x) {
      layers.push_back(TrainableBatchNormalization::create(device_, 4, "norm", test::sgd(device_)));
      return CNNBatchNormalizationNode::create(x, layers.back())->resultImage();
    };
    const auto convolution = [&](const Source& x, std::size_t channels, const char* label) {
      return CNNConvolutionNode::create(x, test::layer(device_, 3, channels, 4, label))->resultImage();
    };
    Source x = relu(normalized(convolution(NNImageNode::create(), 1, "stem")))->resultImage();
    for (const char* label : {"first", "second"}) {
      const Source inner = relu(normalized(convolution(x, 4, label)))->resultImage();
      x = relu(NNAdditionNode::create(normalized(convolution(inner, 4, "last")), x)->resultImage())
              ->resultImage();
    }
    Network made;
    auto descriptor =
        CNNLossDescriptor::cnnLossDescriptor(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Sum);
    descriptor.setWeight(1.0F / SmallNetwork::batch);
    made.dense = test::layer(device_, 8, 4, 3, "dense");
    made.loss = CNNLossNode::create(CNNFullyConnectedNode::create(x, made.dense)->resultImage(), descriptor);
    return made;
  };
  const auto curve = [&](const Visit& visit) {
    std::vector<std::shared_ptr<TrainableBatchNormalization>> layers;
    const Network made = make(layers);
    const auto graph = training(made, visit);
    EXPECT_EQ(stepsOf(*graph, "CNNBatchNormalization"), 5U);
    test::train(*graph, device_, 10, 2);
    Weights weights{synchronized(*made.dense, [&] { return test::weightsOf(*made.dense); })};
    for (const auto& layer : layers)
      weights.push_back(synchronized(*layer, [&] { return copyOf(layer->gamma()); }));
    return weights;
  };
  expectSame(curve(nullptr), curve(exportNeuronGradients));
  std::vector<std::shared_ptr<TrainableBatchNormalization>> layers;
  const auto report =
      checkGradients(*training(make(layers)), {test::pictures(device_, 0)}, {test::labels(device_, 0)});
  EXPECT_EQ(report.describe(), "");
}

TEST_P(BatchNormalizationFusion, ADecodedGraphComputesTheSame) {
  const Network made = network();
  const auto graph = training(made);
  KeyedArchiver archiver;
  graph->encode(archiver);
  KeyedUnarchiver unarchiver(archiver.encodedData());
  const auto decoded = NNGraph::decode(unarchiver, device_);
  EXPECT_EQ(decoded->debugDescription(), graph->debugDescription());
  const auto inference = NNGraph::create(device_, made.neuron->resultImage());
  KeyedArchiver second;
  inference->encode(second);
  KeyedUnarchiver again(second.encodedData());
  const auto result = [&](NNGraph& of) {
    const auto commandBuffer = device_->newCommandQueue()->commandBuffer();
    const auto images = of.encodeBatch(commandBuffer, {test::pictures(device_, 2)});
    ImageBatchSynchronize(images, commandBuffer);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    return valuesOf(images);
  };
  EXPECT_EQ(result(*NNGraph::decode(again, device_)), result(*inference));
  test::train(*decoded, device_, 2);
}

INSTANTIATE_TEST_SUITE_P(Devices, BatchNormalizationFusion, ::testing::ValuesIn(mtl::copyAllDevices()),
                         mtl::testing::nameOf);

}  // namespace
}  // namespace mps::batch_normalization_fusion_test
