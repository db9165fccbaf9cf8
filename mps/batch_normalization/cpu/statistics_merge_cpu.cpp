#include <algorithm>
#include <array>

#include "mps/batch_normalization/statistics_merge.hpp"

namespace mps::detail {
namespace {

class StatisticsMergePlan final : public Plan {
 public:
  explicit StatisticsMergePlan(const StatisticsMergeProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& /*stream*/, const Operands& operands) const override {
    const auto* source = reinterpret_cast<const double*>(operands.source);
    auto* destination = reinterpret_cast<double*>(operands.destination);
    if (problem_.merges)
      merge(source, destination);
    else
      *std::copy_n(source, 2 * problem_.channels, destination) = operands.scalars[0];
  }

 private:
  void merge(const double* rows, double* result) const {
    for (std::int64_t c = 0; c < problem_.channels; ++c) {
      MergedStatistics merged;
      for (std::int64_t rank = 0; rank < problem_.ranks; ++rank) {
        const double* row = rows + rank * problem_.stride;
        merged.add(row[2 * problem_.channels], row[c], row[problem_.channels + c]);
      }
      result[c] = merged.mean;
      result[problem_.channels + c] = merged.squares;
    }
  }

  StatisticsMergeProblem problem_;
};

Preparation prepareMerge(const StatisticsMergeProblem& problem) {
  return std::make_shared<const StatisticsMergePlan>(problem);
}

}  // namespace

std::span<const Implementation<StatisticsMergeProblem>> statisticsMergeImplementationsCpu() {
  static constexpr std::array<Implementation<StatisticsMergeProblem>, 1> implementations{
      {{"loop over channels", prepareMerge}}};
  return implementations;
}

}  // namespace mps::detail
