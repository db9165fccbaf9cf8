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

float bitsOf(std::int64_t number) {
  return std::bit_cast<float>(static_cast<std::int32_t>(number));
}

/// Which rows of the input results take. A result without any goes with the one before.
struct ShrinkRowTable {
  std::vector<std::int64_t> firsts;
  std::vector<std::int64_t> lasts;
  /// For each row of the input: what it counts in the results that take it, result y's in place y % most, and how many have it
  /// as their last one.
  std::vector<float> lines;

  static std::optional<ShrinkRowTable> make(std::span<const AxisTaps> rows, std::int64_t inputHeight,
                                            std::size_t most) {
    ShrinkRowTable table;
    table.lines.resize(static_cast<std::size_t>(inputHeight * kShrinkRowFloats));
    std::vector<std::int64_t> ends(static_cast<std::size_t>(inputHeight));
    std::int64_t first = 0;
    std::int64_t last = 0;
    for (std::size_t y = 0; y < rows.size(); ++y) {
      const AxisTaps& taps = rows[y];
      if (!taps.weights.empty()) {
        if (taps.first < first || taps.end() - 1 < last) return std::nullopt;
        first = taps.first;
        last = taps.end() - 1;
        if (y >= most && table.lasts[y - most] >= first) return std::nullopt;
      } else if (y >= most && table.lasts[y - most] >= last) {
        return std::nullopt;
      }
      table.firsts.push_back(first);
      table.lasts.push_back(last);
      ++ends[static_cast<std::size_t>(last)];
      for (std::size_t k = 0; k < taps.weights.size(); ++k)
        table.lines[(static_cast<std::size_t>(taps.first) + k) * kShrinkRowFloats + y % most] =
            taps.weights[k];
    }
    for (std::size_t row = 0; row < ends.size(); ++row)
      table.lines[row * kShrinkRowFloats + kShrinkMostResults] = bitsOf(ends[row]);
    return table;
  }
  [[nodiscard]] ShrinkChunk chunk(std::int64_t begin, std::int64_t end) const {
    const std::int64_t first = firsts[static_cast<std::size_t>(begin)];
    const std::int64_t last = lasts[static_cast<std::size_t>(end - 1)];
    const auto firstResult = std::lower_bound(lasts.begin(), lasts.end(), first) - lasts.begin();
    return {static_cast<std::int32_t>(first), static_cast<std::int32_t>(last - first + 1),
            static_cast<std::int32_t>(firstResult), static_cast<std::int32_t>(end)};
  }
};

/// Groups of adjacent columns of results: the first input pixel of each.
struct ShrinkGroups {
  std::vector<std::int64_t> firsts;
  std::int64_t span = 1;

