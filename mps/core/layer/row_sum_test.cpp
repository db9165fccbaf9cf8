#include "mps/core/layer/row_sum.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "mps/core/testing/test_images.hpp"
#include "mtl/buffer.hpp"
#include "mtl/memory.hpp"

namespace mps::detail::row_sum_test {
namespace {

using testing::Values;

class RowSum : public testing::DeviceTest {
 protected:
  /// Rows begin behind one value, sums behind two.
  Values sumOf(const std::vector<Values>& rows) {
    Values all{poison};
    for (const Values& row : rows) all.insert(all.end(), row.begin(), row.end());
    const auto source = device_->newBuffer(std::as_bytes(std::span(all)));
    const auto result = device_->newBuffer((rows[0].size() + 2) * sizeof(float));
    const auto commandBuffer = commands();
    recordRowSum(*commandBuffer, "sum",
                 {static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(rows[0].size())},
                 source->memory(), sizeof(float), result->memory(), 2 * sizeof(float));
    run(commandBuffer);
    const Values found = testing::valuesOf(result);
    EXPECT_EQ((Values{found[0], found[1]}), (Values{0, 0}));
    return {found.begin() + 2, found.end()};
  }
};

TEST_F(RowSum, SmallOnes) {
  EXPECT_EQ(sumOf({{5}}), Values{5});
  EXPECT_EQ(sumOf({{1, 2, 3}, {10, 20, 30}}), (Values{11, 22, 33}));
}

TEST_F(RowSum, MoreColumnsThanABlock) {
  const Values first = testing::counted(700), second = testing::counted(700, 3);
  Values expected;
  for (std::size_t i = 0; i < 700; ++i) expected.push_back(3 * first[i] + second[i]);
  EXPECT_EQ(sumOf({first, second, first, first}), expected);
}

/// In float32 the ones would be lost.
TEST_F(RowSum, IsFloat64Inside) {
  std::vector<Values> rows{{0x1p25F}};
  for (int i = 0; i < 64; ++i) rows.push_back({1});
  rows.push_back({-0x1p25F});
  EXPECT_EQ(sumOf(rows), Values{64});
}

}  // namespace
}  // namespace mps::detail::row_sum_test
