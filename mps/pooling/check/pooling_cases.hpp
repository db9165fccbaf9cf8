#pragma once

#include <array>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "mps/pooling/pooling_problem.hpp"

/// The problems that tests, conform and bench share.
namespace mps::detail {

/// How the tensors of a case lie in memory.
enum class PoolingLayout : std::uint8_t {
  Dense,
  Strided,        ///< strided pixels, rows and images
  RepeatedImage,  ///< the inputs' images are all the same memory
};

/// The part of the source that the destination of the gradient shows; by default all of it.
struct PoolingView {
  std::int64_t originX = 0;
  std::int64_t originY = 0;
  std::int64_t width = 0;  ///< 0: the whole source
  std::int64_t height = 0;
};

/// Where the windows lie.
struct PoolingGeometry {
  std::string_view name;
  std::int64_t images = 1;
  WindowAxis y;
  WindowAxis x;
  std::int64_t channels = 1;
  std::int64_t zeroPadSizeX = 0;  ///< of average pooling with Clamp
  std::int64_t zeroPadSizeY = 0;
  PoolingView view = {};
  PoolingLayout layout = PoolingLayout::Dense;
  bool readsNothing = false;  ///< all windows lie outside: with Zero all results are 0
};

/// One kind of pooling on one geometry.
struct PoolingCase {
  std::string name;
  PoolingKind kind = PoolingKind::Max;
  ImageEdgeMode edgeMode = ImageEdgeMode::Zero;
  PoolingGeometry geometry;

  [[nodiscard]] PoolingProblem forward(ImageFeatureChannelFormat sourceFormat,
                                       ImageFeatureChannelFormat destinationFormat,
                                       bool saveIndices = false) const {
    PoolingProblem problem = common(sourceFormat);
    problem.direction = PoolingDirection::Forward;
    problem.destination = windowTensor(destinationFormat, true);
    problem.saveIndices = saveIndices;
    return problem;
  }
  /// What a graph makes of a ReLU before a maximum.
  [[nodiscard]] static PoolingProblem afterReLU(PoolingProblem problem) {
    problem.afterReLU = true;
    return problem;
  }

  /// @param gradientFormat of the incoming and the outgoing gradient
  [[nodiscard]] PoolingProblem gradient(ImageFeatureChannelFormat sourceFormat,
                                        ImageFeatureChannelFormat gradientFormat,
                                        bool useIndices = false) const {
    const PoolingView& view = geometry.view;
    PoolingProblem problem = common(sourceFormat);
    problem.direction = PoolingDirection::Gradient;
    problem.gradient = windowTensor(gradientFormat, false);
    problem.destination = tensor(view.height == 0 ? geometry.y.sourceSize : view.height,
                                 view.width == 0 ? geometry.x.sourceSize : view.width, gradientFormat, true);
    problem.destinationOriginX = view.originX;
    problem.destinationOriginY = view.originY;
    problem.useIndices = useIndices;
    return problem;
  }

