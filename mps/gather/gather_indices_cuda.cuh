#pragma once

#include <cstdint>

#include "mps/gather/gather_problem.hpp"

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

}  // namespace mps::detail::cuda
