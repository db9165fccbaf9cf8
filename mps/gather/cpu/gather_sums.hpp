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
  /// The indices that name row k have the numbers places[starts[k]] up to places[starts[k + 1]], in order. Null: images are
  /// summed as a whole.
  const std::int64_t* starts;
  /// Of whole images: the row that index i names begins at element places[i] of an image without gaps. Where the index names no
  /// row, that element lies behind the last one.
  const std::int64_t* places;
  bool isNonTemporal;  ///< whether the sums are written by non-temporal stores
};

/// Elements of a row that are summed at a time: threads share long rows.
inline constexpr std::int64_t kGatherColumns = 4096;
/// Terms of a row that are added before the next columns of it.
inline constexpr std::int64_t kGatherRowsTogether = 8;
/// How many terms ahead of the sum rows are prefetched.
inline constexpr std::int64_t kGatherRowsAhead = 16;
/// Rows of fewer elements are summed without vectors. An image of at most kGatherColumns elements in such rows is summed as a
/// whole.
inline constexpr std::int64_t kGatherVectorRow = 16;

}  // namespace mps::detail
