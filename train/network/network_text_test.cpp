#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "mps/core/types/error.hpp"
#include "mps/weights/test_folder.hpp"
#include "mtl/device.hpp"
#include "train/network/network.hpp"

/// Networks that users write down.
namespace unmetal::train::network_text_test {
namespace {

using mps::detail::TestFolder;
using ::testing::StartsWith;

const std::shared_ptr<mtl::Device>& device() {
  static const auto device = mtl::newCPUDevice(1);
  return device;
}

Network networkOf(const std::string& text, const LoadOptions& loading = {}) {
  const TestFolder folder;
  mps::detail::writeText(folder / "net.json", text);
  return Network::fromFile(folder / "net.json", {.seed = 3, .device = device()}, loading);
}

/// Without the words that it begins with.
std::string troubleOf(const std::string& layers, const LoadOptions& loading = {}) {
  try {
    static_cast<void>(
        networkOf(R"({"pictures": {"height": 8, "width": 8}, "layers": [)" + layers + "]}", loading));
    return "";
  } catch (const mps::Error& error) {
    const std::string sentence = error.what();
    const std::string beginning = "net.json: ";
    EXPECT_THAT(sentence, StartsWith("cannot use "));
    return sentence.substr(sentence.find(beginning) + beginning.size());
  }
}

TEST(NetworkText, HasTheDefaultsOfTheMethods) {
  const Network written = networkOf(R"({
    "pictures": {"height": 28, "width": 28, "channels": 1},
    "layers": [
      {"kind": "convolution", "channels": 8, "kernelSize": 5, "biases": false},
      {"kind": "batchNormalization"},
      {"kind": "leakyRelu", "slope": 0.2},
      {"kind": "maxPool", "kernelSize": 2, "label": "pooled"},
      {"kind": "convolution", "channels": 8, "kernelSize": 3},
      {"kind": "tanh"},
      {"kind": "add", "inputs": ["tanh1", "pooled"]},
      {"kind": "elu"},
      {"kind": "globalAveragePool"},
      {"kind": "dropout", "rate": 0.25},
      {"kind": "dense", "channels": 10}
    ]})");
  Network expected({28, 28, 1}, {.seed = 3, .device = device()});
  const auto x = expected.input()
                     .convolution(8, 5, {.biases = false})
                     .batchNormalization()
                     .leakyRelu(0.2F)
                     .maxPool(2, {}, "pooled");
  (x.convolution(8, 3).tanh() + x).elu().globalAveragePool().dropout(0.25F).dense(10);
  EXPECT_EQ(written.summary(), expected.summary());
  std::vector<float> picture(28 * 28);
  for (std::size_t i = 0; i < picture.size(); ++i) picture[i] = static_cast<float>(i % 23) / 23;
  EXPECT_EQ(written.predict(picture), expected.predict(picture)) << "the same seed, the same functions";
}

TEST(NetworkText, SidesMarginsAndArithmetic) {
  const Network written = networkOf(R"({
    "pictures": {"height": 9, "width": 8, "channels": 2},
    "layers": [
      {"kind": "convolution", "channels": 4, "kernelSize": [3, 2], "stride": [2, 1], "padding": "explicit",
       "margins": [1, 0, 2, 1]},
      {"kind": "pad", "margins": [0, 1, 0, 1], "content": "edge"},
      {"kind": "normPool", "kernelSize": 2, "label": "pooled"},
      {"kind": "globalAveragePool"},
      {"kind": "arithmetic", "operation": "multiply", "inputs": ["pooled", "globalAveragePool1"]},
      {"kind": "upsample", "factor": [1, 2], "mode": "bilinearAlignCorners"},
      {"kind": "transposedConvolution", "channels": 3, "kernelSize": 4, "margins": [1, 1, 1, 1]},
      {"kind": "activation", "function": "power", "a": 1, "b": 2, "c": 2}
    ]})");
  EXPECT_EQ(written.layers()[1].shape, (Shape{5, 8, 4}));
  EXPECT_EQ(written.layers()[2].shape, (Shape{5, 10, 4}));
  EXPECT_EQ(written.layers()[5].shape, (Shape{2, 5, 4}));
  EXPECT_EQ(written.outputShape(), (Shape{4, 20, 3}));
  const TestFolder folder;
  written.save(folder / "network");
  std::vector<float> picture(9 * 8 * 2);
  for (std::size_t i = 0; i < picture.size(); ++i) picture[i] = static_cast<float>(i % 23) / 23;
  EXPECT_EQ(Network::load(folder / "network").predict(picture), written.predict(picture));
  EXPECT_EQ(troubleOf(R"({"kind": "pad", "margins": [1, 2, 3]})"),
            "layer 1: \"margins\" is [1,2,3], expected four whole numbers: top, left, bottom, right");
  EXPECT_EQ(troubleOf(R"({"kind": "pad", "margins": [1, -2, 3, 4]})"),
            "layer 1: \"margins\" is [1,-2,3,4], expected a list of whole numbers");
  EXPECT_EQ(troubleOf(R"({"kind": "maxPool", "kernelSize": [1, 2, 3]})"),
            "layer 1: \"kernelSize\" is [1,2,3], expected one whole number, or two: height, width");
  EXPECT_EQ(
      troubleOf(R"({"kind": "maxPool", "kernelSize": 2, "margins": [1, 0, 0, 0]})"),
      "layer 1: maxPool \"maxPool1\": margins is 1, 0, 0, 0, expected none, unless the padding is explicit");
  EXPECT_EQ(troubleOf(R"({"kind": "pad", "margins": [8, 0, 0, 0], "content": "mirror"})"),
            "layer 1: pad \"pad1\": margins is 8, 0, 0, 0, expected less than the picture of 8x8x1");
  EXPECT_EQ(
      troubleOf(R"({"kind": "transposedConvolution", "channels": 1, "kernelSize": 1, "stride": 1,
                          "margins": [4, 0, 4, 0]})"),
      "layer 1: transposedConvolution \"deconv1\": margins is 4, 0, 4, 0, expected less than the result of 8 "
      "pixels");
}

