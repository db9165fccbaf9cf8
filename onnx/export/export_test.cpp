#include "onnx/export.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "mps/batch_normalization/batch_normalization_node.hpp"
#include "mps/core/types/error.hpp"
#include "mps/gram_matrix/gram_matrix_node.hpp"
#include "mps/loss/loss_node.hpp"
#include "mps/neuron/neuron_node.hpp"
#include "mps/pooling/pooling.hpp"
#include "mps/pooling/pooling_node.hpp"
#include "mps/reshape/reshape_node.hpp"
#include "mps/trainable/trainable_batch_normalization.hpp"
#include "mps/upsampling/scale_node.hpp"
#include "mps/upsampling/upsampling_node.hpp"
#include "mps/weights/atomic_file.hpp"
#include "mps/weights/input_file.hpp"
#include "mps/weights/test_folder.hpp"
#include "mtl/device.hpp"
#include "onnx/model/message_reading.hpp"
#include "onnx/model/model.hpp"

namespace unmetal::onnx {
namespace {

using detail::textsOf;
using mps::NNImageNode;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const train::Shape pictures{9, 11, 8};

/// A padding policy of a user's, which may change what it likes.
class Custom final : public mps::NNPadding {
 public:
  using Change = std::function<void(mps::CNNKernel& kernel)>;
  explicit Custom(Change change) : change_(std::move(change)) {}
  [[nodiscard]] mps::NNPaddingMethod paddingMethod() const override {
    return mps::NNPaddingMethod::SizeSame | mps::NNPaddingMethod::Custom;
  }
  mps::ImageDescriptor destinationImageDescriptor(std::span<const std::shared_ptr<mps::Image>>,
                                                  std::span<const std::shared_ptr<mps::State>>,
                                                  mps::Kernel& kernel,
                                                  const mps::ImageDescriptor& suggested) override {
    change_(dynamic_cast<mps::CNNKernel&>(kernel));
    return suggested;
  }

 private:
  Change change_;
};

struct OnnxExport : testing::Test {
  std::shared_ptr<mtl::Device> device = mtl::createSystemDefaultDevice();
  mps::detail::TestFolder folder;
  std::filesystem::path path = folder / "graph.onnx";

