#include "mps/core/highway_targets.hpp"
#include "mps/upsampling/grid_sample_problem.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/upsampling/grid_sample_cpu.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <array>

#include "mps/core/vector_runs-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// The source pixels of weights that are not 0 around a position, in up to two rows of up to two.
template <class T>
struct PixelsAround {
  std::size_t rows = 0;
  std::size_t columns = 0;
  const T* pixels[2][2] = {};
  float rowWeights[2] = {};
  float columnWeights[2] = {};

  /// @param image of the source
  void set(const GridTaps& rowTaps, const GridTaps& columnTaps, const TensorShape& source, const T* image) {
    const bool hasAll = (rowTaps.weights[0] != 0) & (rowTaps.weights[1] != 0) & (columnTaps.weights[0] != 0) &
                        (columnTaps.weights[1] != 0);
    if (hasAll)
      takeAll(rowTaps, columnTaps, source, image);
    else
      takeSome(rowTaps, columnTaps, source, image);
  }

  /// Most positions have four: nothing here depends on the weights, which the processor could not foresee.
  void takeAll(const GridTaps& rowTaps, const GridTaps& columnTaps, const TensorShape& source,
               const T* image) {
    rows = columns = 2;
    for (std::size_t i = 0; i < 2; ++i) {
      rowWeights[i] = rowTaps.weights[i];
      columnWeights[i] = columnTaps.weights[i];
      for (std::size_t j = 0; j < 2; ++j)
        pixels[i][j] =
            image + rowTaps.pixels[i] * source.rowStride + columnTaps.pixels[j] * source.pixelStride;
    }
  }

  void takeSome(const GridTaps& rowTaps, const GridTaps& columnTaps, const TensorShape& source,
                const T* image) {
    rows = columns = 0;
    for (int j = 0; j < 2; ++j)
      if (columnTaps.weights[j] != 0) columnWeights[columns++] = columnTaps.weights[j];
    for (int i = 0; i < 2; ++i) {
      if (rowTaps.weights[i] == 0) continue;
      std::size_t column = 0;
      for (int j = 0; j < 2; ++j)
        if (columnTaps.weights[j] != 0)
          pixels[rows][column++] =
              image + rowTaps.pixels[i] * source.rowStride + columnTaps.pixels[j] * source.pixelStride;
      rowWeights[rows++] = rowTaps.weights[i];
    }
  }

  /// Neighbours of the destination may lie anywhere in the source, which the processor does not foresee.
  void prefetch(std::size_t channels) const {
    constexpr std::size_t line = 64 / sizeof(T);
    constexpr std::size_t most = 4 * line;
    for (std::size_t c = 0; c < std::min(channels, most); c += line)
      for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t j = 0; j < columns; ++j) hwy::Prefetch(pixels[i][j] + c);
  }
};

/// The weighted sum of the channels of four pixels, as most positions have.
template <class T>
HWY_INLINE void sumFourPixels(const PixelsAround<T>& around, FloatRun to, std::size_t channels) {
  const hn::ScalableTag<float> d;
  const auto left = hn::Set(d, around.columnWeights[0]);
  const auto right = hn::Set(d, around.columnWeights[1]);
  const auto upper = hn::Set(d, around.rowWeights[0]);
  const auto lower = hn::Set(d, around.rowWeights[1]);
  const T* const upperLeft = around.pixels[0][0];
  const T* const upperRight = around.pixels[0][1];
  const T* const lowerLeft = around.pixels[1][0];
  const T* const lowerRight = around.pixels[1][1];
  // Inlined, so that the weights stay in registers.
  forVectors(
      d, channels, [&](std::size_t c, auto lanes) HWY_ATTR __attribute__((always_inline)) {
        const auto at = [&](const T* pixel) HWY_ATTR { return lanes.load(d, ConstFloatRun(pixel + c)); };
        const auto above = hn::MulAdd(right, at(upperRight), hn::Mul(left, at(upperLeft)));
        const auto below = hn::MulAdd(right, at(lowerRight), hn::Mul(left, at(lowerLeft)));
        lanes.store(d, hn::MulAdd(lower, below, hn::Mul(upper, above)), to + c);
      });
}

/// The weighted sum of the channels of the pixels.
template <class T>
void sumPixelsAround(const PixelsAround<T>& around, FloatRun to, std::size_t channels) {
  const hn::ScalableTag<float> d;
  if (around.rows == 2 && around.columns == 2) return sumFourPixels(around, to, channels);
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

/// Row y of image n of the destination; T is the type of the source.
template <class T>
void sampleRowOf(const GridSampleProblem& problem, const Operands& operands, std::int64_t n, std::int64_t y) {
  const TensorShape& from = problem.source;
  const TensorShape& to = problem.destination;
  const auto withType = [](const TensorShape& shape, auto use) {
    return shape.format == ImageFeatureChannelFormat::Float16 ? use(Float16{}) : use(0.0F);
  };
  const auto channels = static_cast<std::size_t>(to.channels);
  const T* const image = reinterpret_cast<const T*>(operands.source) + from.offset(n, 0, 0, 0);
  const auto look = [&](std::int64_t x, PixelsAround<T>& around) HWY_ATTR {
    const auto gridAt = [&](std::int64_t channel) HWY_ATTR {
      return withType(problem.grid, [&](auto element) HWY_ATTR {
        const hn::CappedTag<float, 1> one;
        const auto* const grid = reinterpret_cast<const decltype(element)*>(operands.secondary);
        return hn::GetLane(AllLanes{}.load(one, ConstFloatRun(grid + problem.grid.offset(n, y, x, channel))));
      });
    };
    const GridTaps columns = gridTaps(problem, gridAt(0), x, from.width, problem.offsetX);
    const GridTaps rows = gridTaps(problem, gridAt(1), y, from.height, problem.offsetY);
    around.set(rows, columns, from, image);
    around.prefetch(channels);
  };
  std::array<PixelsAround<T>, 8> together;
  const auto most = static_cast<std::int64_t>(together.size());
  for (std::int64_t first = 0; first < to.width; first += most) {
    const std::int64_t last = std::min(first + most, to.width);
    for (std::int64_t x = first; x < last; ++x) look(x, together[static_cast<std::size_t>(x - first)]);
    for (std::int64_t x = first; x < last; ++x) {
      const FloatRun written = withType(to, [&](auto element) {
        return FloatRun(reinterpret_cast<decltype(element)*>(operands.destination) + to.offset(n, y, x, 0));
      });
      sumPixelsAround(together[static_cast<std::size_t>(x - first)], written, channels);
    }
  }
}

/// All tensors are float16 or float32.
void sampleGridRow(const GridSampleProblem& problem, const Operands& operands, std::int64_t n,
                   std::int64_t y) {
  if (problem.source.format == ImageFeatureChannelFormat::Float16)
    return sampleRowOf<Float16>(problem, operands, n, y);
  sampleRowOf<float>(problem, operands, n, y);
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
