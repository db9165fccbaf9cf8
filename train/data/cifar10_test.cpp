#include <gtest/gtest.h>

#include "mps/core/types/error.hpp"
#include "mps/weights/test_folder.hpp"
#include "train/data/dataset.hpp"

namespace unmetal::train::cifar10_test {
namespace {

using mps::detail::errorOf;
using mps::detail::TestFolder;
using mps::detail::writeText;

/// A class, then planes of one value each.
std::string record(char label, char red, char green, char blue) {
  return std::string(1, label) + std::string(1024, red) + std::string(1024, green) + std::string(1024, blue);
}

TEST(Cifar10, PlanesBecomePixels) {
  const TestFolder folder;
  std::string file = record('\x03', '\x01', '\x02', '\x04') + record('\x09', '\x05', '\x06', '\x07');
  file[2] = '\x08';  // the second red pixel of the first picture
  writeText(folder / "test_batch.bin", file);
  const MemoryDataset data = cifar10(Split::Test, folder.path());
  EXPECT_EQ(data.shape(), (Shape{32, 32, 3}));
  EXPECT_EQ(data.labels(), (std::vector<std::uint32_t>{3, 9}));
  EXPECT_EQ(data.classNames()[3], "cat");
  const std::vector<std::uint8_t> beginning(data.bytes().begin(), data.bytes().begin() + 6);
  EXPECT_EQ(beginning, (std::vector<std::uint8_t>{1, 2, 4, 8, 2, 4}));
  EXPECT_EQ(data.bytes()[3072 + 2], 7);
}

TEST(Cifar10, TrainingPicturesAreInFiveFiles) {
  const TestFolder folder;
  for (char i = 1; i <= 5; ++i)
    writeText(folder / ("data_batch_" + std::to_string(i) + ".bin"), record(i, i, i, i));
  EXPECT_EQ(cifar10(Split::Training, folder.path()).labels(), (std::vector<std::uint32_t>{1, 2, 3, 4, 5}));
}

TEST(Cifar10, WrongFilesAreNamed) {
  const TestFolder folder;
  const auto path = folder / "test_batch.bin";
  const auto trouble = [&] { return errorOf<mps::Error>([&] { cifar10(Split::Test, folder.path()); }); };
  EXPECT_EQ(trouble(), "cannot read " + path.string() + ": No such file or directory");
  const std::string expected =
      " bytes, expected a multiple of 3073, one class and 32x32x3 bytes for each picture";
  writeText(path, "");
  EXPECT_EQ(trouble(), path.string() + " has 0" + expected);
  writeText(path, record('\x01', '\x01', '\x01', '\x01') + "more");
  EXPECT_EQ(trouble(), path.string() + " has 3077" + expected);
  writeText(path, record('\x0A', '\x01', '\x01', '\x01'));
  EXPECT_EQ(trouble(), path.string() + " has the label 10, expected 0 to 9");
}

}  // namespace
}  // namespace unmetal::train::cifar10_test
