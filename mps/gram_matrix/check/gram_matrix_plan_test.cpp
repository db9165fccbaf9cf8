#include "mps/conform/testing/plan_testing.hpp"

#include "mps/gram_matrix/check/gram_matrix_cases.hpp"
#include "mps/gram_matrix/check/gram_matrix_reference.hpp"

namespace mps::detail::gram_matrix_plan_test {
namespace {

using namespace plan_testing;
using enum ImageFeatureChannelFormat;
using enum GramMatrixDirection;

constexpr std::uint64_t kSeed = 20261123;
constexpr double kAlpha = -0.5;

/// The memory of a call: source, incoming gradient and destination.
class GramMatrixCall {
 public:
  GramMatrixCall(const GramMatrixProblem& problem, Values values,
                 const std::shared_ptr<mtl::Device>& device = testDevice())
      : problem_(problem),
        device_(device),
        source_(device, problem.source, 1),
        gradient_(device, problem.matrix, 2),
        destination_(device, problem.isForward() ? problem.matrix : problem.destination, 3) {
    source_.write(makeValues(problem.source.elements(), values, problem.source.format, kSeed, 0.02));
    gradient_.write(makeValues(problem.matrix.elements(), values, problem.matrix.format, kSeed + 5, 0.002));
  }
  void execute(const Plan& plan, int threads = kThreads, bool accumulate = false) {
    Operands operands;
    operands.source = source_.address();
    if (!problem_.isForward()) operands.gradient = gradient_.address();
    operands.destination = destination_.address();
    operands.scalars[0] = kAlpha;
    operands.accumulate = accumulate;
    runPlan(plan, operands, device_, threads);
    EXPECT_TRUE(source_.isUnchanged() && gradient_.isUnchanged()) << "an input was written";
    EXPECT_TRUE(destination_.surroundingsIntact()) << "memory around the destination was written";
  }
  [[nodiscard]] ReferenceTensor expected(const GramMatrixProblem& problem, double alpha = kAlpha) const {
    return problem.isForward()
               ? gramMatrixForwardReference(problem, source_.reference(), alpha)
               : gramMatrixGradientReference(problem, source_.reference(), gradient_.reference(), alpha);
  }
  [[nodiscard]] ReferenceTensor expected() const { return expected(problem_); }
  TestTensor& destination() { return destination_; }
  [[nodiscard]] std::vector<double> found() { return destination_.read(); }

