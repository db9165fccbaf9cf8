#include "mps/conform/testing/plan_testing.hpp"

#include <functional>

#include "mps/core/cpu/non_temporal_stores.hpp"
#include "mps/gather/check/gather_arrays_conform.hpp"
#include "mps/gather/check/gather_reference.hpp"

namespace mps::detail::gather_plan_test {
namespace {

using namespace plan_testing;
using enum ImageFeatureChannelFormat;
using enum GatherDirection;

constexpr std::uint64_t kSeed = 20261125;

/// The memory of a call: indices, source or incoming gradient, and destination.
class GatherCall {
 public:
  /// @param firstElement of the memory that the tensors begin at; 0: addresses are aligned for vectors
  GatherCall(const GatherCase& item, const GatherProblem& problem, Values values,
             std::size_t firstElement = 1, const std::shared_ptr<mtl::Device>& device = testDevice())
      : problem_(problem),
        numbers_(item.numbers(kSeed)),
        device_(device),
        indices_(device, problem.indices, numbers_),
        input_(device, isForward() ? problem.source : problem.result, firstElement),
        destination_(device, isForward() ? problem.result : problem.source, 3 * firstElement) {
    input_.write(makeValues(input_.shape().elements(), values, input_.shape().format, kSeed, 0.02));
  }
  void execute(const Plan& plan, int threads = kThreads) {
    Operands operands;
    (isForward() ? operands.source : operands.gradient) = input_.address();
    operands.secondary = indices_.address();
    operands.destination = destination_.address();
    runPlan(plan, operands, device_, threads);
    EXPECT_TRUE(input_.isUnchanged() && indices_.areUnchanged()) << "an input was written";
    EXPECT_TRUE(destination_.surroundingsIntact()) << "memory around the destination was written";
  }
  [[nodiscard]] ReferenceTensor expected(const GatherProblem& problem,
                                         std::span<const std::int64_t> numbers) const {
    return isForward() ? gatherForwardReference(problem, numbers, input_.reference())
                       : gatherGradientReference(problem, numbers, input_.reference());
  }
  [[nodiscard]] ReferenceTensor expected() const { return expected(problem_, numbers_); }
  [[nodiscard]] const std::vector<std::int64_t>& numbers() const { return numbers_; }
  [[nodiscard]] std::vector<double> found() { return destination_.read(); }

 private:
  [[nodiscard]] bool isForward() const { return problem_.direction == Forward; }

