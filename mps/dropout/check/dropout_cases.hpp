#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mps/core/testing/case_shapes.hpp"
#include "mps/dropout/dropout_problem.hpp"

/// The problems that tests, conform and bench share.
namespace mps::detail {

struct DropoutCase {
  std::string name;
  std::int64_t images = 1;
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t channels = 1;
  float keepProbability = 0.8F;
  std::uint64_t seed = 1;
  std::int64_t strideX = 1;
  std::int64_t strideY = 1;
  std::int64_t strideChannel = 1;
  /// The tensors are a part of what the mask was drawn for: these many positions before, and one behind.
  std::int64_t originX = 0;
  std::int64_t originY = 0;
  std::int64_t originChannel = 0;
  bool hasGaps = false;        ///< between pixels, rows and images, different ones for input and destination
  bool hasLongGaps = false;    ///< the same, so long that every pixel begins at an address for whole vectors
  bool repeatsImages = false;  ///< the input's images are all the same memory
  std::uint32_t encodeCounter = 0;
  std::uint32_t firstImage = 0;

  [[nodiscard]] DropoutProblem problem(DropoutDirection direction, ImageFeatureChannelFormat inputFormat,
                                       ImageFeatureChannelFormat destinationFormat) const {
    DropoutProblem problem;
    problem.direction = direction;
    problem.keepProbability = keepProbability;
    problem.seed = seed;
    problem.maskStrideX = strideX;
    problem.maskStrideY = strideY;
    problem.maskStrideChannel = strideChannel;
    problem.maskWidth = width + originX + (originX > 0 ? 1 : 0);
    problem.maskHeight = height + originY + (originY > 0 ? 1 : 0);
    problem.maskChannels = channels + originChannel + (originChannel > 0 ? 1 : 0);
    problem.maskOriginX = originX;
    problem.maskOriginY = originY;
    problem.maskOriginChannel = originChannel;
    problem.input = shape(inputFormat, 3);
    problem.destination = shape(destinationFormat, 1);
    if (repeatsImages) problem.input.imageStride = 0;
    return problem;
  }

 private:
  [[nodiscard]] TensorShape shape(ImageFeatureChannelFormat format, std::int64_t gap) const {
    return withGaps(TensorShape::dense(images, height, width, channels, format), hasGaps       ? gap
                                                                                 : hasLongGaps ? 8 * gap
                                                                                               : 0);
  }
};

inline std::vector<DropoutCase> dropoutCases() {
  std::vector<DropoutCase> cases = {
      {.name = "OneElement"},
      {.name = "Channels3", .images = 3, .height = 5, .width = 7, .channels = 3},
      {.name = "Channels16Gaps", .images = 2, .height = 6, .width = 5, .channels = 16, .hasGaps = true},
      {.name = "Channels17", .images = 2, .height = 4, .width = 9, .channels = 17, .keepProbability = 0.3F},
      {.name = "Channels64", .images = 2, .height = 9, .width = 11, .channels = 64, .keepProbability = 0.5F},
      {.name = "LastWordOfAGroup", .height = 3, .width = 5, .channels = 17},
      {.name = "KeepsAll", .images = 2, .height = 3, .width = 3, .channels = 5, .keepProbability = 1.0F},
      {.name = "KeepsAlmostAll", .height = 9, .width = 9, .channels = 32, .keepProbability = 0x1.fffffep-1F},
      {.name = "KeepsAlmostNothing", .height = 9, .width = 9, .channels = 32, .keepProbability = 0x1p-7F},
      {.name = "KeepsLess", .height = 9, .width = 9, .channels = 32, .keepProbability = 0x1p-15F},
      {.name = "WideSeed", .height = 4, .width = 4, .channels = 8, .seed = 0xFEDCBA9876543210ULL},
      {.name = "LaterEncode",
       .images = 2,
       .height = 4,
       .width = 4,
       .channels = 8,
       .encodeCounter = 4000000000U},
      {.name = "LaterImages", .images = 3, .height = 4, .width = 4, .channels = 8, .firstImage = 1000},
      {.name = "Vectors", .images = 70, .channels = 40},
      {.name = "RepeatedImage", .images = 4, .height = 3, .width = 3, .channels = 6, .repeatsImages = true},
      {.name = "PixelsLargerThanATile", .images = 2, .width = 2, .channels = 4101, .hasGaps = true},
      {.name = "TilesAmidBlocks", .images = 2, .height = 40, .width = 41, .channels = 3},
      {.name = "ManyTiles", .images = 5, .height = 20, .width = 21, .channels = 24},
      {.name = "WholeChannels",
       .images = 3,
       .height = 7,
       .width = 9,
       .channels = 48,
       .strideX = 0,
       .strideY = 0},
      {.name = "WholeChannelsManyPixels",
       .images = 2,
       .height = 9,
       .width = 31,
       .channels = 256,
       .strideX = 0,
       .strideY = 0},
      {.name = "WholeChannelsGaps",
       .images = 2,
       .height = 5,
       .width = 6,
       .channels = 24,
       .strideX = 0,
       .strideY = 0,
       .hasLongGaps = true},
      {.name = "Rectangle", .images = 2, .height = 5, .width = 6, .channels = 8, .originX = 3, .originY = 2},
      {.name = "Rows", .images = 2, .height = 5, .width = 6, .channels = 9, .originY = 3},
      {.name = "ChannelRange",
       .images = 2,
       .height = 3,
       .width = 4,
       .channels = 13,
       .originChannel = 5,
       .hasGaps = true},
  };
  for (int strides = 0; strides < 7; ++strides) {
    DropoutCase item{.name = "Broadcast",
                     .images = 3,
                     .height = 13,
                     .width = 11,
                     .channels = 19,
                     .keepProbability = 0.6F,
                     .seed = 99};
    item.strideX = strides & 1;
    item.strideY = strides >> 1 & 1;
    item.strideChannel = strides >> 2 & 1;
    item.name +=
        std::to_string(item.strideX) + std::to_string(item.strideY) + std::to_string(item.strideChannel);
    cases.push_back(item);
    DropoutCase& vectors = cases.emplace_back(item);  // a few pixels fill whole vectors
    vectors.name += "Vectors";
    vectors.channels = 32;
    item.name += "Part";
    item.originX = 2;
    item.originY = 3;
    item.originChannel = 5;
    item.hasGaps = true;
    cases.push_back(item);
  }
  return cases;
}

}  // namespace mps::detail
