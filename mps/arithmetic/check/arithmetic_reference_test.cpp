#include "mps/arithmetic/check/arithmetic_reference.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "mps/arithmetic/check/arithmetic_cases.hpp"
#include "mps/conform/compare.hpp"

namespace mps::detail::arithmetic_reference_test {
namespace {

using enum ArithmeticOperation;
using enum ArithmeticDirection;
using enum ImageFeatureChannelFormat;
using Values = std::vector<double>;

ReferenceTensor tensor(std::int64_t width, std::int64_t channels, Values values) {
  ReferenceTensor result(1, 1, width, channels);
  result.values = std::move(values);
  return result;
}

/// 2 pixels of 2 channels times a vector of 2 channels.
class WorkedExampleA1 : public testing::Test {
 protected:
  const ArithmeticTensors kTensors_{{},   1, 1, 2, 2, {}, {.width = true, .height = true, .channels = false},
                                    false};
  const ReferenceTensor x_ = tensor(2, 2, {1, 2, 3, 4});
  const ReferenceTensor y_ = tensor(1, 2, {10, 20});
  const ReferenceTensor g_ = tensor(2, 2, {1, 10, 100, 1000});

  [[nodiscard]] ArithmeticProblem problem(ArithmeticDirection direction, float maximum) const {
    ArithmeticProblem problem = kTensors_.problem(Multiply, direction, Float32, Float32, maximum < FLT_MAX);
    problem.primaryScale = direction == SecondaryGradient ? 0.5F : 2;
    problem.secondaryScale = direction == SecondaryGradient ? 2 : 0.5F;
    problem.bias = 1;
    problem.maximumValue = maximum;
    return problem;
  }
  void expectExample(float maximum, const Values& out, const Values& mask, const Values& dx,
                     const Values& dy) const {
    const ArithmeticReference forward = arithmeticForwardReference(problem(Forward, maximum), x_, y_);
    EXPECT_EQ(forward.result.values, out);
    EXPECT_EQ(forward.mask.values, mask);
    EXPECT_EQ(arithmeticGradientReference(problem(PrimaryGradient, maximum), g_, y_, forward.mask, {}).values,
              dx);
    EXPECT_EQ(
        arithmeticGradientReference(problem(SecondaryGradient, maximum), g_, x_, forward.mask, {}).values,
        dy);
  }
};

TEST_F(WorkedExampleA1, BroadcastMultiply) {
  expectExample(FLT_MAX, {11, 41, 31, 81}, {1, 1, 1, 1}, {10, 200, 1000, 20000}, {301, 4020});
}

TEST_F(WorkedExampleA1, WithMaximum50) {
  expectExample(50, {11, 41, 31, 50}, {1, 1, 1, 0}, {10, 200, 1000, 0}, {301, 20});
}

TEST(ArithmeticReference, LimitsAreStrictInTheMaskAndKeepNaN) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  ArithmeticProblem problem =
      ArithmeticTensors{.name = {}, .width = 6}.problem(Add, Forward, Float32, Float32);
  problem.minimumValue = 1;
  problem.maximumValue = 2;
  const ReferenceTensor x = tensor(6, 1, {1, 1.5, 2, nan, infinity, -infinity});
  const ArithmeticReference limited =
      arithmeticForwardReference(problem, x, tensor(6, 1, {0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(limited.mask.values, (Values{0, 1, 0, 0, 0, 0}));
  EXPECT_TRUE(std::isnan(limited.result.values[3]));
  EXPECT_EQ(limited.result.values[4], 2);
  EXPECT_EQ(limited.result.values[5], 1);
  problem.minimumValue = -FLT_MAX;
  problem.maximumValue = FLT_MAX;
  const ArithmeticReference unlimited =
      arithmeticForwardReference(problem, x, tensor(6, 1, {0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(unlimited.result.values[4], infinity) << "docs/decisions.md, D24";
  EXPECT_EQ(unlimited.result.values[5], -infinity);
  EXPECT_EQ(unlimited.mask.values, Values(6, 1)) << "NaN and infinities are inside a limit that is none";
  problem.minimumValue = 1;
  const ArithmeticReference above = arithmeticForwardReference(problem, x, tensor(6, 1, {0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(above.mask.values, (Values{0, 1, 1, 0, 1, 0}));
  EXPECT_EQ(above.result.values[5], 1);
}

/// Scales of the gradient of a forward pass with the scales a and b.
void setGradientScales(ArithmeticProblem& problem, float a, float b) {
  const bool isSecondary = problem.direction == SecondaryGradient;
  switch (problem.operation) {
    case Add:
      problem.primaryScale = isSecondary ? b : a;
      break;
    case Subtract:
      problem.primaryScale = isSecondary ? -b : a;
      break;
    case Multiply:
      problem.primaryScale = isSecondary ? b : a;
      problem.secondaryScale = isSecondary ? a : b;
      break;
    case Divide:
      problem.primaryScale = a;
      problem.secondaryScale = b;
      break;
    default:
      break;  // comparisons have no gradient
  }
}

ReferenceTensor randomTensor(const TensorShape& shape, std::uint64_t seed, bool isDivisor) {
  ReferenceTensor result(shape.images, shape.height, shape.width, shape.channels);
  result.values = randomValues(result.values.size(), seed, RandomKind::Uniform);
  if (isDivisor)
    for (double& value : result.values) value += value < 0 ? -0.5 : 0.5;
  return result;
}

/// Gradients of the loss sum(w result) with random w against its central differences.
TEST(ArithmeticReference, GradientIsTheDerivativeOfTheForwardPass) {
  constexpr double h = 1e-5;
  constexpr float a = 1.5F;
  constexpr float b = -0.75F;
  for (const ArithmeticTensors& tensors : arithmeticTensors()) {
    if (tensors.images * tensors.height * tensors.width * tensors.channels > 2000) continue;
    for (const ArithmeticOperation operation : {Add, Subtract, Multiply, Divide})
      for (const ArithmeticDirection direction : {PrimaryGradient, SecondaryGradient}) {
        ArithmeticProblem forward = tensors.problem(operation, Forward, Float32, Float32, true);
        forward.primaryScale = a;
        forward.secondaryScale = b;
        forward.bias = 0.25F;
        forward.minimumValue = -1.25F;
        forward.maximumValue = 1.0F;
        ArithmeticProblem gradient = tensors.problem(operation, direction, Float32, Float32, true);
        setGradientScales(gradient, a, b);
        SCOPED_TRACE(tensors.name + ": " + gradient.describe());
        const ReferenceTensor x = randomTensor(forward.primary, 21, false);
        const ReferenceTensor y = randomTensor(forward.secondary, 22, operation == Divide);
        const ReferenceTensor w = randomTensor(forward.destination, 23, false);
        const ArithmeticReference result = arithmeticForwardReference(forward, x, y);
        const bool isSecondary = direction == SecondaryGradient;
        const ReferenceTensor& z = operation == Multiply && isSecondary ? x : y;
        const ReferenceTensor found =
            arithmeticGradientReference(gradient, w, z, result.mask, result.derivative);
        const ReferenceTensor& operand = isSecondary ? y : x;
        ASSERT_EQ(found.values.size(), operand.values.size());
        int kinks = 0;
        for (std::size_t i = 0; i < operand.values.size(); ++i) {
          double difference = 0;
          bool crossesLimit = false;
          ReferenceTensor above = operand;
          ReferenceTensor below = operand;
          above.values[i] += h;
          below.values[i] -= h;
          const ArithmeticReference high =
              arithmeticForwardReference(forward, isSecondary ? x : above, isSecondary ? above : y);
          const ArithmeticReference low =
              arithmeticForwardReference(forward, isSecondary ? x : below, isSecondary ? below : y);
          double scale = 1e-3;
          for (std::size_t k = 0; k < w.values.size(); ++k) {
            const double term = w.values[k] * (high.result.values[k] - low.result.values[k]) / (2 * h);
            difference += term;
            scale += std::abs(term);
            if (high.mask.values[k] != low.mask.values[k]) crossesLimit = true;
          }
          if (crossesLimit) {
            ++kinks;
            continue;
          }
          EXPECT_NEAR(found.values[i], difference, 1e-6 * scale) << "element " << i;
        }
        EXPECT_LE(kinks, 1 + static_cast<int>(operand.values.size()) / 20) << "too few elements compared";
      }
  }
}

}  // namespace
}  // namespace mps::detail::arithmetic_reference_test
