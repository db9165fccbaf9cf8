// Sums of rows of gathers' gradients, once per instruction set. Include it after hwy/highway.h in a file that
// hwy/foreach_target.h compiles several times; mps/core/cpu/highway_targets.hpp comes before both.

#if defined(UNMETAL_MPS_GATHER_ROWS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_GATHER_ROWS_INL_HPP
#undef UNMETAL_MPS_GATHER_ROWS_INL_HPP
#else
#define UNMETAL_MPS_GATHER_ROWS_INL_HPP
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "mps/core/cpu/non_temporal_stores.hpp"
#include "mps/core/cpu/vector_runs-inl.hpp"
#include "mps/gather/cpu/gather_sums.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Writes two vectors, with non-temporal stores if that is asked for: of float16 both together fill a cache line.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void storePair(D d, V first, V second, float* to, bool isNonTemporal) {
  storeOrStream(d, first, to, isNonTemporal);
  storeOrStream(d, second, to + hn::Lanes(d), isNonTemporal);
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE void storePair(D d, V first, V second, Float16* to, bool isNonTemporal) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  const hn::Repartition<std::uint16_t, D> both;
  const hn::Rebind<std::uint16_t, D> half;
  const hn::Rebind<hwy::float16_t, D> dh;
  if (isNonTemporal && reinterpret_cast<std::uintptr_t>(to) % (2 * hn::Lanes(both)) == 0) {
    hn::Stream(hn::Combine(both, hn::BitCast(half, hn::DemoteTo(dh, second)),
                           hn::BitCast(half, hn::DemoteTo(dh, first))),
               both, reinterpret_cast<std::uint16_t*>(to));
    return;
  }
#endif
  storeOrStream(d, first, to, isNonTemporal);
  storeOrStream(d, second, to + hn::Lanes(d), isNonTemporal);
}

/// Vectors of a row that are summed together: half of the registers.
#if HWY_TARGET == HWY_AVX3
constexpr std::int64_t kVectorsTogether = 16;
#else
constexpr std::int64_t kVectorsTogether = 8;
#endif

/// Adds some rows to `totals`, vector i of which is that of column i * Lanes.
/// @param placesLeft of all rows, from `place` on: those that come kGatherRowsAhead later are prefetched
template <std::int64_t vectors, class T, class V>
HWY_INLINE void addTerms(const T* from, std::int64_t stride, const std::int64_t* place, std::int64_t count,
                         std::int64_t placesLeft, V (&totals)[kVectorsTogether]) {
  const hn::ScalableTag<float> d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  constexpr std::int64_t line = 64 / std::int64_t{sizeof(T)};
  for (std::int64_t i = 0; i < count; ++i) {
    if (i + kGatherRowsAhead < placesLeft) {
      const T* const later = from + place[i + kGatherRowsAhead] * stride;
      for (std::int64_t c = 0; c < vectors * step; c += line) __builtin_prefetch(later + c, 0, 2);
    }
    const T* const row = from + place[i] * stride;
    unrolled<vectors>([&](auto v) HWY_ATTR __attribute__((always_inline)) {
      totals[v()] = hn::Add(totals[v()], loadFloats(d, row + v() * step));
    });
  }
}

/// to[c] = the sum of from[place * stride + c] over places, in order.
/// @param placesLeft of all rows
template <class T>
HWY_INLINE void sumRow(const T* from, std::int64_t stride, const std::int64_t* places, std::int64_t terms,
                       std::int64_t placesLeft, std::int64_t count, bool isNonTemporal, T* to) {
  const hn::ScalableTag<float> d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  HWY_ALIGN float sums[kGatherColumns];  // of the terms before, where there are many
  std::int64_t done = 0;
  do {
    const std::int64_t some = std::min(kGatherRowsTogether, terms - done);
    const bool isFirst = done == 0;
    const bool isLast = done + some == terms;
    const auto addVectors = [&](auto vectors, std::int64_t c) HWY_ATTR __attribute__((always_inline)) {
      hn::Vec<decltype(d)> totals[kVectorsTogether];
      unrolled<vectors()>([&](auto v) HWY_ATTR __attribute__((always_inline)) {
        totals[v()] = isFirst ? hn::Zero(d) : hn::Load(d, sums + c + v() * step);
      });
      addTerms<vectors()>(from + c, stride, places + done, some, placesLeft - done, totals);
      if (!isLast)
        unrolled<vectors()>([&](auto v) HWY_ATTR __attribute__((always_inline)) {
          hn::Store(totals[v()], d, sums + c + v() * step);
        });
      else if constexpr (vectors() == 1)
        storeOrStream(d, totals[0], to + c, isNonTemporal);
      else
        unrolled<vectors() / 2>([&](auto v) HWY_ATTR __attribute__((always_inline)) {
          storePair(d, totals[2 * v()], totals[2 * v() + 1], to + c + 2 * v() * step, isNonTemporal);
        });
    };
    std::int64_t c = 0;
    for (; c + kVectorsTogether * step <= count; c += kVectorsTogether * step)
      addVectors(std::integral_constant<std::int64_t, kVectorsTogether>(), c);
    if (constexpr std::int64_t some = kVectorsTogether / 2; c + some * step <= count) {
      addVectors(std::integral_constant<std::int64_t, some>(), c);
      c += some * step;
    }
    for (; c + step <= count; c += step) addVectors(std::integral_constant<std::int64_t, 1>(), c);
    if (c < count) {
      const auto rest = static_cast<std::size_t>(count - c);
      auto sum = isFirst ? hn::Zero(d) : hn::Load(d, sums + c);
      for (std::int64_t i = done; i < done + some; ++i)
        sum = hn::Add(sum, loadFloats(d, from + places[i] * stride + c, rest));
      if (isLast)
        storeFloats(d, sum, to + c, rest);
      else
        hn::Store(sum, d, sums + c);
    }
    done += some;
  } while (done < terms);
}

