// Reductions of pixels and channels and their gradients, once per instruction set. Include it after hwy/highway.h in a
// file that hwy/foreach_target.h compiles several times; mps/core/cpu/highway_targets.hpp comes before both.

#if defined(UNMETAL_MPS_REDUCTION_REDUCTION_VECTORS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_REDUCTION_REDUCTION_VECTORS_INL_HPP
#undef UNMETAL_MPS_REDUCTION_REDUCTION_VECTORS_INL_HPP
#else
#define UNMETAL_MPS_REDUCTION_REDUCTION_VECTORS_INL_HPP
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "mps/core/cpu/vector_runs-inl.hpp"
#include "mps/reduction/reduction_problem.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Vectors that are reduced beside each other in registers.
constexpr std::size_t kBlock = 4;

/// Asks for what lies behind a vector that is read now: two cores do not foresee enough to read as fast as memory gives.
template <class T>
HWY_INLINE void prefetch(const T* from) {
  constexpr std::size_t distance = 4096;
  hwy::Prefetch(from + distance / sizeof(T));
}

/// How the operation takes two values together: a sum, or an extremum through which NaN goes.
struct TakeSum {
  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::Add(a, b);
  }
};
template <bool isMin>
struct TakeExtremum {
  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V operator()(D d, V a, V b) const {
    return hn::IfThenElse(isBetter(d, b, a), b, a);
  }
  /// Whether `value` is taken in place of `best`, which came before it.
  template <class D, class V = hn::Vec<D>>
  HWY_INLINE hn::Mask<D> isBetter(D, V value, V best) const {
    return hn::AndNot(isMin ? hn::Ge(value, best) : hn::Le(value, best), hn::Eq(best, best));
  }
};

/// Calls body(TakeExtremum<...>()) or body(TakeSum()).
template <class Body>
void withExtremum(ReductionOperation operation, Body&& body) {
  if (traitsOf(operation).isMinimum)
    body(TakeExtremum<true>());
  else
    body(TakeExtremum<false>());
}
template <class Body>
void withTaken(ReductionOperation operation, Body&& body) {
  if (traitsOf(operation).sums)
    body(TakeSum());
  else
    withExtremum(operation, body);
}

template <class D, class T>
HWY_INLINE hn::Vec<D> loadLanes(D d, AllLanes, const T* from) {
  return loadFloats(d, from);
}
template <class D, class T>
HWY_INLINE hn::Vec<D> loadLanes(D d, FirstLanes lanes, const T* from) {
  return loadFloats(d, from, lanes.count);
}
template <class D, class T, class V = hn::Vec<D>>
HWY_INLINE void storeLanes(D d, AllLanes, V value, T* to, bool streams) {
  storeOrStream(d, value, to, streams);
}
template <class D, class T, class V = hn::Vec<D>>
HWY_INLINE void storeLanes(D d, FirstLanes lanes, V value, T* to, bool) {
  storeFloats(d, value, to, lanes.count);
}

/// Pixels that are reduced to one, or take their shares of one.
struct PixelGrid {
  std::int64_t rows = 1;
  std::int64_t columns = 1;
  std::int64_t rowStride = 0;
  std::int64_t columnStride = 0;

  /// Calls visit(number, address) for each, in order.
  template <class T, class Visit>
  HWY_INLINE void forEach(T* first, Visit&& visit) const {
    std::int32_t i = 0;
    for (std::int64_t y = 0; y < rows; ++y)
      for (std::int64_t x = 0; x < columns; ++x) visit(i++, first + y * rowStride + x * columnStride);
  }
};

/// Calls body(first channel, vectors as a constant, lanes) for kBlock vectors at a time, and for one where fewer are left.
template <class Body>
HWY_INLINE void forBlocks(std::size_t channels, Body&& body) {
  const hn::ScalableTag<float> d;
  const std::size_t step = kBlock * hn::Lanes(d);
  std::size_t c = 0;
  for (; c + step <= channels; c += step) body(c, std::integral_constant<std::size_t, kBlock>(), AllLanes());
  forVectors(d, channels - c, [&](std::size_t i, auto lanes) {
    body(c + i, std::integral_constant<std::size_t, 1>(), lanes);
  });
}

