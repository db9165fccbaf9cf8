#include "train/network/network.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "mps/batch_normalization/batch_normalization_node.hpp"
#include "mps/convolution/convolution_node.hpp"
#include "mps/core/image/image_batch.hpp"
#include "mps/core/types/error.hpp"
#include "mps/dropout/dropout.hpp"
#include "mps/loss/loss.hpp"
#include "mps/loss/loss_node.hpp"
#include "mps/neuron/neuron_node.hpp"
#include "mps/pooling/pooling_node.hpp"
#include "mps/trainable/trainable_batch_normalization.hpp"
#include "mps/weights/test_folder.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "train/data/dataset.hpp"
#include "train/training/trainer.hpp"

namespace unmetal::train::network_test {
namespace {

using mps::detail::errorOf;
using ::testing::HasSubstr;

const std::shared_ptr<mtl::Device>& device() {
  static const auto device = mtl::newCPUDevice(1);
  return device;
}

Network networkOf(const Shape& pictures, std::uint64_t seed = 0) {
  return Network(pictures, {.seed = seed, .device = device()});
}

std::shared_ptr<mps::NNOptimizer> adam() {
  return mps::NNOptimizerAdam::create(device(), 0.01F);
}

mps::ImageBatch pictures(const Shape& shape, std::size_t count) {
  auto images = mps::ImageBatch::create(
      device(), {mps::ImageFeatureChannelFormat::Float32, shape.width, shape.height, shape.channels}, count);
  std::vector<float> values(count * shape.count());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * i % 101) / 101;
  images.writeBytes(std::span<const float>(values), mps::DataLayout::HeightxWidthxFeatureChannels);
  return images;
}

/// Some steps on the same pictures.
void trainSome(mps::NNGraph& training, const Shape& shape, std::size_t count, std::uint32_t classes) {
  const auto labels = mps::CNNLossLabels::createClassBatch(device(), count);
  std::vector<std::uint32_t> indices(count);
  for (std::size_t i = 0; i < count; ++i) indices[i] = static_cast<std::uint32_t>(i) % classes;
  mps::CNNLossLabels::writeClassIndices(labels, indices);
  const auto queue = device()->newCommandQueue();
  for (int step = 0; step < 3; ++step) {
    const auto commandBuffer = queue->commandBuffer();
    training.encodeBatch(commandBuffer, {pictures(shape, count)}, {labels});
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
  }
}

std::vector<float> resultOf(mps::NNGraph& graph, const Shape& shape, std::size_t count,
                            Shape* resultShape = nullptr) {
  const auto commandBuffer = device()->newCommandQueue()->commandBuffer();
  const mps::ImageBatch result = graph.encodeBatch(commandBuffer, {pictures(shape, count)});
  mps::ImageBatchSynchronize(result, commandBuffer);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  const auto& descriptor = result.descriptor();
  if (resultShape != nullptr)
    *resultShape = {descriptor.height(), descriptor.width(), descriptor.featureChannels()};
  std::vector<float> values(count * descriptor.height() * descriptor.width() * descriptor.featureChannels());
  result.readBytes(std::span(values), mps::DataLayout::HeightxWidthxFeatureChannels);
  return values;
}

std::vector<std::byte> bytesOf(const std::vector<std::shared_ptr<mps::TrainableLayer>>& layers,
                               bool withOptimizerState = true) {
  std::vector<std::byte> bytes;
  for (const auto& layer : layers)
    for (const mps::SafetensorsTensor& tensor : layer->tensors(withOptimizerState))
      bytes.insert(bytes.end(), tensor.bytes.begin(), tensor.bytes.end());
  return bytes;
}

TEST(Network, IsWrittenInAFewLines) {
  const Network network = networkOf({28, 28, 1});
  auto x = network.input();
  x = x.convolution(32, 5).relu().maxPool(2);
  x = x.convolution(64, 5).relu().maxPool(2);
  x = x.dense(1024).relu().dropout(0.5F).dense(10);
  EXPECT_EQ(x.shape(), (Shape{1, 1, 10}));
  EXPECT_EQ(network.parameterCount(), 3'274'634U);
  EXPECT_EQ(network.summary(), R"(layer                result    parameters    memory  multiply-adds
input                28x28x1               3.06 KiB
conv1 (convolution)  28x28x32         832    98 KiB          627 k
relu1 (relu)         28x28x32                98 KiB
maxPool1 (maxPool)   14x14x32              24.5 KiB
conv2 (convolution)  14x14x64      51,264    49 KiB           10 M
relu2 (relu)         14x14x64                49 KiB
maxPool2 (maxPool)   7x7x64                12.2 KiB
dense1 (dense)       1x1x1024   3,212,288     4 KiB         3.21 M
relu3 (relu)         1x1x1024                 4 KiB
dropout1 (dropout)   1x1x1024                 4 KiB
dense2 (dense)       1x1x10        10,250      40 B         10.2 k
sum                             3,274,634   346 KiB         13.9 M
)");
}

Features residualBlock(const Features& x, std::size_t channels, std::size_t stride) {
  auto y = x.convolution(channels, 3, {.stride = stride, .biases = false}).batchNormalization().relu();
  y = y.convolution(channels, 3, {.biases = false}).batchNormalization();
  if (stride == 1 && x.channels() == channels) return (x + y).relu();
  const auto shortcut = x.convolution(channels, 1, {.stride = stride, .biases = false});
  return (shortcut.batchNormalization() + y).relu();
}

TEST(Network, AResnetTrains) {
  const Shape shape{12, 12, 3};
  Network network = networkOf(shape);
  auto x = network.input().convolution(4, 3, {.biases = false}).batchNormalization().relu();
  for (const std::size_t stride : {1U, 2U, 1U}) x = residualBlock(x, stride == 1 ? x.channels() : 8, stride);
  EXPECT_EQ(x.shape(), (Shape{6, 6, 8}));
  x.globalAveragePool().dense(3);
  EXPECT_EQ(network.trainableLayers().size(), 17U);
  network.setOptimizer(adam());
  const auto inference = network.makeInferenceGraph();
  const auto before = resultOf(*inference, shape, 6);
  trainSome(*network.makeTrainingGraph(6).graph, shape, 6, 3);
  EXPECT_NE(resultOf(*inference, shape, 6), before);
}

/// The same network by hand has the same bytes.
TEST(Network, TrainsAsTheNodesThatItStandsFor) {
  const Shape shape{9, 8, 2};
  constexpr std::uint64_t seed = 3;
  Network network = networkOf(shape, seed);
  network.input()
      .convolution(6, 3, {.stride = 2, .biases = false})
      .batchNormalization()
      .relu()
      .maxPool(2)
      .dropout(0.25F)
      .dense(4);
  network.setOptimizer(adam());
  trainSome(*network.makeTrainingGraph(5).graph, shape, 5, 4);

  auto descriptor = mps::CNNConvolutionDescriptor::create(3, 3, 2, 6);
  descriptor.setStrideInPixelsX(2);
  descriptor.setStrideInPixelsY(2);
  const auto conv = mps::TrainableConvolution::create(device(), descriptor, "conv1", 3000, adam(),
                                                      mps::WeightInitialization::He, mps::AdamForm::Adam,
                                                      mps::LayerBiases::None);
  const auto bn = mps::TrainableBatchNormalization::create(device(), 6, "bn1", adam(), 0.9F, 1e-5F);
  const auto dense = mps::TrainableConvolution::create(
      device(), mps::CNNConvolutionDescriptor::create(2, 2, 6, 4), "dense1", 3002, adam());
  auto image = mps::CNNConvolutionNode::create(mps::NNImageNode::create(), conv)->resultImage();
  image = mps::CNNBatchNormalizationNode::create(image, bn)->resultImage();
  image = mps::CNNNeuronReLUNode::create(image)->resultImage();
  const auto pool = mps::CNNPoolingMaxNode::create(image, 2);
  pool->setPaddingPolicy(mps::NNDefaultPadding::create(mps::NNPaddingMethod::SizeValidOnly));
  image = mps::CNNDropoutNode::create(pool->resultImage(), 0.75F, 3999)->resultImage();
  image = mps::CNNFullyConnectedNode::create(image, dense)->resultImage();
  auto loss =
      mps::CNNLossDescriptor::create(mps::CNNLossType::SoftMaxCrossEntropy, mps::CNNReductionType::Sum);
  loss.setWeight(1.0F / 5);
  const auto terminus = mps::CNNLossNode::create(image, loss)->trainingGraph(nullptr);
  ASSERT_EQ(terminus.size(), 1U);
  trainSome(*mps::NNGraph::create(device(), terminus[0]->resultImage(), false), shape, 5, 4);

  EXPECT_EQ(bytesOf(network.trainableLayers()), bytesOf({conv, bn, dense}));
}

struct KindCase {
  std::string name;
  Features (*add)(const Features&);
  Shape shape;
};
const KindCase kinds[] = {
    {"convolution", [](const Features& x) { return x.convolution(5, 3); }, {7, 9, 5}},
    {"convolution, strided", [](const Features& x) { return x.convolution(4, 2, {.stride = 2}); }, {4, 5, 4}},
    {"convolution, valid",
     [](const Features& x) {
       return x.convolution(4, 3, {.stride = 2, .padding = Padding::Valid, .dilation = 2, .groups = 2});
     },
     {2, 3, 4}},
    {"transposed convolution", [](const Features& x) { return x.transposedConvolution(3, 4); }, {16, 20, 3}},
    {"dense", [](const Features& x) { return x.dense(4); }, {1, 1, 4}},
    {"batch normalisation", [](const Features& x) { return x.batchNormalization(); }, {7, 9, 6}},
    {"instance normalisation", [](const Features& x) { return x.instanceNormalization(); }, {7, 9, 6}},
    {"group normalisation", [](const Features& x) { return x.groupNormalization(3); }, {7, 9, 6}},
    {"cross-channel normalisation",
     [](const Features& x) { return x.crossChannelNormalization(); },
     {7, 9, 6}},
    {"relu", [](const Features& x) { return x.relu(); }, {7, 9, 6}},
    {"leakyRelu", [](const Features& x) { return x.leakyRelu(); }, {7, 9, 6}},
    {"relu6", [](const Features& x) { return x.relu6(); }, {7, 9, 6}},
    {"elu", [](const Features& x) { return x.elu(); }, {7, 9, 6}},
    {"gelu", [](const Features& x) { return x.gelu(); }, {7, 9, 6}},
    {"sigmoid", [](const Features& x) { return x.sigmoid(); }, {7, 9, 6}},
    {"hardSigmoid", [](const Features& x) { return x.hardSigmoid(); }, {7, 9, 6}},
    {"tanh", [](const Features& x) { return x.tanh(); }, {7, 9, 6}},
    {"softplus", [](const Features& x) { return x.softplus(); }, {7, 9, 6}},
    {"softsign", [](const Features& x) { return x.softsign(); }, {7, 9, 6}},
    {"softmax", [](const Features& x) { return x.softmax(); }, {7, 9, 6}},
    {"max pool", [](const Features& x) { return x.maxPool(2); }, {3, 4, 6}},
    {"max pool, same",
     [](const Features& x) { return x.maxPool(3, {.stride = 2, .padding = Padding::Same}); },
     {4, 5, 6}},
    {"average pool", [](const Features& x) { return x.averagePool(3, {.stride = 2}); }, {3, 4, 6}},
    {"global average pool", [](const Features& x) { return x.globalAveragePool(); }, {1, 1, 6}},
    {"dropout", [](const Features& x) { return x.dropout(); }, {7, 9, 6}},
    {"upsample", [](const Features& x) { return x.upsample(3); }, {21, 27, 6}},
    {"upsample, bilinear",
     [](const Features& x) { return x.upsample(2, UpsamplingMode::Bilinear); },
     {14, 18, 6}},
    {"add", [](const Features& x) { return x.add(x.tanh()); }, {7, 9, 6}},
    {"concatenate", [](const Features& x) { return x.concatenate(x.maxPool(1).dropout()); }, {7, 9, 12}}};

TEST(Network, EachKindHasTheShapeThatItSaysAndTrains) {
  const Shape shape{7, 9, 6};
  for (const KindCase& kind : kinds) {
    Network network = networkOf(shape);
    // With something to train before it: a gradient goes through.
    const auto x = kind.add(network.input().convolution(6, 1));
    EXPECT_EQ(x.shape(), kind.shape) << kind.name;
    Shape made;
    const auto graph =
        mps::NNGraph::create(device(), network.makeNodes(mps::NNImageNode::create(), GraphKind::Inference));
    resultOf(*graph, shape, 2, &made);
    EXPECT_EQ(made, kind.shape) << kind.name;
    x.tanh().convolution(3, 1).globalAveragePool();
    network.setOptimizer(adam());
    const auto before = bytesOf({network.trainableLayers().front()}, false);
    trainSome(*network.makeTrainingGraph(2).graph, shape, 2, 3);
    EXPECT_NE(bytesOf({network.trainableLayers().front()}, false), before) << kind.name;
  }
}

TEST(Network, ASoftmaxAtTheEndChangesNothing) {
  const Shape shape{4, 4, 1};
  std::vector<std::vector<std::byte>> weights;
  std::vector<std::vector<float>> probabilities;
  for (const bool hasSoftmax : {false, true}) {
    Network network = networkOf(shape);
    const auto x = network.input().dense(3);
    if (hasSoftmax) x.softmax();
    network.setOptimizer(adam());
    trainSome(*network.makeTrainingGraph(4).graph, shape, 4, 3);
    weights.push_back(bytesOf(network.trainableLayers()));
    probabilities.push_back(resultOf(*network.makeInferenceGraph(), shape, 2));
  }
  EXPECT_EQ(weights[0], weights[1]);
  EXPECT_EQ(probabilities[0], probabilities[1]);
}

TEST(Network, AnotherOptimizerKeepsTheValues) {
  const Shape shape{4, 4, 2};
  Network network = networkOf(shape);
  network.input().convolution(3, 3).batchNormalization().instanceNormalization().groupNormalization(3).dense(
      2);
  network.setOptimizer(adam());
  trainSome(*network.makeTrainingGraph(4).graph, shape, 4, 2);
  const auto before = resultOf(*network.makeInferenceGraph(), shape, 2);
  network.setOptimizer(mps::NNOptimizerStochasticGradientDescent::create(device(), 0.1F));
  EXPECT_EQ(resultOf(*network.makeInferenceGraph(), shape, 2), before);
  EXPECT_THROW(network.setOptimizer(mps::NNOptimizerStochasticGradientDescent::create(device(), 0.1F),
                                    mps::AdamForm::AMSGrad),
               mps::Error);
  EXPECT_EQ(resultOf(*network.makeInferenceGraph(), shape, 2), before);
  network.setLearningRate(0.25);
  for (const auto& layer : network.trainableLayers()) EXPECT_EQ(layer->optimizer()->learningRate(), 0.25F);
  network.setOptimizer(nullptr);
  EXPECT_EQ(resultOf(*network.makeInferenceGraph(), shape, 2), before);
}

TEST(Network, Float16ScalesTheLoss) {
  const Shape shape{4, 4, 2};
  Network network = networkOf(shape);
  network.input().convolution(3, 3).relu().dense(2);
  network.setFormat(mps::ImageFeatureChannelFormat::Float16);
  network.setOptimizer(adam());
  const TrainingGraph training = network.makeTrainingGraph(4);
  ASSERT_NE(training.lossScale, nullptr);
  for (const auto& layer : network.trainableLayers())
    EXPECT_EQ(layer->optimizer()->lossScale(), training.lossScale);
  trainSome(*training.graph, shape, 4, 2);
}

TEST(Network, LabelsAreGivenOrMade) {
  const Network network = networkOf({8, 8, 1});
  network.input().convolution(2, 3).convolution(2, 3, {}, "conv2").convolution(2, 3).dense(2, {}, "fc");
  std::vector<std::string> labels;
  for (const Layer& layer : network.layers()) labels.push_back(layer.label);
  EXPECT_EQ(labels, (std::vector<std::string>{"input", "conv1", "conv2", "conv3", "fc"}));
  EXPECT_EQ(network.layer("fc").shape, (Shape{1, 1, 2}));
  EXPECT_EQ(network.trainableLayer("conv2")->tensors(false)[0].name, "conv2.weight");
}

TEST(Network, WrongUseIsASentence) {
  const auto expectError = [](const std::string& sentence, void (*use)(const Network&)) {
    const Network network = networkOf({8, 6, 4});
    EXPECT_EQ(errorOf<mps::Error>([&] { use(network); }), sentence);
    EXPECT_EQ(network.layers().size(), 1U) << sentence;
  };
  expectError("convolution \"conv1\": input is 8x6x4, expected at least 7x7 pixels",
              [](const Network& network) { network.input().convolution(2, 7, {.padding = Padding::Valid}); });
  expectError("convolution \"stem\": channels is 0, expected 1 to 2147483647",
              [](const Network& network) { network.input().convolution(0, 3, {}, "stem"); });
  expectError("convolution \"conv1\": stride is 0, expected 1 to 2147483647",
              [](const Network& network) { network.input().convolution(2, 3, {.stride = 0}); });
  expectError("convolution \"conv1\": groups is 3, expected a divisor of 4 and 6",
              [](const Network& network) { network.input().convolution(6, 3, {.groups = 3}); });
  expectError("convolution \"conv1\": weight is more than 2147483647 numbers, expected fewer",
              [](const Network& network) { network.input().convolution(1U << 20, 100); });
  expectError("upsample \"upsample1\": result is 800000x600000x4, expected at most 2147483647 values",
              [](const Network& network) { network.input().upsample(100000); });
  expectError(
      "transposedConvolution \"deconv1\": stride is 2147483647, expected less",
      [](const Network& network) { network.input().transposedConvolution(1, 3, {.stride = 2147483647}); });
  expectError("maxPool \"maxPool1\": input is 8x6x4, expected at least 9x9 pixels",
              [](const Network& network) { network.input().maxPool(9); });
  expectError("averagePool \"averagePool1\": kernelSize is 0, expected 1 to 2147483647",
              [](const Network& network) { network.input().averagePool(0); });
  expectError("dropout \"dropout1\": rate is 1.000000, expected 0 or more and less than 1",
              [](const Network& network) { network.input().dropout(1); });
  expectError("groupNormalization \"gn1\": groups is 3, expected a divisor of 4 channels",
              [](const Network& network) { network.input().groupNormalization(3); });
  expectError("batchNormalization \"bn1\": momentum is 2.000000, expected 0 to 1",
              [](const Network& network) { network.input().batchNormalization({.momentum = 2}); });
  expectError("instanceNormalization \"in1\": epsilon is 0.000000, expected a number above 0",
              [](const Network& network) { network.input().instanceNormalization(0); });
  expectError("relu \"input\": label is that of another layer, expected one of its own",
              [](const Network& network) { network.input().relu("input"); });
  expectError("add: input is of another network, expected one of this network", [](const Network& network) {
    static_cast<void>(network.input().add(networkOf({8, 6, 4}).input()));
  });
  expectError(
      "activation \"activation1\": type is PReLU, expected ReLU, Linear, Sigmoid, HardSigmoid, TanH, "
      "Absolute, "
      "SoftPlus, SoftSign, ELU, ReLUN, Power, Exponential, Logarithm or GeLU",
      [](const Network& network) {
        network.add(ActivationLayer{mps::CNNNeuronType::PReLU}, std::vector{network.input()});
      });
  expectError("relu \"relu1\": number of inputs is 2, expected 1", [](const Network& network) {
    network.add(ActivationLayer{}, std::vector{network.input(), network.input()});
  });
  expectError("Network: there is no layer \"conv7\"",
              [](const Network& network) { static_cast<void>(network.layer("conv7")); });
  expectError("input \"input\": it has no parameters", [](const Network& network) {
    Network other = networkOf({1, 1, 1});
    other.input().dense(1);
    static_cast<void>(network);
    static_cast<void>(other.trainableLayer("input"));
  });
  expectError("Network: it has no layers",
              [](const Network& network) { static_cast<void>(network.trainableLayers()); });
  EXPECT_EQ(errorOf<mps::Error>([] {
              networkOf({0, 4, 1});
            }),
            "input \"input\": result height is 0, expected 1 to 2147483647");
}

TEST(Network, ShapesOfBranchesFit) {
  const Network network = networkOf({8, 6, 4});
  const auto half = network.input().maxPool(2);
  EXPECT_EQ(errorOf<mps::Error>([&] { static_cast<void>(network.input().add(half)); }),
            "add \"add1\": second input is 4x3x4, expected 8x6x4 as the first one");
  EXPECT_EQ(errorOf<mps::Error>([&] { static_cast<void>(network.input().concatenate(half)); }),
            "concatenate \"concatenate1\": input is 4x3x4, expected 8x6 pixels as the first one");
  network.input().dense(2);
  EXPECT_EQ(errorOf<mps::Error>([&] { static_cast<void>(network.makeInferenceGraph()); }),
            "maxPool \"maxPool1\": no layer uses its result, and the result of the network is that of "
            "\"dense1\", which was added last");
}

TEST(Network, ATrainingGraphNeedsScoresAndAnOptimizer) {
  Network network = networkOf({8, 6, 4});
  const auto x = network.input().convolution(2, 3);
  EXPECT_EQ(errorOf<mps::Error>([&] { static_cast<void>(network.makeTrainingGraph(2)); }),
            "Network: result of \"conv1\" is 8x6x2, expected 1x1 pixel with a score for each class");
  x.dense(2);
  EXPECT_THAT(errorOf<mps::Error>([&] { static_cast<void>(network.makeTrainingGraph(2)); }),
              HasSubstr("needs layers with an optimiser"));
  network.setOptimizer(adam());
  EXPECT_EQ(errorOf<mps::Error>([&] { static_cast<void>(network.makeTrainingGraph(0)); }),
            "Network: batchSize is 0, expected at least 1");
  EXPECT_THAT(errorOf<mps::Error>([&] { network.setFormat(mps::ImageFeatureChannelFormat::Unorm8); }),
              HasSubstr("expected Float32 or Float16"));
}

TEST(Network, TensorsAreAskedForBeforeLayersAreAdded) {
  Network network = networkOf({4, 4, 1});
  const Features convolution = network.input().convolution(2, 3);
  std::vector<std::string> asked;
  network.setTensorCheck([&](const std::string& tensor, std::span<const std::uint64_t>) {
    if (tensor == "dense1.weight") throw mps::Error("no such tensor");
    asked.push_back(tensor);
  });
  const Features normalized = convolution.batchNormalization();
  EXPECT_EQ(errorOf<mps::Error>([&] { normalized.dense(2); }), "no such tensor");
  EXPECT_EQ(network.layers().back().label, "bn1");
  EXPECT_EQ(asked, (std::vector<std::string>{"conv1.weight", "conv1.bias", "bn1.weight", "bn1.bias",
                                             "bn1.running_mean", "bn1.running_var"}));
}

TEST(Network, FrozenLayersStay) {
  Network network({6, 6, 1}, {.device = mtl::newCPUDevice(1)});
  network.input().convolution(4, 3, {}, "stem.conv").batchNormalization({}, "stem.norm").relu().dense(2);
  EXPECT_EQ(network.freeze("stem."), 2U);
  EXPECT_TRUE(network.isFrozen("stem.norm"));
  EXPECT_FALSE(network.isFrozen("dense1"));
  const auto valuesOf = [&](const std::string& label) {
    std::vector<std::byte> bytes;
    for (const mps::SafetensorsTensor& tensor : network.trainableLayer(label)->tensors(false))
      bytes.insert(bytes.end(), tensor.bytes.begin(), tensor.bytes.end());
    return bytes;
  };
  std::vector<float> pixels(8 * 36);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<float>(i * i % 13) / 13;
  const MemoryDataset data({6, 6, 1}, pixels, {0, 1, 0, 1, 0, 1, 0, 1});
  const auto conv = valuesOf("stem.conv");
  const auto norm = valuesOf("stem.norm");
  const auto dense = valuesOf("dense1");
  const double loss = network.evaluate(data).loss;
  const auto reports = Trainer(network, {.epochs = 1, .batchSize = 8}).fit(data);
  EXPECT_EQ(valuesOf("stem.conv"), conv);
  EXPECT_EQ(valuesOf("stem.norm"), norm) << "its statistics, too";
  EXPECT_NE(valuesOf("dense1"), dense);
  EXPECT_NEAR(reports[0].loss, loss, 1e-5) << "the first step computes with the running statistics";
  EXPECT_EQ(network.unfreeze("stem.conv"), 1U);
  Trainer(network, {.epochs = 1, .batchSize = 8}).fit(data);
  EXPECT_NE(valuesOf("stem.conv"), conv);
  EXPECT_EQ(valuesOf("stem.norm"), norm);
  EXPECT_THAT(errorOf<mps::Error>([&] { network.freeze("relu"); }),
              HasSubstr("there is no layer with parameters whose label begins with \"relu\""));
}

}  // namespace
}  // namespace unmetal::train::network_test
