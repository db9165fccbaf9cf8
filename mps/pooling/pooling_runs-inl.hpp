// Loops over flat runs of float32 elements that pooling is made of, once per instruction set. Runs in working
// memory have room for a whole vector at their end (runLength), so they are read without regard to their end;
// written is only what belongs to the run.

#if defined(UNMETAL_MPS_POOLING_RUNS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_POOLING_RUNS_INL_HPP
#undef UNMETAL_MPS_POOLING_RUNS_INL_HPP
#else
#define UNMETAL_MPS_POOLING_RUNS_INL_HPP
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "mps/core/vector_io-inl.hpp"
#include "mps/pooling/pooling_layout.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using FloatVector = hn::Vec<FloatTag>;
using IndexTag = hn::RebindToSigned<FloatTag>;
using IndexVector = hn::Vec<IndexTag>;

/// Calls body(offset, store), where store(vector, to) writes the lanes that belong to a run of `length`.
struct WholeVector {
  HWY_INLINE void operator()(FloatVector value, float* to) const { hn::StoreU(value, FloatTag(), to); }
};
struct PartialVector {
  std::size_t count;
  HWY_INLINE void operator()(FloatVector value, float* to) const {
    storeFloats(FloatTag(), value, to, count);
  }
};
template <class Body>
HWY_INLINE void forEachVector(std::size_t length, const Body& body) {
  const std::size_t lanes = hn::Lanes(FloatTag());
  std::size_t e = 0;
  for (; e + lanes <= length; e += lanes) body(e, WholeVector());
  if (e < length) body(e, PartialVector{length - e});
}

inline void fillRun(float* to, float value, std::size_t length) {
  std::fill(to, to + length, value);
}

// Combination of taps
// -----------------------------------------------------------------------------------------------

/// Greater, or NaN where there was none: the first maximum stays, the first NaN stays.
struct Maximum {
  static HWY_INLINE FloatVector first(FloatVector v) { return v; }
  static HWY_INLINE FloatVector add(FloatVector best, FloatVector v) {
    return hn::IfThenElse(hn::Or(hn::Gt(v, best), hn::IsNaN(v)), v, best);
  }
};
struct Sum {
  static HWY_INLINE FloatVector first(FloatVector v) { return v; }
  static HWY_INLINE FloatVector add(FloatVector sum, FloatVector v) { return hn::Add(sum, v); }
};
struct SumOfSquares {
  static HWY_INLINE FloatVector first(FloatVector v) { return hn::Mul(v, v); }
  static HWY_INLINE FloatVector add(FloatVector sum, FloatVector v) { return hn::MulAdd(v, v, sum); }
};

struct Unchanged {
  HWY_INLINE FloatVector operator()(FloatVector v) const { return v; }
};
struct Quotient {
  float divisor;
  HWY_INLINE FloatVector operator()(FloatVector v) const { return hn::Div(v, hn::Set(FloatTag(), divisor)); }
};
struct Product {
  float factor;
  HWY_INLINE FloatVector operator()(FloatVector v) const { return hn::Mul(v, hn::Set(FloatTag(), factor)); }
};
struct SquareRoot {
  HWY_INLINE FloatVector operator()(FloatVector v) const { return hn::Sqrt(v); }
};

/// Calls use(finish) with a division by `divisor`: by way of the reciprocal where that gives the same bits.
template <class Use>
void withExactQuotient(std::int64_t divisor, const Use& use) {
  const auto asFloat = static_cast<float>(divisor);
  const bool isPowerOfTwo = (divisor & (divisor - 1)) == 0;
  if (isPowerOfTwo)
    use(Product{1.0F / asFloat});
  else
    use(Quotient{asFloat});
}

/// to[e] = finish(operation over taps[k][e]) for a number of taps that the compiler knows.
template <class Operation, std::size_t taps, class Finish>
HWY_INLINE void combineFixed(const float* const* tap, float* to, std::size_t length, Finish finish) {
  const FloatTag d;
  const float* from[taps];
  for (std::size_t k = 0; k < taps; ++k) from[k] = tap[k];
  forEachVector(length, [&](std::size_t e, auto store) HWY_ATTR {
    FloatVector result = Operation::first(hn::LoadU(d, from[0] + e));
    for (std::size_t k = 1; k < taps; ++k) result = Operation::add(result, hn::LoadU(d, from[k] + e));
    store(finish(result), to + e);
  });
}

template <class Operation, class Finish>
void combine(const float* const* tap, std::size_t taps, float* to, std::size_t length, Finish finish) {
  if (taps == 1) return combineFixed<Operation, 1>(tap, to, length, finish);
  if (taps == 2) return combineFixed<Operation, 2>(tap, to, length, finish);
  if (taps == 3) return combineFixed<Operation, 3>(tap, to, length, finish);
  const FloatTag d;
  forEachVector(length, [&](std::size_t e, auto store) HWY_ATTR {
    FloatVector result = Operation::first(hn::LoadU(d, tap[0] + e));
    for (std::size_t k = 1; k < taps; ++k) result = Operation::add(result, hn::LoadU(d, tap[k] + e));
    store(finish(result), to + e);
  });
}

