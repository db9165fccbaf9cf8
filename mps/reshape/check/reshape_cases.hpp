#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "mps/reshape/reshape_problem.hpp"

/// The problems that tests and conform share.
namespace mps::detail {

/// How the tensors of a case lie in memory.
enum class ReshapeMemory : std::uint8_t {
  Dense,
  Strided,        ///< gaps between pixels, rows and images
  RowGaps,        ///< gaps between rows and images alone
  RepeatedImage,  ///< the input's images are all the same memory
};

struct ReshapeSize {
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t channels = 1;
};

struct ReshapeCase {
  std::string name;
  ReshapeMapping mapping = ReshapeMapping::Order;
  ImageEdgeMode edgeMode = ImageEdgeMode::Zero;
  std::int64_t images = 1;
  ReshapeSize source = {};
  ReshapeSize result = {};
  ReshapeSize before = {0, 0, 0};  ///< of Axes: where the source begins in the result
  bool fills = false;              ///< with a value for each channel
  ReshapeMemory memory = ReshapeMemory::Dense;

  [[nodiscard]] ReshapeProblem forward(ImageFeatureChannelFormat sourceFormat,
                                       ImageFeatureChannelFormat resultFormat) const {
    ReshapeProblem problem = common(ReshapeDirection::Forward);
    problem.input = tensor(source, sourceFormat, false);
    problem.destination = tensor(result, resultFormat, true);
    if (fills)
      for (std::int64_t c = 0; c < result.channels; ++c)
        problem.fill.push_back(0.5F * static_cast<float>(c % 7 + 1));
    return problem;
  }
  [[nodiscard]] ReshapeProblem gradient(ImageFeatureChannelFormat gradientFormat,
                                        ImageFeatureChannelFormat destinationFormat) const {
    ReshapeProblem problem = common(ReshapeDirection::Gradient);
    problem.input = tensor(result, gradientFormat, false);
    problem.destination = tensor(source, destinationFormat, true);
    return problem;
  }

