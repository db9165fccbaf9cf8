#include "mps/optimizer/combined_updates.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "mps/core/array/vector.hpp"
#include "mps/core/layer/loss_scale.hpp"
#include "mps/optimizer/optimizer.hpp"
#include "mtl/buffer.hpp"
#include "mtl/check/test_devices.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps::detail::combined_updates_test {
namespace {

/// A parameter with its optimiser.
struct Parameter {
  std::shared_ptr<Vector> gradient, values, momentum, velocity;
  std::shared_ptr<NNOptimizerAdam> adam;
  std::shared_ptr<NNOptimizerStochasticGradientDescent> sgd;

  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) const {
    if (adam)
      adam->encode(commandBuffer, gradient, values, momentum, velocity, values);
    else
      sgd->encode(commandBuffer, gradient, values, nullptr, values);
  }
};

class Updates : public ::testing::TestWithParam<std::shared_ptr<mtl::Device>> {
 protected:
  std::shared_ptr<Vector> vector(std::size_t count, unsigned seed) const {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i)
      values[i] = std::sin(static_cast<float>(i) + static_cast<float>(seed));
    return Vector::create(device_->newBuffer(std::as_bytes(std::span(values))),
                          VectorDescriptor::vectorDescriptor(count, DataType::Float32));
  }
  /// More than one launch holds, of sizes that do and do not fit 16 bytes and blocks, with both optimisers.
  /// @param lossScale of the optimisers, or null
  std::vector<Parameter> parameters(const std::shared_ptr<LossScale>& lossScale = nullptr) const {
    std::vector<Parameter> all;
    for (unsigned i = 0; i < 60; ++i) {
      const std::size_t count = i == 7 ? 40'001 : 1 + i * i * 3;
      Parameter p{vector(count, i), vector(count, 2 * i), vector(count, 0), vector(count, 1), nullptr,
                  nullptr};
      const auto squares = p.velocity->data()->contentsAs<float>();
      for (float& value : squares) value *= value;
      p.velocity->data()->didModifyRange(0, p.velocity->data()->length());
      if (i % 3 == 0)
        p.sgd = NNOptimizerStochasticGradientDescent::create(device_, 0.01F * static_cast<float>(i + 1));
      else
        p.adam = NNOptimizerAdam::create(device_, 0.001F * static_cast<float>(i + 1));
      if (p.sgd) p.sgd->setLossScale(lossScale);
      if (p.adam) p.adam->setLossScale(lossScale);
      all.push_back(std::move(p));
    }
    return all;
  }
  void run(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) const {
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
  }
  std::vector<std::vector<std::uint32_t>> bitsOf(const std::vector<Parameter>& all) const {
    const auto commandBuffer = queue_->commandBuffer();
    for (const Parameter& p : all)
      for (const auto& v : {p.values, p.momentum, p.velocity}) v->synchronize(commandBuffer);
    run(commandBuffer);
    std::vector<std::vector<std::uint32_t>> bits;
    for (const Parameter& p : all)
      for (const auto& v : {p.values, p.momentum, p.velocity}) {
        const auto words = v->data()->contentsAs<const std::uint32_t>();
        bits.emplace_back(words.begin(), words.end());
      }
    return bits;
  }

  std::shared_ptr<mtl::Device> device_ = GetParam();
  std::shared_ptr<mtl::CommandQueue> queue_ = device_->newCommandQueue();
  std::shared_ptr<const void> identity_ = std::make_shared<int>();
};

TEST_P(Updates, TogetherHaveTheBitsOfSeparateOnes) {
  // The CPU puts off only what waits for a loss scale.
  const bool alwaysScaled = device_->kind() == mtl::DeviceKind::CPU;
  for (const bool isScaled : {false, true}) {
    if (alwaysScaled && !isScaled) continue;
    const auto scale = isScaled ? LossScale::create(device_, {.initialScale = 4}) : nullptr;
    const auto separate = parameters(scale);
    const auto together = parameters(scale);
    for (int step = 0; step < 4; ++step) {
      const auto one = queue_->commandBuffer();
      for (const Parameter& p : separate) p.encode(one);
      EXPECT_EQ(one->commandCount(), (isScaled ? 2 : 1) * separate.size());
      run(one);
      const auto other = queue_->commandBuffer();
      CombinedUpdates updates(*device_, identity_);
      {
        const CombinedUpdates::Scope scope(updates);
        for (const Parameter& p : together) p.encode(other);
      }
      EXPECT_EQ(other->commandCount(), 0U);
      updates.record(*other);
      EXPECT_EQ(other->commandCount(), isScaled ? 2U : 1U) << "inspections and updates, scale";
      run(other);
    }
    EXPECT_EQ(bitsOf(together), bitsOf(separate));
    EXPECT_NE(bitsOf(together), bitsOf(parameters()));
  }
}

