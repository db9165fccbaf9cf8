#include "mps/gather/check/gather_reference.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "mps/conform/compare.hpp"
#include "mps/gather/check/gather_arrays_conform.hpp"

/// The reference against worked examples.
namespace mps::detail::gather_reference_test {
namespace {

using Numbers = std::vector<double>;

GatherProblem problemOf(std::int64_t images, std::int64_t rows, std::int64_t channels, std::int64_t count) {
  return GatherCase{.name = "", .images = images, .rows = rows, .channels = channels, .count = count}.problem(
      GatherDirection::Forward, ImageFeatureChannelFormat::Float32);
}

TEST(GatherReference, RowsThatIndicesName) {
  const GatherProblem problem = problemOf(1, 3, 2, 4);
  const std::vector<std::int64_t> indices{2, 0, 2, 1};
  const ReferenceTensor found =
      gatherForwardReference(problem, indices, tensorOf(problem.source, {1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(found.values, (Numbers{5, 6, 1, 2, 5, 6, 3, 4}));
  EXPECT_EQ(found.roundings, 0);
}

TEST(GatherReference, RowsOfEachPartBehindTheAxis) {
  const GatherProblem problem = problemOf(2, 3, 1, 2);
  const std::vector<std::int64_t> indices{1, 0};
  EXPECT_EQ(gatherForwardReference(problem, indices, tensorOf(problem.source, {1, 2, 3, 4, 5, 6})).values,
            (Numbers{2, 1, 5, 4}));
}

TEST(GatherReference, WhatNamesNoRowGivesZero) {
  const GatherProblem problem = problemOf(1, 2, 1, 4);
  const std::vector<std::int64_t> indices{-1, 1, 2, 0xFFFFFFFF};
  EXPECT_EQ(gatherForwardReference(problem, indices, tensorOf(problem.source, {7, 8})).values,
            (Numbers{0, 8, 0, 0}));
  EXPECT_EQ(gatherGradientReference(problem, indices, tensorOf(problem.result, {1, 2, 3, 4})).values,
            (Numbers{0, 2}));
}

TEST(GatherReference, EqualIndicesAddUpAndOtherRowsAreZero) {
  const GatherProblem problem = problemOf(1, 4, 2, 3);
  const std::vector<std::int64_t> indices{3, 1, 3};
  const ReferenceTensor found =
      gatherGradientReference(problem, indices, tensorOf(problem.result, {1, 2, 3, 4, -5, 6}));
  EXPECT_EQ(found.values, (Numbers{0, 0, 3, 4, 0, 0, -4, 8}));
  EXPECT_EQ(found.magnitude, (Numbers{0, 0, 3, 4, 0, 0, 6, 8}));
  EXPECT_EQ(found.roundings, 1);
}

/// <gather(x), g> = <x, gradient(g)>: the gradient is the transpose. All numbers are small integers, so sums are exact.
TEST(GatherReference, TheGradientIsTheAdjoint) {
  for (const GatherCase& item : gatherCases()) {
    SCOPED_TRACE(item.name);
    const GatherProblem problem = item.problem(GatherDirection::Forward, ImageFeatureChannelFormat::Float32);
    const std::vector<std::int64_t> indices = item.numbers(1);
    const auto numbers = [](const TensorShape& shape, std::uint64_t seed) {
      return tensorOf(
          shape, randomValues(static_cast<std::size_t>(shape.elements()), seed, RandomKind::SmallIntegers));
    };
    const ReferenceTensor x = numbers(problem.source, 2);
    const ReferenceTensor g = numbers(problem.result, 3);
    const auto product = [](const Numbers& one, const Numbers& other) {
      double sum = 0;
      for (std::size_t i = 0; i < one.size(); ++i) sum += one[i] * other[i];
      return sum;
    };
    EXPECT_EQ(product(gatherForwardReference(problem, indices, x).values, g.values),
              product(x.values, gatherGradientReference(problem, indices, g).values));
  }
}

}  // namespace
}  // namespace mps::detail::gather_reference_test
