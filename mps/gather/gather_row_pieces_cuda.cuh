#pragma once

#include <cstdint>

#include "mps/core/rows_cuda.cuh"
#include "mps/gather/gather_terms_cuda.cuh"
#include "mtl/cuda/launch.cuh"

/// Rows as pieces of 16 bytes, some for each thread; and gradients of fewer indices than rows, of which most have one term or
/// none.
namespace mps::detail::cuda {

/// Rows of the destination as pieces of 16 bytes, one row after the other, and strides in elements.
struct RowPieceArguments {
  static constexpr int kTogether = 2;  ///< pieces of a thread
  static constexpr std::int64_t kMostPieces = 0x7FFFFFFF - 0x10000;

  Divider piecesOfRow, height;
  std::uint32_t pieces;  ///< of all rows
  std::int64_t fromImage, fromRow, toImage, toRow;

  /// @param lanes elements of a piece
  RowPieceArguments(const TensorShape& from, const TensorShape& to, std::int64_t lanes)
      : piecesOfRow(to.channels / lanes),
        height(to.height),
        pieces(static_cast<std::uint32_t>(to.images * to.height * (to.channels / lanes))),
        fromImage(from.imageStride),
        fromRow(from.rowStride),
        toImage(to.imageStride),
        toRow(to.rowStride) {}
  /// Whether 32 bits count the pieces.
  static bool fits(const TensorShape& to, std::int64_t lanes) {
    return to.images * to.height <= kMostPieces / (to.channels / lanes);
  }
  struct Place {
    std::uint32_t image, row, piece;  ///< of a row
  };
  [[nodiscard]] __device__ Place placeOf(std::uint32_t number) const {
    const std::uint32_t ofImages = piecesOfRow.divide(number);
    const std::uint32_t image = height.divide(ofImages);
    return {image, ofImages - image * height.divisor(), number - ofImages * piecesOfRow.divisor()};
  }
  /// Of a thread's piece i, from 0 to kTogether - 1; there may be fewer pieces.
  [[nodiscard]] __device__ static std::uint32_t numberOf(int i) {
    return (blockIdx.x * kTogether + static_cast<std::uint32_t>(i)) * mtl::cuda::kBlockThreads + threadIdx.x;
  }
  [[nodiscard]] unsigned blocks() const {
    return mtl::cuda::blocksFor(pieces, mtl::cuda::kBlockThreads * kTogether);
  }
};

/// A thread has some pieces, a block's width apart, and waits for the first terms of all of them together.
template <class T>
__global__ void __launch_bounds__(mtl::cuda::kBlockThreads)
    addSparsePieces(RowPieceArguments a, const std::uint32_t* starts, const std::uint32_t* places,
                    const T* gradient, T* destination) {
  constexpr int lanes = kLanes<T>;
  constexpr int together = RowPieceArguments::kTogether;
  using Sum = Terms<T, lanes>;
  struct Piece {
    std::uint32_t begin = 0, end = 0;  ///< terms
    const T* from = nullptr;
    T* to = nullptr;
  };
  Piece pieces[together];
#pragma unroll
  for (int i = 0; i < together; ++i) {
    const std::uint32_t number = RowPieceArguments::numberOf(i);
    if (number >= a.pieces) continue;
    const auto [n, k, piece] = a.placeOf(number);
    const std::int64_t first = static_cast<std::int64_t>(piece) * lanes;
    pieces[i] = {starts[k], starts[k + 1], gradient + n * a.fromImage + first,
                 destination + n * a.toImage + k * a.toRow + first};
  }
  std::uint32_t place[together] = {};
#pragma unroll
  for (int i = 0; i < together; ++i)
    if (pieces[i].begin < pieces[i].end) place[i] = places[pieces[i].begin];
  typename Sum::Fetched firstTerm[together] = {};
#pragma unroll
  for (int i = 0; i < together; ++i)
    if (pieces[i].begin < pieces[i].end) firstTerm[i] = Sum::fetch(pieces[i].from + place[i] * a.fromRow);
#pragma unroll
  for (int i = 0; i < together; ++i) {
    if (pieces[i].to == nullptr) continue;
    Sum sum;
    // A zero changes nothing: a sum that begins with 0 is never -0.
    sum.add(firstTerm[i]);
#pragma unroll 1
    for (std::uint32_t p = pieces[i].begin + 1; p < pieces[i].end; ++p)
      sum.add(Sum::fetch(pieces[i].from + places[p] * a.fromRow));
    sum.store(pieces[i].to);
  }
}

}  // namespace mps::detail::cuda
