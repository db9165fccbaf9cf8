#include "tools/evaluation/evaluation.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mps/core/types/error.hpp"
#include "mps/weights/safetensors.hpp"
#include "mps/weights/test_folder.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"

namespace unmetal::evaluation_test {
namespace {

using mps::detail::errorOf;
using mps::detail::TestFolder;

class Evaluation : public ::testing::Test {
 protected:
  Evaluation() {
    options_.name = "lenet";
    options_.classNames = data_.pictures->classNames();
  }

  std::shared_ptr<mtl::Device> device_ = mtl::createSystemDefaultDevice();
  std::shared_ptr<mtl::CommandQueue> queue_ = device_->newCommandQueue();
  NamedData data_ = loadDataset("synthetic", Split::Test);
  NetworkOptions options_;
};

TEST_F(Evaluation, ClassesOfOtherNamesAreRefused) {
  const Network network = buildNetwork(device_, options_);
  data_.isGenerated = false;
  EXPECT_EQ(evaluate(network, queue_, data_).total(), data_.pictures->size());
  std::vector<std::string> names = options_.classNames;
  std::swap(names[2], names[5]);
  data_.pictures = std::make_unique<train::MemoryDataset>(train::Shape{28, 28, 1}, std::vector<float>(784),
                                                          std::vector<std::uint32_t>{0}, std::move(names));
  EXPECT_EQ(errorOf<mps::Error>([&] { evaluate(network, queue_, data_); }),
            "data synthetic: the network's class 2 is \"square 2\", not \"square 5\"");
}

TEST_F(Evaluation, GeneratedPicturesAreForAnyNetwork) {
  options_.classNames[0] = "shirt";
  EXPECT_EQ(evaluate(buildNetwork(device_, options_), queue_, data_).total(), data_.pictures->size());
}

TEST_F(Evaluation, TakesFewerPicturesAtOnceWhenTheyAreLarge) {
  EXPECT_EQ(picturesAtOnce(options_), 500U);
  options_.width = options_.height = 64;
  options_.channels = 3;
  EXPECT_EQ(picturesAtOnce(options_), 500U);
  options_.width = options_.height = 1024;  // 12 MiB
  options_.batchSize = 1;
  EXPECT_EQ(picturesAtOnce(options_), 2U);
  options_.batchSize = 8;
  EXPECT_EQ(picturesAtOnce(options_), 8U);
  options_.batchSize = 100'000;
  EXPECT_EQ(picturesAtOnce(options_), 500U);
  options_.width = options_.height = options_.channels = 4096;
  options_.batchSize = 0;
  EXPECT_EQ(picturesAtOnce(options_), 1U);
}

TEST_F(Evaluation, ProbabilitiesThatAreNotFiniteAreRefused) {
  const Network network = buildNetwork(device_, options_);
  std::vector<std::vector<std::byte>> bytes;
  std::vector<mps::SafetensorsTensor> tensors;
  for (const auto& layer : network.layers)
    for (const auto& tensor : layer->tensors(false)) {
      bytes.emplace_back(tensor.bytes.begin(), tensor.bytes.end());
      tensors.push_back({tensor.name, tensor.type, tensor.shape, {}});
    }
  const float nan = std::nanf("");
  std::memcpy(bytes.back().data(), &nan, sizeof nan);  // the last bias
  for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].bytes = bytes[i];
  const TestFolder folder;
  mps::writeSafetensors(folder / "weights", std::move(tensors), {});
  const auto file = mps::SafetensorsFile::read(folder / "weights");
  for (const auto& layer : network.layers) layer->read(file, false);
  EXPECT_EQ(errorOf<mps::Error>([&] { evaluate(network, queue_, data_); }),
            "the network's probabilities are not finite; train it with a smaller --lr");
}

}  // namespace
}  // namespace unmetal::evaluation_test
