#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mps/batch_normalization/statistics_merge.hpp"
#include "mps/conform/conform.hpp"
#include "mps/conform/guarded/guarded_memory.hpp"

namespace mps::detail {
namespace {

using MergeImplementation = Implementation<StatisticsMergeProblem>;

struct MergeCase {
  std::string name;
  std::int64_t channels;
  std::vector<std::size_t> counts;  ///< elements of each channel that a rank has
  std::int64_t gap = 0;             ///< numbers between the rows of two ranks
};

std::vector<MergeCase> mergeCases() {
  return {{"OneChannel", 1, {3, 2}},
          {"OneRank", 5, {4}},
          {"ThreeRanks", 3, {5, 1, 2}},
          {"ARankWithoutElements", 7, {4, 0, 3}},
          {"TheFirstWithoutElements", 4, {0, 0, 6, 1}},
          {"RowsWithGaps", 16, {2, 3}, 5},
          {"MoreThanABlock", 130, {2, 1, 4}, 1},
          {"ManyChannels", 300, {7, 2}}};
}

/// Numbers on a device.
class Doubles {
 public:
  Doubles(ConformRun& run, std::size_t count)
      : count_(count), memory_(run.device(), count * sizeof(double)) {}

  [[nodiscard]] std::byte* at(std::size_t index) const { return memory_.address() + index * sizeof(double); }
  void write(std::span<const double> values) {
    std::memcpy(memory_.bytes().data(), values.data(), values.size_bytes());
    memory_.didModify();
  }
  [[nodiscard]] std::vector<double> read() {
    memory_.synchronize();
    std::vector<double> values(count_);
    std::memcpy(values.data(), memory_.bytes().data(), count_ * sizeof(double));
    return values;
  }
  /// Call read() first.
  [[nodiscard]] bool guardsIntact() const { return memory_.guardsIntact(); }

 private:
  std::size_t count_;
  GuardedMemory memory_;
};

/// Means, then sums of squared differences from them. @param elements of each channel
std::vector<double> statisticsOf(std::span<const std::vector<double>> elements) {
  std::vector<double> statistics(2 * elements.size());
  for (std::size_t c = 0; c < elements.size(); ++c) {
    if (elements[c].empty()) continue;
    double sum = 0;
    for (const double value : elements[c]) sum += value;
    const double mean = sum / static_cast<double>(elements[c].size());
    statistics[c] = mean;
    for (const double value : elements[c]) statistics[elements.size() + c] += (value - mean) * (value - mean);
  }
  return statistics;
}

/// Each rank's statistics become a row among the others', and the rows those of all.
void runCase(ConformRun& run, const MergeImplementation& implementation, const MergeCase& item) {
  StatisticsMergeProblem write;
  write.channels = item.channels;
  StatisticsMergeProblem merge = write;
  merge.merges = true;
  merge.ranks = static_cast<std::int64_t>(item.counts.size());
  merge.stride = write.rowLength() + item.gap;
  const auto writing = run.prepare(implementation, write);
  const auto merging = run.prepare(implementation, merge);
  if (!writing || !merging) return;

  const auto channels = static_cast<std::size_t>(item.channels);
  const auto stride = static_cast<std::size_t>(merge.stride);
  constexpr double untouched = -7;
  std::vector<double> expectedRows(item.counts.size() * stride, untouched);
  Doubles rows(run, expectedRows.size());
  rows.write(expectedRows);
  std::vector<std::vector<double>> all(channels);
  for (std::size_t rank = 0; rank < item.counts.size(); ++rank) {
    std::vector<std::vector<double>> own(channels);
    for (std::size_t c = 0; c < channels; ++c) {
      own[c] = run.values(item.counts[rank], RandomKind::Uniform);
      all[c].insert(all[c].end(), own[c].begin(), own[c].end());
    }
    const std::vector<double> statistics = statisticsOf(own);
    double* const row = expectedRows.data() + rank * stride;
    std::ranges::copy(statistics, row);
    row[2 * channels] = static_cast<double>(item.counts[rank]);
    Doubles source(run, 2 * channels);
    source.write(statistics);
    Operands operands{.source = source.at(0), .destination = rows.at(rank * stride)};
    operands.scalars[0] = row[2 * channels];
    run.execute(*writing, operands);
    run.require(source.read() == statistics && source.guardsIntact(),
                "the statistics of a rank were written");
  }
  run.require(rows.read() == expectedRows && rows.guardsIntact(),
              "rows are not the statistics with their counts");

  Doubles result(run, 2 * channels);
  run.execute(*merging, {.source = rows.at(0), .destination = result.at(0)});
  const std::vector<double> found = result.read();
  run.require(result.guardsIntact(), "memory around the statistics was written");
  run.require(rows.read() == expectedRows, "the rows were written");
  ReferenceTensor expected(1, 1, 1, static_cast<std::int64_t>(found.size()));
  expected.values = statisticsOf(all);
  run.check(expected, found, ImageFeatureChannelFormat::Float32, Zeros::Expected);
  constexpr double rounding = 1e-13;
  run.require(
      std::ranges::equal(found, expected.values,
                         [](double a, double b) { return std::abs(a - b) <= rounding * (1 + std::abs(b)); }),
      "the statistics are not those of all elements to the rounding of float64");
}

}  // namespace

void conformStatisticsMerge(Conform& conform) {
  const std::vector<MergeCase> cases = mergeCases();
  for (const MergeImplementation& implementation : conform.implementations(statisticsMergeBackEnds))
    conform.row({"CNNBatchNormalizationStatistics", Direction::Forward, ImageFeatureChannelFormat::Float32,
                 std::string(implementation.name), Tier::Bounded},
                cases, [&](const MergeCase& item, ConformRun& run) { runCase(run, implementation, item); });
}

}  // namespace mps::detail
