#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "mps/arithmetic/check/arithmetic_cases.hpp"
#include "mps/arithmetic/check/arithmetic_reference.hpp"
#include "mps/conform/compare.hpp"
#include "mps/conform/guarded/guarded_memory.hpp"
#include "mps/conform/testing/test_tensor.hpp"
#include "mps/core/cpu/for_each_target.hpp"
#include "mps/core/cpu/non_temporal_stores.hpp"
#include "mtl/cpu/stream.hpp"
#include "mtl/device.hpp"

namespace mps::detail::arithmetic_plan_test {
namespace {

using enum ArithmeticOperation;
using enum ArithmeticDirection;
using enum ImageFeatureChannelFormat;

constexpr std::uint64_t kSeed = 20250311;
constexpr int kThreads = 3;
constexpr ArithmeticOperation kOperations[] = {Add, Subtract, Multiply, Divide};
constexpr ArithmeticDirection kDirections[] = {Forward, PrimaryGradient, SecondaryGradient};

std::shared_ptr<mtl::Device> testDevice() {
  static const std::shared_ptr<mtl::Device> device = mtl::newCPUDevice(kThreads);
  return device;
}

bool isUnorm(ImageFeatureChannelFormat format) {
  return format == Unorm8 || format == Unorm16;
}

std::vector<double> inputValues(const TensorShape& shape, Tier tier, std::uint64_t seed, bool isDivisor) {
  const auto count = static_cast<std::size_t>(shape.elements());
  const bool exact = tier == Tier::Exact;
  if (isUnorm(shape.format))
    return randomValues(count, seed, exact ? RandomKind::ZeroOrOne : RandomKind::Positive);
  std::vector<double> values =
      randomValues(count, seed, exact ? RandomKind::SmallIntegers : RandomKind::Uniform);
  if (isDivisor)
    for (double& value : values) value = exact ? (value < 0 ? -0.5 : 2) : value + (value < 0 ? -0.5 : 0.5);
  return values;
}

/// Bytes from the first to one past the last saved field.
std::size_t savedBytes(const ArithmeticProblem& problem) {
  const auto end = [](const TensorShape& shape, std::int64_t offset) {
    return shape.images > 0 ? extentInBytes(shape) + static_cast<std::size_t>(offset) : 0;
  };
  return std::max(end(problem.mask, problem.maskOffset), end(problem.kept, problem.keptOffset));
}

ReferenceTensor denseTensor(const TensorShape& shape, std::vector<double> values) {
  ReferenceTensor tensor(shape.images, shape.height, shape.width, shape.channels);
  tensor.values = std::move(values);
  return tensor;
}

/// Operands, what came out and what the reference says.
class Call {
 public:
  Call(const ArithmeticProblem& problem, Tier tier)
      : problem_(problem),
        tier_(tier),
        primary_(testDevice(), problem.primary, 1),
        secondary_(testDevice(), problem.secondary, 3),
        gradient_(testDevice(), problem.gradient, 2),
        destination_(testDevice(), problem.destination, 1),
        saved_(testDevice(), savedBytes(problem)) {
    primary_.write(inputValues(problem.primary, tier, kSeed, false));
    secondary_.write(inputValues(problem.secondary, tier, kSeed + 1, problem.operation == Divide));
    gradient_.write(inputValues(problem.gradient, tier, kSeed + 2, false));
    if (problem.isForward()) return;
    if (problem.hasMask())
      writeTensor(problem.mask, mask(), randomValues(count(problem.mask), kSeed + 3, RandomKind::ZeroOrOne));
    if (problem.hasKept()) {
      std::vector<double> values = inputValues(problem.kept, tier, kSeed + 4, false);
      writeTensor(problem.kept, kept(), values);
    }
    saved_.didModify();
  }

  TestTensor& primary() { return primary_; }
  TestTensor& secondary() { return secondary_; }
  TestTensor& gradient() { return gradient_; }
  TestTensor& destination() { return destination_; }

