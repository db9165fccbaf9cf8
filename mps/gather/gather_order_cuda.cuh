#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "mps/gather/gather_indices_cuda.cuh"
#include "mtl/cuda/launch.cuh"

/// Sorts the places of indices by the rows that they name, equal ones in order; places of those that name no row are left
/// out. Many indices are first moved to buckets of adjacent rows, then a block sorts each bucket; few are sorted at once by
/// blocks that take the indices of their rows from all of them.
namespace mps::detail::cuda {

inline constexpr std::uint32_t kMostBuckets = 256;
inline constexpr std::uint32_t kMoveThreads = 512;
inline constexpr std::uint32_t kSortThreads = 512;
inline constexpr std::uint32_t kItemsPerThread = 4;  ///< of a tile
inline constexpr std::uint32_t kSortRows = 1024;     ///< that a block sorts by at once
inline constexpr std::uint32_t kSortRowBits = 10;
inline constexpr std::int64_t kMostMoveBlocks = 128;     ///< each reads what all have counted
inline constexpr std::int64_t kMostSortedAtOnce = 8192;  ///< indices
inline constexpr std::uint32_t kNoRow = 0xFFFFFFFFU;

/// An index that names a row.
struct alignas(8) Item {
  std::uint32_t row;
  std::uint32_t place;
};

struct OrderArguments {
  Indices indices;
  std::uint32_t bucketBits = 0;           ///< a bucket has 2 to the power of so many rows
  std::uint32_t itemsOfBlock = 0;         ///< that a block moves to buckets, a multiple of the tile
  std::uint32_t* counts = nullptr;        ///< [block][bucket]
  std::uint32_t* bucketStarts = nullptr;  ///< of kMostBuckets, and the end
  Item* items = nullptr;                  ///< in buckets
  std::uint32_t* starts = nullptr;        ///< of rows, and the end
  std::uint32_t* places = nullptr;

  template <class Index>
  [[nodiscard]] __device__ std::uint32_t row(std::uint32_t place) const {
    const auto k = static_cast<std::int64_t>(reinterpret_cast<const Index*>(indices.memory)[place]);
    return k < 0 || k >= indices.rows ? kNoRow : static_cast<std::uint32_t>(k);
  }
  [[nodiscard]] __device__ std::uint32_t rows() const { return static_cast<std::uint32_t>(indices.rows); }
  [[nodiscard]] __device__ std::uint32_t endOfBlock() const {
    return static_cast<std::uint32_t>(
        min(static_cast<std::int64_t>(blockIdx.x + 1) * itemsOfBlock, indices.count));
  }
};

/// The sum of the values of the threads before this one, and of all. All threads of the block take part.
template <std::uint32_t threads>
__device__ std::uint32_t sumBefore(std::uint32_t value, std::uint32_t& total) {
  constexpr std::uint32_t warps = threads / 32;
  __shared__ std::uint32_t ofWarps[warps];
  const std::uint32_t lane = threadIdx.x % 32;
  const auto scan = [&](std::uint32_t sum) {
#pragma unroll
    for (std::uint32_t distance = 1; distance < 32; distance *= 2) {
      const std::uint32_t before = __shfl_up_sync(0xFFFFFFFFU, sum, distance);
      if (lane >= distance) sum += before;
    }
    return sum;
  };
  const std::uint32_t inWarp = scan(value);
  __syncthreads();
  if (lane == 31) ofWarps[threadIdx.x / 32] = inWarp;
  __syncthreads();
  const std::uint32_t sums = scan(lane < warps ? ofWarps[lane] : 0);
  total = __shfl_sync(0xFFFFFFFFU, sums, 31);
  const std::uint32_t warp = threadIdx.x / 32;
  const std::uint32_t before = __shfl_sync(0xFFFFFFFFU, sums, warp == 0 ? 0 : warp - 1);
  return (warp == 0 ? 0 : before) + inWarp - value;
}

/// Calls visit(item) for the items from `begin` on. Those of a thread are on their way together.
/// @tparam threads of the block
template <std::uint32_t threads, class ItemAt, class Visit>
__device__ void visitItems(std::uint32_t begin, std::uint32_t end, ItemAt itemAt, Visit visit) {
  constexpr std::uint32_t together = 8;
  for (std::uint32_t first = begin + threadIdx.x; first < end; first += together * threads) {
    Item items[together];
#pragma unroll
    for (std::uint32_t i = 0; i < together; ++i)
      items[i] = first + i * threads < end ? itemAt(first + i * threads) : Item{kNoRow, 0};
#pragma unroll
    for (std::uint32_t i = 0; i < together; ++i) visit(items[i]);
  }
}

template <class Index>
__global__ void __launch_bounds__(kMoveThreads) countBuckets(OrderArguments a) {
  __shared__ std::uint32_t counted[kMostBuckets];
  if (threadIdx.x < kMostBuckets) counted[threadIdx.x] = 0;
  __syncthreads();
  visitItems<kMoveThreads>(
      blockIdx.x * a.itemsOfBlock, a.endOfBlock(),
      [&](std::uint32_t place) {
        return Item{a.row<Index>(place), place};
      },
      [&](const Item& item) {
        if (item.row != kNoRow) atomicAdd(counted + (item.row >> a.bucketBits), 1U);
      });
  __syncthreads();
  if (threadIdx.x < kMostBuckets) a.counts[blockIdx.x * kMostBuckets + threadIdx.x] = counted[threadIdx.x];
}

/// Ranks the items of a tile by a digit, equal ones in the order of warps, of a thread's items and of lanes.
template <std::uint32_t threads, std::uint32_t digits>
struct TileRanks {
  static constexpr std::uint32_t warps = threads / 32;
  static constexpr std::uint32_t tile = threads * kItemsPerThread;
  static constexpr std::uint32_t digitsOfThread = (digits + threads - 1) / threads;

