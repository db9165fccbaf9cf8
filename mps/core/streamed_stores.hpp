#pragma once

#include <cstdint>

#include "mps/core/tensor_shape.hpp"

/// Stores past the caches. An ordinary store reads its line first; of a result that is larger than the caches that
/// reading is lost. They are ordered with other stores only by finishStreaming().
namespace mps::detail {

/// Whether a call that moves so many bytes leaves little of its destination in any cache.
constexpr bool writesPastCaches(std::int64_t bytesMoved) {
  return bytesMoved > std::int64_t{48} << 20U;
}

/// The same for kernels that write row after row. Of rows that begin amid a cache line some parts would be written past
/// the caches and some not, which costs more than it saves.
constexpr bool writesRowsPastCaches(std::int64_t bytesMoved, const TensorShape& destination) {
  constexpr std::int64_t cacheLine = 64;
  const auto rowBytes =
      destination.rowStride * static_cast<std::int64_t>(bytesPerChannel(destination.format));
  return writesPastCaches(bytesMoved) && rowBytes % cacheLine == 0;
}

/// Whether kernels that work tile by tile write a result of this shape, beside an input of its size, past the caches.
constexpr bool isStreamed(const TensorShape& shape) {
  return writesPastCaches(2 * shape.bytes());
}

/// After the last such store of a thread: other threads see them all.
void finishStreaming();

}  // namespace mps::detail
