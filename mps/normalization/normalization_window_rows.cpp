#include <algorithm>

#include "mps/core/highway_targets.hpp"
#include "mps/core/streamed_stores.hpp"
#include "mps/normalization/normalization_tiles.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/normalization/normalization_window_rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/core/vector_runs-inl.hpp"
#include "mps/normalization/normalization_powers-inl.hpp"
#include "mps/normalization/normalization_sums-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// The columns whose statistics a row of windows needs: `count` from source column `first` on, those outside
/// included, of which [begin, end) are read.
struct WindowColumns {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Numbers of the formulas, in float32.
struct Constants {
  explicit Constants(const NormalizationProblem& problem)
      : delta(problem.delta),
        alphaShare(
            static_cast<float>(static_cast<double>(problem.alpha) / static_cast<double>(problem.taps()))),
        p0(problem.p0),
        pm(problem.pm),
        ps(problem.ps),
        p0Share(static_cast<float>(static_cast<double>(problem.p0) / static_cast<double>(problem.taps()))),
        factor(static_cast<float>(2.0 * static_cast<double>(problem.alpha) *
                                  static_cast<double>(problem.beta) / static_cast<double>(problem.taps()))) {}
  float delta;
  float alphaShare;
  float p0;
  float pm;
  float ps;
  float p0Share;
  float factor;
};

/// Computes rows of the destination, tile by tile. The bodies of the loops say always_inline: the compiler would call
/// them, and then keep all constants in memory.
template <bool isContrast>
class WindowRows {
 public:
  WindowRows(const NormalizationProblem& problem, const WindowTiles& tiles, const Operands& operands,
             std::byte* working)
      : problem_(problem),
        tiles_(tiles),
        operands_(operands),
        constants_(problem),
        kernelWidth_(problem.x.kernelSize),
        kernelHeight_(problem.y.kernelSize),
        streams_(writesRowsPastCaches(
            problem.source.bytes() + problem.gradient.bytes() + problem.destination.bytes(),
            problem.destination)) {
    auto* next = reinterpret_cast<float*>(working);
    const auto take = [&](std::int64_t rows) {
      float* const taken = next;
      next += static_cast<std::size_t>(rows) * tiles.rowFloats;
      return taken;
    };
    converted_ = take(kernelHeight_);
    zeros_ = take(1);
    statistics_ = take(1);
    squares_ = take(1);
    center_ = take(1);
    target_ = take(1);
    std::fill_n(zeros_, tiles.rowFloats, 0.0F);
    if (!problem.isGradient()) return;
    convertedGradient_ = take(1);
    centerSum_ = take(1);
    edgeWeights_ = take(1);
    for (Field& field : fields_) {
      field.sum = take(1);
      field.rows = take(kernelHeight_);
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
        std::fill_n(convertedRow_, kernelHeight_, std::int64_t{-1});
        if (problem_.isGradient()) {
          computeGradients(begin, end);
        } else {
          setWindows({first, first + columns_});
          for (std::int64_t y = begin; y < end; ++y) computeResults(y);
        }
      }
    }
  }

 private:
  /// What a row of windows leaves for the gradient: rows of dY T^-beta, of B = dY numerator T^(-beta - 1), and, of
  /// LocalContrast, of what the window's mean adds, p0 / N dY T^-beta - factor B mean. The latter two are summed.
  struct Field {
    float* rows = nullptr;  ///< of the last kernelHeight windows
    float* sum = nullptr;
  };
  static constexpr std::size_t kFields = isContrast ? 3 : 2;

  [[nodiscard]] std::size_t floats(std::int64_t columns) const {
    return static_cast<std::size_t>(columns * channels_);
  }

