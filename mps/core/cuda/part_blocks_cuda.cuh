#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace mps::detail::cuda {

/// The blocks of a launch over parts that lie apart: as many parts as its arguments hold.
template <class Part, int most>
struct PartBlocks {
  Part parts[most];
  std::uint32_t firstBlocks[most];
  int count = 0;
  std::uint32_t blocks = 0;

  [[nodiscard]] bool hasRoomFor(std::int64_t added) const {
    return count < most && blocks + added <= 0x7FFFFFFF;
  }
  /// @param added blocks of the part
  void add(const Part& part, std::int64_t added) {
    parts[count] = part;
    firstBlocks[count++] = blocks;
    blocks += static_cast<std::uint32_t>(added);
  }
  void clear() {
    count = 0;
    blocks = 0;
  }
  /// Number of the part that this block belongs to.
  [[nodiscard]] __device__ int own() const {
    int low = 0;
    int high = count;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (firstBlocks[middle] <= blockIdx.x ? low : high) = middle;
    }
    return low;
  }
};

}  // namespace mps::detail::cuda
