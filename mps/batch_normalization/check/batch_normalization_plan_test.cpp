#include "mps/conform/testing/plan_testing.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "mps/batch_normalization/check/batch_normalization_cases_setting.hpp"

namespace mps::detail::batch_normalization_plan_test {
namespace {

using enum ImageFeatureChannelFormat;
using enum BatchNormalizationOperation;

using plan_testing::Formats;
using plan_testing::kThreads;
using plan_testing::testDevice;
using plan_testing::valuesFrom;

constexpr std::uint64_t kSeed = 20250611;
constexpr BatchNormalizationOperation kOperations[] = {Statistics, Forward, StatisticsGradient, Gradient};

BatchNormalizationSetting settingOf(const BatchNormalizationProblem& problem, Tier tier = Tier::Bounded) {
  return {testDevice(), problem, tier, valuesFrom(kSeed)};
}

void execute(const BatchNormalizationProblem& problem, const Operands& operands, int threads = kThreads) {
  plan_testing::runPlan(*preparePlan(batchNormalizationImplementationsCpu(), problem).plan, operands,
                        testDevice(), threads);
}

void check(const BatchNormalizationProblem& problem, Tier tier) {
  SCOPED_TRACE(problem.describe() + " " + name(tier));
  BatchNormalizationSetting setting = settingOf(problem, tier);
  const auto judge = [&] {
    setting.judge([&](const ReferenceTensor& expected, TestTensor& found) {
      const Comparison comparison =
          compare(expected, found.read(), found.shape().format, tier, Zeros::Expected);
      EXPECT_TRUE(comparison.passed()) << comparison.report;
      EXPECT_TRUE(found.surroundingsIntact()) << "memory around a result was written";
    });
    EXPECT_TRUE(setting.inputsAreUnchanged());
    EXPECT_TRUE(setting.guardsAreIntact());
  };
  execute(problem, setting.operands());
  judge();
  if (!setting.sumsUp()) return;
  setting.nextPart();
  execute(problem, setting.operands());
  judge();
}

constexpr Formats kFormats[] = {{Float32, Float32}, {Float16, Float16}, {Unorm8, Float32},
                                {Unorm16, Float16}, {Float32, Float16}, {Float16, Float32}};

template <class Body>
void forEachCase(BatchNormalizationOperation operation, Body&& body) {
  for (const Formats& formats : kFormats)
    for (const BatchNormalizationTensors& tensors : batchNormalizationTensors())
      for (const NeuronCase& item : batchNormalizationNeurons(tensors.channels)) {
        const bool hasNeuron = item.neuron.neuronType() != CNNNeuronType::None;
        if (!isTested(tensors, item.neuron) || (operation == Statistics && hasNeuron)) continue;
        body(tensors.problem(operation, item.neuron, formats.source, formats.destination));
      }
}

TEST(BatchNormalizationPlan, StatisticsOfOneAndSeveralParts) {
  forEachCase(Statistics, [](const BatchNormalizationProblem& problem) { check(problem, Tier::Bounded); });
}

TEST(BatchNormalizationPlan, Forward) {
  forEachCase(Forward, [](const BatchNormalizationProblem& problem) { check(problem, Tier::Bounded); });
}

TEST(BatchNormalizationPlan, ForwardOfSums) {
  for (const Formats& formats : kFormats)
    for (const BatchNormalizationTensors& tensors : batchNormalizationTensors())
      for (const NeuronCase& item : batchNormalizationNeurons(tensors.channels)) {
        if (!hasKink(item.neuron) || !isTested(tensors, item.neuron)) continue;
        check(tensors.sumProblem(item.neuron, formats.source, formats.destination), Tier::Bounded);
      }
}

/// As an addition has it whose sum is stored nowhere before its ReLU: every rounding is prescribed.
TEST(BatchNormalizationPlan, ForwardOfSumsRoundsAsItIsSpecified) {
  const auto relu = NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU);
  forEachTarget([&](const std::string& target) {
    for (const BatchNormalizationTensors& tensors : batchNormalizationTensors())
      for (const auto format : {Float32, Float16}) {
        const BatchNormalizationProblem problem = tensors.sumProblem(relu, format, format);
        SCOPED_TRACE(target + " " + problem.describe());
        BatchNormalizationSetting setting = settingOf(problem);
        execute(problem, setting.operands());
        const Comparison comparison =
            compare(setting.expected(problem), setting.destination().read(), format, Tier::Exact);
        EXPECT_TRUE(comparison.passed()) << comparison.report;
      }
  });
}

/// Without a neuron every rounding is prescribed: the result is the reference's bit for bit.
TEST(BatchNormalizationPlan, ForwardRoundsAsItIsSpecified) {
  for (const BatchNormalizationTensors& tensors : batchNormalizationTensors()) {
    const BatchNormalizationProblem problem = tensors.problem(Forward, {}, Float32, Float32);
    SCOPED_TRACE(problem.describe());
    BatchNormalizationSetting setting = settingOf(problem);
    execute(problem, setting.operands());
    const Comparison comparison =
        compare(setting.expected(problem), setting.destination().read(), Float32, Tier::Exact);
    EXPECT_TRUE(comparison.passed()) << comparison.report;
  }
}

TEST(BatchNormalizationPlan, StatisticsGradientOfOneAndSeveralParts) {
  forEachCase(StatisticsGradient,
              [](const BatchNormalizationProblem& problem) { check(problem, Tier::Bounded); });
}

TEST(BatchNormalizationPlan, StatisticsGradientBesideTheOneOfTheSource) {
  for (const BatchNormalizationTensors& tensors : batchNormalizationTensors())
    for (const NeuronCase& item : batchNormalizationNeurons(tensors.channels)) {
      if (!isTested(tensors, item.neuron)) continue;
      BatchNormalizationProblem problem = tensors.problem(StatisticsGradient, item.neuron, Float32, Float16);
      problem.hasConstantStatistics = true;
      problem.destination = tensors.shape(Float16, 1);
      check(problem, Tier::Bounded);
    }
}

TEST(BatchNormalizationPlan, Gradient) {
  forEachCase(Gradient, [](BatchNormalizationProblem problem) {
    check(problem, Tier::Bounded);
    problem.hasConstantStatistics = true;
    check(problem, Tier::Bounded);
  });
}

TEST(BatchNormalizationPlan, IntegersAreExact) {
  using enum CNNNeuronType;
  const auto relu = NNNeuronDescriptor::cnnNeuronDescriptor(ReLU, 0.25F);
  for (const BatchNormalizationTensors& tensors : batchNormalizationTensors())
    for (const auto format : {Float32, Float16})
      for (const NNNeuronDescriptor& neuron : {NNNeuronDescriptor(), relu})
        for (const BatchNormalizationOperation operation : {Forward, StatisticsGradient, Gradient})
          check(tensors.problem(operation, neuron, format, format), Tier::Exact);
}

TEST(BatchNormalizationPlan, EveryInstructionSet) {
  forEachTarget([](const std::string& target) {
    SCOPED_TRACE(target);
    for (const BatchNormalizationTensors& tensors : batchNormalizationTensors())
      for (const auto format : {Float32, Float16})
        for (const BatchNormalizationOperation operation : kOperations)
          check(tensors.problem(operation, {}, format, format), Tier::Bounded);
  });
}

TEST(BatchNormalizationPlan, InstructionSetsAgreeOnTheResult) {
  const BatchNormalizationProblem problem =
      batchNormalizationTensors().back().problem(Forward, {}, Float32, Float32);
  std::vector<std::vector<double>> results;
  forEachTarget([&](const std::string&) {
    BatchNormalizationSetting setting = settingOf(problem);
    execute(problem, setting.operands());
    results.push_back(setting.destination().read());
  });
  for (const auto& result : results) EXPECT_EQ(result, results.front());
}

TEST(BatchNormalizationPlan, ThreadCountDoesNotMatter) {
  for (const BatchNormalizationOperation operation : kOperations) {
    const BatchNormalizationProblem problem =
        batchNormalizationTensors().back().problem(operation, {}, Float32, Float32);
    SCOPED_TRACE(problem.describe());
    std::vector<double> first;
    for (const int threads : {1, 2, 7}) {
      BatchNormalizationSetting setting = settingOf(problem);
      execute(problem, setting.operands(), threads);
      std::vector<double> results;
      setting.judge([&](const ReferenceTensor&, TestTensor& found) {
        const std::vector<double> values = found.read();
        results.insert(results.end(), values.begin(), values.end());
      });
      if (first.empty()) first = results;
      EXPECT_EQ(results, first) << threads << " threads";
    }
  }
}

/// The mean is a million times the deviation.
TEST(BatchNormalizationPlan, ALargeMeanLeavesTheVariance) {
  BatchNormalizationTensors tensors{.name = "LargeMean", .images = 3, .channels = 2};
  const BatchNormalizationProblem problem = tensors.problem(Statistics, {}, Float32, Float32);
  BatchNormalizationSetting setting = settingOf(problem);
  setting.source().write(std::vector<double>{10000, 8388606, 10001, 8388607, 10002, 8388608});
  execute(problem, setting.operands());
  EXPECT_EQ(setting.mean().read(), (std::vector<double>{10001, 8388607}));
  const auto twoThirds = static_cast<double>(static_cast<float>(2.0 / 3));
  EXPECT_EQ(setting.variance().read(), (std::vector<double>{twoThirds, twoThirds}));
}

/// Float16 values are summed without a shift: one pixel differs by a unit in the last place, or the first is far away.
TEST(BatchNormalizationPlan, OnePixelOfFloat16IsAllTheVariance) {
  constexpr std::int64_t pixels = 8192;
  BatchNormalizationTensors tensors{.name = "OnePixel", .height = 64, .width = 128, .channels = 2};
  const BatchNormalizationProblem problem = tensors.problem(Statistics, {}, Float16, Float32);
  BatchNormalizationSetting setting = settingOf(problem);
  std::vector<double> x(2 * pixels, 2000);
  x[2 * 77] = 2001;
  x[1] = 0;
  setting.source().write(x);
  execute(problem, setting.operands());
  constexpr double share = 1.0 / pixels;
  const auto near = [](double value) { return static_cast<double>(static_cast<float>(value)); };
  EXPECT_EQ(setting.mean().read(), (std::vector<double>{2000 + share, near(2000 * (1 - share))}));
  constexpr double spread = share * (1 - share);
  EXPECT_EQ(setting.variance().read(), (std::vector<double>{spread, near(2000.0 * 2000.0 * spread)}));
}

/// Sub-batches [1, 3] and [5, 7, 9, 11].
TEST(BatchNormalizationPlan, UnequalPartsOfABatch) {
  BatchNormalizationTensors tensors{.name = "Parts", .images = 2, .channels = 1};
  const BatchNormalizationProblem first = tensors.problem(Statistics, {}, Float32, Float32);
  BatchNormalizationSetting setting = settingOf(first);
  setting.source().write(std::vector<double>{1, 3});
  execute(first, setting.operands());
  EXPECT_EQ(setting.mean().read(), std::vector<double>{2});
  EXPECT_EQ(setting.variance().read(), std::vector<double>{1});
  tensors.images = 4;
  const BatchNormalizationProblem second = tensors.problem(Statistics, {}, Float32, Float32);
  BatchNormalizationSetting other = settingOf(second);
  other.source().write(std::vector<double>{5, 7, 9, 11});
  Operands operands = setting.operands();
  operands.source = other.operands().source;
  operands.accumulate = true;
  operands.scalars[0] = 2;
  execute(second, operands);
  EXPECT_EQ(setting.mean().read(), std::vector<double>{6});
  EXPECT_EQ(setting.variance().read(),
            std::vector<double>{static_cast<double>(static_cast<float>(35.0 / 3))});
}

TEST(BatchNormalizationPlan, AConstantChannelHasNoVariance) {
  const BatchNormalizationTensors tensors{.name = "Constant", .images = 200, .height = 7, .channels = 3};
  const BatchNormalizationProblem problem = tensors.problem(Statistics, {}, Float32, Float32);
  BatchNormalizationSetting setting = settingOf(problem);
  setting.source().write(std::vector<double>(static_cast<std::size_t>(problem.source.elements()), 0.1));
  execute(problem, setting.operands());
  EXPECT_EQ(setting.variance().read(), std::vector<double>(3, 0.0));
}

/// In the numbers of the worked example, where beta = 1 makes z = 0: a fused multiply-add would not.
TEST(BatchNormalizationPlan, SlopesAtZeroFollowTheForwardPass) {
  const auto relu = NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU, 0.5F);
  const BatchNormalizationTensors tensors{.name = "Zero", .images = 2, .width = 2, .channels = 1};
  const auto& device = testDevice();
  const TensorShape one = TensorShape::dense(1, 1, 1, 1);
  const auto stored = [&](const TensorShape& shape, const std::vector<double>& values) {
    TestTensor tensor(device, shape);
    tensor.write(values);
    return tensor;
  };
  TestTensor x = stored(tensors.shape(Float32, 0), {1, 3, 5, 7});
  TestTensor dy = stored(tensors.shape(Float32, 0), {1, 3, 2, -1});
  TestTensor gamma = stored(one, {3}), beta = stored(one, {1}), mean = stored(one, {4}),
             variance = stored(one, {5});
  TestTensor y(device, tensors.shape(Float32, 0)), gammaGradient(device, one), betaGradient(device, one),
      statistics(device, TensorShape::dense(1, 1, 1, 2));
  GuardedMemory sums(device, 2 * sizeof(double));
  Operands operands;
  operands.source = x.address();
  operands.gradient = dy.address();
  operands.destination = y.address();
  operands.parameters = {gamma.address(),        beta.address(),      mean.address(),
                         variance.address(),     sums.address(),      gammaGradient.address(),
                         betaGradient.address(), statistics.address()};
  BatchNormalizationProblem problem = tensors.problem(Forward, relu, Float32, Float32);
  problem.epsilon = 4;
  execute(problem, operands);
  EXPECT_EQ(y.read(), (std::vector<double>{-1, 0, 2, 4}));
  problem = tensors.problem(StatisticsGradient, relu, Float32, Float32);
  problem.epsilon = 4;
  execute(problem, operands);
  EXPECT_EQ(betaGradient.read(), std::vector<double>{4.5});
  EXPECT_EQ(gammaGradient.read(), std::vector<double>{static_cast<double>(static_cast<float>(-11.0 / 6))});
  EXPECT_EQ(statistics.read(),
            (std::vector<double>{-4.5, static_cast<double>(static_cast<float>(11.0 / 36))}));
}

