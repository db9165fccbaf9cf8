#include "mps/core/highway_targets.hpp"
#include "mps/core/storage.hpp"
#include "mps/upsampling/upsampling_rows.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/upsampling/upsampling_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/upsampling/upsampling_packed-inl.hpp"
#include "mps/upsampling/upsampling_vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// Asks for adjacent memory, a part at each step: in rows that are read by turns the processor sees no stream.
class RowsAhead {
 public:
  RowsAhead() = default;
  RowsAhead(const void* begin, const void* end, std::int64_t steps)
      : next_(static_cast<const std::byte*>(begin)), end_(static_cast<const std::byte*>(end)) {
    step_ = ((end_ - next_) / std::max<std::int64_t>(1, steps) + kLine) / kLine * kLine;
  }
  HWY_INLINE void step(std::int64_t count) {
    const std::byte* const last = next_ + std::min(count * step_, end_ - next_);
    for (; next_ < last; next_ += kLine) __builtin_prefetch(next_, 0, 3);
  }

 private:
  static constexpr std::int64_t kLine = 64;
  const std::byte* next_ = nullptr;
  const std::byte* end_ = nullptr;
  std::int64_t step_ = 0;
};

/// Computes rows of the destination, tile by tile.
class RowSums {
 public:
  RowSums(const UpsamplingProblem& problem, const UpsamplingLayout& layout, const Operands& operands,
          bool streams)
      : problem_(problem),
        layout_(layout),
        input_(problem.direction == UpsamplingDirection::Forward ? operands.source : operands.gradient),
        destination_(operands.destination),
        store_{.accumulates = operands.accumulate, .streams = streams} {}

  void compute(std::int64_t n, std::int64_t begin, std::int64_t end) {
    withElementType(problem_.input.format, [&](auto element) {
      const auto* const input = reinterpret_cast<const decltype(element)*>(input_);
      withElementType(problem_.destination.format, [&](auto result) {
        auto* const destination = reinterpret_cast<decltype(result)*>(destination_);
        for (std::size_t tile = 0; tile < layout_.tiles.size(); ++tile)
          if (layout_.slots > 0)
            sumColumnsFirst(n, begin, end, tile, input, destination);
          else
            sumRowsFirst(n, begin, end, tile, input, destination);
      });
    });
  }

 private:
  /// Elements of rows that are summed before more of what comes next is asked for.
  static constexpr std::int64_t kRun = 512;
  /// The same of pairs, which sum many rows: where much is asked for at once, the processor waits.
  static constexpr std::int64_t kRunOfPairs = 128;
  /// Sums that read each pixel more often read it from a converted copy.
  static constexpr std::int64_t kTapsOfConverted = 4;

  /// Pixels side by side, `stride` elements apart.
  template <class T>
  struct Pixels {
    T* first = nullptr;
    std::int64_t stride = 0;
  };

  template <class T, class U>
  void sumRowsFirst(std::int64_t n, std::int64_t begin, std::int64_t end, std::size_t tileNumber,
                    const T* input, U* destination) {
    const UpsamplingTile& tile = layout_.tiles[tileNumber];
    for (std::int64_t channel = 0; channel < problem_.destination.channels; channel += layout_.channelStep) {
      const std::int64_t channels = std::min(layout_.channelStep, problem_.destination.channels - channel);
      const std::int64_t length = (tile.inputEnd - tile.inputBegin) * channels;
      const T* const first = input + problem_.input.offset(n, 0, tile.inputBegin, channel);
      for (std::int64_t y = begin; y < end;) {
        const UpsamplingPair* const pair = rowPair(y, end);
        const std::int64_t rows = pair != nullptr ? 2 : 1;
        const std::int64_t next = y + rows;
        RowsAhead ahead = rowsBehind(n, next - 1, tile, input, rows);
        sumRows(y, pair, tile, first, channels, ahead);
        for (std::int64_t r = 0; r < rows; ++r)
          sumColumns(tile, channels, Pixels<const float>{sums_ + r * length, channels}, store_,
                     Pixels<U>{destination + problem_.destination.offset(n, y + r, tile.begin, channel),
                               problem_.destination.pixelStride},
                     ahead);
        y = next;
      }
    }
  }

