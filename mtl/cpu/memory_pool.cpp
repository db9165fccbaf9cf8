#include "mtl/cpu/memory_pool.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <limits>
#include <new>

namespace mtl::cpu {
namespace {

constexpr std::size_t smallAlignment = 256;
constexpr std::size_t hugePage = std::size_t{2} << 20U;

/// Few distinct capacities, at most an eighth larger than asked for.
std::size_t capacityFor(std::size_t bytes) {
  if (bytes > std::numeric_limits<std::size_t>::max() / 8) throw std::bad_alloc();
  std::size_t step = smallAlignment;
  while (step * 16 < bytes) step *= 2;
  return bytes == 0 ? smallAlignment : (bytes + step - 1) / step * step;
}

/// Null when there is no memory.
std::byte* systemAllocate(std::size_t capacity) {
  const bool large = capacity >= 2 * hugePage;
  const std::size_t alignment = large ? hugePage : smallAlignment;
  void* address = std::aligned_alloc(alignment, (capacity + alignment - 1) / alignment * alignment);
  if (address == nullptr) return nullptr;
  if (large) madvise(address, capacity, MADV_HUGEPAGE);  // advice only: a refusal costs speed, nothing else
  return static_cast<std::byte*>(address);
}

}  // namespace

class MemoryPool::Block final : public Memory {
 public:
  Block(std::shared_ptr<MemoryPool> pool, std::byte* address, std::size_t length, std::size_t capacity)
      : Memory(address, length), pool_(std::move(pool)), capacity_(capacity) {}
  ~Block() override { pool_->recycle(address(), capacity_); }

 private:
  std::shared_ptr<MemoryPool> pool_;
  std::size_t capacity_;
};

MemoryPool::~MemoryPool() {
  freeCache();
}

void MemoryPool::freeCache() {
  const std::lock_guard lock(mutex_);
  for (const auto& [capacity, address] : cache_) std::free(address);
  cache_.clear();
  cached_ = 0;
}

std::shared_ptr<Memory> MemoryPool::allocate(std::size_t bytes) {
  std::size_t capacity = capacityFor(bytes);
  std::byte* address = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto found = cache_.lower_bound(capacity);
    if (found != cache_.end() && found->first <= capacity + capacity / 4) {
      capacity = found->first;
      address = found->second;
      cached_ -= capacity;
      cache_.erase(found);
    }
  }
  if (address == nullptr) {
    address = systemAllocate(capacity);
    if (address == nullptr) {  // what waits for reuse may be enough
      freeCache();
      address = systemAllocate(capacity);
    }
    if (address == nullptr) throw std::bad_alloc();
    ++systemAllocations_;
  }
  live_ += capacity;
  return std::make_shared<Block>(shared_from_this(), address, bytes, capacity);
}

void MemoryPool::recycle(std::byte* address, std::size_t capacity) {
  live_ -= capacity;
  const std::lock_guard lock(mutex_);
  cache_.emplace(capacity, address);
  cached_ += capacity;
  while (cached_ > cacheLimit_) {  // the largest goes first: it frees most and returns least often
    const auto largest = std::prev(cache_.end());
    cached_ -= largest->first;
    std::free(largest->second);
    cache_.erase(largest);
  }
}

std::size_t MemoryPool::cachedBytes() const {
  const std::lock_guard lock(mutex_);
  return cached_;
}

}  // namespace mtl::cpu
