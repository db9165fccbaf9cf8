#include "mps/normalization/check/normalization_reference.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "mps/conform/tolerance.hpp"
#include "mps/normalization/check/normalization_cases.hpp"

namespace mps::detail::normalization_reference_test {
namespace {

using enum NormalizationKind;
using Numbers = std::vector<double>;

constexpr std::uint64_t kSeed = 20260618;

void expectNear(const Numbers& found, const Numbers& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], kFloat64Tolerance * std::max(1.0, std::abs(expected[i])))
        << "element " << i;
}

/// One row of pixels, or of channels, computed by hand.
struct Example {
  NormalizationProblem problem;
  Numbers source;

  Example(NormalizationKind kind, Numbers values, float alpha, float delta) : source(std::move(values)) {
    const auto size = static_cast<std::int64_t>(source.size());
    problem.kind = kind;
    problem.alpha = alpha;
    problem.beta = 1;
    problem.delta = delta;
    if (kind == CrossChannel) {
      problem.kernelSize = 2;
      problem.source = TensorShape::dense(1, 1, 1, size);
    } else {
      problem.x = {.sourceSize = size, .destinationSize = size, .kernelSize = 3};
      problem.y = {.kernelSize = 3};
      problem.source = TensorShape::dense(1, 1, size, 1);
    }
    problem.gradient = problem.destination = problem.source;
  }
  [[nodiscard]] ReferenceTensor tensorOf(const TensorShape& shape, const Numbers& values) const {
    ReferenceTensor tensor(shape.images, shape.height, shape.width, shape.channels);
    tensor.values = values;
    return tensor;
  }
  [[nodiscard]] Numbers forward() const {
    return normalizationForwardReference(problem, tensorOf(problem.source, source)).values;
  }
  [[nodiscard]] Numbers gradient(const Numbers& incoming) const {
    NormalizationProblem backward = problem;
    backward.direction = NormalizationDirection::Gradient;
    return normalizationGradientReference(backward, tensorOf(problem.source, source),
                                          tensorOf(problem.gradient, incoming))
        .values;
  }
};

/// Computed by hand.
TEST(NormalizationExamples, Spatial) {
  const Example example(Spatial, {1, 2, 3}, 9, 1);
  expectNear(example.forward(), {1.0 / 6, 2.0 / 15, 3.0 / 14});
  expectNear(example.gradient({1, 0, 0}), {1.0 / 9, -1.0 / 9, 0});
  expectNear(example.gradient({1, 1, 1}), {7.0 / 75, -173.0 / 1225, -271.0 / 3675});
}

/// Section 9.5: an even window.
TEST(NormalizationExamples, CrossChannel) {
  const Example example(CrossChannel, {1, 2, 3}, 2, 1);
  expectNear(example.forward(), {1.0 / 2, 1.0 / 3, 3.0 / 14});
  expectNear(example.gradient({0, 1, 0}), {-1.0 / 9, -1.0 / 18, 0});
  expectNear(example.gradient({1, 1, 1}), {-1.0 / 9, -103.0 / 882, -1.0 / 49});
}

/// Section 10.5.
TEST(NormalizationExamples, LocalContrast) {
  const Example example(LocalContrast, {9, 18, 27}, 1, 0);
  expectNear(example.forward(), {1.0 / 6, 2.0 / 15, 11.0 / 46});
  expectNear(example.gradient({1, 0, 0}), {1.0 / 54, -1.0 / 54, 0});
  expectNear(example.gradient({1, 1, 1}), {11.0 / 675, -7609.0 / 357075, -3997.0 / 357075});
}

TEST(NormalizationExamples, TheSharesOfLocalContrast) {
  Example example(LocalContrast, {9, 18, 27}, 1, 0);
  example.problem.pm = 10;
  example.problem.ps = 4;
  example.problem.p0 = 0;
  // X * 4 / VAR + 10 with VAR = 36, 90, 92.
  expectNear(example.forward(), {11, 10.8, 10 + 27.0 * 4 / 92});
}

/// Section 8.3: a clamped pixel counts as the edge pixel, the divisor stays.
TEST(NormalizationExamples, ClampedEdges) {
  Example example(Spatial, {1, 2, 3}, 9, 1);
  example.problem.edgeMode = ImageEdgeMode::Clamp;
  // Three rows of 1 1 2, 1 2 3 and 2 3 3.
  expectNear(example.forward(), {1.0 / 19, 2.0 / 43, 3.0 / 67});
  Example mean(LocalContrast, {3, 6, 9}, 0, 1);
  mean.problem.edgeMode = ImageEdgeMode::Clamp;
  expectNear(mean.forward(), {-1, 0, 1});
}

/// Even windows reach further to the left, offsets move center and window.
TEST(NormalizationExamples, EvenWindowsAndOffsets) {
  Example example(Spatial, {1, 2, 3}, 2, 1);
  example.problem.x.kernelSize = 2;
  example.problem.y.kernelSize = 1;
  expectNear(example.forward(), {1.0 / 2, 2.0 / 6, 3.0 / 14});
  example.problem.x.offset = 1;
  expectNear(example.forward(), {2.0 / 6, 3.0 / 14, 0});
  example.problem.edgeMode = ImageEdgeMode::Clamp;
  expectNear(example.forward(), {2.0 / 6, 3.0 / 14, 3.0 / 19});
}

// Properties, over the case table.

