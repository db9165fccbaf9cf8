// Rows of pixels that do not fill a vector, once per instruction set. Include it after hwy/highway.h in a file that
// hwy/foreach_target.h compiles several times; mps/core/highway_targets.hpp comes before both.

#if defined(UNMETAL_MPS_UPSAMPLING_UPSAMPLING_PACKED_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_UPSAMPLING_UPSAMPLING_PACKED_INL_HPP
#undef UNMETAL_MPS_UPSAMPLING_UPSAMPLING_PACKED_INL_HPP
#else
#define UNMETAL_MPS_UPSAMPLING_UPSAMPLING_PACKED_INL_HPP
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "mps/core/plan.hpp"
#include "mps/core/storage.hpp"
#include "mps/core/streamed_runs-inl.hpp"
#include "mps/upsampling/upsampling_groups-inl.hpp"
#include "mps/upsampling/upsampling_taps.hpp"
#include "mps/upsampling/upsampling_vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Asks for adjacent memory some way before it is read: rows that are read by turns look like no stream to the processor.
class ReadAhead {
 public:
  ReadAhead() = default;
  explicit ReadAhead(const std::byte* end) : end_(end) {}
  HWY_INLINE void before(const void* position) {
    const auto* const read = static_cast<const std::byte*>(position);
    const std::byte* const last = read + std::min<std::int64_t>(kDistance, end_ - read);
    if (next_ == nullptr) next_ = read;
    for (; next_ < last; next_ += kLine) __builtin_prefetch(next_, 0, 3);
  }

 private:
  static constexpr std::int64_t kLine = 64;
  static constexpr std::int64_t kDistance = 4096;
  const std::byte* next_ = nullptr;
  const std::byte* end_ = nullptr;
};

/// Results on their way to the destination. Rows begin amid cache lines; adjacent ones are written together, past the
/// caches if that is asked for.
class StagedRows {
 public:
  StagedRows(bool streams, bool accumulates) : streams_(streams), accumulates_(accumulates) {}

  /// Where `count` elements of the destination at `to` are to be put, with room for a vector behind them.
  template <class U>
  HWY_INLINE U* place(U* to, std::int64_t count) {
    goOn(reinterpret_cast<std::byte*>(to));
    auto* const place = reinterpret_cast<U*>(bytes_ + end_);
    end_ += count * static_cast<std::int64_t>(sizeof(U));
    return place;
  }

  void finish() { write(end_); }

 private:
  static constexpr std::int64_t kLine = 64;
  static constexpr std::int64_t kLeast = 1024;
  static constexpr std::int64_t kFull = 4096;
  static constexpr std::int64_t kLargestRow = UpsamplingLayout::capacity * sizeof(float);

  /// What comes next belongs at `to`. Whole lines are written after each row, while the next one is computed.
  HWY_INLINE void goOn(std::byte* to) {
    if (to != to_ + (end_ - begin_)) {
      write(end_);
      to_ = to;
      begin_ = end_ = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) % kLine);
      return;
    }
    const std::int64_t lines = end_ / kLine * kLine;
    if (lines - begin_ >= kLeast) write(lines);
    if (lines < kFull || begin_ != lines) return;
    std::memcpy(bytes_, bytes_ + lines, kLine);
    begin_ = 0;
    end_ -= lines;
  }

  void write(std::int64_t end) {
    const std::byte* const from = bytes_ + begin_;
    const auto count = static_cast<std::size_t>(end - begin_);
    if (count == 0) return;
    if (accumulates_)
      add(reinterpret_cast<const float*>(from), count / sizeof(float), reinterpret_cast<float*>(to_));
    else if (streams_)
      streamValues(from, count, to_);
    else
      std::memcpy(to_, from, count);
    to_ += count;
    begin_ = end;
  }

  static void add(const float* from, std::size_t count, float* to) {
    const hn::ScalableTag<float> d;
    forVectors(
        d, count, [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
          lanes.store(d, hn::Add(lanes.load(d, from + i), lanes.load(d, to + i)), to + i);
        });
  }

  bool streams_;
  bool accumulates_;  // of float32
  std::byte* to_ = nullptr;
  std::int64_t begin_ = 0;  // of what is not written yet: as far behind a cache line's begin as at to_
  std::int64_t end_ = 0;
  alignas(kLine) std::byte bytes_[kFull + kLeast + kLargestRow + 2 * kLine];
};

