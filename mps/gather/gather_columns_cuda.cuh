#pragma once

#include <cstdint>
#include <cstring>

#include "mps/core/elements_cuda.cuh"
#include "mps/gather/gather_indices_cuda.cuh"

/// Gathers of rows of one element: blocks hold what they gather from in shared memory, elements of some images at the
/// same place side by side, so that each index is looked up for all of them at once.
namespace mps::detail::cuda {

inline constexpr unsigned kColumnThreads = 512;
inline constexpr std::uint32_t kNoPlace = 0xFFFFFFFFU;
/// Of gradients: those of float32 need few enough registers for three blocks at once.
template <class T>
inline constexpr unsigned kColumnGradientThreads = sizeof(T) == sizeof(float) ? 384 : 512;
inline constexpr std::size_t kHeldBytes = 101376;  ///< what a block of any GPU may have
inline constexpr std::int64_t kFewestImagesOfColumns = 64;
inline constexpr unsigned kColumnResults = 4;  ///< adjacent ones, which a thread computes together

struct ColumnArguments {
  const std::byte* from;  ///< of `length` elements for each image
  std::byte* to;          ///< of `results`
  std::int64_t fromImage, toImage;
  std::uint32_t length, results;
  std::uint32_t images;
  bool fromIsAligned;  ///< images of `from` begin at multiples of 16 bytes
  bool toIsAligned;    ///< images of `to` at multiples of kColumnResults elements
};

/// Elements of several images at one place.
/// @tparam words of four bytes, 2 or 4
template <class T, int words>
struct ColumnPack {
  static constexpr int images = words * 4 / static_cast<int>(sizeof(T));
  alignas(words * 4) unsigned bits[words];
};

template <int images>
__device__ void addPack(const ColumnPack<float, images>& pack, float (&sums)[images]) {
#pragma unroll
  for (int n = 0; n < images; ++n) sums[n] += __uint_as_float(pack.bits[n]);
}
template <int words>
__device__ void addPack(const ColumnPack<Float16, words>& pack, float (&sums)[2 * words]) {
#pragma unroll
  for (int i = 0; i < words; ++i) {
    const float2 both = halvesOf(pack.bits[i]);
    sums[2 * i] += both.x;
    sums[2 * i + 1] += both.y;
  }
}
template <int images>
__device__ ColumnPack<float, images> packOf(const float (&sums)[images], const float* /*type*/) {
  ColumnPack<float, images> pack;
#pragma unroll
  for (int n = 0; n < images; ++n) pack.bits[n] = __float_as_uint(sums[n]);
  return pack;
}
template <int images>
__device__ ColumnPack<Float16, images / 2> packOf(const float (&sums)[images], const Float16* /*type*/) {
  ColumnPack<Float16, images / 2> pack;
#pragma unroll
  for (int i = 0; i < images / 2; ++i) pack.bits[i] = toHalves(sums[2 * i], sums[2 * i + 1]);
  return pack;
}

/// Places in shared memory for so many elements of an image.
inline std::int64_t heldPlaces(std::int64_t length) {
  return (length + 7) / 8 * 8;
}

/// The elements of this block's images.
/// @tparam threads of the block
template <class T, int words, unsigned threads>
class HeldColumns {
 public:
  using Pack = ColumnPack<T, words>;

  __device__ explicit HeldColumns(const ColumnArguments& a)
      : firstImage_(blockIdx.x * Pack::images),
        images_(min(static_cast<unsigned>(Pack::images), a.images - firstImage_)) {
    const T* const from = reinterpret_cast<const T*>(a.from) + firstImage_ * a.fromImage;
    std::uint32_t done = 0;
    if (a.fromIsAligned) {
      done = a.length / kLanes<T> * kLanes<T>;
      for (std::uint32_t place = kLanes<T> * threadIdx.x; place < done; place += kLanes<T> * threads)
        holdLanes(from + place, a.fromImage, place);
    }
    for (std::uint32_t place = done + threadIdx.x; place < a.length; place += threads)
      holdPlace(from + place, a.fromImage, place);
    __syncthreads();
  }

  [[nodiscard]] const __device__ Pack& at(std::uint32_t place) const { return packs()[slot(place)]; }

  /// Writes kColumnResults results from `first` on, or those of them that there are.
  __device__ void store(const Pack (&results)[kColumnResults], const ColumnArguments& a,
                        std::uint32_t first) const {
    T* const to = reinterpret_cast<T*>(a.to) + firstImage_ * a.toImage + first;
#pragma unroll
    for (unsigned n = 0; n < Pack::images; ++n) {
      if (n >= images_) break;
      T ofImage[kColumnResults];
#pragma unroll
      for (unsigned i = 0; i < kColumnResults; ++i) ofImage[i] = element(results[i], n);
      T* const place = to + n * a.toImage;
      if (a.toIsAligned && first + kColumnResults <= a.results) {
        storeTogether(ofImage, place);
      } else {
#pragma unroll
        for (unsigned i = 0; i < kColumnResults; ++i)
          if (first + i < a.results) place[i] = ofImage[i];
      }
    }
  }

