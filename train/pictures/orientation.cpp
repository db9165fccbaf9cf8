#include "train/pictures/orientation.hpp"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "mps/weights/crc32.hpp"

namespace unmetal::train {
namespace {

bool beginsWith(std::span<const std::byte> bytes, std::initializer_list<unsigned> expected) {
  return bytes.size() >= expected.size() &&
         std::ranges::equal(expected, bytes.first(expected.size()), {}, {}, std::to_integer<unsigned>);
}

/// A number of as many bytes as there are, at most four.
std::uint32_t numberOf(std::span<const std::byte> bytes, bool isBigEndian) {
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    number = number << 8U | std::to_integer<std::uint32_t>(bytes[isBigEndian ? i : bytes.size() - 1 - i]);
  return number;
}

}  // namespace

int orientationOf(std::span<const std::byte> exif) {
  constexpr std::size_t headerBytes = 8;
  constexpr std::size_t entryBytes = 12;
  constexpr std::uint32_t orientationTag = 0x112;
  constexpr std::uint32_t typeShort = 3;
  const bool isBigEndian = beginsWith(exif, {'M', 'M', 0, 42});
  if (exif.size() < headerBytes || !(isBigEndian || beginsWith(exif, {'I', 'I', 42, 0}))) return 1;
  const auto number = [&](std::size_t at, std::size_t bytes) {
    return numberOf(exif.subspan(at, bytes), isBigEndian);
  };
  const std::size_t directory = number(4, 4);
  if (directory > exif.size() - 2) return 1;
  const std::size_t entries = number(directory, 2);
  for (std::size_t i = 0; i < entries; ++i) {
    const std::size_t entry = directory + 2 + i * entryBytes;
    if (entry + entryBytes > exif.size()) return 1;
    if (number(entry, 2) != orientationTag) continue;
    const std::uint32_t orientation = number(entry + 8, 2);
    const bool isKnown = number(entry + 2, 2) == typeShort && number(entry + 4, 4) == 1 && orientation >= 1 &&
                         orientation <= 8;
    return isKnown ? static_cast<int>(orientation) : 1;
  }
  return 1;
}

std::span<const std::byte> exifOfPng(std::span<const std::byte> file) {
  constexpr std::size_t signatureBytes = 8;
  constexpr std::size_t frameBytes = 12;  // length, type and checksum
  if (file.size() < signatureBytes) return {};
  for (auto rest = file.subspan(signatureBytes); rest.size() >= frameBytes;) {
    const std::size_t length = numberOf(rest.first(4), true);
    if (length > rest.size() - frameBytes) return {};
    const auto typeAndContent = rest.subspan(4, 4 + length);
    if (beginsWith(typeAndContent, {'e', 'X', 'I', 'f'}) &&
        mps::crc32(typeAndContent) == numberOf(rest.subspan(8 + length, 4), true))
      return typeAndContent.subspan(4);
    rest = rest.subspan(frameBytes + length);
  }
  return {};
}

Picture upright(Picture picture, int orientation) {
  if (orientation <= 1 || orientation > 8) return picture;
  const bool isTurned = orientation >= 5;  // its rows become columns
  const bool reversesRows = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const bool reversesColumns = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  Picture result{picture.height, picture.width, picture.channels, {}};
  if (isTurned) std::swap(result.height, result.width);
  result.pixels.resize(picture.pixels.size());
  std::uint8_t* to = result.pixels.data();
  for (std::size_t y = 0; y < result.height; ++y)
    for (std::size_t x = 0; x < result.width; ++x) {
      std::size_t row = isTurned ? x : y;
      std::size_t column = isTurned ? y : x;
      if (reversesRows) row = picture.height - 1 - row;
      if (reversesColumns) column = picture.width - 1 - column;
      const std::uint8_t* from = &picture.pixels[(row * picture.width + column) * picture.channels];
      to = std::copy_n(from, picture.channels, to);
    }
  return result;
}

}  // namespace unmetal::train
