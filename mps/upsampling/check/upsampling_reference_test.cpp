#include "mps/upsampling/check/upsampling_reference.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "mps/conform/tolerance.hpp"
#include "mps/upsampling/check/upsampling_cases.hpp"

namespace mps::detail::upsampling_reference_test {
namespace {

using enum UpsamplingSampling;
using Numbers = std::vector<double>;

constexpr std::uint64_t kSeed = 20260618;

/// One row of one channel.
struct Example {
  UpsamplingSampling sampling = Nearest;
  std::int64_t scaleFactor = 2;
  Numbers source;
  std::int64_t offset = 0;
  ImageEdgeMode edgeMode = ImageEdgeMode::Zero;
  std::int64_t results = 0;     ///< 0: as many as the enlarged source has
  std::int64_t resultSize = 0;  ///< of a resize

  [[nodiscard]] UpsamplingProblem problem(UpsamplingDirection direction) const {
    const auto size = static_cast<std::int64_t>(source.size());
    UpsamplingProblem problem;
    problem.sampling = sampling;
    problem.direction = direction;
    problem.edgeMode = edgeMode;
    const std::int64_t whole = resultSize == 0 ? size * scaleFactor : resultSize;
    problem.x = {.sourceSize = size, .resultSize = whole, .offset = offset};
    const TensorShape small = TensorShape::dense(1, 1, size, 1);
    const TensorShape large = TensorShape::dense(1, 1, results == 0 ? whole : results, 1);
    const bool isForward = direction == UpsamplingDirection::Forward;
    problem.input = isForward ? small : large;
    problem.destination = isForward ? large : small;
    return problem;
  }
  [[nodiscard]] Numbers forward() const {
    ReferenceTensor tensor(1, 1, static_cast<std::int64_t>(source.size()), 1);
    tensor.values = source;
    return upsamplingForwardReference(problem(UpsamplingDirection::Forward), tensor).values;
  }
  [[nodiscard]] Numbers gradient(const Numbers& incoming) const {
    ReferenceTensor tensor(1, 1, static_cast<std::int64_t>(incoming.size()), 1);
    tensor.values = incoming;
    return upsamplingGradientReference(problem(UpsamplingDirection::Gradient), tensor).values;
  }
};

void expectNear(const Numbers& found, const Numbers& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], kFloat64Tolerance * std::max(1.0, std::abs(expected[i])))
        << "element " << i;
}

// Worked examples of section 4.7.

TEST(UpsamplingExamples, Nearest) {
  const Example example{.scaleFactor = 3, .source = {1, 2}};
  EXPECT_EQ(example.forward(), (Numbers{1, 1, 1, 2, 2, 2}));
  EXPECT_EQ(example.gradient({1, 2, 3, 4, 5, 6}), (Numbers{6, 15}));
}

/// Section 4.2: [a b; c d] by 2x2.
TEST(UpsamplingExamples, NearestOnTwoAxes) {
  UpsamplingProblem problem;
  problem.x = problem.y = {.sourceSize = 2, .resultSize = 4};
  problem.input = TensorShape::dense(1, 2, 2, 1);
  problem.destination = TensorShape::dense(1, 4, 4, 1);
  ReferenceTensor source(1, 2, 2, 1);
  source.values = {1, 2, 3, 4};
  EXPECT_EQ(upsamplingForwardReference(problem, source).values,
            (Numbers{1, 1, 2, 2, 1, 1, 2, 2, 3, 3, 4, 4, 3, 3, 4, 4}));
}

TEST(UpsamplingExamples, BilinearOfTwoPixels) {
  const Numbers g = {1, 10, 100, 1000};
  const Example aligned{.sampling = BilinearAlignCorners, .source = {0, 10}};
  expectNear(aligned.forward(), {0, 10.0 / 3, 20.0 / 3, 10});
  expectNear(aligned.gradient(g), {41, 1070});
  const Example topLeft{.sampling = Bilinear, .source = {0, 10}};
  expectNear(topLeft.forward(), {0, 5, 10, 10});
  expectNear(topLeft.gradient(g), {6, 1105});
  const Example halfPixel{.sampling = BilinearHalfPixel, .source = {0, 10}};
  expectNear(halfPixel.forward(), {0, 2.5, 7.5, 10});
  expectNear(halfPixel.gradient(g), {33.5, 1077.5});
}

