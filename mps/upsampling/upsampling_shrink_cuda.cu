#include "mps/upsampling/upsampling_shrink_cuda.cuh"

#include <algorithm>
#include <bit>
#include <optional>
#include <vector>

#include "mps/core/store_numbers_cuda.cuh"
#include "mps/upsampling/upsampling_shrink_cuda.hpp"
#include "mtl/cuda/api.hpp"

namespace mps::detail::cuda {
namespace {

using mtl::cuda::attributeOfDevice;

float bitsOf(std::int64_t number) {
  return std::bit_cast<float>(static_cast<std::int32_t>(number));
}

/// Which rows of the input results take. A result without any goes with the one before.
class ShrinkRowTable {
 public:
  /// @param most results that take the same row
  /// @param every rows after which the next result has all of its rows, also where these are behind the input; 0: any number
  static std::optional<ShrinkRowTable> make(std::span<const AxisTaps> rows, std::int64_t inputHeight,
                                            std::int64_t most, std::int64_t every) {
    ShrinkRowTable table(inputHeight, most, every);
    if (!table.setRows(rows) || (every != 0 && !table.setEvery()) || !table.setLines(rows))
      return std::nullopt;
    return table;
  }
  /// For each row of the input from firstRow() on: what it counts in the results that take it, result y's in place
  /// (y - firstResult_) % most, and how many have it as their last one.
  [[nodiscard]] const std::vector<float>& lines() const { return lines_; }
  [[nodiscard]] std::int64_t firstRow() const { return firstRow_; }
  /// Of some results.
  [[nodiscard]] ShrinkChunk chunk(std::int64_t begin, std::int64_t end) const {
    std::int64_t row = firsts_[static_cast<std::size_t>(begin)];
    std::int64_t result = std::lower_bound(lasts_.begin(), lasts_.end(), row) - lasts_.begin();
    std::int64_t rows = lasts_[static_cast<std::size_t>(end - 1)] - row + 1;
    if (every_ != 0) {
      // The first result's place is the first one.
      const std::int64_t before = (row - firstRow_) / every_ / most_ * most_;
      row = firstRow_ + before * every_;
      result = firstResult_ + before;
      rows = (end - result) * every_;
    }
    return {static_cast<std::int32_t>(row), static_cast<std::int32_t>(rows),
            static_cast<std::int32_t>(result), static_cast<std::int32_t>(begin),
            static_cast<std::int32_t>(end)};
  }
  /// Where the next part of an image's results begins, so that it has few rows that count nothing.
  [[nodiscard]] std::int64_t endOfPart(std::int64_t begin) const {
    constexpr std::int64_t mostParts = 8;
    const std::int64_t size = std::max<std::int64_t>(6, (height() + mostParts - 1) / mostParts);
    std::int64_t end = begin + size;
    if (every_ != 0) {
      const std::int64_t before = end - (most_ - 1) - firstResult_;
      end += (most_ - before % most_) % most_;
    }
    return height() - end < size / 2 ? height() : end;
  }

 private:
  ShrinkRowTable(std::int64_t inputHeight, std::int64_t most, std::int64_t every)
      : inputHeight_(inputHeight), most_(most), every_(every) {}

