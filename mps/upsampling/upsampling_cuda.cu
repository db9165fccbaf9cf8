#include "mps/upsampling/upsampling_cuda.cuh"

#include <cuda_pipeline.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "mps/core/store_numbers_cuda.cuh"
#include "mps/upsampling/lanczos_cuda.hpp"
#include "mps/upsampling/upsampling_columns_cuda.cuh"
#include "mps/upsampling/upsampling_images_cuda.cuh"
#include "mps/upsampling/upsampling_nearest_cuda.cuh"
#include "mps/upsampling/upsampling_packs_cuda.cuh"
#include "mps/upsampling/upsampling_pixels_cuda.cuh"
#include "mps/upsampling/upsampling_rows_cuda.cuh"
#include "mps/upsampling/upsampling_tiles_cuda.hpp"
#include "mtl/cuda/api.hpp"

namespace mps::detail {
namespace {

using cuda::AxisTables;
using cuda::ColumnArguments;
using cuda::ElementGrid;
using cuda::ElementPlace;
using cuda::kStripThreads;
using cuda::OneOf;
using cuda::PackArguments;
using cuda::Readers;
using cuda::ResultView;
using cuda::RowsArguments;
using cuda::Samples;
using cuda::SourceView;
using cuda::TableArguments;
using cuda::TableAxes;
using cuda::UpsamplingArguments;
using cuda::Work;

/// Some of the results in a row that read a pixel, with what it counts in each.
struct ColumnGroup {
  static constexpr int most = 4;
  float weights[most];

  ColumnGroup() = default;
  __device__ ColumnGroup(const AxisTables& x, std::int32_t begin, std::int32_t end, std::int64_t pixel) {
#pragma unroll
    for (int i = 0; i < most; ++i)
      weights[i] = begin + i < end ? weightOf(x.samples[begin + i], pixel) : 0.0F;
  }
  /// The same at once, where registers are left.
  __device__ static ColumnGroup first(const AxisTables& x, const Readers& columns, std::int64_t pixel) {
    ColumnGroup group;
#pragma unroll
    for (int i = 0; i < most; ++i)
      group.weights[i] = columns.begin + i < columns.end ? weightOf(x.at(columns.begin + i), pixel) : 0.0F;
    return group;
  }
  template <class Access>
  struct Held {
    typename Access::Fetched fetched[most];
  };
  /// The results. @param from of the first one
  template <class Access>
  __device__ Held<Access> fetch(const SourceView& input, ElementPlace from) const {
    Held<Access> held;
#pragma unroll
    for (int i = 0; i < most; ++i) {
      if (weights[i] != 0) held.fetched[i] = Access::fetch(input, from);
      ++from.x;
    }
    return held;
  }
  /// sum += the results times what the pixel counts in them.
  template <class Access>
  __device__ void addTo(typename Access::Values& sum, const Held<Access>& held) const {
#pragma unroll
    for (int i = 0; i < most; ++i)
      if (weights[i] != 0) addWeighted(sum, weights[i], Access::valuesOf(held.fetched[i]));
  }
};

/// Rows of results that are on their way to shared memory, for one group of columns. A thread sees its own ones.
template <class T>
class RowRing {
 public:
  static constexpr int depth = 4;
  static constexpr std::size_t bytes = std::size_t{depth} * ColumnGroup::most * kStripThreads * sizeof(uint4);
  using Held = ColumnGroup::Held<cuda::InPacks<T>>;

  /// @param from the first column of row 0 @param end of the rows that are wanted
  __device__ RowRing(const SourceView& input, const ElementPlace& from, const ColumnGroup& group,
                     std::int32_t end)
      : group_(group),
        from_(reinterpret_cast<const T*>(input.memory) + input.offset(from)),
        row_(input.row),
        pixel_(input.pixel),
        end_(end) {
    extern __shared__ uint4 memory[];
    ring_ = memory + threadIdx.x;
  }
  __device__ Held get(std::int32_t row) {
    if (row != next_) {
      __pipeline_wait_prior(0);
      for (std::int32_t i = 0; i < depth - 1; ++i) request(row + i);
    }
    request(row + depth - 1);
    next_ = row + 1;
    __pipeline_wait_prior(depth - 1);
    Held held;
#pragma unroll
    for (int i = 0; i < ColumnGroup::most; ++i)
      if (group_.weights[i] != 0) held.fetched[i] = *slot(row, i);
    return held;
  }

