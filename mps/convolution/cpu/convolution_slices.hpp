#pragma once

#include "mps/convolution/convolution_problem.hpp"

namespace mps::detail {

/// A plan from `prepare` for the whole batch, or, where tensors must be converted, for a few images at a
/// time: their float32 copies then stay in the caches and scratch memory stays small. Weight gradients, which
/// sum over the batch, are never divided.
Preparation prepareInSlices(const ConvolutionProblem& problem,
                            Preparation (*prepare)(const ConvolutionProblem&));

}  // namespace mps::detail
