#include "tools/evaluation/confusion_drawing.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tools/test_xml.hpp"

namespace unmetal::confusion_drawing_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ConfusionDrawing, HasTheNamesAndTheCounts) {
  ConfusionMatrix matrix({"cat", "a <dog> with a very long name", "owl \xff"});
  for (int i = 0; i < 37; ++i) matrix.add(0, 0);
  matrix.add(0, 1);
  matrix.add(1, 1);
  const std::string svg = drawConfusion("net & data", matrix);
  EXPECT_EQ(troubleInXml(svg), "");
  for (const char* text : {"net &amp; data", ">cat<", ">a &lt;dog&gt; with a ve\u2026<", ">owl ?<", ">37<",
                           ">1<", "97.44 % of 39 pictures are right"})
    EXPECT_THAT(svg, HasSubstr(text));
  EXPECT_THAT(svg, Not(HasSubstr(">0<")));
  EXPECT_EQ(svg, drawConfusion("net & data", matrix));
}

TEST(ConfusionDrawing, OfManyClassesThoseWithTheMostMistakesAreShown) {
  std::vector<std::string> names;
  for (int i = 0; i < 100; ++i) names.push_back("class" + std::to_string(i));
  ConfusionMatrix matrix(names);
  for (std::size_t i = 0; i < 100; ++i) matrix.add(i, i);
  for (std::size_t i = 60; i < 99; ++i) matrix.add(i, i + 1);
  const std::string svg = drawConfusion("many", matrix);
  EXPECT_EQ(troubleInXml(svg), "");
  EXPECT_THAT(svg, HasSubstr("the 40 classes with the most mistakes of 100"));
  EXPECT_THAT(svg, HasSubstr(">class75<"));
  EXPECT_THAT(svg, Not(HasSubstr(">class59<")));
}

TEST(ConfusionDrawing, NothingToShowIsWellFormed) {
  EXPECT_EQ(troubleInXml(drawConfusion("empty", ConfusionMatrix({}))), "");
  EXPECT_EQ(troubleInXml(drawConfusion("one", ConfusionMatrix({"a"}))), "");
}

}  // namespace
}  // namespace unmetal::confusion_drawing_test
