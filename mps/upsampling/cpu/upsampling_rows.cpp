#include "mps/upsampling/cpu/upsampling_rows.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <type_traits>

#include "mps/core/cpu/highway_targets.hpp"
#include "mps/core/types/storage.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/upsampling/cpu/upsampling_rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/upsampling/cpu/upsampling_few_channels-inl.hpp"
#include "mps/upsampling/cpu/upsampling_vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// Asks for adjacent memory, a part at each step: in rows that are read by turns the processor sees no stream.
class RowsToPrefetch {
 public:
  RowsToPrefetch() = default;
  RowsToPrefetch(const void* begin, const void* end, std::int64_t steps)
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
        store_{.accumulates = operands.accumulate, .streams = streams},
        hasTable_(layout.fewChannels.taps > 0 &&
                  layout.fewChannels.lanes == hn::Lanes(hn::ScalableTag<float>())) {}

  void compute(std::int64_t n, std::int64_t begin, std::int64_t end) {
    for (std::size_t tile = 0; tile < layout_.tiles.size(); ++tile)
      if (layout_.slots > 0)
        sumColumnsFirst(n, begin, end, tile);
      else
        sumRowsFirst(n, begin, end, tile);
  }

 private:
  /// Elements of rows that are summed before more of what comes next is asked for.
  static constexpr std::int64_t kRun = 512;
  /// Sums that read each pixel more often read it from a converted copy.
  static constexpr std::int64_t kTapsOfDirect = 4;

  /// Calls function(address of an element of the input, or of the destination), by its format.
  template <class Function>
  void withInput(std::int64_t offset, Function&& function) const {
    withElementType(problem_.input.format, [&](auto element) {
      function(reinterpret_cast<const decltype(element)*>(input_) + offset);
    });
  }
  template <class Function>
  void withDestination(std::int64_t offset, Function&& function) const {
    withElementType(problem_.destination.format, [&](auto element) {
      function(reinterpret_cast<decltype(element)*>(destination_) + offset);
    });
  }
  [[nodiscard]] const std::byte* inputAt(std::int64_t offset) const {
    return input_ + offset * static_cast<std::int64_t>(bytesPerChannel(problem_.input.format));
  }

  void sumRowsFirst(std::int64_t n, std::int64_t begin, std::int64_t end, std::size_t tileNumber) {
    const UpsamplingTile& tile = layout_.tiles[tileNumber];
    const TensorShape& destination = problem_.destination;
    for (std::int64_t channel = 0; channel < destination.channels; channel += layout_.channelStep) {
      const std::int64_t channels = std::min(layout_.channelStep, destination.channels - channel);
      for (std::int64_t y = begin; y < end; ++y) {
        RowsToPrefetch ahead = rowsBehind(n, y, tile);
        withInput(problem_.input.offset(n, 0, tile.inputBegin, channel),
                  [&](const auto* first) { sumRows(y, tile, first, channels, ahead); });
        withDestination(destination.offset(n, y, tile.begin, channel), [&](auto* to) {
          sumColumns(tileNumber, channels, sums_, channels, store_, to, destination.pixelStride, ahead);
        });
      }
    }
  }

  /// The input rows that the next destination row needs, that of the next image behind the last one, and row y of image n
  /// does not; where they are one piece of memory. A row is computed meanwhile.
  [[nodiscard]] RowsToPrefetch rowsBehind(std::int64_t n, std::int64_t y, const UpsamplingTile& tile) const {
    const bool isOnePiece = layout_.tiles.size() == 1 && problem_.input.pixelStride == layout_.channelStep;
    const bool isLast = y + 1 == problem_.destination.height;
    if (!isOnePiece || (isLast && n + 1 == problem_.input.images)) return {};
    const std::int64_t next = isLast ? 0 : y + 1;
    const UpsamplingTap* const begin = layout_.rows.begin(next);
    const UpsamplingTap* const end = layout_.rows.end(next);
    if (begin == end) return {};
    const bool knowsOwn = !isLast && layout_.rows.begin(y) != layout_.rows.end(y);
    const std::int64_t first = knowsOwn ? layout_.rows.end(y)[-1].input + 1 : begin->input;
    const std::int64_t last = end[-1].input;
    if (first > last) return {};
    const std::int64_t width = tile.inputEnd - tile.inputBegin;
    const std::int64_t image = problem_.input.offset(isLast ? n + 1 : n, 0, tile.inputBegin, 0);
    return {inputAt(image + first * problem_.input.rowStride),
            inputAt(image + last * problem_.input.rowStride + width * problem_.input.pixelStride),
            width + tile.end - tile.begin};
  }
  /// The tile's part of the input row behind one, where it is one piece of memory.
  [[nodiscard]] RowsToPrefetch rowBehind(std::int64_t n, std::int64_t row, const UpsamplingTile& tile) const {
    if (row + 1 >= problem_.input.height || problem_.input.pixelStride != problem_.input.channels) return {};
    const std::int64_t offset = problem_.input.offset(n, row + 1, tile.inputBegin, 0);
    return {inputAt(offset), inputAt(offset + (tile.inputEnd - tile.inputBegin) * problem_.input.channels),
            tile.end - tile.begin};
  }

