#include "mps/upsampling/cuda/upsampling_cuda.hpp"

#include <cuda_pipeline.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "mps/core/cuda/store_numbers_cuda.cuh"
#include "mps/core/plan/fallback_plan.hpp"
#include "mps/upsampling/cuda/upsampling_few_channels_cuda.cuh"
#include "mps/upsampling/cuda/upsampling_forward_cuda.cuh"

namespace mps::detail {
namespace {

using cuda::AxisTables;
using cuda::ColumnWork;
using cuda::ElementGrid;
using cuda::ElementPlace;
using cuda::FewChannelArguments;
using cuda::kUpsamplingThreads;
using cuda::OneOf;
using cuda::Readers;
using cuda::Samples;
using cuda::SourceView;
using cuda::TableArguments;
using cuda::TableAxes;
using cuda::UpsamplingArguments;

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
  static constexpr std::size_t bytes =
      std::size_t{depth} * ColumnGroup::most * kUpsamplingThreads * sizeof(uint4);
  using Held = ColumnGroup::Held<cuda::InVectors<T>>;

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
                       kUpsamplingThreads;
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
struct RowsOf<cuda::InVectors<T>> {
  using Type = RowRing<T>;
};

template <class Access>
__global__ void __launch_bounds__(kUpsamplingThreads, Access::lanes > 1 ? 5 : 4)
    gatherGradient(UpsamplingArguments a) {
  using Values = typename Access::Values;
  const ColumnWork work(a, Access::lanes);
  if (!work.isAny) return;
  ElementPlace place{work.image, 0, work.x, work.channel};
  const Readers columns = a.x.readers[work.x];
  const std::int64_t pixelX = work.x + a.originX;
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

/// Plans whose kernels read tables of both axes.
class TablePlan : public SelectivePlan {
 public:
  [[nodiscard]] std::size_t scratchBytes() const override { return tableBytes(); }
  [[nodiscard]] bool canAccumulate() const override {
    return !isForward() && problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }

 protected:
  explicit TablePlan(const UpsamplingProblem& problem) : problem_(problem) {
    if (upsamplingTablesFitLaunch(problem)) fillTables();
  }
  [[nodiscard]] const UpsamplingProblem& problem() const { return problem_; }
  [[nodiscard]] bool isForward() const { return problem_.direction == UpsamplingDirection::Forward; }
  [[nodiscard]] const std::byte* inputOf(const Operands& operands) const {
    return isForward() ? operands.source : operands.gradient;
  }

  /// Puts the tables into the scratch memory. @return what all kernels have in common
  [[nodiscard]] UpsamplingArguments begin(mtl::Stream& stream, const Operands& operands) const {
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
    UpsamplingArguments a;
    a.input = {problem_.input, inputOf(operands)};
    a.destination = {problem_.destination, operands.destination};
    a.x = tables.tables[0];
    a.y = tables.tables[1];
    a.originX = problem_.x.destinationOrigin;
    a.originY = problem_.y.destinationOrigin;
    a.accumulate = operands.accumulate;
    a.rowsFollow = rowsFollow();
    return a;
  }

 private:
  /// Whether a result lies at most two rows below the one above.
  [[nodiscard]] bool rowsFollow() const {
    return problem_.sampling >= UpsamplingSampling::BilinearRegion
               ? problem_.y.step >= 0 && problem_.y.step <= 2
               : problem_.y.sourceSize <= 2 * problem_.y.resultSize;
  }

  /// Of both axes.
  [[nodiscard]] std::size_t tableBytes() const { return bytesOf(tablesOf(true)) + bytesOf(tablesOf(false)); }
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
    std::vector<Samples> memory(tableBytes() / sizeof(Samples));
    const TableArguments a = tablesIn(reinterpret_cast<std::byte*>(memory.data()));
    for (const int axis : {0, 1}) {
      const AxisTables& tables = a.tables[axis];
      for (std::int32_t i = 0; i < tables.results; ++i)
        tables.samples[i] = cuda::samplesAt(a.sampling, a.edgeMode, a.axes[axis], i);
      for (std::int32_t i = 0; i < tables.destinations; ++i)
        tables.readers[i] = withoutZeros(cuda::readersAt(a.sampling, a.axes[axis], i, tables.results), tables,
                                         i + a.axes[axis].destinationOrigin);
    }
    filled_.resize(tableBytes() / sizeof(float));
    std::memcpy(filled_.data(), memory.data(), tableBytes());
  }

  UpsamplingProblem problem_;
  /// The bits of both tables, if one launch can bring them; else it computes them.
  std::vector<float> filled_;
};

/// A thread for some channels of a column. @tparam Access how it reads and writes them
template <class Access>
class ColumnPlan final : public TablePlan {
 public:
  explicit ColumnPlan(const UpsamplingProblem& problem) : TablePlan(problem) {}

