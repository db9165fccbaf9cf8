#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "mps/core/elements_cuda.cuh"
#include "mps/core/rows_cuda.cuh"
#include "mps/gather/gather_columns_cuda.cuh"
#include "mps/gather/gather_problem.hpp"
#include "mtl/cuda/launch.cuh"

namespace mps::detail {
namespace {

using cuda::ColumnArguments;
using cuda::Divider;
using cuda::Indices;
using cuda::RowGrid;
using mtl::cuda::kBlockThreads;

/// The rows of a call's destination, and strides in pieces.
struct RowArguments {
  RowGrid grid;
  Divider height;  ///< of the destination
  std::int64_t fromImage, fromRow, toImage, toRow;

  /// @param lanes elements of a piece
  RowArguments(const TensorShape& from, const TensorShape& to, std::int64_t lanes)
      : grid(to.images * to.height, to.channels / lanes),
        height(to.height),
        fromImage(from.imageStride / lanes),
        fromRow(from.rowStride / lanes),
        toImage(to.imageStride / lanes),
        toRow(to.rowStride / lanes) {}
};

// Forward -------------------------------------------------------------------------------------------------------------

/// A piece is an element, or 16 bytes of them.
template <class Piece>
__global__ void copyRows(RowArguments a, Indices indices, const Piece* source, Piece* destination) {
  cuda::forEachRow(a.grid, [&](std::uint32_t row) {
    const std::uint32_t n = a.height.divide(row);
    const std::uint32_t i = row - n * a.height.divisor();
    const std::int64_t k = indices.row(i);
    const Piece* const from = source + n * a.fromImage + (k < 0 ? 0 : k) * a.fromRow;
    Piece* const to = destination + n * a.toImage + i * a.toRow;
    cuda::forEachPiece(a.grid, [&](std::uint32_t piece) { to[piece] = k < 0 ? Piece{} : from[piece]; });
  });
}

// Gradient: the places of the indices are sorted by the rows that they name, equal ones in order, digit by digit ------

constexpr std::uint32_t kDigitBits = 8;
constexpr std::uint32_t kDigits = 1U << kDigitBits;
constexpr std::uint32_t kSortThreads = kDigits;
constexpr std::uint32_t kSortWarps = kSortThreads / 32;
constexpr std::uint32_t kItemsPerThread = 4;
constexpr std::uint32_t kTile = kSortThreads * kItemsPerThread;  ///< items that a block moves at once
constexpr std::int64_t kMostSortBlocks = 128;                    ///< each reads what all have counted

/// Rows that indices name, and where the indices stand.
struct Keys {
  std::uint32_t* rows;
  std::uint32_t* places;
};

/// One digit. In the first round keys are what the indices say.
struct SortArguments {
  Indices indices;
  Keys from;
  Keys to;
  std::uint32_t itemsOfBlock;  ///< a multiple of the tile
  std::uint32_t shift;
  std::uint32_t* counts;  ///< [block][digit]

