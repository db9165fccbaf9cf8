#pragma once

#include <cstdint>

#include "mps/convolution/convolution_problem.hpp"
#include "mps/core/cuda/elements_cuda.cuh"

/// The sums of a convolution for one element of its result, each gathered by one thread: for every geometry,
/// group, edge mode and format, in 64-bit numbers.
namespace mps::detail::cuda {

/// The numbers of a ConvolutionProblem, as kernels take them.
struct ConvolutionNumbers {
  WindowAxis x;
  WindowAxis y;
  std::int64_t inputs;          ///< channels of a group
  std::int64_t outputs;         ///< channels of a group
  std::int64_t inputChannels;   ///< of all groups
  std::int64_t outputChannels;  ///< of all groups
  std::int64_t weightCount;
  bool clamps;
  bool transposed;

  explicit ConvolutionNumbers(const ConvolutionProblem& problem)
      : x(problem.x),
        y(problem.y),
        inputs(problem.inputChannelsPerGroup()),
        outputs(problem.outputChannelsPerGroup()),
        inputChannels(problem.inputFeatureChannels),
        outputChannels(problem.outputFeatureChannels),
        weightCount(problem.weightCount()),
        clamps(problem.edgeMode == ImageEdgeMode::Clamp),
        transposed(problem.transposed) {}

  [[nodiscard]] __host__ __device__ std::int64_t taps() const { return y.kernelSize * x.kernelSize; }
  /// Where the parameters hold the weight of output channel k, tap q * x.kernelSize + p, and channel c of the
  /// group.
  [[nodiscard]] __device__ std::int64_t weightPlace(std::int64_t k, std::int64_t tap, std::int64_t c) const {
    if (!transposed) return (k * taps() + tap) * inputs + c;
    const std::int64_t input = k / outputs * inputs + c;
    return (input * taps() + taps() - 1 - tap) * outputs + k % outputs;
  }
};

/// A tensor that is read, of elements of type T, or of any format where T is void.
template <class T>
struct ReadTensor {
  TensorShape shape;
  const T* memory;

