#include "mps/core/cpu/vector_targets.hpp"

#include "mps/core/cpu/highway_targets.hpp"

// Nothing here is compiled more than once; but sources that include this get the options of vector code, on which
// depends what it is compiled for.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/core/cpu/vector_targets.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#if HWY_ONCE
namespace mps::detail {

std::vector<std::int64_t> vectorTargets() {
  return hwy::SupportedAndGeneratedTargets();
}

}  // namespace mps::detail
#endif
