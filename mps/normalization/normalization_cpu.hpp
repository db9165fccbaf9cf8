#pragma once

#include "mps/normalization/normalization_problem.hpp"

namespace mps::detail {

/// @name Vectors over pixels and channels: one file for windows of channels, one for windows of pixels.
/// @{
Preparation prepareChannelNormalization(const NormalizationProblem& problem);
Preparation prepareWindowNormalization(const NormalizationProblem& problem);
/// Windows of 5 x 5 pixels, see FiveTiles.
Preparation prepareFives(const NormalizationProblem& problem);
/// Windows of 5 x 5 pixels that are narrower than a vector, see NarrowRuns.
Preparation prepareNarrow(const NormalizationProblem& problem);
/// @}

}  // namespace mps::detail
