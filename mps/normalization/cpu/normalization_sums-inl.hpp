// Sums over rows of float32 values, once per instruction set. Include it after hwy/highway.h in a file that
// hwy/foreach_target.h compiles several times; mps/core/cpu/highway_targets.hpp comes before both.

#if defined(UNMETAL_MPS_NORMALIZATION_SUMS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_NORMALIZATION_SUMS_INL_HPP
#undef UNMETAL_MPS_NORMALIZATION_SUMS_INL_HPP
#else
#define UNMETAL_MPS_NORMALIZATION_SUMS_INL_HPP
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "mps/core/cpu/vector_runs-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Calls function(number of rows or columns that loops know beforehand); 0: any number.
template <class Function>
HWY_INLINE void withKnownCount(std::int64_t count, Function&& function) {
  if (count == 3) return function(std::integral_constant<std::size_t, 3>());
  if (count == 5) return function(std::integral_constant<std::size_t, 5>());
  function(std::integral_constant<std::size_t, 0>());
}

/// Calls body(j) for j = first ... count - 1, without a loop where `known` says the count.
template <std::size_t known, std::size_t first, class Body>
HWY_INLINE void forCount(std::size_t count, Body&& body) {
  if constexpr (known != 0) {
    [&]<std::size_t... j>(std::index_sequence<j...>) HWY_ATTR __attribute__((always_inline)) {
      (body(first + j), ...);
    }
    (std::make_index_sequence<known - first>());
  } else {
    for (std::size_t j = first; j < count; ++j) body(j);
  }
}

/// Whether a row or column is the one amid a known number, from which distances are taken: its own is none.
template <std::size_t known>
constexpr bool isKnownMiddle(std::size_t j) {
  return known != 0 && j == known / 2;
}

