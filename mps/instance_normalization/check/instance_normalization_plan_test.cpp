#include "mps/conform/testing/plan_testing.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "mps/instance_normalization/check/instance_normalization_cases_setting.hpp"

namespace mps::detail::instance_normalization_plan_test {
namespace {

using enum ImageFeatureChannelFormat;
using enum InstanceNormalizationOperation;

using plan_testing::Formats;
using plan_testing::kThreads;
using plan_testing::testDevice;
using plan_testing::valuesFrom;

constexpr std::uint64_t kSeed = 20261122;

InstanceNormalizationSetting settingOf(const InstanceNormalizationProblem& problem,
                                       Tier tier = Tier::Bounded) {
  return {testDevice(), problem, tier, valuesFrom(kSeed)};
}

void execute(const InstanceNormalizationProblem& problem, const Operands& operands, int threads = kThreads) {
  plan_testing::runPlan(*preparePlan(instanceNormalizationImplementationsCpu(), problem).plan, operands,
                        testDevice(), threads);
}

void judge(InstanceNormalizationSetting& setting, Tier tier) {
  setting.judge([&](const ReferenceTensor& expected, const std::vector<double>& found, auto format) {
    const Comparison comparison = compare(expected, found, format, tier, Zeros::Expected);
    EXPECT_TRUE(comparison.passed()) << comparison.report;
  });
  EXPECT_TRUE(setting.inputsAreUnchanged());
  EXPECT_TRUE(setting.surroundingsAreIntact());
}

void check(const InstanceNormalizationProblem& problem, Tier tier, int threads = kThreads) {
  SCOPED_TRACE(problem.describe() + " " + name(tier));
  InstanceNormalizationSetting setting = settingOf(problem, tier);
  execute(problem, setting.operands(), threads);
  judge(setting, tier);
}

constexpr Formats kFormats[] = {{Float32, Float32}, {Float16, Float16}, {Unorm8, Float32},
                                {Unorm16, Float16}, {Float32, Float16}, {Float16, Float32}};

TEST(InstanceNormalizationPlan, Forward) {
  for (const Formats& formats : kFormats)
    for (const InstanceNormalizationTensors& tensors : instanceNormalizationTensors())
      for (const bool saves : {false, true}) {
        InstanceNormalizationProblem problem = tensors.problem(Forward, formats.source, formats.destination);
        problem.hasSavedStatistics = saves;
        check(problem, Tier::Bounded);
      }
}

TEST(InstanceNormalizationPlan, Gradient) {
  for (const Formats& formats : kFormats)
    for (const InstanceNormalizationTensors& tensors : instanceNormalizationTensors())
      for (const bool saved : {false, true}) {
        InstanceNormalizationProblem problem = tensors.problem(Gradient, formats.source, formats.destination);
        problem.hasSavedStatistics = saved;
        problem.sumsImages = tensors.images % 2 == 0;
        check(problem, Tier::Bounded);
      }
}

TEST(InstanceNormalizationPlan, GradientOfParametersAlone) {
  for (const InstanceNormalizationTensors& tensors : instanceNormalizationTensors()) {
    InstanceNormalizationProblem problem = tensors.problem(Gradient, Float32, Float32);
    problem.computesData = false;
    problem.destination = {};
    check(problem, Tier::Bounded);
  }
}

TEST(InstanceNormalizationPlan, IntegersAreExact) {
  for (const InstanceNormalizationTensors& tensors : instanceNormalizationTensors()) {
    if (!tensors.canBeExact()) continue;
    for (const Formats& formats : kFormats)
      for (const InstanceNormalizationOperation operation : {Forward, Gradient})
        check(tensors.problem(operation, formats.source, formats.destination, Tier::Exact), Tier::Exact);
  }
}

TEST(InstanceNormalizationPlan, EveryInstructionSet) {
  forEachTarget([](const std::string& target) {
    SCOPED_TRACE(target);
    for (const InstanceNormalizationTensors& tensors : instanceNormalizationTensors())
      for (const auto format : {Float32, Float16})
        for (const InstanceNormalizationOperation operation : {Forward, Gradient})
          check(tensors.problem(operation, format, format), Tier::Bounded);
  });
}

/// All that a run leaves behind.
std::vector<double> resultsOf(const InstanceNormalizationProblem& problem, int threads) {
  InstanceNormalizationSetting setting = settingOf(problem);
  execute(problem, setting.operands(), threads);
  std::vector<double> results;
  setting.judge([&](const ReferenceTensor&, const std::vector<double>& found, auto) {
    results.insert(results.end(), found.begin(), found.end());
  });
  return results;
}

/// One thread takes image after image, seven share each image.
TEST(InstanceNormalizationPlan, ThreadCountDoesNotMatter) {
  for (const InstanceNormalizationTensors& tensors : instanceNormalizationTensors())
    for (const InstanceNormalizationOperation operation : {Forward, Gradient}) {
      InstanceNormalizationProblem problem = tensors.problem(operation, Float32, Float32);
      problem.sumsImages = operation == Gradient;
      SCOPED_TRACE(problem.describe());
      const std::vector<double> first = resultsOf(problem, 1);
      for (const int threads : {2, 7}) EXPECT_EQ(resultsOf(problem, threads), first) << threads << " threads";
    }
}

/// docs/decisions.md, D14: a gradient without the saved statistics computes the same ones again.
TEST(InstanceNormalizationPlan, SavedStatisticsAreThoseThatAreComputedAgain) {
  for (const InstanceNormalizationTensors& tensors : instanceNormalizationTensors()) {
    InstanceNormalizationProblem forward = tensors.problem(Forward, Float32, Float32);
    forward.hasSavedStatistics = true;
    InstanceNormalizationProblem gradient = tensors.problem(Gradient, Float32, Float32);
    SCOPED_TRACE(gradient.describe());
    InstanceNormalizationSetting setting = settingOf(forward), again = settingOf(gradient);
    execute(forward, setting.operands(), 1);
    execute(gradient, again.operands());
    const std::vector<double> expected = again.destination().read();
    gradient.hasSavedStatistics = true;
    InstanceNormalizationSetting other = settingOf(gradient);
    Operands operands = other.operands();
    operands.saved = setting.operands().saved;
    execute(gradient, operands);
    EXPECT_EQ(other.destination().read(), expected);
    EXPECT_EQ(other.gammaGradient().read(), again.gammaGradient().read());
  }
}

/// The worked examples, in the order of the memory.
TEST(InstanceNormalizationPlan, WorkedExamples) {
  struct Example {
    InstanceNormalizationTensors tensors;
    float epsilon;
    std::vector<double> x, dy, gamma, beta, y, gammaGradient, betaGradient, dx;
  };
  const std::vector<Example> examples{{{.name = "6.6", .images = 2, .width = 2},
                                       3,
                                       {1, 3, 10, 12},
                                       {1, 2, 0, 4},
                                       {4},
                                       {1},
                                       {-1, 3, -1, 3},
                                       {0.5, 2},
                                       {3, 4},
                                       {-0.75, 0.75, -3, 3}},
                                      {{.name = "7.6", .width = 2, .channels = 2},
                                       4,
                                       {1, 5, 3, 7},
                                       {1, 2, 3, -1},
                                       {3, 6},
                                       {1, 0},
                                       {-2, 2, 0, 6},
                                       {-2, -1.0 / 3},
                                       {4, 1},
                                       {-7.0 / 6, 49.0 / 18, 23.0 / 18, -17.0 / 6}}};
  const auto expectNear = [](const std::vector<double>& found, const std::vector<double>& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], expected[i], arithmeticBound(6, 8, 0)) << i;
  };
  for (const Example& example : examples) {
    SCOPED_TRACE(example.tensors.name);
    const auto settingWith = [&](const InstanceNormalizationProblem& problem) {
      InstanceNormalizationSetting setting = settingOf(problem);
      setting.source().write(example.x);
      setting.gamma().write(example.gamma);
      setting.beta().write(example.beta);
      if (problem.operation == Gradient) setting.gradient().write(example.dy);
      execute(problem, setting.operands());
      return setting;
    };
    InstanceNormalizationProblem problem = example.tensors.problem(Forward, Float32, Float32);
    problem.epsilon = example.epsilon;
    expectNear(settingWith(problem).destination().read(), example.y);
    problem = example.tensors.problem(Gradient, Float32, Float32);
    problem.epsilon = example.epsilon;
    InstanceNormalizationSetting gradient = settingWith(problem);
    expectNear(gradient.destination().read(), example.dx);
    expectNear(gradient.gammaGradient().read(), example.gammaGradient);
    expectNear(gradient.betaGradient().read(), example.betaGradient);
  }
}

