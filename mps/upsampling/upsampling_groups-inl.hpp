// Weighted sums of columns whose pixels do not fill a vector, once per instruction set. Include it after hwy/highway.h in
// a file that hwy/foreach_target.h compiles several times; mps/core/highway_targets.hpp comes before both.

#if defined(UNMETAL_MPS_UPSAMPLING_UPSAMPLING_GROUPS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_UPSAMPLING_UPSAMPLING_GROUPS_INL_HPP
#undef UNMETAL_MPS_UPSAMPLING_UPSAMPLING_GROUPS_INL_HPP
#else
#define UNMETAL_MPS_UPSAMPLING_UPSAMPLING_GROUPS_INL_HPP
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "mps/core/vector_io-inl.hpp"
#include "mps/upsampling/upsampling_taps.hpp"
#include "mps/upsampling/upsampling_vectors-inl.hpp"

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

/// Lane i: element index[i] of those from `from` on.
template <UpsamplingLookup lookup, class D, class VI>
HWY_INLINE hn::Vec<D> lookUp(D d, const float* from, VI index) {
  const std::size_t lanes = hn::Lanes(d);
  if constexpr (lookup == UpsamplingLookup::Elements) {
    return hn::GatherIndex(d, from, index);
  } else if constexpr (lookup == UpsamplingLookup::OneVector) {
    return hn::TableLookupLanes(hn::LoadU(d, from), hn::IndicesFromVec(d, index));
  } else if constexpr (lookup == UpsamplingLookup::TwoVectors) {
    return lookUpInTwo(d, hn::LoadU(d, from), hn::LoadU(d, from + lanes), index);
  } else {
    static_assert(lookup == UpsamplingLookup::FourVectors);
    const hn::RebindToSigned<D> di;
    const auto isBehind =
        hn::RebindMask(d, hn::Gt(index, hn::Set(di, static_cast<std::int32_t>(2 * lanes) - 1)));
    return hn::IfThenElse(isBehind, lookUp<UpsamplingLookup::TwoVectors>(d, from + 2 * lanes, index),
                          lookUp<UpsamplingLookup::TwoVectors>(d, from, index));
  }
}

/// The vectors that hold what all taps of a group read from a row.
template <UpsamplingLookup lookup, class D>
struct GroupVectors {
  template <class T>
  HWY_INLINE GroupVectors(D d, const T* from) : first(loadFloats(d, from)) {
    if constexpr (lookup == UpsamplingLookup::ThreeVectorsForAllTaps) {
      second = loadFloats(d, from + hn::Lanes(d));
      third = loadFloats(d, from + 2 * hn::Lanes(d));
    }
  }
  template <class VI>
  HWY_INLINE hn::Vec<D> operator()(D d, [[maybe_unused]] std::size_t k, VI index) const {
    if constexpr (lookup == UpsamplingLookup::OneVectorForAllTaps) {
      return hn::TableLookupLanes(first, hn::IndicesFromVec(d, index));
    } else {
      if (k == 0) return lookUpInTwo(d, first, second, index);
      const hn::RebindToSigned<D> di;
      const auto lanes = static_cast<std::int32_t>(hn::Lanes(d));
      const auto isThird = hn::RebindMask(d, hn::Gt(index, hn::Set(di, 2 * lanes - 1)));
      const auto inVector = hn::IndicesFromVec(d, hn::And(index, hn::Set(di, lanes - 1)));
      return hn::IfThenElse(isThird, hn::TableLookupLanes(third, inVector),
                            lookUpInTwo(d, first, second, index));
    }
  }

  hn::Vec<D> first;
  hn::Vec<D> second = hn::Zero(D());
  hn::Vec<D> third = hn::Zero(D());
};

/// A group's taps. @tparam known number of them; 0: any
template <UpsamplingLookup lookup, std::size_t known, class D>
class GroupTaps {
 public:
  HWY_INLINE GroupTaps(D d, const UpsamplingGroups& groups, std::int64_t channels,
                       const std::int32_t* indices, const float* weights)
      : count_(known == 0 ? groups.taps : known),
        channels_(channels),
        weights_(weights),
        index_(hn::LoadU(hn::RebindToSigned<D>(), indices)),
        weight0_(weight(d, 0)),
        weight1_(known > 1 ? weight(d, 1) : weight0_),
        weight2_(known > 2 ? weight(d, 2) : weight0_),
        weight3_(known > 3 ? weight(d, 3) : weight0_) {}

  /// @param from what tap 0 reads
  template <bool isFull, class T>
  HWY_INLINE hn::Vec<D> sum(D d, const T* from) const {
    if constexpr (lookup == UpsamplingLookup::OneVectorForAllTaps ||
                  lookup == UpsamplingLookup::ThreeVectorsForAllTaps) {
      const GroupVectors<lookup, D> vectors(d, from);
      const hn::RebindToSigned<D> di;
      return sumOf<isFull>(
          d, [&](std::size_t k) HWY_ATTR __attribute__((always_inline)) {
            const auto distance = static_cast<std::int32_t>(static_cast<std::int64_t>(k) * channels_);
            return vectors(d, k, hn::Add(index_, hn::Set(di, distance)));
          });
    } else {
      return sumOf<isFull>(
          d, [&](std::size_t k) HWY_ATTR __attribute__((always_inline)) {
            return lookUp<lookup>(d, from + static_cast<std::int64_t>(k) * channels_, index_);
          });
    }
  }

