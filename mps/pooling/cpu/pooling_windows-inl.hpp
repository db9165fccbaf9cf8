// Forward pooling by rows of windows, once per instruction set. A tile of windows: the rows that it reads are
// combined to one row of float32, straight from the source's memory, then the columns of that. Indices of
// maxima are looked for in all taps at once, in their order.

#if defined(UNMETAL_MPS_POOLING_WINDOWS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_POOLING_WINDOWS_INL_HPP
#undef UNMETAL_MPS_POOLING_WINDOWS_INL_HPP
#else
#define UNMETAL_MPS_POOLING_WINDOWS_INL_HPP
#endif

#include "mps/pooling/cpu/pooling_layout.hpp"
#include "mps/pooling/cpu/pooling_runs-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// Whether runs may be read from or written to a tensor itself, without regard to their ends.
inline bool isDirect(const TensorShape& shape) {
  const bool isFloat = shape.format == ImageFeatureChannelFormat::Float32 ||
                       shape.format == ImageFeatureChannelFormat::Float16;
  return isFloat && shape.pixelStride == shape.channels &&
         asSize(shape.channels) % hn::Lanes(FloatTag()) == 0;
}

/// One image of a tensor.
struct Plane {
  const std::byte* memory = nullptr;
  const TensorShape* shape = nullptr;
  std::int64_t image = 0;

  template <class T>
  [[nodiscard]] const T* at(std::int64_t y, std::int64_t x) const {
    return reinterpret_cast<const T*>(memory) + shape->offset(image, y, x, 0);
  }
  /// Converts neighbouring pixels.
  void load(std::int64_t y, std::int64_t x, std::int64_t count, float* to) const {
    withElementType(shape->format, [&](auto element) {
      loadPixels(at<decltype(element)>(y, x), asSize(shape->pixelStride), to, asSize(count),
                 asSize(shape->channels));
    });
  }
};

/// Stores exactly `length` indices in the format of Operands::saved.
inline void saveIndices(const PoolingProblem& problem, const std::int32_t* from, std::byte* to,
                        std::size_t length) {
  switch (problem.indexBytes()) {
    case 1:
      return storeIndices(from, reinterpret_cast<std::uint8_t*>(to), length);
    case 2:
      return storeIndices(from, reinterpret_cast<std::uint16_t*>(to), length);
    default:
      return storeIndices(from, reinterpret_cast<std::int32_t*>(to), length);
  }
}

/// Computes rows of windows; indices of taps that are selected, too.
template <class Operation>
class WindowRows {
 public:
  static constexpr bool kSelects = Operation::kTraits.selects;

  WindowRows(const PoolingProblem& problem, const WindowRowsLayout& layout, WorkingMemory& memory)
      : problem_(problem),
        layout_(layout),
        memory_(layout, memory),
        channels_(problem.source.channels),
        readsRowsDirectly_(problem.source.pixelStride == channels_ &&
                           (problem.source.format == ImageFeatureChannelFormat::Float32 ||
                            problem.source.format == ImageFeatureChannelFormat::Float16)),
        readsTapsDirectly_(isDirect(problem.source)) {}

  /// The next windows are those of row j of this image.
  void selectRow(const Plane& source, std::int64_t j) {
    source_ = source;
    const WindowAxis& axis = problem_.y;
    row_ = j;
    rows_ = 0;
    const std::int64_t first = axis.firstTap(j);
    hasOutsideRow_ = first < 0 || first + axis.dilatedSize() > axis.sourceSize;
    const TapsOfMaximum taps(axis, j, clamps());
    for (std::int64_t q = taps.begin; q < taps.end; ++q) memory_.rows[rows_++] = {taps.pixel(q), taps.tap(q)};
  }

  /// Windows [begin, end), a tile, to target, pixel after pixel; writes whole vectors.
  template <class T>
  void combine(std::int64_t begin, std::int64_t end, Target<T> to) {
    fillTile(begin, end);
    for (const WindowSegment& segment : layout_.segments) {
      const std::int64_t first = std::max(begin, segment.begin);
      const std::int64_t last = std::min(end, segment.end);
      if (first >= last) continue;
      const WindowRun run = windowRun(first, last);
      const auto** taps = reinterpret_cast<const float**>(memory_.tapPointers);
      for (std::size_t p = 0; p < layout_.columnTaps; ++p)
        taps[p] = memory_.tile +
                  (problem_.x.stride * (first - begin) + problem_.x.dilation * static_cast<std::int64_t>(p)) *
                      channels_;
      const Target<T> target{to.address + (first - begin) * channels_, to.stream};
      const auto divide = divisor(segment);
      combineWindows<Partials<Operation>>(taps, layout_.columnTaps, run, target,
                                          Finish<Operation, std::decay_t<decltype(divide)>>{divide});
    }
  }
  /// Divides by the taps that count of the windows of a segment. Without one there is nothing to divide.
  [[nodiscard]] auto divisor(const WindowSegment& segment) const {
    if constexpr (!Operation::kTraits.countsTaps) {
      return Unchanged();
    } else {
      const std::int64_t taps = countedTaps(problem_.y, row_, problem_.edgeMode, problem_.zeroPadSizeY);
      return Quotient(std::max<std::int64_t>(1, segment.divisor * taps));
    }
  }