 private:
  [[nodiscard]] ReshapeProblem common(ReshapeDirection direction) const {
    ReshapeProblem problem;
    problem.direction = direction;
    problem.mapping = mapping;
    problem.edgeMode = edgeMode;
    if (mapping == ReshapeMapping::Axes) {
      problem.y.before = before.height;
      problem.x.before = before.width;
      problem.channels.before = before.channels;
    }
    return problem;
  }
  [[nodiscard]] TensorShape tensor(const ReshapeSize& size, ImageFeatureChannelFormat format,
                                   bool isWritten) const {
    TensorShape shape = TensorShape::dense(images, size.height, size.width, size.channels, format);
    if (memory == ReshapeMemory::Strided) shape.pixelStride += 3;
    if (memory == ReshapeMemory::Strided || memory == ReshapeMemory::RowGaps) {
      shape.rowStride = size.width * shape.pixelStride + 5;
      shape.imageStride = size.height * shape.rowStride + 7;
    }
    if (memory == ReshapeMemory::RepeatedImage && !isWritten) shape.imageStride = 0;
    return shape;
  }
};

/// For GoogleTest's messages.
inline void PrintTo(const ReshapeCase& reshape, std::ostream* stream) {
  *stream << reshape.name;
}

/// Awkward on purpose; small enough for a float64 reference.
inline std::vector<ReshapeCase> reshapeCases() {
  using enum ReshapeMemory;
  using enum ReshapeMapping;
  // clang-format off
  std::vector<ReshapeCase> all = {
      // Another shape.
      {.name = "ToAVector", .images = 3, .source = {4, 5, 6}, .result = {1, 1, 120}},
      {.name = "ToAnImage", .images = 2, .source = {1, 1, 60}, .result = {3, 4, 5}},
      {.name = "OtherWidth", .images = 3, .source = {4, 6, 5}, .result = {3, 8, 5}},
      {.name = "OtherChannels", .images = 1, .source = {2, 3, 16}, .result = {4, 8, 3}},
      {.name = "SameShape", .images = 2, .source = {3, 2, 7}, .result = {3, 2, 7}},
      {.name = "OneElement", .images = 1, .source = {1, 1, 1}, .result = {1, 1, 1}},
      {.name = "ThreadsOrder", .images = 2, .source = {37, 29, 17}, .result = {17, 29, 37}},
      {.name = "StridedOrder", .images = 3, .source = {2, 6, 5}, .result = {4, 5, 3}, .memory = Strided},
      {.name = "RowGapsOrder", .images = 2, .source = {4, 3, 5}, .result = {5, 2, 6}, .memory = RowGaps},
      {.name = "RepeatedImageOrder", .images = 3, .source = {2, 2, 6}, .result = {3, 4, 2}, .memory = RepeatedImage},
  };
  // clang-format on
  const std::vector<ReshapeCase> inOrder = all;
  for (ReshapeCase reshape : inOrder) {
    reshape.name += "ChannelsFirst";
    reshape.mapping = ChannelsFirst;
    all.push_back(std::move(reshape));
  }
  struct Geometry {
    const char* name;
    std::int64_t images;
    ReshapeSize source, result, before;
    ReshapeMemory memory = Dense;
  };
  const std::vector<Geometry> geometries = {
      {"Pixels", 2, {3, 4, 16}, {6, 9, 16}, {1, 2, 0}},
      {"ThreeChannels", 3, {4, 3, 3}, {5, 6, 3}, {0, 3, 0}},
      {"Channels", 2, {2, 3, 5}, {2, 3, 9}, {0, 0, 2}},
      {"AllAxes", 1, {3, 2, 6}, {7, 8, 11}, {2, 4, 1}},
      {"LargerThanTheImage", 2, {2, 3, 2}, {11, 16, 9}, {5, 7, 3}},
      {"OnePixel", 1, {1, 1, 4}, {3, 5, 6}, {1, 2, 1}},
      {"OneRow", 1, {1, 6, 17}, {4, 6, 17}, {2, 0, 0}},
      {"Slice", 3, {6, 7, 12}, {3, 4, 5}, {-2, -1, -4}},
      {"SliceAcrossTheEdge", 2, {5, 4, 6}, {4, 5, 4}, {-3, 2, -3}},
      {"SliceBehindTheSource", 2, {2, 3, 4}, {5, 4, 7}, {-5, -8, -9}},
      {"SliceBeforeTheSource", 2, {2, 3, 4}, {3, 5, 6}, {5, 9, 8}},
      {"Threads", 2, {21, 19, 33}, {24, 25, 33}, {2, 3, 0}},
      {"Strided", 3, {3, 4, 5}, {5, 7, 8}, {1, 2, 2}, Strided},
      {"RepeatedImage", 2, {2, 3, 4}, {4, 5, 4}, {1, 1, 0}, RepeatedImage},
      // Whole vectors of channels.
      {"PacksUpToTheOtherEnd", 2, {4, 5, 16}, {10, 13, 16}, {3, 4, 0}},
      {"PacksBeyondTheFirstRow", 2, {3, 4, 8}, {7, 8, 8}, {3, 1, 0}},
      {"PacksBeyondTheLastColumn", 2, {3, 4, 8}, {5, 9, 8}, {1, 1, 0}},
      {"PacksOfOnePixel", 2, {1, 1, 8}, {3, 3, 8}, {1, 1, 0}},
      {"PacksCutInFront", 2, {6, 7, 16}, {7, 6, 16}, {-2, -3, 0}},
      {"PacksCutBehind", 3, {6, 7, 8}, {5, 8, 8}, {2, 4, 0}},
      {"PacksOfChannels", 2, {3, 4, 24}, {5, 6, 40}, {1, 1, 8}},
      {"PacksSlice", 2, {3, 4, 40}, {2, 3, 16}, {-1, -1, -8}},
      {"PacksForThreads", 2, {9, 70, 16}, {12, 73, 16}, {1, 2, 0}},
  };
  struct Mode {
    const char* name;
    ImageEdgeMode edgeMode;
    bool fills = false;
  };
  for (const Mode& mode :
       {Mode{"Zero", ImageEdgeMode::Zero}, Mode{"ZeroFilled", ImageEdgeMode::Zero, true},
        Mode{"Constant", ImageEdgeMode::Constant, true}, Mode{"Clamp", ImageEdgeMode::Clamp},
        Mode{"Mirror", ImageEdgeMode::Mirror}, Mode{"MirrorWithEdge", ImageEdgeMode::MirrorWithEdge}})
    for (const Geometry& geometry : geometries)
      all.push_back({.name = std::string(geometry.name) + mode.name,
                     .mapping = Axes,
                     .edgeMode = mode.edgeMode,
                     .images = geometry.images,
                     .source = geometry.source,
                     .result = geometry.result,
                     .before = geometry.before,
                     .fills = mode.fills,
                     .memory = geometry.memory});
  all.push_back({.name = "Outside",
                 .mapping = Axes,
                 .edgeMode = ImageEdgeMode::Zero,
                 .images = 2,
                 .source = {2, 3, 4},
                 .result = {3, 2, 4},
                 .before = {4, -7, 0}});
  return all;
}

}  // namespace mps::detail
