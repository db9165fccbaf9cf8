#include "mps/conform/testing/plan_testing.hpp"

#include <gtest/gtest.h>
#include <algorithm>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <string_view>

#include "mps/core/cpu/non_temporal_stores.hpp"
#include "mps/upsampling/check/upsampling_cases.hpp"
#include "mps/upsampling/check/upsampling_reference.hpp"
#include "mps/upsampling/upsampling_samples.hpp"
#include "mps/upsampling/upsampling_taps.hpp"

namespace mps::detail::upsampling_plan_test {
namespace {

using enum ImageFeatureChannelFormat;
using enum UpsamplingDirection;

constexpr std::uint64_t kSeed = 20260618;
using plan_testing::Entry;
using plan_testing::isCode;
using plan_testing::kThreads;
using plan_testing::makeValues;
using plan_testing::preparedBy;
using plan_testing::testDevice;
using plan_testing::Values;
using plan_testing::WithTarget;

std::vector<Entry> entries() {
  return plan_testing::entriesOf(upsamplingBackEnds, "reference");
}

/// Everything of one call: operands, what came out and what the reference says.
class Call {
 public:
  /// @param first elements in front of the input, and three times as many in front of the destination
  Call(const UpsamplingProblem& problem, Values values,
       const std::shared_ptr<mtl::Device>& device = testDevice(), std::size_t first = 1)
      : problem_(problem),
        device_(device),
        input_(device, problem.input, first),
        destination_(device, problem.destination, 3 * first) {
    input_.write(makeValues(problem.input.elements(), values, problem.input.format, kSeed));
  }

  void execute(const Plan& plan, int threads = kThreads, bool accumulate = false) {
    GuardedMemory scratch(device_, plan.scratchBytes());
    Operands operands;
    operands.scratch = scratch.address();
    (problem_.direction == Forward ? operands.source : operands.gradient) = input_.address();
    operands.destination = destination_.address();
    operands.accumulate = accumulate;
    if (device_->kind() == mtl::DeviceKind::CPU) {
      mtl::cpu::Stream stream(threads);
      plan.run(stream, operands);
    } else {
      runOnDevice(device_, "upsampling", [&](mtl::Stream& stream) { plan.run(stream, operands); });
      scratch.synchronize();
    }
    EXPECT_TRUE(scratch.guardsIntact()) << "scratch memory was overrun";
    EXPECT_TRUE(input_.isUnchanged()) << "the input was written";
    EXPECT_TRUE(destination_.surroundingsIntact()) << "memory around the destination was written";
  }

  /// What the reference gives for this input and possibly another problem.
  [[nodiscard]] ReferenceTensor expected(const UpsamplingProblem& problem) const {
    return upsamplingReference(problem, input_.reference());
  }
  [[nodiscard]] ReferenceTensor expected() const { return expected(problem_); }
  TestTensor& destination() { return destination_; }
  [[nodiscard]] std::vector<double> found() { return destination_.read(); }

