#include "mps/conform/testing/plan_testing.hpp"

#include <limits>

#include "mps/reduction/check/reduction_cases.hpp"
#include "mps/reduction/check/reduction_reference.hpp"

namespace mps::detail::reduction_plan_test {
namespace {

using namespace plan_testing;
using enum ImageFeatureChannelFormat;
using enum ReductionDirection;

constexpr std::uint64_t kSeed = 20261122;

/// The memory of a call: source, incoming gradient and destination.
class ReductionCall {
 public:
  ReductionCall(const ReductionProblem& problem, Values values,
                const std::shared_ptr<mtl::Device>& device = testDevice())
      : problem_(problem),
        device_(device),
        source_(device, problem.source, 1),
        gradient_(device, problem.result, 2),
        destination_(device, problem.direction == Forward ? problem.result : problem.destination, 3) {
    source_.write(makeValues(problem.source.elements(), values, problem.source.format, kSeed));
    gradient_.write(makeValues(problem.result.elements(), values, problem.result.format, kSeed + 5));
  }
  void execute(const Plan& plan, int threads = kThreads, bool accumulate = false) {
    Operands operands;
    if (problem_.direction == Forward || problem_.selects()) operands.source = source_.address();
    if (problem_.direction == Gradient) operands.gradient = gradient_.address();
    operands.destination = destination_.address();
    operands.accumulate = accumulate;
    runPlan(plan, operands, device_, threads);
    EXPECT_TRUE(source_.isUnchanged() && gradient_.isUnchanged()) << "an input was written";
    EXPECT_TRUE(destination_.surroundingsIntact()) << "memory around the destination was written";
  }
  [[nodiscard]] ReferenceTensor expected(const ReductionProblem& problem) const {
    return problem.direction == Forward
               ? reductionForwardReference(problem, source_.reference())
               : reductionGradientReference(problem, source_.reference(), gradient_.reference());
  }
  [[nodiscard]] ReferenceTensor expected() const { return expected(problem_); }
  TestTensor& source() { return source_; }
  TestTensor& destination() { return destination_; }
  [[nodiscard]] std::vector<double> found() { return destination_.read(); }

