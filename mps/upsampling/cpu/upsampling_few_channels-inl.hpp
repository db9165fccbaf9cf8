// Weighted sums of columns whose pixels do not fill a vector, once per instruction set. Include it after hwy/highway.h in
// a file that hwy/foreach_target.h compiles several times; mps/core/cpu/highway_targets.hpp comes before both.

#if defined(UNMETAL_MPS_UPSAMPLING_UPSAMPLING_FEW_CHANNELS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_UPSAMPLING_UPSAMPLING_FEW_CHANNELS_INL_HPP
#undef UNMETAL_MPS_UPSAMPLING_UPSAMPLING_FEW_CHANNELS_INL_HPP
#else
#define UNMETAL_MPS_UPSAMPLING_UPSAMPLING_FEW_CHANNELS_INL_HPP
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "mps/core/cpu/vector_io-inl.hpp"
#include "mps/upsampling/cpu/upsampling_vectors-inl.hpp"
#include "mps/upsampling/upsampling_taps.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Lane i: element index[i] of two vectors.
template <class D, class V, class VI>
HWY_INLINE V lookUpInTwo([[maybe_unused]] D d, V low, V high, VI index) {
#if HWY_TARGET == HWY_AVX3
  return V{_mm512_permutex2var_ps(low.raw, index.raw, high.raw)};
#else
  const hn::RebindToSigned<D> di;
  const auto lanes = static_cast<std::int32_t>(hn::Lanes(d));
  const auto inVector = hn::IndicesFromVec(d, hn::And(index, hn::Set(di, lanes - 1)));
  const auto isHigh = hn::RebindMask(d, hn::Ne(hn::And(index, hn::Set(di, lanes)), hn::Zero(di)));
  return hn::IfThenElse(isHigh, hn::TableLookupLanes(high, inVector), hn::TableLookupLanes(low, inVector));
#endif
}

/// A tile's part of a destination row, of `length` elements: their columns of a row of adjacent float32.
/// @param line the tile's first  @param from the tile's first input element; FewChannelTable::mostRoom more are read
template <bool areInTwoVectors, class U, class Stores>
void sumFewChannels(const FewChannelTable& table, std::size_t line, std::int64_t channels, std::size_t length,
                    const float* from, const Stores& stores, U* to) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  using V = hn::Vec<decltype(d)>;
  const std::size_t step = hn::Lanes(d);
  const std::size_t taps = table.taps;
  const std::int32_t* first = table.first.data() + line;
  const std::int32_t* indices = table.indices.data() + line * step;
  const float* weights = table.weights.data() + line * taps * step;
  const Stores ownStores = stores;  // a copy that no store can change
  forVectors(
      d, length, [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
        const float* const own = from + *first;
        const auto index = hn::LoadU(di, indices);
        const V low = areInTwoVectors ? hn::LoadU(d, own) : hn::Zero(d);
        const V high = areInTwoVectors ? hn::LoadU(d, own + step) : hn::Zero(d);
        // What counts nothing may be infinite.
        const auto tap = [&](std::size_t k, V weight) HWY_ATTR __attribute__((always_inline)) {
          const auto distance = static_cast<std::int32_t>(static_cast<std::int64_t>(k) * channels);
          const V value = areInTwoVectors ? lookUpInTwo(d, low, high, hn::Add(index, hn::Set(di, distance)))
                                          : hn::GatherIndex(d, own + distance, index);
          return hn::IfThenElseZero(hn::Ne(weight, hn::Zero(d)), value);
        };
        V weight = hn::LoadU(d, weights);
        V sum = hn::Mul(tap(0, weight), weight);
        for (std::size_t k = 1; k < taps; ++k) {
          weight = hn::LoadU(d, weights + k * step);
          sum = hn::MulAdd(tap(k, weight), weight, sum);
        }
        ownStores(d, lanes, sum, to + i);
        ++first;
        indices += step;
        weights += taps * step;
      });
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
