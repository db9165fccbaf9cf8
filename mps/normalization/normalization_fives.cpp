#include "mps/normalization/normalization_fives.hpp"

#include <algorithm>
#include <type_traits>

#include "mps/core/highway_targets.hpp"
#include "mps/core/storage.hpp"
#include "mps/core/streamed_stores.hpp"
#include "mps/normalization/normalization_constants.hpp"
#include "mps/normalization/normalization_windows.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/normalization/normalization_fives.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/core/vector_io-inl.hpp"
#include "mps/normalization/normalization_fives_sums-inl.hpp"
#include "mps/normalization/normalization_powers-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// Computes rows, tile by tile and two at once. The bodies of the loops say always_inline: the compiler
/// would call them, and then keep all constants in memory.
/// @tparam T elements of the tensors
template <bool isContrast, class T>
class FiveRows {
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
  using Sums = std::conditional_t<isContrast, SpreadSums, SquareSums>;
  static constexpr std::int64_t kLanes = hn::MaxLanes(D());
  static constexpr std::int64_t kFields = isContrast ? 2 : 1;
  static constexpr std::int64_t kReach = FiveTiles::size / 2;

 public:
  FiveRows(const NormalizationProblem& problem, const FiveTiles& tiles, const Operands& operands,
           std::byte* working)
      : problem_(problem),
        tiles_(tiles),
        operands_(operands),
        constants_(problem),
        width_(problem.destination.width),
        height_(problem.destination.height),
        streams_(!operands.accumulate &&
                 writesRowsPastCaches(
                     problem.source.bytes() + problem.gradient.bytes() + problem.destination.bytes(),
                     problem.destination)),
        next_(reinterpret_cast<float*>(working)) {
    const std::int64_t columns = tiles.columnsAround();
    for (std::int64_t k = 0; k < 2; ++k) {
      t_[k] = take(columns);
      means_[k] = take(columns);
    }
    const std::int64_t vectors = tiles.strips * columns;
    for (auto& field : sums_)
      for (float*& row : field) row = take(vectors);
    for (float*& row : direct_) row = take(vectors);
    for (float*& row : results_) row = take(vectors);
  }

  /// Rows [begin, end) of image n; `begin` is even.
  void compute(std::int64_t n, std::int64_t begin, std::int64_t end) {
    const TensorShape& shape = problem_.destination;
    image_ = n;
    for (firstChannel_ = 0; firstChannel_ < shape.channels; firstChannel_ += channels_) {
      channels_ = std::min(tiles_.strips * FiveTiles::lanes, shape.channels - firstChannel_);
      for (std::int64_t first = 0; first < width_; first += tiles_.columnStep) {
        columns_ = {first, std::min(width_, first + tiles_.columnStep)};
        computeTile(begin, end);
      }
    }
  }

 private:
  float* take(std::int64_t vectors) {
    float* const taken = next_;
    next_ += (vectors + FiveTiles::gap) * FiveTiles::lanes;
    return taken;
  }
  [[nodiscard]] WindowRange widened(const WindowRange& range) const {
    return {std::max<std::int64_t>(0, range.begin - kReach), std::min(width_, range.end + kReach)};
  }

  void computeTile(std::int64_t begin, std::int64_t end) {
    windows_ = problem_.isGradient() ? widened(columns_) : columns_;
    read_ = widened(windows_);
    strips_ = channels_ / kLanes;
    sourceStep_ = static_cast<std::size_t>(problem_.source.pixelStride);
    gradientStep_ = static_cast<std::size_t>(problem_.gradient.pixelStride);
    firstRow_ = begin;
    if (!problem_.isGradient()) {
      for (std::int64_t y = begin; y < end; y += 2) computeResultRows(y);
      return;
    }
    clearSums();
    for (std::int64_t y = std::max<std::int64_t>(0, begin - kReach); y < end + kReach; y += 2) computeRows(y);
  }

  void clearSums() {
    const auto floats = static_cast<std::size_t>(tiles_.strips * tiles_.columnsAround() * FiveTiles::lanes);
    for (auto& field : sums_)
      for (float* const row : field) std::fill_n(row, floats, 0.0F);
    for (std::int64_t k = 0; k < 2; ++k)
      for (float* const row : {t_[k], means_[k]})
        std::fill_n(row, tiles_.columnsAround() * FiveTiles::lanes, 0.0F);
  }