/// The mean is a million times the deviation, in the second channel more than float32 can hold beside it.
TEST(InstanceNormalizationPlan, ALargeMeanLeavesTheVariance) {
  const InstanceNormalizationTensors tensors{.name = "LargeMean", .width = 4, .channels = 2, .groups = 2};
  InstanceNormalizationProblem problem = tensors.problem(Forward, Float32, Float32);
  problem.epsilon = 0;
  InstanceNormalizationSetting setting = settingOf(problem);
  setting.source().write(std::vector<double>{10000, 8388606, 10001, 8388607, 10002, 8388607, 10003, 8388608});
  execute(problem, setting.operands());
  judge(setting, Tier::Bounded);
}

/// The mean is ten thousand times the deviation, in float16 as many times as its digits allow, and the first pixel is
/// far away from the others.
TEST(InstanceNormalizationPlan, ALargeMeanOfSeveralChunks) {
  const InstanceNormalizationTensors tensors{
      .name = "LargeMean", .images = 2, .height = 64, .width = 100, .channels = 6, .groups = 6};
  for (const auto format : {Float32, Float16})
    for (const std::int64_t groups : {3, 6})
      for (const InstanceNormalizationOperation operation : {Forward, Gradient})
        for (const bool startsAway : {false, true}) {
          InstanceNormalizationProblem problem = tensors.problem(operation, format, format);
          problem.groups = groups;
          problem.epsilon = 0;
          SCOPED_TRACE(problem.describe());
          InstanceNormalizationSetting setting = settingOf(problem);
          std::vector<double> x = setting.source().reference().values;
          for (double& value : x) value = format == Float16 ? 1024 + std::floor(3 * value) : 10000 + value;
          if (startsAway) x[0] = -x[0];
          setting.source().write(x);
          execute(problem, setting.operands());
          judge(setting, Tier::Bounded);
        }
}

