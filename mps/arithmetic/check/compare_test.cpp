#include "mps/arithmetic/compare.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "mps/arithmetic/arithmetic_node.hpp"
#include "mps/core/image/state.hpp"
#include "mps/core/testing/test_images.hpp"

/// Comparisons. All shapes are tested with the plans.
namespace mps::compare_test {
namespace {

using enum NNComparisonType;
using testing::DeviceTest;
using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;

class Compare : public DeviceTest {
 protected:
  [[nodiscard]] std::shared_ptr<NNCompare> kernel(NNComparisonType type, float threshold = 0) const {
    auto made = NNCompare::create(device_);
    made->setComparisonType(type);
    made->setThreshold(threshold);
    made->setDestinationImageAllocator(Image::defaultAllocator());
    return made;
  }
  Values compared(const std::shared_ptr<NNCompare>& kernel, const Values& x, const Values& y) {
    const auto buffer = commands();
    const auto size = sizeOf(x.size(), 1, 1);
    const auto result = kernel->encode(buffer, image(size, x), image(size, y));
    run(buffer);
    return valuesOf(*result);
  }
};

TEST_F(Compare, EachTypeOfTheTable) {
  const Values x{1, 2, 3};
  const Values y{2, 2, 2};
  EXPECT_EQ(compared(kernel(Equal), x, y), (Values{0, 1, 0}));
  EXPECT_EQ(compared(kernel(NotEqual), x, y), (Values{1, 0, 1}));
  EXPECT_EQ(compared(kernel(Less), x, y), (Values{1, 0, 0}));
  EXPECT_EQ(compared(kernel(LessOrEqual), x, y), (Values{1, 1, 0}));
  EXPECT_EQ(compared(kernel(Greater), x, y), (Values{0, 0, 1}));
  EXPECT_EQ(compared(kernel(GreaterOrEqual), x, y), (Values{0, 1, 1}));
}

/// Q26: the threshold is of equality alone.
TEST_F(Compare, ThresholdsBelongToEquality) {
  const Values x{1, 1.5F, 2, 2.25F};
  const Values y{2, 2, 2, 2};
  EXPECT_EQ(compared(kernel(Equal, 0.5F), x, y), (Values{0, 1, 1, 1}));
  EXPECT_EQ(compared(kernel(NotEqual, 0.5F), x, y), (Values{1, 0, 0, 0}));
  EXPECT_EQ(compared(kernel(Less, 0.5F), x, y), (Values{1, 1, 0, 0}));
  EXPECT_EQ(compared(kernel(GreaterOrEqual, 0.5F), x, y), (Values{0, 0, 1, 1}));
}

TEST_F(Compare, NothingHoldsOfNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Values x{nan, 1, nan};
  const Values y{1, nan, nan};
  for (const auto type : {Equal, Less, LessOrEqual, Greater, GreaterOrEqual})
    EXPECT_EQ(compared(kernel(type, 9), x, y), (Values{0, 0, 0}));
  EXPECT_EQ(compared(kernel(NotEqual, 9), x, y), (Values{1, 1, 1}));
}

/// Strides repeat a source; scales, bias and limits do nothing.
TEST_F(Compare, OfTheBasesPropertiesOnlyStridesCount) {
  const auto greater = kernel(Greater);
  greater->setSecondaryStrideInPixelsX(0);
  greater->setPrimaryScale(-1);
  greater->setSecondaryScale(100);
  greater->setBias(5);
  greater->setMaximumValue(0.5F);
  const auto buffer = commands();
  const auto result = greater->encode(buffer, image(sizeOf(3, 1, 1), {1, 2, 3}), image(sizeOf(1, 1, 1), {2}));
  run(buffer);
  EXPECT_EQ(valuesOf(*result), (Values{0, 0, 1}));
}

TEST_F(Compare, KeepsWhatItIsGiven) {
  const auto made = NNCompare::create(device_);
  EXPECT_EQ(made->className(), "NNCompare");
  EXPECT_EQ(made->comparisonType(), Equal);
  EXPECT_EQ(made->threshold(), 0);
  const auto copied = kernel(Less, 0.25F)->copy();
  EXPECT_EQ(copied->comparisonType(), Less);
  EXPECT_EQ(copied->threshold(), 0.25F);
  EXPECT_EQ(made->resultState(poisoned(sizeOf(1, 1, 1)), poisoned(sizeOf(1, 1, 1))), nullptr);
  EXPECT_TRUE(names(errorOf([&] { made->setComparisonType(static_cast<NNComparisonType>(6)); }),
                    {"NNCompare", "comparisonType", "6"}));
}

/// docs/decisions.md, D6: what can have no gradient throws one sentence.
TEST_F(Compare, D6TheNodeHasNoGradient) {
  const auto node = NNComparisonNode::create(NNImageNode::create(), NNImageNode::create());
  EXPECT_EQ(node->className(), "NNComparisonNode");
  EXPECT_EQ(node->comparisonType(), Equal);
  EXPECT_EQ(node->gradientClass(), "");
  node->setComparisonType(GreaterOrEqual);
  const auto made = std::dynamic_pointer_cast<NNCompare>(node->makeKernel(device_));
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(made->comparisonType(), GreaterOrEqual);
  EXPECT_TRUE(names(errorOf([&] { node->gradientFilters(NNImageNode::create()); }),
                    {"NNComparisonNode", "no gradient"}));
  const std::shared_ptr<NNImageNode> one[] = {NNImageNode::create()};
  EXPECT_TRUE(names(errorOf([&] { NNComparisonNode::create(one); }), {"sources", "exactly 2"}));
}

}  // namespace
}  // namespace mps::compare_test
