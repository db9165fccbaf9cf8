// Pooling gradients by rows of the source, once per instruction set. Each pixel gathers from the windows that
// read it and is written once. Where a
// tap is selected, each window gives its gradient to the pixel of that. Elsewhere the rows of windows that read a row of
// pixels are added first, then their columns.

#if defined(UNMETAL_MPS_POOLING_GRADIENT_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_POOLING_GRADIENT_INL_HPP
#undef UNMETAL_MPS_POOLING_GRADIENT_INL_HPP
#else
#define UNMETAL_MPS_POOLING_GRADIENT_INL_HPP
#endif

#include <optional>

#include "mps/pooling/cpu/pooling_windows-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// Computes rows of the source gradient and writes them to the destination.
template <class Operation>
class GradientRows {
 public:
  GradientRows(const PoolingProblem& problem, const GradientRowsLayout& layout, const Operands& operands,
               bool stream, WorkingMemory& memory)
      : problem_(problem),
        layout_(layout),
        operands_(operands),
        memory_(layout, problem, memory),
        channels_(problem.source.channels),
        stream_(stream),
        readsDirectly_(isDirect(problem.gradient)),
        writesDirectly_(isDirect(problem.destination) && !operands.accumulate),
        gathersDirectly_(kSelects && readsDirectly_ && writesDirectly_ && problem.indexBytes() == 1 &&
                         problem.gradient.format == problem.destination.format) {
    if (layout.needsWindowRows) windows_.emplace(problem, layout.windowRows, memory);
  }

  /// The next rows are those of this image.
  void select(std::int64_t image) {
    source_ = {operands_.source, &problem_.source, image};
    gradient_ = {operands_.gradient, &problem_.gradient, image};
    std::fill_n(memory_.ringRow, layout_.ringRows, -1);
  }

  void compute(std::int64_t destinationRow) {
    withElementType(problem_.destination.format, [&](auto element) {
      using T = decltype(element);
      computeRow(destinationRow + problem_.destinationOriginY,
                 reinterpret_cast<T*>(operands_.destination) +
                     problem_.destination.offset(source_.image, destinationRow, 0, 0));
    });
  }

 private:
  static constexpr bool kSelects = Operation::kTraits.selects;
  static constexpr bool kIsLinear = Operation::kTraits.isLinear;

  template <class T>
  void computeRow(std::int64_t y, T* to) {
    const std::int64_t stride = problem_.destination.pixelStride;
    const bool isRead = y >= 0 && y < problem_.y.sourceSize && layout_.rows.isRead(y);
    const std::int64_t columns = isRead ? layout_.columnEnd - layout_.columnBegin : 0;
    const std::int64_t before =
        columns > 0 ? layout_.columnBegin - problem_.destinationOriginX : problem_.destination.width;
    storeZeros(to, before);
    storeZeros(to + (before + columns) * stride, problem_.destination.width - before - columns);
    if (columns == 0) return;
    for (const GradientTile& tile : layout_.tiles)
      computeTile(y, tile, to + (tile.begin - problem_.destinationOriginX) * stride);
  }

  template <class T>
  void storeZeros(T* to, std::int64_t pixels) const {
    if (operands_.accumulate) return;
    for (std::int64_t x = 0; x < pixels; ++x)
      std::fill_n(to + x * problem_.destination.pixelStride, channels_, T{});
  }

