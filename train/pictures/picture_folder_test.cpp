#include "train/pictures/picture_folder.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "mps/core/types/error.hpp"
#include "mps/weights/test_folder.hpp"
#include "train/pictures/test_pictures.hpp"

namespace unmetal::train::picture_folder_test {
namespace {

using mps::detail::errorOf;
using mps::detail::TestFolder;
using mps::detail::writeText;
using testing::deepPngOf;
using testing::jpegOf;
using testing::pngOf;
using Path = std::filesystem::path;

/// A grey square of one value.
Picture plain(std::uint8_t value, std::size_t side = 16) {
  return {side, side, 1, std::vector<std::uint8_t>(side * side, value)};
}

class PictureFolderTest : public ::testing::Test {
 protected:
  PictureFolderTest() { options_.size = {8, 8, 1}; }

  void write(const std::string& name, const std::string& content) const {
    const Path path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    writeText(path, content);
  }
  /// Five pictures of each of two classes, the values 10 to 14 and 20 to 24.
  void writeTwoClasses() const {
    for (std::size_t i = 0; i < 5; ++i) {
      write("cat/" + std::to_string(i) + ".png", pngOf(plain(static_cast<std::uint8_t>(10 + i))));
      write("dog/" + std::to_string(i) + ".png", pngOf(plain(static_cast<std::uint8_t>(20 + i))));
    }
  }
  PictureFolder load(Split split) const { return {folder_.path(), split, options_}; }
  [[nodiscard]] std::string shown(const std::string& name) const { return (folder_ / name).string(); }
  /// The sentence without skipBad, which leaves out the same with it.
  [[nodiscard]] std::string trouble(Split split = Split::Training) {
    options_.skipBad = false;
    const std::string sentence = errorOf<mps::Error>([&] { load(split); });
    const std::string end = "; skipBad goes on without";
    EXPECT_TRUE(sentence.ends_with(end)) << sentence;
    options_.skipBad = true;
    const PictureFolder data = load(split);
    EXPECT_EQ(data.leftOut(), std::vector{sentence.substr(0, sentence.size() - end.size())});
    return data.leftOut().empty() ? "" : data.leftOut()[0];
  }

