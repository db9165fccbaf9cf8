#pragma once

#include <cstddef>
#include <span>

#include "train/pictures/picture.hpp"

namespace unmetal::train {

/// The orientation that EXIF data give, 1 to 8; 1, upright, where they say nothing or cannot be read. The data are
/// untrusted: a damaged tag turns nothing, and is no error.
/// @param exif what follows "Exif\0\0" in a JPEG file, or lies in the chunk eXIf of a PNG file: a TIFF header
int orientationOf(std::span<const std::byte> exif);

/// The content of the chunk eXIf of a PNG file; empty when there is none.
std::span<const std::byte> exifOfPng(std::span<const std::byte> file);

/// The picture as viewers show it: mirrored and turned by an orientation of 2 to 8.
///
/// | orientation | stored row 0, column 0 are the visible |
/// |---|---|
/// | 1, 2 | top, left; top, right |
/// | 3, 4 | bottom, right; bottom, left |
/// | 5, 6 | left, top; right, top |
/// | 7, 8 | right, bottom; left, bottom |
Picture upright(Picture picture, int orientation);

}  // namespace unmetal::train
