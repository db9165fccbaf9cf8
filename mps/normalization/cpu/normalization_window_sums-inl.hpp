// Sums of windows, two rows of windows at once, once per instruction set. Include it after hwy/highway.h in a file that
// hwy/foreach_target.h compiles several times; mps/core/cpu/highway_targets.hpp comes before both.

#if defined(UNMETAL_MPS_NORMALIZATION_WINDOW_SUMS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_NORMALIZATION_WINDOW_SUMS_INL_HPP
#undef UNMETAL_MPS_NORMALIZATION_WINDOW_SUMS_INL_HPP
#else
#define UNMETAL_MPS_NORMALIZATION_WINDOW_SUMS_INL_HPP
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "mps/normalization/cpu/normalization_constants.hpp"
#include "mps/normalization/cpu/normalization_powers-inl.hpp"
#include "mps/normalization/cpu/normalization_sums-inl.hpp"
#include "mps/normalization/cpu/normalization_tile_rows-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// A tile's rows, and T of their windows.
class WindowSums : protected TileRows {
 protected:
  WindowSums(const NormalizationProblem& problem, const WindowTiles& tiles, const Operands& operands,
             std::byte* working)
      : TileRows(problem, tiles, operands, working),
        constants_(problem),
        kernelWidth_(problem.x.kernelSize),
        kernelHeight_(problem.y.kernelSize),
        isContrast_(problem.kind == NormalizationKind::LocalContrast),
        t_(take(1)),
        means_(take(1)) {
    for (Row& row : atOnce_) {
      row.moments = {take(1), take(1)};
      row.center = take(1);
      row.target = take(1);
    }
  }

  /// Of one of the rows of windows or pixels that are computed at once.
  struct Row {
    Moments moments;  ///< of columns; where they are of squares alone, their sums are in `squares`
    float* center;
    float* target;
  };
  void beginWindows(const WindowRange& windows) {
    setWindows(windows);
    pairOfRows_ = noPair;
    // Columns outside the source stay zero, or become what the edge is.
    for (const Row& row : atOnce_)
      for (float* const values : {row.moments.means, row.moments.squares})
        std::fill_n(values, floats(read_.count), 0.0F);
  }

  /// The last of the rows of the source that the windows behind those of row y see, where `rows` are computed at once.
  RowAhead sourceAhead(std::int64_t y, std::int64_t rows) const {
    return rowAhead(problem_.source, operands_.source, problem_.y.firstTap(y) + kernelHeight_ + rows - 1,
                    read_.begin);
  }

  /// Begins the sums over the columns of the windows of rows from y on.
  void beginColumns(std::int64_t y, std::int64_t rows) {
    atOnceCount_ = rows;
    const std::int64_t count = kernelHeight_ + rows - 1;
    std::int64_t j = 0;
    if (y == pairOfRows_ + 2) {  // all but the last two rows are those of the pair before
      for (; j + 2 <= kernelHeight_; ++j) rows_[j] = rows_[j + 2];
    }
    for (; j < count; ++j) rows_[j] = sourceRow(problem_.y.firstTap(y) + j);
    if (rows == 1) rows_[kernelHeight_] = zeros_;
    pairOfRows_ = rows == 2 ? y : noPair;
    summed_ = 0;
  }

  /// Makes the sums of columns up to `end`: of their squares; of LocalContrast their means and squared distances.
  HWY_NOINLINE void sumColumns(std::int64_t end) {
    const std::int64_t first = std::clamp<std::int64_t>(read_.begin - read_.first, 0, read_.count);
    const std::int64_t last = std::clamp(read_.end - read_.first, first, read_.count);
    const std::int64_t from = std::max(summed_, first);
    const std::int64_t to = std::min(end, last);
    if (from < to) {
      const std::size_t begin = floats(from);
      const std::size_t source = floats(from - (read_.begin - read_.first));
      const auto row = [&](std::size_t j) { return rows_[j] + source; };
      const auto height = static_cast<std::size_t>(kernelHeight_);
      const Moments ofFirst{atOnce_[0].moments.means + begin, atOnce_[0].moments.squares + begin};
      const Moments ofNext{atOnce_[1].moments.means + begin, atOnce_[1].moments.squares + begin};
      withKnownCount(
          kernelHeight_, [&](auto known) HWY_ATTR __attribute__((always_inline)) {
            if (isContrast_)
              meanAndSquares<known()>(row, height, floats(to - from), ofFirst, ofNext);
            else
              sumSquares<known()>(row, height, floats(to - from), ofFirst.squares, ofNext.squares);
          });
    }
    if (problem_.edgeMode == ImageEdgeMode::Clamp) {
      if (summed_ == 0) extend(0, first, first);
      if (end > last) extend(std::max(summed_, last), end, last - 1);
    }
    summed_ = end;
  }

  /// Columns outside the source stand for its edge.
  void extend(std::int64_t from, std::int64_t to, std::int64_t edge) const {
    for (const Row& row : atOnce_)
      for (float* const values : {row.moments.means, row.moments.squares})
        for (std::int64_t x = from; x < to; ++x)
          std::copy_n(values + floats(edge), floats(1), values + floats(x));
  }

