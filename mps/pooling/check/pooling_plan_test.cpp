#include "mps/core/cpu/for_each_target.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "mps/conform/compare.hpp"
#include "mps/conform/run_on_device.hpp"
#include "mps/conform/testing/test_tensor.hpp"
#include "mps/core/cpu/non_temporal_stores.hpp"
#include "mps/pooling/check/pooling_cases.hpp"
#include "mps/pooling/check/pooling_reference.hpp"
#include "mps/pooling/cpu/pooling_layout.hpp"
#include "mtl/back_ends.hpp"
#include "mtl/cpu/stream.hpp"
#include "mtl/device.hpp"

namespace mps::detail::pooling_plan_test {
namespace {

using enum ImageFeatureChannelFormat;

constexpr std::uint64_t kSeed = 20260611;
constexpr int kThreads = 3;
/// Divisible by the numbers of taps that windows have; gradients that are multiples of it can be divided
/// exactly.
constexpr std::int64_t kCommonMultiple = 2520;
constexpr std::int64_t kPowerOfTwo = 64;

std::shared_ptr<mtl::Device> testDevice() {
  static const std::shared_ptr<mtl::Device> device = mtl::newCPUDevice(kThreads);
  return device;
}

/// Where the operands of a call lie.
struct Place {
  std::shared_ptr<mtl::Device> device = testDevice();
  bool isAligned = false;  ///< to 16 bytes; else a few elements behind such an address
  [[nodiscard]] bool isCpu() const { return device->kind() == mtl::DeviceKind::CPU; }
};

/// The CPU and, where there is one, a GPU.
const std::vector<Place>& places() {
  static const std::vector<Place> all = [] {
    std::vector<Place> found(1);
    if (const auto gpus = mtl::cudaDevices(); !gpus.empty()) {
      found.push_back({gpus.front(), true});
      found.push_back({gpus.front(), false});
    }
    return found;
  }();
  return all;
}

/// An implementation; the CPU's with vectors once for each instruction set.
struct Entry {
  std::string_view implementation;
  std::int64_t target = 0;  ///< 0: the best one
  Place place = {};
  /// A name of a test: letters, digits and underlines.
  [[nodiscard]] std::string name() const {
    std::string text(implementation);
    std::ranges::replace(text, ' ', '_');
    if (!place.isCpu()) return std::string("cuda_") + (place.isAligned ? "aligned_" : "") + text;
    return text + (target == 0 ? "" : std::string("_") + hwy::TargetName(target));
  }
};
void PrintTo(const Entry& entry, std::ostream* stream) {
  *stream << entry.name();
}

std::vector<Entry> entriesAt(const Place& place) {
  std::vector<Entry> all;
  for (const auto& implementation : poolingBackEnds.of(*place.device)) {
    if (!place.isCpu() || implementation.name != "vectors") {
      all.push_back({implementation.name, 0, place});
      continue;
    }
    for (const std::int64_t target : vectorTargets()) all.push_back({"vectors", target, place});
  }
  return all;
}

std::vector<Entry> entries() {
  std::vector<Entry> all;
  for (const Place& place : places())
    for (const Entry& entry : entriesAt(place)) all.push_back(entry);
  return all;
}

/// The numbers that operands get.
enum class Values : std::uint8_t {
  Integers,  ///< few different ones, so that maxima tie
  Random,
  NonFinite,  ///< infinities and NaN among random ones
};

bool isUnorm(ImageFeatureChannelFormat format) {
  return format == Unorm8 || format == Unorm16;
}

std::vector<double> makeValues(std::int64_t count, Values values, ImageFeatureChannelFormat format,
                               std::uint64_t seed) {
  const auto size = static_cast<std::size_t>(count);
  if (isUnorm(format))
    return randomValues(size, seed,
                        values == Values::Integers ? RandomKind::ZeroOrOne : RandomKind::Positive);
  if (values == Values::Integers) return randomValues(size, seed, RandomKind::SmallIntegers);
  std::vector<double> result = randomValues(size, seed, RandomKind::Uniform);
  if (values != Values::NonFinite) return result;
  const std::vector<double> dice = randomValues(size, seed + 1, RandomKind::Positive);
  for (std::size_t i = 0; i < size; ++i) {
    if (dice[i] < 0.1) result[i] = std::numeric_limits<double>::quiet_NaN();
    if (dice[i] > 0.9) result[i] = dice[i] > 0.95 ? HUGE_VAL : -HUGE_VAL;
  }
  return result;
}

std::vector<std::uint32_t> readIndices(const PoolingProblem& problem, std::span<const std::byte> saved) {
  const std::size_t size = problem.indexBytes();
  std::vector<std::uint32_t> indices(saved.size() / size);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    std::uint32_t index = 0;
    std::memcpy(&index, saved.data() + i * size, size);  // little endian, as everywhere here
    indices[i] = index;
  }
  return indices;
}

void writeIndices(const PoolingProblem& problem, std::span<const std::uint32_t> indices,
                  std::span<std::byte> saved) {
  const std::size_t size = problem.indexBytes();
  for (std::size_t i = 0; i < indices.size(); ++i) std::memcpy(saved.data() + i * size, &indices[i], size);
}

/// Null when the entry refuses, which only those of a GPU do: the last one accepts everything.
std::shared_ptr<const Plan> preparedBy(const Entry& entry, const PoolingProblem& problem) {
  for (const auto& implementation : poolingBackEnds.of(*entry.place.device)) {
    if (implementation.name != entry.implementation) continue;
    const Preparation preparation = implementation.prepare(problem);
    if (const auto* plan = std::get_if<std::shared_ptr<const Plan>>(&preparation)) return *plan;
    EXPECT_TRUE(!entry.place.isCpu() && entry.implementation != "direct")
        << std::get<Refusal>(preparation).reason;
  }
  return nullptr;
}

void run(const Place& place, const Plan& plan, Operands operands, int threads = kThreads) {
  GuardedMemory scratch(place.device, plan.scratchBytes());
  operands.scratch = scratch.address();
  if (place.isCpu()) {
    mtl::cpu::Stream stream(threads);
    plan.run(stream, operands);
  } else {
    runOnDevice(place.device, "pooling", [&](mtl::Stream& stream) { plan.run(stream, operands); });
    scratch.synchronize();
  }
  EXPECT_TRUE(scratch.guardsIntact()) << "scratch memory was overrun";
}

Zeros expectedZeros(const PoolingCase& pooling) {
  const PoolingView& view = pooling.geometry.view;
  const bool seesNothing = view.originX >= pooling.geometry.x.sourceSize;
  return pooling.geometry.readsNothing || seesNothing ? Zeros::Expected : Zeros::Suspicious;
}

/// Everything of one call: operands, what came out and what the reference says.
class Call {
 public:
  Call(const PoolingProblem& problem, Values values, const Place& place = {}, std::uint64_t seed = kSeed)
      : problem_(problem),
        place_(place),
        source_(place.device, problem.source, place.isAligned ? 0 : 1),
        destination_(place.device, problem.destination, place.isAligned ? 0 : 3),
        gradient_(place.device, problem.gradient, place.isAligned ? 0 : 1),
        saved_(place.device, problem.saveIndices || problem.useIndices ? problem.savedBytes() : 0) {
    std::vector<double> source = makeValues(problem.source.elements(), values, problem.source.format, seed);
    if (problem.afterReLU && values == Values::Integers)  // zeros of both signs tie
      for (double& value : source)
        if (value < 0) value = -0.0;
    source_.write(source);
    if (problem.direction == PoolingDirection::Forward) return;
    std::vector<double> gradient =
        makeValues(problem.gradient.elements(), values, problem.gradient.format, seed + 7);
    if (problem.traits().countsTaps && values == Values::Integers && !isUnorm(problem.gradient.format))
      for (double& g : gradient) g *= kCommonMultiple;
    gradient_.write(gradient);
    if (problem.useIndices) {
      writeIndices(problem, poolingIndicesReference(problem, source_.reference()), saved_.bytes());
      savedBefore_.assign(saved_.bytes().begin(), saved_.bytes().end());
      saved_.didModify();
    }
  }