  void setWindows(const WindowRange& windows) {
    windows_ = windows;
    const WindowAxis& axis = problem_.x;
    read_.first = axis.firstTap(windows.begin);
    read_.count = windows.end - windows.begin + axis.kernelSize - 1;
    const std::int64_t end = read_.first + read_.count;
    if (problem_.edgeMode == ImageEdgeMode::Clamp) {
      read_.begin = std::clamp<std::int64_t>(read_.first, 0, axis.sourceSize - 1);
      read_.end = std::clamp<std::int64_t>(end - 1, 0, axis.sourceSize - 1) + 1;
    } else {
      read_.begin = std::clamp<std::int64_t>(read_.first, 0, axis.sourceSize);
      read_.end = std::clamp<std::int64_t>(end, read_.begin, axis.sourceSize);
    }
  }

  /// The columns that are read, of a row of the source, as float32.
  const float* sourceRow(std::int64_t y) {
    if (y < 0 || y >= problem_.y.sourceSize) {
      if (problem_.edgeMode != ImageEdgeMode::Clamp) return zeros_;
      y = std::clamp<std::int64_t>(y, 0, problem_.y.sourceSize - 1);
    }
    const std::int64_t width = read_.end - read_.begin;
    if (const float* direct = directRow(problem_.source, operands_.source, y, read_.begin, width))
      return direct;
    const auto slot = static_cast<std::size_t>(y % kernelHeight_);
    float* const row = converted_ + slot * tiles_.rowFloats;
    if (convertedRow_[slot] != y) {
      convertRow(problem_.source, operands_.source, y, read_.begin, width, row);
      convertedRow_[slot] = y;
    }
    return row;
  }

  /// Where float32 elements lie side by side; else null.
  const float* directRow(const TensorShape& shape, const std::byte* memory, std::int64_t y, std::int64_t x,
                         std::int64_t width) const {
    if (shape.format != ImageFeatureChannelFormat::Float32) return nullptr;
    if (shape.pixelStride != channels_ && width > 1) return nullptr;
    return reinterpret_cast<const float*>(memory) + shape.offset(image_, y, x, firstChannel_);
  }
  /// The incoming gradients of the windows of a row, where they lie side by side, else as float32.
  ConstFloatRun gradientRow(std::int64_t y, std::int64_t width) {
    const TensorShape& shape = problem_.gradient;
    if (const float* direct = directRow(shape, operands_.gradient, y, windows_.begin, width)) return direct;
    if (shape.format == ImageFeatureChannelFormat::Float16 && shape.pixelStride == channels_)
      return ConstFloatRun(reinterpret_cast<const Float16*>(operands_.gradient) +
                           shape.offset(image_, y, windows_.begin, firstChannel_));
    convertRow(shape, operands_.gradient, y, windows_.begin, width, convertedGradient_);
    return convertedGradient_;
  }
  void convertRow(const TensorShape& shape, const std::byte* memory, std::int64_t y, std::int64_t x,
                  std::int64_t width, float* to) const {
    const bool isAdjacent = shape.pixelStride == channels_;
    const std::size_t length = floats(isAdjacent ? width : 1);
    for (std::int64_t i = 0; i < (isAdjacent ? 1 : width); ++i)
      withElementType(shape.format, [&](auto element) {
        convertToFloats(reinterpret_cast<const decltype(element)*>(memory) +
                            shape.offset(image_, y, x + i, firstChannel_),
                        to + static_cast<std::size_t>(i) * length, length);
      });
  }

  /// Elements of a row that is read next: they come to the second-level cache while this one is computed.
  class RowAhead {
   public:
    RowAhead(const TensorShape& shape, const std::byte* address)
        : address_(address), bytes_(bytesPerChannel(shape.format)) {}
    HWY_INLINE void fetch(std::size_t i) const { __builtin_prefetch(address_ + i * bytes_, 0, 2); }