  /// sums_ = the sum of the tile's part of input rows, its columns side by side. @param input of row 0
  template <class T>
  void sumRows(std::int64_t y, const UpsamplingTile& tile, const T* input, std::int64_t channels,
               RowsToPrefetch& ahead) {
    const std::int64_t width = tile.inputEnd - tile.inputBegin;
    const std::int64_t pixels = pixelsOfRun(channels);
    const UpsamplingTap* const taps = layout_.rows.begin(y);
    const auto count = static_cast<std::size_t>(layout_.rows.end(y) - taps);
    for (std::int64_t x = 0; x < width; x += pixels) {
      ahead.step(std::min(pixels, width - x));
      const std::int64_t length = std::min(pixels, width - x) * channels;
      sumRuns(TappedRuns<T>{taps, count, input + x * problem_.input.pixelStride, 0, problem_.input.rowStride},
              static_cast<std::size_t>(length), OrdinaryStores(), sums_ + x * channels);
    }
  }

  /// Of adjacent input pixels several at a time.
  [[nodiscard]] std::int64_t pixelsOfRun(std::int64_t channels) const {
    return problem_.input.pixelStride == channels ? std::max<std::int64_t>(1, kRun / channels) : 1;
  }

  void sumColumnsFirst(std::int64_t n, std::int64_t begin, std::int64_t end, std::size_t tileNumber) {
    const UpsamplingTile& tile = layout_.tiles[tileNumber];
    const auto length = static_cast<std::size_t>((tile.end - tile.begin) * problem_.destination.channels);
    std::fill(std::begin(rowOfSlot_), std::end(rowOfSlot_), -1);
    for (std::int64_t y = begin; y < end; ++y) {
      UpsamplingTap taps[UpsamplingLayout::mostSlots];
      std::size_t count = 0;
      for (const UpsamplingTap* row = layout_.rows.begin(y); row != layout_.rows.end(y); ++row) {
        const std::int64_t slot = row->input % layout_.slots;
        taps[count++] = {slot, row->weight};
        if (rowOfSlot_[slot] == row->input) continue;
        rowOfSlot_[slot] = row->input;
        fillSlot(n, row->input, tileNumber, sums_ + slot * layout_.slotLength);
      }
      withDestination(problem_.destination.offset(n, y, tile.begin, 0), [&](auto* to) {
        sumRuns(TappedRuns<float>{taps, count, sums_, 0, layout_.slotLength}, length, store_, to);
      });
    }
  }

  /// The columns of an input row.
  void fillSlot(std::int64_t n, std::int64_t row, std::size_t tileNumber, float* to) {
    const UpsamplingTile& tile = layout_.tiles[tileNumber];
    const std::int64_t channels = problem_.destination.channels;
    RowsToPrefetch ahead = rowBehind(n, row, tile);
    const std::int64_t offset = problem_.input.offset(n, row, tile.inputBegin, 0);
    const std::int64_t width = tile.inputEnd - tile.inputBegin;
    const auto direct = [&](const auto* from) {
      sumColumns(tileNumber, channels, from + offset, problem_.input.pixelStride, OrdinaryStores(), to,
                 channels, ahead);
    };
    if (!hasTable_ && problem_.input.format == ImageFeatureChannelFormat::Float32)
      return direct(reinterpret_cast<const float*>(input_));
    const std::int64_t taps = layout_.columns.end(tile.end - 1) - layout_.columns.begin(tile.begin);
    if (!hasTable_ && problem_.input.format == ImageFeatureChannelFormat::Float16 &&
        taps <= kTapsOfDirect * width)
      return direct(reinterpret_cast<const Float16*>(input_));
    withInput(offset, [&](const auto* from) {
      const std::int64_t several = pixelsOfRun(channels);
      for (std::int64_t x = 0; x < width; x += several)
        convertToFloats(from + x * problem_.input.pixelStride, row_ + x * channels,
                        static_cast<std::size_t>(std::min(several, width - x) * channels));
    });
    sumColumns(tileNumber, channels, row_, channels, OrdinaryStores(), to, channels, ahead);
  }

