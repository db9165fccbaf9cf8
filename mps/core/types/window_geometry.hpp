#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "mps/core/types/tensor_shape.hpp"

namespace mps::detail {

/// Placement of a window on one axis, shared by the forward pass and its gradient.
///
///     dilatedSize = (kernelSize - 1) * dilation + 1
///     tap p of destination position x = offset + stride * x - floor(dilatedSize / 2) + dilation * p
///
/// Positions x are counted from the clip rectangle's origin.
struct WindowAxis {
  std::int64_t sourceSize = 1;
  std::int64_t destinationSize = 1;  ///< size of the clip rectangle
  std::int64_t kernelSize = 1;
  std::int64_t stride = 1;
  std::int64_t dilation = 1;
  std::int64_t offset = 0;  ///< source coordinate of the centre of window 0

  bool operator==(const WindowAxis&) const = default;

  [[nodiscard]] constexpr std::int64_t dilatedSize() const { return (kernelSize - 1) * dilation + 1; }
  /// Source coordinate of tap 0 of window x; may lie outside the source.
  [[nodiscard]] constexpr std::int64_t firstTap(std::int64_t x) const {
    return offset + stride * x - dilatedSize() / 2;
  }
  /// Explicit padding of other libraries: negative means cropped, before and after may differ.
  [[nodiscard]] constexpr std::int64_t paddingBefore() const { return dilatedSize() / 2 - offset; }
  [[nodiscard]] constexpr std::int64_t paddingAfter() const {
    return stride * (destinationSize - 1) + dilatedSize() - paddingBefore() - sourceSize;
  }
  /// First p with tap p >= 0, at most kernelSize.
  [[nodiscard]] constexpr std::int64_t firstInside(std::int64_t x) const {
    const std::int64_t first = firstTap(x);
    return first >= 0 ? 0 : std::min(kernelSize, (-first + dilation - 1) / dilation);
  }
  /// One past the last p with tap p < sourceSize, at least 0.
  [[nodiscard]] constexpr std::int64_t endInside(std::int64_t x) const {
    const std::int64_t room = sourceSize - 1 - firstTap(x);
    return room < 0 ? 0 : std::min(kernelSize, room / dilation + 1);
  }
  [[nodiscard]] constexpr std::size_t hash() const {
    return hashOf(sourceSize, destinationSize, kernelSize, stride, dilation, offset);
  }
};

}  // namespace mps::detail