  [[nodiscard]] std::string_view objectionTo(const Operands& operands) const override {
    if (Access::lanes == 1) return {};
    return objectionToUnaligned({inputOf(operands), operands.destination});
  }
  void run(mtl::Stream& stream, const Operands& operands) const override {
    const TensorShape& destination = problem().destination;
    if (destination.elements() == 0) return;
    UpsamplingArguments a = begin(stream, operands);
    if (isForward())
      return cuda::launchUpsample<Access>(stream, a, destination, TableAxes{a.x.samples, a.y.samples});
    a.setGrid(destination, Access::lanes);
    mtl::cuda::launch(stream, gatherGradient<Access>, dim3(mtl::cuda::blocksFor(a.items, kUpsamplingThreads)),
                      dim3(kUpsamplingThreads), RowsOf<Access>::Type::bytes, a);
  }
};

/// Whether rows are dense and so many adjacent elements can be accessed together everywhere in them.
bool takesTogether(const TensorShape& shape, std::int64_t elements) {
  return shape.pixelStride == shape.channels &&
         (shape.width * shape.channels | shape.rowStride | shape.imageStride) % elements == 0;
}

template <class T>
class FewChannelPlan final : public TablePlan {
 public:
  explicit FewChannelPlan(const UpsamplingProblem& problem)
      : TablePlan(problem), mostReaders_(isForward() ? 0 : mostReadersOf(problem.x, problem.input.width)) {
    fits_ = mostReaders_ <= kMostReaders && takesTogether(results(), kLanes) &&
            takesTogether(pixels(), kLanes / 2) &&
            arguments_.setGrid(results(), pixels(), kLanes, isForward());
  }
  [[nodiscard]] bool fits() const { return fits_; }
  [[nodiscard]] std::string_view objectionTo(const Operands& operands) const override {
    const std::byte* const resultsAt = isForward() ? operands.destination : operands.gradient;
    const std::byte* const pixelsAt = isForward() ? operands.source : operands.destination;
    const std::string_view objection = objectionToUnaligned({resultsAt});
    return objection.empty() ? objectionToUnaligned({pixelsAt}, kLanes / 2 * sizeof(T)) : objection;
  }
  void run(mtl::Stream& stream, const Operands& operands) const override {
    const UpsamplingArguments tables = begin(stream, operands);
    FewChannelArguments a = arguments_;
    a.input = tables.input;
    a.destination = tables.destination;
    a.x = tables.x;
    a.y = tables.y;
    a.originX = static_cast<std::int32_t>(tables.originX);
    a.originY = static_cast<std::int32_t>(tables.originY);
    a.accumulate = tables.accumulate;
    const auto kernel = isForward()                   ? cuda::upsampleFewChannels<T>
                        : mostReaders_ <= kFewReaders ? cuda::gatherFewChannels<T, kFewReaders>
                                                      : cuda::gatherFewChannels<T, kMostReaders>;
    mtl::cuda::launch(stream, kernel, dim3(a.blocks), dim3(a.threads), a.sharedBytes, a);
  }

 private:
  static constexpr std::int64_t kLanes = cuda::kLanes<T>;
  static constexpr std::int64_t kFewReaders = 4;  ///< of gradients
  static constexpr std::int64_t kMostReaders = 6;

  [[nodiscard]] const TensorShape& results() const {
    return isForward() ? problem().destination : problem().input;
  }
  [[nodiscard]] const TensorShape& pixels() const {
    return isForward() ? problem().input : problem().destination;
  }
  /// Results on an axis that a source pixel may give shares to. @param results on that axis
  [[nodiscard]] std::int64_t mostReadersOf(const UpsamplingAxis& axis, std::int64_t results) const {
    std::vector<std::int64_t> readers(static_cast<std::size_t>(std::max<std::int64_t>(1, axis.sourceSize)));
    const auto inside = [&](std::int64_t pixel) {
      return static_cast<std::size_t>(std::clamp<std::int64_t>(pixel, 0, axis.sourceSize - 1));
    };
    for (std::int64_t i = 0; i < results; ++i) {
      const std::int64_t pixel = upsamplingPosition(problem().sampling, axis, axis.firstResult + i).pixel;
      ++readers[inside(pixel)];
      if (inside(pixel + 1) != inside(pixel)) ++readers[inside(pixel + 1)];
    }
    return *std::max_element(readers.begin(), readers.end());
  }

