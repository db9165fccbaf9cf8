#include "mps/core/types/strides.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace mps::detail {

bool elementsAreApart(const TensorShape& shape) {
  std::array<std::pair<std::int64_t, std::int64_t>, 3> axes{
      {{shape.pixelStride, shape.width}, {shape.rowStride, shape.height}, {shape.imageStride, shape.images}}};
  std::ranges::sort(axes);
  std::int64_t span = shape.channels;
  for (const auto& [stride, count] : axes) {
    if (count <= 1) continue;
    if (stride < span) return false;
    span += (count - 1) * stride;
  }
  return true;
}

}  // namespace mps::detail