TEST(UpsamplingExamples, BilinearOfThreePixels) {
  const Numbers source = {0, 10, 20};
  expectNear(Example{.sampling = BilinearAlignCorners, .source = source}.forward(), {0, 4, 8, 12, 16, 20});
  expectNear(Example{.sampling = Bilinear, .source = source}.forward(), {0, 5, 10, 15, 20, 20});
  expectNear(Example{.sampling = BilinearHalfPixel, .source = source}.forward(),
             {0, 2.5, 7.5, 12.5, 17.5, 20});
}

/// Section 4.3: t = 0 where n = 1.
TEST(UpsamplingExamples, OnePixel) {
  for (const auto sampling : {Nearest, Bilinear, BilinearAlignCorners, BilinearHalfPixel}) {
    const Example copy{.sampling = sampling, .scaleFactor = 1, .source = {7}};
    EXPECT_EQ(copy.forward(), (Numbers{7}));
    EXPECT_EQ(copy.gradient({3}), (Numbers{3}));
    const Example enlarged{.sampling = sampling, .scaleFactor = 3, .source = {7}};
    EXPECT_EQ(enlarged.forward(), (Numbers{7, 7, 7}));
    EXPECT_EQ(enlarged.gradient({1, 10, 100}), (Numbers{111}));
  }
}

// Q21: source position = offset + t(x), by the edge mode where it leaves the source.

TEST(UpsamplingOffsets, OfNearest) {
  Example example{.source = {1, 2, 3}, .offset = 1};
  EXPECT_EQ(example.forward(), (Numbers{2, 2, 3, 3, 0, 0}));
  EXPECT_EQ(example.gradient({1, 2, 4, 8, 16, 32}), (Numbers{0, 3, 12}));
  example.edgeMode = ImageEdgeMode::Clamp;
  EXPECT_EQ(example.forward(), (Numbers{2, 2, 3, 3, 3, 3}));
  EXPECT_EQ(example.gradient({1, 2, 4, 8, 16, 32}), (Numbers{0, 3, 60}));
  example.offset = -1;
  EXPECT_EQ(example.forward(), (Numbers{1, 1, 1, 1, 2, 2}));
}

TEST(UpsamplingOffsets, OfBilinear) {
  Example example{.sampling = Bilinear, .source = {2, 4, 8}, .offset = 1};
  // Positions 1, 1.5, 2, 2.5, 3, 3.
  EXPECT_EQ(example.forward(), (Numbers{4, 6, 8, 4, 0, 0}));
  EXPECT_EQ(example.gradient({1, 2, 4, 8, 16, 32}), (Numbers{0, 2, 9}));
  example.edgeMode = ImageEdgeMode::Clamp;
  EXPECT_EQ(example.forward(), (Numbers{4, 6, 8, 8, 8, 8}));
  EXPECT_EQ(example.gradient({1, 2, 4, 8, 16, 32}), (Numbers{0, 2, 61}));
  // Positions -1, -0.5, 0, 0.5, 1, 1.
  example.offset = -1;
  EXPECT_EQ(example.forward(), (Numbers{2, 2, 2, 3, 4, 4}));
  example.edgeMode = ImageEdgeMode::Zero;
  EXPECT_EQ(example.forward(), (Numbers{0, 1, 2, 3, 4, 4}));
}

TEST(UpsamplingOffsets, MoreResultsThanTheEnlargedSource) {
  EXPECT_EQ((Example{.source = {1, 2}, .results = 6}.forward()), (Numbers{1, 1, 2, 2, 0, 0}));
  EXPECT_EQ((Example{.sampling = Bilinear, .source = {2, 4}, .results = 6}.forward()),
            (Numbers{2, 3, 4, 4, 4, 4}));
}

