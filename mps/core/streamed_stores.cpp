#include "mps/core/streamed_stores.hpp"

#include "mps/core/highway_targets.hpp"

// Highway's headers need the one above.
#include <hwy/cache_control.h>

namespace mps::detail {

void finishStreaming() {
  hwy::FlushStream();
}

}  // namespace mps::detail
