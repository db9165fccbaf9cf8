// Loops over runs of elements that pooling is made of, once per instruction set. They read and write whole
// vectors: runs in working memory have room for one at their end (runLength), runs in tensors are only given
// to them where channels fill whole vectors.

#if defined(UNMETAL_MPS_POOLING_RUNS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_POOLING_RUNS_INL_HPP
#undef UNMETAL_MPS_POOLING_RUNS_INL_HPP
#else
#define UNMETAL_MPS_POOLING_RUNS_INL_HPP
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "mps/core/cpu/vector_io-inl.hpp"
#include "mps/pooling/cpu/pooling_layout.hpp"
#include "mps/pooling/pooling_operations-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using IndexTag = hn::RebindToSigned<FloatTag>;
using IndexVector = hn::Vec<IndexTag>;

inline std::size_t asSize(std::int64_t value) {
  return static_cast<std::size_t>(value);
}

/// Elements up to the end of the last vector: for runs in working memory that are changed in place.
inline std::size_t wholeVectors(std::int64_t elements) {
  const std::size_t lanes = hn::Lanes(FloatTag());
  return (asSize(elements) + lanes - 1) / lanes * lanes;
}

// Stores
// --------------------------------------------------------------------------------------------------------

/// Where a run goes: an address, and whether by non-temporal stores.
template <class T>
struct Target {
  T* address;
  bool stream = false;

  HWY_INLINE void put(FloatVector v, std::size_t offset) const {
    if (stream)
      streamFloats(FloatTag(), v, address + offset);
    else
      storeFloats(FloatTag(), v, address + offset);
  }
};

/// Whether all vectors of runs from this address on may be non-temporal stores, if channels fill whole vectors.
template <class T>
bool isAlignedToVectors(const T* address) {
  return reinterpret_cast<std::uintptr_t>(address) % (hn::Lanes(FloatTag()) * sizeof(T)) == 0;
}

// Operations over taps
// ------------------------------------------------------------------------------------------

/// Partial results in the place of taps.
template <class Operation>
struct Partials {
  static HWY_INLINE FloatVector first(FloatVector partial) { return partial; }
  static HWY_INLINE FloatVector add(FloatVector partial, FloatVector other) {
    return Operation::merge(partial, other);
  }
};
/// Shares of a gradient in the place of taps.
using Sum = AveragePooling<VectorMath>;

struct Unchanged {
  HWY_INLINE FloatVector operator()(FloatVector v) const { return v; }
};
/// Divides by an integer up to 2^20. The reciprocal in two parts, both positive so that infinities stay,
/// gives the bits of the quotient: v / n is never closer than 1 / (2 n) of its last place to where rounding
/// changes.
class Quotient {
 public:
  explicit Quotient(std::int64_t divisor)
      : divisor_(static_cast<float>(divisor)),
        high_(std::nextafter(1.0F / divisor_, 0.0F)),
        low_(static_cast<float>(1.0 / static_cast<double>(divisor) - static_cast<double>(high_))) {}
  HWY_INLINE FloatVector operator()(FloatVector v) const {
    const FloatTag d;
#if HWY_NATIVE_FMA
    return hn::MulAdd(v, hn::Set(d, high_), hn::Mul(v, hn::Set(d, low_)));
#else
    return hn::Div(v, hn::Set(d, divisor_));
#endif
  }

 private:
  float divisor_;
  float high_;
  float low_;
};

/// What windows and their gradients do with the quotient.
template <class Operation, class Divide>
struct Finish {
  Divide divide;
  HWY_INLINE FloatVector operator()(FloatVector partial) const { return Operation::finish(partial, divide); }
};
template <class Operation>
struct Share {
  Quotient quotient;
  HWY_INLINE FloatVector operator()(FloatVector sum) const { return Operation::share(sum, quotient); }
};

// Rows and windows
// ------------------------------------------------------------------------------------------------

