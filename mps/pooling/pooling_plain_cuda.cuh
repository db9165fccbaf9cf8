#pragma once

#include <cstdint>

#include "mps/core/elements_cuda.cuh"
#include "mps/pooling/pooling_problem.hpp"

/// Pooling kernels that accept every problem: an element at a time, in any format, in 64-bit numbers.
namespace mps::detail::cuda {

struct PlainOperands {
  const std::byte* source;
  const std::byte* gradient;
  std::byte* destination;
  std::byte* saved;
  bool accumulate;
};

/// One channel of one window.
class PlainWindow {
 public:
  __device__ PlainWindow(const PoolingProblem& problem, const std::byte* source, std::int64_t image,
                         std::int64_t y, std::int64_t x, std::int64_t channel)
      : problem_(problem), source_(source), image_(image), y_(y), x_(x), channel_(channel) {}

  /// The chosen tap, negative for an outside zero and for what a ReLU cut off.
  __device__ std::int64_t choose(float& value) const {
    const WindowAxis& axisX = problem_.x;
    const WindowAxis& axisY = problem_.y;
    const bool clamps = problem_.edgeMode == ImageEdgeMode::Clamp;
    const std::int64_t rowBegin = clamps ? 0 : axisY.firstInside(y_);
    const std::int64_t rowEnd = clamps ? axisY.kernelSize : axisY.endInside(y_);
    const std::int64_t columnBegin = clamps ? 0 : axisX.firstInside(x_);
    const std::int64_t columnEnd = clamps ? axisX.kernelSize : axisX.endInside(x_);
    std::int64_t tap = -1;
    for (std::int64_t q = rowBegin; q < rowEnd; ++q) {
      for (std::int64_t p = columnBegin; p < columnEnd; ++p) {
        const float next = at(clampInto(axisY.firstTap(y_) + axisY.dilation * q, axisY.sourceSize),
                              clampInto(axisX.firstTap(x_) + axisX.dilation * p, axisX.sourceSize));
        if (tap >= 0 && (next <= value || value != value)) continue;
        value = next;
        tap = p + axisX.kernelSize * q;
      }
    }
    const bool hasOutsideZero =
        !clamps && (rowEnd - rowBegin < axisY.kernelSize || columnEnd - columnBegin < axisX.kernelSize);
    if (tap >= 0 && !(hasOutsideZero && value < 0))
      return problem_.afterReLU && signbit(value) && value == value ? -1 : tap;
    value = 0;
    return -1;
  }

  __device__ float average() const {
    float sum = 0;
    forEachInside([&](float value) { sum += value; });
    return sum / divisor();
  }

  __device__ float norm() const {
    float sum = 0;
    forEachInside([&](float value) { sum = fmaf(value, value, sum); });
    return sqrtf(sum);
  }

  /// At least 1: without a tap to count there is nothing to divide.
  __device__ float divisor() const {
    const std::int64_t count = countedTaps(problem_.x, x_, problem_.zeroPadSizeX) *
                               countedTaps(problem_.y, y_, problem_.zeroPadSizeY);
    return count < 1 ? 1.0F : static_cast<float>(count);
  }

  /// Place in Operands::saved.
  __device__ std::int64_t savedPlace() const {
    return ((image_ * problem_.y.destinationSize + y_) * problem_.x.destinationSize + x_) *
               problem_.source.channels +
           channel_;
  }

 private:
  __device__ float at(std::int64_t y, std::int64_t x) const {
    return loadAs(problem_.source.format, source_, problem_.source.offset(image_, y, x, channel_));
  }
  __device__ static std::int64_t clampInto(std::int64_t value, std::int64_t size) {
    return value < 0 ? 0 : value < size ? value : size - 1;
  }
  __device__ std::int64_t countedTaps(const WindowAxis& axis, std::int64_t window,
                                      std::int64_t zeroPad) const {
    if (problem_.edgeMode == ImageEdgeMode::Zero) return axis.kernelSize;
    WindowAxis wider = axis;  // as if the source had the zeros, too
    wider.sourceSize += 2 * zeroPad;
    wider.offset += zeroPad;
    const std::int64_t count = wider.endInside(window) - wider.firstInside(window);
    return count < 0 ? 0 : count;
  }
  template <class Visit>
  __device__ void forEachInside(Visit visit) const {
    const WindowAxis& axisX = problem_.x;
    const WindowAxis& axisY = problem_.y;
    for (std::int64_t q = axisY.firstInside(y_); q < axisY.endInside(y_); ++q)
      for (std::int64_t p = axisX.firstInside(x_); p < axisX.endInside(x_); ++p)
        visit(at(axisY.firstTap(y_) + axisY.dilation * q, axisX.firstTap(x_) + axisX.dilation * p));
  }

  const PoolingProblem& problem_;
  const std::byte* source_;
  std::int64_t image_, y_, x_, channel_;
};

__device__ inline std::uint32_t loadIndex(const PoolingProblem& problem, const std::byte* saved,
                                          std::int64_t place) {
  switch (problem.indexBytes()) {
    case 1:
      return reinterpret_cast<const std::uint8_t*>(saved)[place];
    case 2:
      return reinterpret_cast<const std::uint16_t*>(saved)[place];
    default:
      return reinterpret_cast<const std::uint32_t*>(saved)[place];
  }
}
__device__ inline void storeIndex(const PoolingProblem& problem, std::uint32_t index, std::byte* saved,
                                  std::int64_t place) {
  switch (problem.indexBytes()) {
    case 1:
      reinterpret_cast<std::uint8_t*>(saved)[place] = static_cast<std::uint8_t>(index);
      break;
    case 2:
      reinterpret_cast<std::uint16_t*>(saved)[place] = static_cast<std::uint16_t>(index);
      break;
    default:
      reinterpret_cast<std::uint32_t*>(saved)[place] = index;
      break;
  }
}

/// Calls body(image, y, x, channel) for the elements of a tensor that are this thread's.
template <class Body>
__device__ void forEachElement(const TensorShape& shape, Body body) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t e = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       e < shape.elements(); e += step) {
    const std::int64_t pixel = e / shape.channels;
    const std::int64_t row = pixel / shape.width;
    body(row / shape.height, row % shape.height, pixel % shape.width, e % shape.channels);
  }
}