  /// How many items with a digit each warp has; when all are ranked, those of the warps before it.
  alignas(16) std::uint16_t ofWarp[warps][digits];

  __device__ static std::uint32_t firstOf(std::uint32_t tileStart) {
    return tileStart + threadIdx.x / 32 * 32 * kItemsPerThread + threadIdx.x % 32;
  }
  /// @param used digits; items with others are left out
  /// @param ranks of a thread's items among those of its warp with the same digit
  /// @param totals of the digits threadIdx.x, threadIdx.x + threads, ... All threads of the block take part.
  __device__ void rank(const std::uint32_t (&digitOf)[kItemsPerThread], std::uint32_t used,
                       std::uint32_t (&ranks)[kItemsPerThread], std::uint32_t (&totals)[digitsOfThread]) {
    const std::uint32_t lane = threadIdx.x % 32;
    std::uint16_t* const counts = ofWarp[threadIdx.x / 32];
    for (std::uint32_t digit = 8 * lane; digit < used; digit += 8 * 32)
      *reinterpret_cast<uint4*>(counts + digit) = uint4{0, 0, 0, 0};
    __syncwarp();
    unsigned same[kItemsPerThread];  // lanes with the same digit
#pragma unroll
    for (std::uint32_t i = 0; i < kItemsPerThread; ++i)
      same[i] = __ballot_sync(0xFFFFFFFFU, digitOf[i] < used);
#pragma unroll 1
    for (std::uint32_t bit = 1; bit < used; bit *= 2)
#pragma unroll
      for (std::uint32_t i = 0; i < kItemsPerThread; ++i) {
        const bool isSet = (digitOf[i] & bit) != 0;
        const unsigned set = __ballot_sync(0xFFFFFFFFU, isSet);
        same[i] &= isSet ? set : ~set;
      }
#pragma unroll
    for (std::uint32_t i = 0; i < kItemsPerThread; ++i) {
      const auto leader = static_cast<std::uint32_t>(__ffs(static_cast<int>(same[i]))) - 1;
      std::uint32_t before = 0;
      if (lane == leader && digitOf[i] < used) {
        before = counts[digitOf[i]];
        counts[digitOf[i]] = static_cast<std::uint16_t>(before + static_cast<std::uint32_t>(__popc(same[i])));
      }
      __syncwarp();
      ranks[i] = __shfl_sync(0xFFFFFFFFU, before, static_cast<int>(leader % 32)) +
                 static_cast<std::uint32_t>(__popc(same[i] & ((1U << lane) - 1)));
    }
    __syncthreads();
#pragma unroll
    for (std::uint32_t j = 0; j < digitsOfThread; ++j) {
      const std::uint32_t digit = threadIdx.x + j * threads;
      totals[j] = 0;
      if (digit >= used) continue;
#pragma unroll
      for (std::uint32_t i = 0; i < warps; ++i) {
        const std::uint32_t count = ofWarp[i][digit];
        ofWarp[i][digit] = static_cast<std::uint16_t>(totals[j]);
        totals[j] += count;
      }
    }
    __syncthreads();
  }
  [[nodiscard]] __device__ std::uint32_t before(std::uint32_t digit) const {
    return ofWarp[threadIdx.x / 32][digit];
  }
};

/// Items of a tile are put in order first, so that those of a bucket are written together.
template <class Index>
__global__ void __launch_bounds__(kMoveThreads) moveToBuckets(OrderArguments a) {
  using Ranks = TileRanks<kMoveThreads, kMostBuckets>;
  __shared__ Ranks ranks;
  __shared__ Item items[Ranks::tile];
  __shared__ std::uint32_t startInTile[kMostBuckets];
  __shared__ std::uint32_t offset[kMostBuckets];  // from a place in the tile to one among the items
  const bool hasBucket = threadIdx.x < kMostBuckets;
  std::uint32_t total = 0;
  std::uint32_t before = 0;
  if (hasBucket) {
#pragma unroll 16
    for (std::uint32_t block = 0; block < gridDim.x; ++block) {
      const std::uint32_t count = a.counts[block * kMostBuckets + threadIdx.x];
      total += count;
      if (block < blockIdx.x) before += count;
    }
  }
  std::uint32_t all = 0;
  const std::uint32_t start = sumBefore<kMoveThreads>(total, all);
  if (blockIdx.x == 0 && hasBucket) a.bucketStarts[threadIdx.x] = start;
  if (blockIdx.x == 0 && threadIdx.x == 0) a.bucketStarts[kMostBuckets] = all;
  std::uint32_t next = start + before;  // of this thread's bucket
  const std::uint32_t end = a.endOfBlock();
  for (std::uint32_t tile = blockIdx.x * a.itemsOfBlock; tile < end; tile += Ranks::tile) {
    const std::uint32_t first = Ranks::firstOf(tile);
    std::uint32_t rows[kItemsPerThread];
    std::uint32_t buckets[kItemsPerThread];
#pragma unroll
    for (std::uint32_t i = 0; i < kItemsPerThread; ++i)
      rows[i] = first + 32 * i < end ? a.row<Index>(first + 32 * i) : kNoRow;
#pragma unroll
    for (std::uint32_t i = 0; i < kItemsPerThread; ++i)
      buckets[i] = rows[i] == kNoRow ? kMostBuckets : rows[i] >> a.bucketBits;
    std::uint32_t inWarp[kItemsPerThread];
    std::uint32_t ofBucket[1];
    ranks.rank(buckets, kMostBuckets, inWarp, ofBucket);
    std::uint32_t inTile = 0;
    const std::uint32_t bucketStart = sumBefore<kMoveThreads>(ofBucket[0], inTile);
    if (hasBucket) {
      startInTile[threadIdx.x] = bucketStart;
      offset[threadIdx.x] = next - bucketStart;
      next += ofBucket[0];
    }
    __syncthreads();
#pragma unroll
    for (std::uint32_t i = 0; i < kItemsPerThread; ++i)
      if (buckets[i] < kMostBuckets)
        items[startInTile[buckets[i]] + ranks.before(buckets[i]) + inWarp[i]] = Item{rows[i], first + 32 * i};
    __syncthreads();
    for (std::uint32_t i = threadIdx.x; i < inTile; i += kMoveThreads)
      a.items[offset[items[i].row >> a.bucketBits] + i] = items[i];
    __syncthreads();
  }
}

/// A block sorts a bucket, or what all indices say of the rows of one.
/// @tparam Index of indices; void: items are in buckets
template <class Index>
__global__ void __launch_bounds__(kSortThreads) sortRows(OrderArguments a) {
  using Ranks = TileRanks<kSortThreads, kSortRows>;
  constexpr std::uint32_t rowsPerThread = kSortRows / kSortThreads;
  constexpr bool areInBuckets = std::is_void_v<Index>;
  __shared__ Ranks ranks;
  __shared__ std::uint32_t nexts[kSortRows];  // where the next item of a row goes
  const std::uint32_t endRow = static_cast<std::uint32_t>(
      min((static_cast<std::int64_t>(blockIdx.x) + 1) << a.bucketBits, a.indices.rows));
  const std::uint32_t begin = areInBuckets ? a.bucketStarts[blockIdx.x] : 0;
  const std::uint32_t end =
      areInBuckets ? a.bucketStarts[blockIdx.x + 1] : static_cast<std::uint32_t>(a.indices.count);
  std::uint32_t start = begin;
  const auto itemAt = [&](std::uint32_t place) {
    if constexpr (areInBuckets)
      return a.items[place];
    else
      return Item{a.row<Index>(place), place};
  };
  for (std::uint32_t first = blockIdx.x << a.bucketBits; first < endRow; first += kSortRows) {
    const std::uint32_t used = min(kSortRows, endRow - first);
    for (std::uint32_t row = threadIdx.x; row < kSortRows; row += kSortThreads) nexts[row] = 0;
    __syncthreads();
    std::uint32_t lower = 0;
    visitItems<kSortThreads>(begin, end, itemAt, [&](const Item& item) {
      if (item.row - first < used) atomicAdd(nexts + (item.row - first), 1U);
      if (!areInBuckets && item.row < first) ++lower;
    });
    std::uint32_t total = 0;
    if constexpr (!areInBuckets) {
      sumBefore<kSortThreads>(lower, start);
    }
    __syncthreads();
    std::uint32_t count[rowsPerThread];
    std::uint32_t sum = 0;
#pragma unroll
    for (std::uint32_t i = 0; i < rowsPerThread; ++i) {
      count[i] = nexts[threadIdx.x * rowsPerThread + i];
      sum += count[i];
    }
    std::uint32_t next = start + sumBefore<kSortThreads>(sum, total);
#pragma unroll
    for (std::uint32_t i = 0; i < rowsPerThread; ++i) {
      const std::uint32_t row = threadIdx.x * rowsPerThread + i;
      nexts[row] = next;
      if (row < used) a.starts[first + row] = next;
      next += count[i];
    }
    start += total;
    if (threadIdx.x == 0 && first + used == a.rows()) a.starts[a.rows()] = start;
    __syncthreads();
    for (std::uint32_t tile = begin; tile < end; tile += Ranks::tile) {
      const std::uint32_t place = Ranks::firstOf(tile);
      Item items[kItemsPerThread];
      std::uint32_t digits[kItemsPerThread];
#pragma unroll
      for (std::uint32_t i = 0; i < kItemsPerThread; ++i)
        items[i] = place + 32 * i < end ? itemAt(place + 32 * i) : Item{kNoRow, 0};
#pragma unroll
      for (std::uint32_t i = 0; i < kItemsPerThread; ++i) digits[i] = min(items[i].row - first, kSortRows);
      std::uint32_t inWarp[kItemsPerThread];
      std::uint32_t ofRow[rowsPerThread];
      ranks.rank(digits, used, inWarp, ofRow);
#pragma unroll
      for (std::uint32_t i = 0; i < kItemsPerThread; ++i)
        if (digits[i] < used)
          a.places[nexts[digits[i]] + ranks.before(digits[i]) + inWarp[i]] = items[i].place;
      __syncthreads();
#pragma unroll
      for (std::uint32_t i = 0; i < rowsPerThread; ++i) nexts[threadIdx.x + i * kSortThreads] += ofRow[i];
    }
  }
}

/// How the sort is shared, and its scratch memory.
class GatherOrder {
 public:
  /// @param rows at least one
  GatherOrder(std::int64_t count, std::int64_t rows) : count_(count), rows_(rows) {
    bucketBits_ = kSortRowBits;
    if (takesBuckets()) {
      bucketBits_ = 0;
      while (rows > std::int64_t{kMostBuckets} << bucketBits_) ++bucketBits_;
    }
    constexpr std::int64_t tile = kMoveThreads * kItemsPerThread;
    const std::int64_t tiles = (count + tile - 1) / tile;
    itemsOfBlock_ = (tiles + kMostMoveBlocks - 1) / kMostMoveBlocks * tile;
  }

