#include <cstdio>
#include "unmetal_train.hpp"
using namespace unmetal::train;
int main() {  // Which of ten kinds of clothes is in a picture of 28x28 pixels?
  const auto training = fashionMnist(Split::Training), test = fashionMnist(Split::Test);
  Network network({28, 28, 1});
  auto x = network.input().convolution(16, 3).relu().maxPool(2);
  x = x.convolution(32, 3).batchNormalization().relu().maxPool(2);
  x.dense(64).relu().dropout(0.25F).dense(10);
  std::printf("%s", network.summary().c_str());
  Trainer trainer(network, {.epochs = 1, .optimizer = "adam"});
  trainer.fit(training, test);
  network.save("clothes.safetensors");

  const auto again = Network::load("clothes.safetensors");
  const auto result = again.evaluate(test);
  const auto first = again.predict(test)[9];  // of the first picture: that of class 9
  std::printf("%.1f %% are right\n", 100 * result.accuracy());
  std::printf("the first is an ankle boot by %.2f\n", first);
}