TEST(BatchNormalizationPlan, NotANumberAndInfinityPassThrough) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const auto format : {Float32, Float16})
    for (const NeuronCase& item : batchNormalizationNeurons(3)) {
      const BatchNormalizationProblem problem =
          batchNormalizationTensors()[2].problem(Forward, item.neuron, format, format);
      SCOPED_TRACE(problem.describe());
      BatchNormalizationSetting setting = settingOf(problem);
      std::vector<double> x = setting.source().reference().values;
      for (std::size_t i = 0; i < x.size(); i += 4) x[i] = std::nan("");
      for (std::size_t i = 1; i < x.size(); i += 8) x[i] = infinity;
      for (std::size_t i = 5; i < x.size(); i += 8) x[i] = -infinity;
      setting.source().write(x);
      execute(problem, setting.operands());
      const Comparison comparison =
          compare(setting.expected(problem), setting.destination().read(), format, Tier::Bounded);
      EXPECT_TRUE(comparison.passed()) << comparison.report;
    }
}

/// A channel with a NaN has none but NaN statistics, and the others are as they were.
TEST(BatchNormalizationPlan, NotANumberStaysInItsChannel) {
  const BatchNormalizationProblem problem =
      batchNormalizationTensors().back().problem(Statistics, {}, Float32, Float32);
  BatchNormalizationSetting clean = settingOf(problem);
  execute(problem, clean.operands());
  BatchNormalizationSetting setting = settingOf(problem);
  std::vector<double> x = setting.source().reference().values;
  x[5] = std::nan("");
  setting.source().write(x);
  execute(problem, setting.operands());
  const std::vector<double> expected = clean.variance().read();
  const std::vector<double> found = setting.variance().read();
  for (std::size_t c = 0; c < found.size(); ++c) {
    if (c == 5)
      EXPECT_TRUE(std::isnan(found[c]) && std::isnan(setting.mean().read()[c]));
    else
      EXPECT_EQ(found[c], expected[c]) << "channel " << c;
  }
}

