#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "mps/arithmetic/arithmetic_node.hpp"
#include "mps/batch_normalization/batch_normalization_node.hpp"
#include "mps/concatenation/concatenation_node.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/gram_matrix/gram_matrix_node.hpp"
#include "mps/graph/check/test_network.hpp"
#include "mps/instance_normalization/instance_normalization_node.hpp"
#include "mps/loss/forward_loss.hpp"
#include "mps/softmax/softmax.hpp"
#include "mps/trainable/trainable_batch_normalization.hpp"
#include "mps/trainable/trainable_image_normalization.hpp"

/// Graphs encode, and decode on another device to ones that compute and train as the coded ones would
/// (docs/decisions.md, D1).
namespace mps::graph_coding_test {
namespace {

using nlohmann::json;
using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;
using Bytes = std::vector<std::byte>;

Bytes encoded(const Kernel& graph) {
  KeyedArchiver archiver;
  graph.encode(archiver);
  return archiver.encodedData();
}

json treeOf(const Bytes& bytes) {
  const auto* first = reinterpret_cast<const std::uint8_t*>(bytes.data());
  return json::from_cbor(first, first + bytes.size());
}

Bytes bytesOf(const json& tree) {
  const std::vector<std::uint8_t> cbor = json::to_cbor(tree);
  const auto bytes = std::as_bytes(std::span(cbor));
  return {bytes.begin(), bytes.end()};
}

/// A handle of the user's own that can be coded.
class NamedHandle final : public Handle {
 public:
  explicit NamedHandle(std::string label) : label_(std::move(label)) {}
  [[nodiscard]] std::string label() const override { return label_; }
  [[nodiscard]] std::string className() const override { return "NamedHandle"; }
  void encode(Coder& coder) const override {
    coder.codeClass(className());
    coder.encode("label", label_);
  }
  static std::shared_ptr<NamedHandle> decode(Coder& coder) {
    coder.codeClass("NamedHandle");
    std::string label;
    coder.decode("label", label);
    return std::make_shared<NamedHandle>(label);
  }

 private:
  std::string label_;
};

/// A call-back of the user's own with a number, which can be coded.
template <class Protocol>
class CodedCallback : public Protocol {
 public:
  CodedCallback(std::string className, float number) : className_(std::move(className)), number_(number) {}
  [[nodiscard]] std::string className() const override { return className_; }
  void encode(Coder& coder) const override {
    coder.codeClass(className_);
    coder.encode("number", number_);
  }

 protected:
  [[nodiscard]] float& number() { return number_; }

 private:
  std::string className_;
  float number_;
};

/// Alpha is the number over that of the pixels.
class FactorOverPixels final : public CodedCallback<NNGramMatrixCallback> {
 public:
  explicit FactorOverPixels(float factor) : CodedCallback("FactorOverPixels", factor) {}
  float alphaForSourceImage(const std::shared_ptr<Image>& sourceImage,
                            const std::shared_ptr<Image>& /*destinationImage*/) override {
    return number() / static_cast<float>(sourceImage->width() * sourceImage->height());
  }
};

/// The weight is divided by 2 from encode to encode.
class HalvedWeight final : public CodedCallback<NNLossCallback> {
 public:
  explicit HalvedWeight(float weight) : CodedCallback("HalvedWeight", weight) {}
  float scalarWeight(const std::shared_ptr<Image>& /*sourceImage*/,
                     const std::shared_ptr<Image>& /*destinationImage*/) override {
    return number() /= 2;
  }
};

template <class Callback>
void addDecoder(Coder& coder, const std::string& className) {
  coder.setDecoder(className, [className](Coder& data, const std::shared_ptr<mtl::Device>&) {
    data.codeClass(className);
    float number = 0;
    data.decode("number", number);
    return std::make_shared<Callback>(number);
  });
}

/// Without a name under which to find a decoder.
class UncodableAlpha final : public NNGramMatrixCallback {
 public:
  float alphaForSourceImage(const std::shared_ptr<Image>& /*sourceImage*/,
                            const std::shared_ptr<Image>& /*destinationImage*/) override {
    return 1;
  }
};
class UncodableWeight final : public NNLossCallback {
 public:
  float scalarWeight(const std::shared_ptr<Image>& /*sourceImage*/,
                     const std::shared_ptr<Image>& /*destinationImage*/) override {
    return 1;
  }
};

class GraphCoding : public testing::DeviceTest {
 protected:
  [[nodiscard]] std::shared_ptr<NNGraph> decoded(std::span<const std::byte> bytes) const {
    KeyedUnarchiver unarchiver(bytes, other_);
    unarchiver.setDecoder("NamedHandle", [](Coder& coder, const std::shared_ptr<mtl::Device>&) {
      return NamedHandle::decode(coder);
    });
    addDecoder<FactorOverPixels>(unarchiver, "FactorOverPixels");
    addDecoder<HalvedWeight>(unarchiver, "HalvedWeight");
    return NNGraph::decode(unarchiver);
  }
  /// The gradient of a loss of a Gram matrix, with call-backs; sources: the picture and the labels.
  [[nodiscard]] std::shared_ptr<NNGraph> styleGraph(const std::shared_ptr<NNGramMatrixCallback>& alpha,
                                                    const std::shared_ptr<NNLossCallback>& weight) const {
    const auto gram = NNGramMatrixCalculationNode::create(NNImageNode::create());
    gram->setPropertyCallBack(alpha);
    const auto loss = NNForwardLossNode::create(
        gram->resultImage(), NNImageNode::create(),
        CNNLossDescriptor::cnnLossDescriptor(CNNLossType::MeanSquaredError, CNNReductionType::Sum));
    loss->setPropertyCallBack(weight);
    const auto termini = NNInitialGradientNode::create(loss->resultImage())->trainingGraph(nullptr);
    return NNGraph::create(device_, termini.at(0)->resultImage());
  }
  /// Three steps, then two more with the graph and with what its data becomes on another device. The data after that
  /// holds all weights, statistics, optimisers' state and counters.
  void expectTrainsOn(NNGraph& graph) const {
    test::train(graph, device_, 3);
    const Bytes bytes = encoded(graph);
    const auto copy = decoded(bytes);
    EXPECT_EQ(copy->device(), other_);
    EXPECT_EQ(encoded(*copy), bytes);
    test::train(graph, device_, 2);
    test::train(*copy, other_, 2);
    const Bytes after = encoded(graph);
    EXPECT_NE(after, bytes);
    EXPECT_EQ(encoded(*copy), after);
  }