 private:
  ReductionProblem problem_;
  std::shared_ptr<mtl::Device> device_;
  TestTensor source_, gradient_, destination_;
};

std::shared_ptr<const Plan> planOf(const Entry& entry, const ReductionProblem& problem) {
  return preparedBy(entry, reductionBackEnds, problem);
}

using Pass = TablePass<ReductionDirection>;

/// The formats are those of source and result in both directions; gradients cannot be stored in codes.
std::vector<Pass> passes() {
  std::vector<Pass> all = passesWith<ReductionDirection>(
      {{Float32, Float32}, {Float16, Float16}, {Unorm8, Float32}, {Float32, Float16}});
  std::erase_if(all, [](const Pass& pass) { return !pass.isForward() && isCode(pass.formats.source); });
  return all;
}

class ReductionTable : public testing::TestWithParam<Pass> {};

/// Every entry, forced in turn, against the reference.
TEST_P(ReductionTable, AgreesWithTheReference) {
  const Pass& pass = GetParam();
  for (const ReductionCase& reduction : reductionCases()) {
    if (!pass.isForward() && !reduction.hasGradient()) continue;
    const ReductionProblem problem = pass.isForward()
                                         ? reduction.forward(pass.formats.source, pass.formats.destination)
                                         : reduction.gradient(pass.formats.destination, pass.formats.source);
    SCOPED_TRACE(reduction.name + ": " + problem.describe());
    const ReferenceTensor expected = ReductionCall(problem, pass.values).expected();
    expectAgreement(entriesOf(reductionBackEnds), reductionBackEnds, problem, expected,
                    pass.isForward() ? problem.result.format : problem.destination.format,
                    reduction.isExact() ? pass.tier() : Tier::Bounded,
                    [&](const auto& device) { return ReductionCall(problem, pass.values, device); });
  }
}

INSTANTIATE_TEST_SUITE_P(Passes, ReductionTable, testing::ValuesIn(passes()),
                         [](const auto& info) { return info.param.name(); });

class ReductionPlan : public testing::TestWithParam<Entry> {};

TEST_P(ReductionPlan, Accumulates) {
  const WithTarget target(GetParam());
  for (const ReductionCase& reduction : reductionCases()) {
    if (!reduction.hasGradient() || !reduction.isExact()) continue;
    const ReductionProblem problem = reduction.gradient(Float32, Float32);
    SCOPED_TRACE(problem.describe());
    const auto plan = planOf(GetParam(), problem);
    if (!plan) continue;
    ReductionCall call(problem, Values::Integers, GetParam().device);
    expectAccumulation(*plan, call, call.expected(), kSeed + 9);
  }
}

TEST_P(ReductionPlan, OnlyFloat32GradientsAccumulate) {
  const ReductionCase reduction = reductionCases().front();
  const auto expect = [&](const ReductionProblem& problem, bool canAccumulate) {
    const auto plan = planOf(GetParam(), problem);
    EXPECT_TRUE(plan ? plan->canAccumulate() == canAccumulate : !GetParam().isCpu()) << problem.describe();
  };
  expect(reduction.gradient(Float16, Float32), true);
  expect(reduction.gradient(Float32, Float16), false);
  expect(reduction.forward(Float32, Float32), false);
}

/// Three values and NaN: every pixel and every channel has equals, among them of the extremum.
TEST_P(ReductionPlan, TiesTakeTheFirstAndNaNWins) {
  const WithTarget target(GetParam());
  for (const ReductionCase& reduction : reductionCases())
    for (const auto direction : {Forward, Gradient}) {
      const bool isArgument = !reduction.hasGradient();
      if (isArgument != (direction == Forward)) continue;
      const ReductionProblem problem =
          isArgument ? reduction.forward(Float32, Float32) : reduction.gradient(Float32, Float32);
      if (!isArgument && !problem.selects()) continue;
      SCOPED_TRACE(problem.describe());
      const auto plan = planOf(GetParam(), problem);
      if (!plan) continue;
      ReductionCall call(problem, Values::Integers, GetParam().device);
      auto values = makeValues(problem.source.elements(), Values::Integers, Float32, kSeed + 17);
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = values[i] < 0 ? -1 : values[i] > 0 ? 1 : 0;
        if (i % 7 == 3) values[i] = std::numeric_limits<float>::quiet_NaN();
      }
      call.source().write(values);
      call.execute(*plan);
      const Comparison comparison =
          compare(call.expected(), call.found(), Float32, Tier::Exact, Zeros::Expected);
      EXPECT_TRUE(comparison.passed()) << comparison.report;
    }
}

INSTANTIATE_TEST_SUITE_P(Entries, ReductionPlan, testing::ValuesIn(entriesOf(reductionBackEnds)),
                         [](const auto& info) { return info.param.name(); });

// Can these tests fail? -----------------------------------------------------------------------------------------------

using Perturbation = plan_testing::Perturbation<ReductionProblem>;

TEST(ReductionSensitivity, OperationAndScaleCount) {
  const std::vector<Perturbation> changes = {
      {"operation",
       [](ReductionProblem& p) {
         p.operation =
             p.operation == ReductionOperation::Max ? ReductionOperation::Min : ReductionOperation::Max;
       }},
      {"scale", [](ReductionProblem& p) { p.scale *= 2; }},
  };
  std::vector<int> noticed(2 * changes.size());
  for (const ReductionCase& reduction : reductionCases())
    for (const auto direction : {Forward, Gradient}) {
      if (direction == Gradient && !reduction.hasGradient()) continue;
      const ReductionProblem problem =
          direction == Forward ? reduction.forward(Float32, Float32) : reduction.gradient(Float32, Float32);
      ReductionCall call(problem, Values::Random);
      call.execute(*preparePlan(reductionImplementationsCpu(), problem).plan);
      for (std::size_t i = 0; i < changes.size(); ++i) {
        ReductionProblem other = problem;
        changes[i].change(other);
        if (!compare(call.expected(other), call.found(), Float32, Tier::Bounded, Zeros::Expected).passed())
          ++noticed[2 * i + (direction == Forward ? 0 : 1)];
      }
    }
  for (std::size_t i = 0; i < noticed.size(); ++i)
    EXPECT_GT(noticed[i], 0) << "no case notices a wrong " << changes[i / 2].field;
}

TEST(ReductionProblem, HashAndEqualitySeeEachField) {
  const ReductionProblem problem = reductionCases().front().gradient(Float32, Float32);
  expectHashAndEqualitySee<ReductionProblem>(
      problem, {{"direction", [](ReductionProblem& p) { p.direction = Forward; }},
                {"operation", [](ReductionProblem& p) { p.operation = ReductionOperation::Mean; }},
                {"axis", [](ReductionProblem& p) { p.axis = ReductionAxis::Column; }},
                {"scale", [](ReductionProblem& p) { p.scale = 3; }},
                {"source", [](ReductionProblem& p) { ++p.source.width; }},
                {"result", [](ReductionProblem& p) { ++p.result.rowStride; }},
                {"destination", [](ReductionProblem& p) { p.destination.format = Float16; }}});
}

}  // namespace
}  // namespace mps::detail::reduction_plan_test