  /// What the windows of rows y and y + 1 see.
  void findSources(std::int64_t y) {
    for (std::int64_t j = 0; j < 6; ++j) {
      const std::int64_t row = y - kReach + j;
      source_[j] =
          row >= 0 && row < height_ ? direct(problem_.source, operands_.source, row, read_.begin) : nullptr;
    }
  }

  /// Results of rows y and y + 1.
  void computeResultRows(std::int64_t y) {
    findSources(y);
    for (std::int64_t k = 0; k < 2; ++k) target_[k] = targetRow(y + k, k);
    sourceAhead_ = RowsAhead(problem_.source, operands_.source, image_, y + 4, strips_ * width_);
    for (std::int64_t strip = 0; strip < strips_; ++strip) {
      sumWindowsOfRows(y, strip);
      withPowerKind(tiles_.power, [&](auto kind) HWY_ATTR {
        const NegativePower<decltype(kind)::value, D, true> powerOf(tiles_.power);
        for (std::int64_t k = 0; k < 2; ++k)
          if (isResult(y + k)) computeResults(powerOf, k, strip);
      });
    }
    for (std::int64_t k = 0; k < 2; ++k)
      if (isResult(y + k)) finishRow(y + k, k);
  }

  /// Windows of rows y and y + 1, then the results of the two rows before them.
  void computeRows(std::int64_t y) {
    findSources(y);
    const std::int64_t result = y - kReach;
    for (std::int64_t k = 0; k < 2; ++k) {
      gradient_[k] =
          y + k < height_ ? direct(problem_.gradient, operands_.gradient, y + k, windows_.begin) : nullptr;
      target_[k] = targetRow(result + k, k);
    }
    fetchAhead(y);
    for (std::int64_t strip = 0; strip < strips_; ++strip) {
      if (y < height_) sumWindowsOfRows(y, strip);
      withPowerKind(tiles_.power, [&](auto kind) HWY_ATTR {
        const NegativePower<decltype(kind)::value, D, true> powerOf(tiles_.power);
        for (std::int64_t k = 0; k < 2; ++k) computeFields(powerOf, y, k, strip);
      });
      computeGradients(y, strip);
    }
    for (std::int64_t k = 0; k < 2; ++k)
      if (isResult(result + k)) finishRow(result + k, k);
  }
  [[nodiscard]] bool isResult(std::int64_t y) const { return y >= firstRow_ && y < height_; }

  // Rows --------------------------------------------------------------------------------------------------------------

  const T* direct(const TensorShape& shape, const std::byte* memory, std::int64_t y, std::int64_t x) const {
    return reinterpret_cast<const T*>(memory) + shape.offset(image_, y, x, firstChannel_);
  }
  /// Whether results are gathered before they go to the destination: parts of cache lines do not go past the caches one
  /// by one, and sums with what the destination holds are made behind the loops.
  [[nodiscard]] bool gathersResults() const {
    return operands_.accumulate || (streams_ && kLanes * sizeof(T) < 64);
  }
  [[nodiscard]] bool streamsVectors() const {
    const TensorShape& shape = problem_.destination;
    constexpr std::int64_t line = 64;
    const auto isLine = [](auto elements) {
      return elements * static_cast<std::int64_t>(sizeof(T)) % line == 0;
    };
    return streams_ && !gathersResults() &&
           reinterpret_cast<std::uintptr_t>(operands_.destination) % line == 0 && isLine(shape.pixelStride) &&
           isLine(shape.rowStride) && isLine(shape.imageStride);
  }
  static HWY_INLINE void storeVector(V value, T* to, bool streams) {
    if (streams)
      streamFloats(D(), value, to);
    else
      storeFloats(D(), value, to);
  }

