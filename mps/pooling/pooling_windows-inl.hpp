// Forward pooling by rows of windows, once per instruction set: source row -> flat phases -> combination of
// columns, kept for the next windows -> combination of rows.

#if defined(UNMETAL_MPS_POOLING_WINDOWS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_POOLING_WINDOWS_INL_HPP
#undef UNMETAL_MPS_POOLING_WINDOWS_INL_HPP
#else
#define UNMETAL_MPS_POOLING_WINDOWS_INL_HPP
#endif

#include <cmath>
#include <cstring>
#include <limits>

#include "mps/pooling/pooling_layout.hpp"
#include "mps/pooling/pooling_runs-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// Some channels of one image, as elements from an address on.
struct Plane {
  const std::byte* memory = nullptr;
  const TensorShape* shape = nullptr;
  std::int64_t image = 0;
  std::int64_t firstChannel = 0;

  template <class T>
  [[nodiscard]] const T* at(std::int64_t y, std::int64_t x) const {
    return reinterpret_cast<const T*>(memory) + shape->offset(image, y, x, firstChannel);
  }
};

inline std::size_t asSize(std::int64_t value) {
  return static_cast<std::size_t>(value);
}

inline std::int64_t ceilDivide(std::int64_t a, std::int64_t b) {
  return a / b + (a % b > 0 ? 1 : 0);
}

/// Computes rows of windows: maxima (with indices), averages or norms, as flat runs of float32.
class WindowRows {
 public:
  WindowRows(const PoolingProblem& problem, const WindowRowsLayout& layout, WorkingMemory& memory)
      : problem_(problem), layout_(layout), memory_(layout, memory) {}

  /// The next rows come from this plane, which has `channels` channels.
  void select(const Plane& source, std::int64_t channels) {
    if (channels != channels_) fillPadding(channels);
    channels_ = channels;
    elements_ = asSize(problem_.x.destinationSize * channels);
    source_ = source;
    std::fill_n(memory_.ringRow, layout_.ringRows, -1);
  }

  /// Computes row j into `to`, exactly its elements; the indices of the maxima into indices().
  void compute(std::int64_t j, float* to) {
    collectRows(j);
    if (rowCount_ == 0) {
      fillRun(to, 0.0F, elements_);
      if (layout_.indices)
        std::fill_n(memory_.indices, elements_, static_cast<std::int32_t>(problem_.noIndex()));
      return;
    }
    switch (problem_.kind) {
      case PoolingKind::Max:
        return computeMaximum(j, to);
      case PoolingKind::Average:
        return computeAverage(j, to);
      case PoolingKind::L2Norm:
        return combine<Sum>(memory_.rowPointers, rowCount_, to, elements_, SquareRoot());
    }
  }

  [[nodiscard]] float* result() const { return memory_.result; }
  [[nodiscard]] const std::int32_t* indices() const { return memory_.indices; }

 private:
  [[nodiscard]] bool clamps() const {
    return problem_.kind == PoolingKind::Max && problem_.edgeMode == ImageEdgeMode::Clamp;
  }

  /// The source rows of a row of windows, each combined over its columns, in order of their taps.
  void collectRows(std::int64_t j) {
    const WindowAxis& axis = problem_.y;
    const std::int64_t first = axis.firstTap(j);
    rowCount_ = 0;
    if (clamps() && first < 0) memory_.rows[rowCount_++] = {0, 0};
    for (std::int64_t q = axis.firstInside(j); q < axis.endInside(j); ++q)
      memory_.rows[rowCount_++] = {first + axis.dilation * q, q};
    if (clamps() && axis.endInside(j) < axis.kernelSize)
      memory_.rows[rowCount_++] = {axis.sourceSize - 1, axis.endInside(j)};
    for (std::size_t k = 0; k < rowCount_; ++k) {
      const std::size_t place = combinedRow(memory_.rows[k].row) * layout_.resultLength;
      const auto addend = static_cast<std::int32_t>(problem_.x.kernelSize * memory_.rows[k].tap);
      memory_.rowPointers[k] = memory_.ring + place;
      memory_.rowCandidates[k] = {memory_.ring + place,
                                  layout_.indices ? memory_.ringIndices + place : nullptr, addend};
    }
  }

  /// Place in the ring of a source row that is combined over the columns of each window.
  std::size_t combinedRow(std::int64_t row) {
    const std::size_t slot = asSize(row % layout_.ringRows);
    if (memory_.ringRow[slot] == row) return slot;
    memory_.ringRow[slot] = row;
    withElementType(problem_.source.format,
                    [&](auto element) { stageRow(source_.at<decltype(element)>(row, 0)); });
    float* const to = memory_.ring + slot * layout_.resultLength;
    for (std::size_t p = 0; p < layout_.columns.taps.size(); ++p) {
      const TapPlace& place = layout_.columns.taps[p];
      memory_.tapPointers[p] =
          memory_.phases + place.phase * layout_.phaseLength + asSize(place.shift * channels_);
      memory_.tapCandidates[p] = {memory_.tapPointers[p], nullptr, static_cast<std::int32_t>(p)};
    }
    const std::size_t taps = layout_.columns.taps.size();
    switch (problem_.kind) {
      case PoolingKind::Max:
        if (layout_.indices)
          combineIndexed(memory_.tapCandidates, taps, to, memory_.ringIndices + slot * layout_.resultLength,
                         elements_);
        else
          combine<Maximum>(memory_.tapPointers, taps, to, elements_, Unchanged());
        break;
      case PoolingKind::Average:
        combine<Sum>(memory_.tapPointers, taps, to, elements_, Unchanged());
        break;
      case PoolingKind::L2Norm:
        combine<SumOfSquares>(memory_.tapPointers, taps, to, elements_, Unchanged());
        break;
    }
    return slot;
  }

