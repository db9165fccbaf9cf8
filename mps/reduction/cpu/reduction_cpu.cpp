#include "mps/core/cpu/highway_targets.hpp"
#include "mps/core/cpu/non_temporal_stores.hpp"
#include "mps/core/types/storage.hpp"
#include "mps/reduction/reduction_problem.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/reduction/cpu/reduction_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "mps/reduction/cpu/reduction_vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// Values that are converted, or reduced beside each other, at a time.
constexpr std::int64_t kStage = 1024;

/// One call's reduction, piece by piece.
class Reducer {
 public:
  Reducer(const ReductionProblem& problem, const Operands& operands, bool streams)
      : problem_(problem),
        operands_(operands),
        traits_(traitsOf(problem.operation)),
        factor_(problem.factor()),
        streams_(streams) {}

  /// Pixel (y, x) of image n of the result, channels [begin, begin + count), at most kStage.
  void reducePixel(std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t begin, std::int64_t count) {
    const TensorShape& source = problem_.source;
    withElementType(source.format, [&](auto element) {
      // The result's coordinates on reduced axes are 0.
      const auto* const from = at<decltype(element)>(operands_.source, source, n, y, x, begin);
      withTaken(problem_.operation, [&](auto take) {
        reducePixels(take, gridOf(source), from, static_cast<std::size_t>(count), values_);
      });
    });
    store(n, y, x, begin, 0, count);
  }

  /// Row y of the result of a reduction of channels.
  void reduceRow(std::int64_t n, std::int64_t y) {
    const TensorShape& source = problem_.source;
    const TensorShape& result = problem_.result;
    const auto channels = static_cast<std::size_t>(source.channels);
    for (std::int64_t first = 0; first < source.width; first += kStage) {
      const std::int64_t count = std::min(kStage, source.width - first);
      withElementType(source.format, [&](auto element) {
        const auto* const from = at<decltype(element)>(operands_.source, source, n, y, first, 0);
        if (traits_.isArgument)
          withExtremum(problem_.operation, [&](auto take) {
            for (std::int64_t x = 0; x < count; ++x)
              values_[x] = static_cast<float>(findChannel(take, from + x * source.pixelStride, channels));
          });
        else
          withTaken(problem_.operation, [&](auto take) {
            const hn::ScalableTag<float> d;
            const auto row = [&](std::size_t x) HWY_ATTR {
              return reduceChannels(take, from + static_cast<std::int64_t>(x) * source.pixelStride, channels);
            };
            const auto both = [&](auto a, auto b) HWY_ATTR { return take(d, a, b); };
            reduceRows(d, static_cast<std::size_t>(count), row, both, values_);
          });
      });
      const std::int64_t run = result.pixelStride == 1 ? count : 1;
      for (std::int64_t x = 0; x < count; x += run) store(n, y, first + x, 0, x, run);
    }
  }

  /// Row y of the gradient, sums and means: each element takes its share.
  void spread(std::int64_t n, std::int64_t y) {
    const TensorShape& shape = problem_.destination;
    const TensorShape& g = problem_.result;
    const std::int64_t fromY = g.height == 1 ? 0 : y;
    if (problem_.axis == ReductionAxis::FeatureChannels) return spreadToChannels(n, y);
    const bool isColumn = problem_.axis == ReductionAxis::Column;
    const bool isJoined = isColumn && g.pixelStride == g.channels && shape.pixelStride == shape.channels;
    const std::int64_t channels = isJoined ? shape.width * shape.channels : shape.channels;
    const PixelGrid grid{1, isColumn ? 1 : shape.width, 0, shape.pixelStride};
    for (std::int64_t x = 0; x < (isColumn && !isJoined ? shape.width : 1); ++x)
      for (std::int64_t begin = 0; begin < channels; begin += kStage) {
        const std::int64_t count = std::min(kStage, channels - begin);
        loadGradient(n, fromY, x, begin, count);
        scaleRun(values_, factor_, traits_.divides, count);
        withFloatType(shape.format, [&](auto element) {
          copyToPixels(grid, values_, static_cast<std::size_t>(count), operands_.accumulate, streams_,
                       at<decltype(element)>(operands_.destination, shape, n, y, x, begin));
        });
      }
  }

