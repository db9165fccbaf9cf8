#pragma once

#include "mps/upsampling/upsampling_problem.hpp"

/// The implementations for NVIDIA GPUs.
namespace mps::detail {

/// What plans say of themselves whose kernels need addresses at multiples of 16 bytes, which only a run knows.
inline constexpr const char* kOrUnaligned = "or a thread per element at unaligned addresses";

/// Whether one launch brings the tables of both axes.
bool upsamplingTablesFitLaunch(const UpsamplingProblem& problem);

/// Bilinear gradients of many channels: input rows and columns come to shared memory.
Preparation prepareUpsamplingTilesCuda(const UpsamplingProblem& problem);
/// A thread for some channels of a column of the destination, that goes down and keeps the sums along input rows.
Preparation prepareSlidingLanczosCuda(const UpsamplingProblem& problem);
Preparation prepareLanczosElementsCuda(const UpsamplingProblem& problem);
/// Everything.
Preparation prepareUpsamplingElementsCuda(const UpsamplingProblem& problem);

}  // namespace mps::detail
