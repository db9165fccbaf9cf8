#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mps/core/plan/reference_tensor.hpp"
#include "mps/upsampling/grid_sample_problem.hpp"

/// The problems that tests and conform share, and their reference.
namespace mps::detail {

struct GridSampleCase {
  std::string name;
  std::int64_t images = 1;
  std::int64_t sourceHeight = 1, sourceWidth = 1;
  std::int64_t height = 1, width = 1;
  std::int64_t channels = 1;
  bool hasGaps = false;  ///< between pixels, rows and images, different ones for each tensor
  std::int64_t offsetX = 0, offsetY = 0;

  [[nodiscard]] GridSampleProblem problem(bool usesGridAsCoordinates, ImageEdgeMode edgeMode,
                                          ImageFeatureChannelFormat sourceFormat,
                                          ImageFeatureChannelFormat resultFormat) const {
    const auto shape = [&](std::int64_t rows, std::int64_t columns, std::int64_t count,
                           ImageFeatureChannelFormat format, std::int64_t gap) {
      TensorShape dense = TensorShape::dense(images, rows, columns, count, format);
      if (!hasGaps) return dense;
      dense.pixelStride += gap;
      dense.rowStride = columns * dense.pixelStride + 2 * gap;
      dense.imageStride = rows * dense.rowStride + 3 * gap;
      return dense;
    };
    return {usesGridAsCoordinates,
            edgeMode,
            offsetX,
            offsetY,
            shape(sourceHeight, sourceWidth, channels, sourceFormat, 3),
            shape(height, width, 2, sourceFormat, 2),
            shape(height, width, channels, resultFormat, 5)};
  }
};

/// Sources are one more than a power of two wide and high: eighths of the grid are exact.
inline std::vector<GridSampleCase> gridSampleCases() {
  return {{"OnePixel", 2, 1, 1, 3, 2, 3},       {"Channels3", 3, 5, 9, 4, 7, 3},
          {"Channels16", 2, 9, 5, 9, 8, 16},    {"Channels21", 1, 3, 5, 6, 5, 21},
          {"Gaps", 3, 5, 3, 4, 5, 6, true},     {"Offsets", 2, 5, 5, 6, 7, 4, false, -2, 1},
          {"ManyPixels", 2, 17, 33, 40, 31, 2}, {"ManyChannels", 1, 3, 3, 2, 3, 2049},
          {"WideRows", 1, 5, 9, 2, 131, 5}};
}

/// In float64, straight from the definition.
ReferenceTensor gridSampleReference(const GridSampleProblem& problem, const ReferenceTensor& source,
                                    const ReferenceTensor& grid);

}  // namespace mps::detail
