#include "mps/batch_normalization/check/batch_normalization_reference.hpp"
#include "mps/conform/reference_call.hpp"

namespace mps::detail {
namespace {

/// What the calls of one step leave for each other and for the gradient's step.
struct Saved {
  BatchStatistics statistics;  ///< empty: constants
  BatchNormalizationSums sums;
};

std::vector<double> copyOf(std::span<const double> values) {
  return {values.begin(), values.end()};
}

/// @param saved of the forward step
BatchNormalizationNumbers numbersOf(const ReferenceCall& call, const Saved* saved, std::int64_t channels) {
  BatchNormalizationNumbers numbers;
  numbers.areStored = false;
  numbers.gamma = copyOf(call.parameter(0, channels));
  numbers.beta = copyOf(call.parameter(1, channels));
  const bool isOfBatch = saved != nullptr && !saved->statistics.mean.values.empty();
  numbers.mean = isOfBatch ? saved->statistics.mean.values : copyOf(call.parameter(2, channels));
  numbers.variance = isOfBatch ? saved->statistics.variance.values : copyOf(call.parameter(3, channels));
  return numbers;
}

}  // namespace

bool computeBatchNormalization(ReferenceCall& call) {
  const auto* problem = call.problem<BatchNormalizationProblem>();
  if (problem == nullptr) return false;
  const auto* own = std::any_cast<Saved>(&call.saved());
  const auto* forward = std::any_cast<Saved>(&call.forwardSaved());
  switch (problem->operation) {
    case BatchNormalizationOperation::Statistics: {
      const ReferenceTensor sources[] = {call.source(problem->source)};
      call.setSaved(Saved{batchStatisticsReference(sources), {}});
      break;
    }
    case BatchNormalizationOperation::Forward: {
      const auto numbers = numbersOf(call, own, problem->source.channels);
      call.setDestination(batchNormalizationReference(*problem, numbers, call.source(problem->source)));
      break;
    }
    case BatchNormalizationOperation::StatisticsGradient: {
      const ReferenceTensor sources[] = {call.source(problem->source)};
      const ReferenceTensor gradients[] = {call.gradient(problem->gradient)};
      const auto numbers = numbersOf(call, forward, problem->source.channels);
      const auto sums = batchNormalizationSumsReference(*problem, numbers, sources, gradients);
      call.setParameterGradient(5, 0, "gamma", sums.gamma);
      call.setParameterGradient(6, 1, "beta", sums.beta);
      call.setSaved(Saved{{}, sums});
      break;
    }
    case BatchNormalizationOperation::Gradient: {
      const auto numbers = numbersOf(call, forward, problem->gradient.channels);
      const ReferenceTensor source =
          problem->readsSource() ? call.source(problem->source) : ReferenceTensor();
      call.setDestination(batchNormalizationGradientReference(
          *problem, numbers, own != nullptr ? own->sums : BatchNormalizationSums(), call.scalar(0), source,
          call.gradient(problem->gradient)));
      break;
    }
  }
  return true;
}

}  // namespace mps::detail
