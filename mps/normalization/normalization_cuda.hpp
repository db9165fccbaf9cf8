#pragma once

#include "mps/normalization/normalization_problem.hpp"

/// The implementations for NVIDIA GPUs, in order of preference.
namespace mps::detail {

/// Windows of a few channels, 16 bytes of a pixel at once.
Preparation prepareNormalizationChannelsCuda(const NormalizationProblem& problem);
/// Windows of the channels of pixels that have four at most.
Preparation prepareNormalizationPixelsCuda(const NormalizationProblem& problem);
/// Windows of five pixels by five of whole images, four of a row at once: what they share is added up once.
Preparation prepareNormalizationColumnsCuda(const NormalizationProblem& problem);
/// Windows of three pixels by three or five by five of whole images: sums of columns, then of rows.
Preparation prepareNormalizationImagesCuda(const NormalizationProblem& problem);
/// Windows of a few pixels: sums of rows, then of columns.
Preparation prepareNormalizationStripsCuda(const NormalizationProblem& problem);
/// Everything, element by element.
Preparation prepareNormalizationElementsCuda(const NormalizationProblem& problem);

}  // namespace mps::detail
