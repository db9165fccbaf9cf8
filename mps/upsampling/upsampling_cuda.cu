#include <cstdint>
#include <memory>

#include "mps/core/element_grid_cuda.cuh"
#include "mps/upsampling/crop_and_resize_problem.hpp"
#include "mps/upsampling/lanczos_cuda.hpp"
#include "mps/upsampling/upsampling_problem.hpp"
#include "mps/upsampling/upsampling_samples.hpp"

namespace mps::detail {
namespace {

using cuda::Divider;
using cuda::ElementGrid;
using cuda::ElementPlace;
using cuda::ResultView;
using cuda::SourceView;

constexpr unsigned kStripThreads = 128;

/// What a result row or column is made of.
struct alignas(16) Samples {
  std::int32_t first;
  std::int32_t second;
  float firstWeight;  ///< 0: none
  float secondWeight;
};

/// Results that a source row or column may give shares to, as input rows or columns [begin, end).
struct alignas(8) Readers {
  std::int32_t begin;
  std::int32_t end;
};

/// The tables of one axis.
struct AxisTables {
  Samples* samples = nullptr;
  Readers* readers = nullptr;  ///< gradient only
  std::int32_t results = 0;
  std::int32_t destinations = 0;
};

struct TableArguments {
  UpsamplingSampling sampling;
  ImageEdgeMode edgeMode;
  UpsamplingAxis axes[2];
  AxisTables tables[2];
};

/// First result from `begin` on, below `end`, whose pixel, moved by `step`, is at least `pixel`.
__device__ std::int32_t firstReaching(const TableArguments& a, const UpsamplingAxis& axis, std::int64_t pixel,
                                      std::int64_t step, std::int32_t end) {
  std::int32_t begin = 0;
  while (begin < end) {
    const std::int32_t middle = begin + (end - begin) / 2;
    const std::int64_t at = upsamplingPosition(a.sampling, axis, axis.firstResult + middle).pixel + step;
    const std::int64_t inside = at < 0 ? 0 : at < axis.sourceSize ? at : axis.sourceSize - 1;
    if (inside >= pixel)
      end = middle;
    else
      begin = middle + 1;
  }
  return begin;
}

/// One thread for each result and each destination position of both axes; blockIdx.y is the axis.
__global__ void fillTables(TableArguments a) {
  const UpsamplingAxis& axis = a.axes[blockIdx.y];
  const AxisTables& tables = a.tables[blockIdx.y];
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (std::int64_t i = thread; i < tables.results; i += step) {
    const UpsamplingSamples samples = upsamplingSamples(a.sampling, a.edgeMode, axis, axis.firstResult + i);
    tables.samples[i] = {static_cast<std::int32_t>(samples.first), static_cast<std::int32_t>(samples.second),
                         static_cast<float>(samples.firstWeight), static_cast<float>(samples.secondWeight)};
  }
  if (tables.readers == nullptr) return;
  for (std::int64_t i = thread; i < tables.destinations; i += step) {
    const std::int64_t pixel = i + axis.destinationOrigin;
    // The next pixel counts, too, but for Nearest.
    const std::int64_t reach = a.sampling == UpsamplingSampling::Nearest ? 0 : 1;
    Readers readers{0, 0};
    if (pixel >= 0 && pixel < axis.sourceSize)
      readers = {firstReaching(a, axis, pixel, reach, tables.results),
                 firstReaching(a, axis, pixel + 1, 0, tables.results)};
    tables.readers[i] = readers;
  }
}

/// A thread stays with a pack of a row of the destination and goes down some rows, so that what rows share is
/// computed once.
struct UpsamplingArguments {
  Divider pieces;  ///< packs of a row
  Divider packs;   ///< packs of a pixel
  Divider chunks;  ///< of the rows of an image
  std::uint32_t items = 0;
  std::int32_t rowsPerChunk = 0;
  std::int32_t height = 0;
  SourceView input;
  ResultView destination;
  AxisTables x;
  AxisTables y;
  std::int64_t originX = 0;
  std::int64_t originY = 0;
  std::int32_t channels = 0;
  bool accumulate = false;

