#include "mps/graph/layout/memory_plan.hpp"

#include <algorithm>
#include <numeric>

namespace mps::detail {
namespace {

std::size_t rounded(std::size_t bytes, std::size_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

}  // namespace

MemoryPlan planMemory(std::span<const MemoryRequest> requests, std::size_t alignment) {
  std::vector<std::size_t> order(requests.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](std::size_t i) { return requests[i].bytes; });

  MemoryPlan plan;
  plan.offsets.resize(requests.size());
  std::vector<std::size_t> placed;  // by offset
  for (const std::size_t i : order) {
    const std::size_t length = rounded(requests[i].bytes, alignment);
    std::size_t offset = 0;
    for (const std::size_t other : placed) {
      const bool together =
          requests[other].first <= requests[i].last && requests[i].first <= requests[other].last;
      if (!together) continue;
      if (offset + length <= plan.offsets[other]) break;  // fits before it, and all that follow lie higher
      offset = std::max(offset, plan.offsets[other] + rounded(requests[other].bytes, alignment));
    }
    plan.offsets[i] = offset;
    plan.peakBytes = std::max(plan.peakBytes, offset + length);
    const auto position =
        std::ranges::upper_bound(placed, offset, {}, [&](std::size_t p) { return plan.offsets[p]; });
    placed.insert(position, i);
  }
  return plan;
}

MemoryGap largestGap(std::span<const MemoryRequest> requests, const MemoryPlan& plan, std::size_t time,
                     std::size_t alignment) {
  std::vector<MemoryGap> taken;
  for (std::size_t i = 0; i < requests.size(); ++i)
    if (requests[i].first <= time && time <= requests[i].last)
      taken.push_back({plan.offsets[i], rounded(requests[i].bytes, alignment)});
  taken.push_back({plan.peakBytes, 0});
  std::ranges::sort(taken, {}, &MemoryGap::offset);
  MemoryGap largest;
  std::size_t end = 0;
  for (const MemoryGap& next : taken) {
    if (next.offset - end > largest.bytes) largest = {end, next.offset - end};
    end = next.offset + next.bytes;
  }
  return largest;
}

}  // namespace mps::detail
