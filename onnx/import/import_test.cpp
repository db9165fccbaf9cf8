#include "onnx/import.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "mps/core/types/error.hpp"
#include "mps/weights/atomic_file.hpp"
#include "mps/weights/test_folder.hpp"
#include "onnx/export.hpp"
#include "onnx/model/model.hpp"
#include "train/training/trainer.hpp"

namespace unmetal::onnx::import_test {
namespace {

using detail::Attribute;
using detail::Message;
using detail::Model;
using detail::Node;
using detail::Tensor;
using mps::detail::errorOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Integers = std::vector<std::int64_t>;

Tensor numbers(const std::string& name, Integers shape, float value = 1) {
  std::size_t count = 1;
  for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
  return {name, std::move(shape), std::vector<float>(count, value)};
}
Tensor integers(const std::string& name, Integers values) {
  const auto count = static_cast<std::int64_t>(values.size());
  return {name, {count}, std::move(values)};
}

/// From "input", 2 channels of 4x6 pixels, to "output".
Model modelOf(std::vector<Node> nodes, std::vector<Tensor> constants = {}) {
  Model model;
  model.nodes = std::move(nodes);
  model.constants = std::move(constants);
  model.inputs = {{"input", {4, 6, 2}}};
  model.outputs = {{"output", {1, 1, 3}}};
  return model;
}
Node operatorOf(const std::string& type, std::vector<std::string> others = {},
                std::vector<Attribute> attributes = {}) {
  others.insert(others.begin(), "input");
  return {type, "this", std::move(others), {"output"}, std::move(attributes)};
}

struct OnnxImport : testing::Test {
  mps::detail::TestFolder folder;
  std::filesystem::path path = folder / "model.onnx";

