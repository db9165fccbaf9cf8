#pragma once

#include <cuda_pipeline.h>

#include <cstdint>

namespace mps::detail::cuda {

/// The rows of the input one after the other, some of which are on their way to shared memory. A thread sees its own pack.
/// @tparam Pack uint4, or uint2 of source pixels
template <class T, class Pack>
class PackStream {
 public:
  static constexpr int depth = 4;

  /// @param from the pack in row 0 @param ring of `threads` packs for each row on its way, this thread's first
  /// @param end of the rows that are wanted, so that none beyond it is loaded; 0: none is, and all count as 0
  __device__ PackStream(const T* from, std::int64_t stride, Pack* ring, unsigned threads, std::int32_t end)
      : from_(from), ring_(ring), stride_(stride), threads_(threads), end_(end) {}
  __device__ Pack get(std::int32_t row) {
    if (row != next_) {
      __pipeline_wait_prior(0);
      requested_ = from_ + row * stride_;
      for (std::int32_t i = 0; i < depth - 1; ++i) request(row + i);
    }
    request(row + depth - 1);
    next_ = row + 1;
    __pipeline_wait_prior(depth - 1);
    return row < end_ ? *slot(row) : Pack{};
  }

 private:
  [[nodiscard]] __device__ Pack* slot(std::int32_t row) const {
    return ring_ + static_cast<unsigned>(row) % depth * threads_;
  }
  __device__ void request(std::int32_t row) {
    if (row < end_) __pipeline_memcpy_async(slot(row), requested_, sizeof(Pack));
    __pipeline_commit();
    requested_ += stride_;
  }

  const T* from_;
  const T* requested_ = nullptr;  ///< what is requested next
  Pack* ring_;
  std::int64_t stride_;
  unsigned threads_;
  std::int32_t end_;
  std::int32_t next_ = -1;
};

}  // namespace mps::detail::cuda
