#include <cstdint>
#include <memory>

#include "mps/core/element_grid_cuda.cuh"
#include "mps/upsampling/upsampling_problem.hpp"
#include "mps/upsampling/upsampling_samples.hpp"

namespace mps::detail {
namespace {

using cuda::ElementGrid;
using cuda::ElementPlace;
using cuda::ResultView;
using cuda::SourceView;

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

struct UpsamplingArguments {
  ElementGrid grid;
  SourceView input;
  ResultView destination;
  AxisTables x;
  AxisTables y;
  std::int64_t originX = 0;
  std::int64_t originY = 0;
  bool accumulate = false;
};

/// sum += weight * values.
template <class Values>
__device__ void addWeighted(Values& sum, float weight, const Values& values) {
  for (int lane = 0; lane < static_cast<int>(sizeof(Values) / sizeof(float)); ++lane)
    sum.values[lane] = fmaf(weight, values.values[lane], sum.values[lane]);
}

/// The sum of the columns of a row that a result pixel is made of.
template <class Access>
__device__ typename Access::Values sumOfColumns(const SourceView& input, ElementPlace place,
                                                const Samples& columns) {
  typename Access::Values sum{};
  if (columns.firstWeight != 0) {
    place.x = columns.first;
    addWeighted(sum, columns.firstWeight, Access::load(input, place));
  }
  if (columns.secondWeight != 0) {
    place.x = columns.second;
    addWeighted(sum, columns.secondWeight, Access::load(input, place));
  }
  return sum;
}

template <class Access>
__global__ void upsample(UpsamplingArguments a) {
  a.grid.template forEachBatch<1, Access::lanes>(
      [](int, const ElementPlace&) {},
      [&](int, const ElementPlace& place) {
        const Samples rows = a.y.samples[place.y];
        const Samples columns = a.x.samples[place.x];
        typename Access::Values sum{};
        ElementPlace from = place;
        if (rows.firstWeight != 0) {
          from.y = rows.first;
          addWeighted(sum, rows.firstWeight, sumOfColumns<Access>(a.input, from, columns));
        }
        if (rows.secondWeight != 0) {
          from.y = rows.second;
          addWeighted(sum, rows.secondWeight, sumOfColumns<Access>(a.input, from, columns));
        }
        Access::store(sum, a.destination, place);
      });
}

/// What a pixel counts in a result.
__device__ inline float weightOf(const Samples& samples, std::int64_t pixel) {
  const float first = samples.first == pixel ? samples.firstWeight : 0.0F;
  return first + (samples.second == pixel ? samples.secondWeight : 0.0F);
}

template <class Access>
__global__ void gatherGradient(UpsamplingArguments a) {
  a.grid.template forEachBatch<1, Access::lanes>(
      [](int, const ElementPlace&) {},
      [&](int, const ElementPlace& place) {
        const Readers rows = a.y.readers[place.y];
        const Readers columns = a.x.readers[place.x];
        const std::int64_t pixelY = place.y + a.originY;
        const std::int64_t pixelX = place.x + a.originX;
        typename Access::Values sum{};
        ElementPlace from = place;
        for (from.y = rows.begin; from.y < rows.end; ++from.y) {
          const float rowWeight = weightOf(a.y.samples[from.y], pixelY);
          if (rowWeight == 0) continue;
          typename Access::Values inRow{};
          for (from.x = columns.begin; from.x < columns.end; ++from.x)
            if (const float weight = weightOf(a.x.samples[from.x], pixelX); weight != 0)
              addWeighted(inRow, weight, Access::load(a.input, from));
          addWeighted(sum, rowWeight, inRow);
        }
        Access::store(sum, a.destination, place, a.accumulate);
      });
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
    const bool takesPacks = cuda::takesLanes(problem_.input, input) &&
                            cuda::takesLanes(problem_.destination, operands.destination);
    const auto format = cuda::commonFormat({&problem_.input, &problem_.destination});
    cuda::withAccess(format, takesPacks, [&](auto access) {
      using Access = decltype(access);
      a.grid = ElementGrid(problem_.destination, Access::lanes, 1);
      mtl::cuda::launch(stream, isForward() ? upsample<Access> : gatherGradient<Access>, a.grid.grid(),
                        a.grid.block(), 0, a);
    });
  }

 private:
  [[nodiscard]] bool isForward() const { return problem_.direction == UpsamplingDirection::Forward; }

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
  for (const TensorShape* shape : {&problem.input, &problem.destination})
    if (!ElementGrid::fits(*shape)) return Refusal{ElementGrid::kTooLarge};
  return std::make_shared<const UpsamplingPlan>(problem);
}

constexpr Implementation<UpsamplingProblem> implementations[] = {{"elements", prepareElements}};

}  // namespace

std::span<const Implementation<UpsamplingProblem>> upsamplingImplementationsCuda() {
  return implementations;
}

}  // namespace mps::detail
