#include "mps/core/highway_targets.hpp"
#include "mps/core/storage.hpp"
#include "mps/reduction/reduction_problem.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/reduction/reduction_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "mps/core/vector_runs-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// Values that are converted, or reduced beside each other, at a time.
constexpr std::int64_t kStage = 1024;

/// a, or b if that is what the operation takes: a sum, or an extremum through which NaN goes.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V combine(D, ReductionOperation operation, V a, V b) {
  if (operation == ReductionOperation::Min) return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(a)), a, b);
  if (operation == ReductionOperation::Max) return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b);
  return hn::Add(a, b);
}

/// Adjacent elements as float32: where they lie, or converted into `stage`.
HWY_INLINE const float* valuesAt(ImageFeatureChannelFormat format, const std::byte* from, std::int64_t count,
                                 float* stage) {
  if (format == ImageFeatureChannelFormat::Float32) return reinterpret_cast<const float*>(from);
  withElementType(format, [&](auto element) {
    convertToFloats(reinterpret_cast<const decltype(element)*>(from), stage, static_cast<std::size_t>(count));
  });
  return stage;
}

/// sums[i] = combine(sums[i], values[i]), or values[i] at first.
void combineRun(ReductionOperation operation, bool isFirst, const float* values, float* sums,
                std::int64_t count) {
  const hn::ScalableTag<float> d;
  forVectors(d, static_cast<std::size_t>(count), [&](std::size_t i, auto lanes) {
    const auto value = lanes.load(d, values + i);
    lanes.store(d, isFirst ? value : combine(d, operation, lanes.load(d, sums + i), value), sums + i);
  });
}

void scaleRun(float* values, float factor, bool divides, std::int64_t count) {
  const hn::ScalableTag<float> d;
  const auto by = hn::Set(d, factor);
  forVectors(d, static_cast<std::size_t>(count), [&](std::size_t i, auto lanes) {
    const auto value = lanes.load(d, values + i);
    lanes.store(d, divides ? hn::Div(value, by) : hn::Mul(value, by), values + i);
  });
}

/// Reduces `count` adjacent values to one.
float reduceRun(ReductionOperation operation, const float* values, std::int64_t count) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  float result = values[0];
  std::int64_t i = 1;
  if (count >= lanes) {
    auto sum = hn::LoadU(d, values);
    for (i = lanes; i + lanes <= count; i += lanes)
      sum = combine(d, operation, sum, hn::LoadU(d, values + i));
    HWY_ALIGN float parts[hn::MaxLanes(hn::ScalableTag<float>())];
    hn::Store(sum, d, parts);
    result = parts[0];
    const hn::CappedTag<float, 1> one;
    for (std::int64_t k = 1; k < lanes; ++k)
      result = hn::GetLane(combine(one, operation, hn::Set(one, result), hn::Set(one, parts[k])));
  }
  const hn::CappedTag<float, 1> one;
  for (; i < count; ++i)
    result = hn::GetLane(combine(one, operation, hn::Set(one, result), hn::Set(one, values[i])));
  return result;
}

/// Whether `value` is taken in place of `best`, which came before it.
HWY_INLINE bool isBetter(bool isMin, float value, float best) {
  if (std::isnan(best)) return false;
  return std::isnan(value) || (isMin ? value < best : value > best);
}

/// One call's reduction, piece by piece.
class Reducer {
 public:
  Reducer(const ReductionProblem& problem, const Operands& operands)
      : problem_(problem),
        operands_(operands),
        factor_(problem.operation == ReductionOperation::Mean ? static_cast<float>(problem.count())
                                                              : problem.scale),
        divides_(problem.operation == ReductionOperation::Mean),
        isMin_(problem.operation == ReductionOperation::Min ||
               problem.operation == ReductionOperation::ArgumentMin) {}

  /// Pixel (y, x) of image n of the result, channels [begin, begin + count), at most kStage.
  void reducePixel(std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t begin, std::int64_t count) {
    const TensorShape& source = problem_.source;
    const bool overY = problem_.axis != ReductionAxis::Row;
    const bool overX = problem_.axis != ReductionAxis::Column;
    bool isFirst = true;
    for (std::int64_t sourceY = overY ? 0 : y; sourceY < (overY ? source.height : y + 1); ++sourceY)
      for (std::int64_t sourceX = overX ? 0 : x; sourceX < (overX ? source.width : x + 1); ++sourceX) {
        const float* const values =
            valuesAt(source.format, at(operands_.source, source, n, sourceY, sourceX, begin), count, stage_);
        combineRun(problem_.operation, isFirst, values, sums_, count);
        isFirst = false;
      }
    store(at(operands_.destination, problem_.result, n, y, x, begin), count);
  }