 private:
  UpsamplingProblem problem_;
  std::shared_ptr<mtl::Device> device_;
  TestTensor input_;
  TestTensor destination_;
};

Tier tierOf(const UpsamplingProblem& problem, Values values) {
  const bool exact = values == Values::Integers && !isCode(problem.destination.format) && isExact(problem);
  return exact ? Tier::Exact : Tier::Bounded;
}

Zeros expectedZeros(const UpsamplingCase& upsampling) {
  return upsampling.geometry.readsNothing ? Zeros::Expected : Zeros::Suspicious;
}

struct Formats {
  ImageFeatureChannelFormat input;
  ImageFeatureChannelFormat destination;
};

/// What a test goes through the case table with.
struct Pass {
  UpsamplingDirection direction;
  Values values;
  Formats formats;
  [[nodiscard]] UpsamplingProblem problem(const UpsamplingCase& upsampling) const {
    return direction == Forward ? upsampling.forward(formats.input, formats.destination)
                                : upsampling.gradient(formats.input, formats.destination);
  }
  [[nodiscard]] std::string name() const {
    constexpr std::array<const char*, 3> words{"Integers", "Random", "NonFinite"};
    return std::string(direction == Forward ? "Forward" : "Gradient") +
           words[static_cast<std::size_t>(values)] + "_" + mps::name(formats.input) + "_" +
           mps::name(formats.destination);
  }
};
void PrintTo(const Pass& pass, std::ostream* stream) {
  *stream << pass.name();
}

std::vector<Pass> passes() {
  constexpr std::array<Formats, 6> formats{{{Float32, Float32},
                                            {Float16, Float16},
                                            {Unorm8, Float32},
                                            {Unorm16, Float16},
                                            {Float32, Float16},
                                            {Float16, Float32}}};
  constexpr std::array<Formats, 3> toUnorm{{{Float32, Unorm8}, {Float16, Unorm16}, {Unorm8, Unorm8}}};
  std::vector<Pass> all;
  for (const UpsamplingDirection direction : {Forward, Gradient})
    for (const Formats& pair : formats) {
      all.push_back({direction, Values::Integers, pair});
      all.push_back({direction, Values::Random, pair});
      if (!isCode(pair.input)) all.push_back({direction, Values::NonFinite, pair});
    }
  for (const Formats& pair : toUnorm) all.push_back({Forward, Values::Random, pair});
  return all;
}

bool isCpu(const Entry& entry) {
  return entry.device->kind() == mtl::DeviceKind::CPU;
}

std::vector<UpsamplingCase> casesOf(UpsamplingDirection direction) {
  std::vector<UpsamplingCase> cases = upsamplingCases();
  for (const UpsamplingCase& stepped : steppedCases())
    if (direction == Forward || hasGradient(stepped.sampling)) cases.push_back(stepped);
  return cases;
}

class UpsamplingTable : public testing::TestWithParam<Pass> {};

/// Every entry, forced in turn, against the reference.
TEST_P(UpsamplingTable, AgreesWithTheReference) {
  const Pass& pass = GetParam();
  const std::vector<Entry> all = entries();
  const bool hasGpu = !std::ranges::all_of(all, isCpu);
  for (const UpsamplingCase& upsampling : casesOf(pass.direction)) {
    if (upsampling.geometry.fillsGpus && !hasGpu) continue;
    const UpsamplingProblem problem = pass.problem(upsampling);
    SCOPED_TRACE(upsampling.name + ": " + problem.describe());
    const ReferenceTensor expected = Call(problem, pass.values).expected();
    for (const Entry& entry : all) {
      SCOPED_TRACE(entry.name());
      const WithTarget target(entry);
      const auto plan = preparedBy(entry, upsamplingBackEnds, problem);
      if (!plan) continue;
      Call call(problem, pass.values, entry.device);
      call.execute(*plan);
      const Comparison comparison = compare(expected, call.found(), problem.destination.format,
                                            tierOf(problem, pass.values), expectedZeros(upsampling));
      EXPECT_TRUE(comparison.passed()) << comparison.report;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Passes, UpsamplingTable, testing::ValuesIn(passes()),
                         [](const auto& info) { return info.param.name(); });

/// What the table does not show; each test runs once for each entry.
class UpsamplingPlan : public testing::TestWithParam<Entry> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam().target); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

/// Tables of kernels have as much room, also where the last digit of a window's ends is rounded outwards.
TEST(LanczosSamplesTest, AreNoMoreThanTheMost) {
  std::int64_t whole = 0;
  for (const UpsamplingCase& upsampling : steppedCases()) {
    if (upsampling.sampling != UpsamplingSampling::LanczosScale) continue;
    SCOPED_TRACE(upsampling.name);
    const auto expectFew = [&](const UpsamplingExtent& extent, const UpsamplingAxis& axis) {
      for (std::int64_t x = 0; x < extent.resultCount(); ++x) {
        const LanczosSamples samples = lanczosSamples(upsampling.edgeMode, axis, x);
        EXPECT_LE(samples.end - samples.first, mostLanczosSamples(axis)) << "result " << x;
        if (samples.end - samples.first == mostLanczosSamples(axis)) ++whole;
      }
    };
    const UpsamplingProblem problem = upsampling.forward(Float32, Float32);
    expectFew(upsampling.geometry.x, problem.x);
    expectFew(upsampling.geometry.y, problem.y);
  }
  EXPECT_GT(whole, 0);
}

/// Each result that a pixel counts something in is among those that are looked at.
TEST(LanczosReadersTest, HaveAllResults) {
  for (const UpsamplingCase& upsampling : steppedCases()) {
    if (upsampling.sampling != UpsamplingSampling::LanczosScale) continue;
    SCOPED_TRACE(upsampling.name);
    const UpsamplingProblem problem = upsampling.gradient(Float32, Float32);
    const auto expectAll = [&](const UpsamplingAxis& axis, std::int64_t results) {
      std::int64_t looked = 0;
      std::int64_t counted = 0;
      for (std::int64_t pixel = 0; pixel < axis.sourceSize; ++pixel) {
        const LanczosReaders readers = lanczosReaders(axis, pixel, results);
        ASSERT_TRUE(0 <= readers.begin && readers.begin <= readers.end && readers.end <= results);
        looked += readers.end - readers.begin;
        for (std::int64_t x = 0; x < results; ++x) {
          const LanczosSamples samples = lanczosSamples(problem.edgeMode, axis, axis.firstResult + x);
          if (pixel < samples.first || pixel >= samples.end || lanczosWeight(samples, pixel) == 0) continue;
          ++counted;
          EXPECT_TRUE(readers.begin <= x && x < readers.end) << "result " << x << " of pixel " << pixel;
        }
      }
      // Few results are looked at in vain: those of two pixels and, with edge mode Zero, what lies outside.
      if (problem.edgeMode == ImageEdgeMode::Clamp && axis.step > 0) {
        EXPECT_LE(looked, counted + axis.sourceSize * (2 + static_cast<std::int64_t>(4 / axis.step)));
      }
    };
    expectAll(problem.x, problem.input.width);
    expectAll(problem.y, problem.input.height);
  }
}

/// The gradient adds to what the destination holds.
TEST_P(UpsamplingPlan, Accumulates) {
  for (const UpsamplingCase& upsampling : casesOf(Gradient)) {
    if (upsampling.geometry.fillsGpus && isCpu(GetParam())) continue;
    const UpsamplingProblem problem = upsampling.gradient(Float32, Float32);
    if (!isExact(problem)) continue;
    SCOPED_TRACE(upsampling.name);
    const auto plan = preparedBy(GetParam(), upsamplingBackEnds, problem);
    if (!plan) continue;
    ASSERT_TRUE(plan->canAccumulate());
    Call call(problem, Values::Integers, GetParam().device);
    const std::vector<double> before = randomValues(static_cast<std::size_t>(problem.destination.elements()),
                                                    kSeed + 9, RandomKind::SmallIntegers);
    call.destination().write(before);
    call.execute(*plan, kThreads, true);
    ReferenceTensor expected = call.expected();
    addTerms(expected, before);
    const Comparison comparison = compare(expected, call.found(), Float32, Tier::Exact, Zeros::Expected);
    EXPECT_TRUE(comparison.passed()) << comparison.report;
  }
}

TEST_P(UpsamplingPlan, OnlyFloat32GradientsAccumulate) {
  const UpsamplingCase upsampling = upsamplingCases().front();
  const auto expect = [](const UpsamplingProblem& problem, bool accumulates) {
    const auto plan = preparedBy(GetParam(), upsamplingBackEnds, problem);
    if (!plan) return;
    EXPECT_EQ(plan->canAccumulate(), accumulates);
  };
  expect(upsampling.gradient(Float16, Float32), true);
  expect(upsampling.gradient(Float32, Float32), true);
  expect(upsampling.gradient(Float32, Float16), false);
  expect(upsampling.gradient(Float16, Float16), false);
  expect(upsampling.forward(Float32, Float32), false);
}

/// Where tensors are aligned, too, pixels that count nothing are not looked at.
TEST_P(UpsamplingPlan, TakesWhatIsNotFinite) {
  for (const UpsamplingDirection direction : {Forward, Gradient})
    for (const Formats& formats : {Formats{Float32, Float32}, Formats{Float16, Float16}}) {
      const Pass pass{direction, Values::NonFinite, formats};
      for (const UpsamplingCase& upsampling : casesOf(direction)) {
        if (upsampling.geometry.fillsGpus && isCpu(GetParam())) continue;
        const UpsamplingProblem problem = pass.problem(upsampling);
        SCOPED_TRACE(upsampling.name + ": " + problem.describe());
        const auto plan = preparedBy(GetParam(), upsamplingBackEnds, problem);
        if (!plan) continue;
        Call call(problem, pass.values, GetParam().device, 0);
        call.execute(*plan);
        const Comparison comparison =
            compare(call.expected(), call.found(), formats.destination, Tier::Bounded, Zeros::Expected);
        EXPECT_TRUE(comparison.passed()) << comparison.report;
      }
    }
}

/// The same bits whatever the number of threads.
TEST_P(UpsamplingPlan, ThreadCountDoesNotMatter) {
  for (const UpsamplingCase& upsampling : upsamplingCases()) {
    if (!upsampling.geometry.name.starts_with("Threads")) continue;
    for (const UpsamplingProblem& problem :
         {upsampling.forward(Float32, Float32), upsampling.gradient(Float32, Float32)}) {
      SCOPED_TRACE(problem.describe());
      const auto plan = preparedBy(GetParam(), upsamplingBackEnds, problem);
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

TEST_P(UpsamplingPlan, WithoutAnIncomingGradientTheGradientIsZero) {
  for (const UpsamplingCase& upsampling : upsamplingCases()) {
    if (upsampling.geometry.name != "Scale2") continue;
    UpsamplingProblem problem = upsampling.gradient(Float32, Float32);
    problem.input.width = 0;
    const auto plan = preparedBy(GetParam(), upsamplingBackEnds, problem);
    if (!plan) continue;
    Call call(problem, Values::Random, GetParam().device);
    call.execute(*plan);
    for (const double value : call.found()) ASSERT_EQ(value, 0);
  }
}

TEST_P(UpsamplingPlan, WithoutImagesNothingHappens) {
  UpsamplingCase upsampling = upsamplingCases().front();
  upsampling.geometry.images = 0;
  for (const UpsamplingProblem& problem :
       {upsampling.forward(Float32, Float32), upsampling.gradient(Float32, Float32)}) {
    const auto plan = preparedBy(GetParam(), upsamplingBackEnds, problem);
    if (!plan) continue;
    Call call(problem, Values::Random, GetParam().device);
    call.execute(*plan);
    EXPECT_TRUE(call.found().empty());
  }
}

INSTANTIATE_TEST_SUITE_P(Entries, UpsamplingPlan, testing::ValuesIn(entries()),
                         [](const auto& info) { return info.param.name(); });

TEST(UpsamplingPlanChoice, NonTemporalStores) {
  const NonTemporalFrom always(0);
  const UpsamplingProblem problem =
      wholeLinesUpsamplingCase(UpsamplingSampling::Bilinear).forward(Float32, Float32);
  ASSERT_TRUE(usesNonTemporalStoresForRows(1, problem.destination));
  Call call(problem, Values::Integers);
  call.execute(*preparePlan(upsamplingImplementationsCpu(), problem).plan);
  const Comparison comparison = compare(call.expected(), call.found(), Float32, Tier::Exact);
  EXPECT_TRUE(comparison.passed()) << comparison.report;
}

/// Rows of few channels begin amid cache lines, which threads share.
TEST(UpsamplingPlanChoice, NonTemporalStoresOfFewChannels) {
  const NonTemporalFrom always(0);
  for (const UpsamplingCase& upsampling : upsamplingCases()) {
    if (upsampling.geometry.channels > FewChannelTable::mostChannels || upsampling.geometry.fillsGpus)
      continue;
    for (const auto format : {Float32, Float16})
      for (const UpsamplingProblem& problem :
           {upsampling.forward(format, format), upsampling.gradient(format, format)}) {
        SCOPED_TRACE(upsampling.name + ": " + problem.describe());
        Call call(problem, Values::Random);
        call.execute(*preparePlan(upsamplingImplementationsCpu(), problem).plan);
        const Comparison comparison =
            compare(call.expected(), call.found(), format, Tier::Bounded, expectedZeros(upsampling));
        EXPECT_TRUE(comparison.passed()) << comparison.report;
      }
  }
}

TEST(UpsamplingPlanChoice, VectorsComeFirst) {
  for (const UpsamplingCase& stepped : steppedCases())
    EXPECT_EQ(preparePlan(upsamplingImplementationsCpu(), stepped.forward(Float16, Float32)).implementation,
              "tiles");
  for (const UpsamplingCase& upsampling : upsamplingCases())
    for (const UpsamplingProblem& problem :
         {upsampling.forward(Unorm8, Float16), upsampling.gradient(Float16, Float32)})
      EXPECT_EQ(preparePlan(upsamplingImplementationsCpu(), problem).implementation, "tiles");
}

TEST(UpsamplingPlanChoice, SumsOfTooManyColumnsAreRefused) {
  UpsamplingCase upsampling = upsamplingCases().front();
  upsampling.geometry.images = 1;
  upsampling.geometry.channels = 3;
  upsampling.geometry.y = {.sourceSize = 1, .scaleFactor = 2};
  upsampling.geometry.x = {.sourceSize = 2, .scaleFactor = UpsamplingLayout::capacity / 16 + 1};
  const UpsamplingProblem problem = upsampling.gradient(Float32, Float32);
  EXPECT_EQ(preparePlan(upsamplingImplementationsCpu(), problem).implementation, "tiles");
  upsampling.geometry.channels = 17;
  const UpsamplingProblem larger = upsampling.gradient(Float32, Float32);
  const Preparation preparation = upsamplingImplementationsCpu().front().prepare(larger);
  ASSERT_TRUE(std::holds_alternative<Refusal>(preparation));
  EXPECT_NE(std::get<Refusal>(preparation).reason.find("more columns than"), std::string::npos);
  EXPECT_EQ(preparePlan(upsamplingImplementationsCpu(), larger).implementation, "reference");
}

// Can these tests fail? A kernel that overlooks a field computes what the reference computes for another value. -------

struct Perturbation {
  const char* field;
  std::function<void(UpsamplingProblem&)> change;
};

std::vector<Perturbation> perturbations() {
  return {
      {"sampling",
       [](UpsamplingProblem& p) {
         p.sampling = p.sampling == UpsamplingSampling::Nearest ? UpsamplingSampling::Bilinear
                                                                : UpsamplingSampling::Nearest;
       }},
      {"edgeMode",
       [](UpsamplingProblem& p) {
         p.edgeMode = p.edgeMode == ImageEdgeMode::Zero ? ImageEdgeMode::Clamp : ImageEdgeMode::Zero;
       }},
      {"x.sourceSize", [](UpsamplingProblem& p) { p.x.sourceSize -= p.x.sourceSize > 1 ? 1 : 0; }},
      {"y.sourceSize", [](UpsamplingProblem& p) { p.y.sourceSize -= p.y.sourceSize > 1 ? 1 : 0; }},
      {"x.resultSize", [](UpsamplingProblem& p) { ++p.x.resultSize; }},
      {"y.resultSize", [](UpsamplingProblem& p) { ++p.y.resultSize; }},
      {"x.offset", [](UpsamplingProblem& p) { ++p.x.offset; }},
      {"y.offset", [](UpsamplingProblem& p) { --p.y.offset; }},
  };
}

/// The result's size does not count.
std::vector<Perturbation> steppedPerturbations() {
  std::vector<Perturbation> all = perturbations();
  std::erase_if(all, [](const Perturbation& one) {
    return std::string_view(one.field).find("resultSize") != std::string_view::npos;
  });
  all.push_back({"x.start", [](UpsamplingProblem& p) { p.x.start += 0.125; }});
  all.push_back({"y.start", [](UpsamplingProblem& p) { p.y.start -= 0.125; }});
  all.push_back({"x.step", [](UpsamplingProblem& p) { p.x.step *= 1.5; }});
  all.push_back({"y.step", [](UpsamplingProblem& p) { p.y.step *= 0.75; }});
  return all;
}

std::vector<Perturbation> gradientPerturbations() {
  std::vector<Perturbation> all = perturbations();
  all.push_back({"x.firstResult", [](UpsamplingProblem& p) { ++p.x.firstResult; }});
  all.push_back({"y.firstResult", [](UpsamplingProblem& p) { ++p.y.firstResult; }});
  all.push_back({"x.destinationOrigin", [](UpsamplingProblem& p) { ++p.x.destinationOrigin; }});
  all.push_back({"y.destinationOrigin", [](UpsamplingProblem& p) { --p.y.destinationOrigin; }});
  all.push_back({"input.width", [](UpsamplingProblem& p) { --p.input.width; }});
  all.push_back({"input.height", [](UpsamplingProblem& p) { --p.input.height; }});
  return all;
}

/// Each way of sampling, from `first` to `last`, must notice each change in some case.
void expectEachFieldCounts(UpsamplingDirection direction, UpsamplingSampling first, UpsamplingSampling last,
                           const std::vector<Perturbation>& changes) {
  for (int sampling = static_cast<int>(first); sampling <= static_cast<int>(last); ++sampling) {
    std::vector<int> noticed(changes.size());
    for (const UpsamplingCase& upsampling : casesOf(direction)) {
      if (static_cast<int>(upsampling.sampling) != sampling) continue;
      const UpsamplingProblem problem =
          direction == Forward ? upsampling.forward(Float32, Float32) : upsampling.gradient(Float32, Float32);
      if (problem.input.elements() + problem.destination.elements() > 5000) continue;
      Call call(problem, Values::Random);
      call.execute(*preparePlan(upsamplingImplementationsCpu(), problem).plan);
      const std::vector<double> found = call.found();
      for (std::size_t i = 0; i < changes.size(); ++i) {
        UpsamplingProblem other = problem;
        changes[i].change(other);
        if (!compare(call.expected(other), found, Float32, Tier::Bounded, Zeros::Expected).passed())
          ++noticed[i];
      }
    }
    for (std::size_t i = 0; i < changes.size(); ++i)
      EXPECT_GT(noticed[i], 0) << "no case notices a wrong " << changes[i].field << " of sampling "
                               << sampling;
  }
}

TEST(UpsamplingSensitivity, EachFieldOfTheForwardProblemCounts) {
  expectEachFieldCounts(Forward, UpsamplingSampling::Nearest, UpsamplingSampling::BilinearHalfPixel,
                        perturbations());
}

TEST(UpsamplingSensitivity, EachFieldOfCropsAndScalesCounts) {
  expectEachFieldCounts(Forward, UpsamplingSampling::BilinearRegion, UpsamplingSampling::LanczosScale,
                        steppedPerturbations());
}

TEST(UpsamplingSensitivity, EachFieldOfTheGradientProblemCounts) {
  expectEachFieldCounts(Gradient, UpsamplingSampling::Nearest, UpsamplingSampling::BilinearHalfPixel,
                        gradientPerturbations());
}

TEST(UpsamplingSensitivity, EachFieldOfTheGradientOfScalesCounts) {
  std::vector<Perturbation> changes = gradientPerturbations();
  for (const Perturbation& stepped : steppedPerturbations())
    if (std::ranges::find(changes, std::string_view(stepped.field), &Perturbation::field) == changes.end())
      changes.push_back(stepped);
  std::erase_if(changes, [](const Perturbation& one) {
    return std::string_view(one.field).find("resultSize") != std::string_view::npos;
  });
  expectEachFieldCounts(Gradient, UpsamplingSampling::BilinearScale, UpsamplingSampling::LanczosScale,
                        changes);
}

/// The ways of sampling differ.
TEST(UpsamplingSensitivity, AnotherSamplingIsNoticed) {
  for (const UpsamplingCase& upsampling : upsamplingCases()) {
    if (upsampling.geometry.name != "Scale3") continue;
    const UpsamplingProblem problem = upsampling.forward(Float32, Float32);
    Call call(problem, Values::Random);
    call.execute(*preparePlan(upsamplingImplementationsCpu(), problem).plan);
    for (int sampling = 0; sampling < 4; ++sampling) {
      UpsamplingProblem other = problem;
      other.sampling = static_cast<UpsamplingSampling>(sampling);
      EXPECT_EQ(compare(call.expected(other), call.found(), Float32, Tier::Bounded).passed(),
                other.sampling == problem.sampling);
    }
  }
}

TEST(UpsamplingProblem, HashAndEqualitySeeEachField) {
  std::vector<Perturbation> changes = gradientPerturbations();
  for (const Perturbation& stepped : steppedPerturbations()) changes.push_back(stepped);
  changes.push_back({"direction", [](UpsamplingProblem& p) { p.direction = Forward; }});
  changes.push_back({"input", [](UpsamplingProblem& p) { p.input.format = Unorm8; }});
  changes.push_back({"destination", [](UpsamplingProblem& p) { ++p.destination.rowStride; }});
  UpsamplingProblem problem = upsamplingCases().front().gradient(Float32, Float32);
  problem.x.step = problem.y.step = 1;
  for (const Perturbation& perturbation : changes) {
    UpsamplingProblem other = problem;
    perturbation.change(other);
    EXPECT_NE(other, problem) << perturbation.field;
    EXPECT_NE(other.hash(), problem.hash()) << perturbation.field;
  }
}

}  // namespace
}  // namespace mps::detail::upsampling_plan_test
