// Loops over runs of float32 or float16 values, once per instruction set. Include it after hwy/highway.h in a
// file that hwy/foreach_target.h compiles several times; mps/core/cpu/highway_targets.hpp comes before both.

#if defined(UNMETAL_MPS_CORE_VECTOR_RUNS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_CORE_VECTOR_RUNS_INL_HPP
#undef UNMETAL_MPS_CORE_VECTOR_RUNS_INL_HPP
#else
#define UNMETAL_MPS_CORE_VECTOR_RUNS_INL_HPP
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "mps/core/cpu/vector_io-inl.hpp"
#include "mps/core/types/float_run.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Calls body(0), body(1), ... with numbers of the type of `count` that the compiler knows, so that vectors stay in
/// registers.
template <auto count, class Body>
HWY_INLINE void unrolled(Body&& body) {
  using Number = decltype(count);
  [&]<Number... i>(std::integer_sequence<Number, i...>) HWY_ATTR __attribute__((always_inline)) {
    (body(std::integral_constant<Number, i>()), ...);
  }
  (std::make_integer_sequence<Number, count>());
}

/// Loads and stores whole vectors.
struct AllLanes {
  template <class D>
  HWY_INLINE hn::Vec<D> load(D d, const float* from) const {
    return hn::LoadU(d, from);
  }
  template <class D, class V>
  HWY_INLINE void store(D d, V value, float* to) const {
    hn::StoreU(value, d, to);
  }
  template <class D>
  HWY_INLINE hn::Vec<D> load(D d, ConstFloatRun from) const {
    if (from.isHalf) return loadFloats(d, static_cast<const Float16*>(from.address));
    return load(d, static_cast<const float*>(from.address));
  }
  template <class D, class V>
  HWY_INLINE void store(D d, V value, FloatRun to) const {
    if (to.isHalf) return storeOrStream(d, value, static_cast<Float16*>(to.address), to.isNonTemporal);
    storeOrStream(d, value, static_cast<float*>(to.address), to.isNonTemporal);
  }
};

/// Loads and stores the first `count` lanes; the others are loaded as 0.
struct FirstLanes {
  std::size_t count;
  template <class D>
  HWY_INLINE hn::Vec<D> load(D d, const float* from) const {
    return loadFloats(d, from, count);
  }
  template <class D, class V>
  HWY_INLINE void store(D d, V value, float* to) const {
    storeFloats(d, value, to, count);
  }
  template <class D>
  HWY_INLINE hn::Vec<D> load(D d, ConstFloatRun from) const {
    if (from.isHalf) return loadFloats(d, static_cast<const Float16*>(from.address), count);
    return load(d, static_cast<const float*>(from.address));
  }
  template <class D, class V>
  HWY_INLINE void store(D d, V value, FloatRun to) const {
    if (to.isHalf) return storeFloats(d, value, static_cast<Float16*>(to.address), count);
    store(d, value, static_cast<float*>(to.address));
  }
};

/// Calls body(i, lanes) for i = 0, Lanes(d), 2 Lanes(d), ... below `count`; `lanes` is AllLanes but for a
/// rest.
template <class D, class Body>
HWY_INLINE void forVectors(D d, std::size_t count, Body&& body) {
  const std::size_t step = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + step <= count; i += step) body(i, AllLanes{});
  if (i < count) body(i, FirstLanes{count % step});
}

/// Lane i of the result is op over the lanes of row i of as many rows as vectors have lanes, adjacent and aligned. Two
/// shuffles a row, where a reduction of its own costs two for each power of two.
template <class D, class Op>
HWY_INLINE hn::Vec<D> reduceStoredRows(D d, const float* rows, Op&& op) {
#if HWY_TARGET == HWY_SCALAR
  (void)op;
  return hn::Load(d, rows);
#else
  using V = hn::Vec<D>;
  constexpr std::size_t lanes = hn::MaxLanes(D());
  const hn::Repartition<std::uint64_t, D> pairs;
  // Each block of four lanes: parts of two rows, alternating.
  const auto two = [&](std::size_t i) HWY_ATTR __attribute__((always_inline)) {
    const V a = hn::Load(d, rows + i * lanes);
    const V b = hn::Load(d, rows + (i + 1) * lanes);
    return op(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  };
  // Each block of four lanes: parts of four rows.
  const auto four = [&](std::size_t i) HWY_ATTR __attribute__((always_inline)) {
    const auto a = hn::BitCast(pairs, two(i));
    const auto b = hn::BitCast(pairs, two(i + 2));
    return op(hn::BitCast(d, hn::InterleaveLower(pairs, a, b)),
              hn::BitCast(d, hn::InterleaveUpper(pairs, a, b)));
  };
  if constexpr (lanes == 4) {
    return four(0);
  } else {
    const auto eight = [&](std::size_t i, std::size_t j) HWY_ATTR __attribute__((always_inline)) {
      const V a = four(i);
      const V b = four(j);
      return op(hn::ConcatLowerLower(d, b, a), hn::ConcatUpperUpper(d, b, a));
    };
    if constexpr (lanes == 8) {
      return eight(0, 4);
    } else {
      static_assert(lanes == 16);
      const V a = eight(0, 8);
      const V b = eight(4, 12);
      return op(hn::OddEvenBlocks(b, a), hn::SwapAdjacentBlocks(hn::OddEvenBlocks(a, b)));
    }
  }
#endif
}

/// results[i] = op over the lanes of row(i), for i < count; whole vectors are stored.
template <class D, class Row, class Op>
HWY_INLINE void reduceRows(D d, std::size_t count, Row&& row, Op&& op, float* results) {
  constexpr std::size_t lanes = hn::MaxLanes(D());
  HWY_ALIGN float rows[lanes * lanes];
  for (std::size_t first = 0; first < count; first += lanes) {
    const std::size_t last = std::min(lanes, count - first);
    for (std::size_t i = 0; i < last; ++i) hn::Store(row(first + i), d, rows + i * lanes);
    for (std::size_t i = last; i < lanes; ++i) hn::Store(hn::Zero(d), d, rows + i * lanes);
    hn::StoreU(reduceStoredRows(d, rows, op), d, results + first);
  }
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
