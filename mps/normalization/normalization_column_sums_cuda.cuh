#pragma once

#include <cuda_runtime.h>

/// Sums over windows of five pixels by five, and their moments, for four pixels beside one another and two rows at once.
/// Adjacent windows share what four columns or four rows have, and these fours are pairs of pairs.
namespace mps::detail::cuda {

inline constexpr int kColumns = 4;  ///< of a thread
inline constexpr int kColumnsBeside = 2;
inline constexpr int kColumnsSeen = kColumns + 2 * kColumnsBeside;

/// A sum, and `scale` times the squared distances from its mean. Two such are joined by their difference, which is small
/// where values are close to each other, however large they are.
struct Moments {
  static constexpr float scale = 1.25F;
  float sum = 0;
  float squares = 0;

  /// Of four values. @param pairs the sums of two each  @param within their squared differences, added up
  [[nodiscard]] __device__ static Moments ofFour(const float (&pairs)[2], float within) {
    const float between = pairs[0] - pairs[1];
    return {pairs[0] + pairs[1], scale / 4 * fmaf(between, between, within + within)};
  }
  /// Of four values and one.
  [[nodiscard]] __device__ Moments with(float value) const {
    const float distance = fmaf(-0.25F, sum, value);
    return {sum + value, fmaf(distance, distance, squares)};
  }
  /// Of as many values in each. @param factor scale / the number of values of both
  [[nodiscard]] __device__ static Moments ofEqual(const Moments& a, const Moments& b, float factor) {
    const float difference = a.sum - b.sum;
    return {a.sum + b.sum, fmaf(difference * factor, difference, a.squares + b.squares)};
  }
  /// Of four times five values and of five.
  [[nodiscard]] __device__ static Moments ofFourAndOne(const Moments& four, const Moments& one) {
    const float distance = fmaf(-0.25F, four.sum, one.sum);
    return {four.sum + one.sum, fmaf(distance * 0.2F, distance, four.squares + one.squares)};
  }
};

// Pairs of rows or columns of five values, pairs of these, and windows of four such and one.
__device__ inline float pairOf(float a, float b) {
  return a + b;
}
__device__ inline Moments pairOf(const Moments& a, const Moments& b) {
  return Moments::ofEqual(a, b, Moments::scale / 10);
}
__device__ inline float fourOf(float a, float b) {
  return a + b;
}
__device__ inline Moments fourOf(const Moments& a, const Moments& b) {
  return Moments::ofEqual(a, b, Moments::scale / 20);
}
__device__ inline float fiveOf(float four, float one) {
  return four + one;
}
__device__ inline Moments fiveOf(const Moments& four, const Moments& one) {
  return Moments::ofFourAndOne(four, one);
}

/// What five adjacent ones of eight columns have. @tparam Value a float that is added up, or Moments of five values
template <class Value>
__device__ void fiveColumns(const Value (&x)[kColumnsSeen], Value (&windows)[kColumns]) {
  const Value inner = pairOf(x[3], x[4]);
  const Value left = fourOf(pairOf(x[1], x[2]), inner);
  const Value right = fourOf(inner, pairOf(x[5], x[6]));
  windows[0] = fiveOf(left, x[0]);
  windows[1] = fiveOf(left, x[5]);
  windows[2] = fiveOf(right, x[2]);
  windows[3] = fiveOf(right, x[7]);
}

/// Moments of five adjacent ones of eight values.
__device__ inline void fiveValues(const float (&x)[kColumnsSeen], Moments (&windows)[kColumns]) {
  const float inner = x[3] - x[4];
  const float innerSquare = inner * inner;
  const auto four = [&](float a, float b) {
    return Moments::ofFour({a + b, x[3] + x[4]}, fmaf(a - b, a - b, innerSquare));
  };
  const Moments left = four(x[1], x[2]);
  const Moments right = four(x[5], x[6]);
  windows[0] = left.with(x[0]);
  windows[1] = left.with(x[5]);
  windows[2] = right.with(x[2]);
  windows[3] = right.with(x[7]);
}

/// A column of values, for two windows below one another. Of their six rows, 0 to 5, it keeps the pair of rows 1 and 2; the
/// next pair is that of rows 3 and 4. The values are those of rows 0, 3, 4 and 5.
struct ColumnOfSquares {
  float pair = 0;  ///< sum of squares

  __device__ void advance(const float (&rows)[4], float& first, float& second) {
    const float next = fmaf(rows[2], rows[2], rows[1] * rows[1]);
    const float four = pair + next;
    pair = next;
    first = fmaf(rows[0], rows[0], four);
    second = fmaf(rows[3], rows[3], four);
  }
};
struct ColumnOfMoments {
  float pair = 0;    ///< sum
  float square = 0;  ///< of the difference

  __device__ void advance(const float (&rows)[4], Moments& first, Moments& second) {
    const float next = rows[1] + rows[2];
    const float difference = rows[1] - rows[2];
    const float nextSquare = difference * difference;
    const Moments four = Moments::ofFour({pair, next}, square + nextSquare);
    pair = next;
    square = nextSquare;
    first = four.with(rows[0]);
    second = four.with(rows[3]);
  }
};

/// What five rows have, for two windows below one another. @tparam Value a float that is added up, or Moments
template <class Value>
struct FiveRows {
  Value before[2]{};  ///< the second rows of the pairs two and one before
  Value pair{};       ///< the one before
  Value four{};       ///< that and the one before it

  /// The windows that end with the first and the second row of the next pair. @param parity of the pair's number
  __device__ void advance(int parity, const Value& first, const Value& second, Value& ofFirst,
                          Value& ofSecond) {
    ofFirst = fiveOf(four, first);
    const Value next = pairOf(first, second);
    four = fourOf(pair, next);
    pair = next;
    ofSecond = fiveOf(four, before[parity]);
    before[parity] = second;
  }
};

}  // namespace mps::detail::cuda