  /// What destination row y and the next one are summed together by, or null.
  const UpsamplingPair* rowPair(std::int64_t y, std::int64_t end) const {
    return pairOf(layout_.rowPairs, y, end);
  }
  /// The same of any positions.
  static const UpsamplingPair* pairOf(const std::vector<UpsamplingPair>& pairs, std::int64_t i,
                                      std::int64_t end) {
    if (i % 2 != 0 || i + 1 >= end || pairs.empty()) return nullptr;
    const UpsamplingPair& pair = pairs[static_cast<std::size_t>(i / 2)];
    return pair.count > 0 ? &pair : nullptr;
  }

  /// The input rows that the next `rows` destination rows need, those of the next image behind the last one, and row y of
  /// image n does not; where they are one piece of memory. As many rows are computed meanwhile.
  template <class T>
  RowsAhead rowsBehind(std::int64_t n, std::int64_t y, const UpsamplingTile& tile, const T* input,
                       std::int64_t rows) const {
    const bool isOnePiece = layout_.tiles.size() == 1 && problem_.input.pixelStride == layout_.channelStep;
    const bool isLast = y + 1 == problem_.destination.height;
    if (!isOnePiece || (isLast && n + 1 == problem_.input.images)) return {};
    const std::int64_t next = isLast ? 0 : y + 1;
    const UpsamplingTap* const begin = layout_.rows.begin(next);
    const UpsamplingTap* const end = layout_.rows.end(std::min(next + rows, problem_.destination.height) - 1);
    if (begin == end) return {};
    const bool knowsOwn = !isLast && layout_.rows.begin(y) != layout_.rows.end(y);
    const std::int64_t first = knowsOwn ? layout_.rows.end(y)[-1].input + 1 : begin->input;
    const std::int64_t last = end[-1].input;
    if (first > last) return {};
    const T* const image = input + problem_.input.offset(isLast ? n + 1 : n, 0, tile.inputBegin, 0);
    const std::int64_t width = tile.inputEnd - tile.inputBegin;
    return {image + first * problem_.input.rowStride,
            image + last * problem_.input.rowStride + width * problem_.input.pixelStride,
            width + rows * (tile.end - tile.begin)};
  }
  /// A tile's part of an input row, where it is one piece of memory. @param row may be null
  template <class T>
  RowsAhead partAhead(const UpsamplingTile& tile, const T* row, std::int64_t steps) const {
    if (row == nullptr || problem_.input.pixelStride != problem_.input.channels) return {};
    return {row, row + (tile.inputEnd - tile.inputBegin) * problem_.input.pixelStride, steps};
  }

  /// sums_ = the sum of the tile's part of input rows, its columns side by side; of two destination rows if there is a pair.
  /// @param input of row 0
  template <class T>
  void sumRows(std::int64_t y, const UpsamplingPair* pair, const UpsamplingTile& tile, const T* input,
               std::int64_t channels, RowsAhead& ahead) {
    const std::int64_t width = tile.inputEnd - tile.inputBegin;
    const std::int64_t pixels = pixelsOfRun(channels, pair != nullptr ? kRunOfPairs : kRun);
    for (std::int64_t x = 0; x < width; x += pixels) {
      ahead.step(std::min(pixels, width - x));
      const std::int64_t length = std::min(pixels, width - x) * channels;
      const T* const from = input + x * problem_.input.pixelStride;
      float* const to = sums_ + x * channels;
      if (pair != nullptr)
        sumRunsTwice(*pair, runsOf(y, from), runsOf(y + 1, from), static_cast<std::size_t>(length),
                     OrdinaryStores(), to, to + width * channels);
      else
        sumRuns(runsOf(y, from), static_cast<std::size_t>(length), OrdinaryStores(), to);
    }
  }

  /// Of adjacent input pixels several at a time. @param run elements
  [[nodiscard]] std::int64_t pixelsOfRun(std::int64_t channels, std::int64_t run) const {
    return problem_.input.pixelStride == channels ? std::max<std::int64_t>(1, run / channels) : 1;
  }

  /// The input rows of destination row y. @param input of row 0
  template <class T>
  TappedRuns<T> runsOf(std::int64_t y, const T* input) const {
    const UpsamplingTap* const taps = layout_.rows.begin(y);
    return {taps, static_cast<std::size_t>(layout_.rows.end(y) - taps), input, 0, problem_.input.rowStride};
  }

