#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "mps/core/types/error.hpp"
#include "mps/weights/safetensors.hpp"
#include "mps/weights/test_folder.hpp"
#include "mtl/device.hpp"
#include "train/network/network.hpp"

namespace unmetal::train::network_file_test {
namespace {

using mps::detail::errorOf;
using mps::detail::TestFolder;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::shared_ptr<mtl::Device>& device() {
  static const auto device = mtl::newCPUDevice(1);
  return device;
}

/// With a layer of each kind.
Network everyKind(std::uint64_t seed) {
  Network network({12, 10, 2}, {.seed = seed, .device = device()});
  auto x = network.input();
  x = x.convolution(4, 3, {.stride = 2, .dilation = 2, .groups = 2, .biases = false}, "first")
          .batchNormalization({.momentum = 0.5F, .epsilon = 1e-4F})
          .leakyRelu(0.2F);
  x = x.transposedConvolution(4, 2).instanceNormalization().elu().maxPool(2, {.padding = Padding::Same});
  x = x.upsample(2, UpsamplingMode::Bilinear).groupNormalization(2).crossChannelNormalization({.size = 3});
  x = x.averagePool(3, {.stride = 1}).dropout(0.25F);
  x = x.tanh() + x.concatenate(x.relu6()).convolution(4, 1);
  x.globalAveragePool().dense(3, {.initialization = mps::WeightInitialization::Glorot}).softmax();
  return network;
}

const std::vector<float>& pixels() {
  static const std::vector<float> values = [] {
    std::vector<float> made(2 * 12 * 10 * 2);
    for (std::size_t i = 0; i < made.size(); ++i) made[i] = static_cast<float>(i % 17) / 17;
    return made;
  }();
  return values;
}

TEST(NetworkFile, IsTheWholeNetwork) {
  const TestFolder folder;
  const auto path = folder / "net.safetensors";
  const Network network = everyKind(3);
  network.save(path);
  const Network loaded = Network::load(path, {.device = device()});
  EXPECT_EQ(loaded.summary(), network.summary());
  EXPECT_EQ(loaded.predict(pixels()), network.predict(pixels()));
  loaded.save(folder / "again.safetensors");
  EXPECT_EQ(mps::detail::readText(folder / "again.safetensors"), mps::detail::readText(path));
}

TEST(NetworkFile, GivesItsWeightsToAnEqualNetwork) {
  const TestFolder folder;
  const auto path = folder / "net.safetensors";
  const Network network = everyKind(3);
  network.save(path);
  Network other = everyKind(4);
  EXPECT_NE(other.predict(pixels()), network.predict(pixels()));
  other.loadWeights(path);
  EXPECT_EQ(other.predict(pixels()), network.predict(pixels()));

  Network larger({4, 4, 1}, {.device = device()});
  larger.input().dense(3);
  const auto before = larger.predict(std::vector<float>(16, 1));
  EXPECT_THAT(errorOf<mps::Error>([&] { larger.loadWeights(path); }), HasSubstr("\"dense1.weight\""));
  EXPECT_EQ(larger.predict(std::vector<float>(16, 1)), before);
}

/// What load() says of a file with this text and the tensors of a dense layer of 2 x 1.
std::string troubleOf(const std::string& text, bool hasNetwork = true) {
  const TestFolder folder;
  const auto path = folder / "net.safetensors";
  static const std::vector<float> values{1, 2};
  const auto bytes = std::as_bytes(std::span(values));
  mps::SafetensorsMetadata metadata;
  if (hasNetwork) metadata["unmetal.network"] = text;
  mps::writeSafetensors(path,
                        {{"d.weight", mps::DataType::Float32, {2, 1, 1, 1}, bytes},
                         {"d.bias", mps::DataType::Float32, {2}, bytes}},
                        metadata);
  try {
    static_cast<void>(Network::load(path, {.device = device()}));
    return "";
  } catch (const mps::Error& error) {
    const std::string sentence = error.what();
    const std::string beginning = "cannot use " + path.string() + ": ";
    EXPECT_THAT(sentence, StartsWith(beginning));
    return sentence.substr(std::min(beginning.size(), sentence.size()));
  }
}

std::string networkOf(const std::string& layers,
                      const std::string& pictures = R"({"height":1,"width":1,"channels":1})") {
  return R"({"version":1,"pictures":)" + pictures + R"(,"layers":)" + layers + "}";
}

TEST(NetworkFile, ThatIsWrongIsRefused) {
  const std::string dense =
      R"({"label":"d","kind":"dense","inputs":["input"],"channels":2,"biases":true,"initialization":"he"})";
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = dense;
    changed.replace(changed.find(from), from.size(), to);
    return troubleOf(networkOf("[" + changed + "]"));
  };
  EXPECT_EQ(troubleOf(networkOf("[" + dense + "]")), "");
  EXPECT_THAT(troubleOf("", false), HasSubstr("it holds weights, but no network"));
  EXPECT_EQ(troubleOf("{"), "the network is not JSON");
  EXPECT_EQ(troubleOf("[]"), "the network is not an object");
  EXPECT_THAT(troubleOf("{}"), StartsWith("the network: \"pictures\" is missing, expected an object"));
  EXPECT_EQ(troubleOf(R"({"version":2})"), "the network: \"version\" is 2, expected 1");
  EXPECT_EQ(troubleOf(networkOf("[]", "7")), "\"pictures\" is not an object");
  EXPECT_EQ(troubleOf(networkOf("[]", R"({"height":-1})")),
            "\"pictures\": \"height\" is -1, expected a whole number");
  EXPECT_THAT(troubleOf(networkOf("7")), HasSubstr("\"layers\" is no list"));
  EXPECT_EQ(troubleOf(networkOf("[]")), "Network: it has no layers");
  EXPECT_EQ(troubleOf(networkOf("[7]")), "layer 1 is not an object");
  EXPECT_EQ(with(R"("d")", "8"), "layer 1: \"label\" is 8, expected a text");
  EXPECT_EQ(with(R"("d")", R"("")"), "layer 1 \"\": \"label\" is \"\", expected a text that is not empty");
  EXPECT_THAT(
      with(R"("dense")", R"("dance")"),
      StartsWith("layer 1 \"d\": \"kind\" is \"dance\", expected one of convolution, transposedConvolution"));
  EXPECT_THAT(with(R"("dense")", R"("input")"),
              StartsWith("layer 1 \"d\": \"kind\" is \"input\", expected one of"));
  EXPECT_EQ(with(R"(["input"])", R"(["d"])"),
            "layer 1 \"d\": \"inputs\" is [\"d\"], expected labels of layers before it");
  EXPECT_EQ(with(R"(["input"])", "[]"), "layer 1 \"d\": dense \"d\": number of inputs is 0, expected 1");
  EXPECT_EQ(with(R"(:2)", R"(:"2")"), "layer 1 \"d\": \"channels\" is \"2\", expected a whole number");
  EXPECT_EQ(with("true", "1"), "layer 1 \"d\": \"biases\" is 1, expected true or false");
  EXPECT_EQ(with(R"("he")", R"("she")"),
            "layer 1 \"d\": \"initialization\" is \"she\", expected one of he, glorot, constant");
  EXPECT_EQ(with("biases", "bias"),
            "layer 1 \"d\": \"bias\" is no field of it; there are biases, channels, initialization, inputs, "
            "kind, label");
  EXPECT_THAT(with(R"(:2)", R"(:2000000000)"),
              StartsWith("tensor \"d.weight\" is F32[2, 1, 1, 1], expected "));
}

/// conv, batch normalisation, and a dense layer with so many channels.
Network classifier(std::size_t classes, std::uint64_t seed = 1) {
  Network network({4, 4, 1}, {.seed = seed, .device = device()});
  network.input().convolution(3, 3).batchNormalization().relu().globalAveragePool().dense(classes);
  return network;
}

std::vector<float> valuesOf(const Network& network, const std::string& label) {
  std::vector<float> values;
  for (const mps::SafetensorsTensor& tensor : network.trainableLayer(label)->tensors(false)) {
    const std::size_t first = values.size();
    values.resize(first + tensor.bytes.size() / sizeof(float));
    std::memcpy(&values[first], tensor.bytes.data(), tensor.bytes.size());
  }
  return values;
}

TEST(NetworkFile, AnotherHeadBeginsAnew) {
  const TestFolder folder;
  const auto path = folder / "net.safetensors";
  const Network before = classifier(5);
  before.save(path);
  Network other = classifier(2, 7);
  EXPECT_THAT(errorOf<mps::Error>([&] { other.loadWeights(path); }),
              HasSubstr("tensor \"dense1.weight\" is F32[5"));
  EXPECT_EQ(other.loadWeights(path, Head::Own), "dense1");
  EXPECT_EQ(valuesOf(other, "conv1"), valuesOf(before, "conv1"));
  EXPECT_EQ(valuesOf(other, "dense1"), valuesOf(classifier(2, 7), "dense1"));
  Network same = classifier(5, 7);
  EXPECT_EQ(same.loadWeights(path, Head::Own), std::nullopt);
  EXPECT_EQ(valuesOf(same, "dense1"), valuesOf(before, "dense1"));

  const Network loaded = Network::load(path, {.seed = 7, .device = device()}, {.classes = 2});
  EXPECT_EQ(loaded.outputShape().channels, 2U);
  EXPECT_EQ(valuesOf(loaded, "conv1"), valuesOf(before, "conv1"));
  EXPECT_EQ(valuesOf(loaded, "dense1"), valuesOf(other, "dense1"));
  const Network unchanged = Network::load(path, {.seed = 7, .device = device()}, {.classes = 5});
  EXPECT_EQ(valuesOf(unchanged, "dense1"), valuesOf(before, "dense1"));

  // Others than the last layer are not forgiven.
  Network wider({4, 4, 1}, {.device = device()});
  wider.input().convolution(6, 3).batchNormalization().relu().globalAveragePool().dense(5);
  EXPECT_THAT(errorOf<mps::Error>([&] { wider.loadWeights(path, Head::Own); }),
              HasSubstr("\"conv1.weight\""));
}

TEST(NetworkFile, TypesOfOtherProgramsAreConverted) {
  const TestFolder folder;
  const auto path = folder / "weights.safetensors";
  struct Type {
    std::string name;
    std::string weights;  // the bytes of 1 and -2
  };
  using std::string_literals::operator""s;
  for (const Type& type : {Type{"F16", "\x00\x3C\x00\xC0"s}, Type{"BF16", "\x80\x3F\x00\xC0"s},
                           Type{"F64", "\0\0\0\0\0\0\xF0\x3F\0\0\0\0\0\0\x00\xC0"s}}) {
    const std::size_t end = type.weights.size();
    const std::string header = R"({"dense1.weight":{"dtype":")" + type.name +
                               R"(","shape":[2,1,1,1],"data_offsets":[0,)" + std::to_string(end) +
                               R"(]},"dense1.bias":{"dtype":"F32","shape":[2],"data_offsets":[)" +
                               std::to_string(end) + "," + std::to_string(end + 8) + "]}}";
    std::string content(8, '\0');
    for (std::size_t i = 0; i < 8; ++i) content[i] = static_cast<char>(header.size() >> (8 * i) & 0xFFU);
    content += header + type.weights + "\0\0\x40\x40\0\0\x80\x40"s;  // 3 and 4
    mps::detail::writeText(path, content);
    Network network({1, 1, 1}, {.device = device()});
    network.input().dense(2);
    network.loadWeights(path);
    EXPECT_EQ(valuesOf(network, "dense1"), (std::vector<float>{1, -2, 3, 4})) << type.name;
  }
}

TEST(NetworkFile, OfANumberThatIsNotFiniteIsRefused) {
  const TestFolder folder;
  const auto path = folder / "net.safetensors";
  Network network({1, 1, 1}, {.device = device()});
  network.input().dense(2, {.biases = false});
  const std::vector<float> values{1, std::numeric_limits<float>::infinity()};
  mps::writeSafetensors(
      path, {{"dense1.weight", mps::DataType::Float32, {2, 1, 1, 1}, std::as_bytes(std::span(values))}}, {});
  EXPECT_THAT(errorOf<mps::Error>([&] { network.loadWeights(path); }),
              HasSubstr("the tensor \"dense1.weight\" is not finite"));
}

}  // namespace
}  // namespace unmetal::train::network_file_test
