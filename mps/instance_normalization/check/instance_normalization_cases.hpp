#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "mps/conform/tolerance.hpp"
#include "mps/core/testing/case_shapes.hpp"
#include "mps/instance_normalization/instance_normalization_problem.hpp"

/// The problems that tests, conform and bench share.
namespace mps::detail {

/// Sizes and memory layout of a case.
struct InstanceNormalizationTensors {
  std::string name;
  std::int64_t images = 1;
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t channels = 1;
  std::int64_t groups = 1;
  bool hasGaps = false;        ///< between pixels, rows and images, different ones for each operand
  bool repeatsImages = false;  ///< the inputs' images are all the same memory

  /// @param gap what an operand adds to its strides where the case has gaps
  [[nodiscard]] TensorShape shape(ImageFeatureChannelFormat format, std::int64_t gap) const {
    return withGaps(TensorShape::dense(images, height, width, channels, format), hasGaps ? gap : 0);
  }

  /// Values of each group.
  [[nodiscard]] std::int64_t groupValues() const { return height * width * channels / groups; }
  /// Whether small integers give exact results: means and shares of sums need few binary digits.
  [[nodiscard]] bool canBeExact() const {
    const auto values = static_cast<std::uint64_t>(groupValues());
    return values >= 2 && values <= 256 && std::has_single_bit(values);
  }

  [[nodiscard]] InstanceNormalizationProblem problem(InstanceNormalizationOperation operation,
                                                     ImageFeatureChannelFormat sourceFormat,
                                                     ImageFeatureChannelFormat destinationFormat,
                                                     Tier tier = Tier::Bounded) const {
    InstanceNormalizationProblem problem;
    problem.operation = operation;
    problem.groups = groups;
    problem.source = shape(sourceFormat, 3);
    problem.destination = shape(destinationFormat, 1);
    if (operation == InstanceNormalizationOperation::Gradient) problem.gradient = shape(destinationFormat, 5);
    if (repeatsImages) problem.source.imageStride = problem.gradient.imageStride = 0;
    const bool isUnorm = sourceFormat == ImageFeatureChannelFormat::Unorm8 ||
                         sourceFormat == ImageFeatureChannelFormat::Unorm16;
    // Of the exact tier the variance is 1/4 or 1, and r is 1 or 1/2.
    problem.epsilon = tier != Tier::Exact ? 0.0625F : isUnorm ? 0.75F : 3.0F;
    return problem;
  }
};

inline std::vector<InstanceNormalizationTensors> instanceNormalizationTensors() {
  return {
      {.name = "OneElement"},
      {.name = "OnePixel", .images = 3, .channels = 5, .groups = 5},
      {.name = "OneChannel", .images = 2, .height = 9, .width = 11},
      {.name = "Channels3", .images = 3, .height = 5, .width = 7, .channels = 3, .groups = 3},
      {.name = "Channels4", .images = 2, .height = 4, .width = 4, .channels = 4, .groups = 2},
      {.name = "Channels5Gaps",
       .images = 2,
       .height = 6,
       .width = 5,
       .channels = 5,
       .groups = 5,
       .hasGaps = true},
      {.name = "GroupsOf3Gaps",
       .images = 3,
       .height = 3,
       .width = 9,
       .channels = 12,
       .groups = 4,
       .hasGaps = true},
      {.name = "LayerOf17", .height = 11, .width = 13, .channels = 17, .groups = 1},
      {.name = "Channels64", .images = 2, .height = 8, .width = 8, .channels = 64, .groups = 64},
      {.name = "GroupsOf4", .images = 2, .height = 8, .width = 8, .channels = 32, .groups = 8},
      {.name = "Channels65", .images = 2, .height = 3, .width = 5, .channels = 65, .groups = 13},
      {.name = "Channels67", .images = 2, .height = 3, .width = 5, .channels = 67, .groups = 67},
      {.name = "RepeatedImage",
       .images = 5,
       .height = 3,
       .width = 4,
       .channels = 6,
       .groups = 3,
       .repeatsImages = true},
      {.name = "PixelsLargerThanATile",
       .images = 2,
       .height = 1,
       .width = 2,
       .channels = 4100,
       .groups = 4,
       .hasGaps = true},
      {.name = "Channels192", .images = 5, .height = 5, .width = 7, .channels = 192, .groups = 192},
      {.name = "GroupsOf40", .images = 7, .height = 5, .width = 7, .channels = 160, .groups = 4},
      {.name = "ManyImages", .images = 300, .height = 2, .width = 2, .channels = 3, .groups = 3},
      {.name = "Channels3SeveralChunks", .images = 2, .height = 48, .width = 40, .channels = 3, .groups = 3},
      {.name = "SeveralChunks", .images = 3, .height = 24, .width = 20, .channels = 32, .groups = 8},
  };
}

/// Images that all multiprocessors of a GPU together cannot hold: what they read twice.
inline InstanceNormalizationTensors largeInstanceNormalizationTensors() {
  return {.name = "Large", .images = 2, .height = 340, .width = 350, .channels = 32, .groups = 32};
}

/// More images than a GPU's grid has along an axis.
inline InstanceNormalizationTensors manyInstanceNormalizationTensors() {
  return {.name = "ManyImages", .images = 65'537, .width = 2, .channels = 4, .groups = 4};
}

/// Groups for values so far from 0 that their squares have no room for the distances from the mean, even as float64.
inline InstanceNormalizationTensors farInstanceNormalizationTensors() {
  return {.name = "FarFromZero", .images = 2, .height = 3, .width = 3, .channels = 12, .groups = 3};
}

}  // namespace mps::detail