 private:
  [[nodiscard]] __device__ uint4* slot(std::int32_t row, int column) const {
    return ring_ + (static_cast<unsigned>(row) % depth * ColumnGroup::most + static_cast<unsigned>(column)) *
                       kStripThreads;
  }
  __device__ void request(std::int32_t row) const {
    const T* at = from_ + row * row_;
#pragma unroll
    for (int i = 0; i < ColumnGroup::most; ++i) {
      if (row < end_ && group_.weights[i] != 0) cuda::copyCached(slot(row, i), at);
      at += pixel_;
    }
    __pipeline_commit();
  }

  const ColumnGroup& group_;
  const T* from_;
  std::int64_t row_;
  std::int64_t pixel_;
  std::int32_t end_;
  std::int32_t next_ = -1;
  uint4* ring_;
};

/// The same in registers, one row ahead, where elements come one by one.
template <class Access>
class RowAhead {
 public:
  static constexpr std::size_t bytes = 0;
  using Held = ColumnGroup::Held<Access>;

  __device__ RowAhead(const SourceView& input, const ElementPlace& from, const ColumnGroup& group,
                      std::int32_t end)
      : input_(input), from_(from), group_(group), end_(end) {}
  __device__ Held get(std::int32_t row) {
    const Held held = aheadRow_ == row ? ahead_ : fetch(row);
    aheadRow_ = -1;
    if (row + 1 < end_) {
      aheadRow_ = row + 1;
      ahead_ = fetch(aheadRow_);
    }
    return held;
  }

 private:
  [[nodiscard]] __device__ Held fetch(std::int32_t row) const {
    return group_.template fetch<Access>(input_, {from_.image, row, from_.x, from_.channel});
  }

  const SourceView& input_;
  ElementPlace from_;
  const ColumnGroup& group_;
  std::int32_t end_;
  Held ahead_;                  // of the row that is likely to be the next one
  std::int32_t aheadRow_ = -1;  // none
};

template <class Access>
struct RowsOf {
  using Type = RowAhead<Access>;
};
template <class T>
struct RowsOf<cuda::InPacks<T>> {
  using Type = RowRing<T>;
};

template <class Access>
__global__ void __launch_bounds__(kStripThreads, Access::lanes > 1 ? 5 : 4)
    gatherGradient(UpsamplingArguments a) {
  using Values = typename Access::Values;
  const Work work(a);
  if (!work.isAny) return;
  const std::uint32_t x = a.packs.divide(work.piece);
  ElementPlace place{work.image, 0, static_cast<std::int32_t>(x),
                     static_cast<std::int32_t>((work.piece - x * a.packs.divisor()) * Access::lanes)};
  const Readers columns = a.x.readers[x];
  const std::int64_t pixelX = static_cast<std::int64_t>(x) + a.originX;
  const ColumnGroup firstGroup = ColumnGroup::first(a.x, columns, pixelX);
  const std::int32_t lastEnd = a.y.readers[work.end - 1].end;  // 0: nothing is read by the last row
  typename RowsOf<Access>::Type input(a.input, {place.image, 0, columns.begin, place.channel}, firstGroup,
                                      lastEnd > 0 ? lastEnd : a.y.results);
  Values sum{};
  Values next{};  // of the row below: a result counts in two rows at most
  std::int32_t row = 0;
  for (place.y = work.begin; place.y < work.end; ++place.y) {
    const Readers rows = a.y.readers[place.y];
    const std::int64_t pixelY = place.y + a.originY;
    for (row = max(row, rows.begin); row < rows.end; ++row) {
      const Samples samples = a.y.samples[row];
      const auto held = input.get(row);
      const float weight = weightOf(samples, pixelY);
      const float nextWeight = weightOf(samples, pixelY + 1);
      if (weight == 0 && nextWeight == 0) continue;
      Values inRow{};
      firstGroup.template addTo<Access>(inRow, held);
      for (std::int32_t column = columns.begin + ColumnGroup::most; column < columns.end;
           column += ColumnGroup::most) {
        const ColumnGroup group(a.x, column, columns.end, pixelX);
        group.template addTo<Access>(
            inRow, group.template fetch<Access>(a.input, {place.image, row, column, place.channel}));
      }
      if (weight != 0) addWeighted(sum, weight, inRow);
      if (nextWeight != 0) addWeighted(next, nextWeight, inRow);
    }
    Access::store(sum, a.destination, place, a.accumulate);
    sum = next;
    next = {};
  }
}

class UpsamplingPlan final : public Plan {
 public:
  explicit UpsamplingPlan(const UpsamplingProblem& problem)
      : problem_(problem), mostReaders_(isForward() ? 0 : mostReadersOf(problem.x, problem.input.width)) {
    if (scratchBytes() <= cuda::NumbersPart::most * sizeof(float)) fillTables();
    if (!isForward() && !filled_.empty() && problem.sampling != UpsamplingSampling::Nearest)
      tiles_ = cuda::TilePlan::make(problem.input, problem.destination, tapsOf(false), tapsOf(true));
  }