  std::string contents() const {
    const std::vector<std::byte> bytes = mps::readFile(path, 1U << 20U);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  /// "Conv", "Relu", ...
  std::vector<std::string> operators() const {
    const std::string model = contents();
    std::vector<std::string> types;
    for (const auto node : textsOf(textsOf(model, 7)[0], 1)) types.emplace_back(textsOf(node, 4)[0]);
    return types;
  }
  void exportNode(const std::shared_ptr<mps::NNFilterNode>& node,
                  std::vector<train::Shape> sources = {pictures}) {
    exportGraph(*mps::NNGraph::create(device, node->resultImage()), sources, path);
  }
  /// Of a node with a label, behind a policy of a user's.
  void refuses(const std::shared_ptr<mps::NNFilterNode>& node, const std::string& reason,
               const Custom::Change& change = nullptr) {
    node->setLabel("this one");
    if (change) node->setPaddingPolicy(std::make_shared<Custom>(change));
    try {
      exportNode(node);
      ADD_FAILURE() << "expected: " << reason;
    } catch (const mps::Error& error) {
      EXPECT_EQ(std::string(error.what()), "cannot export " + node->describe() + " to ONNX: " + reason);
    }
    EXPECT_THAT(folder.names(), IsEmpty());
  }
};

train::Network smallNetwork() {
  train::Network network({8, 8, 3});
  network.input().convolution(4, 3).relu().maxPool(2).dropout().dense(2);
  return network;
}

TEST_F(OnnxExport, OperatorsOfANetwork) {
  exportNetwork(smallNetwork(), path);
  EXPECT_THAT(operators(), ElementsAre("Conv", "Relu", "MaxPool", "Conv", "Softmax"));
  exportNetwork(smallNetwork(), path, {.softmax = false});
  EXPECT_THAT(operators(), ElementsAre("Conv", "Relu", "MaxPool", "Conv"));
  train::Network network({4, 4, 1});
  network.input().dense(3).softmax();
  exportNetwork(network, path);
  EXPECT_THAT(operators(), ElementsAre("Conv", "Softmax")) << "no second one";
  EXPECT_THAT(folder.names(), ElementsAre("graph.onnx"));
}

TEST_F(OnnxExport, TheSameNetworkGivesTheSameBytes) {
  const train::Network network = smallNetwork();
  exportNetwork(network, path);
  const std::string first = contents();
  exportNetwork(network, path);
  EXPECT_EQ(contents(), first);
}

TEST_F(OnnxExport, MaximumsOfZerosAroundThePictureArePaddedBefore) {
  const auto pool = mps::CNNPoolingMaxNode::create(NNImageNode::create(), 3, 1);
  exportNode(pool);
  EXPECT_THAT(operators(), ElementsAre("MaxPool"))
      << "Clamp, the nodes' default: what is outside does not count";
  pool->setPaddingPolicy(
      std::make_shared<Custom>([](mps::CNNKernel& kernel) { kernel.setEdgeMode(mps::ImageEdgeMode::Zero); }));
  exportNode(pool);
  EXPECT_THAT(operators(), ElementsAre("Pad", "MaxPool"));
  const std::string pad = std::string(textsOf(textsOf(contents(), 7)[0], 1)[0]);
  EXPECT_EQ(textsOf(pad, 1).size(), 4U) << "without axes ONNX Runtime 1.30 makes it a part of the pooling";
}

TEST_F(OnnxExport, MarginsThatAreReflectedOnceAreAPad) {
  const auto pad = [&](std::size_t margin, std::size_t channels, mps::ImageEdgeMode edgeMode) {
    exportNode(mps::NNPadNode::create(NNImageNode::create(), {margin, 1, channels}, {1, 0, 0}, edgeMode));
    return operators();
  };
  EXPECT_THAT(pad(2, 0, mps::ImageEdgeMode::Mirror), ElementsAre("Pad"));
  EXPECT_THAT(pad(pictures.width - 1, 0, mps::ImageEdgeMode::Mirror), ElementsAre("Pad"));
  EXPECT_THAT(pad(pictures.width, 0, mps::ImageEdgeMode::Mirror), ElementsAre("Gather", "Gather"));
  EXPECT_THAT(pad(2, 1, mps::ImageEdgeMode::Mirror), ElementsAre("Gather", "Gather", "Gather"));
  EXPECT_THAT(pad(2, 0, mps::ImageEdgeMode::MirrorWithEdge), ElementsAre("Gather", "Gather"));
}

TEST_F(OnnxExport, WhatIsForTrainingIsRefused) {
  const auto descriptor = mps::CNNLossDescriptor::cnnLossDescriptor(mps::CNNLossType::MeanSquaredError,
                                                                    mps::CNNReductionType::Sum);
  const std::string reason = "it is for training; export a graph of what comes before the loss";
  refuses(mps::CNNLossNode::create(NNImageNode::create(), descriptor), reason);
  const auto forward =
      mps::NNForwardLossNode::create(NNImageNode::create(), NNImageNode::create(), descriptor);
  EXPECT_THAT(
      [&] {
        exportNode(forward, {pictures, pictures});
      },
      testing::ThrowsMessage<mps::Error>(HasSubstr("ONNX has no operator for NNForwardLoss")));
}

TEST_F(OnnxExport, WhatAPolicyDoesThatOnnxCannotSayIsRefused) {
  const auto source = NNImageNode::create();
  const auto moved = [](std::int64_t x) {
    return [x](mps::CNNKernel& kernel) { kernel.setOffset({x, 0, 0}); };
  };
  refuses(mps::CNNNeuronReLUNode::create(source), "it reads nothing but pixels outside of its source",
          moved(11));
  refuses(mps::CNNUpsamplingNearestNode::create(source, 2, 2),
          "its padding policy moves the result, and ONNX resizes whole pictures", moved(1));
  refuses(mps::NNPadNode::create(source, {1, 1, 0}, {1, 1, 0}, mps::ImageEdgeMode::Zero),
          "its padding policy moves the result", moved(1));
  const std::string part = "its padding policy lets it write a part of its result alone";
  refuses(mps::CNNNeuronReLUNode::create(source), part, [](mps::CNNKernel& kernel) {
    kernel.setClipRect({{0, 0, 0}, {3, 3, 1}});
  });
  refuses(mps::CNNNeuronReLUNode::create(source), part,
          [](mps::CNNKernel& kernel) { kernel.setDestinationFeatureChannelOffset(4); });
  refuses(mps::CNNNeuronReLUNode::create(source), "it reads channels that its source does not have",
          [](mps::CNNKernel& kernel) { kernel.setSourceFeatureChannelOffset(8); });
  refuses(mps::CNNPoolingMaxNode::create(source, 2),
          "its padding policy lets it write some channels of its result alone",
          [](mps::CNNKernel& kernel) { kernel.setSourceFeatureChannelOffset(4); });
}

class Alpha final : public mps::NNGramMatrixCallback {
 public:
  float alphaForSourceImage(const std::shared_ptr<mps::Image>&, const std::shared_ptr<mps::Image>&) override {
    return 1;
  }
};

class Moves final : public mps::ImageTransformProvider {
 public:
  mps::ScaleTransform transformForSourceImage(const std::shared_ptr<mps::Image>&,
                                              const std::shared_ptr<mps::Handle>&) override {
    return {};
  }
};

TEST_F(OnnxExport, WhatCallBacksDecideIsRefused) {
  const auto gram = mps::NNGramMatrixCalculationNode::create(NNImageNode::create());
  gram->setPropertyCallBack(std::make_shared<Alpha>());
  refuses(gram, "its call-back chooses alpha at each encode");
  refuses(mps::NNLanczosScaleNode::create(NNImageNode::create(), std::make_shared<Moves>(), {4, 4, 1}),
          "its transform provider gives each picture another transform");
}

TEST_F(OnnxExport, StatisticsOfEachBatchAreRefused) {
  train::Network network({8, 8, 1});
  network.input().batchNormalization({}, "norm").dense(2);
  const auto image = NNImageNode::create();
  const auto node = mps::CNNBatchNormalizationNode::create(
      image, std::dynamic_pointer_cast<mps::TrainableBatchNormalization>(network.trainableLayer("norm")));
  node->setFlags(mps::CNNBatchNormalizationFlags::CalculateStatisticsAlways);
  EXPECT_THAT(
      [&] {
        exportNode(node, {{8, 8, 1}});
      },
      testing::ThrowsMessage<mps::Error>(
          HasSubstr("\"norm\" to ONNX: it computes the statistics of each batch")));
}

TEST_F(OnnxExport, WrongNumbersAreRefused) {
  const auto relu = mps::CNNNeuronReLUNode::create(NNImageNode::create());
  EXPECT_THAT([&] { exportNode(relu, {}); },
              testing::ThrowsMessage<mps::Error>("exportGraph: number of shapes in pictures is 0, expected "
                                                 "1, one for each source image of the graph"));
  EXPECT_THAT(
      [&] {
        exportNetwork(smallNetwork(), path, {.classNames = {"a", "b", "c"}});
      },
      testing::ThrowsMessage<mps::Error>(
          "exportGraph: number of class names is 3, expected 2, one for each channel of the result"));
  EXPECT_THROW(exportNetwork(smallNetwork(), path, {.normalization = train::Normalization{{0}, {1}}}),
               mps::Error)
      << "of one channel";
  relu->setLabel("\xFF");
  EXPECT_THAT([&] { exportNode(relu); }, testing::ThrowsMessage<mps::Error>(HasSubstr("is not UTF-8")));
  const float slopes[] = {1, 2};
  EXPECT_THROW(exportNode(mps::CNNNeuronPReLUNode::create(NNImageNode::create(), slopes)), mps::Error)
      << "of 8 channels";
  EXPECT_THAT(folder.names(), IsEmpty());
}

TEST_F(OnnxExport, AFileThatWasThereStays) {
  mps::writeFile(path, "before");
  EXPECT_THROW(exportNetwork(smallNetwork(), path, {.classNames = {"one"}}), mps::Error);
  EXPECT_EQ(contents(), "before");
  EXPECT_THAT([&] { exportNetwork(smallNetwork(), folder / "none" / "graph.onnx"); },
              testing::ThrowsMessage<mps::Error>(HasSubstr("graph.onnx")));
  EXPECT_THAT(folder.names(), ElementsAre("graph.onnx"));
}

TEST_F(OnnxExport, LabelsThatComeTwiceGetNumbers) {
  const auto first = mps::CNNNeuronAbsoluteNode::create(NNImageNode::create());
  const auto second = mps::CNNNeuronAbsoluteNode::create(first->resultImage());
  const auto third = mps::CNNNeuronAbsoluteNode::create(second->resultImage());
  for (const auto& node : {first, second, third}) node->setLabel("one");
  exportNode(third);
  const std::string model = contents();
  std::vector<std::string> names;
  for (const auto node : textsOf(textsOf(model, 7)[0], 1)) names.emplace_back(textsOf(node, 3)[0]);
  EXPECT_THAT(names, ElementsAre("one/Abs", "one_2/Abs", "one_3/Abs"));
}

TEST(OnnxModel, WhatNoReaderTakesIsRefused) {
  EXPECT_NO_THROW(detail::checkLength(std::numeric_limits<std::int32_t>::max()));
  EXPECT_THAT([] { detail::checkLength(std::uint64_t{1} << 31U); },
              testing::ThrowsMessage<mps::Error>(HasSubstr("readers of the format take at most 2147483647")));
}

}  // namespace
}  // namespace unmetal::onnx
