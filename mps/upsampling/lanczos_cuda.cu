#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "mps/core/element_grid_cuda.cuh"
#include "mps/upsampling/lanczos_cuda.hpp"
#include "mps/upsampling/upsampling_samples.hpp"

namespace mps::detail {
namespace {

using cuda::ElementGrid;
using cuda::ElementPlace;
using cuda::ResultView;
using cuda::SourceView;

/// The source pixels of a result on one axis.
struct alignas(8) PixelRange {
  std::int32_t first;
  std::int32_t count;
};

/// The tables of one axis.
struct LanczosTables {
  PixelRange* ranges = nullptr;
  float* weights = nullptr;  ///< `most` for each result
  std::int32_t results = 0;
  std::int32_t most = 0;

  [[nodiscard]] std::size_t bytes() const {
    const std::size_t floats = static_cast<std::size_t>(results) * static_cast<std::size_t>(most);
    // Whole ranges, so that the next axis's are aligned.
    return (static_cast<std::size_t>(results) + (floats + 1) / 2) * sizeof(PixelRange);
  }
};

struct LanczosArguments {
  ImageEdgeMode edgeMode;
  UpsamplingAxis axes[2];
  LanczosTables tables[2];
};

/// One thread for each result of both axes; blockIdx.y is the axis.
__global__ void fillLanczosTables(LanczosArguments a) {
  const UpsamplingAxis& axis = a.axes[blockIdx.y];
  const LanczosTables& tables = a.tables[blockIdx.y];
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= tables.results) return;
  const LanczosSamples samples = lanczosSamples(a.edgeMode, axis, i);
  double sum = 0;
  for (std::int64_t pixel = samples.first; pixel < samples.end; ++pixel) sum += lanczosWeight(samples, pixel);
  float* weight = tables.weights + i * tables.most;
  for (std::int64_t pixel = samples.first; pixel < samples.end; ++pixel)
    *weight++ = static_cast<float>(lanczosWeight(samples, pixel) / sum);
  tables.ranges[i] = {static_cast<std::int32_t>(samples.first),
                      static_cast<std::int32_t>(samples.end - samples.first)};
}

__global__ void scaleByLanczos(ElementGrid grid, LanczosTables x, LanczosTables y, SourceView input,
                               ResultView destination) {
  grid.forEachBatch<1, 1>(
      [](int, const ElementPlace&) {},
      [&](int, const ElementPlace& place) {
        const PixelRange rows = y.ranges[place.y];
        const PixelRange columns = x.ranges[place.x];
        const float* const rowWeights = y.weights + static_cast<std::int64_t>(place.y) * y.most;
        const float* const columnWeights = x.weights + static_cast<std::int64_t>(place.x) * x.most;
        float sum = 0;
        for (std::int32_t row = 0; row < rows.count; ++row) {
          if (rowWeights[row] == 0) continue;
          float inRow = 0;
          for (std::int32_t column = 0; column < columns.count; ++column) {
            if (columnWeights[column] == 0) continue;
            const ElementPlace from{place.image, rows.first + row, columns.first + column, place.channel};
            inRow = fmaf(columnWeights[column], cuda::OneByOne::load(input, from).values[0], inRow);
          }
          sum = fmaf(rowWeights[row], inRow, sum);
        }
        cuda::OneByOne::store({{sum}}, destination, place);
      });
}

class LanczosPlan final : public Plan {
 public:
  explicit LanczosPlan(const UpsamplingProblem& problem) : problem_(problem) {}

  [[nodiscard]] std::size_t scratchBytes() const override {
    return tablesOf(problem_.x, problem_.destination.width).bytes() +
           tablesOf(problem_.y, problem_.destination.height).bytes();
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    if (problem_.destination.elements() == 0) return;
    const LanczosTables x = placed(tablesOf(problem_.x, problem_.destination.width), operands.scratch);
    const LanczosTables y =
        placed(tablesOf(problem_.y, problem_.destination.height), operands.scratch + x.bytes());
    const LanczosArguments tables{problem_.edgeMode, {problem_.x, problem_.y}, {x, y}};
    mtl::cuda::launch(stream, fillLanczosTables,
                      dim3(mtl::cuda::blocksFor(std::max(x.results, y.results)), 2),
                      dim3(mtl::cuda::kBlockThreads), 0, tables);
    const ElementGrid grid(problem_.destination, 1, 1);
    mtl::cuda::launch(stream, scaleByLanczos, grid.grid(), grid.block(), 0, grid, x, y,
                      SourceView(problem_.input, operands.source),
                      ResultView(problem_.destination, operands.destination));
  }

 private:
  /// Sizes alone.
  static LanczosTables tablesOf(const UpsamplingAxis& axis, std::int64_t results) {
    LanczosTables tables;
    tables.results = static_cast<std::int32_t>(results);
    tables.most = static_cast<std::int32_t>(mostLanczosSamples(axis));
    return tables;
  }
  static LanczosTables placed(LanczosTables tables, std::byte* memory) {
    tables.ranges = reinterpret_cast<PixelRange*>(memory);
    tables.weights = reinterpret_cast<float*>(tables.ranges + tables.results);
    return tables;
  }

  UpsamplingProblem problem_;
};

}  // namespace

Preparation prepareLanczosCuda(const UpsamplingProblem& problem) {
  if (problem.direction != UpsamplingDirection::Forward) return Refusal{"a Lanczos scale has no gradient"};
  for (const TensorShape* shape : {&problem.input, &problem.destination})
    if (!ElementGrid::fits(*shape)) return Refusal{ElementGrid::kTooLarge};
  return std::make_shared<const LanczosPlan>(problem);
}

}  // namespace mps::detail