TEST(NetworkText, TakesPicturesAndClassesFromTheData) {
  const std::string text =
      R"({"layers": [{"kind": "globalAveragePool"}, {"kind": "dense", "channels": "classes"}]})";
  const Network network = networkOf(text, {.classes = 7, .pictures = Shape{5, 6, 2}});
  EXPECT_EQ(network.inputShape(), (Shape{5, 6, 2}));
  EXPECT_EQ(network.outputShape().channels, 7U);
  EXPECT_EQ(troubleOf(R"({"kind": "dense", "channels": "classes"})"),
            "the channels of a layer are \"classes\", and it was not said how many these are");
  EXPECT_EQ(troubleOf(R"({"kind": "dense", "channels": 3})", {.classes = 4}),
            "the network's result has 3 channels, expected 4, one for each class");
  EXPECT_EQ(troubleOf(R"({"kind": "dense", "channels": 3})", {.pictures = Shape{8, 8, 3}}),
            "\"pictures\" are 8x8x1, expected 8x8x3, as the data are");
}

TEST(NetworkText, MistakesAreNamed) {
  EXPECT_EQ(troubleOf(R"({"kind": "relu"}, {"kind": "convolution", "kernelSize": 3})"),
            "layer 2: \"channels\" is missing, expected a whole number");
  EXPECT_EQ(troubleOf(R"({"kind": "convolution", "channels": 4, "kernel_size": 3})"),
            "layer 1: \"kernelSize\" is missing, expected a whole number");
  EXPECT_EQ(troubleOf(R"({"kind": "relu", "slope": 0.1})"),
            "layer 1: \"slope\" is no field of it; there are inputs, kind, label");
  EXPECT_EQ(troubleOf(R"({"kind": "maxPool", "kernelSize": 2, "padding": "full", "label": "p"})"),
            "layer 1 \"p\": \"padding\" is \"full\", expected one of same, valid, explicit");
  EXPECT_EQ(troubleOf(R"({"kind": "convolution", "channels": 4, "kernelSize": 3, "stride": 0})"),
            "layer 1: convolution \"conv1\": stride is 0, expected 1 to 2147483647");
  EXPECT_THAT(troubleOf(R"({"kind": "conv"})"),
              StartsWith("layer 1: \"kind\" is \"conv\", expected one of convolution"));
  EXPECT_THAT(
      troubleOf(R"({"kind": "add", "inputs": ["input", "later"]})"),
      StartsWith("layer 1: \"inputs\" is [\"input\",\"later\"], expected labels of layers before it"));
  EXPECT_EQ(troubleOf(R"({"label": "a", "kind": "relu"}, {"label": "a", "kind": "relu"})"),
            "layer 2 \"a\": relu \"a\": label is that of another layer, expected one of its own");
  EXPECT_EQ(troubleOf("}"), "the network is not JSON");
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  EXPECT_THAT(troubleOf(R"({"kind": )" + deep + "}"),
              StartsWith("layer 1: \"kind\" is a list of lists or objects, expected"));
  EXPECT_EQ(troubleOf(R"({"kind": "relu", "a\nb": {}})"),
            "layer 1: \"a\\nb\" is no field of it; there are inputs, kind, label");
  EXPECT_EQ(troubleOf(R"({"kind": "relu"}], "optimizer": "adam", "more": [)"),
            "the network: \"optimizer\" is no field of it; there are layers, pictures, version");
  EXPECT_EQ(troubleOf(R"({"kind": "relu"}, {"kind": "tanh", "inputs": ["input"]})"),
            "relu \"relu1\": no layer uses its result, and the result of the network is that of \"tanh1\", "
            "which was added last");
}

}  // namespace
}  // namespace unmetal::train::network_text_test
