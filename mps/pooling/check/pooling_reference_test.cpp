#include "mps/pooling/check/pooling_reference.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "mps/pooling/check/pooling_cases.hpp"

namespace mps::detail::pooling_reference_test {
namespace {

constexpr std::uint64_t kSeed = 20260611;

/// A pooling call on one image of one channel.
struct Example {
  PoolingKind kind = PoolingKind::Max;
  ImageEdgeMode edgeMode = ImageEdgeMode::Zero;
  WindowAxis x;
  WindowAxis y;
  std::int64_t zeroPadSizeX = 0;
  std::int64_t zeroPadSizeY = 0;
  std::vector<double> source;

  [[nodiscard]] PoolingProblem problem(PoolingDirection direction) const {
    PoolingProblem problem;
    problem.kind = kind;
    problem.direction = direction;
    problem.edgeMode = edgeMode;
    problem.zeroPadSizeX = zeroPadSizeX;
    problem.zeroPadSizeY = zeroPadSizeY;
    problem.x = x;
    problem.y = y;
    problem.source = TensorShape::dense(1, y.sourceSize, x.sourceSize, 1);
    const TensorShape windows = TensorShape::dense(1, y.destinationSize, x.destinationSize, 1);
    problem.destination = direction == PoolingDirection::Forward ? windows : problem.source;
    if (direction == PoolingDirection::Gradient) problem.gradient = windows;
    return problem;
  }
  [[nodiscard]] ReferenceTensor sourceTensor() const {
    ReferenceTensor tensor(1, y.sourceSize, x.sourceSize, 1);
    tensor.values = source;
    return tensor;
  }
  [[nodiscard]] std::vector<double> forward() const {
    return poolingForwardReference(problem(PoolingDirection::Forward), sourceTensor()).values;
  }
  [[nodiscard]] std::vector<std::uint32_t> indices() const {
    return poolingIndicesReference(problem(PoolingDirection::Forward), sourceTensor());
  }
  [[nodiscard]] std::vector<double> gradient(std::vector<double> incoming) const {
    return gradientOf(problem(PoolingDirection::Gradient), std::move(incoming));
  }
  [[nodiscard]] std::vector<double> gradientOf(const PoolingProblem& changed,
                                               std::vector<double> incoming) const {
    ReferenceTensor tensor(1, y.destinationSize, x.destinationSize, 1);
    tensor.values = std::move(incoming);
    return poolingGradientReference(changed, sourceTensor(), tensor).values;
  }
};

using Numbers = std::vector<double>;
using Indices = std::vector<std::uint32_t>;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr WindowAxis kOneRow = {.sourceSize = 1, .destinationSize = 1, .kernelSize = 1};

/// A source of one row.
Example rowExample(PoolingKind kind, ImageEdgeMode edgeMode, WindowAxis x, Numbers source) {
  return {.kind = kind, .edgeMode = edgeMode, .x = x, .y = kOneRow, .source = std::move(source)};
}

void expectNear(const Numbers& found, const Numbers& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 5e-7) << i;
}

// Worked examples, P1 to P4.

Example exampleP0() {
  return rowExample(PoolingKind::Average, ImageEdgeMode::Zero,
                    {.sourceSize = 5, .destinationSize = 2, .kernelSize = 2, .stride = 2, .offset = 2},
                    {1, 2, 3, 4, 5});
}

TEST(PoolingExampleP0, StateDrivenCallKeepsSourceCoordinates) {
  EXPECT_EQ(exampleP0().gradient({2, 20}), (Numbers{0, 1, 1, 10, 10}));
}

TEST(PoolingExampleP0, ExplicitCallStartsAtTheFirstWindow) {
  PoolingProblem problem = exampleP0().problem(PoolingDirection::Gradient);
  problem.destinationOriginX = 1;
  EXPECT_EQ(exampleP0().gradientOf(problem, {2, 20}), (Numbers{1, 1, 10, 10, 0}));
  problem.destination = TensorShape::dense(1, 1, 4, 1);
  EXPECT_EQ(exampleP0().gradientOf(problem, {2, 20}), (Numbers{1, 1, 10, 10}));
}

constexpr WindowAxis kP1X = {
    .sourceSize = 4, .destinationSize = 2, .kernelSize = 3, .stride = 2, .offset = 1};
constexpr WindowAxis kP1Y = {
    .sourceSize = 3, .destinationSize = 2, .kernelSize = 3, .stride = 2, .offset = 0};

Example exampleP1(ImageEdgeMode edgeMode) {
  return {.kind = PoolingKind::Max,
          .edgeMode = edgeMode,
          .x = kP1X,
          .y = kP1Y,
          .source = {-1, -2, -3, -4, -5, -6, -7, -8, 9, 10, 11, 12}};
}

TEST(PoolingExampleP1, Clamp) {
  const Example example = exampleP1(ImageEdgeMode::Clamp);
  EXPECT_EQ(example.forward(), (Numbers{-1, -3, 11, 12}));
  EXPECT_EQ(example.gradient({1, 10, 100, 1000}), (Numbers{1, 0, 10, 0, 0, 0, 0, 0, 0, 0, 100, 1000}));
  // A and B begin with a clamped row, which repeats the row of the chosen pixel: the tap inside counts.
  EXPECT_EQ(example.indices(), (Indices{3, 3, 5, 4}));
}

TEST(PoolingExampleP1, Zero) {
  const Example example = exampleP1(ImageEdgeMode::Zero);
  EXPECT_EQ(example.forward(), (Numbers{0, 0, 11, 12}));
  EXPECT_EQ(example.gradient({1, 10, 100, 1000}), (Numbers{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 100, 1000}));
  EXPECT_EQ(example.indices(), (Indices{255, 255, 5, 4}));
}

constexpr WindowAxis kThree = {.sourceSize = 3, .destinationSize = 1, .kernelSize = 3, .offset = 1};

TEST(PoolingExampleP1, TieGoesToTheFirstTap) {
  const Example example = rowExample(PoolingKind::Max, ImageEdgeMode::Zero, kThree, {2, 2, 1});
  EXPECT_EQ(example.gradient({5}), (Numbers{5, 0, 0}));
  EXPECT_EQ(example.indices(), (Indices{0}));
}

TEST(PoolingMaximum, TieGoesToTheSmallestRowThenTheSmallestColumn) {
  const Example example = {.kind = PoolingKind::Max,
                           .x = {.sourceSize = 2, .destinationSize = 1, .kernelSize = 2, .offset = 1},
                           .y = {.sourceSize = 2, .destinationSize = 1, .kernelSize = 2, .offset = 1},
                           .source = {1, 7, 7, 0}};
  EXPECT_EQ(example.gradient({3}), (Numbers{0, 3, 0, 0}));
  EXPECT_EQ(example.indices(), (Indices{1}));
}

TEST(PoolingMaximum, ImageWinsATieWithAnOutsideZero) {
  const WindowAxis axis = {.sourceSize = 2, .destinationSize = 1, .kernelSize = 3, .offset = 0};
  const Example zero = rowExample(PoolingKind::Max, ImageEdgeMode::Zero, axis, {-1, 0});
  EXPECT_EQ(zero.gradient({3}), (Numbers{0, 3}));
  EXPECT_EQ(zero.indices(), (Indices{2}));
  const Example negative = rowExample(PoolingKind::Max, ImageEdgeMode::Zero, axis, {-1, -2});
  EXPECT_EQ(negative.forward(), (Numbers{0}));
  EXPECT_EQ(negative.gradient({3}), (Numbers{0, 0}));
}

TEST(PoolingMaximum, FirstNaNWins) {
  const Example example = rowExample(PoolingKind::Max, ImageEdgeMode::Zero, kThree, {kInfinity, kNaN, kNaN});
  EXPECT_TRUE(std::isnan(example.forward()[0]));
  EXPECT_EQ(example.gradient({3}), (Numbers{0, 3, 0}));
  EXPECT_EQ(example.indices(), (Indices{1}));
}

TEST(PoolingMaximum, NaNBeatsAnOutsideZero) {
  const WindowAxis axis = {.sourceSize = 2, .destinationSize = 1, .kernelSize = 3, .offset = 0};
  const Example example = rowExample(PoolingKind::Max, ImageEdgeMode::Zero, axis, {kNaN, -2});
  EXPECT_TRUE(std::isnan(example.forward()[0]));
  EXPECT_EQ(example.gradient({3}), (Numbers{3, 0}));
}

TEST(PoolingMaximum, NegativeInfinityIsAValue) {
  const Example example = rowExample(PoolingKind::Max, ImageEdgeMode::Clamp, kThree, Numbers(3, -kInfinity));
  EXPECT_EQ(example.forward(), (Numbers{-kInfinity}));
  EXPECT_EQ(example.gradient({3}), (Numbers{3, 0, 0}));
}

TEST(PoolingMaximum, WindowOutsideTakesTheNearestEdgePixelWithClamp) {
  const WindowAxis axis = {
      .sourceSize = 2, .destinationSize = 2, .kernelSize = 2, .stride = 12, .offset = -6};
  const Example clamp = rowExample(PoolingKind::Max, ImageEdgeMode::Clamp, axis, {-3, -5});
  EXPECT_EQ(clamp.forward(), (Numbers{-3, -5}));
  EXPECT_EQ(clamp.gradient({1, 10}), (Numbers{1, 10}));
  EXPECT_EQ(clamp.indices(), (Indices{0, 0}));
  const Example zero = rowExample(PoolingKind::Max, ImageEdgeMode::Zero, axis, {3, 5});
  EXPECT_EQ(zero.forward(), (Numbers{0, 0}));
  EXPECT_EQ(zero.gradient({1, 10}), (Numbers{0, 0}));
  EXPECT_EQ(zero.indices(), (Indices{255, 255}));
}

Example exampleP2(ImageEdgeMode edgeMode, std::int64_t zeroPadSizeX, std::int64_t zeroPadSizeY) {
  Numbers source(12);
  std::iota(source.begin(), source.end(), 1.0);
  return {.kind = PoolingKind::Average,
          .edgeMode = edgeMode,
          .x = kP1X,
          .y = kP1Y,
          .zeroPadSizeX = zeroPadSizeX,
          .zeroPadSizeY = zeroPadSizeY,
          .source = std::move(source)};
}

/// The gradients are chosen so that each window gives a power of ten to each of its taps.
const Numbers kP2Gradient = {1, 1, 11, 10, 101, 101, 1111, 1010, 100, 100, 1100, 1000};

TEST(PoolingExampleP2, Clamp) {
  const Example example = exampleP2(ImageEdgeMode::Clamp, 0, 0);
  expectNear(example.forward(), {4, 5.5, 8, 9.5});
  const Numbers incoming = {6, 40, 600, 4000};
  const Numbers gradient = example.gradient(incoming);
  expectNear(gradient, kP2Gradient);
  EXPECT_NEAR(std::accumulate(gradient.begin(), gradient.end(), 0.0), 4646, 1e-9);
}

TEST(PoolingExampleP2, ZeroIgnoresZeroPadSize) {
  for (const std::int64_t zeroPadSize : {0, 1}) {
    const Example example = exampleP2(ImageEdgeMode::Zero, zeroPadSize, zeroPadSize);
    expectNear(example.forward(), {2.666667, 2.444444, 5.333333, 4.222222});
    expectNear(example.gradient({9, 90, 900, 9000}), kP2Gradient);
  }
}

TEST(PoolingExampleP2, ClampWithZeroPadOnBothAxes) {
  const Example example = exampleP2(ImageEdgeMode::Clamp, 1, 1);
  expectNear(example.forward(), {2.666667, 2.444444, 5.333333, 4.222222});
  expectNear(example.gradient({9, 90, 900, 9000}), kP2Gradient);
}

TEST(PoolingExampleP2, ClampWithZeroPadOnX) {
  const Example example = exampleP2(ImageEdgeMode::Clamp, 1, 0);
  expectNear(example.forward(), {4, 3.666667, 8, 6.333333});
  expectNear(example.gradient({6, 60, 600, 6000}), kP2Gradient);
}

TEST(PoolingAverage, WindowOutsideImageAndBandIsZero) {
  const WindowAxis axis = {
      .sourceSize = 2, .destinationSize = 2, .kernelSize = 2, .stride = 12, .offset = -6};
  Example example = rowExample(PoolingKind::Average, ImageEdgeMode::Clamp, axis, {3, 5});
  example.zeroPadSizeX = 2;
  EXPECT_EQ(example.forward(), (Numbers{0, 0}));
  EXPECT_EQ(example.gradient({1, 10}), (Numbers{0, 0}));
}

Example exampleP3(ImageEdgeMode edgeMode) {
  return {.kind = PoolingKind::L2Norm,
          .edgeMode = edgeMode,
          .x = {.sourceSize = 4, .destinationSize = 3, .kernelSize = 2, .stride = 2, .offset = 0},
          .y = {.sourceSize = 2, .destinationSize = 1, .kernelSize = 2, .stride = 2, .offset = 1},
          .source = {3, 1, -5, 6, 4, 1, 3, 8}};
}

TEST(PoolingExampleP3, BothEdgeModes) {
  for (const ImageEdgeMode edgeMode : {ImageEdgeMode::Zero, ImageEdgeMode::Clamp}) {
    expectNear(exampleP3(edgeMode).forward(), {5, 6, 10});
    expectNear(exampleP3(edgeMode).gradient({5, 60, 1000}), {3, 10, -50, 600, 4, 10, 30, 800});
  }
}

TEST(PoolingExampleP3, ZeroWindowGivesNoGradient) {
  const Example example =
      rowExample(PoolingKind::L2Norm, ImageEdgeMode::Zero,
                 {.sourceSize = 2, .destinationSize = 1, .kernelSize = 2, .offset = 1}, {0, 0});
  EXPECT_EQ(example.forward(), (Numbers{0}));
  EXPECT_EQ(example.gradient({7}), (Numbers{0, 0}));
}

Example exampleP4(ImageEdgeMode edgeMode) {
  return rowExample(
      PoolingKind::Max, edgeMode,
      {.sourceSize = 6, .destinationSize = 3, .kernelSize = 2, .stride = 2, .dilation = 3, .offset = 1},
      {4, 1, 7, -3, 9, -2});
}

TEST(PoolingExampleP4, ClampReadsAPixelThatIsNoTap) {
  const Example example = exampleP4(ImageEdgeMode::Clamp);
  EXPECT_EQ(example.forward(), (Numbers{7, 9, -2}));
  EXPECT_EQ(example.indices(), (Indices{1, 1, 1}));
  EXPECT_EQ(example.gradient({1, 10, 100}), (Numbers{0, 0, 1, 0, 10, 100}));
}

TEST(PoolingExampleP4, Zero) {
  const Example example = exampleP4(ImageEdgeMode::Zero);
  EXPECT_EQ(example.forward(), (Numbers{7, 9, 0}));
  EXPECT_EQ(example.indices(), (Indices{1, 1, 255}));
  EXPECT_EQ(example.gradient({1, 10, 100}), (Numbers{0, 0, 1, 0, 10, 0}));
}

// Properties, over the case table.

/// Different numbers in random order, none near 0, so that no maximum ties and no norm vanishes.
ReferenceTensor spacedTensor(const TensorShape& shape, std::mt19937_64& generator) {
  ReferenceTensor tensor(shape.images, shape.height, shape.width, shape.channels);
  for (std::size_t i = 0; i < tensor.values.size(); ++i)
    tensor.values[i] = (static_cast<double>(i) + 0.5) / static_cast<double>(tensor.values.size()) * 4 - 2;
  std::shuffle(tensor.values.begin(), tensor.values.end(), generator);
  return tensor;
}

double dot(const ReferenceTensor& a, const ReferenceTensor& b) {
  return std::inner_product(a.values.begin(), a.values.end(), b.values.begin(), 0.0);
}

/// A small case whose gradient shows the whole source.
bool isSmallAndShowsAll(const PoolingCase& pooling) {
  const PoolingProblem problem =
      pooling.gradient(ImageFeatureChannelFormat::Float32, ImageFeatureChannelFormat::Float32);
  return problem.destinationOriginX == 0 && problem.destinationOriginY == 0 &&
         problem.destination.height == problem.source.height &&
         problem.destination.width == problem.source.width && problem.windows() * problem.taps() < 20'000;
}

/// One image of two channels is as good as many.
PoolingCase reduced(PoolingCase pooling) {
  pooling.geometry.images = 1;
  pooling.geometry.channels = 2;
  return pooling;
}

class PoolingReferenceTable : public testing::TestWithParam<PoolingCase> {};

TEST_P(PoolingReferenceTable, GradientIsTheCentralDifference) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937_64 generator(kSeed);
  const PoolingCase pooling = reduced(GetParam());
  const PoolingProblem forward =
      pooling.forward(ImageFeatureChannelFormat::Float32, ImageFeatureChannelFormat::Float32);
  const PoolingProblem backward =
      pooling.gradient(ImageFeatureChannelFormat::Float32, ImageFeatureChannelFormat::Float32);
  const ReferenceTensor source = spacedTensor(forward.source, generator);
  const ReferenceTensor incoming = spacedTensor(backward.gradient, generator);
  const ReferenceTensor gradient = poolingGradientReference(backward, source, incoming);
  constexpr double step = 1e-5;
  std::uniform_int_distribution<std::size_t> pick(0, source.values.size() - 1);
  for (int sample = 0; sample < 10; ++sample) {
    const std::size_t i = pick(generator);
    ReferenceTensor above = source;
    ReferenceTensor below = source;
    above.values[i] += step;
    below.values[i] -= step;
    const double difference = (dot(poolingForwardReference(forward, above), incoming) -
                               dot(poolingForwardReference(forward, below), incoming)) /
                              (2 * step);
    const double scale = std::max({1.0, std::abs(difference), gradient.magnitude[i]});
    EXPECT_NEAR(gradient.values[i], difference, 1e-6 * scale) << "element " << i;
  }
}

