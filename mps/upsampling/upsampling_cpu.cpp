#include "mps/core/highway_targets.hpp"
#include "mps/core/streamed_stores.hpp"
#include "mps/upsampling/upsampling_taps.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/upsampling/upsampling_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/core/vector_runs-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// Inputs that are added in one pass.
constexpr std::size_t kMostAtOnce = 4;

/// Adjacent values and what they count.
struct WeightedRun {
  ConstFloatRun run;
  float weight = 0;
};

/// to = the sum of the weighted runs, each of elements of type T, or that added to it.
template <class T, std::size_t count>
void sumRunsOf(const WeightedRun* runs, bool add, FloatRun to, std::size_t length) {
  const hn::ScalableTag<float> d;
  // Copies of their own, which no store can change.
  const T* from[count];
  float weights[count];
  for (std::size_t k = 0; k < count; ++k) {
    from[k] = static_cast<const T*>(runs[k].run.address);
    weights[k] = runs[k].weight;
  }
  forVectors(d, length, [&](std::size_t i, auto lanes) {
    auto sum = hn::Mul(lanes.load(d, ConstFloatRun(from[0] + i)), hn::Set(d, weights[0]));
    for (std::size_t k = 1; k < count; ++k)
      sum = hn::MulAdd(lanes.load(d, ConstFloatRun(from[k] + i)), hn::Set(d, weights[k]), sum);
    if (add) sum = hn::Add(sum, lanes.load(d, static_cast<const float*>(to.address) + i));
    lanes.store(d, sum, to + i);
  });
}

/// @param count 1 to kMostAtOnce  @param add `to` is float32
void sumRuns(const WeightedRun* runs, std::size_t count, bool add, FloatRun to, std::size_t length) {
  const auto sum = [&](auto element) {
    using T = decltype(element);
    switch (count) {
      case 1:
        return sumRunsOf<T, 1>(runs, add, to, length);
      case 2:
        return sumRunsOf<T, 2>(runs, add, to, length);
      case 3:
        return sumRunsOf<T, 3>(runs, add, to, length);
      default:
        return sumRunsOf<T, 4>(runs, add, to, length);
    }
  };
  if (runs->run.isHalf)
    sum(Float16{});
  else
    sum(0.0F);
}

/// Adjacent columns, `stride` elements apart.
struct Columns {
  ConstFloatRun first;
  std::size_t stride = 0;
};

/// The elements of a tile of pixels that do not fill vectors.
struct ElementRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::int32_t inputBegin = 0;  ///< the element that sums[0] is
  std::int32_t inputCount = 0;
};

/// The weighted sum of an element's taps, which value(indices) gives. A tap of weight 0 is none, whatever its value.
template <std::size_t taps, class D, class Value>
HWY_INLINE hn::Vec<D> sumTaps(D d, const std::int32_t* indices, const float* weights, std::size_t stride,
                              Value&& value) {
  const hn::RebindToSigned<D> di;
  auto sum = hn::Zero(d);
  for (std::size_t k = 0; k < taps; ++k) {
    const auto weight = hn::LoadU(d, weights + k * stride);
    const auto counted =
        hn::IfThenElseZero(hn::Ne(weight, hn::Zero(d)), value(hn::LoadU(di, indices + k * stride)));
    sum = hn::MulAdd(counted, weight, sum);
  }
  return sum;
}

