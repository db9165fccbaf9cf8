#include "tools/metrics/metrics.hpp"

#include <gtest/gtest.h>
#include <cmath>

#include "mps/core/types/error.hpp"
#include "mps/weights/test_folder.hpp"

namespace unmetal::metrics_test {
namespace {

using mps::detail::errorOf;
using mps::detail::FileSizeLimit;
using mps::detail::OrdinaryUser;
using mps::detail::readText;
using mps::detail::TestFolder;
using mps::detail::writeText;

const std::string header =
    "epoch,step,train_loss,train_accuracy,validation_loss,validation_accuracy,learning_rate,images_per_s,"
    "seconds\n";
const std::string shortHeader = "epoch,step,train_loss,validation_accuracy,images_per_s\n";

MetricsRow row(std::uint64_t epoch, std::uint64_t step, float loss, double imagesPerSecond) {
  return {.epoch = epoch, .step = step, .trainLoss = loss, .imagesPerSecond = imagesPerSecond};
}

MetricsRow wholeRow(std::uint64_t step) {
  return {1, step, 0.5F, 0.25F, 0.75F, 0.125F, 1e-3, 100, 12.3456};
}

TEST(MetricsTest, RowsAsText) {
  EXPECT_EQ(formatMetricsRow(row(1, 20, 0.1F, 1234.56)), "1,20,0.1,,,,,1234.6,");
  EXPECT_EQ(formatMetricsRow(wholeRow(18'446'744'073'709'551'615ULL)),
            "1,18446744073709551615,0.5,0.25,0.75,0.125,0.001,100.0,12.346");
  EXPECT_EQ(formatMetricsRow(row(1, 1, NAN, INFINITY)), "1,1,nan,,,,,inf,");
}

TEST(MetricsTest, RowsAreReadBack) {
  const std::vector<MetricsRow> rows{
      row(1, 1, 2.3025851F, 10.5), {1, 2, 1e-20F, 0.5F, 3.25F, 0.125F, 0.1, 1e6, 7.25}, row(1, 3, 1, 1)};
  std::string text = header;
  for (const MetricsRow& row : rows) text += formatMetricsRow(row) + "\n";
  EXPECT_EQ(parseMetrics(text, "x"), rows);
  EXPECT_EQ(parseMetrics(text + "1,4,0.", "x"), rows);
  EXPECT_TRUE(std::isnan(parseMetrics(header + "1,1,nan,,,,,1,\n", "x").at(0).trainLoss));
  EXPECT_TRUE(parseMetrics("", "x").empty());
}

TEST(MetricsTest, WrongLinesAreNamed) {
  const auto errorFor = [](const std::string& text) {
    return errorOf<mps::Error>([&] { parseMetrics(text, "x.csv"); });
  };
  EXPECT_EQ(errorFor("a,b\n"), "x.csv is no metrics file: its first line is another");
  EXPECT_EQ(errorFor("epoch"), "x.csv is no metrics file: its first line is another");
  for (const std::string line :
       {"", "1,2,3,,,,,4", "1,2,3,,,,,4,,", "-1,2,3,,,,,5,", "1,2.5,3,,,,,5,", "1,2,,,,,,5,", "1,2,3,x,,,,5,",
        "1,2,3,,x,,,5,", "1,2,3,,,x,,5,", "1,2,3,,,,x,5,", "1,2,3,,,,,,", "1,2,3,,,,, 5,", "1,2,3,,,,,5,x",
        "1,2,3,,,,,5,\r"}) {
    EXPECT_EQ(errorFor(header + "1,1,3,,,,,5,\n" + line + "\n"), "x.csv is damaged: line 3 is no row")
        << line;
  }
  EXPECT_EQ(errorFor(shortHeader + "1,1,3,,,,,5,\n"), "x.csv is damaged: line 2 is no row");
  EXPECT_EQ(errorFor(header + "1,1,3,,,,,5,\n1,1,3,,,,,5,\n"),
            "x.csv is damaged: the step of line 3 is not above that of the line before");
}

TEST(MetricsLogTest, CreateReplacesAnOldFile) {
  const TestFolder folder;
  writeText(folder / "metrics.csv", "old");
  MetricsLog log = MetricsLog::create(folder / "metrics.csv");
  EXPECT_EQ(readText(folder / "metrics.csv"), header);
  log.append(row(1, 1, 0.5F, 100));
  EXPECT_EQ(readText(folder / "metrics.csv"), header + "1,1,0.5,,,,,100.0,\n");
  log.append(wholeRow(2));
  log.synchronize();
  EXPECT_EQ(readText(folder / "metrics.csv"),
            header + "1,1,0.5,,,,,100.0,\n" + formatMetricsRow(wholeRow(2)) + "\n");
  EXPECT_EQ(log.rows().size(), 2U);
}

TEST(MetricsLogTest, ResumedFileEndsAsAnUninterruptedOne) {
  const TestFolder folder;
  const auto rowOf = [](std::uint64_t step) {
    return row(1 + (step - 1) / 3, step, 1.0F / static_cast<float>(step), 50);
  };
  MetricsLog whole = MetricsLog::create(folder / "whole.csv");
  for (std::uint64_t step = 1; step <= 9; ++step) whole.append(rowOf(step));

  {
    MetricsLog killed = MetricsLog::create(folder / "killed.csv");
    for (std::uint64_t step = 1; step <= 6; ++step) killed.append(rowOf(step));
  }
  writeText(folder / "killed.csv", readText(folder / "killed.csv") + "3,7,0.1");  // cut off
  MetricsLog resumed = MetricsLog::resume(folder / "killed.csv", 4);
  EXPECT_EQ(resumed.rows().size(), 4U);
  for (std::uint64_t step = 5; step <= 9; ++step) resumed.append(rowOf(step));
  EXPECT_EQ(readText(folder / "killed.csv"), readText(folder / "whole.csv"));
  EXPECT_EQ(resumed.rows(), whole.rows());
}

TEST(MetricsLogTest, ResumeFillsUpTheColumnsOfAFormerVersion) {
  const TestFolder folder;
  writeText(folder / "metrics.csv", shortHeader + "1,1,0.5,,100.0\n1,2,0.25,0.75,100.0\n1,3,0.2,,100.0\n");
  const MetricsLog log = MetricsLog::resume(folder / "metrics.csv", 2);
  EXPECT_EQ(readText(folder / "metrics.csv"), header + "1,1,0.5,,,,,100.0,\n1,2,0.25,,,0.75,,100.0,\n");
  EXPECT_EQ(log.rows().at(1).validationAccuracy, 0.75F);
}

TEST(MetricsLogTest, ResumeWithoutAFileBeginsOne) {
  const TestFolder folder;
  MetricsLog::resume(folder / "metrics.csv", 10);
  EXPECT_EQ(readText(folder / "metrics.csv"), header);
}

TEST(MetricsLogTest, ResumeLeavesADamagedFileAlone) {
  const TestFolder folder;
  const std::string text = header + "1,1,0.5,,,,,100.0,\nnonsense\n";
  writeText(folder / "metrics.csv", text);
  EXPECT_EQ(errorOf<mps::Error>([&] { MetricsLog::resume(folder / "metrics.csv", 10); }),
            (folder / "metrics.csv").string() + " is damaged: line 3 is no row");
  EXPECT_EQ(readText(folder / "metrics.csv"), text);
}

TEST(MetricsLogTest, FullDiskTakesTheRowBack) {
  const TestFolder folder;
  MetricsLog log = MetricsLog::create(folder / "metrics.csv");
  log.append(row(1, 1, 0.5F, 100));
  const std::string before = readText(folder / "metrics.csv");
  {
    const FileSizeLimit limit(before.size() + 5);  // room for a part of the next row
    EXPECT_EQ(errorOf<mps::Error>([&] { log.append(row(1, 2, 0.5F, 100)); }),
              "cannot write " + (folder / "metrics.csv").string() + ": No space left on device");
  }
  EXPECT_EQ(readText(folder / "metrics.csv"), before);
  EXPECT_EQ(log.rows().size(), 1U);
  log.append(row(1, 2, 0.5F, 100));
  EXPECT_EQ(log.rows().size(), 2U);
}

TEST(MetricsLogTest, UnwritableFolder) {
  const TestFolder folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms{0555});
  const OrdinaryUser user;
  EXPECT_EQ(errorOf<mps::Error>([&] { MetricsLog::create(folder / "metrics.csv"); }),
            "cannot write " + (folder / "metrics.csv").string() + ": Permission denied");
}

}  // namespace
}  // namespace unmetal::metrics_test
