#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>

#include "mps/conform/guarded_memory.hpp"
#include "mps/conform/test_tensor.hpp"
#include "mps/core/plan.hpp"
#include "mtl/cpu/stream.hpp"
#include "mtl/device.hpp"

/// What tests of the CPU's plans share.
namespace mps::detail {

inline constexpr int kPlanTestThreads = 3;

/// One device for all tests of a program: they use its memory alone.
inline const std::shared_ptr<mtl::Device>& planTestDevice() {
  static const std::shared_ptr<mtl::Device> device = mtl::newCPUDevice(kPlanTestThreads);
  return device;
}

inline NewValues valuesFrom(std::uint64_t seed) {
  return
      [next = seed](std::size_t count, RandomKind kind) mutable { return randomValues(count, next++, kind); };
}

/// Runs the plan of the first implementation that accepts the problem, with poisoned and guarded scratch memory.
template <class Problem>
void runOnCpu(std::span<const Implementation<Problem>> implementations, const Problem& problem,
              Operands operands, int threads = kPlanTestThreads) {
  const ChosenPlan chosen = preparePlan(implementations, problem);
  const GuardedMemory scratch(planTestDevice(), chosen.plan->scratchBytes());
  operands.scratch = scratch.address();
  mtl::cpu::Stream stream(threads);
  chosen.plan->run(stream, operands);
  EXPECT_TRUE(scratch.guardsIntact()) << "memory around the scratch memory was written";
}

}  // namespace mps::detail