TEST_P(PoolingReferenceTable, AverageGradientIsTheAdjoint) {
  std::mt19937_64 generator(kSeed);
  PoolingCase pooling = reduced(GetParam());
  pooling.kind = PoolingKind::Average;
  const PoolingProblem forward =
      pooling.forward(ImageFeatureChannelFormat::Float32, ImageFeatureChannelFormat::Float32);
  const PoolingProblem backward =
      pooling.gradient(ImageFeatureChannelFormat::Float32, ImageFeatureChannelFormat::Float32);
  const ReferenceTensor x = spacedTensor(forward.source, generator);
  const ReferenceTensor y = spacedTensor(backward.gradient, generator);
  const double left = dot(poolingForwardReference(forward, x), y);
  const double right = dot(x, poolingGradientReference(backward, x, y));
  EXPECT_NEAR(left, right, 1e-9 * std::max(1.0, std::abs(left)));
}

std::vector<PoolingCase> smallCasesThatShowAll() {
  std::vector<PoolingCase> cases = poolingCases();
  std::erase_if(cases, [](const PoolingCase& pooling) { return !isSmallAndShowsAll(pooling); });
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Cases, PoolingReferenceTable, testing::ValuesIn(smallCasesThatShowAll()),
                         [](const auto& info) { return info.param.name; });

