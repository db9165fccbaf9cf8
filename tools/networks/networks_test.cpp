#include "tools/networks/networks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <string>
#include <vector>

#include "mps/core/types/error.hpp"
#include "mps/loss/loss.hpp"
#include "mps/weights/test_folder.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "train/pictures/synthetic.hpp"
#include "train/training/optimizers.hpp"

namespace unmetal::networks_test {
namespace {

using mps::detail::errorOf;

class Networks : public ::testing::Test {
 protected:
  [[nodiscard]] NetworkOptions optionsFor(const std::string& name, std::size_t batchSize) const {
    NetworkOptions options;
    options.name = name;
    options.batchSize = batchSize;
    options.seed = 2;
    options.optimizer = train::makeOptimizer(device_, "adam", train::defaultLearningRate("adam"), 0);
    return options;
  }

  /// Pictures of the generated data set from number `first` on.
  [[nodiscard]] mps::ImageBatch pictures(std::size_t first, std::size_t count) const {
    std::vector<float> pixels;
    for (const std::uint8_t pixel :
         std::span(data_.bytes()).subspan(first * shape_.count(), count * shape_.count()))
      pixels.push_back(static_cast<float>(pixel) / 255.0F);
    auto images = mps::ImageBatch::create(
        device_, {mps::ImageFeatureChannelFormat::Float32, shape_.width, shape_.height, shape_.channels},
        count);
    images.writeBytes(std::span<const float>(pixels), mps::DataLayout::HeightxWidthxFeatureChannels);
    return images;
  }

  /// Mean loss of a step on the first pictures.
  double step(const Network& network) const {
    const std::size_t batch = network.options.batchSize;
    const auto labels = mps::CNNLossLabels::createClassBatch(device_, batch);
    mps::CNNLossLabels::writeClassIndices(labels, std::span(data_.labels()).first(batch));
    const auto commandBuffer = device_->newCommandQueue()->commandBuffer();
    network.training->encodeBatch(commandBuffer, {pictures(0, batch)}, {labels});
    mps::StateBatchSynchronize(labels, commandBuffer);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    std::vector<float> losses(batch);
    mps::CNNLossLabels::lossImages(labels).readBytes(std::span(losses),
                                                     mps::DataLayout::HeightxWidthxFeatureChannels);
    double sum = 0;
    for (const float loss : losses) sum += static_cast<double>(loss);
    return sum;
  }

  [[nodiscard]] std::vector<float> probabilities(const Network& network,
                                                 const mps::ImageBatch& images) const {
    const auto commandBuffer = device_->newCommandQueue()->commandBuffer();
    const mps::ImageBatch result = network.inference->encodeBatch(commandBuffer, {images});
    mps::ImageBatchSynchronize(result, commandBuffer);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    std::vector<float> values(images.count() * network.options.classNames.size());
    result.readBytes(std::span(values), mps::DataLayout::HeightxWidthxFeatureChannels);
    return values;
  }