  [[nodiscard]] std::int64_t height() const { return static_cast<std::int64_t>(lasts_.size()); }
  [[nodiscard]] float* line(std::int64_t row) {
    return lines_.data() + static_cast<std::size_t>((row - firstRow_) * kShrinkRowFloats);
  }
  /// Of a result, also where that is behind the input.
  [[nodiscard]] std::int64_t lastOf(std::int64_t y) const {
    return every_ == 0 ? lasts_[static_cast<std::size_t>(y)]
                       : firstRow_ + (y - firstResult_ + 1) * every_ - 1;
  }
  /// @return whether they ascend
  bool setRows(std::span<const AxisTaps> rows) {
    std::int64_t first = 0;
    std::int64_t last = 0;
    for (const AxisTaps& taps : rows) {
      if (!taps.weights.empty()) {
        if (taps.first < first || taps.end() - 1 < last) return false;
        first = taps.first;
        last = taps.end() - 1;
      }
      firsts_.push_back(first);
      lasts_.push_back(last);
    }
    return true;
  }
  /// @return whether a result has all of its rows every few ones
  bool setEvery() {
    firstResult_ = -(lasts_.front() / every_);
    firstRow_ = lasts_.front() + (firstResult_ - 1) * every_ + 1;
    for (std::int64_t y = 0; y < height(); ++y)
      if (lasts_[static_cast<std::size_t>(y)] != std::min(lastOf(y), inputHeight_ - 1)) return false;
    return true;
  }
  /// @return whether no more results take the same row
  bool setLines(std::span<const AxisTaps> rows) {
    const std::int64_t end = std::max(inputHeight_, lastOf(height() - 1) + 1);
    lines_.resize(static_cast<std::size_t>((end - firstRow_) * kShrinkRowFloats));
    std::vector<std::uint32_t> ends(static_cast<std::size_t>(end));
    for (std::int64_t y = 0; y < height(); ++y) {
      const AxisTaps& taps = rows[static_cast<std::size_t>(y)];
      const auto last = static_cast<std::size_t>(lasts_[static_cast<std::size_t>(y)]);
      const std::int64_t first = taps.weights.empty() ? static_cast<std::int64_t>(last) + 1 : taps.first;
      // Places are those of results before the first one, too, where these are counted.
      if ((every_ != 0 || y >= most_) && lastOf(y - most_) >= first) return false;
      ++ends[last];
      for (std::size_t k = 0; k < taps.weights.size(); ++k)
        line(taps.first + static_cast<std::int64_t>(k))[(y - firstResult_) % most_] = taps.weights[k];
    }
    for (std::int64_t row = firstRow_; row < end; ++row) {
      float* const weights = line(row);
      const bool hasNothing = std::find(weights, weights + most_, 0.0F) != weights + most_;
      const std::uint32_t ending = row < 0 ? 0 : ends[static_cast<std::size_t>(row)];
      weights[kShrinkMostResults] = std::bit_cast<float>(ending | (hasNothing ? kShrinkHasNothing : 0));
    }
    return true;
  }

  std::int64_t inputHeight_;
  std::int64_t most_;
  std::int64_t every_;
  std::vector<std::int64_t> firsts_;
  std::vector<std::int64_t> lasts_;
  std::vector<float> lines_;
  // Where a result has all of its rows every few ones: of the first line, and the result that ends with it; below 0: of none.
  std::int64_t firstRow_ = 0;
  std::int64_t firstResult_ = 0;
};

/// Groups of adjacent columns of results: the first input pixel of each.
struct ShrinkGroups {
  std::vector<std::int64_t> firsts;
  std::int64_t span = 1;

