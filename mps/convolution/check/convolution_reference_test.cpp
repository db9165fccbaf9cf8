#include "mps/convolution/check/convolution_reference.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "mps/conform/compare.hpp"
#include "mps/convolution/check/convolution_cases.hpp"

namespace mps::detail::convolution_reference_test {
namespace {

using Values = std::vector<double>;

ReferenceTensor tensor(std::int64_t images, std::int64_t height, std::int64_t width, std::int64_t channels,
                       Values values) {
  ReferenceTensor result(images, height, width, channels);
  EXPECT_EQ(values.size(), result.values.size());
  result.values = std::move(values);
  return result;
}

/// One row, one channel in and out, no bias.
ConvolutionProblem rowProblem(const WindowAxis& x) {
  ConvolutionProblem problem;
  problem.x = x;
  return problem;
}

/// Checks all four results of a row of pixels.
void expectRow(const ConvolutionProblem& problem, const Values& input, const Values& weights,
               const Values& output, const Values& gradient, const Values& dataGradient,
               const Values& weightsGradient, double biasGradient) {
  const auto source = tensor(1, 1, problem.x.sourceSize, 1, input);
  const auto incoming = tensor(1, 1, problem.x.destinationSize, 1, gradient);
  EXPECT_EQ(convolutionForwardReference(problem, source, weights, {}).values, output);
  EXPECT_EQ(convolutionDataGradientReference(problem, incoming, weights, {}).values, dataGradient);
  const auto parameters = convolutionWeightsGradientReference(problem, source, incoming);
  EXPECT_EQ(parameters.weights.values, weightsGradient);
  EXPECT_EQ(parameters.bias.values, Values{biasGradient});
}

TEST(ConvolutionReference, ExampleC1Stride2) {
  const ConvolutionProblem problem = rowProblem({5, 3, 3, 2, 1, 0});
  expectRow(problem, {1, 2, 3, 4, 5}, {1, 10, 100}, {210, 432, 54}, {1, 2, 3}, {10, 102, 20, 203, 30},
            {16, 22, 10}, 6);
}

TEST(ConvolutionReference, ExampleC2EvenKernel) {
  const ConvolutionProblem problem = rowProblem({3, 3, 2, 1, 1, 0});
  expectRow(problem, {1, 2, 3}, {1, 10}, {10, 21, 32}, {1, 2, 3}, {12, 23, 30}, {8, 14}, 6);
}

TEST(ConvolutionReference, ExampleC3EvenDilatedKernel) {
  const ConvolutionProblem problem = rowProblem({6, 3, 2, 2, 3, 1});
  expectRow(problem, {1, 2, 3, 4, 5, 6}, {1, 10}, {30, 52, 4}, {1, 2, 3}, {0, 2, 10, 3, 20, 0}, {16, 13}, 6);
}

TEST(ConvolutionReference, ExampleFC1FullyConnected) {
  ConvolutionProblem problem;
  problem.x = wholeWindow(2);
  problem.inputFeatureChannels = 2;
  const auto source = tensor(1, 1, 2, 2, {1, 2, 3, 4});
  const auto gradient = tensor(1, 1, 1, 1, {2});
  const Values weights{1, 10, 100, 1000};
  EXPECT_EQ(convolutionForwardReference(problem, source, weights, {}).values, Values{4321});
  EXPECT_EQ(convolutionDataGradientReference(problem, gradient, weights, {}).values,
            (Values{2, 20, 200, 2000}));
  const auto parameters = convolutionWeightsGradientReference(problem, source, gradient);
  EXPECT_EQ(parameters.weights.values, (Values{2, 4, 6, 8}));
  EXPECT_EQ(parameters.bias.values, Values{2});
}

TEST(ConvolutionReference, ExampleT1Transposed) {
  const Values weights{1, 10, 100};
  const auto transposed = [&](const WindowAxis& x, const Values& input) {
    ConvolutionProblem problem = rowProblem(x);
    problem.transposed = true;
    return convolutionDataGradientReference(problem, tensor(1, 1, x.destinationSize, 1, input), weights, {})
        .values;
  };
  EXPECT_EQ(transposed(transposedWindow(2, 3, 3, 2, 0), {1, 2}), (Values{10, 201, 20}));
  EXPECT_EQ(transposed(transposedWindow(2, 5, 3, 2, -1), {1, 2}), (Values{100, 10, 201, 20, 2}));
  EXPECT_EQ(transposed(transposedWindow(3, 3, 3, 2, 1), {1, 2, 3}), (Values{201, 20, 302}));

  ConvolutionProblem problem = rowProblem(transposedWindow(2, 3, 3, 2, 0));
  problem.transposed = true;
  const auto input = tensor(1, 1, 2, 1, {1, 2});
  const auto gradient = tensor(1, 1, 3, 1, {1, 2, 3});
  EXPECT_EQ(convolutionForwardReference(problem, gradient, weights, {}).values, (Values{12, 230}));
  const auto parameters = convolutionWeightsGradientReference(problem, gradient, input);
  EXPECT_EQ(parameters.weights.values, (Values{2, 7, 4}));
  EXPECT_EQ(parameters.bias.values, Values{6});
}

TEST(ConvolutionReference, DepthWiseWeightsAreOneFilterPerOutput) {
  // Two channels, multiplier 2: output c * 2 + m reads channel c alone.
  ConvolutionProblem problem;
  problem.inputFeatureChannels = 2;
  problem.outputFeatureChannels = 4;
  problem.groups = 2;
  const auto source = tensor(1, 1, 1, 2, {3, 5});
  EXPECT_EQ(convolutionForwardReference(problem, source, Values{1, 10, 100, 1000}, Values{1, 2, 3, 4}).values,
            (Values{4, 32, 503, 5004}));
}

TEST(ConvolutionReference, ClampReadsTheEdgeAndItsGradientReturnsThere) {
  ConvolutionProblem problem = rowProblem({2, 2, 3, 1, 1, 0});
  problem.edgeMode = ImageEdgeMode::Clamp;
  // Taps: window 0 reads pixels 0, 0, 1; window 1 reads 0, 1, 1.
  expectRow(problem, {1, 2}, {1, 10, 100}, {211, 221}, {1, 2}, {13, 320}, {3, 5, 6}, 3);
}

TEST(ConvolutionReference, NaNReachesExactlyTheWindowsThatReadIt) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const ConvolutionProblem problem = rowProblem({6, 6, 3, 1, 1, 0});
  const auto source = tensor(1, 1, 6, 1, {1, nan, 1, 1, 1, 1});
  const auto result = convolutionForwardReference(problem, source, Values{1, 1, 1}, {});
  for (std::size_t x = 0; x < 6; ++x) EXPECT_EQ(std::isnan(result.values[x]), x <= 2) << x;
}

/// The values of the three operations that belong together.
struct RandomOperands {
  RandomOperands(const ConvolutionCase& convolution, RandomKind kind, std::uint64_t seed) {
    const auto count = [](std::int64_t n) { return static_cast<std::size_t>(n); };
    forward = convolution.problem(ConvolutionOperation::Forward, ImageFeatureChannelFormat::Float32,
                                  ImageFeatureChannelFormat::Float32);
    forward.neuron = {};
    const TensorShape& s = forward.source;
    const TensorShape& d = forward.destination;
    source = tensor(s.images, s.height, s.width, s.channels, randomValues(count(s.elements()), seed, kind));
    gradient =
        tensor(d.images, d.height, d.width, d.channels, randomValues(count(d.elements()), seed + 1, kind));
    weights = randomValues(count(forward.weightCount()), seed + 2, kind);
    // A transposed convolution's bias belongs to the data gradient.
    if (!forward.transposed) bias = randomValues(count(forward.biasCount()), seed + 3, kind);
  }
  [[nodiscard]] double loss(const ReferenceTensor& at, const Values& withWeights,
                            const Values& withBias) const {
    const auto result = convolutionForwardReference(forward, at, withWeights, withBias);
    return std::inner_product(result.values.begin(), result.values.end(), gradient.values.begin(), 0.0);
  }