__global__ void poolPlain(PoolingProblem problem, PlainOperands operands) {
  const TensorShape& to = problem.destination;
  forEachElement(to, [&](std::int64_t image, std::int64_t y, std::int64_t x, std::int64_t channel) {
    const PlainWindow window(problem, operands.source, image, y, x, channel);
    float value = 0;
    switch (problem.kind) {
      case PoolingKind::Max: {
        const std::int64_t tap = window.choose(value);
        if (problem.saveIndices)
          storeIndex(problem, tap < 0 ? problem.noIndex() : static_cast<std::uint32_t>(tap), operands.saved,
                     window.savedPlace());
        break;
      }
      case PoolingKind::Average:
        value = window.average();
        break;
      case PoolingKind::L2Norm:
        value = window.norm();
        break;
    }
    storeAs(value, to.format, operands.destination, to.offset(image, y, x, channel));
  });
}

/// Windows [begin, end) that may read a coordinate, and the tap that reads it.
class PlainWindows {
 public:
  __device__ PlainWindows(const WindowAxis& axis, std::int64_t coordinate, bool clamps)
      : axis_(axis),
        coordinate_(coordinate),
        isFirst_(clamps && coordinate == 0),
        isLast_(clamps && coordinate == axis.sourceSize - 1) {
    const std::int64_t distance = coordinate - axis.firstTap(0);
    const std::int64_t behind = distance - axis.dilatedSize() + 1;
    begin = isFirst_ || behind <= 0 ? 0 : (behind + axis.stride - 1) / axis.stride;
    end = isLast_ ? axis.destinationSize : distance < 0 ? 0 : distance / axis.stride + 1;
    if (end > axis.destinationSize) end = axis.destinationSize;
  }
  /// The first tap that reads the coordinate or is clamped to it; negative: none.
  __device__ std::int64_t tap(std::int64_t window) const {
    const std::int64_t distance = coordinate_ - axis_.firstTap(window);
    if (isFirst_ || (isLast_ && distance <= 0)) return 0;
    if (isLast_) return (distance + axis_.dilation - 1) / axis_.dilation;
    return distance % axis_.dilation == 0 ? distance / axis_.dilation : -1;
  }

  std::int64_t begin;
  std::int64_t end;

 private:
  const WindowAxis& axis_;
  std::int64_t coordinate_;
  bool isFirst_;
  bool isLast_;
};

/// What one window adds to the gradient of the pixel that its tap reads.
__device__ inline float contribution(const PoolingProblem& problem, const PlainOperands& operands,
                                     const PlainWindow& window, std::int64_t tap, float gradient) {
  switch (problem.kind) {
    case PoolingKind::Max: {
      if (problem.useIndices)
        return loadIndex(problem, operands.saved, window.savedPlace()) == static_cast<std::uint32_t>(tap)
                   ? gradient
                   : 0.0F;
      float value = 0;
      return window.choose(value) == tap ? gradient : 0.0F;
    }
    case PoolingKind::Average:
      return gradient / window.divisor();
    case PoolingKind::L2Norm: {
      const float norm = window.norm();
      return norm == 0 ? 0.0F : gradient / norm;
    }
  }
  return 0;
}

__global__ void gatherPlain(PoolingProblem problem, PlainOperands operands) {
  const TensorShape& to = problem.destination;
  const bool clamps = problem.kind == PoolingKind::Max && problem.edgeMode == ImageEdgeMode::Clamp;
  forEachElement(to, [&](std::int64_t image, std::int64_t row, std::int64_t column, std::int64_t channel) {
    const std::int64_t y = row + problem.destinationOriginY;
    const std::int64_t x = column + problem.destinationOriginX;
    const std::int64_t place = to.offset(image, row, column, channel);
    float sum = 0;
    bool isRead = false;
    if (y >= 0 && y < problem.y.sourceSize && x >= 0 && x < problem.x.sourceSize) {
      const PlainWindows rows(problem.y, y, clamps);
      const PlainWindows columns(problem.x, x, clamps);
      for (std::int64_t j = rows.begin; j < rows.end; ++j) {
        const std::int64_t q = rows.tap(j);
        for (std::int64_t i = columns.begin; q >= 0 && i < columns.end; ++i) {
          const std::int64_t p = columns.tap(i);
          if (p < 0) continue;
          isRead = true;
          const float g = loadAs(problem.gradient.format, operands.gradient,
                                 problem.gradient.offset(image, j, i, channel));
          sum += contribution(problem, operands, PlainWindow(problem, operands.source, image, j, i, channel),
                              p + problem.x.kernelSize * q, g);
        }
      }
      // A pixel that no window reads gets 0 even when it is infinite.
      if (problem.kind == PoolingKind::L2Norm && isRead)
        sum *= loadAs(problem.source.format, operands.source, problem.source.offset(image, y, x, channel));
    }
    if (operands.accumulate) sum += loadAs(to.format, operands.destination, place);
    storeAs(sum, to.format, operands.destination, place);
  });
}

}  // namespace mps::detail::cuda