/// Writes what a block of channels was reduced to.
template <class D, class Lanes, class V, std::size_t count>
HWY_INLINE void storeBlock(D d, Lanes lanes, const V (&vectors)[count], float* results) {
  unrolled<count>([&](auto k) HWY_ATTR __attribute__((always_inline)) {
    storeLanes(d, lanes, vectors[k], results + k * hn::Lanes(d), false);
  });
}

/// The pixels of a block of channels, taken together.
template <class Take, class T, class Vectors, class Lanes>
HWY_INLINE void reduceBlock(Take take, const PixelGrid& grid, const T* first, Vectors vectors, Lanes lanes,
                            float* results) {
  const hn::ScalableTag<float> d;
  const std::size_t step = hn::Lanes(d);
  hn::Vec<decltype(d)> taken[vectors()];
  unrolled<vectors()>([&](auto k) HWY_ATTR
                      __attribute__((always_inline)) { taken[k] = loadLanes(d, lanes, first + k * step); });
  grid.forEach(first, [&](std::int32_t i, const T* pixel) {
    unrolled<vectors()>([&](auto k) HWY_ATTR __attribute__((always_inline)) {
      prefetch(pixel + k * step);
      if (i > 0) taken[k] = take(d, taken[k], loadLanes(d, lanes, pixel + k * step));
    });
  });
  storeBlock(d, lanes, taken, results);
}

/// results[c] = the operation over channel c of all pixels.
template <class Take, class T>
void reducePixels(Take take, const PixelGrid& grid, const T* first, std::size_t channels, float* results) {
  forBlocks(channels, [&](std::size_t c, auto vectors, auto lanes) {
    reduceBlock(take, grid, first + c, vectors, lanes, results + c);
  });
}

/// The pixels where a block of channels has its extrema.
template <class Take, class T, class Vectors, class Lanes>
HWY_INLINE void findInBlock(Take take, const PixelGrid& grid, const T* first, Vectors vectors, Lanes lanes,
                            std::int32_t* numbers) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const std::size_t step = hn::Lanes(d);
  hn::Vec<decltype(d)> best[vectors()];
  hn::Vec<decltype(di)> number[vectors()];
  unrolled<vectors()>([&](auto k) HWY_ATTR __attribute__((always_inline)) {
    best[k] = loadLanes(d, lanes, first + k * step);
    number[k] = hn::Zero(di);
  });
  grid.forEach(first, [&](std::int32_t i, const T* pixel) {
    unrolled<vectors()>([&](auto k) HWY_ATTR __attribute__((always_inline)) {
      prefetch(pixel + k * step);
      const auto value = loadLanes(d, lanes, pixel + k * step);
      const auto isBetter = take.isBetter(d, value, best[k]);
      best[k] = hn::IfThenElse(isBetter, value, best[k]);
      number[k] = hn::IfThenElse(hn::RebindMask(di, isBetter), hn::Set(di, i), number[k]);
    });
  });
  unrolled<vectors()>([&](auto k) HWY_ATTR
                      __attribute__((always_inline)) { hn::StoreU(number[k], di, numbers + k * step); });
}

/// numbers[c] = the pixel where channel c has its extremum, the first one of equals.
template <class Take, class T>
void findPixels(Take take, const PixelGrid& grid, const T* first, std::size_t channels,
                std::int32_t* numbers) {
  forBlocks(channels, [&](std::size_t c, auto vectors, auto lanes) {
    findInBlock(take, grid, first + c, vectors, lanes, numbers + c);
  });
}

/// The value at the pixel of that number, 0 at the others. @param numbers and values: whole vectors are read
template <class T>
void scatterToPixels(const PixelGrid& grid, const std::int32_t* numbers, const float* values,
                     std::size_t channels, bool accumulate, bool streams, T* first) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const std::size_t step = hn::Lanes(d);
  forBlocks(channels, [&](std::size_t c, auto vectors, auto lanes) {
    hn::Vec<decltype(d)> value[vectors()];
    hn::Vec<decltype(di)> number[vectors()];
    unrolled<vectors()>([&](auto k) HWY_ATTR __attribute__((always_inline)) {
      value[k] = hn::LoadU(d, values + c + k * step);
      number[k] = hn::LoadU(di, numbers + c + k * step);
    });
    grid.forEach(first + c, [&](std::int32_t i, T* pixel) {
      unrolled<vectors()>([&](auto k) HWY_ATTR __attribute__((always_inline)) {
        auto result = hn::IfThenElseZero(hn::RebindMask(d, hn::Eq(number[k], hn::Set(di, i))), value[k]);
        if (accumulate) result = hn::Add(result, loadLanes(d, lanes, pixel + k * step));
        storeLanes(d, lanes, result, pixel + k * step, streams);
      });
    });
  });
}

