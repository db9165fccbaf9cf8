// Sums over rows of float32 values, once per instruction set. Include it after hwy/highway.h in a file that
// hwy/foreach_target.h compiles several times; mps/core/highway_targets.hpp comes before both.

#if defined(UNMETAL_MPS_NORMALIZATION_SUMS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_NORMALIZATION_SUMS_INL_HPP
#undef UNMETAL_MPS_NORMALIZATION_SUMS_INL_HPP
#else
#define UNMETAL_MPS_NORMALIZATION_SUMS_INL_HPP
#endif

#include <hwy/highway.h>

#include <cstddef>

#include "mps/core/vector_runs-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Four vectors side by side. Named, not an array: compilers leave arrays of vectors in memory.
template <class V>
struct FourVectors {
  V a;
  V b;
  V c;
  V d;
};

/// Calls four(i) for every four whole vectors of `count` floats, then one(i, lanes) for single ones.
template <class D, class Four, class One>
HWY_INLINE void forVectorsByFour(D d, std::size_t count, Four&& four, One&& one) {
  const std::size_t step = 4 * hn::Lanes(d);
  const std::size_t whole = count / step * step;
  for (std::size_t i = 0; i < whole; i += step) four(i);
  forVectors(
      d, count - whole, [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
        one(whole + i, lanes);
      });
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE FourVectors<V> loadFour(D d, const float* from) {
  const std::size_t step = hn::Lanes(d);
  return {hn::LoadU(d, from), hn::LoadU(d, from + step), hn::LoadU(d, from + 2 * step),
          hn::LoadU(d, from + 3 * step)};
}
template <class D, class V>
HWY_INLINE void storeFour(D d, const FourVectors<V>& values, float* to) {
  const std::size_t step = hn::Lanes(d);
  hn::StoreU(values.a, d, to);
  hn::StoreU(values.b, d, to + step);
  hn::StoreU(values.c, d, to + 2 * step);
  hn::StoreU(values.d, d, to + 3 * step);
}
template <class V>
HWY_INLINE void addProducts(const FourVectors<V>& x, const FourVectors<V>& y, FourVectors<V>& sums) {
  sums.a = hn::MulAdd(x.a, y.a, sums.a);
  sums.b = hn::MulAdd(x.b, y.b, sums.b);
  sums.c = hn::MulAdd(x.c, y.c, sums.c);
  sums.d = hn::MulAdd(x.d, y.d, sums.d);
}
template <class V>
HWY_INLINE void subtractProducts(const FourVectors<V>& x, const FourVectors<V>& y, FourVectors<V>& sums) {
  sums.a = hn::NegMulAdd(x.a, y.a, sums.a);
  sums.b = hn::NegMulAdd(x.b, y.b, sums.b);
  sums.c = hn::NegMulAdd(x.c, y.c, sums.c);
  sums.d = hn::NegMulAdd(x.d, y.d, sums.d);
}
template <class V>
HWY_INLINE void add(const FourVectors<V>& x, FourVectors<V>& sums) {
  sums = {hn::Add(sums.a, x.a), hn::Add(sums.b, x.b), hn::Add(sums.c, x.c), hn::Add(sums.d, x.d)};
}
template <class V>
HWY_INLINE FourVectors<V> difference(const FourVectors<V>& x, const FourVectors<V>& y) {
  return {hn::Sub(x.a, y.a), hn::Sub(x.b, y.b), hn::Sub(x.c, y.c), hn::Sub(x.d, y.d)};
}
template <class V>
HWY_INLINE FourVectors<V> product(const FourVectors<V>& x, V factor) {
  return {hn::Mul(x.a, factor), hn::Mul(x.b, factor), hn::Mul(x.c, factor), hn::Mul(x.d, factor)};
}
template <class V>
HWY_INLINE FourVectors<V> fourOf(V value) {
  return {value, value, value, value};
}

// Rows are given by a function from their number to their address.

/// to = the sum of the squares of the rows.
template <class Row>
HWY_INLINE void sumSquares(Row&& row, std::size_t count, float* to, std::size_t length) {
  const hn::ScalableTag<float> d;
  forVectorsByFour(
      d, length,
      [&](std::size_t i) HWY_ATTR __attribute__((always_inline)) {
        auto sums = fourOf(hn::Zero(d));
        for (std::size_t j = 0; j < count; ++j) {
          const auto x = loadFour(d, row(j) + i);
          addProducts(x, x, sums);
        }
        storeFour(d, sums, to + i);
      },
      [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
        auto sum = hn::Zero(d);
        for (std::size_t j = 0; j < count; ++j) {
          const auto x = lanes.load(d, row(j) + i);
          sum = hn::MulAdd(x, x, sum);
        }
        lanes.store(d, sum, to + i);
      });
}

/// to = the sum of the rows. `to` may be row 0 where the others lie behind it.
template <class Row>
HWY_INLINE void sumRows(Row&& row, std::size_t count, float* to, std::size_t length) {
  const hn::ScalableTag<float> d;
  forVectorsByFour(
      d, length,
      [&](std::size_t i) HWY_ATTR __attribute__((always_inline)) {
        auto sums = loadFour(d, row(0) + i);
        for (std::size_t j = 1; j < count; ++j) add(loadFour(d, row(j) + i), sums);
        storeFour(d, sums, to + i);
      },
      [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
        auto sum = lanes.load(d, row(0) + i);
        for (std::size_t j = 1; j < count; ++j) sum = hn::Add(sum, lanes.load(d, row(j) + i));
        lanes.store(d, sum, to + i);
      });
}

/// to = the weighted sum of the rows, likewise.
template <class Row>
HWY_INLINE void sumWeightedRows(Row&& row, const float* weights, std::size_t count, float* to,
                                std::size_t length) {
  const hn::ScalableTag<float> d;
  forVectors(
      d, length, [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
        auto sum = hn::Zero(d);
        for (std::size_t j = 0; j < count; ++j)
          sum = hn::MulAdd(lanes.load(d, row(j) + i), hn::Set(d, weights[j]), sum);
        lanes.store(d, sum, to + i);
      });
}

/// means = the mean of the rows; squares = the sum of their squared distances from it. Distances are first those from a
/// row amid the others: the mean is not further from it than the distances that are summed, so that the difference of
/// their squares has no more than `count` times the roundings.
template <class Row>
HWY_INLINE void meanAndSquares(Row&& row, std::size_t count, float* means, float* squares,
                               std::size_t length) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const V share = hn::Set(d, 1.0F / static_cast<float>(count));
  const float* const middle = row(count / 2);
  forVectorsByFour(
      d, length,
      [&](std::size_t i) HWY_ATTR __attribute__((always_inline)) {
        const auto center = loadFour(d, middle + i);
        auto sums = fourOf(hn::Zero(d));
        auto sumsOfSquares = sums;
        for (std::size_t j = 0; j < count; ++j) {
          const auto distance = difference(loadFour(d, row(j) + i), center);
          add(distance, sums);
          addProducts(distance, distance, sumsOfSquares);
        }
        const auto shift = product(sums, share);
        subtractProducts(sums, shift, sumsOfSquares);
        auto mean = center;
        add(shift, mean);
        storeFour(d, mean, means + i);
        storeFour(d, sumsOfSquares, squares + i);
      },
      [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
        const V center = lanes.load(d, middle + i);
        V sum = hn::Zero(d);
        V sumOfSquares = hn::Zero(d);
        for (std::size_t j = 0; j < count; ++j) {
          const V distance = hn::Sub(lanes.load(d, row(j) + i), center);
          sum = hn::Add(sum, distance);
          sumOfSquares = hn::MulAdd(distance, distance, sumOfSquares);
        }
        const V shift = hn::Mul(sum, share);
        lanes.store(d, hn::Add(center, shift), means + i);
        lanes.store(d, hn::NegMulAdd(sum, shift, sumOfSquares), squares + i);
      });
}