  /// The gradient of an extremum of pixels, for channels of one result pixel.
  void selectPixels(std::int64_t n, std::int64_t y, std::int64_t x) {
    const TensorShape& source = problem_.source;
    const TensorShape& shape = problem_.destination;
    for (std::int64_t begin = 0; begin < shape.channels; begin += kStage) {
      const std::int64_t count = std::min(kStage, shape.channels - begin);
      withElementType(source.format, [&](auto element) {
        withExtremum(problem_.operation, [&](auto take) {
          findPixels(take, gridOf(source), at<decltype(element)>(operands_.source, source, n, y, x, begin),
                     static_cast<std::size_t>(count), numbers_);
        });
      });
      loadGradient(n, y, x, begin, count);
      withFloatType(shape.format, [&](auto element) {
        scatterToPixels(gridOf(shape), numbers_, values_, static_cast<std::size_t>(count),
                        operands_.accumulate, streams_,
                        at<decltype(element)>(operands_.destination, shape, n, y, x, begin));
      });
    }
  }

  /// The same of channels, for a row of the result.
  void selectChannels(std::int64_t n, std::int64_t y) {
    const TensorShape& source = problem_.source;
    const TensorShape& shape = problem_.destination;
    const auto channels = static_cast<std::size_t>(shape.channels);
    const hn::ScalableTag<float> d;
    const hn::RebindToSigned<decltype(d)> di;
    for (std::int64_t x = 0; x < shape.width; ++x) {
      std::int32_t taken = 0;
      withElementType(source.format, [&](auto element) {
        withExtremum(problem_.operation, [&](auto take) {
          taken = findChannel(take, at<decltype(element)>(operands_.source, source, n, y, x, 0), channels);
        });
      });
      loadGradient(n, y, x, 0, 1);
      const auto value = hn::Set(d, values_[0]);
      writePixel(n, y, x, [&](std::size_t c) HWY_ATTR {
        const auto numbers = hn::Iota(di, static_cast<std::int32_t>(c));
        return hn::IfThenElseZero(hn::RebindMask(d, hn::Eq(numbers, hn::Set(di, taken))), value);
      });
    }
  }

 private:
  template <class T>
  static const T* at(const std::byte* memory, const TensorShape& shape, std::int64_t n, std::int64_t y,
                     std::int64_t x, std::int64_t c) {
    return reinterpret_cast<const T*>(memory) + shape.offset(n, y, x, c);
  }
  template <class T>
  static T* at(std::byte* memory, const TensorShape& shape, std::int64_t n, std::int64_t y, std::int64_t x,
               std::int64_t c) {
    return reinterpret_cast<T*>(memory) + shape.offset(n, y, x, c);
  }
  /// Gradients are never stored as codes.
  template <class Function>
  static void withFloatType(ImageFeatureChannelFormat format, Function&& function) {
    if (format == ImageFeatureChannelFormat::Float16)
      function(Float16{});
    else
      function(0.0F);
  }
  /// The pixels of that shape that make a pixel of the result.
  [[nodiscard]] PixelGrid gridOf(const TensorShape& shape) const {
    return {problem_.axis == ReductionAxis::Row ? 1 : shape.height,
            problem_.axis == ReductionAxis::Column ? 1 : shape.width, shape.rowStride, shape.pixelStride};
  }

  void spreadToChannels(std::int64_t n, std::int64_t y) {
    const TensorShape& g = problem_.result;
    const std::int64_t most = g.pixelStride == 1 ? kStage : 1;
    const hn::ScalableTag<float> d;
    for (std::int64_t first = 0; first < g.width; first += most) {
      const std::int64_t count = std::min(most, g.width - first);
      loadGradient(n, y, first, 0, count);
      scaleRun(values_, factor_, traits_.divides, count);
      for (std::int64_t x = 0; x < count; ++x) {
        const auto value = hn::Set(d, values_[x]);
        writePixel(n, y, first + x, [&](std::size_t) HWY_ATTR { return value; });
      }
    }
  }

