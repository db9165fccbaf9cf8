#include "mps/normalization/normalization_narrow.hpp"

#include <algorithm>
#include <type_traits>

#include "mps/core/highway_targets.hpp"
#include "mps/core/storage.hpp"
#include "mps/core/streamed_stores.hpp"
#include "mps/normalization/normalization_constants.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/normalization/normalization_narrow.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/core/vector_io-inl.hpp"
#include "mps/normalization/normalization_narrow_rows-inl.hpp"
#include "mps/normalization/normalization_narrow_sums-inl.hpp"
#include "mps/normalization/normalization_powers-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// Computes rows, two at once. The bodies of the loops say always_inline: the compiler would call them, and then keep all
/// constants in memory.
/// @tparam T elements of the tensors
template <bool isContrast, class T>
class NarrowWindows : private NarrowRows<T> {
  using Base = NarrowRows<T>;
  using Rows = NarrowRuns::Rows;
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
  using Sums = std::conditional_t<isContrast, SpreadSums, SquareSums>;
  static constexpr std::int64_t kRow = NarrowRuns::rowFloats;
  static constexpr std::int64_t kReach = NarrowRuns::size / 2;

 public:
  NarrowWindows(const NormalizationProblem& problem, const Operands& operands, std::byte* working)
      : Base(problem, operands, working),
        power_(problem.beta),
        constants_(problem),
        channels_(static_cast<std::ptrdiff_t>(problem.destination.channels)) {}

  /// Rows [begin, end) of image n; `begin` is even.
  void compute(std::int64_t n, std::int64_t begin, std::int64_t end) {
    this->beginImage(n);
    if (!this->problem_.isGradient()) {
      for (std::int64_t y = begin; y < end; y += 2) computeResults(y);
      return;
    }
    for (std::int64_t row = Rows::sums; row < Rows::sums + 8; ++row)
      std::fill_n(this->rows_ + row * kRow, this->length_, 0.0F);
    for (std::int64_t y = std::max<std::int64_t>(0, begin - kReach); y < end + kReach; y += 2) {
      computeFields(y);
      computeGradients(y, begin);
    }
  }
  using Base::finish;

 private:
  [[nodiscard]] float* row(std::int64_t number) const { return this->rows_ + number * kRow; }

  /// The sums of the columns of the windows of rows y and y + 1.
  HWY_NOINLINE void sumColumns(std::int64_t y) {
    const D d;
    for (std::int64_t j = 0; j < 6; ++j) source_[j] = this->sourceRow(y - kReach + j);
    const float* const row0 = source_[0];
    const float* const row1 = source_[1];
    const float* const row2 = source_[2];
    const float* const row3 = source_[3];
    const float* const row4 = source_[4];
    const float* const row5 = source_[5];
    float* const to = row(Rows::columns);
    const std::size_t length = this->length_;
    for (std::size_t i = 0; i < length; i += hn::Lanes(d)) {
      typename Sums::Sum first;
      typename Sums::Sum second;
      Sums::columns(hn::Load(d, row0 + i), hn::Load(d, row1 + i), hn::Load(d, row2 + i),
                    hn::Load(d, row3 + i), hn::Load(d, row4 + i), hn::Load(d, row5 + i), first, second);
      storeSum(first, to + i);
      storeSum(second, to + kRow + i);
    }
  }

  /// T of two rows of windows whose columns are summed, and of LocalContrast their means. Apart from what is made of them: of
  /// long chains of instructions a processor overlaps few.
  HWY_NOINLINE void sumWindows() {
    const D d;
    const V delta = hn::Set(d, constants_.delta);
    const V share = hn::Set(d, Sums::share * constants_.alphaShare);
    const V part = hn::Set(d, 1.0F / (NarrowRuns::size * NarrowRuns::size));
    FivesAlong<Sums> fives0(row(Rows::columns), channels_), fives1(row(Rows::columns + 1), channels_);
    float* const windows = row(Rows::windows);
    const auto store = [&](const typename Sums::Sum& sum, float* t) HWY_ATTR __attribute__((always_inline)) {
      if constexpr (isContrast) {
        hn::Store(hn::MulAdd(sum.squares, share, delta), d, t);
        hn::Store(hn::Mul(sum.sum, part), d, t + 2 * kRow);
      } else {
        hn::Store(hn::MulAdd(sum, share, delta), d, t);
      }
    };
    const std::size_t length = this->length_;
    for (std::size_t i = 0; i < length; i += hn::Lanes(d)) {
      store(fives0.at(i), windows + i);
      store(fives1.at(i), windows + kRow + i);
    }
  }

