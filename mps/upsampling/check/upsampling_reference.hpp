#pragma once

#include "mps/core/plan/reference_tensor.hpp"
#include "mps/upsampling/upsampling_problem.hpp"

/// Upsampling in float64, straight from the definitions. Of the problem the formats count only for the error
/// bounds, the strides not at all.
namespace mps::detail {

/// The forward destination (the clip rectangle) of a source of x.sourceSize by y.sourceSize pixels.
ReferenceTensor upsamplingForwardReference(const UpsamplingProblem& problem, const ReferenceTensor& source);

/// The gradient of the source, as far as problem.destination shows it.
ReferenceTensor upsamplingGradientReference(const UpsamplingProblem& problem,
                                            const ReferenceTensor& gradient);
/// Whichever the problem is.
ReferenceTensor upsamplingReference(const UpsamplingProblem& problem, const ReferenceTensor& input);

}  // namespace mps::detail