 private:
  [[nodiscard]] PoolingProblem common(ImageFeatureChannelFormat sourceFormat) const {
    PoolingProblem problem;
    problem.kind = kind;
    problem.edgeMode = edgeMode;
    if (traitsOf(kind).countsTaps) {
      problem.zeroPadSizeX = geometry.zeroPadSizeX;
      problem.zeroPadSizeY = geometry.zeroPadSizeY;
    }
    problem.x = geometry.x;
    problem.y = geometry.y;
    problem.source = tensor(geometry.y.sourceSize, geometry.x.sourceSize, sourceFormat, false);
    return problem;
  }
  [[nodiscard]] TensorShape windowTensor(ImageFeatureChannelFormat format, bool isWritten) const {
    return tensor(geometry.y.destinationSize, geometry.x.destinationSize, format, isWritten);
  }
  [[nodiscard]] TensorShape tensor(std::int64_t height, std::int64_t width, ImageFeatureChannelFormat format,
                                   bool isWritten) const {
    TensorShape shape = TensorShape::dense(geometry.images, height, width, geometry.channels, format);
    if (geometry.layout == PoolingLayout::Strided) {
      shape.pixelStride = geometry.channels + 3;
      shape.rowStride = width * shape.pixelStride + 5;
      shape.imageStride = height * shape.rowStride + 7;
    }
    if (geometry.layout == PoolingLayout::RepeatedImage && !isWritten) shape.imageStride = 0;
    return shape;
  }
};

/// For GoogleTest's messages.
inline void PrintTo(const PoolingCase& pooling, std::ostream* stream) {
  *stream << pooling.name;
}

/// Awkward on purpose; small enough for a float64 reference. An axis is {source size, windows, kernel size,
/// stride, dilation, offset}.
inline std::vector<PoolingGeometry> poolingGeometries() {
  using enum PoolingLayout;
  // clang-format off
  return {
      // Channel counts, with the windows that networks use.
      {.name = "Kernel2x2Stride2", .images = 3, .y = {8, 4, 2, 2, 1, 1}, .x = {10, 5, 2, 2, 1, 1}, .channels = 16},
      {.name = "Kernel3x3Stride2", .images = 2, .y = {9, 5, 3, 2, 1, 0}, .x = {8, 4, 3, 2, 1, 0}, .channels = 64},
      {.name = "Kernel3x3Stride1", .images = 3, .y = {7, 7, 3, 1, 1, 0}, .x = {6, 6, 3, 1, 1, 0}, .channels = 17},
      {.name = "OneChannelStride2", .images = 3, .y = {7, 4, 2, 2, 1, 0}, .x = {37, 19, 2, 2, 1, 0}, .channels = 1},
      {.name = "OneChannelStride1", .images = 1, .y = {5, 5, 3, 1, 1, 0}, .x = {40, 40, 3, 1, 1, 0}, .channels = 1},
      {.name = "TwoChannels", .images = 1, .y = {6, 3, 3, 2, 1, 0}, .x = {19, 7, 4, 3, 1, 1}, .channels = 2},
      {.name = "ThreeChannels", .images = 3, .y = {9, 5, 3, 2, 1, 0}, .x = {13, 7, 3, 2, 1, 0}, .channels = 3},
      {.name = "FourChannels", .images = 1, .y = {6, 3, 2, 2, 1, 1}, .x = {11, 5, 2, 2, 1, 1}, .channels = 4},
      {.name = "FiveChannels", .images = 3, .y = {6, 6, 3, 1, 1, 0}, .x = {9, 3, 3, 3, 1, 1}, .channels = 5},
      {.name = "ManyChannels", .images = 1, .y = {2, 2, 3, 1, 1, 0}, .x = {120, 60, 3, 2, 1, 0}, .channels = 610},
      // Rows for more than one thread.
      {.name = "Threads17", .images = 2, .y = {37, 37, 3, 1, 1, 0}, .x = {31, 31, 3, 1, 1, 0}, .channels = 17},
      {.name = "Threads3", .images = 3, .y = {70, 35, 3, 2, 1, 0}, .x = {65, 33, 3, 2, 1, 0}, .channels = 3},
      // Sizes.
      {.name = "OnePixel", .images = 1, .y = {1, 1, 1, 1, 1, 0}, .x = {1, 1, 1, 1, 1, 0}, .channels = 5},
      {.name = "OnePixelUnder3x3", .images = 3, .y = {1, 1, 3, 1, 1, 0}, .x = {1, 1, 3, 1, 1, 0}, .channels = 4},
      {.name = "OnePixelManyWindows", .images = 1, .y = {1, 5, 3, 2, 1, -3}, .x = {1, 6, 2, 1, 2, -2}, .channels = 3},
      {.name = "KernelOverImage", .images = 2, .y = {3, 3, 7, 1, 1, 0}, .x = {2, 2, 5, 1, 1, 1}, .channels = 16},
      {.name = "Even4x4", .images = 1, .y = {6, 6, 4, 1, 1, 0}, .x = {7, 7, 4, 1, 1, 1}, .channels = 16},
      {.name = "Even2x6Stride2x3", .images = 1, .y = {9, 4, 6, 2, 1, 1}, .x = {9, 3, 2, 3, 1, 0}, .channels = 5},
      {.name = "Wide1x7", .images = 2, .y = {4, 4, 1, 1, 1, 0}, .x = {17, 17, 7, 1, 1, 0}, .channels = 4},
      {.name = "Tall7x1", .images = 2, .y = {17, 6, 7, 3, 1, 0}, .x = {4, 4, 1, 1, 1, 0}, .channels = 64},
      {.name = "StrideOverKernel", .images = 3, .y = {11, 4, 2, 3, 1, 1}, .x = {21, 4, 2, 5, 1, 1}, .channels = 4},
      {.name = "StrideOverKernelWide", .images = 1, .y = {11, 3, 1, 4, 1, 1}, .x = {11, 3, 2, 4, 1, 0}, .channels = 33},
      {.name = "WholeImage", .images = 3, .y = {7, 1, 7, 1, 1, 3}, .x = {5, 1, 5, 1, 1, 2}, .channels = 64},
      {.name = "WholeImageOneChannel", .images = 3, .y = {8, 1, 8, 1, 1, 4}, .x = {6, 1, 6, 1, 1, 3}, .channels = 1},
      {.name = "WholeImageTenChannels", .images = 2, .y = {17, 1, 17, 1, 1, 8}, .x = {7, 1, 7, 1, 1, 3}, .channels = 10},
      {.name = "WholeImageManyChannels", .images = 2, .y = {5, 1, 5, 1, 1, 2}, .x = {4, 1, 4, 1, 1, 2}, .channels = 200, .layout = Strided},
      {.name = "Over255Taps", .images = 1, .y = {20, 5, 17, 2, 1, 3}, .x = {19, 3, 16, 3, 1, 5}, .channels = 5},
      {.name = "Exactly255Taps", .images = 1, .y = {16, 2, 17, 2, 1, 6}, .x = {15, 2, 15, 1, 1, 7}, .channels = 16},
      {.name = "Over65535Taps", .images = 1, .y = {4, 2, 257, 2, 1, 1}, .x = {5, 2, 257, 1, 1, 100}, .channels = 1},
      // Offsets of every sign, padding that differs between the sides, windows outside.
      {.name = "PaddingAfterOnly", .images = 1, .y = {8, 4, 3, 2, 1, 1}, .x = {8, 4, 3, 2, 1, 1}, .channels = 16},
      {.name = "PaddedRowsOnly", .images = 8, .y = {3, 4, 2, 1, 1, 0}, .x = {5, 5, 1, 1, 1, 0}, .channels = 3},
      {.name = "PaddingDiffers", .images = 2, .y = {7, 4, 4, 2, 1, 1}, .x = {6, 3, 5, 2, 1, 3}, .channels = 3},
      {.name = "OffsetNegative", .images = 2, .y = {7, 5, 3, 1, 1, -2}, .x = {6, 6, 3, 2, 1, -3}, .channels = 16},
      {.name = "OffsetPositive", .images = 2, .y = {9, 3, 3, 1, 1, 4}, .x = {8, 3, 3, 1, 1, 3}, .channels = 4},
      {.name = "OffsetBeyondSource", .images = 1, .y = {5, 4, 3, 1, 1, 4}, .x = {5, 5, 3, 1, 1, 3}, .channels = 3},
      {.name = "FarOutside", .images = 1, .y = {4, 12, 3, 1, 1, -4}, .x = {4, 12, 3, 1, 1, -5}, .channels = 4},
      {.name = "FarOutsideStrided", .images = 1, .y = {5, 9, 2, 4, 1, -13}, .x = {6, 8, 2, 4, 1, -11}, .channels = 18},
      {.name = "AllOutside", .images = 1, .y = {4, 3, 2, 1, 1, 9}, .x = {5, 2, 2, 1, 1, -8}, .channels = 5, .readsNothing = true},
      // Dilation.
      {.name = "Dilated2", .images = 3, .y = {9, 9, 3, 1, 2, 0}, .x = {11, 11, 3, 1, 2, 0}, .channels = 16},
      {.name = "Dilated3Stride2", .images = 2, .y = {11, 6, 3, 2, 3, 0}, .x = {9, 5, 3, 2, 3, 1}, .channels = 5},
      {.name = "Dilated2Stride3", .images = 1, .y = {13, 5, 4, 3, 2, 0}, .x = {12, 4, 4, 3, 2, 1}, .channels = 3},
      {.name = "DilatedByStride", .images = 1, .y = {9, 4, 3, 2, 2, 1}, .x = {13, 4, 2, 3, 3, 2}, .channels = 20},
      {.name = "DilatedEven", .images = 1, .y = {1, 1, 1, 1, 1, 0}, .x = {6, 3, 2, 2, 3, 1}, .channels = 3},
      {.name = "DilatedOverImage", .images = 1, .y = {4, 4, 3, 1, 3, 0}, .x = {3, 4, 2, 1, 3, 0}, .channels = 16},
      {.name = "DilatedFarOutside", .images = 1, .y = {5, 6, 3, 3, 2, -6}, .x = {7, 6, 2, 4, 3, -7}, .channels = 4},
      // The zero band of average pooling.
      {.name = "ZeroPad1", .images = 2, .y = {7, 4, 3, 2, 1, 0}, .x = {8, 5, 3, 2, 1, 0}, .channels = 16, .zeroPadSizeX = 1, .zeroPadSizeY = 1},
      {.name = "ZeroPadDiffers", .images = 2, .y = {6, 7, 5, 1, 1, -1}, .x = {7, 8, 4, 1, 1, 0}, .channels = 3, .zeroPadSizeX = 2, .zeroPadSizeY = 1},
      {.name = "ZeroPadOverWindow", .images = 1, .y = {5, 4, 3, 2, 1, -1}, .x = {4, 3, 3, 2, 1, 0}, .channels = 5, .zeroPadSizeX = 9, .zeroPadSizeY = 7},
      // Windows of one kind on both axes, whole vectors of channels.
      {.name = "Even2x2", .images = 2, .y = {9, 9, 2, 1, 1, 0}, .x = {10, 10, 2, 1, 1, 1}, .channels = 16},
      {.name = "Even2x2Stride2Padded", .images = 2, .y = {9, 5, 2, 2, 1, 0}, .x = {10, 5, 2, 2, 1, 0}, .channels = 32},
      {.name = "Square3x3", .images = 2, .y = {19, 19, 3, 1, 1, 0}, .x = {13, 13, 3, 1, 1, 0}, .channels = 24},
      {.name = "SquareDilated3", .images = 1, .y = {17, 17, 3, 1, 3, 0}, .x = {14, 12, 3, 1, 3, 3}, .channels = 16},
      {.name = "SquareZeroPad", .images = 1, .y = {7, 10, 3, 1, 1, -1}, .x = {9, 9, 3, 1, 1, 0}, .channels = 8, .zeroPadSizeX = 1, .zeroPadSizeY = 2, .view = {-2, 1, 12, 5}},
      {.name = "LastOfAVector", .images = 8, .y = {5, 5, 2, 1, 1, 0}, .x = {17, 17, 1, 1, 1, 0}, .channels = 1},
      // What the gradient writes.
      {.name = "ShiftedView", .images = 2, .y = {7, 2, 3, 3, 1, 2}, .x = {8, 3, 2, 3, 1, 2}, .channels = 16, .view = {1, 1, 7, 6}},
      {.name = "NarrowView", .images = 2, .y = {9, 9, 3, 1, 1, 0}, .x = {12, 6, 3, 2, 1, 0}, .channels = 3, .view = {4, 3, 5, 2}},
      {.name = "ViewBeyondSource", .images = 1, .y = {5, 3, 3, 2, 1, 0}, .x = {6, 3, 2, 2, 1, 1}, .channels = 17, .view = {3, 2, 7, 8}},
      {.name = "ViewOutsideSource", .images = 1, .y = {5, 3, 3, 2, 1, 0}, .x = {6, 3, 2, 2, 1, 1}, .channels = 4, .view = {6, 2, 3, 3}},
      {.name = "ViewAroundSource", .images = 1, .y = {5, 5, 3, 1, 1, 0}, .x = {6, 3, 2, 2, 1, 0}, .channels = 5, .view = {-2, -1, 11, 9}},
      // Memory.
      {.name = "Strided", .images = 3, .y = {7, 7, 3, 1, 1, 0}, .x = {8, 4, 3, 2, 1, 0}, .channels = 5, .layout = Strided},
      {.name = "StridedStride1", .images = 2, .y = {5, 5, 3, 1, 1, 0}, .x = {6, 6, 3, 1, 1, 0}, .channels = 3, .layout = Strided},
      {.name = "StridedWide", .images = 2, .y = {6, 3, 2, 2, 1, 1}, .x = {6, 3, 2, 2, 1, 1}, .channels = 40, .layout = Strided},
      {.name = "RepeatedImage", .images = 3, .y = {6, 3, 3, 2, 1, 0}, .x = {6, 6, 3, 1, 1, 0}, .channels = 16, .layout = RepeatedImage},
  };
  // clang-format on
}

/// Whether integers give results without rounding, if gradients are multiples of `commonMultiple`.
inline bool isExactForIntegers(const PoolingProblem& problem, std::int64_t commonMultiple) {
  const PoolingTraits traits = problem.traits();
  const bool isForward = problem.direction == PoolingDirection::Forward;
  // A function that is not linear rounds behind the division once more.
  if (traits.selects || (isForward && (traits.isLinear || !traits.countsTaps))) return true;
  if (!traits.isLinear) return false;
  for (std::int64_t y = 0; y < problem.y.destinationSize; ++y)
    for (std::int64_t x = 0; x < problem.x.destinationSize; ++x) {
      const std::int64_t divisor = countedTaps(problem.y, y, problem.edgeMode, problem.zeroPadSizeY) *
                                   countedTaps(problem.x, x, problem.edgeMode, problem.zeroPadSizeX);
      if (divisor != 0 && commonMultiple % divisor != 0) return false;
    }
  return true;
}

inline std::string poolingName(PoolingKind kind, ImageEdgeMode edgeMode) {
  return std::string(traitsOf(kind).name) + (edgeMode == ImageEdgeMode::Clamp ? "Clamp" : "Zero");
}

/// Every kind with every edge mode on some geometries.
inline std::vector<PoolingCase> poolingCasesOf(const std::vector<PoolingGeometry>& geometries) {
  std::vector<PoolingCase> cases;
  for (const PoolingGeometry& geometry : geometries)
    for (const PoolingKind kind : kPoolingKinds)
      for (const ImageEdgeMode edgeMode : {ImageEdgeMode::Zero, ImageEdgeMode::Clamp})
        cases.push_back({std::string(geometry.name) + poolingName(kind, edgeMode), kind, edgeMode, geometry});
  return cases;
}

inline std::vector<PoolingCase> poolingCases() {
  return poolingCasesOf(poolingGeometries());
}

/// Rows that are whole cache lines, forward and as a gradient.
inline PoolingCase wholeLinesPoolingCase(std::int64_t images, std::int64_t pixels) {
  return {"WholeLinesMaxZero",
          PoolingKind::Max,
          ImageEdgeMode::Zero,
          {.name = "WholeLines",
           .images = images,
           .y = {pixels, pixels / 2, 3, 2, 1, 0},
           .x = {pixels, pixels / 2, 3, 2, 1, 0},
           .channels = 64}};
}

/// What is timed: the shapes of networks, 32 images of 56 x 56 pixels.
inline std::vector<PoolingCase> poolingBenchCases(std::int64_t channels = 64) {
  using enum PoolingKind;
  using enum ImageEdgeMode;
  const auto make = [&](const char* name, PoolingKind kind, ImageEdgeMode edgeMode, WindowAxis axis) {
    return PoolingCase{
        name, kind, edgeMode, {.name = name, .images = 32, .y = axis, .x = axis, .channels = channels}};
  };
  return {
      make("Max3x3Stride2", Max, Clamp, {56, 28, 3, 2, 1, 0}),
      make("Max2x2Stride2", Max, Clamp, {56, 28, 2, 2, 1, 1}),
      make("Average2x2Stride2", Average, Clamp, {56, 28, 2, 2, 1, 1}),
      make("Average3x3", Average, Clamp, {56, 56, 3, 1, 1, 0}),
      make("L2Norm2x2Stride2", L2Norm, Clamp, {56, 28, 2, 2, 1, 1}),
      make("DilatedMax3x3", Max, Clamp, {56, 56, 3, 1, 2, 0}),
  };
}

}  // namespace mps::detail