  /// @param span that all have, or 0
  static std::optional<ShrinkGroups> make(std::span<const AxisTaps> columns, std::int64_t inputWidth,
                                          std::int64_t span) {
    ShrinkGroups groups;
    for (std::size_t begin = 0; begin < columns.size(); begin += kShrinkColumns) {
      std::int64_t first = inputWidth;
      std::int64_t end = 0;
      for (const AxisTaps& taps :
           columns.subspan(begin, std::min<std::size_t>(kShrinkColumns, columns.size() - begin))) {
        if (taps.weights.empty()) continue;
        first = std::min(first, taps.first);
        end = std::max(end, taps.end());
      }
      if (end == 0) first = groups.firsts.empty() ? 0 : groups.firsts.back();
      groups.firsts.push_back(first);
      groups.span = std::max(groups.span, end - first);
    }
    // They are looked at in pairs. Pixels that count nothing are inside the input, too.
    if (span != 0 && (groups.span > span || inputWidth < span)) return std::nullopt;
    groups.span = span != 0 ? span : std::min(groups.span + groups.span % 2, inputWidth);
    for (std::int64_t& first : groups.firsts) first = std::min(first, inputWidth - groups.span);
    if (!std::is_sorted(groups.firsts.begin(), groups.firsts.end())) return std::nullopt;
    return groups;
  }
  /// What tiles know.
  [[nodiscard]] std::vector<float> tileTable(std::span<const AxisTaps> columns,
                                             const ShrinkArguments& a) const {
    constexpr std::size_t n = kShrinkColumns;
    const auto ofTile = static_cast<std::size_t>(a.groupsOfTile());
    const auto tileFloats = static_cast<std::size_t>(a.tileFloats());
    std::vector<float> table((firsts.size() + ofTile - 1) / ofTile * tileFloats);
    for (std::size_t group = 0; group < firsts.size(); ++group) {
      float* const tile = table.data() + group / ofTile * tileFloats;
      tile[group % ofTile] = bitsOf(firsts[group]);
      float* const weights = tile + static_cast<std::size_t>(a.weightsAt()) +
                             group % ofTile * static_cast<std::size_t>(a.groupWeights);
      for (std::size_t x = n * group; x < std::min(n * group + n, columns.size()); ++x)
        for (std::size_t k = 0; k < columns[x].weights.size(); ++k) {
          const std::size_t pixel = static_cast<std::size_t>(columns[x].first - firsts[group]) + k;
          weights[pixel * static_cast<std::size_t>(a.pixelWeights) + x % n] = columns[x].weights[k];
        }
    }
    return table;
  }
};

/// How the columns of an image are shared out.
struct ShrinkTiles {
  std::int64_t groups = 0;  ///< of one; 0: one is too many
  std::int64_t count = 0;
  std::int64_t packs = 0;  ///< of a row of the widest one

  /// As few as have room. @param pixelFloats from a pixel to the next one
  ShrinkTiles(const ShrinkGroups& all, std::int64_t pixelFloats, std::int64_t threads) {
    const auto size = static_cast<std::int64_t>(all.firsts.size());
    for (count = 1; count <= size; ++count) {
      groups = (size + count - 1) / count;
      // Weights are read in pairs.
      groups += groups % 2;
      packs = packsOf(all, pixelFloats);
      if (packs > threads || (1 + kShrinkColumns * all.span) * groups > kMostTableFloats) continue;
      count = (size + groups - 1) / groups;
      return;
    }
    groups = 0;
  }

 private:
  /// Two blocks have room on any multiprocessor.
  static constexpr std::int64_t kMostTableFloats = 6144;

  [[nodiscard]] std::int64_t packsOf(const ShrinkGroups& all, std::int64_t pixelFloats) const {
    const auto size = static_cast<std::int64_t>(all.firsts.size());
    std::int64_t most = 0;
    for (std::int64_t begin = 0; begin < size; begin += groups) {
      const std::int64_t last = std::min(begin + groups, size) - 1;
      const std::int64_t from = all.firsts[static_cast<std::size_t>(begin)] * pixelFloats / kShrinkLanes;
      const std::int64_t end = (all.firsts[static_cast<std::size_t>(last)] + all.span) * pixelFloats;
      most = std::max(most, (end + kShrinkLanes - 1) / kShrinkLanes - from);
    }
    return most;
  }
};

/// Whether all elements lie in packs of four channels.
bool takesPacks(const TensorShape& shape) {
  return shape.channels % kShrinkLanes == 0 && shape.pixelStride % kShrinkLanes == 0 &&
         shape.rowStride % kShrinkLanes == 0 && shape.imageStride % kShrinkLanes == 0;
}
/// Whether pixels follow each other, and rows are packs.
bool takesRowsOfPacks(const TensorShape& shape) {
  return shape.pixelStride == shape.channels && shape.width * shape.channels % kShrinkLanes == 0 &&
         shape.rowStride % kShrinkLanes == 0 && shape.imageStride % kShrinkLanes == 0;
}

template <class T, ShrinkAccess access, int most, int every>
class ShrinkPlan final : public TilePlan {
 public:
  static std::unique_ptr<const TilePlan> make(const TensorShape& input, const TensorShape& destination,
                                              std::span<const AxisTaps> rows,
                                              std::span<const AxisTaps> columns) {
    if (access == ShrinkAccess::Pixels && (!takesPacks(input) || !takesPacks(destination))) return nullptr;
    if (access == ShrinkAccess::Packs && !takesRowsOfPacks(input)) return nullptr;
    const auto rowTable = ShrinkRowTable::make(rows, input.height, most, every);
    const auto groups = ShrinkGroups::make(columns, input.width, kShrinkSpan<most, every>);
    if (!rowTable || !groups) return nullptr;
    auto plan = std::make_unique<ShrinkPlan>(input, destination);
    return plan->setTiles(*groups, columns) && plan->setChunks(*rowTable) && plan->setBlocks()
               ? std::move(plan)
               : nullptr;
  }
  ShrinkPlan(const TensorShape& input, const TensorShape& destination)
      : input_(input), destination_(destination) {}

