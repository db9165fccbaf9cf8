#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>

#include "mps/upsampling/crop_and_resize_problem.hpp"
#include "mps/upsampling/upsampling_pixels_cuda.cuh"

namespace mps::detail {
namespace {

using cuda::kStripThreads;
using cuda::Samples;
using cuda::UpsamplingArguments;

/// Axes of some regions, one for each image of a launch.
struct RegionAxes {
  static constexpr std::size_t most = 96;  ///< that fit into the arguments of a launch
  struct Region {
    double startX, stepX, startY, stepY;
  };
  ImageEdgeMode edgeMode;
  UpsamplingAxis x;  ///< but for start and step
  UpsamplingAxis y;
  Region regions[most];

  [[nodiscard]] __device__ Samples column(std::int32_t image, std::int32_t at) const {
    return samplesOf(x, regions[image].startX, regions[image].stepX, at);
  }
  [[nodiscard]] __device__ Samples row(std::int32_t image, std::int32_t at) const {
    return samplesOf(y, regions[image].startY, regions[image].stepY, at);
  }

 private:
  [[nodiscard]] __device__ Samples samplesOf(UpsamplingAxis axis, double start, double step,
                                             std::int32_t at) const {
    axis.start = start;
    axis.step = step;
    const UpsamplingSamples samples =
        upsamplingSamples(UpsamplingSampling::BilinearRegion, edgeMode, axis, at);
    return {static_cast<std::int32_t>(samples.first), static_cast<std::int32_t>(samples.second),
            static_cast<float>(samples.firstWeight), static_cast<float>(samples.secondWeight)};
  }
};

/// As many images at once as a launch has room for.
class RegionPlan final : public Plan {
 public:
  explicit RegionPlan(const CropAndResizeProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    if (problem_.destination.elements() == 0) return;
    const bool takesPacks = cuda::takesLanes(problem_.input, operands.source) &&
                            cuda::takesLanes(problem_.destination, operands.destination);
    cuda::withAccess(cuda::commonFormat({&problem_.input, &problem_.destination}), takesPacks,
                     [&](auto access) { runPixels<decltype(access)>(stream, operands); });
  }

 private:
  template <class Access>
  void runPixels(mtl::Stream& stream, const Operands& operands) const {
    for (std::size_t first = 0, end = 0; first < problem_.regions.size(); first = end) {
      const CropAndResizeProblem::Region& same = problem_.regions[first];
      for (end = first + 1; end < problem_.regions.size() && end - first < RegionAxes::most &&
                            goOn(same.x, problem_.regions[end].x) && goOn(same.y, problem_.regions[end].y);)
        ++end;
      const auto regions = std::span(problem_.regions).subspan(first, end - first);
      RegionAxes axes{problem_.edgeMode, same.x, same.y, {}};
      std::transform(regions.begin(), regions.end(), axes.regions, [](const auto& region) {
        return RegionAxes::Region{region.x.start, region.x.step, region.y.start, region.y.step};
      });
      const auto before = static_cast<std::int64_t>(first);
      TensorShape destination = problem_.destination;
      destination.images = static_cast<std::int64_t>(regions.size());
      UpsamplingArguments a;
      a.input = {problem_.input, operands.source + before * bytesOfImage(problem_.input)};
      a.destination = {destination, operands.destination + before * bytesOfImage(destination)};
      const std::int64_t packs = destination.channels / Access::lanes;
      a.setGrid(destination, destination.width * packs, packs);
      mtl::cuda::launch(stream, cuda::upsample<Access, RegionAxes>,
                        dim3(mtl::cuda::blocksFor(a.items, kStripThreads)), dim3(kStripThreads), 0, a, axes);
    }
  }

  /// Whether axes differ in their positions alone.
  static bool goOn(const UpsamplingAxis& axis, UpsamplingAxis other) {
    other.start = axis.start;
    other.step = axis.step;
    return axis == other;
  }

  CropAndResizeProblem problem_;
};

Preparation prepareRegions(const CropAndResizeProblem& problem) {
  for (const TensorShape* shape : {&problem.input, &problem.destination})
    if (!cuda::ElementGrid::fits(*shape) || !UpsamplingArguments::fits(*shape))
      return Refusal{cuda::ElementGrid::kTooLarge};
  return std::make_shared<const RegionPlan>(problem);
}

constexpr Implementation<CropAndResizeProblem> implementations[] = {{"regions", prepareRegions}};

}  // namespace

std::span<const Implementation<CropAndResizeProblem>> cropAndResizeImplementationsCuda() {
  return implementations;
}

}  // namespace mps::detail