  /// Where the results of a row go; those of rows that nobody wants, too.
  T* targetRow(std::int64_t y, std::int64_t k) {
    targetStep_[k] = 0;
    if (!isResult(y)) return reinterpret_cast<T*>(results_[k]);
    targetStep_[k] = static_cast<std::size_t>(problem_.destination.pixelStride);
    if (gathersResults()) {
      targetStep_[k] = static_cast<std::size_t>(channels_);
      return reinterpret_cast<T*>(results_[k]);
    }
    return reinterpret_cast<T*>(operands_.destination) +
           problem_.destination.offset(image_, y, columns_.begin, firstChannel_);
  }

  /// What the next two rows read comes to the caches while these are computed: a few lines for each column, in the order of
  /// memory, whatever the column.
  class RowsAhead {
   public:
    RowsAhead() = default;
    /// @param y rows behind those of the image are those of the next one
    RowsAhead(const TensorShape& shape, const std::byte* memory, std::int64_t image, std::int64_t y,
              std::int64_t visits)
        : next_(memory + shape.offset(image, y, 0, 0) * static_cast<std::int64_t>(sizeof(T))),
          lines_(static_cast<std::size_t>(2 * shape.rowStride * static_cast<std::int64_t>(sizeof(T)) / line /
                                          visits)) {}
    HWY_INLINE void fetch(std::size_t visit) const {
      const std::byte* const from = next_ + visit * lines_ * line;
      for (std::size_t i = 0; i < lines_; ++i) __builtin_prefetch(from + i * line, 0, 3);
    }

   private:
    static constexpr std::int64_t line = 64;
    const std::byte* next_ = nullptr;
    std::size_t lines_ = 0;
  };
  void fetchAhead(std::int64_t y) {
    const std::int64_t visits = strips_ * width_;
    sourceAhead_ = RowsAhead(problem_.source, operands_.source, image_, y + 4, visits);
    gradientAhead_ = RowsAhead(problem_.gradient, operands_.gradient, image_, y + 2, visits);
  }

  void finishRow(std::int64_t y, std::int64_t k) {
    const TensorShape& shape = problem_.destination;
    if (operands_.accumulate) return addRow(y, k);
    if (!gathersResults()) return;
    const bool isWhole = shape.pixelStride == channels_;
    const std::int64_t elements = isWhole ? columns_.count() * channels_ : channels_;
    const auto* from = reinterpret_cast<const T*>(results_[k]);
    for (std::int64_t x = columns_.begin; x < (isWhole ? columns_.begin + 1 : columns_.end);
         ++x, from += channels_)
      streamElements(from,
                     reinterpret_cast<T*>(operands_.destination) + shape.offset(image_, y, x, firstChannel_),
                     elements);
  }
  void addRow(std::int64_t y, std::int64_t k) const {
    const D d;
    const float* from = results_[k];
    for (std::int64_t x = columns_.begin; x < columns_.end; ++x, from += channels_) {
      float* const to = reinterpret_cast<float*>(operands_.destination) +
                        problem_.destination.offset(image_, y, x, firstChannel_);
      for (std::int64_t c = 0; c < channels_; c += kLanes)
        hn::StoreU(hn::Add(hn::LoadU(d, to + c), hn::LoadU(d, from + c)), d, to + c);
    }
  }
  static void streamElements(const T* from, T* to, std::int64_t count) {
    const hn::ScalableTag<std::uint8_t> d;
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(from);
    auto* const target = reinterpret_cast<std::uint8_t*>(to);
    const std::size_t size = static_cast<std::size_t>(count) * sizeof(T);
    std::size_t i = 0;
    for (; i + hn::Lanes(d) <= size; i += hn::Lanes(d)) {
      const auto values = hn::LoadU(d, bytes + i);
      if (reinterpret_cast<std::uintptr_t>(target + i) % hn::Lanes(d) == 0)
        hn::Stream(values, d, target + i);
      else
        hn::StoreU(values, d, target + i);
    }
    std::copy_n(bytes + i, size - i, target + i);
  }

  // Strips ------------------------------------------------------------------------------------------------------------

  void sumWindowsOfRows(std::int64_t y, std::int64_t strip) {
    if (y >= kReach && y + 3 < height_)
      sumWindows<true>(strip);
    else
      sumWindows<false>(strip);
  }

