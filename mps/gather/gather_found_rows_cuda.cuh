#pragma once

#include <cstdint>

#include "mps/core/rows_cuda.cuh"
#include "mps/gather/gather_indices_cuda.cuh"
#include "mps/gather/gather_terms_cuda.cuh"

/// Gradients of few indices in one launch: instead of an order of the indices, each warp looks through all of them for its
/// row.
namespace mps::detail::cuda {

/// Rows of the destination, of which a warp has a part of 32 pieces, and strides in elements.
struct FoundRowArguments {
  static constexpr unsigned kWarps = 8;  ///< of a block

  Divider height;  ///< of the destination
  Divider parts;   ///< of a row
  std::uint32_t warps;
  std::uint32_t pieces;  ///< of a row
  std::uint32_t count;   ///< indices
  std::int64_t fromImage, fromRow, toImage, toRow;

  /// @param lanes elements of a piece
  FoundRowArguments(const TensorShape& from, const TensorShape& to, std::int64_t lanes)
      : height(to.height),
        parts((to.channels / lanes + 31) / 32),
        warps(static_cast<std::uint32_t>(to.images * to.height) * parts.divisor()),
        pieces(static_cast<std::uint32_t>(to.channels / lanes)),
        count(static_cast<std::uint32_t>(from.height)),
        fromImage(from.imageStride),
        fromRow(from.rowStride),
        toImage(to.imageStride),
        toRow(to.rowStride) {}

  /// Whether looking takes less time than a launch more, and most rows have one term or none.
  static bool isWorthIt(const TensorShape& from, const TensorShape& to, std::int64_t lanes) {
    constexpr std::int64_t mostLooks = std::int64_t{1} << 22;
    const std::int64_t partsOfRow = (to.channels / lanes + 31) / 32;
    return from.height <= to.height && to.images * to.height <= mostLooks / partsOfRow &&
           to.images * to.height * partsOfRow * from.height <= mostLooks;
  }
};

/// The terms of a row are added in the order of their indices, some loaded at once.
template <class T, class Index>
__global__ void __launch_bounds__(32 * FoundRowArguments::kWarps)
    addFoundRows(FoundRowArguments a, const Index* indices, const T* gradient, T* destination) {
  constexpr unsigned all = 0xFFFFFFFFU;
  constexpr int lanes = kLanes<T>;
  constexpr std::uint32_t looks = 8;
  constexpr int together = 4;
  using Sum = Terms<T, lanes>;
  const std::uint32_t warp = blockIdx.x * FoundRowArguments::kWarps + threadIdx.y;
  if (warp >= a.warps) return;
  const std::uint32_t row = a.parts.divide(warp);
  const std::uint32_t n = a.height.divide(row);
  const std::uint32_t k = row - n * a.height.divisor();
  const std::uint32_t piece = (warp - row * a.parts.divisor()) * 32 + threadIdx.x;
  const bool isInside = piece < a.pieces;
  const std::int64_t first = static_cast<std::int64_t>(piece) * lanes;
  const T* const from = gradient + n * a.fromImage + first;
  Sum sum;
  const auto addTerms = [&](unsigned found, std::uint32_t firstPlace) {
    while (found != 0) {
      typename Sum::Fetched terms[together] = {};
#pragma unroll
      for (int i = 0; i < together; ++i) {
        if (found == 0) continue;
        const std::uint32_t place =
            firstPlace + static_cast<std::uint32_t>(__ffs(static_cast<int>(found))) - 1;
        if (isInside) terms[i] = Sum::fetch(from + place * a.fromRow);
        found &= found - 1;
      }
      // Zeros change nothing: a sum that begins with 0 is never -0.
#pragma unroll
      for (const auto& term : terms) sum.add(term);
    }
  };
  for (std::uint32_t begin = 0; begin < a.count; begin += 32 * looks) {
    bool isOwn[looks];
#pragma unroll
    for (std::uint32_t i = 0; i < looks; ++i) {
      const std::uint32_t place = begin + 32 * i + threadIdx.x;
      // What is negative is larger than any row.
      isOwn[i] = place < a.count && static_cast<std::uint32_t>(indices[place]) == k;
    }
#pragma unroll
    for (std::uint32_t i = 0; i < looks; ++i) addTerms(__ballot_sync(all, isOwn[i]), begin + 32 * i);
  }
  if (isInside) sum.store(destination + n * a.toImage + k * a.toRow + first);
}

}  // namespace mps::detail::cuda
