#pragma once

#include "mps/normalization/normalization_problem.hpp"

/// The implementations for NVIDIA GPUs, in order of preference.
namespace mps::detail {

/// Windows of a few channels: a thread has 16 bytes of a pixel, its neighbours' come from shared memory.
/// Earns the response normalisation of alexnet-lrn.
Preparation prepareNormalizationChannelsCuda(const NormalizationProblem& problem);
/// Windows of channels, where a pixel has at most four: the last entry is 6 to 22 times slower with three.
Preparation prepareNormalizationPixelsCuda(const NormalizationProblem& problem);
/// Windows of a few pixels that slide down columns. Earns 5x5 windows: the last entry reads each pixel once
/// for each tap.
Preparation prepareNormalizationSlidingCuda(const NormalizationProblem& problem);

}  // namespace mps::detail