  ConvolutionProblem forward;
  ReferenceTensor source;
  ReferenceTensor gradient;
  Values weights;
  Values bias;
};

class ConvolutionReferenceCase : public testing::TestWithParam<ConvolutionCase> {};

/// <A x, y> = <x, A^T y> = <W, dW>, without rounding.
TEST_P(ConvolutionReferenceCase, GradientsAreAdjoint) {
  constexpr std::uint64_t kSeed = 11;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  const RandomOperands operands(GetParam(), RandomKind::SmallIntegers, kSeed);
  const double loss = operands.loss(operands.source, operands.weights, {});
  const auto dot = [](const Values& a, const Values& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  };
  const auto data =
      convolutionDataGradientReference(operands.forward, operands.gradient, operands.weights, {});
  EXPECT_EQ(dot(operands.source.values, data.values), loss);
  const auto parameters =
      convolutionWeightsGradientReference(operands.forward, operands.source, operands.gradient);
  EXPECT_EQ(dot(operands.weights, parameters.weights.values), loss);
}

void expectDerivative(double found, double expected, const char* what, std::size_t i) {
  EXPECT_LE(std::abs(found - expected), 1e-6 * std::max(1.0, std::abs(expected))) << what << " " << i;
}

TEST_P(ConvolutionReferenceCase, GradientsAreCentralDifferences) {
  constexpr std::uint64_t kSeed = 12;
  constexpr double kStep = 0x1p-10;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  RandomOperands operands(GetParam(), RandomKind::Uniform, kSeed);
  const auto data =
      convolutionDataGradientReference(operands.forward, operands.gradient, operands.weights, {});
  const auto parameters =
      convolutionWeightsGradientReference(operands.forward, operands.source, operands.gradient);
  /// Derivative of the loss with respect to one number.
  const auto difference = [&](double& x) {
    const double before = x;
    x = before + kStep;
    const double above = operands.loss(operands.source, operands.weights, operands.bias);
    x = before - kStep;
    const double below = operands.loss(operands.source, operands.weights, operands.bias);
    x = before;
    return (above - below) / (2 * kStep);
  };
  constexpr std::size_t kProbes = 4;
  const auto probe = [&](Values& values, const Values& expected, const char* what) {
    const std::size_t step = values.size() / kProbes + 1;
    for (std::size_t i = 0; i < values.size(); i += step)
      expectDerivative(expected[i], difference(values[i]), what, i);
  };
  probe(operands.source.values, data.values, "pixel");
  probe(operands.weights, parameters.weights.values, "weight");
  probe(operands.bias, parameters.bias.values, "bias");
}

std::vector<ConvolutionCase> smallCases() {
  std::vector<ConvolutionCase> cases = convolutionCases();
  std::erase_if(cases, [](const ConvolutionCase& c) { return c.images == 0 || isLarge(c); });
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Convolution, ConvolutionReferenceCase, testing::ValuesIn(smallCases()),
                         [](const auto& info) { return std::string(info.param.name); });

/// The bias of a transposed convolution belongs to the other side.
TEST(ConvolutionReference, TransposedBiasIsTheBiasOfTheDataGradient) {
  ConvolutionProblem problem = rowProblem(transposedWindow(2, 5, 1, 4, 0));
  problem.transposed = true;
  problem.hasBias = true;
  const auto result =
      convolutionDataGradientReference(problem, tensor(1, 1, 2, 1, {1, 2}), Values{3}, Values{7});
  EXPECT_EQ(result.values, (Values{10, 7, 7, 7, 13}));
}

}  // namespace
}  // namespace mps::detail::convolution_reference_test
