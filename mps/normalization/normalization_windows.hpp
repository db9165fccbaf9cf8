#pragma once

#include <algorithm>
#include <cstdint>

#include "mps/core/types/types.hpp"
#include "mps/core/types/window_geometry.hpp"

namespace mps::detail {

/// Windows begin ... end - 1 of an axis, in the order of their destination pixels.
struct WindowRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  [[nodiscard]] constexpr std::int64_t count() const { return std::max<std::int64_t>(0, end - begin); }
};

/// Those of all windows for which first <= offset + window <= last.
constexpr WindowRange windowsBetween(const WindowAxis& axis, std::int64_t first, std::int64_t last) {
  return {std::max<std::int64_t>(0, first - axis.offset),
          std::min(axis.destinationSize, last - axis.offset + 1)};
}

/// The windows that see a source pixel; with Clamp, an edge pixel stands for all that lie beyond it.
constexpr WindowRange windowsSeeing(const WindowAxis& axis, ImageEdgeMode edgeMode, std::int64_t pixel) {
  if (pixel < 0 || pixel >= axis.sourceSize) return {};
  const bool clamps = edgeMode == ImageEdgeMode::Clamp;
  const std::int64_t before = axis.kernelSize / 2;
  const std::int64_t first = clamps && pixel == 0 ? axis.offset : pixel - (axis.kernelSize - 1 - before);
  const std::int64_t last =
      clamps && pixel == axis.sourceSize - 1 ? axis.offset + axis.destinationSize - 1 : pixel + before;
  return windowsBetween(axis, first, last);
}

/// The windows whose center is a source pixel, likewise.
constexpr WindowRange windowsCenteredAt(const WindowAxis& axis, ImageEdgeMode edgeMode, std::int64_t pixel) {
  if (pixel < 0 || pixel >= axis.sourceSize) return {};
  const bool clamps = edgeMode == ImageEdgeMode::Clamp;
  return windowsBetween(
      axis, clamps && pixel == 0 ? axis.offset : pixel,
      clamps && pixel == axis.sourceSize - 1 ? axis.offset + axis.destinationSize - 1 : pixel);
}

/// How often a window counts a pixel that it sees.
constexpr std::int64_t timesSeen(const WindowAxis& axis, ImageEdgeMode edgeMode, std::int64_t window,
                                 std::int64_t pixel) {
  if (edgeMode != ImageEdgeMode::Clamp) return 1;
  const std::int64_t first = axis.firstTap(window);
  const std::int64_t end = first + axis.kernelSize;
  const std::int64_t from = pixel == 0 ? first : pixel;
  const std::int64_t to = pixel == axis.sourceSize - 1 ? end : pixel + 1;
  return std::max<std::int64_t>(0, std::min(end, to) - std::max(first, from));
}

}  // namespace mps::detail
