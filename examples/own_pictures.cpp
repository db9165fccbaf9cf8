#include <cstdio>
#include <filesystem>

#include "unmetal_train.hpp"

/// The C++ of docs/your-own-pictures.md: a network for the folder `pictures`, one folder inside for each class.
namespace train = unmetal::train;

int main() {
  const train::PictureFolder training("pictures", train::Split::Training, {.size = {64, 64, 3}});
  const train::PictureFolder validation("pictures", train::Split::Test, {.size = {64, 64, 3}});

  const train::Network network(training.shape());
  auto x = network.input();
  for (const std::size_t channels : {16U, 32U, 64U, 128U})
    x = x.convolution(channels, 3, {.biases = false}).batchNormalization().relu().maxPool(2);
  x.globalAveragePool().dense(training.classCount());

  train::Trainer trainer(network,
                         {.epochs = 40, .batchSize = 16, .learningRate = 0.01, .schedule = "one-cycle"});
  trainer.fit(training, validation);
  network.save("pictures.safetensors");

  const auto probabilities = train::Network::load("pictures.safetensors").predict(validation);
  const auto names = validation.classNames();
  for (std::size_t c = 0; c < names.size(); ++c)
    std::printf("%s: %s with %.0f %%\n", validation.file(0).c_str(), names[c].c_str(),
                100 * static_cast<double>(probabilities[c]));
  std::printf("%.1f %% are right\n", 100 * trainer.evaluate(validation).accuracy());
}