  /// For the tables of both axes.
  [[nodiscard]] std::size_t scratchBytes() const override {
    std::size_t bytes = 0;
    for (const AxisTables& tables : {tablesOf(true), tablesOf(false)}) bytes += bytesOf(tables);
    return tiles_ ? std::max(bytes, tiles_->scratchBytes()) : bytes;
  }
  [[nodiscard]] bool canAccumulate() const override {
    return !isForward() && problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    if (problem_.destination.elements() == 0) return;
    if (tiles_ && tiles_->run(stream, operands.gradient, operands)) return;
    const TableArguments tables = tablesIn(operands.scratch);
    if (!filled_.empty()) {
      cuda::storeNumbers(stream, filled_, reinterpret_cast<float*>(operands.scratch));
    } else {
      std::int64_t longest = 0;
      for (const AxisTables& axis : tables.tables)
        longest = std::max<std::int64_t>({longest, axis.results, axis.destinations});
      mtl::cuda::launch(stream, cuda::fillTables, dim3(mtl::cuda::blocksFor(longest), 2),
                        dim3(mtl::cuda::kBlockThreads), 0, tables);
    }

    const std::byte* const input = isForward() ? operands.source : operands.gradient;
    UpsamplingArguments a;
    a.input = {problem_.input, input};
    a.destination = {problem_.destination, operands.destination};
    a.x = tables.tables[0];
    a.y = tables.tables[1];
    a.originX = problem_.x.destinationOrigin;
    a.originY = problem_.y.destinationOrigin;
    a.accumulate = operands.accumulate;
    a.rowsFollow = rowsFollow();
    const auto format = cuda::commonFormat({&problem_.input, &problem_.destination});
    if (format == ImageFeatureChannelFormat::Float32)
      runTyped<float>(stream, a);
    else if (format == ImageFeatureChannelFormat::Float16)
      runTyped<Float16>(stream, a);
    else
      runPixels<cuda::OneByOne, cuda::OneByOne>(stream, a);
  }

 private:
  [[nodiscard]] bool isForward() const { return problem_.direction == UpsamplingDirection::Forward; }

  /// Whether a result lies at most two rows below the one above.
  [[nodiscard]] bool rowsFollow() const {
    return problem_.sampling >= UpsamplingSampling::BilinearRegion
               ? problem_.y.step >= 0 && problem_.y.step <= 2
               : problem_.y.sourceSize <= 2 * problem_.y.resultSize;
  }