TEST(InstanceNormalizationPlan, AConstantImageIsBeta) {
  const InstanceNormalizationTensors tensors{.name = "Constant", .height = 100, .width = 7, .channels = 3};
  for (const std::int64_t groups : {1, 3}) {
    InstanceNormalizationProblem problem = tensors.problem(Forward, Float32, Float32);
    problem.groups = groups;
    problem.epsilon = std::numeric_limits<float>::min();
    InstanceNormalizationSetting setting = settingOf(problem);
    setting.source().write(std::vector<double>(static_cast<std::size_t>(problem.source.elements()), 0.1));
    execute(problem, setting.operands());
    const std::vector<double> beta = setting.beta().read();
    const std::vector<double> y = setting.destination().read();
    for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], beta[i % 3]) << i;
  }
}

/// Also with the smallest epsilon, where r is huge.
TEST(InstanceNormalizationPlan, OnePixelGivesBetaAndNoGradient) {
  const InstanceNormalizationTensors tensors{.name = "OnePixel", .images = 3, .channels = 5, .groups = 5};
  InstanceNormalizationProblem problem = tensors.problem(Forward, Float32, Float32);
  problem.epsilon = std::numeric_limits<float>::min();
  InstanceNormalizationSetting forward = settingOf(problem);
  execute(problem, forward.operands());
  const std::vector<double> beta = forward.beta().read();
  const std::vector<double> y = forward.destination().read();
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], beta[i % 5]) << i;
  problem = tensors.problem(Gradient, Float32, Float32);
  problem.epsilon = std::numeric_limits<float>::min();
  InstanceNormalizationSetting gradient = settingOf(problem);
  execute(problem, gradient.operands());
  EXPECT_EQ(gradient.destination().read(), std::vector<double>(15, 0.0));
}

