#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "mps/weights/test_folder.hpp"
#include "mtl/buffer.hpp"
#include "mtl/device.hpp"
#include "onnx/export.hpp"
#include "onnx/import.hpp"
#include "train/network/weight_values.hpp"

/// What was exported and imported computes the same bits.
namespace unmetal::onnx::round_trip_test {
namespace {

using train::Features;
using train::Network;

/// A random network: layers that fit what is there.
class RandomNetwork {
 public:
  explicit RandomNetwork(unsigned seed) : random_(seed) {}

  Network make() {
    Network network({number(6, 14), number(6, 14), number(1, 4)}, {.seed = number(0, 1000)});
    Features x = network.input();
    const std::size_t layers = number(3, 9);
    for (std::size_t i = 0; i < layers; ++i) x = isChance() ? layerWithWeights(x) : otherLayer(x);
    if (isChance()) x = x.globalAveragePool();
    if (isChance()) x = x.dense(number(2, 9), {.biases = isChance()}).relu();
    x = x.dense(number(2, 9), {.biases = isChance()});
    if (isChance()) x = x.softmax();
    giveValues(network);
    return network;
  }
  std::vector<float> pictures(const Network& network) {
    std::vector<float> values(3 * network.inputShape().count());
    for (float& value : values) value = std::normal_distribution<float>()(random_);
    return values;
  }

 private:
  std::size_t number(std::size_t first, std::size_t last) {
    return std::uniform_int_distribution<std::size_t>(first, last)(random_);
  }
  bool isChance() { return number(0, 1) == 1; }

  Features convolution(const Features& x) {
    const std::size_t groups = x.channels() % 2 == 0 && isChance() ? 2 : 1;
    const std::size_t size = std::min({number(1, 5), x.height(), x.width()});
    const std::size_t extent = std::min(x.height(), x.width());
    const std::size_t dilation = isChance() && size * 2 <= extent ? 2 : 1;
    return x.convolution(groups * number(1, 6), size,
                         {.stride = number(1, 2),
                          .padding = isChance() ? train::Padding::Same : train::Padding::Valid,
                          .dilation = dilation,
                          .groups = groups,
                          .biases = isChance()});
  }
  Features layerWithWeights(const Features& x) {
    switch (number(0, 5)) {
      case 0:
        return x.height() < 20 && x.width() < 20
                   ? x.transposedConvolution(number(1, 5), number(1, 4), {.stride = number(1, 2)})
                   : x.batchNormalization();
      case 1:
        return x.batchNormalization({.epsilon = 1e-3F});
      case 2:
        return x.instanceNormalization();
      case 3:
        return x.groupNormalization(x.channels() % 2 == 0 ? 2 : 1);
      default:
        return convolution(x);
    }
  }
  Features otherLayer(const Features& x) {
    const std::size_t size = std::min({number(2, 3), x.height(), x.width()});
    const train::PoolingOptions pooling{.stride = std::min<std::size_t>(number(1, 2), size),
                                        .padding = isChance() ? train::Padding::Same : train::Padding::Valid};
    switch (number(0, 7)) {
      case 0:
        return x.maxPool(size, pooling);
      case 1:
        return x.averagePool(size, pooling);
      case 2:
        return x.crossChannelNormalization({.size = 2 * number(0, 2) + 1, .delta = 1.5F});
      case 3:
        return x.height() < 20 && x.width() < 20
                   ? x.upsample({number(1, 2), 2},
                                isChance() ? train::UpsamplingMode::Nearest : train::UpsamplingMode::Bilinear)
                   : x.dropout();
      case 4:
        return x + x.convolution(x.channels(), 1).relu();
      case 5:
        return x.concatenate(x.convolution(number(1, 3), 3));
      default:
        return activation(x);
    }
  }
  Features activation(const Features& x) {
    switch (number(0, 9)) {
      case 0:
        return x.leakyRelu(0.2F);
      case 1:
        return x.relu6();
      case 2:
        return x.elu(0.5F);
      case 3:
        return x.gelu();
      case 4:
        return x.sigmoid();
      case 5:
        return x.hardSigmoid();
      case 6:
        return x.tanh();
      case 7:
        return x.softplus();
      case 8:
        return x.softsign();
      default:
        return x.relu();
    }
  }
  /// Biases, scales and statistics, too, which begin at 0 and 1. Variances are above 0.
  void giveValues(const Network& network) {
    std::uniform_real_distribution<float> any(0.1F, 1.5F);
    for (const auto& layer : network.trainableLayers()) {
      const auto buffers = train::detail::buffersOf(*layer, network.device());
      for (std::size_t i = 1; i < buffers.size(); ++i) {
        std::vector<float> values(buffers[i]->length() / sizeof(float));
        for (float& value : values) value = any(random_);
        std::memcpy(buffers[i]->contents(), values.data(), values.size() * sizeof(float));
        buffers[i]->didModifyRange(0, buffers[i]->length());
      }
    }
  }

