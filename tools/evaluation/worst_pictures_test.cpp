#include "tools/evaluation/worst_pictures.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <array>
#include <string>
#include <vector>

#include "tools/test_xml.hpp"

namespace unmetal::worst_pictures_test {
namespace {

using ::testing::HasSubstr;

TEST(WorstPictures, AreThoseWithTheLeastProbability) {
  WorstPictures worst(3);
  const auto add = [&](std::size_t index, std::uint32_t label, float ofFirst) {
    worst.add(index, label, std::array{ofFirst, 1 - ofFirst});
  };
  add(0, 0, 0.9F);
  add(1, 0, 0.25F);
  add(2, 1, 0.75F);
  add(3, 1, 0.5F);
  add(4, 0, 0.0F);
  ASSERT_EQ(worst.entries().size(), 3U);
  EXPECT_EQ(worst.entries()[0].index, 4U);
  EXPECT_EQ(worst.entries()[0].prediction, 1U);
  EXPECT_EQ(worst.entries()[0].confidence, 1);
  EXPECT_EQ(worst.entries()[1].index, 1U) << "the first of those that are as bad";
  EXPECT_EQ(worst.entries()[2].index, 2U);
  EXPECT_EQ(worst.entries()[2].probability, 0.25F);
}

/// Every pixel, in base64, of a picture of so many channels.
std::string sheetOf(const train::Shape& shape, std::vector<float> pixels) {
  const train::MemoryDataset data(shape, std::move(pixels), {0}, {"cat", "a & b"});
  WorstPictures worst;
  worst.add(0, 0, std::array{0.125F, 0.875F});
  return drawWorstPictures("title", worst, data);
}

TEST(WorstPictures, TheSheetHasPicturesAndWords) {
  const std::string svg = sheetOf({2, 2, 1}, {0, 1, 0.5F, 7});
  EXPECT_EQ(troubleInXml(svg), "");
  for (const char* text :
       {">title<", ">cat 12.5 %<", ">a &amp; b 87.5 %<", "data:image/png;base64,iVBORw0KGgo"})
    EXPECT_THAT(svg, HasSubstr(text));
  EXPECT_EQ(svg, sheetOf({2, 2, 1}, {0, 1, 0.5F, 1})) << "brighter than white is white";
  EXPECT_NE(svg, sheetOf({2, 2, 1}, {0, 1, 0.5F, 0}));
}

TEST(WorstPictures, PicturesOfAnySizeAndNumberOfChannels) {
  for (const train::Shape& shape : {train::Shape{1, 1, 3}, train::Shape{5, 1, 2}, train::Shape{300, 7, 3}})
    EXPECT_EQ(troubleInXml(sheetOf(shape, std::vector<float>(shape.count(), 0.5F))), "");
  const train::MemoryDataset data({1, 1, 1}, std::vector<float>{0}, {0});
  EXPECT_EQ(troubleInXml(drawWorstPictures("none", WorstPictures(), data)), "");
}

}  // namespace
}  // namespace unmetal::worst_pictures_test
