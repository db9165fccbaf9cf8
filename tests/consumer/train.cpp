#include <cstdio>
#include <vector>

#include <unmetal_train.hpp>

namespace train = unmetal::train;

int main() {
  std::vector<std::uint8_t> pixels;
  std::vector<std::uint32_t> labels;
  for (std::uint32_t i = 0; i < 64; ++i) {
    for (std::uint32_t pixel = 0; pixel < 16; ++pixel)
      pixels.push_back(pixel / 8 == i % 2 ? 200 : static_cast<std::uint8_t>(i));
    labels.push_back(i % 2);
  }
  const train::MemoryDataset data({4, 4, 1}, pixels, labels);
  const train::Network network(data.shape());
  network.input().convolution(4, 3).relu().dense(2);
  train::Trainer trainer(network, {.epochs = 20, .batchSize = 16, .learningRate = 0.01});
  trainer.fit(data);
  std::printf("%s%zu of 64 are right\n", network.summary().c_str(), trainer.evaluate(data).correct);
  return trainer.evaluate(data).correct == 64 ? 0 : 1;
}
