#include <algorithm>

#include "mps/core/cpu/highway_targets.hpp"
#include "mps/normalization/cpu/normalization_tiles.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/normalization/cpu/normalization_window_rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/normalization/cpu/normalization_powers-inl.hpp"
#include "mps/normalization/cpu/normalization_window_sums-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// Computes rows of the destination, tile by tile and two at once: most of what their windows see they share. The
/// bodies of the loops say always_inline: the compiler would call them, and then keep all constants in memory.
template <bool isContrast>
class NormalizationWindowRows : private WindowSums {
 public:
  NormalizationWindowRows(const NormalizationProblem& problem, const WindowTiles& tiles,
                          const Operands& operands, std::byte* working)
      : WindowSums(problem, tiles, operands, working) {
    if (!problem.isGradient()) return;
    centerSum_ = take(1);
    edgeWeights_ = take(1);
    for (Field& field : fields_) {
      for (float*& sums : field.sums) sums = take(1);
      field.rows = take(tiles.keptRows);
    }
  }

  /// Rows [begin, end) of image n.
  void compute(std::int64_t n, std::int64_t begin, std::int64_t end) {
    const TensorShape& shape = problem_.destination;
    image_ = n;
    for (firstChannel_ = 0; firstChannel_ < shape.channels; firstChannel_ += tiles_.channelStep) {
      channels_ = std::min(tiles_.channelStep, shape.channels - firstChannel_);
      for (std::int64_t first = 0; first < shape.width; first += tiles_.columnStep) {
        firstColumn_ = first;
        columns_ = std::min(tiles_.columnStep, shape.width - first);
        beginTile();
        if (problem_.isGradient())
          beginGradients();
        else
          beginWindows({first, first + columns_});
        for (std::int64_t y = begin; y < end; y += tiles_.rowsAtOnce) {
          const std::int64_t rows = std::min(tiles_.rowsAtOnce, end - y);
          if (problem_.isGradient())
            computeGradients(y, rows);
          else
            computeResults(y, rows);
        }
      }
    }
  }

 private:
  /// What a row of windows leaves for the gradient: rows of dY T^-beta, of B = dY numerator T^(-beta - 1), and, of
  /// LocalContrast, of what the window's mean adds, p0 / N dY T^-beta - factor B mean. The latter two are summed.
  struct Field {
    float* rows = nullptr;  ///< of the last windows
    float* sums[WindowTiles::mostAtOnce] = {};
  };
  static constexpr std::size_t kFields = isContrast ? 3 : 2;

  /// Rows from y on.
  void computeResults(std::int64_t y, std::int64_t rows) {
    const hn::ScalableTag<float> d;
    const float* x[WindowTiles::mostAtOnce];
    FloatRun to[WindowTiles::mostAtOnce];
    beginColumns(y, rows);
    for (std::int64_t k = 0; k < rows; ++k) {
      x[k] = centers(k);
      to[k] = target(y + k, atOnce_[k].target);
    }
    const auto p0 = hn::Set(d, constants_.p0);
    const auto pm = hn::Set(d, constants_.pm);
    const auto ps = hn::Set(d, constants_.ps);
    forWindowBlocks(
        columns_, [&](auto powerOf, std::int64_t k, std::size_t first, std::size_t length) HWY_ATTR
        __attribute__((always_inline)) {
          const RowAhead ahead = sourceAhead(y + k, rows);
          const float* const from = x[k];
          const FloatRun run = to[k];
          forVectors(
              d, length, [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
                ahead.fetch(first + i);
                const auto power = powerOf(d, lanes.load(d, t_ + i));
                auto value = lanes.load(d, from + first + i);
                if (isContrast) {
                  value = hn::Mul(hn::NegMulAdd(p0, lanes.load(d, means_ + i), value), ps);
                  value = hn::MulAdd(value, power, pm);
                } else {
                  value = hn::Mul(value, power);
                }
                lanes.store(d, value, run + (first + i));
              });
        });
    for (std::int64_t k = 0; k < rows; ++k) storeTarget(y + k, atOnce_[k].target);
  }

