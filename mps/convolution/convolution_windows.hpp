#pragma once

#include "mps/convolution/convolution_problem.hpp"

/// Windows that make a convolution a matrix product, seen along one axis.
namespace mps::detail {

/// One window, which reads each position of the source once.
constexpr bool coversSource(const WindowAxis& axis) {
  return axis.destinationSize == 1 && axis.kernelSize == axis.sourceSize &&
         (axis.dilation == 1 || axis.kernelSize == 1) && axis.firstTap(0) == 0;
}

/// A window of one position for each of the source.
constexpr bool readsEachPixel(const WindowAxis& axis) {
  return axis.kernelSize == 1 && axis.stride == 1 && axis.offset == 0 &&
         axis.destinationSize == axis.sourceSize;
}

/// Positions from the first tap of the first window to the last tap of the last one.
constexpr std::int64_t coveredSize(const WindowAxis& axis) {
  return axis.stride * (axis.destinationSize - 1) + axis.dilatedSize();
}

/// Whether an array of all that the windows cover, which libraries convolve where they cannot pad, is of a size that goes
/// with the tensors. Dilated or far apart, a few windows can cover more than there is memory.
constexpr bool canCopyCovered(const ConvolutionProblem& problem) {
  constexpr double kMostSide = 0x7FFFFFFF;
  constexpr double kMostTimesTensors = 64;
  constexpr double kAlwaysElements = 1 << 20;
  const auto side = [](const WindowAxis& axis) {  // in numbers without a limit
    return static_cast<double>(axis.stride) * static_cast<double>(axis.destinationSize - 1) +
           static_cast<double>(axis.kernelSize - 1) * static_cast<double>(axis.dilation) + 1;
  };
  const auto elements = [&](double height, double width, std::int64_t channels) {
    return static_cast<double>(problem.images()) * height * width * static_cast<double>(channels);
  };
  const auto tensor = [&](std::int64_t height, std::int64_t width, std::int64_t channels) {
    return elements(static_cast<double>(height), static_cast<double>(width), channels);
  };
  const double tensors =
      tensor(problem.y.sourceSize, problem.x.sourceSize, problem.inputFeatureChannels) +
      tensor(problem.y.destinationSize, problem.x.destinationSize, problem.outputFeatureChannels);
  return side(problem.y) <= kMostSide && side(problem.x) <= kMostSide &&
         elements(side(problem.y), side(problem.x), problem.inputFeatureChannels) <=
             kAlwaysElements + kMostTimesTensors * tensors;
}

/// Why a problem is refused whose copy is larger.
inline constexpr const char* kCoversTooMuch = "the windows cover far more than the tensors hold";

}  // namespace mps::detail
