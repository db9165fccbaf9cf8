#include "mtl/cpu/stream.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace mtl::cpu::stream_test {
namespace {

using Range = std::pair<std::int64_t, std::int64_t>;

/// The ranges that a loop was split into, in order.
std::set<Range> rangesOf(const Stream& stream, std::int64_t count, std::int64_t grain) {
  std::mutex mutex;
  std::multiset<Range> ranges;
  stream.parallelFor(count, grain, [&](std::int64_t begin, std::int64_t end) {
    const std::lock_guard lock(mutex);
    ranges.insert({begin, end});
  });
  std::set<Range> distinct(ranges.begin(), ranges.end());
  EXPECT_EQ(distinct.size(), ranges.size()) << "a range came twice";
  return distinct;
}

TEST(ParallelFor, CoversEveryItemExactlyOnce) {
  for (const int threads : {1, 2, 3, 4, 7, 16}) {
    const Stream stream(threads);
    for (const std::int64_t count : {1, 2, 3, 5, 16, 17, 97, 1000}) {
      for (const std::int64_t grain : {1, 2, 3, 10, 96, 97, 98, 5000}) {
        SCOPED_TRACE("threads " + std::to_string(threads) + " count " + std::to_string(count) + " grain " +
                     std::to_string(grain));
        std::int64_t next = 0;
        for (const auto& [begin, end] : rangesOf(stream, count, grain)) {
          ASSERT_EQ(begin, next);
          ASSERT_LT(begin, end);
          next = end;
        }
        EXPECT_EQ(next, count);
      }
    }
  }
}

TEST(ParallelFor, MakesAtMostOneRangePerThreadOfAtLeastAGrainAndOfLikeSize) {
  for (const int threads : {1, 2, 3, 8}) {
    const Stream stream(threads);
    for (const std::int64_t count : {1, 9, 64, 65, 1001}) {
      for (const std::int64_t grain : {1, 4, 33}) {
        const auto ranges = rangesOf(stream, count, grain);
        EXPECT_EQ(static_cast<int>(ranges.size()), stream.rangeCount(count, grain));
        EXPECT_LE(static_cast<int>(ranges.size()), threads);
        std::int64_t smallest = count;
        std::int64_t largest = 0;
        for (const auto& [begin, end] : ranges) {
          smallest = std::min(smallest, end - begin);
          largest = std::max(largest, end - begin);
        }
        EXPECT_LE(largest - smallest, 1);
        EXPECT_GE(smallest, ranges.size() > 1 ? grain : 1);
        const std::int64_t most = std::max<std::int64_t>(1, count / grain);
        EXPECT_EQ(static_cast<std::int64_t>(ranges.size()), std::min<std::int64_t>(threads, most));
      }
    }
  }
}

TEST(ParallelFor, NothingToDoCallsNothing) {
  const Stream stream(4);
  for (const std::int64_t count : {0, -1, -100}) {
    EXPECT_EQ(stream.rangeCount(count, 1), 0);
    stream.parallelFor(count, 1, [](std::int64_t, std::int64_t) { ADD_FAILURE() << "called"; });
  }
}

TEST(ParallelFor, AGrainBelowOneCountsAsOne) {
  const Stream stream(4);
  EXPECT_EQ(stream.rangeCount(8, 0), 4);
  EXPECT_EQ(stream.rangeCount(8, -5), 4);
}

TEST(ParallelFor, SplitsTheSameWayEveryTime) {
  const Stream stream(5);
  const auto ranges = rangesOf(stream, 1234, 10);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(rangesOf(stream, 1234, 10), ranges);
  EXPECT_EQ(rangesOf(Stream(5), 1234, 10), ranges);
}

TEST(ParallelFor, FollowsTheThreadCount) {
  Stream stream(1);
  EXPECT_EQ(stream.rangeCount(100, 1), 1);
  stream.setThreadCount(6);
  EXPECT_EQ(stream.threadCount(), 6);
  EXPECT_EQ(rangesOf(stream, 100, 1).size(), 6U);
}

TEST(ParallelFor, ASingleRangeRunsOnTheCallingThread) {
  std::thread::id runner;
  Stream(4).parallelFor(10, 100, [&](std::int64_t, std::int64_t) { runner = std::this_thread::get_id(); });
  EXPECT_EQ(runner, std::this_thread::get_id());
}

TEST(ParallelFor, RunsRangesOnSeveralThreads) {
  const Stream stream(2);
  std::atomic<int> inside = 0;
  // Each range waits for the other: they must be there at the same time.
  stream.parallelFor(2, 1, [&](std::int64_t, std::int64_t) {
    ++inside;
    for (int spins = 0; inside < 2 && spins < 10'000'000; ++spins) std::this_thread::yield();
    EXPECT_EQ(inside, 2);
  });
}

TEST(ParallelFor, WaitsForAllRangesAndShowsTheirResults) {
  const Stream stream(4);
  std::vector<int> values(10000, 0);
  for (int round = 1; round <= 20; ++round) {
    stream.parallelFor(10000, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) ++values[static_cast<std::size_t>(i)];
    });
    for (const int value : values) ASSERT_EQ(value, round);
  }
}

TEST(ParallelFor, RethrowsAnExceptionAfterAllRangesHaveEnded) {
  for (const int threads : {1, 2, 4}) {
    const Stream stream(threads);
    std::atomic<int> ranges = 0;
    try {
      stream.parallelFor(8, 1, [&](std::int64_t begin, std::int64_t) {
        ++ranges;
        if (begin == 0) throw std::runtime_error("first range");
      });
      ADD_FAILURE() << "no exception";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "first range");
    }
    EXPECT_EQ(ranges, threads);
    // The stream works as before.
    EXPECT_EQ(static_cast<int>(rangesOf(stream, 8, 1).size()), threads);
  }
}

TEST(ParallelFor, SeveralExceptionsGiveOne) {
  const Stream stream(4);
  EXPECT_THROW(stream.parallelFor(4, 1, [](std::int64_t, std::int64_t) { throw std::logic_error("each"); }),
               std::logic_error);
}

}  // namespace
}  // namespace mtl::cpu::stream_test
