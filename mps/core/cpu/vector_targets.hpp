#pragma once

#include <cstdint>
#include <vector>

namespace mps::detail {

/// Instruction sets (of hwy/targets.h) that this machine has and the library's vector code is compiled for, the best
/// first. What includes Highway's headers elsewhere may see others: sanitized builds compile vector code for fewer.
std::vector<std::int64_t> vectorTargets();

}  // namespace mps::detail