/// operation over rows[k][e] at one place e; the number of rows is `count`, or `rest` if that is 0.
template <class Operation, std::size_t count, class T>
HWY_INLINE FloatVector combinedAt(const T* const* rows, const T* a, const T* b, const T* c, std::size_t rest,
                                  std::size_t e) {
  const FloatTag d;
  FloatVector result = Operation::first(loadFloats(d, a + e));
  if constexpr (count > 1) result = Operation::add(result, loadFloats(d, b + e));
  if constexpr (count > 2) result = Operation::add(result, loadFloats(d, c + e));
  if constexpr (count == 0)
    for (std::size_t k = 1; k < rest; ++k) result = Operation::add(result, loadFloats(d, rows[k] + e));
  return result;
}

/// Asks for the lines of some elements.
template <class T>
HWY_INLINE void prefetchLines(const T* from, std::size_t count) {
  constexpr std::size_t kLine = 64 / sizeof(T);
  for (std::size_t i = 0; i < count; i += kLine) hwy::Prefetch(from + i);
}

/// What is asked for while rows are combined.
struct RowsAhead {
  std::size_t distance = 0;  ///< elements from what is read to what is asked for
  std::size_t adjacent = 0;  ///< rows of one piece of memory, asked for in its order; 0: each row by itself
};

template <class Operation, std::size_t count, class Finish, class T>
void combineRowsOf(const T* const* rows, std::size_t rest, float* to, std::size_t length, Finish finish,
                   const RowsAhead& ahead) {
  const FloatTag d;
  const std::size_t lanes = hn::Lanes(d);
  const T* const a = rows[0];
  const T* const b = count > 1 ? rows[1] : a;
  const T* const c = count > 2 ? rows[2] : a;
  std::size_t e = 0;
  for (; e + lanes <= length; e += lanes) {
    if (ahead.adjacent > 0) {
      prefetchLines(a + ahead.adjacent * e + ahead.distance, ahead.adjacent * lanes);
    } else {
      hwy::Prefetch(a + e + ahead.distance);
      if constexpr (count > 1) hwy::Prefetch(b + e + ahead.distance);
      if constexpr (count > 2) hwy::Prefetch(c + e + ahead.distance);
    }
    hn::StoreU(finish(combinedAt<Operation, count>(rows, a, b, c, rest, e)), d, to + e);
  }
  if (e == length) return;
  e = length - lanes;
  hn::StoreU(finish(combinedAt<Operation, count>(rows, a, b, c, rest, e)), d, to + e);
}

/// to[e] = finish(operation over rows[k][e]), exactly `length` of them, at least a vector.
template <class Operation, class Finish, class T>
void combineRows(const T* const* rows, std::size_t count, float* to, std::size_t length, Finish finish,
                 const RowsAhead& ahead = {}) {
  if (count == 1) return combineRowsOf<Operation, 1>(rows, count, to, length, finish, ahead);
  if (count == 2) return combineRowsOf<Operation, 2>(rows, count, to, length, finish, ahead);
  if (count == 3) return combineRowsOf<Operation, 3>(rows, count, to, length, finish, ahead);
  combineRowsOf<Operation, 0>(rows, count, to, length, finish, ahead);
}

/// Windows that lie `step` elements apart in the taps and toStep apart in the target; `length` elements of
/// each.
struct WindowRun {
  std::size_t windows;
  std::size_t length;
  std::size_t step;
  std::size_t toStep;
};

template <class Operation, std::size_t count, class Finish, class T>
void combineWindowsOf(const float* const* taps, std::size_t rest, const WindowRun& run, Target<T> to,
                      Finish finish) {
  const std::size_t lanes = hn::Lanes(FloatTag());
  const float* const a = taps[0];
  const float* const b = count > 1 ? taps[1] : a;
  const float* const c = count > 2 ? taps[2] : a;
  for (std::size_t w = 0; w < run.windows; ++w) {
    const std::size_t from = w * run.step;
    const std::size_t target = w * run.toStep;
    for (std::size_t e = 0; e < run.length; e += lanes)
      to.put(finish(combinedAt<Operation, count>(taps, a, b, c, rest, from + e)), target + e);
  }
}

/// to[w][e] = finish(operation over taps[k][w][e])
template <class Operation, class Finish, class T>
void combineWindows(const float* const* taps, std::size_t count, const WindowRun& run, Target<T> to,
                    Finish finish) {
  if (count == 1) return combineWindowsOf<Operation, 1>(taps, count, run, to, finish);
  if (count == 2) return combineWindowsOf<Operation, 2>(taps, count, run, to, finish);
  if (count == 3) return combineWindowsOf<Operation, 3>(taps, count, run, to, finish);
  combineWindowsOf<Operation, 0>(taps, count, run, to, finish);
}

