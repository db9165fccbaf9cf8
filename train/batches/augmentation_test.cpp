#include "train/batches/augmentation.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "mps/core/types/error.hpp"
#include "mps/weights/test_folder.hpp"

namespace unmetal::train::augmentation_test {
namespace {

using mps::detail::errorOf;

TEST(AugmentationTest, HasOneNameInOneOrder) {
  for (const char* name :
       {"none", "crop", "flip", "crop+flip", "crop:0.25", "resized-crop:0.08+flip", "rotate:10", "shift:1",
        "crop+flip+shift:0.1+rotate:180+brightness:0.2+contrast:0.3+saturation:0.4+mixup:0.2+smooth:0.1",
        "saturation:1"})
    EXPECT_EQ(nameOf(parseAugmentation(name)), name);
  EXPECT_EQ(parseAugmentation("crop+flip+rotate:7.5"),
            (Augmentation{.crop = 0.125, .flip = true, .rotate = 7.5}));
  EXPECT_EQ(nameOf(parseAugmentation("crop:0.125")), "crop");
}

TEST(AugmentationTest, OtherTextsAreRefused) {
  for (const std::string text : {"", "flip+crop", "crop+", "+crop", "crop++flip", "Crop", "crops", "flip:1",
                                 "rotate", "rotate10", "none+flip", "flip+flip", "crop+none"})
    EXPECT_EQ(errorOf<mps::Error>([&] { parseAugmentation(text); }),
              "the augmentation \"" + text +
                  "\" is not known, expected none, or joined by + and in this order: crop[:SHARE], "
                  "resized-crop:SHARE, flip, shift:SHARE, rotate:DEGREES, brightness:SHARE, contrast:SHARE, "
                  "saturation:SHARE, mixup:NUMBER, smooth:SHARE");
  for (const std::string number : {"400", "-1", "0", "nan", "1x", "", "inf"})
    EXPECT_EQ(errorOf<mps::Error>([&] { parseAugmentation("rotate:" + number); }),
              "augmentation: rotate is \"rotate:" + number + "\", expected degrees above 0 and up to 180");
  EXPECT_EQ(errorOf<mps::Error>([] { parseAugmentation("crop+resized-crop:0.5"); }),
            "augmentation: there is a crop and a resized-crop, expected one of them");
}

TEST(AugmentationTest, WhatCannotBeIsRefused) {
  const auto trouble = [](const Augmentation& augmentation, const Shape& pictures, const Shape& wanted) {
    return errorOf<mps::Error>([&] { checkAugmentation(augmentation, pictures, wanted); });
  };
  const Shape grey{28, 28, 1};
  EXPECT_EQ(trouble({.rotate = 400}, grey, grey),
            "augmentation: rotate is 400, expected degrees above 0 and up to 180");
  EXPECT_EQ(trouble({.shift = std::nan("")}, grey, grey),
            "augmentation: shift is nan, expected a share of the sides above 0 and up to 1");
  EXPECT_EQ(trouble({.resizedCrop = 1.5}, grey, grey),
            "augmentation: resized-crop is 1.5, expected a share of the picture's area above 0 and up to 1");
  EXPECT_EQ(trouble({.mixup = 0.001}, grey, grey),
            "augmentation: mixup is 0.001, expected a number from 0.01 to 1");
  EXPECT_EQ(trouble({.labelSmoothing = 1}, grey, grey),
            "augmentation: smooth is 1, expected a share above 0 and up to 0.99");
  EXPECT_EQ(trouble({.crop = 0.1, .resizedCrop = 0.5}, grey, grey),
            "augmentation: there is a crop and a resized-crop, expected one of them");
  EXPECT_EQ(trouble({.crop = 0.1}, grey, {32, 28, 1}),
            "augmentation: a crop of 32x28x1 is larger than the pictures of 28x28x1");
  EXPECT_EQ(trouble({.saturation = 0.1}, grey, grey),
            "augmentation: saturation needs pictures of 3 channels, these are 28x28x1");
  EXPECT_NO_THROW(checkAugmentation({.crop = 1, .rotate = 180, .saturation = 1}, {28, 28, 3}, {28, 28, 3}));
}

TEST(AugmentationTest, CropsAreCutOutOfLargerPictures) {
  EXPECT_EQ(shapeForCrops({28, 64, 3}), (Shape{31, 72, 3}));
  EXPECT_EQ(shapeForCrops({28, 64, 3}, 1), (Shape{56, 128, 3}));
}

}  // namespace
}  // namespace unmetal::train::augmentation_test
