#include "mps/dropout/dropout_reference.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "mps/conform/compare.hpp"
#include "mps/dropout/dropout_cases.hpp"

namespace mps::detail {
namespace {

DropoutProblem rowOf(std::int64_t elements, float keepProbability, std::uint64_t seed) {
  DropoutProblem problem;
  problem.keepProbability = keepProbability;
  problem.seed = seed;
  problem.maskWidth = elements;
  problem.maskHeight = problem.maskChannels = 1;
  return problem;
}

/// spec/02 section 6.3: P = 0.8, mask = [1 0 1 1], in = [1 2 3 4], g = [1 1 1 1].
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

/// spec/02 section 6.4 with the words of spec/05 section 4.7: seed 0, block 0 has 6627e8d5 e169c58d bc57ac4c
/// 9b00dbd8, so u = 0.39905, 0.88052, 0.73571, 0.60548 to 24 bits.
TEST(DropoutReference, KnownWordsDecide) {
  EXPECT_EQ(dropoutMaskReference(rowOf(4, 0.5F, 0), 0, 0), (std::vector<double>{1, 0, 0, 0}));
  EXPECT_EQ(dropoutMaskReference(rowOf(4, 0.7F, 0), 0, 0), (std::vector<double>{1, 0, 0, 1}));
  EXPECT_EQ(dropoutMaskReference(rowOf(4, 0.8F, 0), 0, 0), (std::vector<double>{1, 0, 1, 1}));
  EXPECT_EQ(dropoutMaskReference(rowOf(4, 0.9F, 0), 0, 0), (std::vector<double>{1, 1, 1, 1}));
  // The comparison is strict: u = 0x6627e8 2^-24 is dropped at P = u and kept just above.
  const float u = 0x6627e8p-24F;
  EXPECT_EQ(dropoutMaskReference(rowOf(1, u, 0), 0, 0), (std::vector<double>{0}));
  EXPECT_EQ(dropoutMaskReference(rowOf(1, std::nextafter(u, 1.0F), 0), 0, 0), (std::vector<double>{1}));
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
}  // namespace mps::detail
