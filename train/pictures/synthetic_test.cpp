#include "train/pictures/synthetic.hpp"

#include <gtest/gtest.h>
#include <algorithm>
#include <array>

#include "mps/core/types/error.hpp"
#include "mps/weights/test_folder.hpp"

namespace unmetal::train::synthetic_test {
namespace {

TEST(SyntheticTest, SameEveryTime) {
  const SyntheticDataset first(Split::Test);
  const SyntheticDataset second(Split::Test);
  EXPECT_EQ(first.bytes(), second.bytes());
  EXPECT_EQ(first.labels(), second.labels());
  EXPECT_EQ(first.size(), 1024U);
  EXPECT_EQ(first.bytes().size(), 1024U * 28 * 28);
  const SyntheticDataset training(Split::Training);
  EXPECT_EQ(training.size(), 4096U);
  EXPECT_FALSE(std::equal(first.bytes().begin(), first.bytes().end(), training.bytes().begin()));
}

TEST(SyntheticTest, BrightestPlaceTellsTheClass) {
  const SyntheticDataset data(Split::Test);
  for (std::size_t i = 0; i < data.size(); ++i) {
    std::array<int, 16> brightness{};
    const auto image = std::span(data.bytes()).subspan(i * 28 * 28, 28 * 28);
    for (std::size_t pixel = 0; pixel < image.size(); ++pixel) {
      brightness[pixel / 28 / 7 * 4 + pixel % 28 / 7] += image[pixel];
    }
    const auto brightest = std::max_element(brightness.begin(), brightness.end()) - brightness.begin();
    ASSERT_EQ(brightest, data.labels()[i]) << "picture " << i;
  }
}

TEST(SyntheticTest, OfAnySize) {
  const SyntheticDataset data(Split::Training, {16, 32, 3});
  EXPECT_EQ(data.size(), 4096U);
  EXPECT_EQ(data.shape(), (Shape{16, 32, 3}));
  EXPECT_EQ(data.bytes().size(), 4096U * 16 * 32 * 3);
  // Class 6 stands in the second row of cells and the third column.
  const auto image = std::span(data.bytes()).subspan(std::size_t{6} * 16 * 32 * 3, std::size_t{16} * 32 * 3);
  const auto brightest = std::max_element(image.begin(), image.end()) - image.begin();
  EXPECT_EQ(brightest / (32 * 3) / 4, 1);
  EXPECT_EQ(brightest / 3 % 32 / 8, 2);
  EXPECT_EQ(SyntheticDataset(Split::Training, {256, 256, 3}).size(), 341U) << "64 MiB of them";
}

TEST(SyntheticTest, SquaresNeedRoom) {
  for (const Shape& shape :
       {Shape{3, 4, 1}, Shape{4, 3, 1}, Shape{4, 4, 0}, Shape{std::size_t{1} << 33, 4, 1}})
    EXPECT_EQ(mps::detail::errorOf<mps::Error>([&] { SyntheticDataset(Split::Test, shape); }),
              "SyntheticDataset: shape is " + describe(shape) +
                  ", expected sides from 4 to 16384 and 1 to 1024 channels");
}

}  // namespace
}  // namespace unmetal::train::synthetic_test