  /// Straight to the destination, or to working memory first.
  template <class T>
  void computeTile(std::int64_t y, const GradientTile& tile, T* to) {
    const std::int64_t pixels = tile.end - tile.begin;
    if (tile.windowBegin == tile.windowEnd) return storeZeros(to, pixels);
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, Float16>) {
      const Target<T> target{to, stream_ && isAlignedToVectors(to)};
      if constexpr (kSelects) {
        if (gathersDirectly_) return gatherDirect(y, tile, target);
      } else {
        if (writesDirectly_) return addWindows(y, tile, target);
      }
    }
    const Target<float> staged{memory_.pixels};
    if constexpr (kSelects)
      gatherStaged(y, tile, staged);
    else
      addWindows(y, tile, staged);
    const std::size_t stride = asSize(problem_.destination.pixelStride);
    if constexpr (std::is_same_v<T, float>) {
      if (operands_.accumulate)
        return addPixels(memory_.pixels, to, stride, asSize(pixels), asSize(channels_));
    }
    storePixels(memory_.pixels, to, stride, asSize(pixels), asSize(channels_));
  }

  // Pixels of a tile
  // -----------------------------------------------------------------------------------------------

  /// Calls use(run, target, offset in the tile) for the pixels of a tile, in order: those of the interior at
  /// once, each other one by itself. They gather from the first `rows` of gatherRows, which begin with the
  /// tile's first window.
  template <class G, class Index, class T, class Use>
  void forPixels(const GradientTile& tile, std::size_t rows, Target<T> to, const Use& use) {
    const std::int64_t stride = problem_.x.stride;
    for (std::int64_t x = tile.begin; x < tile.end;) {
      const bool isInterior = x >= layout_.interiorBegin && x < layout_.interiorEnd;
      const std::int64_t count = isInterior ? std::min(tile.end, layout_.interiorEnd) - x : 1;
      const std::int64_t phases = std::min(stride, count);
      Contribution* contribution = memory_.contributions;
      for (std::int64_t f = 0; f < phases; ++f) {
        Contribution* const first = contribution;
        for (std::size_t k = 0; k < rows; ++k) {
          const GatherRow& row = memory_.gatherRows[k];
          for (const WindowTap* tap = layout_.columns.begin(x + f); tap != layout_.columns.end(x + f);
               ++tap) {
            const std::int64_t offset = (tap->window - tile.windowBegin) * channels_;
            *contribution++ = {static_cast<const G*>(row.gradient) + offset,
                               static_cast<const Index*>(row.indices) + offset,
                               row.code + static_cast<std::int32_t>(tap->tap)};
          }
        }
        memory_.pixelTaps[f] = {first, asSize(contribution - first)};
      }
      const bool isFlat = stride == 1;
      const PixelRun run{memory_.pixelTaps, asSize(phases), isFlat ? 1 : asSize(count),
                         asSize(isFlat ? count * channels_ : channels_),
                         asSize(isFlat ? problem_.x.destinationSize * channels_ : 0)};
      const std::int64_t offset = (x - tile.begin) * channels_;
      use(run, Target<T>{to.address + offset, to.stream}, offset);
      x += count;
    }
  }

  template <class T>
  void addWindows(std::int64_t y, const GradientTile& tile, Target<T> to) {
    const float* const windows = sumRows(y, tile);
    memory_.gatherRows[0] = {windows, windows, 0};
    if constexpr (kIsLinear) {
      forPixels<float, float>(tile, 1, to,
                              [&](const PixelRun& run, Target<T> target, std::int64_t /*offset*/) {
                                sumPixels(run, NoFactor(), target);
                              });
    } else if (!isDirect(problem_.source)) {
      source_.load(y, tile.begin, tile.end - tile.begin, memory_.stage);
      addWindowsTimes(tile, memory_.stage, to);
    } else if (problem_.source.format == ImageFeatureChannelFormat::Float32) {
      addWindowsTimes(tile, source_.at<float>(y, tile.begin), to);
    } else {
      addWindowsTimes(tile, source_.at<Float16>(y, tile.begin), to);
    }
  }

  template <class S, class T>
  void addWindowsTimes(const GradientTile& tile, const S* source, Target<T> to) {
    forPixels<float, float>(tile, 1, to, [&](const PixelRun& run, Target<T> target, std::int64_t offset) {
      sumPixels(run, SourceFactor<Operation, S>{source + offset}, target);
    });
  }

  // Sums of shares
  // -----------------------------------------------------------------------------------------

  /// For each window of a tile the sum of the shares, over the rows of windows that read row y.
  const float* sumRows(std::int64_t y, const GradientTile& tile) {
    const auto count = layout_.rows.count(y);
    const WindowTap* const tap = layout_.rows.begin(y);
    const std::size_t length = wholeVectors((tile.windowEnd - tile.windowBegin) * channels_);
    if constexpr (!kIsLinear) {
      const auto** rows = reinterpret_cast<const float**>(memory_.rowPointers);
      for (std::size_t k = 0; k < count; ++k)
        rows[k] = shareRow(tap[k].window) + tile.windowBegin * channels_;
      if (count == 1) return rows[0];
      combineRows<Sum>(rows, count, memory_.sum, length, Unchanged());
    } else {
      std::size_t done = 0;
      while (done < count) {
        // Neighbouring rows that are divided by the same number.
        std::size_t end = done + 1;
        while (readsDirectly_ && end < count && divisorY(tap[end].window) == divisorY(tap[done].window))
          ++end;
        const float* rows[2] = {memory_.sum, memory_.stage};
        float* const to = done == 0 ? memory_.sum : memory_.stage;
        for (const WindowSegment& segment : layout_.segments)
          shareSegment(tap + done, end - done, segment, tile, to);
        if (done > 0) combineRows<Sum>(rows, 2, memory_.sum, length, Unchanged());
        done = end;
      }
    }
    return memory_.sum;
  }

  [[nodiscard]] std::int64_t divisorY(std::int64_t j) const {
    return countedTaps(problem_.y, j, problem_.edgeMode, problem_.zeroPadSizeY);
  }

  void shareSegment(const WindowTap* tap, std::size_t count, const WindowSegment& segment,
                    const GradientTile& tile, float* to) {
    const std::int64_t begin = std::max(segment.begin, tile.windowBegin);
    const std::int64_t end = std::min(segment.end, tile.windowEnd);
    if (begin >= end) return;
    // A window without a tap to count adds nothing anywhere.
    const Share<Operation> share{
        Quotient(std::max<std::int64_t>(1, segment.divisor * divisorY(tap->window)))};
    const std::size_t length = asSize((end - begin) * channels_);
    float* const target = to + (begin - tile.windowBegin) * channels_;
    if (!readsDirectly_) {
      gradient_.load(tap->window, begin, end - begin, target);
      const float* row = target;
      return combineRows<Sum>(&row, 1, target, wholeVectors((end - begin) * channels_), share);
    }
    if (problem_.gradient.format == ImageFeatureChannelFormat::Float32)
      shareRows<float>(tap, count, begin, target, length, share);
    else
      shareRows<Float16>(tap, count, begin, target, length, share);
  }

  template <class G>
  void shareRows(const WindowTap* tap, std::size_t count, std::int64_t window, float* to, std::size_t length,
                 const Share<Operation>& share) {
    const auto** rows = reinterpret_cast<const G**>(memory_.rowPointers);
    for (std::size_t k = 0; k < count; ++k) rows[k] = gradient_.at<G>(tap[k].window, window);
    const RowsAhead ahead{.distance = asSize(problem_.gradient.rowStride)};
    combineRows<Sum>(rows, count, to, length, share, ahead);
  }

  [[nodiscard]] std::byte* ringPlace(std::int64_t j, std::size_t elementBytes) const {
    return memory_.ring + asSize(j % layout_.ringRows) * layout_.ringLength * elementBytes;
  }
  /// Whether a row of windows must be computed first.
  bool isMissing(std::int64_t j) {
    std::int64_t& held = memory_.ringRow[j % layout_.ringRows];
    if (held == j) return false;
    held = j;
    return true;
  }

  /// The shares of a row of windows, whose results are computed first.
  const float* shareRow(std::int64_t j) {
    auto* const row = reinterpret_cast<float*>(ringPlace(j, sizeof(float)));
    if (!isMissing(j)) return row;
    windows_->selectRow(source_, j);
    const std::int64_t windows = problem_.x.destinationSize;
    const std::int64_t step = layout_.windowRows.tileWindows;
    for (std::int64_t begin = 0; begin < windows; begin += step) {
      const std::int64_t end = std::min(begin + step, windows);
      windows_->combine(begin, end, Target<float>{windows_->result()});
      for (const WindowSegment& segment : layout_.segments) {
        const std::int64_t first = std::max(begin, segment.begin);
        const std::int64_t last = std::min(end, segment.end);
        if (first < last)
          shareWindows(j, first, last, windows_->result() + (first - begin) * channels_, segment,
                       row + first * channels_);
      }
    }
    return row;
  }

  void shareWindows(std::int64_t j, std::int64_t begin, std::int64_t end, const float* results,
                    const WindowSegment& segment, float* to) {
    const std::size_t length = asSize((end - begin) * channels_);
    const auto divide = windows_->divisor(segment);
    if (!readsDirectly_) {
      gradient_.load(j, begin, end - begin, to);
      shareRun<Operation>(to, results, to, length, divide);
    } else if (problem_.gradient.format == ImageFeatureChannelFormat::Float32) {
      shareRun<Operation>(gradient_.at<float>(j, begin), results, to, length, divide);
    } else {
      shareRun<Operation>(gradient_.at<Float16>(j, begin), results, to, length, divide);
    }
  }

  // Selected taps
  // -----------------------------------------------------------------------------------------------------

  std::size_t selectGatherRows(std::int64_t y, const GradientTile& tile) {
    const auto count = layout_.rows.count(y);
    const WindowTap* const tap = layout_.rows.begin(y);
    for (std::size_t k = 0; k < count; ++k) {
      memory_.gatherRows[k].indices = indexRow(tap[k].window, tile.windowBegin);
      memory_.gatherRows[k].code = static_cast<std::int32_t>(problem_.x.kernelSize * tap[k].tap);
    }
    return count;
  }

  template <class T>
  void gatherDirect(std::int64_t y, const GradientTile& tile, Target<T> to) {
    const std::size_t count = selectGatherRows(y, tile);
    const WindowTap* const tap = layout_.rows.begin(y);
    for (std::size_t k = 0; k < count; ++k)
      memory_.gatherRows[k].gradient = gradient_.at<T>(tap[k].window, tile.windowBegin);
    forPixels<T, std::uint8_t>(tile, count, to,
                               [](const PixelRun& run, Target<T> target, std::int64_t /*offset*/) {
                                 gatherPixels<std::uint8_t, T>(run, target);
                               });
  }

  /// From float32 gradients and 32-bit indices.
  void gatherStaged(std::int64_t y, const GradientTile& tile, Target<float> to) {
    const std::size_t count = selectGatherRows(y, tile);
    const WindowTap* const tap = layout_.rows.begin(y);
    const std::int64_t windows = tile.windowEnd - tile.windowBegin;
    for (std::size_t k = 0; k < count; ++k) {
      float* const stage = memory_.stage + k * layout_.stageLength;
      std::int32_t* const indexStage = memory_.indexStage + k * layout_.stageLength;
      gradient_.load(tap[k].window, tile.windowBegin, windows, stage);
      widen(memory_.gatherRows[k].indices, indexStage, asSize(windows * channels_));
      memory_.gatherRows[k].gradient = stage;
      memory_.gatherRows[k].indices = indexStage;
    }
    forPixels<float, std::int32_t>(tile, count, to,
                                   [](const PixelRun& run, Target<float> target, std::int64_t /*offset*/) {
                                     gatherPixels<std::int32_t, float>(run, target);
                                   });
  }

  void widen(const void* from, std::int32_t* to, std::size_t length) const {
    switch (problem_.indexBytes()) {
      case 1:
        return widenIndices(static_cast<const std::uint8_t*>(from), to, length);
      case 2:
        return widenIndices(static_cast<const std::uint16_t*>(from), to, length);
      default:
        return widenIndices(static_cast<const std::int32_t*>(from), to, length);
    }
  }

  /// The indices of a row's maxima from a window on: the saved ones, or found again in the source.
  const std::byte* indexRow(std::int64_t j, std::int64_t window) {
    const auto bytes = static_cast<std::int64_t>(problem_.indexBytes());
    if (problem_.useIndices) {
      const std::int64_t row = source_.image * problem_.y.destinationSize + j;
      return operands_.saved + (row * problem_.x.destinationSize + window) * channels_ * bytes;
    }
    std::byte* const row = ringPlace(j, problem_.indexBytes());
    if (isMissing(j)) {
      windows_->selectRow(source_, j);
      const std::int64_t windows = problem_.x.destinationSize;
      const std::int64_t step = layout_.windowRows.tileWindows;
      for (std::int64_t begin = 0; begin < windows; begin += step) {
        const std::int64_t end = std::min(begin + step, windows);
        windows_->choose(begin, end);
        saveIndices(problem_, windows_->indices(), row + begin * channels_ * bytes,
                    asSize((end - begin) * channels_));
      }
    }
    return row + window * channels_ * bytes;
  }

  const PoolingProblem& problem_;
  const GradientRowsLayout& layout_;
  const Operands& operands_;
  GradientRowsMemory memory_;
  std::int64_t channels_;
  bool stream_;
  bool readsDirectly_;
  bool writesDirectly_;
  bool gathersDirectly_;
  std::optional<WindowRows<Operation>> windows_;
  Plane source_;
  Plane gradient_;
};

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
