#include <cstdint>
#include <memory>

#include "mps/core/cuda/element_grid_cuda.cuh"
#include "mps/core/plan/fallback_plan.hpp"
#include "mps/upsampling/cuda/upsampling_cuda.cuh"
#include "mps/upsampling/grid_sample_problem.hpp"

namespace mps::detail {
namespace {

using cuda::addWeighted;
using cuda::Divider;
using cuda::ElementGrid;
using cuda::ElementPlace;
using cuda::OneByOne;
using cuda::ResultView;
using cuda::SourceView;

constexpr unsigned kThreads = mtl::cuda::kBlockThreads;
constexpr std::int64_t kMostChannels = std::int64_t{1} << 23;
constexpr std::uint32_t kPixels = kThreads / 2;  ///< of a block: a thread for each of both axes

struct GridSampleArguments {
  GridSampleProblem problem;
  SourceView source;
  SourceView grid;
  ResultView destination;
  Divider width, height;
  Divider pixel;  ///< threads of one
  std::uint32_t pixels = 0;

  /// A pixel of the destination, counted through all images.
  [[nodiscard]] __device__ ElementPlace placeOf(std::uint32_t pixel) const {
    const std::uint32_t row = width.divide(pixel);
    const std::uint32_t image = height.divide(row);
    return {static_cast<std::int32_t>(image), static_cast<std::int32_t>(row - image * height.divisor()),
            static_cast<std::int32_t>(pixel - row * width.divisor()), 0};
  }
};

/// GridTaps as threads hand them on.
struct alignas(16) SharedTaps {
  std::int32_t pixels[2];
  float weights[2];
};

/// The positions of some pixels first, which take long, then their channels.
template <class Access>
__global__ void __launch_bounds__(kThreads) sampleByGrid(const __grid_constant__ GridSampleArguments a) {
  using Values = typename Access::Values;
  __shared__ SharedTaps shared[kThreads];  // [pixel][axis]
  const std::uint32_t first = blockIdx.x * kPixels;
  const std::uint32_t count = min(kPixels, a.pixels - first);
  if (threadIdx.x < 2 * count) {
    const bool isX = threadIdx.x % 2 == 0;
    ElementPlace place = a.placeOf(first + threadIdx.x / 2);
    place.channel = isX ? 0 : 1;
    const GridTaps taps = gridTaps(
        a.problem, OneByOne::load(a.grid, place).values[0], isX ? place.x : place.y,
        isX ? a.problem.source.width : a.problem.source.height, isX ? a.problem.offsetX : a.problem.offsetY);
    shared[threadIdx.x] = {
        {static_cast<std::int32_t>(taps.pixels[0]), static_cast<std::int32_t>(taps.pixels[1])},
        {taps.weights[0], taps.weights[1]}};
  }
  __syncthreads();
  for (std::uint32_t item = threadIdx.x; item < count * a.pixel.divisor(); item += kThreads) {
    const std::uint32_t pixel = a.pixel.divide(item);
    ElementPlace place = a.placeOf(first + pixel);
    place.channel = static_cast<std::int32_t>(item - pixel * a.pixel.divisor()) * Access::lanes;
    const SharedTaps columns = shared[2 * pixel];
    const SharedTaps rows = shared[2 * pixel + 1];
    typename Access::Fetched fetched[2][2];
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < 2; ++j)
        if (rows.weights[i] != 0 && columns.weights[j] != 0)
          fetched[i][j] =
              Access::fetch(a.source, {place.image, rows.pixels[i], columns.pixels[j], place.channel});
    Values sum{};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (rows.weights[i] == 0) continue;
      Values inRow{};
#pragma unroll
      for (int j = 0; j < 2; ++j)
        if (columns.weights[j] != 0) addWeighted(inRow, columns.weights[j], Access::valuesOf(fetched[i][j]));
      addWeighted(sum, rows.weights[i], inRow);
    }
    Access::store(sum, a.destination, place);
  }
}

class GridSamplePlan final : public AccessPlan {
 public:
  explicit GridSamplePlan(const GridSampleProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    if (problem_.destination.elements() == 0) return;
    const TensorShape& shape = problem_.destination;
    GridSampleArguments a{problem_,
                          SourceView(problem_.source, operands.source),
                          SourceView(problem_.grid, operands.secondary),
                          ResultView(shape, operands.destination),
                          Divider(shape.width),
                          Divider(shape.height),
                          Divider(1),
                          static_cast<std::uint32_t>(shape.pixels())};
    cuda::withAccess(vectorFormat(), [&](auto access) {
      using Access = decltype(access);
      a.pixel = Divider(shape.channels / Access::lanes);
      mtl::cuda::launch(stream, sampleByGrid<Access>, dim3(mtl::cuda::blocksFor(shape.pixels(), kPixels)),
                        dim3(kThreads), 0, a);
    });
  }

 protected:
  [[nodiscard]] AccessedTensors accessed(const Operands& operands) const override {
    return {{{problem_.source, operands.source}, {problem_.destination, operands.destination}}};
  }

 private:
  GridSampleProblem problem_;
};

Preparation prepareElements(const GridSampleProblem& problem) {
  for (const TensorShape* shape : {&problem.source, &problem.grid, &problem.destination})
    if (shape->pixelStride > 0x7FFFFFFF || shape->pixels() > ElementGrid::kLongestRow ||
        shape->channels > kMostChannels)
      return Refusal{"about 2^31 pixels, or 2^23 feature channels"};
  return std::make_shared<const GridSamplePlan>(problem);
}

constexpr Implementation<GridSampleProblem> kElements{"thread per element", prepareElements};

constexpr Implementation<GridSampleProblem> implementations[] = {
    {"16 bytes per thread", prepareVectors<GridSamplePlan, kElements>}, kElements};

}  // namespace

std::span<const Implementation<GridSampleProblem>> gridSampleImplementationsCuda() {
  return implementations;
}

}  // namespace mps::detail
