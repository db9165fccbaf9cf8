#pragma once

#include <cstddef>
#include <cstdint>

#include "mps/gather/gather_problem.hpp"

namespace mps::detail {

/// The gradient of one call, as its vector code sees it.
struct GatherSums {
  TensorShape gradient, destination;
  const std::byte* gradientMemory;
  std::byte* destinationMemory;
  /// Of sums row by row: the places of the indices that name row k are places[starts[k]] up to those of starts[k + 1], in order.
  const std::int64_t* starts;
  const std::int64_t* places;
  /// Of sums in blocks and image by image: the row that each index names, or the number of rows, whose sum nobody reads.
  const std::uint16_t* rows;
  bool pastCaches;
};

/// Elements of a row that are summed at a time: long rows are shared.
inline constexpr std::int64_t kGatherColumns = 4096;
/// Terms of a row that are added before the next columns of it.
inline constexpr std::int64_t kGatherRowsTogether = 8;
/// How much earlier than they are added terms are asked for.
inline constexpr std::int64_t kGatherRowsAhead = 16;
/// Columns that are summed for all rows at a time: two lines of float16.
inline constexpr std::int64_t kGatherBlock = 64;
/// Rows of the destination whose sums of a block stay in the second cache.
inline constexpr std::int64_t kMostGatherBlockRows = 2048;
/// How many rows of the gradient earlier than they are added terms of a block are asked for.
inline constexpr std::int64_t kGatherBlockAhead = 64;
inline constexpr std::int64_t gatherBlocks(std::int64_t channels) {
  return (channels + kGatherBlock - 1) / kGatherBlock;
}
/// Sums of an image of one channel, of some images together.
inline constexpr std::int64_t kMostGatherSumsTogether = 4096;
/// Sums of an image that are kept together.
inline constexpr std::int64_t kMostGatherSums = 16384;
/// Elements of a row from which on vectors of it alone pay.
inline constexpr std::int64_t kGatherVectorRow = 16;

}  // namespace mps::detail
