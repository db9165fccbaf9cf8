#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

namespace unmetal::train {

/// Files of at most so many bytes are read whatever is in them: comments, previews and colour profiles have room.
inline constexpr std::uint64_t pictureBytesAlways = std::uint64_t{1} << 24U;
/// What a larger file may have for each pixel beyond that; the largest kind, PNG with opacity and 16 bits, takes 8.
inline constexpr std::uint64_t pictureBytesPerPixel = 9;

/// The bytes of a PNG or JPEG file. One that is large is read only when its pixels need so many bytes: a sparse file of a
/// gigabyte takes no room on a disk, but would take it in memory. Throws mps::Error with one sentence when it cannot be
/// read, is no regular file, or is too large for its pixels.
std::vector<std::byte> readPictureFile(const std::filesystem::path& path);

/// Pixels of a PNG or JPEG file as its beginning says; nothing where that does not say it.
std::optional<std::uint64_t> pixelsAnnounced(std::span<const std::byte> beginning);

}  // namespace unmetal::train
