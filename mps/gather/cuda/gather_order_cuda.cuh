#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cub/device/device_radix_sort.cuh>

#include "mps/gather/gather_problem.hpp"
#include "mtl/cuda/launch.cuh"

namespace mps::detail::cuda {

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
    return k < 0 || k >= rows ? -1 : k;
  }
};

/// What is sorted: the rows that the indices name, with the numbers of the indices. One that names no row comes last.
inline __global__ void nameRows(Indices indices, std::uint32_t* rows, std::uint32_t* places) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= indices.count) return;
  const std::int64_t k = indices.row(i);
  rows[i] = static_cast<std::uint32_t>(k < 0 ? indices.rows : k);
  places[i] = static_cast<std::uint32_t>(i);
}

/// starts[k] = how many of the sorted rows are less than k, for k up to the number of rows.
inline __global__ void findStarts(const std::uint32_t* sorted, std::uint32_t count, std::uint32_t rows,
                                  std::uint32_t* starts) {
  const std::uint32_t k = blockIdx.x * blockDim.x + threadIdx.x;
  if (k > rows) return;
  std::uint32_t begin = 0;
  std::uint32_t end = count;
  while (begin < end) {
    const std::uint32_t middle = begin + (end - begin) / 2;
    if (sorted[middle] < k)
      begin = middle + 1;
    else
      end = middle;
  }
  starts[k] = begin;
}

/// Sorts the numbers of indices by the rows that they name. The sort is stable: equal indices stay in order.
class GatherOrder {
 public:
  /// @param count,rows below 2^31
  GatherOrder(std::int64_t count, std::int64_t rows)
      : count_(count), rows_(rows), bits_(std::bit_width(static_cast<std::uint64_t>(rows))) {
    mtl::cuda::check(sortPairs(nullptr, nullptr, sortBytes_, nullptr), "cub::DeviceRadixSort");
  }

  [[nodiscard]] std::size_t scratchBytes() const { return aligned(arrayBytes()) + sortBytes_; }

  struct Result {
    const std::uint32_t* starts;  ///< places[starts[k]] up to places[starts[k + 1]] name row k
    const std::uint32_t* places;
  };
  /// @param scratch a multiple of 256
  Result sort(mtl::Stream& stream, const Indices& indices, std::byte* scratch) const {
    auto* const arrays = reinterpret_cast<std::uint32_t*>(scratch);
    std::uint32_t* const starts = arrays + 4 * count_;
    if (count_ > 0) {
      mtl::cuda::launch(stream, nameRows, dim3(mtl::cuda::blocksFor(count_)), dim3(mtl::cuda::kBlockThreads),
                        0, indices, arrays, arrays + count_);
      std::size_t bytes = sortBytes_;
      mtl::cuda::check(
          sortPairs(arrays, scratch + aligned(arrayBytes()), bytes, mtl::cuda::asCuda(stream).handle()),
          "cub::DeviceRadixSort");
    }
    mtl::cuda::launch(stream, findStarts, dim3(mtl::cuda::blocksFor(rows_ + 1)),
                      dim3(mtl::cuda::kBlockThreads), 0, arrays + 2 * count_,
                      static_cast<std::uint32_t>(count_), static_cast<std::uint32_t>(rows_), starts);
    return {starts, arrays + 3 * count_};
  }

 private:
  /// The arrays, each of `count` numbers: rows, their places, both sorted; and the starts of rows.
  [[nodiscard]] std::size_t arrayBytes() const {
    return static_cast<std::size_t>(4 * count_ + rows_ + 1) * sizeof(std::uint32_t);
  }
  static std::size_t aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

  /// @param bytes of `memory`; those that the sort needs, where `memory` is null
  cudaError_t sortPairs(std::uint32_t* arrays, std::byte* memory, std::size_t& bytes,
                        cudaStream_t stream) const {
    const auto array = [&](std::int64_t i) { return arrays == nullptr ? nullptr : arrays + i * count_; };
    return cub::DeviceRadixSort::SortPairs(memory, bytes, static_cast<const std::uint32_t*>(array(0)),
                                           array(2), static_cast<const std::uint32_t*>(array(1)), array(3),
                                           static_cast<int>(std::max<std::int64_t>(count_, 1)), 0, bits_,
                                           stream);
  }

  std::int64_t count_, rows_;
  int bits_;  ///< of the number of rows, which stands for no row
  std::size_t sortBytes_ = 0;
};

}  // namespace mps::detail::cuda
