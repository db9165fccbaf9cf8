// Loops over runs of float32 or float16 values, once per instruction set. Include it after hwy/highway.h in a
// file that hwy/foreach_target.h compiles several times; mps/core/highway_targets.hpp comes before both.

#if defined(UNMETAL_MPS_CORE_VECTOR_RUNS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_CORE_VECTOR_RUNS_INL_HPP
#undef UNMETAL_MPS_CORE_VECTOR_RUNS_INL_HPP
#else
#define UNMETAL_MPS_CORE_VECTOR_RUNS_INL_HPP
#endif

#include <hwy/highway.h>

#include <cstddef>

#include "mps/core/float_run.hpp"
#include "mps/core/vector_io-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

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
    if (to.isHalf) return storeFloats(d, value, static_cast<Float16*>(to.address));
    store(d, value, static_cast<float*>(to.address));
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

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
