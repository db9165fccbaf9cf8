#include <algorithm>
#include <string>

#include "mps/pooling/cuda/pooling_sliding_cuda.cuh"

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

/// Lines of a part at most: few, so that all multiprocessors work to the end, but more where neighbouring parts share
/// rows, which both compute. @param shared rows
constexpr std::int64_t longestPart(std::int64_t shared) {
  return shared < 2 ? 8 : 32;
}

/// Calls with(kernel size, stride) as constants.
template <class With>
void withWindow(const SlidingArguments& a, With with) {
  using One = std::integral_constant<int, 1>;
  using Two = std::integral_constant<int, 2>;
  using Three = std::integral_constant<int, 3>;
  if (a.x.kernelSize == 3)
    a.x.stride == 1 ? with(Three(), One()) : with(Three(), Two());
  else
    a.x.stride == 1 ? with(Two(), One()) : with(Two(), Two());
}

}  // namespace

void SlidingArguments::cover(std::int64_t images, std::int64_t lineCount, std::int64_t columnCount,
                             std::int64_t vectorCount, std::int64_t longest) {
  constexpr std::int64_t kEnoughThreads = std::int64_t{1} << 18U;
  const std::int64_t across = images * columnCount * vectorCount;
  const std::int64_t wanted = std::max(divideUp(lineCount, longest), divideUp(kEnoughThreads, across));
  length = static_cast<std::uint32_t>(divideUp(lineCount, std::min(wanted, divideUp(lineCount, 2))));
  const std::int64_t partCount = divideUp(lineCount, length);
  lines = static_cast<std::uint32_t>(lineCount);
  vectors = Divider(vectorCount);
  columns = Divider(columnCount);
  parts = Divider(partCount);
  threads = static_cast<std::uint32_t>(across * partCount);
}

std::string SlidingWindows::objectionTo(const PoolingProblem& problem) {
  const WindowAxis& x = problem.x;
  const WindowAxis& y = problem.y;
  const bool isKnown = (x.kernelSize == 2 || x.kernelSize == 3) && (x.stride == 1 || x.stride == 2) &&
                       x.dilation == 1 && y.dilation == 1;
  if (!isKnown || x.kernelSize != y.kernelSize || x.stride != y.stride)
    return "windows are not 2x2 or 3x3 at stride 1 or 2";
  const bool isGradient = problem.direction == PoolingDirection::Gradient;
  if (isGradient && !problem.traits().selects && !problem.traits().isLinear)
    return "it has no gradient that reads the source";
  const std::int64_t images = problem.source.images;
  if (problem.windows() == 0 || problem.destination.elements() == 0) return "there are no pixels";
  const auto isBesideSource = [](const WindowAxis& axis) {
    return axis.firstTap(0) + axis.kernelSize <= 0 ||
           axis.firstTap(axis.destinationSize - 1) >= axis.sourceSize;
  };
  if (problem.edgeMode == ImageEdgeMode::Clamp && (isBesideSource(x) || isBesideSource(y)))
    return "a window lies beside the source";
  const std::int64_t windows = images * (y.destinationSize + 1) * (x.destinationSize + 1);
  const std::int64_t pixels = images * (problem.destination.height + 3) * (problem.destination.width + 2);
  if (std::max(windows, pixels) * problem.source.channels >= 0x7FFFFFFF || !imageFits(problem.source) ||
      !imageFits(problem.destination) || (isGradient && !imageFits(problem.gradient)))
    return "sizes leave 31 bits";
  return "";
}

SlidingWindows::SlidingWindows(const PoolingProblem& problem)
    : kind_(problem.kind), windows_(problem), cells_(problem) {
  const std::int64_t images = problem.source.images;
  const std::int64_t vectors = divideUp(
      problem.source.channels, 16 / static_cast<std::int64_t>(bytesPerChannel(problem.source.format)));
  windows_.cover(images, problem.y.destinationSize, problem.x.destinationSize, vectors,
                 longestPart(problem.y.kernelSize - problem.y.stride));
  const CellSpan rows(problem.y, problem.destinationOriginY, problem.destination.height);
  const CellSpan columns(problem.x, problem.destinationOriginX, problem.destination.width);
  cells_.cover(images, rows.count, columns.count, vectors,
               longestPart(divideUp(problem.y.kernelSize, problem.y.stride) - 1));
  cells_.firstLine = static_cast<std::int32_t>(rows.first);
  cells_.firstColumn = static_cast<std::int32_t>(columns.first);
}

template <class T>
void SlidingWindows::pool(mtl::Stream& stream, const PoolingAddresses<T>& at) const {
  withWindow(windows_, [&](auto size, auto stride) {
    const auto start = [&](auto kernel) {
      mtl::cuda::launch(stream, kernel, dim3(windows_.blocks()), dim3(kSlidingThreads), 0, windows_,
                        at.source, at.destination, at.saved);
    };
    withPoolingOperation<CudaMath>(kind_, [&](auto operation) {
      using Operation = decltype(operation);
      if constexpr (Operation::kTraits.selects)
        if (at.saved != nullptr) return start(slideWindows<Operation, T, size, stride, true>);
      start(slideWindows<Operation, T, size, stride, false>);
    });
  });
}

template <class T>
void SlidingWindows::gather(mtl::Stream& stream, const PoolingAddresses<T>& at, bool accumulate) const {
  SlidingArguments cells = cells_;
  cells.accumulate = accumulate;
  withWindow(cells, [&](auto size, auto stride) {
    const auto start = [&](auto kernel) {
      mtl::cuda::launch(stream, kernel, dim3(cells.blocks()), dim3(kSlidingThreads), 0, cells, at.gradient,
                        at.saved, at.destination);
    };
    withPoolingOperation<CudaMath>(kind_, [&](auto operation) {
      using Operation = decltype(operation);
      if constexpr (Operation::kTraits.selects || Operation::kTraits.isLinear)
        start(slideCells<Operation, T, size, stride>);
    });
  });
}

template void SlidingWindows::pool(mtl::Stream&, const PoolingAddresses<float>&) const;
template void SlidingWindows::pool(mtl::Stream&, const PoolingAddresses<Float16>&) const;
template void SlidingWindows::gather(mtl::Stream&, const PoolingAddresses<float>&, bool) const;
template void SlidingWindows::gather(mtl::Stream&, const PoolingAddresses<Float16>&, bool) const;

}  // namespace mps::detail::cuda
