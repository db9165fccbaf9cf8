#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "mps/conform/compare.hpp"
#include "mps/conform/testing/test_tensor.hpp"
#include "mps/core/cpu/for_each_target.hpp"
#include "mps/core/cpu/tile_io.hpp"
#include "mps/softmax/check/softmax_cases.hpp"
#include "mps/softmax/check/softmax_reference.hpp"
#include "mtl/cpu/stream.hpp"
#include "mtl/device.hpp"

namespace mps::detail::softmax_plan_test {
namespace {

using enum ImageFeatureChannelFormat;
using enum SoftMaxDirection;

constexpr std::uint64_t kSeed = 20250919;
constexpr int kThreads = 3;
constexpr SoftMaxKind kKinds[] = {SoftMaxKind::SoftMax, SoftMaxKind::LogSoftMax};
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::shared_ptr<mtl::Device> testDevice() {
  static const std::shared_ptr<mtl::Device> device = mtl::newCPUDevice(kThreads);
  return device;
}

bool isUnorm(ImageFeatureChannelFormat format) {
  return format == Unorm8 || format == Unorm16;
}

/// The numbers that operands get.
enum class Values : std::uint8_t {
  Moderate,  ///< x in -6 ... 6, results of such x
  Extreme,   ///< x in -300 ... 300: results down to 0 and below -88
  /// Gradients without rounding: SoftMax with small integers as results, LogSoftMax with results of 0.
  Integers,
};

std::vector<double> inputValues(const SoftMaxProblem& problem, Values values) {
  const auto count = static_cast<std::size_t>(problem.input.elements());
  if (values == Values::Integers)
    return problem.kind == SoftMaxKind::SoftMax ? randomValues(count, kSeed, RandomKind::SmallIntegers)
                                                : std::vector<double>(count);
  if (isUnorm(problem.input.format)) return randomValues(count, kSeed, RandomKind::Positive);
  std::vector<double> x = randomValues(count, kSeed, RandomKind::Uniform);
  for (double& value : x) value *= values == Values::Extreme ? 300 : 6;
  return x;
}

class Call {
 public:
  Call(const SoftMaxProblem& problem, Values values)
      : problem_(problem),
        input_(testDevice(), problem.input, 1),
        gradient_(testDevice(), problem.gradient, 3),
        destination_(testDevice(), problem.destination, 2) {
    input_.write(inputValues(problem, values));
    if (problem.direction == Forward) return;
    if (values != Values::Integers) input_.write(softMaxForwardReference(problem, input_.reference()).values);
    const RandomKind kind = values == Values::Integers ? RandomKind::SmallIntegers : RandomKind::Uniform;
    gradient_.write(randomValues(static_cast<std::size_t>(problem.gradient.elements()), kSeed + 1,
                                 isUnorm(problem.gradient.format) ? RandomKind::Positive : kind));
  }

  TestTensor& input() { return input_; }
  TestTensor& gradient() { return gradient_; }
  TestTensor& destination() { return destination_; }

  void execute(const Plan& plan, int threads = kThreads, bool accumulate = false) {
    EXPECT_EQ(plan.scratchBytes(), 0U);
    Operands operands;
    (problem_.direction == Forward ? operands.source : operands.secondary) = input_.address();
    operands.gradient = problem_.direction == Forward ? nullptr : gradient_.address();
    operands.destination = destination_.address();
    operands.accumulate = accumulate;
    mtl::cpu::Stream stream(threads);
    plan.run(stream, operands);
    EXPECT_TRUE(input_.isUnchanged()) << "the input was written";
    EXPECT_TRUE(gradient_.isUnchanged()) << "the incoming gradient was written";
    EXPECT_TRUE(destination_.surroundingsIntact()) << "memory around the destination was written";
  }

  [[nodiscard]] ReferenceTensor expected(const SoftMaxProblem& problem) const {
    return problem.direction == Forward
               ? softMaxForwardReference(problem, input_.reference())
               : softMaxGradientReference(problem, input_.reference(), gradient_.reference());
  }
  [[nodiscard]] ReferenceTensor expected() const { return expected(problem_); }
  [[nodiscard]] std::vector<double> found() { return destination_.read(); }

