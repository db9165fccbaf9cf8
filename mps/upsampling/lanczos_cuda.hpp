#pragma once

#include "mps/upsampling/upsampling_problem.hpp"

namespace mps::detail {

/// Of a forward LanczosScale, whose results are made of more than two source pixels on an axis.
Preparation prepareLanczosCuda(const UpsamplingProblem& problem);

}  // namespace mps::detail