  void execute(int threads = kThreads, bool accumulate = false) {
    const ChosenPlan chosen = preparePlan(arithmeticImplementationsCpu(), problem_);
    GuardedMemory scratch(testDevice(), chosen.plan->scratchBytes());
    Operands operands;
    if (problem_.isForward()) operands.source = primary_.address();
    if (problem_.needsSecondary()) operands.secondary = secondary_.address();
    if (!problem_.isForward()) operands.gradient = gradient_.address();
    operands.destination = destination_.address();
    operands.saved = savedBytes(problem_) > 0 ? saved_.address() : nullptr;
    operands.scratch = scratch.address();
    operands.accumulate = accumulate;
    const std::vector<std::byte> before(saved_.bytes().begin(), saved_.bytes().end());
    mtl::cpu::Stream stream(threads);
    chosen.plan->run(stream, operands);
    saved_.synchronize();
    EXPECT_TRUE(primary_.isUnchanged() && secondary_.isUnchanged() && gradient_.isUnchanged())
        << "an input was written";
    EXPECT_TRUE(destination_.surroundingsIntact()) << "memory around the destination was written";
    EXPECT_TRUE(saved_.guardsIntact() && scratch.guardsIntact())
        << "memory around saved or scratch was written";
    if (!problem_.isForward()) {
      EXPECT_TRUE(std::equal(before.begin(), before.end(), saved_.bytes().begin())) << "saved was written";
    }
  }

  [[nodiscard]] ReferenceTensor expected(const ArithmeticProblem& problem) {
    if (problem.isForward()) return forward(problem).result;
    ReferenceTensor mask;
    ReferenceTensor derivative;
    if (problem.hasMask()) mask = denseTensor(problem.mask, readTensor(problem.mask, this->mask()));
    if (problem.hasKept())
      derivative = arithmeticDerivative(problem, readTensor(problem.kept, kept()), secondary_.reference());
    return arithmeticGradientReference(problem, gradient_.reference(), secondary_.reference(), mask,
                                       derivative);
  }
  [[nodiscard]] ReferenceTensor expected() { return expected(problem_); }
  [[nodiscard]] std::vector<double> found() { return destination_.read(); }
  /// Forgets the results of the last execution.
  void poison() {
    destination_.poison();
    if (!problem_.isForward()) return;
    fillWithPoison(saved_.bytes());
    saved_.didModify();
  }
  [[nodiscard]] Comparison comparison() {
    return compare(expected(), found(), problem_.destination.format, tier_, Zeros::Expected);
  }

  /// Of a gradient only the result.
  [[nodiscard]] ArithmeticReference reference() {
    return problem_.isForward() ? forward(problem_) : ArithmeticReference{expected(), {}, {}, {}};
  }
  void check() { check(reference()); }
  void check(const ArithmeticReference& reference) {
    const Comparison destination =
        compare(reference.result, found(), problem_.destination.format, tier_, Zeros::Expected);
    EXPECT_TRUE(destination.passed()) << destination.report;
    if (!problem_.isForward()) return;
    if (problem_.hasMask()) {
      const Comparison mask = compare(reference.mask, readTensor(problem_.mask, this->mask()), Unorm8,
                                      Tier::Exact, Zeros::Expected);
      EXPECT_TRUE(mask.passed()) << "mask: " << mask.report;
    }
    if (problem_.hasKept()) {
      const Comparison kept = compare(reference.kept, readTensor(problem_.kept, this->kept()),
                                      problem_.kept.format, Tier::Bounded, Zeros::Expected);
      EXPECT_TRUE(kept.passed()) << "kept: " << kept.report;
    }
  }

