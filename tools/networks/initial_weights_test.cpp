#include "tools/networks/initial_weights.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "mps/conform/tolerance.hpp"
#include "mps/core/types/error.hpp"
#include "mps/graph/nn_graph.hpp"
#include "mps/weights/test_folder.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "tools/networks/networks.hpp"

namespace unmetal::initial_weights_test {
namespace {

using mps::detail::errorOf;
using mps::detail::TestFolder;

constexpr std::size_t side = 64;
constexpr std::size_t channels = 3;
constexpr std::size_t count = 2;
constexpr std::size_t classes = 10;

/// The network that test_data/make describes, and its pictures.
class InitialWeights : public ::testing::Test {
 protected:
  InitialWeights() {
    options_.name = "resnet18:2";
    options_.width = options_.height = side;
    options_.channels = channels;
  }
  [[nodiscard]] mps::ImageBatch pictures() const {
    std::vector<float> values;
    for (std::size_t n = 0; n < count; ++n)
      for (std::size_t y = 0; y < side; ++y)
        for (std::size_t x = 0; x < side; ++x)
          for (std::size_t c = 0; c < channels; ++c)
            values.push_back(static_cast<float>((y * y + (3 + 2 * n) * x * x + x * y + 29 * c) % 97) / 97.0F);
    auto images = mps::ImageBatch::create(
        device_, {mps::ImageFeatureChannelFormat::Float32, side, side, channels}, count);
    images.writeBytes(std::span<const float>(values), mps::DataLayout::HeightxWidthxFeatureChannels);
    return images;
  }
  /// What refuses the file's tensors after a change.
  [[nodiscard]] std::string refusal(std::vector<mps::SafetensorsTensor> tensors,
                                    const mps::SafetensorsMetadata& metadata = {}) const {
    const TestFolder folder;
    const auto path = folder / "weights.safetensors";
    mps::writeSafetensors(path, std::move(tensors), metadata);
    const Network network = buildNetwork(device_, options_);
    return errorOf<mps::Error>([&] { readInitialWeights(network.layers, path); });
  }