/// gamma r and the numbers of the gradient are beyond float32: infinite, not the largest number of float32.
TEST(InstanceNormalizationPlan, ScalesBeyondFloatAreInfinite) {
  const InstanceNormalizationTensors tensors{.name = "Steep", .height = 8, .width = 8, .channels = 5};
  for (const InstanceNormalizationOperation operation : {Forward, Gradient}) {
    InstanceNormalizationProblem problem = tensors.problem(operation, Float32, Float32);
    problem.epsilon = 0;
    InstanceNormalizationSetting setting = settingOf(problem);
    std::vector<double> x = setting.source().reference().values;
    for (double& value : x) value *= 1e-4;
    setting.source().write(x);
    setting.gamma().write(std::vector<double>(5, 1e37));
    forEachTarget([&](const std::string& target) {
      SCOPED_TRACE(target + " " + problem.describe());
      execute(problem, setting.operands());
      const std::vector<double> found = setting.destination().read();
      for (std::size_t i = 0; i < found.size(); ++i) EXPECT_FALSE(std::isfinite(found[i])) << i;
    });
  }
}

/// A group with a NaN is all NaN, and the others are as they were.
TEST(InstanceNormalizationPlan, NotANumberStaysInItsGroup) {
  const InstanceNormalizationProblem problem =
      instanceNormalizationTensors().back().problem(Forward, Float32, Float32);
  for (const double notFinite : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    InstanceNormalizationSetting clean = settingOf(problem), setting = settingOf(problem);
    std::vector<double> x = setting.source().reference().values;
    x[5] = notFinite;
    setting.source().write(x);
    forEachTarget([&](const std::string& target) {
      SCOPED_TRACE(target);
      execute(problem, clean.operands());
      execute(problem, setting.operands());
      const std::vector<double> expected = clean.destination().read();
      const std::vector<double> found = setting.destination().read();
      const auto perImage = static_cast<std::size_t>(problem.source.elements() / problem.source.images);
      for (std::size_t i = 0; i < found.size(); ++i) {
        if (i < perImage && i % 32 / 4 == 1)
          EXPECT_TRUE(std::isnan(found[i])) << i;
        else
          EXPECT_EQ(found[i], expected[i]) << i;
      }
    });
  }
}

TEST(InstanceNormalizationPlan, GradientsAccumulate) {
  for (const InstanceNormalizationTensors& tensors : instanceNormalizationTensors()) {
    if (!tensors.canBeExact()) continue;
    const InstanceNormalizationProblem problem = tensors.problem(Gradient, Float32, Float32, Tier::Exact);
    SCOPED_TRACE(problem.describe());
    InstanceNormalizationSetting setting = settingOf(problem, Tier::Exact);
    const auto count = static_cast<std::size_t>(problem.destination.elements());
    const std::vector<double> before = randomValues(count, kSeed + 99, RandomKind::SmallIntegers);
    setting.destination().write(before);
    Operands operands = setting.operands();
    operands.accumulate = true;
    execute(problem, operands);
    ReferenceTensor expected = setting.expected(problem);
    addTerms(expected, before);
    const Comparison comparison =
        compare(expected, setting.destination().read(), Float32, Tier::Exact, Zeros::Expected);
    EXPECT_TRUE(comparison.passed()) << comparison.report;
  }
}

