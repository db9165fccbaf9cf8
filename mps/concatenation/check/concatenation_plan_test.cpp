#include "mps/conform/testing/plan_testing.hpp"

#include "mps/concatenation/check/concatenation_cases.hpp"
#include "mps/concatenation/check/concatenation_reference.hpp"
#include "mps/core/cpu/non_temporal_stores.hpp"

namespace mps::detail::concatenation_plan_test {
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

using Pass = TablePass<ConcatenationDirection>;

class ConcatenationTable : public testing::TestWithParam<Pass> {};

/// Every entry, forced in turn, against the reference.
TEST_P(ConcatenationTable, AgreesWithTheReference) {
  const Pass& pass = GetParam();
  for (const ConcatenationCase& concatenation : concatenationCases()) {
    const ConcatenationProblem problem = pass.problem(concatenation);
    SCOPED_TRACE(std::string(concatenation.name) + ": " + problem.describe());
    const ReferenceTensor expected = concatenationReference(problem, callOf(problem, pass.values).input());
    expectAgreement(entriesOf(concatenationBackEnds), concatenationBackEnds, problem, expected,
                    problem.destination.format, pass.tier(),
                    [&](const auto& device) { return callOf(problem, pass.values, device); });
  }
}

INSTANTIATE_TEST_SUITE_P(Passes, ConcatenationTable,
                         testing::ValuesIn(passesWith<ConcatenationDirection>({{Float32, Float32},
                                                                               {Float16, Float16},
                                                                               {Unorm8, Float32},
                                                                               {Unorm16, Float16},
                                                                               {Float32, Float16},
                                                                               {Float16, Float32}})),
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
      Call call = callOf(problem, Values::Integers, GetParam().device);
      expectAccumulation(*plan, call, concatenationReference(problem, call.input()), kSeed + 9);
    }
}

/// Runs a plan of two sources, which begin at that element of their memory, against the reference.
void expectJoins(const Plan& plan, const ConcatenationProblem& problem, std::size_t firstElement, int threads,
                 const std::shared_ptr<mtl::Device>& device = testDevice()) {
  TestTensor input(device, problem.input, firstElement);
  TestTensor second(device, problem.second, firstElement);
  TestTensor destination(device, problem.destination, firstElement);
  input.write(makeValues(problem.input.elements(), Values::Integers, problem.input.format, kSeed));
  second.write(makeValues(problem.second.elements(), Values::Integers, problem.second.format, kSeed + 1));
  Operands operands;
  operands.source = input.address();
  operands.secondary = second.address();
  operands.destination = destination.address();
  runPlan(plan, operands, device, threads);
  EXPECT_TRUE(input.isUnchanged() && second.isUnchanged());
  EXPECT_TRUE(destination.surroundingsIntact());
  const ReferenceTensor behind = second.reference();
  const Comparison comparison = compare(concatenationReference(problem, input.reference(), &behind),
                                        destination.read(), problem.destination.format, Tier::Exact);
  EXPECT_TRUE(comparison.passed()) << comparison.report;
}

/// Two sources side by side, of the destination's format and of another one, with zeros behind them.
TEST_P(ConcatenationPlan, TakesTwoSources) {
  const WithTarget target(GetParam());
  const auto& device = GetParam().device;
  for (const auto& [channels, zeros] : {std::pair{3, 19}, {8, 19}, {12, 19}, {8, 24}})
    for (const auto format : {Float32, Float16}) {
      const ConcatenationCase first{
          .name = "Pair", .images = 3, .height = 9, .width = 5, .channels = channels, .zeros = zeros};
      ConcatenationProblem problem = first.forward(Float16, Float16);
      problem.second = TensorShape::dense(3, 9, 5, 16, format);
      SCOPED_TRACE(problem.describe());
      const auto plan = planOf(GetParam(), problem);
      if (!plan) continue;
      for (const std::size_t firstElement : {0U, 3U})
        expectJoins(*plan, problem, firstElement, kThreads, device);
    }
}

