#include "mps/pooling/cpu/pooling_layout.hpp"

#include <algorithm>

namespace mps::detail {
namespace {

/// Largest vector of any instruction set, in floats.
constexpr std::int64_t kLargestVector = 16;
/// Elements of a tile: half of a small first-level cache.
constexpr std::int64_t kTileElements = 2048;

std::int64_t ceilDivide(std::int64_t a, std::int64_t b) {
  return a / b + (a % b > 0 ? 1 : 0);
}
std::int64_t floorDivide(std::int64_t a, std::int64_t b) {
  return a / b - (a % b < 0 ? 1 : 0);
}

/// Columns of a tile that reads `overlap` more of them than it has positions.
std::int64_t tileColumns(std::int64_t channels, std::int64_t overlap) {
  return std::max(kTileElements / std::max<std::int64_t>(1, channels), 2 * overlap);
}

/// Adds the pixel to the tile: the windows that read it.
void extend(GradientTile& tile, const WindowsOfPixels& columns, std::int64_t x) {
  if (!columns.isRead(x)) return;
  const bool isFirst = tile.windowBegin == tile.windowEnd;
  const std::int64_t first = columns.begin(x)->window;
  const std::int64_t end = (columns.end(x) - 1)->window + 1;
  tile.windowBegin = isFirst ? first : std::min(tile.windowBegin, first);
  tile.windowEnd = isFirst ? end : std::max(tile.windowEnd, end);
}

/// Most windows between the first and the last that read a pixel.
std::int64_t largestSpan(const WindowsOfPixels& rows, std::int64_t size) {
  std::int64_t span = 1;
  for (std::int64_t y = 0; y < size; ++y)
    if (rows.isRead(y)) span = std::max(span, (rows.end(y) - 1)->window - rows.begin(y)->window + 1);
  return span;
}

}  // namespace

std::vector<WindowSegment> windowSegments(const PoolingProblem& problem) {
  const WindowAxis& axis = problem.x;
  const bool countsTaps = problem.traits().countsTaps;
  std::vector<WindowSegment> segments;
  for (std::int64_t i = 0; i < axis.destinationSize; ++i) {
    const std::int64_t divisor =
        countsTaps ? countedTaps(axis, i, problem.edgeMode, problem.zeroPadSizeX) : 0;
    if (!segments.empty() && segments.back().divisor == divisor)
      segments.back().end = i + 1;
    else
      segments.push_back({i, i + 1, divisor});
  }
  return segments;
}

WindowsOfPixels::WindowsOfPixels(const WindowAxis& axis, bool clamp) {
  std::vector<std::vector<WindowTap>> windows(static_cast<std::size_t>(axis.sourceSize));
  for (std::int64_t i = 0; i < axis.destinationSize; ++i) {
    const TapsOfMaximum taps(axis, i, clamp);
    for (std::int64_t p = taps.begin; p < taps.end; ++p)
      windows[static_cast<std::size_t>(taps.pixel(p))].push_back({i, taps.tap(p)});
  }
  first_.push_back(0);
  for (const auto& taps : windows) {
    entries_.insert(entries_.end(), taps.begin(), taps.end());
    first_.push_back(entries_.size());
  }
}

std::size_t WindowsOfPixels::largestCount(std::int64_t first, std::int64_t last) const {
  std::size_t largest = 0;
  for (std::int64_t x = first; x < last; ++x) largest = std::max(largest, count(x));
  return largest;
}

std::size_t runLength(std::int64_t elements) {
  return static_cast<std::size_t>(ceilDivide(elements, kLargestVector) * kLargestVector + kLargestVector);
}

WindowRowsLayout windowRowsLayout(const PoolingProblem& problem, bool indices) {
  const WindowAxis& x = problem.x;
  const std::int64_t channels = problem.source.channels;
  WindowRowsLayout layout;
  layout.segments = windowSegments(problem);
  layout.indices = indices;
  const std::int64_t columns = tileColumns(channels, x.dilatedSize());
  layout.tileWindows = std::clamp<std::int64_t>((columns - x.dilatedSize()) / x.stride + 1, 1,
                                                std::max<std::int64_t>(1, x.destinationSize));
  layout.tileLength = runLength(((layout.tileWindows - 1) * x.stride + x.dilatedSize()) * channels);
  layout.resultLength = runLength(layout.tileWindows * channels);
  layout.rowTaps = static_cast<std::size_t>(problem.y.kernelSize);
  layout.columnTaps = static_cast<std::size_t>(x.kernelSize);
  layout.stageRows = indices ? layout.rowTaps : 1;
  const std::int64_t room = x.sourceSize - x.dilatedSize() - x.firstTap(0);
  layout.interiorBegin = std::clamp<std::int64_t>(ceilDivide(-x.firstTap(0), x.stride), 0, x.destinationSize);
  layout.interiorEnd = std::clamp(floorDivide(room, x.stride) + 1, layout.interiorBegin, x.destinationSize);
  return layout;
}

WindowRowsMemory::WindowRowsMemory(const WindowRowsLayout& layout, WorkingMemory& memory) {
  const std::size_t taps = layout.indices ? layout.rowTaps * layout.columnTaps : layout.columnTaps;
  tile = memory.take<float>(layout.indices ? 0 : layout.tileLength);
  stage = memory.take<float>(layout.tileLength * layout.stageRows);
  result = memory.take<float>(layout.resultLength);
  indices = memory.take<std::int32_t>(layout.indices ? layout.resultLength : 0);
  rows = memory.take<RowTap>(layout.rowTaps);
  rowPointers = memory.take<const void*>(layout.rowTaps + 1);
  tapPointers = memory.take<const void*>(taps);
  codes = memory.take<std::int32_t>(layout.indices ? taps : 0);
}

GradientRowsLayout gradientRowsLayout(const PoolingProblem& problem) {
  const WindowAxis& x = problem.x;
  const std::int64_t channels = problem.source.channels;
  const bool selects = problem.traits().selects;
  const bool clamped = problem.clampsTaps();
  GradientRowsLayout layout;
  layout.segments = windowSegments(problem);
  layout.rows = WindowsOfPixels(problem.y, clamped);
  layout.columns = WindowsOfPixels(x, clamped);
  layout.columnBegin = std::clamp<std::int64_t>(problem.destinationOriginX, 0, x.sourceSize);
  layout.columnEnd = std::clamp<std::int64_t>(problem.destinationOriginX + problem.destination.width,
                                              layout.columnBegin, x.sourceSize);
  layout.allColumnsAreRead = true;
  for (std::int64_t column = layout.columnBegin; column < layout.columnEnd; ++column)
    layout.allColumnsAreRead = layout.allColumnsAreRead && layout.columns.isRead(column);
  // All windows of these pixels exist, and no tap is clamped to them.
  layout.interiorBegin = std::max<std::int64_t>(x.firstTap(0) + x.dilatedSize() - 1, clamped ? 1 : 0);
  layout.interiorEnd =
      std::min(x.firstTap(0) + x.stride * (x.destinationSize - 1) + 1, x.sourceSize - (clamped ? 1 : 0));

  const std::int64_t columns = tileColumns(channels, x.dilatedSize());
  std::int64_t widest = 0;
  for (std::int64_t begin = layout.columnBegin; begin < layout.columnEnd; begin += columns) {
    GradientTile tile{begin, std::min(begin + columns, layout.columnEnd)};
    for (std::int64_t column = tile.begin; column < tile.end; ++column) extend(tile, layout.columns, column);
    widest = std::max(widest, tile.windowEnd - tile.windowBegin);
    layout.tiles.push_back(tile);
  }
  layout.windowLength = runLength(widest * channels);
  layout.pixelLength = runLength(std::min(columns, layout.columnEnd - layout.columnBegin) * channels);
  layout.mostRows = layout.rows.largestCount(0, problem.y.sourceSize);
  layout.mostColumns = layout.columns.largestCount(layout.columnBegin, layout.columnEnd);
  layout.needsWindowRows = problem.readsSource();
  if (layout.needsWindowRows) {
    layout.windowRows = windowRowsLayout(problem, selects);
    layout.ringRows = largestSpan(layout.rows, problem.y.sourceSize);
    layout.ringLength = runLength(x.destinationSize * channels);
  }
  layout.stageRows = selects ? std::max<std::size_t>(1, layout.mostRows) : 1;
  layout.stageLength = std::max(layout.windowLength, layout.pixelLength);
  layout.phases = static_cast<std::size_t>(std::min(x.stride, columns));
  return layout;
}

GradientRowsMemory::GradientRowsMemory(const GradientRowsLayout& layout, const PoolingProblem& problem,
                                       WorkingMemory& memory) {
  const bool selects = problem.traits().selects;
  const auto places = static_cast<std::size_t>(layout.ringRows);
  ring =
      memory.take<std::byte>(layout.ringLength * places * (selects ? problem.indexBytes() : sizeof(float)));
  ringRow = memory.take<std::int64_t>(places);
  sum = memory.take<float>(selects ? 0 : layout.windowLength);
  stage = memory.take<float>(layout.stageLength * layout.stageRows);
  indexStage = memory.take<std::int32_t>(selects ? layout.stageLength * layout.stageRows : 0);
  pixels = memory.take<float>(layout.pixelLength);
  rowPointers = memory.take<const void*>(layout.mostRows + 1);
  gatherRows = memory.take<GatherRow>(selects ? layout.mostRows : 1);
  contributions =
      memory.take<Contribution>((selects ? layout.mostRows : 1) * layout.mostColumns * layout.phases);
  pixelTaps = memory.take<PixelTaps>(layout.phases);
}

}  // namespace mps::detail
