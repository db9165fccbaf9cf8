// Weighted sums of rows and columns, once per instruction set. Include it after hwy/highway.h in a file that
// hwy/foreach_target.h compiles several times; mps/core/cpu/highway_targets.hpp comes before both.

#if defined(UNMETAL_MPS_UPSAMPLING_UPSAMPLING_VECTORS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_UPSAMPLING_UPSAMPLING_VECTORS_INL_HPP
#undef UNMETAL_MPS_UPSAMPLING_UPSAMPLING_VECTORS_INL_HPP
#else
#define UNMETAL_MPS_UPSAMPLING_UPSAMPLING_VECTORS_INL_HPP
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "mps/core/cpu/vector_runs-inl.hpp"
#include "mps/upsampling/upsampling_taps.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Taps of a row or column, and where in memory input `begin` lies.
template <class T>
struct TappedRuns {
  const UpsamplingTap* taps = nullptr;
  std::size_t count = 0;
  const T* first = nullptr;
  std::int64_t begin = 0;
  std::int64_t stride = 0;

  HWY_INLINE const T* at(std::size_t k) const { return first + (taps[k].input - begin) * stride; }
};

template <class T>
inline constexpr bool isFloating = std::is_same_v<T, float> || std::is_same_v<T, Float16>;

/// How a destination is written.
struct UpsamplingStores {
  bool accumulates = false;
  bool streams = false;

  template <class D, class T, class V = hn::Vec<D>>
  HWY_INLINE void operator()(D d, AllLanes, V value, T* to) const {
    if (accumulates) value = hn::Add(value, loadFloats(d, to));
    if constexpr (isFloating<T>)
      storeOrStream(d, value, to, streams);
    else
      storeFloats(d, value, to);
  }
  template <class D, class T, class V = hn::Vec<D>>
  HWY_INLINE void operator()(D d, FirstLanes lanes, V value, T* to) const {
    if (accumulates) value = hn::Add(value, loadFloats(d, to, lanes.count));
    storeFloats(d, value, to, lanes.count);
  }
};

/// To working memory.
struct OrdinaryStores {
  static constexpr bool accumulates = false;
  static constexpr bool streams = false;

  template <class D, class T, class V = hn::Vec<D>>
  HWY_INLINE void operator()(D d, AllLanes, V value, T* to) const {
    storeFloats(d, value, to);
  }
  template <class D, class T, class V = hn::Vec<D>>
  HWY_INLINE void operator()(D d, FirstLanes lanes, V value, T* to) const {
    storeFloats(d, value, to, lanes.count);
  }
};

/// The weighted sum of a vector of each run, from element i on.
template <class T, class U, class Load, class Stores>
HWY_INLINE void sumVector(const TappedRuns<T>& runs, std::size_t i, Load&& load, const Stores& store,
                          auto lanes, U* to) {
  const hn::ScalableTag<float> d;
  auto sum = hn::Mul(load(runs.at(0) + i), hn::Set(d, runs.taps[0].weight));
  for (std::size_t k = 1; k < runs.count; ++k)
    sum = hn::MulAdd(load(runs.at(k) + i), hn::Set(d, runs.taps[k].weight), sum);
  store(d, lanes, sum, to + i);
}

/// Adjacent vectors: what is done for each tap pays for all.
template <class D>
struct FourVectors {
  using V = hn::Vec<D>;

  template <class T>
  static HWY_INLINE FourVectors load(D d, const T* from) {
    const std::size_t step = hn::Lanes(d);
    return {loadFloats(d, from), loadFloats(d, from + step), loadFloats(d, from + 2 * step),
            loadFloats(d, from + 3 * step)};
  }
  static HWY_INLINE FourVectors of(V value) { return {value, value, value, value}; }
  HWY_INLINE void add(const FourVectors& values, V weight) {
    first = hn::MulAdd(values.first, weight, first);
    second = hn::MulAdd(values.second, weight, second);
    third = hn::MulAdd(values.third, weight, third);
    fourth = hn::MulAdd(values.fourth, weight, fourth);
  }
  template <class Stores, class U>
  HWY_INLINE void store(D d, const Stores& store, U* to) const {
    const std::size_t step = hn::Lanes(d);
    store(d, AllLanes(), first, to);
    store(d, AllLanes(), second, to + step);
    store(d, AllLanes(), third, to + 2 * step);
    store(d, AllLanes(), fourth, to + 3 * step);
  }

  V first, second, third, fourth;
};

/// The same of four vectors.
template <class T, class U, class Stores>
HWY_INLINE void sumFourVectors(const TappedRuns<T>& runs, std::size_t i, const Stores& store, U* to) {
  const hn::ScalableTag<float> d;
  using Four = FourVectors<decltype(d)>;
  // To which the first product is added without a rounding or another sign of 0.
  Four sum = Four::of(hn::Set(d, -0.0F));
  for (std::size_t k = 0; k < runs.count; ++k)
    sum.add(Four::load(d, runs.at(k) + i), hn::Set(d, runs.taps[k].weight));
  sum.store(d, store, to + i);
}

/// to[i] = the weighted sum of runs[...][i]; 0 without taps.
template <class T, class U, class Stores>
void sumRuns(const TappedRuns<T>& runs, std::size_t length, const Stores& store, U* to) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  // Copies of their own, which no store can change.
  const TappedRuns<T> own = runs;
  const Stores ownStore = store;
  if (own.count == 0) {
    forVectors(d, length, [&](std::size_t i, auto some) { ownStore(d, some, hn::Zero(d), to + i); });
    return;
  }
  std::size_t i = 0;
  for (; i + 4 * lanes <= length; i += 4 * lanes) sumFourVectors(own, i, ownStore, to);
  if (i == length) return;
  // What remains ends with whole vectors, some elements of which are computed again.
  const bool mayRepeat = !ownStore.accumulates && !ownStore.streams;
  if (mayRepeat && length >= 4 * lanes && length - i > lanes)
    return sumFourVectors(own, length - 4 * lanes, ownStore, to);
  const auto whole = [&](const T* from) HWY_ATTR { return loadFloats(d, from); };
  for (; i + lanes <= length; i += lanes) sumVector(own, i, whole, ownStore, AllLanes(), to);
  if (i == length) return;
  if (mayRepeat && length >= lanes) return sumVector(own, length - lanes, whole, ownStore, AllLanes(), to);
  const std::size_t rest = length - i;
  const auto part = [&](const T* from) HWY_ATTR { return loadFloats(d, from, rest); };
  sumVector(own, i, part, ownStore, FirstLanes{rest}, to);
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