TEST(BatchNormalizationPlan, GradientsAccumulate) {
  for (const BatchNormalizationTensors& tensors : batchNormalizationTensors())
    for (const bool isConstant : {false, true}) {
      BatchNormalizationProblem problem = tensors.problem(Gradient, {}, Float32, Float32);
      problem.hasConstantStatistics = isConstant;
      SCOPED_TRACE(problem.describe());
      BatchNormalizationSetting setting = settingOf(problem, Tier::Exact);
      const auto count = static_cast<std::size_t>(problem.destination.elements());
      const std::vector<double> before = randomValues(count, kSeed + 99, RandomKind::SmallIntegers);
      setting.destination().write(before);
      Operands operands = setting.operands();
      operands.accumulate = true;
      execute(problem, operands);
      ReferenceTensor expected = setting.expected(problem);
      for (std::size_t i = 0; i < count; ++i) expected.values[i] += before[i];
      const Comparison comparison =
          compare(expected, setting.destination().read(), Float32, Tier::Exact, Zeros::Expected);
      EXPECT_TRUE(comparison.passed()) << comparison.report;
    }
}

TEST(BatchNormalizationPlan, WhatCanAccumulate) {
  const auto can = [](BatchNormalizationOperation operation, ImageFeatureChannelFormat format) {
    const auto problem = batchNormalizationTensors()[2].problem(operation, {}, Float32, format);
    return preparePlan(batchNormalizationImplementationsCpu(), problem).plan->canAccumulate();
  };
  EXPECT_TRUE(can(Statistics, Float32));
  EXPECT_TRUE(can(StatisticsGradient, Float32));
  EXPECT_TRUE(can(Gradient, Float32));
  EXPECT_FALSE(can(Gradient, Float16));
  EXPECT_FALSE(can(Forward, Float32));
}

