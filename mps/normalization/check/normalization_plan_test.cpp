#include "mps/conform/testing/plan_testing.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "mps/core/cpu/non_temporal_stores.hpp"
#include "mps/normalization/check/normalization_cases.hpp"
#include "mps/normalization/check/normalization_reference.hpp"
#include "mps/normalization/cpu/normalization_tiles.hpp"

namespace mps::detail::normalization_plan_test {
namespace {

using enum ImageFeatureChannelFormat;
using enum NormalizationDirection;
using enum NormalizationKind;

constexpr std::uint64_t kSeed = 20260618;
/// Small: a window with one of them is not finite.
constexpr double kNonFiniteShare = 0.02;
using plan_testing::Entry;
using plan_testing::kThreads;
using plan_testing::makeValues;
using plan_testing::preparedBy;
using plan_testing::testDevice;
using plan_testing::Values;

std::vector<Entry> entries() {
  return plan_testing::entriesOf(normalizationBackEnds, "reference");
}

/// Everything of one call: operands, what came out and what the reference says.
class Call {
 public:
  Call(const NormalizationProblem& problem, Values values,
       const std::shared_ptr<mtl::Device>& device = testDevice())
      : problem_(problem),
        device_(device),
        source_(device, problem.source, 1),
        gradient_(device, problem.gradient, 2),
        destination_(device, problem.destination, 3) {
    source_.write(
        makeValues(problem.source.elements(), values, problem.source.format, kSeed, kNonFiniteShare));
    gradient_.write(
        makeValues(problem.gradient.elements(), values, problem.gradient.format, kSeed + 2, kNonFiniteShare));
  }

  /// Adds a number to the source.
  void raiseSource(double by) {
    std::vector<double> values = source_.reference().values;
    for (double& value : values) value += by;
    source_.write(values);
  }
  void execute(const Plan& plan, int threads = kThreads, bool accumulate = false) {
    Operands operands;
    operands.source = source_.address();
    operands.gradient = problem_.isGradient() ? gradient_.address() : nullptr;
    operands.destination = destination_.address();
    operands.accumulate = accumulate;
    plan_testing::runPlan(plan, operands, device_, threads);
    EXPECT_TRUE(source_.isUnchanged() && gradient_.isUnchanged()) << "an input was written";
    EXPECT_TRUE(destination_.surroundingsIntact()) << "memory around the destination was written";
  }

  /// What the reference gives for these inputs and possibly another problem.
  [[nodiscard]] ReferenceTensor expected(const NormalizationProblem& problem) const {
    return problem.isGradient()
               ? normalizationGradientReference(problem, source_.reference(), gradient_.reference())
               : normalizationForwardReference(problem, source_.reference());
  }
  [[nodiscard]] ReferenceTensor expected() const { return expected(problem_); }
  TestTensor& destination() { return destination_; }
  [[nodiscard]] std::vector<double> found() { return destination_.read(); }