template <std::size_t taps>
void sumElementsOf(const UpsamplingElements& elements, const ElementRange& range, const float* sums,
                   bool accumulate, FloatRun to) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const auto lanesOfVector = static_cast<std::int32_t>(hn::Lanes(d));
  // Copies of their own, which no store can change.
  const std::int32_t* const begins = elements.begin.data();
  const std::int32_t* const ends = elements.end.data();
  const std::int32_t* const indices = elements.indices.data();
  const float* const weights = elements.weights.data();
  const std::size_t stride = elements.stride;
  const ElementRange own = range;
  forVectors(d, own.end - own.begin, [&](std::size_t i, auto lanes) {
    const std::size_t e = own.begin + i;
    const std::size_t last = std::min(e + static_cast<std::size_t>(lanesOfVector), own.end) - 1;
    const std::int32_t base = std::max(begins[e], own.inputBegin);
    auto sum = hn::Zero(d);
    if (ends[last] - base <= lanesOfVector) {
      // All that the vector reads is in one vector. Lanes behind the tile's last element have indices of another one.
      const auto near = hn::LoadU(d, sums + (base - own.inputBegin));
      sum = sumTaps<taps>(d, indices + e, weights + e, stride, [&](auto index) {
        const auto relative = hn::And(hn::Sub(index, hn::Set(di, base)), hn::Set(di, lanesOfVector - 1));
        return hn::TableLookupLanes(near, hn::IndicesFromVec(d, relative));
      });
    } else {
      sum = sumTaps<taps>(d, indices + e, weights + e, stride, [&](auto index) {
        const auto relative = hn::Max(hn::Sub(index, hn::Set(di, own.inputBegin)), hn::Zero(di));
        return hn::GatherIndex(d, sums, hn::Min(relative, hn::Set(di, own.inputCount - 1)));
      });
    }
    if (accumulate) sum = hn::Add(sum, lanes.load(d, static_cast<const float*>(to.address) + i));
    lanes.store(d, sum, to + i);
  });
}

/// @param sums a vector more than inputCount may be read
void sumElements(const UpsamplingElements& elements, const ElementRange& range, const float* sums,
                 bool accumulate, FloatRun to) {
  static_assert(UpsamplingElements::mostTaps == 4);
  switch (elements.taps) {
    case 1:
      return sumElementsOf<1>(elements, range, sums, accumulate, to);
    case 2:
      return sumElementsOf<2>(elements, range, sums, accumulate, to);
    case 3:
      return sumElementsOf<3>(elements, range, sums, accumulate, to);
    default:
      return sumElementsOf<4>(elements, range, sums, accumulate, to);
  }
}

/// Computes rows of the destination, tile by tile: the sum of the input rows first, then its columns.
class RowSums {
 public:
  RowSums(const UpsamplingProblem& problem, const UpsamplingLayout& layout, const Operands& operands,
          bool stream)
      : problem_(problem),
        layout_(layout),
        operands_(operands),
        input_(problem.direction == UpsamplingDirection::Forward ? operands.source : operands.gradient),
        readsDirectly_(isFloat(problem.input.format)),
        writesDirectly_(isFloat(problem.destination.format) && !operands.accumulate),
        sumsElements_(layout.elements.taps > 0 && isFloat(problem.destination.format)),
        streams_(stream) {}

  void compute(std::int64_t n, std::int64_t y) {
    const std::int64_t channels = problem_.destination.channels;
    for (std::int64_t first = 0; first < channels; first += layout_.channelStep)
      for (const UpsamplingTile& tile : layout_.tiles)
        computeTile(n, y, tile, {first, std::min(layout_.channelStep, channels - first)});
  }

 private:
  struct Channels {
    std::int64_t first;
    std::int64_t count;
  };
  /// What the columns in sums_ belong to.
  struct SummedRow {
    std::int64_t image = -1;
    std::int64_t row = 0;
    std::int64_t column = 0;
    std::int64_t channel = 0;
  };

  static bool isFloat(ImageFeatureChannelFormat format) {
    return format == ImageFeatureChannelFormat::Float32 || format == ImageFeatureChannelFormat::Float16;
  }

  void computeTile(std::int64_t n, std::int64_t y, const UpsamplingTile& tile, Channels channels) {
    const bool isEmpty = layout_.rows.begin(y) == layout_.rows.end(y) || tile.inputBegin == tile.inputEnd;
    const Columns columns = isEmpty ? Columns() : sumRows(n, y, tile, channels);
    if (!isEmpty && sumsElements_) {
      const auto at = [&](std::int64_t column) { return column * channels.count; };
      const ElementRange range{static_cast<std::size_t>(at(tile.begin)),
                               static_cast<std::size_t>(at(tile.end)),
                               static_cast<std::int32_t>(at(tile.inputBegin)),
                               static_cast<std::int32_t>(at(tile.inputEnd - tile.inputBegin))};
      return sumElements(layout_.elements, range, sums_, operands_.accumulate,
                         targetAt(problem_.destination.offset(n, y, tile.begin, 0)));
    }
    const auto count = static_cast<std::size_t>(channels.count);
    for (std::int64_t x = tile.begin; x < tile.end; ++x) {
      const UpsamplingTap* const tap = layout_.columns.begin(x);
      const std::size_t taps = isEmpty ? 0 : static_cast<std::size_t>(layout_.columns.end(x) - tap);
      const std::int64_t offset = problem_.destination.offset(n, y, x, channels.first);
      if (writesDirectly_ && taps <= kMostAtOnce) {
        sumColumns(columns, tile.inputBegin, tap, taps, count, targetAt(offset));
      } else {
        sumColumns(columns, tile.inputBegin, tap, taps, count, pixel_);
        storePixel(offset, count);
      }
    }
  }

