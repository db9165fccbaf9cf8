#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "mps/upsampling/upsampling_problem.hpp"

/// The problems that tests and conform share.
namespace mps::detail {

/// How the tensors of a case lie in memory.
enum class UpsamplingMemory : std::uint8_t {
  Dense,
  Strided,        ///< gaps between pixels, rows and images
  StridedInput,   ///< gaps in what is read alone
  LeftPart,       ///< of images twice as wide
  RepeatedImage,  ///< the input's images are all the same memory
};

/// One axis of a case.
struct UpsamplingExtent {
  std::int64_t sourceSize = 1;
  std::int64_t scaleFactor = 1;
  std::int64_t offset = 0;
  std::int64_t results = 0;      ///< 0: wholeResult()
  std::int64_t firstResult = 0;  ///< of the incoming gradient
  /// The part of the source that the destination of the gradient shows; by default all of it.
  std::int64_t viewOrigin = 0;
  std::int64_t viewSize = 0;
  std::int64_t resultSize = 0;  ///< of a resize; 0: sourceSize * scaleFactor
  double start = 0;             ///< of crops and scales
  double step = 0;

  [[nodiscard]] std::int64_t wholeResult() const {
    return resultSize == 0 ? sourceSize * scaleFactor : resultSize;
  }
  [[nodiscard]] std::int64_t resultCount() const { return results == 0 ? wholeResult() : results; }
  [[nodiscard]] std::int64_t viewCount() const { return viewSize == 0 ? sourceSize : viewSize; }
  /// Whether results may lie outside the source.
  [[nodiscard]] bool leavesSource() const {
    return offset != 0 || firstResult + resultCount() > wholeResult();
  }
};

struct UpsamplingGeometry {
  std::string_view name;
  std::int64_t images = 1;
  UpsamplingExtent y;
  UpsamplingExtent x;
  std::int64_t channels = 1;
  UpsamplingMemory memory = UpsamplingMemory::Dense;
  bool readsNothing = false;  ///< all results lie outside, or the view does
  bool fillsGpus = false;     ///< large, for blocks of CUDA kernels: tests leave it out where there is no GPU
};

/// One way of sampling on one geometry.
struct UpsamplingCase {
  std::string name;
  UpsamplingSampling sampling = UpsamplingSampling::Nearest;
  ImageEdgeMode edgeMode = ImageEdgeMode::Zero;
  UpsamplingGeometry geometry;

  [[nodiscard]] UpsamplingProblem forward(ImageFeatureChannelFormat sourceFormat,
                                          ImageFeatureChannelFormat resultFormat) const {
    UpsamplingProblem problem = common(UpsamplingDirection::Forward);
    problem.input = tensor(geometry.y.sourceSize, geometry.x.sourceSize, sourceFormat, false);
    problem.destination = tensor(geometry.y.resultCount(), geometry.x.resultCount(), resultFormat, true);
    return problem;
  }

  [[nodiscard]] UpsamplingProblem gradient(ImageFeatureChannelFormat gradientFormat,
                                           ImageFeatureChannelFormat destinationFormat) const {
    UpsamplingProblem problem = common(UpsamplingDirection::Gradient);
    problem.x.firstResult = geometry.x.firstResult;
    problem.y.firstResult = geometry.y.firstResult;
    problem.x.destinationOrigin = geometry.x.viewOrigin;
    problem.y.destinationOrigin = geometry.y.viewOrigin;
    problem.input = tensor(geometry.y.resultCount(), geometry.x.resultCount(), gradientFormat, false);
    problem.destination = tensor(geometry.y.viewCount(), geometry.x.viewCount(), destinationFormat, true);
    return problem;
  }

