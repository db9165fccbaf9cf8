#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "mps/convolution/check/convolution_cases_setting.hpp"
#include "mps/convolution/convolution_choice.hpp"

/// What cuDNN and cuBLASLt offer on a GPU, not only what is chosen: `unmetal tune` may take any of it.
namespace mps::detail::convolution_candidates_test {
namespace {

std::vector<KeepCandidates::Candidate> candidatesOf(const Implementation<ConvolutionProblem>& implementation,
                                                    const ConvolutionProblem& problem, const Place& place) {
  KeepCandidates keep;
  planOf(implementation, problem, place);
  return keep.candidates();
}

/// The candidates of each library against the reference; a share of them where there are hundreds.
void checkCandidates(const ConvolutionProblem& problem, Tier tier, std::uint64_t seed) {
  constexpr std::size_t kMost = 40;
  SCOPED_TRACE(testing::Message() << problem.describe() << ", tier " << name(tier) << ", seed " << seed);
  const Place place{mtl::cudaDevices().front(), true};
  Setting setting(problem, tier, seed, place);
  const Expected expected = setting.expected(problem, false);
  for (const auto& implementation : convolutionBackEnds.of(*place.device)) {
    const auto candidates = candidatesOf(implementation, problem, place);
    const std::size_t step = candidates.size() / kMost + 1;
    for (std::size_t i = seed % step; i < candidates.size(); i += step) {
      const auto& [number, plan] = candidates[i];
      EXPECT_EQ(setting.compareWith(expected, setting.run(*plan, false), tier), "")
          << implementation.name << " candidate " << number << ", " << plan->describe();
    }
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
  return mtl::cudaDevices().empty() ? std::vector<ConvolutionCase>() : ordinaryCases();
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ConvolutionPlanCandidates);
INSTANTIATE_TEST_SUITE_P(Gpu, ConvolutionPlanCandidates, testing::ValuesIn(casesOnGpus()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace mps::detail::convolution_candidates_test