  ReadTensor(const TensorShape& tensor, const std::byte* address)
      : shape(tensor), memory(reinterpret_cast<const T*>(address)) {}
  [[nodiscard]] __device__ float at(std::int64_t offset) const {
    if constexpr (std::is_void_v<T>)
      return loadAs(shape.format, static_cast<const std::byte*>(memory), offset);
    else
      return load(memory + offset);
  }
};

__host__ __device__ constexpr std::int64_t floorDivide(std::int64_t number, std::int64_t divisor) {
  const std::int64_t quotient = number / divisor;
  return number % divisor < 0 ? quotient - 1 : quotient;
}
__host__ __device__ constexpr std::int64_t ceilDivide(std::int64_t number, std::int64_t divisor) {
  return -floorDivide(-number, divisor);
}

/// The pixel that a coordinate reads, or -1 for an outside zero.
__host__ __device__ constexpr std::int64_t pixelAt(std::int64_t coordinate, std::int64_t size, bool clamps) {
  if (coordinate >= 0 && coordinate < size) return coordinate;
  if (!clamps) return -1;
  return coordinate < 0 ? 0 : size - 1;
}

/// Windows, or pixels, [begin, end).
struct WindowRange {
  std::int64_t begin;
  std::int64_t end;
};

/// The windows whose tap reads a pixel of [first, last], where 0 and sourceSize - 1 stand for everything beyond
/// them, too, when coordinates are clamped.
__host__ __device__ constexpr WindowRange windowsThatRead(const WindowAxis& axis, std::int64_t tap,
                                                          std::int64_t first, std::int64_t last,
                                                          bool clamps) {
  const std::int64_t base = axis.firstTap(0) + axis.dilation * tap;
  WindowRange range{0, axis.destinationSize};
  if (!clamps || first > 0) {
    const std::int64_t begin = ceilDivide(first - base, axis.stride);
    if (begin > range.begin) range.begin = begin;
  }
  if (!clamps || last < axis.sourceSize - 1) {
    const std::int64_t end = floorDivide(last - base, axis.stride) + 1;
    if (end < range.end) range.end = end;
  }
  return range;
}

/// What a position of the result is made from, through one tap: the pixel of the source that its window reads or, for data
/// gradients, the windows that read it.
template <bool isForward>
__device__ WindowRange readThrough(const WindowAxis& axis, std::int64_t tap, std::int64_t position,
                                   bool clamps) {
  if constexpr (isForward) {
    const std::int64_t pixel =
        pixelAt(axis.firstTap(position) + axis.dilation * tap, axis.sourceSize, clamps);
    return {pixel, pixel < 0 ? pixel : pixel + 1};
  } else {
    return windowsThatRead(axis, tap, position, position, clamps);
  }
}

/// Channel k (of all groups) of pixel (x, y) of the result. @param weights [tap][channel that is read, of the group][k]
template <bool isForward, class Tensor>
__device__ float pixelSum(const ConvolutionNumbers& n, const Tensor& read, const float* weights,
                          std::int64_t image, std::int64_t y, std::int64_t x, std::int64_t k) {
  const std::int64_t channels = isForward ? n.outputChannels : n.inputChannels;
  const std::int64_t own = isForward ? n.outputs : n.inputs;
  const std::int64_t others = isForward ? n.inputs : n.outputs;
  float sum = 0;
  for (std::int64_t q = 0; q < n.y.kernelSize; ++q) {
    const WindowRange rows = readThrough<isForward>(n.y, q, y, n.clamps);
    for (std::int64_t row = rows.begin; row < rows.end; ++row)
      for (std::int64_t p = 0; p < n.x.kernelSize; ++p) {
        const WindowRange columns = readThrough<isForward>(n.x, p, x, n.clamps);
        const float* const weight = weights + (q * n.x.kernelSize + p) * others * channels + k;
        for (std::int64_t column = columns.begin; column < columns.end; ++column) {
          const std::int64_t from = read.shape.offset(image, row, column, k / own * others);
          for (std::int64_t c = 0; c < others; ++c) sum = fmaf(read.at(from + c), weight[c * channels], sum);
        }
      }
  }
  return sum;
}

/// The gradient of weight (k, tap, c), number (k * taps + tap) * inputs + c, summed over the rows of windows
/// `first`, `first` + step, ... of all images.
template <class Source, class Gradient>
__device__ float weightGradientSum(const ConvolutionNumbers& n, const Source& source,
                                   const Gradient& gradient, std::int64_t weight, std::int64_t first,
                                   std::int64_t step) {
  const std::int64_t c = weight % n.inputs;
  const std::int64_t tap = weight / n.inputs % n.taps();
  const std::int64_t k = weight / n.inputs / n.taps();
  const std::int64_t p = tap % n.x.kernelSize;
  const std::int64_t q = tap / n.x.kernelSize;
  const WindowRange columns =
      n.clamps ? WindowRange{0, n.x.destinationSize} : windowsThatRead(n.x, p, 0, n.x.sourceSize - 1, false);
  float sum = 0;
  for (std::int64_t row = first; row < gradient.shape.images * n.y.destinationSize; row += step) {
    const std::int64_t image = row / n.y.destinationSize;
    const std::int64_t y = row % n.y.destinationSize;
    const std::int64_t v = pixelAt(n.y.firstTap(y) + n.y.dilation * q, n.y.sourceSize, n.clamps);
    if (v < 0) continue;
    const std::int64_t gradients = gradient.shape.offset(image, y, 0, k);
    const std::int64_t pixels = source.shape.offset(image, v, 0, k / n.outputs * n.inputs + c);
    for (std::int64_t x = columns.begin; x < columns.end; ++x) {
      const std::int64_t u = pixelAt(n.x.firstTap(x) + n.x.dilation * p, n.x.sourceSize, n.clamps);
      sum = fmaf(gradient.at(gradients + x * gradient.shape.pixelStride),
                 source.at(pixels + u * source.shape.pixelStride), sum);
    }
  }
  return sum;
}

}  // namespace mps::detail::cuda
