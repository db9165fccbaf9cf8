#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "mps/convolution/convolution_cases_setting.hpp"
#include "mps/convolution/convolution_choice.hpp"

/// Everything that cuDNN and cuBLASLt offer on a GPU, not only what is chosen: `unmetal tune` may take any of it.
namespace mps::detail::convolution_candidates_test {
namespace {

/// Each candidate of each library against the reference.
void checkCandidates(const ConvolutionProblem& problem, Tier tier, std::uint64_t seed) {
  SCOPED_TRACE(testing::Message() << problem.describe() << ", tier " << name(tier) << ", seed " << seed);
  const Place place{mtl::cudaDevices().front(), true};
  Setting setting(problem, tier, seed, place);
  const Expected expected = setting.expected(problem, false);
  for (const auto& implementation : convolutionBackEnds.of(*place.device))
    for (std::int64_t number = 0;; ++number) {
      ForceCandidate force(number);
      const auto plan = planOf(implementation, problem, place);
      if (!force.wasOffered()) break;
      if (!plan) continue;
      EXPECT_EQ(setting.compareWith(expected, setting.run(*plan, false), tier), "")
          << implementation.name << " candidate " << number << ", " << plan->describe();
    }
}

class ConvolutionPlanCandidates : public testing::TestWithParam<ConvolutionCase> {};

TEST_P(ConvolutionPlanCandidates, MatchTheReference) {
  std::uint64_t seed = 1000;
  for (const ConvolutionOperation operation : kOperations) {
    ConvolutionProblem problem = GetParam().problem(operation, Format::Float32, Format::Float32);
    checkCandidates(problem, Tier::Bounded, ++seed);
    if (!isExact(problem.neuron)) continue;
    // Small integers lose nothing when they are rounded to TF32 or float16.
    problem.allowReducedPrecision = true;
    checkCandidates(problem, Tier::Exact, ++seed);
    problem = GetParam().problem(operation, Format::Float16, Format::Float16);
    problem.allowReducedPrecision = true;
    checkCandidates(problem, Tier::Exact, ++seed);
  }
}

std::vector<ConvolutionCase> casesOnGpus() {
  if (mtl::cudaDevices().empty()) return {};
  std::vector<ConvolutionCase> cases = convolutionCases();
  std::erase_if(cases, [](const ConvolutionCase& c) { return c.images == 0 || isLarge(c); });
  return cases;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ConvolutionPlanCandidates);
INSTANTIATE_TEST_SUITE_P(Gpu, ConvolutionPlanCandidates, testing::ValuesIn(casesOnGpus()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace mps::detail::convolution_candidates_test