  TestFolder folder_;
  PictureFolderOptions options_;
};

/// First value of each picture.
std::vector<int> valuesOf(const PictureFolder& data) {
  std::vector<int> values;
  std::vector<std::uint8_t> pixels(data.shape().count());
  for (std::size_t i = 0; i < data.size(); ++i) {
    EXPECT_EQ(data.loadBytes(i, pixels), data.labels()[i]);
    values.push_back(pixels[0]);
  }
  return values;
}

using Values = std::vector<int>;
using Labels = std::vector<std::uint32_t>;

TEST_F(PictureFolderTest, ClassesAreSubfoldersAndEveryFifthPictureIsForValidation) {
  writeTwoClasses();
  const PictureFolder training = load(Split::Training);
  EXPECT_EQ(training.classNames(), (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(valuesOf(training), (Values{10, 11, 12, 13, 20, 21, 22, 23}));
  EXPECT_EQ(training.labels(), (Labels{0, 0, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(training.shape(), (Shape{8, 8, 1}));
  EXPECT_EQ(training.file(1), folder_ / "cat/1.png");
  const PictureFolder test = load(Split::Test);
  EXPECT_EQ(valuesOf(test), (Values{14, 24}));
  EXPECT_EQ(test.labels(), (Labels{0, 1}));
  options_.validation = 0.4;
  EXPECT_EQ(valuesOf(load(Split::Test)), (Values{12, 14, 22, 24}));
}

TEST_F(PictureFolderTest, FoldersForTrainingAndValidationMayBeApart) {
  for (const char* name : {"val", "validation", "test"}) {
    write("train/cat/a.png", pngOf(plain(10)));
    write("train/dog/a.png", pngOf(plain(20)));
    write("train/dog/b.png", pngOf(plain(21)));
    write(std::string(name) + "/dog/c.png", pngOf(plain(22)));
    const PictureFolder training = load(Split::Training);
    EXPECT_EQ(training.classNames(), (std::vector<std::string>{"cat", "dog"})) << name;
    EXPECT_EQ(valuesOf(training), (Values{10, 20, 21}));
    const PictureFolder validation = load(Split::Test);
    EXPECT_EQ(validation.classNames(), training.classNames());
    EXPECT_EQ(valuesOf(validation), (Values{22})) << name;
    EXPECT_EQ(validation.labels(), Labels{1});
    std::filesystem::remove_all(folder_ / name);
  }
}

TEST_F(PictureFolderTest, ValidationComesBeforeTestAndOtherFoldersMakeBothClasses) {
  write("train/cat/a.png", pngOf(plain(10)));
  write("val/cat/a.png", pngOf(plain(11)));
  write("test/cat/a.png", pngOf(plain(12)));
  EXPECT_EQ(valuesOf(load(Split::Test)), (Values{11}));
  write("bus/a.png", pngOf(plain(30)));
  EXPECT_EQ(load(Split::Training).classNames(), (std::vector<std::string>{"bus", "test", "train", "val"}));
}

TEST_F(PictureFolderTest, TroublesOfFoldersThatAreApartAreNamed) {
  write("train/cat/a.png", pngOf(plain(10)));
  write("val/cat/a.png", pngOf(plain(11)));
  write("val/wolf/a.png", pngOf(plain(12)));
  EXPECT_EQ(trouble(), "the folder " + shown("val/wolf") + " is of a class that " + shown("train") +
                           " has no pictures of");
  std::filesystem::remove_all(folder_ / "val/wolf");
  write("a.png", pngOf(plain(12)));
  EXPECT_EQ(trouble(), shown("a.png") + " lies beside the folders train and val, not in one");
  std::filesystem::remove(folder_ / "a.png");
  std::filesystem::create_directory(folder_ / "val/dog");
  std::filesystem::create_directory(folder_ / "train/dog");
  EXPECT_EQ(errorOf<mps::Error>([&] {
              options_.skipBad = false;
              load(Split::Training);
            }),
            "the folder " + shown("train/dog") +
                " holds no PNG or JPEG pictures, and there is 1 more trouble; skipBad goes on without");
}

TEST_F(PictureFolderTest, PicturesThatDoNotFitInMemoryAreDecodedAgain) {
  writeTwoClasses();
  write("cat/2.png", "");
  options_.skipBad = true;
  const PictureFolder all = load(Split::Training);
  EXPECT_EQ(all.sizeInMemory(), 7U);
  for (const std::size_t kept : {0U, 1U, 5U}) {
    options_.memory = 64 * kept + 63;
    const PictureFolder data = load(Split::Training);
    // The empty one is the third.
    EXPECT_EQ(data.sizeInMemory(), kept > 2 ? kept - 1 : kept);
    EXPECT_EQ(valuesOf(data), valuesOf(all));
    std::vector<float> pixels(64);
    EXPECT_EQ(data.load(6, pixels), 1U);
    EXPECT_EQ(pixels, std::vector<float>(64, 23.0F / 255));
  }
  const PictureFolder data = load(Split::Training);
  std::filesystem::remove(folder_ / "dog/3.png");
  std::vector<std::uint8_t> pixels(64);
  EXPECT_NE(errorOf<mps::Error>([&] { data.loadBytes(6, pixels); }).find(shown("dog/3.png")),
            std::string::npos);
}

TEST_F(PictureFolderTest, OptionsOutOfTheirRangesAreRefused) {
  const auto trouble = [&](const PictureFolderOptions& options) {
    return errorOf<mps::Error>([&] { PictureFolder(folder_.path(), Split::Training, options); });
  };
  for (const Shape& size : {Shape{0, 8, 1}, Shape{8, 4097, 1}, Shape{8, 8, 2}})
    EXPECT_EQ(trouble({.size = size}), "PictureFolder: size is " + describe(size) +
                                           ", expected sides from 1 to 4096 and 1 or 3 channels");
  for (const double share : {0.0, 1.0, std::nan("")})
    EXPECT_EQ(trouble({.validation = share}), "PictureFolder: validation is " + std::to_string(share) +
                                                  ", expected a share above 0 and below 1");
}

TEST_F(PictureFolderTest, ManyPicturesKeepTheirOrder) {
  // More than fit one of the blocks that they are decoded into, and a gap in each.
  options_.size = {1024, 1024, 3};
  options_.skipBad = true;
  options_.validation = 0.01;
  for (int i = 0; i < 11; ++i) {
    const std::string name = "cat/" + std::to_string(10 + i) + ".png";
    write(name, i % 3 == 1 ? "" : pngOf(plain(static_cast<std::uint8_t>(10 + i), 1)));
  }
  EXPECT_EQ(valuesOf(load(Split::Training)), (Values{10, 12, 13, 15, 16, 18, 19}));
}

TEST_F(PictureFolderTest, TakesPngAndJpegOfAllKindsAndFoldersInFolders) {
  writeTwoClasses();
  const std::vector<std::uint8_t> inks(std::size_t{8} * 8 * 4, 255);  // inverted: no ink
  write("cat/deeper/a.JPG",
        jpegOf(8, 8, std::vector<std::uint8_t>(64, 33), {1, JCS_GRAYSCALE, JCS_GRAYSCALE}));
  write("cat/deeper/b.jpeg", jpegOf(8, 8, inks, {4, JCS_CMYK, JCS_CMYK, true}));
  write("cat/deeper/c.png", deepPngOf(8, 8, 65535));
  write("cat/deeper/d.png",
        jpegOf(8, 8, std::vector<std::uint8_t>(64, 44), {1, JCS_GRAYSCALE, JCS_GRAYSCALE}));
  write("cat/notes.txt", "not a picture");
  write("cat/.hidden.png", "not one either");
  options_.validation = 0.1;
  const PictureFolder data = load(Split::Training);
  EXPECT_EQ(valuesOf(data), (Values{10, 11, 12, 13, 14, 33, 255, 255, 44, 20, 21, 22, 23, 24}));
  EXPECT_TRUE(data.leftOut().empty());
}

TEST_F(PictureFolderTest, ACorruptPictureIsNamed) {
  writeTwoClasses();
  const std::string whole = pngOf(plain(9));
  write("cat/2.png", whole.substr(0, whole.size() / 2));
  EXPECT_TRUE(trouble().starts_with(shown("cat/2.png") + " is not a valid PNG picture: "));
  EXPECT_EQ(valuesOf(load(Split::Training)), (Values{10, 11, 13, 20, 21, 22, 23}));
  EXPECT_EQ(load(Split::Training).labels(), (Labels{0, 0, 0, 1, 1, 1, 1}));
  write("cat/2.png", "GIF89a");
  EXPECT_EQ(trouble(),
            shown("cat/2.png") + " is a GIF picture, of a kind that cannot be read, only PNG and JPEG can");
  write("cat/2.png", "no picture");
  EXPECT_EQ(trouble(), shown("cat/2.png") + " is no PNG or JPEG picture");
}

TEST_F(PictureFolderTest, AnEmptyPictureIsNamed) {
  writeTwoClasses();
  write("dog/4.png", "");
  EXPECT_EQ(trouble(Split::Test), shown("dog/4.png") + " is empty");
  // No rows: the header says so.
  std::string zero = pngOf(plain(9));
  std::fill_n(zero.begin() + 20, 4, '\0');
  write("dog/4.png", zero);
  EXPECT_TRUE(trouble(Split::Test).starts_with(shown("dog/4.png") + " is not a valid PNG picture: "));
}

TEST_F(PictureFolderTest, ALoopOfFoldersIsNamed) {
  writeTwoClasses();
  std::filesystem::create_directory_symlink(folder_.path(), folder_ / "dog" / "loop");
  EXPECT_EQ(trouble(), shown("dog/loop") + " leads back to " +
                           std::filesystem::canonical(folder_.path()).string() + ", a folder above it");
  EXPECT_EQ(load(Split::Training).size(), 8U);
  std::filesystem::remove(folder_ / "dog" / "loop");
  std::filesystem::create_symlink("itself.png", folder_ / "dog" / "itself.png");
  EXPECT_EQ(trouble(), "cannot read " + shown("dog/itself.png") + ": Too many levels of symbolic links");
}

TEST_F(PictureFolderTest, WhatIsNoPictureIsNamed) {
  writeTwoClasses();
  ASSERT_EQ(::mkfifo((folder_ / "cat" / "0.5.png").c_str(), 0600), 0);
  EXPECT_TRUE(trouble().find(shown("cat/0.5.png")) != std::string::npos);
  std::filesystem::remove(folder_ / "cat" / "0.5.png");
  write("stray.png", pngOf(plain(1)));
  EXPECT_EQ(trouble(), shown("stray.png") + " lies beside the folders of the classes, not in one");
  std::filesystem::remove(folder_ / "stray.png");
  std::filesystem::create_directory(folder_ / "empty");
  EXPECT_EQ(trouble(), "the folder " + shown("empty") + " holds no PNG or JPEG pictures");
  EXPECT_EQ(load(Split::Training).classNames().size(), 2U);
}

TEST_F(PictureFolderTest, PicturesOfOtherKindsAreNamed) {
  writeTwoClasses();
  for (const char* name : {"cat/5.gif", "cat/5.webp", "cat/5.bmp", "cat/5.TIF", "cat/5.heic"}) {
    write(name, "whatever");
    EXPECT_EQ(trouble(), shown(name) + " is of a kind that cannot be read, only PNG and JPEG can");
    std::filesystem::remove(folder_ / name);
  }
  write("cat/Thumbs.db", "whatever");
  options_.skipBad = false;
  EXPECT_NO_THROW(load(Split::Training));
}

TEST_F(PictureFolderTest, FoldersInFoldersHaveAnEnd) {
  writeTwoClasses();
  // Each is made within the one before: the whole path is longer than a path may be.
  const Path before = std::filesystem::current_path();
  std::filesystem::current_path(folder_ / "dog");
  for (int i = 0; i < 3000; ++i) {
    ASSERT_EQ(::mkdir("f", 0700), 0);
    ASSERT_EQ(::chdir("f"), 0);
  }
  std::filesystem::current_path(before);
  const std::string found = trouble();
  EXPECT_TRUE(found.starts_with(shown("dog/f/f"))) << found;
  EXPECT_TRUE(found.ends_with(" lies more than 32 folders deep")) << found;
  EXPECT_EQ(load(Split::Training).size(), 8U);
  // remove_all() cannot, either.
  ASSERT_EQ(std::system(("rm -rf '" + (folder_ / "dog").string() + "'").c_str()), 0);
}

TEST_F(PictureFolderTest, FoldersOfTheSystemAreNamed) {
  EXPECT_EQ(errorOf<mps::Error>([&] { PictureFolder("/proc", Split::Training, options_); }),
            "/proc is a folder of the system's, not of pictures");
  writeTwoClasses();
  std::filesystem::create_directory_symlink("/proc", folder_ / "dog" / "link");
  EXPECT_EQ(trouble(), shown("dog/link") + " is a folder of the system's, not of pictures");
}

TEST_F(PictureFolderTest, ALinkToNothingIsNamed) {
  writeTwoClasses();
  const auto expectTrouble = [&](const char* name, const char* target, const std::string& why) {
    std::filesystem::create_symlink(target, folder_ / name);
    EXPECT_EQ(trouble(), "cannot read " + shown(name) + ": " + why);
    EXPECT_EQ(load(Split::Training).size(), 8U) << name;
    options_.skipBad = false;
    EXPECT_NO_THROW(load(Split::Test)) << name;
    std::filesystem::remove(folder_ / name);
  };
  const std::string nothing = "No such file or directory";
  expectTrouble("bird", "nowhere", nothing);  // would be a class
  expectTrouble("dog/more", "nowhere", nothing);
  expectTrouble("dog/more", "notes.txt/more", nothing);
  expectTrouble("dog/itself", "itself", "Too many levels of symbolic links");
  write("dog/notes.txt", "not a picture");
  expectTrouble("dog/more", "notes.txt/more", "Not a directory");
  std::filesystem::create_symlink("nowhere", folder_ / "cat" / "0.5.png");
  std::filesystem::create_symlink("nowhere", folder_ / ".hidden");
  EXPECT_EQ(trouble(), "cannot read " + shown("cat/0.5.png") + ": " + nothing);
}

TEST_F(PictureFolderTest, SeveralTroublesAreCounted) {
  writeTwoClasses();
  for (const char* name : {"cat/0.png", "cat/1.png", "dog/0.png"}) write(name, "");
  EXPECT_EQ(errorOf<mps::Error>([&] { load(Split::Training); }),
            shown("cat/0.png") + " is empty, and there are 2 more troubles; skipBad goes on without");
  options_.skipBad = true;
  EXPECT_EQ(load(Split::Training).leftOut().size(), 3U);
  options_.skipBad = false;
  write("cat/0.png", pngOf(plain(10)));
  EXPECT_EQ(errorOf<mps::Error>([&] { load(Split::Training); }),
            shown("cat/1.png") + " is empty, and there is 1 more trouble; skipBad goes on without");
}

TEST_F(PictureFolderTest, AFolderWithoutPicturesIsRefused) {
  options_.skipBad = true;
  const std::string all = folder_.path().string();
  EXPECT_EQ(errorOf<mps::Error>([&] { load(Split::Training); }),
            all + " has no folders of PNG or JPEG pictures, one for each class");
  EXPECT_EQ(errorOf<mps::Error>([&] { PictureFolder(shown("nowhere"), Split::Test, options_); }),
            "cannot read the folder " + shown("nowhere") + ": No such file or directory");
  write("cat/a.png", pngOf(plain(1)));
  EXPECT_EQ(errorOf<mps::Error>([&] { load(Split::Test); }), all + " has no pictures for validation");
  write("cat/a.png", "");
  EXPECT_EQ(errorOf<mps::Error>([&] { load(Split::Training); }), all + " has no pictures for training");
}

TEST_F(PictureFolderTest, ANameThatIsNotUtf8IsATroubleLikeOthers) {
  writeTwoClasses();
  write("\xFF/a.png", pngOf(plain(1)));
  EXPECT_EQ(trouble(), "the folder " + shown("\xFF") + " has a name that is not UTF-8");
  EXPECT_EQ(load(Split::Training).classNames(), (std::vector<std::string>{"cat", "dog"}));
}

/// On every way there is they would be entered a million times.
TEST_F(PictureFolderTest, FoldersWithLinksToEachOtherAreEnteredOnce) {
  constexpr int folders = 10;
  for (int from = 0; from < folders; ++from) {
    const std::string name = std::to_string(from);
    write(name + "/a.png", pngOf(plain(static_cast<std::uint8_t>(10 + from))));
    write(name + "/b.png", pngOf(plain(static_cast<std::uint8_t>(10 + from))));
    for (int to = 0; to < folders; ++to)
      if (to != from)
        std::filesystem::create_directory_symlink(folder_ / std::to_string(to),
                                                  folder_ / name / ("to" + std::to_string(to)));
  }
  options_.skipBad = true;
  options_.validation = 0.01;
  const PictureFolder data = load(Split::Training);
  EXPECT_EQ(data.size(), 2U * folders * folders);
  const Values values = valuesOf(data);
  Values first(values.begin(), values.begin() + 2 * folders);
  std::ranges::sort(first);
  for (int i = 0; i < 2 * folders; ++i) EXPECT_EQ(first[static_cast<std::size_t>(i)], 10 + i / 2);
}

TEST_F(PictureFolderTest, AFolderThatAClassHasTwiceIsNamed) {
  writeTwoClasses();
  write("cat/more/a.png", pngOf(plain(30)));
  std::filesystem::create_directory_symlink(folder_ / "cat" / "more", folder_ / "cat" / "once more");
  EXPECT_EQ(trouble(), shown("cat/once more") + " leads to " +
                           std::filesystem::canonical(folder_ / "cat" / "more").string() +
                           ", a folder that the class has already");
  std::filesystem::remove(folder_ / "cat" / "once more");
  std::filesystem::create_directory_symlink(folder_ / "cat" / "more", folder_ / "dog" / "more");
  EXPECT_NO_THROW(load(Split::Training));
  options_.skipBad = false;
  EXPECT_NO_THROW(load(Split::Training));
}

TEST_F(PictureFolderTest, HasMoreThan256Classes) {
  constexpr std::uint32_t classes = 300;
  for (std::uint32_t i = 0; i < classes; ++i) write(std::to_string(1000 + i) + "/a.png", pngOf(plain(1, 1)));
  const PictureFolder data = load(Split::Training);
  ASSERT_EQ(data.size(), classes);
  EXPECT_EQ(data.classNames().back(), "1299");
  Labels labels = data.labels();
  std::ranges::sort(labels);
  for (std::uint32_t i = 0; i < classes; ++i) EXPECT_EQ(labels[i], i);
}

TEST_F(PictureFolderTest, ThereAreAtMost65536Classes) {
  const TestFolder pictures;
  std::filesystem::create_directory(pictures / "class");
  std::ofstream(pictures / "class" / "a.png") << "never read";
  for (int i = 0; i < 65537; ++i)
    std::filesystem::create_directory_symlink(pictures / "class", folder_ / std::to_string(i));
  EXPECT_EQ(errorOf<mps::Error>([&] { load(Split::Training); }),
            folder_.path().string() + " has more than 65536 classes");
}

}  // namespace
}  // namespace unmetal::train::picture_folder_test