  /// A tile's pixels of the destination, or of a row like it. @param stride,toStride from pixel to pixel
  /// @param ahead what comes next is asked for meanwhile
  template <class T, class U, class Stores>
  void sumColumns(std::size_t tileNumber, std::int64_t channels, const T* columns, std::int64_t stride,
                  const Stores& store, U* to, std::int64_t toStride, RowsToPrefetch& ahead) const {
    const UpsamplingTile& tile = layout_.tiles[tileNumber];
    if constexpr (std::is_same_v<T, float>)
      if (hasTable_) return sumWithTable(tileNumber, channels, columns, store, to, ahead);
    for (std::int64_t x = tile.begin; x < tile.end; ++x) {
      ahead.step(1);
      const UpsamplingTap* const taps = layout_.columns.begin(x);
      sumRuns(TappedRuns<T>{taps, static_cast<std::size_t>(layout_.columns.end(x) - taps), columns,
                            tile.inputBegin, stride},
              static_cast<std::size_t>(channels), store, to + (x - tile.begin) * toStride);
    }
  }
  template <class U, class Stores>
  void sumWithTable(std::size_t tileNumber, std::int64_t channels, const float* columns, const Stores& store,
                    U* to, RowsToPrefetch& ahead) const {
    const UpsamplingTile& tile = layout_.tiles[tileNumber];
    const FewChannelTable& table = layout_.fewChannels;
    ahead.step(tile.end - tile.begin);
    const auto length = static_cast<std::size_t>((tile.end - tile.begin) * channels);
    const auto sum =
        table.areInTwoVectors ? sumFewChannels<true, U, Stores> : sumFewChannels<false, U, Stores>;
    sum(table, table.ofTile[tileNumber], channels, length, columns, store, to);
  }

  const UpsamplingProblem& problem_;
  const UpsamplingLayout& layout_;
  const std::byte* input_;
  std::byte* destination_;
  UpsamplingStores store_;
  bool hasTable_;
  std::int64_t rowOfSlot_[UpsamplingLayout::mostSlots];
  alignas(64) float sums_[UpsamplingLayout::capacity + FewChannelTable::mostRoom];
  alignas(64) float row_[UpsamplingLayout::capacity + FewChannelTable::mostRoom];  // of a tile of the input
};

/// Rows that are counted through all images.
void upsampleRows(const UpsamplingProblem& problem, const UpsamplingLayout& layout, const Operands& operands,
                  bool streams, std::int64_t begin, std::int64_t end) {
  RowSums rows(problem, layout, operands, streams);
  const std::int64_t height = problem.destination.height;
  while (begin < end) {
    const std::int64_t n = begin / height;
    const std::int64_t last = std::min(end, (n + 1) * height);
    rows.compute(n, begin - n * height, last - n * height);
    begin = last;
  }
}

std::size_t lanesOfFloats() {
  return hn::Lanes(hn::ScalableTag<float>());
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "mps/core/cpu/non_temporal_stores.hpp"

namespace mps::detail {

HWY_EXPORT(upsampleRows);
HWY_EXPORT(lanesOfFloats);

UpsamplingRows::UpsamplingRows(const UpsamplingProblem& problem)
    : problem_(problem), layout_(upsamplingLayout(problem, HWY_DYNAMIC_DISPATCH(lanesOfFloats)())) {}

void UpsamplingRows::compute(const Operands& operands, bool streams, std::int64_t begin,
                             std::int64_t end) const {
  HWY_DYNAMIC_DISPATCH(upsampleRows)(problem_, layout_, operands, streams, begin, end);
}

bool UpsamplingRows::stream(std::int64_t bytesMoved) const {
  return usesNonTemporalStoresForRows(bytesMoved, problem_.destination);
}

std::int64_t UpsamplingRows::grain() const {
  constexpr std::int64_t elementsOfThread = 16384;  // below which another one does not pay
  const std::int64_t rows = problem_.destination.images * problem_.destination.height;
  const std::int64_t elements = std::max(problem_.destination.elements(), problem_.input.elements());
  return std::max<std::int64_t>(1, elementsOfThread * rows / std::max<std::int64_t>(1, elements));
}

}  // namespace mps::detail

#endif