/// Outside zeros win where they are greater.
inline void admitOutsideZero(float* values, std::size_t length) {
  const FloatTag d;
  for (std::size_t e = 0; e < length; e += hn::Lanes(d)) {
    const FloatVector v = hn::LoadU(d, values + e);
    hn::StoreU(hn::IfThenZeroElse(hn::Lt(v, hn::Zero(d)), v), d, values + e);
  }
}
/// The same, with `noIndex` as their index.
inline void admitOutsideZero(float* values, std::int32_t* indices, std::int32_t noIndex, std::size_t length) {
  const FloatTag d;
  const IndexTag di;
  for (std::size_t e = 0; e < length; e += hn::Lanes(d)) {
    const FloatVector v = hn::LoadU(d, values + e);
    const auto loses = hn::Lt(v, hn::Zero(d));
    const IndexVector index = hn::LoadU(di, indices + e);
    hn::StoreU(hn::IfThenElse(hn::RebindMask(di, loses), hn::Set(di, noIndex), index), di, indices + e);
    hn::StoreU(hn::IfThenZeroElse(loses, v), d, values + e);
  }
}

/// What a ReLU cut off gets `noIndex` as its index: its sign bit is set.
inline void dropCutOff(const float* values, std::int32_t* indices, std::int32_t noIndex, std::size_t length) {
  const FloatTag d;
  const IndexTag di;
  for (std::size_t e = 0; e < length; e += hn::Lanes(d)) {
    const FloatVector v = hn::LoadU(d, values + e);
    const auto isNegative = hn::Lt(hn::BitCast(di, v), hn::Zero(di));
    const auto isCutOff = hn::AndNot(hn::RebindMask(di, hn::IsNaN(v)), isNegative);
    const IndexVector index = hn::LoadU(di, indices + e);
    hn::StoreU(hn::IfThenElse(isCutOff, hn::Set(di, noIndex), index), di, indices + e);
  }
}

/// The first maximum, or first NaN, of the taps at one place.
template <class T>
void chooseWithNaN(const T* const* taps, const std::int32_t* codes, std::size_t count, std::size_t from,
                   float* value, std::int32_t* index) {
  const FloatTag d;
  const IndexTag di;
  FloatVector best = loadFloats(d, taps[0] + from);
  IndexVector code = hn::Set(di, codes[0]);
  for (std::size_t k = 1; k < count; ++k) {
    const FloatVector v = loadFloats(d, taps[k] + from);
    const auto wins = hn::AndNot(hn::IsNaN(best), hn::Not(hn::Le(v, best)));
    best = hn::IfThenElse(wins, v, best);
    code = hn::IfThenElse(hn::RebindMask(di, wins), hn::Set(di, codes[k]), code);
  }
  hn::StoreU(best, d, value);
  hn::StoreU(code, di, index);
}

/// A maximum while it is looked for. The sum of all taps is NaN where one of them is.
struct Choice {
  FloatVector best, sum;
  IndexVector code;

  template <class T>
  HWY_INLINE Choice(const T* from, IndexVector first)
      : best(loadFloats(FloatTag(), from)), sum(best), code(first) {}
  template <class T>
  HWY_INLINE void consider(const T* from, IndexVector other) {
    const FloatVector v = loadFloats(FloatTag(), from);
    const auto wins = hn::Gt(v, best);
    // Of two zeros the earlier one, as for the code: x86 takes the second operand then.
    best = HWY_ARCH_X86 ? hn::Max(v, best) : hn::IfThenElse(wins, v, best);
    code = hn::IfThenElse(hn::RebindMask(IndexTag(), wins), other, code);
    sum = hn::Add(sum, v);
  }
};

