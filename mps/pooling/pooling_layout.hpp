#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "mps/pooling/pooling_problem.hpp"

/// What the vector kernels need to know about a problem, worked out once when the plan is made.
///
/// The kernels turn each row into a flat run of (pixel, channel) elements in which the tap p of all windows
/// is one shifted copy of the row, whatever the number of channels. With a stride that takes one run for each
/// phase, the pixels whose distance from tap 0 of window 0 leaves the same remainder modulo the stride:
///
///     distance of tap p of window i = stride * i + dilation * p
///     phase(p) = dilation * p mod stride,   shift(p) = floor(dilation * p / stride)
///     tap p of window i = element i + shift(p) of phase(p)
namespace mps::detail {

/// Where the tap p of window 0 lies.
struct TapPlace {
  std::size_t phase = 0;  ///< position in ColumnPhases::remainders
  std::int64_t shift = 0;
};

struct ColumnPhases {
  std::vector<std::int64_t> remainders;  ///< those that a tap has; ascending
  std::vector<TapPlace> taps;
  std::int64_t largestShift = 0;
};
/// @param others remainders to include though no tap may have them
ColumnPhases columnPhases(const WindowAxis& axis, std::vector<std::int64_t> others = {});

/// Neighbouring windows of a row to which the same rules apply.
struct WindowSegment {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t divisor = 0;     ///< average pooling: taps that count on this axis
  bool hasOutsideZero = false;  ///< max pooling with edge mode Zero
};
/// Taps of a window that count for average pooling, on one axis (spec/02 section 3.3).
std::int64_t countedTaps(const WindowAxis& axis, std::int64_t window, ImageEdgeMode edgeMode,
                         std::int64_t zeroPadSize);
std::vector<WindowSegment> windowSegments(const PoolingProblem& problem);

/// A window and the tap of it that reads a given source coordinate.
struct WindowTap {
  std::int64_t window = 0;
  std::int64_t tap = 0;
};
/// For each source coordinate the windows that read it there, ascending. With `clamp` also those that are
/// clamped to it; of several taps of one window the first can be chosen as a maximum, so the others may be
/// left out.
class WindowsOfPixels {
 public:
  WindowsOfPixels() = default;
  WindowsOfPixels(const WindowAxis& axis, bool clamp);
  [[nodiscard]] bool isRead(std::int64_t coordinate) const { return begin(coordinate) != end(coordinate); }
  [[nodiscard]] const WindowTap* begin(std::int64_t coordinate) const {
    return entries_.data() + first_[at(coordinate)];
  }
  [[nodiscard]] const WindowTap* end(std::int64_t coordinate) const {
    return entries_.data() + first_[at(coordinate) + 1];
  }

 private:
  static std::size_t at(std::int64_t coordinate) { return static_cast<std::size_t>(coordinate); }
  std::vector<WindowTap> entries_;
  std::vector<std::size_t> first_;
};
/// Taps outside the source that are clamped to its first or last pixel, and that can be chosen as a maximum.
std::vector<WindowTap> clampedTaps(const WindowAxis& axis, bool toLast);

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

/// One of several runs in which a maximum is looked for, and the index that each of its elements stands for.
struct Candidate {
  const float* values;
  const std::int32_t* indices;  ///< null: all 0
  std::int32_t addend;          ///< is added to the index
};

/// Windows whose gradient goes to a pixel where the index of their maximum is `code`.
struct Contribution {
  const float* gradient;
  const std::int32_t* indices;
  std::int32_t code;
};

/// Elements of a run in working memory: whole vectors may be read and written at its end.
std::size_t runLength(std::int64_t elements);

/// The pass that computes rows of windows from the source.
struct WindowRowsLayout {
  ColumnPhases columns;
  std::vector<WindowSegment> segments;
  bool indices = false;          ///< also compute the place of the maximum
  std::int64_t channels = 0;     ///< of one pass, at most
  std::int64_t ringRows = 0;     ///< source rows that are kept after the combination of their columns
  std::int64_t mostRows = 0;     ///< source rows of one row of windows
  std::size_t sourceLength = 0;  ///< a source row
  std::size_t phaseLength = 0;   ///< one phase of it
  std::size_t resultLength = 0;  ///< a row of windows
};
WindowRowsLayout windowRowsLayout(const PoolingProblem& problem, bool indices, std::int64_t channels);

struct WindowRowsMemory {
  struct RowTap {
    std::int64_t row;
    std::int64_t tap;
  };
  WindowRowsMemory(const WindowRowsLayout& layout, WorkingMemory& memory);

  float* sourceRow;
  float* phases;
  float* ring;
  float* result;
  std::int32_t* ringIndices;
  std::int32_t* indices;
  std::int64_t* ringRow;  ///< which source row each place of the ring holds
  const float** tapPointers;
  Candidate* tapCandidates;
  RowTap* rows;
  const float** rowPointers;
  const float** segmentPointers;
  Candidate* rowCandidates;
};

/// The pass that gathers rows of the source gradient.
struct GradientRowsLayout {
  ColumnPhases columns;
  std::vector<WindowSegment> segments;
  WindowsOfPixels rows;
  WindowsOfPixels columnWindows;
  bool allColumnsAreRead = false;
  std::vector<WindowTap> clampedLeft;
  std::vector<WindowTap> clampedRight;
  bool indices = false;          ///< the place of the maximum decides
  bool needsWindowRows = false;  ///< norms or places of maxima come from the source
  WindowRowsLayout windowRows;
  std::int64_t channels = 0;     ///< of one pass, at most
  std::int64_t ringRows = 0;     ///< rows of windows that are kept
  std::int64_t columnBegin = 0;  ///< source columns that the destination shows
  std::int64_t columnEnd = 0;
  std::int64_t phaseBegin = 0;  ///< elements [phaseBegin, phaseEnd) of each phase cover these columns
  std::int64_t phaseEnd = 0;
  std::int64_t windowBegin =
      0;  ///< windows [windowBegin, windowEnd) are read; those that do not exist add nothing
  std::int64_t windowEnd = 0;
  std::size_t windowLength = 0;
  std::size_t phaseLength = 0;
  std::size_t destinationLength = 0;
};
GradientRowsLayout gradientRowsLayout(const PoolingProblem& problem, std::int64_t channels);

struct GradientRowsMemory {
  GradientRowsMemory(const GradientRowsLayout& layout, WorkingMemory& memory);

  float* ring;                ///< rows of window gradients
  std::int32_t* ringIndices;  ///< with their maxima
  std::int64_t* ringRow;      ///< which row of windows each place of the ring holds
  float* columnSum;
  float* phases;
  float* destinationRow;
  const float** pointers;
  Contribution* contributions;
};

}  // namespace mps::detail
