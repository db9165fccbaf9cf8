#include "mps/dropout/check/dropout_reference.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "mps/conform/compare.hpp"
#include "mps/dropout/check/dropout_cases.hpp"

namespace mps::detail::dropout_reference_test {
namespace {

DropoutProblem rowOf(std::int64_t elements, float keepProbability, std::uint64_t seed) {
  DropoutProblem problem;
  problem.keepProbability = keepProbability;
  problem.seed = seed;
  problem.maskWidth = elements;
  problem.maskHeight = problem.maskChannels = 1;
  return problem;
}

/// P = 0.8, mask = [1 0 1 1], in = [1 2 3 4], g = [1 1 1 1].
TEST(DropoutReference, ExampleD1) {
  DropoutProblem problem = rowOf(4, 0.8F, 0);
  while (dropoutMaskReference(problem, 0, 0) != std::vector<double>{1, 0, 1, 1}) ++problem.seed;
  ReferenceTensor input(1, 1, 4, 1);
  input.values = {1, 2, 3, 4};
  ReferenceTensor gradient(1, 1, 4, 1);
  gradient.values = {1, 1, 1, 1};
  constexpr double expected[] = {1.25, 0, 3.75, 5};
  constexpr double expectedGradient[] = {1.25, 0, 1.25, 1.25};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(dropoutReference(problem, input, 0, 0).values[i], expected[i],
                kFloat32Roundoff * expected[i]);
    EXPECT_NEAR(dropoutReference(problem, gradient, 0, 0).values[i], expectedGradient[i],
                kFloat32Roundoff * expectedGradient[i]);
  }
}

/// Known words of the generator: seed 0, block 0 has 6627e8d5 e169c58d bc57ac4c 9b00dbd8, the lower 16 bits first.
TEST(DropoutReference, KnownWordsDecide) {
  // 0.90950 0.39905 0.77169 0.88052 0.67303 0.73570 0.85876 0.60547
  EXPECT_EQ(dropoutMaskReference(rowOf(8, 0.5F, 0), 0, 0), (std::vector<double>{0, 1, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(dropoutMaskReference(rowOf(8, 0.7F, 0), 0, 0), (std::vector<double>{0, 1, 0, 0, 1, 0, 0, 1}));
  EXPECT_EQ(dropoutMaskReference(rowOf(8, 0.8F, 0), 0, 0), (std::vector<double>{0, 1, 1, 0, 1, 1, 0, 1}));
  EXPECT_EQ(dropoutMaskReference(rowOf(8, 0.9F, 0), 0, 0), (std::vector<double>{0, 1, 1, 1, 1, 1, 1, 1}));
  // The comparison is strict: dropped at P = number 2^-16 and kept just above, where P is rounded up.
  constexpr float lower = 0xe8d5p-16F;
  constexpr float upper = 0x6627p-16F;
  EXPECT_EQ(dropoutMaskReference(rowOf(2, lower, 0), 0, 0), (std::vector<double>{0, 1}));
  EXPECT_EQ(dropoutMaskReference(rowOf(2, std::nextafter(lower, 1.0F), 0), 0, 0),
            (std::vector<double>{1, 1}));
  EXPECT_EQ(dropoutMaskReference(rowOf(2, upper, 0), 0, 0), (std::vector<double>{0, 0}));
  EXPECT_EQ(dropoutMaskReference(rowOf(2, std::nextafter(upper, 1.0F), 0), 0, 0),
            (std::vector<double>{0, 1}));
}

/// Every number is below 1, and of the probabilities below 2^-16 all keep the number 0 alone.
TEST(DropoutReference, TheEndsOfTheProbabilities) {
  constexpr std::int64_t elements = 1 << 18;
  const std::vector<double> all = dropoutMaskReference(rowOf(elements, 1.0F, 3), 0, 0);
  EXPECT_EQ(std::count(all.begin(), all.end(), 1.0), elements);
  const std::vector<double> least = dropoutMaskReference(rowOf(elements, 0x1p-16F, 3), 0, 0);
  const auto kept = std::count(least.begin(), least.end(), 1.0);
  EXPECT_GT(kept, 0);  // 4 are expected
  EXPECT_LT(kept, 20);
  EXPECT_EQ(dropoutMaskReference(rowOf(elements, 0x1p-100F, 3), 0, 0), least);
}

TEST(DropoutReference, KeepsItsShareAndIsFreshForEveryImageAndEncode) {
  constexpr std::int64_t elements = 100000;
  for (const float keep : {0.1F, 0.5F, 0.8F}) {
    const DropoutProblem problem = rowOf(elements, keep, 5);
    const auto first = dropoutMaskReference(problem, 0, 0);
    double kept = 0;
    for (const double m : first) kept += m;
    const double deviation = std::sqrt(elements * keep * (1 - keep));
    EXPECT_NEAR(kept, elements * static_cast<double>(keep), 5 * deviation);
    for (const auto& other : {dropoutMaskReference(problem, 0, 1), dropoutMaskReference(problem, 1, 0),
                              dropoutMaskReference(rowOf(elements, keep, 6), 0, 0),
                              dropoutMaskReference(rowOf(elements, keep, 5ULL << 32U), 0, 0)}) {
      double both = 0;
      for (std::size_t i = 0; i < first.size(); ++i) both += first[i] * other[i];
      const double expected = elements * static_cast<double>(keep) * static_cast<double>(keep);
      EXPECT_NEAR(both, expected, 5 * std::sqrt(expected));
    }
  }
}

TEST(DropoutReference, MaskSizeFollowsTheStrides) {
  DropoutProblem problem = rowOf(5, 0.5F, 1);
  problem.maskHeight = 3;
  problem.maskChannels = 7;
  EXPECT_EQ(dropoutMaskReference(problem, 0, 0).size(), 105U);
  problem.maskStrideX = 0;
  EXPECT_EQ(dropoutMaskReference(problem, 0, 0).size(), 21U);
  problem.maskStrideChannel = 0;
  EXPECT_EQ(dropoutMaskReference(problem, 0, 0).size(), 3U);
  problem.maskStrideY = 0;
  EXPECT_EQ(dropoutMaskReference(problem, 0, 0).size(), 1U);
  EXPECT_EQ(problem.maskElements(), 1);
}

/// <D x, y> = <x, D y>: the gradient is the adjoint of the forward pass.
TEST(DropoutReference, GradientIsTheAdjoint) {
  for (const DropoutCase& item : dropoutCases()) {
    const DropoutProblem problem = item.problem(DropoutDirection::Forward, ImageFeatureChannelFormat::Float32,
                                                ImageFeatureChannelFormat::Float32);
    ReferenceTensor x(item.images, item.height, item.width, item.channels);
    ReferenceTensor y = x;
    x.values = randomValues(x.values.size(), 1, RandomKind::Uniform);
    y.values = randomValues(y.values.size(), 2, RandomKind::Uniform);
    const ReferenceTensor forward = dropoutReference(problem, x, item.encodeCounter, item.firstImage);
    const ReferenceTensor gradient = dropoutReference(problem, y, item.encodeCounter, item.firstImage);
    double left = 0;
    double right = 0;
    double terms = 0;
    for (std::size_t i = 0; i < x.values.size(); ++i) {
      left += forward.values[i] * y.values[i];
      right += x.values[i] * gradient.values[i];
      terms += std::abs(forward.values[i] * y.values[i]);
    }
    EXPECT_NEAR(left, right, 1e-12 * terms) << item.name;
  }
}

}  // namespace
}  // namespace mps::detail::dropout_reference_test
