#pragma once

#include <algorithm>
#include <cstdint>

#include "mps/core/types/types.hpp"

namespace mps::detail {

/// The source element that position i of an axis of n elements reads; -1 for none. @tparam Integer with a sign
template <class Integer>
constexpr Integer mappedIndex(ImageEdgeMode edgeMode, Integer i, Integer n) {
  if (i >= 0 && i < n) return i;
  const auto periodic = [i](Integer period) {
    const Integer rest = i % period;
    return rest < 0 ? rest + period : rest;
  };
  switch (edgeMode) {
    case ImageEdgeMode::Clamp:
      return std::clamp<Integer>(i, 0, n - 1);
    case ImageEdgeMode::Mirror: {
      const Integer j = n == 1 ? 0 : periodic(2 * n - 2);
      return j < n ? j : 2 * n - 2 - j;
    }
    case ImageEdgeMode::MirrorWithEdge: {
      const Integer j = periodic(2 * n);
      return j < n ? j : 2 * n - 1 - j;
    }
    case ImageEdgeMode::Zero:
    case ImageEdgeMode::Constant:
      break;
  }
  return -1;
}

/// A number near 0 in place of `before`: positions 0 ... resultSize - 1 read the same elements of an axis of sourceSize,
/// mappedIndex(edgeMode, position - before, sourceSize).
constexpr std::int64_t nearBefore(ImageEdgeMode edgeMode, std::int64_t before, std::int64_t sourceSize,
                                  std::int64_t resultSize) {
  if (edgeMode == ImageEdgeMode::Mirror) return before % std::max<std::int64_t>(1, 2 * sourceSize - 2);
  if (edgeMode == ImageEdgeMode::MirrorWithEdge) return before % (2 * sourceSize);
  return std::clamp(before, -sourceSize, resultSize);
}

}  // namespace mps::detail
