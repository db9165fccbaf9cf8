#pragma once

#include <map>
#include <mutex>
#include <span>

#include "mps/core/plan.hpp"
#include "mtl/device.hpp"

/// The one place that knows which back ends have kernels.
namespace mps::detail {

/// A family's lists of implementations, one per back end; functions, so that nothing runs before main.
template <class Problem>
struct BackEnds {
  std::span<const Implementation<Problem>> (*cpu)() = nullptr;
};

/// The cache of plans of one kind of problem on one device. Plans may depend on the number of threads.
template <class Problem>
PlanCache<Problem>& planCache(const mtl::Device& device) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, int>, PlanCache<Problem>> caches;
  const std::lock_guard lock(mutex);
  return caches[{device.name(), device.threadCount()}];
}

/// The first implementation of this device that accepts the problem. @throws Error when none does.
template <class Problem>
ChosenPlan planFor(const mtl::Device& device, const BackEnds<Problem>& backEnds, const Problem& problem) {
  return planCache<Problem>(device).choose(backEnds.cpu(), problem);
}

}  // namespace mps::detail
