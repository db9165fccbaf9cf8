#pragma once

#include <cstdint>
#include <ostream>
#include <string_view>
#include <vector>

#include "mps/concatenation/concatenation_problem.hpp"

/// The problems that tests and conform share.
namespace mps::detail {

/// How the tensor of a source lies in memory; the concatenated image has the channels of the other parts between its
/// pixels.
enum class ConcatenationMemory : std::uint8_t {
  Dense,
  Strided,        ///< strided pixels, rows and images, in both tensors
  PartOfRows,     ///< as much between rows as they take, as in the left half of an image
  PartOfImages,   ///< a gap between images alone, as in the upper part of each
  RepeatedImage,  ///< the input's images are all the same memory
};

struct ConcatenationCase {
  std::string_view name;
  std::int64_t images = 1;
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t channels = 1;       ///< of the source
  std::int64_t zeros = 0;          ///< channels that pad it
  std::int64_t otherChannels = 0;  ///< of the other parts
  ConcatenationMemory memory = ConcatenationMemory::Dense;

  [[nodiscard]] ConcatenationProblem forward(ImageFeatureChannelFormat sourceFormat,
                                             ImageFeatureChannelFormat resultFormat) const {
    ConcatenationProblem problem;
    problem.direction = ConcatenationDirection::Forward;
    problem.input = source(sourceFormat, false);
    problem.destination = part(channels + zeros, resultFormat, true);
    return problem;
  }
  /// The source and the other parts as one behind it, then zeros. @pre there are other parts
  [[nodiscard]] ConcatenationProblem pair(ImageFeatureChannelFormat sourceFormat,
                                          ImageFeatureChannelFormat resultFormat) const {
    ConcatenationProblem problem = forward(sourceFormat, resultFormat);
    problem.second = finished(TensorShape::dense(images, height, width, otherChannels, sourceFormat), false);
    problem.destination = part(channels + zeros + otherChannels, resultFormat, true);
    return problem;
  }
  [[nodiscard]] ConcatenationProblem gradient(ImageFeatureChannelFormat gradientFormat,
                                              ImageFeatureChannelFormat destinationFormat) const {
    ConcatenationProblem problem;
    problem.direction = ConcatenationDirection::Gradient;
    problem.input = part(channels, gradientFormat, false);
    problem.destination = source(destinationFormat, true);
    return problem;
  }
  /// The gradients of the source and of the other parts as one behind it. @pre there are other parts
  [[nodiscard]] ConcatenationProblem pairGradient(ImageFeatureChannelFormat gradientFormat,
                                                  ImageFeatureChannelFormat destinationFormat) const {
    ConcatenationProblem problem = gradient(gradientFormat, destinationFormat);
    problem.input = part(channels + otherChannels, gradientFormat, false);
    problem.second =
        finished(TensorShape::dense(images, height, width, otherChannels, destinationFormat), true);
    return problem;
  }

