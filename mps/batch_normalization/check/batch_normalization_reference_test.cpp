#include "mps/batch_normalization/check/batch_normalization_reference.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "mps/batch_normalization/check/batch_normalization_cases.hpp"
#include "mps/conform/compare.hpp"

namespace mps::detail::batch_normalization_reference_test {
namespace {

using Values = std::vector<double>;

ReferenceTensor pixels(std::int64_t images, std::int64_t channels, Values values) {
  ReferenceTensor tensor(images, 1, static_cast<std::int64_t>(values.size()) / channels / images, channels);
  tensor.values = std::move(values);
  return tensor;
}

BatchNormalizationProblem problemOf(const NNNeuronDescriptor& neuron, float epsilon) {
  BatchNormalizationProblem problem;
  problem.neuron = neuron;
  problem.epsilon = epsilon;
  return problem;
}

void expectValues(const ReferenceTensor& found, const Values& expected) {
  ASSERT_EQ(found.values.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(found.values[i], expected[i], kFloat64Tolerance * (1 + std::abs(expected[i]))) << i;
}

/// The data of the examples below.
struct Example {
  std::vector<ReferenceTensor> x{pixels(2, 1, {1, 3, 5, 7})};
  std::vector<ReferenceTensor> dy{pixels(2, 1, {1, 3, 2, -1})};
  BatchNormalizationNumbers numbers{{3}, {1}, {4}, {5}, false};
};

TEST(BatchNormalizationReference, WorkedExampleOfSpec5_1) {
  Example example;
  const BatchStatistics statistics = batchStatisticsReference(example.x);
  expectValues(statistics.mean, {4});
  expectValues(statistics.variance, {5});
  BatchNormalizationProblem problem = problemOf({}, 4);
  expectValues(batchNormalizationReference(problem, example.numbers, example.x[0]), {-2, 0, 2, 4});
  const auto sums = batchNormalizationSumsReference(problem, example.numbers, example.x, example.dy);
  expectValues(sums.beta, {5});
  expectValues(sums.gamma, {-7.0 / 3});
  expectValues(sums.mean, {-5});
  expectValues(sums.variance, {7.0 / 18});
  expectValues(
      batchNormalizationGradientReference(problem, example.numbers, sums, 4, example.x[0], example.dy[0]),
      {-5.0 / 6, 14.0 / 9, 17.0 / 18, -5.0 / 3});
  problem.hasConstantStatistics = true;  // section 5.5
  expectValues(
      batchNormalizationGradientReference(problem, example.numbers, sums, 4, example.x[0], example.dy[0]),
      {1, 3, 2, -1});
}

TEST(BatchNormalizationReference, WorkedExampleWithReLUOfSpec5_2) {
  Example example;
  example.numbers.beta = {1.5};
  const BatchNormalizationProblem problem =
      problemOf(NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU, 0.5F), 4);
  expectValues(batchNormalizationReference(problem, example.numbers, example.x[0]), {-0.75, 0.5, 2.5, 4.5});
  const auto sums = batchNormalizationSumsReference(problem, example.numbers, example.x, example.dy);
  expectValues(sums.beta, {4.5});
  expectValues(sums.gamma, {-11.0 / 6});
  expectValues(
      batchNormalizationGradientReference(problem, example.numbers, sums, 4, example.x[0], example.dy[0]),
      {-13.0 / 12, 31.0 / 18, 37.0 / 36, -5.0 / 3});
}

/// As float32 kernels round z, beta = 1 makes it exactly 0 at the second value: slope 1.
TEST(BatchNormalizationReference, StoredNumbersAreRoundedAsKernelsRound) {
  Example example;
  example.numbers.areStored = true;
  const BatchNormalizationProblem problem =
      problemOf(NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU, 0.5F), 4);
  expectValues(batchNormalizationReference(problem, example.numbers, example.x[0]), {-1, 0, 2, 4});
  const auto sums = batchNormalizationSumsReference(problem, example.numbers, example.x, example.dy);
  expectValues(sums.beta, {4.5});
}

/// A kernel that rounds the statistics may see the second value of z, 0, on either side: its gradient is 3 or 0.5 times 3.
TEST(BatchNormalizationReference, BoundsKnowBothSidesOfAKink) {
  const BatchNormalizationProblem problem =
      problemOf(NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU, 0.5F), 4);
  Example beside;
  auto sums = batchNormalizationSumsReference(problem, beside.numbers, beside.x, beside.dy);
  EXPECT_GE(arithmeticBound(sums.beta.magnitude[0], sums.beta.roundings, 0), 1.5);
  // Times h, -1/3.
  EXPECT_GE(arithmeticBound(sums.gamma.magnitude[0], sums.gamma.roundings, 0), 0.5);
  const auto dx =
      batchNormalizationGradientReference(problem, beside.numbers, sums, 4, beside.x[0], beside.dy[0]);
  EXPECT_GE(arithmeticBound(dx.magnitude[1], dx.roundings, 0), 1.5 * (1 - 1.0 / 4 - 1.0 / 36));
  for (const float beta : {0.5F, 1.5F}) {
    Example away;
    away.numbers.beta = {beta};
    sums = batchNormalizationSumsReference(problem, away.numbers, away.x, away.dy);
    EXPECT_EQ(sums.beta.magnitude[0], 0.5 + (beta > 1 ? 3 : 1.5) + 2 + 1) << "the terms alone";
  }
}