/// Computes rows of the destination, tile by tile, where pixels are short.
class PackedRows {
 public:
  PackedRows(const UpsamplingProblem& problem, const UpsamplingLayout& layout, const Operands& operands,
             bool streams)
      : problem_(problem),
        layout_(layout),
        input_(problem.direction == UpsamplingDirection::Forward ? operands.source : operands.gradient),
        destination_(operands.destination),
        staged_(streams, operands.accumulate),
        isAdjacent_(problem.input.pixelStride == problem.input.channels),
        readsAhead_(problem.input.isDense() && layout.tiles.size() == 1),
        inputEnd_(problem.input.offset(problem.input.images - 1, problem.input.height - 1,
                                       problem.input.width - 1, problem.input.channels)),
        ahead_(input_ + inputEnd_ * static_cast<std::int64_t>(bytesPerChannel(problem.input.format))) {}

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

  void finish() { staged_.finish(); }

 private:
  template <class T, class U>
  void sumRowsFirst(std::int64_t n, std::int64_t begin, std::int64_t end, std::size_t tileNumber,
                    const T* input, U* destination) {
    const UpsamplingTile& tile = layout_.tiles[tileNumber];
    const std::int64_t length = (tile.end - tile.begin) * problem_.destination.channels;
    const T* const first = input + problem_.input.offset(n, 0, tile.inputBegin, 0);
    const std::int64_t stride = layout_.slotStride;
    U* to = destination + problem_.destination.offset(n, begin, tile.begin, 0);
    for (std::int64_t y = begin; y < end;) {
      const std::int64_t rows = std::min(layout_.rowsAtOnce, end - y);
      for (std::int64_t r = 0; r < rows; ++r) sumRows(y + r, tile, first, sums_ + r * stride);
      sumColumns(tileNumber, length, rows, PackedRun<const float>{sums_, stride},
                 PackedRun<U>{staged_.place(to, rows * length), length});
      y += rows;
      to += rows * problem_.destination.rowStride;
    }
  }

  /// The sum of the tile's part of input rows. @param input of row 0
  template <class T>
  void sumRows(std::int64_t y, const UpsamplingTile& tile, const T* input, float* to) {
    const std::int64_t channels = problem_.input.channels;
    const UpsamplingTap* const taps = layout_.rows.begin(y);
    const auto count = static_cast<std::size_t>(layout_.rows.end(y) - taps);
    if (readsAhead_ && count > 0) ahead_.before(input + taps[count - 1].input * problem_.input.rowStride);
    const std::int64_t width = tile.inputEnd - tile.inputBegin;
    const std::int64_t runs = isAdjacent_ ? 1 : width;
    const std::int64_t length = isAdjacent_ ? width * channels : channels;
    for (std::int64_t x = 0; x < runs; ++x)
      sumRuns(TappedRuns<T>{taps, count, input + x * problem_.input.pixelStride, 0, problem_.input.rowStride},
              static_cast<std::size_t>(length), OrdinaryStores(), to + x * length);
  }

  template <class T, class U>
  HWY_INLINE void sumColumns(std::size_t tile, std::int64_t length, std::int64_t rows,
                             const PackedRun<const T>& from, const PackedRun<U>& to) {
    const auto count = static_cast<std::size_t>(length);
    const std::int64_t channels = problem_.input.channels;
    const std::size_t group = layout_.groups.ofTile[tile];
    if constexpr (std::is_same_v<U, float> || std::is_same_v<U, Float16>) {
      sumGroups(layout_.groups, group, channels, count, rows, from, to);
    } else {
      for (std::int64_t r = 0; r < rows; ++r) {
        sumGroups(layout_.groups, group, channels, count, 1, PackedRun<const T>{from.row(r), 0},
                  PackedRun<float>{row_, 0});
        convertFromFloats(row_, to.row(r), count);
      }
    }
  }

  template <class T, class U>
  void sumColumnsFirst(std::int64_t n, std::int64_t begin, std::int64_t end, std::size_t tileNumber,
                       const T* input, U* destination) {
    if constexpr (std::is_same_v<U, float> || std::is_same_v<U, Float16>)
      if (layout_.copiesRows)
        return forSlots<true>(n, begin, end, tileNumber, input, destination, reinterpret_cast<U*>(sums_));
    forSlots<false>(n, begin, end, tileNumber, input, destination, sums_);
  }