 private:
  NormalizationProblem problem_;
  std::shared_ptr<mtl::Device> device_;
  TestTensor source_;
  TestTensor gradient_;
  TestTensor destination_;
};

Tier tierOf(const NormalizationProblem& problem, Values values) {
  return values == Values::Integers && isExact(problem) ? Tier::Exact : Tier::Bounded;
}

struct Formats {
  ImageFeatureChannelFormat source;
  ImageFeatureChannelFormat gradient;
  ImageFeatureChannelFormat destination;
};

/// What a test goes through the case table with.
struct Pass {
  NormalizationDirection direction;
  Values values;
  Formats formats;
  [[nodiscard]] NormalizationProblem problem(const NormalizationCase& normalization) const {
    if (direction == Forward) return normalization.forward(formats.source, formats.destination);
    NormalizationProblem problem = normalization.gradient(formats.gradient, formats.destination);
    problem.source.format = formats.source;
    return problem;
  }
  [[nodiscard]] std::string name() const {
    constexpr std::array<const char*, 3> words{"Integers", "Random", "NonFinite"};
    return std::string(direction == Forward ? "Forward" : "Gradient") +
           words[static_cast<std::size_t>(values)] + "_" + mps::name(formats.source) + "_" +
           mps::name(formats.gradient) + "_" + mps::name(formats.destination);
  }
};
void PrintTo(const Pass& pass, std::ostream* stream) {
  *stream << pass.name();
}

std::vector<Pass> passes() {
  constexpr Formats floats{Float32, Float32, Float32};
  constexpr Formats float16s{Float16, Float16, Float16};
  std::vector<Pass> all;
  for (const NormalizationDirection direction : {Forward, Gradient}) {
    for (const Values values : {Values::Integers, Values::Random, Values::NonFinite})
      all.push_back({direction, values, floats});
    all.push_back({direction, Values::Integers, {Unorm8, Float16, Float32}});
    all.push_back({direction, Values::Random, {Unorm16, Float32, Float16}});
    all.push_back({direction, Values::Random, float16s});
  }
  return all;
}

class NormalizationTable : public testing::TestWithParam<Pass> {};

/// Every entry, forced in turn, against the reference.
TEST_P(NormalizationTable, AgreesWithTheReference) {
  const Pass& pass = GetParam();
  const std::vector<Entry> all = entries();
  for (const NormalizationCase& normalization : normalizationCases()) {
    const NormalizationProblem problem = pass.problem(normalization);
    // Integers are for exact results.
    if (isExact(problem) != (pass.values == Values::Integers)) continue;
    // Without a power, infinities of either sign may meet in one order of the sums and not in another.
    if (pass.values == Values::NonFinite && problem.beta <= 0) continue;
    SCOPED_TRACE(normalization.name + ": " + problem.describe());
    const ReferenceTensor expected = Call(problem, pass.values).expected();
    const Zeros zeros = normalization.geometry.readsNothing || pass.values == Values::NonFinite
                            ? Zeros::Expected
                            : Zeros::Suspicious;
    plan_testing::expectAgreement(
        all, normalizationBackEnds, problem, expected, problem.destination.format,
        tierOf(problem, pass.values), [&](const auto& device) { return Call(problem, pass.values, device); },
        zeros);
  }
}

INSTANTIATE_TEST_SUITE_P(Passes, NormalizationTable, testing::ValuesIn(passes()),
                         [](const auto& info) { return info.param.name(); });

/// What the table does not show; each test runs once for each entry.
class NormalizationPlan : public testing::TestWithParam<Entry> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam().target); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

/// The gradient adds to what the destination holds.
TEST_P(NormalizationPlan, Accumulates) {
  for (const NormalizationCase& normalization : normalizationCases()) {
    const NormalizationProblem problem = normalization.gradient(Float32, Float32);
    if (!isExact(problem)) continue;
    SCOPED_TRACE(normalization.name);
    const auto plan = preparedBy(GetParam(), normalizationBackEnds, problem);
    if (!plan) continue;
    Call call(problem, Values::Integers, GetParam().device);
    plan_testing::expectAccumulation(*plan, call, call.expected(), kSeed + 9);
  }
}

/// The first case of each kind.
std::vector<NormalizationCase> firstCases() {
  std::vector<NormalizationCase> first;
  for (const NormalizationCase& normalization : normalizationCases())
    if (first.empty() || first.back().kind != normalization.kind) first.push_back(normalization);
  return first;
}

TEST_P(NormalizationPlan, OnlyFloat32GradientsAccumulate) {
  const auto accumulates = [](const NormalizationProblem& problem) -> std::optional<bool> {
    const auto plan = preparedBy(GetParam(), normalizationBackEnds, problem);
    return plan ? std::optional(plan->canAccumulate()) : std::nullopt;
  };
  for (const NormalizationCase& normalization : firstCases()) {
    for (const auto format : {Float16, Float32})
      EXPECT_TRUE(accumulates(normalization.gradient(format, Float32)).value_or(true));
    for (const auto format : {Float16, Float32})
      EXPECT_FALSE(accumulates(normalization.gradient(format, Float16)).value_or(false));
    EXPECT_FALSE(accumulates(normalization.forward(Float32, Float32)).value_or(false));
  }
}

/// The same bits whatever the number of threads.
TEST_P(NormalizationPlan, ThreadCountDoesNotMatter) {
  for (const NormalizationCase& normalization : normalizationCases()) {
    if (!normalization.geometry.name.starts_with("Threads")) continue;
    for (const NormalizationProblem& problem :
         {normalization.forward(Float32, Float32), normalization.gradient(Float32, Float32)}) {
      SCOPED_TRACE(problem.describe());
      const auto plan = preparedBy(GetParam(), normalizationBackEnds, problem);
      if (!plan) continue;
      Call call(problem, Values::Random, GetParam().device);
      call.execute(*plan, 1);
      const std::vector<double> one = call.found();
      for (const int threads : {2, 7}) {
        call.destination().poison();
        call.execute(*plan, threads);
        EXPECT_EQ(call.found(), one) << threads << " threads";
      }
    }
  }
}

NormalizationCase caseNamed(NormalizationKind kind, std::string_view geometry) {
  for (const NormalizationCase& normalization : normalizationCases())
    if (normalization.kind == kind && normalization.geometry.name == geometry) return normalization;
  return {};
}

/// Of a source that is 1,000 but for a little, the variance is that of the little.
TEST_P(NormalizationPlan, LargeMeansLeaveTheVarianceAlone) {
  NormalizationCase normalization = caseNamed(LocalContrast, "Five");
  normalization.edgeMode = ImageEdgeMode::Clamp;
  normalization.setting = {"Deviation", 1, 0.5F, 0};
  NormalizationProblem problem = normalization.forward(Float32, Float32);
  problem.p0 = 1;
  problem.pm = 0;
  problem.ps = 1;
  ReferenceTensor source(problem.source.images, problem.source.height, problem.source.width,
                         problem.source.channels);
  source.values =
      randomValues(static_cast<std::size_t>(problem.source.elements()), kSeed, RandomKind::SmallIntegers);
  const ReferenceTensor little = normalizationForwardReference(problem, source);
  for (double& value : source.values) value += 1000;
  TestTensor input(GetParam().device, problem.source);
  TestTensor destination(GetParam().device, problem.destination);
  input.write(source.values);
  const auto plan = preparedBy(GetParam(), normalizationBackEnds, problem);
  if (!plan) return;
  GuardedMemory scratch(GetParam().device, plan->scratchBytes());
  Operands operands{.source = input.address(), .destination = destination.address()};
  operands.scratch = scratch.address();
  runOnDevice(GetParam().device, "normalization", [&](mtl::Stream& stream) { plan->run(stream, operands); });
  ReferenceTensor expected = little;
  // A mean of numbers near 1,000 has so much less of what they differ by.
  for (double& size : expected.magnitude) size *= 100;
  const Comparison comparison = compare(expected, destination.read(), Float32, Tier::Bounded);
  EXPECT_TRUE(comparison.passed()) << comparison.report;
}

void expectLargeMeansToLeaveTheGradientAlone(const Entry& entry, std::string_view geometry) {
  NormalizationCase normalization = caseNamed(LocalContrast, geometry);
  normalization.setting = {"Deviation", 1, 0.5F, 1};
  NormalizationProblem problem = normalization.gradient(Float32, Float32);
  problem.p0 = 1;
  problem.ps = 1;
  const auto plan = preparedBy(entry, normalizationBackEnds, problem);
  if (!plan) return;
  Call call(problem, Values::Integers, entry.device);
  ReferenceTensor expected = call.expected();
  call.raiseSource(10000);
  call.execute(*plan);
  const std::vector<double> found = call.found();
  for (double& size : expected.magnitude) size *= 10000;
  constexpr std::int64_t reach = 4;
  const auto isInside = [](std::int64_t at, std::int64_t size) { return at >= reach && at < size - reach; };
  for (std::int64_t n = 0; n < expected.images; ++n)
    for (std::int64_t y = 0; y < expected.height; ++y)
      for (std::int64_t x = 0; x < expected.width; ++x)
        for (std::int64_t c = 0; c < expected.channels; ++c)
          if (const std::size_t i = expected.index(n, y, x, c);
              !isInside(y, expected.height) || !isInside(x, expected.width))
            expected.values[i] = found[i];
  const Comparison comparison = compare(expected, found, Float32, Tier::Bounded);
  EXPECT_TRUE(comparison.passed()) << comparison.report;
}

/// The same for gradients of windows of five that lie inside the source.
TEST_P(NormalizationPlan, LargeMeansLeaveTheGradientAlone) {
  for (const std::string_view geometry : {"Threads32", "ThreadsNarrow"}) {
    SCOPED_TRACE(geometry);
    expectLargeMeansToLeaveTheGradientAlone(GetParam(), geometry);
  }
}

TEST_P(NormalizationPlan, WithoutAnIncomingGradientTheGradientIsZero) {
  for (const NormalizationCase& normalization : firstCases()) {
    if (normalization.kind == CrossChannel) continue;  // its tensors have one size
    NormalizationProblem problem = normalization.gradient(Float32, Float32);
    problem.gradient.width = problem.x.destinationSize = 0;
    const auto plan = preparedBy(GetParam(), normalizationBackEnds, problem);
    if (!plan) continue;
    Call call(problem, Values::Random, GetParam().device);
    call.execute(*plan);
    for (const double value : call.found()) ASSERT_EQ(value, 0);
  }
}

TEST_P(NormalizationPlan, WithoutImagesNothingHappens) {
  for (NormalizationCase normalization : firstCases()) {
    normalization.geometry.images = 0;
    for (const NormalizationProblem& problem :
         {normalization.forward(Float32, Float32), normalization.gradient(Float32, Float32)}) {
      const auto plan = preparedBy(GetParam(), normalizationBackEnds, problem);
      if (!plan) continue;
      Call call(problem, Values::Random, GetParam().device);
      call.execute(*plan);
      EXPECT_TRUE(call.found().empty());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Entries, NormalizationPlan, testing::ValuesIn(entries()),
                         [](const auto& info) { return info.param.name(); });

TEST(NormalizationPlanChoice, NonTemporalStores) {
  const NonTemporalFrom always(0);
  for (const NormalizationKind kind : {CrossChannel, Spatial}) {
    const NormalizationProblem problem = wholeLinesNormalizationCase(kind).forward(Float32, Float32);
    ASSERT_TRUE(usesNonTemporalStoresForRows(1, problem.destination));
    Call call(problem, Values::Integers);
    call.execute(*preparePlan(normalizationImplementationsCpu(), problem).plan);
    const Comparison comparison = compare(call.expected(), call.found(), Float32, Tier::Exact);
    EXPECT_TRUE(comparison.passed()) << comparison.report;
  }
}

TEST(NormalizationPlanChoice, VectorsComeFirst) {
  int others = 0;
  for (const NormalizationCase& normalization : normalizationCases())
    for (const NormalizationProblem& problem :
         {normalization.forward(Unorm8, Float16), normalization.gradient(Float16, Float32)}) {
      const auto implementation = preparePlan(normalizationImplementationsCpu(), problem).implementation;
      if (implementation != "reference") continue;
      ++others;
      EXPECT_TRUE(normalization.name.starts_with("MoreChannelsThanATileChannels") ||
                  normalization.edgeMode == ImageEdgeMode::Clamp)
          << normalization.name;
    }
  EXPECT_LT(others, 30);
}

void expectRefusal(const NormalizationProblem& problem, const std::string& reason) {
  const std::size_t entry = problem.kind == CrossChannel ? 0 : 1;
  const Preparation preparation = normalizationImplementationsCpu()[entry].prepare(problem);
  ASSERT_TRUE(std::holds_alternative<Refusal>(preparation));
  EXPECT_NE(std::get<Refusal>(preparation).reason.find(reason), std::string::npos)
      << std::get<Refusal>(preparation).reason;
  EXPECT_EQ(preparePlan(normalizationImplementationsCpu(), problem).implementation, "reference");
}

TEST(NormalizationPlanChoice, WhatDoesNotFitIsRefused) {
  const std::vector<NormalizationCase> first = firstCases();
  NormalizationCase channels = first.front();
  channels.geometry.channels = 2049;
  expectRefusal(channels.forward(Float32, Float32), "2049 channels are more than the 2048");
  NormalizationCase window = first.back();
  window.geometry.x.kernelSize = WindowTiles::capacity;
  EXPECT_EQ(preparePlan(normalizationImplementationsCpu(), window.forward(Float32, Float32)).implementation,
            "tiles");
  ++window.geometry.x.kernelSize;
  expectRefusal(window.forward(Float32, Float32), "larger than the working memory");
  window.geometry.x.kernelSize = 1;
  window.geometry.y.kernelSize = WindowTiles::mostRows + 1;
  expectRefusal(window.gradient(Float32, Float32), "larger than the working memory");
  window = first.back();
  window.edgeMode = ImageEdgeMode::Clamp;
  window.geometry.y.offset = -window.geometry.y.kernelSize;
  expectRefusal(window.gradient(Float32, Float32), "wholly outside");
}

/// The largest windows that the tiles take.
TEST(NormalizationPlanChoice, LargestWindows) {
  for (NormalizationCase normalization : firstCases()) {
    if (normalization.kind == CrossChannel) continue;
    normalization.geometry.images = 1;
    normalization.geometry.channels = 3;
    normalization.setting = kNormalizationSettings[0];
    for (const bool isWide : {false, true}) {
      // Few pixels: the reference takes each of a window's for each of a window's.
      normalization.geometry.x = {.sourceSize = 4, .kernelSize = isWide ? WindowTiles::capacity : 3};
      normalization.geometry.y = {.sourceSize = 3, .kernelSize = isWide ? 2 : WindowTiles::mostRows};
      for (const ImageEdgeMode edgeMode : {ImageEdgeMode::Zero, ImageEdgeMode::Clamp}) {
        normalization.edgeMode = edgeMode;
        for (const NormalizationProblem& problem :
             {normalization.forward(Float16, Float32), normalization.gradient(Float32, Float32)}) {
          SCOPED_TRACE(problem.describe());
          const ChosenPlan chosen = preparePlan(normalizationImplementationsCpu(), problem);
          ASSERT_EQ(chosen.implementation, "tiles");
          Call call(problem, Values::Random);
          call.execute(*chosen.plan);
          const Comparison comparison = compare(call.expected(), call.found(), Float32, Tier::Bounded);
          EXPECT_TRUE(comparison.passed()) << comparison.report;
        }
      }
    }
  }
}

// Can these tests fail? -----------------------------------------------------------------------------------------------

using Perturbation = plan_testing::Perturbation<NormalizationProblem>;

std::vector<Perturbation> perturbations(NormalizationKind kind, NormalizationDirection direction) {
  using P = NormalizationProblem;
  std::vector<Perturbation> all{{"alpha", [](P& p) { p.alpha *= 1.5F; }},
                                {"beta", [](P& p) { p.beta += 0.25F; }},
                                {"delta", [](P& p) { p.delta += 0.5F; }}};
  if (kind == CrossChannel) {
    all.push_back({"kernelSize", [](P& p) { ++p.kernelSize; }});
    return all;
  }
  all.push_back({"edgeMode", [](P& p) {
                   p.edgeMode =
                       p.edgeMode == ImageEdgeMode::Zero ? ImageEdgeMode::Clamp : ImageEdgeMode::Zero;
                 }});
  all.push_back({"x.kernelSize", [](P& p) { ++p.x.kernelSize; }});
  all.push_back({"y.kernelSize", [](P& p) { ++p.y.kernelSize; }});
  all.push_back({"x.offset", [](P& p) { ++p.x.offset; }});
  all.push_back({"y.offset", [](P& p) { --p.y.offset; }});
  if (kind == LocalContrast) {
    all.push_back({"p0", [](P& p) { p.p0 += 0.25F; }});
    all.push_back({"ps", [](P& p) { p.ps += 0.25F; }});
    if (direction == Forward) all.push_back({"pm", [](P& p) { p.pm += 0.25F; }});
  }
  if (direction == Forward) return all;
  all.push_back({"destinationOriginX", [](P& p) { ++p.destinationOriginX; }});
  all.push_back({"destinationOriginY", [](P& p) { --p.destinationOriginY; }});
  all.push_back({"gradient.width", [](P& p) { p.x.destinationSize = --p.gradient.width; }});
  all.push_back({"gradient.height", [](P& p) { p.y.destinationSize = --p.gradient.height; }});
  return all;
}

/// Each formula must notice each change in some case.
TEST(NormalizationSensitivity, EachFieldCounts) {
  for (const NormalizationKind kind : {CrossChannel, Spatial, LocalContrast})
    for (const NormalizationDirection direction : {Forward, Gradient}) {
      const std::vector<Perturbation> changes = perturbations(kind, direction);
      std::vector<int> noticed(changes.size());
      for (const NormalizationCase& normalization : normalizationCases()) {
        if (normalization.kind != kind) continue;
        const NormalizationProblem problem = direction == Forward ? normalization.forward(Float32, Float32)
                                                                  : normalization.gradient(Float32, Float32);
        if (problem.source.elements() * problem.taps() > 5000) continue;
        Call call(problem, Values::Random);
        call.execute(*preparePlan(normalizationImplementationsCpu(), problem).plan);
        const std::vector<double> found = call.found();
        for (std::size_t i = 0; i < changes.size(); ++i) {
          NormalizationProblem other = problem;
          changes[i].change(other);
          if (!compare(call.expected(other), found, Float32, Tier::Bounded, Zeros::Expected).passed())
            ++noticed[i];
        }
      }
      for (std::size_t i = 0; i < changes.size(); ++i)
        EXPECT_GT(noticed[i], 0) << "no case notices a wrong " << changes[i].field << " of kind "
                                 << static_cast<int>(kind) << ", direction " << static_cast<int>(direction);
    }
}

TEST(NormalizationProblem, HashAndEqualitySeeEachField) {
  using P = NormalizationProblem;
  std::vector<Perturbation> changes = perturbations(LocalContrast, Gradient);
  changes.push_back({"kind", [](P& p) { p.kind = Spatial; }});
  changes.push_back({"direction", [](P& p) { p.direction = Forward; }});
  changes.push_back({"pm", [](P& p) { p.pm += 1; }});
  changes.push_back({"kernelSize", [](P& p) { ++p.kernelSize; }});
  changes.push_back({"source", [](P& p) { p.source.format = Unorm8; }});
  changes.push_back({"gradient", [](P& p) { ++p.gradient.imageStride; }});
  changes.push_back({"destination", [](P& p) { ++p.destination.rowStride; }});
  const NormalizationProblem problem = firstCases().back().gradient(Float32, Float32);
  plan_testing::expectHashAndEqualitySee(problem, changes);
}

}  // namespace
}  // namespace mps::detail::normalization_plan_test
