#include "mps/softmax/check/softmax_reference.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "mps/conform/compare.hpp"

namespace mps::detail::softmax_reference_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

ReferenceTensor pixel(std::vector<double> values) {
  ReferenceTensor tensor(1, 1, 1, static_cast<std::int64_t>(values.size()));
  tensor.values = std::move(values);
  return tensor;
}

SoftMaxProblem problemOf(SoftMaxKind kind) {
  SoftMaxProblem problem;
  problem.kind = kind;
  return problem;
}

std::vector<double> forward(SoftMaxKind kind, std::vector<double> x) {
  return softMaxForwardReference(problemOf(kind), pixel(std::move(x))).values;
}
std::vector<double> gradient(SoftMaxKind kind, std::vector<double> result, std::vector<double> dy) {
  return softMaxGradientReference(problemOf(kind), pixel(std::move(result)), pixel(std::move(dy))).values;
}

void expectNear(const std::vector<double>& found, const std::vector<double>& expected,
                double tolerance = 1e-14) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], tolerance) << i;
}

/// X = [0, ln 2, ln 3].
TEST(SoftMaxReference, WorkedExampleSoftMax) {
  const std::vector<double> s = forward(SoftMaxKind::SoftMax, {0, std::log(2.0), std::log(3.0)});
  expectNear(s, {1.0 / 6, 1.0 / 3, 1.0 / 2});
  expectNear(gradient(SoftMaxKind::SoftMax, s, {1, 0, 0}), {5.0 / 36, -1.0 / 18, -1.0 / 12});
}

TEST(SoftMaxReference, WorkedExampleLogSoftMax) {
  const std::vector<double> l = forward(SoftMaxKind::LogSoftMax, {0, std::log(2.0), std::log(3.0)});
  expectNear(l, {-std::log(6.0), -std::log(3.0), -std::log(2.0)});
  expectNear(l, {-1.7917595, -1.0986123, -0.6931472}, 5e-8);
  expectNear(gradient(SoftMaxKind::LogSoftMax, l, {1, 0, 2}), {0.5, -1, 0.5});
}

/// The rules for special values.
TEST(SoftMaxReference, OneChannel) {
  EXPECT_EQ(forward(SoftMaxKind::SoftMax, {-3})[0], 1);
  EXPECT_EQ(forward(SoftMaxKind::LogSoftMax, {-3})[0], 0);
  EXPECT_EQ(gradient(SoftMaxKind::SoftMax, {1}, {7})[0], 0);
  EXPECT_EQ(gradient(SoftMaxKind::LogSoftMax, {0}, {7})[0], 0);
}

TEST(SoftMaxReference, LargeValuesDoNotOverflow) {
  expectNear(forward(SoftMaxKind::SoftMax, {1e4, 1e4, -1e4}), {0.5, 0.5, 0});
  expectNear(forward(SoftMaxKind::LogSoftMax, {1e4, 1e4, -1e4}),
             {-std::log(2.0), -std::log(2.0), -2e4 - std::log(2.0)}, 1e-11);
}

TEST(SoftMaxReference, Infinities) {
  for (const SoftMaxKind kind : {SoftMaxKind::SoftMax, SoftMaxKind::LogSoftMax})
    for (const std::vector<double>& x :
         {std::vector{-kInfinity, -kInfinity}, std::vector{1.0, kInfinity}, std::vector{0.0, std::nan("")}})
      for (const double value : forward(kind, x)) EXPECT_TRUE(std::isnan(value));
  expectNear(forward(SoftMaxKind::SoftMax, {0, -kInfinity, 0}), {0.5, 0, 0.5});
  EXPECT_EQ(forward(SoftMaxKind::LogSoftMax, {0, -kInfinity, 0})[1], -kInfinity);
}

TEST(SoftMaxReference, GradientsSumToZero) {
  const std::vector<double> x = randomValues(17, 1, RandomKind::Uniform);
  const std::vector<double> dy = randomValues(17, 2, RandomKind::Uniform);
  for (const SoftMaxKind kind : {SoftMaxKind::SoftMax, SoftMaxKind::LogSoftMax}) {
    double sum = 0;
    for (const double dx : gradient(kind, forward(kind, x), dy)) sum += dx;
    EXPECT_NEAR(sum, 0, 1e-14);
  }
}

TEST(SoftMaxReference, CentralDifferences) {
  constexpr double h = 1e-5;
  for (const SoftMaxKind kind : {SoftMaxKind::SoftMax, SoftMaxKind::LogSoftMax}) {
    std::vector<double> x = randomValues(9, 3, RandomKind::Uniform);
    for (double& value : x) value *= 3;
    const std::vector<double> dy = randomValues(9, 4, RandomKind::Uniform);
    const std::vector<double> dx = gradient(kind, forward(kind, x), dy);
    for (std::size_t k = 0; k < x.size(); ++k) {
      std::vector<double> above = x;
      std::vector<double> below = x;
      above[k] += h;
      below[k] -= h;
      const std::vector<double> yAbove = forward(kind, above);
      const std::vector<double> yBelow = forward(kind, below);
      double difference = 0;
      for (std::size_t j = 0; j < x.size(); ++j) difference += dy[j] * (yAbove[j] - yBelow[j]) / (2 * h);
      EXPECT_NEAR(dx[k], difference, 1e-6 * std::abs(dx[k])) << k;
    }
  }
}

TEST(SoftMaxReference, PixelsDoNotMix) {
  ReferenceTensor x(2, 1, 2, 3);
  x.values = randomValues(12, 5, RandomKind::Uniform);
  const ReferenceTensor all = softMaxForwardReference(problemOf(SoftMaxKind::SoftMax), x);
  for (std::size_t p = 0; p < 4; ++p) {
    const auto from = x.values.begin() + static_cast<std::ptrdiff_t>(3 * p);
    const std::vector<double> one = forward(SoftMaxKind::SoftMax, {from, from + 3});
    for (std::size_t k = 0; k < 3; ++k) EXPECT_EQ(all.values[3 * p + k], one[k]);
  }
}

}  // namespace
}  // namespace mps::detail::softmax_reference_test
