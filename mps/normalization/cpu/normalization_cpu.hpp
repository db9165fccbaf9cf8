#pragma once

#include "mps/normalization/normalization_problem.hpp"

/// The implementations with vectors for the CPU. They earn everything but windows of more than their working
/// memory: the reference behind them computes in float64 on one thread.
namespace mps::detail {

/// Windows of channels.
Preparation prepareChannelNormalization(const NormalizationProblem& problem);
/// Windows of pixels, see WindowTiles.
Preparation prepareWindowNormalization(const NormalizationProblem& problem);

}  // namespace mps::detail
