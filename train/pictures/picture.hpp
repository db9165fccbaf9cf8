#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace unmetal::train {

/// A picture of 8 bits: height x width x channels, 1 channel (grey) or 3 (red, green, blue).
struct Picture {
  std::size_t height = 0;
  std::size_t width = 0;
  std::size_t channels = 0;
  std::vector<std::uint8_t> pixels;
};

struct PictureSize {
  std::size_t height = 0;
  std::size_t width = 0;
};

/// Most pixels that parsePng() accepts.
inline constexpr std::uint64_t mostPicturePixels = std::uint64_t{1} << 26;
/// Most pixels for each byte of a file: what deflate can make of one (1032 bytes) in pixels of one bit. A JPEG file has
/// a bit at least for 64 pixels, unless it is coded arithmetically, of which kind almost empty ones are refused.
inline constexpr std::uint64_t mostPixelsPerByte = 8256;

/// Decodes a PNG file of any kind: grey, colour or palette, 1 to 16 bits, interlaced or not, turned as its EXIF data
/// say. Transparent parts are mixed with black, the background of MNIST and its successors. The size in the header is
/// looked at before memory is taken. Throws mps::Error with one sentence that begins with `name` when the file is no
/// PNG, damaged, cut off or larger than mostPicturePixels, or than its bytes can hold (mostPixelsPerByte).
Picture parsePng(std::span<const std::byte> file, const std::string& name);

/// A PNG file of the picture.
std::vector<std::byte> encodePng(const Picture& picture);

/// Decodes a JPEG file of 8 bits: grey, colour (YCbCr, RGB) or print (CMYK, YCCK, mixed as if inks were perfect),
/// baseline or progressive, turned as EXIF data say. Throws mps::Error as parsePng() does; data that ends early counts as damaged.
/// @param least as readPicture() with a size decodes it; without one all pixels are
Picture parseJpeg(std::span<const std::byte> file, const std::string& name,
                  const std::optional<PictureSize>& least = std::nullopt);

/// A PNG or JPEG file, told apart by its first bytes. Throws mps::Error as these do, and when it is neither.
Picture parsePicture(std::span<const std::byte> file, const std::string& name,
                     const std::optional<PictureSize>& least = std::nullopt);
/// parsePicture() for a file; throws mps::Error as well when it cannot be read.
Picture readPicture(const std::filesystem::path& path);
/// The picture of a file as PictureFolder has it: coverPicture() with this size. A JPEG file that is at least four times as large is
/// decoded at a half, a quarter or an eighth of its sides, still at least twice the wanted ones, which takes a fraction of the time.
Picture readPicture(const std::filesystem::path& path, std::size_t height, std::size_t width,
                    std::size_t channels);

/// The picture with another size and number of channels (1 or 3), stretched where the proportions differ.
/// Where an axis shrinks, a pixel is the mean of the area that it covers; where it grows, a linear mixture of
/// the two nearest. Colour becomes grey as 0.299 red + 0.587 green + 0.114 blue.
Picture fitPicture(const Picture& picture, std::size_t height, std::size_t width, std::size_t channels);

/// The same without stretching: what sticks out is cut off, as much on one side as on the other.
Picture coverPicture(const Picture& picture, std::size_t height, std::size_t width, std::size_t channels);

namespace detail {
/// Throws mps::Error when it is more than mostPicturePixels, or mostPixelsPerByte.
void checkPictureSize(const std::string& name, std::uint64_t width, std::uint64_t height,
                      std::uint64_t fileBytes);
}  // namespace detail

}  // namespace unmetal::train
