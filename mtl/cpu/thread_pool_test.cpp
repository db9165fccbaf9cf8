#include "mtl/cpu/thread_pool.hpp"

#include <gtest/gtest.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <chrono>
#include <ctime>
#include <span>
#include <thread>
#include <vector>

namespace mtl::cpu::thread_pool_test {
namespace {

using namespace std::chrono_literals;

TEST(ThreadPool, RunsEachItemOnceOnTheThreadsThatTakePart) {
  ThreadPool pool(5);
  for (const std::uint32_t threads : {1U, 2U, 3U, 5U})
    for (const std::uint32_t items : {0U, 1U, 2U, 3U, 4U, 7U, 64U, 1000U, ThreadPool::kMostItems}) {
      SCOPED_TRACE(std::to_string(items) + " items, " + std::to_string(threads) + " threads");
      std::vector<std::atomic<int>> calls(items);
      std::atomic<bool> isInRange = true;
      pool.run(items, threads, [&](std::int64_t item, int thread) {
        if (thread < 0 || thread >= static_cast<int>(threads)) isInRange = false;
        ++calls.at(static_cast<std::size_t>(item));
      });
      EXPECT_TRUE(isInRange);
      for (std::size_t item = 0; item < items; ++item) ASSERT_EQ(calls[item], 1) << "item " << item;
    }
}

// Short loops one behind the other: threads that come late meet later loops.
TEST(ThreadPool, LoopsFollowEachOtherClosely) {
  ThreadPool pool(4);
  std::int64_t expected = 0;
  std::atomic<std::int64_t> sum = 0;
  for (int loop = 0; loop < 20'000; ++loop) {
    const auto items = static_cast<std::uint32_t>(loop % 7);
    pool.run(items, 4, [&](std::int64_t item, int) { sum += item + loop; });
    for (std::int64_t item = 0; item < std::int64_t{items}; ++item) expected += item + loop;
    ASSERT_EQ(sum, expected) << "after loop " << loop;
  }
}

TEST(ThreadPool, CallersTakeTurns) {
  ThreadPool pool(3);
  std::atomic<int> running = 0;
  std::atomic<bool> overlap = false;
  std::atomic<int> calls = 0;
  const auto call = [&](int id) {
    for (int loop = 0; loop < 300; ++loop)
      pool.run(5, 3, [&](std::int64_t, int) {
        const int others = running.exchange(id);
        if (others != 0 && others != id) overlap = true;
        ++calls;
        std::this_thread::yield();
        running = 0;
      });
  };
  // Two items of one loop may set and clear at the same time: an id that another caller left counts, 0 does not.
  std::thread other(call, 1);
  call(2);
  other.join();
  EXPECT_FALSE(overlap);
  EXPECT_EQ(calls, 2 * 300 * 5);
}

// A thread that has no processor holds up nothing but what it has begun.
TEST(ThreadPool, OthersTakeTheRestOfAShare) {
  ThreadPool pool(2);
  std::atomic<bool> workerHasBegun = false;
  std::atomic<int> ofCaller = 0;
  const auto waitUntil = [](auto&& isTrue) {
    const auto end = std::chrono::steady_clock::now() + 10s;
    while (!isTrue() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  };
  pool.run(10, 2, [&](std::int64_t /*item*/, int thread) {
    if (thread == 1) {
      workerHasBegun = true;
      waitUntil([&] { return ofCaller == 9; });
    } else {
      waitUntil([&] { return workerHasBegun.load(); });
      ++ofCaller;
    }
  });
  EXPECT_EQ(ofCaller, 9);
}

TEST(ThreadPool, ThreadsWithoutWorkSleep) {
  constexpr std::uint32_t count = 4;
  ThreadPool pool(count);
  std::array<clockid_t, count> clocks{};  // of the processor time of each thread
  std::atomic<std::uint32_t> begun = 0;
  pool.run(count, count, [&](std::int64_t /*item*/, int thread) {
    pthread_getcpuclockid(pthread_self(), &clocks.at(static_cast<std::size_t>(thread)));
    ++begun;
    while (begun < count) std::this_thread::yield();  // so that each thread has one
  });
  std::this_thread::sleep_for(20ms);
  const auto processorTime = [&] {
    std::chrono::nanoseconds sum{};
    for (const clockid_t clock : std::span(clocks).subspan(1)) {
      timespec now{};
      clock_gettime(clock, &now);
      sum += std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
    }
    return sum;
  };
  const auto before = processorTime();
  std::this_thread::sleep_for(100ms);
  EXPECT_LT(processorTime() - before, 5ms) << "three threads that spin would take 100 to 300 ms";
}

/// Threads that come late to the last loop end, too.
TEST(ThreadPool, EndsRightBehindALoop) {
  for (int i = 0; i < 3000; ++i) {
    ThreadPool pool(4);
    pool.run(4, 4, [](std::int64_t /*item*/, int /*thread*/) {});
  }
}

}  // namespace
}  // namespace mtl::cpu::thread_pool_test
