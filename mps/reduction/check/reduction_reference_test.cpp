#include "mps/reduction/check/reduction_reference.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "mps/conform/tolerance.hpp"
#include "mps/reduction/check/reduction_cases.hpp"

namespace mps::detail::reduction_reference_test {
namespace {

using Numbers = std::vector<double>;
using enum ReductionOperation;
using enum ReductionAxis;

constexpr std::uint64_t kSeed = 20261122;
constexpr auto kFloat32 = ImageFeatureChannelFormat::Float32;

/// 2 rows of 3 pixels with 2 channels: (1,12) (2,11) (3,10) / (4,9) (5,8) (6,7).
ReferenceTensor smallImage() {
  ReferenceTensor tensor(1, 2, 3, 2);
  tensor.values = {1, 12, 2, 11, 3, 10, 4, 9, 5, 8, 6, 7};
  return tensor;
}

ReductionProblem problemOf(ReductionOperation operation, ReductionAxis axis) {
  ReductionProblem problem;
  problem.operation = operation;
  problem.axis = axis;
  problem.source = TensorShape::dense(1, 2, 3, 2);
  problem.destination = problem.source;
  problem.result = reducedShape(problem.source, axis, kFloat32);
  return problem;
}

Numbers reduced(ReductionOperation operation, ReductionAxis axis) {
  return reductionForwardReference(problemOf(operation, axis), smallImage()).values;
}

TEST(ReductionExamples, ForwardOfEachClass) {
  EXPECT_EQ(reduced(Min, Row), (Numbers{1, 10, 4, 7}));
  EXPECT_EQ(reduced(Max, Row), (Numbers{3, 12, 6, 9}));
  EXPECT_EQ(reduced(Sum, Row), (Numbers{6, 33, 15, 24}));
  EXPECT_EQ(reduced(Mean, Column), (Numbers{2.5, 10.5, 3.5, 9.5, 4.5, 8.5}));
  EXPECT_EQ(reduced(Max, Column), (Numbers{4, 12, 5, 11, 6, 10}));
  EXPECT_EQ(reduced(Sum, FeatureChannels), (Numbers{13, 13, 13, 13, 13, 13}));
  EXPECT_EQ(reduced(Min, FeatureChannels), (Numbers{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(reduced(ArgumentMax, FeatureChannels), (Numbers{1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(reduced(ArgumentMin, FeatureChannels), (Numbers{0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(reduced(Mean, Spatial), (Numbers{3.5, 9.5}));
}

TEST(ReductionExamples, TiesTakeTheFirstAndNaNGoesThrough) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  ReductionProblem problem = problemOf(ArgumentMax, FeatureChannels);
  problem.source = TensorShape::dense(1, 1, 1, 4);
  problem.result = TensorShape::dense(1, 1, 1, 1);
  ReferenceTensor source(1, 1, 1, 4);
  source.values = {1, 7, 7, 2};
  EXPECT_EQ(reductionForwardReference(problem, source).values, Numbers{1});
  source.values = {1, 7, nan, nan};
  EXPECT_EQ(reductionForwardReference(problem, source).values, Numbers{2});
  problem.operation = Min;
  EXPECT_TRUE(std::isnan(reductionForwardReference(problem, source).values[0]));
}

/// Section 14: sum: g broadcast; mean: g / count; minimum and maximum: g to the selected element.
TEST(ReductionExamples, Gradients) {
  const auto gradient = [](ReductionOperation operation, ReductionAxis axis, const Numbers& values) {
    const ReductionProblem problem = problemOf(operation, axis);
    ReferenceTensor g(1, problem.result.height, problem.result.width, problem.result.channels);
    g.values = values;
    return reductionGradientReference(problem, smallImage(), g).values;
  };
  EXPECT_EQ(gradient(Sum, Row, {1, 2, 3, 4}), (Numbers{1, 2, 1, 2, 1, 2, 3, 4, 3, 4, 3, 4}));
  EXPECT_EQ(gradient(Mean, Spatial, {6, 12}), (Numbers{1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2}));
  EXPECT_EQ(gradient(Max, Row, {1, 2, 3, 4}), (Numbers{0, 2, 0, 0, 1, 0, 0, 4, 0, 0, 3, 0}));
  EXPECT_EQ(gradient(Min, FeatureChannels, {1, 2, 3, 4, 5, 6}),
            (Numbers{1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0}));
}

/// Values of one axis differ by more than the step, so there are no ties.
TEST(ReductionReferenceTable, GradientIsTheCentralDifference) {
  for (const ReductionCase& reduction : reductionCases()) {
    if (!reduction.hasGradient() || reduction.channels > 100) continue;
    SCOPED_TRACE(reduction.name + ", seed " + std::to_string(kSeed));
    std::mt19937_64 generator(kSeed);
    std::uniform_real_distribution<double> distribution(-1, 1);
    const ReductionProblem forward = reduction.forward(kFloat32, kFloat32);
    const auto tensorOf = [](const TensorShape& shape) {
      return ReferenceTensor(shape.images, shape.height, shape.width, shape.channels);
    };
    ReferenceTensor x = tensorOf(forward.source);
    std::iota(x.values.begin(), x.values.end(), 0.0);
    std::shuffle(x.values.begin(), x.values.end(), generator);
    for (double& value : x.values) value /= 64;
    ReferenceTensor g = tensorOf(forward.result);
    for (double& value : g.values) value = distribution(generator);
    const ReferenceTensor gradient = reductionGradientReference(reduction.gradient(kFloat32, kFloat32), x, g);
    const auto objective = [&](const ReferenceTensor& source) {
      const ReferenceTensor result = reductionForwardReference(forward, source);
      return std::inner_product(result.values.begin(), result.values.end(), g.values.begin(), 0.0);
    };
    constexpr double step = 0x1p-10;
    for (std::size_t sample = 0; sample < std::min<std::size_t>(8, x.values.size()); ++sample) {
      const std::size_t i = sample * x.values.size() / 8;
      ReferenceTensor above = x;
      ReferenceTensor below = x;
      above.values[i] += step;
      below.values[i] -= step;
      const double difference = (objective(above) - objective(below)) / (2 * step);
      EXPECT_NEAR(gradient.values[i], difference, kDerivativeTolerance * std::max(1.0, std::abs(difference)))
          << "element " << i;
    }
  }
}

}  // namespace
}  // namespace mps::detail::reduction_reference_test