/// Of vectors of windows, `count` columns each that are `stride` floats apart.
template <class D>
struct ColumnSums {
  using V = hn::Vec<D>;
  std::size_t count;
  std::size_t stride;

  /// The sum of the columns.
  template <class Lanes>
  HWY_INLINE V sum(D d, Lanes lanes, const float* columns) const {
    V sum = lanes.load(d, columns);
    for (std::size_t m = 1; m < count; ++m) sum = hn::Add(sum, lanes.load(d, columns + m * stride));
    return sum;
  }

  /// The mean and the sum of the squared distances from it, given those of columns of `height` values.
  template <class Lanes>
  HWY_INLINE V meanAndSquares(D d, Lanes lanes, const float* means, const float* squares, V height,
                              V& mean) const {
    const V center = lanes.load(d, means + count / 2 * stride);
    V total = hn::Zero(d);
    V sum = hn::Zero(d);
    V sumOfSquares = hn::Zero(d);
    for (std::size_t m = 0; m < count; ++m) {
      const V distance = hn::Sub(lanes.load(d, means + m * stride), center);
      sum = hn::Add(sum, distance);
      sumOfSquares = hn::MulAdd(distance, distance, sumOfSquares);
      total = hn::Add(total, lanes.load(d, squares + m * stride));
    }
    const V shift = hn::Mul(sum, hn::Set(d, 1.0F / static_cast<float>(count)));
    mean = hn::Add(center, shift);
    return hn::MulAdd(hn::NegMulAdd(sum, shift, sumOfSquares), height, total);
  }
};

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
