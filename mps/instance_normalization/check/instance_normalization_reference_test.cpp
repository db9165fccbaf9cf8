#include "mps/instance_normalization/check/instance_normalization_reference.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "mps/conform/compare.hpp"
#include "mps/conform/tolerance.hpp"

namespace mps::detail::instance_normalization_reference_test {
namespace {

using Values = std::vector<double>;

/// Images of one row.
ReferenceTensor pixels(std::int64_t images, std::int64_t channels, Values values) {
  ReferenceTensor tensor(images, 1, static_cast<std::int64_t>(values.size()) / channels / images, channels);
  tensor.values = std::move(values);
  return tensor;
}

InstanceNormalizationProblem problemOf(std::int64_t groups, float epsilon) {
  InstanceNormalizationProblem problem;
  problem.groups = groups;
  problem.epsilon = epsilon;
  return problem;
}

void expectValues(const ReferenceTensor& found, const Values& expected) {
  ASSERT_EQ(found.values.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(found.values[i], expected[i], kFloat64Tolerance * (1 + std::abs(expected[i]))) << i;
}

TEST(InstanceNormalizationReference, WorkedExampleOfSpec6_6) {
  InstanceNormalizationProblem problem = problemOf(1, 3);
  const ReferenceTensor x = pixels(2, 1, {1, 3, 10, 12});
  const ReferenceTensor dy = pixels(2, 1, {1, 2, 0, 4});
  expectValues(instanceStatisticsReference(problem, x), {2, 0.5, 11, 0.5});
  expectValues(instanceNormalizationReference(problem, {4}, {1}, x), {-1, 3, -1, 3});
  auto gradients = instanceNormalizationGradientReference(problem, {4}, x, dy);
  expectValues(gradients.beta, {3, 4});
  expectValues(gradients.gamma, {0.5, 2});
  expectValues(gradients.source, {-0.75, 0.75, -3, 3});
  problem.sumsImages = true;
  gradients = instanceNormalizationGradientReference(problem, {4}, x, dy);
  expectValues(gradients.beta, {7});
  expectValues(gradients.gamma, {2.5});
}

/// Channels innermost: pixel 0 is 1, 5, pixel 1 is 3, 7.
TEST(InstanceNormalizationReference, WorkedExampleOfSpec7_6) {
  const InstanceNormalizationProblem problem = problemOf(1, 4);
  const ReferenceTensor x = pixels(1, 2, {1, 5, 3, 7});
  const ReferenceTensor dy = pixels(1, 2, {1, 2, 3, -1});
  expectValues(instanceStatisticsReference(problem, x), {4, 1.0 / 3});
  expectValues(instanceNormalizationReference(problem, {3, 6}, {1, 0}, x), {-2, 2, 0, 6});
  const auto gradients = instanceNormalizationGradientReference(problem, {3, 6}, x, dy);
  expectValues(gradients.gamma, {-2, -1.0 / 3});
  expectValues(gradients.beta, {4, 1});
  expectValues(gradients.source, {-7.0 / 6, 49.0 / 18, 23.0 / 18, -17.0 / 6});
}

TEST(InstanceNormalizationReference, OnePixelGivesBetaAndNoGradient) {
  const InstanceNormalizationProblem problem = problemOf(2, 0.5F);
  const ReferenceTensor x = pixels(2, 2, {3, -7, 0.1, 50});
  expectValues(instanceNormalizationReference(problem, {2, 3}, {4, 5}, x), {4, 5, 4, 5});
  const auto gradients = instanceNormalizationGradientReference(problem, {2, 3}, x, x);
  expectValues(gradients.source, {0, 0, 0, 0});
}

/// The loss sum(w y) as a function of source, gamma and beta.
class Loss {
 public:
  Loss(std::int64_t groups, std::int64_t channels, std::uint64_t seed) : problem(problemOf(groups, 0.0625F)) {
    const auto count = static_cast<std::size_t>(2 * 3 * channels);
    x = pixels(2, channels, randomValues(count, seed, RandomKind::Uniform));
    for (double& value : x.values) value *= 3;
    w = pixels(2, channels, randomValues(count, seed + 1, RandomKind::Uniform));
    gamma = randomValues(static_cast<std::size_t>(channels), seed + 2, RandomKind::Uniform);
    beta = randomValues(static_cast<std::size_t>(channels), seed + 3, RandomKind::Uniform);
    problem.sumsImages = true;
  }
  [[nodiscard]] double value() const {
    const ReferenceTensor y = instanceNormalizationReference(problem, gamma, beta, x);
    double sum = 0;
    for (std::size_t i = 0; i < y.values.size(); ++i) sum += w.values[i] * y.values[i];
    return sum;
  }
  void expectDerivative(Values& values, const ReferenceTensor& gradient) const {
    constexpr double h = 1e-5;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double before = values[i];
      values[i] = before + h;
      const double above = value();
      values[i] = before - h;
      const double difference = (above - value()) / (2 * h);
      values[i] = before;
      EXPECT_NEAR(gradient.values[i], difference,
                  kDerivativeTolerance * (std::abs(difference) + kDerivativeFloor))
          << i;
    }
  }

  InstanceNormalizationProblem problem;
  ReferenceTensor x, w;
  Values gamma, beta;
};

TEST(InstanceNormalizationReference, GradientsAreTheDerivativesOfTheForwardPass) {
  std::uint64_t seed = 100;
  constexpr std::int64_t channels = 6;
  for (const std::int64_t groups : {1, 2, 3, 6}) {
    SCOPED_TRACE(std::to_string(groups) + " groups, seed " + std::to_string(seed));
    Loss loss(groups, channels, seed);
    seed += 10;
    const auto gradients = instanceNormalizationGradientReference(loss.problem, loss.gamma, loss.x, loss.w);
    loss.expectDerivative(loss.x.values, gradients.source);
    loss.expectDerivative(loss.gamma, gradients.gamma);
    loss.expectDerivative(loss.beta, gradients.beta);
  }
}

}  // namespace
}  // namespace mps::detail::instance_normalization_reference_test
