#include "mps/graph/layout/memory_plan.hpp"

#include <gtest/gtest.h>

#include <random>

namespace mps::detail::memory_plan_test {
namespace {

bool overlaps(const MemoryPlan& plan, std::span<const MemoryRequest> requests, std::size_t a, std::size_t b) {
  const bool together = requests[a].first <= requests[b].last && requests[b].first <= requests[a].last;
  return together && plan.offsets[a] < plan.offsets[b] + requests[b].bytes &&
         plan.offsets[b] < plan.offsets[a] + requests[a].bytes;
}

TEST(MemoryPlan, AChainNeedsTwoNeighboursAtATime) {
  const std::vector<MemoryRequest> requests{{256, 0, 1}, {256, 1, 2}, {256, 2, 3}, {256, 3, 4}};
  const MemoryPlan plan = planMemory(requests, 256);
  EXPECT_EQ(plan.peakBytes, 512U);
  EXPECT_EQ(plan.offsets[0], plan.offsets[2]);
  EXPECT_EQ(plan.offsets[1], plan.offsets[3]);
}

TEST(MemoryPlan, ImagesThatAGradientReadsStayUntilThen) {
  // forward 0, 1, 2; gradients 3, 4 read what 1 and 0 made
  const std::vector<MemoryRequest> requests{{1000, 0, 4}, {500, 1, 3}, {100, 2, 2}, {100, 3, 4}};
  const MemoryPlan plan = planMemory(requests, 256);
  for (std::size_t a = 0; a < requests.size(); ++a)
    for (std::size_t b = 0; b < a; ++b) EXPECT_FALSE(overlaps(plan, requests, a, b)) << a << " and " << b;
  EXPECT_EQ(plan.peakBytes, 1024U + 512U + 256U);
}

TEST(MemoryPlan, NothingToPlaceNeedsNothing) {
  EXPECT_EQ(planMemory({}, 256).peakBytes, 0U);
}

TEST(MemoryPlan, GapsAreWhereNobodyIs) {
  // of the block 0: 512 bytes until 2, 1: 256 bytes from 1 on, 2: 256 bytes from 3 on
  const std::vector<MemoryRequest> requests{{500, 0, 2}, {256, 1, 4}, {256, 3, 4}};
  const MemoryPlan plan = planMemory(requests, 256);
  ASSERT_EQ(plan.peakBytes, 768U);
  const auto expectGap = [&](std::size_t time, std::size_t offset, std::size_t bytes) {
    const MemoryGap gap = largestGap(requests, plan, time, 256);
    EXPECT_EQ(gap.bytes, bytes) << time;
    EXPECT_EQ(gap.offset, offset) << time;
  };
  expectGap(0, 512, 256);
  expectGap(1, 0, 0);
  expectGap(3, 256, 256);
  expectGap(5, 0, 768);
}

TEST(MemoryPlan, RandomRequestsNeverOverlapAndStayNearTheBound) {
  constexpr unsigned seed = 20261121;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    std::vector<MemoryRequest> requests(1 + random() % 40);
    for (MemoryRequest& request : requests) {
      const std::size_t first = random() % 30;
      request = {1 + random() % 5000, first, first + random() % 8};
    }
    const MemoryPlan plan = planMemory(requests, 256);
    std::size_t bound = 0;
    for (std::size_t step = 0; step < 40; ++step) {
      std::size_t alive = 0;
      for (const MemoryRequest& request : requests)
        if (request.first <= step && step <= request.last) alive += (request.bytes + 255) / 256 * 256;
      bound = std::max(bound, alive);
    }
    EXPECT_GE(plan.peakBytes, bound);
    EXPECT_LE(plan.peakBytes, bound * 3 / 2);
    for (std::size_t step = 0; step < 40; ++step) {
      const MemoryGap gap = largestGap(requests, plan, step, 256);
      ASSERT_LE(gap.offset + gap.bytes, plan.peakBytes);
      EXPECT_EQ(gap.offset % 256, 0U);
      for (std::size_t i = 0; i < requests.size(); ++i) {
        const bool isThere = requests[i].first <= step && step <= requests[i].last;
        ASSERT_TRUE(!isThere || plan.offsets[i] + requests[i].bytes <= gap.offset ||
                    gap.offset + gap.bytes <= plan.offsets[i]);
      }
    }
    for (std::size_t a = 0; a < requests.size(); ++a) {
      EXPECT_EQ(plan.offsets[a] % 256, 0U);
      for (std::size_t b = 0; b < a; ++b) ASSERT_FALSE(overlaps(plan, requests, a, b));
    }
  }
}

}  // namespace
}  // namespace mps::detail::memory_plan_test