  [[nodiscard]] __device__ std::uint32_t end() const {
    return static_cast<std::uint32_t>(
        min(static_cast<std::int64_t>(blockIdx.x + 1) * itemsOfBlock, indices.count));
  }
  /// What names no row comes last.
  template <bool isFirst>
  [[nodiscard]] __device__ std::uint32_t row(std::uint32_t item) const {
    if constexpr (!isFirst) return from.rows[item];
    const std::int64_t k = indices.row(item);
    return static_cast<std::uint32_t>(k < 0 ? indices.rows : k);
  }
  [[nodiscard]] __device__ std::uint32_t digit(std::uint32_t row) const { return (row >> shift) % kDigits; }
};

template <bool isFirst>
__global__ void __launch_bounds__(kSortThreads) countDigits(SortArguments a) {
  __shared__ std::uint32_t counted[kDigits];
  counted[threadIdx.x] = 0;
  __syncthreads();
  const std::uint32_t end = a.end();
  for (std::uint32_t item = blockIdx.x * a.itemsOfBlock + threadIdx.x; item < end; item += kSortThreads)
    atomicAdd(counted + a.digit(a.row<isFirst>(item)), 1U);
  __syncthreads();
  a.counts[blockIdx.x * kDigits + threadIdx.x] = counted[threadIdx.x];
}

/// The sum of the values of the threads before this one. All threads of the block take part.
__device__ std::uint32_t sumBefore(std::uint32_t value) {
  __shared__ std::uint32_t sums[kSortThreads];
  sums[threadIdx.x] = value;
  __syncthreads();
  for (std::uint32_t distance = 1; distance < kSortThreads; distance *= 2) {
    const std::uint32_t before = threadIdx.x >= distance ? sums[threadIdx.x - distance] : 0;
    __syncthreads();
    sums[threadIdx.x] += before;
    __syncthreads();
  }
  return sums[threadIdx.x] - value;
}

/// A thread for each digit says where the next item with it goes; then warps move items, each warp those that follow the
/// ones of the warp before it.
template <bool isFirst>
__global__ void __launch_bounds__(kSortThreads) moveByDigit(SortArguments a) {
  __shared__ std::uint32_t ofWarp[kSortWarps]
                                 [kDigits];  ///< how many of a warp's have a digit, then where they go
  std::uint32_t total = 0;
  std::uint32_t before = 0;
#pragma unroll 8
  for (std::uint32_t block = 0; block < gridDim.x; ++block) {
    const std::uint32_t count = a.counts[block * kDigits + threadIdx.x];
    total += count;
    if (block < blockIdx.x) before += count;
  }
  std::uint32_t next = sumBefore(total) + before;

  const std::uint32_t warp = threadIdx.x / 32;
  const std::uint32_t lane = threadIdx.x % 32;
  const std::uint32_t end = a.end();
  for (std::uint32_t tile = blockIdx.x * a.itemsOfBlock; tile < end; tile += kTile) {
    for (std::uint32_t i = 0; i < kSortWarps; ++i) ofWarp[i][threadIdx.x] = 0;
    __syncthreads();
    const std::uint32_t first = tile + warp * 32 * kItemsPerThread + lane;
    std::uint32_t rows[kItemsPerThread];
    std::uint32_t ranks[kItemsPerThread];
#pragma unroll
    for (std::uint32_t i = 0; i < kItemsPerThread; ++i)
      rows[i] = first + 32 * i < end ? a.row<isFirst>(first + 32 * i) : 0;
#pragma unroll
    for (std::uint32_t i = 0; i < kItemsPerThread; ++i) {
      const bool isInside = first + 32 * i < end;
      const std::uint32_t digit = a.digit(rows[i]);
      const unsigned same = __match_any_sync(0xFFFFFFFFU, isInside ? digit : kDigits);
      const unsigned lower = same & ((1U << lane) - 1);
      ranks[i] = ofWarp[warp][digit] + static_cast<std::uint32_t>(__popc(lower));
      __syncwarp();
      if (isInside && lower == 0) ofWarp[warp][digit] += static_cast<std::uint32_t>(__popc(same));
      __syncwarp();
    }
    __syncthreads();
    for (std::uint32_t i = 0; i < kSortWarps; ++i) {
      const std::uint32_t count = ofWarp[i][threadIdx.x];
      ofWarp[i][threadIdx.x] = next;
      next += count;
    }
    __syncthreads();
#pragma unroll
    for (std::uint32_t i = 0; i < kItemsPerThread; ++i) {
      const std::uint32_t item = first + 32 * i;
      if (item >= end) continue;
      const std::uint32_t to = ofWarp[warp][a.digit(rows[i])] + ranks[i];
      a.to.rows[to] = rows[i];
      a.to.places[to] = isFirst ? item : a.from.places[item];
    }
    __syncthreads();
  }
}

/// starts[k] = how many sorted keys are less than k, for k = 0 ... rows.
__global__ void findStarts(const std::uint32_t* sorted, std::uint32_t count, std::uint32_t rows,
                           std::uint32_t* starts) {
  const std::uint32_t k = blockIdx.x * blockDim.x + threadIdx.x;
  if (k > rows) return;
  std::uint32_t first = 0;
  std::uint32_t last = count;
  while (first < last) {
    const std::uint32_t middle = first + (last - first) / 2;
    if (sorted[middle] < k)
      first = middle + 1;
    else
      last = middle;
  }
  starts[k] = first;
}

/// Elements one by one, or 16 bytes of them.
template <class T, int lanes>
struct Pieces {
  float sums[lanes] = {};

  __device__ void add(const T* from) {
    if constexpr (lanes == 1) {
      sums[0] += cuda::load(from);
    } else {
      const cuda::Lanes<T> values = cuda::loadLanes(from);
      for (int lane = 0; lane < lanes; ++lane) sums[lane] += values.values[lane];
    }
  }
  __device__ void store(T* to) const {
    if constexpr (lanes == 1) {
      cuda::store(sums[0], to);
    } else {
      cuda::Lanes<T> values;
      for (int lane = 0; lane < lanes; ++lane) values.values[lane] = sums[lane];
      cuda::storeLanes(values, to);
    }
  }
};

template <class T, int lanes>
__global__ void addRows(RowArguments a, const std::uint32_t* starts, const std::uint32_t* places,
                        const T* gradient, T* destination) {
  cuda::forEachRow(a.grid, [&](std::uint32_t row) {
    const std::uint32_t n = a.height.divide(row);
    const std::uint32_t k = row - n * a.height.divisor();
    const std::uint32_t begin = starts[k];
    const std::uint32_t end = starts[k + 1];
    const T* const from = gradient + n * a.fromImage * lanes;
    T* const to = destination + (n * a.toImage + k * a.toRow) * lanes;
    cuda::forEachPiece(a.grid, [&](std::uint32_t piece) {
      const std::int64_t first = static_cast<std::int64_t>(piece) * lanes;
      Pieces<T, lanes> sum;
#pragma unroll 4
      for (std::uint32_t p = begin; p < end; ++p) sum.add(from + places[p] * a.fromRow * lanes + first);
      sum.store(to + first);
    });
  });
}

/// Stretches of the scratch memory of a gradient.
struct Scratch {
  Keys keys[2];
  std::uint32_t* counts;
  std::uint32_t* starts;

