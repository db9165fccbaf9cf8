#include "tools/data/dataset.hpp"

#include <gtest/gtest.h>
#include <algorithm>
#include <array>
#include <numeric>

#include "mps/core/error.hpp"
#include "mps/weights/test_folder.hpp"
#include "tools/picture.hpp"
#include "train/idx_writing.hpp"

namespace unmetal::dataset_test {
namespace {

using mps::detail::errorOf;
using mps::detail::TestFolder;
using mps::detail::writeText;
using train::detail::gzipOf;
using train::detail::idxOf;

std::string specificationOf(const TestFolder& folder) {
  return "fashion-mnist:" + folder.path().string();
}

/// A folder with two test pictures: all 1, all 2.
void writeTestSplit(const TestFolder& folder) {
  writeText(folder / "t10k-images-idx3-ubyte.gz",
            gzipOf(idxOf({2, 28, 28}, std::string(784, '\1') + std::string(784, '\2'))));
  writeText(folder / "t10k-labels-idx1-ubyte", idxOf({2}, "\x09\x03"));
}

TEST(FashionMnistTest, DebiansPackage) {
  const Dataset test = loadDataset("fashion-mnist", Split::Test);
  EXPECT_EQ(test.name, "fashion-mnist");
  EXPECT_EQ(test.height, 28U);
  EXPECT_EQ(test.width, 28U);
  EXPECT_EQ(test.channels, 1U);
  EXPECT_EQ(test.count(), 10'000U);
  EXPECT_EQ(test.images.size(), 7'840'000U);
  std::array<int, 10> counts{};
  for (const std::uint32_t label : test.labels) ++counts.at(label);
  for (const int count : counts) EXPECT_EQ(count, 1000);
  ASSERT_EQ(test.classNames.size(), 10U);
  EXPECT_EQ(test.classNames[test.labels[0]], "Ankle boot");

  const Dataset training = loadDataset("fashion-mnist", Split::Training);
  EXPECT_EQ(training.count(), 60'000U);
  // The known mean of the training pictures.
  const double sum = std::accumulate(training.images.begin(), training.images.end(), 0.0);
  EXPECT_NEAR(sum / 255.0 / static_cast<double>(training.images.size()), 0.2860, 5e-5);
}

TEST(FashionMnistTest, FilesOfOnesOwn) {
  const TestFolder folder;
  writeTestSplit(folder);
  const Dataset data = loadDataset(specificationOf(folder), Split::Test);
  ASSERT_EQ(data.count(), 2U);
  EXPECT_EQ(data.labels, (std::vector<std::uint32_t>{9, 3}));
  EXPECT_EQ(data.image(0)[783], 1);
  EXPECT_EQ(data.image(1)[0], 2);
}

TEST(FashionMnistTest, WrongFilesAreNamed) {
  const TestFolder folder;
  const auto errorFor = [&](Split split) {
    return errorOf<mps::Error>([&] { loadDataset(specificationOf(folder), split); });
  };
  const std::string images = (folder / "t10k-images-idx3-ubyte.gz").string();
  const std::string labels = (folder / "t10k-labels-idx1-ubyte").string();
  writeTestSplit(folder);
  EXPECT_EQ(
      errorFor(Split::Training),
      "cannot find " + (folder / "train-images-idx3-ubyte.gz").string() +
          ": install Debian's package dataset-fashion-mnist or name the folder as fashion-mnist:FOLDER");

  writeText(labels, idxOf({3}, "\x09\x03\x01"));
  EXPECT_EQ(errorFor(Split::Test), images + " has 2 images, but " + labels + " has 3 labels");
  writeText(labels, idxOf({2}, "\x09\x0A"));
  EXPECT_EQ(errorFor(Split::Test), labels + " has the label 10, expected 0 to 9");
  writeText(labels, idxOf({2, 1}, "\x09\x03"));
  EXPECT_EQ(errorFor(Split::Test), labels + " has 2 dimensions, expected one label for each image");
  writeText(labels, "corrupt");
  EXPECT_EQ(errorFor(Split::Test), labels + " is not a valid IDX file: it does not begin as one");

  writeTestSplit(folder);
  writeText(images, gzipOf(idxOf({2, 14, 56}, std::string(1568, '\1'))));
  EXPECT_EQ(errorFor(Split::Test), images + " does not hold images of 28 x 28 pixels");
}

TEST(SyntheticTest, SameEveryTime) {
  const Dataset first = loadDataset("synthetic", Split::Test);
  const Dataset second = loadDataset("synthetic", Split::Test);
  EXPECT_EQ(first.images, second.images);
  EXPECT_EQ(first.labels, second.labels);
  EXPECT_EQ(first.count(), 1024U);
  EXPECT_EQ(first.images.size(), 1024U * 28 * 28);
  const Dataset training = loadDataset("synthetic", Split::Training);
  EXPECT_EQ(training.count(), 4096U);
  EXPECT_FALSE(std::equal(first.images.begin(), first.images.end(), training.images.begin()));
}

TEST(SyntheticTest, BrightestPlaceTellsTheClass) {
  const Dataset data = loadDataset("synthetic", Split::Test);
  for (std::size_t i = 0; i < data.count(); ++i) {
    std::array<int, 16> brightness{};
    const auto image = data.image(i);
    for (std::size_t pixel = 0; pixel < image.size(); ++pixel) {
      brightness[pixel / 28 / 7 * 4 + pixel % 28 / 7] += image[pixel];
    }
    const auto brightest = std::max_element(brightness.begin(), brightness.end()) - brightness.begin();
    ASSERT_EQ(brightest, data.labels[i]) << "picture " << i;
  }
}

TEST(SyntheticTest, OfAnySize) {
  EXPECT_EQ(loadDataset("synthetic:28x28x1", Split::Test).images,
            loadDataset("synthetic", Split::Test).images);
  const Dataset data = loadDataset("synthetic:16x32x3", Split::Training);
  EXPECT_EQ(data.count(), 4096U);
  EXPECT_EQ(data.height, 16U);
  EXPECT_EQ(data.width, 32U);
  EXPECT_EQ(data.channels, 3U);
  EXPECT_EQ(data.images.size(), 4096U * 16 * 32 * 3);
  // Class 6 stands in the second row of cells and the third column.
  const auto image = data.image(6);
  const auto brightest = std::max_element(image.begin(), image.end()) - image.begin();
  EXPECT_EQ(brightest / (32 * 3) / 4, 1);
  EXPECT_EQ(brightest / 3 % 32 / 8, 2);
  EXPECT_EQ(loadDataset("synthetic:256x256x3", Split::Training).count(), 341U) << "64 MiB of them";
}

/// Smaller ones have no room for a square whose place tells one of ten classes.
TEST(SyntheticTest, OfASizeThatThereIsNot) {
  for (const std::string size :
       {"1x1x1", "7x8x1", "8x7x1", "8x1025x1", "1025x8x1", "8x8x0", "8x8x5", "3", "8x8", "8x8x1x1", "x8x1",
        "8x8x", "8 x8x1", "-8x8x1", "99999999999999999999x8x1"}) {
    EXPECT_EQ(
        errorOf<mps::Error>([&] { loadDataset("synthetic:" + size, Split::Test); }),
        "the data set \"synthetic:" + size +
            "\" has no pictures of that size, expected synthetic:HEIGHTxWIDTHxCHANNELS, sides from 8 to "
            "1024 and 1 to 4 channels");
  }
  EXPECT_EQ(loadDataset("synthetic:8x8x1", Split::Test).imageSize(), 64U);
  EXPECT_EQ(loadDataset("synthetic:8x1024x4", Split::Test).imageSize(), 8U * 1024 * 4);
}

TEST(DatasetTest, UnknownSpecification) {
  for (const std::string specification :
       {"", "mnist", "fashion-mnist:", "folder:", "synthetic:", "synthetic8x8x1"}) {
    EXPECT_EQ(
        errorOf<mps::Error>([&] { loadDataset(specification, Split::Test); }),
        "the data set \"" + specification +
            "\" is not known, expected fashion-mnist, fashion-mnist:FOLDER, folder:FOLDER, synthetic or "
            "synthetic:HxWxC");
  }
}

TEST(AugmentationTest, HasFourNames) {
  for (const char* name : {"none", "crop", "flip", "crop+flip"}) {
    const auto augmentation = parseAugmentation(name);
    ASSERT_TRUE(augmentation) << name;
    EXPECT_EQ(nameOf(*augmentation), name);
  }
  for (const char* other : {"", "flip+crop", "crop+", "Crop"})
    EXPECT_FALSE(parseAugmentation(other)) << other;
}

TEST(AugmentationTest, IsTheSameForDataThatAreNoFolder) {
  PictureFolderOptions options;
  const Dataset plain = loadDataset("synthetic:16x24x3", Split::Training, options);
  EXPECT_EQ(plain.storedSize(), plain.imageSize());
  EXPECT_FALSE(plain.mirrors);
  options.augmentation = {true, true};
  const Dataset training = loadDataset("synthetic:16x24x3", Split::Training, options);
  EXPECT_EQ(training.height, 16U);
  EXPECT_EQ(training.storedHeight(), 18U);
  EXPECT_EQ(training.storedWidth(), 27U);
  EXPECT_TRUE(training.mirrors);
  EXPECT_EQ(training.count(), plain.count());
  EXPECT_EQ(training.images.size(), training.count() * training.storedSize());
  const Picture first{16, 24, 3, {plain.image(0).begin(), plain.image(0).end()}};
  const Picture larger = fitPicture(first, 18, 27, 3);
  EXPECT_TRUE(std::ranges::equal(training.image(0), larger.pixels));
  const Dataset test = loadDataset("synthetic:16x24x3", Split::Test, options);
  EXPECT_EQ(test.storedSize(), test.imageSize());
  EXPECT_FALSE(test.mirrors);
}

}  // namespace
}  // namespace unmetal::dataset_test
