#pragma once

#include <span>
#include <vector>

#include "train/data/shape.hpp"

/// Changes of pictures in float32: row by row, pixel by pixel, channel by channel.
namespace unmetal::train::detail {

/// Turned about the middle, clockwise for people who look at it, and moved to the right and down. Values lie linearly between
/// pixels; what comes in from outside repeats the outermost ones.
/// @param right, down in pixels
std::vector<float> moved(std::span<const float> pixels, const Shape& shape, double degrees, double right,
                         double down);

/// Factors of 1 change nothing. @param most what values are cut off at, beside 0; infinite: they are not
void changeBrightness(std::span<float> pixels, float factor, float most);
void changeContrast(std::span<float> pixels, float factor, float most);
/// Of three channels.
void changeSaturation(std::span<float> pixels, float factor, float most);

}  // namespace unmetal::train::detail