  /// A destination pixel: the weighted sum of columns, the first of which has the number `begin`.
  /// @param to float32 where there are more than kMostAtOnce
  static void sumColumns(const Columns& columns, std::int64_t begin, const UpsamplingTap* tap,
                         std::size_t count, std::size_t channels, FloatRun to) {
    if (count == 0) {
      const hn::ScalableTag<float> d;
      forVectors(d, channels, [&](std::size_t i, auto lanes) { lanes.store(d, hn::Zero(d), to + i); });
    }
    for (std::size_t done = 0; done < count; done += kMostAtOnce) {
      WeightedRun runs[kMostAtOnce];
      const std::size_t part = std::min(kMostAtOnce, count - done);
      for (std::size_t k = 0; k < part; ++k) {
        const auto column = static_cast<std::size_t>(tap[done + k].input - begin);
        runs[k] = {columns.first + column * columns.stride, tap[done + k].weight};
      }
      sumRuns(runs, part, done > 0, to, channels);
    }
  }

  [[nodiscard]] FloatRun targetAt(std::int64_t offset) const {
    FloatRun run = problem_.destination.format == ImageFeatureChannelFormat::Float16
                       ? FloatRun(reinterpret_cast<Float16*>(operands_.destination) + offset)
                       : FloatRun(reinterpret_cast<float*>(operands_.destination) + offset);
    run.isStreamed = streams_;
    return run;
  }

  void storePixel(std::int64_t offset, std::size_t count) const {
    if (operands_.accumulate) {
      const hn::ScalableTag<float> d;
      float* const to = reinterpret_cast<float*>(operands_.destination) + offset;
      forVectors(d, count, [&](std::size_t i, auto lanes) {
        lanes.store(d, hn::Add(lanes.load(d, to + i), lanes.load(d, pixel_ + i)), to + i);
      });
      return;
    }
    withElementType(problem_.destination.format, [&](auto element) {
      convertFromFloats(pixel_, reinterpret_cast<decltype(element)*>(operands_.destination) + offset, count);
    });
  }

  /// The columns of a tile; a single row that counts once may stay where it lies.
  Columns sumRows(std::int64_t n, std::int64_t y, const UpsamplingTile& tile, Channels channels) {
    const UpsamplingTap* const row = layout_.rows.begin(y);
    const auto rows = static_cast<std::size_t>(layout_.rows.end(y) - row);
    const std::int64_t stride = problem_.input.pixelStride;
    if (readsDirectly_ && !sumsElements_ && rows == 1 && row->weight == 1)
      return {runAt(n, row->input, tile.inputBegin, channels.first, 0), static_cast<std::size_t>(stride)};
    const SummedRow wanted{n, y, tile.begin, channels.first};
    if (isSummed(wanted)) return {sums_, static_cast<std::size_t>(channels.count)};
    summed_ = wanted;
    const std::int64_t width = tile.inputEnd - tile.inputBegin;
    const bool isAdjacent = stride == channels.count;
    const auto length = static_cast<std::size_t>((isAdjacent ? width : 1) * channels.count);
    const std::size_t most = readsDirectly_ ? kMostAtOnce : 1;
    for (std::int64_t x = 0; x < (isAdjacent ? 1 : width); ++x) {
      float* const to = sums_ + static_cast<std::size_t>(x) * length;
      for (std::size_t done = 0; done < rows; done += most) {
        WeightedRun runs[kMostAtOnce];
        const std::size_t count = std::min(most, rows - done);
        for (std::size_t k = 0; k < count; ++k)
          runs[k] = {runAt(n, row[done + k].input, tile.inputBegin + x, channels.first, length),
                     row[done + k].weight};
        sumRuns(runs, count, done > 0, to, length);
      }
    }
    return {sums_, static_cast<std::size_t>(channels.count)};
  }

