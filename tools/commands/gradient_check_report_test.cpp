#include "tools/commands/gradient_check_report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace unmetal::gradient_check_report_test {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

mps::GradientCheckRow rightRow() {
  mps::GradientCheckRow row;
  row.node = "CNNConvolutionGradientNode \"conv1 gradient\"";
  row.kernel = "CNNConvolutionGradient";
  row.tensor = "weights";
  row.elements = 150;
  row.worst = 0.25;
  row.derivatives = 16;
  row.worstDerivative = 5e-9;
  return row;
}

TEST(GradientCheckReport, ALineNamesNodeAndTensorAndItsVerdict) {
  const std::string line = gradientCheckLine({"lenet", "", rightRow()});
  EXPECT_THAT(line, ::testing::StartsWith("lenet "));
  EXPECT_THAT(line, HasSubstr("CNNConvolutionGradientNode \"conv1 gradient\""));
  EXPECT_THAT(line, HasSubstr("weights"));
  EXPECT_THAT(line, HasSubstr("150 elements"));
  EXPECT_THAT(line, HasSubstr("16 derivatives"));
  EXPECT_THAT(line, EndsWith("  passed"));
}

TEST(GradientCheckReport, ALineNamesThePassThatWasLeftOut) {
  const std::string line = gradientCheckLine({"lenet", "fuseNeurons", rightRow()});
  EXPECT_THAT(line,
              ::testing::StartsWith("lenet     without fuseNeurons          CNNConvolutionGradientNode"));
}

TEST(GradientCheckReport, AFailedRowSaysWhatIsWrong) {
  mps::GradientCheckRow row = rightRow();
  row.report = "  image 0, y 1, x 2, channel 3: found 1, expected 2\n";
  row.skipped = 2;
  const std::string line = gradientCheckLine({"lenet", "", row});
  EXPECT_THAT(line, HasSubstr("FAILED  (2 next to a kink)"));
  EXPECT_THAT(line, HasSubstr("CNNConvolutionGradient:\n"));
  EXPECT_THAT(line, HasSubstr(row.report));
}

TEST(GradientCheckReport, JsonHasAnObjectForEachRowAndNoInfinity) {
  mps::GradientCheckRow wrong = rightRow();
  wrong.worst = std::numeric_limits<double>::infinity();
  wrong.report = "found 1, expected 2";
  const NetworkGradientRow rows[] = {{"lenet", "", rightRow()}, {"mnist-cnn", "fuseNeurons", wrong}};
  const auto list = nlohmann::json::parse(gradientCheckJson(rows));
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0]["net"], "lenet");
  EXPECT_EQ(list[0]["tensor"], "weights");
  EXPECT_EQ(list[0]["passed"], true);
  EXPECT_FALSE(list[0].contains("report"));
  EXPECT_FALSE(list[0].contains("without"));
  EXPECT_EQ(list[1]["without"], "fuseNeurons");
  EXPECT_EQ(list[1]["passed"], false);
  EXPECT_EQ(list[1]["report"], "found 1, expected 2");
  EXPECT_EQ(list[1]["worst"], std::numeric_limits<double>::max());
}

}  // namespace
}  // namespace unmetal::gradient_check_report_test
