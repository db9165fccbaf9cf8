#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <optional>

namespace mtl {

/// Blocks of memory that wait for reuse, in a bounded number of bytes. Engine-internal, thread safe.
class BlockCache {
 public:
  struct Block {
    std::byte* address = nullptr;
    std::size_t capacity = 0;
  };

  /// Capacities are multiples of this.
  static constexpr std::size_t granularity = 256;
  /// As large as a huge page of a CPU, and as what a GPU's driver gives at least.
  static constexpr std::size_t largestStep = std::size_t{2} << 20U;
  /// What to ask the system for: few distinct capacities, at most an eighth larger than `bytes`, and at most largestStep.
  /// @throws std::bad_alloc when that is more than memory can have.
  static std::size_t capacityFor(std::size_t bytes);

  /// @param limit most bytes that wait
  /// @param free gives a block back to the system; must not throw
  BlockCache(std::size_t limit, std::function<void(std::byte*)> free);
  ~BlockCache();
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;

  /// The smallest block of at least this capacity that is not much larger.
  std::optional<Block> take(std::size_t capacity);
  void put(Block block);
  /// Gives all of them back to the system.
  void clear();
  [[nodiscard]] std::size_t bytes() const;

 private:
  std::size_t limit_;
  std::function<void(std::byte*)> free_;
  mutable std::mutex mutex_;
  std::multimap<std::size_t, std::byte*> blocks_;  ///< capacity to address
  std::size_t bytes_ = 0;
};

}  // namespace mtl
