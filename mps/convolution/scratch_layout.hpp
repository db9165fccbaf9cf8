#pragma once

#include <cstddef>

namespace mps::detail {

/// Where things lie in Operands::scratch.
class ScratchLayout {
 public:
  /// Offset of a new block, a multiple of a cache line.
  std::size_t reserve(std::size_t bytes) {
    const std::size_t offset = bytes_;
    bytes_ += (bytes + 63) / 64 * 64;
    return offset;
  }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
};

}  // namespace mps::detail