  /// Row y of the result of a reduction of channels.
  void reduceChannels(std::int64_t n, std::int64_t y) {
    const TensorShape& source = problem_.source;
    for (std::int64_t x = 0; x < source.width; ++x) {
      float result = 0;
      for (std::int64_t begin = 0; begin < source.channels; begin += kStage) {
        const std::int64_t count = std::min(kStage, source.channels - begin);
        const float* const values =
            valuesAt(source.format, at(operands_.source, source, n, y, x, begin), count, stage_);
        if (isArgument())
          result = argument(values, count, begin, result);
        else if (const float part = reduceRun(problem_.operation, values, count); begin == 0)
          result = part;
        else
          result = combineTwo(result, part);
      }
      sums_[0] = result;
      store(at(operands_.destination, problem_.result, n, y, x, 0), 1);
    }
  }

  /// Row y of the gradient, sums and means: each element takes its share.
  void spread(std::int64_t n, std::int64_t y) {
    const TensorShape& shape = problem_.destination;
    const TensorShape& g = problem_.result;
    const std::int64_t fromY = g.height == 1 ? 0 : y;
    for (std::int64_t x = 0; x < shape.width; ++x)
      for (std::int64_t begin = 0; begin < shape.channels; begin += kStage) {
        const std::int64_t count = std::min(kStage, shape.channels - begin);
        const std::int64_t fromX = g.width == 1 ? 0 : x;
        const bool isOne = problem_.axis == ReductionAxis::FeatureChannels;
        const float* const values =
            valuesAt(g.format, at(operands_.gradient, g, n, fromY, fromX, isOne ? 0 : begin),
                     isOne ? 1 : count, stage_);
        if (isOne)
          std::fill_n(sums_, count, values[0]);
        else
          std::copy_n(values, count, sums_);
        scaleRun(sums_, factor_, divides_, count);
        write(at(operands_.destination, shape, n, y, x, begin), count);
      }
  }

  /// Element by element along the axis, for one result element: where the extremum lies.
  void select(std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t c) {
    const TensorShape& source = problem_.source;
    const bool overX = problem_.axis == ReductionAxis::Row || problem_.axis == ReductionAxis::Spatial;
    const bool overY = problem_.axis == ReductionAxis::Column || problem_.axis == ReductionAxis::Spatial;
    const bool overC = problem_.axis == ReductionAxis::FeatureChannels;
    const auto forEach = [&](auto visit) {
      for (std::int64_t sy = overY ? 0 : y; sy < (overY ? source.height : y + 1); ++sy)
        for (std::int64_t sx = overX ? 0 : x; sx < (overX ? source.width : x + 1); ++sx)
          for (std::int64_t sc = overC ? 0 : c; sc < (overC ? source.channels : c + 1); ++sc)
            visit(sy, sx, sc);
    };
    float best = 0;
    std::int64_t bestY = -1;
    std::int64_t bestX = 0;
    std::int64_t bestC = 0;
    forEach([&](std::int64_t sy, std::int64_t sx, std::int64_t sc) {
      const float value = *valuesAt(source.format, at(operands_.source, source, n, sy, sx, sc), 1, stage_);
      if (bestY >= 0 && !isBetter(isMin_, value, best)) return;
      best = value;
      bestY = sy;
      bestX = sx;
      bestC = sc;
    });
    const float g =
        *valuesAt(problem_.result.format, at(operands_.gradient, problem_.result, n, y, x, c), 1, stage_);
    forEach([&](std::int64_t sy, std::int64_t sx, std::int64_t sc) {
      sums_[0] = sy == bestY && sx == bestX && sc == bestC ? g : 0.0F;
      write(at(operands_.destination, problem_.destination, n, sy, sx, sc), 1);
    });
  }

 private:
  template <class Byte>
  static Byte* at(Byte* memory, const TensorShape& shape, std::int64_t n, std::int64_t y, std::int64_t x,
                  std::int64_t c) {
    return memory + shape.offset(n, y, x, c) * static_cast<std::int64_t>(bytesPerChannel(shape.format));
  }
  [[nodiscard]] bool isArgument() const {
    return problem_.operation == ReductionOperation::ArgumentMin ||
           problem_.operation == ReductionOperation::ArgumentMax;
  }
  [[nodiscard]] float combineTwo(float a, float b) const {
    const hn::CappedTag<float, 1> one;
    return hn::GetLane(combine(one, problem_.operation, hn::Set(one, a), hn::Set(one, b)));
  }
  /// The index of the best so far: of values [begin, begin + count), after those before them.
  float argument(const float* values, std::int64_t count, std::int64_t begin, float before) {
    std::int64_t index = begin == 0 ? 0 : static_cast<std::int64_t>(before);
    if (begin == 0) best_ = values[0];
    for (std::int64_t i = 0; i < count; ++i)
      if (isBetter(isMin_, values[i], best_)) {
        best_ = values[i];
        index = begin + i;
      }
    return static_cast<float>(index);
  }

  /// The sums, finished, into the result.
  void store(std::byte* to, std::int64_t count) {
    if (!problem_.selects() && !isArgument()) scaleRun(sums_, factor_, divides_, count);
    withElementType(problem_.result.format, [&](auto element) {
      convertFromFloats(sums_, reinterpret_cast<decltype(element)*>(to), static_cast<std::size_t>(count));
    });
  }
  /// The same into a gradient.
  void write(std::byte* to, std::int64_t count) {
    if (operands_.accumulate) {
      combineRun(ReductionOperation::Sum, false, sums_, reinterpret_cast<float*>(to), count);
      return;
    }
    withElementType(problem_.destination.format, [&](auto element) {
      convertFromFloats(sums_, reinterpret_cast<decltype(element)*>(to), static_cast<std::size_t>(count));
    });
  }