  void beginGradients() {
    const WindowAxis& axis = problem_.x;
    const std::int64_t first = problem_.destinationOriginX + firstColumn_;
    firstField_ = first - axis.offset - (kernelWidth_ - 1) / 2;
    fieldColumns_ = columns_ + kernelWidth_ - 1;
    const WindowRange windows{std::clamp<std::int64_t>(firstField_, 0, axis.destinationSize),
                              std::clamp<std::int64_t>(firstField_ + fieldColumns_, 0, axis.destinationSize)};
    // Pixels that windows see: all else gets no gradient.
    const std::int64_t seenBegin = std::max<std::int64_t>(0, axis.firstTap(0));
    const std::int64_t seenEnd =
        std::min(axis.sourceSize, axis.firstTap(axis.destinationSize - 1) + kernelWidth_);
    seen_ = {std::clamp(seenBegin - first, std::int64_t{0}, columns_),
             std::clamp(seenEnd - first, std::int64_t{0}, columns_)};
    if (windows.count() == 0) seen_ = {0, 0};
    if (seen_.count() == 0) return;
    beginWindows(windows);
    fieldsEnd_ = 0;
    for (const Field& field : fields_)
      std::fill_n(field.rows, static_cast<std::size_t>(tiles_.keptRows) * tiles_.rowFloats, 0.0F);
  }

  /// dY T^-beta and so on of the windows of rows up to `end`, from the one that `begin` is computed with on.
  void computeFields(std::int64_t begin, std::int64_t end) {
    begin = std::max(fieldsEnd_, begin / tiles_.rowsAtOnce * tiles_.rowsAtOnce);
    for (std::int64_t y = begin; y < end; y += tiles_.rowsAtOnce) {
      computeFieldRows(y, std::min(tiles_.rowsAtOnce, problem_.y.destinationSize - y));
      fieldsEnd_ = y + tiles_.rowsAtOnce;
    }
  }

  void computeFieldRows(std::int64_t y, std::int64_t rows) {
    const hn::ScalableTag<float> d;
    const std::int64_t count = windows_.end - windows_.begin;
    beginColumns(y, rows);
    const auto p0 = hn::Set(d, constants_.p0);
    const auto p0Share = hn::Set(d, constants_.p0Share);
    const auto factor = hn::Set(d, constants_.factor);
    const float* x[WindowTiles::mostAtOnce];
    for (std::int64_t k = 0; k < rows; ++k) x[k] = centers(k);
    ConstFloatRun gradients[WindowTiles::mostAtOnce];
    for (std::int64_t k = 0; k < rows; ++k) gradients[k] = gradientRow(y + k, count, atOnce_[k].target);
    forWindowBlocks(
        count, [&](auto powerOf, std::int64_t k, std::size_t first, std::size_t length) HWY_ATTR
        __attribute__((always_inline)) {
          const RowAhead ahead = sourceAhead(y + k, rows);
          const RowAhead gradientAhead =
              rowAhead(problem_.gradient, operands_.gradient, y + k + rows, windows_.begin);
          const float* const from = x[k];
          const ConstFloatRun dy = gradients[k];
          const std::size_t at = fieldOffset(y + k) + floats(windows_.begin - firstField_) + first;
          float* const ofCenters = fields_[0].rows + at;
          float* const ofSquares = fields_[1].rows + at;
          float* const ofMeans = fields_[kFields - 1].rows + at;
          forVectors(
              d, length, [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
                ahead.fetch(first + i);
                gradientAhead.fetch(first + i);
                const auto t = lanes.load(d, t_ + i);
                const auto power = powerOf(d, t);
                const auto next = powerOf.next(d, t, power);
                const auto gradient = lanes.load(d, dy + (first + i));
                const auto a = hn::Mul(gradient, power);
                lanes.store(d, a, ofCenters + i);
                auto numerator = lanes.load(d, from + first + i);
                if (isContrast) numerator = hn::NegMulAdd(p0, lanes.load(d, means_ + i), numerator);
                const auto b = hn::Mul(hn::Mul(gradient, numerator), next);
                lanes.store(d, b, ofSquares + i);
                if (isContrast) {
                  const auto ofMean = hn::Mul(hn::Mul(b, factor), lanes.load(d, means_ + i));
                  lanes.store(d, hn::MulSub(p0Share, a, ofMean), ofMeans + i);
                }
              });
        });
  }

