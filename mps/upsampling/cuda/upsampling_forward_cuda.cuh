#pragma once

#include <cuda_pipeline.h>

#include <algorithm>
#include <cstdint>

#include "mps/upsampling/cuda/upsampling_cuda.cuh"

/// Results made of pixels, some channels of one at once: a thread goes down some rows.
namespace mps::detail::cuda {

/// What the columns and rows of an image of results are made of, and of which image of the input.
struct ImageAxes {
  const Samples* columns;
  const Samples* rows;
  std::int32_t source;
};

/// Axes as tables have them: the same for each image.
struct TableAxes {
  const Samples* columns;
  const Samples* rows;

  [[nodiscard]] __device__ ImageAxes of(std::int32_t image) const { return {columns, rows, image}; }
};

/// What results of one pixel are the sum of in each row of the input: elements one by one, a row ahead in registers.
template <class Access>
class PixelColumns {
 public:
  using Values = typename Access::Values;
  static constexpr std::size_t sharedBytes = 0;

  /// @param from the channels in column 0 of row 0 @param end of the rows that are wanted
  __device__ PixelColumns(const UpsamplingArguments& a, const ElementPlace& from, const Samples& samples,
                          std::int32_t end)
      : input_(a.input), from_(from), samples_(samples), end_(end) {}
  __device__ void addTo(Values& sum, std::int32_t row) {
    const Held held = aheadRow_ == row ? ahead_ : fetch(row);
    aheadRow_ = -1;
    if (row + 1 < end_) {
      aheadRow_ = row + 1;
      ahead_ = fetch(aheadRow_);
    }
    if (samples_.firstWeight != 0) addWeighted(sum, samples_.firstWeight, Access::valuesOf(held.first));
    if (samples_.secondWeight != 0) addWeighted(sum, samples_.secondWeight, Access::valuesOf(held.second));
  }

 private:
  struct Held {
    typename Access::Fetched first;
    typename Access::Fetched second;
  };
  [[nodiscard]] __device__ Held fetch(std::int32_t row) const {
    Held held;
    if (samples_.firstWeight != 0)
      held.first = Access::fetch(input_, {from_.image, row, samples_.first, from_.channel});
    if (samples_.secondWeight != 0)
      held.second = Access::fetch(input_, {from_.image, row, samples_.second, from_.channel});
    return held;
  }

  const SourceView& input_;
  ElementPlace from_;
  Samples samples_;
  std::int32_t end_;
  Held ahead_;                  // of the row that is likely to be the next one
  std::int32_t aheadRow_ = -1;  // none
};

/// The same of 16 bytes, on their way to places of each thread's own in shared memory.
template <class T>
class PixelColumns<InVectors<T>> {
 public:
  using Values = Lanes<T>;
  static constexpr int depth = 4;
  static constexpr std::size_t sharedBytes = std::size_t{2} * depth * kUpsamplingThreads * sizeof(uint4);

  __device__ PixelColumns(const UpsamplingArguments& a, const ElementPlace& from, const Samples& samples,
                          std::int32_t end)
      : samples_(samples), rowBytes_(a.input.row * sizeof(T)), end_(end), isDeep_(a.rowsFollow) {
    const auto column = [&](std::int32_t x) {
      return a.input.memory + a.input.offset({from.image, 0, x, from.channel}) * sizeof(T);
    };
    first_ = column(samples.first);
    second_ = column(samples.second);
    extern __shared__ uint4 memory[];
    slots_ = memory + threadIdx.x;
    // What counts nothing is not looked at: a 0 is.
    for (int slot = 0; slot < depth; ++slot) {
      if (samples.firstWeight == 0) slots_[2 * slot * kUpsamplingThreads] = {};
      if (samples.secondWeight == 0) slots_[(2 * slot + 1) * kUpsamplingThreads] = {};
    }
  }
  __device__ void addTo(Values& sum, std::int32_t row) {
    if (row != next_) {
      __pipeline_wait_prior(0);
      if (row < next_ || row >= requested_) {
        requested_ = row;
        offset_ = row * rowBytes_;
      }
    }
    next_ = row + 1;
    if (isDeep_) {
#pragma unroll 1
      while (requested_ < row + depth) request();
      __pipeline_wait_prior(depth - 1);
    } else {
#pragma unroll 1
      while (requested_ < row + 2) request();
      __pipeline_wait_prior(1);
    }
    const uint4* const slot = slotOf(row);
    const Values first = lanesOf(slot[0], static_cast<const T*>(nullptr));
    const Values second = lanesOf(slot[kUpsamplingThreads], static_cast<const T*>(nullptr));
    addWeighted(sum, samples_.firstWeight, first);
    addWeighted(sum, samples_.secondWeight, second);
  }

