// Sums of five values or columns side by side, once per instruction set. Include it after hwy/highway.h in a file that
// hwy/foreach_target.h compiles several times; mps/core/highway_targets.hpp comes before both.

#if defined(UNMETAL_MPS_NORMALIZATION_FIVES_SUMS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_NORMALIZATION_FIVES_SUMS_INL_HPP
#undef UNMETAL_MPS_NORMALIZATION_FIVES_SUMS_INL_HPP
#else
#define UNMETAL_MPS_NORMALIZATION_FIVES_SUMS_INL_HPP
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Of five, pairs make fours, and a four and one more make five: two fives side by side share a four. Each kind of sums
// says what the sums of a column are, and a pair, a four and a five of columns side by side.
// Constructors are written out: GCC compiles implicit ones without this region's instruction set, and NEON's vectors cannot
// be inlined there.

/// Sums of values.
struct PlainSums {
  using D = hn::ScalableTag<float>;
  using Sum = hn::Vec<D>;
  static HWY_INLINE Sum zero() { return hn::Zero(D()); }
  static HWY_INLINE Sum pair(Sum a, Sum b) { return hn::Add(a, b); }
  static HWY_INLINE Sum four(Sum a, Sum b) { return hn::Add(a, b); }
  static HWY_INLINE Sum five(Sum four, Sum a) { return hn::Add(four, a); }
};

/// Sums of squares.
struct SquareSums : PlainSums {
  /// What sums are multiplied with to become those of squares.
  static constexpr float share = 1;
  /// Of columns of five values, of two that have all but the first of the one and the last of the other in common.
  static HWY_INLINE void columns(Sum a, Sum b, Sum c, Sum e, Sum f, Sum g, Sum& first, Sum& second) {
    const Sum four = hn::Add(hn::MulAdd(b, b, hn::Mul(c, c)), hn::MulAdd(e, e, hn::Mul(f, f)));
    first = hn::MulAdd(a, a, four);
    second = hn::MulAdd(g, g, four);
  }
};

/// Sums of values, and twenty times those of their squared distances from their mean, which leaves most steps without a
/// factor. Where two groups meet, the square of what their means differ by is added: of numbers that are large and differ
/// little no large squares are subtracted.
struct SpreadSums {
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
  struct Sum {
    HWY_INLINE Sum() {}
    HWY_INLINE Sum(V values, V squaredDistances) : sum(values), squares(squaredDistances) {}
    V sum;
    V squares;
  };
  static constexpr float share = 0.05F;
  static HWY_INLINE Sum zero() { return {hn::Zero(D()), hn::Zero(D())}; }
  static HWY_INLINE void columns(V a, V b, V c, V e, V f, V g, Sum& first, Sum& second) {
    const V pair0 = hn::Add(b, c);
    const V pair1 = hn::Add(e, f);
    const V distance0 = hn::Sub(b, c);
    const V distance1 = hn::Sub(e, f);
    const V ofPairs = hn::MulAdd(distance0, distance0, hn::Mul(distance1, distance1));
    const V distance = hn::Sub(pair0, pair1);
    const V squares =
        hn::MulAdd(hn::Mul(distance, hn::Set(D(), 5.0F)), distance, hn::Mul(ofPairs, hn::Set(D(), 10.0F)));
    const Sum four{hn::Add(pair0, pair1), squares};
    first = fiveOfValues(four, a);
    second = fiveOfValues(four, g);
  }
  static HWY_INLINE Sum pair(const Sum& a, const Sum& b) {
    const V distance = hn::Sub(a.sum, b.sum);
    return {hn::Add(a.sum, b.sum),
            hn::MulAdd(hn::Add(distance, distance), distance, hn::Add(a.squares, b.squares))};
  }
  static HWY_INLINE Sum four(const Sum& a, const Sum& b) {
    const V distance = hn::Sub(a.sum, b.sum);
    return {hn::Add(a.sum, b.sum), hn::MulAdd(distance, distance, hn::Add(a.squares, b.squares))};
  }
  static HWY_INLINE Sum five(const Sum& four, const Sum& a) {
    const V distance = hn::MulSub(hn::Set(D(), 4.0F), a.sum, four.sum);
    return {hn::Add(four.sum, a.sum),
            hn::MulAdd(hn::Mul(distance, hn::Set(D(), 0.2F)), distance, hn::Add(four.squares, a.squares))};
  }

 private:
  static HWY_INLINE Sum fiveOfValues(const Sum& four, V a) {
    const V distance = hn::MulSub(hn::Set(D(), 4.0F), a, four.sum);
    return {hn::Add(four.sum, a), hn::MulAdd(distance, distance, four.squares)};
  }
};

/// Goes along columns, two at a time, and gives the sums of five around the two columns before them.
template <class Sums>
class FiveWalk {
 public:
  using Sum = typename Sums::Sum;

  HWY_INLINE FiveWalk() {}
  /// The first four columns.
  HWY_INLINE void begin(const Sum& a, const Sum& b, const Sum& c, const Sum& e) {
    pair_ = Sums::pair(c, e);
    four_ = Sums::four(Sums::pair(a, b), pair_);
    beforeLast_ = b;
    last_ = e;
  }
  HWY_INLINE void step(const Sum& a, const Sum& b, Sum& first, Sum& second) {
    first = Sums::five(four_, a);
    const Sum pair = Sums::pair(a, b);
    four_ = Sums::four(pair_, pair);
    second = Sums::five(four_, beforeLast_);
    pair_ = pair;
    beforeLast_ = last_;
    last_ = b;
  }

 private:
  Sum pair_;
  Sum four_;
  Sum beforeLast_;
  Sum last_;
};

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
