#include "mps/convolution/cpu/convolution_parts.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "mps/convolution/check/convolution_cases.hpp"
#include "mps/convolution/check/convolution_cases_setting.hpp"
#include "mps/convolution/cpu/convolution_cpu.hpp"

/// How convolutions are divided among threads.
namespace mps::detail::convolution_parts_test {
namespace {

std::vector<ConvolutionCase> dividedCases() {
  std::vector<ConvolutionCase> cases;
  for (const ConvolutionCase& convolution : convolutionCases())
    if (convolution.name.starts_with("Divided")) cases.push_back(convolution);
  return cases;
}

/// The tensor whose elements the parts divide among themselves: the result, or the gradient that they sum.
const TensorShape& divided(const ConvolutionProblem& problem) {
  return problem.operation == ConvolutionOperation::WeightsGradient ? problem.gradient : problem.destination;
}

TEST(ConvolutionParts, CoverEachElementOnce) {
  for (const ConvolutionCase& convolution : dividedCases())
    for (const ConvolutionOperation operation : kOperations) {
      const ConvolutionProblem problem = convolution.problem(operation, Format::Float32, Format::Float32);
      SCOPED_TRACE(problem.describe());
      const TensorShape& whole = divided(problem);
      std::vector<int> count(static_cast<std::size_t>(whole.images * whole.imageStride));
      for (const ConvolutionPart& part : partsOf(problem, true)) {
        const TensorShape& own = divided(part.problem);
        const std::int64_t bytes =
            operation == ConvolutionOperation::WeightsGradient ? part.gradientBytes : part.destinationBytes;
        for (std::int64_t n = 0; n < own.images; ++n)
          for (std::int64_t y = 0; y < own.height; ++y)
            for (std::int64_t x = 0; x < own.width; ++x)
              for (std::int64_t c = 0; c < own.channels; ++c)
                ++count.at(static_cast<std::size_t>(bytes / 4 + own.offset(n, y, x, c)));
      }
      int wrong = 0;
      for (std::int64_t n = 0; n < whole.images; ++n)
        for (std::int64_t y = 0; y < whole.height; ++y)
          for (std::int64_t x = 0; x < whole.width; ++x)
            for (std::int64_t c = 0; c < whole.channels; ++c)
              if (count[static_cast<std::size_t>(whole.offset(n, y, x, c))] != 1) ++wrong;
      EXPECT_EQ(wrong, 0);
    }
}

TEST(ConvolutionParts, ThereAreSeveral) {
  for (const ConvolutionCase& convolution : dividedCases()) {
    const ConvolutionProblem problem =
        convolution.problem(ConvolutionOperation::Forward, Format::Float32, Format::Float32);
    EXPECT_GT(partsOf(problem, true).size(), 1U) << problem.describe();
  }
}

std::vector<ConvolutionPart> partsOf(std::string_view name, ConvolutionOperation operation) {
  return detail::partsOf(caseNamed(name).problem(operation, Format::Float32, Format::Float32), true);
}

TEST(ConvolutionParts, AWeightsGradientOfFewWeightsSumsPixels) {
  const auto parts = partsOf("DividedPixels", ConvolutionOperation::WeightsGradient);
  EXPECT_GT(parts.back().summand, 0);
  EXPECT_EQ(parts.back().firstChannel, 0);
}

TEST(ConvolutionParts, ManyWeightsAreDividedByChannels) {
  for (const std::string_view name : {"DividedWeights", "DividedWeightsTransposed"})
    for (const ConvolutionOperation operation : kOperations) {
      const auto parts = partsOf(name, operation);
      EXPECT_GT(parts.back().firstChannel, 0) << name;
      for (const ConvolutionPart& part : parts) EXPECT_LE(part.problem.weightCount(), 64 * 9 * 256) << name;
    }
}

/// Layers of a residual network, 16 pictures: as many parts as a usual processor has cores.
TEST(ConvolutionParts, ThereAreEnoughForSixteenThreads) {
  for (const auto& [size, channels] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{28, 64}, {14, 128}, {7, 256}, {4, 512}})
    for (const ConvolutionOperation operation : kOperations) {
      const ConvolutionCase layer{.name = "Layer",
                                  .images = 16,
                                  .y = sameWindow(size, 3),
                                  .x = sameWindow(size, 3),
                                  .inputs = channels,
                                  .outputs = channels};
      const ConvolutionProblem problem = layer.problem(operation, Format::Float32, Format::Float32);
      EXPECT_GE(detail::partsOf(problem, true).size(), 16U) << problem.describe();
    }
}

/// Also where a plan runs on more or fewer threads than it was made for.
TEST(ConvolutionParts, AnyNumberOfThreadsGivesTheSameBits) {
  std::vector<ConvolutionCase> cases = dividedCases();
  for (const std::string_view name : {"SecondLayer5x5", "FullyConnected", "ManyPixelsDepthwise", "Clamp3x3"})
    cases.push_back(caseNamed(name));
  for (const ConvolutionCase& convolution : cases)
    for (const ConvolutionOperation operation : kOperations)
      for (const Format format : {Format::Float32, Format::Float16})
        for (const auto& implementation : convolutionImplementationsCpu()) {
          ConvolutionProblem problem = convolution.problem(operation, format, format);
          SCOPED_TRACE(problem.describe() + " " + std::string(implementation.name));
          Setting setting(problem, Tier::Bounded, 21);
          std::optional<Results> expected;
          for (const int planned : {1, 3, 16})
            for (const int threads : {1, 2, 8}) {
              problem.threadCount = planned;
              const auto plan = planOf(implementation, problem);
              if (!plan) continue;
              const Results found = setting.run(*plan, false, std::byte{0xFF}, threads);
              if (!expected) expected = found;
              EXPECT_TRUE(sameBits(*expected, found)) << planned << " planned, " << threads << " threads";
            }
        }
}

}  // namespace
}  // namespace mps::detail::convolution_parts_test