TEST(BatchNormalizationReference, PartsOfSpec5_3) {
  const std::vector<ReferenceTensor> parts{pixels(1, 1, {1, 3}), pixels(1, 1, {5, 7, 9, 11})};
  const BatchStatistics statistics = batchStatisticsReference(parts);
  expectValues(statistics.mean, {6});
  expectValues(statistics.variance, {35.0 / 3});
}

TEST(BatchNormalizationReference, OneElementHasNoVariance) {
  const std::vector<ReferenceTensor> one{pixels(1, 2, {0.1, -7})};
  expectValues(batchStatisticsReference(one).variance, {0, 0});
}

/// The loss sum(w y) as a function of sources, gamma and beta, with the statistics of the batch or constants.
class Loss {
 public:
  Loss(const BatchNormalizationProblem& problem, std::int64_t channels, std::uint64_t seed)
      : problem_(problem), channels_(static_cast<std::size_t>(channels)) {
    const std::size_t count = 6 * channels_;
    x = pixels(2, channels, randomValues(count, seed, RandomKind::Uniform));
    for (double& value : x.values) value *= 3;
    w = pixels(2, channels, randomValues(count, seed + 1, RandomKind::Uniform));
    numbers.gamma = randomValues(channels_, seed + 2, RandomKind::Uniform);
    numbers.beta = randomValues(channels_, seed + 3, RandomKind::Uniform);
    numbers.mean = randomValues(channels_, seed + 4, RandomKind::Uniform);
    numbers.variance = randomValues(channels_, seed + 5, RandomKind::Positive);
    for (double& value : numbers.variance) value += 0.25;
    numbers.areStored = false;
  }
  [[nodiscard]] double value() const {
    const ReferenceTensor y = batchNormalizationReference(problem_, current(), x);
    double sum = 0;
    for (std::size_t i = 0; i < y.values.size(); ++i) sum += w.values[i] * y.values[i];
    return sum;
  }
  [[nodiscard]] BatchNormalizationNumbers current() const {
    BatchNormalizationNumbers used = numbers;
    if (problem_.hasConstantStatistics) return used;
    const ReferenceTensor sources[] = {x};
    const BatchStatistics statistics = batchStatisticsReference(sources);
    used.mean = statistics.mean.values;
    used.variance = statistics.variance.values;
    return used;
  }
  /// How many elements of a gradient differ from central differences over `values`.
  [[nodiscard]] int differing(Values& values, const ReferenceTensor& gradient) const {
    constexpr double h = 1e-5;
    int count = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double before = values[i];
      values[i] = before + h;
      const double above = value();
      values[i] = before - h;
      const double difference = (above - value()) / (2 * h);
      values[i] = before;
      const double allowed = 1e-6 * (std::abs(difference) + 1e-2);
      if (!(std::abs(difference - gradient.values[i]) <= allowed)) ++count;
    }
    return count;
  }

  ReferenceTensor x, w;
  BatchNormalizationNumbers numbers;

 private:
  BatchNormalizationProblem problem_;
  std::size_t channels_;
};

TEST(BatchNormalizationReference, GradientsAreTheDerivativesOfTheForwardPass) {
  constexpr std::int64_t channels = 3;
  std::uint64_t seed = 100;
  for (const bool isConstant : {false, true})
    for (const NeuronCase& item : batchNormalizationNeurons(channels)) {
      SCOPED_TRACE(item.neuron.describe() + " seed " + std::to_string(seed));
      BatchNormalizationProblem problem = problemOf(item.neuron, 0.0625F);
      problem.hasConstantStatistics = isConstant;
      Loss loss(problem, channels, seed);
      seed += 10;
      const std::vector<ReferenceTensor> sources{loss.x};
      const std::vector<ReferenceTensor> gradients{loss.w};
      const BatchNormalizationNumbers numbers = loss.current();
      const auto sums = batchNormalizationSumsReference(problem, numbers, sources, gradients);
      const ReferenceTensor dx =
          batchNormalizationGradientReference(problem, numbers, sums, 6, loss.x, loss.w);
      // One element may lie within h of a kink; moving a source moves the others of its channel, too.
      const int few = item.neuron.neuronType() == CNNNeuronType::None ? 0 : 1;
      EXPECT_LE(loss.differing(loss.x.values, dx), few);
      EXPECT_LE(loss.differing(loss.numbers.gamma, sums.gamma), few);
      EXPECT_LE(loss.differing(loss.numbers.beta, sums.beta), few);
      if (!isConstant) continue;  // only constants can be moved
      EXPECT_LE(loss.differing(loss.numbers.mean, sums.mean), few);
      EXPECT_LE(loss.differing(loss.numbers.variance, sums.variance), few);
    }
}

}  // namespace
}  // namespace mps::detail::batch_normalization_reference_test