  [[nodiscard]] std::size_t fieldOffset(std::int64_t y) const {
    return static_cast<std::size_t>(y % tiles_.keptRows) * tiles_.rowFloats;
  }
  [[nodiscard]] std::size_t nextFieldOffset(std::size_t offset) const {
    offset += tiles_.rowFloats;
    return offset == static_cast<std::size_t>(tiles_.keptRows) * tiles_.rowFloats ? 0 : offset;
  }

  /// Rows from y on.
  void computeGradients(std::int64_t y, std::int64_t rows) {
    const std::int64_t pixel = problem_.destinationOriginY + y;
    if (rows == 2 && !isEven(pixel)) {
      computeGradients(y, 1);
      return computeGradients(y + 1, 1);
    }
    const WindowRange windows = windowsSeeing(problem_.y, problem_.edgeMode, pixel);
    FloatRun to[WindowTiles::mostAtOnce];
    for (std::int64_t k = 0; k < rows; ++k) to[k] = target(y + k, atOnce_[k].target);
    const auto store = [&] {
      for (std::int64_t k = 0; k < rows; ++k) storeTarget(y + k, atOnce_[k].target);
    };
    if (windows.count() == 0 || seen_.count() == 0) {
      for (std::int64_t k = 0; k < rows; ++k) zero(to[k], 0, columns_);
      return store();
    }
    computeFields(windows.begin, windows.end + rows - 1);
    beginFields(windows, pixel, rows);
    const float* centerRows[WindowTiles::mostAtOnce];
    for (std::int64_t k = 0; k < rows; ++k) {
      centerRows[k] = sumCenters(pixel + k);
      zero(to[k], 0, seen_.begin);
      zero(to[k], seen_.end, columns_);
    }
    const auto finishEdges = [&](std::int64_t column) {
      for (std::int64_t k = 0; k < rows; ++k) finishEdge(k, pixel + k, column, centerRows[k], to[k]);
    };
    std::int64_t x = seen_.begin;
    const std::int64_t first = problem_.destinationOriginX + firstColumn_;
    if (problem_.edgeMode == ImageEdgeMode::Clamp && first + x == 0) finishEdges(x++);
    const bool endsAtEdge = problem_.edgeMode == ImageEdgeMode::Clamp && x < seen_.end &&
                            first + seen_.end == problem_.x.sourceSize;
    const std::int64_t end = endsAtEdge ? seen_.end - 1 : seen_.end;
    const std::size_t center = floats(kernelWidth_ - 1 - kernelWidth_ / 2);
    forBlocks(x, end, [&](std::int64_t blockBegin, std::int64_t blockEnd) {
      for (std::int64_t k = 0; k < rows; ++k)
        finish(k, pixel + k, {blockBegin, blockEnd}, nullptr, centerRows[k] + center + floats(blockBegin),
               to[k]);
    });
    if (endsAtEdge) finishEdges(end);
    store();
  }

  /// Whether the windows that see a row and the next one are as many, one further, and count once.
  [[nodiscard]] bool isEven(std::int64_t pixel) const {
    const WindowAxis& axis = problem_.y;
    const WindowRange windows = windowsSeeing(axis, problem_.edgeMode, pixel);
    const WindowRange next = windowsSeeing(axis, problem_.edgeMode, pixel + 1);
    if (windows.count() == 0 || next.begin != windows.begin + 1 || next.end != windows.end + 1) return false;
    return problem_.edgeMode != ImageEdgeMode::Clamp || (pixel > 0 && pixel + 2 < axis.sourceSize);
  }