/// Four vectors side by side. Named, not an array: compilers leave arrays of vectors in memory.
template <class V>
struct VectorQuad {
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
HWY_INLINE VectorQuad<V> loadFour(D d, const float* from) {
  const std::size_t step = hn::Lanes(d);
  return {hn::LoadU(d, from), hn::LoadU(d, from + step), hn::LoadU(d, from + 2 * step),
          hn::LoadU(d, from + 3 * step)};
}
template <class D, class V>
HWY_INLINE void storeFour(D d, const VectorQuad<V>& values, float* to) {
  const std::size_t step = hn::Lanes(d);
  hn::StoreU(values.a, d, to);
  hn::StoreU(values.b, d, to + step);
  hn::StoreU(values.c, d, to + 2 * step);
  hn::StoreU(values.d, d, to + 3 * step);
}
template <class V>
HWY_INLINE void addSquares(const VectorQuad<V>& x, VectorQuad<V>& sums) {
  sums.a = hn::MulAdd(x.a, x.a, sums.a);
  sums.b = hn::MulAdd(x.b, x.b, sums.b);
  sums.c = hn::MulAdd(x.c, x.c, sums.c);
  sums.d = hn::MulAdd(x.d, x.d, sums.d);
}
template <class V>
HWY_INLINE void subtractProducts(const VectorQuad<V>& x, const VectorQuad<V>& y, VectorQuad<V>& sums) {
  sums.a = hn::NegMulAdd(x.a, y.a, sums.a);
  sums.b = hn::NegMulAdd(x.b, y.b, sums.b);
  sums.c = hn::NegMulAdd(x.c, y.c, sums.c);
  sums.d = hn::NegMulAdd(x.d, y.d, sums.d);
}
template <class V>
HWY_INLINE void add(const VectorQuad<V>& x, VectorQuad<V>& sums) {
  sums = {hn::Add(sums.a, x.a), hn::Add(sums.b, x.b), hn::Add(sums.c, x.c), hn::Add(sums.d, x.d)};
}
template <class V>
HWY_INLINE VectorQuad<V> difference(const VectorQuad<V>& x, const VectorQuad<V>& y) {
  return {hn::Sub(x.a, y.a), hn::Sub(x.b, y.b), hn::Sub(x.c, y.c), hn::Sub(x.d, y.d)};
}
template <class V>
HWY_INLINE VectorQuad<V> product(const VectorQuad<V>& x, V factor) {
  return {hn::Mul(x.a, factor), hn::Mul(x.b, factor), hn::Mul(x.c, factor), hn::Mul(x.d, factor)};
}
template <class V>
HWY_INLINE VectorQuad<V> fourOf(V value) {
  return {value, value, value, value};
}

// Rows are given by a function from their number to their address. Sums over `count` rows go to `to`, those of as many
// rows from row 1 on to `next`: what both have in common is read and summed once. `known` is `count` or 0.

/// The sums of the squares of the rows.
template <std::size_t known, class Row>
HWY_INLINE void sumSquares(Row&& row, std::size_t count, std::size_t length, float* to, float* next) {
  const hn::ScalableTag<float> d;
  forVectorsByFour(
      d, length,
      [&](std::size_t i) HWY_ATTR __attribute__((always_inline)) {
        auto shared = fourOf(hn::Zero(d));
        forCount<known, 1>(
            count, [&](std::size_t j) HWY_ATTR
            __attribute__((always_inline)) { addSquares(loadFour(d, row(j) + i), shared); });
        auto sums = shared;
        addSquares(loadFour(d, row(0) + i), sums);
        storeFour(d, sums, to + i);
        addSquares(loadFour(d, row(count) + i), shared);
        storeFour(d, shared, next + i);
      },
      [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
        auto shared = hn::Zero(d);
        const auto withSquare = [&](auto sum, std::size_t j) HWY_ATTR __attribute__((always_inline)) {
          const auto x = lanes.load(d, row(j) + i);
          return hn::MulAdd(x, x, sum);
        };
        forCount<known, 1>(
            count, [&](std::size_t j) HWY_ATTR
            __attribute__((always_inline)) { shared = withSquare(shared, j); });
        lanes.store(d, withSquare(shared, 0), to + i);
        lanes.store(d, withSquare(shared, count), next + i);
      });
}

/// The sums of the rows.
template <std::size_t known, class Row>
HWY_INLINE void sumRows(Row&& row, std::size_t count, std::size_t length, float* to, float* next) {
  const hn::ScalableTag<float> d;
  forVectorsByFour(
      d, length,
      [&](std::size_t i) HWY_ATTR __attribute__((always_inline)) {
        auto shared = fourOf(hn::Zero(d));
        forCount<known, 1>(
            count, [&](std::size_t j) HWY_ATTR
            __attribute__((always_inline)) { add(loadFour(d, row(j) + i), shared); });
        auto sums = shared;
        add(loadFour(d, row(0) + i), sums);
        storeFour(d, sums, to + i);
        add(loadFour(d, row(count) + i), shared);
        storeFour(d, shared, next + i);
      },
      [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
        auto shared = hn::Zero(d);
        forCount<known, 1>(
            count, [&](std::size_t j) HWY_ATTR
            __attribute__((always_inline)) { shared = hn::Add(shared, lanes.load(d, row(j) + i)); });
        lanes.store(d, hn::Add(shared, lanes.load(d, row(0) + i)), to + i);
        lanes.store(d, hn::Add(shared, lanes.load(d, row(count) + i)), next + i);
      });
}

/// to = the weighted sum of the rows. `to` may be row 0 where the others lie behind it.
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

/// Where the mean of rows goes, and the sum of their squared distances from it.
struct Moments {
  float* means;
  float* squares;
};

/// The moments of the rows; where count is 1 `next` becomes anything. Distances are first those from a row amid the
/// others: the mean is not further from it than the distances that are summed, so that the difference of their squares
/// has no more than `count` times the roundings.
template <std::size_t known, class Row>
HWY_INLINE void meanAndSquares(Row&& row, std::size_t count, std::size_t length, const Moments& to,
                               const Moments& next) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const V share = hn::Set(d, 1.0F / static_cast<float>(count));
  const float* const middle = row(count / 2);
  forVectorsByFour(
      d, length,
      [&](std::size_t i) HWY_ATTR __attribute__((always_inline)) {
        const auto center = loadFour(d, middle + i);
        auto sums = fourOf(hn::Zero(d));
        auto squares = sums;
        const auto addRow = [&](std::size_t j, auto& sumsWith, auto& squaresWith) HWY_ATTR
            __attribute__((always_inline)) {
          if (isKnownMiddle<known>(j)) return;
          const auto distance = difference(loadFour(d, row(j) + i), center);
          add(distance, sumsWith);
          addSquares(distance, squaresWith);
        };
        const auto store = [&](std::size_t j, auto sumsWith, auto squaresWith, const Moments& moments)
            HWY_ATTR __attribute__((always_inline)) {
          addRow(j, sumsWith, squaresWith);
          const auto shift = product(sumsWith, share);
          subtractProducts(sumsWith, shift, squaresWith);
          auto mean = center;
          add(shift, mean);
          storeFour(d, mean, moments.means + i);
          storeFour(d, squaresWith, moments.squares + i);
        };
        forCount<known, 1>(
            count, [&](std::size_t j) HWY_ATTR __attribute__((always_inline)) { addRow(j, sums, squares); });
        store(0, sums, squares, to);
        store(count, sums, squares, next);
      },
      [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
        const V center = lanes.load(d, middle + i);
        V sum = hn::Zero(d);
        V squares = hn::Zero(d);
        const auto addRow = [&](std::size_t j, V & sumWith, V & squaresWith) HWY_ATTR
            __attribute__((always_inline)) {
          if (isKnownMiddle<known>(j)) return;
          const V distance = hn::Sub(lanes.load(d, row(j) + i), center);
          sumWith = hn::Add(sumWith, distance);
          squaresWith = hn::MulAdd(distance, distance, squaresWith);
        };
        const auto store = [&](std::size_t j, V sumWith, V squaresWith, const Moments& moments) HWY_ATTR
            __attribute__((always_inline)) {
          addRow(j, sumWith, squaresWith);
          const V shift = hn::Mul(sumWith, share);
          lanes.store(d, hn::Add(center, shift), moments.means + i);
          lanes.store(d, hn::NegMulAdd(sumWith, shift, squaresWith), moments.squares + i);
        };
        forCount<known, 1>(
            count, [&](std::size_t j) HWY_ATTR __attribute__((always_inline)) { addRow(j, sum, squares); });
        store(0, sum, squares, to);
        store(count, sum, squares, next);
      });
}