/// The same for `vectors` places, 1, 2 or 4 vectors.
template <std::size_t vectors, class T>
HWY_INLINE void chooseAt(const T* const* taps, const std::int32_t* codes, std::size_t count, std::size_t from,
                         float* value, std::int32_t* index) {
  const FloatTag d;
  const IndexTag di;
  const std::size_t lanes = hn::Lanes(d);
  // Beyond the number of vectors these are copies that the compiler drops.
  const std::size_t one = vectors > 1 ? lanes : 0;
  const std::size_t two = vectors > 2 ? 2 * lanes : 0;
  const std::size_t three = vectors > 2 ? 3 * lanes : 0;
  const IndexVector first = hn::Set(di, codes[0]);
  Choice a(taps[0] + from, first), b(taps[0] + from + one, first);
  Choice c(taps[0] + from + two, first), e(taps[0] + from + three, first);
  for (std::size_t k = 1; k < count; ++k) {
    const IndexVector code = hn::Set(di, codes[k]);
    const T* const tap = taps[k] + from;
    a.consider(tap, code);
    if constexpr (vectors > 1) b.consider(tap + one, code);
    if constexpr (vectors > 2) c.consider(tap + two, code);
    if constexpr (vectors > 2) e.consider(tap + three, code);
  }
  const auto store = [&](const Choice& choice, std::size_t offset) HWY_ATTR {
    if (HWY_UNLIKELY(!hn::AllFalse(d, hn::IsNaN(choice.sum))))
      return chooseWithNaN(taps, codes, count, from + offset, value + offset, index + offset);
    hn::StoreU(choice.best, d, value + offset);
    hn::StoreU(choice.code, di, index + offset);
  };
  store(a, 0);
  if constexpr (vectors > 1) store(b, one);
  if constexpr (vectors > 2) store(c, two);
  if constexpr (vectors > 2) store(e, three);
}

/// values[w][e], indices[w][e]: the chosen one of taps[k][w][e] and its code.
template <class T>
void chooseMaxima(const T* const* taps, const std::int32_t* codes, std::size_t count, const WindowRun& run,
                  float* values, std::int32_t* indices) {
  const std::size_t lanes = hn::Lanes(FloatTag());
  for (std::size_t w = 0; w < run.windows; ++w) {
    const std::size_t from = w * run.step;
    float* const value = values + w * run.toStep;
    std::int32_t* const index = indices + w * run.toStep;
    std::size_t e = 0;
    for (; e + 4 * lanes <= run.length; e += 4 * lanes)
      chooseAt<4>(taps, codes, count, from + e, value + e, index + e);
    for (; e < run.length; e += lanes) chooseAt<1>(taps, codes, count, from + e, value + e, index + e);
  }
}

// Gradients
// ---------------------------------------------------------------------------------------------------------

/// to[e] = the share of a window with gradient[e] and result[e]
template <class Operation, class T, class Divide>
void shareRun(const T* gradient, const float* result, float* to, std::size_t length, const Divide& divide) {
  const FloatTag d;
  for (std::size_t e = 0; e < length; e += hn::Lanes(d))
    hn::StoreU(Operation::share(loadFloats(d, gradient + e), hn::LoadU(d, result + e), divide), d, to + e);
}

template <class T>
void storeRun(const float* from, Target<T> to, std::size_t length) {
  for (std::size_t e = 0; e < length; e += hn::Lanes(FloatTag())) to.put(hn::LoadU(FloatTag(), from + e), e);
}

/// Pixels of a row one after the other; pixel k takes the taps of phase k mod phases.
struct PixelRun {
  const PixelTaps* taps;
  std::size_t phases;
  std::size_t pixels;
  std::size_t length;  ///< elements of a pixel, and distance of pixels and of windows
  std::size_t next;  ///< elements from a pixel's last window to one that only the next row reads; 0: unknown
};

/// What becomes of the sum of a pixel's windows: it is the gradient.
struct NoFactor {
  HWY_INLINE FloatVector operator()(FloatVector sum, std::size_t /*offset*/) const { return sum; }
};
/// The gradient depends on the pixel of the source.
template <class Operation, class S>
struct SourceFactor {
  const S* source;
  HWY_INLINE FloatVector operator()(FloatVector sum, std::size_t offset) const {
    return Operation::factor(sum, loadFloats(FloatTag(), source + offset));
  }
};

