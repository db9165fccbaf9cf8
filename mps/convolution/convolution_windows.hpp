#pragma once

#include "mps/core/window_geometry.hpp"

/// Windows that make a convolution a matrix product, seen along one axis.
namespace mps::detail {

/// One window, which reads each position of the source once.
constexpr bool coversSource(const WindowAxis& axis) {
  return axis.destinationSize == 1 && axis.kernelSize == axis.sourceSize &&
         (axis.dilation == 1 || axis.kernelSize == 1) && axis.firstTap(0) == 0;
}

/// A window of one position for each of the source.
constexpr bool readsEachPixel(const WindowAxis& axis) {
  return axis.kernelSize == 1 && axis.stride == 1 && axis.offset == 0 &&
         axis.destinationSize == axis.sourceSize;
}

}  // namespace mps::detail
