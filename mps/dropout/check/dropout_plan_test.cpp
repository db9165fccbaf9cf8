#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "mps/conform/compare.hpp"
#include "mps/conform/testing/test_tensor.hpp"
#include "mps/core/cpu/for_each_target.hpp"
#include "mps/dropout/check/dropout_cases.hpp"
#include "mps/dropout/check/dropout_reference.hpp"
#include "mtl/cpu/stream.hpp"
#include "mtl/device.hpp"

namespace mps::detail::dropout_plan_test {
namespace {

using enum ImageFeatureChannelFormat;
using enum DropoutDirection;

constexpr std::uint64_t kSeed = 20241105;
constexpr int kThreads = 3;

std::shared_ptr<mtl::Device> testDevice() {
  static const std::shared_ptr<mtl::Device> device = mtl::newCPUDevice(kThreads);
  return device;
}

bool isUnorm(ImageFeatureChannelFormat format) {
  return format == Unorm8 || format == Unorm16;
}

class Call {
 public:
  Call(const DropoutProblem& problem, std::uint32_t encodeCounter, std::uint32_t firstImage)
      : problem_(problem),
        encodeCounter_(encodeCounter),
        firstImage_(firstImage),
        input_(testDevice(), problem.input, 1),
        destination_(testDevice(), problem.destination, 2) {
    input_.write(randomValues(static_cast<std::size_t>(problem.input.elements()), kSeed,
                              isUnorm(problem.input.format) ? RandomKind::Positive : RandomKind::Uniform));
  }

  TestTensor& input() { return input_; }
  TestTensor& destination() { return destination_; }

  void execute(int threads = kThreads, bool accumulate = false) {
    const ChosenPlan chosen = preparePlan(dropoutImplementationsCpu(), problem_);
    EXPECT_EQ(chosen.plan->scratchBytes(), 0U);
    Operands operands;
    (problem_.direction == Forward ? operands.source : operands.gradient) = input_.address();
    operands.destination = destination_.address();
    operands.scalars = {static_cast<double>(encodeCounter_), static_cast<double>(firstImage_)};
    operands.accumulate = accumulate;
    mtl::cpu::Stream stream(threads);
    chosen.plan->run(stream, operands);
    EXPECT_TRUE(input_.isUnchanged()) << "the input was written";
    EXPECT_TRUE(destination_.surroundingsIntact()) << "memory around the destination was written";
  }

  [[nodiscard]] ReferenceTensor expected(const DropoutProblem& problem, std::uint32_t encodeCounter,
                                         std::uint32_t firstImage) const {
    return dropoutReference(problem, input_.reference(), encodeCounter, firstImage);
  }
  [[nodiscard]] ReferenceTensor expected() const { return expected(problem_, encodeCounter_, firstImage_); }
  [[nodiscard]] std::vector<double> found() { return destination_.read(); }