  /// Operands that the problem says are not read stay null.
  void execute(const Plan& plan, int threads = kThreads, bool accumulate = false) {
    Operands operands;
    operands.source = problem_.readsSource() ? source_.address() : nullptr;
    operands.gradient = problem_.direction == PoolingDirection::Gradient ? gradient_.address() : nullptr;
    operands.destination = destination_.address();
    operands.saved = problem_.saveIndices || problem_.useIndices ? saved_.address() : nullptr;
    operands.accumulate = accumulate;
    run(place_, plan, operands, threads);
    saved_.synchronize();
    EXPECT_TRUE(source_.isUnchanged()) << "the source was written";
    EXPECT_TRUE(gradient_.isUnchanged()) << "the incoming gradient was written";
    EXPECT_TRUE(destination_.surroundingsIntact()) << "memory around the destination was written";
    EXPECT_TRUE(saved_.guardsIntact()) << "the saved indices were overrun";
    EXPECT_TRUE(!problem_.useIndices || std::ranges::equal(saved_.bytes(), savedBefore_));
  }

  /// What the reference gives for these operands and possibly another problem.
  [[nodiscard]] ReferenceTensor expected(const PoolingProblem& problem) const {
    return problem.direction == PoolingDirection::Forward
               ? poolingForwardReference(problem, source_.reference())
               : poolingGradientReference(problem, source_.reference(), gradient_.reference());
  }
  [[nodiscard]] ReferenceTensor expected() const { return expected(problem_); }