/// Windows of `count` columns each, that begin a column after each other; a column is `stride` floats. Of two windows
/// side by side the sum of what both see is made once, where columns are whole vectors. `known` is `count` or 0.
template <class D, std::size_t known>
struct ColumnSums {
  using V = hn::Vec<D>;
  std::size_t count;
  std::size_t stride;

  /// Calls two(i, lanes) for the vectors of every first of two windows, then one(i, lanes) for those of single ones.
  template <class Two, class One>
  HWY_INLINE void forWindows(D d, std::size_t windows, Two&& two, One&& one) const {
    const std::size_t paired = stride % hn::Lanes(d) == 0 && count > 1 ? windows / 2 * 2 : 0;
    for (std::size_t w = 0; w < paired; w += 2)
      for (std::size_t c = 0; c < stride; c += hn::Lanes(d)) two(w * stride + c, AllLanes{});
    const std::size_t rest = paired * stride;
    forVectors(
        d, windows * stride - rest, [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
          one(rest + i, lanes);
        });
  }

  /// The sum of the columns of a window.
  template <class Lanes>
  HWY_INLINE V sum(D d, Lanes lanes, const float* columns) const {
    V sum = lanes.load(d, columns);
    forCount<known, 1>(
        count, [&](std::size_t m) HWY_ATTR
        __attribute__((always_inline)) { sum = hn::Add(sum, lanes.load(d, columns + m * stride)); });
    return sum;
  }
  /// The sum of the columns that a window shares with the next one.
  template <class Lanes>
  HWY_INLINE V sharedSum(D d, Lanes lanes, const float* columns) const {
    V sum = lanes.load(d, columns + stride);
    forCount<known, 2>(
        count, [&](std::size_t m) HWY_ATTR
        __attribute__((always_inline)) { sum = hn::Add(sum, lanes.load(d, columns + m * stride)); });
    return sum;
  }

