#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "mtl/block_cache.hpp"
#include "mtl/memory.hpp"

namespace mtl::cpu {

/// Blocks of host memory, recycled through a bounded cache. Engine-internal, thread safe.
class MemoryPool : public std::enable_shared_from_this<MemoryPool> {
 public:
  /// @param cacheLimit most bytes that wait for reuse
  explicit MemoryPool(std::size_t cacheLimit);

  /// A block of at least `bytes`, undefined content, aligned to 256 bytes (large blocks: to a huge page).
  std::shared_ptr<Memory> allocate(std::size_t bytes);
  void releaseRecycled() { cache_.clear(); }

  [[nodiscard]] std::size_t liveBytes() const { return live_; }
  [[nodiscard]] std::size_t cachedBytes() const { return cache_.bytes(); }
  [[nodiscard]] std::size_t systemAllocations() const { return systemAllocations_; }

 private:
  class Block;
  void recycle(BlockCache::Block block);

  BlockCache cache_;
  std::atomic<std::size_t> live_{0};
  std::atomic<std::size_t> systemAllocations_{0};
};

}  // namespace mtl::cpu
