#include "mtl/memory.hpp"

#include <algorithm>
#include <limits>
#include <new>

#include "mtl/device.hpp"

namespace mtl {

Memory::~Memory() = default;

void Memory::write(std::size_t offset, std::span<const std::byte> bytes) {
  std::ranges::copy(bytes, contents() + offset);
  didModifyRange(offset, bytes.size());
}

void Memory::fillWithZeros() {
  std::fill_n(address_, length_, std::byte{0});
}

void MemoryPart::fillWithZeros() {
  write(0, std::vector<std::byte>(length()));
}

/// Part of a chunk.
class Heap::Block final : public Memory {
 public:
  Block(std::shared_ptr<Heap> heap, std::shared_ptr<Memory> memory, std::size_t chunk, std::size_t offset,
        std::size_t reserved, std::size_t length)
      : Memory(memory->address() + offset, length),
        heap_(std::move(heap)),
        memory_(std::move(memory)),
        chunk_(chunk),
        offset_(offset),
        reserved_(reserved) {}
  ~Block() override { heap_->release(chunk_, offset_, reserved_); }

  std::byte* contents() override { return memory_->contents() + offset_; }
  void didModifyRange(std::size_t offset, std::size_t length) override {
    memory_->didModifyRange(offset_ + offset, length);
  }
  void synchronize(CommandBuffer& commandBuffer) override { memory_->synchronize(commandBuffer); }

 private:
  std::shared_ptr<Heap> heap_;
  std::shared_ptr<Memory> memory_;  ///< the chunk's
  std::size_t chunk_;
  std::size_t offset_;
  std::size_t reserved_;
};

Heap::Heap(Device& device, std::size_t chunkBytes) : device_(device), chunkBytes_(chunkBytes) {}

Heap::Heap(std::shared_ptr<Heap> other, std::shared_ptr<Memory> memory, std::size_t offset,
           std::size_t length)
    : device_(other->device_), chunkBytes_(other->chunkBytes_), other_(std::move(other)) {
  chunks_.push_back({std::move(memory), {{offset, length}}});
}

std::optional<std::pair<std::size_t, std::size_t>> Heap::bestFit(std::size_t length) const {
  std::optional<std::pair<std::size_t, std::size_t>> best;
  std::size_t bestLength = 0;
  for (std::size_t c = 0; c < chunks_.size(); ++c) {
    for (const auto& [offset, free] : chunks_[c].free) {
      if (free >= length && (!best || free < bestLength)) {
        best = {c, offset};
        bestLength = free;
      }
    }
  }
  return best;
}

std::shared_ptr<Memory> Heap::allocate(std::size_t bytes) {
  if (bytes > std::numeric_limits<std::size_t>::max() - alignment) throw std::bad_alloc();
  const std::size_t length = std::max(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (other_ && length <= chunkBytes_) return other_->allocate(bytes);
  const std::lock_guard lock(mutex_);
  auto place = bestFit(length);
  const auto makeBlock = [&](std::shared_ptr<Memory> memory, std::size_t chunk, std::size_t offset) {
    auto block = std::make_shared<Block>(shared_from_this(), std::move(memory), chunk, offset, length, bytes);
    used_ += length;
    peak_ = std::max(peak_, used_);
    return block;
  };
  if (!place && other_) return makeBlock(other_->allocate(bytes), ofOther, 0);
  if (!place) {
    const std::size_t chunkLength = std::max(chunkBytes_, length);
    chunks_.push_back({device_.allocate(chunkLength), {{0, chunkLength}}});
    place = {chunks_.size() - 1, 0};
  }
  const auto [index, offset] = *place;
  Chunk& chunk = chunks_[index];
  auto block = makeBlock(chunk.memory, index, offset);
  // Nothing throws from here on: the end of the block would want the lock.
  auto free = chunk.free.extract(offset);
  if (free.mapped() > length) {
    free.key() = offset + length;
    free.mapped() -= length;
    chunk.free.insert(std::move(free));
  }
  return block;
}

void Heap::release(std::size_t chunk, std::size_t offset, std::size_t length) {
  const std::lock_guard lock(mutex_);
  used_ -= length;
  if (chunk == ofOther) return;
  auto& free = chunks_[chunk].free;
  auto [entry, inserted] = free.emplace(offset, length);
  if (const auto next = std::next(entry); next != free.end() && entry->first + entry->second == next->first) {
    entry->second += next->second;
    free.erase(next);
  }
  if (entry != free.begin()) {
    if (const auto previous = std::prev(entry); previous->first + previous->second == entry->first) {
      previous->second += entry->second;
      free.erase(entry);
    }
  }
}

std::size_t Heap::usedBytes() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

std::size_t Heap::peakBytes() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

std::size_t Heap::reservedBytes() const {
  const std::lock_guard lock(mutex_);
  std::size_t sum = 0;
  for (const Chunk& chunk : chunks_) sum += chunk.memory->length();
  return sum;
}

std::size_t Heap::chunkCount() const {
  const std::lock_guard lock(mutex_);
  return chunks_.size();
}

}  // namespace mtl