ReferenceTensor randomTensor(const TensorShape& shape, std::mt19937_64& generator) {
  ReferenceTensor tensor(shape.images, shape.height, shape.width, shape.channels);
  std::uniform_real_distribution<double> distribution(-1, 1);
  for (double& value : tensor.values) value = distribution(generator);
  return tensor;
}

double dot(const ReferenceTensor& a, const ReferenceTensor& b) {
  return std::inner_product(a.values.begin(), a.values.end(), b.values.begin(), 0.0);
}

/// One image, and two channels where these do not mix, are as good as many; the gradient shows all.
NormalizationCase reduced(NormalizationCase normalization) {
  NormalizationGeometry& geometry = normalization.geometry;
  geometry.images = 1;
  if (normalization.kind != CrossChannel)
    geometry.channels = std::min<std::int64_t>(2, geometry.channels);
  else
    geometry.x.sourceSize = geometry.y.sourceSize = 2;
  geometry.channels = std::min<std::int64_t>(70, geometry.channels);
  geometry.memory = NormalizationMemory::Dense;
  for (NormalizationExtent* extent : {&geometry.x, &geometry.y}) {
    extent->viewOrigin = 0;
    extent->viewSize = 0;
  }
  return normalization;
}

constexpr auto kFloat32 = ImageFeatureChannelFormat::Float32;

TEST(NormalizationReferenceTable, GradientIsTheCentralDifference) {
  for (const NormalizationCase& whole : normalizationCases()) {
    const NormalizationCase normalization = reduced(whole);
    SCOPED_TRACE(normalization.name + ", seed " + std::to_string(kSeed));
    std::mt19937_64 generator(kSeed);
    const NormalizationProblem forward = normalization.forward(kFloat32, kFloat32);
    const NormalizationProblem backward = normalization.gradient(kFloat32, kFloat32);
    const ReferenceTensor source = randomTensor(forward.source, generator);
    const ReferenceTensor incoming = randomTensor(backward.gradient, generator);
    const ReferenceTensor gradient = normalizationGradientReference(backward, source, incoming);
    constexpr double step = 0x1p-13;
    std::uniform_int_distribution<std::size_t> pick(0, source.values.size() - 1);
    for (int sample = 0; sample < 3; ++sample) {
      const std::size_t i = pick(generator);
      const auto lossAt = [&](double value) {
        ReferenceTensor moved = source;
        moved.values[i] += value;
        return dot(normalizationForwardReference(forward, moved), incoming);
      };
      const double difference = (lossAt(step) - lossAt(-step)) / (2 * step);
      EXPECT_NEAR(gradient.values[i], difference,
                  kDerivativeTolerance * std::max({1.0, std::abs(difference), gradient.magnitude[i]}))
          << "element " << i;
    }
  }
}

/// Without a power the sums have no part in it: then the kernels are linear, but for pm, and their own adjoints'
/// adjoints.
TEST(NormalizationReferenceTable, WithoutAPowerTheGradientIsTheAdjoint) {
  for (NormalizationCase normalization : normalizationCases()) {
    normalization = reduced(normalization);
    normalization.setting = {"Linear", 1, 0, 1};
    SCOPED_TRACE(normalization.name + ", seed " + std::to_string(kSeed));
    std::mt19937_64 generator(kSeed);
    NormalizationProblem forward = normalization.forward(kFloat32, kFloat32);
    forward.pm = 0;
    const NormalizationProblem backward = normalization.gradient(kFloat32, kFloat32);
    const ReferenceTensor source = randomTensor(forward.source, generator);
    const ReferenceTensor incoming = randomTensor(backward.gradient, generator);
    const ReferenceTensor gradient = normalizationGradientReference(backward, source, incoming);
    const double left = dot(normalizationForwardReference(forward, source), incoming);
    EXPECT_NEAR(left, dot(source, gradient), kDerivativeTolerance * std::max(1.0, std::abs(left)));
  }
}

/// A gradient that shows a part of the source, or more than that.
TEST(NormalizationView, IsCutOutOfTheWholeGradient) {
  std::mt19937_64 generator(kSeed);
  int parts = 0;
  for (const NormalizationCase& normalization : normalizationCases()) {
    if (normalization.kind == CrossChannel || normalization.geometry.x.viewSize == 0) continue;
    ++parts;
    SCOPED_TRACE(normalization.name);
    const NormalizationProblem part = normalization.gradient(kFloat32, kFloat32);
    NormalizationProblem whole = part;
    whole.destination = part.source;
    whole.destinationOriginX = whole.destinationOriginY = 0;
    const ReferenceTensor source = randomTensor(part.source, generator);
    const ReferenceTensor incoming = randomTensor(part.gradient, generator);
    const ReferenceTensor cut = normalizationGradientReference(part, source, incoming);
    const ReferenceTensor all = normalizationGradientReference(whole, source, incoming);
    for (std::int64_t n = 0; n < cut.images; ++n)
      for (std::int64_t y = 0; y < cut.height; ++y)
        for (std::int64_t x = 0; x < cut.width; ++x)
          for (std::int64_t c = 0; c < cut.channels; ++c) {
            const std::int64_t fromY = y + part.destinationOriginY;
            const std::int64_t fromX = x + part.destinationOriginX;
            const bool isInside = fromY < all.height && fromX < all.width;
            ASSERT_EQ(cut.at(n, y, x, c), isInside ? all.at(n, fromY, fromX, c) : 0);
          }
  }
  EXPECT_GT(parts, 0);
}

}  // namespace
}  // namespace mps::detail::normalization_reference_test
