#include "mps/gram_matrix/check/gram_matrix_reference.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "mps/conform/testing/test_tensor.hpp"
#include "mps/conform/tolerance.hpp"
#include "mps/gram_matrix/check/gram_matrix_cases.hpp"

namespace mps::detail::gram_matrix_reference_test {
namespace {

using Numbers = std::vector<double>;

constexpr std::uint64_t kSeed = 20261123;
constexpr auto kFloat32 = ImageFeatureChannelFormat::Float32;

const GramMatrixCase kTwoPixels{"TwoPixels", 1, 1, 2, 2};

ReferenceTensor twoPixels() {
  ReferenceTensor tensor(1, 1, 2, 2);
  tensor.values = {1, 2, 3, 4};
  return tensor;
}

/// Section 7.2: two pixels (1,2), (3,4), alpha 0.5.
TEST(GramMatrixExamples, TwoPixelsForward) {
  EXPECT_EQ(gramMatrixForwardReference(kTwoPixels.forward(kFloat32, kFloat32, 1), twoPixels(), 0.5).values,
            (Numbers{5, 7, 7, 10}));
}

TEST(GramMatrixExamples, TwoPixelsGradient) {
  const GramMatrixProblem problem = kTwoPixels.gradient(kFloat32, kFloat32, kFloat32, 1);
  ReferenceTensor g(1, 1, 2, 2);
  g.values = {1, 0, 0, 0};
  EXPECT_EQ(gramMatrixGradientReference(problem, twoPixels(), g, 0.5).values, (Numbers{1, 0, 3, 0}));
}

/// An incoming gradient need not be symmetric: of (f, c) = (0, 1) alone, both channels get a share.
TEST(GramMatrixExamples, OneSidedGradient) {
  const GramMatrixProblem problem = kTwoPixels.gradient(kFloat32, kFloat32, kFloat32, 1);
  ReferenceTensor g(1, 1, 2, 2);
  g.values = {0, 1, 0, 0};
  EXPECT_EQ(gramMatrixGradientReference(problem, twoPixels(), g, 1).values, (Numbers{2, 1, 4, 3}));
}

TEST(GramMatrixReferenceTable, GradientIsTheCentralDifference) {
  constexpr double alpha = 0.75;
  for (const GramMatrixCase& item : gramMatrixCases()) {
    if (item.channels > 70) continue;
    SCOPED_TRACE(item.name + ", seed " + std::to_string(kSeed));
    const GramMatrixProblem forward = item.forward(kFloat32, kFloat32, 1);
    ReferenceTensor x(item.images, item.height, item.width, item.channels);
    x.values = randomValues(x.values.size(), kSeed, RandomKind::Uniform);
    ReferenceTensor g(item.images, 1, item.channels, item.channels);
    g.values = randomValues(g.values.size(), kSeed + 1, RandomKind::Uniform);
    const ReferenceTensor gradient =
        gramMatrixGradientReference(item.gradient(kFloat32, kFloat32, kFloat32, 1), x, g, alpha);
    const auto objective = [&](const ReferenceTensor& source) {
      const ReferenceTensor result = gramMatrixForwardReference(forward, source, alpha);
      return std::inner_product(result.values.begin(), result.values.end(), g.values.begin(), 0.0);
    };
    constexpr double step = 0x1p-10;
    for (std::size_t sample = 0; sample < std::min<std::size_t>(6, x.values.size()); ++sample) {
      const std::size_t i = sample * x.values.size() / 6;
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
}  // namespace mps::detail::gram_matrix_reference_test
