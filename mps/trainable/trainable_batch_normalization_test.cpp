#include "mps/trainable/trainable_batch_normalization.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "mps/conform/tolerance.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/weights/test_folder.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"

namespace mps::trainable_batch_normalization_test {
namespace {

using testing::errorOf;
using testing::names;
using Values = std::vector<float>;
using SGD = NNOptimizerStochasticGradientDescent;

Values valuesOf(std::span<const float> values) {
  return {values.begin(), values.end()};
}

class TrainableBatchNormalizationTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::shared_ptr<TrainableBatchNormalization> make(
      const std::shared_ptr<NNOptimizer>& optimizer = nullptr, AdamForm form = AdamForm::Adam) const {
    return TrainableBatchNormalization::create(device_, 2, "norm", optimizer, 0.9F, 1e-3F, form);
  }
  /// A state as a step leaves it: statistics 4 and 5, gradients all `gradient`.
  [[nodiscard]] std::shared_ptr<CNNBatchNormalizationState> stateOf(TrainableBatchNormalization& layer,
                                                                    float gradient) const {
    auto live = std::make_shared<detail::BatchNormalizationParameters>();
    live->gamma = layer.deviceGammaAndBeta(device_)->gamma();
    live->beta = layer.deviceGammaAndBeta(device_)->beta();
    live->mean = layer.deviceMeanAndVariance(device_)->mean();
    live->variance = layer.deviceMeanAndVariance(device_)->variance();
    auto state = CNNBatchNormalizationState::create(device_, nullptr, 2, nullptr, live);
    state->didEncodeStatistics(4);
    state->didEncodeGradientStatistics(4);
    fill(state->mean(), 4);
    fill(state->variance(), 5);
    fill(state->gradientForGamma(), gradient);
    fill(state->gradientForBeta(), gradient);
    return state;
  }
  static void fill(const std::shared_ptr<mtl::Buffer>& buffer, float value) {
    std::ranges::fill(buffer->contentsAs<float>(), value);
    buffer->didModifyRange(0, buffer->length());
  }
  void updateWith(TrainableBatchNormalization& layer, float gradient) const {
    const auto commandBuffer = device_->newCommandQueue()->commandBuffer();
    const auto state = stateOf(layer, gradient);
    layer.updateMeanAndVariance(commandBuffer, state);
    layer.updateGammaAndBeta(commandBuffer, state);
    layer.synchronize(commandBuffer);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
  }
  std::shared_ptr<mtl::Device> device_ = mtl::createSystemDefaultDevice();
};

TEST_F(TrainableBatchNormalizationTest, D23WhatALayerStartsWith) {
  const auto layer = make();
  EXPECT_EQ(layer->numberOfFeatureChannels(), 2U);
  EXPECT_EQ(valuesOf(layer->gamma()), Values(2, 1));
  EXPECT_EQ(valuesOf(layer->beta()), Values(2, 0));
  EXPECT_EQ(valuesOf(layer->mean()), Values(2, 0));
  EXPECT_EQ(valuesOf(layer->variance()), Values(2, 1));
  EXPECT_EQ(layer->epsilon(), 1e-3F);
  EXPECT_EQ(layer->momentum(), 0.9F);
  EXPECT_EQ(layer->label(), "norm");
  EXPECT_FALSE(layer->isFrozen());
  EXPECT_EQ(layer->optimizer(), nullptr);
  EXPECT_EQ(layer->deviceGammaAndBeta(mtl::newCPUDevice(1)), nullptr);
  EXPECT_EQ(layer->deviceMeanAndVariance(mtl::newCPUDevice(1)), nullptr);
}

TEST_F(TrainableBatchNormalizationTest, RunningStatisticsMoveTowardsTheBatch) {
  const auto layer = make();
  updateWith(*layer, 0);
  const double within = detail::arithmeticBound(1, 10, 0);
  EXPECT_NEAR(layer->mean()[0], 0.4, within);
  EXPECT_NEAR(layer->variance()[1], 1.4, within);
  updateWith(*layer, 0);
  EXPECT_NEAR(layer->mean()[1], 0.76, within);
  EXPECT_NEAR(layer->variance()[0], 1.76, within);
  EXPECT_EQ(valuesOf(layer->gamma()), Values(2, 1)) << "no optimiser";
}

TEST_F(TrainableBatchNormalizationTest, D23EachOptimizerUpdatesGammaAndBeta) {
  NNOptimizerDescriptor descriptor;
  descriptor.setLearningRate(0.1F);
  const auto adam = NNOptimizerAdam::create(device_, 0.1F);
  struct Rule {
    std::shared_ptr<NNOptimizer> optimizer;
    AdamForm form;
    double change;  ///< of a value by gradient 0.5
  };
  const std::vector<Rule> rules{
      {SGD::create(device_, 0.1F), AdamForm::Adam, -0.05},
      {SGD::create(device_, 0.9F, false, descriptor), AdamForm::Adam, -0.05},
      {NNOptimizerRMSProp::create(device_, 0.1F), AdamForm::Adam, -0.1 / std::sqrt(0.1)},
      {adam, AdamForm::Adam, -0.1},
      {adam, AdamForm::AMSGrad, -0.1}};
  for (const Rule& rule : rules) {
    const auto layer = make(rule.optimizer, rule.form);
    updateWith(*layer, 0.5F);
    // Adam's epsilon, 1e-8, is added to the uncorrected root, 0.0158.
    const double within = detail::arithmeticBound(1, 30, 3);
    for (const float gamma : layer->gamma()) EXPECT_NEAR(gamma, 1 + rule.change, within);
    for (const float beta : layer->beta()) EXPECT_NEAR(beta, rule.change, within);
    EXPECT_NE(layer->optimizer(), rule.optimizer) << "a copy of its own";
  }
}

TEST_F(TrainableBatchNormalizationTest, AFrozenLayerAndAFrozenStateChangeNothing) {
  const auto layer = make(SGD::create(device_, 1));
  layer->setFrozen(true);
  updateWith(*layer, 1);
  EXPECT_EQ(valuesOf(layer->gamma()), Values(2, 1));
  EXPECT_EQ(valuesOf(layer->mean()), Values(2, 0));
  layer->setFrozen(false);
  const auto commandBuffer = device_->newCommandQueue()->commandBuffer();
  const auto state = stateOf(*layer, 1);
  state->reset();
  EXPECT_EQ(layer->updateMeanAndVariance(commandBuffer, state), nullptr) << "no statistics of a batch";
}

TEST_F(TrainableBatchNormalizationTest, UpdatesTakeReadsOffTemporaryStates) {
  const auto layer = make(SGD::create(device_, 1));
  const auto commandBuffer = device_->newCommandQueue()->commandBuffer();
  auto live = std::make_shared<detail::BatchNormalizationParameters>();
  live->gamma = layer->deviceGammaAndBeta(device_)->gamma();
  live->beta = layer->deviceGammaAndBeta(device_)->beta();
  const auto state = CNNBatchNormalizationState::create(device_, commandBuffer, 2, nullptr, live);
  state->setReadCount(2);
  state->didEncodeStatistics(4);
  state->didEncodeGradientStatistics(4);
  layer->updateMeanAndVariance(commandBuffer, state);
  EXPECT_EQ(state->readCount(), 1U);
  layer->updateGammaAndBeta(commandBuffer, state);
  EXPECT_EQ(state->readCount(), 0U);
}

TEST_F(TrainableBatchNormalizationTest, HostUpdatesRunAtOnce) {
  const auto layer = make(SGD::create(device_, 1));
  const auto state = stateOf(*layer, 1);
  EXPECT_TRUE(layer->updateMeanAndVariance(state));
  EXPECT_TRUE(layer->updateGammaAndBeta(state));
  EXPECT_EQ(valuesOf(layer->gamma()), Values(2, 0));
  EXPECT_NE(valuesOf(layer->mean()), Values(2, 0));
  layer->setFrozen(true);
  EXPECT_FALSE(layer->updateMeanAndVariance(state));
  EXPECT_FALSE(layer->updateGammaAndBeta(state));
}

TEST_F(TrainableBatchNormalizationTest, D23ComesBackFromAFileWithItsOptimizer) {
  const detail::TestFolder folder;
  const auto path = folder / "layer.safetensors";
  const auto adam = NNOptimizerAdam::create(device_, 0.1F);
  const auto written = make(adam);
  updateWith(*written, 0.5F);
  std::vector<std::string> tensorNames;
  for (const SafetensorsTensor& tensor : written->tensors(true)) tensorNames.push_back(tensor.name);
  EXPECT_EQ(tensorNames,
            (std::vector<std::string>{"norm.weight", "norm.bias", "norm.running_mean", "norm.running_var",
                                      "norm.weight.momentum", "norm.bias.momentum", "norm.weight.velocity",
                                      "norm.bias.velocity", "norm.step"}));
  EXPECT_EQ(written->tensors(false).size(), 4U);
  writeSafetensors(path, written->tensors(true), {});
  const auto read = make(adam);
  read->read(SafetensorsFile::read(path), true);
  for (int step = 0; step < 2; ++step) {
    EXPECT_EQ(valuesOf(read->gamma()), valuesOf(written->gamma()));
    EXPECT_EQ(valuesOf(read->beta()), valuesOf(written->beta()));
    EXPECT_EQ(valuesOf(read->mean()), valuesOf(written->mean()));
    EXPECT_EQ(valuesOf(read->variance()), valuesOf(written->variance()));
    updateWith(*written, -1);
    updateWith(*read, -1);
  }
}

TEST_F(TrainableBatchNormalizationTest, RefusesAFileThatLacksATensor) {
  const detail::TestFolder folder;
  const auto path = folder / "layer.safetensors";
  const auto layer = make();
  updateWith(*layer, 0);
  writeSafetensors(path, make()->tensors(false), {});
  const auto wide = TrainableBatchNormalization::create(device_, 3, "norm", nullptr);
  EXPECT_THROW(wide->read(SafetensorsFile::read(path), false), Error);
  const auto other = TrainableBatchNormalization::create(device_, 2, "other", nullptr);
  EXPECT_THROW(other->read(SafetensorsFile::read(path), false), Error);
  EXPECT_EQ(valuesOf(wide->gamma()), Values(3, 1));
}

TEST_F(TrainableBatchNormalizationTest, ACopyGoesOnByItself) {
  const auto layer = make(NNOptimizerAdam::create(device_, 0.1F));
  updateWith(*layer, 0.5F);
  layer->setFrozen(true);
  const auto elsewhere = mtl::newCPUDevice(1);
  const auto copy = std::static_pointer_cast<TrainableBatchNormalization>(layer->copy(elsewhere));
  EXPECT_TRUE(copy->isFrozen());
  EXPECT_EQ(valuesOf(copy->gamma()), valuesOf(layer->gamma()));
  EXPECT_EQ(valuesOf(copy->variance()), valuesOf(layer->variance()));
  EXPECT_NE(copy->deviceGammaAndBeta(elsewhere), nullptr);
  layer->setFrozen(false);
  updateWith(*layer, 0.5F);
  EXPECT_NE(valuesOf(copy->gamma()), valuesOf(layer->gamma()));
}

TEST_F(TrainableBatchNormalizationTest, WhatCreationRefuses) {
  const auto error = [&](std::size_t channels, float momentum, float epsilon) {
    return errorOf(
        [&] { TrainableBatchNormalization::create(device_, channels, "norm", nullptr, momentum, epsilon); });
  };
  EXPECT_TRUE(names(errorOf([] { TrainableBatchNormalization::create(nullptr, 1, "norm", nullptr); }),
                    {"TrainableBatchNormalization", "device"}));
  EXPECT_TRUE(names(error(0, 0.9F, 1), {"numberOfFeatureChannels"}));
  EXPECT_TRUE(names(error(1, 1.5F, 1), {"momentum", "1.5"}));
  EXPECT_TRUE(names(error(1, -0.5F, 1), {"momentum"}));
  EXPECT_TRUE(names(error(1, 0.9F, 0), {"epsilon"}));
  EXPECT_TRUE(names(errorOf([&] { (void)make(SGD::create(device_, 1), AdamForm::AMSGrad); }),
                    {"TrainableBatchNormalization", "optimizer", "AMSGrad"}));
}

}  // namespace
}  // namespace mps::trainable_batch_normalization_test
