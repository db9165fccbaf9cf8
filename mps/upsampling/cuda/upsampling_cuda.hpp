#pragma once

#include "mps/upsampling/upsampling_problem.hpp"

/// The implementations for NVIDIA GPUs.
namespace mps::detail {

/// Whether one launch brings the tables of both axes.
bool upsamplingTablesFitLaunch(const UpsamplingProblem& problem);

/// Bilinear gradients of many channels: input rows and columns come to shared memory.
Preparation prepareUpsamplingTilesCuda(const UpsamplingProblem& problem);
/// A thread for some channels of a column of the destination, that goes down and keeps the sums along input rows.
Preparation prepareSlidingLanczosCuda(const UpsamplingProblem& problem);
/// Lanczos of everything.
Preparation prepareLanczosElementsCuda(const UpsamplingProblem& problem);

}  // namespace mps::detail
