#include "mps/core/image/byte_rows.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <random>
#include <string>
#include <vector>

namespace mps::detail::byte_rows_test {
namespace {

/// How often each byte of a small memory is taken.
std::vector<int> bytesOf(const ByteRows& area) {
  std::vector<int> taken(512);
  for (std::int64_t image = 0; image < area.images; ++image)
    for (std::int64_t row = 0; row < area.rows; ++row)
      for (std::int64_t byte = 0; byte < area.rowBytes; ++byte)
        ++taken.at(
            static_cast<std::size_t>(area.begin + image * area.imageStride + row * area.rowStride + byte));
  return taken;
}

TEST(ByteRowsTest, OverlapIsThatOfTheBytes) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto upTo = [&](unsigned most) { return static_cast<std::int64_t>(random() % (most + 1)); };
  int overlapping = 0;
  for (int repetition = 0; repetition < 20000; ++repetition) {
    std::vector<ByteRows> areas;
    const std::int64_t common = 4 + upTo(6);
    for (int k = 0; k < 2; ++k) {
      ByteRows area;
      area.begin = upTo(60);
      area.rowBytes = upTo(4);
      area.rowStride = random() % 2 == 0 ? common : area.rowBytes + upTo(6);
      area.rows = upTo(6);
      area.imageStride = area.rows * area.rowStride + (random() % 2 == 0 ? area.rowStride : 1) * upTo(2);
      area.images = upTo(4);
      areas.push_back(area);
    }
    const std::vector<int> one = bytesOf(areas[0]), other = bytesOf(areas[1]);
    bool expected = false;
    for (std::size_t i = 0; i < one.size(); ++i) expected = expected || (one[i] > 0 && other[i] > 0);
    overlapping += expected ? 1 : 0;
    ASSERT_EQ(overlap(areas[0], areas[1]), expected);
    ASSERT_EQ(overlap(areas[1], areas[0]), expected);
  }
  EXPECT_GT(overlapping, 2000);
}

TEST(ByteRowsTest, ColumnsOfOneMatrixAreComparedAtOnce) {
  constexpr std::int64_t kRows = std::int64_t{1} << 40;
  const ByteRows left{0, 1, 0, kRows, 16, 8}, right{8, 1, 0, kRows, 16, 8}, middle{4, 1, 0, kRows, 16, 8};
  EXPECT_FALSE(overlap(left, right));
  EXPECT_TRUE(overlap(left, middle));
  EXPECT_TRUE(overlap(middle, right));
  // Of several matrices, one of them somewhere in between.
  const ByteRows several{0, 1000, kRows, 1000, 16, 8};
  EXPECT_FALSE(overlap(several, {8 + kRows, 1000, kRows, 1000, 16, 8}));
  EXPECT_TRUE(overlap(several, {4 + kRows, 1000, kRows, 1000, 16, 8}));
}

TEST(ByteRowsTest, StepsLeaveOutRowsThatEndBefore) {
  constexpr std::int64_t kRows = std::int64_t{1} << 40;
  const ByteRows many{0, 1, 0, kRows, 16, 8};
  EXPECT_FALSE(overlap(many, {8 + 16 * (kRows / 2), 1, 0, 3, 32, 8}));
  EXPECT_TRUE(overlap(many, {8 + 16 * (kRows / 2), 1, 0, 3, 28, 8}));
  EXPECT_FALSE(overlap(many, {16 * kRows, 1, 0, kRows, 12, 8}));
}

TEST(ByteRowsTest, StridesThatDoNotCountMakeNoDifference) {
  EXPECT_TRUE(areSame({4, 1, 0, 1, 99, 8}, {4, 1, 77, 1, 8, 8}));
  EXPECT_TRUE(areSame({4, 3, 16, 1, 8, 8}, {4, 1, 0, 3, 16, 8})) << "three vectors are three rows";
  EXPECT_FALSE(areSame({4, 1, 0, 2, 99, 8}, {4, 1, 0, 2, 8, 8}));
  EXPECT_FALSE(areSame({4, 2, 32, 2, 16, 8}, {4, 2, 48, 2, 16, 8}));
  EXPECT_FALSE(areSame({4, 1, 0, 1, 8, 8}, {8, 1, 0, 1, 8, 8}));
  EXPECT_FALSE(areSame({4, 1, 0, 1, 8, 8}, {4, 1, 0, 1, 8, 4}));
}

}  // namespace
}  // namespace mps::detail::byte_rows_test
