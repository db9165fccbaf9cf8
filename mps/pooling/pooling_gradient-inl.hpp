// Pooling gradients by rows of the source, once per instruction set. Each row gathers from the rows of
// windows that read it: rows of windows -> sum over rows and columns, by phases -> destination row.

#if defined(UNMETAL_MPS_POOLING_GRADIENT_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_POOLING_GRADIENT_INL_HPP
#undef UNMETAL_MPS_POOLING_GRADIENT_INL_HPP
#else
#define UNMETAL_MPS_POOLING_GRADIENT_INL_HPP
#endif

#include <optional>
#include <type_traits>

#include "mps/pooling/pooling_windows-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// Computes rows of the source gradient and writes them to the destination.
class GradientRows {
 public:
  GradientRows(const PoolingProblem& problem, const GradientRowsLayout& layout, const Operands& operands,
               WorkingMemory& memory)
      : problem_(problem), layout_(layout), operands_(operands), memory_(layout, memory) {
    if (layout.needsWindowRows) windows_.emplace(problem, layout.windowRows, memory);
  }

  /// The next rows are those of this image and these channels.
  void select(std::int64_t image, std::int64_t firstChannel, std::int64_t channels) {
    if (channels != channels_) fillPadding();
    channels_ = channels;
    source_ = {operands_.source, &problem_.source, image, firstChannel};
    gradient_ = {operands_.gradient, &problem_.gradient, image, firstChannel};
    if (windows_) windows_->select(source_, channels);
    std::fill_n(memory_.ringRow, layout_.ringRows, -1);
  }

  void compute(std::int64_t destinationRow) {
    withElementType(problem_.destination.format, [&](auto element) {
      using T = decltype(element);
      const std::int64_t offset =
          problem_.destination.offset(source_.image, destinationRow, 0, source_.firstChannel);
      computeRow(destinationRow + problem_.destinationOriginY,
                 reinterpret_cast<T*>(operands_.destination) + offset);
    });
  }

 private:
  // Rows of windows
  // -------------------------------------------------------------------------------------------------

  [[nodiscard]] float* windowElement(std::int64_t place, std::int64_t window) const {
    return memory_.ring + asSize(place) * layout_.windowLength + (window - layout_.windowBegin) * channels_;
  }
  [[nodiscard]] std::int32_t* windowIndex(std::int64_t place, std::int64_t window) const {
    return memory_.ringIndices + asSize(place) * layout_.windowLength +
           (window - layout_.windowBegin) * channels_;
  }
  /// The windows that exist among those that are read.
  [[nodiscard]] std::int64_t firstWindow() const { return std::max<std::int64_t>(0, layout_.windowBegin); }
  [[nodiscard]] std::int64_t endWindow() const {
    return std::clamp(layout_.windowEnd, firstWindow(), std::max(firstWindow(), problem_.x.destinationSize));
  }

  /// Windows that do not exist have no gradient, and an index that no tap has.
  void fillPadding() {
    for (std::int64_t place = 0; place < layout_.ringRows; ++place) {
      float* const row = memory_.ring + asSize(place) * layout_.windowLength;
      fillRun(row, 0.0F, layout_.windowLength);
      if (layout_.indices) {
        std::int32_t* const indices = memory_.ringIndices + asSize(place) * layout_.windowLength;
        std::fill_n(indices, layout_.windowLength, -1);
      }
    }
  }

  /// Place in the ring of a row of windows: its gradients (divided as the kind wants it) and indices.
  std::int64_t windowRow(std::int64_t j) {
    const std::int64_t place = j % layout_.ringRows;
    if (memory_.ringRow[place] == j) return place;
    memory_.ringRow[place] = j;
    const std::int64_t first = firstWindow();
    const std::int64_t count = endWindow() - first;
    if (count == 0) return place;
    float* const to = windowElement(place, first);
    withElementType(problem_.gradient.format, [&](auto element) {
      loadPixels(gradient_.at<decltype(element)>(j, first), asSize(problem_.gradient.pixelStride), to,
                 asSize(count), asSize(channels_));
    });
    switch (problem_.kind) {
      case PoolingKind::Max:
        loadWindowIndices(j, place);
        break;
      case PoolingKind::Average:
        divideByCounts(j, place);
        break;
      case PoolingKind::L2Norm:
        windows_->compute(j, windows_->result());
        divideByNorm(to, windows_->result() + first * channels_, asSize(count * channels_));
        break;
    }
    return place;
  }

