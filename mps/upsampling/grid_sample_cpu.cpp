#include <memory>

#include "mps/core/storage.hpp"
#include "mps/upsampling/grid_sample_problem.hpp"
#include "mtl/cpu/stream.hpp"

namespace mps::detail {
namespace {

/// Elements below which another thread does not pay.
constexpr std::int64_t kGrain = 4096;

float loadAt(const TensorShape& shape, const std::byte* memory, std::int64_t offset) {
  return withElementType(shape.format, [&](auto element) {
    return loadFloat(reinterpret_cast<const decltype(element)*>(memory) + offset);
  });
}

class PlainGridSample final : public Plan {
 public:
  explicit PlainGridSample(const GridSampleProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const TensorShape& to = problem_.destination;
    const std::int64_t rowElements = std::max<std::int64_t>(1, to.width * to.channels);
    mtl::cpu::asCpu(stream).parallelFor(to.images * to.height, kGrain / rowElements + 1,
                                        [&](std::int64_t begin, std::int64_t end) {
                                          for (std::int64_t row = begin; row < end; ++row)
                                            for (std::int64_t x = 0; x < to.width; ++x)
                                              samplePixel(operands, row / to.height, row % to.height, x);
                                        });
  }

 private:
  void samplePixel(const Operands& operands, std::int64_t n, std::int64_t y, std::int64_t x) const {
    const TensorShape& from = problem_.source;
    const TensorShape& to = problem_.destination;
    const auto gridAt = [&](std::int64_t channel) {
      return loadAt(problem_.grid, operands.secondary, problem_.grid.offset(n, y, x, channel));
    };
    const GridTaps columns = gridTaps(problem_, gridAt(0), x, from.width, problem_.offsetX);
    const GridTaps rows = gridTaps(problem_, gridAt(1), y, from.height, problem_.offsetY);
    withElementType(from.format, [&](auto source) {
      withElementType(to.format, [&](auto result) {
        const auto* const read = reinterpret_cast<const decltype(source)*>(operands.source);
        auto* const written =
            reinterpret_cast<decltype(result)*>(operands.destination) + to.offset(n, y, x, 0);
        for (std::int64_t c = 0; c < to.channels; ++c) {
          float sum = 0;
          for (int i = 0; i < 2; ++i) {
            if (rows.weights[i] == 0) continue;
            float inRow = 0;
            for (int j = 0; j < 2; ++j)
              if (columns.weights[j] != 0)
                inRow += columns.weights[j] *
                         loadFloat(read + from.offset(n, rows.pixels[i], columns.pixels[j], c));
            sum += rows.weights[i] * inRow;
          }
          storeFloat(sum, written + c);
        }
      });
    });
  }

  GridSampleProblem problem_;
};

Preparation preparePlain(const GridSampleProblem& problem) {
  return std::make_shared<const PlainGridSample>(problem);
}

constexpr Implementation<GridSampleProblem> implementations[] = {{"plain", preparePlain}};

}  // namespace

std::string GridSampleProblem::describe() const {
  return std::string("grid sample, ") + (usesGridAsCoordinates ? "coordinates" : "displacements") +
         (edgeMode == ImageEdgeMode::Clamp ? ", clamped edges" : ", zero edges") + ", offset " +
         std::to_string(offsetX) + "," + std::to_string(offsetY) + ", " + source.describe() + " by " +
         grid.describe() + " -> " + destination.describe();
}

std::span<const Implementation<GridSampleProblem>> gridSampleImplementationsCpu() {
  return implementations;
}

}  // namespace mps::detail
