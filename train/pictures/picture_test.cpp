#include "train/pictures/picture.hpp"

#include <gtest/gtest.h>
#include <zlib.h>

#include "mps/core/types/error.hpp"
#include "mps/weights/crc32.hpp"
#include "mps/weights/test_folder.hpp"

namespace unmetal::train::picture_test {
namespace {

using mps::detail::errorOf;
using Pixels = std::vector<std::uint8_t>;

std::span<const std::byte> bytesOf(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string bigEndian(std::uint32_t number) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>((number >> shift) & 0xFF);
  return text;
}

std::string chunk(const std::string& type, const std::string& content) {
  return bigEndian(static_cast<std::uint32_t>(content.size())) + type + content +
         bigEndian(mps::crc32(bytesOf(type + content)));
}

enum ColorType : char { Grey = 0, Rgb = 2, Palette = 3, GreyAlpha = 4, Rgba = 6 };

struct PngHeader {
  std::uint32_t width;
  std::uint32_t height;
  char bitDepth;
  ColorType colorType;
  bool isInterlaced = false;
};

/// A PNG file; each row of `rows` begins with its filter, 0.
std::string pngOf(const PngHeader& header, const std::vector<Pixels>& rows,
                  const std::string& moreChunks = {}) {
  std::string raw;
  for (const Pixels& row : rows) raw.append(row.begin(), row.end());
  std::string compressed(::compressBound(raw.size()), '\0');
  uLongf size = compressed.size();
  if (::compress(reinterpret_cast<Bytef*>(compressed.data()), &size,
                 reinterpret_cast<const Bytef*>(raw.data()), raw.size()) != Z_OK) {
    throw std::runtime_error("cannot compress");
  }
  compressed.resize(size);
  const std::string description = bigEndian(header.width) + bigEndian(header.height) + header.bitDepth +
                                  static_cast<char>(header.colorType) + '\0' + '\0' +
                                  static_cast<char>(header.isInterlaced ? 1 : 0);
  return "\x89PNG\r\n\x1A\n" + chunk("IHDR", description) + moreChunks + chunk("IDAT", compressed) +
         chunk("IEND", "");
}

Picture parse(const std::string& file) {
  return parsePng(bytesOf(file), "x.png");
}

TEST(PictureTest, Grey) {
  const Picture picture = parse(pngOf({3, 2, 8, Grey}, {{0, 1, 2, 3}, {0, 253, 254, 255}}));
  EXPECT_EQ(picture.width, 3U);
  EXPECT_EQ(picture.height, 2U);
  EXPECT_EQ(picture.channels, 1U);
  EXPECT_EQ(picture.pixels, (Pixels{1, 2, 3, 253, 254, 255}));
}

TEST(PictureTest, Colour) {
  const Picture picture = parse(pngOf({2, 1, 8, Rgb}, {{0, 10, 20, 30, 40, 50, 60}}));
  EXPECT_EQ(picture.channels, 3U);
  EXPECT_EQ(picture.pixels, (Pixels{10, 20, 30, 40, 50, 60}));
}

TEST(PictureTest, OneBit) {
  const Picture picture = parse(pngOf({3, 1, 1, Grey}, {{0, 0b10100000}}));
  EXPECT_EQ(picture.channels, 1U);
  EXPECT_EQ(picture.pixels, (Pixels{255, 0, 255}));
}

TEST(PictureTest, SixteenBits) {
  EXPECT_EQ(parse(pngOf({4, 1, 16, Grey}, {{0, 0, 0, 0x40, 0x40, 0x80, 0x80, 0xFF, 0xFF}})).pixels,
            (Pixels{0, 0x40, 0x80, 0xFF}));
  EXPECT_EQ(parse(pngOf({1, 1, 16, Rgb}, {{0, 10, 10, 20, 20, 30, 30}})).pixels, (Pixels{10, 20, 30}));
  EXPECT_EQ(parse(pngOf({1, 1, 16, Rgba}, {{0, 10, 10, 20, 20, 30, 30, 255, 255}})).pixels,
            (Pixels{10, 20, 30}));
}

TEST(PictureTest, TransparencyIsMixedWithBlack) {
  EXPECT_EQ(parse(pngOf({3, 1, 8, GreyAlpha}, {{0, 200, 255, 200, 0, 200, 51}})).pixels,
            (Pixels{200, 0, 40}));
  EXPECT_EQ(parse(pngOf({2, 1, 8, Rgba}, {{0, 10, 20, 30, 255, 250, 100, 50, 51}})).pixels,
            (Pixels{10, 20, 30, 50, 20, 10}));
}

TEST(PictureTest, PaletteWithAndWithoutTransparency) {
  const std::string palette = chunk("PLTE", std::string("\x0A\x14\x1E\xC8\x64\x32", 6));
  const PngHeader header{2, 1, 8, Palette};
  EXPECT_EQ(parse(pngOf(header, {{0, 1, 0}}, palette)).pixels, (Pixels{200, 100, 50, 10, 20, 30}));
  const std::string opacity = chunk("tRNS", std::string("\x00", 1));
  EXPECT_EQ(parse(pngOf(header, {{0, 1, 0}}, palette + opacity)).pixels, (Pixels{200, 100, 50, 0, 0, 0}));
}

TEST(PictureTest, Interlaced) {
  const Picture picture = parse(pngOf({2, 2, 8, Grey, true}, {{0, 1}, {0, 2}, {0, 3, 4}}));
  EXPECT_EQ(picture.pixels, (Pixels{1, 2, 3, 4}));
}

TEST(PictureTest, EveryTruncationIsNoticed) {
  const std::string file = pngOf({3, 2, 8, Grey}, {{0, 1, 2, 3}, {0, 253, 254, 255}});
  // Without the last chunk, which is empty, the picture is complete.
  const std::size_t needed = file.size() - 12 - 4;
  for (std::size_t length = 0; length < needed; ++length) {
    const std::string error = errorOf<mps::Error>([&] { parse(file.substr(0, length)); });
    EXPECT_TRUE(error.starts_with("x.png is not a valid PNG picture: ")) << length << ": " << error;
  }
}

TEST(PictureTest, DamagedPixels) {
  std::string file = pngOf({3, 2, 8, Grey}, {{0, 1, 2, 3}, {0, 253, 254, 255}});
  file[file.size() - 12 - 4 - 6] = static_cast<char>(file[file.size() - 12 - 4 - 6] ^ 1);
  const std::string error = errorOf<mps::Error>([&] { parse(file); });
  EXPECT_TRUE(error.starts_with("x.png is not a valid PNG picture: IDAT: ")) << error;
}

TEST(PictureTest, OtherFilesAreNamed) {
  const mps::detail::TestFolder folder;
  mps::detail::writeText(folder / "a.png", "no picture");
  EXPECT_EQ(errorOf<mps::Error>([&] { readPicture(folder / "a.png"); }),
            (folder / "a.png").string() + " is no PNG or JPEG picture");
  EXPECT_EQ(errorOf<mps::Error>([&] { readPicture(folder / "b.png"); }),
            "cannot read " + (folder / "b.png").string() + ": No such file or directory");
  mps::detail::writeText(folder / "c.png", pngOf({1, 1, 8, Grey}, {{0, 7}}));
  EXPECT_EQ(readPicture(folder / "c.png").pixels, Pixels{7});
}

TEST(PictureTest, SizeIsCheckedBeforeMemoryIsTaken) {
  EXPECT_EQ(errorOf<mps::Error>([] {
              parse(pngOf({60'000, 60'000, 8, Rgba}, {{0}}));
            }),
            "x.png has 60000 x 60000 pixels, more than the 67108864 that are allowed");
}

TEST(PictureTest, FewBytesAreNoLargePicture) {
  const std::string file = pngOf({8000, 8000, 1, Grey}, {{0}});
  EXPECT_EQ(errorOf<mps::Error>([&] { parse(file); }), "x.png has 8000 x 8000 pixels in " +
                                                           std::to_string(file.size()) +
                                                           " bytes, more than 8256 for each byte");
}

TEST(PictureTest, AnEmptyPictureOfManyPixelsIsRead) {
  // Of all files nearest to the limit: each byte of deflate's says 1032 times eight black pixels.
  const std::string file = pngOf({4096, 4096, 1, Grey}, std::vector<Pixels>(4096, Pixels(513)));
  EXPECT_GT(4096 * 4096 / file.size(), mostPixelsPerByte * 3 / 4);
  EXPECT_EQ(parse(file).pixels, Pixels(std::size_t{4096} * 4096));
}

TEST(FitPictureTest, SameSizeIsUnchanged) {
  const Picture picture{1, 2, 1, {3, 4}};
  EXPECT_EQ(fitPicture(picture, 1, 2, 1).pixels, picture.pixels);
}

TEST(FitPictureTest, Channels) {
  EXPECT_EQ(fitPicture({1, 2, 1, {3, 4}}, 1, 2, 3).pixels, (Pixels{3, 3, 3, 4, 4, 4}));
  EXPECT_EQ(fitPicture({1, 4, 3, {255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255}}, 1, 4, 1).pixels,
            (Pixels{76, 150, 29, 255}));
}

TEST(FitPictureTest, ShrinkingIsTheMeanOfTheArea) {
  EXPECT_EQ(fitPicture({2, 4, 1, {0, 10, 20, 30, 40, 50, 60, 70}}, 1, 2, 1).pixels, (Pixels{25, 45}));
  // 3 to 2: each covers one pixel and half of the middle one.
  EXPECT_EQ(fitPicture({1, 3, 1, {0, 90, 180}}, 1, 2, 1).pixels, (Pixels{30, 150}));
  EXPECT_EQ(fitPicture({3, 1, 1, {0, 90, 180}}, 2, 1, 1).pixels, (Pixels{30, 150}));
  // Colours stay apart.
  EXPECT_EQ(fitPicture({1, 2, 3, {0, 10, 20, 100, 110, 120}}, 1, 1, 3).pixels, (Pixels{50, 60, 70}));
}

TEST(FitPictureTest, GrowingIsLinear) {
  // Centres of the four at -0.25, 0.25, 0.75 and 1.25 of the two.
  EXPECT_EQ(fitPicture({1, 2, 1, {0, 100}}, 1, 4, 1).pixels, (Pixels{0, 25, 75, 100}));
  EXPECT_EQ(fitPicture({1, 1, 1, {9}}, 2, 2, 1).pixels, (Pixels{9, 9, 9, 9}));
}

TEST(FitPictureTest, ConstantStaysConstant) {
  for (const std::size_t from : {1U, 5U, 28U, 61U, 100U}) {
    for (const std::size_t to : {1U, 3U, 28U, 29U, 77U}) {
      const Picture fitted = fitPicture({from, from, 1, Pixels(from * from, 201)}, to, to, 1);
      EXPECT_EQ(fitted.pixels, Pixels(to * to, 201)) << from << " to " << to;
    }
  }
}

}  // namespace
}  // namespace unmetal::train::picture_test