  void loadWindowIndices(std::int64_t j, std::int64_t place) {
    const std::int64_t first = firstWindow();
    const std::int64_t count = endWindow() - first;
    std::int32_t* const to = windowIndex(place, first);
    if (windows_) {
      windows_->compute(j, windows_->result());
      std::memcpy(to, windows_->indices() + first * channels_,
                  asSize(count * channels_) * sizeof(std::int32_t));
      return;
    }
    switch (problem_.indexBytes()) {
      case 1:
        return loadSaved<std::uint8_t>(j, first, count, to);
      case 2:
        return loadSaved<std::uint16_t>(j, first, count, to);
      default:
        return loadSaved<std::int32_t>(j, first, count, to);
    }
  }

  template <class Index>
  void loadSaved(std::int64_t j, std::int64_t first, std::int64_t count, std::int32_t* to) const {
    const std::int64_t allChannels = problem_.source.channels;
    const std::int64_t row = source_.image * problem_.y.destinationSize + j;
    const auto* from = reinterpret_cast<const Index*>(operands_.saved) +
                       (row * problem_.x.destinationSize + first) * allChannels + source_.firstChannel;
    if (channels_ == allChannels) return loadIndices(from, to, asSize(count * channels_));
    for (std::int64_t k = 0; k < count; ++k)
      loadIndices(from + k * allChannels, to + k * channels_, asSize(channels_));
  }

  void divideByCounts(std::int64_t j, std::int64_t place) {
    const std::int64_t divisorY = countedTaps(problem_.y, j, problem_.edgeMode, problem_.zeroPadSizeY);
    for (const WindowSegment& segment : layout_.segments) {
      const std::int64_t begin = std::max(segment.begin, firstWindow());
      const std::int64_t end = std::min(segment.end, endWindow());
      if (begin >= end) continue;
      float* const run = windowElement(place, begin);
      const std::size_t length = asSize((end - begin) * channels_);
      // A window without a tap to count adds nothing anywhere.
      const std::int64_t divisor = std::max<std::int64_t>(1, segment.divisor * divisorY);
      withExactQuotient(divisor,
                        [&](auto quotient) HWY_ATTR { combineFixed<Sum, 1>(&run, run, length, quotient); });
    }
  }

  // Rows of the source
  // ----------------------------------------------------------------------------------------------

  template <class T>
  void computeRow(std::int64_t y, T* to) {
    const bool inside = y >= 0 && y < problem_.y.sourceSize && layout_.rows.isRead(y);
    const std::int64_t zerosBefore =
        inside ? layout_.columnBegin - problem_.destinationOriginX : problem_.destination.width;
    const std::int64_t columns = inside ? layout_.columnEnd - layout_.columnBegin : 0;
    const std::int64_t stride = problem_.destination.pixelStride;
    const std::int64_t zerosAfter = problem_.destination.width - columns - zerosBefore;
    storeZeros(to, zerosBefore);
    storeZeros(to + (zerosBefore + columns) * stride, zerosAfter);
    if (columns == 0) return;
    if (problem_.kind == PoolingKind::Max)
      gatherMaxima(y);
    else
      sumWindows(y);
    storeRow(y, to + zerosBefore * stride);
  }

  [[nodiscard]] float* phaseRow(std::size_t phase) const {
    return memory_.phases + phase * layout_.phaseLength;
  }
  [[nodiscard]] std::size_t phaseElements() const {
    return asSize((layout_.phaseEnd - layout_.phaseBegin) * channels_);
  }

