#pragma once

#include "mps/core/highway_targets.hpp"

// Highway's headers need the one above.
#include <hwy/targets.h>

#include <cstdint>
#include <string>

namespace mps::detail {

/// Calls function(name) for each instruction set that this machine has and our vector code is compiled for;
/// during the call that one is used. For tests.
template <class Function>
void forEachTarget(Function&& function) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    function(std::string(hwy::TargetName(target)));
  }
  hwy::SetSupportedTargetsForTest(0);
}

}  // namespace mps::detail
