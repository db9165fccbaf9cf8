#pragma once

#include <algorithm>
#include <cfloat>
#include <cstdint>

#include "mps/core/cuda/element_grid_cuda.cuh"
#include "mps/normalization/cuda/normalization_powers_cuda.cuh"
#include "mps/normalization/normalization_problem.hpp"

namespace mps::detail::cuda {

/// Windows of channels, as kernels see them whose threads have at most kFarthest channels beside their own.
struct ChannelWindows {
  static constexpr std::int64_t kFarthest = 4;

  SourceView source;
  SourceView gradient;
  ResultView destination;
  bool accumulate;
  std::int32_t before;  ///< channels of a window before its own, and after it
  std::int32_t after;
  float delta;
  float ofSquares;  ///< alpha / size
  float ofSum;      ///< 2 alpha beta / size
  PowerRule rule;
  bool isNormal;  ///< T is no smaller than delta, which is a normal number

  ChannelWindows(const NormalizationProblem& problem, const Operands& operands)
      : source(problem.source, operands.source),
        gradient(problem.gradient, operands.gradient),
        destination(problem.destination, operands.destination),
        accumulate(operands.accumulate),
        before(static_cast<std::int32_t>(std::min(problem.kernelSize / 2, kFarthest))),
        after(static_cast<std::int32_t>(std::min((problem.kernelSize - 1) / 2, kFarthest))),
        delta(problem.delta),
        ofSquares(problem.alpha / static_cast<float>(problem.kernelSize)),
        ofSum(2 * problem.alpha * problem.beta / static_cast<float>(problem.kernelSize)),
        rule(problem.beta),
        isNormal(problem.alpha >= 0 && problem.delta >= FLT_MIN) {}
};

}  // namespace mps::detail::cuda
