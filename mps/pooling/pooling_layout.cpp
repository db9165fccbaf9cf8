#include "mps/pooling/pooling_layout.hpp"

#include <algorithm>
#include <utility>

namespace mps::detail {
namespace {

/// Largest vector of any instruction set, in floats.
constexpr std::size_t kLargestVector = 16;

std::int64_t floorDivide(std::int64_t a, std::int64_t b) {
  return a / b - (a % b < 0 ? 1 : 0);
}

std::int64_t lastTap(const WindowAxis& axis, std::int64_t window) {
  return axis.firstTap(window) + axis.dilatedSize() - 1;
}

/// Adds the windows whose tap falls on a coordinate by itself.
void addExactTaps(const WindowAxis& axis, std::vector<std::vector<WindowTap>>& windows) {
  for (std::int64_t i = 0; i < axis.destinationSize; ++i)
    for (std::int64_t p = axis.firstInside(i); p < axis.endInside(i); ++p)
      windows[static_cast<std::size_t>(axis.firstTap(i) + axis.dilation * p)].push_back({i, p});
}

void sortByWindow(std::vector<WindowTap>& taps) {
  std::stable_sort(taps.begin(), taps.end(),
                   [](const WindowTap& a, const WindowTap& b) { return a.window < b.window; });
}

}  // namespace

ColumnPhases columnPhases(const WindowAxis& axis, std::vector<std::int64_t> others) {
  ColumnPhases columns;
  columns.remainders = std::move(others);
  for (std::int64_t p = 0; p < axis.kernelSize; ++p)
    columns.remainders.push_back(axis.dilation * p % axis.stride);
  std::sort(columns.remainders.begin(), columns.remainders.end());
  columns.remainders.erase(std::unique(columns.remainders.begin(), columns.remainders.end()),
                           columns.remainders.end());
  for (std::int64_t p = 0; p < axis.kernelSize; ++p) {
    const std::int64_t distance = axis.dilation * p;
    const auto phase =
        std::lower_bound(columns.remainders.begin(), columns.remainders.end(), distance % axis.stride);
    columns.taps.push_back(
        {static_cast<std::size_t>(phase - columns.remainders.begin()), distance / axis.stride});
  }
  columns.largestShift = columns.taps.back().shift;
  return columns;
}

std::int64_t countedTaps(const WindowAxis& axis, std::int64_t window, ImageEdgeMode edgeMode,
                         std::int64_t zeroPadSize) {
  if (edgeMode == ImageEdgeMode::Zero) return axis.kernelSize;
  // The zero band makes a larger image.
  WindowAxis padded = axis;
  padded.sourceSize += 2 * zeroPadSize;
  padded.offset += zeroPadSize;
  return std::max<std::int64_t>(0, padded.endInside(window) - padded.firstInside(window));
}

std::vector<WindowSegment> windowSegments(const PoolingProblem& problem) {
  const WindowAxis& axis = problem.x;
  const bool outsideZeros = problem.kind == PoolingKind::Max && problem.edgeMode == ImageEdgeMode::Zero;
  std::vector<WindowSegment> segments;
  for (std::int64_t i = 0; i < axis.destinationSize; ++i) {
    WindowSegment segment{i, i + 1, 0, false};
    if (problem.kind == PoolingKind::Average)
      segment.divisor = countedTaps(axis, i, problem.edgeMode, problem.zeroPadSizeX);
    segment.hasOutsideZero = outsideZeros && (axis.firstTap(i) < 0 || lastTap(axis, i) >= axis.sourceSize);
    if (!segments.empty() && segments.back().divisor == segment.divisor &&
        segments.back().hasOutsideZero == segment.hasOutsideZero)
      segments.back().end = segment.end;
    else
      segments.push_back(segment);
  }
  return segments;
}

std::vector<WindowTap> clampedTaps(const WindowAxis& axis, bool toLast) {
  std::vector<WindowTap> taps;
  for (std::int64_t i = 0; i < axis.destinationSize; ++i) {
    const std::int64_t first = axis.firstTap(i);
    if (!toLast && first < 0) taps.push_back({i, 0});
    if (toLast && axis.endInside(i) < axis.kernelSize) taps.push_back({i, axis.endInside(i)});
  }
  return taps;
}

WindowsOfPixels::WindowsOfPixels(const WindowAxis& axis, bool clamp) {
  std::vector<std::vector<WindowTap>> windows(static_cast<std::size_t>(axis.sourceSize));
  addExactTaps(axis, windows);
  if (clamp) {
    for (const bool toLast : {false, true}) {
      auto& border = toLast ? windows.back() : windows.front();
      for (const WindowTap& tap : clampedTaps(axis, toLast)) border.push_back(tap);
      sortByWindow(border);
    }
  }
  first_.push_back(0);
  for (const auto& taps : windows) {
    entries_.insert(entries_.end(), taps.begin(), taps.end());
    first_.push_back(entries_.size());
  }
}

std::size_t runLength(std::int64_t elements) {
  return (static_cast<std::size_t>(elements) + kLargestVector - 1) / kLargestVector * kLargestVector +
         kLargestVector;
}

WindowRowsLayout windowRowsLayout(const PoolingProblem& problem, bool indices, std::int64_t channels) {
  WindowRowsLayout layout;
  layout.columns = columnPhases(problem.x);
  layout.segments = windowSegments(problem);
  layout.indices = indices;
  layout.channels = channels;
  layout.ringRows = problem.y.dilatedSize();
  layout.mostRows = problem.y.kernelSize + 2;  // with Clamp the first and the last row of the source
  layout.sourceLength = runLength(problem.x.sourceSize * channels);
  layout.phaseLength = runLength((problem.x.destinationSize + layout.columns.largestShift) * channels);
  layout.resultLength = runLength(problem.x.destinationSize * channels);
  return layout;
}

WindowRowsMemory::WindowRowsMemory(const WindowRowsLayout& layout, WorkingMemory& memory) {
  const std::size_t phaseCount = layout.columns.remainders.size();
  const std::size_t taps = layout.columns.taps.size();
  const auto places = static_cast<std::size_t>(layout.ringRows);
  const auto rowCount = static_cast<std::size_t>(layout.mostRows);
  sourceRow = memory.take<float>(layout.sourceLength);
  phases = memory.take<float>(layout.phaseLength * phaseCount);
  ring = memory.take<float>(layout.resultLength * places);
  result = memory.take<float>(layout.resultLength);
  ringIndices = memory.take<std::int32_t>(layout.indices ? layout.resultLength * places : 0);
  indices = memory.take<std::int32_t>(layout.indices ? layout.resultLength : 0);
  ringRow = memory.take<std::int64_t>(places);
  tapPointers = memory.take<const float*>(taps);
  tapCandidates = memory.take<Candidate>(taps);
  rows = memory.take<RowTap>(rowCount);
  rowPointers = memory.take<const float*>(rowCount);
  segmentPointers = memory.take<const float*>(rowCount);
  rowCandidates = memory.take<Candidate>(rowCount);
}

GradientRowsLayout gradientRowsLayout(const PoolingProblem& problem, std::int64_t channels) {
  const WindowAxis& x = problem.x;
  const bool clamped = problem.kind == PoolingKind::Max && problem.edgeMode == ImageEdgeMode::Clamp;
  GradientRowsLayout layout;
  layout.segments = windowSegments(problem);
  layout.rows = WindowsOfPixels(problem.y, clamped);
  layout.columnWindows = WindowsOfPixels(x, clamped);
  layout.allColumnsAreRead = true;
  for (std::int64_t column = 0; column < x.sourceSize; ++column)
    layout.allColumnsAreRead = layout.allColumnsAreRead && layout.columnWindows.isRead(column);
  const auto remainder = [&](std::int64_t column) {
    const std::int64_t distance = column - x.firstTap(0);
    return distance - floorDivide(distance, x.stride) * x.stride;
  };
  layout.columns = clamped ? columnPhases(x, {remainder(0), remainder(x.sourceSize - 1)}) : columnPhases(x);
  if (clamped) {
    layout.clampedLeft = clampedTaps(x, false);
    layout.clampedRight = clampedTaps(x, true);
  }
  layout.indices = problem.kind == PoolingKind::Max;
  layout.needsWindowRows =
      problem.kind == PoolingKind::L2Norm || (problem.kind == PoolingKind::Max && !problem.useIndices);
  if (layout.needsWindowRows)
    layout.windowRows = windowRowsLayout(problem, problem.kind == PoolingKind::Max, channels);
  layout.channels = channels;
  layout.ringRows = (problem.y.dilatedSize() - 1) / problem.y.stride + 1;
  layout.columnBegin = std::clamp<std::int64_t>(problem.destinationOriginX, 0, x.sourceSize);
  layout.columnEnd = std::clamp<std::int64_t>(problem.destinationOriginX + problem.destination.width,
                                              layout.columnBegin, x.sourceSize);
  layout.phaseBegin = floorDivide(layout.columnBegin - x.firstTap(0), x.stride);
  layout.phaseEnd = layout.columnEnd == layout.columnBegin
                        ? layout.phaseBegin
                        : floorDivide(layout.columnEnd - 1 - x.firstTap(0), x.stride) + 1;
  layout.windowBegin = layout.phaseBegin - layout.columns.largestShift;
  layout.windowEnd = layout.phaseEnd;
  if (clamped) {
    layout.windowBegin = std::min<std::int64_t>(layout.windowBegin, 0);
    layout.windowEnd = std::max(layout.windowEnd, x.destinationSize);
  }
  layout.windowLength = runLength((layout.windowEnd - layout.windowBegin) * channels);
  layout.phaseLength = runLength((layout.phaseEnd - layout.phaseBegin) * channels);
  layout.destinationLength = runLength((layout.columnEnd - layout.columnBegin) * channels);
  return layout;
}

GradientRowsMemory::GradientRowsMemory(const GradientRowsLayout& layout, WorkingMemory& memory) {
  const auto places = static_cast<std::size_t>(layout.ringRows);
  const std::size_t taps = layout.columns.taps.size();
  ring = memory.take<float>(layout.windowLength * places);
  ringIndices = memory.take<std::int32_t>(layout.indices ? layout.windowLength * places : 0);
  ringRow = memory.take<std::int64_t>(places);
  columnSum = memory.take<float>(layout.windowLength);
  phases = memory.take<float>(layout.phaseLength * layout.columns.remainders.size());
  destinationRow = memory.take<float>(layout.destinationLength);
  pointers = memory.take<const float*>(std::max(places, taps));
  contributions = memory.take<Contribution>(layout.indices ? places * taps : 0);
}

}  // namespace mps::detail
