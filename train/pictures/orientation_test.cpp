#include "train/pictures/orientation.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "train/pictures/test_pictures.hpp"

namespace unmetal::train::orientation_test {
namespace {

using testing::exifOf;
using testing::jpegOf;
using testing::pngOf;
using testing::withExif;
using Pixels = std::vector<std::uint8_t>;

std::span<const std::byte> bytesOf(const std::string& text) {
  return std::as_bytes(std::span(text));
}

/// 2 x 3 pixels:
///   1 2 3
///   4 5 6
const Picture& stored() {
  static const Picture picture{2, 3, 1, {1, 2, 3, 4, 5, 6}};
  return picture;
}

struct Turned {
  std::size_t height;
  std::size_t width;
  Pixels pixels;
};

/// As the table of EXIF's standard says where row 0 and column 0 go.
const std::vector<Turned>& expected() {
  static const std::vector<Turned> all{
      {2, 3, {1, 2, 3, 4, 5, 6}},  // 1: top, left
      {2, 3, {3, 2, 1, 6, 5, 4}},  // 2: top, right
      {2, 3, {6, 5, 4, 3, 2, 1}},  // 3: bottom, right
      {2, 3, {4, 5, 6, 1, 2, 3}},  // 4: bottom, left
      {3, 2, {1, 4, 2, 5, 3, 6}},  // 5: left, top
      {3, 2, {4, 1, 5, 2, 6, 3}},  // 6: right, top
      {3, 2, {6, 3, 5, 2, 4, 1}},  // 7: right, bottom
      {3, 2, {3, 6, 2, 5, 1, 4}},  // 8: left, bottom
  };
  return all;
}

TEST(Orientation, AllEightTurnAPicture) {
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const Picture found = upright(stored(), orientation);
    const Turned& wanted = expected()[static_cast<std::size_t>(orientation - 1)];
    EXPECT_EQ(std::pair(found.height, found.width), std::pair(wanted.height, wanted.width)) << orientation;
    EXPECT_EQ(found.pixels, wanted.pixels) << orientation;
  }
  const Picture colour = upright({1, 2, 3, {1, 2, 3, 4, 5, 6}}, 6);
  EXPECT_EQ(std::pair(colour.height, colour.width), std::pair(std::size_t{2}, std::size_t{1}));
  EXPECT_EQ(colour.pixels, (Pixels{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(upright({1, 2, 3, {1, 2, 3, 4, 5, 6}}, 8).pixels, (Pixels{4, 5, 6, 1, 2, 3}));
  EXPECT_EQ(upright(stored(), 9).pixels, stored().pixels);
}

TEST(Orientation, IsReadFromJpegAndPngFilesOfBothByteOrders) {
  // Blocks of 8 x 8 pixels, which JPEG keeps apart.
  constexpr std::size_t side = 8;
  Pixels blocks;
  for (std::size_t y = 0; y < 2 * side; ++y)
    for (std::size_t x = 0; x < 3 * side; ++x)
      blocks.push_back(static_cast<std::uint8_t>(40 * stored().pixels[y / side * 3 + x / side]));
  const std::string jpeg =
      jpegOf(2 * side, 3 * side, blocks, {.components = 1, .pixels = JCS_GRAYSCALE, .stored = JCS_GRAYSCALE});
  const std::string png = pngOf({2 * side, 3 * side, 1, blocks});
  for (int orientation = 1; orientation <= 8; ++orientation)
    for (const bool isBigEndian : {false, true})
      for (const std::string& file : {jpeg, png}) {
        const std::string turned = withExif(file, exifOf(orientation, isBigEndian));
        const Picture found = parsePicture(bytesOf(turned), "x");
        const Turned& wanted = expected()[static_cast<std::size_t>(orientation - 1)];
        ASSERT_EQ(found.height, side * wanted.height) << orientation;
        ASSERT_EQ(found.width, side * wanted.width) << orientation;
        for (std::size_t y = 0; y < found.height; ++y)
          for (std::size_t x = 0; x < found.width; ++x)
            ASSERT_NEAR(found.pixels[y * found.width + x],
                        40 * wanted.pixels[y / side * wanted.width + x / side], 2)
                << orientation << " at " << y << ", " << x;
      }
}

TEST(Orientation, IsThatOfFilesThatAreDecodedSmaller) {
  const std::string jpeg = jpegOf(32, 48, Pixels(3 * 32 * 48, 100), {});
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const std::string turned = withExif(jpeg, exifOf(orientation, false));
    // Upright it is 32 x 48 or 48 x 32: only one of them is four times as large.
    const Picture found = parseJpeg(bytesOf(turned), "x", PictureSize{8, 12});
    const auto size = std::pair(found.height, found.width);
    if (orientation < 5)
      EXPECT_EQ(size, std::pair(std::size_t{16}, std::size_t{24})) << orientation;
    else
      EXPECT_EQ(size, std::pair(std::size_t{48}, std::size_t{32})) << orientation;
  }
}

TEST(Orientation, DamagedDataTurnNothing) {
  const std::string whole = exifOf(6, true);
  EXPECT_EQ(orientationOf(bytesOf(whole)), 6);
  // The directory ends with the place of the next one, which nobody needs.
  for (std::size_t length = 0; length < whole.size() - 4; ++length)
    EXPECT_EQ(orientationOf(bytesOf(whole.substr(0, length))), 1) << length;
  const auto with = [&](std::size_t at, char value) {
    std::string changed = whole;
    changed[at] = value;
    return orientationOf(bytesOf(changed));
  };
  constexpr std::size_t entry = 10;
  EXPECT_EQ(with(0, 'I'), 1) << "the byte order says two things";
  EXPECT_EQ(with(4, '\xFF'), 1) << "a directory far away";
  EXPECT_EQ(with(7, '\xFF'), 1) << "a directory behind the end";
  EXPECT_EQ(with(entry + 1, '\x13'), 1) << "another tag, and no entry behind it";
  EXPECT_EQ(with(entry + 3, '\x04'), 1) << "another type";
  EXPECT_EQ(with(entry + 7, '\x02'), 1) << "two of them";
  for (const char orientation : {'\x00', '\x09', '\xFF'}) EXPECT_EQ(with(entry + 9, orientation), 1);
}

TEST(Orientation, AChunkWithAWrongChecksumOrLengthIsNone) {
  const std::string png = pngOf(stored());
  std::string turned = withExif(png, exifOf(6, false));
  EXPECT_FALSE(exifOfPng(bytesOf(turned)).empty());
  EXPECT_TRUE(exifOfPng(bytesOf(png)).empty());
  const std::size_t at = turned.find("eXIf");
  for (std::size_t length = 0; length < at + 12; ++length)
    EXPECT_TRUE(exifOfPng(bytesOf(turned.substr(0, length))).empty()) << length;
  turned[at + 6] = static_cast<char>(turned[at + 6] ^ 1);
  EXPECT_TRUE(exifOfPng(bytesOf(turned)).empty());
  EXPECT_EQ(parsePicture(bytesOf(turned), "x").pixels, stored().pixels);
}

}  // namespace
}  // namespace unmetal::train::orientation_test
