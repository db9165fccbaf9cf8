#include "mtl/cpu/memory_pool.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

namespace mtl::cpu {
namespace {

constexpr std::size_t hugePage = std::size_t{2} << 20U;

/// Null when there is no memory.
std::byte* systemAllocate(std::size_t capacity) {
  const bool large = capacity >= 2 * hugePage;
  const std::size_t alignment = large ? hugePage : BlockCache::granularity;
  void* address = std::aligned_alloc(alignment, (capacity + alignment - 1) / alignment * alignment);
  if (address == nullptr) return nullptr;
  if (large) madvise(address, capacity, MADV_HUGEPAGE);  // advice only: a refusal costs speed, nothing else
  return static_cast<std::byte*>(address);
}

}  // namespace

class MemoryPool::Block final : public Memory {
 public:
  Block(std::shared_ptr<MemoryPool> pool, BlockCache::Block block, std::size_t length)
      : Memory(block.address, length), pool_(std::move(pool)), capacity_(block.capacity) {}
  ~Block() override { pool_->recycle({address(), capacity_}); }

 private:
  std::shared_ptr<MemoryPool> pool_;
  std::size_t capacity_;
};

MemoryPool::MemoryPool(std::size_t cacheLimit)
    : cache_(cacheLimit, [](std::byte* address) { std::free(address); }) {}

std::shared_ptr<Memory> MemoryPool::allocate(std::size_t bytes) {
  const std::size_t capacity = BlockCache::capacityFor(bytes);
  auto block = cache_.take(capacity);
  if (!block) {
    std::byte* address = systemAllocate(capacity);
    if (address == nullptr) {  // what waits for reuse may be enough
      cache_.clear();
      address = systemAllocate(capacity);
    }
    if (address == nullptr) throw std::bad_alloc();
    ++systemAllocations_;
    block = BlockCache::Block{address, capacity};
  }
  live_ += block->capacity;
  return std::make_shared<Block>(shared_from_this(), *block, bytes);
}

void MemoryPool::recycle(BlockCache::Block block) {
  live_ -= block.capacity;
  cache_.put(block);
}

}  // namespace mtl::cpu