/// A gradient that shows a part, or more than the source, is cut out of the whole one.
TEST(PoolingView, IsCutOutOfTheWholeGradient) {
  std::mt19937_64 generator(kSeed);
  int views = 0;
  for (const PoolingCase& pooling : poolingCases()) {
    if (pooling.geometry.view.width == 0) continue;
    ++views;
    SCOPED_TRACE(pooling.name);
    const PoolingProblem part =
        pooling.gradient(ImageFeatureChannelFormat::Float32, ImageFeatureChannelFormat::Float32);
    PoolingCase wholeCase = pooling;
    wholeCase.geometry.view = {};
    const PoolingProblem whole =
        wholeCase.gradient(ImageFeatureChannelFormat::Float32, ImageFeatureChannelFormat::Float32);
    const ReferenceTensor source = spacedTensor(part.source, generator);
    const ReferenceTensor incoming = spacedTensor(part.gradient, generator);
    const ReferenceTensor cut = poolingGradientReference(part, source, incoming);
    const ReferenceTensor all = poolingGradientReference(whole, source, incoming);
    for (std::int64_t n = 0; n < cut.images; ++n)
      for (std::int64_t y = 0; y < cut.height; ++y)
        for (std::int64_t x = 0; x < cut.width; ++x)
          for (std::int64_t c = 0; c < cut.channels; ++c) {
            const std::int64_t sourceY = y + part.destinationOriginY;
            const std::int64_t sourceX = x + part.destinationOriginX;
            const bool inside = sourceY >= 0 && sourceY < all.height && sourceX >= 0 && sourceX < all.width;
            ASSERT_EQ(cut.at(n, y, x, c), inside ? all.at(n, sourceY, sourceX, c) : 0);
          }
  }
  EXPECT_GT(views, 0);
}

}  // namespace
}  // namespace mps::detail::pooling_reference_test
