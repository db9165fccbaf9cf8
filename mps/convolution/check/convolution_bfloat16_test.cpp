#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "mps/conform/guarded/guarded_primitives_cpu.hpp"
#include "mps/convolution/check/convolution_cases_setting.hpp"
#include "mps/convolution/cpu/convolution_cpu.hpp"
#include "mtl/cpu/onednn.hpp"

/// Convolutions of factors rounded to bfloat16, on every processor that has instructions for it, also where float32 is
/// faster.
namespace mps::detail::convolution_bfloat16_test {
namespace {

ConvolutionProblem roundedProblem(const ConvolutionCase& convolution, ConvolutionOperation operation,
                                  Format format) {
  ConvolutionProblem problem = convolution.problem(operation, format, format);
  problem.threadCount = kThreads;
  problem.allowReducedPrecision = true;
  return problem;
}

/// Null where oneDNN has no kernel for it.
std::shared_ptr<const Plan> roundedPlan(const ConvolutionProblem& problem) {
  const Preparation preparation = prepareConvolutionRounded(problem);
  const auto* const plan = std::get_if<std::shared_ptr<const Plan>>(&preparation);
  return plan == nullptr ? nullptr : *plan;
}

std::string refusalOf(const Preparation& preparation) {
  const auto* const refusal = std::get_if<Refusal>(&preparation);
  return refusal == nullptr ? "" : refusal->reason;
}

/// Small integers are bfloat16 numbers, and their sums are exact in float32.
TEST(ConvolutionBfloat16, IntegersAreExact) {
  std::uint64_t seed = 1000;
  int accepted = 0;
  for (const ConvolutionCase& convolution : convolutionCases())
    for (const ConvolutionOperation operation : kOperations)
      for (const Format format : {Format::Float32, Format::Float16}) {
        ConvolutionProblem problem = roundedProblem(convolution, operation, format);
        if (!isExact(problem.neuron)) continue;
        problem.accumulate = format == Format::Float32;
        const auto plan = roundedPlan(problem);
        if (!plan) continue;
        SCOPED_TRACE(testing::Message() << problem.describe() << ", seed " << ++seed);
        ++accepted;
        Setting setting(problem, Tier::Exact, seed);
        for (const bool accumulate : {false, true}) {
          if (accumulate && !problem.accumulate) continue;
          const Results found = setting.run(*plan, accumulate);
          EXPECT_EQ(setting.compareWith(setting.expected(problem, accumulate), found, Tier::Exact), "");
          if (accumulate) continue;
          const GuardedPrimitives guards(PageSide::After);
          EXPECT_TRUE(sameBits(found, setting.run(*plan, false, std::byte{0x3F})));
          EXPECT_EQ(guards.report(), "");
        }
      }
  EXPECT_TRUE(accepted > 100 || !mtl::cpu::hasBfloat16());
}

TEST(ConvolutionBfloat16, OtherNumbersAreRoundedAndCloseInTheNorm) {
  std::uint64_t seed = 1100;
  for (const std::string_view name : {"SecondLayer5x5", "DividedWeights", "DividedRowsTransposed"})
    for (const ConvolutionOperation operation : kOperations) {
      ConvolutionProblem problem = roundedProblem(caseNamed(name), operation, Format::Float32);
      problem.neuron = {};  // a small error is a large one at its kink
      const auto plan = roundedPlan(problem);
      if (!plan) continue;
      SCOPED_TRACE(testing::Message() << problem.describe() << ", seed " << ++seed);
      Setting setting(problem, Tier::Norm, seed);
      const Expected expected = setting.expected(problem, false);
      const Results found = setting.run(*plan, false);
      EXPECT_EQ(setting.compareWith(expected, found, Tier::Norm), "");
      EXPECT_NE(setting.compareWith(expected, found, Tier::Bounded), "");
    }
}

TEST(ConvolutionBfloat16, IsTakenOnlyWherePermittedAndFaster) {
  const ConvolutionCase layer{.name = "Layer",
                              .images = 2,
                              .y = sameWindow(28, 3),
                              .x = sameWindow(28, 3),
                              .inputs = 64,
                              .outputs = 64};
  ConvolutionProblem problem = roundedProblem(layer, ConvolutionOperation::Forward, Format::Float32);
  const std::string noUnits = "this processor has no matrix units (AMX) for bfloat16";
  EXPECT_EQ(refusalOf(prepareConvolutionBfloat16(problem)), mtl::cpu::hasFastBfloat16() ? "" : noUnits);
  const ConvolutionProblem fast = problem;
  problem.allowReducedPrecision = false;
  EXPECT_EQ(refusalOf(prepareConvolutionBfloat16(problem)), "reduced precision is not allowed");
  EXPECT_EQ(refusalOf(prepareConvolutionRounded(problem)), "reduced precision is not allowed");

  const auto expectSlow = [&](const ConvolutionCase& slow, ConvolutionOperation operation,
                              const std::string& reason) {
    const ConvolutionProblem one = roundedProblem(slow, operation, Format::Float32);
    EXPECT_EQ(whyBfloat16IsSlow(one), reason) << one.describe();
  };
  EXPECT_EQ(whyBfloat16IsSlow(fast), "");
  ConvolutionCase slow = layer;
  slow.inputs = 3;
  expectSlow(slow, ConvolutionOperation::Forward, "so few channels do not fill a matrix unit");
  slow = layer;
  slow.groups = 2;
  expectSlow(slow, ConvolutionOperation::Forward, "so few channels do not fill a matrix unit");
  slow = layer;
  slow.y = sameWindow(28, 3, 2);
  expectSlow(slow, ConvolutionOperation::Forward, "");
  expectSlow(slow, ConvolutionOperation::DataGradient, "gradients with strides are faster in float32");
  slow = layer;
  slow.x = sameWindow(7, 3);
  expectSlow(slow, ConvolutionOperation::DataGradient, "");
  expectSlow(slow, ConvolutionOperation::WeightsGradient,
             "weight gradients of small images or of single pixels are faster in float32");
  slow.x = slow.y = sameWindow(28, 1);
  expectSlow(slow, ConvolutionOperation::WeightsGradient,
             "weight gradients of small images or of single pixels are faster in float32");
}

}  // namespace
}  // namespace mps::detail::convolution_bfloat16_test
