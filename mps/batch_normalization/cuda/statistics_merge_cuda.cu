#include <cstdint>

#include "mps/batch_normalization/statistics_merge.hpp"
#include "mtl/cuda/launch.cuh"

namespace mps::detail {
namespace {

constexpr unsigned kMergeThreads = 128;

__global__ void packStatistics(const double* statistics, std::int64_t length, double count, double* row) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kMergeThreads + threadIdx.x;
  if (i < length) row[i] = statistics[i];
  if (i == length) row[i] = count;
}

__global__ void mergeStatistics(const double* rows, std::int64_t channels, std::int64_t ranks,
                                std::int64_t stride, double* result) {
  const std::int64_t c = std::int64_t{blockIdx.x} * kMergeThreads + threadIdx.x;
  if (c >= channels) return;
  MergedStatistics merged;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const double* row = rows + rank * stride;
    merged.add(row[2 * channels], row[c], row[channels + c]);
  }
  result[c] = merged.mean;
  result[channels + c] = merged.squares;
}

class StatisticsMergePlan final : public Plan {
 public:
  explicit StatisticsMergePlan(const StatisticsMergeProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const auto* source = reinterpret_cast<const double*>(operands.source);
    auto* destination = reinterpret_cast<double*>(operands.destination);
    if (problem_.merges)
      mtl::cuda::launch(stream, mergeStatistics, gridOver(problem_.channels), dim3(kMergeThreads), 0, source,
                        problem_.channels, problem_.ranks, problem_.stride, destination);
    else
      mtl::cuda::launch(stream, packStatistics, gridOver(problem_.rowLength()), dim3(kMergeThreads), 0,
                        source, 2 * problem_.channels, operands.scalars[0], destination);
  }

 private:
  static dim3 gridOver(std::int64_t count) {
    return {static_cast<unsigned>((count + kMergeThreads - 1) / kMergeThreads)};
  }

  StatisticsMergeProblem problem_;
};

Preparation prepareMerge(const StatisticsMergeProblem& problem) {
  return std::make_shared<const StatisticsMergePlan>(problem);
}

constexpr Implementation<StatisticsMergeProblem> kMergeImplementations[] = {
    {"thread per channel", prepareMerge}};

}  // namespace

std::span<const Implementation<StatisticsMergeProblem>> statisticsMergeImplementationsCuda() {
  return kMergeImplementations;
}

}  // namespace mps::detail
