#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "mps/core/layer/loss_scale.hpp"
#include "mps/graph/check/test_network.hpp"
#include "mtl/check/test_devices.hpp"

/// Training with a loss scale, on every device of the machine.
namespace mps::scaled_training_test {
namespace {

using Weights = std::vector<std::vector<float>>;

/// The small network without dropout, with its loss scale.
struct ScaledNetwork {
  std::shared_ptr<mtl::Device> device;
  std::shared_ptr<LossScale> scale;
  std::vector<std::shared_ptr<TrainableConvolution>> layers;
  std::shared_ptr<NNGraph> graph;

  /// @param lossScale may be null
  ScaledNetwork(std::shared_ptr<mtl::Device> where, std::shared_ptr<LossScale> lossScale)
      : device(std::move(where)),
        scale(std::move(lossScale)),
        layers{test::layer(device, 3, 1, 4, "conv"), test::layer(device, 4, 4, 3, "dense")} {
    for (const auto& layer : layers) layer->optimizer()->setLossScale(scale);
    graph = test::SmallNetwork(layers[0], layers[1], false, scale).trainingGraph(device);
  }
  /// Makes the gradients of the first layer far larger than those of the last one.
  void enlargeLastWeights() const {
    const auto weights = layers.back()->deviceWeightsAndBiases(device)->weights();
    for (float& weight : weights->contentsAs<float>()) weight *= 64;
    weights->didModifyRange(0, weights->length());
  }
  /// Weights and, behind them, optimiser state of all layers.
  [[nodiscard]] Weights values() const {
    const auto commandBuffer = device->newCommandQueue()->commandBuffer();
    for (const auto& layer : layers) layer->synchronize(commandBuffer);
    if (scale) scale->synchronize(commandBuffer);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    Weights values;
    for (const auto& layer : layers)
      for (const SafetensorsTensor& tensor : layer->tensors(true)) {
        values.emplace_back(tensor.bytes.size() / sizeof(float));
        std::memcpy(values.back().data(), tensor.bytes.data(), tensor.bytes.size());
      }
    return values;
  }
};

class ScaledTraining : public ::testing::TestWithParam<std::shared_ptr<mtl::Device>> {};

TEST_P(ScaledTraining, ChangesNoBitInFloat32) {
  const ScaledNetwork plain(GetParam(), nullptr);
  const ScaledNetwork scaled(GetParam(), LossScale::create(GetParam(), {.growthInterval = 2}));
  test::train(*plain.graph, GetParam(), 6);
  test::train(*scaled.graph, GetParam(), 6);
  EXPECT_EQ(scaled.values(), plain.values());
  EXPECT_EQ(scaled.scale->scale(), 8 * LossScaleOptions().initialScale);
  EXPECT_NE(scaled.values(), ScaledNetwork(GetParam(), nullptr).values()) << "nothing was trained";
}

TEST_P(ScaledTraining, LeavesAllLayersAloneWhenOneGradientOverflows) {
  // The gradients of the last layer are finite numbers, those of the first are not.
  LossScaleOptions options;
  options.initialScale = 0x1p126F;
  options.backoffFactor = 0x1p-116F;
  const ScaledNetwork network(GetParam(), LossScale::create(GetParam(), options));
  network.enlargeLastWeights();
  const Weights before = network.values();
  test::train(*network.graph, GetParam(), 1);
  EXPECT_EQ(network.values(), before);
  EXPECT_EQ(network.scale->skippedSteps(), 1U);
  EXPECT_EQ(network.scale->scale(), 0x1p10F);
  test::train(*network.graph, GetParam(), 1);
  EXPECT_EQ(network.scale->skippedSteps(), 1U);
  const ScaledNetwork plain(GetParam(), nullptr);
  plain.enlargeLastWeights();
  test::train(*plain.graph, GetParam(), 1);
  EXPECT_EQ(network.values(), plain.values()) << "the first step that counts";
}

TEST_P(ScaledTraining, SurvivesAnOverflowOfFloat16) {
  const ScaledNetwork network(GetParam(), LossScale::create(GetParam(), {.initialScale = 0x1p24F}));
  network.graph->setFormat(ImageFeatureChannelFormat::Float16);
  const Weights before = network.values();
  test::train(*network.graph, GetParam(), 20);
  const Weights after = network.values();
  EXPECT_GT(network.scale->skippedSteps(), 2U) << "2^24 is no float16";
  EXPECT_LT(network.scale->skippedSteps(), 15U);
  EXPECT_NE(after, before);
  for (const auto& values : after)
    for (const float value : values) ASSERT_TRUE(std::isfinite(value));

  const ScaledNetwork plain(GetParam(), nullptr);
  test::train(*plain.graph, GetParam(), 20);
  EXPECT_NE(plain.values(), after) << "float16 was not used";
}

INSTANTIATE_TEST_SUITE_P(Devices, ScaledTraining, ::testing::ValuesIn(mtl::copyAllDevices()),
                         mtl::testing::nameOf);

}  // namespace
}  // namespace mps::scaled_training_test