  /// One thread: much waiting for others would be about little work.
  std::shared_ptr<mtl::Device> device_ = mtl::newCPUDevice(1);
  train::SyntheticDataset data_{train::Split::Training};
  train::Shape shape_ = data_.shape();
};

/// The tensors of a network's layers by name.
std::map<std::string, mps::SafetensorsTensor> tensorsOf(const Network& network) {
  std::map<std::string, mps::SafetensorsTensor> tensors;
  for (const auto& layer : network.layers)
    for (const mps::SafetensorsTensor& tensor : layer->tensors(false)) tensors[tensor.name] = tensor;
  return tensors;
}

TEST_F(Networks, LearnAFewPictures) {
  for (const std::string& name : narrowNetworkNames()) {
    const Network network = buildNetwork(device_, optionsFor(name, 8));
    const double before = step(network);
    double after = before;
    for (int i = 0; i < 25; ++i) after = step(network);
    EXPECT_LT(after, before) << name;
    EXPECT_TRUE(std::isfinite(after)) << name;
  }
}

TEST_F(Networks, DrawingALargeOneTakesNoTime) {
  for (const char* name : {"resnet18", "resnet50"}) {
    NetworkOptions options;
    options.name = name;
    options.width = options.height = 224;
    options.channels = 3;
    const train::Network network = defineNetwork(device_, options);
    const std::clock_t start = std::clock();
    EXPECT_FALSE(network.drawing().empty());
    EXPECT_LT(std::clock() - start, 2 * CLOCKS_PER_SEC) << name;
  }
}

TEST_F(Networks, HaveTheParametersOfTorchvision) {
  // What torchvision's documentation says of both; the last layer and the first one in colour included.
  for (const auto& [name, expected] : {std::pair<std::string, std::size_t>{"resnet18", 11'689'512},
                                       std::pair<std::string, std::size_t>{"resnet50", 25'557'032}}) {
    NetworkOptions options;
    options.name = name;
    options.width = options.height = 224;
    options.channels = 3;
    options.classNames.resize(1000);
    const Network network = buildNetwork(device_, options);
    EXPECT_EQ(network.parameterCount, expected) << name;
  }
}

TEST_F(Networks, AResnetHasTorchvisionsLayers) {
  NetworkOptions options;
  options.name = "resnet50:4";
  const Network small = buildNetwork(device_, options);
  const auto tensors = tensorsOf(small);
  using Shape = std::vector<std::uint64_t>;
  const std::map<std::string, Shape> expected{{"conv1.weight", {4, 3, 3, 1}},
                                              {"bn1.running_var", {4}},
                                              {"layer1.0.conv3.weight", {16, 1, 1, 4}},
                                              {"layer1.0.downsample.0.weight", {16, 1, 1, 4}},
                                              {"layer1.2.bn3.bias", {16}},
                                              {"layer2.0.conv1.weight", {8, 1, 1, 16}},
                                              {"layer2.0.conv2.weight", {8, 3, 3, 8}},
                                              {"layer3.5.bn1.running_mean", {16}},
                                              {"layer4.2.bn2.weight", {32}},
                                              {"fc.weight", {10, 1, 1, 128}},
                                              {"fc.bias", {10}}};
  for (const auto& [name, shape] : expected) {
    ASSERT_TRUE(tensors.contains(name)) << name;
    EXPECT_EQ(tensors.at(name).shape, shape) << name;
  }
  for (const char* name : {"conv1.bias", "layer1.1.downsample.0.weight", "layer3.6.conv1.weight"})
    EXPECT_FALSE(tensors.contains(name)) << name;
  options.width = options.height = 64;
  EXPECT_EQ(tensorsOf(buildNetwork(device_, options)).at("conv1.weight").shape, (Shape{4, 7, 7, 1}));
}

TEST_F(Networks, TrainingUsesStatisticsOfTheBatchAndInferenceRunningOnes) {
  const Network network = buildNetwork(device_, optionsFor("resnet18:2", 4));
  const auto mean = [&] {
    const auto bytes = tensorsOf(network).at("bn1.running_mean").bytes;
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  const auto before = mean();
  const auto alone = probabilities(network, pictures(0, 2));
  EXPECT_EQ(mean(), before) << "an inference leaves the running statistics as they were";
  const auto among = probabilities(network, pictures(0, 2));
  EXPECT_EQ(among, alone);
  // The first picture beside another one.
  auto other = pictures(0, 3);
  const auto three = probabilities(network, other);
  const std::size_t classes = network.options.classNames.size();
  for (std::size_t i = 0; i < 2 * classes; ++i)
    EXPECT_FLOAT_EQ(three[i], alone[i]) << "a picture's result depends on no other one";
  step(network);
  EXPECT_NE(mean(), before) << "a step moves the running statistics";
  EXPECT_NE(probabilities(network, pictures(0, 2)), alone);
}

TEST_F(Networks, CountTheirWork) {
  NetworkOptions options;
  options.name = "resnet18";
  options.width = options.height = 224;
  options.channels = 3;
  options.classNames.resize(1000);
  const Network network = buildNetwork(device_, options);
  // 1.814e9 multiplications of a picture, 118,013,952 of them in the first layer.
  constexpr double first = 112.0 * 112 * 64 * 7 * 7 * 3;
  const double forward = (network.trainingFlopsPerPicture + 2 * first) / 6;
  EXPECT_EQ(std::round(forward / 1e6), 1814);
}

TEST_F(Networks, SomeTakePicturesThatHalveTwice) {
  for (const char* name : {"unet-small:2", "style:2"}) {
    NetworkOptions options;
    options.name = name;
    options.width = 30;
    EXPECT_NE(errorOf<mps::Error>([&] { buildNetwork(device_, options); }).find("multiples of 4, not 28x30"),
              std::string::npos)
        << name;
  }
}

/// The layers of Johnson's generator as PyTorch's example names them, with a plane for each class at the end.
TEST_F(Networks, StyleIsTheGeneratorOfStyleTransfer) {
  NetworkOptions options;
  options.name = "style";
  options.channels = 3;
  options.classNames.resize(3);
  const Network network = buildNetwork(device_, options);
  const auto tensors = tensorsOf(network);
  using Shape = std::vector<std::uint64_t>;
  const std::map<std::string, Shape> expected{{"conv1.weight", {32, 9, 9, 3}},
                                              {"in1.weight", {32}},
                                              {"conv3.weight", {128, 3, 3, 64}},
                                              {"res1.conv1.weight", {128, 3, 3, 128}},
                                              {"res5.in2.bias", {128}},
                                              {"deconv1.weight", {64, 3, 3, 128}},
                                              {"in5.weight", {32}},
                                              {"deconv3.weight", {3, 9, 9, 32}},
                                              {"deconv3.bias", {3}}};
  for (const auto& [name, shape] : expected) {
    ASSERT_TRUE(tensors.contains(name)) << name;
    EXPECT_EQ(tensors.at(name).shape, shape) << name;
  }
  // PyTorch's example has 1,679,235, among them 1,600 biases of layers that a normalisation follows.
  EXPECT_EQ(network.parameterCount, 1'679'235U - 1'600U);
}

TEST_F(Networks, WrongNamesAreRefused) {
  const auto refusal = [&](const std::string& name) {
    return errorOf<mps::Error>([&] { checkNetworkName(name); });
  };
  EXPECT_NE(refusal("fishnet").find("is unknown; there are lenet, mnist-cnn, small-cnn, resnet18"),
            std::string::npos);
  EXPECT_NE(refusal("").find("is unknown"), std::string::npos);
  EXPECT_NE(refusal("resnet1").find("is unknown"), std::string::npos);
  EXPECT_NE(refusal("lenet:4").find("lenet takes no number of channels"), std::string::npos);
  for (const char* name : {"resnet18:", "resnet18:0", "resnet18:1025", "resnet18:many", "resnet18:4x"})
    EXPECT_NE(refusal(name).find("give a number of channels from 1 to 1024"), std::string::npos) << name;
  for (const char* name : {"lenet", "resnet18", "resnet18:1", "resnet50:1024"})
    EXPECT_NO_THROW(checkNetworkName(name));
}

}  // namespace
}  // namespace unmetal::networks_test
