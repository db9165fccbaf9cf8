#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "mtl/memory.hpp"

namespace mtl::cpu {

/// Blocks of host memory, recycled through a bounded cache. Engine-internal, thread safe.
class MemoryPool : public std::enable_shared_from_this<MemoryPool> {
 public:
  /// @param cacheLimit most bytes that wait for reuse
  explicit MemoryPool(std::size_t cacheLimit) : cacheLimit_(cacheLimit) {}
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  /// A block of at least `bytes`, undefined content, aligned to 256 bytes (large blocks: to a huge page).
  std::shared_ptr<Memory> allocate(std::size_t bytes);

  [[nodiscard]] std::size_t liveBytes() const { return live_; }
  [[nodiscard]] std::size_t cachedBytes() const;
  [[nodiscard]] std::size_t systemAllocations() const { return systemAllocations_; }

 private:
  class Block;
  void recycle(std::byte* address, std::size_t capacity);
  void freeCache();

  std::size_t cacheLimit_;
  mutable std::mutex mutex_;
  std::multimap<std::size_t, std::byte*> cache_;  ///< capacity to address
  std::size_t cached_ = 0;
  std::atomic<std::size_t> live_{0};
  std::atomic<std::size_t> systemAllocations_{0};
};

}  // namespace mtl::cpu
