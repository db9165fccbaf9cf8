#pragma once

#include "mps/upsampling/upsampling_problem.hpp"

namespace mps::detail {

/// Upsampling one element at a time: slow, accepts every problem.
Preparation preparePlainUpsampling(const UpsamplingProblem& problem);

}  // namespace mps::detail