  /// Begins the sums of fields over the windows that see rows from one on.
  void beginFields(const WindowRange& windows, std::int64_t pixel, std::int64_t rows) {
    windowCount_ = static_cast<std::size_t>(windows.count());
    summed_ = 0;
    isWeighted_ = false;
    std::size_t offset = fieldOffset(windows.begin);
    for (std::int64_t j = 0; j < windows.count(); ++j) {
      const std::int64_t times =
          rows == 1 ? timesSeen(problem_.y, problem_.edgeMode, windows.begin + j, pixel) : 1;
      rowWeights_[j] = static_cast<float>(times);
      isWeighted_ |= times != 1;
      fieldOffsets_[j] = offset;
      offset = nextFieldOffset(offset);
    }
    fieldOffsets_[windowCount_] = offset;
  }

  /// Makes the sums of a field's columns up to `end`.
  HWY_NOINLINE void sumFields(std::int64_t end) {
    if (end <= summed_) return;
    const std::size_t begin = floats(summed_);
    const std::size_t length = floats(end - summed_);
    for (std::size_t f = 1; f < kFields; ++f) {
      const float* const rows = fields_[f].rows + begin;
      const auto row = [&](std::size_t j) { return rows + fieldOffsets_[j]; };
      float* const to = fields_[f].sums[0] + begin;
      if (isWeighted_)
        sumWeightedRows(row, rowWeights_, windowCount_, to, length);
      else
        withKnownCount(
            static_cast<std::int64_t>(windowCount_), [&](auto known) HWY_ATTR __attribute__((always_inline)) {
              sumRows<known()>(row, windowCount_, length, to, fields_[f].sums[1] + begin);
            });
    }
    summed_ = end;
  }

  /// dY T^-beta of the windows that are centered at a row.
  const float* sumCenters(std::int64_t pixel) {
    const WindowRange rows = windowsCenteredAt(problem_.y, problem_.edgeMode, pixel);
    if (rows.count() == 0) return zeros_;
    if (rows.count() == 1) return fields_[0].rows + fieldOffset(rows.begin);
    const auto row = [&](std::size_t j) {
      return fields_[0].rows + fieldOffset(rows.begin + static_cast<std::int64_t>(j));
    };
    sumRows<0>(row, static_cast<std::size_t>(rows.count()), floats(fieldColumns_), centerSum_,
               atOnce_[1].center);
    return centerSum_;
  }

  /// An edge pixel that stands for those beyond it.
  void finishEdge(std::int64_t k, std::int64_t pixelY, std::int64_t column, const float* centerRow,
                  FloatRun to) {
    const std::int64_t pixel = problem_.destinationOriginX + firstColumn_ + column;
    for (std::int64_t m = 0; m < kernelWidth_; ++m) {
      const std::int64_t window = firstField_ + column + m;
      const bool isWindow = window >= 0 && window < problem_.x.destinationSize;
      edgeWeights_[m] =
          isWindow ? static_cast<float>(timesSeen(problem_.x, problem_.edgeMode, window, pixel)) : 0.0F;
    }
    const WindowRange centered = windowsCenteredAt(problem_.x, problem_.edgeMode, pixel);
    const hn::ScalableTag<float> d;
    float* const center = atOnce_[k].center;
    forVectors(
        d, floats(1), [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
          auto sum = hn::Zero(d);
          for (std::int64_t window = centered.begin; window < centered.end; ++window)
            sum = hn::Add(sum, lanes.load(d, centerRow + floats(window - firstField_) + i));
          lanes.store(d, sum, center + i);
        });
    finish(k, pixelY, {column, column + 1}, edgeWeights_, center, to);
  }

