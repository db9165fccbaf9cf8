#pragma once

#include <cstdint>

#include "mps/core/elements_cuda.cuh"
#include "mps/gather/gather_problem.hpp"

/// Gathers of rows of one element: blocks hold what they gather from, of some images, in shared memory.
namespace mps::detail::cuda {

/// Indices on the device.
struct Indices {
  const std::byte* memory;
  GatherIndices type;
  std::int64_t count;
  std::int64_t rows;  ///< that they may name

  /// -1 where it names no row.
  __device__ std::int64_t row(std::int64_t place) const {
    std::int64_t k = -1;
    switch (type) {
      case GatherIndices::UInt16:
        k = reinterpret_cast<const std::uint16_t*>(memory)[place];
        break;
      case GatherIndices::Int32:
        k = reinterpret_cast<const std::int32_t*>(memory)[place];
        break;
      case GatherIndices::UInt32:
        k = reinterpret_cast<const std::uint32_t*>(memory)[place];
        break;
    }
    return k < rows ? k : -1;
  }
};

inline constexpr unsigned kColumnThreads = 512;
inline constexpr std::int64_t kHeldBytes = 32768;
inline constexpr std::int64_t kMostImagesOfBlock = 8;
inline constexpr std::int64_t kFewestImagesOfColumns = 16;
inline constexpr std::int64_t kColumnBlocks = 512;  ///< before blocks take several images
inline constexpr unsigned kColumnBatch = 4;         ///< results whose indices a thread has on their way

struct ColumnArguments {
  const std::byte* from;  ///< of `length` elements for each image
  std::byte* to;          ///< of `results`
  std::int64_t fromImage, toImage;
  std::uint32_t length, results;
  std::uint32_t images, imagesOfBlock;
  bool isAligned;  ///< images of `from` begin at multiples of 16 bytes
};

/// The elements of this block's images, one image after the other, each from a multiple of 16 bytes on.
template <class T>
struct HeldColumns {
  std::uint32_t begin, count, stride;
  T* held;

  __device__ explicit HeldColumns(const ColumnArguments& a)
      : begin(blockIdx.x * a.imagesOfBlock),
        count(min(a.imagesOfBlock, a.images - begin)),
        stride((a.length + kLanes<T> - 1) / kLanes<T> * kLanes<T>) {
    __shared__ uint4 memory[kHeldBytes / sizeof(uint4)];
    held = reinterpret_cast<T*>(memory);
    for (std::uint32_t n = 0; n < count; ++n) {
      const T* const from = reinterpret_cast<const T*>(a.from) + (begin + n) * a.fromImage;
      std::uint32_t done = 0;
      if (a.isAligned) {
        const std::uint32_t packs = a.length / kLanes<T>;
        for (std::uint32_t i = threadIdx.x; i < packs; i += kColumnThreads)
          memory[n * stride / kLanes<T> + i] = reinterpret_cast<const uint4*>(from)[i];
        done = packs * kLanes<T>;
      }
      for (std::uint32_t i = done + threadIdx.x; i < a.length; i += kColumnThreads)
        held[n * stride + i] = from[i];
    }
    __syncthreads();
  }
};

template <class T>
__global__ void __launch_bounds__(kColumnThreads) copyColumns(ColumnArguments a, Indices indices) {
  const HeldColumns<T> columns(a);
  for (std::uint32_t start = threadIdx.x; start < a.results; start += kColumnBatch * kColumnThreads) {
    std::int64_t rows[kColumnBatch];
#pragma unroll
    for (unsigned j = 0; j < kColumnBatch; ++j) {
      const std::uint32_t i = start + j * kColumnThreads;
      rows[j] = i < a.results ? indices.row(i) : -1;
    }
    T* to = reinterpret_cast<T*>(a.to) + columns.begin * a.toImage + start;
    for (std::uint32_t n = 0; n < columns.count; ++n) {
#pragma unroll
      for (unsigned j = 0; j < kColumnBatch; ++j)
        if (start + j * kColumnThreads < a.results)
          to[j * kColumnThreads] = rows[j] < 0 ? T{} : columns.held[n * columns.stride + rows[j]];
      to += a.toImage;
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kColumnThreads)
    addColumns(ColumnArguments a, const std::uint32_t* starts, const std::uint32_t* places) {
  const HeldColumns<T> columns(a);
  for (std::uint32_t start = threadIdx.x; start < a.results; start += kColumnBatch * kColumnThreads) {
    std::uint32_t begins[kColumnBatch];
    std::uint32_t ends[kColumnBatch];
    std::uint32_t firsts[kColumnBatch];  // the places of the first ones
#pragma unroll
    for (unsigned j = 0; j < kColumnBatch; ++j) {
      const std::uint32_t k = min(start + j * kColumnThreads, a.results - 1);
      begins[j] = starts[k];
      ends[j] = starts[k + 1];
    }
#pragma unroll
    for (unsigned j = 0; j < kColumnBatch; ++j) firsts[j] = begins[j] < ends[j] ? places[begins[j]] : 0;
    T* to = reinterpret_cast<T*>(a.to) + columns.begin * a.toImage + start;
    for (std::uint32_t n = 0; n < columns.count; ++n) {
      const T* const held = columns.held + n * columns.stride;
#pragma unroll
      for (unsigned j = 0; j < kColumnBatch; ++j) {
        float sum = begins[j] < ends[j] ? load(held + firsts[j]) : 0.0F;
        for (std::uint32_t p = begins[j] + 1; p < ends[j]; ++p) sum += load(held + places[p]);
        if (start + j * kColumnThreads < a.results) store(sum, to + j * kColumnThreads);
      }
      to += a.toImage;
    }
  }
}

}  // namespace mps::detail::cuda