  Scratch(std::byte* memory, std::int64_t count, std::int64_t counters) {
    auto* next = reinterpret_cast<std::uint32_t*>(memory);
    const auto take = [&](std::int64_t elements) {
      std::uint32_t* const taken = next;
      next += elements;
      return taken;
    };
    for (Keys& one : keys) {
      one.rows = take(count);
      one.places = take(count);
    }
    counts = take(counters);
    starts = next;
  }
};

class RowPlan final : public Plan {
 public:
  explicit RowPlan(const GatherProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const bool isForward = problem_.direction == GatherDirection::Forward;
    if ((isForward ? problem_.result : problem_.source).elements() == 0) return;
    if (isForward) return copy(stream, operands);
    const Scratch scratch(operands.scratch, count(), kDigits * sortBlocks());
    const std::uint32_t* const places = order(stream, operands, scratch);
    if (problem_.source.format == ImageFeatureChannelFormat::Float16)
      add<Float16>(stream, operands, scratch.starts, places);
    else
      add<float>(stream, operands, scratch.starts, places);
  }

  [[nodiscard]] std::size_t scratchBytes() const override {
    if (problem_.direction == GatherDirection::Forward) return 0;
    return static_cast<std::size_t>(4 * count() + kDigits * sortBlocks() + problem_.source.height + 1) *
           sizeof(std::uint32_t);
  }

 private:
  [[nodiscard]] std::int64_t count() const { return problem_.result.height; }
  [[nodiscard]] std::int64_t itemsOfSortBlock() const {
    const std::int64_t tiles = (count() + kTile - 1) / kTile;
    return std::max<std::int64_t>(1, (tiles + kMostSortBlocks - 1) / kMostSortBlocks) * kTile;
  }
  [[nodiscard]] std::int64_t sortBlocks() const {
    return std::max<std::int64_t>(1, (count() + itemsOfSortBlock() - 1) / itemsOfSortBlock());
  }
  [[nodiscard]] Indices indices(const Operands& operands) const {
    return {operands.secondary, problem_.indices, count(), problem_.source.height};
  }
  /// Whether 16 bytes can be accessed at once on both sides.
  [[nodiscard]] bool takesLanes(const std::byte* source, const std::byte* result) const {
    return cuda::takesLanes(problem_.source, source) && cuda::takesLanes(problem_.result, result);
  }

  /// Whether blocks can hold what is gathered from. @param from what that is
  [[nodiscard]] static bool areColumns(const TensorShape& from, const TensorShape& to) {
    return from.channels == 1 && from.images >= cuda::kFewestImagesOfColumns && from.rowStride == 1 &&
           to.rowStride == 1 && from.height * 4 <= cuda::kHeldBytes && from.height > 0;
  }
  template <class T, class... Arguments>
  static void startColumns(mtl::Stream& stream, void (*kernel)(ColumnArguments, Arguments...),
                           const TensorShape& from, const std::byte* input, const TensorShape& to,
                           std::byte* destination, const Arguments&... arguments) {
    ColumnArguments a;
    a.from = input;
    a.to = destination;
    a.fromImage = from.imageStride;
    a.toImage = to.imageStride;
    a.length = static_cast<std::uint32_t>(from.height);
    a.results = static_cast<std::uint32_t>(to.height);
    a.images = static_cast<std::uint32_t>(from.images);
    const std::int64_t held = (from.height + cuda::kLanes<T> - 1) / cuda::kLanes<T> * 16;
    const std::int64_t fewBlocks = std::max<std::int64_t>(1, from.images / cuda::kColumnBlocks);
    a.imagesOfBlock =
        static_cast<std::uint32_t>(std::min({cuda::kHeldBytes / held, cuda::kMostImagesOfBlock, fewBlocks}));
    a.isAligned = (reinterpret_cast<std::uintptr_t>(input) | a.fromImage * sizeof(T)) % 16 == 0;
    mtl::cuda::launch(stream, kernel, dim3(mtl::cuda::blocksFor(from.images, a.imagesOfBlock)),
                      dim3(cuda::kColumnThreads), 0, a, arguments...);
  }

