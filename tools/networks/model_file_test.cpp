#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "mps/core/types/error.hpp"
#include "mps/weights/test_folder.hpp"
#include "mtl/device.hpp"
#include "onnx/export.hpp"
#include "onnx/import.hpp"
#include "tools/networks/initial_weights.hpp"
#include "tools/networks/networks.hpp"

/// ONNX files as networks of the program.
namespace unmetal::model_file_test {
namespace {

using mps::detail::TestFolder;

NetworkOptions optionsOf(const std::string& name,
                         std::vector<std::string> classNames = std::vector<std::string>(10)) {
  NetworkOptions options;
  options.name = name;
  options.classNames = std::move(classNames);
  return options;
}

std::vector<float> randomPictures(const train::Network& network) {
  std::mt19937 random(4);
  std::vector<float> pictures(2 * network.inputShape().count());
  for (float& value : pictures) value = std::uniform_real_distribution<float>()(random);
  return pictures;
}

TEST(ModelFile, NetworksOfTheProgramComputeTheSameBits) {
  const auto device = mtl::createSystemDefaultDevice();
  const TestFolder folder;
  for (const std::string& name : narrowNetworkNames()) {
    const train::Network network = defineNetwork(device, optionsOf(name));
    onnx::exportNetwork(network, folder / "network.onnx");
    const train::Network found = onnx::load(folder / "network.onnx");
    const std::vector<float> pictures = randomPictures(network);
    EXPECT_EQ(found.predict(pictures), network.predict(pictures)) << name;
  }
}

TEST(ModelFile, GivesLayersAndThenWeights) {
  const auto device = mtl::createSystemDefaultDevice();
  const TestFolder folder;
  const std::filesystem::path path = folder / "network.onnx";
  const train::Network network = defineNetwork(device, optionsOf("resnet18:2"));
  onnx::exportNetwork(network, path);
  const std::vector<float> pictures = randomPictures(network);

  NetworkOptions options = optionsOf(path.string());
  options.seed = 7;
  Network same = buildNetwork(device, options);
  EXPECT_NE(same.definition->predict(pictures), network.predict(pictures)) << "weights of its seed";
  EXPECT_EQ(readInitialWeights(same, path), std::nullopt);
  EXPECT_EQ(same.definition->predict(pictures), network.predict(pictures));

  options.classNames = {"a", "b", "c"};
  Network other = buildNetwork(device, options);
  EXPECT_EQ(other.definition->outputShape().channels, 3U);
  EXPECT_EQ(readInitialWeights(other, path), "fc");
  // What a checkpoint keeps of it.
  options.description = other.description;
  EXPECT_EQ(defineNetwork(device, options).summary(), other.definition->summary());

  Network wrong = buildNetwork(device, optionsOf("lenet"));
  EXPECT_THROW(readInitialWeights(wrong, path), mps::Error);
}

}  // namespace
}  // namespace unmetal::model_file_test