  const std::filesystem::path file_ = std::filesystem::path(UNMETAL_TEST_DATA) / "resnet18-2.safetensors";
  std::shared_ptr<mtl::Device> device_ = mtl::createSystemDefaultDevice();
  NetworkOptions options_;
};

TEST_F(InitialWeights, OfTorchvisionsResnetGivePyTorchsLogits) {
  const train::Network network = defineNetwork(device_, options_);
  const auto graph = mps::NNGraph::create(
      device_, network.makeNodes(mps::NNImageNode::create(), train::GraphKind::Inference));
  graph->setFormat(mps::ImageFeatureChannelFormat::Float32);
  readInitialWeights(network.trainableLayers(), file_);
  graph->reloadFromDataSources();
  const auto commandBuffer = device_->newCommandQueue()->commandBuffer();
  const mps::ImageBatch result = graph->encodeBatch(commandBuffer, {pictures()});
  mps::ImageBatchSynchronize(result, commandBuffer);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  std::vector<float> logits(count * classes);
  result.readBytes(std::span(logits), mps::DataLayout::HeightxWidthxFeatureChannels);

  std::istringstream expected(mps::SafetensorsFile::read(file_).metadata("logits"));
  for (const float logit : logits) {
    double theirs = 0;
    ASSERT_TRUE(expected >> theirs);
    EXPECT_NEAR(static_cast<double>(logit), theirs, mps::detail::kPyTorchTolerance);
  }
  EXPECT_FALSE(expected >> std::ws && !expected.eof());
}

TEST_F(InitialWeights, AMissingAWrongAndAnExtraTensorAreNamed) {
  const auto file = mps::SafetensorsFile::read(file_);
  const auto without = [&](const std::string& name) {
    std::vector<mps::SafetensorsTensor> tensors;
    for (const auto& tensor : file.tensors())
      if (tensor.name != name) tensors.push_back(tensor);
    return tensors;
  };
  EXPECT_NE(
      refusal(without("layer3.1.bn2.running_var")).find("it has no tensor \"layer3.1.bn2.running_var\""),
      std::string::npos);
  EXPECT_NE(refusal(without("conv1.weight")).find("it has no tensor \"conv1.weight\""), std::string::npos);

  auto wrong = without("fc.weight");
  auto matrix = file.tensor("fc.weight");
  std::swap(matrix.shape[0], matrix.shape[1]);
  wrong.push_back(matrix);
  const std::string sentence = refusal(wrong);
  EXPECT_NE(sentence.find("\"fc.weight\""), std::string::npos) << sentence;
  EXPECT_NE(sentence.find("expected"), std::string::npos) << sentence;

  auto extra = without("");
  auto added = file.tensor("fc.bias");
  added.name = "conv1.bias";
  extra.push_back(added);
  EXPECT_NE(refusal(extra).find("no layer of the network takes its tensor \"conv1.bias\""),
            std::string::npos);
}

TEST_F(InitialWeights, ALastLayerForOtherClassesBeginsAnew) {
  const Network expected = buildNetwork(device_, options_);
  EXPECT_EQ(readInitialWeights(expected.layers, file_), std::nullopt);
  options_.classNames.resize(4);
  const Network network = buildNetwork(device_, options_);
  const auto valuesOf = [](const mps::TrainableLayer& layer) {
    std::vector<std::byte> bytes;
    for (const mps::SafetensorsTensor& tensor : layer.tensors(false))
      bytes.insert(bytes.end(), tensor.bytes.begin(), tensor.bytes.end());
    return bytes;
  };
  const auto head = valuesOf(*network.layers.back());
  EXPECT_EQ(readInitialWeights(network.layers, file_), "fc");
  EXPECT_EQ(valuesOf(*network.layers.back()), head);
  for (std::size_t i = 0; i + 1 < network.layers.size(); ++i)
    EXPECT_EQ(valuesOf(*network.layers[i]), valuesOf(*expected.layers[i])) << i;
  // Before memory is taken: the last layer may be another one, a layer before it may not.
  const auto check = unmetal::InitialWeights(file_).tensorCheck();
  check("conv1.weight", std::vector<std::uint64_t>{2, 7, 7, 3});
  check("fc.weight", std::vector<std::uint64_t>{4, 1, 1, 16});
  check("fc.bias", std::vector<std::uint64_t>{4});
  EXPECT_NE(errorOf<mps::Error>([&] {
              check("behind.weight", std::vector<std::uint64_t>{4});
            }).find("\"fc.weight\""),
            std::string::npos);
}

/// Shapes of our own files are not PyTorch's.
TEST_F(InitialWeights, OfThisProgramAreRead) {
  const Network before = buildNetwork(device_, options_);
  options_.seed = 5;
  const Network after = buildNetwork(device_, options_);
  const TestFolder folder;
  std::vector<mps::SafetensorsTensor> tensors;
  for (const auto& layer : before.layers)
    for (const auto& tensor : layer->tensors(true)) tensors.push_back(tensor);
  mps::writeSafetensors(folder / "checkpoint.safetensors", tensors, {{"setting.net", "resnet18:2"}});
  EXPECT_EQ(readInitialWeights(after.layers, folder / "checkpoint.safetensors"), std::nullopt);
  for (std::size_t i = 0; i < before.layers.size(); ++i)
    for (std::size_t k = 0; k < before.layers[i]->tensors(false).size(); ++k)
      EXPECT_TRUE(std::ranges::equal(before.layers[i]->tensors(false)[k].bytes,
                                     after.layers[i]->tensors(false)[k].bytes));
}

TEST_F(InitialWeights, WhatIsNotFiniteIsNamed) {
  const auto file = mps::SafetensorsFile::read(file_);
  for (const float value : {std::nanf(""), HUGE_VALF, -HUGE_VALF})
    for (const char* name : {"fc.weight", "layer1.0.bn1.running_var"}) {
      std::vector<mps::SafetensorsTensor> tensors(file.tensors().begin(), file.tensors().end());
      const auto wrong = std::ranges::find(tensors, name, &mps::SafetensorsTensor::name);
      ASSERT_NE(wrong, tensors.end());
      std::vector<std::byte> bytes(wrong->bytes.begin(), wrong->bytes.end());
      std::memcpy(bytes.data() + bytes.size() - sizeof value, &value, sizeof value);
      wrong->bytes = bytes;
      EXPECT_NE(refusal(tensors).find("the tensor \"" + std::string(name) + "\" is not finite"),
                std::string::npos);
    }
}

}  // namespace
}  // namespace unmetal::initial_weights_test
