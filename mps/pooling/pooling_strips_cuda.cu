#include <algorithm>

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

StripArguments::ClampedWindows::ClampedWindows(const WindowAxis& axis) {
  for (std::int64_t window = 0; window < axis.destinationSize; ++window) {
    const std::int64_t first = axis.firstTap(window);
    before += first < 0 ? 1 : 0;
    behind += first + axis.dilatedSize() > axis.sourceSize ? 1 : 0;
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
  return takes(problem) && problem.x.stride < problem.x.kernelSize && problem.kind != PoolingKind::L2Norm;
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
    const auto start = [&](auto kernel) {
      mtl::cuda::launch(stream, kernel, dim3(windows_.blocks(kStripThreads)), dim3(kStripThreads), 0,
                        windows_, at.source, at.destination, at.saved);
    };
    switch (kind_) {
      case PoolingKind::Max:
        return at.saved != nullptr ? start(poolStrips<T, PoolingKind::Max, size, stride, true>)
                                   : start(poolStrips<T, PoolingKind::Max, size, stride>);
      case PoolingKind::Average:
        return start(poolStrips<T, PoolingKind::Average, size, stride>);
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
    if constexpr (stride < size) {
      if (kind_ == PoolingKind::Max)
        start(gatherStrips<T, PoolingKind::Max, size, stride>);
      else
        start(gatherStrips<T, PoolingKind::Average, size, stride>);
    }
  });
}

template void PoolingStrips::pool(mtl::Stream&, const PoolingAddresses<float>&) const;
template void PoolingStrips::pool(mtl::Stream&, const PoolingAddresses<Float16>&) const;
template void PoolingStrips::gather(mtl::Stream&, const PoolingAddresses<float>&, bool) const;
template void PoolingStrips::gather(mtl::Stream&, const PoolingAddresses<Float16>&, bool) const;

}  // namespace mps::detail::cuda