  void copy(mtl::Stream& stream, const Operands& operands) const {
    const bool isHalf = problem_.source.format == ImageFeatureChannelFormat::Float16;
    if (areColumns(problem_.source, problem_.result)) {
      const auto start = [&](auto element) {
        using T = decltype(element);
        startColumns<T>(stream, cuda::copyColumns<T>, problem_.source, operands.source, problem_.result,
                        operands.destination, indices(operands));
      };
      return isHalf ? start(Float16{}) : start(0.0F);
    }
    if (takesLanes(operands.source, operands.destination))
      copyPieces<uint4>(stream, operands, isHalf ? 8 : 4);
    else if (isHalf)
      copyPieces<std::uint16_t>(stream, operands, 1);
    else
      copyPieces<std::uint32_t>(stream, operands, 1);
  }
  template <class Piece>
  void copyPieces(mtl::Stream& stream, const Operands& operands, std::int64_t lanes) const {
    const RowArguments a(problem_.source, problem_.result, lanes);
    mtl::cuda::launch(stream, copyRows<Piece>, a.grid.grid, a.grid.block, 0, a, indices(operands),
                      reinterpret_cast<const Piece*>(operands.source),
                      reinterpret_cast<Piece*>(operands.destination));
  }

  /// @return the places of the indices, sorted; what begins where stands in the scratch memory
  const std::uint32_t* order(mtl::Stream& stream, const Operands& operands, const Scratch& scratch) const {
    const auto items = static_cast<std::uint32_t>(count());
    const auto rows = static_cast<std::uint32_t>(problem_.source.height);
    const dim3 grid(static_cast<unsigned>(sortBlocks()));
    std::size_t sorted = 0;
    SortArguments a{indices(operands), {}, {}, static_cast<std::uint32_t>(itemsOfSortBlock()), 0,
                    scratch.counts};
    const auto sort = [&](auto isFirst) {
      a.from = scratch.keys[sorted];
      sorted = 1 - sorted;
      a.to = scratch.keys[sorted];
      mtl::cuda::launch(stream, countDigits<isFirst()>, grid, dim3(kSortThreads), 0, a);
      mtl::cuda::launch(stream, moveByDigit<isFirst()>, grid, dim3(kSortThreads), 0, a);
    };
    sort(std::true_type());
    for (a.shift = kDigitBits; a.shift < 32 && (rows >> a.shift) != 0; a.shift += kDigitBits)
      sort(std::false_type());
    mtl::cuda::launch(stream, findStarts, dim3(mtl::cuda::blocksFor(problem_.source.height + 1)),
                      dim3(kBlockThreads), 0, scratch.keys[sorted].rows, items, rows, scratch.starts);
    return scratch.keys[sorted].places;
  }

  template <class T>
  void add(mtl::Stream& stream, const Operands& operands, const std::uint32_t* starts,
           const std::uint32_t* places) const {
    if (areColumns(problem_.result, problem_.source))
      return startColumns<T>(stream, cuda::addColumns<T>, problem_.result, operands.gradient, problem_.source,
                             operands.destination, starts, places);
    if (takesLanes(operands.destination, operands.gradient))
      addPieces<T, cuda::kLanes<T>>(stream, operands, starts, places);
    else
      addPieces<T, 1>(stream, operands, starts, places);
  }
  template <class T, int lanes>
  void addPieces(mtl::Stream& stream, const Operands& operands, const std::uint32_t* starts,
                 const std::uint32_t* places) const {
    const RowArguments a(problem_.result, problem_.source, lanes);
    mtl::cuda::launch(stream, addRows<T, lanes>, a.grid.grid, a.grid.block, 0, a, starts, places,
                      reinterpret_cast<const T*>(operands.gradient),
                      reinterpret_cast<T*>(operands.destination));
  }

  GatherProblem problem_;
};

Preparation prepareRows(const GatherProblem& problem) {
  constexpr std::int64_t kMost = 0x7FFFFFFF - 0x10000;
  const auto isTooLarge = [](const TensorShape& shape) {
    return shape.height > kMost || !RowGrid::fits(shape.images * shape.height, shape.channels);
  };
  if (isTooLarge(problem.source) || isTooLarge(problem.result))
    return Refusal{"about 2^31 rows, or a row of about 2^31 elements"};
  return std::make_shared<const RowPlan>(problem);
}

constexpr Implementation<GatherProblem> implementations[] = {{"rows", prepareRows}};

}  // namespace

std::span<const Implementation<GatherProblem>> gatherImplementationsCuda() {
  return implementations;
}

}  // namespace mps::detail