/// Runs a plan of the gradients of two sources, which begin at that element of their memory, against the reference.
void expectSplits(const Plan& plan, const ConcatenationProblem& problem, std::size_t firstElement,
                  int threads, const std::shared_ptr<mtl::Device>& device = testDevice()) {
  TestTensor input(device, problem.input, firstElement);
  TestTensor first(device, problem.destination, firstElement);
  TestTensor second(device, problem.second, firstElement);
  input.write(makeValues(problem.input.elements(), Values::Integers, problem.input.format, kSeed));
  Operands operands;
  operands.gradient = input.address();
  operands.destination = first.address();
  operands.parameters[0] = second.address();
  runPlan(plan, operands, device, threads);
  EXPECT_TRUE(input.isUnchanged());
  const ReferenceTensor gradient = input.reference();
  std::int64_t begin = 0;
  for (TestTensor* found : {&first, &second}) {
    EXPECT_TRUE(found->surroundingsIntact());
    const TensorShape& shape = found == &first ? problem.destination : problem.second;
    const Comparison comparison =
        compare(sliceReference(gradient, begin, shape.channels), found->read(), shape.format, Tier::Exact);
    EXPECT_TRUE(comparison.passed()) << comparison.report;
    begin += shape.channels;
  }
}

/// Two gradients at once, of the incoming one's format and of others.
TEST_P(ConcatenationPlan, SplitsForTwoSources) {
  const WithTarget target(GetParam());
  const auto& device = GetParam().device;
  for (const ConcatenationCase& concatenation : concatenationCases())
    for (const auto format : {Float32, Float16}) {
      if (concatenation.otherChannels == 0) continue;
      ConcatenationProblem problem = concatenation.pairGradient(Float16, Float16);
      problem.second.format = format;
      SCOPED_TRACE(problem.describe());
      const auto plan = planOf(GetParam(), problem);
      if (!plan) continue;
      EXPECT_FALSE(plan->canAccumulate());
      for (const std::size_t firstElement : {0U, 3U})
        expectSplits(*plan, problem, firstElement, kThreads, device);
    }
}

TEST_P(ConcatenationPlan, OnlyFloat32GradientsAccumulate) {
  const ConcatenationCase concatenation = concatenationCases().front();
  const auto expectAccumulates = [](const ConcatenationProblem& problem, bool accumulates) {
    const auto plan = planOf(GetParam(), problem);
    EXPECT_TRUE(!plan || plan->canAccumulate() == accumulates) << problem.describe();
  };
  expectAccumulates(concatenation.gradient(Float16, Float32), true);
  expectAccumulates(concatenation.gradient(Float32, Float16), false);
  expectAccumulates(concatenation.forward(Float32, Float32), false);
}

TEST_P(ConcatenationPlan, WithoutImagesNothingHappens) {
  ConcatenationCase concatenation = concatenationCases().front();
  concatenation.images = 0;
  for (const ConcatenationProblem& problem :
       {concatenation.forward(Float32, Float32), concatenation.gradient(Float32, Float32)}) {
    const auto plan = planOf(GetParam(), problem);
    if (!plan) continue;
    Call call = callOf(problem, Values::Random, GetParam().device);
    call.execute(*plan);
    EXPECT_TRUE(call.found().empty());
  }
}

INSTANTIATE_TEST_SUITE_P(Entries, ConcatenationPlan, testing::ValuesIn(entriesOf(concatenationBackEnds)),
                         [](const auto& info) { return info.param.name(); });