  std::int64_t mostReaders_;       ///< along a row
  FewChannelArguments arguments_;  ///< but for the tensors and tables
  bool fits_ = false;
};

/// Why no kernel with tables computes a problem, or null.
const char* refusalOfTables(const UpsamplingProblem& problem) {
  if (problem.sampling == UpsamplingSampling::LanczosScale) return "Lanczos";
  if (problem.sampling == UpsamplingSampling::BilinearRegion &&
      problem.direction == UpsamplingDirection::Gradient)
    return "results need not be in the order of their source pixels";
  for (const TensorShape* shape : {&problem.input, &problem.destination})
    if (!ElementGrid::fits(*shape) || !UpsamplingArguments::fits(*shape)) return ElementGrid::kTooLarge;
  return nullptr;
}

/// Calls make(element) where both tensors have elements of one type, float or Float16.
template <class Make>
Preparation withCommonFormat(const UpsamplingProblem& problem, Make&& make) {
  if (const char* const refusal = refusalOfTables(problem)) return Refusal{refusal};
  const auto format = cuda::commonFormat({&problem.input, &problem.destination});
  if (format == ImageFeatureChannelFormat::Float32) return make(float{});
  if (format == ImageFeatureChannelFormat::Float16) return make(Float16{});
  return Refusal{"not all float32 and not all float16"};
}

Preparation prepareElements(const UpsamplingProblem& problem) {
  if (problem.sampling == UpsamplingSampling::LanczosScale) return prepareLanczosElementsCuda(problem);
  if (const char* const refusal = refusalOfTables(problem)) return Refusal{refusal};
  const auto format = cuda::commonFormat({&problem.input, &problem.destination});
  if (format == ImageFeatureChannelFormat::Float32)
    return std::make_shared<const ColumnPlan<OneOf<float>>>(problem);
  if (format == ImageFeatureChannelFormat::Float16)
    return std::make_shared<const ColumnPlan<OneOf<Float16>>>(problem);
  return std::make_shared<const ColumnPlan<cuda::OneByOne>>(problem);
}

constexpr Implementation<UpsamplingProblem> kElements{"thread per element", prepareElements};

/// Earns pictures and masks of few channels, whose pixels are no multiples of 16 bytes.
Preparation prepareFewChannels(const UpsamplingProblem& problem) {
  return withCommonFormat(problem, [&](auto element) -> Preparation {
    if (takesLanes(problem.input) && takesLanes(problem.destination))
      return Refusal{"pixels that are multiples of 16 bytes"};
    if (problem.input.elements() == 0 || problem.destination.elements() == 0)
      return Refusal{"there is nothing to do"};
    auto plan = std::make_shared<const FewChannelPlan<decltype(element)>>(problem);
    if (!plan->fits()) return Refusal{"not dense rows of at most 4 KiB that become twice as long"};
    return withFallback(std::move(plan), kElements, problem);
  });
}

Preparation prepareVectors(const UpsamplingProblem& problem) {
  return withCommonFormat(problem, [&](auto element) -> Preparation {
    if (!takesLanes(problem.input) || !takesLanes(problem.destination))
      return Refusal{"pixels that are no multiples of 16 bytes"};
    return withFallback(std::make_shared<const ColumnPlan<cuda::InVectors<decltype(element)>>>(problem),
                        kElements, problem);
  });
}

constexpr Implementation<UpsamplingProblem> implementations[] = {
    {"tiles of 64 channels", prepareUpsamplingTilesCuda},
    {"rows in shared memory", prepareFewChannels},
    {"16 bytes per thread", prepareVectors},
    {"Lanczos sliding window", prepareSlidingLanczosCuda},
    kElements};

}  // namespace

bool upsamplingTablesFitLaunch(const UpsamplingProblem& problem) {
  const bool isForward = problem.direction == UpsamplingDirection::Forward;
  const TensorShape& results = isForward ? problem.destination : problem.input;
  std::int64_t bytes = (results.height + results.width) * static_cast<std::int64_t>(sizeof(Samples));
  if (!isForward)
    bytes += (problem.destination.height + problem.destination.width + 2) *
             static_cast<std::int64_t>(sizeof(Readers));
  return bytes <= static_cast<std::int64_t>(cuda::NumbersPart::most * sizeof(float));
}

std::span<const Implementation<UpsamplingProblem>> upsamplingImplementationsCuda() {
  return implementations;
}

}  // namespace mps::detail
