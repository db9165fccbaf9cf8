#pragma once

#include <algorithm>
#include <cstddef>

#include "mtl/types.hpp"

namespace mps::detail {

/// The pixels of a region that an image of that size has; empty when it lies outside. z is left as it is.
inline mtl::Region regionWithin(mtl::Region region, std::size_t width, std::size_t height) {
  const auto cut = [](std::size_t& origin, std::size_t& size, std::size_t limit) {
    origin = std::min(origin, limit);
    size = std::min(size, limit - origin);
  };
  cut(region.origin.x, region.size.width, width);
  cut(region.origin.y, region.size.height, height);
  return region;
}

}  // namespace mps::detail
