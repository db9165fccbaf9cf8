#pragma once

#include <algorithm>
#include <cstdint>

#include "mps/core/types/tensor_shape.hpp"
#include "mtl/cuda/launch.cuh"

/// How kernels over tensors share the work: a grid over the rows of all images, and over the pieces of a row.
namespace mps::detail::cuda {

/// Division of numbers below 2^31 by one that the host knows.
class Divider {
 public:
  Divider() = default;
  /// @param divisor 1 ... 2^31 - 1
  explicit Divider(std::int64_t divisor) : divisor_(static_cast<std::uint32_t>(divisor)) {
    if (divisor_ <= 1) return;
    while ((std::uint64_t{1} << (shift_ + 1)) < divisor_) ++shift_;
    // 2^(32 + shift) / divisor, rounded up: for numbers of 31 bits the error is too small to count.
    magic_ = static_cast<std::uint32_t>(((std::uint64_t{1} << (32 + shift_)) + divisor_ - 1) / divisor_);
  }
  __device__ std::uint32_t divide(std::uint32_t number) const {
    return divisor_ == 1 ? number : __umulhi(number, magic_) >> shift_;
  }
  __host__ __device__ std::uint32_t divisor() const { return divisor_; }

 private:
  std::uint32_t divisor_ = 1;
  std::uint32_t magic_ = 0;
  std::uint32_t shift_ = 0;
};

/// The grid of a kernel over `rows` rows of `pieces` pieces each.
struct RowGrid {
  std::uint32_t rows = 0;
  std::uint32_t pieces = 0;  ///< of a row
  dim3 grid;
  dim3 block;

  /// Whether the numbers are small enough.
  static bool fits(std::int64_t rows, std::int64_t pieces) {
    return rows <= 0x7FFFFFFF && pieces <= 0x7FFFFFFF - 0x10000;
  }
  RowGrid() = default;
  /// @param piecesPerThread about how many pieces of a row a thread works on, one after the other
  RowGrid(std::int64_t rowCount, std::int64_t pieceCount, std::int64_t piecesPerThread = 1)
      : rows(static_cast<std::uint32_t>(rowCount)), pieces(static_cast<std::uint32_t>(pieceCount)) {
    const std::int64_t threads = mtl::cuda::kBlockThreads;
    const std::int64_t wanted =
        std::max<std::int64_t>(1, (pieceCount + piecesPerThread - 1) / piecesPerThread);
    std::int64_t across = 1;
    while (across < threads && across < wanted) across *= 2;
    const std::int64_t down = threads / across;
    // A block of one row need not be a power of two.
    if (down == 1) across = std::min(across, (wanted + 31) / 32 * 32);
    block = dim3(static_cast<unsigned>(across), static_cast<unsigned>(down));
    grid = dim3(static_cast<unsigned>((wanted + across - 1) / across),
                static_cast<unsigned>(std::clamp<std::int64_t>((rowCount + down - 1) / down, 1, 65535)));
  }
};

/// Calls row(number) for the rows of this thread.
template <class Row>
__device__ void forEachRow(const RowGrid& grid, Row row) {
  for (std::uint32_t number = blockIdx.y * blockDim.y + threadIdx.y; number < grid.rows;
       number += gridDim.y * blockDim.y)
    row(number);
}
/// Calls piece(number) for the pieces of a row of this thread.
template <class Piece>
__device__ void forEachPiece(const RowGrid& grid, Piece piece) {
  for (std::uint32_t number = blockIdx.x * blockDim.x + threadIdx.x; number < grid.pieces;
       number += gridDim.x * blockDim.x)
    piece(number);
}

}  // namespace mps::detail::cuda