TEST(UpsamplingReference, PixelsOfWeightZeroAreNotLookedAt) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Numbers found = Example{.sampling = Bilinear, .source = {1, nan}}.forward();
  EXPECT_EQ(found[0], 1);
  EXPECT_TRUE(std::isnan(found[1]) && std::isnan(found[2]) && std::isnan(found[3]));
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

/// One image of two channels is as good as many; the gradient shows all and begins at result 0.
UpsamplingCase reduced(UpsamplingCase upsampling) {
  upsampling.geometry.images = 1;
  upsampling.geometry.channels = 2;
  upsampling.geometry.memory = UpsamplingMemory::Dense;
  for (UpsamplingExtent* extent : {&upsampling.geometry.x, &upsampling.geometry.y}) {
    extent->firstResult = 0;
    extent->viewOrigin = 0;
    extent->viewSize = 0;
  }
  return upsampling;
}

constexpr auto kFloat32 = ImageFeatureChannelFormat::Float32;

void expectCentralDifferenceAndAdjoint(const UpsamplingCase& upsampling) {
  std::mt19937_64 generator(kSeed);
  const UpsamplingProblem forward = upsampling.forward(kFloat32, kFloat32);
  const UpsamplingProblem backward = upsampling.gradient(kFloat32, kFloat32);
  const ReferenceTensor source = randomTensor(forward.input, generator);
  const ReferenceTensor incoming = randomTensor(backward.input, generator);
  const ReferenceTensor gradient = upsamplingGradientReference(backward, incoming);
  constexpr double step = 0x1p-10;
  std::uniform_int_distribution<std::size_t> pick(0, source.values.size() - 1);
  for (int sample = 0; sample < 5; ++sample) {
    const std::size_t i = pick(generator);
    ReferenceTensor above = source;
    ReferenceTensor below = source;
    above.values[i] += step;
    below.values[i] -= step;
    const double difference = (dot(upsamplingForwardReference(forward, above), incoming) -
                               dot(upsamplingForwardReference(forward, below), incoming)) /
                              (2 * step);
    EXPECT_NEAR(gradient.values[i], difference,
                kDerivativeTolerance * std::max({1.0, std::abs(difference), gradient.magnitude[i]}))
        << "element " << i;
  }
  const double left = dot(upsamplingForwardReference(forward, source), incoming);
  EXPECT_NEAR(left, dot(source, gradient), kDerivativeTolerance * std::max(1.0, std::abs(left)));
}

/// A table computed by hand, to some digits.
TEST(ResizeExamples, RowOfFourPixels) {
  const auto resized = [](UpsamplingSampling sampling, std::int64_t size) {
    return Example{.sampling = sampling, .source = {0, 10, 20, 30}, .resultSize = size}.forward();
  };
  const auto expectPrinted = [](const Numbers& found, const Numbers& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], expected[i], printedTolerance(4)) << "pixel " << i;
  };
  expectPrinted(resized(BilinearAlignCorners, 8),
                {0, 4.2857, 8.5714, 12.8571, 17.1429, 21.4286, 25.7143, 30});
  expectPrinted(resized(Bilinear, 8), {0, 5, 10, 15, 20, 25, 30, 30});
  expectPrinted(resized(BilinearHalfPixel, 8), {0, 2.5, 7.5, 12.5, 17.5, 22.5, 27.5, 30});
  expectPrinted(resized(BilinearAlignCorners, 6), {0, 6, 12, 18, 24, 30});
  expectPrinted(resized(Bilinear, 6), {0, 6.6667, 13.3333, 20, 26.6667, 30});
  expectPrinted(resized(BilinearHalfPixel, 6), {0, 5, 11.6667, 18.3333, 25, 30});
  expectPrinted(resized(BilinearAlignCorners, 2), {0, 30});
  expectPrinted(resized(Bilinear, 2), {0, 20});
  expectPrinted(resized(BilinearHalfPixel, 2), {5, 25});
}

TEST(UpsamplingReferenceTable, GradientIsTheCentralDifferenceAndTheAdjoint) {
  for (const UpsamplingCase& upsampling : upsamplingCases()) {
    SCOPED_TRACE(upsampling.name + ", seed " + std::to_string(kSeed));
    expectCentralDifferenceAndAdjoint(reduced(upsampling));
  }
}