template <std::size_t count, class Factor, class T>
HWY_INLINE void sumPixel(const Contribution* windows, std::size_t rest, std::size_t shift, std::size_t length,
                         Factor factor, Target<T> to, std::size_t target) {
  const FloatTag d;
  const auto* const a = static_cast<const float*>(windows[0].gradient) + shift;
  const auto* const b = static_cast<const float*>(windows[count > 1 ? 1 : 0].gradient) + shift;
  const auto* const c = static_cast<const float*>(windows[count > 2 ? 2 : 0].gradient) + shift;
  for (std::size_t e = 0; e < length; e += hn::Lanes(d)) {
    FloatVector sum = hn::LoadU(d, a + e);
    if constexpr (count > 1) sum = hn::Add(sum, hn::LoadU(d, b + e));
    if constexpr (count > 2) sum = hn::Add(sum, hn::LoadU(d, c + e));
    if constexpr (count == 0)
      for (std::size_t i = 1; i < rest; ++i)
        sum = hn::Add(sum, hn::LoadU(d, static_cast<const float*>(windows[i].gradient) + shift + e));
    to.put(factor(sum, target + e), target + e);
  }
}

/// to[k][e] = factor * sum over the windows of pixel k, which are float32; 0 where there are none
template <class Factor, class T>
void sumPixels(const PixelRun& run, Factor factor, Target<T> to) {
  std::size_t phase = 0;
  std::size_t shift = 0;
  for (std::size_t k = 0; k < run.pixels; ++k) {
    const Contribution* const windows = run.taps[phase].contributions;
    const std::size_t count = run.taps[phase].count;
    const std::size_t target = k * run.length;
    if (count == 1)
      sumPixel<1>(windows, count, shift, run.length, factor, to, target);
    else if (count == 2)
      sumPixel<2>(windows, count, shift, run.length, factor, to, target);
    else if (count == 3)
      sumPixel<3>(windows, count, shift, run.length, factor, to, target);
    else if (count > 3)
      sumPixel<0>(windows, count, shift, run.length, factor, to, target);
    else
      for (std::size_t e = 0; e < run.length; e += hn::Lanes(FloatTag()))
        to.put(hn::Zero(FloatTag()), target + e);
    if (++phase == run.phases) {
      phase = 0;
      shift += run.length;
    }
  }
}

HWY_INLINE IndexVector loadIndices(const std::int32_t* from) {
  return hn::LoadU(IndexTag(), from);
}
template <class Index>
HWY_INLINE IndexVector loadIndices(const Index* from) {
  return hn::PromoteTo(IndexTag(), hn::LoadU(hn::Rebind<Index, IndexTag>(), from));
}

/// Where the index is `code`.
template <class Index>
HWY_INLINE hn::Mask<FloatTag> isChosen(const Index* indices, std::int32_t code) {
  return hn::RebindMask(FloatTag(), hn::Eq(loadIndices(indices), hn::Set(IndexTag(), code)));
}
#if HWY_TARGET == HWY_AVX3
// The mask of sixteen bytes is the mask of sixteen floats.
HWY_INLINE hn::Mask<FloatTag> isChosen(const std::uint8_t* indices, std::int32_t code) {
  const hn::Rebind<std::uint8_t, FloatTag> d8;
  return {hn::Eq(hn::LoadU(d8, indices), hn::Set(d8, static_cast<std::uint8_t>(code))).raw};
}
#endif

/// sum + gradient where the index is `code`
template <class Index, class G>
HWY_INLINE FloatVector addChosen(FloatVector sum, const G* gradient, const Index* indices,
                                 std::int32_t code) {
  return hn::IfThenElse(isChosen(indices, code), hn::Add(sum, loadFloats(FloatTag(), gradient)), sum);
}

