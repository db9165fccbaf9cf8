#include "mps/core/cpu/non_temporal_stores.hpp"

#include "mps/core/cpu/highway_targets.hpp"

// Highway's headers need the one above.
#include <hwy/cache_control.h>

#include <atomic>

namespace mps::detail {
namespace {

std::atomic<std::int64_t> mostBytesInCaches{std::int64_t{48} << 20U};

}  // namespace

bool usesNonTemporalStores(std::int64_t bytesMoved) {
  return bytesMoved > mostBytesInCaches;
}

NonTemporalFrom::NonTemporalFrom(std::int64_t bytes) : before_(mostBytesInCaches.exchange(bytes)) {}
NonTemporalFrom::~NonTemporalFrom() {
  mostBytesInCaches = before_;
}

void finishNonTemporalStores() {
  hwy::FlushStream();
}

}  // namespace mps::detail