  /// Slots hold the columns of input rows by turns.
  template <bool copies, class T, class U, class Slot>
  HWY_INLINE void forSlots(std::int64_t n, std::int64_t begin, std::int64_t end, std::size_t tileNumber,
                           const T* input, U* destination, Slot* slots) {
    const UpsamplingTile& tile = layout_.tiles[tileNumber];
    const std::int64_t length = (tile.end - tile.begin) * problem_.destination.channels;
    const auto count = static_cast<std::size_t>(length);
    const std::int64_t inputRows = lastRow(begin, end) + 1;
    std::int64_t rowOfSlot[UpsamplingLayout::mostSlots];
    std::fill(std::begin(rowOfSlot), std::end(rowOfSlot), -1);
    const auto fill = [&](std::int64_t i) HWY_ATTR {
      const std::int64_t first = i & (layout_.slots - 1);
      const std::int64_t rows = std::min({layout_.rowsAtOnce, inputRows - i, layout_.slots - first});
      fillSlots(tileNumber, length, rows, input, problem_.input.offset(n, i, tile.inputBegin, 0),
                PackedRun<Slot>{slots + first * layout_.slotStride, layout_.slotStride});
      for (std::int64_t r = 0; r < rows; ++r) rowOfSlot[first + r] = i + r;
    };
    const auto tapped = [&](std::int64_t y, UpsamplingTap* taps) HWY_ATTR {
      std::size_t tap = 0;
      for (const UpsamplingTap* row = layout_.rows.begin(y); row != layout_.rows.end(y); ++row) {
        const std::int64_t slot = row->input & (layout_.slots - 1);
        taps[tap++] = {slot, row->weight};
        if (rowOfSlot[slot] != row->input) fill(row->input);
      }
      return TappedRuns<Slot>{taps, tap, slots, 0, layout_.slotStride};
    };
    U* to = destination + problem_.destination.offset(n, begin, tile.begin, 0);
    for (std::int64_t y = begin; y < end;) {
      UpsamplingTap taps[UpsamplingLayout::mostSlots];
      const TappedRuns<Slot> own = tapped(y, taps);
      const bool areTwo = y + 1 < end && areJoined<copies>(y);
      U* const place = staged_.place(to, areTwo ? 2 * length : length);
      if (areTwo) {
        UpsamplingTap nextTaps[UpsamplingLayout::mostSlots];
        const TappedRuns<Slot> next = tapped(y + 1, nextTaps);
        if constexpr (copies)
          copySlotTwice(own.at(0), count, place);
        else
          sumSlotsTwice(own, next, count, place);
      } else if constexpr (copies) {
        copySlot(own.at(0), count, place);
      } else {
        sumSlots(own, count, place);
      }
      y += areTwo ? 2 : 1;
      to += (areTwo ? 2 : 1) * problem_.destination.rowStride;
    }
  }

  /// Whether destination row y and the next one, adjacent, are sums of one or two rows of which the first is the same,
  /// and the second where both have one.
  template <bool copies>
  [[nodiscard]] HWY_INLINE bool areJoined(std::int64_t y) const {
    const UpsamplingTap* const own = layout_.rows.begin(y);
    const UpsamplingTap* const next = layout_.rows.begin(y + 1);
    const std::ptrdiff_t count = layout_.rows.end(y) - own;
    const std::ptrdiff_t nextCount = layout_.rows.end(y + 1) - next;
    if (layout_.rowsAtOnce == 1 || count == 0 || nextCount != (copies ? 1 : 2) || count > nextCount)
      return false;
    return own[0].input == next[0].input && (count < 2 || own[1].input == next[1].input);
  }

  /// The largest input row that destination rows are sums of; -1: none.
  [[nodiscard]] std::int64_t lastRow(std::int64_t begin, std::int64_t end) const {
    std::int64_t last = -1;
    for (std::int64_t y = begin; y < end; ++y)
      if (layout_.rows.begin(y) != layout_.rows.end(y)) last = std::max(last, layout_.rows.end(y)[-1].input);
    return last;
  }

  /// The columns of input rows. @param offset of the first one
  template <class T, class Slot>
  HWY_INLINE void fillSlots(std::size_t tileNumber, std::int64_t length, std::int64_t rows, const T* input,
                            std::int64_t offset, const PackedRun<Slot>& to) {
    const UpsamplingTile& tile = layout_.tiles[tileNumber];
    const std::int64_t stride = problem_.input.rowStride;
    if (readsAhead_) ahead_.before(input + offset + (rows - 1) * stride);
    if (canLookUp<T>(tile, offset + (rows - 1) * stride)) {
      if constexpr (std::is_same_v<T, float> || std::is_same_v<T, Float16>)
        sumColumns(tileNumber, length, rows, PackedRun<const T>{input + offset, stride}, to);
      return;
    }
    for (std::int64_t r = 0; r < rows; ++r)
      sumColumns(tileNumber, length, 1, PackedRun<const float>{packed(tile, input + offset + r * stride), 0},
                 PackedRun<Slot>{to.row(r), 0});
  }

  /// Whether sumGroups may read the tile's part of an input row where it lies.
  template <class T>
  [[nodiscard]] HWY_INLINE bool canLookUp(const UpsamplingTile& tile, std::int64_t offset) const {
    if (!std::is_same_v<T, float> &&
        (!std::is_same_v<T, Float16> || layout_.groups.lookup != UpsamplingLookup::OneVectorForAllTaps))
      return false;
    return isAdjacent_ &&
           offset + (tile.inputEnd - tile.inputBegin) * problem_.input.channels + layout_.groups.room <=
               inputEnd_;
  }

