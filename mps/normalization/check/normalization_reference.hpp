#pragma once

#include "mps/core/plan/reference_tensor.hpp"
#include "mps/normalization/normalization_problem.hpp"

/// The normalisations over neighbours in float64, straight from their formulas. Of the problem the
/// formats count only for the error bounds, the strides not at all.
namespace mps::detail {

/// The forward destination (the clip rectangle).
ReferenceTensor normalizationForwardReference(const NormalizationProblem& problem,
                                              const ReferenceTensor& source);

/// The gradient of the source, as far as problem.destination shows it.
ReferenceTensor normalizationGradientReference(const NormalizationProblem& problem,
                                               const ReferenceTensor& source,
                                               const ReferenceTensor& gradient);

}  // namespace mps::detail