  /// What columns of `height` values, given by their means and sums of squared distances from these, add to those of a
  /// window: by their distance from one amid the window.
  struct Spread {
    V sum;
    V squares;
    V total;
  };
  template <class Lanes>
  HWY_INLINE void addColumn(D d, Lanes lanes, const float* means, const float* squares, V center,
                            Spread& spread) const {
    const V distance = hn::Sub(lanes.load(d, means), center);
    spread.sum = hn::Add(spread.sum, distance);
    spread.squares = hn::MulAdd(distance, distance, spread.squares);
    spread.total = hn::Add(spread.total, lanes.load(d, squares));
  }
  template <std::size_t first, class Lanes>
  HWY_INLINE Spread spreadOf(D d, Lanes lanes, const float* means, const float* squares, V center) const {
    Spread spread{hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    forCount<known, first>(
        count, [&](std::size_t m) HWY_ATTR __attribute__((always_inline)) {
          if (isKnownMiddle<known>(m))
            spread.total = hn::Add(spread.total, lanes.load(d, squares + m * stride));
          else
            addColumn(d, lanes, means + m * stride, squares + m * stride, center, spread);
        });
    return spread;
  }
  /// The sum of a window's squared distances from its mean.
  HWY_INLINE V squaresFrom(D d, const Spread& spread, V height, V center, V& mean) const {
    const V shift = hn::Mul(spread.sum, hn::Set(d, 1.0F / static_cast<float>(count)));
    mean = hn::Add(center, shift);
    return hn::MulAdd(hn::NegMulAdd(spread.sum, shift, spread.squares), height, spread.total);
  }

  /// Calls emit(i, lanes, sum of each...) for the vectors of windows.
  template <class Emit, class... Columns>
  HWY_INLINE void forSums(D d, std::size_t windows, Emit&& emit, Columns... columns) const {
    forWindows(
        d, windows,
        [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
          const auto emitTwo = [&](auto... shared) HWY_ATTR __attribute__((always_inline)) {
            emit(i, lanes, hn::Add(shared, lanes.load(d, columns + i))...);
            emit(i + stride, lanes, hn::Add(shared, lanes.load(d, columns + i + count * stride))...);
          };
          emitTwo(sharedSum(d, lanes, columns + i)...);
        },
        [&](std::size_t i, auto lanes) HWY_ATTR
        __attribute__((always_inline)) { emit(i, lanes, sum(d, lanes, columns + i)...); });
  }

  /// Calls emit(i, lanes, sum of squared distances from the mean, mean), given those of columns of `rows` values.
  template <class Emit>
  HWY_INLINE void forSpreads(D d, const float* means, const float* squares, std::size_t rows,
                             std::size_t windows, Emit&& emit) const {
    const V height = hn::Set(d, static_cast<float>(rows));
    const float* const middle = means + count / 2 * stride;
    forWindows(
        d, windows,
        [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
          const V center = lanes.load(d, middle + i);
          Spread first = spreadOf<1>(d, lanes, means + i, squares + i, center);
          Spread second = first;
          addColumn(d, lanes, means + i, squares + i, center, first);
          const std::size_t last = i + count * stride;
          addColumn(d, lanes, means + last, squares + last, center, second);
          V mean;
          const V ofFirst = squaresFrom(d, first, height, center, mean);
          emit(i, lanes, ofFirst, mean);
          const V ofSecond = squaresFrom(d, second, height, center, mean);
          emit(i + stride, lanes, ofSecond, mean);
        },
        [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
          const V center = lanes.load(d, middle + i);
          V mean;
          const V ofWindow =
              squaresFrom(d, spreadOf<0>(d, lanes, means + i, squares + i, center), height, center, mean);
          emit(i, lanes, ofWindow, mean);
        });
  }
};

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
