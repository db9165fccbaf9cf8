#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mps/convolution/check/convolution_cases_setting.hpp"
#include "mps/core/cpu/for_each_target.hpp"

namespace mps::detail::convolution_depthwise_test {
namespace {

const Implementation<ConvolutionProblem>& implementation() {
  return *std::ranges::find(convolutionImplementationsCpu(), "depthwise",
                            &Implementation<ConvolutionProblem>::name);
}

/// Depth-wise convolutions with one result per channel; the rest is refused.
TEST(ConvolutionDepthwise, TakesWhatItSays) {
  const Implementation<ConvolutionProblem>& depthwise = implementation();
  int accepted = 0;
  for (const ConvolutionCase& convolution : convolutionCases()) {
    const bool isDepthWise = convolution.groups == convolution.inputs &&
                             convolution.groups == convolution.outputs && !convolution.transposed &&
                             convolution.edgeMode == ImageEdgeMode::Zero;
    for (const ConvolutionOperation operation : kOperations) {
      const ConvolutionProblem problem = convolution.problem(operation, Format::Float16, Format::Float32);
      EXPECT_EQ(planOf(depthwise, problem) != nullptr,
                isDepthWise && operation == ConvolutionOperation::WeightsGradient)
          << problem.describe();
    }
    accepted += isDepthWise ? 1 : 0;
  }
  EXPECT_GE(accepted, 18);
  const ConvolutionProblem problem =
      caseNamed("DepthWise").problem(ConvolutionOperation::WeightsGradient, Format::Float32, Format::Float32);
  EXPECT_EQ(preparePlan(convolutionImplementationsCpu(), problem).implementation, "depthwise");
  const std::vector<std::pair<const char*, void (*)(ConvolutionProblem&)>> refused = {
      {"it is for weight gradients",
       [](ConvolutionProblem& p) { p.operation = ConvolutionOperation::Forward; }},
      {"the convolution is transposed", [](ConvolutionProblem& p) { p.transposed = true; }},
      {"the edge mode is not Zero", [](ConvolutionProblem& p) { p.edgeMode = ImageEdgeMode::Clamp; }},
      {"not each channel has one result of its own", [](ConvolutionProblem& p) { p.groups = 1; }},
      {"not each channel has one result of its own",
       [](ConvolutionProblem& p) { p.outputFeatureChannels = 34; }},
  };
  for (const auto& [reason, change] : refused) {
    ConvolutionProblem other = problem;
    change(other);
    const Preparation preparation = depthwise.prepare(other);
    ASSERT_TRUE(std::holds_alternative<Refusal>(preparation)) << reason;
    EXPECT_EQ(std::get<Refusal>(preparation).reason, reason);
  }
}

/// The plan may be run by any number of threads, also more than it was made for.
TEST(ConvolutionDepthwise, BitsDoNotDependOnTheThreads) {
  const Implementation<ConvolutionProblem>& depthwise = implementation();
  const ConvolutionCase large{.name = "SeveralChunks",
                              .images = 3,
                              .y = sameWindow(40, 3),
                              .x = sameWindow(40, 3),
                              .inputs = 48,
                              .outputs = 48,
                              .groups = 48};
  for (const Format format : {Format::Float32, Format::Float16}) {
    ConvolutionProblem problem = large.problem(ConvolutionOperation::WeightsGradient, format, format);
    SCOPED_TRACE(problem.describe());
    Setting setting(problem, Tier::Bounded, 11);
    std::optional<Results> expected;
    for (const int planned : {1, 2, 5})
      for (const int threads : {1, 2, 3, 7}) {
        problem.threadCount = planned;
        const Results found = setting.run(*planOf(depthwise, problem), false, std::byte{0xFF}, threads);
        if (!expected) {
          EXPECT_EQ(setting.compareWith(setting.expected(problem, false), found, Tier::Bounded), "");
          expected = found;
        }
        EXPECT_TRUE(sameBits(*expected, found)) << planned << " planned, " << threads << " threads";
      }
  }
}

TEST(ConvolutionDepthwise, IsRightOnEveryInstructionSet) {
  const Implementation<ConvolutionProblem>& depthwise = implementation();
  forEachTarget([&](const std::string& target) {
    SCOPED_TRACE(target);
    for (const std::string_view name :
         {"DepthWise", "DepthWiseStride2", "DepthWiseStride3Channels3", "DepthWiseStride2Dilated3"})
      for (const Format format : {Format::Float32, Format::Float16}) {
        const ConvolutionProblem problem =
            caseNamed(name).problem(ConvolutionOperation::WeightsGradient, format, format);
        Setting setting(problem, Tier::Exact, 12);
        const Results found = setting.run(*planOf(depthwise, problem), false);
        EXPECT_EQ(setting.compareWith(setting.expected(problem, false), found, Tier::Exact), "");
      }
  });
}

}  // namespace
}  // namespace mps::detail::convolution_depthwise_test