 private:
  [[nodiscard]] __device__ uint4* slotOf(std::int32_t row) const {
    return slots_ + 2 * (static_cast<unsigned>(row) % depth) * kUpsamplingThreads;
  }
  /// The next row.
  __device__ void request() {
    if (requested_ < end_) {
      uint4* const slot = slotOf(requested_);
      if (samples_.firstWeight != 0) copyCached(slot, first_ + offset_);
      if (samples_.secondWeight != 0) copyCached(slot + kUpsamplingThreads, second_ + offset_);
    }
    __pipeline_commit();
    ++requested_;
    offset_ += rowBytes_;
  }

  Samples samples_;
  std::int64_t rowBytes_;
  std::int32_t end_;
  bool isDeep_;
  const std::byte* first_;
  const std::byte* second_;
  uint4* slots_;
  std::int64_t offset_ = 0;
  std::int32_t requested_ = 0;
  std::int32_t next_ = -1;
};

/// The results of one column, row after row.
template <class Access>
class ResultColumn {
 public:
  /// @param first of the results
  __device__ ResultColumn(const ResultView& view, const ElementPlace& first) : view_(view), place_(first) {}
  __device__ void store(const typename Access::Values& values) {
    Access::store(values, view_, place_, false);
    ++place_.y;
  }

 private:
  const ResultView& view_;
  ElementPlace place_;
};
template <class T>
class ResultColumn<InVectors<T>> {
 public:
  __device__ ResultColumn(const ResultView& view, const ElementPlace& first)
      : next_(reinterpret_cast<T*>(view.memory) + view.offset(first)), row_(view.row) {}
  __device__ void store(const Lanes<T>& values) {
    storeLanes(values, next_);
    next_ += row_;
  }

 private:
  T* next_;
  std::int64_t row_;
};

template <class Access, class Axes>
__global__ void __launch_bounds__(kUpsamplingThreads, Access::lanes > 1 ? 8 : 1)
    upsample(UpsamplingArguments a, const __grid_constant__ Axes axes) {
  using Values = typename Access::Values;
  const ColumnWork work(a, Access::lanes);
  if (!work.isAny) return;
  const ImageAxes own = axes.of(work.image);
  const ElementPlace place{work.image, work.begin, work.x, work.channel};
  ResultColumn<Access> results(a.destination, place);
  // Of the rows of a crop the last one may be the first one.
  const std::int32_t lastRow = max(own.rows[work.begin].second, own.rows[work.end - 1].second);
  PixelColumns<Access> columns(a, {own.source, 0, 0, place.channel}, own.columns[work.x], lastRow + 1);
  Values above{};
  Values below{};  // the latest row
  std::int32_t aboveRow = -1;
  std::int32_t belowRow = -1;
  Samples next = own.rows[work.begin];
  for (std::int32_t y = work.begin; y < work.end; ++y) {
    const Samples rows = next;
    next = own.rows[min(y + 1, work.end - 1)];
#pragma unroll 1
    while (true) {
      if (rows.firstWeight != 0 && aboveRow != rows.first && belowRow == rows.first) {
        above = below;
        aboveRow = belowRow;
      }
      const bool takesFirst = rows.firstWeight != 0 && aboveRow != rows.first;
      if (!takesFirst && (rows.secondWeight == 0 || belowRow == rows.second)) break;
      belowRow = takesFirst ? rows.first : rows.second;
      below = {};
      columns.addTo(below, belowRow);
    }
    // What counts nothing may be infinite.
    Values sum{};
    if (rows.firstWeight != 0 && rows.secondWeight != 0) {
      addWeighted(sum, rows.firstWeight, above);
      addWeighted(sum, rows.secondWeight, below);
    } else if (rows.firstWeight != 0) {
      addWeighted(sum, rows.firstWeight, above);
    } else if (rows.secondWeight != 0) {
      addWeighted(sum, rows.secondWeight, below);
    }
    results.store(sum);
  }
}

/// Starts upsample() for a destination that is not empty.
template <class Access, class Axes>
void launchUpsample(mtl::Stream& stream, UpsamplingArguments a, const TensorShape& destination,
                    const Axes& axes) {
  a.setGrid(destination, Access::lanes);
  mtl::cuda::launch(stream, upsample<Access, Axes>, dim3(mtl::cuda::blocksFor(a.items, kUpsamplingThreads)),
                    dim3(kUpsamplingThreads), PixelColumns<Access>::sharedBytes, a, axes);
}

}  // namespace mps::detail::cuda
