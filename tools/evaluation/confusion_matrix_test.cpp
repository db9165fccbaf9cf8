#include "tools/evaluation/confusion_matrix.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

namespace unmetal::confusion_matrix_test {
namespace {

TEST(ConfusionMatrixTest, CountsAndTable) {
  ConfusionMatrix matrix({"cat", "dog", "bird"});
  EXPECT_EQ(matrix.accuracy(), 0);
  for (int i = 0; i < 120; ++i) matrix.add(0, 0);
  for (int i = 0; i < 40; ++i) matrix.add(0, 1);
  for (int i = 0; i < 39; ++i) matrix.add(1, 1);
  matrix.add(1, 0);
  EXPECT_EQ(matrix.total(), 200U);
  EXPECT_EQ(matrix.correct(), 159U);
  EXPECT_DOUBLE_EQ(matrix.accuracy(), 0.795);
  EXPECT_EQ(matrix.table(),
            "actual \\ predicted     0     1     2  recall %   F1 %\n"
            "0 cat                120    40     0      75.0   85.4\n"
            "1 dog                  1    39     0      97.5   65.5\n"
            "2 bird                 0     0     0         -      -\n"
            "precision %         99.2  49.4     -\n");
}

TEST(ConfusionMatrixTest, LongNamesAndLargeCountsStayAligned) {
  ConfusionMatrix matrix({"a class with a long name", "b"});
  for (int i = 0; i < 1'234'567; ++i) matrix.add(0, 0);
  EXPECT_EQ(matrix.table(),
            "actual \\ predicted               0       1  recall %   F1 %\n"
            "0 a class with a long name 1234567       0     100.0  100.0\n"
            "1 b                              0       0         -      -\n"
            "precision %                  100.0       -\n");
}

TEST(ConfusionMatrixTest, NamesThatAreNotAsciiStayAligned) {
  ConfusionMatrix matrix({"K\xC3\xB6ter", "cat"});
  matrix.add(1, 1);
  EXPECT_EQ(matrix.table(),
            "actual \\ predicted     0     1  recall %   F1 %\n"
            "0 K\xC3\xB6ter                0     0         -      -\n"
            "1 cat                  0     1     100.0  100.0\n"
            "precision %            - 100.0\n");
}

TEST(ConfusionMatrixTest, OfManyClassesTheMostFrequentMistakesAreShown) {
  std::vector<std::string> names;
  for (int i = 0; i < 65'536; ++i) names.push_back("c" + std::to_string(i));
  ConfusionMatrix matrix(names);
  for (int i = 0; i < 50; ++i) matrix.add(7, 7);
  for (int i = 0; i < 12; ++i) matrix.add(65'535, 3);
  for (int i = 0; i < 2; ++i) matrix.add(3, 65'535);
  EXPECT_EQ(matrix.table(),
            "most frequent mistakes, of 2 kinds:\n"
            "12 x c65535 taken for c3\n"
            " 2 x c3 taken for c65535\n");
  for (std::size_t i = 100; i < 200; ++i) matrix.add(i, i + 1);
  const std::string text = matrix.table();
  EXPECT_EQ(std::ranges::count(text, '\n'), 21);
  EXPECT_EQ(text.find("c118 "), std::string::npos);
}

TEST(ConfusionMatrixTest, Json) {
  ConfusionMatrix matrix({"cat", "\xFF"});
  matrix.add(0, 0, 0.25);
  matrix.add(0, 1, 2.25);
  EXPECT_EQ(matrix.loss(), 1.25);
  EXPECT_EQ(matrix.json(),
            R"({"accuracy":0.5,"correct":1,"count":2,"loss":1.25,"macro_f1":0.3333333333333333,"classes":[)"
            R"({"name":"cat","count":2,"precision":1.0,"recall":0.5,"f1":0.6666666666666666},)"
            "{\"name\":\"\xEF\xBF\xBD\",\"count\":0,\"precision\":0.0,\"recall\":0.0,\"f1\":0.0}],"
            R"("confusion":[{"class":0,"taken_for":0,"count":1},{"class":0,"taken_for":1,"count":1}]})");
}

TEST(ConfusionMatrixTest, NoSuchClass) {
  ConfusionMatrix matrix({"cat", "dog"});
  EXPECT_THROW(matrix.add(2, 0), std::out_of_range);
  EXPECT_THROW(matrix.add(0, 2), std::out_of_range);
  EXPECT_EQ(matrix.total(), 0U);
}

}  // namespace
}  // namespace unmetal::confusion_matrix_test