 private:
  DropoutProblem problem_;
  std::uint32_t encodeCounter_;
  std::uint32_t firstImage_;
  TestTensor input_;
  TestTensor destination_;
};

/// One division, rounded once: float32 results are exact whatever the values are.
Tier tierOf(const DropoutProblem& problem) {
  const bool inputIsFloat = !isUnorm(problem.input.format);
  return inputIsFloat && problem.destination.format == Float32 ? Tier::Exact : Tier::Bounded;
}

void check(const DropoutCase& item, const DropoutProblem& problem) {
  SCOPED_TRACE(item.name + ": " + problem.describe());
  Call call(problem, item.encodeCounter, item.firstImage);
  call.execute();
  const Comparison comparison =
      compare(call.expected(), call.found(), problem.destination.format, tierOf(problem), Zeros::Expected);
  EXPECT_TRUE(comparison.passed()) << comparison.report;
}

TEST(DropoutPlan, ForwardAndGradient) {
  for (const auto& [input, destination] : {std::pair{Float32, Float32},
                                           {Float16, Float16},
                                           {Float32, Float16},
                                           {Float16, Float32},
                                           {Unorm8, Float32},
                                           {Unorm16, Float16}})
    for (const DropoutCase& item : dropoutCases())
      for (const DropoutDirection direction : {Forward, Gradient})
        check(item, item.problem(direction, input, destination));
}

TEST(DropoutPlan, ForwardToUnorm) {
  for (const auto& [input, destination] : {std::pair{Float32, Unorm8}, {Unorm8, Unorm8}, {Float16, Unorm16}})
    for (const DropoutCase& item : dropoutCases()) check(item, item.problem(Forward, input, destination));
}

TEST(DropoutPlan, EveryInstructionSet) {
  forEachTarget([](const std::string& target) {
    SCOPED_TRACE(target);
    for (const DropoutCase& item : dropoutCases())
      for (const auto format : {Float32, Float16}) check(item, item.problem(Forward, format, format));
  });
}

/// The mask is a contract: bit for bit the same on every instruction set and device.
TEST(DropoutPlan, MaskBytes) {
  forEachTarget([](const std::string& target) {
    for (const DropoutCase& item : dropoutCases()) {
      const DropoutProblem problem = item.problem(Forward, Float32, Float32);
      const std::vector<double> expected = dropoutMaskReference(problem, item.encodeCounter, item.firstImage);
      ASSERT_EQ(problem.maskElements(), static_cast<std::int64_t>(expected.size())) << item.name;
      std::vector<std::byte> found(expected.size() + 1, std::byte{0xA5});
      dropoutMask(problem, item.encodeCounter, item.firstImage, std::span(found).first(expected.size()));
      for (std::size_t i = 0; i < expected.size(); ++i)
        ASSERT_EQ(std::to_integer<int>(found[i]), static_cast<int>(expected[i]))
            << item.name << " " << target << " " << i;
      EXPECT_EQ(found.back(), std::byte{0xA5});
    }
  });
}

/// The first word of seed 0 is 0x6627e8d5: kept just where 0xe8d5 2^-16, then 0x6627 2^-16, is less than the probability.
TEST(DropoutPlan, MaskIsExactNextToTheProbability) {
  DropoutProblem problem;
  problem.maskWidth = 2;
  problem.maskHeight = problem.maskChannels = 1;
  const auto mask = [&](float keepProbability) {
    problem.keepProbability = keepProbability;
    std::array<std::byte, 2> bytes{};
    dropoutMask(problem, 0, 0, bytes);
    return std::to_string(std::to_integer<int>(bytes[0])) + std::to_string(std::to_integer<int>(bytes[1]));
  };
  forEachTarget([&](const std::string& target) {
    SCOPED_TRACE(target);
    EXPECT_EQ(mask(0xe8d5p-16F), "01");
    EXPECT_EQ(mask(0xe8d5.01p-16F), "11");
    EXPECT_EQ(mask(1.0F), "11");
    EXPECT_EQ(mask(0x6627p-16F), "00");
    EXPECT_EQ(mask(0x6627.01p-16F), "01");
    EXPECT_EQ(mask(0x1p-60F), "00");
  });
}

/// 0 times NaN or infinity is NaN: a dropped element hides nothing.
TEST(DropoutPlan, NotANumberAndInfinity) {
  const DropoutCase item = dropoutCases()[1];
  for (const auto format : {Float32, Float16}) {
    const DropoutProblem problem = item.problem(Forward, format, format);
    Call call(problem, 0, 0);
    std::vector<double> values =
        randomValues(static_cast<std::size_t>(problem.input.elements()), 3, RandomKind::Uniform);
    for (std::size_t i = 0; i < values.size(); i += 3) values[i] = std::nan("");
    for (std::size_t i = 1; i < values.size(); i += 3) values[i] = i % 2 == 0 ? HUGE_VAL : -HUGE_VAL;
    call.input().write(values);
    call.execute();
    const Comparison comparison = compare(call.expected(), call.found(), format, Tier::Bounded);
    EXPECT_TRUE(comparison.passed()) << comparison.report;
  }
}

TEST(DropoutPlan, Accumulates) {
  for (DropoutCase item : dropoutCases()) {
    item.keepProbability = 0.5F;
    const DropoutProblem problem = item.problem(Gradient, Float32, Float32);
    SCOPED_TRACE(item.name);
    Call call(problem, item.encodeCounter, item.firstImage);
    const auto count = static_cast<std::size_t>(problem.destination.elements());
    call.input().write(randomValues(count, kSeed, RandomKind::SmallIntegers));
    const std::vector<double> before = randomValues(count, kSeed + 1, RandomKind::SmallIntegers);
    call.destination().write(before);
    call.execute(kThreads, true);
    ReferenceTensor expected = call.expected();
    for (std::size_t i = 0; i < count; ++i) expected.values[i] += before[i];
    const Comparison comparison = compare(expected, call.found(), Float32, Tier::Exact, Zeros::Expected);
    EXPECT_TRUE(comparison.passed()) << comparison.report;
  }
}

TEST(DropoutPlan, OnlyFloat32GradientsAccumulate) {
  const DropoutCase item = dropoutCases()[1];
  const auto canAccumulate = [&](DropoutDirection direction, ImageFeatureChannelFormat format) {
    return preparePlan(dropoutImplementationsCpu(), item.problem(direction, Float32, format))
        .plan->canAccumulate();
  };
  EXPECT_TRUE(canAccumulate(Gradient, Float32));
  EXPECT_FALSE(canAccumulate(Gradient, Float16));
  EXPECT_FALSE(canAccumulate(Forward, Float32));
}

TEST(DropoutPlan, InPlace) {
  for (const auto format : {Float32, Float16})
    for (const DropoutCase& item : dropoutCases()) {
      if (item.repeatsImages) continue;
      SCOPED_TRACE(item.name);
      DropoutProblem problem = item.problem(Forward, format, format);
      problem.input = problem.destination;
      TestTensor tensor(testDevice(), problem.input);
      tensor.write(
          randomValues(static_cast<std::size_t>(problem.input.elements()), kSeed, RandomKind::Uniform));
      const ReferenceTensor expected = dropoutReference(problem, tensor.reference(), 0, 0);
      Operands operands;
      operands.source = operands.destination = tensor.address();
      mtl::cpu::Stream stream(kThreads);
      preparePlan(dropoutImplementationsCpu(), problem).plan->run(stream, operands);
      const Comparison comparison =
          compare(expected, tensor.read(), format, tierOf(problem), Zeros::Expected);
      EXPECT_TRUE(comparison.passed()) << comparison.report;
      EXPECT_TRUE(tensor.surroundingsIntact());
    }
}

TEST(DropoutPlan, ThreadCountDoesNotMatter) {
  for (const DropoutCase& item : dropoutCases()) {
    if (item.name != "ManyTiles") continue;
    Call call(item.problem(Forward, Float32, Float32), 0, 0);
    call.execute(1);
    const std::vector<double> one = call.found();
    for (const int threads : {2, 7}) {
      call.destination().poison();
      call.execute(threads);
      EXPECT_EQ(call.found(), one) << threads << " threads";
    }
  }
}

TEST(DropoutPlan, NoImages) {
  DropoutCase item = dropoutCases()[1];
  item.images = 0;
  mtl::cpu::Stream stream(kThreads);
  preparePlan(dropoutImplementationsCpu(), item.problem(Forward, Float32, Float32)).plan->run(stream, {});
}

/// A reference with one number changed must not agree: the comparison sees every field.
TEST(DropoutPlan, EveryFieldMatters) {
  DropoutCase item{.name = "", .images = 2, .height = 6, .width = 7, .channels = 5};
  item.originX = item.originY = item.originChannel = 2;
  const DropoutProblem problem = item.problem(Forward, Float32, Float32);
  Call call(problem, 3, 4);
  call.execute();
  const auto agrees = [&](const DropoutProblem& other, std::uint32_t encodeCounter,
                          std::uint32_t firstImage) {
    return compare(call.expected(other, encodeCounter, firstImage), call.found(), Float32, Tier::Bounded)
        .passed();
  };
  EXPECT_TRUE(agrees(problem, 3, 4));
  EXPECT_FALSE(agrees(problem, 2, 4));
  EXPECT_FALSE(agrees(problem, 3, 5));
  const auto expectSeen = [&](const char* what, auto change) {
    DropoutProblem other = problem;
    change(other);
    EXPECT_FALSE(agrees(other, 3, 4)) << what;
    EXPECT_FALSE(other == problem) << what;
    EXPECT_NE(other.hash(), problem.hash()) << what;
  };
  expectSeen("keepProbability", [](auto& p) { p.keepProbability *= 1 + 0x1p-12F; });
  expectSeen("seed", [](auto& p) { ++p.seed; });
  expectSeen("maskStrideX", [](auto& p) { p.maskStrideX = 0; });
  expectSeen("maskStrideY", [](auto& p) { p.maskStrideY = 0; });
  expectSeen("maskStrideChannel", [](auto& p) { p.maskStrideChannel = 0; });
  expectSeen("maskWidth", [](auto& p) { ++p.maskWidth; });
  expectSeen("maskChannels", [](auto& p) { ++p.maskChannels; });
  expectSeen("maskOriginX", [](auto& p) { --p.maskOriginX; });
  expectSeen("maskOriginY", [](auto& p) { --p.maskOriginY; });
  expectSeen("maskOriginChannel", [](auto& p) { --p.maskOriginChannel; });

  // The height of the mask and the direction change no value; the strides of the tensors are the memory's.
  DropoutProblem other = problem;
  ++other.maskHeight;
  EXPECT_NE(other.hash(), problem.hash());
  EXPECT_EQ(other.maskElements(), problem.maskElements() / problem.maskHeight * other.maskHeight);
  EXPECT_NE(item.problem(Gradient, Float32, Float32).hash(), problem.hash());
  EXPECT_NE(item.problem(Forward, Float16, Float32).hash(), problem.hash());
  EXPECT_NE(item.problem(Forward, Float32, Float16).hash(), problem.hash());
}

}  // namespace
}  // namespace mps::detail::dropout_plan_test
