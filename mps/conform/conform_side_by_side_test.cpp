#include "mps/conform/conform_side_by_side.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "mps/core/cpu/non_temporal_stores.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/device.hpp"

namespace mps::detail {
namespace {

struct NamedCase {
  std::string name;
};
const std::vector<NamedCase> cases{{"first"}, {"second"}, {"third"}};

ConformOptions options() {
  ConformOptions result;
  result.device = mtl::createSystemDefaultDevice();
  result.casesPerRow = 12;
  result.elementsPerRow = 0;
  return result;
}

/// Rows "row 0", "row 1", ..., whose cases do what `body` says.
std::function<void(Conform&)> rowsOf(int count, const std::function<void(ConformRun&)>& body) {
  return [=](Conform& conform) {
    for (int i = 0; i < count; ++i)
      conform.row({"row " + std::to_string(i), Direction::Forward, ImageFeatureChannelFormat::Float32, "x",
                   Tier::Exact},
                  cases, [&](const NamedCase&, ConformRun& run) { body(run); });
  };
}

/// Compares some random values with themselves, and with others when they begin with a 2.
void compareValues(ConformRun& run) {
  ReferenceTensor expected(1, 1, 1, 100);
  expected.values = run.values(100, RandomKind::SmallIntegers);
  std::vector<double> found = expected.values;
  if (found.front() == 2) found.back() += 1;
  run.check(expected, found, run.format());
}

TEST(ConformSideBySide, RowsAreThoseOfOneJobInTheirOrder) {
  const std::vector<ConformRow> one = conformSideBySide(options(), 1, rowsOf(40, compareValues));
  const std::vector<ConformRow> four = conformSideBySide(options(), 4, rowsOf(40, compareValues));
  ASSERT_EQ(one.size(), 40U);
  ASSERT_EQ(four.size(), 40U);
  EXPECT_FALSE(std::ranges::all_of(one, &ConformRow::passed));
  EXPECT_FALSE(std::ranges::none_of(one, &ConformRow::passed));
  for (std::size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(four[i].key.kernel, "row " + std::to_string(i));
    EXPECT_EQ(four[i].passed, one[i].passed) << i;
    EXPECT_EQ(four[i].report, one[i].report) << i;
    EXPECT_EQ(four[i].cases, one[i].cases) << i;
  }
}

TEST(ConformSideBySide, EachSelectedRowIsDoneOnceAndReportedByOneThreadAtATime) {
  std::vector<std::string> finished;
  ConformOptions filtered = options();
  filtered.filter = "row 1";  // and 10 to 19
  filtered.rowFinished = [&](const ConformRow& row) { finished.push_back(row.key.kernel); };
  EXPECT_EQ(conformSideBySide(filtered, 3, rowsOf(21, compareValues)).size(), 11U);
  EXPECT_EQ(finished.size(), 11U);
  EXPECT_EQ(std::set<std::string>(finished.begin(), finished.end()).size(), 11U);
}

TEST(ConformSideBySide, JobsRunAtTheSameTime) {
  std::mutex mutex;
  std::condition_variable arrived;
  int waiting = 0;
  ConformOptions sample = options();
  sample.mostCases = 1;
  const std::vector<ConformRow> rows = conformSideBySide(
      sample, 3, rowsOf(3, [&](ConformRun& run) {
        std::unique_lock lock(mutex);
        ++waiting;
        arrived.notify_all();
        run.require(arrived.wait_for(lock, std::chrono::seconds(20), [&] { return waiting == 3; }),
                    "all three");
      }));
  ASSERT_EQ(rows.size(), 3U);
  for (const ConformRow& row : rows) EXPECT_TRUE(row.passed) << row.report;
}

TEST(ConformSideBySide, ACaseThatWritesPastTheCachesRunsAlone) {
  std::atomic<int> running = 0;
  std::atomic<int> nonTemporal = 0;
  const std::vector<ConformRow> rows =
      conformSideBySide(options(), 4, rowsOf(30, [&](ConformRun& run) {
                          const bool streams = usesNonTemporalStores(1);
                          nonTemporal += streams ? 1 : 0;
                          const int others = running++;
                          run.require(!streams || others == 0, "alone at the start");
                          std::this_thread::yield();
                          run.require(usesNonTemporalStores(1) == streams, "the same all along");
                          --running;
                        }));
  EXPECT_EQ(rows.size(), 30U);
  for (const ConformRow& row : rows) EXPECT_TRUE(row.passed) << row.report;
  EXPECT_GT(nonTemporal, 30);
  EXPECT_FALSE(usesNonTemporalStores(1));
}

TEST(ConformSideBySide, WhatAThreadThrowsIsThrownWhenAllHaveEnded) {
  std::atomic<int> ended = 0;
  const auto families = [&](Conform&) {
    if (++ended == 2) throw Error("the second one is out of luck");
  };
  EXPECT_THROW(conformSideBySide(options(), 3, families), Error);
  EXPECT_EQ(ended, 3);
}

}  // namespace
}  // namespace mps::detail