  static std::optional<ShrinkGroups> make(std::span<const AxisTaps> columns, std::int64_t inputWidth) {
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
    // Pixels that count nothing are inside the input, too.
    for (std::int64_t& first : groups.firsts) first = std::min(first, inputWidth - groups.span);
    if (!std::is_sorted(groups.firsts.begin(), groups.firsts.end())) return std::nullopt;
    return groups;
  }
  /// What tiles of so many groups know.
  [[nodiscard]] std::vector<float> tileTable(std::span<const AxisTaps> columns, std::size_t ofTile) const {
    constexpr std::size_t n = kShrinkColumns;
    const std::size_t tileFloats = (1 + static_cast<std::size_t>(span) * n) * ofTile;
    std::vector<float> table((firsts.size() + ofTile - 1) / ofTile * tileFloats);
    for (std::size_t group = 0; group < firsts.size(); ++group) {
      float* const tile = table.data() + group / ofTile * tileFloats;
      tile[group % ofTile] = bitsOf(firsts[group]);
      for (std::size_t x = n * group; x < std::min(n * group + n, columns.size()); ++x)
        for (std::size_t k = 0; k < columns[x].weights.size(); ++k) {
          const std::size_t pixel = static_cast<std::size_t>(columns[x].first - firsts[group]) + k;
          tile[ofTile + (pixel * ofTile + group % ofTile) * n + x % n] = columns[x].weights[k];
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

template <class T, ShrinkAccess access, int most>
class ShrinkPlan final : public TilePlan {
 public:
  static std::unique_ptr<const TilePlan> make(const TensorShape& input, const TensorShape& destination,
                                              std::span<const AxisTaps> rows,
                                              std::span<const AxisTaps> columns) {
    if (access == ShrinkAccess::Pixels && (!takesPacks(input) || !takesPacks(destination))) return nullptr;
    if (access == ShrinkAccess::Packs && !takesRowsOfPacks(input)) return nullptr;
    const auto rowTable = ShrinkRowTable::make(rows, input.height, most);
    const auto groups = ShrinkGroups::make(columns, input.width);
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
    a.rowTable = memory + rowsAt_;
    a.chunkTable = reinterpret_cast<const ShrinkChunk*>(memory + chunksAt_);
    a.tileTable = memory;
    a.input = {input_, input};
    a.destination = {destination_, operands.destination};
    const auto kernel = shrinkTiles<T, access, most>;
    mtl::cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(sharedBytes_)),
                     "cudaFuncSetAttribute");
    mtl::cuda::launch(stream, kernel, dim3(blocks_), dim3(threads_), sharedBytes_, a);
    return true;
  }

 private:
  /// Of a chunk, whose weights have room beside those of columns.
  static constexpr std::int64_t kMostRows = 384;
  static constexpr bool hasPixels = access == ShrinkAccess::Pixels;

  /// @return whether columns have room
  bool setTiles(const ShrinkGroups& groups, std::span<const AxisTaps> columns) {
    ShrinkArguments& a = arguments_;
    std::int64_t packs = 1;
    if (hasPixels) packs = packsOfSlice(groups);
    const std::int64_t pixelFloats = hasPixels ? packs * kShrinkLanes : input_.channels;
    const ShrinkTiles tiles(groups, pixelFloats, kShrinkThreads<T>);
    if (tiles.groups == 0 || input_.width * pixelFloats > 0x3FFFFFFF) return false;
    if (hasPixels && tiles.groups * packs > tiles.packs) return false;
    a.slices = Divider(hasPixels ? (input_.channels / kShrinkLanes + packs - 1) / packs : 1);
    a.tiles = Divider(tiles.count);
    a.threadsOfImage = Divider(tiles.packs);
    a.packs = Divider(packs);
    a.pieces = Divider(hasPixels ? packs : input_.channels);
    a.piecesOfImage = Divider(tiles.groups * a.pieces.divisor());
    // Enough blocks for a large GPU come first.
    a.imagesOfBlock = static_cast<std::int32_t>(
        std::clamp<std::int64_t>(input_.images / 256, 1, kShrinkThreads<T> / tiles.packs));
    a.images = static_cast<std::int32_t>(input_.images);
    a.width = static_cast<std::int32_t>(destination_.width);
    a.channels = static_cast<std::int32_t>(input_.channels);
    a.inputWidth = static_cast<std::int32_t>(input_.width);
    a.groupsOfTile = static_cast<std::int32_t>(tiles.groups);
    a.span = static_cast<std::int32_t>(groups.span);
    a.pixelFloats = static_cast<std::int32_t>(pixelFloats);
    threads_ = static_cast<unsigned>(a.imagesOfBlock * tiles.packs);
    table_ = groups.tileTable(columns, static_cast<std::size_t>(tiles.groups));
    return true;
  }
  /// Memory gives 64 bytes at once; slices of fewer channels have fewer columns that two tiles read.
  [[nodiscard]] std::int64_t packsOfSlice(const ShrinkGroups& groups) const {
    const std::int64_t all = input_.channels / kShrinkLanes;
    std::int64_t packs = 1;
    std::int64_t fewest = 0;
    for (std::int64_t slice = 16 / static_cast<std::int64_t>(sizeof(T)); slice > 0; slice /= 2) {
      const std::int64_t own = std::min(slice, all);
      const ShrinkTiles tiles(groups, own * kShrinkLanes, kShrinkThreads<T>);
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
      a.mostRows = std::ranges::max_element(chunks, {}, &ShrinkChunk::rows)->rows;
      if (a.mostRows > kMostRows) continue;
      a.rowsPerChunk = static_cast<std::int32_t>(own);
      a.chunks = Divider(static_cast<std::int64_t>(chunks.size()));
      chunksAt_ = table_.size();
      for (const ShrinkChunk& chunk : chunks)
        for (const std::int32_t number : {chunk.firstRow, chunk.rows, chunk.firstResult, chunk.end})
          table_.push_back(bitsOf(number));
      rowsAt_ = table_.size();
      table_.insert(table_.end(), rows.lines.begin(), rows.lines.end());
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
    if (strips() * a.chunks.divisor() > 0x7FFFFFFF) return false;
    blocks_ = static_cast<unsigned>(strips() * a.chunks.divisor());
    const std::size_t floats = std::size_t{2} * threads_ * kShrinkLanes +
                               static_cast<std::size_t>(a.mostRows) * kShrinkRowFloats +
                               static_cast<std::size_t>(a.tileFloats());
    sharedBytes_ = kShrinkRowsHeld * threads_ * sizeof(typename ShrinkPack<T>::Type) + floats * sizeof(float);
    return true;
  }

  TensorShape input_;
  TensorShape destination_;
  ShrinkArguments arguments_;
  std::vector<float> table_;  ///< of tiles, chunks and rows
  std::size_t chunksAt_ = 0, rowsAt_ = 0;
  unsigned blocks_ = 0;
  unsigned threads_ = 0;
  std::size_t sharedBytes_ = 0;
};

template <class T>
std::unique_ptr<const TilePlan> makeTyped(const TensorShape& input, const TensorShape& destination,
                                          std::span<const AxisTaps> rows, std::span<const AxisTaps> columns) {
  using enum ShrinkAccess;
  std::unique_ptr<const TilePlan> plan;
  static_cast<void>((plan = ShrinkPlan<T, Pixels, 6>::make(input, destination, rows, columns)) ||
                    (plan = ShrinkPlan<T, Pixels, 7>::make(input, destination, rows, columns)) ||
                    (plan = ShrinkPlan<T, Packs, 7>::make(input, destination, rows, columns)) ||
                    (plan = ShrinkPlan<T, Elements, 7>::make(input, destination, rows, columns)));
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
  const auto format = commonFormat({&input, &destination});
  if (format == ImageFeatureChannelFormat::Float32)
    return makeTyped<float>(input, destination, rows, columns);
  if (format == ImageFeatureChannelFormat::Float16)
    return makeTyped<Float16>(input, destination, rows, columns);
  return nullptr;
}

}  // namespace mps::detail::cuda