/// Images [begin, end) of the destination. All sums of one stay in the cache: the rows of the gradient are added in order,
/// each where its place says.
/// @param channels of a row, a number that the compiler knows where there is one
template <class T, class Channels>
HWY_INLINE void sumImagesOf(const GatherSums& sums, Channels channels, std::int64_t begin, std::int64_t end) {
  const hn::CappedTag<float, 1> one;  // converts float16 by instructions
  const hn::ScalableTag<float> d;
  const TensorShape& to = sums.destination;
  HWY_ALIGN float totals[kGatherColumns + kGatherVectorRow];
  for (std::int64_t n = begin; n < end; ++n) {
    std::fill_n(totals, (to.height + 1) * channels, 0.0F);
    const T* row = reinterpret_cast<const T*>(sums.gradientMemory) + n * sums.gradient.imageStride;
    for (std::int64_t i = 0; i < sums.gradient.height; ++i, row += sums.gradient.rowStride)
      for (std::int64_t c = 0; c < channels; ++c)
        totals[sums.places[i] + c] += hn::GetLane(loadFloats(one, row + c));
    T* const image = reinterpret_cast<T*>(sums.destinationMemory) + n * to.imageStride;
    const bool isDense = to.rowStride == channels;
    const std::int64_t run = isDense ? to.height * channels : channels;
    for (std::int64_t k = 0; k < (isDense ? 1 : to.height); ++k)
      forVectors(
          d, static_cast<std::size_t>(run),
          [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
            lanes.store(d, hn::LoadU(d, totals + k * run + i), FloatRun(image + k * to.rowStride + i));
          });
  }
}

template <class T>
HWY_INLINE void sumImagesOf(const GatherSums& sums, std::int64_t begin, std::int64_t end) {
  if (sums.destination.channels == 1)
    sumImagesOf<T>(sums, std::integral_constant<std::int64_t, 1>(), begin, end);
  else
    sumImagesOf<T>(sums, sums.destination.channels, begin, end);
}

/// Rows [begin, end) of the destination, all images one after the other, that are shorter than vectors.
template <class T>
HWY_INLINE void sumShortRows(const GatherSums& sums, std::int64_t begin, std::int64_t end) {
  const hn::CappedTag<float, 1> d;  // converts float16 by instructions
  const TensorShape& to = sums.destination;
  const std::int64_t stride = sums.gradient.rowStride;
  std::int64_t n = begin / to.height;
  std::int64_t k = begin % to.height;
  for (std::int64_t row = begin; row < end; ++row) {
    const T* const from = reinterpret_cast<const T*>(sums.gradientMemory) + n * sums.gradient.imageStride;
    T* const result = reinterpret_cast<T*>(sums.destinationMemory) + n * to.imageStride + k * to.rowStride;
    for (std::int64_t c = 0; c < to.channels; ++c) {
      float sum = 0;
      for (std::int64_t i = sums.starts[k]; i < sums.starts[k + 1]; ++i)
        sum += hn::GetLane(loadFloats(d, from + sums.places[i] * stride + c));
      storeFloats(d, hn::Set(d, sum), result + c);
    }
    if (++k < to.height) continue;
    k = 0;
    ++n;
  }
}

/// Parts of the destination: images where `starts` is null, else parts of rows. Of these part p is the (p mod parts)th one of
/// a row, of kGatherColumns elements.
template <class T>
HWY_INLINE void sumPartsOf(const GatherSums& sums, std::int64_t begin, std::int64_t end) {
  if (sums.starts == nullptr) return sumImagesOf<T>(sums, begin, end);
  const TensorShape& to = sums.destination;
  if (to.channels < kGatherVectorRow) return sumShortRows<T>(sums, begin, end);
  const auto* const gradient = reinterpret_cast<const T*>(sums.gradientMemory);
  auto* const destination = reinterpret_cast<T*>(sums.destinationMemory);
  const std::int64_t parts = (to.channels + kGatherColumns - 1) / kGatherColumns;
  for (std::int64_t part = begin; part < end; ++part) {
    const std::int64_t row = part / parts;
    const std::int64_t n = row / to.height;
    const std::int64_t k = row % to.height;
    const std::int64_t first = part % parts * kGatherColumns;
    sumRow(gradient + sums.gradient.offset(n, 0, 0, first), sums.gradient.rowStride,
           sums.places + sums.starts[k], sums.starts[k + 1] - sums.starts[k],
           sums.starts[to.height] - sums.starts[k], std::min(kGatherColumns, to.channels - first),
           sums.isNonTemporal, destination + to.offset(n, k, 0, first));
  }
  if (sums.isNonTemporal) finishNonTemporalStores();
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
