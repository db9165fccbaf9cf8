#include "tools/training/checkpoint.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "mps/core/types/error.hpp"
#include "mps/weights/test_folder.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "tools/options/device_options.hpp"
#include "train/training/optimizers.hpp"

namespace unmetal::checkpoint_test {
namespace {

using mps::detail::errorOf;
using mps::detail::TestFolder;

Network smallNetwork(const std::shared_ptr<mtl::Device>& device) {
  NetworkOptions options;
  options.name = "lenet";
  options.batchSize = 1;
  options.optimizer = train::makeOptimizer(device, "sgd", train::defaultLearningRate("sgd"), 0);
  return buildNetwork(device, options);
}

TEST(Checkpoint, NamesItsPlanFileWhichMayDiffer) {
  const auto device = mtl::createSystemDefaultDevice();
  const auto queue = device->newCommandQueue();
  Network network = smallNetwork(device);
  const TestFolder folder;
  const auto path = folder / "checkpoint.safetensors";
  const TrainingSettings settings{{"net", "lenet"}, {"seed", "0"}, {"plans", "plans.json 0123456789abcdef"}};
  Checkpoint::take(network, *queue, {}, settings).write(path);
  const CheckpointFile file = CheckpointFile::read(path);
  EXPECT_EQ(file.plans(), "plans.json 0123456789abcdef");
  EXPECT_NO_THROW(file.restoreTraining(network, settings));
  EXPECT_NO_THROW(file.restoreTraining(network, {{"net", "lenet"}, {"seed", "0"}, {"plans", "none"}}));
  EXPECT_NE(errorOf<mps::Error>([&] {
              file.restoreTraining(network, {{"net", "lenet"}, {"seed", "1"}, {"plans", "none"}});
            }).find("--seed 0, not 1"),
            std::string::npos);
}

TEST(Checkpoint, OneThatNamesNoPlanFileHadNone) {
  const auto device = mtl::createSystemDefaultDevice();
  const auto queue = device->newCommandQueue();
  Network network = smallNetwork(device);
  const TestFolder folder;
  const auto path = folder / "checkpoint.safetensors";
  Checkpoint::take(network, *queue, {}, {{"net", "lenet"}}).write(path);
  const CheckpointFile file = CheckpointFile::read(path);
  EXPECT_EQ(file.plans(), "none");
  EXPECT_EQ(plansOf(*device), "none");
  EXPECT_NO_THROW(
      file.restoreTraining(network, {{"net", "lenet"}, {"plans", "plans.json 0123456789abcdef"}}));
}

TEST(Checkpoint, NamesItsNumberOfPicturesWhichTheTrainerCompares) {
  const auto device = mtl::createSystemDefaultDevice();
  const auto queue = device->newCommandQueue();
  Network network = smallNetwork(device);
  const TestFolder folder;
  const auto path = folder / "checkpoint.safetensors";
  const auto read = [&](const TrainingSettings& settings) {
    Checkpoint::take(network, *queue, {}, settings).write(path);
    return CheckpointFile::read(path);
  };
  const CheckpointFile file = read({{"net", "lenet"}, {"pictures", "40"}});
  EXPECT_EQ(file.pictures(), 40U);
  EXPECT_NO_THROW(file.restoreTraining(network, {{"net", "lenet"}, {"pictures", "41"}}));
  EXPECT_EQ(read({{"net", "lenet"}}).pictures(), std::nullopt);
  EXPECT_NO_THROW(read({{"net", "lenet"}}).restoreTraining(network, {{"net", "lenet"}, {"pictures", "41"}}));
  EXPECT_THROW(static_cast<void>(read({{"net", "lenet"}, {"pictures", "many"}}).pictures()), mps::Error);
}

TEST(Checkpoint, ClassesOfOtherNamesAreRefused) {
  const auto device = mtl::createSystemDefaultDevice();
  const auto queue = device->newCommandQueue();
  Network network = smallNetwork(device);
  network.options.classNames = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};
  const TestFolder folder;
  const auto path = folder / "checkpoint.safetensors";
  Checkpoint::take(network, *queue, {}, {{"net", "lenet"}}).write(path);
  const CheckpointFile file = CheckpointFile::read(path);
  EXPECT_NO_THROW(file.restoreTraining(network, {{"net", "lenet"}}));
  std::swap(network.options.classNames[3], network.options.classNames[8]);
  const auto error = [&] {
    return errorOf<mps::Error>([&] { file.restoreTraining(network, {{"net", "lenet"}}); });
  };
  EXPECT_NE(error().find("its class 3 is \"d\", not \"i\""), std::string::npos) << error();
  network.options.classNames.resize(2);
  EXPECT_NE(error().find("its number of classes is 10, not 2"), std::string::npos) << error();
}

TEST(Checkpoint, OneThatNoTrainingGoesOnWithIsNotWritten) {
  const auto device = mtl::createSystemDefaultDevice();
  const auto queue = device->newCommandQueue();
  Network network = smallNetwork(device);
  const TestFolder folder;
  const auto path = folder / "checkpoint.safetensors";
  const TrainingSettings settings{{"net", "lenet"}};
  Checkpoint::take(network, *queue, {}, settings).write(path);
  const std::string before = mps::detail::readText(path);
  const auto weights = network.layers.front()->tensors(false).front();
  const auto value = std::numeric_limits<float>::infinity();
  std::memcpy(const_cast<std::byte*>(weights.bytes.data()), &value, sizeof value);
  const std::string error =
      errorOf<mps::Error>([&] { Checkpoint::take(network, *queue, {}, settings).write(path); });
  EXPECT_EQ(error, "the training has failed before " + path.string() + " was written: its tensor \"" +
                       weights.name + "\" is not finite; give a smaller --lr");
  EXPECT_EQ(mps::detail::readText(path), before);
}

TEST(Checkpoint, ItsArithmeticMayDifferAndItsAugmentationMayNot) {
  const auto device = mtl::createSystemDefaultDevice();
  const auto queue = device->newCommandQueue();
  Network network = smallNetwork(device);
  const TestFolder folder;
  const auto path = folder / "checkpoint.safetensors";
  const auto read = [&](const TrainingSettings& settings) {
    Checkpoint::take(network, *queue, {}, settings).write(path);
    return CheckpointFile::read(path);
  };
  const CheckpointFile file =
      read({{"net", "lenet"}, {"data", "synthetic"}, {"augment", "crop"}, {"arithmetic", "1 thread"}});
  EXPECT_EQ(file.arithmetic(), "1 thread");
  EXPECT_EQ(file.augmentation(), (train::Augmentation{.crop = 0.125}));
  EXPECT_NO_THROW(file.restoreTraining(network, {{"augment", "crop"}, {"arithmetic", "2 threads"}}));
  EXPECT_NE(errorOf<mps::Error>([&] {
              file.restoreTraining(network, {{"augment", "none"}});
            }).find("--augment crop, not none"),
            std::string::npos);
  // As versions without the option wrote them.
  EXPECT_EQ(read({{"data", "synthetic"}}).augmentation(), train::Augmentation{});
  EXPECT_EQ(read({{"data", "folder:x"}}).augmentation(), (train::Augmentation{.crop = 0.125, .flip = true}));
  EXPECT_EQ(read({{"data", "folder:x"}}).arithmetic(), std::nullopt);
  EXPECT_THROW(static_cast<void>(read({{"data", "x"}, {"augment", "x"}}).augmentation()), mps::Error);
}

TEST(Checkpoint, KeepsTheNormalizationOfPictures) {
  const auto device = mtl::createSystemDefaultDevice();
  const auto queue = device->newCommandQueue();
  Network network = smallNetwork(device);
  const TestFolder folder;
  const auto path = folder / "checkpoint.safetensors";
  const auto read = [&](const std::optional<train::Normalization>& normalization) {
    network.options.normalization = normalization;
    Checkpoint::take(network, *queue, {}, {{"net", "lenet"}, {"normalize", "computed"}}).write(path);
    return CheckpointFile::read(path);
  };
  const train::Normalization normalization{{0.1F}, {0.7F}};
  const CheckpointFile file = read(normalization);
  EXPECT_EQ(file.networkOptions().normalization, normalization);
  EXPECT_NE(errorOf<mps::Error>([&] {
              file.restoreTraining(network, {{"net", "lenet"}, {"normalize", "none"}});
            }).find("--normalize computed, not none"),
            std::string::npos);
  EXPECT_EQ(read(std::nullopt).networkOptions().normalization, std::nullopt);
  const auto trouble = [&](const train::Normalization& wrong) {
    return errorOf<mps::Error>([&] { static_cast<void>(read(wrong).networkOptions()); });
  };
  EXPECT_NE(trouble({{0.1F}, {0}}).find("a deviation is not a number above 0"), std::string::npos);
  EXPECT_NE(trouble({{0.1F, 0.2F}, {1}}).find("there are 2 means and 1 deviations"), std::string::npos);
  // As versions without the option wrote them.
  network.options.normalization = std::nullopt;
  Checkpoint::take(network, *queue, {}, {{"net", "lenet"}}).write(path);
  EXPECT_NO_THROW(
      CheckpointFile::read(path).restoreTraining(network, {{"net", "lenet"}, {"normalize", "none"}}));
}

}  // namespace
}  // namespace unmetal::checkpoint_test