/// A tensor that is updated twice, as by two layers that share it.
TEST_P(Updates, ThatAreSeparateRunInTheirOrder) {
  for (const bool isScaled : {false, true}) {
    const auto scale = isScaled ? LossScale::create(device_, {.initialScale = 4}) : nullptr;
    const auto separate = parameters(scale);
    const auto together = parameters(scale);
    const auto one = queue_->commandBuffer();
    for (int i = 0; i < 3; ++i)
      for (const Parameter& p : separate) p.encode(one);
    run(one);
    const auto other = queue_->commandBuffer();
    CombinedUpdates updates(*device_, identity_);
    for (int i = 0; i < 3; ++i) {
      updates.separate();
      const CombinedUpdates::Scope scope(updates);
      for (const Parameter& p : together) p.encode(other);
    }
    updates.record(*other);
    run(other);
    EXPECT_EQ(bitsOf(together), bitsOf(separate));
  }
}

TEST_P(Updates, BehindTheScopeAreNotPutOff) {
  const auto all = parameters();
  const auto commandBuffer = queue_->commandBuffer();
  CombinedUpdates outer(*device_, identity_);
  const CombinedUpdates::Scope outerScope(outer);
  {
    CombinedUpdates inner(*device_, identity_);
    const CombinedUpdates::Scope innerScope(inner);
    EXPECT_EQ(CombinedUpdates::current(), &inner);
  }
  EXPECT_EQ(CombinedUpdates::current(), &outer);
  outer.record(*commandBuffer);
  EXPECT_EQ(commandBuffer->commandCount(), 0U) << "nothing was put off";
}

TEST_P(Updates, OfAllWaitForTheGradientsOfAll) {
  const auto scale = LossScale::create(device_, {.initialScale = 4});
  const auto all = parameters(scale);
  const auto before = bitsOf(all);
  const auto gradient = all[41].gradient->data();
  gradient->contentsAs<float>()[5] = HUGE_VALF;
  gradient->didModifyRange(0, gradient->length());
  for (const bool isFinite : {false, true}) {
    const auto commandBuffer = queue_->commandBuffer();
    CombinedUpdates updates(*device_, identity_);
    {
      const CombinedUpdates::Scope scope(updates);
      for (const Parameter& p : all) p.encode(commandBuffer);
    }
    updates.record(*commandBuffer);
    scale->synchronize(commandBuffer);
    run(commandBuffer);
    EXPECT_EQ(bitsOf(all) == before, !isFinite);
    EXPECT_EQ(scale->skippedSteps(), 1U);
    EXPECT_EQ(scale->scale(), 2);
    gradient->contentsAs<float>()[5] = 1;
    gradient->didModifyRange(0, gradient->length());
  }
}

/// What was put off counts for failures as if it had been recorded at once.
TEST_P(Updates, KnowWhatTheyReadAndWrite) {
  const auto all = parameters();
  const auto commandBuffer = queue_->commandBuffer();
  CombinedUpdates updates(*device_, identity_);
  {
    const CombinedUpdates::Scope scope(updates);
    for (const Parameter& p : all) p.encode(commandBuffer);
  }
  updates.record(*commandBuffer);
  all[1].gradient->data()->memory()->setFailure("planted");
  commandBuffer->commit();
  commandBuffer->waitUntilCompleted();
  ASSERT_TRUE(commandBuffer->error());
  EXPECT_NE(commandBuffer->error()->message.find("planted"), std::string::npos);
  EXPECT_FALSE(all[5].values->data()->memory()->failure().empty());
  EXPECT_FALSE(all[5].momentum->data()->memory()->failure().empty());
}

INSTANTIATE_TEST_SUITE_P(Devices, Updates, ::testing::ValuesIn(mtl::copyAllDevices()), mtl::testing::nameOf);

}  // namespace
}  // namespace mps::detail::combined_updates_test
