#pragma once

#include "mps/upsampling/upsampling_problem.hpp"

/// The implementations for NVIDIA GPUs.
namespace mps::detail {

/// Whether one launch brings the tables of both axes.
bool upsamplingTablesFitLaunch(const UpsamplingProblem& problem);

/// Bilinear gradients of many channels: input rows and columns come to shared memory. Earns decoders that
/// enlarge by 2.
Preparation prepareUpsamplingTilesCuda(const UpsamplingProblem& problem);
/// A thread for some channels of a column of the destination, that goes down and keeps the sums along input
/// rows. Earns Lanczos: without it each result sums all taps of both axes.
Preparation prepareSlidingLanczosCuda(const UpsamplingProblem& problem);
/// Lanczos of everything.
Preparation prepareLanczosElementsCuda(const UpsamplingProblem& problem);

}  // namespace mps::detail