  /// Forgets the results of the last execution.
  void poison() {
    destination_.poison();
    if (!problem_.saveIndices) return;
    fillWithPoison(saved_.bytes());
    saved_.didModify();
  }
  TestTensor& destination() { return destination_; }
  [[nodiscard]] std::vector<double> found() { return destination_.read(); }
  [[nodiscard]] std::vector<std::uint32_t> foundIndices() const {
    return readIndices(problem_, saved_.bytes());
  }
  [[nodiscard]] std::vector<std::uint32_t> expectedIndices() const {
    return poolingIndicesReference(problem_, source_.reference());
  }

 private:
  PoolingProblem problem_;
  Place place_;
  TestTensor source_;
  TestTensor destination_;
  TestTensor gradient_;
  GuardedMemory saved_;
  std::vector<std::byte> savedBefore_;
};

/// Whether integers give results without rounding.
Tier tierOf(const PoolingProblem& problem, Values values) {
  if (values != Values::Integers || isUnorm(problem.destination.format)) return Tier::Bounded;
  return isExactForIntegers(problem, kCommonMultiple * kPowerOfTwo) ? Tier::Exact : Tier::Bounded;
}

struct Formats {
  ImageFeatureChannelFormat source;
  ImageFeatureChannelFormat result;
};

/// Makes the vectors of an instruction set be used while it lives.
class WithTarget {
 public:
  explicit WithTarget(const Entry& entry) { hwy::SetSupportedTargetsForTest(entry.target); }
  ~WithTarget() { hwy::SetSupportedTargetsForTest(0); }
  WithTarget(const WithTarget&) = delete;
  WithTarget& operator=(const WithTarget&) = delete;
};

/// Every entry, forced in turn, against the reference.
void checkEntries(const PoolingCase& pooling, const PoolingProblem& problem, Values values) {
  SCOPED_TRACE(pooling.name + ": " + problem.describe());
  for (const Place& place : places()) {
    Call call(problem, values, place);
    const ReferenceTensor expected = call.expected();
    const std::vector<std::uint32_t> indices =
        problem.saveIndices ? call.expectedIndices() : std::vector<std::uint32_t>();
    for (const Entry& entry : entriesAt(place)) {
      SCOPED_TRACE(entry.name());
      const WithTarget target(entry);
      const auto plan = preparedBy(entry, problem);
      if (!plan) continue;
      call.poison();
      call.execute(*plan);
      const Comparison comparison = compare(expected, call.found(), problem.destination.format,
                                            tierOf(problem, values), expectedZeros(pooling));
      EXPECT_TRUE(comparison.passed()) << comparison.report;
      EXPECT_TRUE(!problem.saveIndices || call.foundIndices() == indices) << "other indices were saved";
    }
  }
}

/// What a test goes through the case table with.
struct Pass {
  PoolingDirection direction;
  Values values;
  Formats formats;
  [[nodiscard]] std::string name() const {
    constexpr std::array<const char*, 3> words{"Integers", "Random", "NonFinite"};
    return std::string(direction == PoolingDirection::Forward ? "Forward" : "Gradient") +
           words[static_cast<std::size_t>(values)] + "_" + mps::name(formats.source) + "_" +
           mps::name(formats.result);
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
  for (const PoolingDirection direction : {PoolingDirection::Forward, PoolingDirection::Gradient}) {
    for (const Formats& pair : formats) {
      all.push_back({direction, Values::Integers, pair});
      all.push_back({direction, Values::Random, pair});
      if (!isUnorm(pair.source)) all.push_back({direction, Values::NonFinite, pair});
    }
  }
  for (const Formats& pair : toUnorm) all.push_back({PoolingDirection::Forward, Values::Random, pair});
  return all;
}

class PoolingTable : public testing::TestWithParam<Pass> {};

TEST_P(PoolingTable, AgreesWithTheReference) {
  const Pass& pass = GetParam();
  for (const PoolingCase& pooling : poolingCases()) {
    const bool selects = traitsOf(pooling.kind).selects;
    for (const bool indices : {false, true}) {
      if (indices && !selects) continue;
      const PoolingProblem problem =
          pass.direction == PoolingDirection::Forward
              ? pooling.forward(pass.formats.source, pass.formats.result, indices)
              : pooling.gradient(pass.formats.source, pass.formats.result, indices);
      checkEntries(pooling, problem, pass.values);
      const bool findsPlaces = selects && indices == (pass.direction == PoolingDirection::Forward);
      if (findsPlaces) checkEntries(pooling, PoolingCase::afterReLU(problem), pass.values);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Passes, PoolingTable, testing::ValuesIn(passes()),
                         [](const auto& info) { return info.param.name(); });

/// What the table does not show; each test runs once for each entry.
class PoolingPlan : public testing::TestWithParam<Entry> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam().target); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

/// The gradient adds to what the destination holds.
TEST_P(PoolingPlan, Accumulates) {
  for (const PoolingCase& pooling : poolingCases()) {
    const PoolingProblem problem = pooling.gradient(Float32, Float32, traitsOf(pooling.kind).selects);
    if (tierOf(problem, Values::Integers) != Tier::Exact) continue;
    SCOPED_TRACE(pooling.name);
    const auto plan = preparedBy(GetParam(), problem);
    if (!plan) continue;
    ASSERT_TRUE(plan->canAccumulate());
    Call call(problem, Values::Integers, GetParam().place);
    const std::vector<double> before =
        makeValues(problem.destination.elements(), Values::Integers, Float32, kSeed + 100);
    call.destination().write(before);
    call.execute(*plan, kThreads, true);
    ReferenceTensor expected = call.expected();
    for (std::size_t i = 0; i < before.size(); ++i) expected.values[i] += before[i];
    const Comparison comparison = compare(expected, call.found(), Float32, Tier::Exact);
    EXPECT_TRUE(comparison.passed()) << comparison.report;
  }
}

TEST_P(PoolingPlan, OnlyFloat32GradientsAccumulate) {
  const auto cases = poolingCases();
  int accepted = 0;
  for (const std::string_view name : {"WholeImageAverageZero", "Kernel3x3Stride2AverageZero"}) {
    const auto pooling = std::ranges::find(cases, name, &PoolingCase::name);
    ASSERT_NE(pooling, cases.end()) << name;
    for (const PoolingProblem& problem :
         {pooling->forward(Float32, Float32), pooling->gradient(Float16, Float16)})
      if (const auto plan = preparedBy(GetParam(), problem)) {
        ++accepted;
        EXPECT_FALSE(plan->canAccumulate()) << problem.describe();
      }
  }
  EXPECT_GE(accepted, 2);
}

/// The same bits whatever the number of threads.
TEST_P(PoolingPlan, ThreadCountDoesNotMatter) {
  for (const PoolingCase& pooling : poolingCases()) {
    if (!pooling.geometry.name.starts_with("Threads")) continue;
    for (const PoolingProblem& problem :
         {pooling.forward(Float32, Float32), pooling.gradient(Float32, Float32)}) {
      SCOPED_TRACE(problem.describe());
      const auto plan = preparedBy(GetParam(), problem);
      if (!plan) continue;
      Call call(problem, Values::Random, GetParam().place);
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

TEST_P(PoolingPlan, WithoutWindowsTheGradientIsZero) {
  for (PoolingCase pooling : poolingCases()) {
    if (pooling.geometry.name != "Kernel3x3Stride2") continue;
    pooling.geometry.y.destinationSize = 0;
    pooling.geometry.x.destinationSize = 0;
    const PoolingProblem problem = pooling.gradient(Float32, Float32);
    SCOPED_TRACE(problem.describe());
    const auto plan = preparedBy(GetParam(), problem);
    if (!plan) continue;
    Call call(problem, Values::Random, GetParam().place);
    call.execute(*plan);
    for (const double value : call.found()) ASSERT_EQ(value, 0);
  }
}

TEST_P(PoolingPlan, WithoutImagesNothingHappens) {
  for (PoolingCase pooling : poolingCases()) {
    if (pooling.geometry.name != "Kernel3x3Stride2") continue;
    pooling.geometry.images = 0;
    for (const PoolingProblem& problem :
         {pooling.forward(Float32, Float32), pooling.gradient(Float32, Float32)}) {
      const auto plan = preparedBy(GetParam(), problem);
      if (!plan) continue;
      Call call(problem, Values::Random, GetParam().place);
      call.execute(*plan);
      EXPECT_TRUE(call.found().empty());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Entries, PoolingPlan, testing::ValuesIn(entries()),
                         [](const auto& info) { return info.param.name(); });

/// Entries of one place, for a call that is written by non-temporal stores.
void checkNonTemporal(const PoolingProblem& problem, const std::vector<Entry>& some) {
  SCOPED_TRACE(problem.describe());
  ASSERT_TRUE(usesNonTemporalStoresForRows(1, problem.destination));
  Call call(problem, Values::Integers, some.front().place);
  const ReferenceTensor expected = call.expected();
  const std::vector<std::uint32_t> indices =
      problem.saveIndices ? call.expectedIndices() : std::vector<std::uint32_t>();
  for (const Entry& entry : some) {
    SCOPED_TRACE(entry.name());
    const WithTarget target(entry);
    call.poison();
    call.execute(*preparedBy(entry, problem));
    const Comparison comparison = compare(expected, call.found(), problem.destination.format, Tier::Exact);
    EXPECT_TRUE(comparison.passed()) << comparison.report;
    EXPECT_TRUE(!problem.saveIndices || call.foundIndices() == indices);
  }
}

/// Forward with indices, then the gradient with them and without, by non-temporal stores; on GPUs in memory that no
/// cache holds. Each instruction set stores float16 so in another way.
TEST(PoolingPlanChoice, NonTemporalStores) {
  const NonTemporalFrom always(0);
  for (const Place& place : places()) {
    if (!place.isCpu() && !place.isAligned) continue;
    const std::vector<Entry> best{{place.isCpu() ? "vectors" : "thread per window", 0, place}};
    const std::int64_t pixels = place.isCpu() ? 32 : 256;
    checkNonTemporal(wholeLinesPoolingCase(3, pixels).forward(Float32, Float32, true), best);
    checkNonTemporal(wholeLinesPoolingCase(2, pixels).gradient(Float32, Float32, true), best);
    checkNonTemporal(wholeLinesPoolingCase(2, pixels).gradient(Float32, Float32, false), best);
  }
  std::vector<Entry> vectors = entriesAt({});
  std::erase_if(vectors, [](const Entry& entry) { return entry.implementation != "vectors"; });
  checkNonTemporal(wholeLinesPoolingCase(6, 32).forward(Float16, Float16), vectors);
}

TEST(PoolingPlanChoice, VectorsComeFirst) {
  for (const PoolingCase& pooling : poolingCases()) {
    EXPECT_EQ(preparePlan(poolingImplementationsCpu(), pooling.forward(Float16, Unorm8)).implementation,
              "vectors");
    EXPECT_EQ(preparePlan(poolingImplementationsCpu(), pooling.gradient(Unorm8, Float32)).implementation,
              "vectors");
  }
}

TEST(PoolingPlanChoice, WindowsThatNeedTooMuchMemoryAreRefused) {
  PoolingCase pooling = poolingCases().front();
  pooling.geometry.x = {.sourceSize = 8, .destinationSize = 4, .kernelSize = 1 << 18, .stride = 2};
  const PoolingProblem problem = pooling.forward(Float32, Float32);
  const Preparation preparation = poolingImplementationsCpu().front().prepare(problem);
  ASSERT_TRUE(std::holds_alternative<Refusal>(preparation));
  EXPECT_NE(std::get<Refusal>(preparation).reason.find("bytes of working memory"), std::string::npos);
  EXPECT_EQ(preparePlan(poolingImplementationsCpu(), problem).implementation, "direct");
}

// Can these tests fail? A kernel that overlooks a field computes what the reference computes for another
// value. -------

struct Perturbation {
  const char* field;
  std::function<void(PoolingProblem&)> change;
};

std::vector<Perturbation> perturbations() {
  return {
      {"kind",
       [](PoolingProblem& p) {
         p.kind = p.kind == PoolingKind::Max ? PoolingKind::Average : PoolingKind::Max;
       }},
      {"edgeMode",
       [](PoolingProblem& p) {
         p.edgeMode = p.edgeMode == ImageEdgeMode::Zero ? ImageEdgeMode::Clamp : ImageEdgeMode::Zero;
       }},
      {"zeroPadSizeX", [](PoolingProblem& p) { ++p.zeroPadSizeX; }},
      {"zeroPadSizeY", [](PoolingProblem& p) { ++p.zeroPadSizeY; }},
      {"x.sourceSize", [](PoolingProblem& p) { p.x.sourceSize -= p.x.sourceSize > 1 ? 1 : 0; }},
      {"y.sourceSize", [](PoolingProblem& p) { p.y.sourceSize -= p.y.sourceSize > 1 ? 1 : 0; }},
      {"x.kernelSize", [](PoolingProblem& p) { ++p.x.kernelSize; }},
      {"y.kernelSize", [](PoolingProblem& p) { ++p.y.kernelSize; }},
      {"x.stride", [](PoolingProblem& p) { ++p.x.stride; }},
      {"y.stride", [](PoolingProblem& p) { ++p.y.stride; }},
      {"x.dilation", [](PoolingProblem& p) { ++p.x.dilation; }},
      {"y.dilation", [](PoolingProblem& p) { ++p.y.dilation; }},
      {"x.offset", [](PoolingProblem& p) { ++p.x.offset; }},
      {"y.offset", [](PoolingProblem& p) { --p.y.offset; }},
  };
}

std::vector<Perturbation> gradientPerturbations() {
  std::vector<Perturbation> all = perturbations();
  all.push_back({"destinationOriginX", [](PoolingProblem& p) { ++p.destinationOriginX; }});
  all.push_back({"destinationOriginY", [](PoolingProblem& p) { --p.destinationOriginY; }});
  all.push_back({"x.destinationSize", [](PoolingProblem& p) { --p.x.destinationSize; }});
  all.push_back({"y.destinationSize", [](PoolingProblem& p) { --p.y.destinationSize; }});
  all.push_back({"afterReLU", [](PoolingProblem& p) { p.afterReLU = !p.afterReLU; }});
  return all;
}

void expectEachFieldCounts(PoolingDirection direction, const std::vector<Perturbation>& changes) {
  std::vector<int> noticed(changes.size());
  for (const PoolingCase& pooling : poolingCases()) {
    const PoolingProblem problem = direction == PoolingDirection::Forward
                                       ? pooling.forward(Float32, Float32)
                                       : pooling.gradient(Float32, Float32);
    if (problem.source.elements() > 5000 || problem.taps() > 300) continue;
    Call call(problem, Values::Random);
    call.execute(*preparePlan(poolingImplementationsCpu(), problem).plan);
    const std::vector<double> found = call.found();
    for (std::size_t i = 0; i < changes.size(); ++i) {
      PoolingProblem other = problem;
      changes[i].change(other);
      if (!compare(call.expected(other), found, Float32, Tier::Bounded, Zeros::Expected).passed())
        ++noticed[i];
    }
  }
  for (std::size_t i = 0; i < changes.size(); ++i)
    EXPECT_GT(noticed[i], 0) << "no case notices a wrong " << changes[i].field;
}

TEST(PoolingSensitivity, EachFieldOfTheForwardProblemCounts) {
  expectEachFieldCounts(PoolingDirection::Forward, perturbations());
}

TEST(PoolingSensitivity, EachFieldOfTheGradientProblemCounts) {
  expectEachFieldCounts(PoolingDirection::Gradient, gradientPerturbations());
}

TEST(PoolingProblem, HashAndEqualitySeeEachField) {
  std::vector<Perturbation> changes = gradientPerturbations();
  changes.push_back({"direction", [](PoolingProblem& p) { p.direction = PoolingDirection::Forward; }});
  changes.push_back({"source", [](PoolingProblem& p) { p.source.format = Unorm8; }});
  changes.push_back({"destination", [](PoolingProblem& p) { ++p.destination.rowStride; }});
  changes.push_back({"gradient", [](PoolingProblem& p) { ++p.gradient.imageStride; }});
  changes.push_back({"saveIndices", [](PoolingProblem& p) { p.saveIndices = !p.saveIndices; }});
  changes.push_back({"useIndices", [](PoolingProblem& p) { p.useIndices = !p.useIndices; }});
  const PoolingProblem problem = poolingCases().front().gradient(Float32, Float32);
  for (const Perturbation& perturbation : changes) {
    PoolingProblem other = problem;
    perturbation.change(other);
    EXPECT_NE(other, problem) << perturbation.field;
    EXPECT_NE(other.hash(), problem.hash()) << perturbation.field;
  }
}

TEST(PoolingProblem, D14IndexWidthFollowsTheNumberOfTaps) {
  PoolingProblem problem;
  problem.x.kernelSize = 15;
  problem.y.kernelSize = 17;
  EXPECT_EQ(problem.indexBytes(), 1U);
  EXPECT_EQ(problem.noIndex(), 255U);
  problem.x.kernelSize = 16;
  EXPECT_EQ(problem.indexBytes(), 2U);
  EXPECT_EQ(problem.noIndex(), 65535U);
  problem.y.kernelSize = 4096;
  EXPECT_EQ(problem.indexBytes(), 4U);
  EXPECT_EQ(problem.noIndex(), 0xFFFFFFFFU);
}

}  // namespace
}  // namespace mps::detail::pooling_plan_test
