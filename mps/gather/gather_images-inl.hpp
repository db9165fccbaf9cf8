// Sums of whole images of gathers' gradients, once per instruction set. Include it after hwy/highway.h in a file that
// hwy/foreach_target.h compiles several times; mps/core/highway_targets.hpp comes before both.

#if defined(UNMETAL_MPS_GATHER_IMAGES_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_GATHER_IMAGES_INL_HPP
#undef UNMETAL_MPS_GATHER_IMAGES_INL_HPP
#else
#define UNMETAL_MPS_GATHER_IMAGES_INL_HPP
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "mps/core/streamed_stores.hpp"
#include "mps/core/vector_io-inl.hpp"
#include "mps/gather/gather_rows-inl.hpp"
#include "mps/gather/gather_sums.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// totals[rows[i] * channels + c] += values[i * channels + c], in order.
HWY_INLINE void addRows(const std::uint16_t* rows, std::int64_t count, const float* values,
                        std::int64_t channels, float* totals) {
  if (channels == 1) {
    std::int64_t i = 0;
    for (; i + 4 <= count; i += 4) {
      totals[rows[i]] += values[i];
      totals[rows[i + 1]] += values[i + 1];
      totals[rows[i + 2]] += values[i + 2];
      totals[rows[i + 3]] += values[i + 3];
    }
    for (; i < count; ++i) totals[rows[i]] += values[i];
    return;
  }
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t c = 0; c < channels; ++c) totals[rows[i] * channels + c] += values[i * channels + c];
}

/// Whole images, whose rows have no gaps: adds each row of the gradient where it came from.
template <class T>
HWY_INLINE void sumImagesAlone(const GatherSums& sums, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kPiece = 1024;  ///< elements that are converted together
  alignas(64) float totals[kMostGatherSums + kGatherVectorRow];
  alignas(64) float values[kPiece];
  const std::int64_t channels = sums.gradient.channels;
  const std::int64_t rows = kPiece / channels;
  const auto size = static_cast<std::size_t>(sums.destination.height * channels);
  for (std::int64_t n = begin; n < end; ++n) {
    std::fill_n(totals, size + static_cast<std::size_t>(channels), 0.0F);
    const auto* const from = reinterpret_cast<const T*>(sums.gradientMemory) + n * sums.gradient.imageStride;
    if constexpr (std::is_same_v<T, float>) {
      addRows(sums.rows, sums.gradient.height, from, channels, totals);
    } else {
      for (std::int64_t first = 0; first < sums.gradient.height; first += rows) {
        const std::int64_t count = std::min(rows, sums.gradient.height - first);
        convertToFloats(from + first * channels, values, static_cast<std::size_t>(count * channels));
        addRows(sums.rows + first, count, values, channels, totals);
      }
    }
    convertFromFloats(totals, reinterpret_cast<T*>(sums.destinationMemory) + n * sums.destination.imageStride,
                      size);
  }
}

#if HWY_TARGET != HWY_SCALAR

/// Images whose sums lie side by side, so that one index serves all of them.
using ImageSums = hn::CappedTag<float, 8>;
constexpr std::int64_t kImagesTogether = hn::MaxLanes(ImageSums());

/// Lane i of row k becomes lane k of row i.
HWY_INLINE void transpose(hn::Vec<ImageSums> (&rows)[kImagesTogether]) {
  const ImageSums d;
  using V = hn::Vec<ImageSums>;
  const auto inBlocks = [&](V & p, V & q, V & r, V & s) HWY_ATTR __attribute__((always_inline)) {
    const V a = hn::InterleaveLower(d, p, r);
    const V b = hn::InterleaveUpper(d, p, r);
    const V e = hn::InterleaveLower(d, q, s);
    const V f = hn::InterleaveUpper(d, q, s);
    p = hn::InterleaveLower(d, a, e);
    q = hn::InterleaveUpper(d, a, e);
    r = hn::InterleaveLower(d, b, f);
    s = hn::InterleaveUpper(d, b, f);
  };
  inBlocks(rows[0], rows[1], rows[2], rows[3]);
  if constexpr (kImagesTogether == 8) {
    inBlocks(rows[4], rows[5], rows[6], rows[7]);
    unrolled<4>([&](auto i) HWY_ATTR __attribute__((always_inline)) {
      const V lower = hn::ConcatLowerLower(d, rows[i() + 4], rows[i()]);
      rows[i() + 4] = hn::ConcatUpperUpper(d, rows[i() + 4], rows[i()]);
      rows[i()] = lower;
    });
  }
}

