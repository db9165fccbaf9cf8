#pragma once

#include <cstddef>
#include <mutex>
#include <span>
#include <vector>

#include "mtl/cuda/stream.hpp"

namespace mtl::cuda {

/// Copies from the host to one device, through a ring of pinned memory: the caller's bytes are read before
/// write() returns, the copy to the device runs on. Engine-internal, thread safe.
class Uploads {
 public:
  /// @param device index of the device
  explicit Uploads(int device);
  ~Uploads();
  Uploads(const Uploads&) = delete;
  Uploads& operator=(const Uploads&) = delete;

  void write(std::byte* address, std::span<const std::byte> bytes);
  void fillWithZeros(std::byte* address, std::size_t bytes);
  /// Copies back what is at a device address after all uploads so far. Waits.
  void read(const std::byte* address, std::span<std::byte> bytes);

  /// What the stream is given from now on begins after all uploads so far.
  void letWait(const Stream& stream);

 private:
  static constexpr std::size_t slotBytes = std::size_t{1} << 18U;
  static constexpr std::size_t slotCount = 32;

  int device_;
  std::mutex mutex_;
  Stream stream_;
  std::byte* ring_ = nullptr;
  std::vector<cudaEvent_t> copied_;  ///< of each slot: it can be written again
  cudaEvent_t last_ = nullptr;       ///< after the last upload
  std::size_t next_ = 0;             ///< slot
};

}  // namespace mtl::cuda