  std::mt19937 random_;
};

unsigned seedOfTest() {
  const char* const given = std::getenv("UNMETAL_TEST_SEED");
  return given != nullptr
             ? static_cast<unsigned>(std::strtoul(given, nullptr, 10))
             : static_cast<unsigned>(std::chrono::steady_clock::now().time_since_epoch().count());
}

TEST(OnnxRoundTrip, RandomNetworksComputeTheSameBits) {
  const mps::detail::TestFolder folder;
  const unsigned seed = seedOfTest();
  SCOPED_TRACE("UNMETAL_TEST_SEED=" + std::to_string(seed));
  constexpr unsigned networks = 20;
  for (unsigned i = 0; i < networks; ++i) {
    RandomNetwork random(seed + i);
    const Network network = random.make();
    const std::vector<float> pictures = random.pictures(network);
    exportNetwork(network, folder / "network.onnx");
    const Network found = load(folder / "network.onnx");
    EXPECT_EQ(found.predict(pictures), network.predict(pictures)) << network.summary() << found.summary();
  }
}

TEST(OnnxRoundTrip, WhatOnlyFilesHaveComputesTheSameBits) {
  Network network({9, 10, 3});
  auto x = network.input();
  const auto add = [&](const train::LayerKind& kind, std::vector<Features> inputs) {
    return network.add(kind, inputs);
  };
  x = x.convolution(4, {3, 2},
                    {.stride = {1, 2}, .padding = train::Padding::Explicit, .margins = {2, 0, 1, 1}});
  x = x.maxPool({2, 3}, {.stride = 1, .padding = train::Padding::Explicit, .margins = {1, 2, 0, 1}});
  x = x.averagePool(3, {.stride = 2, .padding = train::Padding::Explicit, .margins = {0, 1, 2, 1}});
  x = add(train::NormPoolLayer{2, {.stride = 1}}, {x});
  x = x.transposedConvolution(4, {4, 3}, {.stride = {2, 1}, .margins = {1, 1, 1, 0}});
  x = add(train::PadLayer{{1, 0, 2, 1}, train::PaddingContent::Edge}, {x});
  x = add(train::PadLayer{{1, 0, 2, 1}, train::PaddingContent::Mirror}, {x});
  x = add(train::PadLayer{{1, 0, 2, 1}, train::PaddingContent::Constant, 0.5F}, {x});
  x = add(train::ArithmeticLayer{train::ArithmeticOperation::Multiply},
          {x, x.globalAveragePool().dense(x.channels()).sigmoid()});
  x = add(train::ArithmeticLayer{train::ArithmeticOperation::Subtract}, {x, x.sigmoid()});
  x = add(train::ArithmeticLayer{train::ArithmeticOperation::Divide}, {x, x.softplus()});
  x = x.upsample(2, train::UpsamplingMode::BilinearAlignCorners);
  x = x.upsample({2, 1}, train::UpsamplingMode::BilinearAsymmetric);
  x = add(train::ActivationLayer{mps::CNNNeuronType::Absolute}, {x});
  x = x.dense(3);
  RandomNetwork random(1);
  const std::vector<float> pictures = random.pictures(network);
  const mps::detail::TestFolder folder;
  exportNetwork(network, folder / "network.onnx");
  EXPECT_EQ(load(folder / "network.onnx").predict(pictures), network.predict(pictures));
}

}  // namespace
}  // namespace unmetal::onnx::round_trip_test