/// The first maximum (or first NaN) of the candidates and its index.
inline void combineIndexed(const Candidate* candidate, std::size_t candidates, float* to,
                           std::int32_t* toIndex, std::size_t length) {
  const FloatTag d;
  const IndexTag di;
  const auto indexOf = [&](std::size_t k, std::size_t e) HWY_ATTR {
    const IndexVector addend = hn::Set(di, candidate[k].addend);
    if (candidate[k].indices == nullptr) return addend;
    return hn::Add(hn::LoadU(di, candidate[k].indices + e), addend);
  };
  forEachVector(length, [&](std::size_t e, auto store) HWY_ATTR {
    FloatVector best = hn::LoadU(d, candidate[0].values + e);
    IndexVector index = indexOf(0, e);
    for (std::size_t k = 1; k < candidates; ++k) {
      const FloatVector v = hn::LoadU(d, candidate[k].values + e);
      const auto wins = hn::AndNot(hn::IsNaN(best), hn::Not(hn::Le(v, best)));
      best = hn::IfThenElse(wins, v, best);
      index = hn::IfThenElse(hn::RebindMask(di, wins), indexOf(k, e), index);
    }
    store(best, to + e);
    hn::StoreU(index, di, toIndex + e);
  });
}

/// Outside zeros win where they are greater than the maximum of the image.
inline void admitOutsideZero(float* values, std::size_t length) {
  const FloatTag d;
  forEachVector(length, [&](std::size_t e, auto store) HWY_ATTR {
    const FloatVector v = loadFloats(d, values + e, std::min(hn::Lanes(d), length - e));
    store(hn::IfThenZeroElse(hn::Lt(v, hn::Zero(d)), v), values + e);
  });
}

/// The same, with `noIndex` as their index.
inline void admitOutsideZero(float* values, std::int32_t* indices, std::int32_t noIndex, std::size_t length) {
  const FloatTag d;
  const IndexTag di;
  forEachVector(length, [&](std::size_t e, auto store) HWY_ATTR {
    const std::size_t count = std::min(hn::Lanes(d), length - e);
    const FloatVector v = loadFloats(d, values + e, count);  // zeros, which do not lose, beyond the run
    const auto loses = hn::Lt(v, hn::Zero(d));
    const IndexVector index = hn::LoadU(di, indices + e);
    hn::StoreU(hn::IfThenElse(hn::RebindMask(di, loses), hn::Set(di, noIndex), index), di, indices + e);
    store(hn::IfThenZeroElse(loses, v), values + e);
  });
}

// Gradients
// ---------------------------------------------------------------------------------------------------------

HWY_INLINE FloatVector contribute(const Contribution& from, std::size_t e) {
  const FloatTag d;
  const IndexTag di;
  const auto chosen = hn::Eq(hn::LoadU(di, from.indices + e), hn::Set(di, from.code));
  return hn::IfThenElseZero(hn::RebindMask(d, chosen), hn::LoadU(d, from.gradient + e));
}

template <std::size_t count>
HWY_INLINE void gatherFixed(const Contribution* contribution, float* to, std::size_t length) {
  Contribution from[count];
  for (std::size_t k = 0; k < count; ++k) from[k] = contribution[k];
  forEachVector(length, [&](std::size_t e, auto store) HWY_ATTR {
    FloatVector sum = contribute(from[0], e);
    for (std::size_t k = 1; k < count; ++k) sum = hn::Add(sum, contribute(from[k], e));
    store(sum, to + e);
  });
}

/// to[e] = sum of the contributions, after what it holds if `keep` is set.
inline void gather(const Contribution* contribution, std::size_t count, float* to, std::size_t length,
                   bool keep) {
  if (!keep && count == 1) return gatherFixed<1>(contribution, to, length);
  if (!keep && count == 2) return gatherFixed<2>(contribution, to, length);
  if (!keep && count == 4) return gatherFixed<4>(contribution, to, length);
  if (!keep && count == 9) return gatherFixed<9>(contribution, to, length);
  const FloatTag d;
  forEachVector(length, [&](std::size_t e, auto store) HWY_ATTR {
    FloatVector sum = keep ? loadFloats(d, to + e, std::min(hn::Lanes(d), length - e)) : hn::Zero(d);
    for (std::size_t k = 0; k < count; ++k) sum = hn::Add(sum, contribute(contribution[k], e));
    store(sum, to + e);
  });
}

/// gradient[e] /= norm[e], 0 where the norm is 0.
inline void divideByNorm(float* gradient, const float* norm, std::size_t length) {
  const FloatTag d;
  forEachVector(length, [&](std::size_t e, auto store) HWY_ATTR {
    const FloatVector n = hn::LoadU(d, norm + e);
    const FloatVector quotient = hn::Div(hn::LoadU(d, gradient + e), n);
    store(hn::IfThenZeroElse(hn::Eq(n, hn::Zero(d)), quotient), gradient + e);
  });
}

// Pixels
// ------------------------------------------------------------------------------------------------------------