 private:
  [[nodiscard]] UpsamplingProblem common(UpsamplingDirection direction) const {
    const auto axis = [](const UpsamplingExtent& extent) {
      return UpsamplingAxis{.sourceSize = extent.sourceSize,
                            .resultSize = extent.wholeResult(),
                            .offset = extent.offset,
                            .start = extent.start,
                            .step = extent.step};
    };
    UpsamplingProblem problem;
    problem.sampling = sampling;
    problem.direction = direction;
    problem.edgeMode = edgeMode;
    problem.x = axis(geometry.x);
    problem.y = axis(geometry.y);
    return problem;
  }
  [[nodiscard]] TensorShape tensor(std::int64_t height, std::int64_t width, ImageFeatureChannelFormat format,
                                   bool isWritten) const {
    TensorShape shape = TensorShape::dense(geometry.images, height, width, geometry.channels, format);
    if (geometry.memory == UpsamplingMemory::Strided ||
        (geometry.memory == UpsamplingMemory::StridedInput && !isWritten)) {
      shape.pixelStride = geometry.channels + 3;
      shape.rowStride = width * shape.pixelStride + 5;
      shape.imageStride = height * shape.rowStride + 7;
    }
    if (geometry.memory == UpsamplingMemory::LeftPart) {
      shape.rowStride *= 2;
      shape.imageStride *= 2;
    }
    if (geometry.memory == UpsamplingMemory::RepeatedImage && !isWritten) shape.imageStride = 0;
    return shape;
  }
};

/// For GoogleTest's messages.
inline void PrintTo(const UpsamplingCase& upsampling, std::ostream* stream) {
  *stream << upsampling.name;
}

/// Awkward on purpose; small enough for a float64 reference. An axis is {source size, scale factor, offset, results,
/// first result, view origin, view size}.
inline std::vector<UpsamplingGeometry> upsamplingGeometries() {
  using enum UpsamplingMemory;
  // clang-format off
  return {
      // Channel counts, with the factors that networks use.
      {.name = "Scale2", .images = 3, .y = {4, 2}, .x = {5, 2}, .channels = 16},
      {.name = "Scale2Channels64", .images = 2, .y = {3, 2}, .x = {4, 2}, .channels = 64},
      {.name = "Scale4", .images = 1, .y = {3, 4}, .x = {2, 4}, .channels = 17},
      {.name = "Scale3", .images = 2, .y = {3, 3}, .x = {5, 3}, .channels = 21},
      {.name = "OneChannel", .images = 3, .y = {5, 2}, .x = {19, 2}, .channels = 1},
      {.name = "TwoChannels", .images = 1, .y = {3, 3}, .x = {9, 2}, .channels = 2},
      {.name = "ThreeChannels", .images = 3, .y = {4, 2}, .x = {7, 3}, .channels = 3},
      {.name = "ThreeChannelsInPacks", .images = 2, .y = {5, 2}, .x = {8, 2}, .channels = 3},
      {.name = "ThreeChannelsInPacksAndOffset", .images = 2, .y = {5, 2, -1}, .x = {6, 2, -2, 16}, .channels = 3},
      {.name = "ManyImagesInPacks", .images = 47, .y = {11, 2}, .x = {8, 2}, .channels = 3},
      {.name = "WideRowsInPacks", .images = 2, .y = {3, 2}, .x = {28, 2}, .channels = 3},
      {.name = "TallImagesOfThreeChannels", .images = 2, .y = {300, 2}, .x = {8, 2}, .channels = 3, .fillsGpus = true},
      {.name = "ThousandsOfImagesOfThreeChannels", .images = 5200, .y = {1, 1}, .x = {4, 2}, .channels = 3, .fillsGpus = true},
      {.name = "FourChannels", .images = 1, .y = {3, 2}, .x = {6, 4}, .channels = 4},
      {.name = "FiveChannels", .images = 3, .y = {3, 5}, .x = {5, 2}, .channels = 5},
      {.name = "SeveralTiles", .images = 1, .y = {2, 2}, .x = {23, 3}, .channels = 260},
      {.name = "SeveralTilesOfThreeChannels", .images = 2, .y = {1, 2}, .x = {1400, 2}, .channels = 3},
      {.name = "BlocksOfManyChannels", .images = 2, .y = {19, 2}, .x = {43, 2}, .channels = 72, .fillsGpus = true},
      {.name = "BlocksOfALaterView", .images = 2, .y = {9, 2, 1, 12, 3, 6, 2}, .x = {12, 2, -1, 19, 2, 9, 2}, .channels = 64, .fillsGpus = true},
      {.name = "BlocksOfFewerResults", .images = 3, .y = {.sourceSize = 29, .resultSize = 20}, .x = {.sourceSize = 45, .resultSize = 33}, .channels = 40, .fillsGpus = true},
      {.name = "RowsOfMoreThanHalfATile", .images = 1, .y = {.sourceSize = 4, .resultSize = 2}, .x = {.sourceSize = 5000, .resultSize = 5000}, .channels = 1},
      {.name = "MoreChannelsThanATile", .images = 1, .y = {2, 2}, .x = {3, 2}, .channels = 4100},
      // Rows for more than one thread.
      {.name = "Threads17", .images = 2, .y = {19, 2}, .x = {23, 2}, .channels = 17},
      {.name = "Threads3", .images = 3, .y = {31, 2}, .x = {33, 2}, .channels = 3},
      // Sizes and factors.
      {.name = "Copy", .images = 2, .y = {4, 1}, .x = {5, 1}, .channels = 5},
      {.name = "OneAxis", .images = 2, .y = {4, 1}, .x = {5, 4}, .channels = 3},
      {.name = "OnePixel", .images = 1, .y = {1, 1}, .x = {1, 1}, .channels = 4},
      {.name = "OnePixelEnlarged", .images = 3, .y = {1, 3}, .x = {1, 5}, .channels = 16},
      {.name = "OneRow", .images = 1, .y = {1, 4}, .x = {6, 2}, .channels = 3},
      {.name = "LargeFactors", .images = 1, .y = {3, 17}, .x = {2, 31}, .channels = 4},
      {.name = "WholeEighths", .images = 2, .y = {3, 3}, .x = {13, 5}, .channels = 3},
      {.name = "LargestFactors", .images = 1, .y = {2, 2}, .x = {2, 300}, .channels = 3},
      // Resizing: results that are no multiple of the source, larger, smaller, one pixel.
      {.name = "ResizeLarger", .images = 2, .y = {.sourceSize = 5, .resultSize = 7}, .x = {.sourceSize = 4, .resultSize = 9}, .channels = 16},
      {.name = "ResizeSmaller", .images = 3, .y = {.sourceSize = 9, .resultSize = 4}, .x = {.sourceSize = 11, .resultSize = 5}, .channels = 3},
      {.name = "ResizeMuchSmaller", .images = 1, .y = {.sourceSize = 40, .resultSize = 3}, .x = {.sourceSize = 31, .resultSize = 2}, .channels = 17},
      {.name = "ResizeOneAxisSmaller", .images = 2, .y = {.sourceSize = 8, .resultSize = 2}, .x = {.sourceSize = 6, .resultSize = 16}, .channels = 8},
      {.name = "ResizeToOnePixel", .images = 2, .y = {.sourceSize = 6, .resultSize = 1}, .x = {.sourceSize = 5, .resultSize = 1}, .channels = 5},
      {.name = "ResizeOffset", .images = 1, .y = {.sourceSize = 7, .offset = -1, .resultSize = 5}, .x = {.sourceSize = 6, .offset = 2, .resultSize = 4}, .channels = 4},
      {.name = "ResizeLaterGradient", .images = 2, .y = {.sourceSize = 7, .results = 3, .firstResult = 1, .resultSize = 5}, .x = {.sourceSize = 6, .results = 4, .firstResult = 3, .viewOrigin = 1, .viewSize = 4, .resultSize = 9}, .channels = 6},
      // Offsets of every sign, fewer and more results than the whole enlarged source.
      {.name = "FewerResults", .images = 2, .y = {5, 2, 0, 7}, .x = {6, 3, 0, 10}, .channels = 16},
      {.name = "MoreResults", .images = 1, .y = {3, 2, 0, 9}, .x = {4, 2, 0, 13}, .channels = 5},
      {.name = "OffsetPositive", .images = 2, .y = {5, 2, 1, 8}, .x = {6, 2, 3, 9}, .channels = 4},
      {.name = "OffsetNegative", .images = 2, .y = {4, 3, -1, 12}, .x = {5, 2, -2, 11}, .channels = 16},
      {.name = "OffsetBeyondSource", .images = 1, .y = {3, 2, 2}, .x = {3, 2, 3, 7}, .channels = 3, .readsNothing = true},
      {.name = "FarOutside", .images = 1, .y = {2, 2, -7}, .x = {3, 3, -9}, .channels = 4, .readsNothing = true},
      // What the gradient reads and writes.
      {.name = "LaterGradient", .images = 2, .y = {4, 2, 0, 6, 1}, .x = {5, 3, 0, 9, 4}, .channels = 5},
      {.name = "LaterGradientAndOffset", .images = 1, .y = {4, 2, 1, 4, 3}, .x = {5, 2, -1, 7, 2}, .channels = 16},
      {.name = "NarrowView", .images = 2, .y = {6, 2, 0, 0, 0, 3, 2}, .x = {7, 2, 0, 0, 0, 1, 4}, .channels = 3},
      {.name = "ViewBeyondSource", .images = 1, .y = {4, 2, 0, 0, 0, 2, 5}, .x = {4, 2, 0, 0, 0, 3, 4}, .channels = 17},
      {.name = "ViewOutsideSource", .images = 1, .y = {3, 2, 0, 0, 0, 1, 3}, .x = {3, 2, 0, 0, 0, 3, 3}, .channels = 4, .readsNothing = true},
      // Memory.
      {.name = "Strided", .images = 3, .y = {3, 2}, .x = {4, 3}, .channels = 5, .memory = Strided},
      {.name = "StridedWide", .images = 2, .y = {3, 2}, .x = {3, 2}, .channels = 40, .memory = Strided},
      {.name = "StridedInput", .images = 2, .y = {3, 2}, .x = {5, 2}, .channels = 3, .memory = StridedInput},
      {.name = "LeftPart", .images = 2, .y = {4, 2}, .x = {5, 2}, .channels = 3, .memory = LeftPart},
      {.name = "RepeatedImage", .images = 3, .y = {3, 2}, .x = {4, 2}, .channels = 16, .memory = RepeatedImage},
  };
  // clang-format on
}

/// Every way of sampling on every geometry; both edge modes where results may lie outside.
inline std::vector<UpsamplingCase> upsamplingCases() {
  using enum UpsamplingSampling;
  constexpr std::array<const char*, 4> names{"Nearest", "Bilinear", "AlignCorners", "HalfPixel"};
  std::vector<UpsamplingCase> cases;
  for (const UpsamplingGeometry& geometry : upsamplingGeometries())
    for (const UpsamplingSampling sampling : {Nearest, Bilinear, BilinearAlignCorners, BilinearHalfPixel})
      for (const ImageEdgeMode edgeMode : {ImageEdgeMode::Zero, ImageEdgeMode::Clamp}) {
        const bool clamps = edgeMode == ImageEdgeMode::Clamp;
        if (clamps && !geometry.x.leavesSource() && !geometry.y.leavesSource()) continue;
        cases.push_back(
            {std::string(geometry.name) + names[static_cast<std::size_t>(sampling)] + (clamps ? "Clamp" : ""),
             sampling, edgeMode, geometry});
      }
  return cases;
}

/// Crops have none.
constexpr bool hasGradient(UpsamplingSampling sampling) {
  return sampling != UpsamplingSampling::BilinearRegion;
}

/// Crops and scales: positions go on in steps.
inline std::vector<UpsamplingCase> steppedCases() {
  using enum UpsamplingMemory;
  using enum UpsamplingSampling;
  const auto axis = [](std::int64_t sourceSize, std::int64_t resultSize, double start, double step,
                       std::int64_t offset = 0) {
    return UpsamplingExtent{
        .sourceSize = sourceSize, .offset = offset, .resultSize = resultSize, .start = start, .step = step};
  };
  // clang-format off
  const std::vector<UpsamplingGeometry> geometries{
      {.name = "Whole", .images = 2, .y = axis(5, 9, 0, 0.5), .x = axis(6, 11, 0, 0.5), .channels = 16},
      {.name = "Part", .images = 3, .y = axis(9, 4, 1.25, 1.5), .x = axis(11, 7, 2.5, 0.75), .channels = 3},
      {.name = "Outside", .images = 1, .y = axis(5, 8, -2.25, 1.25), .x = axis(4, 9, -1.5, 0.875), .channels = 5},
      {.name = "HalfAPixelOutside", .images = 2, .y = axis(4, 8, -0.5, 0.5), .x = axis(5, 12, -0.375, 0.4375), .channels = 17},
      {.name = "FarOutside", .images = 1, .y = axis(3, 4, -40, 2), .x = axis(4, 3, 9, 1), .channels = 4, .readsNothing = true},
      {.name = "Thirds", .images = 2, .y = axis(7, 10, -1.0 / 3, 2.0 / 3), .x = axis(8, 5, 1.0 / 7, 4.0 / 3), .channels = 21},
      {.name = "MuchSmaller", .images = 1, .y = axis(40, 3, 6.2, 13.1), .x = axis(31, 2, 7.3, 15.5), .channels = 8},
      {.name = "MuchLarger", .images = 1, .y = axis(3, 34, -0.4, 0.083), .x = axis(2, 60, -0.48, 0.033), .channels = 4},
      {.name = "OnePixel", .images = 2, .y = axis(6, 1, 2.5, 0), .x = axis(1, 4, 0, 0), .channels = 3},
      {.name = "Offset", .images = 1, .y = axis(7, 5, 0.25, 0.5, 2), .x = axis(6, 4, 2, 0.75, -1), .channels = 4},
      // Row 9 lies beside the last pixel, row 10 beyond it.
      {.name = "BesideTheLastRow", .images = 2, .y = axis(8, 18, 0.95, 0.7), .x = axis(9, 15, -0.45, 0.7), .channels = 8},
      {.name = "SeveralTiles", .images = 1, .y = axis(4, 3, 0.5, 1), .x = axis(23, 41, 0, 0.5), .channels = 260},
      {.name = "BlocksOfLarger", .images = 3, .y = axis(23, 41, -1.305, 0.62), .x = axis(25, 43, -2.05, 0.7), .channels = 72, .fillsGpus = true},
      {.name = "BlocksOfSmaller", .images = 2, .y = axis(33, 39, -2.61, 1.05), .x = axis(50, 37, -0.7, 1.4), .channels = 40, .fillsGpus = true},
      {.name = "Threads", .images = 2, .y = axis(33, 40, 0, 0.75), .x = axis(35, 37, 1, 0.875), .channels = 12},
      {.name = "Strided", .images = 3, .y = axis(5, 6, -1, 0.75), .x = axis(6, 5, 0.5, 1.25), .channels = 5, .memory = Strided},
      {.name = "StridedInput", .images = 2, .y = axis(4, 7, 0.25, 0.5), .x = axis(7, 6, 0.5, 0.875), .channels = 3, .memory = StridedInput},
      // Adjacent rows have most of Lanczos' pixels in common; the last one is alone.
      {.name = "SmallerWide", .images = 2, .y = axis(23, 15, 0.2, 1.4), .x = axis(9, 7, -0.3, 1.25), .channels = 40},
      {.name = "SmallerStrided", .images = 1, .y = axis(14, 9, -0.4, 1.3), .x = axis(5, 4, 0, 1.2), .channels = 70, .memory = Strided},
      {.name = "LargerStrided", .images = 1, .y = axis(5, 9, 0, 0.5), .x = axis(6, 11, 0, 0.5), .channels = 18, .memory = Strided},
      // Lanczos takes 12 pixels of an axis, 13 and more.
      {.name = "HalfSize", .images = 2, .y = axis(24, 12, 0.5, 2), .x = axis(26, 13, 0.5, 2), .channels = 16},
      {.name = "HalfSizeOfManyChannels", .images = 2, .y = axis(40, 20, 0.5, 2), .x = axis(30, 15, 0.5, 2), .channels = 40},
      {.name = "HalfSizeOdd", .images = 3, .y = axis(25, 12, 13.0 / 24, 25.0 / 12), .x = axis(27, 14, 13.0 / 28, 27.0 / 14), .channels = 24},
      {.name = "HalfSizeOfThreeChannels", .images = 3, .y = axis(19, 9, 5.0 / 9, 19.0 / 9), .x = axis(16, 8, 0.5, 2), .channels = 3},
      {.name = "HalfSizeStrided", .images = 2, .y = axis(14, 7, 0.5, 2), .x = axis(13, 7, 3.0 / 7, 13.0 / 7), .channels = 3, .memory = Strided},
      {.name = "HalfSizeBesideTheEdge", .images = 2, .y = axis(20, 9, 1.2, 2, -1), .x = axis(19, 9, 0.75, 2.125), .channels = 8},
      {.name = "ThirdSize", .images = 2, .y = axis(31, 10, 1.05, 3.1), .x = axis(40, 13, 27.0 / 26, 40.0 / 13), .channels = 8},
      {.name = "FiveThirdsOfTheStep", .images = 1, .y = axis(35, 21, 1.0 / 3, 5.0 / 3), .x = axis(40, 24, 1.0 / 3, 5.0 / 3), .channels = 8},
      {.name = "QuarterSize", .images = 1, .y = axis(33, 8, 1.5625, 4.125), .x = axis(48, 12, 1.5, 4), .channels = 20},
      {.name = "HalfSizeInSeveralTiles", .images = 1, .y = axis(12, 6, 0.5, 2), .x = axis(60, 30, 0.5, 2), .channels = 260},
      // The last digit of the windows' ends is rounded outwards.
      {.name = "RoundedWindows", .images = 2, .y = axis(60, 8, 1.5, std::nextafter(7.0 / 6, 0.0)), .x = axis(60, 8, 8, std::nextafter(8.0 / 6, 0.0)), .channels = 8},
      {.name = "RoundedWindowsOfThreeChannels", .images = 1, .y = axis(60, 8, 8, std::nextafter(8.0 / 6, 0.0)), .x = axis(60, 8, 1.5, std::nextafter(7.0 / 6, 0.0)), .channels = 3},
      {.name = "BlocksOfHalfSize", .images = 2, .y = axis(70, 35, 0.5, 2), .x = axis(130, 65, 0.5, 2), .channels = 40, .fillsGpus = true},
      {.name = "BlocksOfQuarterSize", .images = 1, .y = axis(420, 105, 1.5, 4), .x = axis(100, 25, 1.5, 4), .channels = 16, .fillsGpus = true},
      {.name = "HundredsOfImagesOfHalfSize", .images = 600, .y = axis(6, 3, 0.5, 2), .x = axis(8, 4, 0.5, 2), .channels = 3, .fillsGpus = true},
      {.name = "RepeatedImage", .images = 3, .y = axis(5, 6, 0, 0.75), .x = axis(6, 5, 0, 1.25), .channels = 16, .memory = RepeatedImage},
      // Gradients alone: a later part of the results, and a part of the source.
      {.name = "LaterGradient", .images = 2, .y = {.sourceSize = 9, .results = 6, .firstResult = 2, .resultSize = 12, .start = -0.125, .step = 0.75}, .x = {.sourceSize = 8, .results = 5, .firstResult = 3, .viewOrigin = 2, .viewSize = 5, .resultSize = 10, .start = 0.25, .step = 0.875}, .channels = 6},
      {.name = "LaterGradientOfFewerResults", .images = 1, .y = {.sourceSize = 22, .results = 7, .firstResult = 3, .viewOrigin = 5, .viewSize = 11, .resultSize = 11, .start = 0.5, .step = 2}, .x = {.sourceSize = 19, .offset = -1, .results = 8, .firstResult = 1, .resultSize = 9, .start = 0.75, .step = 2.125}, .channels = 24},
      {.name = "ViewBesideTheSource", .images = 2, .y = {.sourceSize = 4, .viewOrigin = 3, .viewSize = 4, .resultSize = 9, .start = -0.25, .step = 0.5}, .x = {.sourceSize = 5, .viewOrigin = 2, .viewSize = 7, .resultSize = 6, .start = 0, .step = 0.75}, .channels = 8},
  };
  // clang-format on
  constexpr std::array<const char*, 3> names{"Region", "Bilinear", "Lanczos"};
  std::vector<UpsamplingCase> cases;
  for (const UpsamplingGeometry& geometry : geometries)
    for (std::size_t i = 0; i < names.size(); ++i)
      for (const ImageEdgeMode edgeMode : {ImageEdgeMode::Zero, ImageEdgeMode::Clamp})
        cases.push_back(
            {std::string(geometry.name) + names[i] + (edgeMode == ImageEdgeMode::Clamp ? "Clamp" : ""),
             static_cast<UpsamplingSampling>(static_cast<std::size_t>(BilinearRegion) + i), edgeMode,
             geometry});
  // Mirrored: crops alone. Pixel by pixel each row is the one before the last.
  const std::vector<UpsamplingGeometry> mirrored{
      {.name = "Mirrored", .images = 2, .y = axis(5, 4, 4.5, -1.25), .x = axis(6, 9, 5, -0.5), .channels = 7},
      {.name = "MirroredPixels",
       .images = 2,
       .y = axis(9, 8, 8, -1),
       .x = axis(6, 6, 5, -1),
       .channels = 16}};
  for (const UpsamplingGeometry& geometry : mirrored)
    cases.push_back({std::string(geometry.name) + "Region", BilinearRegion, ImageEdgeMode::Zero, geometry});
  return cases;
}

/// Rows that are whole cache lines, and several tiles of them.
inline UpsamplingCase wholeLinesUpsamplingCase(UpsamplingSampling sampling) {
  return {"WholeLines",
          sampling,
          ImageEdgeMode::Zero,
          {.name = "WholeLines", .images = 3, .y = {20, 2}, .x = {25, 2}, .channels = 64}};
}

/// Whether integers give results without rounding: all weights are multiples of 1 / 64.
inline bool isExact(const UpsamplingProblem& problem) {
  const auto isExactAxis = [&](const UpsamplingAxis& axis) {
    const std::int64_t common = std::gcd(axis.resultSize, axis.sourceSize);
    const auto divides = [](std::int64_t denominator) { return denominator != 0 && 64 % denominator == 0; };
    switch (problem.sampling) {
      case UpsamplingSampling::Nearest:
        return true;
      case UpsamplingSampling::Bilinear:
        return divides(axis.resultSize / common);
      case UpsamplingSampling::BilinearAlignCorners:
        return axis.sourceSize == 1 || axis.resultSize == 1 ||
               divides((axis.resultSize - 1) / std::gcd(axis.resultSize - 1, axis.sourceSize - 1));
      case UpsamplingSampling::BilinearHalfPixel:
        return divides(2 * (axis.resultSize / common));
      case UpsamplingSampling::BilinearRegion:
      case UpsamplingSampling::BilinearScale:
        return std::floor(8 * axis.start) == 8 * axis.start && std::floor(8 * axis.step) == 8 * axis.step;
      case UpsamplingSampling::LanczosScale:
        return false;
    }
    return false;
  };
  return isExactAxis(problem.x) && isExactAxis(problem.y);
}

}  // namespace mps::detail
