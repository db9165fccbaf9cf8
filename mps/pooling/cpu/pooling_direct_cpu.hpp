#pragma once

#include "mps/pooling/pooling_problem.hpp"

namespace mps::detail {

/// The CPU's last entry.
Preparation prepareDirectPooling(const PoolingProblem& problem);

}  // namespace mps::detail
