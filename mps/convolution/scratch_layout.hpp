#pragma once

#include <cstddef>

namespace mps::detail {

/// Where things lie in Operands::scratch.
class ScratchLayout {
 public:
  /// cuBLASLt refuses a workspace at other addresses.
  static constexpr std::size_t kAlignment = 256;

  /// Offset of a new block, a multiple of kAlignment.
  std::size_t reserve(std::size_t bytes) {
    const std::size_t offset = bytes_;
    bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return offset;
  }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
};

}  // namespace mps::detail