/// Section 4.7: the sum of the gradient is that of what came in.
void expectNothingIsLost(const UpsamplingCase& upsampling) {
  std::mt19937_64 generator(kSeed);
  const UpsamplingProblem backward = upsampling.gradient(kFloat32, kFloat32);
  const ReferenceTensor incoming = randomTensor(backward.input, generator);
  const ReferenceTensor gradient = upsamplingGradientReference(backward, incoming);
  const auto sum = [](const ReferenceTensor& tensor) {
    return std::accumulate(tensor.values.begin(), tensor.values.end(), 0.0);
  };
  const double magnitude = std::accumulate(gradient.magnitude.begin(), gradient.magnitude.end(), 1.0);
  EXPECT_NEAR(sum(gradient), sum(incoming), kFloat64Tolerance * magnitude);
}

TEST(UpsamplingReferenceTable, NothingIsLostUnlessItLiesOutside) {
  int compared = 0;
  for (const UpsamplingCase& upsampling : upsamplingCases()) {
    const UpsamplingGeometry& geometry = upsampling.geometry;
    if (upsampling.edgeMode == ImageEdgeMode::Zero &&
        (geometry.x.leavesSource() || geometry.y.leavesSource()))
      continue;
    ++compared;
    SCOPED_TRACE(upsampling.name + ", seed " + std::to_string(kSeed));
    expectNothingIsLost(reduced(upsampling));
  }
  EXPECT_GT(compared, 0);
}

/// A gradient that shows a part, or more than the source, and takes a part of the results.
TEST(UpsamplingView, IsCutOutOfTheWholeGradient) {
  std::mt19937_64 generator(kSeed);
  int parts = 0;
  for (const UpsamplingCase& upsampling : upsamplingCases()) {
    const UpsamplingProblem part = upsampling.gradient(kFloat32, kFloat32);
    const bool isPart = part.x.firstResult + part.y.firstResult + part.x.destinationOrigin +
                            part.y.destinationOrigin + upsampling.geometry.x.viewSize >
                        0;
    if (!isPart) continue;
    ++parts;
    SCOPED_TRACE(upsampling.name);
    const ReferenceTensor incoming = randomTensor(part.input, generator);
    const ReferenceTensor cut = upsamplingGradientReference(part, incoming);

    // The whole incoming gradient is 0 where the part has none.
    UpsamplingProblem whole = part;
    whole.x.firstResult = whole.y.firstResult = 0;
    whole.x.destinationOrigin = whole.y.destinationOrigin = 0;
    whole.input = TensorShape::dense(part.input.images, part.input.height + part.y.firstResult,
                                     part.input.width + part.x.firstResult, part.input.channels);
    whole.destination =
        TensorShape::dense(part.input.images, part.y.sourceSize, part.x.sourceSize, part.input.channels);
    ReferenceTensor padded(whole.input.images, whole.input.height, whole.input.width, whole.input.channels);
    for (std::int64_t n = 0; n < incoming.images; ++n)
      for (std::int64_t y = 0; y < incoming.height; ++y)
        for (std::int64_t x = 0; x < incoming.width; ++x)
          for (std::int64_t c = 0; c < incoming.channels; ++c)
            padded.at(n, y + part.y.firstResult, x + part.x.firstResult, c) = incoming.at(n, y, x, c);
    const ReferenceTensor all = upsamplingGradientReference(whole, padded);
    for (std::int64_t n = 0; n < cut.images; ++n)
      for (std::int64_t y = 0; y < cut.height; ++y)
        for (std::int64_t x = 0; x < cut.width; ++x)
          for (std::int64_t c = 0; c < cut.channels; ++c) {
            const std::int64_t fromY = y + part.y.destinationOrigin;
            const std::int64_t fromX = x + part.x.destinationOrigin;
            const bool inside = fromY < all.height && fromX < all.width;
            ASSERT_EQ(cut.at(n, y, x, c), inside ? all.at(n, fromY, fromX, c) : 0);
          }
  }
  EXPECT_GT(parts, 0);
}

}  // namespace
}  // namespace mps::detail::upsampling_reference_test