/// Copies pixels of `channels` floats whose distances are fromStride and toStride.
template <std::size_t channels>
HWY_INLINE void copyPixelsFixed(const float* HWY_RESTRICT from, std::size_t fromStride,
                                float* HWY_RESTRICT to, std::size_t toStride, std::size_t count) {
  for (std::size_t k = 0; k < count; ++k)
    for (std::size_t c = 0; c < channels; ++c) to[k * toStride + c] = from[k * fromStride + c];
}

inline void copyPixels(const float* from, std::size_t fromStride, float* to, std::size_t toStride,
                       std::size_t count, std::size_t channels) {
  if (channels == 1) return copyPixelsFixed<1>(from, fromStride, to, toStride, count);
  if (channels == 2) return copyPixelsFixed<2>(from, fromStride, to, toStride, count);
  if (channels == 3) return copyPixelsFixed<3>(from, fromStride, to, toStride, count);
  if (channels == 4) return copyPixelsFixed<4>(from, fromStride, to, toStride, count);
  for (std::size_t k = 0; k < count; ++k)
    for (std::size_t c = 0; c < channels; ++c) to[k * toStride + c] = from[k * fromStride + c];
}

/// Converts pixels of `channels` elements that lie fromStride apart to a flat run.
template <class T>
void loadPixels(const T* from, std::size_t fromStride, float* to, std::size_t count, std::size_t channels) {
  if (fromStride == channels) return convertToFloats(from, to, count * channels);
  for (std::size_t k = 0; k < count; ++k) convertToFloats(from + k * fromStride, to + k * channels, channels);
}

/// Converts a flat run to pixels that lie toStride apart.
template <class T>
void storePixels(const float* from, T* to, std::size_t toStride, std::size_t count, std::size_t channels) {
  if (toStride == channels) return convertFromFloats(from, to, count * channels);
  for (std::size_t k = 0; k < count; ++k) convertFromFloats(from + k * channels, to + k * toStride, channels);
}

/// values[e] *= from[e]
template <class T>
void multiplyRun(const T* from, float* values, std::size_t length) {
  const FloatTag d;
  forEachVector(length, [&](std::size_t e, auto store) HWY_ATTR {
    const FloatVector factor = loadFloats(d, from + e, std::min(hn::Lanes(d), length - e));
    store(hn::Mul(hn::LoadU(d, values + e), factor), values + e);
  });
}

/// Multiplies a flat run by pixels that lie fromStride apart.
template <class T>
void multiplyPixels(const T* from, std::size_t fromStride, float* values, std::size_t count,
                    std::size_t channels) {
  if (fromStride == channels) return multiplyRun(from, values, count * channels);
  for (std::size_t k = 0; k < count; ++k) multiplyRun(from + k * fromStride, values + k * channels, channels);
}

/// to[e] += from[e]
inline void addRun(const float* from, float* to, std::size_t length) {
  const FloatTag d;
  forEachVector(length, [&](std::size_t e, auto store) HWY_ATTR {
    const FloatVector old = loadFloats(d, to + e, std::min(hn::Lanes(d), length - e));
    store(hn::Add(old, hn::LoadU(d, from + e)), to + e);
  });
}

/// Adds a flat run to pixels that lie toStride apart.
inline void addPixels(const float* from, float* to, std::size_t toStride, std::size_t count,
                      std::size_t channels) {
  if (toStride == channels) return addRun(from, to, count * channels);
  for (std::size_t k = 0; k < count; ++k) addRun(from + k * channels, to + k * toStride, channels);
}

// Saved indices
// -----------------------------------------------------------------------------------------------------

HWY_INLINE void demoteIndices(const std::int32_t* from, std::int32_t* to) {
  const IndexTag di;
  hn::StoreU(hn::LoadU(di, from), di, to);
}
template <class Index>
HWY_INLINE void demoteIndices(const std::int32_t* from, Index* to) {
  const IndexTag di;
  const hn::Rebind<Index, IndexTag> dto;
  hn::StoreU(hn::DemoteTo(dto, hn::LoadU(di, from)), dto, to);
}
template <class Index>
void storeIndices(const std::int32_t* from, Index* to, std::size_t length) {
  const std::size_t lanes = hn::Lanes(IndexTag());
  std::size_t e = 0;
  for (; e + lanes <= length; e += lanes) demoteIndices(from + e, to + e);
  for (; e < length; ++e) to[e] = static_cast<Index>(from[e]);
}

HWY_INLINE void promoteIndices(const std::int32_t* from, std::int32_t* to) {
  const IndexTag di;
  hn::StoreU(hn::LoadU(di, from), di, to);
}
template <class Index>
HWY_INLINE void promoteIndices(const Index* from, std::int32_t* to) {
  const IndexTag di;
  const hn::Rebind<Index, IndexTag> dfrom;
  hn::StoreU(hn::PromoteTo(di, hn::LoadU(dfrom, from)), di, to);
}
template <class Index>
void loadIndices(const Index* from, std::int32_t* to, std::size_t length) {
  const std::size_t lanes = hn::Lanes(IndexTag());
  std::size_t e = 0;
  for (; e + lanes <= length; e += lanes) promoteIndices(from + e, to + e);
  for (; e < length; ++e) to[e] = static_cast<std::int32_t>(from[e]);
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
