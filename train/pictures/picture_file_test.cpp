#include "train/pictures/picture_file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "mps/core/types/error.hpp"
#include "mps/weights/test_folder.hpp"
#include "train/pictures/picture.hpp"
#include "train/pictures/test_pictures.hpp"

namespace unmetal::train::picture_file_test {
namespace {

using mps::detail::errorOf;
using mps::detail::TestFolder;
using mps::detail::writeText;
using testing::pngOf;

constexpr std::uint64_t gigabyte = std::uint64_t{1} << 30U;

Picture grey(std::size_t side) {
  return {side, side, 1, std::vector<std::uint8_t>(side * side, 7)};
}

std::string jpegOf(const Picture& picture) {
  return testing::jpegOf(picture.height, picture.width, picture.pixels,
                         {.components = 1, .pixels = JCS_GRAYSCALE, .stored = JCS_GRAYSCALE});
}

std::span<const std::byte> bytesOf(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string troubleWith(const std::filesystem::path& path) {
  return errorOf<mps::Error>([&] { readPicture(path); });
}

TEST(PictureFile, BeginningsSayHowManyPixelsThereAre) {
  EXPECT_EQ(pixelsAnnounced(bytesOf(pngOf(grey(16)))), 256U);
  EXPECT_EQ(pixelsAnnounced(bytesOf(jpegOf(grey(16)))), 256U);
  const std::string jpeg = jpegOf(grey(16));
  const std::string comment = std::string("\xFF\xFE\x10\x02", 4) + std::string(0x1000, 'c');
  EXPECT_EQ(pixelsAnnounced(bytesOf(jpeg.substr(0, 2) + comment + jpeg.substr(2))), 256U);
  for (const std::string& text : {std::string(), std::string("text"), pngOf(grey(16)).substr(0, 20),
                                  jpeg.substr(0, 20), jpeg.substr(0, 2) + "no segment of a picture"})
    EXPECT_EQ(pixelsAnnounced(bytesOf(text)), std::nullopt);
}

/// A file of a gigabyte that takes no room on the disk.
TEST(PictureFile, OneThatIsTooLargeForItsPixelsIsNotRead) {
  const TestFolder folder;
  for (const std::string& content : {pngOf(grey(16)), jpegOf(grey(16)), std::string("text"), std::string()}) {
    const auto path = folder / "large.png";
    writeText(path, content);
    std::filesystem::resize_file(path, gigabyte);
    const std::string trouble = troubleWith(path);
    EXPECT_TRUE(trouble.starts_with(path.string() + " has 1073741824 bytes, ")) << trouble;
  }
}

TEST(PictureFile, OneMayHaveSomethingBehindItsPicture) {
  const TestFolder folder;
  const auto path = folder / "moving.jpg";
  writeText(path, jpegOf(grey(16)));
  std::filesystem::resize_file(path, pictureBytesAlways);
  EXPECT_EQ(readPicture(path).pixels.size(), 256U);
}

TEST(PictureFile, OtherKindsOfFilesAreASentence) {
  const TestFolder folder;
  const auto pipe = folder / "pipe.png";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(troubleWith(pipe), "cannot read " + pipe.string() + ": it is not a regular file");
  EXPECT_EQ(troubleWith("/dev/zero"), "cannot read /dev/zero: it is not a regular file");
  EXPECT_EQ(troubleWith(folder.path()), "cannot read " + folder.path().string() + ": Is a directory");
}

TEST(PictureFile, KindsThatCannotBeReadAreNamed) {
  const TestFolder folder;
  const auto path = folder / "picture.png";
  for (const auto& [content, kind] : {std::pair<std::string, std::string>{"GIF89a......", "GIF"},
                                      {std::string("RIFF\0\0\0\0WEBPVP8 ", 16), "WebP"},
                                      {"BM..........", "BMP"},
                                      {std::string("II*\0........", 12), "TIFF"},
                                      {std::string("MM\0*........", 12), "TIFF"},
                                      {std::string("\0\0\0\x18"
                                                   "ftypheic....",
                                                   16),
                                       "HEIC"},
                                      {std::string("\0\0\0\x18"
                                                   "ftypavif....",
                                                   16),
                                       "AVIF"}}) {
    writeText(path, content);
    EXPECT_EQ(troubleWith(path), path.string() + " is a " + kind +
                                     " picture, of a kind that cannot be read, only PNG and JPEG can");
  }
}

}  // namespace
}  // namespace unmetal::train::picture_file_test
