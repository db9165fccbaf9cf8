#include "mps/optimizer/check/optimizer_reference.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "mps/optimizer/check/optimizer_check_values.hpp"

namespace mps::detail::optimizer_reference_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

ReferenceTensor scalar(double value) {
  ReferenceTensor tensor(1, 1, 1, 1);
  tensor.values[0] = value;
  return tensor;
}

/// One weight with all buffers at 0, and the settings of one optimiser.
class Weight {
 public:
  explicit Weight(OptimizerKind kind, double value = 1) {
    rule.kind = kind;
    numbers.learningRate = learningRate;
    tensors_ = {scalar(0), scalar(value), scalar(0), scalar(0), scalar(0)};
  }

  double update(double gradient) {
    ++timeStep_;
    OptimizerNumbers step = numbers;
    step.learningRate = learningRate;
    if (rule.kind == OptimizerKind::Adam || rule.kind == OptimizerKind::AMSGrad)
      step.learningRate = adamLearningRate(learningRate, numbers.decay, numbers.beta2, timeStep_);
    tensors_.gradient.values[0] = gradient;
    tensors_ = optimizerReference(rule, step, tensors_);
    return value();
  }

  [[nodiscard]] double value() const { return tensors_.values.values[0]; }
  [[nodiscard]] double momentum() const { return tensors_.momentum.values[0]; }
  [[nodiscard]] double velocity() const { return tensors_.velocity.values[0]; }
  [[nodiscard]] double maximumVelocity() const { return tensors_.maximumVelocity.values[0]; }

  OptimizerRule rule;
  OptimizerNumbers numbers;
  double learningRate = 0.1;

 private:
  OptimizerReferenceTensors tensors_;
  std::uint64_t timeStep_ = 0;
};

class OptimizerCheckValue : public testing::TestWithParam<OptimizerCheckRow> {};

TEST_P(OptimizerCheckValue, Section13_7) {
  const OptimizerCheckRow& row = GetParam();
  Weight weight(row.kind);
  weight.numbers = row.numbers;
  weight.rule.regularizationType = row.regularizationType;
  weight.rule.applyGradientClipping = row.clips;
  for (int step = 0; step < 3; ++step)
    EXPECT_NEAR(weight.update(kOptimizerGradients[step]), row.values[step], kOptimizerPrecision);
  EXPECT_NEAR(weight.momentum(), row.momentum, kOptimizerPrecision);
  EXPECT_NEAR(weight.velocity(), row.velocity, kOptimizerPrecision);
}

