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
  forVectors(d, count - whole, [&](std::size_t i, auto lanes) { one(whole + i, lanes); });
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
      [&](std::size_t i) {
        auto sums = fourOf(hn::Zero(d));
        for (std::size_t j = 0; j < count; ++j) {
          const auto x = loadFour(d, row(j) + i);
          addProducts(x, x, sums);
        }
        storeFour(d, sums, to + i);
      },
      [&](std::size_t i, auto lanes) {
        auto sum = hn::Zero(d);
        for (std::size_t j = 0; j < count; ++j) {
          const auto x = lanes.load(d, row(j) + i);
          sum = hn::MulAdd(x, x, sum);
        }
        lanes.store(d, sum, to + i);
      });
}

/// to = the weighted sum of the rows. `to` may be row 0 where the others lie behind it.
template <class Row>
HWY_INLINE void sumRows(Row&& row, const float* weights, std::size_t count, float* to, std::size_t length) {
  const hn::ScalableTag<float> d;
  forVectorsByFour(
      d, length,
      [&](std::size_t i) {
        auto sums = fourOf(hn::Zero(d));
        for (std::size_t j = 0; j < count; ++j)
          addProducts(loadFour(d, row(j) + i), fourOf(hn::Set(d, weights[j])), sums);
        storeFour(d, sums, to + i);
      },
      [&](std::size_t i, auto lanes) {
        auto sum = hn::Zero(d);
        for (std::size_t j = 0; j < count; ++j)
          sum = hn::MulAdd(lanes.load(d, row(j) + i), hn::Set(d, weights[j]), sum);
        lanes.store(d, sum, to + i);
      });
}

/// means = the mean of the rows; squares = factor * the sum of their squared distances from it, more than what is
/// there.
template <class Row>
HWY_INLINE void meanAndSquares(Row&& row, std::size_t count, float factor, float* means, float* squares,
                               std::size_t length) {
  const hn::ScalableTag<float> d;
  const auto share = hn::Set(d, 1.0F / static_cast<float>(count));
  const auto factors = hn::Set(d, factor);
  forVectorsByFour(
      d, length,
      [&](std::size_t i) {
        auto sums = fourOf(hn::Zero(d));
        for (std::size_t j = 0; j < count; ++j) {
          const auto x = loadFour(d, row(j) + i);
          sums = {hn::Add(sums.a, x.a), hn::Add(sums.b, x.b), hn::Add(sums.c, x.c), hn::Add(sums.d, x.d)};
        }
        const FourVectors<hn::Vec<decltype(d)>> mean{hn::Mul(sums.a, share), hn::Mul(sums.b, share),
                                                     hn::Mul(sums.c, share), hn::Mul(sums.d, share)};
        sums = fourOf(hn::Zero(d));
        for (std::size_t j = 0; j < count; ++j) {
          const auto x = loadFour(d, row(j) + i);
          const FourVectors<hn::Vec<decltype(d)>> distance{hn::Sub(x.a, mean.a), hn::Sub(x.b, mean.b),
                                                           hn::Sub(x.c, mean.c), hn::Sub(x.d, mean.d)};
          addProducts(distance, distance, sums);
        }
        auto total = loadFour(d, squares + i);
        addProducts(sums, fourOf(factors), total);
        storeFour(d, mean, means + i);
        storeFour(d, total, squares + i);
      },
      [&](std::size_t i, auto lanes) {
        auto sum = hn::Zero(d);
        for (std::size_t j = 0; j < count; ++j) sum = hn::Add(sum, lanes.load(d, row(j) + i));
        const auto mean = hn::Mul(sum, share);
        sum = hn::Zero(d);
        for (std::size_t j = 0; j < count; ++j) {
          const auto distance = hn::Sub(lanes.load(d, row(j) + i), mean);
          sum = hn::MulAdd(distance, distance, sum);
        }
        lanes.store(d, mean, means + i);
        lanes.store(d, hn::MulAdd(sum, factors, lanes.load(d, squares + i)), squares + i);
      });
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
