#pragma once

#include <span>
#include <vector>

#include "mps/batch_normalization/batch_normalization_problem.hpp"
#include "mps/core/plan/reference_tensor.hpp"

/// The float64 reference of the batch-normalisation kernels. Of the problem only neuron,
/// epsilon and hasConstantStatistics count. Results of channels are tensors of one pixel.
namespace mps::detail {

/// One value per channel.
struct BatchNormalizationNumbers {
  std::vector<double> gamma, beta, mean, variance;
  /// They are the very float32 numbers that a kernel reads; z is then rounded as every kernel rounds it, so
  /// that both take the same side of a neuron's kink. Else z is float64, and bounds
  /// count the rounding of mean and variance.
  bool areStored = true;
};

struct BatchStatistics {
  ReferenceTensor mean, variance;
};
/// Of all pixels of all tensors together.
BatchStatistics batchStatisticsReference(std::span<const ReferenceTensor> sources);

/// y. @param addend of the problem's that has one, with stored numbers
ReferenceTensor batchNormalizationReference(const BatchNormalizationProblem& problem,
                                            const BatchNormalizationNumbers& numbers,
                                            const ReferenceTensor& source,
                                            const ReferenceTensor& addend = {});

/// Sums over all pixels of the tensors (source i belongs to gradient i) and what follows from them.
struct BatchNormalizationSums {
  ReferenceTensor beta;   ///< B, dL/dbeta
  ReferenceTensor gamma;  ///< G, dL/dgamma
  ReferenceTensor mean;   ///< dL/dmean
  ReferenceTensor variance;
};
BatchNormalizationSums batchNormalizationSumsReference(const BatchNormalizationProblem& problem,
                                                       const BatchNormalizationNumbers& numbers,
                                                       std::span<const ReferenceTensor> sources,
                                                       std::span<const ReferenceTensor> gradients);

/// dx. @param sums B and G of the whole batch @param count m
ReferenceTensor batchNormalizationGradientReference(const BatchNormalizationProblem& problem,
                                                    const BatchNormalizationNumbers& numbers,
                                                    const BatchNormalizationSums& sums, double count,
                                                    const ReferenceTensor& source,
                                                    const ReferenceTensor& gradient);

}  // namespace mps::detail
