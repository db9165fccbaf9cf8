#include "mps/instance_normalization/group_normalization.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "mps/conform/tolerance.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/instance_normalization/check/instance_normalization_fixed_source.hpp"
#include "mtl/buffer.hpp"

/// What group normalisation has of its own, on an example (channels innermost):
/// two channels in one group, gamma [3, 6], beta [1, 0], epsilon 4.
namespace mps::group_normalization_test {
namespace {

using detail::FixedGroupNormalization;
using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;

class GroupNormalization : public testing::DeviceTest {
 protected:
  GroupNormalization() {
    source_->gammas = {3, 6};
    source_->betas = {1, 0};
    normalization_ = CNNGroupNormalization::create(device_, source_);
  }
  static void expectNear(const Values& found, const std::vector<double>& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], expected[i], detail::arithmeticBound(6, 8, 0)) << i;
  }

  ImageDescriptor size_ = sizeOf(2, 1, 2);
  std::shared_ptr<FixedGroupNormalization> source_ = FixedGroupNormalization::create(2, 1, 4);
  std::shared_ptr<CNNGroupNormalization> normalization_;
};

TEST_F(GroupNormalization, AWholeStep) {
  const auto x = batch(size_, 1, {1, 5, 3, 7}), dy = batch(size_, 1, {1, 2, 3, -1});
  const auto y = batch(size_, 1, Values(4, poison)), dx = batch(size_, 1, Values(4, poison));
  const auto gradient = CNNGroupNormalizationGradient::create(device_);
  const StateBatch states = normalization_->resultStateBatch(x);
  const auto commandBuffer = commands();
  normalization_->encodeBatch(commandBuffer, x, states, y);
  gradient->encodeBatch(commandBuffer, dy, x, states, dx);
  run(commandBuffer);
  expectNear(valuesOf(y), {-2, 2, 0, 6});
  expectNear(valuesOf(dx), {-7.0 / 6, 49.0 / 18, 23.0 / 18, -17.0 / 6});
  const auto state = std::dynamic_pointer_cast<CNNGroupNormalizationGradientState>(states[0]);
  ASSERT_NE(state, nullptr);
  expectNear(valuesOf(state->gradientForGamma()), {-2, -1.0 / 3});
  expectNear(valuesOf(state->gradientForBeta()), {4, 1});
  EXPECT_EQ(state->groupNormalization(), normalization_);
  EXPECT_EQ(gradient->copy()->className(), "CNNGroupNormalizationGradient");
}

TEST_F(GroupNormalization, TheGroupsAreReadWhenTheKernelIsMade) {
  EXPECT_EQ(normalization_->numberOfGroups(), 1U);
  EXPECT_EQ(normalization_->dataSource(), source_);
  source_->groups = 2;
  normalization_->reloadGammaAndBetaFromDataSource();
  EXPECT_EQ(normalization_->numberOfGroups(), 1U);
  EXPECT_EQ(CNNGroupNormalization::create(device_, source_)->numberOfGroups(), 2U);
  const auto elsewhere = mtl::newCPUDevice(1);
  EXPECT_EQ(normalization_->copy(elsewhere)->numberOfGroups(), 1U);
  EXPECT_EQ(normalization_->copy(elsewhere)->dataSource(), source_);
  EXPECT_EQ(normalization_->copy()->dataSource(), source_);
  EXPECT_EQ(normalization_->copy()->numberOfGroups(), 1U);
  source_->copied = FixedGroupNormalization::create(2, 1);
  EXPECT_EQ(normalization_->copy(elsewhere)->dataSource(), source_->copied);
  EXPECT_EQ(normalization_->copy()->dataSource(), source_->copied);
}

TEST_F(GroupNormalization, WhatConstructionRefuses) {
  const auto error = [&](std::size_t channels, std::size_t groups) {
    return errorOf(
        [&] { CNNGroupNormalization::create(device_, FixedGroupNormalization::create(channels, groups)); });
  };
  EXPECT_TRUE(
      names(errorOf([&] { CNNGroupNormalization::create(device_, nullptr); }), {"dataSource", "null"}));
  EXPECT_TRUE(names(error(0, 1), {"numberOfFeatureChannels", "0"}));
  EXPECT_TRUE(names(error(6, 4), {"numberOfGroups", "4", "6"}));
  EXPECT_TRUE(names(error(6, 0), {"numberOfGroups", "0"}));
}

/// Instance and group kernels have states of their own.
TEST_F(GroupNormalization, ForeignStates) {
  const auto x = batch(size_, 1, {1, 5, 3, 7});
  const auto instance =
      CNNInstanceNormalization::create(device_, detail::FixedInstanceNormalization::create(2));
  const StateBatch states = instance->resultStateBatch(x);
  const auto commandBuffer = commands();
  instance->encodeBatch(commandBuffer, x, states, batch(size_, 1, Values(4)));
  const auto gradient = CNNGroupNormalizationGradient::create(device_);
  EXPECT_TRUE(
      names(errorOf([&] { gradient->encodeBatch(commandBuffer, x, x, states, batch(size_, 1, Values(4))); }),
            {"gradientState", "CNNInstanceNormalization"}));
}

}  // namespace
}  // namespace mps::group_normalization_test
