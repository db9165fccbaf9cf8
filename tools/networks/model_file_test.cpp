#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
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
    const train::Network network = defineNetwork(device, {.name = name});
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
  const train::Network network = defineNetwork(device, {.name = "resnet18:2", .seed = 7});
  onnx::exportNetwork(network, path);
  const std::vector<float> pictures = randomPictures(network);

  Network same = buildNetwork(device, {.name = path.string()});
  EXPECT_NE(same.definition->predict(pictures), network.predict(pictures)) << "weights of its seed";
  EXPECT_EQ(readInitialWeights(same, path), std::nullopt);
  EXPECT_EQ(same.definition->predict(pictures), network.predict(pictures));

  Network other = buildNetwork(device, {.name = path.string(), .classNames = {"a", "b", "c"}});
  EXPECT_EQ(other.definition->outputShape().channels, 3U);
  EXPECT_EQ(readInitialWeights(other, path), "fc");
  // What a checkpoint keeps of it.
  EXPECT_EQ(
      defineNetwork(device,
                    {.name = path.string(), .description = other.description, .classNames = {"a", "b", "c"}})
          .summary(),
      other.definition->summary());

  Network wrong = buildNetwork(device, {.name = "lenet"});
  EXPECT_THROW(readInitialWeights(wrong, path), mps::Error);
}

}  // namespace
}  // namespace unmetal::model_file_test
