#pragma once

#include <vector>

#include "mps/conform/tolerance.hpp"
#include "mps/optimizer/optimizer_problem.hpp"

namespace mps::detail {

/// The check values are printed with six decimals.
inline constexpr double kOptimizerPrecision = printedTolerance(6);
inline constexpr double kOptimizerGradients[] = {0.5, -0.25, 1.0};

/// One row of a table of worked examples: a value of 1 after each of three steps with learning rate 0.1.
struct OptimizerCheckRow {
  const char* name;
  OptimizerKind kind;
  OptimizerNumbers numbers;
  NNRegularizationType regularizationType;
  bool clips;
  double values[3];
  double momentum;
  double velocity;
};

inline OptimizerNumbers optimizerNumbers(double decay, double beta2, double epsilon, double scale = 0) {
  OptimizerNumbers numbers;
  numbers.decay = decay;
  numbers.beta2 = beta2;
  numbers.epsilon = epsilon;
  numbers.regularizationScale = scale;
  return numbers;
}

// clang-format off
inline std::vector<OptimizerCheckRow> optimizerCheckValues() {
  constexpr auto none = NNRegularizationType::None;
  OptimizerNumbers clipped = optimizerNumbers(0, 0, 0, 0.01);
  clipped.gradientClipMin = -0.2;
  clipped.gradientClipMax = 0.6;
  clipped.gradientRescale = 2;
  return {
      {"SGD", OptimizerKind::SGD, optimizerNumbers(0, 0, 0), none, false, {0.95, 0.975, 0.875}, 0, 0},
      {"Momentum", OptimizerKind::SGDMomentum, optimizerNumbers(0.9, 0, 0), none, false,
       {0.95, 0.93, 0.812}, 0.118, 0},
      {"Nesterov", OptimizerKind::SGDNesterov, optimizerNumbers(0.9, 0, 0), none, false,
       {0.905, 0.912, 0.7058}, 1.18, 0},
      {"RMSProp", OptimizerKind::RMSProp, optimizerNumbers(0.9, 0, 1e-8), none, false,
       {0.683772, 0.831214, 0.549356}, 0, 0.125875},
      {"Adam", OptimizerKind::Adam, optimizerNumbers(0.9, 0.999, 1e-8), none, false,
       {0.9, 0.873366, 0.807555}, 0.118, 0.001311938},
      {"AdamBeta2Half", OptimizerKind::Adam, optimizerNumbers(0.9, 0.5, 1e-8), none, false,
       {0.9, 0.870227, 0.815150}, 0.118, 0.546875},
      {"AMSGradBeta2Half", OptimizerKind::AMSGrad, optimizerNumbers(0.9, 0.5, 1e-8), none, false,
       {0.9, 0.874216, 0.819139}, 0.118, 0.546875},
      {"SGDWithL1", OptimizerKind::SGD, optimizerNumbers(0, 0, 0, 0.01), NNRegularizationType::L1, false,
       {0.949, 0.973, 0.872}, 0, 0},
      {"SGDWithL2", OptimizerKind::SGD, optimizerNumbers(0, 0, 0, 0.01), NNRegularizationType::L2, false,
       {0.949, 0.973051, 0.872078}, 0, 0},
      {"SGDClippedRescaledWithL2", OptimizerKind::SGD, clipped, NNRegularizationType::L2, true,
       {0.899, 0.938101, 0.817163}, 0, 0},
      {"MomentumWithL2", OptimizerKind::SGDMomentum, optimizerNumbers(0.9, 0, 0, 0.01), NNRegularizationType::L2,
       false, {0.949, 0.927151, 0.806560}, 0.120591, 0},
  };
}
// clang-format on

}  // namespace mps::detail
