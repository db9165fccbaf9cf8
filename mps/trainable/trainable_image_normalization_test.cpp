#include "mps/trainable/trainable_image_normalization.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "mps/core/image/forward_record.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/weights/test_folder.hpp"
#include "mtl/buffer.hpp"

namespace mps::trainable_image_normalization_test {
namespace {

using testing::errorOf;
using testing::names;
using testing::Values;
using SGD = NNOptimizerStochasticGradientDescent;

class TrainableImageNormalizationTest : public testing::DeviceTest {
 protected:
  [[nodiscard]] std::shared_ptr<TrainableInstanceNormalization> make(
      const std::shared_ptr<NNOptimizer>& optimizer = nullptr) const {
    return TrainableInstanceNormalization::create(device_, 2, "norm", optimizer);
  }
  /// States of two images as a step leaves them; all gradients of the images are 1 and 2.
  [[nodiscard]] StateBatch statesFor(detail::ImageNormalizationDataSource& layer) const {
    auto gradients = std::make_shared<detail::ImageNormalizationGradients>(device_, nullptr, 2, 2);
    StateBatch batch(
        [gradients](std::size_t row) {
          return CNNInstanceNormalizationGradientState::create(nullptr, gradients, row, nullptr);
        },
        2, gradients);
    auto record = std::make_shared<detail::ForwardRecord>();
    const auto weights = layer.deviceGammaAndBeta(device_);
    record->family = detail::ImageNormalizationParameters{weights->gamma(), weights->beta(), 2, 0, true};
    batch.setRecord(record);
    gradients->didEncodeGradient(0, 2);
    for (std::size_t i = 0; i < 2; ++i) {
      const auto state = std::static_pointer_cast<CNNInstanceNormalizationGradientState>(batch[i]);
      for (const auto& buffer : {state->gradientForGamma(), state->gradientForBeta()})
        std::ranges::fill(buffer->contentsAs<float>(), static_cast<float>(i + 1));
    }
    return batch;
  }
  static Values valuesOf(std::span<const float> values) { return {values.begin(), values.end()}; }
};

TEST_F(TrainableImageNormalizationTest, D23WhatALayerStartsWith) {
  const auto layer = make();
  EXPECT_EQ(layer->numberOfFeatureChannels(), 2U);
  EXPECT_EQ(valuesOf(layer->gamma()), Values(2, 1));
  EXPECT_EQ(valuesOf(layer->beta()), Values(2, 0));
  EXPECT_EQ(layer->epsilon(), 1e-5F);
  EXPECT_EQ(layer->label(), "norm");
  EXPECT_FALSE(layer->isFrozen());
  EXPECT_EQ(layer->optimizer(), nullptr);
  EXPECT_EQ(layer->deviceGammaAndBeta(mtl::newCPUDevice(1)), nullptr);
  EXPECT_FALSE(layer->updateGammaAndBeta(statesFor(*layer))) << "no optimiser";
}

TEST_F(TrainableImageNormalizationTest, D23TheOptimizerUpdatesTheSums) {
  const auto optimizer = SGD::create(device_, 0.5F);
  const auto layer = make(optimizer);
  EXPECT_NE(layer->optimizer(), optimizer) << "a copy of its own";
  const auto commandBuffer = commands();
  EXPECT_EQ(layer->updateGammaAndBeta(commandBuffer, statesFor(*layer)), layer->deviceGammaAndBeta(device_));
  run(commandBuffer);
  EXPECT_EQ(valuesOf(layer->gamma()), Values(2, -0.5F));
  EXPECT_EQ(valuesOf(layer->beta()), Values(2, -1.5F));
  EXPECT_TRUE(layer->updateGammaAndBeta(statesFor(*layer))) << "on the host";
  EXPECT_EQ(valuesOf(layer->gamma()), Values(2, -2));
  layer->setFrozen(true);
  EXPECT_EQ(layer->updateGammaAndBeta(commands(), statesFor(*layer)), nullptr);
  EXPECT_FALSE(layer->updateGammaAndBeta(statesFor(*layer)));
}

TEST_F(TrainableImageNormalizationTest, D23FilesAndCopies) {
  const detail::TestFolder folder;
  const auto path = folder / "norm.safetensors";
  const auto adam = NNOptimizerAdam::create(device_, 0.125F);
  const auto layer = make(adam);
  layer->updateGammaAndBeta(statesFor(*layer));
  const auto tensors = layer->tensors(true);
  std::vector<std::string> tensorNames;
  for (const SafetensorsTensor& tensor : tensors) tensorNames.push_back(tensor.name);
  EXPECT_EQ(tensorNames, (std::vector<std::string>{"norm.weight", "norm.bias", "norm.weight.momentum",
                                                   "norm.bias.momentum", "norm.weight.velocity",
                                                   "norm.bias.velocity", "norm.step"}));
  writeSafetensors(path, tensors, {});
  const auto other = make(adam);
  other->read(SafetensorsFile::read(path), true);
  const auto copy = std::static_pointer_cast<TrainableInstanceNormalization>(layer->copy(device_));
  for (const auto& same : {other, copy}) {
    EXPECT_EQ(valuesOf(same->gamma()), valuesOf(layer->gamma()));
    EXPECT_EQ(valuesOf(same->beta()), valuesOf(layer->beta()));
    EXPECT_EQ(std::static_pointer_cast<NNOptimizerAdam>(same->optimizer())->timeStep(), 1U);
  }
  layer->updateGammaAndBeta(statesFor(*layer));
  EXPECT_NE(valuesOf(copy->gamma()), valuesOf(layer->gamma())) << "independent";
  copy->updateGammaAndBeta(statesFor(*copy));
  other->updateGammaAndBeta(statesFor(*other));
  EXPECT_EQ(valuesOf(copy->gamma()), valuesOf(layer->gamma())) << "with the optimiser's state";
  EXPECT_EQ(valuesOf(other->gamma()), valuesOf(layer->gamma()));
  const auto renamed = TrainableInstanceNormalization::create(device_, 2, "other", nullptr);
  EXPECT_TRUE(names(errorOf([&] { renamed->read(SafetensorsFile::read(path), false); }), {"other.weight"}));
}

TEST_F(TrainableImageNormalizationTest, Groups) {
  const auto layer = TrainableGroupNormalization::create(device_, 6, 3, "groups", SGD::create(device_, 1));
  EXPECT_EQ(layer->numberOfGroups(), 3U);
  EXPECT_EQ(layer->numberOfFeatureChannels(), 6U);
  const auto copy = layer->copy(device_);
  EXPECT_EQ(copy->numberOfGroups(), 3U);
  EXPECT_EQ(copy->label(), "groups");
}

TEST_F(TrainableImageNormalizationTest, WhatConstructionRefuses) {
  using Instance = TrainableInstanceNormalization;
  EXPECT_TRUE(names(errorOf([] { Instance::create(nullptr, 2, "n", nullptr); }), {"device", "null"}));
  EXPECT_TRUE(names(errorOf([&] { Instance::create(device_, 0, "n", nullptr); }),
                    {"TrainableInstanceNormalization", "numberOfFeatureChannels", "0"}));
  EXPECT_TRUE(names(errorOf([&] { Instance::create(device_, 2, "n", nullptr, 0); }), {"epsilon", "above 0"}));
  EXPECT_TRUE(names(
      errorOf([&] { Instance::create(device_, 2, "n", SGD::create(device_, 1), 1, AdamForm::AMSGrad); }),
      {"optimizer", "AMSGrad"}));
  EXPECT_TRUE(names(errorOf([&] { TrainableGroupNormalization::create(device_, 6, 4, "n", nullptr); }),
                    {"TrainableGroupNormalization", "numberOfGroups", "4"}));
}

}  // namespace
}  // namespace mps::trainable_image_normalization_test