  /// The tile's part of an input row as float32, behind which more may be read.
  template <class T>
  HWY_INLINE const float* packed(const UpsamplingTile& tile, const T* row) {
    const std::int64_t channels = problem_.input.channels;
    const std::int64_t width = tile.inputEnd - tile.inputBegin;
    const std::int64_t runs = isAdjacent_ ? 1 : width;
    const std::int64_t run = isAdjacent_ ? width * channels : channels;
    for (std::int64_t x = 0; x < runs; ++x)
      convertToFloats(row + x * problem_.input.pixelStride, row_ + x * run, static_cast<std::size_t>(run));
    return row_;
  }

  /// Both have room for whole vectors.
  template <class U>
  static HWY_INLINE void copySlot(const U* slot, std::size_t length, U* to) {
    const hn::ScalableTag<std::uint8_t> d;
    const auto* const from = reinterpret_cast<const std::uint8_t*>(slot);
    auto* const bytes = reinterpret_cast<std::uint8_t*>(to);
    for (std::size_t i = 0; i < length * sizeof(U); i += hn::Lanes(d))
      hn::StoreU(hn::LoadU(d, from + i), d, bytes + i);
  }

  template <class U>
  static HWY_INLINE void copySlotTwice(const U* slot, std::size_t length, U* to) {
    copySlot(slot, length, to);
    copySlot(slot, length, to + length);
  }

  /// Two adjacent rows: areJoined.
  template <class U>
  HWY_INLINE void sumSlotsTwice(const TappedRuns<float>& own, const TappedRuns<float>& next,
                                std::size_t length, U* to) {
    const hn::ScalableTag<float> d;
    const float* const first = next.at(0);
    const float* const second = next.at(1);
    const auto firstWeight = hn::Set(d, own.taps[0].weight);
    const auto secondWeight = hn::Set(d, own.count > 1 ? own.taps[1].weight : 0.0F);
    const auto nextFirstWeight = hn::Set(d, next.taps[0].weight);
    const auto nextSecondWeight = hn::Set(d, next.taps[1].weight);
    const auto sum = [&](auto hasSecond) HWY_ATTR __attribute__((always_inline)) {
      forVectors(
          d, length, [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
            const auto a = hn::LoadU(d, first + i);
            const auto b = hn::LoadU(d, second + i);
            auto value = hn::Mul(a, firstWeight);
            if constexpr (hasSecond()) value = hn::MulAdd(b, secondWeight, value);
            OrdinaryStores()(d, lanes, value, to + i);
            storeFloats(d, hn::MulAdd(b, nextSecondWeight, hn::Mul(a, nextFirstWeight)), to + length + i);
          });
    };
    if (own.count > 1)
      sum(std::true_type());
    else
      sum(std::false_type());
  }

  /// The sum of slots; they and `to` have room for whole vectors.
  template <class U>
  HWY_INLINE void sumSlots(const TappedRuns<float>& slots, std::size_t length, U* to) {
    const hn::ScalableTag<float> d;
    const std::size_t step = hn::Lanes(d);
    const std::size_t whole = (length + step - 1) / step * step;
    if (slots.count == 0 || slots.count > 2) return sumRuns(slots, whole, OrdinaryStores(), to);
    const float* const first = slots.at(0);
    const auto firstWeight = hn::Set(d, slots.taps[0].weight);
    if (slots.count == 1) {
      for (std::size_t i = 0; i < whole; i += step)
        storeFloats(d, hn::Mul(hn::LoadU(d, first + i), firstWeight), to + i);
      return;
    }
    const float* const second = slots.at(1);
    const auto secondWeight = hn::Set(d, slots.taps[1].weight);
    for (std::size_t i = 0; i < whole; i += step)
      storeFloats(
          d,
          hn::MulAdd(hn::LoadU(d, second + i), secondWeight, hn::Mul(hn::LoadU(d, first + i), firstWeight)),
          to + i);
  }

  const UpsamplingProblem& problem_;
  const UpsamplingLayout& layout_;
  const std::byte* input_;
  std::byte* destination_;
  StagedRows staged_;
  bool isAdjacent_;
  bool readsAhead_;
  std::int64_t inputEnd_;
  ReadAhead ahead_;
  alignas(64) float sums_[UpsamplingLayout::capacity + UpsamplingGroups::mostRoom];
  alignas(64) float row_[UpsamplingLayout::capacity + UpsamplingGroups::mostRoom];
};

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
