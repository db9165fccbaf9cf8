#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "mtl/block_cache.hpp"
#include "mtl/cuda/uploads.hpp"
#include "mtl/memory.hpp"

namespace mtl::cuda {

/// Blocks of one device's memory, and the pinned host blocks that mirror them; both recycled through bounded
/// caches. Engine-internal, thread safe.
class MemoryPool : public std::enable_shared_from_this<MemoryPool> {
 public:
  /// @param cacheLimit most bytes of device memory that wait for reuse, and most of host memory
  MemoryPool(int device, std::size_t cacheLimit);

  /// A block of at least `bytes`, undefined content, aligned to 256 bytes. Its host mirror is made by the
  /// first contents() or synchronize().
  std::shared_ptr<Memory> allocate(std::size_t bytes);
  void releaseRecycled() { deviceBlocks_.clear(); }

  [[nodiscard]] Uploads& uploads() { return uploads_; }
  [[nodiscard]] std::size_t liveBytes() const { return live_; }
  [[nodiscard]] std::size_t systemAllocations() const { return systemAllocations_; }

 private:
  class Block;
  using SystemAllocation = cudaError_t (*)(void** address, std::size_t bytes);
  BlockCache::Block take(BlockCache& cache, std::size_t bytes, SystemAllocation allocate, const char* call);

  int device_;
  Uploads uploads_;
  BlockCache deviceBlocks_;
  BlockCache hostBlocks_;
  std::atomic<std::size_t> live_{0};
  std::atomic<std::size_t> systemAllocations_{0};
};

}  // namespace mtl::cuda