INSTANTIATE_TEST_SUITE_P(Spec, OptimizerCheckValue, testing::ValuesIn(optimizerCheckValues()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(OptimizerAMSGrad, KeepsTheLargestUncorrectedVelocity) {
  Weight weight(OptimizerKind::AMSGrad);
  weight.numbers.decay = 0.9;
  weight.numbers.beta2 = 0.5;
  weight.numbers.epsilon = 1e-8;
  weight.update(0.5);
  weight.update(-0.25);
  EXPECT_NEAR(weight.velocity(), 0.09375, 1e-12);
  EXPECT_NEAR(weight.maximumVelocity(), 0.125, 1e-12);
}

TEST(OptimizerTraps, ClippingComesBeforeTheRescale) {
  Weight weight(OptimizerKind::SGD);
  weight.rule.applyGradientClipping = true;
  weight.numbers.gradientClipMin = -1;
  weight.numbers.gradientClipMax = 1;
  weight.numbers.gradientRescale = 10;
  weight.learningRate = 1;
  EXPECT_DOUBLE_EQ(weight.update(5), 1 - 10);
  weight.rule.applyGradientClipping = false;
  EXPECT_DOUBLE_EQ(weight.update(5), -9 - 50) << "the limits are unused unless clipping is on";
}

TEST(OptimizerTraps, L1HasNoSlopeAtZeroAndTheSignOfTheValue) {
  for (const auto& [value, expected] : {std::pair{0.0, 0.0}, {2.0, 1.5}, {-2.0, -1.5}}) {
    Weight weight(OptimizerKind::SGD, value);
    weight.learningRate = 1;
    weight.rule.regularizationType = NNRegularizationType::L1;
    weight.numbers.regularizationScale = 0.5;
    EXPECT_DOUBLE_EQ(weight.update(0), expected);
  }
}

TEST(OptimizerTraps, L2HasNoFactorTwo) {
  Weight weight(OptimizerKind::SGD, 4);
  weight.learningRate = 1;
  weight.rule.regularizationType = NNRegularizationType::L2;
  weight.numbers.regularizationScale = 0.25;
  EXPECT_DOUBLE_EQ(weight.update(0), 3);
}

TEST(OptimizerTraps, MomentumHoldsTheLearningRateOfItsTime) {
  Weight weight(OptimizerKind::SGDMomentum);
  weight.numbers.decay = 0.5;
  weight.learningRate = 1;
  weight.update(1);
  EXPECT_DOUBLE_EQ(weight.momentum(), 1);
  weight.learningRate = 0;
  EXPECT_DOUBLE_EQ(weight.update(1), -0.5) << "the old part keeps the old rate";

  Weight nesterov(OptimizerKind::SGDNesterov);
  nesterov.numbers.decay = 0.5;
  nesterov.learningRate = 1;
  nesterov.update(1);
  EXPECT_DOUBLE_EQ(nesterov.momentum(), 1);
  EXPECT_DOUBLE_EQ(nesterov.value(), -0.5);
  nesterov.learningRate = 0;
  EXPECT_DOUBLE_EQ(nesterov.update(1), -0.5) << "the rate is outside the buffer";
}

TEST(OptimizerTraps, EpsilonIsOutsideTheRootAndNotCorrected) {
  Weight weight(OptimizerKind::RMSProp, 0);
  weight.numbers.decay = 0.75;
  weight.numbers.epsilon = 0.5;
  weight.learningRate = 1;
  EXPECT_DOUBLE_EQ(weight.update(1), -1 / (0.5 + 0.5));

  Weight adam(OptimizerKind::Adam, 0);
  adam.numbers.decay = 0.5;
  adam.numbers.beta2 = 0.75;
  adam.numbers.epsilon = 0.5;
  adam.learningRate = 1;
  // lr_1 = sqrt(0.25) / 0.5 = 1; m = 0.5, sqrt(u) = 0.5.
  EXPECT_DOUBLE_EQ(adam.update(1), -0.5 / (0.5 + 0.5));
}

TEST(OptimizerTraps, AdamLearningRateIsComputedInDouble) {
  EXPECT_DOUBLE_EQ(adamLearningRate(0.1, 0.9, 0.999, 1), 0.1 * std::sqrt(1 - 0.999) / (1 - 0.9));
  EXPECT_DOUBLE_EQ(adamLearningRate(0.001, 0.9, 0.999, 1000000), 0.001);
}

TEST(OptimizerUsage, NegativeRateAndScaleMakeARunningAverage) {
  Weight average(OptimizerKind::SGD, 3);
  average.learningRate = -(1 - 0.9);
  average.rule.regularizationType = NNRegularizationType::L2;
  average.numbers.regularizationScale = -1;
  EXPECT_NEAR(average.update(5), 0.9 * 3 + 0.1 * 5, 1e-12);
  EXPECT_NEAR(average.update(7), 0.9 * 3.2 + 0.1 * 7, 1e-12);
}

TEST(OptimizerNaN, StaysNaNThroughClippingAndMaximum) {
  for (const auto kind : {OptimizerKind::SGD, OptimizerKind::RMSProp, OptimizerKind::AMSGrad}) {
    Weight weight(kind);
    weight.rule.applyGradientClipping = true;
    weight.numbers.gradientClipMin = -1;
    weight.numbers.gradientClipMax = 1;
    weight.numbers.epsilon = 1e-8;
    EXPECT_TRUE(std::isnan(weight.update(std::numeric_limits<double>::quiet_NaN()))) << name(kind);
  }
  Weight weight(OptimizerKind::SGD);
  weight.rule.applyGradientClipping = true;
  weight.numbers.gradientClipMax = 1;
  EXPECT_DOUBLE_EQ(weight.update(kInfinity), 0.9) << "an infinite gradient is clipped";
}

}  // namespace
}  // namespace mps::detail::optimizer_reference_test
