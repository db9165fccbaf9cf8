#include "tools/metrics/chart.hpp"

#include <gtest/gtest.h>
#include <cmath>
#include <limits>
#include <string_view>

#include "tools/test_xml.hpp"

namespace unmetal::chart_test {
namespace {

std::size_t count(std::string_view text, std::string_view part) {
  std::size_t result = 0;
  for (std::size_t i = text.find(part); i != std::string_view::npos; i = text.find(part, i + 1)) ++result;
  return result;
}

/// The numbers of the first path whose stroke has this colour.
std::string pathOf(const std::string& svg, const std::string& color) {
  const std::size_t stroke = svg.find("stroke=\"" + color);
  const std::size_t begin = svg.rfind("<path d=\"", stroke);
  return stroke == std::string::npos || begin == std::string::npos
             ? ""
             : svg.substr(begin + 9, svg.find('"', begin + 9) - begin - 9);
}

MetricsRow row(std::uint64_t epoch, std::uint64_t step, float loss,
               std::optional<float> accuracy = std::nullopt) {
  return {.epoch = epoch,
          .step = step,
          .trainLoss = loss,
          .trainAccuracy = accuracy,
          .validationLoss = accuracy,
          .validationAccuracy = accuracy,
          .imagesPerSecond = 100};
}

std::vector<MetricsRow> manyRows(std::uint64_t steps) {
  std::vector<MetricsRow> rows;
  for (std::uint64_t step = 1; step <= steps; ++step) {
    const bool isEpochEnd = step % 100 == 0;
    rows.push_back(row((step + 99) / 100, step, 2.0F / std::sqrt(static_cast<float>(step)),
                       isEpochEnd ? std::optional(0.9F) : std::nullopt));
  }
  return rows;
}

TEST(XmlCheckTest, FindsWhatIsWrong) {
  EXPECT_EQ(troubleInXml("<a b=\"c\"><d/>x &amp; y</a>\n"), "");
  for (const char* text :
       {"", "<a>", "<a></b>", "<a/><a/>", "<a b=c/>", "<a b=\"c/>", "<a>&x</a>", "<a/>x", "<a b=\"<\"/>"}) {
    EXPECT_NE(troubleInXml(text), "") << text;
  }
}

TEST(ChartTest, IsWellFormedWhateverThereIsToShow) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<std::vector<MetricsRow>> runs{
      {},
      {row(1, 1, 2.3F)},
      {row(1, 1, 2.3F, 0.5F)},
      {row(1, 1, nan), row(1, 2, infinity), row(1, 3, -infinity, nan)},
      {row(1, 1, 0, 0.0F), row(1, 2, 0, 0.0F)},
      {row(1, 1, 1e-30F, 1.0F), row(1, 2, 1e30F, 1.0F), row(1, 1'000'000'000'000, 1e-30F)},
      manyRows(20),
      manyRows(20'000)};
  for (const std::vector<MetricsRow>& rows : runs) {
    const std::string svg = drawTrainingCurves("a <net> & \"data\" \x01", rows);
    EXPECT_EQ(troubleInXml(svg), "");
    EXPECT_EQ(svg.find("nan"), std::string::npos);
    EXPECT_EQ(svg.find("inf"), std::string::npos);
    EXPECT_NE(svg.find("a &lt;net&gt; &amp; &quot;data&quot;  </text>"), std::string::npos);
    EXPECT_EQ(svg, drawTrainingCurves("a <net> & \"data\" \x01", rows));
  }
}

TEST(ChartTest, HasAxesLabelsAndLegend) {
  const std::string svg = drawTrainingCurves("title", manyRows(500));
  for (const char* words :
       {">title<", ">Loss<", ">Accuracy<", ">step<", ">epoch<", ">loss<", ">accuracy in %<", ">each step<",
        ">running mean<", ">training<", ">validation<", ">0.0<", ">400<", ">90.00<"}) {
    EXPECT_NE(svg.find(words), std::string::npos) << words;
  }
  EXPECT_EQ(count(svg, "<circle"), 5U + 1U);  // five epochs and the legend
}

TEST(ChartTest, NothingIsMoreAccurateThanAHundredPercent) {
  const std::string svg = drawTrainingCurves("title", std::vector{row(1, 1, 2, 1.0F), row(2, 2, 1, 1.0F)});
  EXPECT_NE(svg.find(">100<"), std::string::npos);
  for (const char* tick : {">101<", ">102<", ">103<", ">104<", ">105<"})
    EXPECT_EQ(svg.find(tick), std::string::npos) << tick;
}

TEST(ChartTest, CurvesAreWhereTheyBelong) {
  const Panel panel{.title = "t",
                    .xLabel = "x",
                    .yLabel = "y",
                    .curves = {{"c", "#123456", 2, false, {{0, 0}, {5, 1}, {10, 2}}}},
                    .beginsAtZero = true};
  // 390 pixels from x = 66 on, 274 pixels upwards from y = 352 with 6 % of room above.
  EXPECT_EQ(pathOf(drawChart("t", std::span(&panel, 1)), "#123456"), "M66.0 352.0L261.0 222.8L456.0 93.5");
}

TEST(ChartTest, PointsThatAreNotFiniteMakeGaps) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Panel panel{.title = "t",
                    .xLabel = "x",
                    .yLabel = "y",
                    .curves = {{"c", "#123456", 2, false, {{0, 0}, {1, 1}, {2, nan}, {3, 1}, {4, 2}}}}};
  const std::string path = pathOf(drawChart("t", std::span(&panel, 1)), "#123456");
  EXPECT_EQ(count(path, "M"), 2U);
  EXPECT_EQ(count(path, "L"), 2U);
}

TEST(ChartTest, EmptyPanelsSaySo) {
  EXPECT_EQ(count(drawTrainingCurves("title", {}), "nothing was measured yet"), 2U);
  EXPECT_EQ(count(drawTrainingCurves("title", manyRows(50)), "nothing was measured yet"), 1U);
}

TEST(ChartTest, LongRunsGiveSmallPictures) {
  const std::string svg = drawTrainingCurves("title", manyRows(100'000));
  EXPECT_LT(svg.size(), 150'000U);
}

TEST(AxisTicksTest, RoundNumbers) {
  using Ticks = std::vector<double>;
  EXPECT_EQ(axisTicks(0, 7, true), (Ticks{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(axisTicks(0, 8, true), (Ticks{0, 2, 4, 6, 8}));
  EXPECT_EQ(axisTicks(1, 3, true), (Ticks{1, 2, 3}));
  EXPECT_EQ(axisTicks(-1, 1, false), (Ticks{-1, -0.5, 0, 0.5, 1}));
  EXPECT_FALSE(std::signbit(axisTicks(0, 1, false)[0]));
  EXPECT_EQ(axisTicks(3, 3, false), Ticks{3});
  for (const double high : {1e-6, 0.3, 7.7, 123.0, 4685.0, 9e9}) {
    const Ticks ticks = axisTicks(0, high, false);
    EXPECT_GE(ticks.size(), 3U) << high;
    EXPECT_LE(ticks.size(), 8U) << high;
    EXPECT_LE(ticks.back(), high * (1 + 1e-9));
  }
}

}  // namespace
}  // namespace unmetal::chart_test