  GatherProblem problem_;
  std::vector<std::int64_t> numbers_;
  std::shared_ptr<mtl::Device> device_;
  GuardedIndices indices_;
  TestTensor input_, destination_;
};

using Pass = TablePass<GatherDirection>;

class GatherTable : public testing::TestWithParam<Pass> {};

/// Every entry, forced in turn, against the reference.
TEST_P(GatherTable, AgreesWithTheReference) {
  const Pass& pass = GetParam();
  for (const GatherCase& item : gatherCases())
    for (const std::size_t firstElement : {std::size_t{0}, std::size_t{1}}) {
      const GatherProblem problem = item.problem(pass.direction, pass.formats.source);
      SCOPED_TRACE(item.name + ": " + problem.describe());
      const ReferenceTensor expected = GatherCall(item, problem, pass.values).expected();
      const bool copies = pass.isForward() && pass.values != Values::NonFinite;
      expectAgreement(entriesOf(gatherBackEnds), gatherBackEnds, problem, expected, pass.formats.destination,
                      copies ? Tier::Exact : pass.tier(), [&](const auto& device) {
                        return GatherCall(item, problem, pass.values, firstElement, device);
                      });
    }
}

INSTANTIATE_TEST_SUITE_P(Passes, GatherTable,
                         testing::ValuesIn(passesWith<GatherDirection>({{Float32, Float32},
                                                                        {Float16, Float16}})),
                         [](const auto& info) { return info.param.name(); });

class GatherPlan : public testing::TestWithParam<Entry> {};

/// Equal indices are added in order: no bit depends on threads, nor on the run.
TEST_P(GatherPlan, GradientsHaveTheSameBitsWithAnyNumberOfThreads) {
  const WithTarget target(GetParam());
  for (const GatherCase& item : gatherCases()) {
    const GatherProblem problem = item.problem(Gradient, Float32);
    SCOPED_TRACE(problem.describe());
    const auto plan = preparedBy(GetParam(), gatherBackEnds, problem);
    if (!plan) continue;
    GatherCall first(item, problem, Values::Random, 1, GetParam().device);
    GatherCall second(item, problem, Values::Random, 1, GetParam().device);
    first.execute(*plan, 1);
    second.execute(*plan, 7);
    EXPECT_EQ(first.found(), second.found());
  }
}

/// The order of the sums is that of the indices: 2^24 + 1 is 2^24 in float32, so others give another result.
TEST_P(GatherPlan, SumsAreInTheOrderOfTheIndices) {
  const WithTarget target(GetParam());
  const NonTemporalFrom large(0);
  const GatherProblem problem = GatherCase{.name = "", .rows = 2, .count = 16}.problem(Gradient, Float32);
  const auto plan = preparedBy(GetParam(), gatherBackEnds, problem);
  ASSERT_TRUE(plan || !GetParam().isCpu());
  if (!plan) return;  // a GPU's entry for more elements
  const auto& device = GetParam().device;
  std::vector<std::int64_t> numbers{1, 1, 0, 1, 1};
  numbers.resize(16, 2);  // no row
  const GuardedIndices indices(device, GatherIndices::UInt32, numbers);
  TestTensor gradient(device, problem.result);
  TestTensor destination(device, problem.source);
  std::vector<double> terms{0x1p24, 1, 5, -0x1p24, 3};
  terms.resize(16, 7);
  gradient.write(terms);
  Operands operands;
  operands.gradient = gradient.address();
  operands.secondary = indices.address();
  operands.destination = destination.address();
  runPlan(*plan, operands, device);
  EXPECT_EQ(destination.read(), (std::vector<double>{5, 3}));
}

/// Sums are float32 and rounded once: 2048 + 1 is 2048 in float16, 2048 + 1 + 1 is not.
TEST_P(GatherPlan, SumsOfFloat16AreFloat32) {
  const WithTarget target(GetParam());
  const NonTemporalFrom large(0);
  const GatherProblem problem = GatherCase{.name = "", .count = 8}.problem(Gradient, Float16);
  const auto plan = preparedBy(GetParam(), gatherBackEnds, problem);
  ASSERT_TRUE(plan || !GetParam().isCpu());
  if (!plan) return;  // a GPU's entry for more elements
  const auto& device = GetParam().device;
  const GuardedIndices indices(device, GatherIndices::UInt32, std::vector<std::int64_t>(8));
  TestTensor gradient(device, problem.result);
  TestTensor destination(device, problem.source);
  gradient.write(std::vector<double>{2048, 1, 1, 0, 0, 0, 0, 0});
  Operands operands;
  operands.gradient = gradient.address();
  operands.secondary = indices.address();
  operands.destination = destination.address();
  runPlan(*plan, operands, device);
  EXPECT_EQ(destination.read(), std::vector<double>{2050});
}

INSTANTIATE_TEST_SUITE_P(Entries, GatherPlan, testing::ValuesIn(entriesOf(gatherBackEnds)),
                         [](const auto& info) { return info.param.name(); });

// Can these tests fail? -----------------------------------------------------------------------------------------------

/// What a plan stored does not agree with the reference for other indices.
TEST(GatherSensitivity, EachIndexCounts) {
  for (const Entry& entry : entriesOf(gatherBackEnds))
    for (const GatherCase& item : gatherCases())
      for (const auto direction : {Forward, Gradient}) {
        if (item.pattern != GatherPattern::Any || item.rows == 1) continue;
        const GatherProblem problem = item.problem(direction, Float32);
        SCOPED_TRACE(entry.name() + ", " + problem.describe());
        const auto plan = preparedBy(entry, gatherBackEnds, problem);
        if (!plan) continue;
        GatherCall call(item, problem, Values::Random, 1, entry.device);
        call.execute(*plan);
        for (const std::size_t i : {std::size_t{0}, call.numbers().size() - 1}) {
          std::vector<std::int64_t> others = call.numbers();
          others[i] = (others[i] + 1) % item.rows;
          EXPECT_FALSE(
              compare(call.expected(problem, others), call.found(), Float32, Tier::Bounded).passed());
        }
      }
}

TEST(GatherProblemTest, HashAndEqualitySeeEachField) {
  using Change = Perturbation<GatherProblem>;
  expectHashAndEqualitySee(
      gatherCases()[2].problem(Forward, Float32),
      std::vector<Change>{{"direction", [](GatherProblem& p) { p.direction = Gradient; }},
                          {"indices", [](GatherProblem& p) { p.indices = GatherIndices::UInt16; }},
                          {"source", [](GatherProblem& p) { ++p.source.rowStride; }},
                          {"result", [](GatherProblem& p) { p.result.format = Float16; }}});
}

TEST(GatherProblemTest, DescribeNamesWhatIsDone) {
  const GatherCase item{.name = "", .rows = 3, .channels = 2, .count = 5, .indices = GatherIndices::Int32};
  EXPECT_EQ(item.problem(Forward, Float32).describe(),
            "gather of 1x3x1x2 float32 into 1x5x1x2 float32 by Int32");
  EXPECT_EQ(item.problem(Gradient, Float16).describe(),
            "gather gradient of 1x5x1x2 float16 into 1x3x1x2 float16 by Int32");
}

}  // namespace
}  // namespace mps::detail::gather_plan_test