 private:
  static std::size_t count(const TensorShape& shape) { return static_cast<std::size_t>(shape.elements()); }
  [[nodiscard]] std::byte* mask() const { return saved_.bytes().data() + problem_.maskOffset; }
  [[nodiscard]] std::byte* kept() const { return saved_.bytes().data() + problem_.keptOffset; }
  [[nodiscard]] ArithmeticReference forward(const ArithmeticProblem& problem) {
    return arithmeticForwardReference(problem, primary_.reference(), secondary_.reference());
  }

  ArithmeticProblem problem_;
  Tier tier_;
  TestTensor primary_;
  TestTensor secondary_;
  TestTensor gradient_;
  TestTensor destination_;
  GuardedMemory saved_;
};

/// Every implementation that accepts the problem, the last one at least.
void check(const ArithmeticProblem& problem, Tier tier) {
  Call call(problem, tier);
  const ArithmeticReference reference = call.reference();
  for (const auto& implementation : arithmeticImplementationsCpu()) {
    const Preparation preparation = implementation.prepare(problem);
    const bool isRefused = std::holds_alternative<Refusal>(preparation);
    if (isRefused && implementation.name != arithmeticImplementationsCpu().back().name) continue;
    SCOPED_TRACE(problem.describe() + " " + name(tier) + " " + std::string(implementation.name));
    const ForceImplementation force(implementation.name);
    call.poison();
    call.execute();
    call.check(reference);
  }
}

struct Formats {
  ImageFeatureChannelFormat source;
  ImageFeatureChannelFormat destination;
};
constexpr Formats kFormats[] = {{Float32, Float32}, {Float16, Float16}, {Unorm8, Float32},
                                {Unorm16, Float16}, {Float32, Float16}, {Float16, Float32}};

/// All cases of one direction. With limits the values are integers, none of which is near a limit.
void checkDirection(ArithmeticDirection direction, ArithmeticOperation operation) {
  for (const Formats& formats : kFormats)
    for (const ArithmeticTensors& tensors : arithmeticTensors())
      for (const ArithmeticNumbers& numbers : arithmeticNumbers()) {
        const bool limits = numbers.hasLimits();
        ArithmeticProblem problem =
            tensors.problem(operation, direction, formats.source, formats.destination, limits);
        numbers.setIn(problem);
        if (operation != Divide || !limits) check(problem, Tier::Bounded);
        if (!isUnorm(formats.source)) check(problem, Tier::Exact);
      }
}

class ArithmeticPlan : public testing::TestWithParam<ArithmeticOperation> {};
INSTANTIATE_TEST_SUITE_P(Operations, ArithmeticPlan, testing::ValuesIn(kOperations),
                         [](const auto& test) { return std::string(name(test.param)); });

TEST_P(ArithmeticPlan, ForwardPass) {
  checkDirection(Forward, GetParam());
}
TEST_P(ArithmeticPlan, GradientOfX) {
  checkDirection(PrimaryGradient, GetParam());
}
TEST_P(ArithmeticPlan, GradientOfY) {
  checkDirection(SecondaryGradient, GetParam());
}

TEST(ArithmeticPlans, ForwardToUnorm) {
  for (const ArithmeticOperation operation : kOperations)
    for (const Formats& formats : {Formats{Float32, Unorm8}, Formats{Float16, Unorm16}})
      check(arithmeticTensors()[2].problem(operation, Forward, formats.source, formats.destination),
            Tier::Bounded);
}

TEST(ArithmeticPlans, EveryInstructionSet) {
  forEachTarget([](const std::string& target) {
    SCOPED_TRACE(target);
    for (const std::size_t i : std::initializer_list<std::size_t>{3, 5, 12, 13, 14, 17})
      for (const auto format : {Float32, Float16})
        for (const ArithmeticOperation operation : kOperations)
          for (const ArithmeticDirection direction : kDirections) {
            ArithmeticProblem problem =
                arithmeticTensors()[i].problem(operation, direction, format, format, operation != Divide);
            if (operation != Divide) arithmeticNumbers().back().setIn(problem);
            check(problem, operation == Divide ? Tier::Bounded : Tier::Exact);
          }
  });
}

constexpr ArithmeticOperation kComparisons[] = {Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual};

/// Among small integers many are equal.
TEST(ArithmeticPlans, Comparisons) {
  for (const ArithmeticOperation operation : kComparisons)
    for (const Formats& formats : kFormats)
      for (const ArithmeticTensors& tensors : arithmeticTensors())
        for (const float threshold : {0.0F, 1.0F}) {
          ArithmeticProblem problem =
              tensors.problem(operation, Forward, formats.source, formats.destination);
          problem.threshold = threshold;
          check(problem, Tier::Exact);
        }
}

TEST(ArithmeticPlans, ComparisonsOnEveryInstructionSet) {
  forEachTarget([](const std::string& target) {
    SCOPED_TRACE(target);
    for (const ArithmeticOperation operation : kComparisons)
      for (const auto format : {Float32, Float16})
        check(arithmeticTensors()[5].problem(operation, Forward, format, format), Tier::Exact);
  });
}

/// The result is written by non-temporal stores, also where an operand is a vector of channels.
TEST(ArithmeticPlans, NonTemporalStores) {
  const NonTemporalFrom always(0);
  for (const auto format : {Float32, Float16}) {
    const TensorShape pictures = TensorShape::dense(7, 32, 32, 21, format);
    for (const auto& secondary : {pictures, TensorShape::dense(7, 1, 1, 21, format)})
      for (const ArithmeticDirection direction : {Forward, PrimaryGradient}) {
        ArithmeticProblem problem;
        problem.operation = Multiply;
        problem.direction = direction;
        problem.primary = pictures;
        problem.secondary = secondary;
        if (direction != Forward) problem.gradient = pictures;
        problem.destination = pictures;
        check(problem, Tier::Exact);
      }
  }
}

TEST(ArithmeticPlans, NotANumberAndInfinity) {
  for (const ArithmeticOperation operation : kOperations)
    for (const ArithmeticDirection direction : kDirections)
      for (const std::size_t i : std::initializer_list<std::size_t>{1, 5, 12})
        for (const auto format : {Float32, Float16}) {
          const ArithmeticProblem problem =
              arithmeticTensors()[i].problem(operation, direction, format, format, direction != Forward);
          SCOPED_TRACE(problem.describe());
          Call call(problem, Tier::Bounded);
          TestTensor& input = problem.isForward() ? call.primary() : call.gradient();
          std::vector<double> values = inputValues(input.shape(), Tier::Bounded, kSeed + 7, false);
          for (std::size_t k = 0; k < values.size(); k += 9) values[k] = std::nan("");
          for (std::size_t k = 4; k < values.size(); k += 9) values[k] = k % 2 == 0 ? HUGE_VAL : -HUGE_VAL;
          input.write(values);
          call.execute();
          call.check();
        }
}

/// From the smallest to the largest numbers.
TEST(ArithmeticPlans, DivisionsOfExtremeNumbers) {
  forEachTarget([](const std::string& target) {
    SCOPED_TRACE(target);
    for (const double dividend : {1.0, 0x1p-100, 0x1p100, 0x1p-149})
      for (const double divisor : {1.0, 0x1p-70, 0x1p70, 0x1p-120, 0x1p126}) {
        ArithmeticProblem problem = arithmeticTensors()[1].problem(Divide, Forward, Float32, Float32, true);
        SCOPED_TRACE(std::to_string(dividend) + " / " + std::to_string(divisor));
        Call call(problem, Tier::Bounded);
        const auto write = [&](TestTensor& tensor, double factor, bool isDivisor) {
          std::vector<double> values = inputValues(tensor.shape(), Tier::Bounded, kSeed + 5, isDivisor);
          for (double& value : values) value *= factor;
          tensor.write(values);
        };
        write(call.primary(), dividend, false);
        write(call.secondary(), divisor, true);
        call.execute();
        call.check();
      }
  });
}

TEST(ArithmeticPlans, GradientsAccumulateIntoFloat32) {
  for (const ArithmeticTensors& tensors : arithmeticTensors())
    for (const ArithmeticDirection direction : {PrimaryGradient, SecondaryGradient}) {
      const ArithmeticProblem problem = tensors.problem(Multiply, direction, Float32, Float32);
      SCOPED_TRACE(problem.describe());
      ASSERT_TRUE(preparePlan(arithmeticImplementationsCpu(), problem).plan->canAccumulate());
      Call call(problem, Tier::Exact);
      const auto count = static_cast<std::size_t>(problem.destination.elements());
      const std::vector<double> before = randomValues(count, kSeed + 9, RandomKind::SmallIntegers);
      call.destination().write(before);
      call.execute(kThreads, true);
      ReferenceTensor expected = call.expected();
      for (std::size_t i = 0; i < count; ++i) expected.values[i] += before[i];
      const Comparison comparison = compare(expected, call.found(), Float32, Tier::Exact, Zeros::Expected);
      EXPECT_TRUE(comparison.passed()) << comparison.report;
    }
  const ArithmeticProblem half = arithmeticTensors()[1].problem(Add, PrimaryGradient, Float32, Float16);
  EXPECT_FALSE(preparePlan(arithmeticImplementationsCpu(), half).plan->canAccumulate());
  const ArithmeticProblem forward = arithmeticTensors()[1].problem(Add, Forward, Float32, Float32);
  EXPECT_FALSE(preparePlan(arithmeticImplementationsCpu(), forward).plan->canAccumulate());
}

TEST(ArithmeticPlans, InPlace) {
  for (const auto format : {Float32, Float16})
    for (const std::size_t i : std::initializer_list<std::size_t>{1, 2, 5, 12}) {
      ArithmeticProblem problem = arithmeticTensors()[i].problem(Multiply, Forward, format, format);
      problem.primary = problem.destination;
      SCOPED_TRACE(problem.describe());
      TestTensor x(testDevice(), problem.primary);
      TestTensor y(testDevice(), problem.secondary);
      x.write(inputValues(problem.primary, Tier::Exact, kSeed, false));
      y.write(inputValues(problem.secondary, Tier::Exact, kSeed + 1, false));
      const ReferenceTensor expected =
          arithmeticForwardReference(problem, x.reference(), y.reference()).result;
      Operands operands;
      operands.source = operands.destination = x.address();
      operands.secondary = y.address();
      mtl::cpu::Stream stream(kThreads);
      preparePlan(arithmeticImplementationsCpu(), problem).plan->run(stream, operands);
      const Comparison comparison = compare(expected, x.read(), format, Tier::Exact);
      EXPECT_TRUE(comparison.passed()) << comparison.report;
      EXPECT_TRUE(x.surroundingsIntact());
    }
}

TEST(ArithmeticPlans, ThreadCountDoesNotMatter) {
  for (const char* tensorsName :
       {"ManyTiles", "ManyPieces", "ManyPiecesOfColumns", "OneColumn", "OneChannel"})
    for (const ArithmeticTensors& tensors : arithmeticTensors()) {
      if (tensors.name != tensorsName) continue;
      for (const ArithmeticDirection direction : kDirections) {
        Call call(tensors.problem(Multiply, direction, Float32, Float32), Tier::Bounded);
        call.execute(1);
        const std::vector<double> one = call.found();
        for (const int threads : {2, 7}) {
          call.destination().poison();
          call.execute(threads);
          EXPECT_EQ(call.found(), one) << threads << " threads, " << tensors.name;
        }
      }
    }
}

TEST(ArithmeticPlans, Float16IsNotConvertedInMemoryWhereAllIsFloat16) {
  const auto chosen = [](ImageFeatureChannelFormat source, ImageFeatureChannelFormat destination) {
    return preparePlan(arithmeticImplementationsCpu(),
                       arithmeticTensors()[1].problem(Add, Forward, source, destination))
        .implementation;
  };
  EXPECT_EQ(chosen(Float16, Float16), "float16 tiles");
  EXPECT_EQ(chosen(Float32, Float32), "tiles");
  EXPECT_EQ(chosen(Float16, Float32), "tiles");
}

TEST(ArithmeticPlans, NoImages) {
  for (const ArithmeticDirection direction : kDirections)
    for (const std::size_t i : std::initializer_list<std::size_t>{1, 5, 9, 12}) {
      ArithmeticTensors tensors = arithmeticTensors()[i];
      tensors.images = 0;
      mtl::cpu::Stream stream(kThreads);
      const ArithmeticProblem problem = tensors.problem(Multiply, direction, Float32, Float32);
      preparePlan(arithmeticImplementationsCpu(), problem).plan->run(stream, {});
    }
}

/// A reference with one number changed must not agree: the comparison sees every field.
TEST(ArithmeticPlans, EveryNumberMatters) {
  const auto expectSeen = [](ArithmeticOperation operation, ArithmeticDirection direction, const char* what,
                             auto change) {
    const bool limits = direction == Forward && std::string(what).find("Value") != std::string::npos;
    ArithmeticProblem problem = arithmeticTensors()[5].problem(operation, direction, Float32, Float32);
    problem.primaryScale = 1.5F;
    problem.secondaryScale = -0.75F;
    problem.bias = 0.5F;
    if (limits) problem.minimumValue = -0.25F;
    if (limits) problem.maximumValue = 0.5F;
    SCOPED_TRACE(problem.describe() + ": " + what);
    Call call(problem, Tier::Bounded);
    call.execute();
    EXPECT_TRUE(call.comparison().passed());
    ArithmeticProblem changed = problem;
    change(changed);
    EXPECT_FALSE(
        compare(call.expected(changed), call.found(), Float32, Tier::Bounded, Zeros::Expected).passed());
    EXPECT_FALSE(changed == problem);
    EXPECT_NE(changed.hash(), problem.hash());
  };
  constexpr float factor = 1.0F + 0x1p-12F;
  for (const ArithmeticOperation operation : kOperations)
    for (const ArithmeticDirection direction : kDirections) {
      expectSeen(operation, direction, "primaryScale", [](auto& p) { p.primaryScale *= factor; });
      if (direction == Forward || operation == Multiply || operation == Divide)
        expectSeen(operation, direction, "secondaryScale", [](auto& p) { p.secondaryScale *= factor; });
      if (direction != Forward) continue;
      expectSeen(operation, direction, "bias", [](auto& p) { p.bias *= factor; });
      expectSeen(operation, direction, "minimumValue", [](auto& p) { p.minimumValue *= factor; });
      expectSeen(operation, direction, "maximumValue", [](auto& p) { p.maximumValue *= factor; });
    }
  expectSeen(Add, Forward, "hasReLU", [](auto& p) { p.hasReLU = true; });
  expectSeen(Equal, Forward, "threshold", [](auto& p) { p.threshold = 1; });
  expectSeen(Equal, Forward, "operation", [](auto& p) { p.operation = NotEqual; });
  expectSeen(NotEqual, Forward, "operation", [](auto& p) { p.operation = Equal; });
  expectSeen(Less, Forward, "operation", [](auto& p) { p.operation = GreaterOrEqual; });
  expectSeen(LessOrEqual, Forward, "operation", [](auto& p) { p.operation = Greater; });
  expectSeen(Add, Forward, "operation", [](auto& p) { p.operation = Subtract; });
  expectSeen(Divide, PrimaryGradient, "operation", [](auto& p) { p.operation = Multiply; });
}

}  // namespace
}  // namespace mps::detail::arithmetic_plan_test
