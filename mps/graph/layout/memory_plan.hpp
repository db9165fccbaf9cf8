#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace mps::detail {

/// A block of memory that is needed from step `first` to step `last`, both included.
struct MemoryRequest {
  std::size_t bytes = 0;
  std::size_t first = 0;
  std::size_t last = 0;
};

/// Places of the requests in one block.
struct MemoryPlan {
  std::vector<std::size_t> offsets;  ///< in the order of the requests
  std::size_t peakBytes = 0;         ///< size of the block
};

/// Bytes of the block that nobody has at a time.
struct MemoryGap {
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

/// Places every request so that those alive at the same time do not overlap: the largest first, each at the
/// lowest offset that is free for its whole life. @param alignment of every offset
MemoryPlan planMemory(std::span<const MemoryRequest> requests, std::size_t alignment);

/// The largest gap at that time. Begins at a multiple of the alignment that the plan was made for.
MemoryGap largestGap(std::span<const MemoryRequest> requests, const MemoryPlan& plan, std::size_t time,
                     std::size_t alignment);

}  // namespace mps::detail