  /// @param packsOfRow, packsOfPixel of the destination
  void setGrid(const TensorShape& shape, std::int64_t packsOfRow, std::int64_t packsOfPixel) {
    // Enough threads for a large GPU come first.
    constexpr std::int64_t threads = std::int64_t{1} << 19;
    constexpr std::int64_t fewestRows = 4;
    constexpr std::int64_t mostRows = 16;
    const std::int64_t all = shape.images * packsOfRow;
    const std::int64_t rows = std::clamp<std::int64_t>(shape.height * all / threads, fewestRows, mostRows);
    const std::int64_t most = std::max<std::int64_t>(1, 0x7FFFFFFF / all);
    const std::int64_t count = std::min(most, (shape.height + rows - 1) / rows);
    rowsPerChunk = static_cast<std::int32_t>((shape.height + count - 1) / count);
    chunks = Divider((shape.height + rowsPerChunk - 1) / rowsPerChunk);
    pieces = Divider(packsOfRow);
    packs = Divider(packsOfPixel);
    items = static_cast<std::uint32_t>(all * chunks.divisor());
    height = static_cast<std::int32_t>(shape.height);
    channels = static_cast<std::int32_t>(shape.channels);
  }
  /// Whether the numbers are small enough.
  static bool fits(const TensorShape& shape) {
    return shape.images * shape.width * shape.channels <= 0x7FFFFFFF;
  }
};

/// The work of this thread: a pack, and rows [begin, end) of an image.
struct Work {
  bool isAny;
  std::uint32_t piece;
  std::int32_t image;
  std::int32_t begin;
  std::int32_t end;

  __device__ explicit Work(const UpsamplingArguments& a) {
    const std::uint32_t item = blockIdx.x * blockDim.x + threadIdx.x;
    isAny = item < a.items;
    const std::uint32_t row = a.pieces.divide(item);
    piece = item - row * a.pieces.divisor();
    const std::uint32_t ofImage = a.chunks.divide(row);
    image = static_cast<std::int32_t>(ofImage);
    begin = static_cast<std::int32_t>(row - ofImage * a.chunks.divisor()) * a.rowsPerChunk;
    end = min(begin + a.rowsPerChunk, a.height);
  }
};

/// One element of type T, float or Float16.
template <class T>
struct OneOf {
  static constexpr int lanes = 1;
  using Values = cuda::OneByOne::Values;
  using Fetched = Values;

  __device__ static Fetched fetch(const SourceView& view, const ElementPlace& place) {
    return {{cuda::load(reinterpret_cast<const T*>(view.memory) + view.offset(place))}};
  }
  __device__ static Values valuesOf(const Fetched& fetched) { return fetched; }
  __device__ static void store(Values values, const ResultView& view, const ElementPlace& place,
                               bool accumulate) {
    T* const to = reinterpret_cast<T*>(view.memory) + view.offset(place);
    cuda::store(accumulate ? cuda::load(to) + values.values[0] : values.values[0], to);
  }
};

/// sum += weight * values.
template <class Values>
__device__ void addWeighted(Values& sum, float weight, const Values& values) {
#pragma unroll
  for (int lane = 0; lane < static_cast<int>(sizeof(Values) / sizeof(float)); ++lane)
    sum.values[lane] = fmaf(weight, values.values[lane], sum.values[lane]);
}

/// The columns that results of one pixel are made of.
template <class Access>
struct PixelColumns {
  using Values = typename Access::Values;
  ElementPlace place;
  Samples samples;

