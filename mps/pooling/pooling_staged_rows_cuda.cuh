#pragma once

#include <type_traits>

#include "mps/pooling/pooling_vectors_cuda.cuh"

/// Rows that are on their way to threads which go down strips. They go to shared memory, where each thread has places
/// of its own: of loads to registers the first that is used would be waited for together with all that came later.
namespace mps::detail::cuda {

/// Begins to copy to shared memory, through the first cache, where neighbours find what they share. Zeros where it is
/// not inside.
template <int bytes>
__device__ void fetchCached(const void* from, void* to, bool isInside) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
               :
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(to))), "l"(from), "n"(bytes),
                 "r"(isInside ? bytes : 0)
               : "memory");
}

/// What a block's threads read of a row: packs of some columns, and the saved places of as many.
template <class T, int columns, bool hasPlaces, unsigned threads>
struct StagedRow {
  static constexpr int kPlaceColumns = hasPlaces ? columns : 1;
  static constexpr unsigned kPlaceThreads = hasPlaces ? threads : 1;

  uint4 packs[columns][threads];
  std::conditional_t<kLanes<T> == 8, uint2, unsigned> places[kPlaceColumns][kPlaceThreads];

  __device__ void fetchPack(int column, const T* from, bool isInside) {
    fetchCached<16>(from, &packs[column][threadIdx.x], isInside);
  }
  __device__ void fetchPlaces(int column, const std::uint8_t* from, bool isInside) {
    fetchCached<kLanes<T>>(from, &places[column][threadIdx.x], isInside);
  }
  [[nodiscard]] __device__ uint4 pack(int column) const { return packs[column][threadIdx.x]; }
  [[nodiscard]] __device__ IndexBytes<kLanes<T>> placesOf(int column) const {
    const auto bits = places[column][threadIdx.x];
    IndexBytes<kLanes<T>> bytes;
    memcpy(&bytes, &bits, sizeof bytes);
    return bytes;
  }
};

/// Rows ahead in a ring. Where they are long there are fewer, which leaves the first cache the room for those that are on
/// their way.
template <class T, int columns, bool hasPlaces, unsigned threads>
struct StagedRows {
  static constexpr int kAhead = columns == 3 && hasPlaces ? 2 : 3;

  StagedRow<T, columns, hasPlaces, threads> rows[kAhead];

  __device__ static int behind(int slot) { return slot == kAhead - 1 ? 0 : slot + 1; }
};

}  // namespace mps::detail::cuda