 private:
  [[nodiscard]] TensorShape finished(TensorShape shape, bool isWritten) const {
    if (memory == ConcatenationMemory::Strided) {
      shape.pixelStride += 3;
      shape.rowStride = width * shape.pixelStride + 5;
      shape.imageStride = height * shape.rowStride + 7;
    }
    if (memory == ConcatenationMemory::PartOfRows) {
      shape.rowStride = 2 * width * shape.pixelStride;
      shape.imageStride = height * shape.rowStride;
    }
    if (memory == ConcatenationMemory::PartOfImages) shape.imageStride += 2 * shape.rowStride;
    if (memory == ConcatenationMemory::RepeatedImage && !isWritten) shape.imageStride = 0;
    return shape;
  }
  [[nodiscard]] TensorShape source(ImageFeatureChannelFormat format, bool isWritten) const {
    return finished(TensorShape::dense(images, height, width, channels, format), isWritten);
  }
  [[nodiscard]] TensorShape part(std::int64_t count, ImageFeatureChannelFormat format, bool isWritten) const {
    TensorShape shape = TensorShape::dense(images, height, width, channels + zeros + otherChannels, format);
    shape.channels = count;
    return finished(shape, isWritten);
  }
};

/// For GoogleTest's messages.
inline void PrintTo(const ConcatenationCase& concatenation, std::ostream* stream) {
  *stream << concatenation.name;
}

/// Awkward on purpose; small enough for a float64 reference.
inline std::vector<ConcatenationCase> concatenationCases() {
  using enum ConcatenationMemory;
  return {
      // Channel counts, with and without padding.
      {.name = "OneChannel",
       .images = 3,
       .height = 2,
       .width = 5,
       .channels = 1,
       .zeros = 3,
       .otherChannels = 4},
      {.name = "TwoChannels", .images = 2, .height = 3, .width = 3, .channels = 2, .zeros = 2},
      {.name = "ThreeChannels", .images = 1, .height = 4, .width = 7, .channels = 3, .otherChannels = 2},
      {.name = "FourChannels", .images = 3, .height = 2, .width = 4, .channels = 4, .otherChannels = 12},
      {.name = "FiveChannels",
       .images = 2,
       .height = 2,
       .width = 6,
       .channels = 5,
       .zeros = 3,
       .otherChannels = 24},
      {.name = "SevenChannels",
       .images = 1,
       .height = 3,
       .width = 5,
       .channels = 7,
       .zeros = 1,
       .otherChannels = 12},
      {.name = "ThreeChannelsInALongRow",
       .images = 2,
       .height = 2,
       .width = 41,
       .channels = 3,
       .otherChannels = 1},
      {.name = "TwelveChannels", .images = 2, .height = 3, .width = 19, .channels = 12, .otherChannels = 12},
      // By non-temporal stores a row of pixels is written in stages (mps/core/image/pixel_copy.cpp); the last one has one
      // pixel here, of float32 and of float16.
      {.name = "StagesAndAPixel", .width = 67, .channels = 12, .otherChannels = 12},
      {.name = "HalfStagesAndAPixel", .width = 132, .channels = 12, .otherChannels = 12},
      {.name = "Channels16", .images = 2, .height = 3, .width = 4, .channels = 16, .otherChannels = 16},
      {.name = "Channels17",
       .images = 1,
       .height = 5,
       .width = 3,
       .channels = 17,
       .zeros = 3,
       .otherChannels = 8},
      {.name = "Channels23",
       .images = 2,
       .height = 2,
       .width = 2,
       .channels = 23,
       .zeros = 1,
       .otherChannels = 16},
      {.name = "Channels64", .images = 3, .height = 4, .width = 5, .channels = 64, .otherChannels = 64},
      {.name = "Channels65", .images = 1, .height = 2, .width = 3, .channels = 65, .otherChannels = 3},
      {.name = "ManyChannels",
       .images = 2,
       .height = 1,
       .width = 2,
       .channels = 1031,
       .zeros = 1,
       .otherChannels = 9},
      // The only source: its pixels stay adjacent.
      {.name = "Alone", .images = 3, .height = 4, .width = 9, .channels = 8},
      {.name = "OnePixel", .images = 1, .height = 1, .width = 1, .channels = 4, .otherChannels = 4},
      // Rows for more than one thread.
      {.name = "Threads17",
       .images = 3,
       .height = 29,
       .width = 33,
       .channels = 17,
       .zeros = 3,
       .otherChannels = 4},
      {.name = "Threads64", .images = 2, .height = 11, .width = 23, .channels = 64, .otherChannels = 8},
      // Memory.
      {.name = "Strided",
       .images = 3,
       .height = 3,
       .width = 4,
       .channels = 5,
       .zeros = 3,
       .otherChannels = 8,
       .memory = Strided},
      {.name = "StridedAlone", .images = 2, .height = 3, .width = 2, .channels = 16, .memory = Strided},
      {.name = "PartOfRows",
       .images = 2,
       .height = 4,
       .width = 5,
       .channels = 6,
       .zeros = 2,
       .otherChannels = 8,
       .memory = PartOfRows},
      {.name = "PartOfImages",
       .images = 3,
       .height = 2,
       .width = 5,
       .channels = 6,
       .zeros = 2,
       .otherChannels = 8,
       .memory = PartOfImages},
      {.name = "RepeatedImage",
       .images = 3,
       .height = 2,
       .width = 5,
       .channels = 6,
       .zeros = 2,
       .otherChannels = 4,
       .memory = RepeatedImage},
  };
}

}  // namespace mps::detail
