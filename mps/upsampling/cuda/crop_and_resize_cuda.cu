#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>

#include "mps/core/plan/fallback_plan.hpp"
#include "mps/upsampling/crop_and_resize_problem.hpp"
#include "mps/upsampling/cuda/upsampling_forward_cuda.cuh"

namespace mps::detail {
namespace {

using cuda::Samples;
using cuda::UpsamplingArguments;

/// What the axes of all regions are made of, region by region.
struct RegionTables {
  Samples* columns = nullptr;
  Samples* rows = nullptr;
  std::int32_t width = 0;
  std::int32_t height = 0;
};

struct RegionArguments {
  static constexpr std::size_t most = 32;  ///< regions that fit into the arguments of a launch
  ImageEdgeMode edgeMode;
  RegionTables tables;  ///< that begin at the first region
  CropAndResizeProblem::Region regions[most];
};

/// One thread for each result column or row of a region; blockIdx.y is the axis, blockIdx.z the region.
__global__ void fillRegions(const __grid_constant__ RegionArguments a) {
  const bool isX = blockIdx.y == 0;
  const UpsamplingAxis& axis = isX ? a.regions[blockIdx.z].x : a.regions[blockIdx.z].y;
  const std::int32_t count = isX ? a.tables.width : a.tables.height;
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= count) return;
  const UpsamplingSamples samples =
      upsamplingSamples(UpsamplingSampling::BilinearRegion, a.edgeMode, axis, at);
  Samples* const to =
      (isX ? a.tables.columns : a.tables.rows) + static_cast<std::int64_t>(blockIdx.z) * count;
  to[at] = {static_cast<std::int32_t>(samples.first), static_cast<std::int32_t>(samples.second),
            static_cast<float>(samples.firstWeight), static_cast<float>(samples.secondWeight)};
}

/// The axes of a result, which is a region of an image.
struct RegionAxes {
  RegionTables tables;
  cuda::Divider regions;

  [[nodiscard]] __device__ cuda::ImageAxes of(std::int32_t image) const {
    const std::uint32_t source = regions.divide(static_cast<std::uint32_t>(image));
    const std::int64_t region = image - static_cast<std::int32_t>(source * regions.divisor());
    return {tables.columns + region * tables.width, tables.rows + region * tables.height,
            static_cast<std::int32_t>(source)};
  }
};

class RegionPlan final : public AccessPlan {
 public:
  explicit RegionPlan(const CropAndResizeProblem& problem) : problem_(problem) {}

  [[nodiscard]] std::size_t scratchBytes() const override {
    return problem_.regions.size() *
           static_cast<std::size_t>(problem_.destination.width + problem_.destination.height) *
           sizeof(Samples);
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    if (problem_.destination.elements() == 0) return;
    const auto count = static_cast<std::int64_t>(problem_.regions.size());
    RegionTables tables;
    tables.width = static_cast<std::int32_t>(problem_.destination.width);
    tables.height = static_cast<std::int32_t>(problem_.destination.height);
    tables.columns = reinterpret_cast<Samples*>(operands.scratch);
    tables.rows = tables.columns + count * tables.width;
    fill(stream, tables);
    cuda::withAccess(vectorFormat(),
                     [&](auto access) { runPixels<decltype(access)>(stream, operands, tables); });
  }

 protected:
  [[nodiscard]] AccessedTensors accessed(const Operands& operands) const override {
    return {{{problem_.input, operands.source}, {problem_.destination, operands.destination}}};
  }

 private:
  void fill(mtl::Stream& stream, RegionTables tables) const {
    const auto longest = std::max<std::int64_t>(tables.width, tables.height);
    for (auto left = std::span(problem_.regions); !left.empty();) {
      const std::size_t count = std::min(left.size(), RegionArguments::most);
      RegionArguments a{problem_.edgeMode, tables, {}};
      std::copy_n(left.begin(), count, a.regions);
      mtl::cuda::launch(stream, fillRegions,
                        dim3(mtl::cuda::blocksFor(longest), 2, static_cast<unsigned>(count)),
                        dim3(mtl::cuda::kBlockThreads), 0, a);
      left = left.subspan(count);
      tables.columns += static_cast<std::int64_t>(count) * tables.width;
      tables.rows += static_cast<std::int64_t>(count) * tables.height;
    }
  }
  /// As many sources at once as a grid takes.
  template <class Access>
  void runPixels(mtl::Stream& stream, const Operands& operands, const RegionTables& tables) const {
    const auto count = static_cast<std::int64_t>(problem_.regions.size());
    TensorShape input = problem_.input;
    TensorShape results = problem_.destination;
    input.images = 1;
    results.images = count;
    const std::int64_t most =
        std::min(UpsamplingArguments::mostTimes(input), UpsamplingArguments::mostTimes(results));
    for (std::int64_t first = 0; first < problem_.input.images; first += most) {
      input.images = std::min(most, problem_.input.images - first);
      results.images = input.images * count;
      UpsamplingArguments a;
      a.input = {input, operands.source + first * bytesOfImage(input)};
      a.destination = {results, operands.destination + first * count * bytesOfImage(results)};
      a.rowsFollow = rowsFollow();
      cuda::launchUpsample<Access>(stream, a, results, RegionAxes{tables, cuda::Divider(count)});
    }
  }
  [[nodiscard]] bool rowsFollow() const {
    return std::all_of(problem_.regions.begin(), problem_.regions.end(),
                       [](const auto& region) { return region.y.step >= 0 && region.y.step <= 2; });
  }

  CropAndResizeProblem problem_;
};

Preparation prepareRegions(const CropAndResizeProblem& problem) {
  TensorShape input = problem.input;
  TensorShape results = problem.destination;
  input.images = 1;
  results.images = static_cast<std::int64_t>(problem.regions.size());
  for (const TensorShape& shape : {input, results})
    if (!cuda::ElementGrid::fits(shape) || !UpsamplingArguments::fits(shape))
      return Refusal{cuda::ElementGrid::kTooLarge};
  return std::make_shared<const RegionPlan>(problem);
}

constexpr Implementation<CropAndResizeProblem> kElements{"thread per element", prepareRegions};

constexpr Implementation<CropAndResizeProblem> implementations[] = {
    {"16 bytes per thread", prepareVectors<RegionPlan, kElements>}, kElements};

}  // namespace

std::span<const Implementation<CropAndResizeProblem>> cropAndResizeImplementationsCuda() {
  return implementations;
}

}  // namespace mps::detail
