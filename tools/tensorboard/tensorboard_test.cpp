#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "mps/core/types/error.hpp"
#include "mps/weights/test_folder.hpp"
#include "mtl/buffer.hpp"
#include "onnx/model/message_reading.hpp"
#include "tools/tensorboard/crc32c.hpp"
#include "tools/tensorboard/event_messages.hpp"
#include "tools/tensorboard/gradients.hpp"
#include "tools/tensorboard/training_events.hpp"
#include "train/data/dataset.hpp"
#include "train/network/network.hpp"
#include "train/network/weight_values.hpp"

namespace unmetal {
namespace {

using mps::detail::TestFolder;
using onnx::detail::Field;
using onnx::detail::MessageReader;
using onnx::detail::textsOf;
using testing::ElementsAre;
using testing::IsEmpty;

// Of RFC 3720.
TEST(TensorBoard, Checksums) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43U);
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(maskedCrc32c(""), 0xA282EAD8U);
}

std::string textOfFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The events of a file, whose checksums are compared.
std::vector<std::string> eventsOf(const std::filesystem::path& path) {
  const std::string content = textOfFile(path);
  std::vector<std::string> events;
  for (std::size_t at = 0; at < content.size();) {
    std::uint64_t length = 0;
    std::memcpy(&length, content.data() + at, sizeof(length));
    const std::string event = content.substr(at + 12, length);
    EXPECT_EQ(content.substr(at, length + 16), recordOf(event));
    events.push_back(event);
    at += length + 16;
  }
  return events;
}

std::vector<std::string> tagsOf(std::string_view event) {
  std::vector<std::string> tags;
  for (const auto summary : textsOf(event, 5))
    for (const auto value : textsOf(summary, 1)) tags.emplace_back(textsOf(value, 1)[0]);
  return tags;
}

train::Network smallNetwork() {
  train::Network network({8, 8, 1});
  network.input().convolution(2, 3, {}, "conv").relu("relu").dense(2, {}, "dense");
  return network;
}

TEST(TensorBoard, ARowIsScalars) {
  const TestFolder folder;
  TrainingEvents events(folder.path(), 0, smallNetwork().layers());
  events.append({.epoch = 1, .step = 1, .trainLoss = 2.5F, .imagesPerSecond = 10});
  events.append({.epoch = 1,
                 .step = 2,
                 .trainLoss = 2,
                 .trainAccuracy = 0.5F,
                 .validationLoss = 3,
                 .validationAccuracy = 0.25F,
                 .learningRate = 0.1,
                 .imagesPerSecond = 10,
                 .seconds = 1});
  const auto found = eventsOf(folder / "events.out.tfevents.000000000000");
  ASSERT_EQ(found.size(), 4U);
  EXPECT_EQ(textsOf(found[0], 3)[0], "brain.Event:2");
  EXPECT_THAT(tagsOf(found[2]), ElementsAre("loss/train", "training/images_per_s", "training/epoch"));
  EXPECT_THAT(tagsOf(found[3]), ElementsAre("loss/train", "loss/validation", "accuracy/train",
                                            "accuracy/validation", "training/learning_rate",
                                            "training/images_per_s", "training/seconds", "training/epoch"));
}

TEST(TensorBoard, TheGraphIsTheLayers) {
  const TestFolder folder;
  const TrainingEvents events(folder.path(), 0, smallNetwork().layers());
  const auto found = eventsOf(folder / "events.out.tfevents.000000000000");
  std::vector<std::string> names;
  const std::string graph(textsOf(found.at(1), 4)[0]);
  for (const auto node : textsOf(graph, 1)) {
    std::string line(textsOf(node, 1)[0]);
    for (const auto input : textsOf(node, 3)) line += " < " + std::string(input);
    names.push_back(line + ": " + std::string(textsOf(node, 2)[0]));
  }
  EXPECT_THAT(names, ElementsAre("input: input 8x8x1", "conv < input: convolution 8x8x2",
                                 "relu < conv: relu 8x8x2", "dense < relu: dense 1x1x2"));
}

TEST(TensorBoard, WeightsAreHistograms) {
  const TestFolder folder;
  const train::Network network = smallNetwork();
  TrainingEvents events(folder.path(), 0, network.layers());
  events.appendWeights(7, network.trainableLayers(), network.device());
  const auto found = eventsOf(folder / "events.out.tfevents.000000000000");
  EXPECT_THAT(tagsOf(found.at(2)), ElementsAre("conv.weight", "conv.bias", "dense.weight", "dense.bias"));
}

train::MemoryDataset noise(std::size_t count) {
  std::vector<float> pixels(count * 64);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<float>(i * 7919 % 101) / 101 - 0.5F;
  std::vector<std::uint32_t> labels(count);
  for (std::size_t i = 0; i < count; ++i) labels[i] = i % 3 == 0 ? 1 : 0;
  return {{8, 8, 1}, std::move(pixels), std::move(labels)};
}

