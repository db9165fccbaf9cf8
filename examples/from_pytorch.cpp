#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unmetal.hpp"
#include "unmetal_train.hpp"

/// The C++ of docs/from-pytorch.md: a network with PyTorch's names takes PyTorch's weights and is trained on.
namespace train = unmetal::train;

namespace {

train::Network lenet() {
  train::Network network({28, 28, 1});
  auto x = network.input().convolution(6, 5, {}, "conv1").relu().maxPool(2);
  x = x.convolution(16, 5, {.padding = train::Padding::Valid}, "conv2").relu().maxPool(2);
  x.dense(120, {}, "fc1").relu().dense(10, {}, "fc2");
  return network;
}

void readWeights(const train::Network& network, const std::string& path) {
  const auto file = mps::SafetensorsFile::read(path);
  for (const auto& layer : network.trainableLayers()) layer->readFromPyTorch(file);
}

/// Stands for a file that PyTorch has written: its names and shapes, numbers of a formula.
void writeWeights(const std::string& path) {
  const std::vector<std::pair<std::string, std::vector<std::uint64_t>>> shapes{
      {"conv1.weight", {6, 1, 5, 5}}, {"conv1.bias", {6}},        {"conv2.weight", {16, 6, 5, 5}},
      {"conv2.bias", {16}},           {"fc1.weight", {120, 400}}, {"fc1.bias", {120}},
      {"fc2.weight", {10, 120}},      {"fc2.bias", {10}}};
  std::vector<std::vector<float>> values;
  for (const auto& [name, shape] : shapes) {
    std::size_t count = 1;
    for (const std::uint64_t side : shape) count *= side;
    values.emplace_back(count);
    for (std::size_t i = 0; i < count; ++i) values.back()[i] = 0.1F * std::sin(static_cast<float>(i + 1));
  }
  std::vector<mps::SafetensorsTensor> tensors;
  for (std::size_t i = 0; i < shapes.size(); ++i)
    tensors.push_back(
        {shapes[i].first, mps::DataType::Float32, shapes[i].second, std::as_bytes(std::span(values[i]))});
  mps::writeSafetensors(path, std::move(tensors), {});
}

}  // namespace

int main() {
  writeWeights("model.safetensors");
  const train::Network network = lenet();
  readWeights(network, "model.safetensors");

  std::vector<float> pixels(32 * 28 * 28);
  std::vector<std::uint32_t> labels(32);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    labels[i] = static_cast<std::uint32_t>(i % 10);
    for (std::size_t y = 0; y < 28; ++y) pixels[(28 * i + y) * 28 + 2 * labels[i]] = 1;
  }
  const train::MemoryDataset pictures({28, 28, 1}, pixels, labels);
  const double before = network.evaluate(pictures).loss;
  train::Trainer trainer(network, {.epochs = 1, .batchSize = 16, .optimizer = "adam", .learningRate = 1e-4});
  trainer.fit(pictures);
  const double after = network.evaluate(pictures).loss;
  std::printf("loss %.4f, after two steps %.4f\n", before, after);
  return after < before ? 0 : 1;
}
