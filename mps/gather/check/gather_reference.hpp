#pragma once

#include <cstdint>
#include <span>

#include "mps/core/plan/reference_tensor.hpp"
#include "mps/gather/gather_problem.hpp"

namespace mps::detail {

/// result(n, i, c) = source(n, indices[i], c), 0 where there is no such row.
ReferenceTensor gatherForwardReference(const GatherProblem& problem, std::span<const std::int64_t> indices,
                                       const ReferenceTensor& source);
/// The gradient for the source: each row of the incoming one is added where it came from.
ReferenceTensor gatherGradientReference(const GatherProblem& problem, std::span<const std::int64_t> indices,
                                        const ReferenceTensor& gradient);

}  // namespace mps::detail
