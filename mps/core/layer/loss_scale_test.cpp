#include "mps/core/layer/loss_scale.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <vector>

#include "mps/core/image/state.hpp"
#include "mps/core/layer/loss_scale_problem.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mtl/buffer.hpp"
#include "mtl/check/test_devices.hpp"
#include "mtl/command.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"
#include "mtl/stream.hpp"

/// Dynamic loss scaling, on every device of the machine.
namespace mps::loss_scale_test {
namespace {

using testing::errorOf;
using testing::names;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class LossScaleTest : public ::testing::TestWithParam<std::shared_ptr<mtl::Device>> {
 protected:
  const std::shared_ptr<mtl::Device>& device() { return GetParam(); }

  /// A state of two buffers with these values.
  std::shared_ptr<State> state(const std::vector<float>& first, const std::vector<float>& second) {
    std::vector<std::shared_ptr<mtl::Buffer>> buffers;
    for (const auto* values : {&first, &second}) {
      buffers.push_back(device()->newBuffer(values->size() * sizeof(float)));
      std::ranges::copy(*values, buffers.back()->contentsAs<float>().begin());
      buffers.back()->didModifyRange(0, buffers.back()->length());
    }
    return State::create(buffers);
  }
  /// One step with these gradients.
  void step(LossScale& scale, const std::vector<float>& first, const std::vector<float>& second = {1}) {
    const auto commandBuffer = device()->newCommandQueue()->commandBuffer();
    scale.inspect(commandBuffer, state(first, second));
    scale.update(commandBuffer);
    scale.synchronize(commandBuffer);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
  }
};

TEST_P(LossScaleTest, GrowsAfterTheIntervalAndShrinksAfterAnOverflow) {
  const auto scale = LossScale::create(device(), {.initialScale = 1024, .growthInterval = 2});
  EXPECT_EQ(scale->scale(), 1024);
  step(*scale, {1, -2, 3});
  EXPECT_EQ(scale->scale(), 1024);
  EXPECT_EQ(scale->finiteSteps(), 1U);
  step(*scale, {0});
  EXPECT_EQ(scale->scale(), 2048);
  EXPECT_EQ(scale->finiteSteps(), 0U);
  step(*scale, {1});
  step(*scale, {1, kInfinity});
  EXPECT_EQ(scale->scale(), 1024);
  EXPECT_EQ(scale->finiteSteps(), 0U);
  EXPECT_EQ(scale->skippedSteps(), 1U);
  step(*scale, {1});
  EXPECT_EQ(scale->skippedSteps(), 1U) << "the next step starts anew";
}

TEST_P(LossScaleTest, FindsEachValueThatIsNotFiniteInEachBuffer) {
  const auto scale = LossScale::create(device(), {.backoffFactor = 0.25F});
  for (const float bad : {kInfinity, -kInfinity, kNaN}) {
    for (const std::size_t place : {0U, 7U, 20000U, 39999U}) {
      std::vector<float> values(40000, std::numeric_limits<float>::max());
      scale->set(64, 3, 0);
      step(*scale, values, values);
      EXPECT_EQ(scale->finiteSteps(), 4U) << "large values are finite";
      values[place] = bad;
      step(*scale, values);
      EXPECT_EQ(scale->scale(), 16) << bad << " at " << place;
      step(*scale, {1}, values);
      EXPECT_EQ(scale->scale(), 4) << bad << " at " << place << " of the second buffer";
    }
  }
}

/// More arrays than a launch holds, at all kinds of addresses, the first one empty, of two scales.
TEST_P(LossScaleTest, InspectsManyArraysAtOnce) {
  constexpr std::size_t kArrays = 401;
  const std::shared_ptr<LossScale> scales[] = {LossScale::create(device()), LossScale::create(device())};
  const auto countOf = [](std::size_t i) { return i * 997 % 9001; };
  std::size_t total = 0;
  for (std::size_t i = 0; i < kArrays; ++i) total += countOf(i);
  const auto buffer = device()->newBuffer(total * sizeof(float));
  const auto values = buffer->contentsAs<float>();
  std::ranges::fill(values, 1.0F);
  buffer->didModifyRange(0, buffer->length());
  const auto scaleOf = [](std::size_t i) { return i < 30 || i > 380 ? 0U : 1U; };
  std::vector<detail::LossScaleValues> arrays;
  std::vector<std::size_t> starts;
  std::size_t start = 0;
  for (std::size_t i = 0; i < kArrays; ++i) {
    arrays.push_back(
        {reinterpret_cast<const float*>(buffer->memory()->address()) + start,
         static_cast<std::int64_t>(countOf(i)),
         reinterpret_cast<detail::LossScaleNumbers*>(scales[scaleOf(i)]->numbers()->memory()->address())});
    starts.push_back(start);
    start += countOf(i);
  }
  const bool isCpu = device()->kind() == mtl::DeviceKind::CPU;
  const auto inspect = isCpu ? detail::inspectValuesCpu : UNMETAL_CUDA_LIST(detail::inspectValuesCuda);
  const auto change = [&](std::size_t place, float value) {
    values[place] = value;
    buffer->didModifyRange(place * sizeof(float), sizeof(float));
  };
  for (const std::size_t bad : {1U, 29U, 30U, 167U, 168U, 169U, 197U, 198U, 199U, 366U, 380U, 381U, 400U})
    for (const std::size_t place : {starts[bad], starts[bad] + countOf(bad) - 1}) {
      for (const auto& scale : scales) scale->set(64, 0, 0);
      change(place, kNaN);
      const auto commandBuffer = device()->newCommandQueue()->commandBuffer();
      mtl::Command command;
      command.run = [&](mtl::Stream& stream) { inspect(stream, arrays); };
      commandBuffer->append(std::move(command));
      for (const auto& scale : scales) {
        scale->update(commandBuffer);
        scale->synchronize(commandBuffer);
      }
      commandBuffer->commit();
      commandBuffer->throwIfFailed();
      EXPECT_EQ(scales[scaleOf(bad)]->skippedSteps(), 1U) << "array " << bad << ", value " << place;
      EXPECT_EQ(scales[1 - scaleOf(bad)]->skippedSteps(), 0U) << "array " << bad << ", value " << place;
      change(place, 1);
    }
}

TEST_P(LossScaleTest, StaysAmongTheNormalNumbers) {
  const auto scale = LossScale::create(device(), {.growthInterval = 1});
  scale->set(0x1p126F, 0, 0);
  step(*scale, {1});
  EXPECT_EQ(scale->scale(), 0x1p126F);
  scale->set(0x1p-126F, 0, 0);
  step(*scale, {kNaN});
  EXPECT_EQ(scale->scale(), 0x1p-126F);
  EXPECT_EQ(scale->skippedSteps(), 1U);
}

TEST_P(LossScaleTest, RefusesWhatItCannotUse) {
  const auto refuses = [&](const LossScaleOptions& options, const char* property) {
    EXPECT_TRUE(names(errorOf([&] { LossScale::create(device(), options); }), {"LossScale", property}));
  };
  for (const float wrong : {0.0F, -1.0F, kInfinity, kNaN}) {
    refuses({.initialScale = wrong}, "initialScale");
    refuses({.growthFactor = wrong}, "growthFactor");
    refuses({.backoffFactor = wrong}, "backoffFactor");
  }
  refuses({.backoffFactor = 1}, "backoffFactor");
  refuses({.growthInterval = 0}, "growthInterval");
  EXPECT_TRUE(names(errorOf([&] { LossScale::create(nullptr); }), {"device"}));
  const auto scale = LossScale::create(device());
  EXPECT_TRUE(names(errorOf([&] { scale->set(0x1p127F, 0, 0); }), {"scale"}));
  EXPECT_EQ(scale->scale(), 65536);
  const auto commandBuffer = device()->newCommandQueue()->commandBuffer();
  EXPECT_TRUE(names(errorOf([&] { scale->inspect(commandBuffer, nullptr); }), {"state"}));
  EXPECT_TRUE(names(errorOf([&] { scale->update(nullptr); }), {"commandBuffer"}));
}

TEST_P(LossScaleTest, ACopyGoesOnByItself) {
  const auto scale = LossScale::create(device(), {.initialScale = 1024, .growthInterval = 2});
  step(*scale, {kInfinity});
  step(*scale, {1});
  const auto other = mtl::newCPUDevice(2);
  for (const auto& copy : {scale->copy(other), scale->copy()}) {
    EXPECT_EQ(copy->scale(), 512);
    EXPECT_EQ(copy->finiteSteps(), 1U);
    EXPECT_EQ(copy->skippedSteps(), 1U);
    EXPECT_EQ(copy->options().growthInterval, 2U);
  }
  EXPECT_EQ(scale->copy(other)->device(), other);
  const auto copy = scale->copy();
  EXPECT_EQ(copy->device(), device());
  step(*copy, {1});
  EXPECT_EQ(copy->scale(), 1024);
  EXPECT_EQ(scale->scale(), 512);
}

INSTANTIATE_TEST_SUITE_P(Devices, LossScaleTest, ::testing::ValuesIn(mtl::copyAllDevices()),
                         mtl::testing::nameOf);

}  // namespace
}  // namespace mps::loss_scale_test
