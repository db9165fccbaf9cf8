#include "mps/loss/check/loss_reference.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "mps/conform/compare.hpp"
#include "mps/loss/check/loss_check_values.hpp"

namespace mps::detail::loss_reference_test {
namespace {

using Values = std::vector<double>;

ReferenceTensor tensor(std::int64_t images, std::int64_t height, std::int64_t width, std::int64_t channels,
                       const Values& values) {
  ReferenceTensor result(images, height, width, channels);
  EXPECT_EQ(result.values.size(), values.size());
  result.values = values;
  return result;
}

/// A problem of dense tensors; only channel counts matter to the reference.
LossProblem problemOf(CNNLossType type, CNNReductionType reduction, std::int64_t channels) {
  LossProblem problem;
  problem.lossType = type;
  problem.reductionType = reduction;
  problem.countedChannels = channels;
  return problem;
}

void expectNear(const ReferenceTensor& found, const Values& expected, const char* what) {
  ASSERT_EQ(found.values.size(), expected.size()) << what;
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(found.values[i], expected[i], kLossPrecision * std::max(1.0, std::abs(expected[i])))
        << what << " element " << i;
}

class LossCheckValue : public testing::TestWithParam<LossCheckValueRow> {};

TEST_P(LossCheckValue, Section11_8) {
  const LossCheckValueRow& row = GetParam();
  LossInputs inputs;
  inputs.predictions = tensor(1, 1, 1, 4, row.y);
  inputs.labels = tensor(1, 1, 1, 4, row.t);
  inputs.labelSmoothing = row.labelSmoothing;
  inputs.delta = row.delta;
  LossProblem problem = problemOf(row.type, CNNReductionType::Sum, 4);
  problem.numberOfClasses = row.numberOfClasses;
  const LossOutputs sum = lossReference(problem, inputs);
  expectNear(sum.loss, {row.sum}, "sum");
  expectNear(sum.gradient, row.gradient, "gradient");
  if (row.losses.empty()) return;
  problem.reductionType = CNNReductionType::None;
  expectNear(lossReference(problem, inputs).loss, row.losses, "losses");
}

INSTANTIATE_TEST_SUITE_P(Spec, LossCheckValue, testing::ValuesIn(lossCheckValues()),
                         [](const auto& info) { return std::string(info.param.name); });

/// Codes 85 and 84 of unorm8: what float32 makes of them differs by more than the roundings of y - t allow.
TEST(LossErrorBound, CountsTheRoundingOfUnormCodes) {
  LossInputs inputs;
  inputs.predictions = tensor(1, 1, 1, 2, {85 / 255.0, 254 / 255.0});
  inputs.labels = tensor(1, 1, 1, 2, {84 / 255.0, 253 / 255.0});
  for (const auto type : {CNNLossType::MeanSquaredError, CNNLossType::Huber}) {
    LossProblem problem = problemOf(type, CNNReductionType::None, 2);
    const LossOutputs exact = lossReference(problem, inputs);
    problem.predictions.format = ImageFeatureChannelFormat::Unorm8;
    const LossOutputs predictions = lossReference(problem, inputs);
    problem.labels.format = ImageFeatureChannelFormat::Unorm16;
    const LossOutputs both = lossReference(problem, inputs);
    for (std::size_t i = 0; i < 2; ++i) {
      // |dL/dx| times what the roundings of y and t add, in units of the roundoff.
      const double slope = std::abs(exact.gradient.values[i]);
      const double ofY = inputs.predictions.values[i];
      const double ofT = inputs.labels.values[i];
      EXPECT_DOUBLE_EQ(predictions.loss.magnitude[i] - exact.loss.magnitude[i], slope * ofY);
      EXPECT_DOUBLE_EQ(both.loss.magnitude[i] - exact.loss.magnitude[i], slope * (ofY + ofT));
      const double curvature = type == CNNLossType::MeanSquaredError ? 2 : 1;
      EXPECT_DOUBLE_EQ(both.gradient.magnitude[i] - exact.gradient.magnitude[i], curvature * (ofY + ofT));
      EXPECT_DOUBLE_EQ(both.labelGradient.magnitude[i], both.gradient.magnitude[i]);
    }
  }
}

TEST(LossReduction, WeightedMeanSquaredError) {
  LossInputs inputs;
  inputs.predictions = tensor(1, 1, 1, 4, kLogits);
  inputs.labels = tensor(1, 1, 1, 4, kOneHot);
  inputs.weights = tensor(1, 1, 1, 4, {2, 0, 0.5, 0});
  const auto of = [&](CNNReductionType reduction) {
    return lossReference(problemOf(CNNLossType::MeanSquaredError, reduction, 4), inputs);
  };
  expectNear(of(CNNReductionType::None).loss, {0.5, 0, 2, 0}, "none");
  expectNear(of(CNNReductionType::Sum).loss, {2.5}, "sum");
  expectNear(of(CNNReductionType::Mean).loss, {0.625}, "mean");
  expectNear(of(CNNReductionType::SumByNonZeroWeights).loss, {1.25}, "by non-zero weights");
  for (const auto reduction :
       {CNNReductionType::Sum, CNNReductionType::Mean, CNNReductionType::SumByNonZeroWeights})
    expectNear(of(reduction).gradient, {-2, 0, 2, 0}, "gradient");
}

TEST(LossReduction, NonZeroWeightsWithoutWeightsAndAllZero) {
  LossInputs inputs;
  inputs.predictions = tensor(1, 1, 1, 4, kLogits);
  inputs.labels = tensor(1, 1, 1, 4, kOneHot);
  LossProblem problem = problemOf(CNNLossType::MeanSquaredError, CNNReductionType::SumByNonZeroWeights, 4);
  expectNear(lossReference(problem, inputs).loss, {5.3125 / 4}, "no weights: all elements");
  inputs.weights = tensor(1, 1, 1, 4, {0, 0, 0, 0});
  problem.divideGradient = true;
  const LossOutputs outputs = lossReference(problem, inputs);
  expectNear(outputs.loss, {0}, "all weights 0");
  expectNear(outputs.gradient, {0, 0, 0, 0}, "all weights 0");
}

TEST(LossReduction, SoftMaxMeanDividesByPixels) {
  LossInputs inputs;
  inputs.predictions = tensor(1, 1, 1, 4, kLogits);
  inputs.labels = tensor(1, 1, 1, 4, kOneHot);
  const LossProblem problem = problemOf(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Mean, 4);
  expectNear(lossReference(problem, inputs).loss, {1.869279}, "mean");
}

TEST(LossReduction, AcrossBatch) {
  LossInputs inputs;  // image sums 5.3125 and 1
  inputs.predictions = tensor(2, 1, 1, 4, {0.5, -1, 2, 0.25, 0, 0, 0, 0});
  inputs.labels = tensor(2, 1, 1, 4, {1, 0, 0, 0, 1, 0, 0, 0});
  LossProblem problem = problemOf(CNNLossType::MeanSquaredError, CNNReductionType::Sum, 4);
  expectNear(lossReference(problem, inputs).loss, {5.3125, 1}, "per image");
  problem.reduceAcrossBatch = true;
  expectNear(lossReference(problem, inputs).loss, {6.3125, 0}, "sum");
  expectNear(lossReference(problem, inputs).gradient, {-1, -2, 4, 0.5, -2, 0, 0, 0}, "gradient per image");
  problem.reductionType = CNNReductionType::Mean;
  expectNear(lossReference(problem, inputs).loss, {0.7890625, 0}, "mean");
  inputs.weights = tensor(2, 1, 1, 4, {1, 0, 0, 0, 1, 1, 0, 0});
  problem.reductionType = CNNReductionType::SumByNonZeroWeights;
  expectNear(lossReference(problem, inputs).loss, {1.25 / 3, 0}, "non-zero weights of the batch");
  problem.reductionType = CNNReductionType::None;
  expectNear(lossReference(problem, inputs).loss, {0.25, 0, 0, 0, 1, 0, 0, 0}, "none: no effect");
}

TEST(LossReduction, SoftMaxMeanAcrossBatchDividesByPixelsOfTheBatch) {
  LossInputs inputs;
  inputs.predictions = tensor(2, 1, 1, 2, {0, 0, 0, 0});
  inputs.labels = tensor(2, 1, 1, 2, {1, 0, 0, 1});
  LossProblem problem = problemOf(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Mean, 2);
  problem.reduceAcrossBatch = true;
  expectNear(lossReference(problem, inputs).loss, {std::log(2.0), 0}, "mean");
}

TEST(LossWeight, ScalesLossAndGradientBesideTheWeightsImage) {
  LossInputs inputs;
  inputs.predictions = tensor(1, 1, 1, 2, {3, 1});
  inputs.labels = tensor(1, 1, 1, 2, {1, 0});
  inputs.weights = tensor(1, 1, 1, 2, {2, 1});
  inputs.weight = 0.5;
  const auto outputs =
      lossReference(problemOf(CNNLossType::MeanSquaredError, CNNReductionType::Sum, 2), inputs);
  expectNear(outputs.loss, {0.5 * (2 * 4 + 1)}, "loss");
  expectNear(outputs.gradient, {4, 1}, "gradient");
  const auto cosine = lossReference(problemOf(CNNLossType::CosineDistance, CNNReductionType::Sum, 2), inputs);
  expectNear(cosine.loss, {0.5 * (1 - 2 * 3)}, "cosine: image weights inside the sum, the factor outside");
}

TEST(LossCorrections, HuberUsesTheDifferenceAndKeepsTheSign) {
  LossInputs inputs;
  inputs.predictions = tensor(1, 1, 1, 3, {2, -3, 1.5});
  inputs.labels = tensor(1, 1, 1, 3, {1, 1, 1});
  LossProblem problem = problemOf(CNNLossType::Huber, CNNReductionType::None, 3);
  const auto outputs = lossReference(problem, inputs);
  expectNear(outputs.loss, {0.5, 3.5, 0.125}, "loss");  // the printed first branch would give 2 and 1.125
  expectNear(outputs.gradient, {1, -1, 0.5}, "gradient");
}

TEST(LossCorrections, HingeMapsLabelsToSigns) {
  LossInputs inputs;
  inputs.predictions = tensor(1, 1, 1, 4, {0.5, 0.5, 2, -2});
  inputs.labels = tensor(1, 1, 1, 4, {1, 0, 1, 0});
  const auto outputs = lossReference(problemOf(CNNLossType::Hinge, CNNReductionType::None, 4), inputs);
  expectNear(outputs.loss, {0.5, 1.5, 0, 0}, "loss");
  expectNear(outputs.gradient, {-1, 1, 0, 0}, "gradient");
}

TEST(LossTies, SlopesAtCorners) {
  LossInputs inputs;
  inputs.predictions = tensor(1, 1, 1, 2, {1, 0.25});
  inputs.labels = tensor(1, 1, 1, 2, {1, 0.25});
  expectNear(
      lossReference(problemOf(CNNLossType::MeanAbsoluteError, CNNReductionType::Sum, 2), inputs).gradient,
      {0, 0}, "absolute error at y = t");
  inputs.predictions = tensor(1, 1, 1, 2, {1, -1});
  inputs.labels = tensor(1, 1, 1, 2, {1, 0});
  expectNear(lossReference(problemOf(CNNLossType::Hinge, CNNReductionType::Sum, 2), inputs).gradient, {0, 0},
             "hinge at s y = 1");
}

TEST(LossTies, ZeroLabelsAndZeroProbabilities) {
  LossInputs inputs;
  const double infinity = std::numeric_limits<double>::infinity();
  inputs.predictions = tensor(1, 1, 1, 2, {0, 0.5});
  inputs.labels = tensor(1, 1, 1, 2, {0, 1});
  const auto categorical =
      lossReference(problemOf(CNNLossType::CategoricalCrossEntropy, CNNReductionType::None, 2), inputs);
  expectNear(categorical.loss, {0, std::log(2.0)}, "0 where t = 0");
  expectNear(categorical.gradient, {0, -2}, "0 where t = 0");
  inputs.predictions = tensor(1, 1, 1, 3, {-infinity, 0, 0});
  inputs.labels = tensor(1, 1, 1, 3, {0, 1, 0});
  const auto masked =
      lossReference(problemOf(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Sum, 3), inputs);
  expectNear(masked.loss, {std::log(2.0)}, "a masked class");
  expectNear(masked.gradient, {0, -0.5, 0.5}, "a masked class");
}

TEST(LossNaN, IsSeen) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  LossInputs inputs;
  inputs.predictions = tensor(1, 1, 1, 2, {nan, 0.5});
  inputs.labels = tensor(1, 1, 1, 2, {0, 1});
  for (const auto type :
       {CNNLossType::MeanAbsoluteError, CNNLossType::MeanSquaredError, CNNLossType::SoftMaxCrossEntropy,
        CNNLossType::SigmoidCrossEntropy, CNNLossType::Hinge, CNNLossType::Huber, CNNLossType::CosineDistance,
        CNNLossType::Log})
    EXPECT_TRUE(std::isnan(lossReference(problemOf(type, CNNReductionType::Sum, 2), inputs).loss.values[0]))
        << name(type);
}

TEST(LossChannels, ExtraLabelsAndExtraPredictionsDoNotCount) {
  LossInputs plain;
  plain.predictions = tensor(1, 1, 1, 4, kLogits);
  plain.labels = tensor(1, 1, 1, 4, kOneHot);
  const LossProblem problem = problemOf(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Sum, 4);
  const LossOutputs expected = lossReference(problem, plain);

  LossInputs wider = plain;
  wider.labels = tensor(1, 1, 1, 6, {1, 0, 0, 0, 7, 9});
  const LossOutputs padded = lossReference(problem, wider);
  EXPECT_EQ(padded.loss.values, expected.loss.values);
  EXPECT_EQ(padded.gradient.values, expected.gradient.values);

  wider.predictions = tensor(1, 1, 1, 5, {0.5, -1, 2, 0.25, 100});
  const LossOutputs cut = lossReference(problem, wider);
  EXPECT_EQ(cut.loss.values, expected.loss.values);
  Values gradient = expected.gradient.values;
  gradient.push_back(0);
  EXPECT_EQ(cut.gradient.values, gradient);
}

TEST(LossIndices, EqualOneHotLabelsAndLeaveOutPixels) {
  LossInputs dense;
  dense.predictions = tensor(1, 1, 2, 3, {1, 2, 3, -1, 0.5, 0});
  dense.labels = tensor(1, 1, 2, 3, {0, 0, 1, 0, 1, 0});
  LossProblem problem = problemOf(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::SumByNonZeroWeights, 3);
  problem.divideGradient = true;
  LossInputs indices = dense;
  indices.labels = tensor(1, 1, 2, 1, {2, 1});
  LossProblem indexProblem = problem;
  indexProblem.labelKind = LossLabels::ClassIndices;
  EXPECT_EQ(lossReference(indexProblem, indices).loss.values, lossReference(problem, dense).loss.values);
  EXPECT_EQ(lossReference(indexProblem, indices).gradient.values,
            lossReference(problem, dense).gradient.values);

  indices.labels = tensor(1, 1, 2, 1, {2, 255});
  indices.predictions.values[3] = std::numeric_limits<double>::quiet_NaN();
  dense.weights = tensor(1, 1, 2, 1, {1, 0});
  const LossOutputs leftOut = lossReference(indexProblem, indices);
  EXPECT_EQ(leftOut.loss.values, lossReference(problem, dense).loss.values);
  EXPECT_EQ(leftOut.gradient.values, lossReference(problem, dense).gradient.values);
}

TEST(LossChainRule, DividesAndMultipliesBySourceGradient) {
  LossInputs inputs;
  inputs.predictions = tensor(2, 1, 1, 2, {3, 1, 0, 2});
  inputs.labels = tensor(2, 1, 1, 2, {1, 0, 0, 0});
  inputs.sourceGradient = tensor(2, 1, 1, 1, {3, 5});
  LossProblem problem = problemOf(CNNLossType::MeanSquaredError, CNNReductionType::Mean, 2);
  expectNear(lossReference(problem, inputs).gradient, {12, 6, 0, 20}, "not divided");
  problem.divideGradient = true;
  expectNear(lossReference(problem, inputs).gradient, {6, 3, 0, 10}, "divided");
  problem.reduceAcrossBatch = true;
  expectNear(lossReference(problem, inputs).gradient, {3, 1.5, 0, 3}, "of the batch, from image 0");
  problem.reductionType = CNNReductionType::None;
  inputs.sourceGradient = tensor(2, 1, 1, 2, {1, 2, 3, 4});
  expectNear(lossReference(problem, inputs).gradient, {4, 4, 0, 16}, "element by element");
}

/// The number that central differences are taken of: the loss values, weighted by the incoming gradient.
double objective(const LossProblem& problem, const LossInputs& inputs) {
  const LossOutputs outputs = lossReference(problem, inputs);
  double sum = 0;
  for (std::size_t i = 0; i < outputs.loss.values.size(); ++i)
    sum += outputs.loss.values[i] * inputs.sourceGradient.values[i];
  return sum;
}

void expectDerivative(const LossProblem& problem, const LossInputs& place,
                      ReferenceTensor LossInputs::*variable, const ReferenceTensor& gradient) {
  LossInputs inputs = place;
  constexpr double step = 1e-5;
  for (std::size_t i = 0; i < gradient.values.size(); ++i) {
    double& value = (inputs.*variable).values[i];
    const double original = value;
    value = original + step;
    const double above = objective(problem, inputs);
    value = original - step;
    const double below = objective(problem, inputs);
    value = original;
    const double slope = (above - below) / (2 * step);
    EXPECT_NEAR(gradient.values[i], slope, 1e-6 * std::max(1.0, std::abs(slope)))
        << problem.describe() << " element " << i;
  }
}

class LossDerivatives : public testing::TestWithParam<CNNReductionType> {};

TEST_P(LossDerivatives, EqualCentralDifferences) {
  constexpr std::uint64_t seed = 20;
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (int type = 0; type < static_cast<int>(CNNLossType::Count); ++type) {
    const auto lossType = static_cast<CNNLossType>(type);
    if (lossType == CNNLossType::CosineDistance && GetParam() != CNNReductionType::Sum) continue;
    for (const bool acrossBatch : {false, true}) {
      LossInputs inputs;
      const auto random = [&](std::uint64_t stream, std::size_t count, double low, double high) {
        Values values = randomValues(count, seed + stream, RandomKind::Uniform);
        for (double& value : values) value = low + (high - low) * (value + 1) / 2;
        return values;
      };
      // Predictions and labels between 0 and 1, away from the kinks of all types.
      inputs.predictions = tensor(2, 2, 1, 3, random(1, 12, 0.1, 0.45));
      inputs.labels = tensor(2, 2, 1, 3, random(2, 12, 0.5, 0.9));
      inputs.weights = tensor(2, 2, 1, 3, random(3, 12, 0.5, 1.5));
      inputs.weight = 0.75;
      inputs.labelSmoothing = 0.2;
      inputs.delta = 0.2;
      inputs.epsilon = 0.01;
      LossProblem problem = problemOf(lossType, GetParam(), 3);
      problem.reduceAcrossBatch = acrossBatch;
      problem.divideGradient = true;
      problem.exactSoftMaxGradient = true;
      problem.numberOfClasses = 3;
      const bool perElement = GetParam() == CNNReductionType::None;
      inputs.sourceGradient =
          perElement ? tensor(2, 2, 1, 3, random(4, 12, -1, 1)) : tensor(2, 1, 1, 1, {1.25, -0.5});
      const LossOutputs outputs = lossReference(problem, inputs);
      expectDerivative(problem, inputs, &LossInputs::predictions, outputs.gradient);
      expectDerivative(problem, inputs, &LossInputs::labels, outputs.labelGradient);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllTypes, LossDerivatives,
                         testing::Values(CNNReductionType::None, CNNReductionType::Sum,
                                         CNNReductionType::Mean, CNNReductionType::SumByNonZeroWeights),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST(LossGradient, PrintedSoftMaxRuleWeighsTheDifference) {
  LossInputs inputs;
  inputs.predictions = tensor(1, 1, 1, 2, {0, 0});
  inputs.labels = tensor(1, 1, 1, 2, {1, 0});
  inputs.weights = tensor(1, 1, 1, 2, {1, 3});
  LossProblem problem = problemOf(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Sum, 2);
  expectNear(lossReference(problem, inputs).gradient, {-0.5, 1.5}, "w (p - t)");
  problem.exactSoftMaxGradient = true;
  expectNear(lossReference(problem, inputs).gradient, {-0.5, 0.5}, "p sum(w t) - w t");
}

}  // namespace
}  // namespace mps::detail::loss_reference_test
