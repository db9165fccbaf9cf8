#pragma once

#include <cstdint>
#include <vector>

#include "mps/core/plan/reference_tensor.hpp"
#include "mps/pooling/pooling_problem.hpp"

/// Pooling in float64. Of the problem the formats count
/// only for the error bounds, the strides not at all.
namespace mps::detail {

/// The forward destination (the clip rectangle) of a source of problem.source's size.
ReferenceTensor poolingForwardReference(const PoolingProblem& problem, const ReferenceTensor& source);

/// What forward max pooling saves: for each window and channel, in the order image, y, x, channel, the chosen
/// tap p + kernelWidth * q, or problem.noIndex().
std::vector<std::uint32_t> poolingIndicesReference(const PoolingProblem& problem,
                                                   const ReferenceTensor& source);

/// The gradient of the source, as far as problem.destination shows it. Average pooling looks at the size of
/// `source` alone.
ReferenceTensor poolingGradientReference(const PoolingProblem& problem, const ReferenceTensor& source,
                                         const ReferenceTensor& gradient);

}  // namespace mps::detail