  /// Elements [begin, end) of a phase are pixels inside the source; `column` is the first one's.
  struct InsideRange {
    std::int64_t begin;
    std::int64_t end;
    std::int64_t column;
    std::int64_t size;
  };
  [[nodiscard]] InsideRange insideRange(std::size_t phase) const {
    const WindowAxis& axis = problem_.x;
    const std::int64_t size = axis.destinationSize + layout_.columns.largestShift;
    const std::int64_t first = axis.firstTap(0) + layout_.columns.remainders[phase];
    const std::int64_t begin = std::clamp<std::int64_t>(ceilDivide(-first, axis.stride), 0, size);
    const std::int64_t end =
        std::clamp<std::int64_t>(ceilDivide(axis.sourceSize - first, axis.stride), begin, size);
    return {begin, end, first + axis.stride * begin, size};
  }

  /// What taps outside the source read, unless they are clamped: nothing that can win or add.
  void fillPadding(std::int64_t channels) {
    const float neutral = problem_.kind == PoolingKind::Max ? -std::numeric_limits<float>::infinity() : 0.0F;
    for (std::size_t f = 0; f < layout_.columns.remainders.size(); ++f) {
      const InsideRange inside = insideRange(f);
      float* const phase = memory_.phases + f * layout_.phaseLength;
      fillRun(phase, neutral, asSize(inside.begin * channels));
      fillRun(phase + inside.end * channels, neutral, asSize((inside.size - inside.end) * channels));
    }
  }

  /// Splits a source row into its phases.
  template <class T>
  void stageRow(const T* row) {
    const std::size_t channels = asSize(channels_);
    const std::int64_t stride = problem_.x.stride;
    const std::int64_t pixelStride = problem_.source.pixelStride;
    // Few channels: convert the row as a whole, then sort pixels. Many: each pixel is a run of its own.
    const bool asWhole = stride > 1 && channels < hn::Lanes(FloatTag());
    if (asWhole)
      loadPixels(row, asSize(pixelStride), memory_.sourceRow, asSize(problem_.x.sourceSize), channels);
    for (std::size_t f = 0; f < layout_.columns.remainders.size(); ++f) {
      const InsideRange inside = insideRange(f);
      float* const phase = memory_.phases + f * layout_.phaseLength;
      float* const to = phase + inside.begin * channels_;
      const std::size_t count = asSize(inside.end - inside.begin);
      if (count > 0) {
        if (asWhole)
          copyPixels(memory_.sourceRow + inside.column * channels_, asSize(stride) * channels, to, channels,
                     count, channels);
        else
          loadPixels(row + inside.column * pixelStride, asSize(stride * pixelStride), to, count, channels);
      }
      if (clamps()) {
        repeatPixel(row, phase, inside.begin);
        repeatPixel(row + (problem_.x.sourceSize - 1) * pixelStride, phase + inside.end * channels_,
                    inside.size - inside.end);
      }
    }
  }

  template <class T>
  void repeatPixel(const T* pixel, float* to, std::int64_t count) const {
    for (std::int64_t k = 0; k < count; ++k) convertToFloats(pixel, to + k * channels_, asSize(channels_));
  }

  void computeMaximum(std::int64_t j, float* to) {
    if (layout_.indices)
      combineIndexed(memory_.rowCandidates, rowCount_, to, memory_.indices, elements_);
    else
      combine<Maximum>(memory_.rowPointers, rowCount_, to, elements_, Unchanged());
    if (problem_.edgeMode != ImageEdgeMode::Zero) return;
    const WindowAxis& axis = problem_.y;
    const bool rowHasOutsideZero =
        axis.firstTap(j) < 0 || axis.firstTap(j) + axis.dilatedSize() > axis.sourceSize;
    for (const WindowSegment& segment : layout_.segments) {
      if (!rowHasOutsideZero && !segment.hasOutsideZero) continue;
      const std::int64_t first = segment.begin * channels_;
      const std::size_t length = asSize((segment.end - segment.begin) * channels_);
      if (layout_.indices)
        admitOutsideZero(to + first, memory_.indices + first, static_cast<std::int32_t>(problem_.noIndex()),
                         length);
      else
        admitOutsideZero(to + first, length);
    }
  }

  void computeAverage(std::int64_t j, float* to) {
    const std::int64_t divisorY = countedTaps(problem_.y, j, problem_.edgeMode, problem_.zeroPadSizeY);
    for (const WindowSegment& segment : layout_.segments) {
      const std::int64_t first = segment.begin * channels_;
      const std::size_t length = asSize((segment.end - segment.begin) * channels_);
      for (std::size_t k = 0; k < rowCount_; ++k) memory_.segmentPointers[k] = memory_.rowPointers[k] + first;
      // Without a tap to count the sum is 0 as well.
      const std::int64_t divisor = std::max<std::int64_t>(1, segment.divisor * divisorY);
      withExactQuotient(divisor, [&](auto quotient) HWY_ATTR {
        combine<Sum>(memory_.segmentPointers, rowCount_, to + first, length, quotient);
      });
    }
  }

  const PoolingProblem& problem_;
  const WindowRowsLayout& layout_;
  WindowRowsMemory memory_;
  Plane source_;
  std::int64_t channels_ = 0;
  std::size_t elements_ = 0;
  std::size_t rowCount_ = 0;
};

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