TEST(InstanceNormalizationPlan, WhatCanAccumulate) {
  const auto can = [](InstanceNormalizationOperation operation, ImageFeatureChannelFormat format) {
    const auto problem = instanceNormalizationTensors()[3].problem(operation, Float32, format);
    return preparePlan(instanceNormalizationImplementationsCpu(), problem).plan->canAccumulate();
  };
  EXPECT_TRUE(can(Gradient, Float32));
  EXPECT_FALSE(can(Gradient, Float16));
  EXPECT_FALSE(can(Forward, Float32));
}

TEST(InstanceNormalizationPlan, InPlace) {
  for (const InstanceNormalizationOperation operation : {Forward, Gradient})
    for (const auto format : {Float32, Float16})
      for (const InstanceNormalizationTensors& tensors : instanceNormalizationTensors()) {
        if (tensors.repeatsImages) continue;
        InstanceNormalizationProblem problem = tensors.problem(operation, format, format);
        const bool isForward = operation == Forward;
        (isForward ? problem.source : problem.gradient) = problem.destination;
        SCOPED_TRACE(problem.describe());
        InstanceNormalizationSetting setting = settingOf(problem);
        const ReferenceTensor expected = setting.expected(problem);
        Operands operands = setting.operands();
        TestTensor shared(testDevice(), problem.destination);
        shared.write((isForward ? setting.source() : setting.gradient()).reference().values);
        operands.destination = shared.address();
        (isForward ? operands.source : operands.gradient) = shared.address();
        execute(problem, operands);
        const Comparison comparison =
            compare(expected, shared.read(), format, Tier::Bounded, Zeros::Expected);
        EXPECT_TRUE(comparison.passed()) << comparison.report;
        EXPECT_TRUE(shared.surroundingsIntact());
      }
}

/// A reference with one number changed must not agree: the comparison sees every field.
TEST(InstanceNormalizationPlan, EveryFieldMatters) {
  using Problem = InstanceNormalizationProblem;
  const auto problemFor = [](InstanceNormalizationOperation operation) {
    return instanceNormalizationTensors()[6].problem(operation, Float32, Float32);
  };
  const auto expectSeen = [&](InstanceNormalizationOperation operation, const char* what, auto change) {
    const Problem problem = problemFor(operation);
    InstanceNormalizationSetting setting = settingOf(problem);
    execute(problem, setting.operands());
    Problem changed = problem;
    change(changed);
    bool agrees = true;
    setting.judge(changed,
                  [&](const ReferenceTensor& expected, const std::vector<double>& found, auto format) {
                    agrees = agrees && compare(expected, found, format, Tier::Bounded).passed();
                  });
    EXPECT_FALSE(agrees) << problem.describe() << ": " << what;
  };
  constexpr float change = 1.0F + 0x1p-12F;
  for (const InstanceNormalizationOperation operation : {Forward, Gradient}) {
    expectSeen(operation, "epsilon", [](Problem& problem) { problem.epsilon *= change; });
    expectSeen(operation, "groups", [](Problem& problem) { problem.groups = 2; });
  }

  const Problem problem = problemFor(Gradient);
  const auto expectDifferent = [&](const char* what, auto alter) {
    Problem changed = problem;
    alter(changed);
    EXPECT_FALSE(changed == problem) << what;
    EXPECT_NE(changed.hash(), problem.hash()) << what;
    EXPECT_NE(changed.describe(), problem.describe()) << what;
  };
  expectDifferent("operation", [](Problem& p) { p.operation = Forward; });
  expectDifferent("groups", [](Problem& p) { p.groups = 6; });
  expectDifferent("epsilon", [](Problem& p) { p.epsilon = 1; });
  expectDifferent("saved statistics", [](Problem& p) { p.hasSavedStatistics = true; });
  expectDifferent("sums", [](Problem& p) { p.sumsImages = true; });
  expectDifferent("data", [](Problem& p) { p.computesData = false; });
  for (TensorShape Problem::*shape : {&Problem::source, &Problem::gradient, &Problem::destination})
    expectDifferent("shape", [shape](Problem& p) { ++(p.*shape).pixelStride; });
}

}  // namespace
}  // namespace mps::detail::instance_normalization_plan_test