  [[nodiscard]] std::size_t scratchBytes() const override { return table_.size() * sizeof(float); }

  bool run(mtl::Stream& stream, const std::byte* input, const Operands& operands) const override {
    const auto isAligned = [](const std::byte* address) {
      return reinterpret_cast<std::uintptr_t>(address) % (kShrinkLanes * sizeof(T)) == 0;
    };
    if (access != ShrinkAccess::Elements && !isAligned(input)) return false;
    if (access == ShrinkAccess::Pixels && !isAligned(operands.destination)) return false;
    auto* const memory = reinterpret_cast<float*>(operands.scratch);
    storeNumbers(stream, table_, memory);
    ShrinkArguments a = arguments_;
    a.rowTable = memory + rowsAt_ - firstRow_ * kShrinkRowFloats;
    a.chunkTable = reinterpret_cast<const ShrinkChunk*>(memory + chunksAt_);
    a.tileTable = memory;
    a.input = {input_, input};
    a.destination = {destination_, operands.destination};
    const auto kernel = shrinkTiles<T, access, most, every>;
    mtl::cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(sharedBytes_)),
                     "cudaFuncSetAttribute");
    const std::int64_t places =
        attributeOfDevice(cudaDevAttrMultiProcessorCount) *
        std::int64_t{mtl::cuda::blocksOfMultiprocessor(kernel, threads_, sharedBytes_)};
    const std::int64_t blocks = cutStrips(a, std::max<std::int64_t>(places, 1));
    mtl::cuda::launch(stream, kernel, dim3(static_cast<unsigned>(blocks)), dim3(threads_), sharedBytes_, a);
    return true;
  }

 private:
  /// Of a chunk, whose weights have room beside those of columns.
  static constexpr std::int64_t kMostRows = 384;
  /// Rows of floats that come lie in shared memory, too.
  static constexpr std::int64_t kMostRowsOfBatch = sizeof(T) == 2 ? 4 : 2;
  static constexpr std::int64_t kRowsAtOnce = kShrinkRowsAtOnce<T, access, most, every>;
  static constexpr bool hasPixels = access == ShrinkAccess::Pixels;