/// to[e] = sum of the contributions, all of them `shift` elements further on.
template <class Index, class G, class T>
HWY_INLINE void gatherPixel(const PixelTaps& taps, std::int64_t shift, std::size_t length, std::size_t next,
                            Target<T> to, std::size_t target) {
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t end = shift + static_cast<std::int64_t>(length);
  std::int64_t at = shift;
  for (; at + 4 * lanes <= end; at += 4 * lanes, target += 4 * asSize(lanes)) {
    FloatVector a = hn::Zero(d), b = a, c = a, e = a;
    if (next > 0 && taps.count > 0) {
      const Contribution& last = taps.contributions[taps.count - 1];
      prefetchLines(static_cast<const G*>(last.gradient) + at + next, 4 * asSize(lanes));
      prefetchLines(static_cast<const Index*>(last.indices) + at + next, 4 * asSize(lanes));
    }
    for (std::size_t k = 0; k < taps.count; ++k) {
      const Contribution& from = taps.contributions[k];
      const auto* const gradient = static_cast<const G*>(from.gradient) + at;
      const auto* const indices = static_cast<const Index*>(from.indices) + at;
      a = addChosen(a, gradient, indices, from.code);
      b = addChosen(b, gradient + lanes, indices + lanes, from.code);
      c = addChosen(c, gradient + 2 * lanes, indices + 2 * lanes, from.code);
      e = addChosen(e, gradient + 3 * lanes, indices + 3 * lanes, from.code);
    }
    to.put(a, target);
    to.put(b, target + asSize(lanes));
    to.put(c, target + 2 * asSize(lanes));
    to.put(e, target + 3 * asSize(lanes));
  }
  for (; at < end; at += lanes, target += asSize(lanes)) {
    FloatVector sum = hn::Zero(d);
    for (std::size_t k = 0; k < taps.count; ++k) {
      const Contribution& from = taps.contributions[k];
      sum = addChosen(sum, static_cast<const G*>(from.gradient) + at,
                      static_cast<const Index*>(from.indices) + at, from.code);
    }
    to.put(sum, target);
  }
}

/// to[k][e] = sum over the windows whose maximum is pixel k
template <class Index, class G, class T>
void gatherPixels(const PixelRun& run, Target<T> to) {
  std::size_t phase = 0;
  std::int64_t shift = 0;
  for (std::size_t k = 0; k < run.pixels; ++k) {
    gatherPixel<Index, G>(run.taps[phase], shift, run.length, run.next, to, k * run.length);
    if (++phase == run.phases) {
      phase = 0;
      shift += static_cast<std::int64_t>(run.length);
    }
  }
}

// Pixels
// ------------------------------------------------------------------------------------------------------------

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

/// Adds a flat run to pixels that lie toStride apart.
inline void addPixels(const float* from, float* to, std::size_t toStride, std::size_t count,
                      std::size_t channels) {
  const FloatTag d;
  const std::size_t lanes = hn::Lanes(d);
  const bool isFlat = toStride == channels;
  const std::size_t length = isFlat ? count * channels : channels;
  for (std::size_t k = 0; k < (isFlat ? 1 : count); ++k) {
    float* const pixel = to + k * toStride;
    const float* const values = from + k * length;
    std::size_t e = 0;
    for (; e + lanes <= length; e += lanes)
      hn::StoreU(hn::Add(hn::LoadU(d, pixel + e), hn::LoadU(d, values + e)), d, pixel + e);
    for (; e < length; ++e) pixel[e] += values[e];
  }
}

// Saved indices
// -----------------------------------------------------------------------------------------------------

HWY_INLINE void storeIndexVector(IndexVector indices, std::int32_t* to) {
  hn::StoreU(indices, IndexTag(), to);
}
template <class Index>
HWY_INLINE void storeIndexVector(IndexVector indices, Index* to) {
  const hn::Rebind<Index, IndexTag> dto;
  hn::StoreU(hn::DemoteTo(dto, indices), dto, to);
}
/// Exactly `length` of them.
template <class Index>
void storeIndices(const std::int32_t* from, Index* to, std::size_t length) {
  const std::size_t lanes = hn::Lanes(IndexTag());
  std::size_t e = 0;
  for (; e + lanes <= length; e += lanes) storeIndexVector(loadIndices(from + e), to + e);
  for (; e < length; ++e) to[e] = static_cast<Index>(from[e]);
}
template <class Index>
void widenIndices(const Index* from, std::int32_t* to, std::size_t length) {
  const std::size_t lanes = hn::Lanes(IndexTag());
  std::size_t e = 0;
  for (; e + lanes <= length; e += lanes) hn::StoreU(loadIndices(from + e), IndexTag(), to + e);
  for (; e < length; ++e) to[e] = static_cast<std::int32_t>(from[e]);
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
