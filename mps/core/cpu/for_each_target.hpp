#pragma once

#include "mps/core/cpu/highway_targets.hpp"

// Highway's headers need the one above.
#include <hwy/targets.h>

#include <cstdint>
#include <string>
#include <vector>

#include "mps/core/cpu/vector_targets.hpp"

namespace mps::detail {

/// Calls function(name) for each of some instruction sets; during the call that one is used. For tests.
template <class Function>
void forEachTarget(Function&& function, const std::vector<std::int64_t>& targets = vectorTargets()) {
  for (const std::int64_t target : targets) {
    hwy::SetSupportedTargetsForTest(target);
    function(std::string(hwy::TargetName(target)));
  }
  hwy::SetSupportedTargetsForTest(0);
}

}  // namespace mps::detail
