#include <cstdint>
#include <memory>

#include "mps/core/element_grid_cuda.cuh"
#include "mps/upsampling/grid_sample_problem.hpp"

namespace mps::detail {
namespace {

using cuda::ElementGrid;
using cuda::ElementPlace;
using cuda::OneByOne;
using cuda::ResultView;
using cuda::SourceView;

struct GridSampleArguments {
  GridSampleProblem problem;
  SourceView source;
  SourceView grid;
  ResultView destination;
};

/// A pack of channels for each thread: they share the grid's position.
template <class Access>
__global__ void sampleByGrid(ElementGrid elements, GridSampleArguments a) {
  constexpr int lanes = Access::lanes;
  elements.template forEachBatch<1, lanes>(
      [](int, const ElementPlace&) {},
      [&](int, const ElementPlace& place) {
        const auto gridAt = [&](std::int32_t channel) {
          return OneByOne::load(a.grid, {place.image, place.y, place.x, channel}).values[0];
        };
        const GridTaps columns =
            gridTaps(a.problem, gridAt(0), place.x, a.problem.source.width, a.problem.offsetX);
        const GridTaps rows =
            gridTaps(a.problem, gridAt(1), place.y, a.problem.source.height, a.problem.offsetY);
        typename Access::Values sum{};
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if (rows.weights[i] == 0) continue;
          typename Access::Values inRow{};
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            if (columns.weights[j] == 0) continue;
            const typename Access::Values from =
                Access::load(a.source, {place.image, static_cast<std::int32_t>(rows.pixels[i]),
                                        static_cast<std::int32_t>(columns.pixels[j]), place.channel});
#pragma unroll
            for (int lane = 0; lane < lanes; ++lane)
              inRow.values[lane] = fmaf(columns.weights[j], from.values[lane], inRow.values[lane]);
          }
#pragma unroll
          for (int lane = 0; lane < lanes; ++lane)
            sum.values[lane] = fmaf(rows.weights[i], inRow.values[lane], sum.values[lane]);
        }
        Access::store(sum, a.destination, place);
      });
}

class GridSamplePlan final : public Plan {
 public:
  explicit GridSamplePlan(const GridSampleProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    if (problem_.destination.elements() == 0) return;
    const GridSampleArguments arguments{problem_, SourceView(problem_.source, operands.source),
                                        SourceView(problem_.grid, operands.secondary),
                                        ResultView(problem_.destination, operands.destination)};
    const bool takesPacks = cuda::takesLanes(problem_.source, operands.source) &&
                            cuda::takesLanes(problem_.destination, operands.destination);
    cuda::withAccess(cuda::commonFormat({&problem_.source, &problem_.destination}), takesPacks,
                     [&](auto access) {
                       using Access = decltype(access);
                       const ElementGrid elements(problem_.destination, Access::lanes, 1);
                       mtl::cuda::launch(stream, sampleByGrid<Access>, elements.grid(), elements.block(), 0,
                                         elements, arguments);
                     });
  }

 private:
  GridSampleProblem problem_;
};

Preparation prepareElements(const GridSampleProblem& problem) {
  for (const TensorShape* shape : {&problem.source, &problem.grid, &problem.destination})
    if (!ElementGrid::fits(*shape)) return Refusal{ElementGrid::kTooLarge};
  return std::make_shared<const GridSamplePlan>(problem);
}

constexpr Implementation<GridSampleProblem> implementations[] = {{"elements", prepareElements}};

}  // namespace

std::span<const Implementation<GridSampleProblem>> gridSampleImplementationsCuda() {
  return implementations;
}

}  // namespace mps::detail