 private:
  HWY_INLINE hn::Vec<D> weight(D d, std::size_t k) const { return hn::LoadU(d, weights_ + k * hn::Lanes(d)); }
  template <bool isFull, class Value>
  HWY_INLINE hn::Vec<D> sumOf(D d, Value&& value) const {
    auto sum = hn::Mul(counted<isFull>(d, value(0), weight0_), weight0_);
    if constexpr (known > 1) sum = hn::MulAdd(counted<isFull>(d, value(1), weight1_), weight1_, sum);
    if constexpr (known > 2) sum = hn::MulAdd(counted<isFull>(d, value(2), weight2_), weight2_, sum);
    if constexpr (known > 3) sum = hn::MulAdd(counted<isFull>(d, value(3), weight3_), weight3_, sum);
    if constexpr (known == 0)
      for (std::size_t k = 1; k < count_; ++k)
        sum = hn::MulAdd(counted<isFull>(d, value(k), weight(d, k)), weight(d, k), sum);
    return sum;
  }
  /// A tap of weight 0 is none, whatever its value.
  template <bool isFull>
  HWY_INLINE hn::Vec<D> counted(D d, hn::Vec<D> value, hn::Vec<D> weight) const {
    return isFull ? value : hn::IfThenElseZero(hn::Ne(weight, hn::Zero(d)), value);
  }

  std::size_t count_;
  std::int64_t channels_;
  const float* weights_;
  hn::Vec<hn::RebindToSigned<D>> index_;
  hn::Vec<D> weight0_;
  hn::Vec<D> weight1_;
  hn::Vec<D> weight2_;
  hn::Vec<D> weight3_;
};

/// Rows whose columns are summed together: each `stride` elements behind the one before.
template <class T>
struct PackedRun {
  T* first = nullptr;
  std::int64_t stride = 0;

  HWY_INLINE T* row(std::int64_t r) const { return first + r * stride; }
};

template <UpsamplingLookup lookup, std::size_t known, class T, class U>
void sumGroupsOf(const UpsamplingGroups& groups, std::size_t group, std::int64_t channels, std::size_t length,
                 std::int64_t rows, const PackedRun<const T>& from, const PackedRun<U>& to) {
  const hn::ScalableTag<float> d;
  const std::size_t step = hn::Lanes(d);
  const std::size_t weightStep = (known == 0 ? groups.taps : known) * step;
  const std::int32_t* first = groups.first.data() + group;
  const std::uint8_t* isFull = groups.isFull.data() + group;
  const std::int32_t* indices = groups.indices.data() + group * step;
  const float* weights = groups.weights.data() + group * weightStep;
  // Copies of their own, which no store can change.
  const PackedRun<const T> ownFrom = from;
  const PackedRun<U> ownTo = to;
  forVectors(
      d, length, [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
        const GroupTaps<lookup, known, decltype(d)> taps(d, groups, channels, indices, weights);
        const auto sumRows = [&](auto all) HWY_ATTR __attribute__((always_inline)) {
          for (std::int64_t r = 0; r < rows; ++r)
            OrdinaryStores()(d, lanes, taps.template sum<all()>(d, ownFrom.row(r) + *first),
                             ownTo.row(r) + i);
        };
        if (*isFull != 0)
          sumRows(std::true_type());
        else
          sumRows(std::false_type());
        ++first;
        ++isFull;
        indices += step;
        weights += weightStep;
      });
}

/// A tile's part of destination rows, of `length` elements each. @param group the tile's first
/// @param from the tile's first input element; groups.room more than the tile has are read. Elements other than float32
///        are for OneVectorForAllTaps
template <class T, class U>
void sumGroups(const UpsamplingGroups& groups, std::size_t group, std::int64_t channels, std::size_t length,
               std::int64_t rows, const PackedRun<const T>& from, const PackedRun<U>& to) {
  using enum UpsamplingLookup;
  const auto sum = [&]<UpsamplingLookup lookup, std::size_t known>() {
    sumGroupsOf<lookup, known>(groups, group, channels, length, rows, from, to);
  };
  const auto sumKnown = [&]<UpsamplingLookup lookup>() {
    if (groups.taps == 1) return sum.template operator()<lookup, 1>();
    if (groups.taps == 2) return sum.template operator()<lookup, 2>();
    if (groups.taps == 3) return sum.template operator()<lookup, 3>();
    if (groups.taps == 4) return sum.template operator()<lookup, 4>();
    sum.template operator()<lookup, 0>();
  };
  if (groups.lookup == OneVectorForAllTaps) return sumKnown.template operator()<OneVectorForAllTaps>();
  if constexpr (std::is_same_v<T, float>) {
    if (groups.lookup == ThreeVectorsForAllTaps)
      return sumKnown.template operator()<ThreeVectorsForAllTaps>();
    if (groups.lookup == OneVector) return sum.template operator()<OneVector, 0>();
    if (groups.lookup == TwoVectors) return sum.template operator()<TwoVectors, 0>();
    if (groups.lookup == FourVectors) return sum.template operator()<FourVectors, 0>();
    sum.template operator()<Elements, 0>();
  }
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
