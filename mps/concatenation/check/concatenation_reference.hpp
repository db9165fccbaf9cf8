#pragma once

#include <cstdint>
#include <span>

#include "mps/concatenation/concatenation_problem.hpp"
#include "mps/core/plan/reference_tensor.hpp"

/// Concatenation in float64. Of the problem the formats count only for the error
/// bounds, the strides not at all.
namespace mps::detail {

/// One part of the concatenated image, or two of them, or the gradient of one source (of two: call it for each
/// ofSource()).
/// @param second null where there is none
ReferenceTensor concatenationReference(const ConcatenationProblem& problem, const ReferenceTensor& input,
                                       const ReferenceTensor* second = nullptr);

/// The concatenated image: source i begins at the sum of the channels before it, each rounded up to a multiple of
/// channelAlignment.
ReferenceTensor concatenatedReference(std::span<const ReferenceTensor> sources,
                                      std::int64_t channelAlignment);

/// The slice of `count` channels from `first` on.
ReferenceTensor sliceReference(const ReferenceTensor& tensor, std::int64_t first, std::int64_t count);

}  // namespace mps::detail
