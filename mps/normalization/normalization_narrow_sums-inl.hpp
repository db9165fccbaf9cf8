// Sums of five pixels side by side where pixels are narrower than a vector, once per instruction set. Include it after
// hwy/highway.h in a file that hwy/foreach_target.h compiles several times; mps/core/highway_targets.hpp comes before both.

#if defined(UNMETAL_MPS_NORMALIZATION_NARROW_SUMS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_NORMALIZATION_NARROW_SUMS_INL_HPP
#undef UNMETAL_MPS_NORMALIZATION_NARROW_SUMS_INL_HPP
#else
#define UNMETAL_MPS_NORMALIZATION_NARROW_SUMS_INL_HPP
#endif

#include <hwy/highway.h>

#include <cstddef>

#include "mps/normalization/normalization_fives_sums-inl.hpp"
#include "mps/normalization/normalization_narrow.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Sums in rows of working memory; squared distances lie two rows behind the values' sums.
using PlainSum = PlainSums::Sum;
using SpreadSum = SpreadSums::Sum;
inline constexpr std::int64_t kSquaresBehind = 2 * NarrowRuns::rowFloats;

HWY_INLINE void loadSum(const float* from, PlainSum& sum) {
  sum = hn::LoadU(hn::ScalableTag<float>(), from);
}
HWY_INLINE void loadSum(const float* from, SpreadSum& sum) {
  loadSum(from, sum.sum);
  loadSum(from + kSquaresBehind, sum.squares);
}
HWY_INLINE void storeSum(PlainSum sum, float* to) {
  hn::Store(sum, hn::ScalableTag<float>(), to);
}
HWY_INLINE void storeSum(const SpreadSum& sum, float* to) {
  storeSum(sum.sum, to);
  storeSum(sum.squares, to + kSquaresBehind);
}

#if HWY_TARGET == HWY_AVX3

/// Goes along a row and gives the sums of the five columns around those of each vector. Columns beside them are moved between
/// registers: of vectors that begin anywhere most are parts of two cache lines.
template <class Sums>
class FivesAlong {
 public:
  using Sum = typename Sums::Sum;

  FivesAlong(const float* row, std::ptrdiff_t channels)
      : row_(row),
        one_(lanesFrom(channels)),
        two_(lanesFrom(2 * channels)),
        twoBefore_(lanesFrom(NarrowRuns::lanes - 2 * channels)) {
    Sum before;
    loadSum(row - NarrowRuns::lanes, before);
    loadSum(row, center_);
    pair_ = Sums::pair(before, moved(before, center_, one_));
  }
  /// @param i one vector further each time
  HWY_INLINE Sum at(std::size_t i) {
    Sum behind;
    loadSum(row_ + i + NarrowRuns::lanes, behind);
    const Sum pair = Sums::pair(center_, moved(center_, behind, one_));
    const Sum four = Sums::four(moved(pair_, pair, twoBefore_), pair);
    const Sum five = Sums::five(four, moved(center_, behind, two_));
    pair_ = pair;
    center_ = behind;
    return five;
  }

 private:
  static HWY_INLINE __m512i lanesFrom(std::ptrdiff_t first) {
    return hn::Iota(hn::ScalableTag<std::int32_t>(), static_cast<std::int32_t>(first)).raw;
  }
  /// As many lanes of two adjacent vectors.
  static HWY_INLINE PlainSum moved(PlainSum low, PlainSum high, __m512i lanes) {
    return PlainSum{_mm512_permutex2var_ps(low.raw, lanes, high.raw)};
  }
  static HWY_INLINE SpreadSum moved(const SpreadSum& low, const SpreadSum& high, __m512i lanes) {
    return {moved(low.sum, high.sum, lanes), moved(low.squares, high.squares, lanes)};
  }

  const float* row_;
  __m512i one_;
  __m512i two_;
  __m512i twoBefore_;
  Sum center_;
  Sum pair_;
};

#else

/// Goes along a row and gives the sums of the five columns around those of each vector.
template <class Sums>
class FivesAlong {
 public:
  using Sum = typename Sums::Sum;

  FivesAlong(const float* row, std::ptrdiff_t channels) : row_(row), channels_(channels) {}
  HWY_INLINE Sum at(std::size_t i) const {
    const Sum four =
        Sums::four(Sums::pair(column(i, -2), column(i, -1)), Sums::pair(column(i, 1), column(i, 2)));
    return Sums::five(four, column(i, 0));
  }

 private:
  HWY_INLINE Sum column(std::size_t i, std::ptrdiff_t distance) const {
    Sum sum;
    loadSum(row_ + distance * channels_ + i, sum);
    return sum;
  }

  const float* row_;
  std::ptrdiff_t channels_;
};

#endif

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
