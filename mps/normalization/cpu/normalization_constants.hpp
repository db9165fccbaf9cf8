#pragma once

#include "mps/normalization/normalization_problem.hpp"

namespace mps::detail {

/// Numbers of the formulas, in float32.
struct WindowConstants {
  explicit WindowConstants(const NormalizationProblem& problem)
      : delta(problem.delta),
        alphaShare(
            static_cast<float>(static_cast<double>(problem.alpha) / static_cast<double>(problem.taps()))),
        p0(problem.p0),
        pm(problem.pm),
        ps(problem.ps),
        p0Share(static_cast<float>(static_cast<double>(problem.p0) / static_cast<double>(problem.taps()))),
        factor(static_cast<float>(2.0 * static_cast<double>(problem.alpha) *
                                  static_cast<double>(problem.beta) / static_cast<double>(problem.taps()))) {}
  float delta;
  float alphaShare;
  float p0;
  float pm;
  float ps;
  float p0Share;
  float factor;
};

}  // namespace mps::detail
