#include <algorithm>

#include "mps/pooling/pooling_average_strips_cuda.cuh"
#include "mps/pooling/pooling_gradient_strips_cuda.cuh"
#include "mps/pooling/pooling_strip_arguments_cuda.cuh"
#include "mps/pooling/pooling_strips_cuda.cuh"

namespace mps::detail::cuda {
namespace {

constexpr std::int64_t divideUp(std::int64_t number, std::int64_t divisor) {
  return (number + divisor - 1) / divisor;
}
constexpr std::int64_t divideDown(std::int64_t number, std::int64_t divisor) {
  return number >= 0 ? number / divisor : -divideUp(-number, divisor);
}

/// Whether offsets inside an image leave no 31 bits.
bool imageFits(const TensorShape& shape) {
  return shape.rowStride >= 0 && shape.pixelStride >= 0 &&
         shape.height * shape.rowStride + shape.width * shape.pixelStride + shape.channels < 0x7FFFFFFF;
}

/// Cells that have a pixel of the destination.
struct CellSpan {
  std::int64_t first;
  std::int64_t count;

  CellSpan(const WindowAxis& axis, std::int64_t origin, std::int64_t size)
      : first(divideDown(origin - axis.firstTap(0), axis.stride)),
        count(divideDown(origin + size - 1 - axis.firstTap(0), axis.stride) - first + 1) {}
};

/// Lines of a strip at most: few enough that all multiprocessors work to the end, but the more the more rows two
/// strips share, which both compute. @param shared rows
constexpr std::int64_t longestStrip(std::int64_t shared) {
  return shared < 2 ? 8 : 32;
}

/// Calls with(kernel size, stride) as constants.
template <class With>
void withWindow(const StripArguments& a, With with) {
  using One = std::integral_constant<int, 1>;
  using Two = std::integral_constant<int, 2>;
  using Three = std::integral_constant<int, 3>;
  if (a.x.kernelSize == 3)
    a.x.stride == 1 ? with(Three(), One()) : with(Three(), Two());
  else
    a.x.stride == 1 ? with(Two(), One()) : with(Two(), Two());
}

}  // namespace

ClampedTaps::ClampedTaps(const WindowAxis& axis, bool clamps) {
  if (clamps) {
    add(axis, 0);
    if (axis.sourceSize > 1) add(axis, axis.sourceSize - 1);
  }
  std::int64_t first = 0;
  std::int64_t last = axis.destinationSize - 1;
  for (const ClampedTap& clamped : taps) {
    if (clamped.cell == ClampedTap::kNone) continue;
    const bool isOfFirstPixel = axis.firstTap(clamped.cell) <= 0;
    if (isOfFirstPixel)
      first = std::max<std::int64_t>(first, clamped.reader + 1);
    else
      last = std::min<std::int64_t>(last, clamped.reader - 1);
  }
  firstOrdinary = static_cast<std::int32_t>(first);
  ordinaries = static_cast<std::uint32_t>(std::max<std::int64_t>(last - first + 1, 0));
}

void ClampedTaps::add(const WindowAxis& axis, std::int64_t pixel) {
  const std::int64_t cell = divideDown(pixel - axis.firstTap(0), axis.stride);
  const std::int64_t inCell = pixel - axis.firstTap(cell);
  const std::int64_t reach = divideUp(axis.kernelSize, axis.stride);
  const auto exists = [&](std::int64_t window) { return window >= 0 && window < axis.destinationSize; };
  /// Whether no other pixel of the cell would read by the window `back`.
  const auto isOnlyReader = [&](std::int64_t back) {
    for (std::int64_t other = 0; other < axis.stride; ++other) {
      const std::int64_t place = axis.firstTap(cell) + other;
      if (other != inCell && place >= 0 && place < axis.sourceSize &&
          other + axis.stride * back < axis.kernelSize)
        return false;
    }
    return inCell + axis.stride * back < axis.kernelSize;
  };
  for (std::int64_t window = 0; window < axis.destinationSize; ++window) {
    std::int64_t tap = 0;
    const auto place = [&] {
      return std::clamp<std::int64_t>(axis.firstTap(window) + axis.dilation * tap, 0, axis.sourceSize - 1);
    };
    while (tap < axis.kernelSize && place() != pixel) ++tap;
    if (tap == axis.kernelSize || axis.firstTap(window) + axis.dilation * tap == pixel) continue;
    // In its own place among those that the cell reads, or where there is no window.
    std::int64_t back = 0;
    while (back < reach && cell - axis.dilation * back != window) ++back;
    const bool isAlone = back == reach;
    if (isAlone) {
      const auto isTaken = [&](std::int64_t candidate) {
        return exists(cell - axis.dilation * candidate) ||
               std::ranges::any_of(taps, [&](const ClampedTap& known) {
                 return known.reader == cell - axis.dilation * candidate;
               });
      };
      back = 0;
      while (back < reach && (isTaken(back) || !isOnlyReader(back))) ++back;
    }
    auto* const unused = std::ranges::find(taps, ClampedTap::kNone, &ClampedTap::cell);
    const std::int64_t reader = cell - axis.dilation * back;
    areKnown = areKnown && back < reach && isOnlyReader(back) && unused != std::end(taps) &&
               std::ranges::find(taps, reader, &ClampedTap::reader) == std::end(taps);
    if (!areKnown) return;
    *unused = {.cell = static_cast<std::int32_t>(cell),
               .back = static_cast<std::int32_t>(back),
               .reader = static_cast<std::int32_t>(reader),
               .window = static_cast<std::int32_t>(window),
               .tap = static_cast<std::int32_t>(tap),
               .asTap = static_cast<std::int32_t>(inCell + axis.stride * back),
               .isAlone = isAlone};
  }
}

void StripArguments::cover(std::int64_t images, std::int64_t lineCount, std::int64_t columnCount,
                           std::int64_t packCount, std::int64_t longest) {
  constexpr std::int64_t kEnoughThreads = std::int64_t{1} << 18U;
  const std::int64_t dilation = y.dilation;
  const std::int64_t ofPhase = divideUp(lineCount, dilation);
  const std::int64_t across = images * columnCount * packCount * dilation;
  const std::int64_t wanted = std::max(divideUp(ofPhase, longest), divideUp(kEnoughThreads, across));
  length = static_cast<std::uint32_t>(divideUp(ofPhase, std::min(wanted, divideUp(ofPhase, 2))));
  const std::int64_t parts = divideUp(ofPhase, length);
  lines = static_cast<std::uint32_t>(lineCount);
  packs = Divider(packCount);
  columns = Divider(columnCount);
  strips = Divider(parts * dilation);
  threads = static_cast<std::uint32_t>(across * parts);
}

bool PoolingStrips::takes(const PoolingProblem& problem) {
  const WindowAxis& x = problem.x;
  const WindowAxis& y = problem.y;
  const bool isKnown = (x.kernelSize == 2 || x.kernelSize == 3) &&
                       (x.stride == 1 || (x.stride == 2 && x.dilation == 1 && y.dilation == 1));
  const bool isGradient = problem.direction == PoolingDirection::Gradient;
  const std::int64_t images = problem.source.images;
  // Lines are rounded up to the dilation.
  const std::int64_t windows = images * (y.destinationSize + y.dilation) * (x.destinationSize + 1);
  const std::int64_t pixels =
      images * (problem.destination.height + y.dilation + 2) * (problem.destination.width + 2);
  return isKnown && x.kernelSize == y.kernelSize && x.stride == y.stride && y.destinationSize > 0 &&
         x.destinationSize > 0 && images > 0 && problem.destination.elements() > 0 &&
         std::max(windows, pixels) * problem.source.channels < 0x7FFFFFFF && imageFits(problem.source) &&
         imageFits(problem.destination) && (!isGradient || imageFits(problem.gradient));
}

bool PoolingStrips::takesGradient(const PoolingProblem& problem) {
  if (!takes(problem) || problem.kind == PoolingKind::L2Norm) return false;
  if (problem.kind == PoolingKind::Average) return problem.x.stride < problem.x.kernelSize;
  const bool clamps = problem.edgeMode == ImageEdgeMode::Clamp;
  return ClampedTaps(problem.y, clamps).areKnown && ClampedTaps(problem.x, clamps).areKnown;
}

PoolingStrips::PoolingStrips(const PoolingProblem& problem)
    : kind_(problem.kind), windows_(problem), cells_(problem) {
  const std::int64_t images = problem.source.images;
  const std::int64_t packs = divideUp(problem.source.channels,
                                      16 / static_cast<std::int64_t>(bytesPerChannel(problem.source.format)));
  windows_.cover(images, problem.y.destinationSize, problem.x.destinationSize, packs,
                 longestStrip(problem.y.kernelSize - problem.y.stride));
  const CellSpan rows(problem.y, problem.destinationOriginY, problem.destination.height);
  const CellSpan columns(problem.x, problem.destinationOriginX, problem.destination.width);
  cells_.cover(images, rows.count, columns.count, packs,
               longestStrip(divideUp(problem.y.kernelSize, problem.y.stride) - 1));
  cells_.firstLine = static_cast<std::int32_t>(rows.first);
  cells_.firstColumn = static_cast<std::int32_t>(columns.first);
}

template <class T>
void PoolingStrips::pool(mtl::Stream& stream, const PoolingAddresses<T>& at) const {
  withWindow(windows_, [&](auto size, auto stride) {
    if constexpr (stride == 1)
      if (kind_ == PoolingKind::Average)
        return mtl::cuda::launch(stream, averageStrips<T, PoolingDirection::Forward, size>,
                                 dim3(windows_.blocks(kAverageThreads)), dim3(kAverageThreads), 0, windows_,
                                 at.source, at.destination);
    const auto start = [&](auto kernel) {
      mtl::cuda::launch(stream, kernel, dim3(windows_.blocks(kStripThreads)), dim3(kStripThreads), 0,
                        windows_, at.source, at.destination, at.saved);
    };
    switch (kind_) {
      case PoolingKind::Max:
        return at.saved != nullptr ? start(poolStrips<T, PoolingKind::Max, size, stride, true>)
                                   : start(poolStrips<T, PoolingKind::Max, size, stride>);
      case PoolingKind::Average:
        if constexpr (stride > 1) start(poolStrips<T, PoolingKind::Average, size, stride>);
        return;
      case PoolingKind::L2Norm:
        return start(poolStrips<T, PoolingKind::L2Norm, size, stride>);
    }
  });
}

template <class T>
void PoolingStrips::gather(mtl::Stream& stream, const PoolingAddresses<T>& at, bool accumulate) const {
  StripArguments cells = cells_;
  cells.accumulate = accumulate;
  withWindow(cells, [&](auto size, auto stride) {
    const auto start = [&](auto kernel) {
      mtl::cuda::launch(stream, kernel, dim3(cells.blocks(kCellThreads)), dim3(kCellThreads), 0, cells,
                        at.gradient, at.saved, at.destination);
    };
    if (kind_ == PoolingKind::Max) {
      start(gatherStrips<T, PoolingKind::Max, size, stride>);
    } else if constexpr (stride < size) {
      if constexpr (stride > 1)
        start(gatherStrips<T, PoolingKind::Average, size, stride>);
      else
        mtl::cuda::launch(stream, averageStrips<T, PoolingDirection::Gradient, size>,
                          dim3(cells.blocks(kAverageThreads)), dim3(kAverageThreads), 0, cells, at.gradient,
                          at.destination);
    }
  });
}

template void PoolingStrips::pool(mtl::Stream&, const PoolingAddresses<float>&) const;
template void PoolingStrips::pool(mtl::Stream&, const PoolingAddresses<Float16>&) const;
template void PoolingStrips::gather(mtl::Stream&, const PoolingAddresses<float>&, bool) const;
template void PoolingStrips::gather(mtl::Stream&, const PoolingAddresses<Float16>&, bool) const;

}  // namespace mps::detail::cuda