/// Central differences of the loss, which knows no descent.
TEST(TensorBoard, GradientsAreThoseOfTheLoss) {
  const train::MemoryDataset data = noise(6);
  train::Network network({8, 8, 1});
  network.input().convolution(2, 3, {}, "conv").batchNormalization({}, "bn").sigmoid().dense(2, {}, "dense");
  network.freeze("bn");
  const auto before = network.predict(data);
  const std::vector<Gradient> gradients = gradientsOf(network, data, data.size(), {});
  EXPECT_EQ(network.predict(data), before);
  std::vector<std::string> names;
  for (const Gradient& gradient : gradients) names.push_back(gradient.name);
  EXPECT_THAT(names, ElementsAre("conv.weight", "conv.bias", "dense.weight", "dense.bias"));
  const auto layers = network.trainableLayers();
  const std::size_t places[] = {0, 0, 2, 2};
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const auto buffer = train::detail::buffersOf(*layers[places[i]], network.device())[i % 2];
    auto* const values = reinterpret_cast<float*>(buffer->contents());
    const auto lossAt = [&](std::size_t index, float value) {
      values[index] = value;
      buffer->didModifyRange(0, buffer->length());
      return network.evaluate(data).loss;
    };
    for (const std::size_t index : {std::size_t{0}, gradients[i].values.size() - 1}) {
      constexpr float step = 0.03125F;
      const float value = values[index];
      const double difference = lossAt(index, value + step) - lossAt(index, value - step);
      lossAt(index, value);
      EXPECT_NEAR(gradients[i].values[index], difference / (2 * step), 2e-4) << names[i] << " " << index;
      EXPECT_GT(std::abs(gradients[i].values[index]), 2e-3) << names[i] << " " << index;
    }
  }
}

TEST(TensorBoard, GradientsAreHistograms) {
  const TestFolder folder;
  const train::Network network = smallNetwork();
  TrainingEvents events(folder.path(), 0, network.layers());
  events.appendGradients(7, gradientsOf(network, noise(9), 4, {}));
  const auto found = eventsOf(folder / "events.out.tfevents.000000000000");
  EXPECT_THAT(tagsOf(found.at(2)), ElementsAre("gradient/conv.weight", "gradient/conv.bias",
                                               "gradient/dense.weight", "gradient/dense.bias"));
}

TEST(TensorBoard, HistogramsTakeAnyValues) {
  const float infinity = std::numeric_limits<float>::infinity();
  Summary none;
  none.addHistogram("none", {});
  const float notFinite[] = {infinity, -infinity, infinity - infinity};
  none.addHistogram("not finite", notFinite);
  EXPECT_EQ(none.take().size(), 0U);
  Summary one;
  const float equal[] = {3, infinity, 3};
  one.addHistogram("equal", equal);
  const std::string text = one.take().text();
  const auto histogram = textsOf(textsOf(text, 1)[0], 5)[0];
  double count = 0;
  std::memcpy(&count, textsOf(histogram, 7)[0].data(), sizeof(count));
  EXPECT_EQ(count, 2);
  EXPECT_EQ(textsOf(histogram, 7)[0].size(), sizeof(double)) << "one bucket";
}

TEST(TensorBoard, TheConfusionIsAPicture) {
  ConfusionMatrix matrix({"a", "b"});
  matrix.add(0, 0);
  matrix.add(1, 0);
  const train::Picture picture = confusionPicture(matrix);
  EXPECT_EQ(picture.width, 320U);
  EXPECT_EQ(picture.pixels.size(), 320U * 320U * 3);
  const auto pixelAt = [&](std::size_t row, std::size_t column) {
    const std::size_t first = (row * 320 + column) * 3;
    return std::vector<int>{picture.pixels[first], picture.pixels[first + 1], picture.pixels[first + 2]};
  };
  EXPECT_THAT(pixelAt(0, 0), ElementsAre(31, 95, 168));
  EXPECT_THAT(pixelAt(319, 0), ElementsAre(194, 83, 10));
  EXPECT_THAT(pixelAt(0, 319), ElementsAre(255, 255, 255));
}

TEST(TensorBoard, ATrainingThatGoesOnHasAnotherFile) {
  const TestFolder folder;
  EXPECT_FALSE(TrainingEvents::areIn(folder.path()));
  { const TrainingEvents first(folder.path(), 0, smallNetwork().layers()); }
  EXPECT_TRUE(TrainingEvents::areIn(folder.path()));
  { const TrainingEvents second(folder.path(), 12, smallNetwork().layers()); }
  EXPECT_THAT(folder.names(),
              ElementsAre("events.out.tfevents.000000000000", "events.out.tfevents.000000000012"));
  const auto found = eventsOf(folder / "events.out.tfevents.000000000012");
  const std::string& restart = found.at(1);
  const std::vector<Field> fields = MessageReader(restart).fields();
  EXPECT_EQ(fields.at(1).integer, 13U);
  EXPECT_THAT(textsOf(restart, 7), ElementsAre("\x08\x01"));
  const std::string others = "events.out.tfevents.1700000000.host.1.0";
  std::ofstream(folder / others) << "of another program";
  TrainingEvents::removeFrom(folder.path());
  EXPECT_THAT(folder.names(), ElementsAre(others));
  EXPECT_FALSE(TrainingEvents::areIn(folder.path()));
}

TEST(TensorBoard, ARecordThatFindsNoRoomIsTakenBack) {
  const TestFolder folder;
  const std::filesystem::path path = folder / "events";
  EventFile file(path);
  file.append("first");
  const std::string before = textOfFile(path);
  {
    const mps::detail::FileSizeLimit limit(before.size() + 5);
    EXPECT_THAT(
        [&] { file.append("second"); },
        testing::ThrowsMessage<mps::Error>("cannot write " + path.string() + ": No space left on device"));
  }
  EXPECT_EQ(textOfFile(path), before);
  file.append("third");
  EXPECT_THAT(eventsOf(path), ElementsAre("first", "third"));
}

TEST(TensorBoard, AFileThatCannotBeWrittenIsNamed) {
  const TestFolder folder;
  EXPECT_THAT([&] { TrainingEvents(folder / "none", 0, {}); },
              testing::ThrowsMessage<mps::Error>(testing::HasSubstr("events.out.tfevents.000000000000")));
  EXPECT_THAT(folder.names(), IsEmpty());
}

}  // namespace
}  // namespace unmetal
