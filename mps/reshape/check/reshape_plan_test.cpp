#include "mps/conform/testing/plan_testing.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "mps/conform/guarded/guarded_memory.hpp"
#include "mps/core/cpu/non_temporal_stores.hpp"
#include "mps/core/types/storage.hpp"
#include "mps/reshape/check/reshape_cases.hpp"
#include "mps/reshape/check/reshape_reference.hpp"

namespace mps::detail::reshape_plan_test {
namespace {

using namespace plan_testing;
using enum ImageFeatureChannelFormat;
using enum ReshapeDirection;

constexpr std::uint64_t kSeed = 20261122;

Call callOf(const ReshapeProblem& problem, Values values,
            const std::shared_ptr<mtl::Device>& device = testDevice()) {
  return {{problem.input, problem.destination, problem.direction == Gradient}, values, kSeed, device};
}

std::shared_ptr<const Plan> planOf(const Entry& entry, const ReshapeProblem& problem) {
  return preparedBy(entry, reshapeBackEnds, problem);
}

using Pass = TablePass<ReshapeDirection>;

class ReshapeTable : public testing::TestWithParam<Pass> {};

/// Every entry, forced in turn, against the reference.
TEST_P(ReshapeTable, AgreesWithTheReference) {
  const Pass& pass = GetParam();
  for (const ReshapeCase& reshape : reshapeCases()) {
    const ReshapeProblem problem = pass.problem(reshape);
    SCOPED_TRACE(reshape.name + ": " + problem.describe());
    const ReferenceTensor expected = reshapeReference(problem, callOf(problem, pass.values).input());
    expectAgreement(entriesOf(reshapeBackEnds), reshapeBackEnds, problem, expected,
                    problem.destination.format, pass.tier(),
                    [&](const auto& device) { return callOf(problem, pass.values, device); });
  }
}

INSTANTIATE_TEST_SUITE_P(Passes, ReshapeTable,
                         testing::ValuesIn(passesWith<ReshapeDirection>({{Float32, Float32},
                                                                         {Float16, Float16},
                                                                         {Unorm8, Float32},
                                                                         {Float32, Float16}})),
                         [](const auto& info) { return info.param.name(); });

class ReshapePlan : public testing::TestWithParam<Entry> {};

/// The gradient adds to what the destination holds.
TEST_P(ReshapePlan, Accumulates) {
  const WithTarget target(GetParam());
  for (const ReshapeCase& reshape : reshapeCases()) {
    const ReshapeProblem problem = reshape.gradient(Float32, Float32);
    SCOPED_TRACE(problem.describe());
    const auto plan = planOf(GetParam(), problem);
    if (!plan) continue;
    Call call = callOf(problem, Values::Integers, GetParam().device);
    expectAccumulation(*plan, call, reshapeReference(problem, call.input()), kSeed + 9);
  }
}

TEST_P(ReshapePlan, OnlyFloat32GradientsAccumulate) {
  for (const std::size_t number : {std::size_t{0}, reshapeCases().size() - 1}) {
    const ReshapeCase reshape = reshapeCases()[number];
    const auto expect = [](const ReshapeProblem& problem, bool accumulates) {
      const auto plan = planOf(GetParam(), problem);
      if (!plan) return;
      EXPECT_EQ(plan->canAccumulate(), accumulates);
    };
    expect(reshape.gradient(Float16, Float32), true);
    expect(reshape.gradient(Float32, Float32), true);
    expect(reshape.gradient(Float32, Float16), false);
    expect(reshape.gradient(Float16, Float16), false);
    expect(reshape.forward(Float32, Float32), false);
  }
}

/// The same bits whatever the number of threads.
TEST_P(ReshapePlan, ThreadCountDoesNotMatter) {
  for (const ReshapeCase& reshape : reshapeCases()) {
    if (!reshape.name.starts_with("Threads")) continue;
    const ReshapeProblem problem = reshape.gradient(Float32, Float32);
    const auto plan = planOf(GetParam(), problem);
    if (!plan) continue;
    Call call = callOf(problem, Values::Random, GetParam().device);
    call.execute(*plan, 1);
    const std::vector<double> one = call.found();
    call.destination().poison();
    call.execute(*plan, 7);
    EXPECT_EQ(call.found(), one) << problem.describe();
  }
}

TEST_P(ReshapePlan, WithoutImagesNothingHappens) {
  for (ReshapeCase reshape : {reshapeCases().front(), reshapeCases().back()}) {
    reshape.images = 0;
    for (const ReshapeProblem& problem :
         {reshape.forward(Float32, Float32), reshape.gradient(Float32, Float32)}) {
      const auto plan = planOf(GetParam(), problem);
      if (!plan) continue;
      Call call = callOf(problem, Values::Random, GetParam().device);
      call.execute(*plan);
      EXPECT_TRUE(call.found().empty());
    }
  }
}

/// Memory that ends where a tensor does: the address sanitizer sees any access beside it.
class ExactMemory {
 public:
  explicit ExactMemory(const TensorShape& shape)
      : bytes_(static_cast<std::size_t>(
            (shape.offset(shape.images - 1, shape.height - 1, shape.width - 1, shape.channels - 1) + 1) *
            static_cast<std::int64_t>(bytesPerChannel(shape.format)))) {}
  std::span<std::byte> bytes() { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

TEST(ReshapeMemory, NothingBesideTheTensorsIsTouched) {
  for (const auto format : {Float32, Float16})
    for (const ReshapeCase& reshape : reshapeCases())
      for (const ReshapeProblem& problem :
           {reshape.forward(format, format), reshape.gradient(format, format)}) {
        SCOPED_TRACE(reshape.name + ": " + problem.describe());
        ExactMemory input(problem.input);
        ExactMemory destination(problem.destination);
        std::ranges::fill(input.bytes(), std::byte{0x3C});
        fillWithPoison(destination.bytes());
        Operands operands{.destination = destination.bytes().data()};
        (problem.direction == Forward ? operands.source : operands.gradient) = input.bytes().data();
        const auto plan = preparePlan(reshapeImplementationsCpu(), problem).plan;
        runPlan(*plan, operands, testDevice(), 1);
        // The case's own test judges the values; here all of them are numbers.
        const TensorShape& shape = problem.destination;
        withElementType(format, [&](auto element) {
          for (std::int64_t n = 0; n < shape.images; ++n)
            for (std::int64_t y = 0; y < shape.height; ++y)
              for (std::int64_t x = 0; x < shape.width; ++x) {
                std::memcpy(
                    &element,
                    destination.bytes().data() +
                        static_cast<std::size_t>(shape.offset(n, y, x, shape.channels - 1)) * sizeof element,
                    sizeof element);
                ASSERT_TRUE(std::isfinite(loadFloat(&element))) << n << " " << y << " " << x;
              }
        });
      }
}

/// By non-temporal stores: sums of what mirrors repeated, whose rows begin and end within lines.
TEST(ReshapePlanSize, NonTemporalStores) {
  const NonTemporalFrom always(0);
  const ReshapeCase reshape{.name = "NonTemporalStores",
                            .mapping = ReshapeMapping::Axes,
                            .edgeMode = ImageEdgeMode::Mirror,
                            .source = {41, 31, 99},
                            .result = {46, 37, 99},
                            .before = {2, 3, 0}};
  for (const auto format : {Float32, Float16}) {
    const ReshapeProblem problem = reshape.gradient(format, format);
    Call call = callOf(problem, Values::Integers);
    const auto plan = preparePlan(reshapeImplementationsCpu(), problem).plan;
    call.execute(*plan, 7);
    const Comparison comparison =
        compare(reshapeReference(problem, call.input()), call.found(), format, Tier::Exact);
    EXPECT_TRUE(comparison.passed()) << comparison.report;
  }
}

INSTANTIATE_TEST_SUITE_P(Entries, ReshapePlan, testing::ValuesIn(entriesOf(reshapeBackEnds)),
                         [](const auto& info) { return info.param.name(); });

// Can these tests fail? -----------------------------------------------------------------------------------------------

using Perturbation = plan_testing::Perturbation<ReshapeProblem>;

std::vector<Perturbation> perturbations() {
  return {
      {"edgeMode",
       [](ReshapeProblem& p) {
         p.edgeMode = p.edgeMode == ImageEdgeMode::Mirror ? ImageEdgeMode::Clamp : ImageEdgeMode::Mirror;
       }},
      {"x.before", [](ReshapeProblem& p) { ++p.x.before; }},
      {"y.before", [](ReshapeProblem& p) { --p.y.before; }},
      {"channels.before", [](ReshapeProblem& p) { ++p.channels.before; }},
  };
}

void expectEachFieldCounts(ReshapeDirection direction) {
  const std::vector<Perturbation> changes = perturbations();
  std::vector<int> noticed(changes.size());
  for (const ReshapeCase& reshape : reshapeCases()) {
    if (reshape.mapping != ReshapeMapping::Axes || reshape.name.starts_with("Threads")) continue;
    const ReshapeProblem problem =
        direction == Forward ? reshape.forward(Float32, Float32) : reshape.gradient(Float32, Float32);
    Call call = callOf(problem, Values::Random);
    call.execute(*preparePlan(reshapeImplementationsCpu(), problem).plan);
    const std::vector<double> found = call.found();
    for (std::size_t i = 0; i < changes.size(); ++i) {
      ReshapeProblem other = problem;
      changes[i].change(other);
      const ReferenceTensor expected = reshapeReference(other, call.input());
      if (!compare(expected, found, Float32, Tier::Bounded, Zeros::Expected).passed()) ++noticed[i];
    }
  }
  for (std::size_t i = 0; i < changes.size(); ++i)
    EXPECT_GT(noticed[i], 0) << "no case notices a wrong " << changes[i].field;
}

TEST(ReshapeSensitivity, EachFieldCounts) {
  expectEachFieldCounts(Forward);
  expectEachFieldCounts(Gradient);
}

TEST(ReshapeSensitivity, FillValuesCount) {
  int noticed = 0;
  for (const ReshapeCase& reshape : reshapeCases()) {
    if (!reshape.fills) continue;
    const ReshapeProblem problem = reshape.forward(Float32, Float32);
    Call call = callOf(problem, Values::Random);
    call.execute(*preparePlan(reshapeImplementationsCpu(), problem).plan);
    ReshapeProblem other = problem;
    other.fill.clear();
    const ReferenceTensor expected = reshapeReference(other, call.input());
    if (!compare(expected, call.found(), Float32, Tier::Bounded, Zeros::Expected).passed()) ++noticed;
  }
  EXPECT_GT(noticed, 10);
}

TEST(ReshapeProblem, HashAndEqualitySeeEachField) {
  std::vector<Perturbation> changes = perturbations();
  changes.push_back({"direction", [](ReshapeProblem& p) { p.direction = Gradient; }});
  changes.push_back({"mapping", [](ReshapeProblem& p) { p.mapping = ReshapeMapping::Axes; }});
  changes.push_back({"input", [](ReshapeProblem& p) { p.input.format = Unorm8; }});
  changes.push_back({"destination", [](ReshapeProblem& p) { ++p.destination.rowStride; }});
  changes.push_back({"fill", [](ReshapeProblem& p) { p.fill.push_back(1); }});
  const ReshapeProblem problem = reshapeCases().front().forward(Float32, Float32);
  expectHashAndEqualitySee(problem, changes);
}

}  // namespace
}  // namespace mps::detail::reshape_plan_test