  /// Makes T of windows [begin, end), and of LocalContrast their means. Apart from what is made of them: of long
  /// chains of instructions a processor overlaps few.
  HWY_NOINLINE void sumWindows(const Moments& moments, std::int64_t begin, std::int64_t end) const {
    const hn::ScalableTag<float> d;
    const auto alphaShare = hn::Set(d, constants_.alphaShare);
    const auto delta = hn::Set(d, constants_.delta);
    const float* const means = moments.means + floats(begin);
    const float* const squares = moments.squares + floats(begin);
    const auto count = static_cast<std::size_t>(end - begin);
    float* const t = t_;
    float* const meansOut = means_;
    withKnownCount(
        kernelWidth_, [&](auto known) HWY_ATTR __attribute__((always_inline)) {
          const ColumnSums<hn::ScalableTag<float>, known()> columns{static_cast<std::size_t>(kernelWidth_),
                                                                    floats(1)};
          if (isContrast_)
            columns.forSpreads(
                d, means, squares, static_cast<std::size_t>(kernelHeight_), count,
                [&](std::size_t i, auto lanes, auto sum, auto mean) HWY_ATTR __attribute__((always_inline)) {
                  lanes.store(d, hn::MulAdd(sum, alphaShare, delta), t + i);
                  lanes.store(d, mean, meansOut + i);
                });
          else
            columns.forSums(
                d, count,
                [&](std::size_t i, auto lanes, auto sum) HWY_ATTR
                __attribute__((always_inline)) { lanes.store(d, hn::MulAdd(sum, alphaShare, delta), t + i); },
                squares);
        });
  }

  /// Calls body(begin, end) for ranges of columns between two: what is made of one stays in the first-level cache.
  template <class Body>
  HWY_INLINE void forBlocks(std::int64_t begin, std::int64_t end, Body&& body) const {
    constexpr std::int64_t blockFloats = 512;
    constexpr std::int64_t largestVector = 16;
    std::int64_t step = std::max<std::int64_t>(1, blockFloats / channels_);
    if (step > largestVector) step = step / largestVector * largestVector;
    for (std::int64_t first = begin; first < end; first += step) body(first, std::min(end, first + step));
  }

  /// Calls body(how to compute T^-beta, row, first float, floats) for blocks of `count` windows of each row that is
  /// computed at once, whose T and means are then in t_ and means_.
  template <class Body>
  HWY_INLINE void forWindowBlocks(std::int64_t count, Body&& body) {
    withPowerKind(
        tiles_.power, [&](auto kind) HWY_ATTR __attribute__((always_inline)) {
          const NegativePower<decltype(kind)::value, hn::ScalableTag<float>> powerOf(tiles_.power);
          forBlocks(
              0, count, [&](std::int64_t begin, std::int64_t end) HWY_ATTR __attribute__((always_inline)) {
                sumColumns(end + kernelWidth_ - 1);
                for (std::int64_t k = 0; k < atOnceCount_; ++k) {
                  sumWindows(atOnce_[k].moments, begin, end);
                  body(powerOf, k, floats(begin), floats(end - begin));
                }
              });
        });
  }

  /// The source pixels that the windows of a row are centered at, the k-th of those that beginColumns() began.
  const float* centers(std::int64_t k) {
    float* const buffer = atOnce_[k].center;
    const std::int64_t first = problem_.x.offset + windows_.begin;
    const std::int64_t count = windows_.end - windows_.begin;
    const float* const row = rows_[kernelHeight_ / 2 + k];
    if (row == zeros_) return zeros_;
    if (first >= read_.begin && first + count <= read_.end) return row + floats(first - read_.begin);
    const std::size_t channels = floats(1);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t x = first + i;
      const bool isInside = x >= 0 && x < problem_.x.sourceSize;
      if (isInside || problem_.edgeMode == ImageEdgeMode::Clamp)
        std::copy_n(row + floats(std::clamp<std::int64_t>(x, 0, problem_.x.sourceSize - 1) - read_.begin),
                    channels, buffer + floats(i));
      else
        std::fill_n(buffer + floats(i), channels, 0.0F);
    }
    return buffer;
  }

  WindowConstants constants_;
  std::int64_t kernelWidth_;
  std::int64_t kernelHeight_;
  bool isContrast_;

  Row atOnce_[WindowTiles::mostAtOnce];
  std::int64_t atOnceCount_ = 0;
  std::int64_t summed_ = 0;  ///< columns of which there are sums over rows
  float* t_;                 ///< of the block of windows that is computed
  float* means_;             ///< likewise

 private:
  static constexpr std::int64_t noPair = -3;  ///< nor is the next one a row

  const float* rows_[WindowTiles::mostKept];  ///< that are summed
  std::int64_t pairOfRows_ = noPair;          ///< the first of two rows of windows that these are for
};

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