  /// T of two rows of windows, and of LocalContrast their means.
  /// @tparam isInside whether all rows that they see lie inside the source
  template <bool isInside>
  HWY_NOINLINE void sumWindows(std::int64_t strip) {
    using Sum = typename Sums::Sum;
    const D d;
    static constexpr T zeros[kLanes] = {};
    const T* rows[6];
    std::size_t masks[6];
    for (std::int64_t j = 0; j < 6; ++j) {
      rows[j] = source_[j] == nullptr ? zeros : source_[j] + strip * kLanes;
      masks[j] = source_[j] == nullptr ? 0 : ~std::size_t{0};
    }
    const T* const row0 = rows[0];
    const T* const row1 = rows[1];
    const T* const row2 = rows[2];
    const T* const row3 = rows[3];
    const T* const row4 = rows[4];
    const T* const row5 = rows[5];
    const WindowRange read = read_;
    const std::size_t step = sourceStep_;
    const auto column = [&](std::int64_t x, Sum & first, Sum & second) HWY_ATTR
        __attribute__((always_inline)) {
      if (x < read.begin || x >= read.end) {
        first = Sums::zero();
        second = Sums::zero();
        return;
      }
      const std::size_t at = static_cast<std::size_t>(x - read.begin) * step;
      const auto load = [&](const T* row, std::size_t j) HWY_ATTR __attribute__((always_inline)) {
        return loadFloats(d, row + (isInside ? at : at & masks[j]));
      };
      Sums::columns(load(row0, 0), load(row1, 1), load(row2, 2), load(row3, 3), load(row4, 4), load(row5, 5),
                    first, second);
    };
    FiveWalk<Sums> walk0;
    FiveWalk<Sums> walk1;
    Sum a0, b0, c0, e0, a1, b1, c1, e1;
    std::int64_t x = windows_.begin - kReach;
    column(x, a0, a1);
    column(x + 1, b0, b1);
    column(x + 2, c0, c1);
    column(x + 3, e0, e1);
    walk0.begin(a0, b0, c0, e0);
    walk1.begin(a1, b1, c1, e1);
    x += 4;
    const V delta = hn::Set(d, constants_.delta);
    const V share = hn::Set(d, Sums::share * constants_.alphaShare);
    const auto emit = [&](const Sum& sum, float* t, float* mean) HWY_ATTR __attribute__((always_inline)) {
      if constexpr (isContrast) {
        hn::Store(hn::MulAdd(sum.squares, share, delta), d, t);
        hn::Store(hn::Mul(sum.sum, hn::Set(d, 0.04F)), d, mean);
      } else {
        hn::Store(hn::MulAdd(sum, share, delta), d, t);
      }
    };
    float* const t0 = windowRow(t_[0]);
    float* const t1 = windowRow(t_[1]);
    float* const means0 = windowRow(means_[0]);
    float* const means1 = windowRow(means_[1]);
    const std::size_t end = static_cast<std::size_t>(windows_.count() * kLanes);
    const RowsAhead ahead = sourceAhead_;
    auto visit = static_cast<std::size_t>(strip * windows_.count());
    for (std::size_t i = 0; i < end; i += 2 * kLanes, x += 2, visit += 2) {
      ahead.fetch(visit);
      ahead.fetch(visit + 1);
      column(x, a0, a1);
      column(x + 1, b0, b1);
      walk0.step(a0, b0, c0, e0);
      walk1.step(a1, b1, c1, e1);
      emit(c0, t0 + i, means0 + i);
      emit(e0, t0 + i + kLanes, means0 + i + kLanes);
      emit(c1, t1 + i, means1 + i);
      emit(e1, t1 + i + kLanes, means1 + i + kLanes);
    }
  }
  /// Of a row of columns from two before the tile on, those of the windows.
  [[nodiscard]] float* windowRow(float* row) const {
    return row + (windows_.begin - columns_.begin + kReach) * kLanes;
  }

