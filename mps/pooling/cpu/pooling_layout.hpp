#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "mps/pooling/pooling_problem.hpp"

/// What the vector kernels need to know about a problem, worked out once when the plan is made.
///
/// They work on tiles: neighbouring windows of a row (forward) or neighbouring pixels of a row (gradient)
/// whose inputs, combined over the rows of the window, fit into the first-level cache as float32.
namespace mps::detail {

/// Neighbouring windows of a row that are divided by the same number.
struct WindowSegment {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t divisor = 0;  ///< taps that count on this axis; 0 where the function does not ask
};
std::vector<WindowSegment> windowSegments(const PoolingProblem& problem);

/// A window and the tap of it that reads a given source coordinate.
struct WindowTap {
  std::int64_t window = 0;
  std::int64_t tap = 0;
};
/// For each source coordinate the windows that read it, ascending, by the taps of TapsOfMaximum.
class WindowsOfPixels {
 public:
  WindowsOfPixels() = default;
  WindowsOfPixels(const WindowAxis& axis, bool clamp);
  [[nodiscard]] bool isRead(std::int64_t coordinate) const { return begin(coordinate) != end(coordinate); }
  [[nodiscard]] std::size_t count(std::int64_t coordinate) const {
    return static_cast<std::size_t>(end(coordinate) - begin(coordinate));
  }
  [[nodiscard]] const WindowTap* begin(std::int64_t coordinate) const {
    return entries_.data() + first_[at(coordinate)];
  }
  [[nodiscard]] const WindowTap* end(std::int64_t coordinate) const {
    return entries_.data() + first_[at(coordinate) + 1];
  }
  /// The largest count() of [first, last).
  [[nodiscard]] std::size_t largestCount(std::int64_t first, std::int64_t last) const;

 private:
  static std::size_t at(std::int64_t coordinate) { return static_cast<std::size_t>(coordinate); }
  std::vector<WindowTap> entries_;
  std::vector<std::size_t> first_;
};

/// Hands out parts of a block of working memory, or only measures when there is none.
class WorkingMemory {
 public:
  explicit WorkingMemory(std::byte* memory = nullptr) : memory_(memory) {}

  template <class T>
  T* take(std::size_t count) {
    constexpr std::size_t cacheLine = 64;
    T* const taken = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + bytes_);
    bytes_ += (count * sizeof(T) + cacheLine - 1) / cacheLine * cacheLine;
    return taken;
  }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::byte* memory_;
  std::size_t bytes_ = 0;
};

/// Elements of a run in working memory: whole vectors may be read and written at its end.
std::size_t runLength(std::int64_t elements);

/// A source row that a row of windows reads, as the tap of that number.
struct RowTap {
  std::int64_t row;
  std::int64_t tap;
};

/// The pass that computes rows of windows from the source.
struct WindowRowsLayout {
  std::vector<WindowSegment> segments;
  bool indices = false;          ///< look for the index of the maximum
  std::int64_t tileWindows = 1;  ///< windows of a tile, at most
  std::int64_t interiorBegin =
      0;  ///< windows [interiorBegin, interiorEnd) lie inside the source on this axis
  std::int64_t interiorEnd = 0;
  std::size_t tileLength = 0;    ///< the source columns that a tile reads
  std::size_t stageRows = 1;     ///< rows that are converted before they are combined
  std::size_t resultLength = 0;  ///< the windows of a tile
  std::size_t rowTaps = 1;
  std::size_t columnTaps = 1;
};
WindowRowsLayout windowRowsLayout(const PoolingProblem& problem, bool indices);

struct WindowRowsMemory {
  WindowRowsMemory(const WindowRowsLayout& layout, WorkingMemory& memory);

  float* tile;
  float* stage;
  float* result;
  std::int32_t* indices;
  RowTap* rows;
  const void** rowPointers;
  const void** tapPointers;
  std::int32_t* codes;
};

/// Neighbouring pixels of a source row and the windows that read them.
struct GradientTile {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t windowBegin = 0;
  std::int64_t windowEnd = 0;
};

/// The pass that gathers rows of the source gradient.
struct GradientRowsLayout {
  std::vector<WindowSegment> segments;
  WindowsOfPixels rows;
  WindowsOfPixels columns;
  std::vector<GradientTile> tiles;
  std::int64_t interiorBegin = 0;  ///< pixels [interiorBegin, interiorEnd): a stride further on is a window
  std::int64_t interiorEnd = 0;    ///< further on, with the same taps
  bool allColumnsAreRead = false;
  bool needsWindowRows = false;  ///< results or indices come from the source
  WindowRowsLayout windowRows;
  std::int64_t ringRows = 0;     ///< rows of windows that are kept: shares, or indices of maxima
  std::size_t ringLength = 0;    ///< one of them
  std::int64_t columnBegin = 0;  ///< source columns that the destination shows
  std::int64_t columnEnd = 0;
  std::size_t mostRows = 0;      ///< rows of windows that read a pixel
  std::size_t mostColumns = 0;   ///< windows of a row that read a pixel
  std::size_t windowLength = 0;  ///< the windows of a tile
  std::size_t pixelLength = 0;   ///< the pixels of a tile
  std::size_t stageLength = 0;   ///< the larger of both
  std::size_t stageRows = 1;     ///< rows that are converted before they are used
  std::size_t phases = 1;        ///< kinds of pixels in a row, as to the taps that read them
};
GradientRowsLayout gradientRowsLayout(const PoolingProblem& problem);

/// A row of windows from which pixels gather.
struct GatherRow {
  const void* gradient;
  const void* indices;
  std::int32_t code;  ///< of this row's first tap
};

/// A window that reads a pixel.
struct Contribution {
  const void* gradient;
  const void* indices;  ///< of maxima
  std::int32_t code;    ///< of the tap that reads the pixel
};
struct PixelTaps {
  const Contribution* contributions;
  std::size_t count;
};

struct GradientRowsMemory {
  GradientRowsMemory(const GradientRowsLayout& layout, const PoolingProblem& problem, WorkingMemory& memory);

  std::byte* ring;
  std::int64_t* ringRow;  ///< which row of windows each place of the ring holds
  float* sum;
  float* stage;
  std::int32_t* indexStage;
  float* pixels;
  const void** rowPointers;
  GatherRow* gatherRows;
  Contribution* contributions;
  PixelTaps* pixelTaps;
};

}  // namespace mps::detail