  /// @return whether columns have room
  bool setTiles(const ShrinkGroups& groups, std::span<const AxisTaps> columns) {
    ShrinkArguments& a = arguments_;
    std::int64_t packs = 1;
    if (hasPixels) packs = packsOfSlice(groups);
    if (every != 0 && packs * kShrinkLanes != kShrinkSlice) return false;
    const std::int64_t pixelFloats = hasPixels ? packs * kShrinkLanes : input_.channels;
    const ShrinkTiles tiles(groups, pixelFloats, kShrinkThreads);
    if (tiles.groups == 0 || std::max(input_.width * pixelFloats, input_.rowStride) > 0x3FFFFFFF)
      return false;
    if (hasPixels && tiles.groups * packs > tiles.packs) return false;
    a.slices = Divider(hasPixels ? (input_.channels / kShrinkLanes + packs - 1) / packs : 1);
    a.tiles = Divider(tiles.count);
    a.threadsOfImage = Divider(tiles.packs);
    a.packs = Divider(packs);
    a.pieces = Divider(hasPixels ? packs : input_.channels);
    a.groups = Divider(tiles.groups);
    // Enough blocks for a large GPU come first.
    a.imagesOfBlock = static_cast<std::int32_t>(
        std::clamp<std::int64_t>(input_.images / 256, 1, kShrinkThreads / tiles.packs));
    a.images = static_cast<std::int32_t>(input_.images);
    a.width = static_cast<std::int32_t>(destination_.width);
    a.channels = static_cast<std::int32_t>(input_.channels);
    a.inputHeight = static_cast<std::int32_t>(input_.height);
    a.inputWidth = static_cast<std::int32_t>(input_.width);
    a.span = static_cast<std::int32_t>(groups.span);
    // Of pixels a thread reads two; others are read side by side.
    a.pixelWeights = kShrinkColumns * (hasPixels ? 1 : a.groupsOfTile());
    a.groupWeights = kShrinkColumns * (hasPixels ? a.span + a.span % 2 : 1);
    a.pixelFloats = static_cast<std::int32_t>(pixelFloats);
    threads_ = static_cast<unsigned>(a.imagesOfBlock * tiles.packs);
    const auto pieces = static_cast<std::int64_t>(a.piecesOfRow()) * a.imagesOfBlock;
    const std::int64_t rowsAtOnce = hasPixels ? std::min(threads_ / pieces, kMostRowsOfBatch) : 1;
    if (every != 0 && rowsAtOnce < kShrinkRowsOfBatch) return false;
    a.rowsOfBatch = Divider(every == 0 ? rowsAtOnce : kShrinkRowsOfBatch);
    table_ = groups.tileTable(columns, a);
    return true;
  }
  /// Slices of fewer channels have fewer columns that two tiles read.
  [[nodiscard]] std::int64_t packsOfSlice(const ShrinkGroups& groups) const {
    const std::int64_t all = input_.channels / kShrinkLanes;
    std::int64_t packs = 1;
    std::int64_t fewest = 0;
    for (std::int64_t slice = kShrinkSlice / kShrinkLanes; slice > 0; slice /= 2) {
      const std::int64_t own = std::min(slice, all);
      const ShrinkTiles tiles(groups, own * kShrinkLanes, kShrinkThreads);
      if (tiles.groups == 0) continue;
      const std::int64_t columnsRead = tiles.packs / own * tiles.count;
      if (fewest != 0 && 3 * columnsRead > 2 * fewest) continue;
      fewest = columnsRead;
      packs = own;
    }
    return packs;
  }
  /// @return whether their rows have room
  bool setChunks(const ShrinkRowTable& rows) {
    ShrinkArguments& a = arguments_;
    // Enough blocks for a large GPU come first; each chunk begins with rows that the one before it has, too.
    constexpr std::int64_t enough = 1000;
    constexpr std::int64_t fewest = 16;
    const std::int64_t height = destination_.height;
    std::int64_t count = std::clamp<std::int64_t>(enough / std::max<std::int64_t>(1, strips()), 1,
                                                  std::max<std::int64_t>(1, height / fewest));
    for (;; ++count) {
      if (count > height) return false;
      const std::int64_t own = (height + count - 1) / count;
      std::vector<ShrinkChunk> chunks;
      for (std::int64_t begin = 0; begin < height; begin += own)
        chunks.push_back(rows.chunk(begin, std::min(begin + own, height)));
      hasWholeStrips_ = chunks.size() == 1;
      if (hasWholeStrips_)
        for (std::int64_t begin = 0; begin < height; begin = chunks.back().end)
          chunks.push_back(rows.chunk(begin, rows.endOfPart(begin)));
      a.firstPart = hasWholeStrips_ ? 1 : 0;
      parts_ = static_cast<std::int64_t>(chunks.size()) - a.firstPart;
      a.mostRows = std::ranges::max_element(chunks, {}, &ShrinkChunk::rows)->rows;
      if (a.mostRows > kMostRows) continue;
      a.mostRows = (a.mostRows + kRowsAtOnce - 1) / kRowsAtOnce * kRowsAtOnce;
      chunksAt_ = table_.size();
      for (const ShrinkChunk& chunk : chunks)
        for (const std::int32_t number :
             {chunk.firstRow, chunk.rows, chunk.firstResult, chunk.begin, chunk.end})
          table_.push_back(bitsOf(number));
      firstRow_ = rows.firstRow();
      rowsAt_ = table_.size();
      table_.insert(table_.end(), rows.lines().begin(), rows.lines().end());
      return true;
    }
  }
  /// Before the rows of an image are chunks.
  [[nodiscard]] std::int64_t strips() const {
    const ShrinkArguments& a = arguments_;
    return (input_.images + a.imagesOfBlock - 1) / a.imagesOfBlock * a.slices.divisor() * a.tiles.divisor();
  }
  /// @return whether they are few enough
  bool setBlocks() {
    const ShrinkArguments& a = arguments_;
    if (strips() * parts_ > 0x7FFFFFFF) return false;
    const auto floats = ShrinkRows<T, access>::floats +
                        2 * static_cast<std::int64_t>(a.rowsOfBatch.divisor()) * kShrinkSums +
                        a.mostRows * kShrinkRowFloats + a.tileFloats();
    sharedBytes_ = static_cast<std::size_t>(floats) * sizeof(float);
    return true;
  }

