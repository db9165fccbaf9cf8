// Fine-tuning of a network that comes as an ONNX file. docs/onnx.md says which are taken.
#include <cstdint>
#include <cstdio>
#include <vector>

#include "unmetal_train.hpp"

namespace train = unmetal::train;

namespace {

/// Stands for a file from elsewhere: it tells seven classes apart.
void writeModel() {
  train::Network network({16, 16, 3}, {.seed = 1});
  auto x = network.input().convolution(16, 3, {.biases = false}).batchNormalization().relu().maxPool(2);
  x = x.convolution(32, 3, {.biases = false}).batchNormalization().relu().globalAveragePool();
  x.dense(7);
  unmetal::onnx::exportNetwork(network, "model.onnx");
}

/// Stands for your own pictures: bright ones and dark ones.
train::MemoryDataset twoClasses() {
  constexpr std::uint32_t count = 64;
  constexpr std::size_t values = 16 * 16 * 3;
  std::vector<float> pixels;
  std::vector<std::uint32_t> labels;
  for (std::uint32_t i = 0; i < count; ++i) {
    labels.push_back(i % 2);
    for (std::size_t k = 0; k < values; ++k)
      pixels.push_back(static_cast<float>((k * 7 + i * 13) % 10) / 20 + (i % 2 == 0 ? 0.0F : 0.5F));
  }
  return {{16, 16, 3}, pixels, labels};
}

}  // namespace

int main() {
  writeModel();
  const train::MemoryDataset data = twoClasses();
  train::Network network = unmetal::onnx::load("model.onnx", {}, {.classes = 2});
  train::Trainer trainer(network, {.epochs = 10, .batchSize = 16, .learningRate = 0.01});
  trainer.fit(data);
  network.save("tuned.safetensors");
  std::printf("%u of 64 pictures are right\n", static_cast<unsigned>(network.evaluate(data).correct));
}
