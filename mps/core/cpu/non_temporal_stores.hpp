#pragma once

#include <cstdint>

#include "mps/core/types/tensor_shape.hpp"

/// Non-temporal stores. An ordinary store reads its line first; of a result that is larger than the caches that
/// reading is lost. They are ordered with other stores only by finishNonTemporalStores().
namespace mps::detail {

/// Whether a call that moves so many bytes leaves little of its destination in any cache: more than 48 MiB, but see
/// NonTemporalFrom.
bool usesNonTemporalStores(std::int64_t bytesMoved);

/// The same for kernels that write row after row. Of rows that begin amid a cache line some parts would be written past
/// the caches and some not, which costs more than it saves.
inline bool usesNonTemporalStoresForRows(std::int64_t bytesMoved, const TensorShape& destination) {
  constexpr std::int64_t cacheLine = 64;
  const auto rowBytes =
      destination.rowStride * static_cast<std::int64_t>(bytesPerChannel(destination.format));
  return usesNonTemporalStores(bytesMoved) && rowBytes % cacheLine == 0;
}

/// Whether kernels that work tile by tile write a result of this shape, beside an input of its size, by non-temporal stores.
inline bool isNonTemporal(const TensorShape& shape) {
  return usesNonTemporalStores(2 * shape.bytes());
}

/// While it lives, calls that move more than `bytes` bytes write by non-temporal stores: checks let small tensors take the way of
/// large ones. One at a time; plans that are made and commands that run in its life go by it.
class NonTemporalFrom {
 public:
  explicit NonTemporalFrom(std::int64_t bytes);
  ~NonTemporalFrom();
  NonTemporalFrom(const NonTemporalFrom&) = delete;
  NonTemporalFrom& operator=(const NonTemporalFrom&) = delete;

 private:
  std::int64_t before_;
};

/// After the last such store of a thread: other threads see them all.
void finishNonTemporalStores();

}  // namespace mps::detail