  /// Maxima of windows [begin, end), a tile, in result() and indices().
  void choose(std::int64_t begin, std::int64_t end) {
    const WindowAxis& axis = problem_.x;
    const std::int64_t first = std::clamp<std::int64_t>(axis.firstTap(begin), 0, axis.sourceSize - 1);
    const std::int64_t last =
        std::clamp<std::int64_t>(axis.firstTap(end - 1) + axis.dilatedSize() - 1, first, axis.sourceSize - 1);
    if (!readsTapsDirectly_) {
      const std::size_t length = layout_.tileLength;
      const std::size_t used = asSize((last + 1 - first) * channels_);
      const std::size_t behind = std::min(length - used, hn::Lanes(FloatTag()));
      for (std::size_t k = 0; k < rows_; ++k) {
        float* const row = memory_.stage + k * length;
        source_.load(memory_.rows[k].row, first, last + 1 - first, row);
        std::fill_n(row + used, behind, 0.0F);  // whole vectors are read
        memory_.rowPointers[k] = row - first * channels_;
      }
      return chooseFrom<float>(begin, end);
    }
    if (problem_.source.format == ImageFeatureChannelFormat::Float32)
      return chooseFromSource<float>(begin, end);
    chooseFromSource<Float16>(begin, end);
  }

  [[nodiscard]] float* result() const { return memory_.result; }
  [[nodiscard]] const std::int32_t* indices() const { return memory_.indices; }

 private:
  [[nodiscard]] bool clamps() const { return kSelects && problem_.edgeMode == ImageEdgeMode::Clamp; }
  [[nodiscard]] bool hasOutsideZeros() const { return kSelects && problem_.edgeMode == ImageEdgeMode::Zero; }

  [[nodiscard]] WindowRun windowRun(std::int64_t begin, std::int64_t end) const {
    const std::size_t windows = asSize(end - begin);
    const std::size_t length = asSize(channels_);
    if (problem_.x.stride == 1) return {1, windows * length, 0, 0};
    return {windows, length, asSize(problem_.x.stride) * length, length};
  }

  // Combination of rows
  // ---------------------------------------------------------------------------------------------

  /// The columns that windows [begin, end) read, combined over the rows; outside ones hold what their taps
  /// add.
  void fillTile(std::int64_t begin, std::int64_t end) {
    const WindowAxis& axis = problem_.x;
    const std::int64_t first = axis.firstTap(begin);
    const std::int64_t last = axis.firstTap(end - 1) + axis.dilatedSize();
    std::int64_t insideBegin = std::clamp<std::int64_t>(first, 0, axis.sourceSize);
    std::int64_t insideEnd = std::clamp<std::int64_t>(last, 0, axis.sourceSize);
    std::int64_t before = insideBegin - first;
    if (insideBegin >= insideEnd) {
      // All of them lie on one side: they are clamped to the pixel there.
      if (!clamps()) {
        std::fill_n(memory_.tile, (last - first) * channels_, 0.0F);
        return;
      }
      insideBegin = first < 0 ? 0 : axis.sourceSize - 1;
      insideEnd = insideBegin + 1;
      before = 0;
    }
    float* const inside = memory_.tile + before * channels_;
    const std::int64_t insideColumns = insideEnd - insideBegin;
    combineColumns(insideBegin, insideEnd, inside);
    const std::int64_t after = last - first - before - insideColumns;
    const float* const lastColumn = inside + (insideColumns - 1) * channels_;
    fillOutside(inside, memory_.tile, before);
    fillOutside(lastColumn, inside + insideColumns * channels_, after);
  }

  void fillOutside(const float* edge, float* to, std::int64_t columns) const {
    if (!clamps()) std::fill_n(to, columns * channels_, 0.0F);
    for (std::int64_t x = 0; clamps() && x < columns; ++x) std::copy_n(edge, channels_, to + x * channels_);
  }

  void combineColumns(std::int64_t begin, std::int64_t end, float* to) {
    const std::size_t length = asSize((end - begin) * channels_);
    const bool isDirect = readsRowsDirectly_ && length >= hn::Lanes(FloatTag());
    if (rows_ == 0)
      std::fill_n(to, length, 0.0F);
    else if (!isDirect)
      combineStaged(begin, end, to);
    else if (problem_.source.format == ImageFeatureChannelFormat::Float32)
      combineDirect<float>(begin, to, length);
    else
      combineDirect<Float16>(begin, to, length);
    if (hasOutsideZeros() && hasOutsideRow_) admitOutsideZero(to, length);
  }