 private:
  SoftMaxProblem problem_;
  TestTensor input_;
  TestTensor gradient_;
  TestTensor destination_;
};

/// The plan of an implementation; null when it refuses.
std::shared_ptr<const Plan> prepared(const Implementation<SoftMaxProblem>& implementation,
                                     const SoftMaxProblem& problem) {
  Preparation preparation = implementation.prepare(problem);
  auto* plan = std::get_if<std::shared_ptr<const Plan>>(&preparation);
  return plan ? *plan : nullptr;
}

/// Every implementation that accepts the problem.
void check(const SoftMaxProblem& problem, Values values) {
  int accepted = 0;
  for (const auto& implementation : softMaxImplementationsCpu()) {
    const auto plan = prepared(implementation, problem);
    if (!plan) continue;
    ++accepted;
    SCOPED_TRACE(std::string(implementation.name) + ": " + problem.describe());
    Call call(problem, values);
    call.execute(*plan);
    const Tier tier = values == Values::Integers ? Tier::Exact : Tier::Bounded;
    const Comparison comparison =
        compare(call.expected(), call.found(), problem.destination.format, tier, Zeros::Expected);
    EXPECT_TRUE(comparison.passed()) << comparison.report;
  }
  EXPECT_GE(accepted, 1);
}

struct Formats {
  ImageFeatureChannelFormat input;
  ImageFeatureChannelFormat destination;
};
constexpr Formats kFormats[] = {{Float32, Float32}, {Float16, Float16}, {Unorm8, Float32},
                                {Unorm16, Float16}, {Float32, Float16}, {Float16, Float32}};

TEST(SoftMaxPlan, Forward) {
  for (const Formats& formats : kFormats)
    for (const SoftMaxCase& item : softMaxCases())
      for (const SoftMaxKind kind : kKinds)
        for (const Values values : {Values::Moderate, Values::Extreme})
          check(item.problem(kind, Forward, formats.input, formats.destination), values);
}

TEST(SoftMaxPlan, ForwardToUnorm) {
  for (const Formats& formats :
       {Formats{Float32, Unorm8}, Formats{Float16, Unorm16}, Formats{Unorm8, Unorm8}})
    for (const SoftMaxCase& item : softMaxCases())
      for (const SoftMaxKind kind : kKinds)
        check(item.problem(kind, Forward, formats.input, formats.destination), Values::Moderate);
}

TEST(SoftMaxPlan, Gradient) {
  for (const Formats& formats : kFormats)
    for (const SoftMaxCase& item : softMaxCases())
      for (const SoftMaxKind kind : kKinds)
        for (const Values values : {Values::Moderate, Values::Extreme})
          check(item.problem(kind, Gradient, formats.input, formats.destination), values);
}

TEST(SoftMaxPlan, GradientExact) {
  for (const Formats& formats :
       {Formats{Float32, Float32}, Formats{Float16, Float32}, Formats{Float32, Float16}})
    for (const SoftMaxCase& item : softMaxCases())
      for (const SoftMaxKind kind : kKinds)
        check(item.problem(kind, Gradient, formats.input, formats.destination), Values::Integers);
}

TEST(SoftMaxPlan, EveryInstructionSet) {
  forEachTarget([](const std::string& target) {
    SCOPED_TRACE(target);
    for (const SoftMaxCase& item : softMaxCases())
      for (const SoftMaxKind kind : kKinds)
        for (const SoftMaxDirection direction : {Forward, Gradient})
          for (const auto format : {Float32, Float16})
            check(item.problem(kind, direction, format, format), Values::Moderate);
  });
}

/// Each pixel has another kind of accident; the others stay as they are.
TEST(SoftMaxPlan, NotANumberAndInfinity) {
  forEachTarget([](const std::string& target) {
    for (const SoftMaxCase& item : softMaxCases())
      for (const SoftMaxKind kind : kKinds)
        for (const auto& implementation : softMaxImplementationsCpu()) {
          if (item.repeatsImages) continue;
          const SoftMaxProblem problem = item.problem(kind, Forward, Float32, Float32);
          const auto plan = prepared(implementation, problem);
          if (!plan) continue;
          SCOPED_TRACE(target + " " + std::string(implementation.name) + ": " + problem.describe());
          Call call(problem, Values::Moderate);
          std::vector<double> x = inputValues(problem, Values::Moderate);
          const auto channels = static_cast<std::size_t>(item.channels);
          for (std::size_t p = 0; p * channels < x.size(); ++p) {
            double* values = x.data() + p * channels;
            switch (p % 6) {
              case 0:
                std::fill_n(values, channels, -kInfinity);
                break;
              case 1:
                values[channels / 2] = kInfinity;
                break;
              case 2:
                values[channels - 1] = std::nan("");
                break;
              case 3:
                values[0] = -kInfinity;
                break;
              default:
                break;
            }
          }
          call.input().write(x);
          call.execute(*plan);
          const Comparison comparison =
              compare(call.expected(), call.found(), Float32, Tier::Bounded, Zeros::Expected);
          EXPECT_TRUE(comparison.passed()) << comparison.report;
        }
  });
}

TEST(SoftMaxPlan, NotANumberInTheGradient) {
  const SoftMaxCase item{.name = "", .images = 2, .height = 3, .width = 3, .channels = 21};
  for (const SoftMaxKind kind : kKinds)
    for (const auto& implementation : softMaxImplementationsCpu()) {
      const SoftMaxProblem problem = item.problem(kind, Gradient, Float32, Float32);
      Call call(problem, Values::Moderate);
      std::vector<double> dy =
          randomValues(static_cast<std::size_t>(problem.gradient.elements()), 1, RandomKind::Uniform);
      dy[5] = std::nan("");
      dy[30] = kInfinity;
      call.gradient().write(dy);
      call.execute(*prepared(implementation, problem));
      const Comparison comparison = compare(call.expected(), call.found(), Float32, Tier::Bounded);
      EXPECT_TRUE(comparison.passed()) << comparison.report;
    }
}

TEST(SoftMaxPlan, OnlyTheLastImplementationTakesMoreChannelsThanATile) {
  const SoftMaxCase item{.name = "", .channels = Tiling::capacity + 1};
  const SoftMaxProblem problem = item.problem(SoftMaxKind::SoftMax, Forward, Float32, Float32);
  EXPECT_EQ(prepared(softMaxImplementationsCpu()[0], problem), nullptr);
  EXPECT_EQ(preparePlan(softMaxImplementationsCpu(), problem).implementation, "parts of a pixel");
  const SoftMaxCase smaller{.name = "", .channels = Tiling::capacity};
  EXPECT_EQ(preparePlan(softMaxImplementationsCpu(),
                        smaller.problem(SoftMaxKind::SoftMax, Forward, Float32, Float32))
                .implementation,
            "tiles of pixels");
}

TEST(SoftMaxPlan, Accumulates) {
  for (const SoftMaxCase& item : softMaxCases())
    for (const SoftMaxKind kind : kKinds)
      for (const auto& implementation : softMaxImplementationsCpu()) {
        const SoftMaxProblem problem = item.problem(kind, Gradient, Float32, Float32);
        const auto plan = prepared(implementation, problem);
        if (!plan) continue;
        SCOPED_TRACE(std::string(implementation.name) + ": " + problem.describe());
        ASSERT_TRUE(plan->canAccumulate());
        Call call(problem, Values::Integers);
        const auto count = static_cast<std::size_t>(problem.destination.elements());
        const std::vector<double> before = randomValues(count, kSeed + 9, RandomKind::SmallIntegers);
        call.destination().write(before);
        call.execute(*plan, kThreads, true);
        ReferenceTensor expected = call.expected();
        for (std::size_t i = 0; i < count; ++i) expected.values[i] += before[i];
        const Comparison comparison = compare(expected, call.found(), Float32, Tier::Exact, Zeros::Expected);
        EXPECT_TRUE(comparison.passed()) << comparison.report;
      }
}

TEST(SoftMaxPlan, OnlyFloat32GradientsAccumulate) {
  const SoftMaxCase item{.name = "", .channels = 10};
  for (const auto& implementation : softMaxImplementationsCpu()) {
    const auto canAccumulate = [&](SoftMaxDirection direction, ImageFeatureChannelFormat format) {
      return prepared(implementation, item.problem(SoftMaxKind::SoftMax, direction, Float32, format))
          ->canAccumulate();
    };
    EXPECT_TRUE(canAccumulate(Gradient, Float32));
    EXPECT_FALSE(canAccumulate(Gradient, Float16));
    EXPECT_FALSE(canAccumulate(Forward, Float32));
  }
}

TEST(SoftMaxPlan, InPlace) {
  for (const auto format : {Float32, Float16})
    for (const SoftMaxCase& item : softMaxCases())
      for (const SoftMaxKind kind : kKinds)
        for (const auto& implementation : softMaxImplementationsCpu()) {
          if (item.repeatsImages) continue;
          SoftMaxProblem problem = item.problem(kind, Forward, format, format);
          problem.input = problem.destination;
          const auto plan = prepared(implementation, problem);
          if (!plan) continue;
          SCOPED_TRACE(std::string(implementation.name) + ": " + problem.describe());
          TestTensor tensor(testDevice(), problem.input);
          tensor.write(inputValues(problem, Values::Moderate));
          const ReferenceTensor expected = softMaxForwardReference(problem, tensor.reference());
          Operands operands;
          operands.source = operands.destination = tensor.address();
          mtl::cpu::Stream stream(kThreads);
          plan->run(stream, operands);
          const Comparison comparison =
              compare(expected, tensor.read(), format, Tier::Bounded, Zeros::Expected);
          EXPECT_TRUE(comparison.passed()) << comparison.report;
          EXPECT_TRUE(tensor.surroundingsIntact());
        }
}

TEST(SoftMaxPlan, ThreadCountDoesNotMatter) {
  for (const SoftMaxCase& item : softMaxCases()) {
    if (item.name != "ManyTiles" && item.name != "SeveralTiles") continue;
    for (const auto format : {Float32, Float16})
      for (const SoftMaxKind kind : kKinds)
        for (const SoftMaxDirection direction : {Forward, Gradient}) {
          const SoftMaxProblem problem = item.problem(kind, direction, format, format);
          const auto plan = preparePlan(softMaxImplementationsCpu(), problem).plan;
          Call call(problem, Values::Moderate);
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

/// Some pixels far from others and from 0, whose results need a shift, among those that need none.
std::vector<double> mixedValues(const SoftMaxProblem& problem) {
  std::vector<double> x = inputValues(problem, Values::Moderate);
  if (isUnorm(problem.input.format) || problem.direction == Gradient) return x;
  const auto channels = static_cast<std::size_t>(problem.input.channels);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t pixel = i / channels;
    if (pixel % 5 == 2) x[i] += 40;
    if (pixel % 7 == 3) x[i] *= 20;
  }
  return x;
}

/// Compares pixels of a call's result, several of each tile, with what each gives alone, bit for bit.
void checkPixelsAlone(const SoftMaxProblem& problem, Call& all) {
  SoftMaxProblem one = problem;
  for (TensorShape SoftMaxProblem::*shape :
       {&SoftMaxProblem::input, &SoftMaxProblem::gradient, &SoftMaxProblem::destination})
    one.*shape = TensorShape::dense(1, 1, 1, problem.destination.channels, (problem.*shape).format);
  const auto plan = preparePlan(softMaxImplementationsCpu(), one).plan;
  Call call(one, Values::Moderate);
  const std::vector<double> inputs = all.input().read();
  const std::vector<double> gradients =
      problem.direction == Gradient ? all.gradient().read() : std::vector<double>();
  const std::vector<double> results = all.found();
  const auto pixelOf = [&](const std::vector<double>& values, std::int64_t pixel) {
    const auto first = values.begin() + pixel * problem.destination.channels;
    return std::vector<double>(first, first + problem.destination.channels);
  };
  const std::int64_t step = 1 + problem.destination.pixels() / 30;
  for (std::int64_t pixel = 0; pixel < problem.destination.pixels(); pixel += step) {
    call.input().write(pixelOf(inputs, pixel));
    if (problem.direction == Gradient) call.gradient().write(pixelOf(gradients, pixel));
    call.execute(*plan, 1);
    ASSERT_EQ(call.found(), pixelOf(results, pixel)) << "pixel " << pixel;
  }
}

TEST(SoftMaxPlan, APixelHasTheSameBitsAloneAndAmongOthers) {
  forEachTarget([](const std::string& target) {
    for (const SoftMaxCase& item : softMaxCases()) {
      if (item.repeatsImages) continue;
      for (const Formats formats : kFormats)
        for (const SoftMaxKind kind : kKinds)
          for (const SoftMaxDirection direction : {Forward, Gradient}) {
            const SoftMaxProblem problem = item.problem(kind, direction, formats.input, formats.destination);
            SCOPED_TRACE(target + ": " + problem.describe());
            for (const bool isMixed : {false, true}) {
              Call call(problem, Values::Moderate);
              if (isMixed) call.input().write(mixedValues(problem));
              call.execute(*preparePlan(softMaxImplementationsCpu(), problem).plan);
              checkPixelsAlone(problem, call);
            }
          }
    }
  });
}

TEST(SoftMaxPlan, OneChannelIsCertain) {
  forEachTarget([](const std::string& target) {
    for (const Formats formats : kFormats)
      for (const SoftMaxKind kind : kKinds)
        for (const auto& implementation : softMaxImplementationsCpu()) {
          const SoftMaxCase item{.name = "", .images = 3, .height = 5, .width = 7, .channels = 1};
          const SoftMaxProblem problem = item.problem(kind, Forward, formats.input, formats.destination);
          const auto plan = prepared(implementation, problem);
          Call call(problem, Values::Moderate);
          call.input().write(mixedValues(problem));
          call.execute(*plan);
          EXPECT_EQ(call.found(), std::vector<double>(105, kind == SoftMaxKind::SoftMax ? 1 : 0))
              << target << " " << implementation.name << ": " << problem.describe();
        }
  });
}

TEST(SoftMaxPlan, NoImages) {
  const SoftMaxCase item{.name = "", .images = 0, .channels = 10};
  mtl::cpu::Stream stream(kThreads);
  for (const auto& implementation : softMaxImplementationsCpu())
    prepared(implementation, item.problem(SoftMaxKind::SoftMax, Forward, Float32, Float32))->run(stream, {});
}

/// A reference of another kind, or one that leaves out a channel, must not agree.
TEST(SoftMaxPlan, EveryFieldMatters) {
  for (const std::int64_t channels : {10, 64, 1000}) {
    const SoftMaxCase item{.name = "", .images = 3, .channels = channels};
    for (const SoftMaxKind kind : kKinds)
      for (const SoftMaxDirection direction : {Forward, Gradient}) {
        const SoftMaxProblem problem = item.problem(kind, direction, Float32, Float32);
        Call call(problem, Values::Moderate);
        call.execute(*preparePlan(softMaxImplementationsCpu(), problem).plan);
        const auto agrees = [&](const ReferenceTensor& expected) {
          return compare(expected, call.found(), Float32, Tier::Bounded).passed();
        };
        EXPECT_TRUE(agrees(call.expected()));
        SoftMaxProblem other = problem;
        other.kind = kind == SoftMaxKind::SoftMax ? SoftMaxKind::LogSoftMax : SoftMaxKind::SoftMax;
        EXPECT_FALSE(agrees(call.expected(other)));
        EXPECT_NE(other.hash(), problem.hash());
        if (direction == Gradient) continue;
        ReferenceTensor scaled = call.expected();
        for (double& value : scaled.values) value += kind == SoftMaxKind::SoftMax ? value / 100 : 0.01;
        EXPECT_FALSE(agrees(scaled)) << "a hundredth of the sum was left out";
      }
  }
  const SoftMaxCase item{.name = "", .channels = 10};
  const SoftMaxProblem problem = item.problem(SoftMaxKind::SoftMax, Gradient, Float32, Float32);
  EXPECT_NE(item.problem(SoftMaxKind::SoftMax, Forward, Float32, Float32).hash(), problem.hash());
  for (TensorShape SoftMaxProblem::*shape :
       {&SoftMaxProblem::input, &SoftMaxProblem::gradient, &SoftMaxProblem::destination}) {
    SoftMaxProblem other = problem;
    ++(other.*shape).pixelStride;
    EXPECT_FALSE(other == problem);
    EXPECT_NE(other.hash(), problem.hash());
  }
}

}  // namespace
}  // namespace mps::detail::softmax_plan_test
