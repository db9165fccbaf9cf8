#include "train/augmentation.hpp"

#include <gtest/gtest.h>

namespace unmetal::train::augmentation_test {
namespace {

TEST(AugmentationTest, HasFourNames) {
  for (const char* name : {"none", "crop", "flip", "crop+flip"}) {
    const auto augmentation = parseAugmentation(name);
    ASSERT_TRUE(augmentation) << name;
    EXPECT_EQ(nameOf(*augmentation), name);
  }
  for (const char* other : {"", "flip+crop", "crop+", "Crop"})
    EXPECT_FALSE(parseAugmentation(other)) << other;
}

}  // namespace
}  // namespace unmetal::train::augmentation_test