  void computeResults(std::int64_t y) {
    this->beginResults(y, std::min<std::int64_t>(2, this->height_ - y));
    sumColumns(y);
    sumWindows();
    withPowerKind(power_, [&](auto kind) { computeResultRows<kind.value>(); });
  }
  template <PowerKind kind>
  HWY_NOINLINE void computeResultRows() const {
    const D d;
    const V p0 = hn::Set(d, constants_.p0);
    const V pm = hn::Set(d, constants_.pm);
    const V ps = hn::Set(d, constants_.ps);
    const NegativePower<kind, D, true> powerOf(power_);
    const float* const x0 = source_[kReach];
    const float* const x1 = source_[kReach + 1];
    T* const to0 = this->result(0);
    T* const to1 = this->result(1);
    const float* const windows = row(Rows::windows);
    const auto store = [&](auto lanes, const float* t, const float* x, T* to) HWY_ATTR
        __attribute__((always_inline)) {
      V value = hn::Load(d, x);
      const V power = powerOf(d, hn::Load(d, t));
      if constexpr (isContrast) {
        value = hn::Mul(hn::NegMulAdd(p0, hn::Load(d, t + 2 * kRow), value), ps);
        value = hn::MulAdd(value, power, pm);
      } else {
        value = hn::Mul(value, power);
      }
      storeElements(lanes, value, to);
    };
    forVectors(
        d, this->length_, [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
          store(lanes, windows + i, x0 + i, to0 + i);
          store(lanes, windows + kRow + i, x1 + i, to1 + i);
        });
  }

  /// What the windows of rows y and y + 1 leave for the gradient: dY T^-beta, for their centers; B = factor dY
  /// numerator T^(-beta - 1); and, of LocalContrast, what the window's mean adds, p0 / N dY T^-beta - B mean.
  void computeFields(std::int64_t y) {
    const std::int64_t rows = std::clamp<std::int64_t>(this->height_ - y, 0, 2);
    if (rows > 0) {
      sumColumns(y);
      sumWindows();
      withPowerKind(power_, [&](auto kind) {
        for (std::int64_t k = 0; k < rows; ++k) computeFieldRow<kind.value>(y, k);
      });
    }
    for (std::int64_t k = rows; k < 2; ++k)
      for (const std::int64_t field : {Rows::fields, Rows::fields + 2})
        std::fill_n(row(field + k), this->length_, 0.0F);
  }
  /// One row: incoming gradients that are read in the order of memory arrive sooner.
  template <PowerKind kind>
  HWY_NOINLINE void computeFieldRow(std::int64_t y, std::int64_t k) const {
    const D d;
    const V p0 = hn::Set(d, constants_.p0);
    const V p0Share = hn::Set(d, constants_.p0Share);
    const V factor = hn::Set(d, constants_.factor);
    const NegativePower<kind, D, true> powerOf(power_);
    const float* const x = source_[kReach + k];
    const T* const dy = this->gradientRow(y + k);
    const float* const t = row(Rows::windows + k);
    float* const ofCenters = row(Rows::centers + ((y + k) & 3));
    float* const ofSquares = row(Rows::fields + k);
    forVectors(
        d, this->length_, [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
          V power, next;
          powerOf.both(d, hn::Load(d, t + i), power, next);
          const V gradient = loadElements(lanes, dy + i);
          const V a = hn::Mul(gradient, power);
          lanes.store(d, a, ofCenters + i);
          V numerator = hn::Load(d, x + i);
          V mean = numerator;
          if constexpr (isContrast) {
            mean = hn::Load(d, t + 2 * kRow + i);
            numerator = hn::NegMulAdd(p0, mean, numerator);
          }
          const V b = hn::Mul(hn::Mul(gradient, numerator), hn::Mul(factor, next));
          lanes.store(d, b, ofSquares + i);
          if (isContrast) lanes.store(d, hn::MulSub(p0Share, a, hn::Mul(b, mean)), ofSquares + 2 * kRow + i);
        });
  }

