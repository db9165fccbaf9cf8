#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "train/layers.hpp"

namespace unmetal::train::detail {

/// A picture in another size, stretched where the proportions differ. Where an axis shrinks, a pixel is the mean of the area
/// that it covers; where it grows, a linear mixture of the two nearest. Bytes are rounded. For bytes and float32.
/// @param pixels row by row, pixel by pixel, channel by channel
template <class Value>
std::vector<Value> resized(std::span<const Value> pixels, const Shape& shape, std::size_t height,
                           std::size_t width);

}  // namespace unmetal::train::detail
