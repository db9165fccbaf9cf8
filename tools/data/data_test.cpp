#include "tools/data/data.hpp"

#include <gtest/gtest.h>
#include <algorithm>
#include <array>
#include <numeric>

#include "mps/core/types/error.hpp"
#include "mps/weights/test_folder.hpp"
#include "train/data/idx_writing.hpp"
#include "train/pictures/test_pictures.hpp"

namespace unmetal::data_test {
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
  const NamedData named = loadDataset("fashion-mnist", Split::Test);
  EXPECT_EQ(named.name, "fashion-mnist");
  EXPECT_FALSE(named.isGenerated);
  const auto& test = dynamic_cast<const train::MemoryDataset&>(*named.pictures);
  EXPECT_EQ(test.shape(), (train::Shape{28, 28, 1}));
  EXPECT_EQ(test.size(), 10'000U);
  EXPECT_EQ(test.bytes().size(), 7'840'000U);
  std::array<int, 10> counts{};
  for (const std::uint32_t label : test.labels()) ++counts.at(label);
  for (const int count : counts) EXPECT_EQ(count, 1000);
  ASSERT_EQ(test.classCount(), 10U);
  EXPECT_EQ(test.classNames()[test.labels()[0]], "Ankle boot");

  const NamedData training = loadDataset("fashion-mnist", Split::Training);
  EXPECT_EQ(training.pictures->size(), 60'000U);
  // The known mean of the training pictures.
  const auto& bytes = dynamic_cast<const train::MemoryDataset&>(*training.pictures).bytes();
  const double sum = std::accumulate(bytes.begin(), bytes.end(), 0.0);
  EXPECT_NEAR(sum / 255.0 / static_cast<double>(bytes.size()), 0.2860, 5e-5);
}

TEST(FashionMnistTest, FilesOfOnesOwn) {
  const TestFolder folder;
  writeTestSplit(folder);
  const NamedData named = loadDataset(specificationOf(folder), Split::Test);
  const auto& data = dynamic_cast<const train::MemoryDataset&>(*named.pictures);
  EXPECT_EQ(data.labels(), (std::vector<std::uint32_t>{9, 3}));
  EXPECT_EQ(data.bytes()[783], 1);
  EXPECT_EQ(data.bytes()[784], 2);
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

TEST(SyntheticTest, OfAnySize) {
  const NamedData data = loadDataset("synthetic:16x32x3", Split::Training);
  EXPECT_EQ(data.name, "synthetic");
  EXPECT_TRUE(data.isGenerated);
  EXPECT_EQ(data.pictures->shape(), (train::Shape{16, 32, 3}));
  EXPECT_EQ(data.pictures->size(), 4096U);
  EXPECT_EQ(loadDataset("synthetic", Split::Test).pictures->shape(), (train::Shape{28, 28, 1}));
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
  EXPECT_EQ(loadDataset("synthetic:8x8x1", Split::Test).pictures->shape(), (train::Shape{8, 8, 1}));
  EXPECT_EQ(loadDataset("synthetic:8x1024x4", Split::Test).pictures->shape(), (train::Shape{8, 1024, 4}));
}

TEST(DatasetTest, UnknownSpecification) {
  for (const std::string specification :
       {"", "mnist", "fashion-mnist:", "cifar-10", "cifar-10:", "folder:", "synthetic:", "synthetic8x8x1"}) {
    EXPECT_EQ(
        errorOf<mps::Error>([&] { loadDataset(specification, Split::Test); }),
        "the data set \"" + specification +
            "\" is not known, expected fashion-mnist, fashion-mnist:FOLDER, cifar-10:FOLDER, folder:FOLDER, "
            "synthetic or synthetic:HxWxC");
  }
}

TEST(DatasetTest, PathsMayEndInASlash) {
  const TestFolder folder;
  writeTestSplit(folder);
  EXPECT_EQ(loadDataset(specificationOf(folder) + "//", Split::Test).pictures->size(), 2U);
  const std::string picture(3072, '\x40');
  writeText(folder / "test_batch.bin", '\7' + picture + '\2' + picture);
  const NamedData cifar = loadDataset("cifar-10:" + folder.path().string() + "/", Split::Test);
  EXPECT_EQ(cifar.name, "cifar-10");
  EXPECT_EQ(cifar.pictures->size(), 2U);
  EXPECT_EQ(cifar.pictures->shape(), (train::Shape{32, 32, 3}));
  const train::Picture grey{1, 1, 1, {9}};
  std::filesystem::create_directories(folder / "pictures/cat");
  writeText(folder / "pictures/cat/a.png", train::testing::pngOf(grey));
  const NamedData pictures =
      loadDataset("folder:" + folder.path().string() + "/pictures/", Split::Training, {.size = {8, 8, 1}});
  EXPECT_EQ(pictures.name, "folder:" + (folder / "pictures").string());
  EXPECT_EQ(pictures.pictures->size(), 1U);
}

TEST(DatasetTest, PicturesOfAFolderForTrainingAreLargerWhereTheyAreCropped) {
  const TestFolder folder;
  for (const char* name : {"a.png", "b.png", "c.png"}) {
    std::filesystem::create_directories(folder / "cat");
    writeText(folder / "cat" / name, train::testing::pngOf({1, 1, 1, {9}}));
  }
  const std::string all = "folder:" + folder.path().string();
  DataOptions options{.size = {8, 8, 1}, .validation = 0.4};
  EXPECT_EQ(loadDataset(all, Split::Training, options).pictures->shape(), (train::Shape{8, 8, 1}));
  options.augmentation.flip = true;
  EXPECT_EQ(loadDataset(all, Split::Training, options).pictures->shape(), (train::Shape{8, 8, 1}));
  options.augmentation.crop = 0.125;
  EXPECT_EQ(loadDataset(all, Split::Training, options).pictures->shape(), (train::Shape{9, 9, 1}));
  EXPECT_EQ(loadDataset(all, Split::Test, options).pictures->shape(), (train::Shape{8, 8, 1}));
  options.augmentation = {.resizedCrop = 0.5};
  EXPECT_EQ(loadDataset(all, Split::Training, options).pictures->shape(), (train::Shape{11, 11, 1}));
  options.augmentation = {.resizedCrop = 0.1};
  EXPECT_EQ(loadDataset(all, Split::Training, options).pictures->shape(), (train::Shape{12, 12, 1}));
  writeText(folder / "cat/a.png", "");
  EXPECT_EQ(errorOf<mps::Error>([&] { loadDataset(all, Split::Training, options); }),
            (folder / "cat/a.png").string() + " is empty; --skip-bad goes on without");
  options.skipBad = true;
  EXPECT_EQ(loadDataset(all, Split::Training, options).leftOut,
            std::vector{(folder / "cat/a.png").string() + " is empty"});
}

TEST(DatasetTest, ANameThatIsNotUtf8IsRefused) {
  EXPECT_EQ(errorOf<mps::Error>([] { loadDataset("folder:\xFF", Split::Training); }),
            "the data set \"folder:\xFF\" has a name that is not UTF-8");
}

}  // namespace
}  // namespace unmetal::data_test
