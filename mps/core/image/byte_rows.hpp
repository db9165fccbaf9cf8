#pragma once

#include <cstdint>

/// Which bytes of a memory an array takes.
namespace mps::detail {

/// Rows of `rowBytes` bytes, `images` times `rows` of them, in ascending order and apart from one another.
struct ByteRows {
  std::int64_t begin = 0;
  std::int64_t images = 0;
  std::int64_t imageStride = 0;  ///< bytes from one to the next
  std::int64_t rows = 0;
  std::int64_t rowStride = 0;
  std::int64_t rowBytes = 0;

  [[nodiscard]] bool isEmpty() const { return images == 0 || rows == 0 || rowBytes == 0; }
};

/// Whether both are the same rows.
bool areSame(const ByteRows& one, const ByteRows& other);

/// Whether they have a byte in common. Takes at most as many steps as the one with fewer rows has; where the strides of
/// rows are the same and the bytes apart, one.
bool overlap(const ByteRows& one, const ByteRows& other);

}  // namespace mps::detail