  __device__ PixelColumns(const UpsamplingArguments& a, const Work& work) {
    const std::uint32_t x = a.packs.divide(work.piece);
    const std::uint32_t pack = work.piece - x * a.packs.divisor();
    place = {work.image, 0, static_cast<std::int32_t>(x), static_cast<std::int32_t>(pack * Access::lanes)};
    samples = a.x.samples[x];
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

/// The columns that 16 bytes of adjacent results are made of, which belong to several pixels of few channels
/// without gaps.
template <class T>
struct ElementColumns {
  static constexpr int lanes = cuda::kLanes<T>;
  using Values = cuda::Lanes<T>;
  std::int32_t image;
  std::int32_t element;
  std::int32_t first[lanes];
  std::int32_t second[lanes];
  float firstWeight[lanes];
  float secondWeight[lanes];

  __device__ ElementColumns(const UpsamplingArguments& a, const Work& work)
      : image(work.image), element(static_cast<std::int32_t>(work.piece) * lanes) {
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) {
      const std::uint32_t x = a.packs.divide(static_cast<std::uint32_t>(element + lane));
      const std::int32_t channel = element + lane - static_cast<std::int32_t>(x) * a.channels;
      const Samples samples = a.x.samples[x];
      first[lane] = samples.first * a.input.pixel + channel;
      second[lane] = samples.second * a.input.pixel + channel;
      firstWeight[lane] = samples.firstWeight;
      secondWeight[lane] = samples.secondWeight;
    }
  }
  struct Held {
    float firsts[lanes];
    float seconds[lanes];
  };
  __device__ Held fetch(const SourceView& input, std::int32_t row) const {
    const T* const from = reinterpret_cast<const T*>(input.memory) + image * input.image + row * input.row;
    Held held;
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) {
      if (firstWeight[lane] != 0) held.firsts[lane] = cuda::load(from + first[lane]);
      if (secondWeight[lane] != 0) held.seconds[lane] = cuda::load(from + second[lane]);
    }
    return held;
  }
  [[nodiscard]] __device__ Values sum(const Held& held) const {
    Values result{};
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) {
      if (firstWeight[lane] != 0) result.values[lane] = fmaf(firstWeight[lane], held.firsts[lane], 0.0F);
      if (secondWeight[lane] != 0)
        result.values[lane] = fmaf(secondWeight[lane], held.seconds[lane], result.values[lane]);
    }
    return result;
  }
  __device__ void store(const Values& values, const ResultView& destination, std::int32_t row) const {
    cuda::storeLanes(values, reinterpret_cast<T*>(destination.memory) + image * destination.image +
                                 row * destination.row + element);
  }
};

/// @tparam Columns PixelColumns or ElementColumns
template <class Columns>
__global__ void __launch_bounds__(kStripThreads) upsample(UpsamplingArguments a) {
  using Values = typename Columns::Values;
  const Work work(a);
  if (!work.isAny) return;
  const Columns columns(a, work);
  const std::int32_t lastRow = a.y.samples[work.end - 1].second;
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
    const Samples rows = a.y.samples[y];
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

/// What a pixel counts in a result.
__device__ inline float weightOf(const Samples& samples, std::int64_t pixel) {
  const float first = samples.first == pixel ? samples.firstWeight : 0.0F;
  return first + (samples.second == pixel ? samples.secondWeight : 0.0F);
}

/// Some of the results in a row that read a pixel, with what it counts in each.
struct ColumnGroup {
  static constexpr int most = 4;
  float weights[most];

  __device__ ColumnGroup(const AxisTables& x, std::int32_t begin, std::int32_t end, std::int64_t pixel) {
#pragma unroll
    for (int i = 0; i < most; ++i)
      weights[i] = begin + i < end ? weightOf(x.samples[begin + i], pixel) : 0.0F;
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

template <class Access>
__global__ void __launch_bounds__(kStripThreads, 4) gatherGradient(UpsamplingArguments a) {
  using Values = typename Access::Values;
  const Work work(a);
  if (!work.isAny) return;
  const std::uint32_t x = a.packs.divide(work.piece);
  ElementPlace place{work.image, 0, static_cast<std::int32_t>(x),
                     static_cast<std::int32_t>((work.piece - x * a.packs.divisor()) * Access::lanes)};
  const Readers columns = a.x.readers[x];
  const std::int64_t pixelX = static_cast<std::int64_t>(x) + a.originX;
  const ColumnGroup firstGroup(a.x, columns.begin, columns.end, pixelX);
  const std::int32_t lastEnd = a.y.readers[work.end - 1].end;
  ColumnGroup::Held<Access> ahead;  // of the row that is likely to be the next one
  std::int32_t aheadRow = -1;       // none
  Values sum{};
  Values next{};  // of the row below: a result counts in two rows at most
  std::int32_t row = 0;
  for (place.y = work.begin; place.y < work.end; ++place.y) {
    const Readers rows = a.y.readers[place.y];
    const std::int64_t pixelY = place.y + a.originY;
    for (row = max(row, rows.begin); row < rows.end; ++row) {
      ElementPlace from{place.image, row, columns.begin, place.channel};
      const ColumnGroup::Held<Access> held =
          aheadRow == row ? ahead : firstGroup.template fetch<Access>(a.input, from);
      aheadRow = -1;
      if (row + 1 < lastEnd) {
        aheadRow = row + 1;
        ahead =
            firstGroup.template fetch<Access>(a.input, {place.image, aheadRow, columns.begin, place.channel});
      }
      const Samples samples = a.y.samples[row];
      const float weight = weightOf(samples, pixelY);
      const float nextWeight = weightOf(samples, pixelY + 1);
      if (weight == 0 && nextWeight == 0) continue;
      Values inRow{};
      firstGroup.template addTo<Access>(inRow, held);
      for (from.x += ColumnGroup::most; from.x < columns.end; from.x += ColumnGroup::most) {
        const ColumnGroup group(a.x, from.x, columns.end, pixelX);
        group.template addTo<Access>(inRow, group.template fetch<Access>(a.input, from));
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
  explicit UpsamplingPlan(const UpsamplingProblem& problem) : problem_(problem) {}

  /// For the tables of both axes.
  [[nodiscard]] std::size_t scratchBytes() const override {
    std::size_t bytes = 0;
    for (const AxisTables& tables : {tablesOf(true), tablesOf(false)}) bytes += bytesOf(tables);
    return bytes;
  }
  [[nodiscard]] bool canAccumulate() const override {
    return !isForward() && problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    if (problem_.destination.elements() == 0) return;
    TableArguments tables{problem_.sampling,
                          problem_.edgeMode,
                          {problem_.x, problem_.y},
                          {placed(tablesOf(true), operands.scratch),
                           placed(tablesOf(false), operands.scratch + bytesOf(tablesOf(true)))}};
    std::int64_t longest = 0;
    for (const AxisTables& axis : tables.tables)
      longest = std::max<std::int64_t>({longest, axis.results, axis.destinations});
    mtl::cuda::launch(stream, fillTables, dim3(mtl::cuda::blocksFor(longest), 2),
                      dim3(mtl::cuda::kBlockThreads), 0, tables);

    const std::byte* const input = isForward() ? operands.source : operands.gradient;
    UpsamplingArguments a;
    a.input = {problem_.input, input};
    a.destination = {problem_.destination, operands.destination};
    a.x = tables.tables[0];
    a.y = tables.tables[1];
    a.originX = problem_.x.destinationOrigin;
    a.originY = problem_.y.destinationOrigin;
    a.accumulate = operands.accumulate;
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

  /// Input and destination have elements of type T.
  template <class T>
  void runTyped(mtl::Stream& stream, const UpsamplingArguments& a) const {
    if (cuda::takesLanes(problem_.input, a.input.memory) &&
        cuda::takesLanes(problem_.destination, a.destination.memory))
      return runPixels<cuda::InPacks<T>, cuda::InPacks<T>>(stream, a);
    if (isForward() && takesRows(a.destination.memory)) {
      const std::int64_t elements = problem_.destination.width * problem_.destination.channels;
      return launch(stream, upsample<ElementColumns<T>>, a, elements / cuda::kLanes<T>,
                    problem_.destination.channels);
    }
    runPixels<cuda::OneByOne, OneOf<T>>(stream, a);
  }
  template <class ForwardAccess, class GradientAccess>
  void runPixels(mtl::Stream& stream, const UpsamplingArguments& a) const {
    static_assert(ForwardAccess::lanes == GradientAccess::lanes);
    const std::int64_t packs = problem_.destination.channels / ForwardAccess::lanes;
    launch(stream, isForward() ? upsample<PixelColumns<ForwardAccess>> : gatherGradient<GradientAccess>, a,
           problem_.destination.width * packs, packs);
  }
  void launch(mtl::Stream& stream, void (*kernel)(UpsamplingArguments), UpsamplingArguments a,
              std::int64_t packsOfRow, std::int64_t packsOfPixel) const {
    a.setGrid(problem_.destination, packsOfRow, packsOfPixel);
    mtl::cuda::launch(stream, kernel, dim3(mtl::cuda::blocksFor(a.items, kStripThreads)), dim3(kStripThreads),
                      0, a);
  }
  /// Whether 16 bytes of adjacent elements can be stored together everywhere, of several pixels or not.
  [[nodiscard]] bool takesRows(const std::byte* address) const {
    TensorShape rows = problem_.destination;
    if (rows.pixelStride != rows.channels) return false;
    rows.channels *= rows.width;
    rows.pixelStride = rows.channels;
    return problem_.input.width * problem_.input.pixelStride <= 0x7FFFFFFF && cuda::takesLanes(rows, address);
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

  UpsamplingProblem problem_;
};

Preparation prepareElements(const UpsamplingProblem& problem) {
  if (problem.sampling == UpsamplingSampling::LanczosScale) return prepareLanczosCuda(problem);
  if (problem.sampling >= UpsamplingSampling::BilinearRegion &&
      problem.direction == UpsamplingDirection::Gradient)
    return Refusal{"results need not be in the order of their source pixels"};
  for (const TensorShape* shape : {&problem.input, &problem.destination})
    if (!ElementGrid::fits(*shape) || !UpsamplingArguments::fits(*shape))
      return Refusal{ElementGrid::kTooLarge};
  return std::make_shared<const UpsamplingPlan>(problem);
}

constexpr Implementation<UpsamplingProblem> implementations[] = {{"elements", prepareElements}};

Preparation prepareRegions(const CropAndResizeProblem& problem) {
  return prepareCropAndResize(problem, upsamplingImplementationsCuda());
}

constexpr Implementation<CropAndResizeProblem> cropImplementations[] = {{kRegionByRegion, prepareRegions}};

}  // namespace

std::span<const Implementation<UpsamplingProblem>> upsamplingImplementationsCuda() {
  return implementations;
}

std::span<const Implementation<CropAndResizeProblem>> cropAndResizeImplementationsCuda() {
  return cropImplementations;
}

}  // namespace mps::detail
