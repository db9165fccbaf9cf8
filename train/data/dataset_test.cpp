#include "train/data/dataset.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "mps/core/types/error.hpp"
#include "mps/weights/test_folder.hpp"
#include "train/data/idx_writing.hpp"

namespace unmetal::train::dataset_test {
namespace {

using detail::gzipOf;
using detail::idxOf;
using mps::detail::errorOf;
using mps::detail::TestFolder;
using mps::detail::writeText;
using ::testing::EndsWith;

TEST(MemoryDataset, KeepsPicturesAndClasses) {
  const MemoryDataset bytes({1, 2, 1}, std::vector<std::uint8_t>{0, 255, 51, 102}, {2, 0});
  EXPECT_EQ(bytes.size(), 2U);
  EXPECT_EQ(bytes.classNames(), (std::vector<std::string>{"0", "1", "2"}));
  std::vector<float> pixels(2);
  EXPECT_EQ(bytes.load(0, pixels), 2U);
  EXPECT_EQ(pixels, (std::vector<float>{0, 1}));
  EXPECT_EQ(bytes.load(1, pixels), 0U);
  EXPECT_EQ(pixels, (std::vector<float>{51.0F / 255, 102.0F / 255}));

  const MemoryDataset floats({1, 1, 2}, std::vector<float>{1, -2, 3, 4}, {0, 1}, {"cat", "dog", "bird"});
  EXPECT_EQ(floats.classCount(), 3U);
  EXPECT_EQ(floats.load(0, pixels), 0U);
  EXPECT_EQ(pixels, (std::vector<float>{1, -2}));
}

TEST(MemoryDataset, WhatDisagreesIsRefused) {
  using Floats = std::vector<float>;
  const auto trouble = [](const Shape& shape, Floats pixels, std::vector<std::uint32_t> labels,
                          std::vector<std::string> names = {}) {
    return errorOf<mps::Error>(
        [&] { MemoryDataset(shape, std::move(pixels), std::move(labels), std::move(names)); });
  };
  EXPECT_EQ(trouble({1, 1, 1}, {}, {}), "MemoryDataset: labels is empty, expected one for each picture");
  EXPECT_EQ(trouble({2, 2, 1}, Floats(7), {0, 0}),
            "MemoryDataset: number of pixels is 7, expected 2 pictures of 2x2x1");
  EXPECT_EQ(trouble({2, 1, 1}, Floats(8), {0, 0}),
            "MemoryDataset: number of pixels is 8, expected 2 pictures of 2x1x1");
  EXPECT_EQ(trouble({0, 1, 1}, Floats(2), {0, 0}),
            "MemoryDataset: number of pixels is 2, expected 2 pictures of 0x1x1");
  EXPECT_EQ(trouble({1, 1, 1}, Floats(3), {0, 2, 1}, {"a", "b"}),
            "MemoryDataset: label of picture 1 is 2, expected 0 to 1");
  EXPECT_EQ(trouble({1, 1, 1}, {0, std::numeric_limits<float>::quiet_NaN()}, {0, 0}),
            "MemoryDataset: picture 1 has a number that is not finite");
}

TEST(FashionMnist, OfAnyFolder) {
  const TestFolder folder;
  writeText(folder / "t10k-images-idx3-ubyte.gz",
            gzipOf(idxOf({2, 28, 28}, std::string(784, '\1') + std::string(784, '\2'))));
  writeText(folder / "t10k-labels-idx1-ubyte", idxOf({2}, "\x09\x03"));
  const MemoryDataset data = fashionMnist(Split::Test, folder.path());
  EXPECT_EQ(data.shape(), (Shape{28, 28, 1}));
  EXPECT_EQ(data.labels(), (std::vector<std::uint32_t>{9, 3}));
  EXPECT_EQ(data.bytes()[784], 2);
  EXPECT_EQ(data.classNames()[9], "Ankle boot");
  EXPECT_THAT(errorOf<mps::Error>([&] { fashionMnist(Split::Training, folder.path()); }),
              ::testing::HasSubstr("install Debian's package dataset-fashion-mnist"));
}

TEST(IdxDataset, HasChannelsOrNot) {
  const TestFolder folder;
  const auto images = folder / "images";
  const auto labels = folder / "labels";
  writeText(images, idxOf({2, 1, 2, 3}, "abcdefghijkl"));
  writeText(labels, idxOf({2}, std::string("\1\0", 2)));
  const MemoryDataset colour = readIdxDataset(images, labels);
  EXPECT_EQ(colour.shape(), (Shape{1, 2, 3}));
  EXPECT_EQ(colour.labels(), (std::vector<std::uint32_t>{1, 0}));
  EXPECT_THAT(errorOf<mps::Error>([&] { readIdxDataset(images, labels, {"one"}); }),
              EndsWith("labels has the label 1, expected 0 to 0"));
  writeText(images, idxOf({3, 2, 2}, "abcdefghijkl"));
  EXPECT_THAT(errorOf<mps::Error>([&] { readIdxDataset(images, labels); }), EndsWith("labels has 2 labels"));
  writeText(images, idxOf({2, 2}, "abcd"));
  EXPECT_THAT(errorOf<mps::Error>([&] { readIdxDataset(images, labels); }),
              EndsWith("images has 2 dimensions, expected 3 or 4 of pictures"));
  EXPECT_THAT(errorOf<mps::Error>([&] { readIdxDataset(images, images); }),
              EndsWith("images has 2 dimensions, expected one label for each image"));
}

}  // namespace
}  // namespace unmetal::train::dataset_test
