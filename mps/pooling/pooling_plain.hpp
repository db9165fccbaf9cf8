#pragma once

#include "mps/pooling/pooling_problem.hpp"

namespace mps::detail {

/// Pooling one element at a time, straight over the taps and windows: slow, accepts every problem. Gradients keep a number
/// for each window in working memory: the tap of its maximum, unless the forward pass has saved that, or its norm.
Preparation preparePlainPooling(const PoolingProblem& problem);

}  // namespace mps::detail
