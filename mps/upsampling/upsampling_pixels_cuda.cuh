#pragma once

#include <cstdint>

#include "mps/upsampling/upsampling_cuda.cuh"

/// Results made of pixels, some channels of one at once: a thread goes down some rows.
namespace mps::detail::cuda {

/// The columns that results of one pixel are made of.
template <class Access>
struct PixelColumns {
  using Values = typename Access::Values;
  ElementPlace place;
  Samples samples;

  template <class Axes>
  __device__ PixelColumns(const UpsamplingArguments& a, const Axes& axes, const Work& work) {
    const std::uint32_t x = a.packs.divide(work.piece);
    const std::uint32_t pack = work.piece - x * a.packs.divisor();
    place = {work.image, 0, static_cast<std::int32_t>(x), static_cast<std::int32_t>(pack * Access::lanes)};
    samples = axes.column(work.image, place.x);
  }
  /// What they have in a row of the input.
  struct Held {
    typename Access::Fetched first;
    typename Access::Fetched second;
  };
  __device__ Held fetch(const SourceView& input, std::int32_t row) const {
    Held held;
    if (samples.firstWeight != 0)
      held.first = Access::fetch(input, {place.image, row, samples.first, place.channel});
    if (samples.secondWeight != 0)
      held.second = Access::fetch(input, {place.image, row, samples.second, place.channel});
    return held;
  }
  [[nodiscard]] __device__ Values sum(const Held& held) const {
    Values result{};
    if (samples.firstWeight != 0) addWeighted(result, samples.firstWeight, Access::valuesOf(held.first));
    if (samples.secondWeight != 0) addWeighted(result, samples.secondWeight, Access::valuesOf(held.second));
    return result;
  }
  __device__ void store(const Values& values, const ResultView& destination, std::int32_t row) const {
    Access::store(values, destination, {place.image, row, place.x, place.channel});
  }
};

/// Axes as tables have them.
struct TableAxes {
  const Samples* columns;
  const Samples* rows;

  [[nodiscard]] __device__ Samples column(std::int32_t /*image*/, std::int32_t x) const { return columns[x]; }
  [[nodiscard]] __device__ Samples row(std::int32_t /*image*/, std::int32_t y) const { return rows[y]; }
};

template <class Access, class Axes>
__global__ void __launch_bounds__(kStripThreads)
    upsample(UpsamplingArguments a, const __grid_constant__ Axes axes) {
  using Columns = PixelColumns<Access>;
  using Values = typename Columns::Values;
  const Work work(a);
  if (!work.isAny) return;
  const Columns columns(a, axes, work);
  const std::int32_t lastRow = axes.row(work.image, work.end - 1).second;
  typename Columns::Held ahead;  // of the row that is likely to be the next one
  std::int32_t aheadRow = -1;    // none
  const auto sumOf = [&](std::int32_t row) {
    const typename Columns::Held held = aheadRow == row ? ahead : columns.fetch(a.input, row);
    aheadRow = -1;
    if (row < lastRow) {
      aheadRow = row + 1;
      ahead = columns.fetch(a.input, aheadRow);
    }
    return columns.sum(held);
  };
  Values firstSum{};
  Values secondSum{};
  std::int32_t firstRow = -1;
  std::int32_t secondRow = -1;
  for (std::int32_t y = work.begin; y < work.end; ++y) {
    const Samples rows = axes.row(work.image, y);
    Values sum{};
    if (rows.firstWeight != 0) {
      if (firstRow != rows.first) firstSum = secondRow == rows.first ? secondSum : sumOf(rows.first);
      firstRow = rows.first;
      addWeighted(sum, rows.firstWeight, firstSum);
    }
    if (rows.secondWeight != 0) {
      if (secondRow != rows.second) secondSum = sumOf(rows.second);
      secondRow = rows.second;
      addWeighted(sum, rows.secondWeight, secondSum);
    }
    columns.store(sum, a.destination, y);
  }
}

}  // namespace mps::detail::cuda
