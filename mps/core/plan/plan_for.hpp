#pragma once

#include <map>
#include <mutex>
#include <span>
#include <string>
#include <tuple>

#include "mps/core/plan/plan.hpp"
#include "mtl/device.hpp"

/// The one place that knows which back ends have kernels.
///
///     inline constexpr BackEnds<PoolingProblem> poolingBackEnds{
///         .cpu = poolingImplementationsCpu, .cuda = UNMETAL_CUDA_LIST(poolingImplementationsCuda)};
#if UNMETAL_CUDA
#define UNMETAL_CUDA_LIST(list) list
#else
#define UNMETAL_CUDA_LIST(list) nullptr
#endif

namespace mps::detail {

/// A family's lists of implementations, one per back end; functions, so that nothing runs before main. Null
/// where this build, or the family, has none.
template <class Problem>
struct BackEnds {
  using List = std::span<const Implementation<Problem>> (*)();
  List cpu = nullptr;
  List cuda = nullptr;

  [[nodiscard]] std::span<const Implementation<Problem>> of(const mtl::Device& device) const {
    const List list = device.kind() == mtl::DeviceKind::CUDA ? cuda : cpu;
    return list == nullptr ? std::span<const Implementation<Problem>>() : list();
  }
};

/// The cache of plans of one kind of problem on one device. Plans may depend on the number of threads. Where implementations
/// are forced or left out the plans are others.
template <class Problem>
PlanCache<Problem>& planCache(const mtl::Device& device) {
  static std::mutex mutex;
  static std::map<std::tuple<std::string, int, std::string>, PlanCache<Problem>> caches;
  const std::lock_guard lock(mutex);
  return caches[{device.name(), device.threadCount(), choiceKey()}];
}

/// The first implementation of this device that accepts the problem. @throws Error when none does.
template <class Problem>
ChosenPlan planFor(const mtl::Device& device, const BackEnds<Problem>& backEnds, const Problem& problem) {
  return planCache<Problem>(device).choose(backEnds.of(device), problem);
}

}  // namespace mps::detail
