#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "mps/core/plan.hpp"
#include "mtl/cpu/onednn.hpp"

/// What families share whose plans call oneDNN.
namespace mps::detail {

/// A plan around a primitive(), refused where oneDNN has only its reference code for it, or none.
template <class OneDnnPlan, class... Arguments>
Preparation prepareByOneDnn(int threadCount, Arguments&&... arguments) {
  const mtl::cpu::OneDnnThreads threads(threadCount);
  try {
    auto plan = std::make_shared<const OneDnnPlan>(std::forward<Arguments>(arguments)...);
    if (plan->primitive().isReference()) return Refusal{"oneDNN has only its reference code for it"};
    return plan;
  } catch (const dnnl::error& error) {
    return Refusal{std::string("oneDNN: ") + error.what()};
  }
}

/// How many of `count` matrices one product of oneDNN takes: all or 1. Threads that have no matrix of their own would share
/// the sums of one: there oneDNN 2.6 adds memory up that it did not write when there are several.
inline std::int64_t matricesOfProduct(std::int64_t count, int threadCount) {
  const auto threads = std::max<std::int64_t>(threadCount, std::thread::hardware_concurrency());
  return count >= threads ? count : 1;
}

}  // namespace mps::detail