  [[nodiscard]] std::size_t scratchBytes() const {
    return static_cast<std::size_t>(
               rows_ + 1 + count_ +
               (takesBuckets() ? moveBlocks() * kMostBuckets + kMostBuckets + 1 + 2 * count_ : 0)) *
           sizeof(std::uint32_t);
  }

  struct Result {
    const std::uint32_t* starts;  ///< of rows among the places, and the end
    const std::uint32_t* places;
  };
  /// @param scratch a multiple of 8
  Result sort(mtl::Stream& stream, const Indices& indices, std::byte* scratch) const {
    OrderArguments a;
    a.indices = indices;
    a.bucketBits = bucketBits_;
    a.itemsOfBlock = static_cast<std::uint32_t>(itemsOfBlock_);
    auto* next = reinterpret_cast<std::uint32_t*>(scratch);
    const auto take = [&](std::int64_t elements) {
      std::uint32_t* const taken = next;
      next += elements;
      return taken;
    };
    const dim3 buckets(static_cast<unsigned>((rows_ + (std::int64_t{1} << bucketBits_) - 1) >> bucketBits_));
    if (!takesBuckets()) {
      a.starts = take(rows_ + 1);
      a.places = take(count_);
      withIndices(indices.type, indices.memory, [&](auto* typed) {
        using Index = std::remove_cvref_t<decltype(*typed)>;
        mtl::cuda::launch(stream, sortRows<Index>, buckets, dim3(kSortThreads), 0, a);
      });
      return {a.starts, a.places};
    }
    a.items = reinterpret_cast<Item*>(take(2 * count_));
    a.counts = take(moveBlocks() * kMostBuckets);
    a.bucketStarts = take(kMostBuckets + 1);
    a.starts = take(rows_ + 1);
    a.places = take(count_);
    const dim3 blocks(static_cast<unsigned>(moveBlocks()));
    withIndices(indices.type, indices.memory, [&](auto* typed) {
      using Index = std::remove_cvref_t<decltype(*typed)>;
      mtl::cuda::launch(stream, countBuckets<Index>, blocks, dim3(kMoveThreads), 0, a);
      mtl::cuda::launch(stream, moveToBuckets<Index>, blocks, dim3(kMoveThreads), 0, a);
    });
    mtl::cuda::launch(stream, sortRows<void>, buckets, dim3(kSortThreads), 0, a);
    return {a.starts, a.places};
  }

 private:
  [[nodiscard]] bool takesBuckets() const { return count_ > kMostSortedAtOnce; }
  [[nodiscard]] std::int64_t moveBlocks() const { return (count_ + itemsOfBlock_ - 1) / itemsOfBlock_; }

  std::int64_t count_, rows_;
  std::int64_t itemsOfBlock_ = 0;
  std::uint32_t bucketBits_ = 0;
};

}  // namespace mps::detail::cuda
