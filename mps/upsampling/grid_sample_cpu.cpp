#include "mps/core/highway_targets.hpp"
#include "mps/upsampling/grid_sample_problem.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/upsampling/grid_sample_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/core/vector_runs-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// The source pixels of weights that are not 0 around a position, in up to two rows of up to two.
template <class T>
struct PixelsAround {
  std::size_t rows = 0;
  std::size_t columns = 0;
  const T* pixels[2][2];
  float rowWeights[2];
  float columnWeights[2];

  PixelsAround(const GridTaps& rowTaps, const GridTaps& columnTaps, const TensorShape& source,
               const std::byte* memory, std::int64_t n) {
    for (int j = 0; j < 2; ++j)
      if (columnTaps.weights[j] != 0) columnWeights[columns++] = columnTaps.weights[j];
    for (int i = 0; i < 2; ++i) {
      if (rowTaps.weights[i] == 0) continue;
      std::size_t column = 0;
      for (int j = 0; j < 2; ++j)
        if (columnTaps.weights[j] != 0)
          pixels[rows][column++] = reinterpret_cast<const T*>(memory) +
                                   source.offset(n, rowTaps.pixels[i], columnTaps.pixels[j], 0);
      rowWeights[rows++] = rowTaps.weights[i];
    }
  }
};

/// The weighted sum of the channels of the pixels.
template <class T>
void sumPixelsAround(const PixelsAround<T>& around, FloatRun to, std::size_t channels) {
  const hn::ScalableTag<float> d;
  forVectors(d, channels, [&](std::size_t c, auto lanes) {
    auto sum = hn::Zero(d);
    for (std::size_t i = 0; i < around.rows; ++i) {
      auto inRow = hn::Zero(d);
      for (std::size_t j = 0; j < around.columns; ++j)
        inRow = hn::Add(inRow, hn::Mul(hn::Set(d, around.columnWeights[j]),
                                       lanes.load(d, ConstFloatRun(around.pixels[i][j] + c))));
      sum = hn::Add(sum, hn::Mul(hn::Set(d, around.rowWeights[i]), inRow));
    }
    lanes.store(d, sum, to + c);
  });
}

/// Row y of image n of the destination; all tensors are float16 or float32.
void sampleGridRow(const GridSampleProblem& problem, const Operands& operands, std::int64_t n,
                   std::int64_t y) {
  const TensorShape& from = problem.source;
  const TensorShape& to = problem.destination;
  const auto withType = [](const TensorShape& shape, auto use) {
    return shape.format == ImageFeatureChannelFormat::Float16 ? use(Float16{}) : use(0.0F);
  };
  for (std::int64_t x = 0; x < to.width; ++x) {
    const auto gridAt = [&](std::int64_t channel) {
      return withType(problem.grid, [&](auto element) {
        return loadFloat(reinterpret_cast<const decltype(element)*>(operands.secondary) +
                         problem.grid.offset(n, y, x, channel));
      });
    };
    const GridTaps columns = gridTaps(problem, gridAt(0), x, from.width, problem.offsetX);
    const GridTaps rows = gridTaps(problem, gridAt(1), y, from.height, problem.offsetY);
    const FloatRun written = withType(to, [&](auto element) {
      return FloatRun(reinterpret_cast<decltype(element)*>(operands.destination) + to.offset(n, y, x, 0));
    });
    withType(from, [&](auto element) {
      const PixelsAround<decltype(element)> around(rows, columns, from, operands.source, n);
      sumPixelsAround(around, written, static_cast<std::size_t>(to.channels));
    });
  }
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <memory>

#include "mps/core/storage.hpp"
#include "mtl/cpu/stream.hpp"

namespace mps::detail {
namespace {

HWY_EXPORT(sampleGridRow);

/// Row by row of the destination.
class GridSamplePlan : public Plan {
 public:
  explicit GridSamplePlan(const GridSampleProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const TensorShape& to = problem_.destination;
    const std::int64_t rowElements = std::max<std::int64_t>(1, to.width * to.channels);
    mtl::cpu::asCpu(stream).parallelFor(to.images * to.height, kGrain / rowElements + 1,
                                        [&](std::int64_t begin, std::int64_t end) {
                                          for (std::int64_t row = begin; row < end; ++row)
                                            sampleRow(operands, row / to.height, row % to.height);
                                        });
  }

 protected:
  virtual void sampleRow(const Operands& operands, std::int64_t n, std::int64_t y) const = 0;
  [[nodiscard]] const GridSampleProblem& problem() const { return problem_; }

 private:
  /// Elements below which another thread does not pay.
  static constexpr std::int64_t kGrain = 4096;
  GridSampleProblem problem_;
};

class VectorGridSample final : public GridSamplePlan {
  using GridSamplePlan::GridSamplePlan;
  void sampleRow(const Operands& operands, std::int64_t n, std::int64_t y) const override {
    HWY_DYNAMIC_DISPATCH(sampleGridRow)(problem(), operands, n, y);
  }
};

float loadAt(const TensorShape& shape, const std::byte* memory, std::int64_t offset) {
  return withElementType(shape.format, [&](auto element) {
    return loadFloat(reinterpret_cast<const decltype(element)*>(memory) + offset);
  });
}

/// Element by element, for all formats.
class PlainGridSample final : public GridSamplePlan {
  using GridSamplePlan::GridSamplePlan;
  void sampleRow(const Operands& operands, std::int64_t n, std::int64_t y) const override {
    for (std::int64_t x = 0; x < problem().destination.width; ++x) samplePixel(operands, n, y, x);
  }

  void samplePixel(const Operands& operands, std::int64_t n, std::int64_t y, std::int64_t x) const {
    const TensorShape& from = problem().source;
    const TensorShape& to = problem().destination;
    const auto gridAt = [&](std::int64_t channel) {
      return loadAt(problem().grid, operands.secondary, problem().grid.offset(n, y, x, channel));
    };
    const GridTaps columns = gridTaps(problem(), gridAt(0), x, from.width, problem().offsetX);
    const GridTaps rows = gridTaps(problem(), gridAt(1), y, from.height, problem().offsetY);
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
};

Preparation preparePlain(const GridSampleProblem& problem) {
  return std::make_shared<const PlainGridSample>(problem);
}

Preparation prepareVectors(const GridSampleProblem& problem) {
  using Format = ImageFeatureChannelFormat;
  for (const TensorShape* shape : {&problem.source, &problem.grid, &problem.destination})
    if (shape->format != Format::Float16 && shape->format != Format::Float32)
      return Refusal{std::string("the format is ") + name(shape->format)};
  return std::make_shared<const VectorGridSample>(problem);
}

constexpr Implementation<GridSampleProblem> implementations[] = {{"vectors", prepareVectors},
                                                                 {"plain", preparePlain}};

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

#endif  // HWY_ONCE
