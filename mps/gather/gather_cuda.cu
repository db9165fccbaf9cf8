#include <cstdint>
#include <memory>

#include "mps/core/elements_cuda.cuh"
#include "mps/core/rows_cuda.cuh"
#include "mps/gather/gather_problem.hpp"
#include "mtl/cuda/launch.cuh"

namespace mps::detail {
namespace {

using cuda::Divider;
using cuda::RowGrid;
using mtl::cuda::kBlockThreads;

/// Indices on the device.
struct Indices {
  const std::byte* memory;
  GatherIndices type;
  std::int64_t count;
  std::int64_t rows;  ///< that they may name

  /// -1 where it names no row.
  __device__ std::int64_t row(std::int64_t place) const {
    std::int64_t k = -1;
    switch (type) {
      case GatherIndices::UInt16:
        k = reinterpret_cast<const std::uint16_t*>(memory)[place];
        break;
      case GatherIndices::Int32:
        k = reinterpret_cast<const std::int32_t*>(memory)[place];
        break;
      case GatherIndices::UInt32:
        k = reinterpret_cast<const std::uint32_t*>(memory)[place];
        break;
    }
    return k < rows ? k : -1;
  }
};

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

constexpr std::uint32_t kDigitBits = 4;
constexpr std::uint32_t kDigits = 1U << kDigitBits;
/// Places that a thread counts and moves, one after the other.
constexpr std::uint32_t kPlacesPerThread = 16;
constexpr std::uint32_t kScanThreads = 1024;

/// Rows that indices name, and where the indices stand.
struct Keys {
  std::uint32_t* rows;
  std::uint32_t* places;
};

/// What names no row comes last.
__global__ void listIndices(Indices indices, Keys keys) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= indices.count) return;
  const std::int64_t k = indices.row(i);
  keys.rows[i] = static_cast<std::uint32_t>(k < 0 ? indices.rows : k);
  keys.places[i] = static_cast<std::uint32_t>(i);
}

/// counts[digit * threads + thread] = how many of a thread's keys have a digit.
__global__ void countDigits(Keys keys, std::uint32_t count, std::uint32_t threads, std::uint32_t shift,
                            std::uint32_t* counts) {
  const std::uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  if (thread >= threads) return;
  std::uint32_t own[kDigits] = {};
  const std::uint32_t begin = thread * kPlacesPerThread;
  const std::uint32_t end = min(begin + kPlacesPerThread, count);
  for (std::uint32_t i = begin; i < end; ++i) ++own[(keys.rows[i] >> shift) % kDigits];
  for (std::uint32_t digit = 0; digit < kDigits; ++digit) counts[digit * threads + thread] = own[digit];
}

/// Replaces each count by the sum of those before it. One block.
__global__ void sumCountsBefore(std::uint32_t* counts, std::uint32_t count) {
  __shared__ std::uint32_t sums[kScanThreads];
  const std::uint32_t thread = threadIdx.x;
  const std::uint32_t each = (count + kScanThreads - 1) / kScanThreads;
  const std::uint32_t begin = min(thread * each, count);
  const std::uint32_t end = min(begin + each, count);
  std::uint32_t sum = 0;
  for (std::uint32_t i = begin; i < end; ++i) sum += counts[i];
  sums[thread] = sum;
  __syncthreads();
  for (std::uint32_t distance = 1; distance < kScanThreads; distance *= 2) {
    const std::uint32_t before = thread >= distance ? sums[thread - distance] : 0;
    __syncthreads();
    sums[thread] += before;
    __syncthreads();
  }
  std::uint32_t start = sums[thread] - sum;
  for (std::uint32_t i = begin; i < end; ++i) {
    const std::uint32_t own = counts[i];
    counts[i] = start;
    start += own;
  }
}

/// @param starts where a thread's keys with a digit go, as counted
__global__ void moveByDigit(Keys keys, Keys sorted, std::uint32_t count, std::uint32_t threads,
                            std::uint32_t shift, const std::uint32_t* starts) {
  const std::uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  if (thread >= threads) return;
  std::uint32_t next[kDigits];
  for (std::uint32_t digit = 0; digit < kDigits; ++digit) next[digit] = starts[digit * threads + thread];
  const std::uint32_t begin = thread * kPlacesPerThread;
  const std::uint32_t end = min(begin + kPlacesPerThread, count);
  for (std::uint32_t i = begin; i < end; ++i) {
    const std::uint32_t row = keys.rows[i];
    const std::uint32_t to = next[(row >> shift) % kDigits]++;
    sorted.rows[to] = row;
    sorted.places[to] = keys.places[i];
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
    const Scratch scratch(operands.scratch, count(), kDigits * threads());
    const std::uint32_t* const places = order(stream, operands, scratch);
    if (problem_.source.format == ImageFeatureChannelFormat::Float16)
      add<Float16>(stream, operands, scratch.starts, places);
    else
      add<float>(stream, operands, scratch.starts, places);
  }

  [[nodiscard]] std::size_t scratchBytes() const override {
    if (problem_.direction == GatherDirection::Forward) return 0;
    return static_cast<std::size_t>(4 * count() + kDigits * threads() + problem_.source.height + 1) *
           sizeof(std::uint32_t);
  }

 private:
  [[nodiscard]] std::int64_t count() const { return problem_.result.height; }
  /// That sort.
  [[nodiscard]] std::int64_t threads() const { return (count() + kPlacesPerThread - 1) / kPlacesPerThread; }
  [[nodiscard]] Indices indices(const Operands& operands) const {
    return {operands.secondary, problem_.indices, count(), problem_.source.height};
  }
  /// Whether 16 bytes can be accessed at once on both sides.
  [[nodiscard]] bool takesLanes(const std::byte* source, const std::byte* result) const {
    return cuda::takesLanes(problem_.source, source) && cuda::takesLanes(problem_.result, result);
  }

  void copy(mtl::Stream& stream, const Operands& operands) const {
    const bool isHalf = problem_.source.format == ImageFeatureChannelFormat::Float16;
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
    const auto sorters = static_cast<std::uint32_t>(threads());
    const auto rows = static_cast<std::uint32_t>(problem_.source.height);
    const dim3 block(kBlockThreads);
    mtl::cuda::launch(stream, listIndices, dim3(mtl::cuda::blocksFor(items)), block, 0, indices(operands),
                      scratch.keys[0]);
    std::size_t sorted = 0;
    for (std::uint32_t shift = 0; shift < 32 && (rows >> shift) != 0; shift += kDigitBits) {
      mtl::cuda::launch(stream, countDigits, dim3(mtl::cuda::blocksFor(sorters)), block, 0,
                        scratch.keys[sorted], items, sorters, shift, scratch.counts);
      mtl::cuda::launch(stream, sumCountsBefore, dim3(1), dim3(kScanThreads), 0, scratch.counts,
                        kDigits * sorters);
      mtl::cuda::launch(stream, moveByDigit, dim3(mtl::cuda::blocksFor(sorters)), block, 0,
                        scratch.keys[sorted], scratch.keys[1 - sorted], items, sorters, shift,
                        scratch.counts);
      sorted = 1 - sorted;
    }
    mtl::cuda::launch(stream, findStarts, dim3(mtl::cuda::blocksFor(problem_.source.height + 1)), block, 0,
                      scratch.keys[sorted].rows, items, rows, scratch.starts);
    return scratch.keys[sorted].places;
  }

  template <class T>
  void add(mtl::Stream& stream, const Operands& operands, const std::uint32_t* starts,
           const std::uint32_t* places) const {
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
