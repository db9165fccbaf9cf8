#pragma once

#include "mps/normalization/normalization_problem.hpp"

namespace mps::detail {

/// One element after the other, for any problem.
Preparation preparePlainNormalization(const NormalizationProblem& problem);

}  // namespace mps::detail