  template <class T, class U>
  void sumColumnsFirst(std::int64_t n, std::int64_t begin, std::int64_t end, std::size_t tileNumber,
                       const T* input, U* destination) {
    const UpsamplingTile& tile = layout_.tiles[tileNumber];
    const auto length = static_cast<std::size_t>((tile.end - tile.begin) * problem_.destination.channels);
    const T* const first = input + problem_.input.offset(n, 0, tile.inputBegin, 0);
    std::fill(std::begin(rowOfSlot_), std::end(rowOfSlot_), -1);
    for (std::int64_t y = begin; y < end;) {
      UpsamplingTap taps[2][UpsamplingLayout::mostSlotsOfSmaller];
      U* const to = destination + problem_.destination.offset(n, y, tile.begin, 0);
      const TappedRuns<float> own = slotsOf(y, tile, first, taps[0]);
      if (const UpsamplingPair* const pair = rowPair(y, end)) {
        const TappedRuns<float> next = slotsOf(y + 1, tile, first, taps[1]);
        sumRunsTwice(*pair, own, next, length, store_, to, to + problem_.destination.rowStride);
        y += 2;
      } else {
        sumRuns(own, length, store_, to);
        ++y;
      }
    }
  }

  /// The slots of the input rows of destination row y, filled. @param input of row 0  @param taps of slots
  template <class T>
  TappedRuns<float> slotsOf(std::int64_t y, const UpsamplingTile& tile, const T* input, UpsamplingTap* taps) {
    std::size_t count = 0;
    for (const UpsamplingTap* row = layout_.rows.begin(y); row != layout_.rows.end(y); ++row) {
      const std::int64_t slot = row->input % layout_.slots;
      taps[count++] = {slot, row->weight};
      if (rowOfSlot_[slot] == row->input) continue;
      rowOfSlot_[slot] = row->input;
      const T* const from = input + row->input * problem_.input.rowStride;
      const T* const next =
          row->input + 1 < problem_.input.height ? from + problem_.input.rowStride : nullptr;
      fillSlot(tile, from, next, sums_ + slot * layout_.slotLength);
    }
    return {taps, count, sums_, 0, layout_.slotLength};
  }

  /// The columns of an input row. @param next the row that is filled in after it; may be null
  template <class T>
  void fillSlot(const UpsamplingTile& tile, const T* row, const T* next, float* to) {
    const std::int64_t channels = problem_.destination.channels;
    const Pixels<float> results{to, channels};
    // All while columns are summed, which takes longer than to convert a row.
    RowsAhead ahead = partAhead(tile, next, tile.end - tile.begin);
    if constexpr (!std::is_same_v<T, float>) {
      const std::int64_t pixels = tile.inputEnd - tile.inputBegin;
      const auto taps = layout_.columns.end(tile.end - 1) - layout_.columns.begin(tile.begin);
      if (taps > kTapsOfConverted * pixels) {
        const std::int64_t several = pixelsOfRun(channels, kRun);
        for (std::int64_t x = 0; x < pixels; x += several)
          convertToFloats(row + x * problem_.input.pixelStride, row_ + x * channels,
                          static_cast<std::size_t>(std::min(several, pixels - x) * channels));
        return sumColumns(tile, channels, Pixels<const float>{row_, channels}, OrdinaryStores(), results,
                          ahead);
      }
    }
    sumColumns(tile, channels, Pixels<const T>{row, problem_.input.pixelStride}, OrdinaryStores(), results,
               ahead);
  }

  /// A tile's pixels of the destination, or of a row like it.
  /// @param ahead what comes next is asked for meanwhile
  template <class T, class U, class Stores>
  void sumColumns(const UpsamplingTile& tile, std::int64_t channels, const Pixels<const T>& columns,
                  const Stores& store, const Pixels<U>& to, RowsAhead& ahead) {
    const auto length = static_cast<std::size_t>(channels);
    const auto runs = [&](std::int64_t x) {
      const UpsamplingTap* const taps = layout_.columns.begin(x);
      return TappedRuns<T>{taps, static_cast<std::size_t>(layout_.columns.end(x) - taps), columns.first,
                           tile.inputBegin, columns.stride};
    };
    for (std::int64_t x = tile.begin; x < tile.end;) {
      U* const place = to.first + (x - tile.begin) * to.stride;
      const UpsamplingPair* const pair = pairOf(layout_.columnPairs, x, tile.end);
      ahead.step(pair == nullptr ? 1 : 2);
      if (pair != nullptr)
        sumRunsTwice(*pair, runs(x), runs(x + 1), length, store, place, place + to.stride);
      else
        sumRuns(runs(x), length, store, place);
      x += pair == nullptr ? 1 : 2;
    }
  }