  /// Each tap reads its windows at the same place of the row: the sum over rows first, then over columns.
  void sumWindows(std::int64_t y) {
    std::size_t rows = 0;
    for (const WindowTap* tap = layout_.rows.begin(y); tap != layout_.rows.end(y); ++tap)
      memory_.pointers[rows++] = windowElement(windowRow(tap->window), layout_.windowBegin);
    const std::size_t elements = asSize((layout_.windowEnd - layout_.windowBegin) * channels_);
    const float* sum = memory_.columnSum;
    if (rows == 1)
      sum = memory_.pointers[0];
    else
      combine<Sum>(memory_.pointers, rows, memory_.columnSum, elements, Unchanged());
    for (std::size_t f = 0; f < layout_.columns.remainders.size(); ++f) {
      std::size_t taps = 0;
      for (const TapPlace& place : layout_.columns.taps)
        if (place.phase == f)
          memory_.pointers[taps++] =
              sum + (layout_.phaseBegin - place.shift - layout_.windowBegin) * channels_;
      combine<Sum>(memory_.pointers, taps, phaseRow(f), phaseElements(), Unchanged());
    }
  }

  /// Of each window that reads the row a pixel gets the gradient if it is the window's maximum. Border rows
  /// with edge mode Clamp may be read by more windows than the ring holds, so they are taken in groups.
  void gatherMaxima(std::int64_t y) {
    const WindowTap* tap = layout_.rows.begin(y);
    const WindowTap* const end = layout_.rows.end(y);
    bool first = true;
    do {
      const WindowTap* const groupEnd = endOfGroup(tap, end);
      for (std::size_t f = 0; f < layout_.columns.remainders.size(); ++f)
        gatherPhase(f, tap, groupEnd, !first);
      addClamped(layout_.clampedLeft, 0, tap, groupEnd);
      addClamped(layout_.clampedRight, problem_.x.sourceSize - 1, tap, groupEnd);
      tap = groupEnd;
      first = false;
    } while (tap != end);
  }

  /// Taps of windows that fit into the ring at the same time, and into the list of contributions.
  [[nodiscard]] const WindowTap* endOfGroup(const WindowTap* tap, const WindowTap* end) const {
    const WindowTap* last = tap;
    while (last != end && last->window - tap->window < layout_.ringRows && last - tap < layout_.ringRows)
      ++last;
    return last;
  }

  void gatherPhase(std::size_t phase, const WindowTap* tap, const WindowTap* end, bool keep) {
    std::size_t count = 0;
    for (; tap != end; ++tap) {
      const std::int64_t place = windowRow(tap->window);
      for (std::size_t p = 0; p < layout_.columns.taps.size(); ++p) {
        const TapPlace& tapPlace = layout_.columns.taps[p];
        if (tapPlace.phase != phase) continue;
        const std::int64_t window = layout_.phaseBegin - tapPlace.shift;
        memory_.contributions[count++] = {windowElement(place, window), windowIndex(place, window),
                                          tapCode(static_cast<std::int64_t>(p), tap->tap)};
      }
    }
    gather(memory_.contributions, count, phaseRow(phase), phaseElements(), keep);
  }

  [[nodiscard]] std::int32_t tapCode(std::int64_t p, std::int64_t q) const {
    return static_cast<std::int32_t>(p + problem_.x.kernelSize * q);
  }

  /// Taps outside the source that were clamped to a column.
  void addClamped(const std::vector<WindowTap>& clamped, std::int64_t column, const WindowTap* tap,
                  const WindowTap* end) {
    if (clamped.empty() || column < layout_.columnBegin || column >= layout_.columnEnd) return;
    float* const pixel = pixelGradient(column);
    for (; tap != end; ++tap) {
      const std::int64_t place = windowRow(tap->window);
      for (const WindowTap& outside : clamped) {
        const Contribution contribution{windowElement(place, outside.window),
                                        windowIndex(place, outside.window), tapCode(outside.tap, tap->tap)};
        gather(&contribution, 1, pixel, asSize(channels_), true);
      }
    }
  }

  /// Elements of a phase that are columns of the destination; `column` is the first one's.
  struct PhaseRange {
    std::int64_t begin;
    std::int64_t end;
    std::int64_t column;
  };
  [[nodiscard]] PhaseRange phaseRange(std::size_t phase) const {
    const std::int64_t stride = problem_.x.stride;
    const std::int64_t first = problem_.x.firstTap(0) + layout_.columns.remainders[phase];
    const std::int64_t begin = ceilDivide(layout_.columnBegin - first, stride);
    return {begin, ceilDivide(layout_.columnEnd - first, stride), first + stride * begin};
  }