 private:
  /// Places change places such that threads that hold adjacent lanes do not write into the same banks.
  __device__ static std::uint32_t slot(std::uint32_t place) {
    constexpr unsigned shift = words == 4 ? 3 : 4;
    return place ^ (place >> shift & (kLanes<T> - 1));
  }
  __device__ static Pack* packs() {
    extern __shared__ uint4 heldColumns[];
    return reinterpret_cast<Pack*>(heldColumns);
  }
  __device__ static T element(const Pack& pack, unsigned image) {
    if constexpr (sizeof(T) == 4)
      return __uint_as_float(pack.bits[image]);
    else
      return T{static_cast<std::uint16_t>(pack.bits[image / 2] >> (image % 2 * 16))};
  }
  __device__ static void storeTogether(const float (&values)[kColumnResults], float* to) {
    *reinterpret_cast<float4*>(to) = float4{values[0], values[1], values[2], values[3]};
  }
  __device__ static void storeTogether(const Float16 (&values)[kColumnResults], Float16* to) {
    uint2 both;
    memcpy(&both, values, sizeof both);
    *reinterpret_cast<uint2*>(to) = both;
  }

  __device__ void holdLanes(const T* from, std::int64_t stride, std::uint32_t place) const {
    unsigned ofImages[Pack::images][4];
#pragma unroll
    for (unsigned n = 0; n < Pack::images; ++n) {
      uint4 lanes{0, 0, 0, 0};
      if (n < images_) lanes = *reinterpret_cast<const uint4*>(from + n * stride);
      memcpy(ofImages[n], &lanes, sizeof lanes);
    }
#pragma unroll
    for (unsigned lane = 0; lane < kLanes<T>; ++lane) {
      Pack pack;
#pragma unroll
      for (unsigned i = 0; i < words; ++i) {
        if constexpr (sizeof(T) == 4)
          pack.bits[i] = ofImages[i][lane];
        else
          pack.bits[i] = __byte_perm(ofImages[2 * i][lane / 2], ofImages[2 * i + 1][lane / 2],
                                     lane % 2 == 0 ? 0x5410 : 0x7632);
      }
      packs()[slot(place + lane)] = pack;
    }
  }
  __device__ void holdPlace(const T* from, std::int64_t stride, std::uint32_t place) const {
    T ofImages[Pack::images];
#pragma unroll
    for (unsigned n = 0; n < Pack::images; ++n) ofImages[n] = n < images_ ? from[n * stride] : T{};
    Pack pack;
    memcpy(pack.bits, ofImages, sizeof pack.bits);
    packs()[slot(place)] = pack;
  }

  std::uint32_t firstImage_, images_;
};

template <class T, int words>
__global__ void __launch_bounds__(kColumnThreads, 2) copyColumns(ColumnArguments a, Indices indices) {
  const HeldColumns<T, words, kColumnThreads> columns(a);
  for (std::uint32_t first = kColumnResults * threadIdx.x; first < a.results;
       first += kColumnResults * kColumnThreads) {
    std::int64_t rows[kColumnResults];
#pragma unroll
    for (unsigned i = 0; i < kColumnResults; ++i)
      rows[i] = first + i < a.results ? indices.row(first + i) : -1;
    ColumnPack<T, words> results[kColumnResults];
#pragma unroll
    for (unsigned i = 0; i < kColumnResults; ++i)
      results[i] = rows[i] < 0 ? ColumnPack<T, words>{} : columns.at(static_cast<std::uint32_t>(rows[i]));
    columns.store(results, a, first);
  }
}

template <class T, int words>
__global__ void __launch_bounds__(kColumnGradientThreads<T>, sizeof(T) == sizeof(float) ? 3 : 2)
    addColumns(ColumnArguments a, const std::uint32_t* starts, const std::uint32_t* places) {
  constexpr unsigned threads = kColumnGradientThreads<T>;
  // Results whose further terms are asked for at once. Those of halves need their registers for sums.
  constexpr unsigned together = sizeof(T) == sizeof(float) ? kColumnResults : 1;
  const HeldColumns<T, words, threads> columns(a);
  for (std::uint32_t first = kColumnResults * threadIdx.x; first < a.results;
       first += kColumnResults * threads) {
    std::uint32_t bounds[kColumnResults + 1];
#pragma unroll
    for (unsigned i = 0; i <= kColumnResults; ++i) bounds[i] = starts[min(first + i, a.results)];
    std::uint32_t firsts[kColumnResults];  // the places of the first ones
#pragma unroll
    for (unsigned i = 0; i < kColumnResults; ++i)
      firsts[i] = bounds[i] < bounds[i + 1] ? places[bounds[i]] : 0;
    ColumnPack<T, words> results[kColumnResults];
#pragma unroll
    for (unsigned i = 0; i < kColumnResults; ++i) results[i] = columns.at(firsts[i]);
#pragma unroll
    for (unsigned i = 0; i < kColumnResults; i += together) {
      float sums[together][ColumnPack<T, words>::images] = {};
      std::uint32_t most = 0;
#pragma unroll
      for (unsigned k = 0; k < together; ++k) {
        const std::uint32_t count = bounds[i + k + 1] - bounds[i + k];
        if (count > 0) addPack(results[i + k], sums[k]);
        most = max(most, count);
      }
      for (std::uint32_t term = 1; term < most; ++term) {
        std::uint32_t further[together];
#pragma unroll
        for (unsigned k = 0; k < together; ++k)
          further[k] = bounds[i + k] + term < bounds[i + k + 1] ? places[bounds[i + k] + term] : kNoPlace;
#pragma unroll
        for (unsigned k = 0; k < together; ++k)
          if (further[k] != kNoPlace) addPack(columns.at(further[k]), sums[k]);
      }
#pragma unroll
      for (unsigned k = 0; k < together; ++k)
        results[i + k] = packOf(sums[k], static_cast<const T*>(nullptr));
    }
    columns.store(results, a, first);
  }
}

}  // namespace mps::detail::cuda
