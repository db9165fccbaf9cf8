#pragma once

#include "mps/pooling/pooling_problem.hpp"

namespace mps::detail {

/// Pooling one element at a time, straight over the taps and windows: slow, needs no working memory, accepts
/// every problem.
Preparation preparePlainPooling(const PoolingProblem& problem);

}  // namespace mps::detail
