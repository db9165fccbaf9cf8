#include "mps/optimizer/gradient_norm.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "mps/conform/tolerance.hpp"
#include "mps/core/array/vector.hpp"
#include "mps/core/layer/loss_scale.hpp"
#include "mps/optimizer/combined_updates.hpp"
#include "mps/optimizer/optimizer.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"

/// The limit of the norm of all gradients, for the updates that are put together.
namespace mps::detail::gradient_norm_test {
namespace {

using Values = std::vector<std::vector<float>>;

/// More gradients than one launch holds, of sizes around that of a block.
Values someGradients() {
  Values gradients;
  for (std::size_t i = 0; i < 130; ++i) {
    const std::size_t count = i == 3 ? 3 * gradientNormBlock + 5 : i == 4 ? gradientNormBlock : 1 + i * i / 8;
    std::vector<float> values(count);
    for (std::size_t k = 0; k < count; ++k) values[k] = std::sin(static_cast<float>(k + 7 * i));
    gradients.push_back(std::move(values));
  }
  return gradients;
}

double normOf(const Values& gradients) {
  double sum = 0;
  for (const auto& values : gradients)
    for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(sum);
}

struct Settings {
  float limit = 0;
  std::shared_ptr<LossScale> lossScale = nullptr;
  CombinedUpdates::Gradients gradients = CombinedUpdates::Gradients::OfLoss;
};

/// What plain descent with learning rate 1 makes of weights of 0: the gradients that it got, with another sign.
Values updated(const std::shared_ptr<mtl::Device>& device, const Values& gradients,
               const Settings& settings) {
  const auto vector = [&](const std::vector<float>& values) {
    return Vector::create(device->newBuffer(std::as_bytes(std::span(values))),
                          VectorDescriptor::vectorDescriptor(values.size(), DataType::Float32));
  };
  const auto sgd = NNOptimizerStochasticGradientDescent::create(device, 1);
  sgd->setLossScale(settings.lossScale);
  const auto commandBuffer = device->newCommandQueue()->commandBuffer();
  CombinedUpdates updates(*device, std::make_shared<int>(), settings.limit);
  std::vector<std::shared_ptr<Vector>> weights;
  {
    const CombinedUpdates::Scope scope(updates, settings.gradients);
    for (const auto& values : gradients) {
      weights.push_back(vector(std::vector<float>(values.size())));
      sgd->encode(commandBuffer, vector(values), weights.back(), std::shared_ptr<Vector>(), weights.back());
    }
  }
  updates.record(*commandBuffer);
  for (const auto& weight : weights) weight->synchronize(commandBuffer);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  Values found;
  for (const auto& weight : weights) {
    const auto values = weight->data()->contentsAs<const float>();
    found.emplace_back(values.begin(), values.end());
  }
  return found;
}

Values scaled(Values values, float factor) {
  for (auto& array : values)
    for (float& value : array) value *= factor;
  return values;
}

class GradientNorm : public ::testing::TestWithParam<std::shared_ptr<mtl::Device>> {
 protected:
  std::shared_ptr<mtl::Device> device_ = GetParam();
  Values gradients_ = someGradients();
  double norm_ = normOf(gradients_);
};

/// The sum is in float64 in whatever order: its error does not show in the factor, which has 24 bits.
TEST_P(GradientNorm, AboveTheLimitShortensAllGradients) {
  const auto limit = static_cast<float>(norm_ / 3);
  const auto factor = static_cast<float>(static_cast<double>(limit) / norm_);
  EXPECT_EQ(updated(device_, gradients_, {.limit = limit}), scaled(gradients_, -factor));
}

TEST_P(GradientNorm, WithinTheLimitChangesNoBit) {
  EXPECT_EQ(updated(device_, gradients_, {.limit = static_cast<float>(norm_ * 1.001)}),
            scaled(gradients_, -1));
  EXPECT_EQ(updated(device_, scaled(gradients_, 0), {.limit = 1}), scaled(gradients_, 0)) << "a norm of 0";
}

TEST_P(GradientNorm, IsThatWithoutTheLossScale) {
  const auto limit = static_cast<float>(norm_ / 3);
  const auto lossScale = LossScale::create(device_, {.initialScale = 1024});
  EXPECT_EQ(updated(device_, scaled(gradients_, 1024), {.limit = limit, .lossScale = lossScale}),
            updated(device_, gradients_, {.limit = limit}));
}

TEST_P(GradientNorm, LeavesAStepThatOverflowedOut) {
  const auto lossScale = LossScale::create(device_, {.initialScale = 4});
  gradients_[5][0] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(updated(device_, gradients_, {.limit = 1, .lossScale = lossScale}), scaled(someGradients(), 0));
}

TEST_P(GradientNorm, StatisticsAreNoGradients) {
  const Settings settings{.limit = 0.5F, .gradients = CombinedUpdates::Gradients::None};
  EXPECT_EQ(updated(device_, gradients_, settings), scaled(gradients_, -1));
}

TEST_P(GradientNorm, HasFloat64) {
  const Values large{{1e30F, 0}, {1e30F}};
  const Values found = updated(device_, large, {.limit = 1});
  for (const std::vector<float>& values : found)
    EXPECT_NEAR(values[0], -std::sqrt(0.5), arithmeticBound(1, 4, 1));
}

INSTANTIATE_TEST_SUITE_P(Devices, GradientNorm, ::testing::ValuesIn(mtl::copyAllDevices()),
                         [](const auto& info) { return "device" + std::to_string(info.index); });

TEST(GradientNormThreads, GiveTheSameBits) {
  const Values gradients = someGradients();
  const Values one = updated(mtl::newCPUDevice(1), gradients, {.limit = 1});
  for (const int threads : {2, 3, 7})
    EXPECT_EQ(updated(mtl::newCPUDevice(threads), gradients, {.limit = 1}), one) << threads;
}

}  // namespace
}  // namespace mps::detail::gradient_norm_test
