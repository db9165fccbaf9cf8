#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mps/optimizer/optimizer_problem.hpp"

namespace mps::detail {

/// A problem with the numbers of one step, for tests, self-check and timing.
struct OptimizerCase {
  std::string name;
  OptimizerProblem problem;
  OptimizerNumbers numbers;
  /// The result is written over the values.
  bool inPlace = true;
  /// Inputs are small integers and every step is representable.
  bool exact = false;
};

inline const std::vector<OptimizerKind>& optimizerKinds() {
  static const std::vector<OptimizerKind> kinds = {OptimizerKind::SGD,         OptimizerKind::SGDMomentum,
                                                   OptimizerKind::SGDNesterov, OptimizerKind::RMSProp,
                                                   OptimizerKind::Adam,        OptimizerKind::AMSGrad};
  return kinds;
}

/// Adjacent rows, and numbers as training programs use them.
inline OptimizerCase optimizerCase(OptimizerKind kind, std::int64_t rows, std::int64_t count) {
  OptimizerCase result;
  result.name = name(kind);
  result.problem.rule.kind = kind;
  result.problem.rows = rows;
  result.problem.count = count;
  for (std::int64_t OptimizerProblem::*stride :
       {&OptimizerProblem::gradientStride, &OptimizerProblem::valuesStride, &OptimizerProblem::resultStride,
        &OptimizerProblem::momentumStride, &OptimizerProblem::velocityStride,
        &OptimizerProblem::maximumVelocityStride})
    result.problem.*stride = count;
  result.numbers.learningRate = 0.03125;
  result.numbers.decay = 0.875;
  result.numbers.beta2 = 0.96875;
  result.numbers.epsilon = 1e-8;
  return result;
}

/// All of them.
inline std::vector<OptimizerCase> optimizerCases() {
  std::vector<OptimizerCase> cases;
  for (const OptimizerKind kind : optimizerKinds()) {
    for (const std::int64_t count : {1, 3, 4, 5, 15, 16, 17, 64, 1000, 40000}) {
      OptimizerCase sized = optimizerCase(kind, 1, count);
      sized.name += "Count" + std::to_string(count);
      cases.push_back(sized);
    }
    for (const auto type : {NNRegularizationType::None, NNRegularizationType::L1, NNRegularizationType::L2,
                            NNRegularizationType::Decoupled})
      for (const bool clips : {false, true}) {
        OptimizerCase prepared = optimizerCase(kind, 1, 333);
        prepared.problem.rule.regularizationType = type;
        prepared.problem.rule.applyGradientClipping = clips;
        prepared.numbers.regularizationScale = 0.125;
        prepared.numbers.gradientClipMin = -0.25;
        prepared.numbers.gradientClipMax = 0.5;
        prepared.numbers.gradientRescale = 0.75;
        constexpr const char* typeNames[] = {"", "L1", "L2", "Decoupled"};
        prepared.name += typeNames[static_cast<std::size_t>(type)];
        prepared.name += clips ? "ClippedRescaled" : "Rescaled";
        cases.push_back(prepared);
        if (clips) continue;
        prepared.numbers.learningRate = -0.1F;
        prepared.numbers.regularizationScale = -1;
        prepared.name += "Negative";
        cases.push_back(prepared);
      }
    OptimizerCase separate = optimizerCase(kind, 1, 33337);  // threads share it
    separate.name += "SeparateResult";
    separate.inPlace = false;
    cases.push_back(separate);
    OptimizerCase large = optimizerCase(kind, 3, 13001);  // rows that threads share
    large.name += "LargeRows";
    cases.push_back(large);
    OptimizerCase rows = optimizerCase(kind, 23, 37);
    rows.name += "RowsWithGaps";
    rows.problem.gradientStride = 40;
    rows.problem.valuesStride = rows.problem.resultStride = 37;
    rows.problem.momentumStride = 41;
    rows.problem.velocityStride = 43;
    rows.problem.maximumVelocityStride = 64;
    cases.push_back(rows);
    rows.name += "SeparateResult";
    rows.problem.resultStride = 39;
    rows.inPlace = false;
    cases.push_back(rows);
  }
  for (const OptimizerKind kind :
       {OptimizerKind::SGD, OptimizerKind::SGDMomentum, OptimizerKind::SGDNesterov}) {
    OptimizerCase exact = optimizerCase(kind, 3, 500);
    exact.name += "Exact";
    exact.exact = true;
    exact.numbers.learningRate = 0.5;
    exact.numbers.decay = 0.25;
    exact.numbers.gradientRescale = 2;
    exact.numbers.regularizationScale = 0.125;
    exact.numbers.gradientClipMin = -2;
    exact.numbers.gradientClipMax = 3;
    exact.problem.rule.applyGradientClipping = true;
    exact.problem.rule.regularizationType = NNRegularizationType::L2;
    cases.push_back(exact);
    exact.name += "L1";
    exact.problem.rule.regularizationType = NNRegularizationType::L1;
    cases.push_back(exact);
    exact.name = exact.name.replace(exact.name.size() - 2, 2, "Decoupled");
    exact.problem.rule.regularizationType = NNRegularizationType::Decoupled;
    cases.push_back(exact);
  }
  return cases;
}

}  // namespace mps::detail