   private:
    const std::byte* address_;
    std::size_t bytes_;
  };
  RowAhead rowAhead(const TensorShape& shape, const std::byte* memory, std::int64_t y, std::int64_t x) const {
    const std::int64_t row = std::max<std::int64_t>(0, std::min(y, shape.height - 1));
    const auto bytes = static_cast<std::int64_t>(bytesPerChannel(shape.format));
    return {shape, memory + shape.offset(image_, row, x, firstChannel_) * bytes};
  }
  /// The last row of the source that the windows of the row behind y see.
  RowAhead sourceAhead(std::int64_t y) const {
    return rowAhead(problem_.source, operands_.source, problem_.y.firstTap(y) + kernelHeight_, read_.begin);
  }

  /// Begins the sums over the columns of the windows of row y.
  void beginColumns(std::int64_t y) {
    rowCount_ = 0;
    for (std::int64_t j = 0; j < kernelHeight_; ++j) {
      const float* const row = sourceRow(problem_.y.firstTap(y) + j);
      if (isContrast || row != zeros_) rows_[rowCount_++] = row;
    }
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
      if (isContrast)
        meanAndSquares(row, rowCount_, statistics_ + begin, squares_ + begin, floats(to - from));
      else
        sumSquares(row, rowCount_, statistics_ + begin, floats(to - from));
    }
    // Columns outside the source; where nothing is read they all are.
    if (summed_ == 0) extend(0, first, first);
    if (end > last) extend(std::max(summed_, last), end, last - 1);
    summed_ = end;
  }

  void extend(std::int64_t from, std::int64_t to, std::int64_t edge) const {
    for (float* const row : {statistics_, squares_})
      for (std::int64_t x = from; x < to; ++x)
        if (problem_.edgeMode == ImageEdgeMode::Clamp)
          std::copy_n(row + floats(edge), floats(1), row + floats(x));
        else
          std::fill_n(row + floats(x), floats(1), 0.0F);
  }

  /// Of a vector of windows the sum of squares; of LocalContrast the mean and the squared distances from it, which are
  /// those of the columns from their means and of these from the window's.
  template <class D, class Lanes, class V = hn::Vec<D>>
  HWY_INLINE V sumWindows(D d, Lanes lanes, const ColumnSums<D>& columns, std::size_t i, V& mean) const {
    if constexpr (!isContrast) return columns.sum(d, lanes, statistics_ + i);
    const V height = hn::Set(d, static_cast<float>(kernelHeight_));
    return columns.meanAndSquares(d, lanes, statistics_ + i, squares_ + i, height, mean);
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

  /// The source pixels that the windows of row y are centered at.
  const float* centers(std::int64_t y) {
    const std::int64_t first = problem_.x.offset + windows_.begin;
    const std::int64_t count = windows_.end - windows_.begin;
    const float* const row = sourceRow(problem_.y.offset + y);
    if (row == zeros_) return zeros_;
    if (first >= read_.begin && first + count <= read_.end) return row + floats(first - read_.begin);
    const std::size_t channels = floats(1);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t x = first + i;
      const bool isInside = x >= 0 && x < problem_.x.sourceSize;
      if (isInside || problem_.edgeMode == ImageEdgeMode::Clamp)
        std::copy_n(row + floats(std::clamp<std::int64_t>(x, 0, problem_.x.sourceSize - 1) - read_.begin),
                    channels, center_ + floats(i));
      else
        std::fill_n(center_ + floats(i), channels, 0.0F);
    }
    return center_;
  }

  void computeResults(std::int64_t y) {
    const hn::ScalableTag<float> d;
    using V = hn::Vec<decltype(d)>;
    beginColumns(y);
    const float* const x = centers(y);
    const FloatRun to = target(y);
    const auto alphaShare = hn::Set(d, constants_.alphaShare);
    const auto delta = hn::Set(d, constants_.delta);
    const auto p0 = hn::Set(d, constants_.p0);
    const auto pm = hn::Set(d, constants_.pm);
    const auto ps = hn::Set(d, constants_.ps);
    const RowAhead ahead = sourceAhead(y);
    const ColumnSums<hn::ScalableTag<float>> columns{static_cast<std::size_t>(kernelWidth_), floats(1)};
    withPowerOf([&](auto powerOf) HWY_ATTR __attribute__((always_inline)) {
      forBlocks(
          0, columns_, [&](std::int64_t begin, std::int64_t end) HWY_ATTR __attribute__((always_inline)) {
            sumColumns(end + kernelWidth_ - 1);
            const std::size_t first = floats(begin);
            forVectors(
                d,
                floats(end - begin), [&](std::size_t k, auto lanes) HWY_ATTR __attribute__((always_inline)) {
                  const std::size_t i = first + k;
                  ahead.fetch(i);
                  V mean = hn::Zero(d);
                  const auto t = hn::MulAdd(sumWindows(d, lanes, columns, i, mean), alphaShare, delta);
                  const auto power = powerOf(d, t);
                  auto value = lanes.load(d, x + i);
                  if (isContrast) {
                    value = hn::Mul(hn::NegMulAdd(p0, mean, value), ps);
                    value = hn::MulAdd(value, power, pm);
                  } else {
                    value = hn::Mul(value, power);
                  }
                  lanes.store(d, value, to + i);
                });
          });
    });
    storeTarget(y);
  }

  /// Calls function(how to compute T^-beta).
  template <class Function>
  HWY_INLINE void withPowerOf(Function&& function) const {
    withPowerKind(tiles_.power, [&](auto kind) {
      function(NegativePower<decltype(kind)::value, hn::ScalableTag<float>>(tiles_.power));
    });
  }

  void computeGradients(std::int64_t begin, std::int64_t end) {
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
    if (seen_.count() > 0) {
      setWindows(windows);
      std::fill_n(fieldRow_, kernelHeight_, std::int64_t{-1});
      for (const Field& field : fields_)
        std::fill_n(field.rows, static_cast<std::size_t>(kernelHeight_) * tiles_.rowFloats, 0.0F);
    }
    for (std::int64_t y = begin; y < end; ++y) computeGradientRow(y);
  }

  /// dY T^-beta and so on of the windows of row y.
  void computeFields(std::int64_t y) {
    const hn::ScalableTag<float> d;
    using V = hn::Vec<decltype(d)>;
    beginColumns(y);
    const float* const x = centers(y);
    const std::int64_t count = windows_.end - windows_.begin;
    const ConstFloatRun dy = gradientRow(y, count);
    const std::size_t at = fieldOffset(y) + floats(windows_.begin - firstField_);
    const auto alphaShare = hn::Set(d, constants_.alphaShare);
    const auto delta = hn::Set(d, constants_.delta);
    const auto p0 = hn::Set(d, constants_.p0);
    const auto p0Share = hn::Set(d, constants_.p0Share);
    const auto factor = hn::Set(d, constants_.factor);
    const RowAhead ahead = sourceAhead(y);
    const RowAhead gradientAhead = rowAhead(problem_.gradient, operands_.gradient, y + 1, windows_.begin);
    const ColumnSums<hn::ScalableTag<float>> columns{static_cast<std::size_t>(kernelWidth_), floats(1)};
    withPowerOf([&](auto powerOf) HWY_ATTR __attribute__((always_inline)) {
      forBlocks(
          0, count, [&](std::int64_t begin, std::int64_t end) HWY_ATTR __attribute__((always_inline)) {
            sumColumns(end + kernelWidth_ - 1);
            const std::size_t first = floats(begin);
            forVectors(
                d,
                floats(end - begin), [&](std::size_t k, auto lanes) HWY_ATTR __attribute__((always_inline)) {
                  const std::size_t i = first + k;
                  ahead.fetch(i);
                  gradientAhead.fetch(i);
                  V mean = hn::Zero(d);
                  const auto t = hn::MulAdd(sumWindows(d, lanes, columns, i, mean), alphaShare, delta);
                  const auto power = powerOf(d, t);
                  const auto next = powerOf.next(d, t, power);
                  const auto gradient = lanes.load(d, dy + i);
                  const auto a = hn::Mul(gradient, power);
                  lanes.store(d, a, fields_[0].rows + at + i);
                  auto numerator = lanes.load(d, x + i);
                  if (isContrast) numerator = hn::NegMulAdd(p0, mean, numerator);
                  const auto b = hn::Mul(hn::Mul(gradient, numerator), next);
                  lanes.store(d, b, fields_[1].rows + at + i);
                  if (isContrast) {
                    const auto ofMean = hn::Mul(hn::Mul(b, factor), mean);
                    lanes.store(d, hn::MulSub(p0Share, a, ofMean), fields_[kFields - 1].rows + at + i);
                  }
                });
          });
    });
  }

  [[nodiscard]] std::size_t fieldOffset(std::int64_t y) const {
    return static_cast<std::size_t>(y % kernelHeight_) * tiles_.rowFloats;
  }
  [[nodiscard]] std::size_t nextFieldOffset(std::size_t offset) const {
    offset += tiles_.rowFloats;
    return offset == static_cast<std::size_t>(kernelHeight_) * tiles_.rowFloats ? 0 : offset;
  }

  void computeGradientRow(std::int64_t y) {
    const std::int64_t pixel = problem_.destinationOriginY + y;
    const WindowRange rows = windowsSeeing(problem_.y, problem_.edgeMode, pixel);
    const FloatRun to = target(y);
    if (rows.count() == 0 || seen_.count() == 0) {
      zero(to, 0, columns_);
      return storeTarget(y);
    }
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      std::int64_t& computed = fieldRow_[row % kernelHeight_];
      if (computed != row) computeFields(row);
      computed = row;
    }
    beginFields(rows, pixel);
    const float* const centerRow = sumCenters(pixel);
    zero(to, 0, seen_.begin);
    std::int64_t x = seen_.begin;
    const std::int64_t first = problem_.destinationOriginX + firstColumn_;
    if (problem_.edgeMode == ImageEdgeMode::Clamp && first + x == 0) finishEdge(pixel, x++, centerRow, to);
    const bool endsAtEdge = problem_.edgeMode == ImageEdgeMode::Clamp && x < seen_.end &&
                            first + seen_.end == problem_.x.sourceSize;
    const std::int64_t end = endsAtEdge ? seen_.end - 1 : seen_.end;
    const float* const a = centerRow + floats(kernelWidth_ - 1 - kernelWidth_ / 2);
    forBlocks(x, end, [&](std::int64_t blockBegin, std::int64_t blockEnd) {
      finish(pixel, {blockBegin, blockEnd}, nullptr, a + floats(blockBegin), to);
    });
    if (endsAtEdge) finishEdge(pixel, end, centerRow, to);
    zero(to, seen_.end, columns_);
    storeTarget(y);
  }

  /// Begins the sums of fields over the windows that see a row.
  void beginFields(const WindowRange& rows, std::int64_t pixel) {
    rowCount_ = static_cast<std::size_t>(rows.count());
    summed_ = 0;
    isWeighted_ = false;
    std::size_t offset = fieldOffset(rows.begin);
    for (std::int64_t j = 0; j < rows.count(); ++j) {
      const std::int64_t times = timesSeen(problem_.y, problem_.edgeMode, rows.begin + j, pixel);
      rowWeights_[j] = static_cast<float>(times);
      isWeighted_ |= times != 1;
      fieldOffsets_[j] = offset;
      offset = nextFieldOffset(offset);
    }
  }

  /// Makes the sums of a field's columns up to `end`.
  HWY_NOINLINE void sumFields(std::int64_t end) {
    const std::size_t begin = floats(summed_);
    const std::size_t length = floats(end - summed_);
    for (std::size_t f = 1; f < kFields; ++f) {
      const float* const rows = fields_[f].rows + begin;
      const auto row = [&](std::size_t j) { return rows + fieldOffsets_[j]; };
      if (isWeighted_)
        sumWeightedRows(row, rowWeights_, rowCount_, fields_[f].sum + begin, length);
      else
        sumRows(row, rowCount_, fields_[f].sum + begin, length);
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
    sumRows(row, static_cast<std::size_t>(rows.count()), centerSum_, floats(fieldColumns_));
    return centerSum_;
  }

  /// An edge pixel that stands for those beyond it.
  void finishEdge(std::int64_t pixelY, std::int64_t column, const float* centerRow, FloatRun to) {
    const std::int64_t pixel = problem_.destinationOriginX + firstColumn_ + column;
    for (std::int64_t m = 0; m < kernelWidth_; ++m) {
      const std::int64_t window = firstField_ + column + m;
      const bool isWindow = window >= 0 && window < problem_.x.destinationSize;
      edgeWeights_[m] =
          isWindow ? static_cast<float>(timesSeen(problem_.x, problem_.edgeMode, window, pixel)) : 0.0F;
    }
    const WindowRange centered = windowsCenteredAt(problem_.x, problem_.edgeMode, pixel);
    const hn::ScalableTag<float> d;
    forVectors(
        d, floats(1), [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
          auto sum = hn::Zero(d);
          for (std::int64_t window = centered.begin; window < centered.end; ++window)
            sum = hn::Add(sum, lanes.load(d, centerRow + floats(window - firstField_) + i));
          lanes.store(d, sum, center_ + i);
        });
    finish(pixelY, {column, column + 1}, edgeWeights_, center_, to);
  }

  /// The gradients of some columns of the tile. @param weights of their windows; null: each counts once
  /// @param a of their centers
  void finish(std::int64_t pixelY, const WindowRange& columns, const float* weights, const float* a,
              FloatRun to) {
    const hn::ScalableTag<float> d;
    sumFields(columns.end + kernelWidth_ - 1);
    const std::size_t begin = floats(columns.begin);
    const auto channels = static_cast<std::size_t>(channels_);
    const float* const x =
        sourceRow(pixelY) + floats(problem_.destinationOriginX + firstColumn_ + columns.begin - read_.begin);
    const std::size_t length = floats(columns.count());
    ColumnSums<hn::ScalableTag<float>> windows{static_cast<std::size_t>(kernelWidth_), channels};
    if (weights != nullptr) {
      // In place: what lies before a column is not needed any more.
      for (std::size_t f = 1; f < kFields; ++f) {
        float* const sum = fields_[f].sum + begin;
        sumWeightedRows([&](std::size_t m) { return sum + m * channels; }, weights, windows.count, sum,
                        length);
      }
      windows.count = 1;
    }
    const float* const b = fields_[1].sum + begin;
    const float* const ofMeans = fields_[kFields - 1].sum + begin;
    const auto factor = hn::Set(d, constants_.factor);
    const auto ps = hn::Set(d, constants_.ps);
    const FloatRun out = to + begin;
    forVectors(
        d, length, [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
          const auto inner = hn::Mul(lanes.load(d, x + i), windows.sum(d, lanes, b + i));
          auto value = lanes.load(d, a + i);
          if (isContrast) value = hn::Sub(value, windows.sum(d, lanes, ofMeans + i));
          value = hn::NegMulAdd(factor, inner, value);
          if (isContrast) value = hn::Mul(value, ps);
          if (addsInPlace_) value = hn::Add(value, lanes.load(d, static_cast<const float*>(out.address) + i));
          lanes.store(d, value, out + i);
        });
  }

  void zero(FloatRun to, std::int64_t begin, std::int64_t end) const {
    if (addsInPlace_ || end <= begin) return;
    const hn::ScalableTag<float> d;
    forVectors(
        d, floats(end - begin), [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
          lanes.store(d, hn::Zero(d), to + (floats(begin) + i));
        });
  }

  /// Where to compute a row of the tile: in the destination if its elements lie side by side.
  FloatRun target(std::int64_t y) {
    const TensorShape& shape = problem_.destination;
    const std::int64_t offset = shape.offset(image_, y, firstColumn_, firstChannel_);
    const bool isAdjacent = shape.pixelStride == channels_ || columns_ == 1;
    const bool isHalf = shape.format == ImageFeatureChannelFormat::Float16;
    isDirect_ = isAdjacent && (isHalf || shape.format == ImageFeatureChannelFormat::Float32);
    addsInPlace_ = isDirect_ && operands_.accumulate;
    if (!isDirect_) return target_;
    FloatRun run = isHalf ? FloatRun(reinterpret_cast<Float16*>(operands_.destination) + offset)
                          : FloatRun(reinterpret_cast<float*>(operands_.destination) + offset);
    run.isStreamed = streams_;
    return run;
  }

  void storeTarget(std::int64_t y) {
    if (isDirect_) return;
    const hn::ScalableTag<float> d;
    const TensorShape& shape = problem_.destination;
    for (std::int64_t i = 0; i < columns_; ++i) {
      const float* const from = target_ + floats(i);
      const std::int64_t offset = shape.offset(image_, y, firstColumn_ + i, firstChannel_);
      if (operands_.accumulate) {
        float* const to = reinterpret_cast<float*>(operands_.destination) + offset;
        forVectors(d, floats(1), [&](std::size_t k, auto lanes) {
          lanes.store(d, hn::Add(lanes.load(d, to + k), lanes.load(d, from + k)), to + k);
        });
        continue;
      }
      withElementType(shape.format, [&](auto element) {
        convertFromFloats(from, reinterpret_cast<decltype(element)*>(operands_.destination) + offset,
                          floats(1));
      });
    }
  }

  const NormalizationProblem& problem_;
  const WindowTiles& tiles_;
  const Operands& operands_;
  Constants constants_;
  std::int64_t kernelWidth_;
  std::int64_t kernelHeight_;
  bool streams_;
  bool isDirect_ = false;
  bool addsInPlace_ = false;

  // The tile.
  std::int64_t image_ = 0;
  std::int64_t firstChannel_ = 0;
  std::int64_t channels_ = 0;
  std::int64_t firstColumn_ = 0;  ///< of the destination
  std::int64_t columns_ = 0;
  WindowRange windows_;  ///< along a row
  WindowColumns read_;
  std::int64_t firstField_ = 0;  ///< the window that element 0 of a field's row belongs to, were it there
  std::int64_t fieldColumns_ = 0;
  WindowRange seen_;         ///< columns of the tile that windows see
  std::int64_t summed_ = 0;  ///< columns of which there are sums over rows
  std::size_t rowCount_ = 0;
  const float* rows_[WindowTiles::mostRows];  ///< that are summed
  bool isWeighted_ = false;
  std::size_t fieldOffsets_[WindowTiles::mostRows];
  float rowWeights_[WindowTiles::mostRows];
  std::int64_t convertedRow_[WindowTiles::mostRows];
  std::int64_t fieldRow_[WindowTiles::mostRows];

  // Rows of rowFloats.
  float* converted_ = nullptr;
  float* zeros_ = nullptr;
  float* statistics_ = nullptr;
  float* squares_ = nullptr;
  float* center_ = nullptr;
  float* target_ = nullptr;
  float* convertedGradient_ = nullptr;
  float* centerSum_ = nullptr;
  float* edgeWeights_ = nullptr;
  Field fields_[kFields];
};

template <bool isContrast>
void normalizeRowsOf(const NormalizationProblem& problem, const WindowTiles& tiles, const Operands& operands,
                     std::byte* working, std::int64_t begin, std::int64_t end) {
  const std::int64_t height = problem.destination.height;
  WindowRows<isContrast> rows(problem, tiles, operands, working);
  while (begin < end) {
    const std::int64_t image = begin / height;
    const std::int64_t last = std::min(end, (image + 1) * height);
    rows.compute(image, begin - image * height, last - image * height);
    begin = last;
  }
  finishStreaming();
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