  /// The results of a row of windows.
  template <class PowerOf>
  HWY_NOINLINE void computeResults(PowerOf powerOf, std::int64_t k, std::int64_t strip) {
    const D d;
    const float* const t = windowRow(t_[k]);
    const float* const means = windowRow(means_[k]);
    const T* const x = source_[kReach + k] + strip * kLanes +
                       static_cast<std::size_t>(windows_.begin - read_.begin) * sourceStep_;
    T* const to = target_[k] + strip * kLanes;
    const std::size_t sourceStep = sourceStep_;
    const std::size_t step = targetStep_[k];
    const V p0 = hn::Set(d, constants_.p0);
    const V pm = hn::Set(d, constants_.pm);
    const V ps = hn::Set(d, constants_.ps);
    const bool streams = streamsVectors();
    const auto count = static_cast<std::size_t>(windows_.count());
    for (std::size_t i = 0; i < count; ++i) {
      const V power = powerOf(d, hn::Load(d, t + i * kLanes));
      V value = loadFloats(d, x + i * sourceStep);
      if constexpr (isContrast) {
        value = hn::Mul(hn::NegMulAdd(p0, hn::Load(d, means + i * kLanes), value), ps);
        value = hn::MulAdd(value, power, pm);
      } else {
        value = hn::Mul(value, power);
      }
      storeVector(value, to + i * step, streams);
    }
  }

  /// What a row of windows leaves for the gradient: dY T^-beta, for their centers; B = dY numerator T^(-beta - 1) in
  /// place of T; and, of LocalContrast, what the window's mean adds, p0 / N dY T^-beta - factor B mean, in place of it.
  template <class PowerOf>
  HWY_NOINLINE void computeFields(PowerOf powerOf, std::int64_t y, std::int64_t k, std::int64_t strip) {
    const D d;
    float* const t = windowRow(t_[k]);
    float* const means = windowRow(means_[k]);
    const auto count = static_cast<std::size_t>(windows_.count());
    // Behind an odd number of windows another one was summed.
    hn::Store(hn::Zero(d), d, t + count * kLanes);
    hn::Store(hn::Zero(d), d, means + count * kLanes);
    if (gradient_[k] == nullptr) {
      std::fill_n(t, count * kLanes, 0.0F);
      if (isContrast) std::fill_n(means, count * kLanes, 0.0F);
      return;
    }
    const T* const x = source_[kReach + k] + strip * kLanes +
                       static_cast<std::size_t>(windows_.begin - read_.begin) * sourceStep_;
    const T* const dy = gradient_[k] + strip * kLanes;
    const std::size_t sourceStep = sourceStep_;
    const std::size_t gradientStep = gradientStep_;
    float* const direct = directRow(y + k, strip);
    const V p0 = hn::Set(d, constants_.p0), p0Share = hn::Set(d, constants_.p0Share),
            factor = hn::Set(d, constants_.factor);
    // Half of the strip's visits in each of two rows.
    const RowsAhead ahead = gradientAhead_;
    const std::size_t firstVisit =
        static_cast<std::size_t>(strip) * count + static_cast<std::size_t>(k) * (count / 2);
    for (std::size_t i = 0; i < count; ++i) {
      if (i % 2 == 0) ahead.fetch(firstVisit + i / 2);
      const V windowT = hn::Load(d, t + i * kLanes);
      V power, next;
      powerOf.both(d, windowT, power, next);
      const V gradient = loadFloats(d, dy + i * gradientStep);
      const V a = hn::Mul(gradient, power);
      hn::Store(a, d, direct + i * kLanes);
      V numerator = loadFloats(d, x + i * sourceStep);
      V mean;
      if (isContrast) {
        mean = hn::Load(d, means + i * kLanes);
        numerator = hn::NegMulAdd(p0, mean, numerator);
      }
      const V b = hn::Mul(hn::Mul(gradient, numerator), next);
      hn::Store(b, d, t + i * kLanes);
      if (isContrast)
        hn::Store(hn::MulSub(p0Share, a, hn::Mul(hn::Mul(b, factor), mean)), d, means + i * kLanes);
    }
  }
  [[nodiscard]] std::size_t stripOffset(std::int64_t strip) const {
    return static_cast<std::size_t>(strip * tiles_.columnsAround() * kLanes);
  }
  [[nodiscard]] float* directRow(std::int64_t y, std::int64_t strip) const {
    return direct_[y & 3] + stripOffset(strip);
  }