/// The same values to all pixels.
template <class T>
void copyToPixels(const PixelGrid& grid, const float* values, std::size_t channels, bool accumulate,
                  bool streams, T* first) {
  const hn::ScalableTag<float> d;
  const std::size_t step = hn::Lanes(d);
  forBlocks(channels, [&](std::size_t c, auto vectors, auto lanes) {
    hn::Vec<decltype(d)> value[vectors()];
    unrolled<vectors()>([&](auto k) HWY_ATTR
                        __attribute__((always_inline)) { value[k] = hn::LoadU(d, values + c + k * step); });
    grid.forEach(first + c, [&](std::int32_t, T* pixel) {
      unrolled<vectors()>([&](auto k) HWY_ATTR __attribute__((always_inline)) {
        auto result = value[k];
        if (accumulate) result = hn::Add(result, loadLanes(d, lanes, pixel + k * step));
        storeLanes(d, lanes, result, pixel + k * step, streams);
      });
    });
  });
}

/// The operation over adjacent channels, in each lane. Lanes behind the last channel are no part of an extremum.
template <class Take, class T>
HWY_INLINE hn::Vec<hn::ScalableTag<float>> reduceChannels(Take take, const T* from, std::size_t channels) {
  const hn::ScalableTag<float> d;
  constexpr bool sums = std::is_same_v<Take, TakeSum>;
  const std::size_t step = hn::Lanes(d);
  for (std::size_t c = 0; c < channels; c += step) prefetch(from + c);
  auto taken = sums ? hn::Zero(d) : hn::Set(d, loadFloat(from));
  std::size_t c = 0;
  if (channels >= step) {
    taken = loadFloats(d, from);
    c = step;
  }
  for (; c + step <= channels; c += step) taken = take(d, taken, loadFloats(d, from + c));
  if (c < channels) {
    const auto all = take(d, taken, loadFloats(d, from + c, channels - c));
    taken = sums ? all : hn::IfThenElse(hn::FirstN(d, channels - c), all, taken);
  }
  return taken;
}

/// Where the extremum of adjacent channels is, the first one of equals.
template <class Take, class T>
HWY_INLINE std::int32_t findChannel(Take take, const T* from, std::size_t channels) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const hn::RebindToSigned<decltype(d)> di;
  const std::size_t step = hn::Lanes(d);
  auto best = hn::Set(d, loadFloat(from));
  auto number = hn::Zero(di);
  forVectors(d, channels, [&](std::size_t c, auto lanes) {
    const auto value = loadLanes(d, lanes, from + c);
    const auto isBetter = hn::And(take.isBetter(d, value, best), hn::FirstN(d, std::min(step, channels - c)));
    best = hn::IfThenElse(isBetter, value, best);
    number = hn::IfThenElse(hn::RebindMask(di, isBetter), hn::Iota(di, static_cast<std::int32_t>(c)), number);
  });
  HWY_ALIGN float values[hn::MaxLanes(hn::ScalableTag<float>())];
  HWY_ALIGN std::int32_t numbers[hn::MaxLanes(hn::ScalableTag<float>())];
  hn::Store(best, d, values);
  hn::Store(number, di, numbers);
  std::size_t first = 0;
  for (std::size_t i = 1; i < step; ++i) {
    const auto isBetter = [&](std::size_t a, std::size_t b) {
      return hn::CountTrue(one, take.isBetter(one, hn::Set(one, values[a]), hn::Set(one, values[b]))) > 0;
    };
    if (isBetter(i, first) || (!isBetter(first, i) && numbers[i] < numbers[first])) first = i;
  }
  return numbers[first];
}

HWY_INLINE void scaleRun(float* values, float factor, bool divides, std::int64_t count) {
  const hn::ScalableTag<float> d;
  const auto by = hn::Set(d, factor);
  forVectors(d, static_cast<std::size_t>(count), [&](std::size_t i, auto lanes) {
    const auto value = lanes.load(d, values + i);
    lanes.store(d, divides ? hn::Div(value, by) : hn::Mul(value, by), values + i);
  });
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