  /// Input and destination have elements of type T.
  template <class T>
  void runTyped(mtl::Stream& stream, const UpsamplingArguments& a) const {
    if (cuda::takesLanes(problem_.input, a.input.memory) &&
        cuda::takesLanes(problem_.destination, a.destination.memory)) {
      // Columns of float32 pay more for the exchange than they gain.
      if constexpr (std::is_same_v<T, Float16>)
        if (!isForward() && runColumns<T>(stream, a)) return;
      return runPixels<cuda::InPacks<T>, cuda::InPacks<T>>(stream, a);
    }
    if (runImages<T>(stream, a) || runNearest<T>(stream, a) || runPacks<T>(stream, a)) return;
    RowsArguments rows;
    if (goesOnIn<T>(problem_.input, a.input.memory, 2) &&
        goesOnIn<T>(problem_.destination, a.destination.memory, 2) &&
        rows.setGrid(problem_.input, problem_.destination, 2 * sizeof(T))) {
      rows.input = a.input;
      rows.destination = a.destination;
      rows.x = a.x;
      rows.y = a.y;
      rows.originX = static_cast<std::int32_t>(a.originX);
      rows.originY = static_cast<std::int32_t>(a.originY);
      rows.accumulate = a.accumulate;
      return mtl::cuda::launch(stream, isForward() ? cuda::upsampleRows<T> : cuda::gatherRows<T>,
                               dim3(rows.blocks), rows.block, rows.sharedBytes, rows);
    }
    runPixels<cuda::OneByOne, OneOf<T>>(stream, a);
  }
  /// @return whether the results are nearest pixels and go on in rows; otherwise nothing was done
  template <class T>
  bool runNearest(mtl::Stream& stream, UpsamplingArguments a) const {
    constexpr std::int64_t lanes = cuda::kLanes<T>;
    const TensorShape& results = problem_.destination;
    if (!isForward() || problem_.sampling != UpsamplingSampling::Nearest ||
        !goesOnIn<T>(results, a.destination.memory, lanes) ||
        problem_.input.width * problem_.input.pixelStride > 0x7FFFFFFF)
      return false;
    a.setGrid(results, results.width * results.channels / lanes, results.channels);
    mtl::cuda::launch(stream, cuda::repeatPixels<T>, dim3(mtl::cuda::blocksFor(a.items, kStripThreads)),
                      dim3(kStripThreads), 0, a);
    return true;
  }
  /// @return whether images are small enough; otherwise nothing was done
  template <class T>
  bool runImages(mtl::Stream& stream, const UpsamplingArguments& a) const {
    constexpr std::int64_t lanes = cuda::kLanes<T>;
    const TensorShape& results = isForward() ? problem_.destination : problem_.input;
    const TensorShape& pixels = isForward() ? problem_.input : problem_.destination;
    const std::byte* const resultsAt = isForward() ? a.destination.memory : a.input.memory;
    const std::byte* const pixelsAt = isForward() ? a.input.memory : a.destination.memory;
    cuda::ImageArguments images;
    auto* const filled = const_cast<std::byte*>(reinterpret_cast<const std::byte*>(filled_.data()));
    const AxisTables filledColumns = placed(tablesOf(true), filled);
    const AxisTables filledRows = placed(tablesOf(false), filled + bytesOf(tablesOf(true)));
    std::int32_t readers = 0;
    if (!filled_.empty())
      for (const AxisTables& axis : {filledColumns, filledRows})
        for (std::int32_t i = 0; i < axis.destinations; ++i)
          readers = std::max(readers, axis.readers[i].end - axis.readers[i].begin);
    const auto work = !isForward()                                       ? cuda::ImageWork::Gather
                      : problem_.sampling == UpsamplingSampling::Nearest ? cuda::ImageWork::Repeat
                                                                         : cuda::ImageWork::Upsample;
    if (readers > cuda::kMostImageReaders) return false;
    if (filled_.empty() || problem_.sampling >= UpsamplingSampling::BilinearRegion ||
        !goesOnIn<T>(results, resultsAt, lanes) || !goesOnIn<T>(pixels, pixelsAt, lanes / 2) ||
        !images.setGrid(results, pixels, lanes, filledRows, work))
      return false;
    images.input = a.input.memory;
    images.destination = a.destination.memory;
    images.x = a.x;
    images.y = a.y;
    images.originX = static_cast<std::int32_t>(a.originX);
    images.originY = static_cast<std::int32_t>(a.originY);
    images.accumulate = a.accumulate;
    const auto start = [&](auto* kernel, int waves) {
      mtl::cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            static_cast<int>(images.sharedBytes)),
                       "cudaFuncSetAttribute");
      if (waves > 0) images.keepBlocks(reinterpret_cast<const void*>(kernel), waves);
      mtl::cuda::launch(stream, kernel, dim3(images.blocks), dim3(images.threads), images.sharedBytes,
                        images);
    };
    if (work == cuda::ImageWork::Repeat)
      start(cuda::repeatImages<T>, 0);
    else if (work == cuda::ImageWork::Upsample)
      start(cuda::upsampleImages<T>,
            std::is_same_v<T, Float16> ? 8 : 0);  // with float32 tables are half as long
    else if (readers <= 2)
      start(cuda::gatherImages<T, 2>, 1);
    else if (readers == 3)
      start(cuda::gatherImages<T, 3>, 1);
    else if (readers <= kFewReaders)
      start(cuda::gatherImages<T, kFewReaders>, 1);
    else
      start(cuda::gatherImages<T, cuda::kMostImageReaders>, 1);
    return true;
  }
  /// @return whether rows allow that; otherwise nothing was done
  template <class T>
  bool runPacks(mtl::Stream& stream, const UpsamplingArguments& a) const {
    constexpr std::int64_t lanes = cuda::kLanes<T>;
    const TensorShape& results = isForward() ? problem_.destination : problem_.input;
    const TensorShape& pixels = isForward() ? problem_.input : problem_.destination;
    const std::byte* const resultsAt = isForward() ? a.destination.memory : a.input.memory;
    const std::byte* const pixelsAt = isForward() ? a.input.memory : a.destination.memory;
    PackArguments packs;
    if (mostReaders_ > kMostReaders || !goesOnIn<T>(results, resultsAt, lanes) ||
        !goesOnIn<T>(pixels, pixelsAt, lanes / 2) || !packs.setGrid(results, pixels, lanes, isForward()))
      return false;
    packs.input = a.input;
    packs.destination = a.destination;
    packs.x = a.x;
    packs.y = a.y;
    packs.originX = static_cast<std::int32_t>(a.originX);
    packs.originY = static_cast<std::int32_t>(a.originY);
    packs.accumulate = a.accumulate;
    const auto start = [&](auto* kernel) {
      mtl::cuda::launch(stream, kernel, dim3(packs.blocks), dim3(packs.threads), packs.sharedBytes, packs);
    };
    if (isForward())
      start(cuda::upsamplePacks<T>);
    else if (mostReaders_ <= kFewReaders)
      start(cuda::gatherPacks<T, kFewReaders>);
    else
      start(cuda::gatherPacks<T, kMostReaders>);
    return true;
  }
  /// @return whether blocks can have whole rows; otherwise nothing was done
  template <class T>
  bool runColumns(mtl::Stream& stream, const UpsamplingArguments& a) const {
    ColumnArguments columns;
    // Nearest pixels have no readers in common.
    if (problem_.sampling == UpsamplingSampling::Nearest || mostReaders_ > cuda::kColumnReaders ||
        !columns.setGrid(problem_.input, problem_.destination, cuda::kLanes<T>))
      return false;
    columns.input = a.input;
    columns.destination = a.destination;
    columns.x = a.x;
    columns.y = a.y;
    columns.originX = static_cast<std::int32_t>(a.originX);
    columns.originY = static_cast<std::int32_t>(a.originY);
    columns.accumulate = a.accumulate;
    const auto kernel = cuda::gatherColumns<T>;
    mtl::cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(columns.sharedBytes)),
                     "cudaFuncSetAttribute");
    mtl::cuda::launch(stream, kernel, dim3(columns.blocks), columns.block, columns.sharedBytes, columns);
    return true;
  }
  template <class ForwardAccess, class GradientAccess>
  void runPixels(mtl::Stream& stream, const UpsamplingArguments& arguments) const {
    UpsamplingArguments a = arguments;
    if (isForward())
      return cuda::launchUpsample<ForwardAccess>(stream, a, problem_.destination,
                                                 TableAxes{a.x.samples, a.y.samples});
    const std::int64_t packs = problem_.destination.channels / GradientAccess::lanes;
    a.setGrid(problem_.destination, problem_.destination.width * packs, packs);
    mtl::cuda::launch(stream, gatherGradient<GradientAccess>,
                      dim3(mtl::cuda::blocksFor(a.items, kStripThreads)), dim3(kStripThreads),
                      RowsOf<GradientAccess>::Type::bytes, a);
  }
  /// Whether rows have no gaps and so many adjacent elements can be accessed together everywhere in them.
  template <class T>
  static bool goesOnIn(const TensorShape& shape, const std::byte* address, std::int64_t elements) {
    return shape.pixelStride == shape.channels &&
           (shape.width * shape.channels | shape.rowStride | shape.imageStride) % elements == 0 &&
           reinterpret_cast<std::uintptr_t>(address) % (static_cast<std::size_t>(elements) * sizeof(T)) == 0;
  }

  static constexpr std::int64_t kFewReaders = 4;  ///< of gradients in packs
  static constexpr std::int64_t kMostReaders = 6;

  /// Results on an axis that a source pixel may give shares to. @param results on that axis
  [[nodiscard]] std::int64_t mostReadersOf(const UpsamplingAxis& axis, std::int64_t results) const {
    std::vector<std::int64_t> readers(static_cast<std::size_t>(std::max<std::int64_t>(1, axis.sourceSize)));
    const auto inside = [&](std::int64_t pixel) {
      return static_cast<std::size_t>(std::clamp<std::int64_t>(pixel, 0, axis.sourceSize - 1));
    };
    for (std::int64_t i = 0; i < results; ++i) {
      const std::int64_t pixel = upsamplingPosition(problem_.sampling, axis, axis.firstResult + i).pixel;
      ++readers[inside(pixel)];
      if (inside(pixel + 1) != inside(pixel)) ++readers[inside(pixel + 1)];
    }
    return *std::max_element(readers.begin(), readers.end());
  }

  /// Sizes alone.
  [[nodiscard]] AxisTables tablesOf(bool isX) const {
    const std::int64_t inputs = isX ? problem_.input.width : problem_.input.height;
    const std::int64_t destinations = isX ? problem_.destination.width : problem_.destination.height;
    AxisTables tables;
    tables.results = static_cast<std::int32_t>(isForward() ? destinations : inputs);
    tables.destinations = static_cast<std::int32_t>(isForward() ? 0 : destinations);
    return tables;
  }
  /// Whole Samples, so that the next axis's are aligned.
  static std::size_t bytesOf(const AxisTables& tables) {
    const std::size_t readers = static_cast<std::size_t>(tables.destinations) * sizeof(Readers);
    return (static_cast<std::size_t>(tables.results) + (readers + sizeof(Samples) - 1) / sizeof(Samples)) *
           sizeof(Samples);
  }
  static AxisTables placed(AxisTables tables, std::byte* memory) {
    tables.samples = reinterpret_cast<Samples*>(memory);
    if (tables.destinations > 0)
      tables.readers =
          reinterpret_cast<Readers*>(memory + static_cast<std::size_t>(tables.results) * sizeof(Samples));
    return tables;
  }

  [[nodiscard]] TableArguments tablesIn(std::byte* memory) const {
    return {problem_.sampling,
            problem_.edgeMode,
            {problem_.x, problem_.y},
            {placed(tablesOf(true), memory), placed(tablesOf(false), memory + bytesOf(tablesOf(true)))}};
  }
  /// Readers without those at both ends that the pixel counts nothing in: fewer are loaded.
  static Readers withoutZeros(Readers readers, const AxisTables& tables, std::int64_t pixel) {
    const auto countsNothing = [&](std::int32_t result) {
      return weightOf(tables.samples[result], pixel) == 0;
    };
    while (readers.begin < readers.end && countsNothing(readers.begin)) ++readers.begin;
    while (readers.begin < readers.end && countsNothing(readers.end - 1)) --readers.end;
    return readers.begin < readers.end ? readers : Readers{0, 0};
  }
  /// Both tables as the memory of a call will have them.
  void fillTables() {
    std::vector<Samples> memory(scratchBytes() / sizeof(Samples));
    const TableArguments a = tablesIn(reinterpret_cast<std::byte*>(memory.data()));
    for (const int axis : {0, 1}) {
      const AxisTables& tables = a.tables[axis];
      for (std::int32_t i = 0; i < tables.results; ++i)
        tables.samples[i] = cuda::samplesAt(a.sampling, a.edgeMode, a.axes[axis], i);
      for (std::int32_t i = 0; i < tables.destinations; ++i)
        tables.readers[i] = withoutZeros(cuda::readersAt(a.sampling, a.axes[axis], i, tables.results), tables,
                                         i + a.axes[axis].destinationOrigin);
    }
    filled_.resize(scratchBytes() / sizeof(float));
    std::memcpy(filled_.data(), memory.data(), scratchBytes());
  }

  /// What destination positions are sums of, from the filled tables.
  [[nodiscard]] std::vector<cuda::AxisTaps> tapsOf(bool isX) {
    const AxisTables tables = tablesIn(reinterpret_cast<std::byte*>(filled_.data())).tables[isX ? 0 : 1];
    const std::int64_t origin = isX ? problem_.x.destinationOrigin : problem_.y.destinationOrigin;
    std::vector<cuda::AxisTaps> taps;
    for (std::int32_t i = 0; i < tables.destinations; ++i) {
      const Readers& readers = tables.readers[i];
      std::vector<float> weights;
      for (std::int32_t result = readers.begin; result < readers.end; ++result)
        weights.push_back(weightOf(tables.samples[result], i + origin));
      taps.emplace_back(readers.begin, std::move(weights));
    }
    return taps;
  }

  UpsamplingProblem problem_;
  std::int64_t mostReaders_;  ///< along a row
  /// The bits of both tables, if one launch can bring them; else it computes them.
  std::vector<float> filled_;
  std::unique_ptr<const cuda::TilePlan>
      tiles_;  ///< null: an element has too many readers, or pixels few channels
};

Preparation prepareElements(const UpsamplingProblem& problem) {
  if (problem.sampling == UpsamplingSampling::LanczosScale) return prepareLanczosCuda(problem);
  if (problem.sampling == UpsamplingSampling::BilinearRegion &&
      problem.direction == UpsamplingDirection::Gradient)
    return Refusal{"results need not be in the order of their source pixels"};
  for (const TensorShape* shape : {&problem.input, &problem.destination})
    if (!ElementGrid::fits(*shape) || !UpsamplingArguments::fits(*shape))
      return Refusal{ElementGrid::kTooLarge};
  return std::make_shared<const UpsamplingPlan>(problem);
}

constexpr Implementation<UpsamplingProblem> implementations[] = {{"elements", prepareElements}};

}  // namespace

std::span<const Implementation<UpsamplingProblem>> upsamplingImplementationsCuda() {
  return implementations;
}

}  // namespace mps::detail