  std::shared_ptr<mtl::Device> other_ = mtl::newCPUDevice(2);
};

/// With a fused neuron, a fused neuron gradient and dropout.
TEST_F(GraphCoding, D1TrainingGoesOn) {
  const test::SmallNetwork network(test::layer(device_, 3, 1, 4, "conv"),
                                   test::layer(device_, 4, 4, 3, "dense"));
  const auto graph = network.trainingGraph(device_);
  graph->setLabel("small");
  expectTrainsOn(*graph);
  EXPECT_EQ(decoded(encoded(*graph))->label(), "small");
}

TEST_F(GraphCoding, TrainingWithALossScaleGoesOn) {
  const auto scale = LossScale::create(device_);
  const auto first = test::layer(device_, 3, 1, 4, "conv");
  const auto second = test::layer(device_, 4, 4, 3, "dense");
  first->optimizer()->setLossScale(scale);
  second->optimizer()->setLossScale(scale);
  const test::SmallNetwork network(first, second, false, scale);
  expectTrainsOn(*network.trainingGraph(device_));
}

TEST_F(GraphCoding, TrainingOfNormalisationsGoesOn) {
  const auto adam = NNOptimizerAdam::create(device_, 0.01F);
  const auto convolution =
      CNNConvolutionNode::create(NNImageNode::create(), test::layer(device_, 3, 1, 4, "conv"));
  const auto batch = CNNBatchNormalizationNode::create(
      convolution->resultImage(), TrainableBatchNormalization::create(device_, 4, "batch", adam));
  const auto relu = CNNNeuronReLUNode::create(batch->resultImage());
  const auto instance = CNNInstanceNormalizationNode::create(
      relu->resultImage(), TrainableInstanceNormalization::create(device_, 4, "instance", adam));
  const auto group = CNNGroupNormalizationNode::create(
      instance->resultImage(), TrainableGroupNormalization::create(device_, 4, 2, "group", adam));
  const auto sum = NNAdditionNode::create(group->resultImage(), relu->resultImage());
  const auto pool = CNNPoolingMaxNode::create(sum->resultImage(), 2);
  const auto dense =
      CNNFullyConnectedNode::create(pool->resultImage(), test::layer(device_, 4, 4, 3, "dense"));
  const auto loss = CNNLossNode::create(
      dense->resultImage(),
      CNNLossDescriptor::cnnLossDescriptor(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Mean));
  std::vector<std::shared_ptr<NNImageNode>> results;
  for (const auto& terminus : loss->trainingGraph(nullptr)) results.push_back(terminus->resultImage());
  expectTrainsOn(*NNGraph::create(device_, results, std::vector<bool>(results.size(), false)));
}

/// Handles, exports, formats, allocators, several results; data sources of the user's own become their values.
TEST_F(GraphCoding, InferenceWithHandlesAndExports) {
  const auto start = test::layer(device_, 3, 1, 4, "conv");
  const auto source = std::make_shared<test::UserSource>(device_, *start);
  const auto input = NNImageNode::create(std::make_shared<NamedHandle>("input"));
  const auto convolution = CNNConvolutionNode::create(input, source);
  convolution->resultImage()->setExportFromGraph(true);
  convolution->resultImage()->setHandle(std::make_shared<NamedHandle>("features"));
  convolution->resultImage()->setImageAllocator(Image::defaultAllocator());
  const auto pooled = CNNPoolingMaxNode::create(convolution->resultImage(), 2);
  pooled->resultImage()->setFormat(ImageFeatureChannelFormat::Float16);
  const auto joined = NNConcatenationNode::create({pooled->resultImage(), pooled->resultImage()});
  const auto softmax = CNNSoftMaxNode::create(joined->resultImage());
  softmax->resultImage()->setHandle(std::make_shared<NamedHandle>("probabilities"));
  const auto graph = NNGraph::create(device_, {softmax->resultImage(), pooled->resultImage()});
  graph->setStopsAtNonFiniteValues(true);
  const Bytes bytes = encoded(*graph);
  const auto copy = decoded(bytes);
  EXPECT_EQ(encoded(*copy), bytes);
  EXPECT_TRUE(copy->stopsAtNonFiniteValues());
  EXPECT_EQ(copy->sourceImageHandles().at(0)->label(), "input");
  EXPECT_EQ(copy->resultHandle()->label(), "probabilities");
  ASSERT_EQ(copy->intermediateImageHandles().size(), 2U);
  EXPECT_EQ(copy->intermediateImageHandles()[1]->label(), "features");

  const auto resultsOf = [](NNGraph& run, const std::shared_ptr<mtl::Device>& device) {
    const auto buffer = device->newCommandQueue()->commandBuffer();
    std::vector<ImageBatch> exported;
    const ImageBatch result = run.encodeBatch(buffer, {test::pictures(device, 1)}, {}, &exported);
    buffer->commit();
    buffer->throwIfFailed();
    return std::vector<Values>{valuesOf(result), valuesOf(exported.at(0)), valuesOf(exported.at(1))};
  };
  EXPECT_EQ(resultsOf(*copy, other_), resultsOf(*graph, device_));
}

TEST_F(GraphCoding, ALayerThatTrainsByAnUncodableSourceThrows) {
  const auto start = test::layer(device_, 3, 1, 4, "conv");
  const test::SmallNetwork network(std::make_shared<test::UserSource>(device_, *start),
                                   test::layer(device_, 4, 4, 3, "dense"));
  EXPECT_TRUE(names(errorOf([&] { encoded(*network.trainingGraph(device_)); }),
                    {"NNGraph", "conv", "data source", "className()"}));
}

/// With what they remember: the second encode has half the weight of the first.
TEST_F(GraphCoding, CallBacksGoAlong) {
  const auto graph =
      styleGraph(std::make_shared<FactorOverPixels>(3.0F), std::make_shared<HalvedWeight>(1.0F));
  const auto encode = [](NNGraph& run, const std::shared_ptr<mtl::Device>& device) {
    const auto picture = Image::create(device, sizeOf(2, 1, 2));
    const auto labels = Image::create(device, sizeOf(2, 1, 2));
    testing::fill(*picture, {1, 2, 3, 4});
    testing::fill(*labels, {5, 6, 7, 8});
    const auto buffer = device->newCommandQueue()->commandBuffer();
    const auto result = run.encode(buffer, {picture, labels});
    buffer->commit();
    buffer->throwIfFailed();
    return valuesOf(*result);
  };
  const Values first = encode(*graph, device_);
  const Bytes bytes = encoded(*graph);
  const auto copy = decoded(bytes);
  EXPECT_EQ(encoded(*copy), bytes);
  const Values second = encode(*graph, device_);
  for (std::size_t i = 0; i < first.size(); ++i) EXPECT_EQ(second[i], first[i] / 2) << i;
  // G = 1.5 X^T X = (15, 21; 21, 30), the last weight 1/4: dG = (G - T) / 2, dX = 1.5 X (dG + dG^T)
  EXPECT_EQ(second, (Values{58.5F, 87.75F, 132, 197.25F}));
  EXPECT_EQ(encode(*copy, other_), second);
}

TEST_F(GraphCoding, UncodableCallBacksThrow) {
  const auto ofAlpha = styleGraph(std::make_shared<UncodableAlpha>(), nullptr);
  EXPECT_TRUE(names(errorOf([&] { encoded(*ofAlpha); }),
                    {"NNGramMatrixCalculation", "propertyCallBack", "className()"}));
  const auto ofWeight = styleGraph(nullptr, std::make_shared<UncodableWeight>());
  EXPECT_TRUE(
      names(errorOf([&] { encoded(*ofWeight); }), {"NNForwardLoss", "propertyCallBack", "className()"}));
}

/// Whoever decodes must say how to make them.
TEST_F(GraphCoding, CallBacksOfUnknownClassesThrow) {
  const auto graph = styleGraph(std::make_shared<FactorOverPixels>(1.0F), nullptr);
  const Bytes bytes = encoded(*graph);
  KeyedUnarchiver unarchiver(bytes, other_);
  EXPECT_TRUE(names(errorOf([&] { NNGraph::decode(unarchiver); }), {"FactorOverPixels", "setDecoder"}));
}

TEST_F(GraphCoding, AnUncodableHandleThrows) {
  const auto input = NNImageNode::create(std::make_shared<Handle>());
  const auto graph = NNGraph::create(device_, CNNSoftMaxNode::create(input)->resultImage());
  EXPECT_TRUE(names(errorOf([&] { encoded(*graph); }), {"NNGraph", "className()"}));
}

/// Numbers of images, states and steps that are not there, in every place.
TEST_F(GraphCoding, WrongWiringThrows) {
  const test::SmallNetwork network(test::layer(device_, 3, 1, 4, "conv"),
                                   test::layer(device_, 4, 4, 3, "dense"));
  const auto graph = network.trainingGraph(device_);
  const json tree = treeOf(encoded(*graph));
  const auto number = [](std::uint64_t value) {
    json::binary_t bytes;
    for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
    return json(bytes);
  };
  const auto error = [&](const json& wrong) {
    return errorOf([&] { static_cast<void>(decoded(bytesOf(wrong))); });
  };
  EXPECT_EQ(error(tree), "");
  for (const char* list : {"sourceImages", "sourceStates", "results"}) {
    json wrong = tree;
    wrong[list] = number(1000);
    EXPECT_TRUE(names(error(wrong), {list}));
  }
  for (std::size_t step = 0; step < tree["steps"].size(); ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    json wrong = tree;
    wrong["steps"][step]["sources"] = number(1000);
    EXPECT_TRUE(names(error(wrong), {"sources"}));
    wrong = tree;
    wrong["steps"][step]["sources"] = json::binary({});
    EXPECT_TRUE(names(error(wrong), {"sources"}));
    for (const char* key : {"result", "resultState", "forward", "neuron"}) {
      wrong = tree;
      wrong["steps"][step][key] = 1000U;
      EXPECT_TRUE(names(error(wrong), {key})) << key;
    }
    wrong = tree;
    wrong["steps"][step]["result"] = tree["steps"][step == 0 ? 1 : 0]["result"];
    EXPECT_FALSE(error(wrong).empty());
    wrong = tree;
    wrong["steps"][step]["sources"] = number(tree["steps"][step]["result"].get<std::uint64_t>());
    EXPECT_FALSE(error(wrong).empty());
  }
  json wrong = tree;
  wrong["results"] = json::binary({});
  EXPECT_TRUE(names(error(wrong), {"results"}));
  // A kernel that is none of a graph: the optimiser of a layer.
  for (std::size_t i = 0; i < tree["$objects"].size(); ++i)
    if (tree["$objects"][i]["class"] == "NNOptimizerStochasticGradientDescent") {
      wrong = tree;
      wrong["steps"][0]["kernel"] = i;
      EXPECT_TRUE(names(error(wrong), {"kernel", "NNOptimizerStochasticGradientDescent"}));
    }
}

/// Truncated, and with bytes changed at random: an error or a graph that can be run or throws.
TEST_F(GraphCoding, DamagedDataThrowsOrRuns) {
  const std::uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const test::SmallNetwork network(test::layer(device_, 3, 1, 4, "conv"),
                                   test::layer(device_, 4, 4, 3, "dense"));
  const Bytes bytes = encoded(*network.trainingGraph(device_));
  for (std::size_t length = 0; length < bytes.size(); length += 331)
    EXPECT_FALSE(errorOf([&] { static_cast<void>(decoded(std::span(bytes).first(length))); }).empty());
  for (int i = 0; i < 100; ++i) {
    Bytes damaged = bytes;
    damaged[random() % damaged.size()] = static_cast<std::byte>(random() % 256);
    try {
      test::train(*decoded(damaged), other_, 1);
    } catch (const std::exception&) {
      // An error, or more memory than there is.
    }
  }
}

}  // namespace
}  // namespace mps::graph_coding_test
