#pragma once

#include <cstdint>

#include "mps/core/types/tensor_shape.hpp"

/// Shapes of the operands in the families' case tables.
namespace mps::detail {

/// A dense shape with elements of nobody's in between: `gap` behind each pixel, two and three times as many behind rows and
/// images.
constexpr TensorShape withGaps(TensorShape shape, std::int64_t gap) {
  shape.pixelStride = shape.channels + gap;
  shape.rowStride = shape.width * shape.pixelStride + 2 * gap;
  shape.imageStride = shape.height * shape.rowStride + 3 * gap;
  return shape;
}

}  // namespace mps::detail