 private:
  GramMatrixProblem problem_;
  std::shared_ptr<mtl::Device> device_;
  TestTensor source_, gradient_, destination_;
};

std::shared_ptr<const Plan> planOf(const Entry& entry, const GramMatrixProblem& problem) {
  return preparedBy(entry, gramMatrixBackEnds, problem);
}

/// No entry has vectors of its own: each is tried once.
std::vector<Entry> entries() {
  std::vector<Entry> all = entriesOf(gramMatrixBackEnds, "dot products");
  std::vector<Entry> once;
  for (Entry& entry : all) {
    entry.target = 0;
    if (once.empty() || once.back().name() != entry.name()) once.push_back(entry);
  }
  return once;
}

using Pass = TablePass<GramMatrixDirection>;

GramMatrixProblem problemOf(const Pass& pass, const GramMatrixCase& item) {
  const auto& [source, result] = pass.formats;
  return pass.isForward() ? item.forward(source, result, kThreads)
                          : item.gradient(source, result, result, kThreads);
}

class GramMatrixTable : public testing::TestWithParam<Pass> {};

/// Every entry, forced in turn, against the reference.
TEST_P(GramMatrixTable, AgreesWithTheReference) {
  const Pass& pass = GetParam();
  for (const GramMatrixCase& item : gramMatrixCases()) {
    const GramMatrixProblem problem = problemOf(pass, item);
    SCOPED_TRACE(item.name + ": " + problem.describe() + ", seed " + std::to_string(kSeed));
    const ReferenceTensor expected = GramMatrixCall(problem, pass.values).expected();
    expectAgreement(entries(), gramMatrixBackEnds, problem, expected, pass.formats.destination, pass.tier(),
                    [&](const auto& device) { return GramMatrixCall(problem, pass.values, device); });
  }
}

INSTANTIATE_TEST_SUITE_P(Passes, GramMatrixTable,
                         testing::ValuesIn(passesWith<GramMatrixDirection>({{Float32, Float32},
                                                                            {Float16, Float16},
                                                                            {Unorm8, Float32},
                                                                            {Unorm16, Float16},
                                                                            {Float32, Float16},
                                                                            {Float16, Float32}})),
                         [](const auto& info) { return info.param.name(); });

class GramMatrixPlan : public testing::TestWithParam<Entry> {};

TEST_P(GramMatrixPlan, Accumulates) {
  for (const GramMatrixCase& item : gramMatrixCases()) {
    const GramMatrixProblem problem = item.gradient(Float32, Float32, Float32, kThreads);
    SCOPED_TRACE(problem.describe());
    const auto plan = planOf(GetParam(), problem);
    if (!plan) continue;
    GramMatrixCall call(problem, Values::Integers, GetParam().device);
    expectAccumulation(*plan, call, call.expected(), kSeed + 9);
  }
}

TEST_P(GramMatrixPlan, OnlyFloat32GradientsAccumulate) {
  const GramMatrixCase item{"", 2, 3, 3, 8};
  EXPECT_TRUE(planOf(GetParam(), item.gradient(Float16, Float16, Float32, kThreads))->canAccumulate());
  EXPECT_FALSE(planOf(GetParam(), item.gradient(Float32, Float32, Float16, kThreads))->canAccumulate());
  EXPECT_FALSE(planOf(GetParam(), item.forward(Float32, Float32, kThreads))->canAccumulate());
}

/// Float16 images are copied to float32.
TEST_P(GramMatrixPlan, ManyImagesThatAreCopied) {
  const GramMatrixCase item{"", 5, 600, 583, 2};
  for (const auto direction : {Forward, Gradient}) {
    const GramMatrixProblem problem = problemOf({direction, Values::Random, {Float16, Float32}}, item);
    SCOPED_TRACE(problem.describe() + ", seed " + std::to_string(kSeed));
    const auto plan = planOf(GetParam(), problem);
    ASSERT_NE(plan, nullptr);
    GramMatrixCall call(problem, Values::Random, GetParam().device);
    call.execute(*plan);
    const Comparison comparison = compare(call.expected(), call.found(), Float32, Tier::Bounded);
    EXPECT_TRUE(comparison.passed()) << comparison.report;
  }
}

INSTANTIATE_TEST_SUITE_P(Entries, GramMatrixPlan, testing::ValuesIn(entries()),
                         [](const auto& info) { return info.param.name(); });

/// Can these tests fail? A kernel that overlooks alpha computes what the reference computes for another one.
TEST(GramMatrixSensitivity, AlphaCounts) {
  for (const auto direction : {Forward, Gradient}) {
    const GramMatrixProblem problem =
        problemOf({direction, Values::Random, {Float32, Float32}}, gramMatrixCases()[3]);
    GramMatrixCall call(problem, Values::Random);
    call.execute(*preparePlan(gramMatrixImplementationsCpu(), problem).plan);
    EXPECT_FALSE(compare(call.expected(problem, 2 * kAlpha), call.found(), Float32, Tier::Bounded).passed());
  }
}

TEST(GramMatrixProblem, HashAndEqualitySeeEachField) {
  const GramMatrixProblem problem = gramMatrixCases().front().gradient(Float32, Float32, Float32, 1);
  expectHashAndEqualitySee<GramMatrixProblem>(
      problem, {{"direction", [](GramMatrixProblem& p) { p.direction = Forward; }},
                {"source", [](GramMatrixProblem& p) { ++p.source.width; }},
                {"matrix", [](GramMatrixProblem& p) { ++p.matrix.rowStride; }},
                {"destination", [](GramMatrixProblem& p) { p.destination.format = Float16; }},
                {"threadCount", [](GramMatrixProblem& p) { ++p.threadCount; }},
                {"deviceName", [](GramMatrixProblem& p) { p.deviceName = "cuda:1"; }}});
}

}  // namespace
}  // namespace mps::detail::gram_matrix_plan_test
