#include "mtl/block_cache.hpp"

#include <iterator>
#include <limits>
#include <new>
#include <utility>

namespace mtl {

std::size_t BlockCache::capacityFor(std::size_t bytes) {
  if (bytes > std::numeric_limits<std::size_t>::max() / 8) throw std::bad_alloc();
  std::size_t step = granularity;
  while (step * 16 < bytes && step < largestStep) step *= 2;
  return bytes == 0 ? granularity : (bytes + step - 1) / step * step;
}

BlockCache::BlockCache(std::size_t limit, std::function<void(std::byte*)> free)
    : limit_(limit), free_(std::move(free)) {}

BlockCache::~BlockCache() {
  clear();
}

std::optional<BlockCache::Block> BlockCache::take(std::size_t capacity) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.lower_bound(capacity);
  if (found == blocks_.end() || found->first > capacity + capacity / 4) return std::nullopt;
  const Block block{found->second, found->first};
  bytes_ -= block.capacity;
  blocks_.erase(found);
  return block;
}

void BlockCache::put(Block block) {
  const std::lock_guard lock(mutex_);
  blocks_.emplace(block.capacity, block.address);
  bytes_ += block.capacity;
  while (bytes_ > limit_) {  // the largest goes first: it frees most and returns least often
    const auto largest = std::prev(blocks_.end());
    bytes_ -= largest->first;
    free_(largest->second);
    blocks_.erase(largest);
  }
}

void BlockCache::clear() {
  const std::lock_guard lock(mutex_);
  for (const auto& [capacity, address] : blocks_) free_(address);
  blocks_.clear();
  bytes_ = 0;
}

std::size_t BlockCache::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace mtl