  const ReductionProblem& problem_;
  const Operands& operands_;
  float factor_;
  bool divides_;
  bool isMin_;
  float best_ = 0;
  alignas(64) float stage_[kStage];
  alignas(64) float sums_[kStage];
};

/// Pieces [begin, end) of a call: of a forward reduction of pixels, pieces of channels of result pixels; else rows.
void reducePieces(const ReductionProblem& problem, const Operands& operands, std::int64_t begin,
                  std::int64_t end) {
  Reducer reducer(problem, operands);
  const bool isForward = problem.direction == ReductionDirection::Forward;
  const bool overChannels = problem.axis == ReductionAxis::FeatureChannels;
  const TensorShape& result = problem.result;
  if (isForward && !overChannels) {
    const std::int64_t parts = (result.channels + kStage - 1) / kStage;
    for (std::int64_t piece = begin; piece < end; ++piece) {
      const std::int64_t pixel = piece / parts;
      const std::int64_t first = piece % parts * kStage;
      const std::int64_t rows = pixel / result.width;
      reducer.reducePixel(rows / result.height, rows % result.height, pixel % result.width, first,
                          std::min(kStage, result.channels - first));
    }
    return;
  }
  const TensorShape& rows = isForward || problem.selects() ? result : problem.destination;
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t n = row / rows.height;
    const std::int64_t y = row % rows.height;
    if (isForward) {
      reducer.reduceChannels(n, y);
    } else if (!problem.selects()) {
      reducer.spread(n, y);
    } else {
      for (std::int64_t x = 0; x < result.width; ++x)
        for (std::int64_t c = 0; c < result.channels; ++c) reducer.select(n, y, x, c);
    }
  }
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <algorithm>
#include <array>

#include "mtl/cpu/stream.hpp"

namespace mps::detail {
namespace {

HWY_EXPORT(reducePieces);

/// Elements below which another thread does not pay.
constexpr std::int64_t kGrain = 16384;
constexpr std::int64_t kChannelsOfPiece = 1024;

class PiecePlan final : public Plan {
 public:
  explicit PiecePlan(const ReductionProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const bool isForward = problem_.direction == ReductionDirection::Forward;
    const TensorShape& result = problem_.result;
    const std::int64_t parts = (result.channels + kChannelsOfPiece - 1) / kChannelsOfPiece;
    const std::int64_t pieces =
        isForward && problem_.axis != ReductionAxis::FeatureChannels ? result.pixels() * parts
        : isForward || problem_.selects()                            ? result.images * result.height
                                          : problem_.destination.images * problem_.destination.height;
    const std::int64_t elements = std::max(problem_.source.elements(), problem_.destination.elements()) /
                                  std::max<std::int64_t>(1, pieces);
    mtl::cpu::asCpu(stream).parallelFor(pieces, kGrain / std::max<std::int64_t>(1, elements) + 1,
                                        [&](std::int64_t begin, std::int64_t end) {
                                          HWY_DYNAMIC_DISPATCH(reducePieces)(problem_, operands, begin, end);
                                        });
  }

  [[nodiscard]] bool canAccumulate() const override {
    return problem_.direction == ReductionDirection::Gradient &&
           problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }

 private:
  ReductionProblem problem_;
};

Preparation preparePieces(const ReductionProblem& problem) {
  return std::make_shared<const PiecePlan>(problem);
}

constexpr std::array<Implementation<ReductionProblem>, 1> kImplementations{{{"vectors", preparePieces}}};

}  // namespace

TensorShape reducedShape(const TensorShape& source, ReductionAxis axis, ImageFeatureChannelFormat format) {
  const bool overX = axis == ReductionAxis::Row || axis == ReductionAxis::Spatial;
  const bool overY = axis == ReductionAxis::Column || axis == ReductionAxis::Spatial;
  return TensorShape::dense(source.images, overY ? 1 : source.height, overX ? 1 : source.width,
                            axis == ReductionAxis::FeatureChannels ? 1 : source.channels, format);
}

std::string ReductionProblem::describe() const {
  const char* const operations[] = {
      "minimum", "maximum", "sum", "mean", "argument of minimum", "argument of maximum"};
  const char* const axes[] = {"rows", "columns", "feature channels", "pixels"};
  const bool isForward = direction == ReductionDirection::Forward;
  return std::string(operations[static_cast<std::size_t>(operation)]) + " of " +
         axes[static_cast<std::size_t>(axis)] + (isForward ? "" : ", gradient") + ", scale " +
         std::to_string(scale) + ", " + source.describe() + (isForward ? " -> " : ", gradient ") +
         result.describe() + (isForward ? "" : " -> " + destination.describe());
}

std::span<const Implementation<ReductionProblem>> reductionImplementationsCpu() {
  return kImplementations;
}

}  // namespace mps::detail

#endif