/// Adds kImagesTogether images of one channel to sums of which `totals` has those of a row side by side.
template <class T>
HWY_INLINE void addImages(const GatherSums& sums, const T* from, float* totals) {
  const ImageSums d;
  const std::int64_t count = sums.gradient.height;
  const auto add = [&](std::int64_t i, hn::Vec<ImageSums> value) HWY_ATTR __attribute__((always_inline)) {
    float* const to = totals + sums.rows[i] * kImagesTogether;
    hn::Store(hn::Add(hn::Load(d, to), value), d, to);
  };
  std::int64_t i = 0;
  for (; i + kImagesTogether <= count; i += kImagesTogether) {
    hn::Vec<ImageSums> values[kImagesTogether];
    unrolled<kImagesTogether>([&](auto n) HWY_ATTR __attribute__((always_inline)) {
      values[n()] = loadFloats(d, from + n() * sums.gradient.imageStride + i);
    });
    transpose(values);
    unrolled<kImagesTogether>([&](auto k) HWY_ATTR
                              __attribute__((always_inline)) { add(i + k(), values[k()]); });
  }
  for (; i < count; ++i) {
    HWY_ALIGN float value[kImagesTogether];
    for (std::int64_t n = 0; n < kImagesTogether; ++n)
      value[n] = loadFloat(from + n * sums.gradient.imageStride + i);
    add(i, hn::Load(d, value));
  }
}

template <class T>
HWY_INLINE void storeImages(const GatherSums& sums, const float* totals, T* to) {
  constexpr std::int64_t kPiece = 64;  ///< sums of each image that are stored one after the other
  const ImageSums images;
  const hn::ScalableTag<float> d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t height = sums.destination.height;
  for (std::int64_t first = 0; first < height; first += kPiece) {
    HWY_ALIGN float pieces[kImagesTogether][kPiece];
    const std::int64_t count = std::min(kPiece, height - first);
    for (std::int64_t k = 0; k < count;
         k += kImagesTogether) {  // the last ones may be those that nobody reads
      hn::Vec<ImageSums> rows[kImagesTogether];
      unrolled<kImagesTogether>([&](auto i) HWY_ATTR __attribute__((always_inline)) {
        rows[i()] = hn::Load(images, totals + (first + k + i()) * kImagesTogether);
      });
      transpose(rows);
      unrolled<kImagesTogether>([&](auto n) HWY_ATTR __attribute__((always_inline)) {
        hn::Store(rows[n()], images, pieces[n()] + k);
      });
    }
    for (std::int64_t n = 0; n < kImagesTogether; ++n) {
      T* const image = to + n * sums.destination.imageStride + first;
      std::int64_t k = 0;
      for (; k + 2 * step <= count; k += 2 * step)
        storePair(d, hn::Load(d, pieces[n] + k), hn::Load(d, pieces[n] + k + step), image + k,
                  sums.pastCaches);
      if (k < count) convertFromFloats(pieces[n] + k, image + k, static_cast<std::size_t>(count - k));
    }
  }
}

/// The same for images of one channel, some of them at once.
template <class T>
HWY_INLINE void sumImagesTogether(const GatherSums& sums, std::int64_t begin, std::int64_t end) {
  // Beside the rows one that nobody reads, and some for what is read with the last row.
  HWY_ALIGN float totals[(kMostGatherSumsTogether + kImagesTogether) * kImagesTogether];
  const auto size = static_cast<std::size_t>((sums.destination.height + kImagesTogether) * kImagesTogether);
  for (; begin + kImagesTogether <= end; begin += kImagesTogether) {
    std::fill_n(totals, size, 0.0F);
    addImages(sums, reinterpret_cast<const T*>(sums.gradientMemory) + begin * sums.gradient.imageStride,
              totals);
    storeImages(sums, totals,
                reinterpret_cast<T*>(sums.destinationMemory) + begin * sums.destination.imageStride);
  }
  if (sums.pastCaches) finishStreaming();
  sumImagesAlone<T>(sums, begin, end);
}

#endif

template <class T>
HWY_INLINE void sumImagesOf(const GatherSums& sums, std::int64_t begin, std::int64_t end) {
#if HWY_TARGET != HWY_SCALAR
  if (sums.gradient.channels == 1 && sums.destination.height <= kMostGatherSumsTogether)
    return sumImagesTogether<T>(sums, begin, end);
#endif
  sumImagesAlone<T>(sums, begin, end);
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