  template <class T>
  void combineDirect(std::int64_t column, float* to, std::size_t length) {
    const auto** rows = reinterpret_cast<const T**>(memory_.rowPointers);
    for (std::size_t k = 0; k < rows_; ++k) rows[k] = source_.at<T>(memory_.rows[k].row, column);
    combineRows<Operation>(rows, rows_, to, length, Unchanged(), rowsAhead(length, sizeof(T)));
  }

  /// What the next windows read. Rows of one page that are read by turns look like no stream to the processor.
  [[nodiscard]] RowsAhead rowsAhead(std::size_t length, std::size_t elementBytes) const {
    constexpr std::size_t page = 4096;
    const std::size_t stride = asSize(problem_.y.stride);
    const std::size_t next = stride * asSize(problem_.source.rowStride);
    const bool isOnePiece =
        length == asSize(problem_.source.rowStride) && problem_.y.stride <= problem_.y.kernelSize;
    if (isOnePiece && next * elementBytes <= page) return {2 * page / elementBytes, stride};
    return {next, 0};
  }

  /// Other formats, and strided pixels: each row is converted, then added to the others. Works on whole
  /// vectors; what lies behind the run is filled later.
  void combineStaged(std::int64_t begin, std::int64_t end, float* to) {
    const std::size_t length = wholeVectors((end - begin) * channels_);
    const float* partials[2] = {to, memory_.stage};
    for (std::size_t k = 0; k < rows_; ++k) {
      float* const row = k == 0 ? to : memory_.stage;
      source_.load(memory_.rows[k].row, begin, end - begin, row);
      const float* taps = row;
      combineRows<Operation>(&taps, 1, row, length, Unchanged());
      if (k > 0) combineRows<Partials<Operation>>(partials, 2, to, length, Unchanged());
    }
  }

  // Indices of maxima
  // ---------------------------------------------------------------------------------------------

  template <class T>
  void chooseFromSource(std::int64_t begin, std::int64_t end) {
    for (std::size_t k = 0; k < rows_; ++k) memory_.rowPointers[k] = source_.at<T>(memory_.rows[k].row, 0);
    chooseFrom<T>(begin, end);
  }

  /// rowPointers point to column 0.
  template <class T>
  void chooseFrom(std::int64_t begin, std::int64_t end) {
    const std::int64_t interiorBegin = std::clamp(layout_.interiorBegin, begin, end);
    const std::int64_t interiorEnd = std::clamp(layout_.interiorEnd, interiorBegin, end);
    for (std::int64_t i = begin; i < interiorBegin; ++i) chooseRun<T>(i, i + 1, begin, false);
    if (interiorBegin < interiorEnd) chooseRun<T>(interiorBegin, interiorEnd, begin, true);
    for (std::int64_t i = interiorEnd; i < end; ++i) chooseRun<T>(i, i + 1, begin, false);
  }

  template <class T>
  void chooseRun(std::int64_t begin, std::int64_t end, std::int64_t tileBegin, bool isInterior) {
    const auto** taps = reinterpret_cast<const T**>(memory_.tapPointers);
    std::size_t count = 0;
    const WindowAxis& axis = problem_.x;
    const TapsOfMaximum columns(axis, begin, clamps());
    for (std::size_t k = 0; k < rows_; ++k)
      for (std::int64_t p = columns.begin; p < columns.end; ++p) {
        taps[count] = static_cast<const T*>(memory_.rowPointers[k]) + columns.pixel(p) * channels_;
        memory_.codes[count++] =
            static_cast<std::int32_t>(columns.tap(p) + axis.kernelSize * memory_.rows[k].tap);
      }
    float* const values = memory_.result + (begin - tileBegin) * channels_;
    std::int32_t* const indices = memory_.indices + (begin - tileBegin) * channels_;
    const std::size_t elements = asSize((end - begin) * channels_);
    const auto noIndex = static_cast<std::int32_t>(problem_.noIndex());
    if (count == 0) {
      std::fill_n(values, elements, 0.0F);
      std::fill_n(indices, elements, noIndex);
      return;
    }
    chooseMaxima(taps, memory_.codes, count, windowRun(begin, end), values, indices);
    if (hasOutsideZeros() && (hasOutsideRow_ || !isInterior))
      admitOutsideZero(values, indices, noIndex, elements);
    if (problem_.afterReLU) dropCutOff(values, indices, noIndex, elements);
  }

  const PoolingProblem& problem_;
  const WindowRowsLayout& layout_;
  WindowRowsMemory memory_;
  std::int64_t channels_;
  bool readsRowsDirectly_;
  bool readsTapsDirectly_;
  Plane source_;
  std::int64_t row_ = 0;
  std::size_t rows_ = 0;
  bool hasOutsideRow_ = false;
};

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
