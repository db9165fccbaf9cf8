#include "mps/conform/plan_testing.hpp"

#include <functional>

#include "mps/concatenation/concatenation_cases.hpp"
#include "mps/concatenation/concatenation_reference.hpp"
#include "mps/core/streamed_stores.hpp"

namespace mps::detail {
namespace {

using namespace plan_testing;
using enum ImageFeatureChannelFormat;

constexpr std::uint64_t kSeed = 20261122;

Call callOf(const ConcatenationProblem& problem, Values values,
            const std::shared_ptr<mtl::Device>& device = testDevice()) {
  return {{problem.input, problem.destination, problem.direction == ConcatenationDirection::Gradient},
          values,
          kSeed,
          device};
}

std::shared_ptr<const Plan> planOf(const Entry& entry, const ConcatenationProblem& problem) {
  return preparedBy(entry, concatenationBackEnds, problem);
}

struct Formats {
  ImageFeatureChannelFormat input, destination;
};

/// What a test goes through the case table with.
struct Pass {
  ConcatenationDirection direction;
  Values values;
  Formats formats;
  [[nodiscard]] ConcatenationProblem problem(const ConcatenationCase& concatenation) const {
    return direction == ConcatenationDirection::Forward
               ? concatenation.forward(formats.input, formats.destination)
               : concatenation.gradient(formats.input, formats.destination);
  }
  [[nodiscard]] std::string name() const {
    const char* const words[] = {"Integers", "Random", "NonFinite"};
    return std::string(direction == ConcatenationDirection::Forward ? "Forward" : "Gradient") +
           words[static_cast<std::size_t>(values)] + "_" + mps::name(formats.input) + "_" +
           mps::name(formats.destination);
  }
};
void PrintTo(const Pass& pass, std::ostream* stream) {
  *stream << pass.name();
}

std::vector<Pass> passes() {
  std::vector<Pass> all;
  for (const auto direction : {ConcatenationDirection::Forward, ConcatenationDirection::Gradient})
    for (const Formats formats :
         {Formats{Float32, Float32}, Formats{Float16, Float16}, Formats{Unorm8, Float32},
          Formats{Unorm16, Float16}, Formats{Float32, Float16}, Formats{Float16, Float32}}) {
      all.push_back({direction, Values::Integers, formats});
      all.push_back({direction, Values::Random, formats});
      if (!isCode(formats.input)) all.push_back({direction, Values::NonFinite, formats});
    }
  return all;
}

class ConcatenationTable : public testing::TestWithParam<Pass> {};

/// Every entry, forced in turn, against the reference.
TEST_P(ConcatenationTable, AgreesWithTheReference) {
  const Pass& pass = GetParam();
  for (const ConcatenationCase& concatenation : concatenationCases()) {
    const ConcatenationProblem problem = pass.problem(concatenation);
    SCOPED_TRACE(std::string(concatenation.name) + ": " + problem.describe());
    const ReferenceTensor expected = concatenationReference(problem, callOf(problem, pass.values).input());
    for (const Entry& entry : entriesOf(concatenationBackEnds)) {
      SCOPED_TRACE(entry.name());
      const WithTarget target(entry);
      const auto plan = planOf(entry, problem);
      if (!plan) continue;
      Call call = callOf(problem, pass.values, entry.device);
      call.execute(*plan);
      const Comparison comparison =
          compare(expected, call.found(), problem.destination.format,
                  pass.values == Values::Integers ? Tier::Exact : Tier::Bounded, Zeros::Expected);
      EXPECT_TRUE(comparison.passed()) << comparison.report;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Passes, ConcatenationTable, testing::ValuesIn(passes()),
                         [](const auto& info) { return info.param.name(); });

class ConcatenationPlan : public testing::TestWithParam<Entry> {};

/// The gradient adds to what the destination holds.
TEST_P(ConcatenationPlan, Accumulates) {
  const WithTarget target(GetParam());
  for (const ConcatenationCase& concatenation : concatenationCases())
    for (const auto format : {Float32, Float16}) {
      const ConcatenationProblem problem = concatenation.gradient(format, Float32);
      SCOPED_TRACE(problem.describe());
      const auto plan = planOf(GetParam(), problem);
      if (!plan) continue;
      ASSERT_TRUE(plan->canAccumulate());
      Call call = callOf(problem, Values::Integers, GetParam().device);
      const std::vector<double> before = randomValues(
          static_cast<std::size_t>(problem.destination.elements()), kSeed + 9, RandomKind::SmallIntegers);
      call.destination().write(before);
      call.execute(*plan, kThreads, true);
      ReferenceTensor expected = concatenationReference(problem, call.input());
      addTerms(expected, before);
      const Comparison comparison = compare(expected, call.found(), Float32, Tier::Exact, Zeros::Expected);
      EXPECT_TRUE(comparison.passed()) << comparison.report;
    }
}

TEST_P(ConcatenationPlan, OnlyFloat32GradientsAccumulate) {
  const ConcatenationCase concatenation = concatenationCases().front();
  EXPECT_TRUE(planOf(GetParam(), concatenation.gradient(Float16, Float32))->canAccumulate());
  EXPECT_FALSE(planOf(GetParam(), concatenation.gradient(Float32, Float16))->canAccumulate());
  EXPECT_FALSE(planOf(GetParam(), concatenation.forward(Float32, Float32))->canAccumulate());
}

TEST_P(ConcatenationPlan, WithoutImagesNothingHappens) {
  ConcatenationCase concatenation = concatenationCases().front();
  concatenation.images = 0;
  for (const ConcatenationProblem& problem :
       {concatenation.forward(Float32, Float32), concatenation.gradient(Float32, Float32)}) {
    Call call = callOf(problem, Values::Random, GetParam().device);
    call.execute(*planOf(GetParam(), problem));
    EXPECT_TRUE(call.found().empty());
  }
}

INSTANTIATE_TEST_SUITE_P(Entries, ConcatenationPlan, testing::ValuesIn(entriesOf(concatenationBackEnds)),
                         [](const auto& info) { return info.param.name(); });

/// Written past the caches: whole lines, and long runs that begin and end within a line; the same bits with any number
/// of threads.
TEST(ConcatenationPlanSize, LargerThanTheCaches) {
  for (const std::int64_t channels : {16, 260}) {
    const ConcatenationCase concatenation{.name = "LargerThanTheCaches",
                                          .height = 56,
                                          .width = 56,
                                          .channels = channels,
                                          .otherChannels = 2048 - channels};
    const ConcatenationProblem problem = concatenation.forward(Float32, Float32);
    ASSERT_TRUE(writesPastCaches(2 * problem.destination.pixels() * problem.destination.pixelStride * 4));
    Call call({problem.input, problem.destination, false, channels == 16 ? std::size_t{0} : std::size_t{3}},
              Values::Integers, kSeed);
    const auto plan = preparePlan(concatenationImplementationsCpu(), problem).plan;
    for (const int threads : {1, 7}) {
      call.destination().poison();
      call.execute(*plan, threads);
      const Comparison comparison =
          compare(concatenationReference(problem, call.input()), call.found(), Float32, Tier::Exact);
      EXPECT_TRUE(comparison.passed()) << comparison.report;
    }
  }
}

// Can these tests fail? A kernel that overlooks a field computes what the reference computes for another value. -------

struct Perturbation {
  const char* field;
  std::function<void(ConcatenationProblem&)> change;
};

TEST(ConcatenationSensitivity, TheNumberOfChannelsCounts) {
  int noticed = 0;
  for (const ConcatenationCase& concatenation : concatenationCases()) {
    if (concatenation.zeros == 0 || concatenation.channels == 1) continue;
    const ConcatenationProblem problem = concatenation.forward(Float32, Float32);
    Call call = callOf(problem, Values::Random);
    call.execute(*preparePlan(concatenationImplementationsCpu(), problem).plan);
    ConcatenationProblem other = problem;
    --other.input.channels;
    if (!compare(concatenationReference(other, call.input()), call.found(), Float32, Tier::Bounded).passed())
      ++noticed;
  }
  EXPECT_GT(noticed, 3);
}

TEST(ConcatenationProblem, HashAndEqualitySeeEachField) {
  const ConcatenationProblem problem = concatenationCases().front().forward(Float32, Float32);
  const std::vector<Perturbation> changes = {
      {"direction", [](ConcatenationProblem& p) { p.direction = ConcatenationDirection::Gradient; }},
      {"input", [](ConcatenationProblem& p) { p.input.format = Unorm8; }},
      {"destination", [](ConcatenationProblem& p) { ++p.destination.pixelStride; }}};
  for (const Perturbation& perturbation : changes) {
    ConcatenationProblem other = problem;
    perturbation.change(other);
    EXPECT_NE(other, problem) << perturbation.field;
    EXPECT_NE(other.hash(), problem.hash()) << perturbation.field;
    EXPECT_NE(other.describe(), problem.describe()) << perturbation.field;
  }
}

}  // namespace
}  // namespace mps::detail