  /// Four rows of sums along rows of a field, of which the first two become those of new ones.
  struct FieldRows {
    float* oldest;
    float* older;
    const float* old;
    const float* last;

    /// The sums over five rows each.
    HWY_INLINE void add(std::size_t i, V& first, V& second) const {
      const D d;
      const V shared = hn::Add(hn::Add(hn::Load(d, older + i), hn::Load(d, old + i)),
                               hn::Add(hn::Load(d, last + i), first));
      const V ofFirst = hn::Add(shared, hn::Load(d, oldest + i));
      hn::Store(first, d, oldest + i);
      hn::Store(second, d, older + i);
      first = ofFirst;
      second = hn::Add(shared, second);
    }
  };
  [[nodiscard]] FieldRows fieldRows(std::int64_t field, std::int64_t y, std::int64_t strip) const {
    const auto row = [&](std::int64_t at) { return sums_[field][at & 3] + stripOffset(strip); };
    return {row(y), row(y + 1), row(y + 2), row(y + 3)};
  }

  /// Adds the fields of the windows of rows y and y + 1 to those before them, and gives the gradients of rows y - 2 and
  /// y - 1.
  HWY_NOINLINE void computeGradients(std::int64_t y, std::int64_t strip) {
    const D d;
    const float* const row0 = t_[0];
    const float* const row1 = t_[1];
    const float* const meanRow0 = means_[0];
    const float* const meanRow1 = means_[1];
    const FieldRows ofSquares = fieldRows(0, y, strip);
    const FieldRows ofMeans = fieldRows(kFields - 1, y, strip);
    FiveWalk<PlainSums> squares0, squares1, means0, means1;
    const auto at = [&](const float* row, std::size_t i) HWY_ATTR __attribute__((always_inline)) {
      return hn::Load(d, row + i * kLanes);
    };
    const auto beginWalk = [&](FiveWalk<PlainSums> & walk, const float* row) HWY_ATTR
        __attribute__((always_inline)) {
      walk.begin(at(row, 0), at(row, 1), at(row, 2), at(row, 3));
    };
    beginWalk(squares0, row0);
    beginWalk(squares1, row1);
    if (isContrast) beginWalk(means0, meanRow0);
    if (isContrast) beginWalk(means1, meanRow1);
    const std::size_t sourceStep = sourceStep_;
    const std::size_t step0 = targetStep_[0];
    const std::size_t step1 = targetStep_[1];
    const std::size_t source = static_cast<std::size_t>(columns_.begin - read_.begin) * sourceStep +
                               static_cast<std::size_t>(strip * kLanes);
    // Rows outside give nothing that is wanted.
    const T* const x0 = (source_[0] != nullptr ? source_[0] : source_[2]) + source;
    const T* const x1 = (source_[1] != nullptr ? source_[1] : x0 - source) + source;
    T* const to0 = target_[0] + strip * kLanes;
    T* const to1 = target_[1] + strip * kLanes;
    const auto center = static_cast<std::size_t>((columns_.begin - windows_.begin) * kLanes);
    const float* const direct0 = directRow(y + 2, strip) + center;
    const float* const direct1 = directRow(y + 3, strip) + center;
    const V factor = hn::Set(d, constants_.factor);
    const V ps = hn::Set(d, constants_.ps);
    const bool streams = streamsVectors();
    const auto store = [&](V ofSquare, V ofMean, std::size_t i, const T* from, const float* direct, T* to,
                           std::size_t step) HWY_ATTR __attribute__((always_inline)) {
      V value = hn::Load(d, direct + i * kLanes);
      if (isContrast) value = hn::Sub(value, ofMean);
      value = hn::NegMulAdd(factor, hn::Mul(loadFloats(d, from + i * sourceStep), ofSquare), value);
      if (isContrast) value = hn::Mul(value, ps);
      storeVector(value, to + i * step, streams);
    };
    const auto two = [&](std::size_t i, auto areTwo) HWY_ATTR __attribute__((always_inline)) {
      V s00, s01, s10, s11;
      V m00 = hn::Zero(d);
      V m01 = m00;
      V m10 = m00;
      V m11 = m00;
      squares0.step(at(row0, i + 4), at(row0, i + 5), s00, s01);
      squares1.step(at(row1, i + 4), at(row1, i + 5), s10, s11);
      ofSquares.add(i * kLanes, s00, s10);
      ofSquares.add((i + 1) * kLanes, s01, s11);
      if (isContrast) {
        means0.step(at(meanRow0, i + 4), at(meanRow0, i + 5), m00, m01);
        means1.step(at(meanRow1, i + 4), at(meanRow1, i + 5), m10, m11);
        ofMeans.add(i * kLanes, m00, m10);
        ofMeans.add((i + 1) * kLanes, m01, m11);
      }
      store(s00, m00, i, x0, direct0, to0, step0);
      if (areTwo) store(s01, m01, i + 1, x0, direct0, to0, step0);
      store(s10, m10, i, x1, direct1, to1, step1);
      if (areTwo) store(s11, m11, i + 1, x1, direct1, to1, step1);
    };
    const auto count = static_cast<std::size_t>(columns_.count());
    std::size_t i = 0;
    for (; i + 2 <= count; i += 2) two(i, std::true_type());
    if (i < count) two(i, std::false_type());
  }

