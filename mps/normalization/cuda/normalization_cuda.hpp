#pragma once

#include "mps/normalization/normalization_problem.hpp"

/// The implementations for NVIDIA GPUs, in order of preference.
namespace mps::detail {

/// Windows of a few channels: a thread has 16 bytes of a pixel, its neighbours' come from shared memory.
Preparation prepareNormalizationChannelsCuda(const NormalizationProblem& problem);
/// Windows of channels, where a pixel has at most four: the last entry is 6 to 22 times slower with three.
Preparation prepareNormalizationPixelsCuda(const NormalizationProblem& problem);
/// Windows of a few pixels that slide down columns.
Preparation prepareNormalizationSlidingCuda(const NormalizationProblem& problem);

}  // namespace mps::detail