  /// A pixel of the gradient, of the vectors that valueAt(channel) returns.
  template <class ValueAt>
  HWY_INLINE void writePixel(std::int64_t n, std::int64_t y, std::int64_t x, ValueAt&& valueAt) {
    const TensorShape& shape = problem_.destination;
    const hn::ScalableTag<float> d;
    withFloatType(shape.format, [&](auto element) {
      auto* const to = at<decltype(element)>(operands_.destination, shape, n, y, x, 0);
      forVectors(d, static_cast<std::size_t>(shape.channels), [&](std::size_t c, auto lanes) {
        auto result = valueAt(c);
        if (operands_.accumulate) result = hn::Add(result, loadLanes(d, lanes, to + c));
        storeLanes(d, lanes, result, to + c, streams_);
      });
    });
  }

  /// Adjacent elements of the incoming gradient into values_.
  void loadGradient(std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t c, std::int64_t count) {
    const TensorShape& g = problem_.result;
    withElementType(g.format, [&](auto element) {
      convertToFloats(at<decltype(element)>(operands_.gradient, g, n, y, x, c), values_,
                      static_cast<std::size_t>(count));
    });
  }

  /// Finishes values_[begin, ...) and stores them.
  void store(std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t c, std::int64_t begin,
             std::int64_t count) {
    const TensorShape& result = problem_.result;
    if (traits_.sums) scaleRun(values_ + begin, factor_, traits_.divides, count);
    withElementType(result.format, [&](auto element) {
      convertFromFloats(values_ + begin, at<decltype(element)>(operands_.destination, result, n, y, x, c),
                        static_cast<std::size_t>(count));
    });
  }

  const ReductionProblem& problem_;
  const Operands& operands_;
  ReductionTraits traits_;
  float factor_;
  bool streams_;
  alignas(64) float values_[kStage];
  alignas(64) std::int32_t numbers_[kStage];
};

/// Pieces [begin, end) of a call: of a forward reduction of pixels, pieces of channels of result pixels; else rows.
void reducePieces(const ReductionProblem& problem, const Operands& operands, bool streams, std::int64_t begin,
                  std::int64_t end) {
  Reducer reducer(problem, operands, streams);
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
    if (isForward)
      reducer.reduceRow(n, y);
    else if (!problem.selects())
      reducer.spread(n, y);
    else if (overChannels)
      reducer.selectChannels(n, y);
    else
      for (std::int64_t x = 0; x < result.width; ++x) reducer.selectPixels(n, y, x);
  }
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

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
    const bool streams =
        !isForward && usesNonTemporalStoresForRows(problem_.source.bytes() + problem_.destination.bytes(),
                                                   problem_.destination);
    mtl::cpu::asCpu(stream).parallelFor(
        pieces, kGrain / std::max<std::int64_t>(1, elements) + 1, [&](std::int64_t begin, std::int64_t end) {
          HWY_DYNAMIC_DISPATCH(reducePieces)(problem_, operands, streams, begin, end);
          if (streams) finishNonTemporalStores();
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

constexpr std::array<Implementation<ReductionProblem>, 1> kImplementations{{{"one pass", preparePieces}}};

}  // namespace

TensorShape reducedShape(const TensorShape& source, ReductionAxis axis, ImageFeatureChannelFormat format) {
  const bool overX = axis == ReductionAxis::Row || axis == ReductionAxis::Spatial;
  const bool overY = axis == ReductionAxis::Column || axis == ReductionAxis::Spatial;
  return TensorShape::dense(source.images, overY ? 1 : source.height, overX ? 1 : source.width,
                            axis == ReductionAxis::FeatureChannels ? 1 : source.channels, format);
}

std::string ReductionProblem::describe() const {
  const char* const axes[] = {"rows", "columns", "feature channels", "pixels"};
  const bool isForward = direction == ReductionDirection::Forward;
  return std::string(traitsOf(operation).name) + " of " + axes[static_cast<std::size_t>(axis)] +
         (isForward ? "" : ", gradient") + ", scale " + std::to_string(scale) + ", " + source.describe() +
         (isForward ? " -> " : ", gradient ") + result.describe() +
         (isForward ? "" : " -> " + destination.describe());
}

std::span<const Implementation<ReductionProblem>> reductionImplementationsCpu() {
  return kImplementations;
}

}  // namespace mps::detail

#endif
