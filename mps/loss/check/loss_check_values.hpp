#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "mps/conform/tolerance.hpp"
#include "mps/loss/loss_descriptor.hpp"

namespace mps::detail {

/// The check values are printed with six decimals.
inline constexpr double kLossPrecision = printedTolerance(6);

/// One row of a table of worked examples.
struct LossCheckValueRow {
  const char* name;
  CNNLossType type;
  std::vector<double> y;
  std::vector<double> t;
  double labelSmoothing;
  std::int64_t numberOfClasses;
  double delta;
  std::vector<double> losses;
  double sum;
  std::vector<double> gradient;
};

inline const std::vector<double> kLogits = {0.5, -1, 2, 0.25};
inline const std::vector<double> kProbabilities = {0.2, 0.1, 0.6, 0.1};
inline const std::vector<double> kOneHot = {1, 0, 0, 0};

// clang-format off
inline std::vector<LossCheckValueRow> lossCheckValues() {
  const std::vector<double> logProbabilities = {std::log(0.2), std::log(0.1), std::log(0.6), std::log(0.1)};
  return {
      {"MeanAbsoluteError", CNNLossType::MeanAbsoluteError, kLogits, kOneHot, 0, 1, 1,
       {0.5, 1, 2, 0.25}, 3.75, {-1, -1, 1, 1}},
      {"MeanSquaredError", CNNLossType::MeanSquaredError, kLogits, kOneHot, 0, 1, 1,
       {0.25, 1, 4, 0.0625}, 5.3125, {-1, -2, 4, 0.5}},
      {"SoftMaxCrossEntropy", CNNLossType::SoftMaxCrossEntropy, kLogits, kOneHot, 0, 1, 1,
       {1.869279, 0, 0, 0}, 1.869279, {-0.845765, 0.034414, 0.691233, 0.120118}},
      {"SoftMaxCrossEntropySmoothed", CNNLossType::SoftMaxCrossEntropy, kLogits, kOneHot, 0.1, 4, 1,
       {1.729083, 0.084232, 0.009232, 0.052982}, 1.875529, {-0.770765, 0.009414, 0.666233, 0.095118}},
      {"SoftMaxCrossEntropySmoothedOneClass", CNNLossType::SoftMaxCrossEntropy, kLogits, kOneHot, 0.1, 1, 1,
       {1.869279, 0.336928, 0.036928, 0.211928}, 2.455063, {-0.845765, -0.065586, 0.591233, 0.020118}},
      {"SigmoidCrossEntropy", CNNLossType::SigmoidCrossEntropy, kLogits, kOneHot, 0, 1, 1,
       {0.474077, 0.313262, 2.126928, 0.825939}, 3.740206, {-0.377541, 0.268941, 0.880797, 0.562177}},
      {"SigmoidCrossEntropySmoothed", CNNLossType::SigmoidCrossEntropy, kLogits, kOneHot, 0.1, 1, 1,
       {0.499077, 0.363262, 2.026928, 0.813439}, 3.702706, {-0.327541, 0.218941, 0.830797, 0.512177}},
      {"Hinge", CNNLossType::Hinge, kLogits, kOneHot, 0, 1, 1, {0.5, 0, 3, 1.25}, 4.75, {-1, 0, 1, 1}},
      {"Huber", CNNLossType::Huber, kLogits, kOneHot, 0, 1, 0.75,
       {0.125, 0.46875, 1.21875, 0.03125}, 1.84375, {-0.5, -0.75, 0.75, 0.25}},
      {"CategoricalCrossEntropy", CNNLossType::CategoricalCrossEntropy, kProbabilities, kOneHot, 0, 1, 1,
       {1.609438, 0, 0, 0}, 1.609438, {-5, 0, 0, 0}},
      {"CosineDistance", CNNLossType::CosineDistance, kProbabilities, kOneHot, 0, 1, 1,
       {}, 0.8, {-1, 0, 0, 0}},
      {"Log", CNNLossType::Log, kProbabilities, kOneHot, 0, 1, 1,
       {1.609437, 0.105360, 0.916290, 0.105360}, 2.736449, {-4.999998, 1.111111, 2.499999, 1.111111}},
      {"KullbackLeiblerDivergence", CNNLossType::KullbackLeiblerDivergence, logProbabilities,
       {0.7, 0.1, 0.2, 0}, 0, 1, 1, {0.876934, 0, -0.219722, 0}, 0.657212, {-0.7, -0.1, -0.2, 0}},
  };
}
// clang-format on

}  // namespace mps::detail
