#pragma once

#include "mps/normalization/normalization_problem.hpp"

/// The implementations with vectors for the CPU.
namespace mps::detail {

/// Windows of channels.
Preparation prepareChannelNormalization(const NormalizationProblem& problem);
/// Windows of pixels, see WindowTiles.
Preparation prepareWindowNormalization(const NormalizationProblem& problem);

}  // namespace mps::detail
