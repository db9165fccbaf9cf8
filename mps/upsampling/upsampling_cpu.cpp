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

/// Input rows that are added in one pass.
inline constexpr std::size_t kMostRows = 8;

struct WeightedRun {
  ConstFloatRun run;
  float weight = 0;
};

/// to = the sum of the weighted runs, or that added to it.
void sumRuns(const WeightedRun* runs, std::size_t count, bool add, float* to, std::size_t length) {
  const hn::ScalableTag<float> d;
  forVectors(d, length, [&](std::size_t i, auto lanes) {
    const auto value = [&](std::size_t k) { return lanes.load(d, runs[k].run + i); };
    const auto weight = [&](std::size_t k) { return hn::Set(d, runs[k].weight); };
    auto sum = hn::Mul(value(0), weight(0));
    if (add) sum = hn::Add(sum, lanes.load(d, to + i));
    for (std::size_t k = 1; k < count; ++k) sum = hn::MulAdd(value(k), weight(k), sum);
    lanes.store(d, sum, to + i);
  });
}

/// Adjacent columns, `stride` elements apart.
struct Columns {
  ConstFloatRun first;
  std::size_t stride = 0;
};

/// A destination pixel: the weighted sum of columns, the first of which has the number `begin`.
void sumColumns(const Columns& columns, std::int64_t begin, const UpsamplingTap* tap, std::size_t count,
                std::size_t channels, FloatRun to) {
  const hn::ScalableTag<float> d;
  const auto at = [&](std::size_t k) {
    return columns.first + static_cast<std::size_t>(tap[k].input - begin) * columns.stride;
  };
  if (count == 0) {
    forVectors(d, channels, [&](std::size_t i, auto lanes) { lanes.store(d, hn::Zero(d), to + i); });
  } else if (count == 1 && tap->weight == 1) {
    const ConstFloatRun from = at(0);
    forVectors(d, channels,
               [&](std::size_t i, auto lanes) { lanes.store(d, lanes.load(d, from + i), to + i); });
  } else if (count == 2) {
    const ConstFloatRun first = at(0);
    const ConstFloatRun second = at(1);
    const auto firstWeight = hn::Set(d, tap[0].weight);
    const auto secondWeight = hn::Set(d, tap[1].weight);
    forVectors(d, channels, [&](std::size_t i, auto lanes) {
      const auto sum = hn::Mul(lanes.load(d, first + i), firstWeight);
      lanes.store(d, hn::MulAdd(lanes.load(d, second + i), secondWeight, sum), to + i);
    });
  } else {
    forVectors(d, channels, [&](std::size_t i, auto lanes) {
      auto sum = hn::Mul(lanes.load(d, at(0) + i), hn::Set(d, tap[0].weight));
      for (std::size_t k = 1; k < count; ++k)
        sum = hn::MulAdd(lanes.load(d, at(k) + i), hn::Set(d, tap[k].weight), sum);
      lanes.store(d, sum, to + i);
    });
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

  static bool isFloat(ImageFeatureChannelFormat format) {
    return format == ImageFeatureChannelFormat::Float32 || format == ImageFeatureChannelFormat::Float16;
  }

  void computeTile(std::int64_t n, std::int64_t y, const UpsamplingTile& tile, Channels channels) {
    const bool isEmpty = layout_.rows.begin(y) == layout_.rows.end(y) || tile.inputBegin == tile.inputEnd;
    const Columns columns = isEmpty ? Columns() : sumRows(n, y, tile, channels);
    const auto count = static_cast<std::size_t>(channels.count);
    for (std::int64_t x = tile.begin; x < tile.end; ++x) {
      const UpsamplingTap* const tap = layout_.columns.begin(x);
      const std::size_t taps = isEmpty ? 0 : static_cast<std::size_t>(layout_.columns.end(x) - tap);
      const std::int64_t offset = problem_.destination.offset(n, y, x, channels.first);
      if (writesDirectly_) {
        sumColumns(columns, tile.inputBegin, tap, taps, count, targetAt(offset));
      } else {
        sumColumns(columns, tile.inputBegin, tap, taps, count, pixel_);
        storePixel(offset, count);
      }
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

  /// The columns of a tile; a single row that counts once stays where it lies.
  Columns sumRows(std::int64_t n, std::int64_t y, const UpsamplingTile& tile, Channels channels) {
    const UpsamplingTap* const row = layout_.rows.begin(y);
    const auto rows = static_cast<std::size_t>(layout_.rows.end(y) - row);
    const std::int64_t stride = problem_.input.pixelStride;
    if (readsDirectly_ && rows == 1 && row->weight == 1)
      return {runAt(n, row->input, tile.inputBegin, channels.first, 0), static_cast<std::size_t>(stride)};
    const std::int64_t width = tile.inputEnd - tile.inputBegin;
    const bool isAdjacent = stride == channels.count;
    const auto length = static_cast<std::size_t>((isAdjacent ? width : 1) * channels.count);
    const std::size_t most = readsDirectly_ ? kMostRows : 1;
    for (std::int64_t x = 0; x < (isAdjacent ? 1 : width); ++x) {
      float* const to = sums_ + static_cast<std::size_t>(x) * length;
      for (std::size_t done = 0; done < rows; done += most) {
        WeightedRun runs[kMostRows];
        const std::size_t count = std::min(most, rows - done);
        for (std::size_t k = 0; k < count; ++k)
          runs[k] = {runAt(n, row[done + k].input, tile.inputBegin + x, channels.first, length),
                     row[done + k].weight};
        sumRuns(runs, count, done > 0, to, length);
      }
    }
    return {sums_, static_cast<std::size_t>(channels.count)};
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
  bool streams_;
  alignas(64) float sums_[UpsamplingLayout::capacity];
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
    const bool streams = writesPastCaches(problem_.input.bytes() + shape.bytes());
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