/// Non-temporal stores: whole lines, and long runs that begin and end within a line; the same bits with any number
/// of threads.
TEST(ConcatenationPlanSize, NonTemporalStores) {
  const NonTemporalFrom always(0);
  for (const std::int64_t channels : {16, 260}) {
    const ConcatenationCase concatenation{.name = "NonTemporalStores",
                                          .height = 9,
                                          .width = 11,
                                          .channels = channels,
                                          .otherChannels = 2048 - channels};
    const ConcatenationProblem problem = concatenation.forward(Float32, Float32);
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

/// Calls expect(plan, first element in memory, threads) for plans that store in the caches and past them.
template <class Expect>
void forWaysOfStoring(const ConcatenationProblem& problem, Expect expect) {
  for (const std::int64_t cached : {std::int64_t{0}, std::int64_t{1} << 30U}) {
    const NonTemporalFrom nonTemporal(cached);
    const auto plan = preparePlan(concatenationImplementationsCpu(), problem).plan;
    for (const std::size_t firstElement : {0U, 3U})
      for (const int threads : {1, 7}) expect(*plan, firstElement, threads);
  }
}

/// Leaves a gap of a pixel behind each row, and of a column behind each image.
void addGaps(TensorShape& shape) {
  shape.rowStride += shape.pixelStride;
  shape.imageStride += shape.height * shape.pixelStride;
}

/// Short parts of pixels, in the caches and past them, from adjacent rows and from those of a wider image.
TEST(ConcatenationPlanSize, ShortPartsOfTwoSources) {
  for (const std::int64_t channels : {3, 12, 16})
    for (const auto format : {Float32, Float16})
      for (const bool hasGaps : {false, true}) {
        const ConcatenationCase first{
            .name = "ShortParts", .images = 3, .height = 12, .width = 11, .channels = channels, .zeros = 12};
        ConcatenationProblem problem = first.forward(format, format);
        problem.second = TensorShape::dense(3, 12, 11, 12, format);
        if (hasGaps) addGaps(problem.second);
        SCOPED_TRACE(problem.describe());
        forWaysOfStoring(problem, [&](const Plan& plan, std::size_t firstElement, int threads) {
          expectJoins(plan, problem, firstElement, threads);
        });
      }
}

/// Short parts of pixels and parts of whole lines back to a dense image, by ordinary and by non-temporal stores, from
/// adjacent rows and from those of a wider image.
TEST(ConcatenationPlanSize, PartsOfPixelsOfAGradient) {
  for (const std::int64_t channels : {3, 12, 16, 64})
    for (const auto format : {Float32, Float16})
      for (const bool hasGaps : {false, true}) {
        const ConcatenationCase concatenation{.name = "PartsOfPixels",
                                              .images = 3,
                                              .height = 17,
                                              .width = 11,
                                              .channels = channels,
                                              .otherChannels = channels};
        ConcatenationProblem problem = concatenation.gradient(format, format);
        if (hasGaps) addGaps(problem.input);
        SCOPED_TRACE(problem.describe());
        forWaysOfStoring(problem, [&](const Plan& plan, std::size_t firstElement, int threads) {
          Call call({problem.input, problem.destination, true, firstElement}, Values::Integers, kSeed);
          call.destination().poison();
          call.execute(plan, threads);
          const Comparison comparison =
              compare(concatenationReference(problem, call.input()), call.found(), format, Tier::Exact);
          EXPECT_TRUE(comparison.passed()) << comparison.report;
        });
      }
}

/// Two gradients of many pixels, in the caches and past them, from adjacent rows and from those of a wider image.
TEST(ConcatenationPlanSize, GradientsOfTwoSources) {
  for (const std::int64_t channels : {3, 12, 16})
    for (const auto format : {Float32, Float16})
      for (const bool hasGaps : {false, true}) {
        const ConcatenationCase concatenation{.name = "TwoGradients",
                                              .images = 3,
                                              .height = 61,
                                              .width = 29,
                                              .channels = channels,
                                              .otherChannels = 12};
        ConcatenationProblem problem = concatenation.pairGradient(format, format);
        if (hasGaps) addGaps(problem.input);
        SCOPED_TRACE(problem.describe());
        forWaysOfStoring(problem, [&](const Plan& plan, std::size_t firstElement, int threads) {
          expectSplits(plan, problem, firstElement, threads);
        });
      }
}

// Can these tests fail? -----------------------------------------------------------------------------------------------

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
  const std::vector<Perturbation<ConcatenationProblem>> changes = {
      {"direction", [](ConcatenationProblem& p) { p.direction = ConcatenationDirection::Gradient; }},
      {"input", [](ConcatenationProblem& p) { p.input.format = Unorm8; }},
      {"second", [](ConcatenationProblem& p) { p.second = TensorShape::dense(3, 2, 5, 1); }},
      {"destination", [](ConcatenationProblem& p) { ++p.destination.pixelStride; }}};
  expectHashAndEqualitySee(problem, changes);
  for (const auto& perturbation : changes) {
    ConcatenationProblem other = problem;
    perturbation.change(other);
    EXPECT_NE(other.describe(), problem.describe()) << perturbation.field;
  }
}

}  // namespace
}  // namespace mps::detail::concatenation_plan_test
