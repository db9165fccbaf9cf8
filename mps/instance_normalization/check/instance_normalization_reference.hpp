#pragma once

#include <vector>

#include "mps/core/plan/reference_tensor.hpp"
#include "mps/instance_normalization/instance_normalization_problem.hpp"

/// The float64 reference of instance and group normalisation. Of the problem only
/// groups, epsilon, sumsImages and computesData count. gamma and beta have one value for each channel.
namespace mps::detail {

/// Means of the groups of each image, then their r: tensors of one pixel with 2 groups "channels".
ReferenceTensor instanceStatisticsReference(const InstanceNormalizationProblem& problem,
                                            const ReferenceTensor& source);

ReferenceTensor instanceNormalizationReference(const InstanceNormalizationProblem& problem,
                                               const std::vector<double>& gamma,
                                               const std::vector<double>& beta,
                                               const ReferenceTensor& source);

struct InstanceNormalizationGradients {
  ReferenceTensor gamma;   ///< one pixel for each image, or one for all
  ReferenceTensor beta;    ///< likewise
  ReferenceTensor source;  ///< dx
};
InstanceNormalizationGradients instanceNormalizationGradientReference(
    const InstanceNormalizationProblem& problem, const std::vector<double>& gamma,
    const ReferenceTensor& source, const ReferenceTensor& gradient);

}  // namespace mps::detail
