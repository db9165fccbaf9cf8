#include "mps/reshape/check/reshape_reference.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "mps/conform/tolerance.hpp"
#include "mps/reshape/check/reshape_cases.hpp"

namespace mps::detail::reshape_reference_test {
namespace {

using Numbers = std::vector<double>;

constexpr std::uint64_t kSeed = 20261122;
constexpr auto kFloat32 = ImageFeatureChannelFormat::Float32;

/// A row of one channel, as in section 15.2.
struct Example {
  ImageEdgeMode edgeMode = ImageEdgeMode::Zero;
  std::int64_t before = 0;
  std::int64_t after = 0;
  float fill = 0;

  [[nodiscard]] Numbers pass(ReshapeDirection direction, const Numbers& values) const {
    const auto size = static_cast<std::int64_t>(values.size());
    const bool isForward = direction == ReshapeDirection::Forward;
    ReshapeProblem problem;
    problem.direction = direction;
    problem.mapping = ReshapeMapping::Axes;
    problem.edgeMode = edgeMode;
    problem.x.before = before;
    if (isForward && fill != 0) problem.fill = {fill};
    problem.input = TensorShape::dense(1, 1, size, 1);
    problem.destination =
        TensorShape::dense(1, 1, isForward ? before + size + after : size - before - after, 1);
    ReferenceTensor tensor(1, 1, size, 1);
    tensor.values = values;
    return reshapeReference(problem, tensor).values;
  }
  [[nodiscard]] Numbers forward(const Numbers& source) const {
    return pass(ReshapeDirection::Forward, source);
  }
  [[nodiscard]] Numbers gradient(const Numbers& g) const { return pass(ReshapeDirection::Gradient, g); }
};

TEST(PadExamples, IndexMaps) {
  const Numbers source{0, 1, 2, 3};
  EXPECT_EQ((Example{ImageEdgeMode::Zero, 2, 1}.forward({1, 2, 3})), (Numbers{0, 0, 1, 2, 3, 0}));
  EXPECT_EQ((Example{ImageEdgeMode::Constant, 1, 2, 9}.forward({1, 2, 3})), (Numbers{9, 1, 2, 3, 9, 9}));
  EXPECT_EQ((Example{ImageEdgeMode::Clamp, 2, 3}.forward(source)), (Numbers{0, 0, 0, 1, 2, 3, 3, 3, 3}));
  EXPECT_EQ((Example{ImageEdgeMode::Mirror, 2, 2}.forward(source)), (Numbers{2, 1, 0, 1, 2, 3, 2, 1}));
  EXPECT_EQ((Example{ImageEdgeMode::MirrorWithEdge, 2, 2}.forward(source)),
            (Numbers{1, 0, 0, 1, 2, 3, 3, 2}));
}

/// "padding larger than the image: keep reflecting"; n = 1: the only pixel.
TEST(PadExamples, ReflectedAgainAndAgain) {
  EXPECT_EQ((Example{ImageEdgeMode::Mirror, 5, 4}.forward({1, 2, 3})),
            (Numbers{2, 1, 2, 3, 2, 1, 2, 3, 2, 1, 2, 3}));
  EXPECT_EQ((Example{ImageEdgeMode::MirrorWithEdge, 4, 5}.forward({1, 2})),
            (Numbers{1, 2, 2, 1, 1, 2, 2, 1, 1, 2, 2}));
  EXPECT_EQ((Example{ImageEdgeMode::Mirror, 2, 1}.forward({7})), (Numbers{7, 7, 7, 7}));
}

/// The two examples of section 15.2.
TEST(PadExamples, GradientOfClampAndMirror) {
  const Numbers powers{1, 2, 4, 8, 16, 32, 64, 128};
  EXPECT_EQ((Example{ImageEdgeMode::Clamp, 2, 3}.gradient(powers)),
            (Numbers{1 + 2 + 4, 8, 16 + 32 + 64 + 128}));
  EXPECT_EQ((Example{ImageEdgeMode::Mirror, 4, 1}.gradient(powers)),
            (Numbers{1 + 16, 2 + 8 + 32 + 128, 4 + 64}));
  EXPECT_EQ((Example{ImageEdgeMode::Zero, 2, 1}.gradient({1, 2, 4, 8, 16, 32})), (Numbers{4, 8, 16}));
}

/// Channels: 2 before, 3 after, x1 to x3 read.
TEST(PadExamples, Channels) {
  const auto padded = [](ImageEdgeMode edgeMode) {
    ReshapeProblem problem;
    problem.mapping = ReshapeMapping::Axes;
    problem.edgeMode = edgeMode;
    problem.channels.before = 2;
    problem.input = TensorShape::dense(1, 1, 1, 3);
    problem.destination = TensorShape::dense(1, 1, 1, 8);
    ReferenceTensor source(1, 1, 1, 3);
    source.values = {1, 2, 3};
    return reshapeReference(problem, source).values;
  };
  EXPECT_EQ(padded(ImageEdgeMode::Zero), (Numbers{0, 0, 1, 2, 3, 0, 0, 0}));
  EXPECT_EQ(padded(ImageEdgeMode::MirrorWithEdge), (Numbers{2, 1, 1, 2, 3, 3, 2, 1}));
}

/// Section 15.1: height, width, channel.
TEST(ReshapeExamples, ChannelsAreFastest) {
  ReshapeProblem problem;
  problem.input = TensorShape::dense(1, 2, 2, 3);
  problem.destination = TensorShape::dense(1, 3, 1, 4);
  ReferenceTensor source(1, 2, 2, 3);
  std::iota(source.values.begin(), source.values.end(), 0.0);
  const ReferenceTensor result = reshapeReference(problem, source);
  EXPECT_EQ(result.at(0, 0, 0, 3), source.at(0, 0, 1, 0));
  EXPECT_EQ(result.at(0, 1, 0, 2), source.at(0, 1, 0, 0));
  EXPECT_EQ(result.at(0, 2, 0, 3), source.at(0, 1, 1, 2));
}

/// PyTorch's view.
TEST(ReshapeExamples, ChannelsMayBeSlowest) {
  ReshapeProblem problem;
  problem.mapping = ReshapeMapping::ChannelsFirst;
  problem.input = TensorShape::dense(1, 2, 2, 3);
  problem.destination = TensorShape::dense(1, 3, 1, 4);
  ReferenceTensor source(1, 2, 2, 3);
  std::iota(source.values.begin(), source.values.end(), 0.0);
  const ReferenceTensor result = reshapeReference(problem, source);
  // Elements 0 to 11 are (c, y, x) = 000 001 010 011 100 ... of the source and 000 010 020 100 ... of the result.
  EXPECT_EQ(result.at(0, 2, 0, 0), source.at(0, 1, 0, 0));
  EXPECT_EQ(result.at(0, 0, 0, 1), source.at(0, 1, 1, 0));
  EXPECT_EQ(result.at(0, 1, 0, 1), source.at(0, 0, 0, 1));
  EXPECT_EQ(result.at(0, 2, 0, 3), source.at(0, 1, 1, 2));
}

/// Both directions over the case table: <A x, g> - <A 0, g> = <x, A^T g>, and central differences.
TEST(ReshapeReferenceTable, GradientIsTheAdjointAndTheCentralDifference) {
  for (const ReshapeCase& reshape : reshapeCases()) {
    if (reshape.name.starts_with("Threads")) continue;
    SCOPED_TRACE(reshape.name + ", seed " + std::to_string(kSeed));
    std::mt19937_64 generator(kSeed);
    std::uniform_real_distribution<double> distribution(-1, 1);
    const ReshapeProblem forward = reshape.forward(kFloat32, kFloat32);
    const auto random = [&](const TensorShape& shape) {
      ReferenceTensor tensor(shape.images, shape.height, shape.width, shape.channels);
      for (double& value : tensor.values) value = distribution(generator);
      return tensor;
    };
    const auto dot = [](const ReferenceTensor& a, const ReferenceTensor& b) {
      return std::inner_product(a.values.begin(), a.values.end(), b.values.begin(), 0.0);
    };
    const ReferenceTensor x = random(forward.input);
    const ReferenceTensor g = random(forward.destination);
    ReferenceTensor zero = x;
    std::fill(zero.values.begin(), zero.values.end(), 0.0);
    const ReferenceTensor gradient = reshapeReference(reshape.gradient(kFloat32, kFloat32), g);
    const double left = dot(reshapeReference(forward, x), g) - dot(reshapeReference(forward, zero), g);
    EXPECT_NEAR(left, dot(x, gradient), kDerivativeTolerance * std::max(1.0, std::abs(left)));
    constexpr double step = 0x1p-10;
    for (const std::size_t i : {std::size_t{0}, x.values.size() / 2, x.values.size() - 1}) {
      ReferenceTensor above = x;
      ReferenceTensor below = x;
      above.values[i] += step;
      below.values[i] -= step;
      const double difference =
          (dot(reshapeReference(forward, above), g) - dot(reshapeReference(forward, below), g)) / (2 * step);
      EXPECT_NEAR(gradient.values[i], difference,
                  kDerivativeTolerance * std::max({1.0, std::abs(difference), dot(g, g)}))
          << "element " << i;
    }
  }
}

}  // namespace
}  // namespace mps::detail::reshape_reference_test