  /// Whether sums_ holds that already: neighbouring rows may be sums of the same.
  [[nodiscard]] bool isSummed(const SummedRow& wanted) const {
    return wanted.image == summed_.image && wanted.column == summed_.column &&
           wanted.channel == summed_.channel &&
           std::equal(layout_.rows.begin(wanted.row), layout_.rows.end(wanted.row),
                      layout_.rows.begin(summed_.row), layout_.rows.end(summed_.row));
  }

  /// Elements from that one on: where they lie, or `length` of them converted.
  ConstFloatRun runAt(std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t channel,
                      std::size_t length) {
    const std::int64_t offset = problem_.input.offset(n, y, x, channel);
    if (problem_.input.format == ImageFeatureChannelFormat::Float32)
      return reinterpret_cast<const float*>(input_) + offset;
    if (problem_.input.format == ImageFeatureChannelFormat::Float16)
      return ConstFloatRun(reinterpret_cast<const Float16*>(input_) + offset);
    withElementType(problem_.input.format, [&](auto element) {
      convertToFloats(reinterpret_cast<const decltype(element)*>(input_) + offset, stage_, length);
    });
    return stage_;
  }

  const UpsamplingProblem& problem_;
  const UpsamplingLayout& layout_;
  const Operands& operands_;
  const std::byte* input_;
  bool readsDirectly_;
  bool writesDirectly_;
  bool sumsElements_;
  bool streams_;
  SummedRow summed_;
  alignas(64) float sums_[UpsamplingLayout::capacity + UpsamplingElements::padding];
  alignas(64) float stage_[UpsamplingLayout::capacity];
  alignas(64) float pixel_[UpsamplingLayout::capacity];
};

void upsampleRows(const UpsamplingProblem& problem, const UpsamplingLayout& layout, const Operands& operands,
                  bool stream, std::int64_t begin, std::int64_t end) {
  RowSums rows(problem, layout, operands, stream);
  for (std::int64_t row = begin; row < end; ++row)
    rows.compute(row / problem.destination.height, row % problem.destination.height);
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <array>

#include "mps/upsampling/upsampling_plain.hpp"
#include "mtl/cpu/stream.hpp"

namespace mps::detail {
namespace {

HWY_EXPORT(upsampleRows);

/// Elements below which another thread does not pay.
constexpr std::int64_t kGrain = 16384;

class VectorPlan final : public Plan {
 public:
  VectorPlan(const UpsamplingProblem& problem, UpsamplingLayout layout)
      : problem_(problem), layout_(std::move(layout)) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const TensorShape& shape = problem_.destination;
    const std::int64_t rows = shape.images * shape.height;
    const std::int64_t elements = std::max(shape.elements(), problem_.input.elements());
    const std::int64_t grain = std::max<std::int64_t>(1, kGrain * rows / std::max<std::int64_t>(1, elements));
    const bool streams = writesRowsPastCaches(problem_.input.bytes() + shape.bytes(), shape);
    mtl::cpu::asCpu(stream).parallelFor(rows, grain, [&](std::int64_t begin, std::int64_t end) {
      HWY_DYNAMIC_DISPATCH(upsampleRows)(problem_, layout_, operands, streams, begin, end);
      finishStreaming();
    });
  }

  [[nodiscard]] bool canAccumulate() const override {
    return problem_.direction == UpsamplingDirection::Gradient &&
           problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }

 private:
  UpsamplingProblem problem_;
  UpsamplingLayout layout_;
};

Preparation prepareVectors(const UpsamplingProblem& problem) {
  UpsamplingLayout layout = upsamplingLayout(problem);
  if (layout.channelStep == 0)
    return Refusal{"a pixel is the sum of more columns than the working memory holds"};
  return std::make_shared<const VectorPlan>(problem, std::move(layout));
}

constexpr std::array<Implementation<UpsamplingProblem>, 2> kImplementations{{
    {"vectors", prepareVectors},
    {"plain", preparePlainUpsampling},
}};

}  // namespace

std::span<const Implementation<UpsamplingProblem>> upsamplingImplementationsCpu() {
  return kImplementations;
}

}  // namespace mps::detail

#endif
