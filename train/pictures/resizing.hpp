#pragma once

#include <cstddef>
#include <vector>

#include "train/data/shape.hpp"

namespace unmetal::train::detail {

/// A rectangle of a larger picture. For bytes and float32.
template <class Value>
struct PictureView {
  const Value* pixels = nullptr;  ///< of its first row: pixel by pixel, channel by channel
  Shape shape;
  std::size_t rowStride = 0;  ///< values from one row to the next
};

/// A picture in another size, stretched where the proportions differ. Where an axis shrinks, a pixel is the mean of the area
/// that it covers; where it grows, a linear mixture of the two nearest. Bytes are rounded.
/// @return row by row, pixel by pixel, channel by channel
template <class Value>
std::vector<Value> resized(const PictureView<Value>& picture, std::size_t height, std::size_t width);

}  // namespace unmetal::train::detail