  /// Adds the fields of the windows of rows y and y + 1 to those before them, and gives the gradients of rows y - 2 and
  /// y - 1, of which those before `begin` are not wanted.
  HWY_NOINLINE void computeGradients(std::int64_t y, std::int64_t begin) {
    const D d;
    const std::int64_t result = y - kReach;
    this->beginResults(result, result < begin ? 0 : std::clamp<std::int64_t>(this->height_ - result, 0, 2));
    T* const to0 = this->result(0);
    T* const to1 = this->result(1);
    const float* const x = this->keptRow(result);
    const float* const centers = row(Rows::centers + (result & 3));
    // Sums along rows of four rows of windows, of which the first two become those of new ones.
    float* const older = row(Rows::sums + (y & 3));
    const float* const old = row(Rows::sums + ((y + 2) & 3));
    const float* const fields = row(Rows::fields);
    FivesAlong<PlainSums> squaresAlong0(fields, channels_), squaresAlong1(fields + kRow, channels_),
        meansAlong0(fields + 2 * kRow, channels_), meansAlong1(fields + 3 * kRow, channels_);
    const V ps = hn::Set(d, constants_.ps);
    const bool adds = this->operands_.accumulate;
    // Makes the sums over five rows each of those along two new ones.
    const auto sumRows = [&](std::size_t at, V & first, V & second) HWY_ATTR __attribute__((always_inline)) {
      const V shared = hn::Add(hn::Add(hn::Load(d, older + at + kRow), hn::Load(d, old + at)),
                               hn::Add(hn::Load(d, old + at + kRow), first));
      const V ofFirst = hn::Add(shared, hn::Load(d, older + at));
      hn::Store(first, d, older + at);
      hn::Store(second, d, older + at + kRow);
      first = ofFirst;
      second = hn::Add(shared, second);
    };
    const auto store = [&](auto lanes, V ofSquares, V ofMeans, std::size_t at, T* to) HWY_ATTR
        __attribute__((always_inline)) {
      V value = hn::Load(d, centers + at);
      if (isContrast) value = hn::Sub(value, ofMeans);
      value = hn::NegMulAdd(hn::Load(d, x + at), ofSquares, value);
      if (isContrast) value = hn::Mul(value, ps);
      if (std::is_same_v<T, float> && adds) value = hn::Add(value, loadElements(lanes, to));
      storeElements(lanes, value, to);
    };
    forVectors(
        d, this->length_, [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
          V squares0 = squaresAlong0.at(i);
          V squares1 = squaresAlong1.at(i);
          sumRows(i, squares0, squares1);
          V means0 = squares0;
          V means1 = squares1;
          if constexpr (isContrast) {
            means0 = meansAlong0.at(i);
            means1 = meansAlong1.at(i);
            sumRows(i + 4 * kRow, means0, means1);
          }
          store(lanes, squares0, means0, i, to0 + i);
          store(lanes, squares1, means1, i + kRow, to1 + i);
        });
  }

  const PowerRule power_;
  const WindowConstants constants_;
  const std::ptrdiff_t channels_;
  const float* source_[6] = {};  ///< the rows that the windows of two rows see
};

template <bool isContrast, class T>
void normalizeNarrowOf(const NormalizationProblem& problem, const Operands& operands, std::byte* working,
                       std::int64_t begin, std::int64_t end) {
  const std::int64_t height = problem.destination.height;
  const std::int64_t steps = NarrowRuns::steps(height);
  NarrowWindows<isContrast, T> rows(problem, operands, working);
  while (begin < end) {
    const std::int64_t image = begin / steps;
    const std::int64_t last = std::min(end, (image + 1) * steps);
    rows.compute(image, 2 * (begin - image * steps), std::min(height, 2 * (last - image * steps)));
    begin = last;
  }
  rows.finish();
  finishStreaming();
}

void normalizeNarrowRows(const NormalizationProblem& problem, const Operands& operands, std::byte* working,
                         std::int64_t begin, std::int64_t end) {
  const bool isContrast = problem.kind == NormalizationKind::LocalContrast;
  const bool isHalf = problem.source.format == ImageFeatureChannelFormat::Float16;
  const auto normalize = isContrast
                             ? isHalf ? normalizeNarrowOf<true, Float16> : normalizeNarrowOf<true, float>
                         : isHalf ? normalizeNarrowOf<false, Float16>
                                  : normalizeNarrowOf<false, float>;
  normalize(problem, operands, working, begin, end);
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace mps::detail {

HWY_EXPORT(normalizeNarrowRows);

void normalizeNarrow(const NormalizationProblem& problem, const Operands& operands, std::byte* working,
                     std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(normalizeNarrowRows)(problem, operands, working, begin, end);
}

}  // namespace mps::detail

#endif