TEST(BatchNormalizationPlan, InPlace) {
  for (const BatchNormalizationOperation operation : {Forward, Gradient})
    for (const auto format : {Float32, Float16})
      for (const BatchNormalizationTensors& tensors : batchNormalizationTensors())
        for (const bool hasNeuron : {false, true}) {
          if (tensors.repeatsImages) continue;
          const auto neuron = hasNeuron ? NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU, 0.25F)
                                        : NNNeuronDescriptor();
          BatchNormalizationProblem problem = tensors.problem(operation, neuron, format, format);
          const bool isForward = operation == Forward;
          (isForward ? problem.source : problem.gradient) = problem.destination;
          SCOPED_TRACE(problem.describe());
          BatchNormalizationSetting setting = settingOf(problem);
          const ReferenceTensor expected = setting.expected(problem);
          Operands operands = setting.operands();
          TestTensor shared(testDevice(), problem.destination);
          // What the setting has made, in the memory of the destination.
          const auto before = isForward ? setting.source().reference() : setting.gradient().reference();
          shared.write(before.values);
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
TEST(BatchNormalizationPlan, EveryFieldMatters) {
  const auto prelu = NNNeuronDescriptor::cnnNeuronPReLUDescriptor(neuronTestSlopes(3));
  const auto expectSeen = [&](BatchNormalizationOperation operation, const char* what, auto change) {
    const BatchNormalizationProblem problem =
        batchNormalizationTensors()[2].problem(operation, prelu, Float32, Float32);
    BatchNormalizationSetting setting = settingOf(problem);
    execute(problem, setting.operands());
    BatchNormalizationProblem changed = problem;
    change(changed);
    EXPECT_FALSE(changed == problem) << what;
    EXPECT_NE(changed.hash(), problem.hash()) << what;
    bool agrees = true;
    setting.judge(changed, [&](const ReferenceTensor& expected, TestTensor& found) {
      agrees = agrees && compare(expected, found.read(), Float32, Tier::Bounded).passed();
    });
    EXPECT_FALSE(agrees) << problem.describe() << ": " << what;
  };
  constexpr float change = 1.0F + 0x1p-12F;
  const auto epsilon = [](BatchNormalizationProblem& problem) { problem.epsilon *= change; };
  const auto slopes = [](BatchNormalizationProblem& problem) {
    std::vector<float> data(problem.neuron.data().begin(), problem.neuron.data().end());
    data[0] *= change;
    problem.neuron.setData(data);
  };
  for (const BatchNormalizationOperation operation : {Forward, StatisticsGradient, Gradient}) {
    expectSeen(operation, "epsilon", epsilon);
    expectSeen(operation, "slopes", slopes);
  }
  expectSeen(Gradient, "constant statistics",
             [](BatchNormalizationProblem& problem) { problem.hasConstantStatistics = true; });

  const BatchNormalizationProblem problem =
      batchNormalizationTensors()[2].problem(Gradient, {}, Float32, Float32);
  BatchNormalizationProblem changed = problem;
  changed.operation = StatisticsGradient;
  EXPECT_FALSE(changed == problem);
  EXPECT_NE(changed.hash(), problem.hash());
  for (TensorShape BatchNormalizationProblem::*shape :
       {&BatchNormalizationProblem::source, &BatchNormalizationProblem::gradient,
        &BatchNormalizationProblem::destination}) {
    changed = problem;
    ++(changed.*shape).pixelStride;
    EXPECT_FALSE(changed == problem);
    EXPECT_NE(changed.hash(), problem.hash());
  }
}

}  // namespace
}  // namespace mps::detail::batch_normalization_plan_test