  /// The last strips are cut where they would leave most of the GPU idle.
  /// @param places of blocks that run at the same time @return the number of blocks
  [[nodiscard]] std::int64_t cutStrips(ShrinkArguments& a, std::int64_t places) const {
    std::int64_t cut = strips();
    if (hasWholeStrips_) {
      cut %= places;
      if (parts_ * cut > places) cut = 0;
    }
    a.wholeStrips = static_cast<std::uint32_t>(strips() - cut);
    a.cutStrips = Divider(std::max<std::int64_t>(1, cut));
    return strips() - cut + parts_ * cut;
  }

  TensorShape input_;
  TensorShape destination_;
  ShrinkArguments arguments_;
  std::vector<float> table_;  ///< of tiles, chunks and rows
  std::size_t chunksAt_ = 0, rowsAt_ = 0;
  std::int64_t firstRow_ = 0;
  bool hasWholeStrips_ = false;
  std::int64_t parts_ = 1;  ///< of a strip that is cut
  unsigned threads_ = 0;
  std::size_t sharedBytes_ = 0;
};

template <class T>
std::unique_ptr<const TilePlan> makeTyped(const TensorShape& input, const TensorShape& destination,
                                          std::span<const AxisTaps> rows, std::span<const AxisTaps> columns) {
  using enum ShrinkAccess;
  std::unique_ptr<const TilePlan> plan;
  // Halving floats is bound by memory in any case.
  if constexpr (sizeof(T) == 2) plan = ShrinkPlan<T, Pixels, 6, 2>::make(input, destination, rows, columns);
  static_cast<void>(plan || (plan = ShrinkPlan<T, Pixels, 6, 0>::make(input, destination, rows, columns)) ||
                    (plan = ShrinkPlan<T, Pixels, 7, 0>::make(input, destination, rows, columns)) ||
                    (plan = ShrinkPlan<T, Packs, 7, 0>::make(input, destination, rows, columns)) ||
                    (plan = ShrinkPlan<T, Elements, 7, 0>::make(input, destination, rows, columns)));
  return plan;
}

}  // namespace

std::unique_ptr<const TilePlan> makeShrinkPlan(const TensorShape& input, const TensorShape& destination,
                                               std::span<const AxisTaps> rows,
                                               std::span<const AxisTaps> columns) {
  if (destination.elements() == 0 || input.elements() == 0 || input.channels != destination.channels ||
      input.height > TilePlan::kLongestAxis || static_cast<std::int64_t>(rows.size()) != destination.height ||
      static_cast<std::int64_t>(columns.size()) != destination.width)
    return nullptr;
  return planForElements(input, destination, [&](auto element) {
    return makeTyped<decltype(element)>(input, destination, rows, columns);
  });
}

}  // namespace mps::detail::cuda