  /// Where the phases hold a column.
  [[nodiscard]] float* pixelGradient(std::int64_t column) const {
    for (std::size_t f = 0; f < layout_.columns.remainders.size(); ++f) {
      const std::int64_t distance = column - problem_.x.firstTap(0) - layout_.columns.remainders[f];
      if (distance % problem_.x.stride == 0)
        return phaseRow(f) + (distance / problem_.x.stride - layout_.phaseBegin) * channels_;
    }
    return nullptr;  // not reached: the layout has a phase for each column that taps are clamped to
  }

  template <class T>
  void storeZeros(T* to, std::int64_t pixels) const {
    if (operands_.accumulate) return;
    const std::int64_t stride = problem_.destination.pixelStride;
    for (std::int64_t x = 0; x < pixels; ++x) std::fill_n(to + x * stride, channels_, T{});
  }

  /// Writes the phases to their columns; `to` is the one of columnBegin.
  template <class T>
  void storeRow(std::int64_t y, T* to) {
    const std::int64_t stride = problem_.x.stride;
    const std::int64_t columns = layout_.columnEnd - layout_.columnBegin;
    if (stride == 1) return storeColumns(y, phaseRow(0), columns, layout_.columnBegin, 1, to);
    const bool allPhases = asSize(stride) == layout_.columns.remainders.size();
    // Few channels: sort pixels, then convert the row as a whole. Many: each pixel is a run of its own.
    const bool asWhole = asSize(channels_) < hn::Lanes(FloatTag());
    if (asWhole && !allPhases) fillRun(memory_.destinationRow, 0.0F, asSize(columns * channels_));
    if (!asWhole && !allPhases) storeZeros(to, columns);
    for (std::size_t f = 0; f < layout_.columns.remainders.size(); ++f) {
      const PhaseRange range = phaseRange(f);
      if (range.begin >= range.end) continue;
      float* const from = phaseRow(f) + (range.begin - layout_.phaseBegin) * channels_;
      const std::int64_t x = range.column - layout_.columnBegin;
      if (asWhole)
        copyPixels(from, asSize(channels_), memory_.destinationRow + x * channels_,
                   asSize(stride * channels_), asSize(range.end - range.begin), asSize(channels_));
      else
        storeColumns(y, from, range.end - range.begin, range.column, stride,
                     to + x * problem_.destination.pixelStride);
    }
    if (asWhole) storeColumns(y, memory_.destinationRow, columns, layout_.columnBegin, 1, to);
  }

  /// Writes `count` pixels for the columns `column`, column + step, ...
  template <class T>
  void storeColumns(std::int64_t y, float* from, std::int64_t count, std::int64_t column, std::int64_t step,
                    T* to) {
    if (problem_.kind == PoolingKind::L2Norm) multiplyBySource(y, from, count, column, step);
    const std::size_t stride = asSize(step * problem_.destination.pixelStride);
    if constexpr (std::is_same_v<T, float>) {
      if (operands_.accumulate) return addPixels(from, to, stride, asSize(count), asSize(channels_));
    }
    storePixels(from, to, stride, asSize(count), asSize(channels_));
  }

  /// Pixels that no window reads stay 0, whatever the source holds.
  void multiplyBySource(std::int64_t y, float* values, std::int64_t count, std::int64_t column,
                        std::int64_t step) {
    withElementType(problem_.source.format, [&](auto element) {
      using T = decltype(element);
      if (layout_.allColumnsAreRead) {
        const std::size_t stride = asSize(step * problem_.source.pixelStride);
        return multiplyPixels(source_.at<T>(y, column), stride, values, asSize(count), asSize(channels_));
      }
      for (std::int64_t k = 0; k < count; ++k)
        if (layout_.columnWindows.isRead(column + step * k))
          multiplyRun(source_.at<T>(y, column + step * k), values + k * channels_, asSize(channels_));
    });
  }

  const PoolingProblem& problem_;
  const GradientRowsLayout& layout_;
  const Operands& operands_;
  GradientRowsMemory memory_;
  std::optional<WindowRows> windows_;
  Plane source_;
  Plane gradient_;
  std::int64_t channels_ = 0;
};

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
