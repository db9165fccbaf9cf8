#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mps/core/types/error.hpp"
#include "mps/weights/test_folder.hpp"
#include "train/pictures/picture.hpp"
#include "train/pictures/test_pictures.hpp"

namespace unmetal::train::jpeg_test {
namespace {

using mps::detail::errorOf;
using testing::JpegKind;
using testing::jpegOf;
using Pixels = std::vector<std::uint8_t>;

Picture parse(const std::string& file) {
  return parsePicture(std::as_bytes(std::span(file)), "x.jpg");
}

/// height x width pixels of one value.
Pixels repeated(std::size_t count, const Pixels& pixel) {
  Pixels pixels;
  for (std::size_t i = 0; i < count; ++i) pixels.insert(pixels.end(), pixel.begin(), pixel.end());
  return pixels;
}

/// The first pixel, and that all others are the same.
Pixels onlyPixel(const Picture& picture) {
  Pixels pixel(picture.pixels.begin(),
               picture.pixels.begin() + static_cast<std::ptrdiff_t>(picture.channels));
  EXPECT_EQ(picture.pixels, repeated(picture.height * picture.width, pixel));
  return pixel;
}

/// JPEG of the best quality moves a value by one at most.
void expectNear(const Pixels& found, const Pixels& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_LE(std::abs(found[i] - expected[i]), 1) << i;
}

constexpr JpegKind grey{1, JCS_GRAYSCALE, JCS_GRAYSCALE};

TEST(Jpeg, GreyAndColour) {
  const Picture one = parse(jpegOf(9, 17, repeated(9 * 17, {77}), grey));
  EXPECT_EQ(one.height, 9U);
  EXPECT_EQ(one.width, 17U);
  EXPECT_EQ(one.channels, 1U);
  expectNear(onlyPixel(one), {77});
  for (const bool progressive : {false, true}) {
    JpegKind kind;
    kind.progressive = progressive;
    const Picture colour = parse(jpegOf(5, 8, repeated(40, {200, 30, 90}), kind));
    EXPECT_EQ(colour.channels, 3U);
    expectNear(onlyPixel(colour), {200, 30, 90});
  }
}

TEST(Jpeg, RowsAndColumnsKeepTheirPlaces) {
  Pixels pixels(8 * 16, 0);
  for (std::size_t y = 0; y < 8; ++y)
    for (std::size_t x = 0; x < 16; ++x) pixels[y * 16 + x] = x < 8 ? 250 : 10;
  const Picture picture = parse(jpegOf(8, 16, pixels, grey));
  expectNear(picture.pixels, pixels);
}

TEST(Jpeg, PrintColoursAreMixed) {
  // Ink 0.2, 0.4, 0.6 and black 0.5: light 0.8, 0.6, 0.4 times 0.5.
  const Pixels inks{51, 102, 153, 128};
  const Pixels expected{102, 76, 51};
  const JpegKind plain{4, JCS_CMYK, JCS_CMYK, false};
  const Picture picture = parse(jpegOf(8, 8, repeated(64, inks), plain));
  EXPECT_EQ(picture.channels, 3U);
  expectNear(onlyPixel(picture), expected);
  Pixels inverted;
  for (const std::uint8_t ink : inks) inverted.push_back(static_cast<std::uint8_t>(255 - ink));
  for (const J_COLOR_SPACE stored : {JCS_CMYK, JCS_YCCK}) {
    const JpegKind adobe{4, JCS_CMYK, stored, true};
    expectNear(onlyPixel(parse(jpegOf(8, 8, repeated(64, inverted), adobe))), expected);
  }
}

TEST(Jpeg, DamagedFilesAreNamed) {
  Pixels noise(64 * 64);
  for (std::size_t i = 0; i < noise.size(); ++i) noise[i] = static_cast<std::uint8_t>(i * i % 251);
  const std::string file = jpegOf(64, 64, noise, grey);
  const auto error = [](const std::string& content) { return errorOf<mps::Error>([&] { parse(content); }); };
  EXPECT_NO_THROW(parse(file));
  const std::string begin = "x.jpg is not a valid JPEG picture: ";
  for (const std::size_t length : {std::size_t{3}, std::size_t{20}, file.size() / 2, file.size() - 4})
    EXPECT_TRUE(error(file.substr(0, length)).starts_with(begin))
        << length << ": " << error(file.substr(0, length));
  // The frame header: marker FF C0, length, precision, then height and width.
  const std::size_t frame = file.find("\xFF\xC0");
  ASSERT_NE(frame, std::string::npos);
  std::string empty = file;
  empty[frame + 5] = empty[frame + 6] = 0;
  EXPECT_EQ(error(empty), begin + "Empty JPEG image (DNL not supported)");
  std::string large = file;
  for (std::size_t i = 5; i < 9; ++i) large[frame + i] = '\xF0';
  EXPECT_EQ(error(large), "x.jpg has 61680 x 61680 pixels, more than the 67108864 that are allowed");
  std::string deep = file;
  deep[frame + 4] = 12;
  EXPECT_TRUE(error(deep).starts_with(begin)) << error(deep);
}

TEST(Jpeg, DamagedArithmeticCodesAreNamed) {
  Pixels noise(64 * 64);
  for (std::size_t i = 0; i < noise.size(); ++i) noise[i] = static_cast<std::uint8_t>(i * i % 251);
  JpegKind kind = grey;
  kind.arithmetic = true;
  const std::string file = jpegOf(64, 64, noise, kind);
  expectNear(parse(file).pixels, noise);
  const std::size_t scan = file.find("\xFF\xDA");
  ASSERT_NE(scan, std::string::npos);
  // A changed bit goes unnoticed where it makes another code that is one.
  int named = 0;
  for (std::size_t i = scan + 16; i < scan + 500; ++i) {
    std::string damaged = file;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    try {
      parse(damaged);
    } catch (const mps::Error& error) {
      const std::string_view sentence = error.what();
      named +=
          sentence == "x.jpg is not a valid JPEG picture: Corrupt JPEG data: bad arithmetic code" ? 1 : 0;
    }
  }
  EXPECT_GT(named, 5);
}

TEST(Jpeg, FewBytesAreNoLargePicture) {
  std::string file = jpegOf(8, 8, repeated(64, {5}), grey);
  const std::size_t frame = file.find("\xFF\xC0");
  ASSERT_NE(frame, std::string::npos);
  for (const std::size_t extent : {frame + 5, frame + 7}) {
    file[extent] = 0x20;
    file[extent + 1] = 0;
  }
  EXPECT_EQ(errorOf<mps::Error>([&] { parse(file); }), "x.jpg has 8192 x 8192 pixels in " +
                                                           std::to_string(file.size()) +
                                                           " bytes, more than 8256 for each byte");
}

TEST(Jpeg, ManyScansAreRefused) {
  JpegKind kind;
  kind.separate = true;
  std::string file = jpegOf(8, 8, repeated(64, {1, 2, 3}), kind);
  EXPECT_NO_THROW(parse(file));
  // The last scan again and again.
  const std::size_t scan = file.rfind("\xFF\xDA");
  ASSERT_NE(scan, std::string::npos);
  const std::string again = file.substr(scan, file.size() - 2 - scan);
  file.resize(file.size() - 2);
  for (int i = 0; i < 300; ++i) file += again;
  file += "\xFF\xD9";
  const std::string error = errorOf<mps::Error>([&] { parse(file); });
  EXPECT_EQ(error, "x.jpg is not a valid JPEG picture: it has more than 200 scans");
}

TEST(CoverPicture, CutsWhatSticksOut) {
  // The middle two of four columns.
  EXPECT_EQ(coverPicture({2, 4, 1, {0, 1, 2, 3, 4, 5, 6, 7}}, 2, 2, 1).pixels, (Pixels{1, 2, 5, 6}));
  EXPECT_EQ(coverPicture({4, 2, 1, {0, 1, 2, 3, 4, 5, 6, 7}}, 2, 2, 1).pixels, (Pixels{2, 3, 4, 5}));
  // A square to one of twice the sides: nothing is cut.
  EXPECT_EQ(coverPicture({1, 1, 1, {9}}, 2, 2, 3).pixels, Pixels(12, 9));
  // A line of 1 x 100 pixels keeps one.
  EXPECT_EQ(coverPicture({1, 100, 1, Pixels(100, 5)}, 8, 8, 1).pixels, Pixels(64, 5));
  EXPECT_EQ(coverPicture({100, 1, 1, Pixels(100, 5)}, 8, 8, 1).pixels, Pixels(64, 5));
}

/// A gradient to the right, with a square that stands out at the top.
Picture photograph(std::size_t height, std::size_t width) {
  Picture picture{height, width, 3, {}};
  for (std::size_t y = 0; y < height; ++y)
    for (std::size_t x = 0; x < width; ++x) {
      const auto grey = static_cast<std::uint8_t>(y < height / 3 && x < width / 4 ? 220 : 200 * x / width);
      picture.pixels.insert(picture.pixels.end(), {grey, static_cast<std::uint8_t>(grey / 2), 30});
    }
  return picture;
}

TEST(Jpeg, LargeOnesAreDecodedSmaller) {
  const Picture whole = photograph(160, 192);
  const auto file = jpegOf(160, 192, whole.pixels, {});
  const auto decoded = [&](std::size_t height, std::size_t width) {
    const Picture picture = parseJpeg(std::as_bytes(std::span(file)), "x.jpg", PictureSize{height, width});
    return std::pair(picture.height, picture.width);
  };
  EXPECT_EQ(decoded(10, 12), std::pair(std::size_t{20}, std::size_t{24}));
  EXPECT_EQ(decoded(10, 13), std::pair(std::size_t{40}, std::size_t{48}));
  EXPECT_EQ(decoded(40, 48), std::pair(std::size_t{80}, std::size_t{96}));
  EXPECT_EQ(decoded(41, 8), std::pair(std::size_t{160}, std::size_t{192}));
}

TEST(Jpeg, WhatIsDecodedSmallerLooksTheSame) {
  const mps::detail::TestFolder folder;
  for (const auto& [height, width] : {std::pair(160, 192), std::pair(400, 300), std::pair(1001, 777)}) {
    const Picture whole = photograph(static_cast<std::size_t>(height), static_cast<std::size_t>(width));
    mps::detail::writeText(folder / "a.jpg", jpegOf(whole.height, whole.width, whole.pixels, {}));
    const Picture exact = coverPicture(whole, 20, 24, 3);
    const Picture read = readPicture(folder / "a.jpg", 20, 24, 3);
    ASSERT_EQ(read.pixels.size(), exact.pixels.size());
    double sum = 0;
    for (std::size_t i = 0; i < exact.pixels.size(); ++i) sum += std::abs(read.pixels[i] - exact.pixels[i]);
    EXPECT_LT(sum / static_cast<double>(exact.pixels.size()), 2) << height;
  }
}

}  // namespace
}  // namespace unmetal::train::jpeg_test
