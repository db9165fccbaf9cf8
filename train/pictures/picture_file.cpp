#include "train/pictures/picture_file.hpp"

#include <algorithm>
#include <initializer_list>
#include <string>

#include "mps/core/types/error.hpp"
#include "mps/weights/input_file.hpp"
#include "train/pictures/picture.hpp"

namespace unmetal::train {
namespace {

/// A number in as many bytes, the highest first.
std::uint64_t numberAt(std::span<const std::byte> bytes, std::size_t position, std::size_t count) {
  std::uint64_t number = 0;
  for (const std::byte part : bytes.subspan(position, count))
    number = number << 8U | std::to_integer<std::uint64_t>(part);
  return number;
}

bool hasSignature(std::span<const std::byte> bytes, std::initializer_list<unsigned> wanted) {
  return bytes.size() >= wanted.size() &&
         std::ranges::equal(wanted, bytes.first(wanted.size()), {}, {}, std::to_integer<unsigned>);
}

/// From the first chunk, which is always the header.
std::optional<std::uint64_t> pixelsOfPng(std::span<const std::byte> bytes) {
  constexpr std::size_t widthAt = 16;
  constexpr std::size_t heightAt = 20;
  if (bytes.size() < heightAt + 4) return std::nullopt;
  return numberAt(bytes, widthAt, 4) * numberAt(bytes, heightAt, 4);
}

/// From the frame header, which lies behind segments of comments, profiles and such.
std::optional<std::uint64_t> pixelsOfJpeg(std::span<const std::byte> bytes) {
  constexpr std::uint64_t mark = 0xFF;
  std::size_t position = 2;
  while (position + 9 <= bytes.size()) {
    if (numberAt(bytes, position, 1) != mark) return std::nullopt;
    const std::uint64_t kind = numberAt(bytes, position + 1, 1);
    if (kind == mark) {  // filled up
      ++position;
      continue;
    }
    // 0xC4, 0xC8 and 0xCC are tables and an extension among the frame headers.
    if (kind >= 0xC0 && kind <= 0xCF && kind != 0xC4 && kind != 0xC8 && kind != 0xCC)
      return numberAt(bytes, position + 5, 2) * numberAt(bytes, position + 7, 2);
    position += 2 + static_cast<std::size_t>(numberAt(bytes, position + 2, 2));
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::uint64_t> pixelsAnnounced(std::span<const std::byte> beginning) {
  if (hasSignature(beginning, {0x89, 'P', 'N', 'G'})) return pixelsOfPng(beginning);
  if (hasSignature(beginning, {0xFF, 0xD8, 0xFF})) return pixelsOfJpeg(beginning);
  return std::nullopt;
}

std::vector<std::byte> readPictureFile(const std::filesystem::path& path) {
  mps::InputFile file(path);
  std::vector<std::byte> bytes(static_cast<std::size_t>(std::min(file.size(), pictureBytesAlways)));
  file.read(bytes);
  if (file.size() == bytes.size()) return bytes;
  const std::optional<std::uint64_t> pixels = pixelsAnnounced(bytes);
  const std::string size = path.string() + " has " + std::to_string(file.size()) + " bytes, ";
  if (!pixels) throw mps::Error(size + "and no PNG or JPEG picture is in sight");
  // Of one of too many pixels decoding says so, from its beginning.
  if (*pixels > mostPicturePixels) return bytes;
  if (file.size() > pictureBytesAlways + *pixels * pictureBytesPerPixel)
    throw mps::Error(size + "too many for " + std::to_string(*pixels) + " pixels");
  const std::size_t known = bytes.size();
  bytes.resize(static_cast<std::size_t>(file.size()));
  file.read(std::span(bytes).subspan(known));
  return bytes;
}

}  // namespace unmetal::train
