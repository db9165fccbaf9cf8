#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "mps/core/plan/plan.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/tensor_shape.hpp"

namespace mps::detail {

/// Statistics of the parts of one batch that several ranks have. All are float64: C means, then C sums M2 of squared
/// differences from them; with its number of elements behind them a part is a row of 2 C + 1.
///
/// | | source | destination | scalars[0] |
/// |---|---|---|---|
/// | Write | means and M2 | a row | elements |
/// | Merge | a row of each rank, each `stride` numbers behind the one before it | means and M2 of all | |
///
/// Parts are merged in the order of ranks: n = nA + nB, d = meanB - meanA, mean = meanA + d nB / n,
/// M2 = M2A + M2B + d^2 nA nB / n. Parts without elements do not count.
struct StatisticsMergeProblem {
  bool merges = false;  ///< else writes a row
  std::int64_t channels = 0;
  std::int64_t ranks = 1;
  std::int64_t stride = 0;

  bool operator==(const StatisticsMergeProblem&) const = default;
  [[nodiscard]] std::size_t hash() const { return hashOf(merges, channels, ranks, stride); }
  [[nodiscard]] std::string describe() const {
    return (merges ? "merge of statistics of " + std::to_string(ranks) + " ranks, "
                   : std::string("row of statistics, ")) +
           std::to_string(channels) + " channels";
  }
  [[nodiscard]] std::int64_t rowLength() const { return 2 * channels + 1; }
};

/// Mean and M2 of one channel, part after part.
struct MergedStatistics {
  double count = 0;
  double mean = 0;
  double squares = 0;

  constexpr void add(double addedCount, double addedMean, double addedSquares) {
    if (addedCount == 0) return;
    const double total = count + addedCount;
    const double difference = addedMean - mean;
    mean += difference * (addedCount / total);
    squares += addedSquares + difference * difference * (count * addedCount / total);
    count = total;
  }
};

std::span<const Implementation<StatisticsMergeProblem>> statisticsMergeImplementationsCpu();
std::span<const Implementation<StatisticsMergeProblem>> statisticsMergeImplementationsCuda();
inline constexpr BackEnds<StatisticsMergeProblem> statisticsMergeBackEnds{
    statisticsMergeImplementationsCpu, UNMETAL_CUDA_LIST(statisticsMergeImplementationsCuda)};

}  // namespace mps::detail
