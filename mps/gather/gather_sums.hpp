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
  /// Of sums image by image: the row that each index names, or the number of rows, whose sum nobody reads.
  const std::uint16_t* rows;
};

/// Sums of an image that are kept together.
inline constexpr std::int64_t kMostGatherSums = 16384;
/// Elements of a row from which on vectors of it alone pay.
inline constexpr std::int64_t kGatherVectorRow = 16;

}  // namespace mps::detail
