#pragma once

#include <algorithm>
#include <cstdint>

#include "mps/core/types.hpp"

namespace mps::detail {

/// The source element that position i of an axis of n elements reads; -1 for none.
constexpr std::int64_t mappedIndex(ImageEdgeMode edgeMode, std::int64_t i, std::int64_t n) {
  if (i >= 0 && i < n) return i;
  const auto periodic = [i](std::int64_t period) {
    const std::int64_t rest = i % period;
    return rest < 0 ? rest + period : rest;
  };
  switch (edgeMode) {
    case ImageEdgeMode::Clamp:
      return std::clamp<std::int64_t>(i, 0, n - 1);
    case ImageEdgeMode::Mirror: {
      const std::int64_t j = n == 1 ? 0 : periodic(2 * n - 2);
      return j < n ? j : 2 * n - 2 - j;
    }
    case ImageEdgeMode::MirrorWithEdge: {
      const std::int64_t j = periodic(2 * n);
      return j < n ? j : 2 * n - 1 - j;
    }
    case ImageEdgeMode::Zero:
    case ImageEdgeMode::Constant:
      break;
  }
  return -1;
}

}  // namespace mps::detail
