#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "mps/gram_matrix/gram_matrix_problem.hpp"

/// The problems that tests and conform share.
namespace mps::detail {

struct GramMatrixCase {
  std::string name;
  std::int64_t images = 1, height = 1, width = 1, channels = 1;
  bool hasGaps = false;  ///< between pixels, rows and images

  [[nodiscard]] GramMatrixProblem forward(ImageFeatureChannelFormat sourceFormat,
                                          ImageFeatureChannelFormat matrixFormat, int threadCount) const {
    GramMatrixProblem problem;
    problem.direction = GramMatrixDirection::Forward;
    problem.source = placed(TensorShape::dense(images, height, width, channels, sourceFormat));
    problem.matrix = placed(TensorShape::dense(images, 1, channels, channels, matrixFormat));
    problem.threadCount = threadCount;
    return problem;
  }
  [[nodiscard]] GramMatrixProblem gradient(ImageFeatureChannelFormat sourceFormat,
                                           ImageFeatureChannelFormat gradientFormat,
                                           ImageFeatureChannelFormat destinationFormat,
                                           int threadCount) const {
    GramMatrixProblem problem = forward(sourceFormat, gradientFormat, threadCount);
    problem.direction = GramMatrixDirection::Gradient;
    problem.destination = placed(TensorShape::dense(images, height, width, channels, destinationFormat));
    return problem;
  }

 private:
  [[nodiscard]] TensorShape placed(TensorShape shape) const {
    if (!hasGaps) return shape;
    shape.pixelStride += 3;
    shape.rowStride = shape.width * shape.pixelStride + 5;
    shape.imageStride = shape.height * shape.rowStride + 7;
    return shape;
  }
};

/// For GoogleTest's messages.
inline void PrintTo(const GramMatrixCase& item, std::ostream* stream) {
  *stream << item.name;
}

/// Awkward on purpose; small enough for a float64 reference.
inline std::vector<GramMatrixCase> gramMatrixCases() {
  return {{"OneElement", 1, 1, 1, 1},       {"OnePixel", 3, 1, 1, 7},      {"OneChannel", 2, 5, 3, 1},
          {"Channels3", 3, 4, 5, 3},        {"Channels16", 2, 8, 8, 16},   {"Channels17", 1, 7, 9, 17},
          {"MoreChannels", 2, 3, 2, 66},    {"MorePixels", 1, 40, 31, 5},  {"Gaps", 3, 3, 4, 6, true},
          {"GapsOneRow", 2, 1, 9, 5, true}, {"Channels130", 1, 2, 3, 130}, {"Channels260", 1, 1, 2, 260}};
}

}  // namespace mps::detail