  const NormalizationProblem& problem_;
  const FiveTiles& tiles_;
  const Operands& operands_;
  WindowConstants constants_;
  std::int64_t width_;
  std::int64_t height_;
  bool streams_;
  float* next_;

  // Working memory.
  float* t_[2];      ///< of two rows of windows
  float* means_[2];  ///< likewise
  float* sums_[kFields][4] = {};
  float* direct_[4] = {};
  float* results_[2];

  // The tile.
  std::int64_t image_ = 0;
  std::int64_t firstChannel_ = 0;
  std::int64_t channels_ = 0;
  std::int64_t strips_ = 0;
  std::int64_t firstRow_ = 0;
  WindowRange columns_;  ///< of the destination
  WindowRange windows_;
  WindowRange read_;
  std::size_t sourceStep_ = 0;
  std::size_t gradientStep_ = 0;
  std::size_t targetStep_[2] = {};

  // Two rows.
  const T* source_[6] = {};  ///< from two above the first on; null: outside
  const T* gradient_[2] = {};
  T* target_[2] = {};
  RowsAhead sourceAhead_;
  RowsAhead gradientAhead_;
};

template <bool isContrast, class T>
void normalizeFivesOf(const NormalizationProblem& problem, const FiveTiles& tiles, const Operands& operands,
                      std::byte* working, std::int64_t begin, std::int64_t end) {
  const std::int64_t height = problem.destination.height;
  const std::int64_t steps = FiveTiles::steps(height);
  FiveRows<isContrast, T> rows(problem, tiles, operands, working);
  while (begin < end) {
    const std::int64_t image = begin / steps;
    const std::int64_t last = std::min(end, (image + 1) * steps);
    rows.compute(image, 2 * (begin - image * steps), std::min(height, 2 * (last - image * steps)));
    begin = last;
  }
  finishStreaming();
}

void normalizeFiveRows(const NormalizationProblem& problem, const FiveTiles& tiles, const Operands& operands,
                       std::byte* working, std::int64_t begin, std::int64_t end) {
  const bool isContrast = problem.kind == NormalizationKind::LocalContrast;
  const bool isHalf = problem.source.format == ImageFeatureChannelFormat::Float16;
  const auto normalize = isContrast ? isHalf ? normalizeFivesOf<true, Float16> : normalizeFivesOf<true, float>
                         : isHalf ? normalizeFivesOf<false, Float16>
                                    : normalizeFivesOf<false, float>;
  normalize(problem, tiles, operands, working, begin, end);
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace mps::detail {

HWY_EXPORT(normalizeFiveRows);

void normalizeFives(const NormalizationProblem& problem, const FiveTiles& tiles, const Operands& operands,
                    std::byte* working, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(normalizeFiveRows)(problem, tiles, operands, working, begin, end);
}

}  // namespace mps::detail

#endif
