#include "mps/graph/layout/memory_plan.hpp"

#include <algorithm>
#include <numeric>

namespace mps::detail {

MemoryPlan planMemory(std::span<const MemoryRequest> requests, std::size_t alignment) {
  const auto rounded = [alignment](std::size_t bytes) {
    return (bytes + alignment - 1) / alignment * alignment;
  };
  std::vector<std::size_t> order(requests.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](std::size_t i) { return requests[i].bytes; });

  MemoryPlan plan;
  plan.offsets.resize(requests.size());
  std::vector<std::size_t> placed;  // by offset
  for (const std::size_t i : order) {
    const std::size_t length = rounded(requests[i].bytes);
    std::size_t offset = 0;
    for (const std::size_t other : placed) {
      const bool together =
          requests[other].first <= requests[i].last && requests[i].first <= requests[other].last;
      if (!together) continue;
      if (offset + length <= plan.offsets[other]) break;  // fits before it, and all that follow lie higher
      offset = std::max(offset, plan.offsets[other] + rounded(requests[other].bytes));
    }
    plan.offsets[i] = offset;
    plan.peakBytes = std::max(plan.peakBytes, offset + length);
    const auto position =
        std::ranges::upper_bound(placed, offset, {}, [&](std::size_t p) { return plan.offsets[p]; });
    placed.insert(position, i);
  }
  return plan;
}

}  // namespace mps::detail