  /// The gradients of some columns of the tile. @param weights of their windows; null: each counts once
  /// @param a of their centers
  void finish(std::int64_t k, std::int64_t pixelY, const WindowRange& columns, const float* weights,
              const float* a, FloatRun to) {
    const hn::ScalableTag<float> d;
    sumFields(columns.end + kernelWidth_ - 1);
    const std::size_t begin = floats(columns.begin);
    const auto channels = static_cast<std::size_t>(channels_);
    const float* const x =
        sourceRow(pixelY) + floats(problem_.destinationOriginX + firstColumn_ + columns.begin - read_.begin);
    const std::size_t length = floats(columns.count());
    if (weights != nullptr) {
      // In place: what lies before a column is not needed any more.
      for (std::size_t f = 1; f < kFields; ++f) {
        float* const sum = fields_[f].sums[k] + begin;
        sumWeightedRows([&](std::size_t m) { return sum + m * channels; }, weights,
                        static_cast<std::size_t>(kernelWidth_), sum, length);
      }
    }
    const auto factor = hn::Set(d, constants_.factor);
    const auto ps = hn::Set(d, constants_.ps);
    const FloatRun out = to + begin;
    const bool adds = addsInPlace_;
    const auto store = [&](std::size_t i, auto lanes, auto sum, auto... sumOfMeans) HWY_ATTR
        __attribute__((always_inline)) {
      const auto inner = hn::Mul(lanes.load(d, x + i), sum);
      auto value = lanes.load(d, a + i);
      ((value = hn::Sub(value, sumOfMeans)), ...);
      value = hn::NegMulAdd(factor, inner, value);
      if (isContrast) value = hn::Mul(value, ps);
      if (adds) value = hn::Add(value, lanes.load(d, static_cast<const float*>(out.address) + i));
      lanes.store(d, value, out + i);
    };
    const auto count = static_cast<std::size_t>(columns.count());
    const float* const b = fields_[1].sums[k] + begin;
    const std::int64_t taps = weights != nullptr ? 1 : kernelWidth_;
    withKnownCount(
        taps, [&](auto known) HWY_ATTR __attribute__((always_inline)) {
          const ColumnSums<hn::ScalableTag<float>, known()> windows{static_cast<std::size_t>(taps), channels};
          if constexpr (isContrast)
            windows.forSums(d, count, store, b, fields_[2].sums[k] + begin);
          else
            windows.forSums(d, count, store, b);
        });
  }

  Field fields_[kFields];
  std::int64_t firstField_ = 0;  ///< the window that element 0 of a field's row belongs to, were it there
  std::int64_t fieldColumns_ = 0;
  std::int64_t fieldsEnd_ = 0;  ///< rows of windows that are computed
  WindowRange seen_;            ///< columns of the tile that windows see
  std::size_t windowCount_ = 0;
  bool isWeighted_ = false;
  std::size_t fieldOffsets_[WindowTiles::mostKept];
  float rowWeights_[WindowTiles::mostKept];
  float* centerSum_ = nullptr;
  float* edgeWeights_ = nullptr;
};

template <bool isContrast>
void normalizeRowsOf(const NormalizationProblem& problem, const WindowTiles& tiles, const Operands& operands,
                     std::byte* working, std::int64_t begin, std::int64_t end) {
  const std::int64_t height = problem.destination.height;
  const std::int64_t steps = tiles.steps(height);
  NormalizationWindowRows<isContrast> rows(problem, tiles, operands, working);
  while (begin < end) {
    const std::int64_t image = begin / steps;
    const std::int64_t last = std::min(end, (image + 1) * steps);
    rows.compute(image, (begin - image * steps) * tiles.rowsAtOnce,
                 std::min(height, (last - image * steps) * tiles.rowsAtOnce));
    begin = last;
  }
  finishNonTemporalStores();
}

void normalizeRows(const NormalizationProblem& problem, const WindowTiles& tiles, const Operands& operands,
                   std::byte* working, std::int64_t begin, std::int64_t end) {
  if (problem.kind == NormalizationKind::LocalContrast)
    normalizeRowsOf<true>(problem, tiles, operands, working, begin, end);
  else
    normalizeRowsOf<false>(problem, tiles, operands, working, begin, end);
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace mps::detail {

HWY_EXPORT(normalizeRows);

void normalizeWindowRows(const NormalizationProblem& problem, const WindowTiles& tiles,
                         const Operands& operands, std::byte* working, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(normalizeRows)(problem, tiles, operands, working, begin, end);
}

}  // namespace mps::detail

#endif