  void write(const Message& message) const { mps::writeFile(path, message.text()); }
  train::Network loaded(Model model, const train::LoadOptions& loading = {}) const {
    write(detail::encode(std::move(model)));
    return load(path, {}, loading);
  }
  /// Behind the file's name.
  std::string trouble(const Message& message, const train::LoadOptions& loading = {}) const {
    write(message);
    const std::string error = errorOf<mps::Error>([&] { load(path, {}, loading); });
    const std::string prefix = "cannot import " + path.string() + ": ";
    EXPECT_TRUE(error.starts_with(prefix)) << error;
    return error.substr(std::min(prefix.size(), error.size()));
  }
  std::string trouble(Model model, const train::LoadOptions& loading = {}) const {
    return trouble(detail::encode(std::move(model)), loading);
  }
  std::string troubleOf(const Node& node, std::vector<Tensor> constants = {}) const {
    return trouble(modelOf({node}, std::move(constants)));
  }
};

std::vector<std::string> kindsOf(const train::Network& network) {
  std::vector<std::string> kinds;
  for (const train::Layer& layer : network.layers()) kinds.push_back(nameOf(layer.kind));
  return kinds;
}

Model smallModel() {
  return modelOf(
      {{"Conv", "", {"input", "first.weight", "first.bias"}, {"a"}, {{"pads", Integers{1, 1, 1, 1}}}},
       {"Relu", "", {"a"}, {"b"}, {}},
       {"Flatten", "", {"b"}, {"c"}, {}},
       {"MatMul", "", {"c", "last.weight"}, {"d"}, {}},
       {"Add", "", {"d", "last.bias"}, {"output"}, {}}},
      {numbers("first.weight", {5, 2, 3, 3}), numbers("first.bias", {5}), numbers("last.weight", {120, 3}),
       numbers("last.bias", {3}, 0.25F)});
}

TEST_F(OnnxImport, LayersAndTheirLabels) {
  const train::Network network = loaded(smallModel());
  EXPECT_THAT(kindsOf(network), ElementsAre("input", "convolution", "relu", "dense"));
  EXPECT_EQ(network.layers()[1].label, "first");
  EXPECT_EQ(network.layers()[3].label, "last");
  EXPECT_EQ(network.outputShape(), (train::Shape{1, 1, 3}));
}

TEST_F(OnnxImport, ANetworkOfOtherClassesBeginsItsHeadAnew) {
  const train::Network network = loaded(smallModel(), {.classes = 7});
  EXPECT_EQ(network.outputShape().channels, 7U);
  train::Network other = network.copy();
  EXPECT_EQ(loadWeights(other, path, train::Head::Own), "last");
  EXPECT_THAT(errorOf<mps::Error>([&] { loadWeights(other, path); }),
              HasSubstr("it has no layer \"last\" with as many weights"));
  EXPECT_EQ(loadWeights(other = loaded(smallModel()), path), std::nullopt);
  EXPECT_THAT(trouble(modelOf({operatorOf("Relu")}), {.classes = 2}),
              HasSubstr("no convolution or fully connected layer that could have 2 classes"));
  EXPECT_THAT(trouble(modelOf({operatorOf("Relu")}), {.pictures = train::Shape{5, 6, 2}}),
              HasSubstr("\"input\" is any x 2 x 4 x 6, expected 5 at place 3, as the pictures are"));
}

TEST_F(OnnxImport, ANetworkTrains) {
  train::Network network = loaded(smallModel(), {.classes = 2});
  std::vector<float> values;
  std::vector<std::uint32_t> labels;
  for (std::uint32_t i = 0; i < 32; ++i) {
    labels.push_back(i % 2);
    for (std::size_t k = 0; k < network.inputShape().count(); ++k)
      values.push_back(i % 2 == 0 ? 0.01F * static_cast<float>(k % 7) : -0.01F * static_cast<float>(k % 5));
  }
  const train::MemoryDataset data(network.inputShape(), values, labels);
  train::Trainer trainer(network, {.epochs = 20, .batchSize = 8, .learningRate = 0.01F});
  trainer.fit(data);
  EXPECT_EQ(network.evaluate(data).correct, 32U);
}

TEST_F(OnnxImport, MetadataOfAnExport) {
  train::Network network({3, 3, 2});
  network.input().dense(2);
  network.setNormalization(train::Normalization{{0.5F, 0.25F}, {1, 2}});
  exportNetwork(network, path, {.classNames = {"cat", "dog"}});
  EXPECT_EQ(load(path).normalization(), network.normalization());
  EXPECT_THAT(classNames(path), ElementsAre("cat", "dog"));
  Model model = smallModel();
  EXPECT_THAT(classNames((loaded(model), path)), ElementsAre());
  model.metadata["normalization.mean"] = "[1, \"two\"]";
  EXPECT_THAT(trouble(model), HasSubstr("its metadata \"normalization.mean\" is no list of numbers"));
  model.metadata["normalization.mean"] = "[1]";
  EXPECT_THAT(trouble(model), HasSubstr("there are 1 means and 0 deviations"));
}

TEST_F(OnnxImport, WhatIsNoModelIsRefused) {
  Message message;
  message.addInteger(1, 8);
  EXPECT_EQ(trouble(message), "it has no graph");
  message.addText(7, "\x0A\x7F");
  EXPECT_EQ(trouble(message), "a message ends in the middle of a field");
  EXPECT_THAT(errorOf<mps::Error>([&] { load(folder / "none.onnx"); }), HasSubstr("none.onnx"));
  Message empty;
  empty.addMessage(7, Message());
  EXPECT_EQ(trouble(empty), "it does not say its version of the operator set");
  for (const int version : {6, 25}) {
    Message set;
    set.addInteger(2, version);
    Message old = empty;
    old.addMessage(8, std::move(set));
    EXPECT_EQ(trouble(old), "its operator set is version " + std::to_string(version) + ", expected 7 to 24");
  }
  Model model = smallModel();
  model.inputs.push_back({"second", {1, 1, 1}});
  EXPECT_THAT(trouble(model), HasSubstr("several inputs, \"input\" and \"second\""));
  model.inputs.clear();
  EXPECT_EQ(trouble(model), "it has no input");
  model = smallModel();
  model.outputs.clear();
  EXPECT_EQ(trouble(model), "it has no result");
  EXPECT_EQ(trouble(modelOf({operatorOf("Identity")})), "it has no layers");
}

TEST_F(OnnxImport, NodesAreNamedInRefusals) {
  EXPECT_EQ(troubleOf(operatorOf("Einsum")), "Einsum \"this\": a network has no layer for this operator");
  EXPECT_EQ(troubleOf(operatorOf("Relu", {}, {{"slope", 1.0F}})),
            "Relu \"this\": its attribute slope is not known");
  EXPECT_EQ(troubleOf(operatorOf("LeakyRelu", {}, {{"alpha", std::int64_t{1}}})),
            "LeakyRelu \"this\": attribute alpha is no finite number");
  EXPECT_EQ(troubleOf(operatorOf("Softmax", {}, {{"axis", 1.0F}})),
            "Softmax \"this\": attribute axis is no whole number");
  EXPECT_EQ(troubleOf(operatorOf("Conv", {"weights"})),
            "Conv \"this\": nothing before it makes its input \"weights\"");
  EXPECT_EQ(troubleOf(operatorOf("Conv")), "Conv \"this\": its input 2 is missing");
  EXPECT_EQ(trouble(modelOf({{"Relu", "", {"c"}, {"output"}, {}}}, {numbers("c", {2})})),
            "Relu \"output\": input \"c\" is a constant, expected made of pictures");
  EXPECT_EQ(troubleOf(operatorOf("Conv", {"input"})),
            "Conv \"this\": input \"input\" is computed of pictures, expected a constant");
}

TEST_F(OnnxImport, WrongConvolutionsAreRefused) {
  const auto conv = [&](Integers shape, std::vector<Attribute> attributes = {}) {
    return troubleOf(operatorOf("Conv", {"w"}, std::move(attributes)), {numbers("w", std::move(shape))});
  };
  EXPECT_THAT(conv({3, 2, 3}), HasSubstr("shape of the weights \"w\" is 3x2x3, expected four extents"));
  EXPECT_THAT(conv({3, 3, 3, 3}), HasSubstr("is 3x3x3x3, expected 2 input channels in 1 groups"));
  EXPECT_THAT(conv({3, 2, 3, 3}, {{"pads", Integers{0, -1, 0, 0}}}),
              HasSubstr("attribute pads is [0, -1, 0, 0], expected four numbers from 0 on"));
  EXPECT_THAT(conv({3, 2, 3, 3}, {{"strides", Integers{0, 1}}}),
              HasSubstr("attribute strides is [0, 1], expected two numbers from 1 on"));
  EXPECT_THAT(conv({3, 2, 3, 3}, {{"kernel_shape", Integers{3, 2}}}),
              HasSubstr("attribute kernel_shape is 3x2, expected 3x3, the weights'"));
  EXPECT_THAT(conv({3, 2, 3, 3}, {{"auto_pad", std::string("SOME")}}),
              HasSubstr("attribute auto_pad is \"SOME\""));
  EXPECT_THAT(conv({3, 2, 3, 3}, {{"group", std::int64_t{0}}}), HasSubstr("attribute group is 0"));
  EXPECT_THAT(conv({3, 2, 9, 9}), HasSubstr("Conv \"this\": convolution"));
  EXPECT_THAT(troubleOf(operatorOf("Conv", {"w"}),
                        {numbers("w", {1, 2, 1, 1}, std::numeric_limits<float>::infinity())}),
              HasSubstr("a weight of the layer \"this\" is not finite"));
  const auto transposed = [&](std::vector<Attribute> attributes) {
    return troubleOf(operatorOf("ConvTranspose", {"w"}, std::move(attributes)), {numbers("w", {2, 3, 2, 2})});
  };
  EXPECT_THAT(transposed({{"group", std::int64_t{2}}}), HasSubstr("attribute group is 2, expected 1"));
  EXPECT_THAT(transposed({{"dilations", Integers{2, 1}}}), HasSubstr("attribute dilations is 2x1"));
  EXPECT_THAT(transposed({{"output_padding", Integers{1, 0}}}), HasSubstr("at most the pads behind"));
  EXPECT_THAT(transposed({{"output_shape", Integers{9, 9}}}), HasSubstr("output_shape is not taken"));
}

TEST_F(OnnxImport, WrongOperatorsAreRefused) {
  EXPECT_THAT(troubleOf(operatorOf("MaxPool")), HasSubstr("it has no attribute kernel_shape"));
  EXPECT_THAT(
      troubleOf(operatorOf("MaxPool", {}, {{"kernel_shape", Integers{2, 2}}, {"dilations", Integers{2, 2}}})),
      HasSubstr("attribute dilations is 2x2, expected 1x1"));
  EXPECT_THAT(troubleOf(operatorOf("LpPool", {}, {{"kernel_shape", Integers{2, 2}}, {"p", std::int64_t{3}}})),
              HasSubstr("attribute p is 3, expected 2"));
  EXPECT_THAT(troubleOf(operatorOf("LRN", {}, {{"size", std::int64_t{4}}})),
              HasSubstr("attribute size is 4, expected an odd number"));
  EXPECT_THAT(troubleOf(operatorOf("LRN", {}, {{"size", std::int64_t{3}}, {"bias", 0.5F}})),
              HasSubstr("attribute bias is 0.500000, expected 1 or more"));
  EXPECT_THAT(troubleOf(operatorOf("Softmax", {}, {{"axis", std::int64_t{2}}})),
              HasSubstr("attribute axis is 2, expected 1"));
  EXPECT_THAT(troubleOf(operatorOf("Concat", {"input"}, {{"axis", std::int64_t{2}}})),
              HasSubstr("attribute axis is 2, expected 1, the channels"));
  EXPECT_THAT(troubleOf(operatorOf("ReduceMean", {}, {{"axes", Integers{1}}})),
              HasSubstr("its axes are not 2 and 3"));
  EXPECT_THAT(troubleOf(operatorOf("ReduceSum")), HasSubstr("it names no axes"));
  EXPECT_THAT(troubleOf(operatorOf("Celu", {}, {{"alpha", 0.0F}})), HasSubstr("attribute alpha is 0.000000"));
  EXPECT_THAT(troubleOf(operatorOf("LayerNormalization", {"c"}), {numbers("c", {2})}),
              HasSubstr("its input is channels x height x width, expected a row of numbers"));
  EXPECT_THAT(troubleOf(operatorOf("Erf")), HasSubstr("its source is not x sqrt(0.5)"));
  EXPECT_THAT(
      troubleOf(operatorOf("Add", {"c"}), {numbers("c", {1, 2, 4, 6})}),
      HasSubstr(
          "shape of the constant \"c\" is 1x2x4x6, expected one number, or one for each of 2 channels"));
  EXPECT_THAT(trouble(modelOf({{"MaxPool", "", {"input"}, {"p"}, {{"kernel_shape", Integers{2, 2}}}},
                               operatorOf("Mul", {"p"})})),
              HasSubstr("second input is 3x5x2, expected 4x6x2 as the first one, or 1"));
  EXPECT_THAT(troubleOf(operatorOf("Div", {"c"}), {numbers("c", {}, 0)}), HasSubstr("it divides by 0"));
  EXPECT_THAT(troubleOf(operatorOf("PRelu", {"c"}), {numbers("c", {3, 1, 1})}),
              HasSubstr("shape of the slopes \"c\" is 3x1x1"));
  EXPECT_THAT(troubleOf(operatorOf("Gemm", {"w"}), {numbers("w", {48, 3})}), HasSubstr("no matrix"));
  EXPECT_THAT(troubleOf(operatorOf("BatchNormalization", {"c", "c", "c", "d"}),
                        {numbers("c", {2}), numbers("d", {3})}),
              HasSubstr("number of values in \"d\" is 3, expected 2, one for each channel"));
  EXPECT_THAT(troubleOf(operatorOf("Dropout", {"r"}), {numbers("r", {0})}),
              HasSubstr("shape of the ratio is 0, expected one number"));
  EXPECT_THAT(troubleOf(operatorOf("Cast", {}, {{"to", std::int64_t{7}}})), HasSubstr("attribute to is 7"));
  EXPECT_THAT(troubleOf(operatorOf("LogSoftmax", {}, {{"axis", std::int64_t{1}}})),
              HasSubstr("it has no layers"));
}

TEST_F(OnnxImport, WrongShapesAreRefused) {
  EXPECT_THAT(troubleOf(operatorOf("Reshape", {"s"}), {integers("s", {1, 2, 24})}),
              HasSubstr("result \"output\": input \"output\" is reshaped to 2x24 for each picture"));
  for (const Integers& shape : {Integers{-1, -1}, {2, 24}, {0, 0, 0, 0, 0}, {0, 7, -1}, {48}, {0, -2}})
    EXPECT_THAT(troubleOf(operatorOf("Reshape", {"s"}), {integers("s", shape)}),
                HasSubstr("expected one of the same batch and as many numbers for each picture as 2x4x6"));
  EXPECT_THAT(troubleOf(operatorOf("Flatten", {}, {{"axis", std::int64_t{2}}})),
              HasSubstr("attribute axis is 2, expected 1"));
  EXPECT_THAT(troubleOf(operatorOf("Squeeze", {"a"}), {integers("a", {2, 3})}),
              HasSubstr("extent of axis 2 is 4, expected 1"));
  EXPECT_THAT(
      trouble(modelOf({{"Reshape", "", {"input", "s"}, {"a"}, {}}, {"Relu", "this", {"a"}, {"output"}, {}}},
                      {integers("s", {1, 2, 24})})),
      HasSubstr("Relu \"this\": input \"a\" is reshaped to 2x24 for each picture, expected channels x"));
  EXPECT_THAT(trouble(modelOf({{"Transpose", "", {"input"}, {"a"}, {{"perm", Integers{0, 2, 3, 1}}}},
                               {"Relu", "this", {"a"}, {"output"}, {}}})),
              HasSubstr("input \"a\" is reshaped to 4x6x2, channels last, for each picture"));
  EXPECT_THAT(
      troubleOf(operatorOf("Reshape", {"s"}, {{"allowzero", std::int64_t{1}}}), {integers("s", {0, 48})}),
      HasSubstr("expected one of the same batch"));
  EXPECT_THAT(troubleOf(operatorOf("Transpose", {}, {{"perm", Integers{0, 1, 3, 2}}})),
              HasSubstr("it gives the numbers of 2x4x6 another order"));
  for (const Integers& order : {Integers{1, 0, 2, 3}, {0, 1, 2}, {0, 1, 2, 4}, {}})
    EXPECT_THAT(troubleOf(operatorOf("Transpose", {}, {{"perm", order}})),
                HasSubstr("its attribute perm is no order of all axes that begins with the batch"));
  EXPECT_THAT(troubleOf(operatorOf("Gather", {"i"}, {{"axis", std::int64_t{1}}}), {integers("i", {0})}),
              HasSubstr("its indices are not 0 alone"));
  EXPECT_THAT(troubleOf(operatorOf("Squeeze")), HasSubstr("it names no axes"));
  EXPECT_THAT(troubleOf(operatorOf("Squeeze", {"a"}), {integers("a", {4})}),
              HasSubstr("an axis is 4, expected 1 to 3, behind the batch"));
  EXPECT_THAT(troubleOf(operatorOf("Unsqueeze", {"a"}), {integers("a", {1, 2, 3, 4, 5, 6})}),
              HasSubstr("more than eight axes"));
  for (const std::string type : {"Squeeze", "Unsqueeze"})
    for (const Integers& axes : {Integers{2, 2}, {1, 3, 1}, {-1, 2, -1}})
      EXPECT_THAT(troubleOf(operatorOf(type, {"a"}), {integers("a", axes)}),
                  HasSubstr("it names an axis twice"))
          << type;
  EXPECT_THAT(troubleOf(operatorOf("Pad", {"p"}), {integers("p", {0, 1, 0, 0, 0, 0, 0, 0})}),
              HasSubstr("it pads batch or channels"));
  EXPECT_THAT(troubleOf(operatorOf("Pad", {"p"}), {integers("p", {0, 0, 0, 0, 0, 0, -1, 0})}),
              HasSubstr("its pads are not eight numbers from 0 on"));
  const auto resize = [&](std::vector<float> scales, const std::string& mode) {
    Tensor tensor{"s", {4}, std::move(scales)};
    return troubleOf(operatorOf("Resize", {"", "s"}, {{"mode", mode}}), {tensor});
  };
  EXPECT_THAT(resize({1, 1, 1.5F, 2}, "linear"), HasSubstr("a scale is 1.500000, expected a whole number"));
  EXPECT_THAT(resize({1, 2, 2, 2}, "linear"), HasSubstr("of which those of batch and channels are 1"));
  EXPECT_THAT(resize({1, 1, 2, 2}, "cubic"), HasSubstr("attribute mode is \"cubic\""));
}

TEST_F(OnnxImport, WrongGroupsAreRefused) {
  const auto groups = [&](const std::string& name, Integers rows, std::vector<Node> behind) {
    std::vector<Node> nodes{{"Reshape", "groups", {"input", "rows"}, {"a"}, {}},
                            {"InstanceNormalization", name, {"a", "gamma", "beta"}, {"b"}, {}}};
    nodes.insert(nodes.end(), behind.begin(), behind.end());
    return trouble(
        modelOf(nodes, {integers("rows", std::move(rows)), numbers("gamma", {2}), numbers("beta", {2}, 0),
                        numbers("ones", {2}), integers("other", {0, 2, 6, 4})}));
  };
  EXPECT_THAT(
      groups("n", {0, 3, 16}, {{"Relu", "", {"b"}, {"output"}, {}}}),
      HasSubstr("Reshape \"groups\": number of rows is 3, expected one that divides 2, the channels"));
  EXPECT_THAT(groups("n", {0, 2, 24}, {{"Relu", "", {"b"}, {"output"}, {}}}),
              HasSubstr("InstanceNormalization \"n\": no Reshape follows it"));
  EXPECT_THAT(groups("n", {0, 2, 24}, {{"Reshape", "", {"b", "other"}, {"output"}, {}}}),
              HasSubstr("the Reshape behind it does not bring back 2x4x6"));
  EXPECT_THAT(groups("n", {0, 2, 24}, {{"Reshape", "", {"b", "none"}, {"output"}, {}}}),
              HasSubstr("nothing before it makes its input \"none\""));
  EXPECT_THAT(trouble(modelOf({{"Reshape", "", {"input", "rows"}, {"a"}, {}},
                               {"InstanceNormalization", "n", {"a", "gamma", "gamma"}, {"output"}, {}}},
                              {integers("rows", {0, 2, 24}), numbers("gamma", {2})})),
              HasSubstr("it scales or moves groups of channels"));
}

TEST_F(OnnxImport, WrongSlicesOfConstantsAreRefused) {
  const auto slice = [&](Integers starts, Integers ends, Integers axes, Integers steps) {
    return trouble(modelOf(
        {{"Slice", "cut", {"w", "starts", "ends", "axes", "steps"}, {"v"}, {}}, operatorOf("Conv", {"v"})},
        {numbers("w", {3, 2, 3, 3}), integers("starts", std::move(starts)), integers("ends", std::move(ends)),
         integers("axes", std::move(axes)), integers("steps", std::move(steps))}));
  };
  EXPECT_THAT(slice({0}, {1}, {0}, {0}), HasSubstr("Slice \"cut\": a step is 0, expected another number"));
  EXPECT_THAT(slice({0}, {1}, {4}, {1}), HasSubstr("an axis is 4, expected one of 4"));
  EXPECT_THAT(slice({0, 1}, {1}, {0}, {1}),
              HasSubstr("it has not one start, end, axis and step for each axis"));
  EXPECT_THAT(slice({2}, {1}, {0}, {1}), HasSubstr("shape of the weights \"v\" is 0x2x3x3"));
}

TEST_F(OnnxImport, WrongExpansionsOfConstantsAreRefused) {
  EXPECT_THAT(trouble(modelOf({{"Expand", "fill", {"w", "shape"}, {"v"}, {}}, operatorOf("Add", {"v"})},
                              {numbers("w", {2, 1, 1}), integers("shape", {2, 4, 6})})),
              HasSubstr("Expand \"fill\": shape of its source is 2x1x1, expected one number"));
}

TEST_F(OnnxImport, RangesOfWholeNumbersAreShapes) {
  const auto reshaped = [&](const Integers& extents) {
    std::vector<Tensor> constants;
    for (const std::string name : {"start", "end", "step"}) {
      constants.push_back(integers(name, {extents[constants.size()]}));
    }
    constants.push_back(numbers("w", {48, 3}));
    return modelOf({{"Range", "count", {"start", "end", "step"}, {"s"}, {}},
                    {"Reshape", "", {"input", "s"}, {"f"}, {}},
                    {"MatMul", "", {"f", "w"}, {"output"}, {}}},
                   constants);
  };
  EXPECT_EQ(loaded(reshaped({1, 49, 47}), {}).outputShape().count(), 3U);
  EXPECT_THAT(trouble(reshaped({0, 1, 0})), HasSubstr("Range \"count\": its step is 0"));
  EXPECT_THAT(trouble(reshaped({0, std::int64_t{1} << 40, 1})), HasSubstr("a number is 1099511627776"));
  EXPECT_THAT(trouble(reshaped({0, std::int64_t{1} << 31, 1})),
              HasSubstr("it makes a constant of 2147483648 numbers"));
  EXPECT_THAT(trouble(reshaped({5, 1, 1})), HasSubstr("shape is a single number, expected"));
  EXPECT_THAT(trouble(modelOf({{"Range", "count", {"x", "x", "x"}, {"s"}, {}}, operatorOf("Reshape", {"s"})},
                              {numbers("x", {1})})),
              HasSubstr("input \"x\" is not one whole number"));
}

TEST_F(OnnxImport, PicturesWithTheChannelsLast) {
  const Model model = modelOf({{"Transpose", "", {"input"}, {"a"}, {{"perm", Integers{0, 3, 1, 2}}}},
                               {"Conv", "", {"a", "w"}, {"output"}, {}}},
                              {numbers("w", {3, 6, 1, 1})});
  EXPECT_EQ(loaded(model).inputShape(), (train::Shape{2, 4, 6}));
  EXPECT_EQ(loaded(model).outputShape(), (train::Shape{2, 4, 3}));
}

TEST_F(OnnxImport, ConstantsOutOfProportionAreRefused) {
  const auto filled = [&](Integers shape) {
    return modelOf({{"ConstantOfShape", "fill", {"s"}, {"w"}, {}}, operatorOf("Conv", {"w"})},
                   {integers("s", std::move(shape))});
  };
  EXPECT_EQ(loaded(filled({3, 2, 3, 3})).outputShape(), (train::Shape{2, 4, 3}));
  EXPECT_THAT(trouble(filled({1000000, 1000, 1000, 1000})),
              HasSubstr("ConstantOfShape \"fill\": a shape has more than 2147483647 elements"));
  EXPECT_THAT(trouble(filled({-1, 2, 3, 3})), HasSubstr("a shape has the extent -1"));
  EXPECT_THAT(trouble(filled({40000000, 2, 3, 3})), HasSubstr("does not account for"));
  const auto joined = [](std::int64_t count) {
    return modelOf({{"ConstantOfShape", "fill", {"s"}, {"w"}, {}},
                    {"Concat", "join", {"w", "w"}, {"v"}, {{"axis", std::int64_t{0}}}},
                    operatorOf("Conv", {"v"})},
                   {integers("s", {count})});
  };
  EXPECT_THAT(trouble(joined(900000000)),
              HasSubstr("Concat \"join\": it makes a constant of 1800000000 numbers"));
  EXPECT_THAT(trouble(joined(3000000)), HasSubstr("Concat \"join\": operators make more constants than is"));
}

TEST_F(OnnxImport, WrongConstantsAreRefused) {
  Model model = smallModel();
  std::get<std::vector<float>>(model.constants[0].values).pop_back();
  EXPECT_THAT(trouble(model),
              HasSubstr("the constant \"first.weight\": there are 89 values for the shape 5x2x3x3"));
  const auto with = [&](const std::function<void(Message&)>& change) {
    Message tensor;
    tensor.addInteger(1, 1);
    change(tensor);
    tensor.addText(8, "c");
    Message graph;
    graph.addMessage(5, std::move(tensor));
    Message nodes;
    nodes.addText(1, "input");
    nodes.addText(1, "c");
    nodes.addText(2, "output");
    nodes.addText(4, "Add");
    graph.addMessage(1, std::move(nodes));
    Message extent;
    extent.addInteger(1, 1);
    Message shape;
    for (int i = 0; i < 4; ++i) shape.addMessage(1, Message(extent));
    Message tensorType;
    tensorType.addInteger(1, 1);
    tensorType.addMessage(2, std::move(shape));
    Message type;
    type.addMessage(1, std::move(tensorType));
    Message input;
    input.addText(1, "input");
    input.addMessage(2, std::move(type));
    graph.addMessage(11, std::move(input));
    Message output;
    output.addText(1, "output");
    graph.addMessage(12, std::move(output));
    Message set;
    set.addInteger(2, 17);
    Message whole;
    whole.addMessage(7, std::move(graph));
    whole.addMessage(8, std::move(set));
    return trouble(whole);
  };
  EXPECT_THAT(with([](Message& tensor) { tensor.addInteger(2, 8); }),
              HasSubstr("the constant \"c\" has elements of type 8 of ONNX"));
  EXPECT_THAT(with([](Message& tensor) {
                tensor.addInteger(2, 1);
                tensor.addInteger(14, 1);
                Message place;
                place.addText(1, "location");
                place.addText(2, "missing.data");
                tensor.addMessage(13, std::move(place));
              }),
              HasSubstr("the constant \"c\": cannot read " + (folder / "missing.data").string()));
  EXPECT_THAT(with([](Message& tensor) {
                tensor.addInteger(2, 1);
                tensor.addText(9, "abc");
              }),
              HasSubstr("the constant \"c\": its data ends in the middle of a number"));
  EXPECT_THAT(with([](Message& tensor) { tensor.addInteger(2, 1); }),
              HasSubstr("the constant \"c\": there are 0 values for the shape 1"));
}

}  // namespace
}  // namespace unmetal::onnx::import_test