  const UpsamplingProblem& problem_;
  const UpsamplingLayout& layout_;
  const std::byte* input_;
  std::byte* destination_;
  UpsamplingStores store_;
  std::int64_t rowOfSlot_[UpsamplingLayout::mostSlotsOfSmaller];
  alignas(64) float sums_[UpsamplingLayout::room];
  alignas(64) float row_[UpsamplingLayout::capacity];  // an input row's part of a tile
};

/// Calls compute(image, begin, end) for the parts of rows that are counted through all images.
template <class Compute>
void forImages(std::int64_t height, std::int64_t begin, std::int64_t end, Compute&& compute) {
  while (begin < end) {
    const std::int64_t n = begin / height;
    const std::int64_t last = std::min(end, (n + 1) * height);
    compute(n, begin - n * height, last - n * height);
    begin = last;
  }
}

void upsampleRows(const UpsamplingProblem& problem, const UpsamplingLayout& layout, const Operands& operands,
                  bool streams, std::int64_t begin, std::int64_t end) {
  const auto with = [&](auto& rows) {
    forImages(problem.destination.height, begin, end,
              [&](std::int64_t n, std::int64_t first, std::int64_t last) { rows.compute(n, first, last); });
  };
  if (layout.groups.taps > 0 && layout.groups.lanes == hn::Lanes(hn::ScalableTag<float>())) {
    PackedRows rows(problem, layout, operands, streams);
    with(rows);
    rows.finish();
  } else {
    RowSums rows(problem, layout, operands, streams);
    with(rows);
  }
}

std::size_t lanesOfFloats() {
  return hn::Lanes(hn::ScalableTag<float>());
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <array>

#include "mps/core/streamed_stores.hpp"
#include "mps/upsampling/upsampling_plain.hpp"
#include "mtl/cpu/stream.hpp"

namespace mps::detail {
namespace {

HWY_EXPORT(upsampleRows);
HWY_EXPORT(lanesOfFloats);

/// Elements below which another thread does not pay.
constexpr std::int64_t kGrain = 16384;

class VectorPlan final : public Plan {
 public:
  explicit VectorPlan(UpsamplingRows rows) : rows_(std::move(rows)) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const TensorShape& shape = rows_.problem().destination;
    const bool streams = rows_.stream(rows_.problem().input.bytes() + shape.bytes());
    mtl::cpu::asCpu(stream).parallelFor(shape.images * shape.height, rows_.grain(),
                                        [&](std::int64_t begin, std::int64_t end) {
                                          rows_.compute(operands, streams, begin, end);
                                          if (streams) finishStreaming();
                                        });
  }

  [[nodiscard]] bool canAccumulate() const override {
    return rows_.problem().direction == UpsamplingDirection::Gradient &&
           rows_.problem().destination.format == ImageFeatureChannelFormat::Float32;
  }

 private:
  UpsamplingRows rows_;
};

Preparation prepareVectors(const UpsamplingProblem& problem) {
  UpsamplingRows rows(problem);
  if (!rows.fit()) return Refusal{"a pixel is the sum of more columns than the working memory holds"};
  return std::make_shared<const VectorPlan>(std::move(rows));
}

constexpr std::array<Implementation<UpsamplingProblem>, 2> kImplementations{{
    {"vectors", prepareVectors},
    {"plain", preparePlainUpsampling},
}};

}  // namespace

UpsamplingRows::UpsamplingRows(const UpsamplingProblem& problem)
    : problem_(problem), layout_(upsamplingLayout(problem, HWY_DYNAMIC_DISPATCH(lanesOfFloats)())) {}

void UpsamplingRows::compute(const Operands& operands, bool streams, std::int64_t begin,
                             std::int64_t end) const {
  HWY_DYNAMIC_DISPATCH(upsampleRows)(problem_, layout_, operands, streams, begin, end);
}

bool UpsamplingRows::stream(std::int64_t bytesMoved) const {
  const TensorShape& destination = problem_.destination;
  const bool areAdjacent = destination.rowStride == destination.width * destination.channels;
  return layout_.groups.taps > 0 && areAdjacent ? writesPastCaches(bytesMoved)
                                                : writesRowsPastCaches(bytesMoved, destination);
}

std::int64_t UpsamplingRows::grain() const {
  const std::int64_t rows = problem_.destination.images * problem_.destination.height;
  const std::int64_t elements = std::max(problem_.destination.elements(), problem_.input.elements());
  return std::max<std::int64_t>(1, kGrain * rows / std::max<std::int64_t>(1, elements));
}

std::span<const Implementation<UpsamplingProblem>> upsamplingImplementationsCpu() {
  return kImplementations;
}

}  // namespace mps::detail

#endif
